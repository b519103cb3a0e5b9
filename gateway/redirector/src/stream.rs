//! The bytes of a connection that its client has not acknowledged: literal ones, and
//! extents that dummy bytes stand for.
//!
//! Places are offsets in the stream that goes to the client, 64 bits long, from the first
//! byte behind the handshake: they do not wrap around, whatever sequence numbers do.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use crossdock_names::HostId;
use crossdock_tunnel::{PARTS_MAX, PARTS_ROOM_BYTES, PAYLOAD_BYTES_MAX, Part};
use crossdock_types::Extent;
use thiserror::Error;

/// Pieces of one connection at a time.
const PIECES_MAX: usize = 256;
/// Literal bytes of one connection at a time; replies whose bytes pass through are no
/// longer than that where they follow an extent.
const LITERAL_BYTES_MAX: usize = 256 << 10;

/// What a connection has on its way to the client.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// One behind the other, the last one ends at `end`.
    pieces: VecDeque<Piece>,
    /// Where the next byte goes.
    end: u64,
    /// Up to where the client has acknowledged.
    acknowledged: u64,
    /// Up to where bytes went by that nobody could repeat.
    passed: u64,
    literal_bytes: usize,
    /// Who has sent the last extent that is acknowledged.
    last: Option<HostId>,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Literal(Bytes),
    Extent(Extent),
}

/// A connection has as much on its way as may be remembered, or bytes that are not: it goes
/// on when the client acknowledges some, or the reply passes through.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("as much is on its way to this client as may be")]
pub struct StreamFull;

/// Why a caught packet is not sent by anybody: TCP repeats what matters of it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum CutError {
    /// The client has all of it, or it went by before anything was announced.
    #[error("all of the packet lies before what is on its way")]
    Acknowledged,
    /// It has bytes that nobody has announced.
    #[error("the packet's bytes end at {packet_end}, what is known of ends at {known_end}")]
    Beyond {
        /// Where the packet ends in the stream.
        packet_end: u64,
        /// Where what is known of ends.
        known_end: u64,
    },
    /// More than a packet has.
    #[error("{0} bytes are more than a packet's")]
    Length(usize),
}

/// A piece of a caught packet that is a packet of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section<'a> {
    /// Who finishes it; none: the connection has never had an extent.
    pub holder: Option<HostId>,
    /// Bytes of the caught packet's payload that lie before it.
    pub at_bytes: usize,
    /// What it is made of.
    pub parts: Vec<Part<'a>>,
}

impl Piece {
    fn length_bytes(&self) -> u64 {
        match &self.what {
            What::Literal(bytes) => bytes.len() as u64,
            What::Extent(extent) => extent.length_bytes as u64,
        }
    }

    fn end(&self) -> u64 {
        self.start + self.length_bytes()
    }

    fn holder(&self) -> Option<HostId> {
        match &self.what {
            What::Literal(_) => None,
            What::Extent(extent) => Some(HostId(extent.holder())),
        }
    }

    /// What lies in this range of the stream, which is within the piece and no longer than
    /// a packet.
    fn part(&self, range: Range<u64>) -> Part<'_> {
        let from = range.start - self.start;
        let length = range.end - range.start;
        match &self.what {
            What::Literal(bytes) => {
                let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
                Part::Literal(&bytes[place(from)..place(from + length)])
            }
            What::Extent(extent) => Part::Extent {
                pin: extent.pin(),
                offset_bytes: extent.offset_bytes + from,
                length_bytes: u16::try_from(length).unwrap_or(u16::MAX),
            },
        }
    }
}

impl Stream {
    /// Bytes pass through that nobody needs to know of: there is no extent before them that
    /// they could overtake.
    ///
    /// # Errors
    /// [`StreamFull`] if there is one: they have to be announced.
    pub(crate) fn pass(&mut self, length_bytes: u64) -> Result<(), StreamFull> {
        if self.caught_from().is_some() {
            return Err(StreamFull);
        }
        self.pieces.clear();
        self.literal_bytes = 0;
        self.end += length_bytes;
        self.passed = self.end;
        Ok(())
    }

