//! Scenarios: seeded histories that try to break the invariants.

pub mod seeds;
pub mod store_crash;
