//! Nodes of an ensemble and what belongs to them, as the admin API tells and changes it.

use serde::{Deserialize, Serialize};

/// A change of what belongs where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// The node is to hold nothing any more.
    Drain(u32),
    /// It may hold something again.
    Undrain(u32),
    /// It has lost its files, or will not come back: its place is as new.
    Replace(u32),
    /// Its place ends.
    Remove(u32),
    /// There is a place for one more node.
    Add,
    /// The manager of that number is to give its sites to others, and to end.
    Retire(u64),
}

/// What became of a manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetiringStatus {
    /// Its number, in hexadecimal digits.
    pub host: String,
    /// Sites that it has not given to others yet.
    pub sites: u64,
}

/// A node's place in the ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceStatus {
    /// Its number.
    pub number: u32,
    /// Its id, in hexadecimal digits.
    pub id: String,
    /// Whether a process runs it.
    pub is_running: bool,
    /// Whether it is to hold nothing any more.
    pub is_draining: bool,
    /// Replica sets that belong to it.
    pub sets: u64,
    /// Of these, the ones that are still on their way to it.
    pub coming: u64,
    /// Sets that are still on their way from it to others.
    pub leaving: u64,
}
