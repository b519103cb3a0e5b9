//! What every message carries.

use crossdock_names::Epoch;
use crossdock_types::Time;
use serde::{Deserialize, Serialize};

/// Number of a call, unique within its sender.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct CallId(pub u64);

/// A request on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<Request> {
    /// The sender's number for it; the reply carries it back.
    pub id: CallId,
    /// When nobody waits for the answer any more. Work that has not begun by
    /// then is dropped and answered with "busy".
    pub deadline: Time,
    /// What is wanted.
    pub request: Request,
}

/// How durable a write has to be before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stability {
    /// It may be lost by a crash until the next commit (NFS UNSTABLE).
    Unstable,
    /// It survives the loss of everything that was not synced (NFS DATA_SYNC
    /// and FILE_SYNC).
    Stable,
    /// The bytes do; when they were written the site may learn later. A door's promise that the
    /// file ends behind them for good: of a file that may grow by it, the end would be lost.
    /// Routers ask nodes and sites for [`Stability::Stable`].
    Data,
}

impl Stability {
    /// How durable the bytes have to be.
    #[must_use]
    pub const fn of_bytes(self) -> Self {
        match self {
            Self::Unstable => Self::Unstable,
            Self::Stable | Self::Data => Self::Stable,
        }
    }
}

/// An instance of a gateway or manager process; a restart makes a new one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct WriterId(pub u64);

/// Carried by every message that changes something, and checked by whoever
/// carries it out (CONSISTENCY 3 and 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteContext {
    /// The routing table's epoch by which the message was routed.
    pub table_epoch: Epoch,
    /// Who writes.
    pub writer: WriterId,
    /// The site's epoch, where a site owns the object; else 0.
    pub site_epoch: Epoch,
    /// The file's truncate generation that the writer has seen.
    pub truncate_generation: u64,
    /// The newest snapshot that the writer has seen; 0 = none.
    pub snapshot_sequence: u64,
    /// By what a change is known that is sent again.
    pub sending: Sending,
}

/// By what nodes know a router's change that is sent again (docs/decisions/0049): they carry it
/// out once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sending {
    /// The writer's number of the change, the same whenever it is sent; 0: it has none, and is
    /// carried out whenever it comes.
    pub number: u64,
    /// It was sent before and may have been carried out: by which table the first such sending was
    /// routed. Whoever has been a member since, and does not know the number, knows that none was.
    pub in_doubt_since: Option<Epoch>,
    /// The writer has answers to all that it has numbered lower, and asks for none of it again.
    pub answered_below: u64,
}

impl WriteContext {
    /// The same context under another truncate generation.
    #[must_use]
    pub const fn with_truncate_generation(mut self, generation: u64) -> Self {
        self.truncate_generation = generation;
        self
    }
}