    /// Announces bytes that the gateway has itself, before they enter the socket.
    ///
    /// # Errors
    /// [`StreamFull`]: nothing is announced.
    pub(crate) fn push_literal(&mut self, bytes: Bytes) -> Result<(), StreamFull> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.literal_bytes + bytes.len() > LITERAL_BYTES_MAX {
            return Err(StreamFull);
        }
        let length = bytes.len();
        self.push(What::Literal(bytes))?;
        self.literal_bytes += length;
        Ok(())
    }

    /// Announces bytes that a node has, before the dummy bytes enter the socket.
    ///
    /// # Errors
    /// [`StreamFull`]: nothing is announced.
    pub(crate) fn push_extent(&mut self, extent: Extent) -> Result<(), StreamFull> {
        match extent.length_bytes {
            0 => Ok(()),
            _ => self.push(What::Extent(extent)),
        }
    }

    /// Not behind passed bytes that the client may still lack: a packet of both would be
    /// caught, and nobody knows what the passed bytes were.
    fn push(&mut self, what: What) -> Result<(), StreamFull> {
        if self.pieces.len() >= PIECES_MAX || self.passed > self.acknowledged {
            return Err(StreamFull);
        }
        let piece = Piece {
            start: self.end,
            what,
        };
        self.end = piece.end();
        self.pieces.push_back(piece);
        Ok(())
    }

    /// Up to where the client has acknowledged.
    pub(crate) const fn acknowledged_to(&self) -> u64 {
        self.acknowledged
    }

    /// From where on packets have to be caught: behind the beginning of the first extent
    /// nothing may go by itself, dummy bytes never, real ones because they would come before
    /// what nodes send. None: all may go.
    pub(crate) fn caught_from(&self) -> Option<u64> {
        let extent = self.pieces.iter().find(|piece| piece.holder().is_some())?;
        Some(extent.start)
    }

    /// The client has acknowledged all before `offset`; what was for those bytes is forgotten,
    /// and its pins are given back.
    pub(crate) fn acknowledged(&mut self, offset: u64) {
        self.acknowledged = self.acknowledged.max(offset);
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.end() <= offset) {
            match piece.what {
                What::Literal(bytes) => self.literal_bytes -= bytes.len(),
                What::Extent(extent) => self.last = Some(HostId(extent.holder())),
            }
        }
    }

    /// The extents on their way that a process holds.
    pub(crate) fn of(&self, holder: HostId) -> impl Iterator<Item = &Extent> {
        let extents = self.pieces.iter().filter_map(|piece| match &piece.what {
            What::Extent(extent) => Some(extent),
            What::Literal(_) => None,
        });
        extents.filter(move |extent| extent.holder() == holder.0)
    }

    /// A process sends nothing any more: literal bytes do not go with what it has sent.
    pub(crate) fn forget(&mut self, holder: HostId) {
        self.last.take_if(|last| *last == holder);
    }

    /// Another process has the bytes of an extent, as many as it has.
    pub(crate) fn replace(&mut self, lost: &Extent, found: &Extent) {
        for piece in &mut self.pieces {
            if let What::Extent(extent) = &mut piece.what
                && extent.is_same(lost)
                && extent.length_bytes == found.length_bytes
            {
                *extent = found.clone();
            }
        }
    }

    /// Behind all that is known of.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// What belongs into a caught packet whose payload lies at `offset`, where the client
    /// may have acknowledged a part of it.
    ///
    /// Bytes of several nodes are sent by each of them. Literal bytes go with the extent
    /// before them, so that they do not come before it, or with the one behind them if there
    /// is none.
    ///
    /// # Errors
    /// [`CutError`]: nothing may be sent.
    pub(crate) fn cut(
        &self,
        offset: u64,
        length_bytes: usize,
    ) -> Result<Vec<Section<'_>>, CutError> {
        if length_bytes > PAYLOAD_BYTES_MAX {
            return Err(CutError::Length(length_bytes));
        }
        let packet_end = offset.saturating_add(length_bytes as u64);
        if packet_end > self.end {
            return Err(CutError::Beyond {
                packet_end,
                known_end: self.end,
            });
        }
        let start = self.pieces.front().map_or(self.end, |piece| piece.start);
        if packet_end <= start {
            return Err(CutError::Acknowledged);
        }
        let range = offset.max(start)..packet_end;
        let first = self
            .pieces
            .partition_point(|piece| piece.end() <= range.start);
        let before = self.pieces.range(..first).rev().find_map(Piece::holder);
        let before = before.or(self.last);
        let mut sections = Vec::new();
        for piece in self.pieces.range(first..) {
            let mut within = range.start.max(piece.start)..range.end.min(piece.end());
            if within.is_empty() {
                break;
            }
            while !within.is_empty() {
                let at_bytes = usize::try_from(within.start - offset).unwrap_or(usize::MAX);
                within.start += add(&mut sections, piece, within.clone(), at_bytes, before);
            }
        }
        let behind = self.pieces.range(first..).find_map(Piece::holder);
        for section in sections.iter_mut().filter(|it| it.holder.is_none()) {
            section.holder = behind;
        }
        Ok(sections)
    }
}

