//! What delivery may use, and what the disks behind it are like.

use std::time::Duration;

use crossdock_limits::{
    DELIVERY_MEMORY_BYTES, DELIVERY_REQUEST_BYTES_MAX, DELIVERY_REQUEST_BYTES_MIN,
};
use serde::{Deserialize, Serialize};

/// Requests are whole multiples of it, but for the end of a stream: what a disk reads at least.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Which mechanisms of the paper are on; each can be switched off to see its worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    /// Read ahead by the rates of network and disk (TPF 3.2). Off: 128 KiB at a time, as
    /// Linux does.
    pub tdap: bool,
    /// Withdraw the disk work of dead connections, postpone that of stalled ones (TPF 3.3).
    pub edrc: bool,
    /// Send in the context of the acknowledgement (TPF 3.1). The door's business: it is
    /// only kept here.
    pub idsr: bool,
    /// Give way to other processes (TPF 3.1.2). The door's business as well.
    pub daemon: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            tdap: true,
            edrc: true,
            idsr: true,
            daemon: true,
        }
    }
}

/// How delivery is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryConfig {
    /// Most bytes that are requested or read and not yet handed to a socket, of all streams
    /// together.
    pub memory_bytes: u64,
    /// H_min: what a stream of unknown rate gets at least, in bytes.
    pub request_bytes_min: u64,
    /// H_max: the largest request, in bytes; from what the disks take at once.
    pub request_bytes_max: u64,
    /// Consecutive bytes of a file on one disk: larger requests keep several disks busy.
    pub stripe_bytes: u64,
    /// u: the part of a disk's time that may be planned with, in thousandths.
    pub utilisation_permille: u32,
    /// What is on.
    pub switches: Switches,
    /// For comparison: T_D as the paper prints it, 2 B_D / B_net, taken as seconds.
    pub literal_td: bool,
    /// A fault built in on purpose, so that tests prove they would find it.
    #[cfg(feature = "mutations")]
    pub mutation: Option<Mutation>,
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            memory_bytes: DELIVERY_MEMORY_BYTES,
            request_bytes_min: DELIVERY_REQUEST_BYTES_MIN,
            request_bytes_max: DELIVERY_REQUEST_BYTES_MAX,
            stripe_bytes: 256 << 10,
            utilisation_permille: 900,
            switches: Switches::default(),
            literal_td: false,
            #[cfg(feature = "mutations")]
            mutation: None,
        }
    }
}

impl DeliveryConfig {
    /// The rules as decisions see them, with bounds that cannot contradict each other:
    /// a block ≤ H_min ≤ H_max ≤ the memory.
    pub(crate) fn policy(&self) -> Policy {
        let request_bytes_min = self.request_bytes_min.max(BLOCK_BYTES);
        let request_bytes_max = self.request_bytes_max.max(request_bytes_min);
        Policy {
            memory_bytes: self.memory_bytes.max(request_bytes_max),
            request_bytes_min,
            request_bytes_max,
            stripe_bytes: self.stripe_bytes.max(BLOCK_BYTES),
            utilisation_permille: self.utilisation_permille.clamp(1, 1000),
            switches: self.switches,
            literal_td: self.literal_td,
        }
    }

    #[cfg(feature = "mutations")]
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    #[cfg(not(feature = "mutations"))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) const fn has(&self, _: Mutation) -> bool {
        false
    }
}

/// [`DeliveryConfig`] as decisions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// As there, at least `request_bytes_max`.
    pub memory_bytes: u64,
    /// As there, at least a block of 4 KiB.
    pub request_bytes_min: u64,
    /// As there, at least `request_bytes_min`.
    pub request_bytes_max: u64,
    /// As there, at least a block.
    pub stripe_bytes: u64,
    /// As there, from 1 to 1000.
    pub utilisation_permille: u32,
    /// As there.
    pub switches: Switches,
    /// As there.
    pub literal_td: bool,
}

/// What the disks of a node are like, as the node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskProfile {
    /// t_pos: from one request to the first byte of another one elsewhere.
    pub positioning: Duration,
    /// B_seq: bytes per second of a long read.
    pub sequential_bytes_per_second: u64,
    /// The part of the last seconds in which it had requests, in hundredths.
    pub load_percent: u32,
}

impl Default for DiskProfile {
    /// A disk of which nothing is known: a rotating one without load.
    fn default() -> Self {
        Self {
            positioning: Duration::from_millis(8),
            sequential_bytes_per_second: 100_000_000,
            load_percent: 0,
        }
    }
}

/// A fault that a test build can put into delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Decisions do not see how much memory is taken.
    OverrunBudget,
    /// Requests of connections that were reset stay in the disks' queues.
    KeepDead,
    /// Nobody looks at a connection again whose socket takes everything at once.
    NeverLook,
    /// Who waits for memory longest gets it last.
    NewestFirst,
    /// A request does not shorten what remains of its stream.
    RequestTwice,
}
