//! Seeded simulation: time, events, and the faulty twins of disk and network.
