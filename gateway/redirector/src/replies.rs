//! Replies over UDP that nodes send whole: no socket has had anything of them.
//!
//! Nobody tells the gateway that a client has such a reply. The node gives the pin up when it
//! has sent it; what is lost on the way to the node the gateway gives back a moment later. A
//! client that misses its reply asks again, and its request is read again.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use crossdock_names::HostId;
use crossdock_tunnel::{
    IPV4_MTU_MIN, IPV6_MTU_MIN, Part as TunnelPart, Parts, REPLY_BYTES_MAX, REPLY_ROOM_BYTES, Reply,
};
use crossdock_types::{Extent, Part, Payload, Time};
use thiserror::Error;

use crate::idents::Idents;
use crate::redirector::Redirector;

/// How long a pin outlives the record that names it: nodes that have the record have sent the
/// reply long before.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Pins wait so long for others that are to go back.
const KEPT_PAUSE: Duration = Duration::from_millis(100);
/// A client that has asked for nothing for so long is announced anew when it does.
const CLIENT_PATIENCE: Duration = Duration::from_secs(60);
/// Clients that are announced at a time; others are relayed.
const CLIENTS_MAX: usize = 4096;

/// Why a reply is not handed to a node: the client will ask again.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ReplyError {
    /// Its bytes are at several nodes, or there is more beside them than a record takes.
    #[error("a reply of {0} parts is no single node's")]
    Parts(usize),
    /// There is no tunnel to the process that holds the bytes any more.
    #[error("there is no tunnel to host {0}")]
    Tunnel(HostId),
    /// All numbers of datagrams to this client are in use.
    #[error("no number for a datagram to {0}")]
    Numbers(SocketAddr),
}

/// From whom a reply goes to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyEnds {
    /// Where the client has asked.
    pub source: SocketAddr,
    /// The client.
    pub destination: SocketAddr,
}

/// A gateway's clients whose replies over UDP nodes send.
#[derive(Debug)]
pub struct Replies {
    idents: Idents,
    /// Who was announced to nodes, and when it was last heard of.
    clients: BTreeMap<ReplyEnds, Time>,
    /// When somebody may have been silent for too long.
    look_due: Option<Time>,
    /// Extents of replies that nodes are to send, until when.
    kept: VecDeque<(Time, Extent)>,
    ended: Vec<ReplyEnds>,
}

impl Replies {
    /// None yet; `key` is random, and nobody else's.
    #[must_use]
    pub const fn new(key: [u8; 32]) -> Self {
        Self {
            idents: Idents::new(key),
            clients: BTreeMap::new(),
            look_due: None,
            kept: VecDeque::new(),
            ended: Vec::new(),
        }
    }

    /// A client has asked for something: whether a node may send the reply.
    pub fn admit(&mut self, now: Time, ends: ReplyEnds) -> bool {
        let is_bounded = self.clients.contains_key(&ends) || self.clients.len() < CLIENTS_MAX;
        let (source, destination) = (ends.source.ip(), ends.destination.ip());
        if !is_bounded || !self.idents.has_some(now, source, destination) {
            return false;
        }
        self.clients.insert(ends, now);
        self.look_due.get_or_insert(now + CLIENT_PATIENCE);
        true
    }

    /// How many clients are announced.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Hands a reply with extents to the node that has them; `mtu` is that of the way to the
    /// client. It goes with the redirector's next datagram.
    ///
    /// # Errors
    /// [`ReplyError`]: it is lost.
    pub fn hand(
        &mut self,
        now: Time,
        redirector: &mut Redirector,
        ends: ReplyEnds,
        mtu: u16,
        payload: Payload,
    ) -> Result<(), ReplyError> {
        let payload_bytes = payload.len();
        let parts = payload.into_parts();
        let holder = only_holder(&parts).ok_or(ReplyError::Parts(parts.len()))?;
        let encoded: Option<Vec<TunnelPart<'_>>> = parts.iter().map(encoded).collect();
        let encoded = encoded.filter(|parts| {
            let room_bytes: usize = parts.iter().map(TunnelPart::encoded_bytes).sum();
            let is_short = room_bytes <= REPLY_ROOM_BYTES && payload_bytes <= REPLY_BYTES_MAX;
            is_short && parts.len() <= crossdock_tunnel::PARTS_MAX
        });
        let encoded = encoded.ok_or(ReplyError::Parts(parts.len()))?;
        if redirector.address(holder).is_none() {
            return Err(ReplyError::Tunnel(holder));
        }
        let (source, destination) = (ends.source, ends.destination);
        let number = self.idents.take(now, source.ip(), destination.ip());
        let mtu_min = match source {
            SocketAddr::V4(_) => IPV4_MTU_MIN,
            SocketAddr::V6(_) => IPV6_MTU_MIN,
        };
        let reply = Reply {
            source,
            destination,
            identification: number.ok_or(ReplyError::Numbers(destination))?,
            mtu: mtu.max(mtu_min),
            parts: Parts::Given(&encoded),
        };
        redirector.hand_reply(holder, &reply);
        let extents = parts.into_iter().filter_map(|part| match part {
            Part::Extent(extent) => Some((now + KEPT_FOR, extent)),
            Part::Bytes(_) => None,
        });
        self.kept.extend(extents);
        Ok(())
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let kept = self.kept.front().map(|&(until, _)| until + KEPT_PAUSE);
        kept.into_iter().chain(self.look_due).min()
    }

    /// Gives back what was kept long enough, and ends what nobody needs any more.
    pub fn handle_timeout(&mut self, now: Time) {
        while self.kept.pop_front_if(|(until, _)| *until <= now).is_some() {}
        if self.look_due.take_if(|due| *due <= now).is_none() {
            return;
        }
        let is_silent = |_: &ReplyEnds, heard: &mut Time| *heard + CLIENT_PATIENCE <= now;
        let silent = self.clients.extract_if(.., is_silent);
        self.ended.extend(silent.map(|(ends, _)| ends));
        let first = self.clients.values().min();
        self.look_due = first.map(|&heard| heard + CLIENT_PATIENCE);
    }

    /// A client that nodes need not know any more.
    pub fn poll_ended(&mut self) -> Option<ReplyEnds> {
        self.ended.pop()
    }
}

/// Who has all the extents; none if there are none, or several have some.
fn only_holder(parts: &[Part]) -> Option<HostId> {
    let mut holders = parts.iter().filter_map(|part| match part {
        Part::Extent(extent) => Some(extent.holder()),
        Part::Bytes(_) => None,
    });
    let first = holders.next()?;
    holders
        .all(|holder| holder == first)
        .then_some(HostId(first))
}

fn encoded(part: &Part) -> Option<TunnelPart<'_>> {
    Some(match part {
        Part::Bytes(bytes) => TunnelPart::Literal(bytes),
        Part::Extent(extent) => TunnelPart::Extent {
            pin: extent.pin(),
            offset_bytes: extent.offset_bytes,
            length_bytes: u16::try_from(extent.length_bytes).ok()?,
        },
    })
}
