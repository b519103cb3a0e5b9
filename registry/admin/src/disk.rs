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
    /// Rebuilds are held.
    Pause,
    /// They go on.
    Resume,
}
