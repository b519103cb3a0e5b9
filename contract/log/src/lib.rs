//! Log records, frames, group commit and replay.
