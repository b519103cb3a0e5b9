//! Locks as the admin API tells them, and takes orders about them.

use serde::{Deserialize, Serialize};

/// All locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockList {
    /// The locks, by file; the first 65,536.
    pub locks: Vec<LockStatus>,
    /// How many there are, requests that wait among them.
    pub count: u64,
    /// Whether the system has just started, and only clients that had locks
    /// before get any.
    pub grace_period: bool,
}

/// A lock, or a request that waits for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockStatus {
    /// A path of the file from the volume's root on; null: it has no name any more.
    pub path: Option<String>,
    /// The file's number.
    pub file: u64,
    /// What it is.
    pub kind: LockKind,
    /// First byte.
    pub first: u64,
    /// Last byte; null: to the end of the file, wherever it will be.
    pub last: Option<u64>,
    /// Whether it waits for others.
    pub is_waiting: bool,
    /// Name of the client, as it says itself.
    pub client: String,
    /// From where it calls.
    pub address: String,
    /// The process within the client.
    pub process: u32,
}

/// What a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// Nobody else may have these bytes.
    Exclusive,
    /// Others may have them, too, but not exclusively.
    Shared,
    /// A DOS share reservation that keeps others from reading.
    DenyRead,
    /// … from writing.
    DenyWrite,
    /// … from both.
    DenyBoth,
    /// … from nothing.
    DenyNone,
}

/// Whose locks are to be given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockRelease {
    /// Name or address, as [`LockStatus`] has them.
    pub client: String,
}

/// What was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockReleased {
    /// As the order had it.
    pub client: String,
    /// Clients of that name.
    pub clients: u64,
    /// Their locks.
    pub released: u64,
    /// Their requests that waited.
    pub cancelled: u64,
    /// What the administrator should know about it.
    pub notes: Vec<String>,
}

impl LockKind {
    /// For people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::DenyRead => "deny read",
            Self::DenyWrite => "deny write",
            Self::DenyBoth => "deny both",
            Self::DenyNone => "deny none",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an order with a misspelt or missing key gives nobody's locks up.
    #[test]
    fn orders_are_read() {
        let order: LockRelease = serde_json::from_str(r#"{"client": "a"}"#).expect("an order");
        assert_eq!(order.client, "a");
        for wrong in ["{}", r#"{"client": "a", "file": 3}"#, r#"{"name": "a"}"#] {
            assert!(serde_json::from_str::<LockRelease>(wrong).is_err());
        }
    }
}
