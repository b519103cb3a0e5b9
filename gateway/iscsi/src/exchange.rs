//! Bytes that are exchanged for others only if they are what is expected: COMPARE AND WRITE, and
//! ORWRITE, which expects what it has read. Who orders the bytes compares them
//! (docs/decisions/0049): other gateways may write them.

use std::ops::Range;

use bytes::Bytes;
use crossdock_limits::EXCHANGE_BYTES_MAX;
use crossdock_types::Payload;

/// How often an ORWRITE begins anew, as others have written what it had read.
const TRIES_MAX: u32 = 16;

/// An exchange of one piece, or of several that are one by one.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Where it begins in the file.
    first: u64,
    expected: Payload,
    new: Payload,
    /// Whether it is done all at once, or not.
    is_whole: bool,
    /// Where what was expected is not, from its beginning.
    differs_at: Option<u64>,
    tries: u32,
}

impl Exchange {
    /// What COMPARE AND WRITE brings, both halves.
    pub(crate) fn of_command(first: u64, data: &Payload) -> Self {
        let length = data.len() / 2;
        Self {
            first,
            expected: data.slice(0, length),
            new: data.slice(length, 2 * length),
            is_whole: true,
            differs_at: None,
            tries: 0,
        }
    }

    /// What ORWRITE makes of what it has read; for the `tries + 1`th time.
    pub(crate) fn of_read(first: u64, read: Payload, data: &Payload, tries: u32) -> Self {
        Self {
            first,
            new: or(&read, data),
            expected: read,
            is_whole: false,
            differs_at: None,
            tries,
        }
    }

    /// Pieces end at multiples of this: each of them lies at one place.
    pub(crate) fn piece_bytes(&self) -> u64 {
        match self.is_whole {
            true => u64::MAX,
            false => EXCHANGE_BYTES_MAX.into(),
        }
    }

    /// Both halves of a piece.
    pub(crate) fn piece(&self, range: &Range<u64>) -> Payload {
        let at = |place: u64| usize::try_from(place - self.first).unwrap_or(usize::MAX);
        let (start, end) = (at(range.start), at(range.end));
        let mut both = self.expected.slice(start, end);
        both.append(self.new.slice(start, end));
        both
    }

    /// A piece was not as expected, so far from its beginning.
    pub(crate) fn differs(&mut self, piece: u64, at_bytes: u64) {
        let at = (piece - self.first).saturating_add(at_bytes);
        self.differs_at = Some(self.differs_at.map_or(at, |known| known.min(at)));
    }

    /// Where it was not.
    pub(crate) fn first_difference(&self) -> Option<usize> {
        let at = self.differs_at?;
        Some(usize::try_from(at).unwrap_or(usize::MAX))
    }

    /// If it was not: how often it was tried, unless it was too often.
    pub(crate) fn next_try(&self) -> Option<Option<u32>> {
        self.differs_at?;
        Some((self.tries + 1 < TRIES_MAX).then_some(self.tries + 1))
    }
}

fn or(left: &Payload, right: &Payload) -> Payload {
    let (left, right) = (left.to_bytes(), right.to_bytes());
    let bytes = left.iter().zip(right.iter());
    Bytes::from(bytes.map(|(left, right)| left | right).collect::<Vec<u8>>()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(bytes: &'static [u8]) -> Payload {
        Bytes::from_static(bytes).into()
    }

    /// Goal: a piece has both halves, and a difference is told from the beginning of all of it.
    #[test]
    fn pieces_have_both_halves() {
        let mut exchange = Exchange::of_command(512, &payload(b"aabbccdd"));
        assert_eq!(exchange.piece(&(512..516)).to_bytes(), &b"aabbccdd"[..]);
        assert_eq!(exchange.piece(&(514..516)).to_bytes(), &b"bbdd"[..]);
        assert_eq!(exchange.first_difference(), None);
        exchange.differs(514, 1);
        assert_eq!(exchange.first_difference(), Some(3));
        exchange.differs(512, 1);
        assert_eq!(exchange.first_difference(), Some(1));
    }

    /// Goal: bits are added to what was read, so often and no more.
    #[test]
    fn bits_are_added_and_tried_again() {
        let read = payload(b"aa");
        let mut exchange = Exchange::of_read(0, read, &payload(b"\x10\x04"), 0);
        assert_eq!(exchange.piece(&(0..2)).to_bytes(), &b"aaqe"[..]);
        assert_eq!(exchange.next_try(), None);
        exchange.differs(0, 1);
        assert_eq!(exchange.next_try(), Some(Some(1)));
        let mut last = Exchange::of_read(0, payload(b"a"), &payload(b"b"), 15);
        last.differs(0, 0);
        assert_eq!(last.next_try(), Some(None));
    }
}
