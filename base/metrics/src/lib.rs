//! What a data thread counts: plain integers that it owns, and histograms of
//! them. No locks, no allocation, no clock; whoever wants to see the figures
//! takes a copy.

mod histogram;

pub use histogram::{BUCKETS, Histogram};
