//! Orders about the disks of nodes, as the admin API takes them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What is to happen to disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "lowercase", deny_unknown_fields)]
pub enum DiskOrder {
    /// A disk is taken out of its set.
    Fail {
        /// Its path, as it was named.
        disk: String,
    },
    /// A blank disk takes the place of one that has failed, or is to go.
    Replace {
        /// The path of that one, as it was named.
        disk: String,
        /// The path of the blank one.
        with: PathBuf,
    },
    /// Sets of blank disks are added to a node, and spares.
    Add {
        /// The node's number.
        node: u32,
        /// What, like `mirror:/dev/sdf,/dev/sdg`.
        spec: String,
    },
    /// What is on a set goes to the others of its node, then its disks are free.
    Retire {
        /// The node's number.
        node: u32,
        /// The set's number.
        set: usize,
    },
    /// A set that is being retired stays.
    Keep {
        /// The node's number.
        node: u32,
        /// The set's number.
        set: usize,
    },
    /// Rebuilds are held.
    Pause,
    /// They go on.
    Resume,
}

impl DiskOrder {
    /// The node that it is for, if it names one.
    #[must_use]
    pub const fn node(&self) -> Option<u32> {
        match self {
            Self::Add { node, .. } | Self::Retire { node, .. } | Self::Keep { node, .. } => {
                Some(*node)
            }
            Self::Fail { .. } | Self::Replace { .. } | Self::Pause | Self::Resume => None,
        }
    }
}
