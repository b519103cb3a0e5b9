//! What a decision sees, and what it may be.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Policy;
use crate::connection::StreamClass;

/// Everything that a decision depends on: the same snapshot gives the same decision,
/// whenever and wherever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// What all streams share.
    pub pool: Pool,
    /// The stream that is decided about.
    pub look: Look,
}

/// What all streams share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The rules.
    pub policy: Policy,
    /// The disks.
    pub disks: Disks,
    /// N: streams that want more from the disks; of the foreground, or, for one of the
    /// background, of both.
    pub streams: u64,
    /// B_net: the sum of their rates, in bytes per second.
    pub rate_net: u64,
    /// The sum of the square roots of their rates.
    pub rate_roots: u64,
    /// D2 + D3 of all streams, in bytes.
    pub memory_used: u64,
    /// That of background streams.
    pub background_used: u64,
    /// D1 of those whose rates are in B_net, in bytes: it is in the sockets' memory.
    pub unsent_bytes: u64,
}

/// All disks as one decision sees them: as many as there are, each like the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disks {
    /// How many.
    pub count: u32,
    /// The longest t_pos.
    pub positioning: Duration,
    /// The lowest B_seq, in bytes per second.
    pub sequential_bytes_per_second: u64,
    /// The highest load, in hundredths.
    pub load_percent: u32,
}

/// One stream. D1 to D4 are the paper's (TPF 3.2), here in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Its class.
    pub class: StreamClass,
    /// Not yet requested.
    pub remaining_bytes: u64,
    /// D1: in the socket, unsent; and what the client has asked for by itself.
    pub unsent_bytes: u64,
    /// D2: read, not yet in the socket.
    pub ready_bytes: u64,
    /// D3: requested, not yet read.
    pub requested_bytes: u64,
    /// At a door of requests, how much the client asks for at a time; else 0.
    pub unit_bytes: u64,
    /// Where the next byte that is not requested lies in its file, if it is known.
    pub place_bytes: Option<u64>,
    /// The part of D3 that is postponed.
    pub postponed_bytes: u64,
    /// B_n, in bytes per second, if anything is known.
    pub rate: Option<u64>,
    /// The rate comes from the progress of acknowledgements over time.
    pub is_measured: bool,
    /// Acknowledged since the stream began.
    pub acked_bytes: u64,
    /// The last sample showed loss, marks or a peer without room.
    pub is_troubled: bool,
    /// The peer has sent FIN, and nothing has moved since.
    pub is_held: bool,
    /// Others wait for memory and come first.
    pub is_behind_others: bool,
}

impl Look {
    /// D1 + D2 + D3.
    #[must_use]
    pub const fn ahead_bytes(&self) -> u64 {
        self.unsent_bytes
            .saturating_add(self.ready_bytes)
            .saturating_add(self.requested_bytes)
    }
}

/// What is decided about a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Request D4, so many bytes.
    Request {
        /// D4.
        bytes: u64,
    },
    /// It wants bytes and there is no memory for them.
    Wait,
    /// It has what it needs for now.
    Enough,
    /// So many bytes of D3 are too many for the rate that is left.
    Postpone {
        /// Beyond those that are postponed already.
        bytes: u64,
        /// For how long.
        by: Duration,
    },
    /// What was postponed is wanted again, or does not disturb anybody.
    Resume,
}
