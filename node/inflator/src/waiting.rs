//! A packet that waits for its bytes, or for its turn.

use bytes::Bytes;
use crossdock_types::Payload;

use crate::fragment::Head;
use crate::merge::Shape;
use crate::message::Ends;

/// What a packet becomes when its bytes are there.
#[derive(Debug)]
pub(crate) enum Form {
    /// Of a connection.
    Segments(Shape),
    /// Of UDP, and the pins that it is the only one to need.
    Datagram(Head, Vec<u64>),
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) ends: Ends,
    pub(crate) form: Form,
    pub(crate) payload_bytes: usize,
    pub(crate) parts: Vec<Option<Payload>>,
    /// Parts that are not there yet.
    pub(crate) missing: usize,
    pub(crate) extent_bytes: usize,
    pub(crate) has_failed: bool,
    /// What has to come before it, if that has not come.
    pub(crate) turn: Option<u64>,
}

impl Waiting {
    /// Nothing is missing any more: it goes, or is lost.
    pub(crate) const fn is_settled(&self) -> bool {
        self.missing == 0 && self.turn.is_none()
    }

    pub(crate) const fn is_lost(&self) -> bool {
        self.is_settled() && self.has_failed
    }

    /// Of how many pieces of memory its payload is, as far as it is there.
    pub(crate) fn pieces(&self) -> usize {
        let parts = self.parts.iter().flatten();
        parts.map(|part| part.pieces().len()).sum()
    }
}

/// What packets consist of, in order.
pub(crate) fn pieces(parts: Vec<Option<Payload>>) -> impl Iterator<Item = Bytes> {
    let parts = parts.into_iter().flatten();
    parts.flat_map(Payload::into_pieces)
}