/// Adds a piece to the last section, or begins another one with it or, where it has more
/// literal bytes than a datagram, with as many as there is room for; returns how many
/// bytes of the stream that are.
fn add<'a>(
    sections: &mut Vec<Section<'a>>,
    piece: &'a Piece,
    within: Range<u64>,
    at_bytes: usize,
    before: Option<HostId>,
) -> u64 {
    let (part, holder) = (piece.part(within.clone()), piece.holder());
    let last = sections.last_mut();
    // Literal bytes in front go with whom comes first.
    let is_theirs = |own: Option<HostId>| holder.is_none() || own.is_none() || own == holder;
    match last {
        Some(section) if section.has_room(&part) && is_theirs(section.holder) => {
            section.holder = section.holder.or(holder);
            section.parts.push(part);
            within.end - within.start
        }
        last => {
            let before = last.map_or(before, |section| section.holder);
            let too_many = part.encoded_bytes().saturating_sub(PARTS_ROOM_BYTES) as u64;
            let taken = within.start..within.end - too_many;
            sections.push(Section {
                holder: holder.or(before),
                at_bytes,
                parts: vec![piece.part(taken.clone())],
            });
            taken.end - taken.start
        }
    }
}

impl Section<'_> {
    /// Of the stream.
    pub(crate) fn length_bytes(&self) -> usize {
        self.parts.iter().map(Part::length_bytes).sum()
    }

    fn has_room(&self, part: &Part<'_>) -> bool {
        let taken: usize = self.parts.iter().map(Part::encoded_bytes).sum();
        self.parts.len() < PARTS_MAX && taken + part.encoded_bytes() <= PARTS_ROOM_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use crossdock_types::Released;

    use super::*;

    /// What node holds at a place under a pin.
    fn held(pin: u64, offset: u64) -> u8 {
        (pin.wrapping_mul(0x9e37_79b9).wrapping_add(offset) >> 3).to_le_bytes()[0]
    }

    fn extent(node: u64, pin: u64, offset_bytes: u64, length_bytes: usize) -> Extent {
        pinned(node, pin, offset_bytes, length_bytes, &Released::default())
    }

    fn pinned(
        node: u64,
        pin: u64,
        offset_bytes: u64,
        length_bytes: usize,
        released: &Released,
    ) -> Extent {
        let mut extent = Extent::new(node, pin, length_bytes, released);
        extent.offset_bytes = offset_bytes;
        extent
    }

    fn expanded(parts: &[Part<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in parts {
            match *part {
                Part::Literal(literal) => bytes.extend(literal),
                Part::Extent {
                    pin,
                    offset_bytes,
                    length_bytes,
                } => {
                    let places = offset_bytes..offset_bytes + u64::from(length_bytes);
                    bytes.extend(places.map(|at| held(pin, at)));
                }
            }
        }
        bytes
    }

    /// A head of ten bytes, an extent at node 1, and one at node 2.
    fn two_nodes() -> Stream {
        let mut stream = Stream::default();
        stream.pass(1000).expect("nothing before");
        assert_eq!(stream.push_extent(extent(1, 7, 0, 1)), Err(StreamFull));
        stream.acknowledged(1000);
        stream
            .push_literal(Bytes::from_static(b"0123456789"))
            .expect("room");
        stream.push_extent(extent(1, 7, 5000, 100)).expect("room");
        stream.push_extent(extent(2, 8, 0, 100)).expect("room");
        stream
            .push_literal(Bytes::from_static(b"tail"))
            .expect("room");
        stream
    }

    fn of(section: &Section<'_>) -> (Option<HostId>, usize, usize) {
        (section.holder, section.at_bytes, section.length_bytes())
    }

    /// Goal: a packet with bytes of two nodes is one of each, and literal bytes go with
    /// what they follow.
    #[test]
    fn each_node_sends_its_own() {
        let stream = two_nodes();
        let (one, two) = (Some(HostId(1)), Some(HostId(2)));
        let whole = stream.cut(1000, 214).expect("known");
        let whole: Vec<_> = whole.iter().map(of).collect();
        assert_eq!(whole, [(one, 0, 110), (two, 110, 104)]);
        let head = stream.cut(1000, 10).expect("known");
        assert_eq!(of(&head[0]), (one, 0, 10));
        let tail = stream.cut(1210, 4).expect("known");
        assert_eq!(of(&tail[0]), (two, 0, 4));
    }

    /// Goal: literal bytes between two nodes' extents stay behind the first one's.
    #[test]
    fn literal_bytes_do_not_overtake() {
        let mut stream = Stream::default();
        stream.push_extent(extent(1, 7, 0, 50)).expect("room");
        stream
            .push_literal(Bytes::from_static(b"between"))
            .expect("room");
        stream.push_extent(extent(2, 8, 0, 50)).expect("room");
        let cut = stream.cut(50, 57).expect("known");
        let cut: Vec<_> = cut.iter().map(of).collect();
        assert_eq!(cut, [(Some(HostId(1)), 0, 7), (Some(HostId(2)), 7, 50)]);
    }

    /// Goal: what was acknowledged is not sent again, pins are given back once, and what
    /// nobody has announced is never sent.
    #[test]
    fn only_what_is_on_its_way_is_sent() {
        let mut stream = two_nodes();
        assert_eq!(stream.caught_from(), Some(1010));
        stream.acknowledged(1109);
        assert_eq!(stream.caught_from(), Some(1010));
        stream.acknowledged(1110);
        assert_eq!(stream.caught_from(), Some(1110));
        assert_eq!(stream.cut(1000, 110), Err(CutError::Acknowledged));
        let rest = stream.cut(1100, 20).expect("a part of it");
        assert_eq!(of(&rest[0]), (Some(HostId(2)), 10, 10));
        let beyond = CutError::Beyond {
            packet_end: 1215,
            known_end: 1214,
        };
        assert_eq!(stream.cut(1210, 5), Err(beyond));
        assert_eq!(stream.cut(1110, 70_000), Err(CutError::Length(70_000)));
        stream.acknowledged(1210);
        assert_eq!(stream.caught_from(), None);
    }

    /// Goal: nothing passes by what is on its way, and there is a bound to that.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut stream = two_nodes();
        assert_eq!(stream.pass(1), Err(StreamFull));
        stream.acknowledged(1210);
        assert_eq!(stream.pass(1), Ok(()), "behind literal bytes");
        stream.acknowledged(1215);
        let long = Bytes::from(vec![0; LITERAL_BYTES_MAX]);
        assert_eq!(stream.push_literal(long.clone()), Ok(()));
        assert_eq!(
            stream.push_literal(Bytes::from_static(b"x")),
            Err(StreamFull)
        );
        stream.acknowledged(u64::MAX);
        assert_eq!(stream.push_literal(long), Ok(()));
        let more = std::iter::repeat_with(|| stream.push_extent(extent(1, 1, 0, 1)));
        assert_eq!(
            more.take_while(Result::is_ok).take(1000).count(),
            PIECES_MAX - 1
        );
    }

    #[derive(Clone, Debug)]
    enum Step {
        Literal(usize),
        Extent(u64, u64, usize),
        /// Of what is on its way, in thousandths.
        Acknowledge(u64),
        /// Where, in thousandths of the stream, and how many bytes.
        Cut(usize, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_usize..4000).prop_map(Step::Literal),
            (0_u64..3, 0_u64..1 << 40, 0_usize..40_000)
                .prop_map(|(node, at, length)| Step::Extent(node, at, length)),
            (0_u64..=1000).prop_map(Step::Acknowledge),
            (0_usize..1000, 1_usize..=PAYLOAD_BYTES_MAX)
                .prop_map(|(at, length)| Step::Cut(at, length)),
        ];
        vec(step, 1..60)
    }

    proptest! {
        /// Goal: however packets are cut and repeated, their sections are the stream's bytes,
        /// each from one node, without gaps; and every pin comes back once.
        #[test]
        fn sections_are_the_stream(steps in steps()) {
            let mut stream = Stream::default();
            let mut model: Vec<u8> = Vec::new();
            let (mut acknowledged, mut pins, released) = (0, 0_u64, Released::default());
            for step in steps {
                match step {
                    Step::Literal(length) => {
                        let bytes: Vec<u8> = (0..length).map(|at| at.to_le_bytes()[0]).collect();
                        if stream.push_literal(Bytes::from(bytes.clone())).is_ok() {
                            model.extend(bytes);
                        }
                    }
                    Step::Extent(node, at, length) => {
                        let extent = pinned(node, pins, at, length, &released);
                        if length > 0 && stream.push_extent(extent).is_ok() {
                            model.extend((at..at + length as u64).map(|at| held(pins, at)));
                            pins += 1;
                        }
                    }
                    Step::Acknowledge(part) => {
                        let on_way = model.len() as u64 - acknowledged;
                        acknowledged += on_way * part / 1000;
                        stream.acknowledged(acknowledged);
                    }
                    Step::Cut(at, length) => {
                        let offset = model.len() * at / 1000;
                        let length = length.min(model.len() - offset);
                        let Ok(sections) = stream.cut(offset as u64, length) else {
                            prop_assert!((offset + length) as u64 <= acknowledged);
                            continue;
                        };
                        let mut next = sections.first().map_or(0, |section| section.at_bytes);
                        prop_assert!((offset + next) as u64 <= acknowledged.max(offset as u64));
                        for section in &sections {
                            prop_assert_eq!(section.at_bytes, next);
                            let bytes = expanded(&section.parts);
                            let from = offset + next;
                            prop_assert_eq!(&bytes[..], &model[from..from + bytes.len()]);
                            prop_assert!(section.parts.len() <= PARTS_MAX);
                            let room: usize = section.parts.iter().map(Part::encoded_bytes).sum();
                            prop_assert!(room <= PARTS_ROOM_BYTES);
                            next += bytes.len();
                        }
                        prop_assert_eq!(next, length);
                    }
                }
                let all_acknowledged = acknowledged == model.len() as u64;
                prop_assert!(!(all_acknowledged && stream.caught_from().is_some()));
            }
            drop(stream);
            let mut back: Vec<u64> = released.take().iter().map(|&(_, pin)| pin).collect();
            back.retain(|&pin| pin < pins); // One that was not taken may be given back, too.
            back.dedup();
            prop_assert_eq!(back, (0..pins).collect::<Vec<_>>());
        }
    }
}
