//! Scenarios: seeded histories that try to break the invariants.
