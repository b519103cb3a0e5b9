//! What a client has sent and nobody has served yet.

use bytes::{Buf, Bytes, BytesMut};
use crossdock_types::Time;

use crate::{HeadError, HeadLimits, RequestHead, parse_head};

/// Bytes of a connection that wait for their turn, and since when the beginning of a head
/// does: a client that sends it bit by bit is told from one that is idle.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Bytes,
    head_since: Option<Time>,
    is_held_back: bool,
}

impl Inbox {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Bytes::new(),
            head_since: None,
            is_held_back: false,
        }
    }

    /// Bytes have arrived. Mostly they are a whole head, or part of a body that is taken
    /// at once: nothing is copied then.
    pub fn push(&mut self, chunk: Bytes) {
        if self.bytes.is_empty() {
            self.bytes = chunk;
            return;
        }
        let mut both = BytesMut::with_capacity(self.bytes.len() + chunk.len());
        both.extend_from_slice(&self.bytes);
        both.extend_from_slice(&chunk);
        self.bytes = both.freeze();
    }

    /// Takes the next head; `None` if less than one has arrived.
    ///
    /// # Errors
    /// What is wrong with it: where the next request begins cannot be told.
    pub fn take_head(
        &mut self,
        now: Time,
        limits: &HeadLimits,
    ) -> Result<Option<RequestHead>, HeadError> {
        if let Some((head, bytes)) = parse_head(&self.bytes, limits)? {
            self.bytes.advance(bytes);
            self.head_since = None;
            return Ok(Some(head));
        }
        if self.bytes.is_empty() {
            // It would still hold the buffer of what was there.
            self.clear();
        } else {
            self.head_since.get_or_insert(now);
        }
        Ok(None)
    }

    /// The content of the request that is served, with what follows it.
    pub const fn content(&mut self) -> &mut Bytes {
        &mut self.bytes
    }

    /// Nothing of it is served any more.
    pub fn clear(&mut self) {
        self.bytes = Bytes::new();
        self.head_since = None;
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Since when the beginning of a head waits for the rest.
    #[must_use]
    pub const fn head_since(&self) -> Option<Time> {
        self.head_since
    }

    /// Whether its client is not to be read from now, as more than `bytes_max` wait;
    /// `None` if that is as before.
    pub fn hold_back(&mut self, bytes_max: usize) -> Option<bool> {
        let is_full = self.bytes.len() > bytes_max;
        let was_full = std::mem::replace(&mut self.is_held_back, is_full);
        (is_full != was_full).then_some(is_full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(inbox: &mut Inbox, seconds: u64) -> Option<RequestHead> {
        let taken = inbox.take_head(Time::from_secs(seconds), &HeadLimits::default());
        taken.expect("nothing wrong")
    }

    /// Goal: heads are taken one by one however they arrive, and the first byte of one that
    /// is not whole counts, not the last.
    #[test]
    fn heads_come_in_pieces_and_together() {
        let mut inbox = Inbox::new();
        assert!(take(&mut inbox, 1).is_none() && inbox.head_since().is_none());
        inbox.push(Bytes::from_static(b"GET /a HTTP/1.1\r\n"));
        assert!(take(&mut inbox, 2).is_none());
        inbox.push(Bytes::from_static(b"Host: x\r\n"));
        assert!(take(&mut inbox, 3).is_none());
        assert_eq!(inbox.head_since(), Some(Time::from_secs(2)));
        inbox.push(Bytes::from_static(
            b"\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\ncontent",
        ));
        let targets = [take(&mut inbox, 4), take(&mut inbox, 4)];
        let targets = targets.map(|head| head.expect("a head").target.raw);
        assert_eq!(targets, [&b"/a"[..], b"/b"]);
        assert_eq!(inbox.head_since(), None);
        assert_eq!(inbox.content().split_to(7)[..], b"content"[..]);
        assert!(inbox.is_empty());
    }

    /// Goal: reading stops once, and goes on once.
    #[test]
    fn clients_are_held_back_once() {
        let mut inbox = Inbox::new();
        inbox.push(Bytes::from_static(b"12345"));
        assert_eq!(inbox.hold_back(5), None);
        assert_eq!((inbox.hold_back(4), inbox.hold_back(4)), (Some(true), None));
        inbox.clear();
        assert_eq!(
            (inbox.hold_back(0), inbox.hold_back(0)),
            (Some(false), None)
        );
    }
}
