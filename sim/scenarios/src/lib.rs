//! Scenarios: seeded histories that try to break the invariants.

pub mod delivery;
pub mod host_crash;
#[cfg(test)]
mod regressions;
pub mod seeds;
pub mod store_crash;
