//! Messages between parts.
