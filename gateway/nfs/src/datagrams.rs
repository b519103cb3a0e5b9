//! Calls that come as datagrams, and their replies: a node sends one as a whole, or nothing of it.

use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_locking::is_reply;
use crossdock_peer::{Flow, Transport};
use crossdock_types::{Payload, Time};

use crate::door::{NfsDoor, Origin};
use crate::message::NfsEffect;

impl NfsDoor {
    /// A datagram has arrived; `at` is where, if nodes may answer from there.
    pub(crate) fn take_datagram(
        &mut self,
        now: Time,
        client: SocketAddr,
        at: Option<SocketAddr>,
        datagram: Bytes,
    ) {
        if is_reply(&datagram) {
            self.locking.calls.take_reply(now, client, &datagram);
            self.run_calls(now);
        } else if self.has_room(0, 0) {
            let _ = self.serve(now, Origin::Datagram(client, at), datagram);
        } // A full door drops it: the client sends it again.
    }

    pub(crate) fn send_datagram(
        &mut self,
        client: SocketAddr,
        at: Option<SocketAddr>,
        reply: Payload,
    ) {
        self.effects.push_back(match at {
            Some(source) => NfsEffect::SendIn(datagrams(source, client), reply),
            None => NfsEffect::SendDatagram(client, reply.into_pieces()),
        });
    }
}

/// Replies from one port to another.
pub(crate) const fn datagrams(source: SocketAddr, destination: SocketAddr) -> Flow {
    Flow {
        transport: Transport::Udp,
        source,
        destination,
    }
}
