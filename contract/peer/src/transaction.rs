//! Site to site: operations on names that more than one of them has a part in.
//!
//! The site of the (first) directory coordinates. Every other one is a
//! participant: it *prepares* – what the operation is about waits there, in its
//! log, until the outcome is known – and tells what it has; the coordinator
//! plans with all of that in hand, and its log record decides. Then it has the
//! participants *finish*. One that hears nothing asks.

use bytes::Bytes;
use crossdock_names::{Epoch, FileRef, SiteId};
use serde::{Deserialize, Serialize};

/// Names an operation over several sites. No two have the same, as the site's
/// epoch grows with each of its openings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId {
    /// The site that coordinates.
    pub site: SiteId,
    /// The epoch under which that did so.
    pub epoch: Epoch,
    /// Which of those that it coordinated under this epoch.
    pub number: u64,
}

/// What a participant is to keep as it is, and tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// A file's attributes; of a directory also what is not in its cell.
    File(FileRef),
    /// A directory, and what a name in it names.
    Place {
        /// The directory.
        directory: FileRef,
        /// The name.
        name: Bytes,
    },
    /// The right to move directories between directories, which only one
    /// operation of the volume has: no directory gets another parent meanwhile.
    Moves,
    /// The directories above this one, as far as the site has them. Nothing has to
    /// be kept for it: whoever asks has [`Self::Moves`].
    Ancestors(FileRef),
}

/// What one site has another one do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransactionStep {
    /// Keeps these, and tells what they are: [`SiteAnswer::Prepared`].
    /// [`SiteError::Busy`]: another operation has one of them.
    ///
    /// [`SiteAnswer::Prepared`]: crate::SiteAnswer::Prepared
    /// [`SiteError::Busy`]: crate::SiteError::Busy
    Prepare {
        /// What.
        parts: Vec<Part>,
        /// The coordinator's operations of this epoch with a number below this ask
        /// for nothing more: what comes late for one is not kept again.
        oldest: u64,
    },
    /// It is decided: makes these changes, as the manager's directory encodes
    /// them, or none, and keeps nothing any more. Done before is done.
    Finish(Option<Bytes>),
    /// Takes a new directory, of which nobody can know yet. Likewise.
    Adopt {
        /// The changes.
        edits: Bytes,
        /// All directories of the coordinator with a number below this have been
        /// adopted: what comes late does not bring back one that has been
        /// removed since.
        settled_below: u64,
    },
    /// Whether it is still undecided, or not finished yet: [`SiteError::Busy`]. Done
    /// is the answer where nothing is known of it: it was not, and never will be.
    ///
    /// [`SiteError::Busy`]: crate::SiteError::Busy
    Inquire,
}
