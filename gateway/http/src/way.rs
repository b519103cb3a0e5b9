//! Which way the bytes of a response go, as the policy has it.

use crossdock_http1::Status;
use crossdock_names::FileRef;
use crossdock_peer::{BulkDoor, BulkReply, BulkRequest, TransferMode};

use crate::door::HttpDoor;
use crate::message::ConnId;
use crate::walk::Walk;

impl HttpDoor {
    /// Keeps what a path has led through, as far as rules may be of it.
    pub(crate) fn note_places(&mut self, id: ConnId, walk: &Walk) {
        if self.transfer.is_empty() {
            return;
        }
        if let Some(exchange) = self.exchange(id) {
            exchange.places = walk.directories().rev().collect();
        }
    }

    /// Which way `bytes` of a file go to the client of a request.
    pub(crate) fn way(
        &mut self,
        id: ConnId,
        file: FileRef,
        (status, bytes): (Status, u64),
    ) -> TransferMode {
        let Some(connection) = self.connections.get(&id) else {
            return TransferMode::Relay;
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
            is_hot: false,
        };
        let choice = self
            .transfer
            .choose(std::iter::once(file).chain(places), &reply);
        if choice.mode == TransferMode::Relay && connection.flow.is_some() {
            match choice.is_by_rule {
                true => self.figures.relayed.by_rule_bytes += bytes,
                false => self.figures.relayed.short_bytes += bytes,
            }
        }
        choice.mode
    }
}
