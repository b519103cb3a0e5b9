//! What went which way, and why.

use std::collections::BTreeMap;

use super::datagrams::DatagramFigures;

/// What went which way.
#[derive(Clone, Debug, Default)]
pub(crate) struct InjectFigures {
    /// Bytes that nodes were to send, in connections where they may.
    pub(crate) injected_bytes: u64,
    /// Bytes that came from the gateway, by why.
    pub(crate) relayed_bytes: BTreeMap<Why, u64>,
    /// Bytes whose holder was gone, and that another one has sent.
    pub(crate) refilled_bytes: u64,
    /// Connections that were reset because nobody had their bytes any more.
    pub(crate) reset: u64,
    /// Over UDP; it is in nothing above.
    pub(crate) datagrams: DatagramFigures,
}

/// Why bytes are not sent by nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// They are heads, of small files, or a node did not hold them.
    Here,
    /// Over TLS: nodes do not have the keys.
    Tls,
    /// The client is on this machine.
    Loopback,
    /// No node takes packets of this gateway.
    NoTunnel,
    /// Nodes may not speak as the address that the client has connected to.
    Address,
    /// The kernel's program has no room for more connections.
    Program,
    /// The client's congestion window is small, after losses.
    Window,
    /// Too many clients ask over UDP, or one for more than there are numbers of datagrams.
    Datagrams,
}

impl Why {
    /// As figures call it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Tls => "tls",
            Self::Loopback => "loopback",
            Self::NoTunnel => "no_tunnel",
            Self::Address => "address",
            Self::Program => "program",
            Self::Window => "window",
            Self::Datagrams => "datagrams",
        }
    }
}

impl InjectFigures {
    pub(super) fn note_relayed(&mut self, why: Why, bytes: usize) {
        *self.relayed_bytes.entry(why).or_default() += bytes as u64;
    }
}
