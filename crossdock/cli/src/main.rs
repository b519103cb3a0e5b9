//! Crossdock's one binary.
fn main() {}
