//! Replies over UDP, each of which a node sends as a whole or the gateway does: nothing is
//! caught, so the kernel's program has no part in it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crossdock_net::now;
use crossdock_peer::{Flow, Transport};
use crossdock_redirector::{Replies, ReplyEnds};
use crossdock_types::{Payload, Time};
use rustix::net::sockopt;
use tracing::debug;

use super::{Catching, Injector, Why};

/// Of a way that the system does not tell: every link of IPv6 has it.
const MTU_UNKNOWN: u16 = 1280;
/// Clients of whom it is known why they are relayed.
const RELAYED_MAX: usize = 4096;

/// What nodes and the gateway have sent over UDP.
#[derive(Clone, Debug, Default)]
pub(crate) struct DatagramFigures {
    /// Replies that nodes were to send.
    pub(crate) injected: u64,
    /// Bytes of files in them.
    pub(crate) injected_bytes: u64,
    /// Replies that the gateway has sent.
    pub(crate) relayed: u64,
    /// Bytes of them, by why.
    pub(crate) relayed_bytes: BTreeMap<Why, u64>,
    /// Replies that neither has sent; their clients ask again.
    pub(crate) lost: u64,
}

/// The gateway's side of replies over UDP.
pub(super) struct Datagrams {
    replies: Replies,
    /// Connected to whom a datagram goes, to hear of the way there.
    to_ipv4: Option<UdpSocket>,
    to_ipv6: Option<UdpSocket>,
    relayed: BTreeMap<SocketAddr, Why>,
}

impl Datagrams {
    pub(super) fn new(key: [u8; 32]) -> Self {
        let any = |address: IpAddr| UdpSocket::bind((address, 0)).ok();
        Self {
            replies: Replies::new(key),
            to_ipv4: any(Ipv4Addr::UNSPECIFIED.into()),
            to_ipv6: any(Ipv6Addr::UNSPECIFIED.into()),
            relayed: BTreeMap::new(),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.replies.poll_timeout()
    }

    /// What the system knows of the way: it hears of links that take less, as their reports
    /// go to the gateway's address.
    fn mtu(&self, to: SocketAddr) -> u16 {
        let socket = match to {
            SocketAddr::V4(_) => &self.to_ipv4,
            SocketAddr::V6(_) => &self.to_ipv6,
        };
        let told = socket.as_ref().and_then(|socket| {
            socket.connect(to).ok()?;
            match to {
                SocketAddr::V4(_) => sockopt::ip_mtu(socket).ok(),
                SocketAddr::V6(_) => sockopt::ipv6_mtu(socket).ok(),
            }
        });
        told.map_or(MTU_UNKNOWN, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX))
    }
}

impl Injector {
    /// A client has asked at `at` over UDP: whether nodes may send the reply.
    pub(crate) fn admit_datagram(
        &mut self,
        at: SocketAddr,
        from: SocketAddr,
        may_speak: impl Fn(IpAddr) -> bool,
    ) -> Option<Flow> {
        let catching = self.catching.as_mut()?;
        let admitted = catching.admit_datagram(at, from, may_speak);
        let relayed = &mut catching.datagrams.relayed;
        match admitted {
            Ok(_) => {
                relayed.remove(&from);
            }
            Err(why) if relayed.len() < RELAYED_MAX || relayed.contains_key(&from) => {
                relayed.insert(from, why);
            }
            Err(_) => {}
        }
        admitted.ok()
    }

    /// Hands a reply to the node that has its bytes; gives one back that the gateway has to
    /// send.
    pub(crate) fn send_in(&mut self, flow: Flow, reply: Payload) -> Option<Payload> {
        let held_bytes: usize = reply.extents().iter().map(|(_, it)| it.length_bytes).sum();
        let Some(catching) = self.catching.as_mut().filter(|_| held_bytes > 0) else {
            return Some(reply);
        };
        let figures = &mut self.figures.datagrams;
        match catching.hand(flow, reply) {
            Ok(()) => {
                figures.injected += 1;
                figures.injected_bytes += held_bytes as u64;
            }
            Err(error) => {
                debug!(%error, "a reply is lost");
                figures.lost += 1;
            }
        }
        None
    }

    /// The gateway sends a reply over UDP itself.
    pub(crate) fn note_datagram(&mut self, to: SocketAddr, bytes: usize) {
        if let Some(catching) = &self.catching {
            let why = catching.datagrams.relayed.get(&to).copied();
            let figures = &mut self.figures.datagrams;
            figures.relayed += 1;
            let relayed = figures.relayed_bytes.entry(why.unwrap_or(Why::Here));
            *relayed.or_default() += bytes as u64;
        }
    }

    /// What came together goes to the nodes.
    pub(crate) fn flush(&mut self) {
        if let Some(catching) = &mut self.catching {
            catching.send_tunnelled();
        }
    }
}

impl Catching {
    fn admit_datagram(
        &mut self,
        at: SocketAddr,
        from: SocketAddr,
        may_speak: impl Fn(IpAddr) -> bool,
    ) -> Result<Flow, Why> {
        self.check(at, from, may_speak)?;
        // A link's own addresses mean nothing on other links.
        if let SocketAddr::V6(from) = from
            && from.scope_id() != 0
        {
            return Err(Why::Address);
        }
        let ends = ReplyEnds {
            source: at,
            destination: from,
        };
        match self.datagrams.replies.admit(now(), ends) {
            true => Ok(flow_of(ends)),
            false => Err(Why::Datagrams),
        }
    }

    fn hand(&mut self, flow: Flow, reply: Payload) -> Result<(), crossdock_redirector::ReplyError> {
        let mtu = self.datagrams.mtu(flow.destination);
        let ends = ReplyEnds {
            source: flow.source,
            destination: flow.destination,
        };
        let replies = &mut self.datagrams.replies;
        replies.hand(now(), &mut self.redirector, ends, mtu, reply)
    }

    /// Gives back what nodes have sent, and ends who has not asked for long.
    pub(super) fn mind_datagrams(&mut self, now: Time) {
        self.datagrams.replies.handle_timeout(now);
        while let Some(ends) = self.datagrams.replies.poll_ended() {
            self.ended.push(flow_of(ends));
        }
    }
}

const fn flow_of(ends: ReplyEnds) -> Flow {
    Flow {
        transport: Transport::Udp,
        source: ends.source,
        destination: ends.destination,
    }
}
