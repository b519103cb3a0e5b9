//! What a depot counts.

use crossdock_ibp::{Command, Manage};

/// Commands, in the order of [`DepotFigures::commands`].
pub const COMMANDS: [&str; 8] = [
    "allocate", "store", "write", "load", "copy", "manage", "probe", "status",
];

/// Why allocations go, in the order of [`DepotFigures::gone`].
pub const GONE: [&str; 3] = ["expired", "revoked", "released"];

/// What has happened at a depot since its node was started, and how it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepotFigures {
    /// Requests that were understood, by command.
    pub commands: [u64; COMMANDS.len()],
    /// Requests that were refused, or have failed.
    pub refused_total: u64,
    /// Connections that were told to come again.
    pub busy_total: u64,
    /// Connections that were left alone for too long.
    pub late_total: u64,
    /// Bytes that were stored and written.
    pub stored_bytes: u64,
    /// Bytes of loads and copies that were given to connections.
    pub sent_bytes: u64,
    /// Loads and copies that were broken off.
    pub broken_total: u64,
    /// Reads that were put off because their connections stand still.
    pub postponed_total: u64,
    /// Reads that were taken back because their connections are over.
    pub withdrawn_total: u64,
    /// Allocations that are gone, by why.
    pub gone: [u64; GONE.len()],
    /// Allocations there are.
    pub allocations: usize,
    /// Bytes of stable allocations.
    pub stable_bytes: u64,
    /// Bytes of volatile ones.
    pub volatile_bytes: u64,
    /// Connections there are.
    pub connections: usize,
    /// Bytes of allocations in memory: asked for, or not taken by the kernel.
    pub held_bytes: u64,
}

/// Place of a command in [`COMMANDS`].
pub(crate) const fn index(command: &Command) -> usize {
    match command {
        Command::Allocate { .. } => 0,
        Command::Store { .. } => 1,
        Command::Write { .. } => 2,
        Command::Load { .. } => 3,
        Command::Send { .. } => 4,
        Command::Manage {
            manage: Manage::Probe,
            ..
        } => 6,
        Command::Manage { .. } => 5,
        Command::Status { .. } => 7,
    }
}
