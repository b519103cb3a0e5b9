//! What the content of a response is made of: bytes that are known, and ranges of a
//! representation that are asked for piece by piece and sent in order.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use crossdock_types::Payload;

/// The content of a response, and how far it has come. `Call` names who is asked for a
/// piece, and is never used twice.
#[derive(Debug)]
pub struct Content<Call> {
    /// What has not been asked for.
    plan: VecDeque<Segment>,
    /// What has, in the order in which it is sent.
    pieces: VecDeque<Piece<Call>>,
    /// Bytes of ranges in the plan.
    unasked_bytes: u64,
}

/// A part of a content.
#[derive(Debug)]
pub enum Segment {
    /// Bytes that are known.
    Literal(Bytes),
    /// Bytes of the representation, from the first to before the last.
    Range(Range<u64>),
}

#[derive(Debug)]
enum Piece<Call> {
    Literal(Bytes),
    Asked {
        call: Call,
        range: Range<u64>,
    },
    /// To be asked for again.
    Lacking(Range<u64>),
    Ready(Payload),
}

impl<Call: Copy + PartialEq> Content<Call> {
    /// Content of which nothing was asked for.
    #[must_use]
    pub fn new(segments: impl IntoIterator<Item = Segment>) -> Self {
        let mut content = Self {
            plan: VecDeque::new(),
            pieces: VecDeque::new(),
            unasked_bytes: 0,
        };
        for segment in segments {
            if let Segment::Range(range) = &segment {
                content.unasked_bytes += range.end - range.start;
            }
            content.plan.push_back(segment);
        }
        content
    }

