//! What the door tells of its connections to who reads ahead of them.

use crossdock_delivery::TcpSample;
use crossdock_peer::{SiteOperation, SiteRequest};
use crossdock_types::Time;

use crate::ahead::{Mark, Read, Wire};
use crate::door::{NfsDoor, Origin};
use crate::message::ConnId;

impl NfsDoor {
    /// Who reads on over a connection is read ahead of.
    pub(crate) fn note_read(
        &mut self,
        now: Time,
        origin: &Origin,
        request: &SiteRequest,
    ) -> Option<Mark> {
        let (
            Origin::Stream(id, _),
            SiteOperation::Read {
                file,
                offset_bytes,
                length_bytes,
                ..
            },
        ) = (origin, &request.operation)
        else {
            return None;
        };
        if !self.config.delivery.tdap || !self.connections.contains_key(id) {
            return None;
        }
        let read = Read {
            caller: &request.caller,
            file: *file,
            from: *offset_bytes,
            to: offset_bytes.saturating_add(*length_bytes),
        };
        self.readers.read(now, *id, read)
    }

    /// A READ of somebody who may read on has its reply.
    pub(crate) fn note_answer(
        &mut self,
        origin: &Origin,
        mark: Mark,
        reply_bytes: usize,
        size: Option<u64>,
    ) {
        if let Origin::Stream(id, _) = origin
            && let Some(connection) = self.connections.get(id)
        {
            let sent = (reply_bytes as u64, connection.replied_bytes);
            self.readers.answered(*id, mark, sent, size);
        }
    }

    /// How a connection is.
    pub(crate) fn note_sample(&mut self, id: ConnId, sample: TcpSample) {
        if let Some(connection) = self.connections.get(&id) {
            let wire = Wire {
                sent_bytes: connection.replied_bytes,
                queued_bytes: connection.unsent_bytes as u64,
                sample,
            };
            self.readers.sampled(id, wire);
        }
    }
}
