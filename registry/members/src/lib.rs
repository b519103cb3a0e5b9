//! Membership, routing tables and leases; the embedded registry.
