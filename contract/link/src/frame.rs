//! What hosts send each other, once they know each other.

use std::net::SocketAddr;
use std::time::Duration;

use crossdock_names::{
    Epoch, FileCapability, HandleKey, MintingKey, NodeId, Proof, ProofKey, SiteId,
};
use crossdock_peer::{
    Call, CallId, Carries, DefragWord, Flow, LockNotice, NodeReply, NodeRequest, Port, Recall,
    SiteReply, SiteRequest, Transfer,
};
use crossdock_types::{Payload, Time, WallTime};

/// A message from a part of one host to a part of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A request to a node.
    NodeCall {
        /// Who asks, on the sending host.
        from: Port,
        /// Which node of the receiving host.
        to: NodeId,
        /// What.
        call: Call<NodeRequest>,
        /// By what right, where a gateway asks.
        capability: Option<FileCapability>,
        /// What a read gives may stay at the receiving host, which will be told to send it
        /// in this connection of the sending gateway.
        flow: Option<Box<Flow>>,
    },
    /// A node's answer.
    NodeReply {
        /// Which node of the sending host.
        from: NodeId,
        /// Who had asked, on the receiving host.
        to: Port,
        /// What came of it.
        reply: NodeReply,
    },
    /// Nobody waits for that answer any more.
    CancelNode {
        /// Who had asked, on the sending host.
        from: Port,
        /// Whom.
        to: NodeId,
        /// Under which number.
        id: CallId,
    },
    /// Nobody needs that answer so soon.
    PostponeNode {
        /// Who had asked, on the sending host.
        from: Port,
        /// Whom.
        to: NodeId,
        /// Under which number.
        id: CallId,
        /// For how long, in microseconds.
        by_micros: u64,
    },
    /// Somebody waits for it again.
    ResumeNode {
        /// Who had asked, on the sending host.
        from: Port,
        /// Whom.
        to: NodeId,
        /// Under which number.
        id: CallId,
    },
    /// A request to a site.
    SiteCall {
        /// Who asks, on the sending host: its router, or a site.
        from: Port,
        /// Which site of the receiving host.
        to: SiteId,
        /// What.
        call: Box<Call<SiteRequest>>,
        /// Of the files that it names, where a gateway is scoped to exports.
        proofs: Vec<Proof>,
    },
    /// A site's answer.
    SiteReply {
        /// Who had asked, on the receiving host.
        to: Port,
        /// What came of it.
        reply: Box<SiteReply>,
        /// Of the files that it names, if the call had some.
        proofs: Vec<Proof>,
    },
    /// What clients of the receiving host's door are to be told.
    Lock(LockNotice),
    /// The sending host asks for a lease (CONSISTENCY 4): for as long as that lasts
    /// the receiving host takes part in nothing by which the sender is replaced.
    Renew {
        /// The sender's clock, in nanoseconds: the lease counts from then.
        at: u64,
    },
    /// It has it.
    Granted {
        /// What the question said.
        at: u64,
    },
    /// How much room a node of the sending host has; repeated while it runs.
    Space {
        /// Which.
        node: NodeId,
        /// Its capacity.
        total_bytes: u64,
        /// What is free of it.
        free_bytes: u64,
        /// How many requests its disks had to do lately on average, in hundredths.
        load_percent: u32,
    },
    /// How fast a node of the sending host reads from its disk; for hosts with a gateway,
    /// repeated while it runs.
    DiskProfile {
        /// Which.
        node: NodeId,
        /// What it takes to begin to read elsewhere, in nanoseconds.
        positioning_nanos: u64,
        /// What it reads in a second once it is there.
        sequential_bytes_per_second: u64,
        /// How many requests its disks had to do lately on average, in hundredths.
        load_percent: u32,
    },
    /// How far a node of the sending host is with what managers have ordered it to put together;
    /// for managers, repeated while it is at work on that.
    Defrag {
        /// Which.
        node: NodeId,
        /// How far.
        word: Box<DefragWord>,
    },
    /// Who is connected to the sending gateway at a virtual address, so that whoever
    /// takes that over can tell them: all of them, in place of what was said before.
    Clients {
        /// The address, and the door's port.
        at: SocketAddr,
        /// At most `limits::VIRTUAL_CLIENTS_MAX`.
        clients: Vec<SocketAddr>,
    },
    /// What the sending manager makes capabilities with; for hosts with nodes only.
    Minting(MintingKey),
    /// What all managers make proofs with; for managers only.
    Proving(ProofKey),
    /// What gateways make handles with; for those without a scope only.
    Handling(HandleKey),
    /// What time of day is it at the receiving host?
    AskClock {
        /// The sender's clock, in nanoseconds.
        at: u64,
    },
    /// The answer.
    Clock {
        /// What the question said.
        at: u64,
        /// The time of day of who answers.
        wall: WallTime,
    },
    /// A site of the sending host wants a lease back from the receiving host's router.
    Recall(Recall),
    /// About bytes that the receiving host sends for the sending one, or the other way
    /// around.
    Transfer(Transfer),
}