    /// Of how many parts it is made, before any was asked for.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.plan.len()
    }

    /// The range that is all of it, before it was asked for.
    #[must_use]
    pub fn only_range(&self) -> Option<Range<u64>> {
        match self.plan.front() {
            Some(Segment::Range(range)) if self.segments() == 1 => Some(range.clone()),
            _ => None,
        }
    }

    /// Bytes of ranges that have not been asked for.
    #[must_use]
    pub const fn unasked_bytes(&self) -> u64 {
        self.unasked_bytes
    }

    /// The next bytes of ranges to ask for, at most so many.
    pub fn next_range(&mut self, bytes_max: u64) -> Option<Range<u64>> {
        loop {
            match self.plan.pop_front()? {
                Segment::Literal(bytes) => self.pieces.push_back(Piece::Literal(bytes)),
                Segment::Range(range) if range.is_empty() => {}
                Segment::Range(range) => {
                    let end = range.end.min(range.start.saturating_add(bytes_max.max(1)));
                    if end < range.end {
                        self.plan.push_front(Segment::Range(end..range.end));
                    }
                    self.unasked_bytes -= end - range.start;
                    return Some(range.start..end);
                }
            }
        }
    }

    /// Where in the representation the next of them lie.
    #[must_use]
    pub fn next_place(&self) -> Option<u64> {
        self.plan.iter().find_map(|segment| match segment {
            Segment::Range(range) if !range.is_empty() => Some(range.start),
            _ => None,
        })
    }

    /// What follows the last range needs nobody to be asked.
    pub fn settle_literals(&mut self) {
        while let Some(Segment::Literal(_)) = self.plan.front() {
            if let Some(Segment::Literal(bytes)) = self.plan.pop_front() {
                self.pieces.push_back(Piece::Literal(bytes));
            }
        }
    }

    /// That range is asked for by this call.
    pub fn asked(&mut self, call: Call, range: Range<u64>) {
        let again = self
            .pieces
            .iter_mut()
            .find(|piece| matches!(piece, Piece::Lacking(lacking) if *lacking == range));
        let asked = Piece::Asked { call, range };
        match again {
            Some(piece) => *piece = asked,
            None => self.pieces.push_back(asked),
        }
    }

    /// The range that has to be asked for again.
    #[must_use]
    pub fn lacking(&self) -> Option<Range<u64>> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Lacking(range) => Some(range.clone()),
            _ => None,
        })
    }

    /// The calls that are not answered.
    pub fn calls(&self) -> impl Iterator<Item = (Call, u64)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Asked { call, range } => Some((*call, range.end - range.start)),
            _ => None,
        })
    }

    /// What a call that is not answered asks for.
    #[must_use]
    pub fn range_of(&self, asked: Call) -> Option<Range<u64>> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Asked { call, range } if *call == asked => Some(range.clone()),
            _ => None,
        })
    }

    /// An answer has come. Fewer bytes than were asked for leave a rest that is asked
    /// for again; more than none have come. Returns how many.
    pub fn arrived(&mut self, call: Call, mut payload: Payload) -> Option<u64> {
        let at = self.place(call)?;
        let Some(Piece::Asked { range, .. }) = self.pieces.get(at) else {
            return None;
        };
        let range = range.clone();
        payload.truncate(usize::try_from(range.end - range.start).unwrap_or(usize::MAX));
        let bytes = payload.len() as u64;
        let rest = range.start + bytes..range.end;
        self.pieces[at] = Piece::Ready(payload);
        if !rest.is_empty() {
            self.pieces.insert(at + 1, Piece::Lacking(rest));
        }
        Some(bytes)
    }

    /// No bytes have come: it is to be asked again.
    pub fn failed(&mut self, call: Call) -> Option<u64> {
        let at = self.place(call)?;
        let piece = self.pieces.get_mut(at)?;
        let Piece::Asked { range, .. } = piece else {
            return None;
        };
        let range = range.clone();
        let bytes = range.end - range.start;
        *piece = Piece::Lacking(range);
        Some(bytes)
    }

    /// Whether all answers are there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_there = |piece: &Piece<Call>| matches!(piece, Piece::Ready(_) | Piece::Literal(_));
        self.plan.is_empty() && self.pieces.iter().all(is_there)
    }

    /// Whether nothing is left to send.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.plan.is_empty() && self.pieces.is_empty()
    }

    /// The pieces that can be sent, and how many bytes of ranges are in them: until they
    /// are `bytes_max` or more. The last one of all is kept back until `with_last`.
    pub fn sendable(&mut self, with_last: bool, bytes_max: usize) -> (Payload, u64) {
        let mut out = Payload::new();
        let mut read_bytes = 0;
        let bytes_max = bytes_max as u64;
        while let Some(piece) = self.pieces.front()
            && read_bytes < bytes_max
        {
            let is_last = self.plan.is_empty() && self.pieces.len() == 1;
            if is_last && !with_last || matches!(piece, Piece::Asked { .. } | Piece::Lacking(_)) {
                break;
            }
            match self.pieces.pop_front() {
                Some(Piece::Literal(bytes)) => out.push(bytes),
                Some(Piece::Ready(mut payload)) => {
                    let room = bytes_max - read_bytes;
                    let next = payload.take_pieces(usize::try_from(room).unwrap_or(usize::MAX));
                    read_bytes += next.len() as u64;
                    out.append(next);
                    if !payload.is_empty() {
                        self.pieces.push_front(Piece::Ready(payload));
                    }
                }
                _ => break, // Not reached: looked at above.
            }
        }
        (out, read_bytes)
    }

    fn place(&self, wanted: Call) -> Option<usize> {
        let is_it =
            |piece: &Piece<Call>| matches!(piece, Piece::Asked { call, .. } if *call == wanted);
        self.pieces.iter().position(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct CallId(u64);

    fn bytes(payload: &Payload) -> Vec<u8> {
        payload.to_bytes().to_vec()
    }

    fn payload(text: &'static str) -> Payload {
        Payload::from(Bytes::from_static(text.as_bytes()))
    }

    /// Goal: answers that come out of order are sent in order, with what is known
    /// between them, and the last piece only when that is allowed.
    #[test]
    fn pieces_are_sent_in_order() {
        let mut content = Content::<CallId>::new([
            Segment::Literal(Bytes::from_static(b"<")),
            Segment::Range(0..4),
            Segment::Literal(Bytes::from_static(b"|")),
            Segment::Range(8..10),
            Segment::Literal(Bytes::from_static(b">")),
        ]);
        let first = content.next_range(2).expect("a range");
        content.asked(CallId(1), first);
        let second = content.next_range(9).expect("a range");
        assert_eq!(second, 2..4);
        content.asked(CallId(2), second);
        let third = content.next_range(9).expect("a range");
        assert_eq!(third, 8..10);
        content.asked(CallId(3), third);
        assert_eq!((content.next_range(1), content.unasked_bytes()), (None, 0));
        assert_eq!(content.arrived(CallId(3), payload("ij")), Some(2));
        assert_eq!(bytes(&content.sendable(false, 1000).0), b"<");
        assert_eq!(content.arrived(CallId(1), payload("ab")), Some(2));
        assert_eq!(content.sendable(false, 1000).1, 2);
        assert!(!content.is_complete());
        assert_eq!(content.arrived(CallId(2), payload("cd")), Some(2));
        assert!(content.is_complete());
        assert_eq!(bytes(&content.sendable(false, 1000).0), b"cd|ij");
        assert_eq!(bytes(&content.sendable(true, 1000).0), b">");
        assert!(content.is_sent());
    }

    /// Goal: of much that is ready as much is sent as is wanted, in whole pieces.
    #[test]
    fn no_more_is_sent_than_is_wanted() {
        let mut content = Content::<CallId>::new([Segment::Range(0..6)]);
        for call in 1..=3 {
            let range = content.next_range(2).expect("a range");
            content.asked(CallId(call), range);
            content.arrived(CallId(call), payload("ab"));
        }
        assert_eq!(content.sendable(true, 3).1, 4);
        assert_eq!(content.sendable(true, 3).1, 2);
        assert!(content.is_sent());
    }

    /// Goal: also of one long answer, so that what has gone is freed before all has.
    #[test]
    fn a_long_answer_is_sent_in_parts() {
        let mut content = Content::<CallId>::new([Segment::Range(0..6), Segment::Range(8..9)]);
        let range = content.next_range(6).expect("a range");
        content.asked(CallId(1), range);
        let mut long = payload("ab");
        long.append(payload("cd"));
        long.append(payload("ef"));
        content.arrived(CallId(1), long);
        let (parts, sent_bytes) = content.sendable(false, 3);
        assert_eq!((&bytes(&parts)[..], sent_bytes), (&b"abcd"[..], 4));
        let (parts, sent_bytes) = content.sendable(false, 3);
        assert_eq!((&bytes(&parts)[..], sent_bytes), (&b"ef"[..], 2));
        assert!(!content.is_sent());
    }

    /// Goal: what an answer lacks is asked for again, in its place.
    #[test]
    fn short_answers_leave_a_rest() {
        let mut content = Content::<CallId>::new([Segment::Range(0..6)]);
        let all = content.next_range(6).expect("a range");
        content.asked(CallId(1), all);
        assert_eq!(content.failed(CallId(1)), Some(6));
        assert_eq!(content.lacking(), Some(0..6));
        content.asked(CallId(2), 0..6);
        assert_eq!(
            content.arrived(CallId(1), payload("abcdef")),
            None,
            "an old one"
        );
        assert_eq!(content.arrived(CallId(2), payload("abcd")), Some(4));
        let rest = content.lacking().expect("a rest");
        assert_eq!(rest, 4..6);
        content.asked(CallId(3), rest);
        content.arrived(CallId(3), payload("ef"));
        assert_eq!(bytes(&content.sendable(true, 1000).0), b"abcdef");
    }
}
