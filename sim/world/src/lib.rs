//! Seeded simulation: time, events, and the faulty twins of disk and network.

pub mod disk;
pub mod random;
