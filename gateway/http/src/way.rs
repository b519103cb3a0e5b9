//! Which way the bytes of a response go, as the policy has it.

use crossdock_http1::Status;
use crossdock_peer::{
    Attributes, BulkDoor, BulkReply, BulkRequest, Call, Choice, FileKind, SiteRequest, TransferMode,
};
use crossdock_types::Time;

use crate::door::HttpDoor;
use crate::message::{ConnId, HttpEffect};
use crate::walk::Walk;

impl HttpDoor {
    /// Keeps the directories that a path has led through, and to, as far as rules may be of
    /// them.
    pub(crate) fn note_places(&mut self, id: ConnId, walk: &Walk, found: &Attributes) {
        if self.transfer.is_empty() {
            return;
        }
        if let Some(exchange) = self.exchange(id) {
            let end = Some(found.file).filter(|_| found.kind == FileKind::Directory);
            exchange.places = end.into_iter().chain(walk.directories().rev()).collect();
        }
    }

    /// Which way `bytes` of a file go to the client of a request.
    pub(crate) fn way(
        &mut self,
        now: Time,
        id: ConnId,
        attributes: &Attributes,
        (status, bytes): (Status, u64),
    ) -> Way {
        let file = attributes.file;
        self.heat.note(now, file, bytes, attributes.size_bytes);
        let is_hot = self.heat.is_hot(now, file);
        let Some(connection) = self.connections.get(&id) else {
            return Way::default();
        };
        let exchange = connection.exchange.as_deref();
        let places = exchange
            .into_iter()
            .flat_map(|it| it.places.iter().copied());
        let reply = BulkReply {
            door: BulkDoor::Http,
            request: match status {
                Status::PartialContent => BulkRequest::Range,
                _ => BulkRequest::Get,
            },
            length_bytes: bytes,
            client: connection.peer.ip(),
            is_hot,
            is_datagram: false,
        };
        let places = std::iter::once(file).chain(places);
        let choice = self.transfer.choose(places, &reply);
        if choice.mode == TransferMode::Relay && connection.flow.is_some() {
            self.figures.relayed.note(choice, is_hot, bytes);
        }
        Way { choice, is_hot }
    }

    /// Asks for bytes that the stream of a connection reads.
    pub(crate) fn read(&mut self, id: ConnId, call: Box<Call<SiteRequest>>) -> HttpEffect {
        let connection = self.connections.get(&id);
        let flow = connection.and_then(|connection| connection.flow.as_deref().copied());
        let way = self.stream(id).map(|stream| stream.way);
        match (way, flow) {
            (Some(way), Some(flow)) if way.choice.mode != TransferMode::Relay => {
                HttpEffect::ReadFor(flow, way.choice, call)
            }
            (Some(way), _) if way.is_hot => HttpEffect::ReadHot(call),
            _ => HttpEffect::Router(call),
        }
    }
}

/// Which way the bytes of a response go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) choice: Choice,
    /// Whether its file is read again and again.
    is_hot: bool,
}

impl Default for Way {
    /// Through the gateway.
    fn default() -> Self {
        Self {
            choice: Choice {
                mode: TransferMode::Relay,
                is_by_rule: false,
            },
            is_hot: false,
        }
    }
}