/// A frame, and by which table it was sent: whoever gets it has to have seen that
/// table before it does anything for it (CONSISTENCY 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Epoch of the sender's routing table.
    pub epoch: Epoch,
    /// What.
    pub frame: Frame,
}

/// Which window a frame takes. Replies have their own, so that calls never keep
/// them back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Call,
    Reply,
    /// Takes none: smaller than what tells of a window.
    Control,
}

impl Frame {
    /// Sent by the table of `epoch`.
    #[must_use]
    pub const fn by(self, epoch: Epoch) -> Stamped {
        Stamped { epoch, frame: self }
    }

    pub(crate) const fn class(&self) -> Class {
        match self {
            Self::NodeCall { .. } | Self::SiteCall { .. } => Class::Call,
            Self::NodeReply { .. }
            | Self::SiteReply { .. }
            | Self::Lock(_)
            | Self::Renew { .. }
            | Self::Granted { .. }
            | Self::Space { .. }
            | Self::DiskProfile { .. }
            | Self::Defrag { .. }
            | Self::Clients { .. }
            | Self::Minting(_)
            | Self::Proving(_)
            | Self::Handling(_)
            | Self::AskClock { .. }
            | Self::Clock { .. }
            | Self::Recall(_)
            | Self::Transfer(_) => Class::Reply,
            Self::CancelNode { .. } | Self::PostponeNode { .. } | Self::ResumeNode { .. } => {
                Class::Control
            }
        }
    }

    /// The bulk bytes that it carries, if frames of that kind carry some.
    #[must_use]
    pub fn payload(&self) -> Option<&Payload> {
        match self {
            Self::NodeCall { call, .. } => call.request.payload(),
            Self::NodeReply { reply, .. } => reply.payload(),
            Self::SiteCall { call, .. } => call.request.operation.payload(),
            Self::SiteReply { reply, .. } => reply.payload(),
            Self::CancelNode { .. }
            | Self::PostponeNode { .. }
            | Self::ResumeNode { .. }
            | Self::Lock(_)
            | Self::Renew { .. }
            | Self::Granted { .. }
            | Self::Space { .. }
            | Self::DiskProfile { .. }
            | Self::Defrag { .. }
            | Self::Clients { .. }
            | Self::Minting(_)
            | Self::Proving(_)
            | Self::Handling(_)
            | Self::AskClock { .. }
            | Self::Clock { .. }
            | Self::Recall(_)
            | Self::Transfer(_) => None,
        }
    }

    /// The call of a node that it is about without being its question or its answer.
    pub(crate) const fn about(&self) -> Option<(Port, NodeId, CallId)> {
        match self {
            Self::CancelNode { from, to, id }
            | Self::PostponeNode { from, to, id, .. }
            | Self::ResumeNode { from, to, id } => Some((*from, *to, *id)),
            _ => None,
        }
    }

    pub(crate) fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Self::NodeCall { call, .. } => call.request.payload_mut(),
            Self::NodeReply { reply, .. } => reply.payload_mut(),
            Self::SiteCall { call, .. } => call.request.operation.payload_mut(),
            Self::SiteReply { reply, .. } => reply.payload_mut(),
            Self::CancelNode { .. }
            | Self::PostponeNode { .. }
            | Self::ResumeNode { .. }
            | Self::Lock(_)
            | Self::Renew { .. }
            | Self::Granted { .. }
            | Self::Space { .. }
            | Self::DiskProfile { .. }
            | Self::Defrag { .. }
            | Self::Clients { .. }
            | Self::Minting(_)
            | Self::Proving(_)
            | Self::Handling(_)
            | Self::AskClock { .. }
            | Self::Clock { .. }
            | Self::Recall(_)
            | Self::Transfer(_) => None,
        }
    }

    /// Where its bytes go in their object or file, as far as it says so itself.
    pub(crate) fn payload_offset_bytes(&self) -> u64 {
        match self {
            Self::NodeCall { call, .. } => call.request.payload_offset_bytes(),
            Self::SiteCall { call, .. } => call.request.operation.payload_offset_bytes(),
            _ => 0,
        }
    }

    /// When nobody waits for it any more.
    pub(crate) const fn deadline(&self) -> Option<Time> {
        match self {
            Self::NodeCall { call, .. } => Some(call.deadline),
            Self::SiteCall { call, .. } => Some(call.deadline),
            _ => None,
        }
    }
}

/// Clocks of hosts differ: a deadline travels as what is left of it.
pub(crate) fn remaining_ms(now: Time, deadline: Time) -> u64 {
    let left = deadline - now;
    // Rounded up, so that it never becomes shorter by travelling.
    u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

pub(crate) fn deadline(now: Time, remaining_ms: u64) -> Time {
    now + Duration::from_millis(remaining_ms)
}
