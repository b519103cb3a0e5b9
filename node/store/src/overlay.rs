//! The overlay of an object: bytes that are newer than its runs.
//!
//! Pieces never overlap. Each has a stamp; where two would meet, the higher
//! stamp wins, whichever came first. A piece remembers the oldest journal
//! position that is needed while it is not durable itself ("low"): the tail of
//! the journal stops there.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crossdock_log::Position;
use crossdock_names::Version;
use crossdock_types::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// No position of the journal is needed.
pub(crate) const NO_LOW: Position = Position(u64::MAX);

/// Where the bytes of a piece are, besides in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceState {
    /// Nowhere.
    Volatile,
    /// In a bulk write that is not recorded yet.
    Flying,
    /// In the journal.
    Journalled,
}

/// Bytes, or zeros, of an object.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// `None` = zeros.
    pub(crate) bytes: Option<Bytes>,
    pub(crate) length: u64,
    pub(crate) stamp: u64,
    pub(crate) version: Version,
    pub(crate) state: PieceState,
    pub(crate) low: Position,
}

impl Piece {
    pub(crate) fn data(bytes: Bytes, stamp: u64, version: Version, state: PieceState) -> Self {
        Self {
            length: bytes.len() as u64,
            bytes: Some(bytes),
            stamp,
            version,
            state,
            low: NO_LOW,
        }
    }

    pub(crate) const fn zeros(length: u64, stamp: u64, version: Version) -> Self {
        Self {
            bytes: None,
            length,
            stamp,
            version,
            state: PieceState::Journalled,
            low: NO_LOW,
        }
    }

    pub(crate) const fn at(mut self, low: Position) -> Self {
        self.low = low;
        self
    }

    #[expect(clippy::cast_possible_truncation, reason = "within the piece's bytes")]
    pub(crate) fn part(&self, from: u64, to: u64) -> Self {
        Self {
            bytes: self
                .bytes
                .as_ref()
                .map(|bytes| bytes.slice(from as usize..to as usize)),
            length: to - from,
            ..*self
        }
    }
}

/// The pieces of an object, by offset.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pieces: BTreeMap<u64, Piece>,
    /// Blocks that are covered in part, and by how many pieces.
    touched: BTreeMap<u64, u32>,
    /// Blocks that a piece covers whole.
    covered_blocks: u64,
    /// Offsets of the pieces that are in memory only.
    volatile: BTreeSet<u64>,
    volatile_bytes: u64,
    /// How many pieces need each position of the journal.
    lows: BTreeMap<Position, u32>,
}

impl Overlay {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes that are in memory only.
    pub(crate) const fn volatile_bytes(&self) -> u64 {
        self.volatile_bytes
    }

    /// Blocks that will be needed for what has none yet.
    pub(crate) fn promised_blocks(&self) -> u64 {
        self.touched.len() as u64 + self.covered_blocks
    }

    /// Whether a piece lies in the block.
    pub(crate) fn touches(&self, block: u64) -> bool {
        self.range(block * BLOCK, (block + 1) * BLOCK)
            .next()
            .is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Piece)> {
        self.pieces.iter().map(|(offset, piece)| (*offset, piece))
    }

    /// The pieces from `from` up to `to` that are in memory only, in order.
    pub(crate) fn volatile(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &Piece)> {
        let piece = |offset: &u64| Some((*offset, self.pieces.get(offset)?));
        self.volatile.range(from..to).filter_map(piece)
    }

    /// The first whole blocks from `from` on with at least `bytes` that are in memory only, or
    /// with all there are: no piece in memory only reaches over their ends.
    pub(crate) fn volatile_blocks(&self, from: u64, bytes: u64) -> Option<(u64, u64)> {
        let mut start = from / BLOCK * BLOCK;
        while let Some(at) = self.volatile.range(..start).next_back()
            && let Some(piece) = self.pieces.get(at)
            && at + piece.length > start
        {
            start = at / BLOCK * BLOCK;
        }
        let (mut end, mut found) = (start, 0);
        for at in self.volatile.range(start..) {
            if found >= bytes && *at >= end {
                break;
            }
            let length = self.pieces.get(at).map_or(0, |piece| piece.length);
            found += length;
            end = (at + length).next_multiple_of(BLOCK);
        }
        (found > 0).then_some((start, end))
    }

    /// The parts of pieces within `from..to`, in order.
    pub(crate) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, Piece)> {
        self.overlapping(from, to).map(move |(offset, piece)| {
            let start = offset.max(from);
            let end = (offset + piece.length).min(to);
            (start, piece.part(start - offset, end - offset))
        })
    }

    /// The pieces that meet `from..to`, whole, in order.
    pub(crate) fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &Piece)> {
        let before = self
            .pieces
            .range(..from)
            .next_back()
            .filter(|(offset, piece)| *offset + piece.length > from);
        let start = before.map_or(from, |(offset, _)| *offset);
        self.pieces
            .range(start..to.max(start))
            .map(|(offset, piece)| (*offset, piece))
    }

    /// Puts a piece over what has no higher stamp.
    pub(crate) fn insert(&mut self, offset: u64, mut piece: Piece) {
        let end = offset + piece.length;
        let old = self.pieces.get(&offset);
        if let Some(old) = old.filter(|it| it.length == piece.length && it.stamp <= piece.stamp) {
            // As most are: the same block again, or from memory to the journal.
            if piece.state != PieceState::Journalled {
                piece.low = piece.low.min(old.low);
            }
            self.replace(offset, piece);
            return;
        }
        let mut kept = Vec::new();
        let overlapping: Vec<u64> = self.overlapping(offset, end).map(|(at, _)| at).collect();
        for at in overlapping {
            let Some(old) = self.pieces.get(&at) else {
                continue;
            };
            let old_end = at + old.length;
            if old.stamp > piece.stamp {
                kept.push((at.max(offset), old_end.min(end)));
                self.need(at, piece.low);
                continue;
            }
            if piece.state != PieceState::Journalled {
                piece.low = piece.low.min(old.low);
            }
            self.clip(at, offset, end);
        }
        let mut start = offset;
        for (from, to) in kept {
            if start < from {
                self.put(start, piece.part(start - offset, from - offset));
            }
            start = to;
        }
        if start < end {
            self.put(start, piece.part(start - offset, end - offset));
        }
    }

    /// Drops what lies in `from..to` and has no higher stamp than `stamp`.
    pub(crate) fn remove(&mut self, from: u64, to: u64, stamp: u64) {
        let overlapping: Vec<u64> = self
            .overlapping(from, to)
            .filter(|(_, piece)| piece.stamp <= stamp)
            .map(|(at, _)| at)
            .collect();
        for at in overlapping {
            self.clip(at, from, to);
        }
    }

    /// The oldest journal position that is needed, if any.
    pub(crate) fn low(&self) -> Position {
        let low = self.lows.first_key_value();
        low.map_or(NO_LOW, |(position, _)| *position)
    }

    /// A record was hidden by the piece at `at` before it came: it stays needed
    /// until that piece has one of its own.
    fn need(&mut self, at: u64, low: Position) {
        let is_recorded = |piece: &Piece| piece.state == PieceState::Journalled;
        if self.pieces.get(&at).is_none_or(is_recorded) {
            return;
        }
        if let Some(mut piece) = self.take(at) {
            piece.low = piece.low.min(low);
            self.put(at, piece);
        }
    }

    /// Takes `from..to` out of the piece at `at`.
    fn clip(&mut self, at: u64, from: u64, to: u64) {
        let Some(old) = self.take(at) else {
            return;
        };
        let end = at + old.length;
        if at < from {
            self.put(at, old.part(0, from - at));
        }
        if to < end {
            self.put(to, old.part(to - at, old.length));
        }
    }

    fn put(&mut self, offset: u64, piece: Piece) {
        self.account(offset, &piece, true);
        if piece.state == PieceState::Volatile {
            self.volatile.insert(offset);
        }
        self.count_low(piece.low);
        self.pieces.insert(offset, piece);
    }

    fn take(&mut self, offset: u64) -> Option<Piece> {
        let piece = self.pieces.remove(&offset)?;
        self.account(offset, &piece, false);
        if piece.state == PieceState::Volatile {
            self.volatile.remove(&offset);
        }
        self.discount_low(piece.low);
        Some(piece)
    }

    /// A piece of the same length takes the place of the one at `offset`.
    fn replace(&mut self, offset: u64, piece: Piece) {
        self.account(offset, &piece, true);
        self.count_low(piece.low);
        let is_volatile = piece.state == PieceState::Volatile;
        let Some(old) = self.pieces.insert(offset, piece) else {
            return;
        };
        self.account(offset, &old, false);
        self.discount_low(old.low);
        match (old.state == PieceState::Volatile, is_volatile) {
            (false, true) => drop(self.volatile.insert(offset)),
            (true, false) => drop(self.volatile.remove(&offset)),
            _ => {}
        }
    }

    fn count_low(&mut self, low: Position) {
        if low != NO_LOW {
            *self.lows.entry(low).or_insert(0) += 1;
        }
    }

    fn discount_low(&mut self, low: Position) {
        if let Some(count) = self.lows.get_mut(&low) {
            *count -= 1;
            if *count == 0 {
                self.lows.remove(&low);
            }
        }
    }

    fn account(&mut self, offset: u64, piece: &Piece, is_added: bool) {
        if piece.state == PieceState::Flying {
            return; // Its blocks are allocated, its bytes are the flight's.
        }
        let end = offset + piece.length;
        let change = |number: &mut u64, by: u64| {
            *number = if is_added { *number + by } else { *number - by };
        };
        if piece.state == PieceState::Volatile {
            change(&mut self.volatile_bytes, piece.length);
        }
        let first_whole = offset.div_ceil(BLOCK);
        let end_whole = end / BLOCK;
        if first_whole < end_whole {
            change(&mut self.covered_blocks, end_whole - first_whole);
        }
        let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
        for block in [Some(first), (last != first).then_some(last)] {
            let is_partial = |block: &u64| *block < first_whole || *block >= end_whole;
            let Some(block) = block.filter(is_partial) else {
                continue;
            };
            if is_added {
                *self.touched.entry(block).or_insert(0) += 1;
            } else if let Some(count) = self.touched.get_mut(&block) {
                *count -= 1;
                if *count == 0 {
                    self.touched.remove(&block);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTH: usize = 3 * BLOCK_BYTES;

    fn piece(length: u64, stamp: u64, state: PieceState) -> Piece {
        #[expect(clippy::cast_possible_truncation, reason = "a test")]
        let bytes = Bytes::from(vec![stamp as u8; length as usize]);
        Piece::data(bytes, stamp, Version(stamp), state)
    }

    /// Where pieces begin and how long they are: anything, or whole blocks, which meet often.
    fn places() -> impl Strategy<Value = (usize, usize)> {
        let blocks = (0..3usize, 1..3usize);
        let blocks = blocks.prop_map(|(from, count)| (from * BLOCK_BYTES, count * BLOCK_BYTES));
        prop_oneof![(0..LENGTH, 1..LENGTH), blocks]
    }

    proptest! {
        /// Goal: the highest stamp shows at every byte, whatever the order of
        /// insertion, and the sums are those of the pieces.
        #[test]
        fn the_highest_stamp_shows(
            steps in prop::collection::vec((places(), 1u64..200, 0..3u8, any::<bool>()), 1..40),
        ) {
            let mut overlay = Overlay::default();
            let mut model = vec![0u64; LENGTH];
            for ((from, length), stamp, state, is_removal) in steps {
                let to = (from + length).min(LENGTH);
                if is_removal {
                    overlay.remove(from as u64, to as u64, stamp);
                    model[from..to].iter_mut().filter(|old| **old <= stamp).for_each(|old| *old = 0);
                    continue;
                }
                let state = [PieceState::Volatile, PieceState::Flying, PieceState::Journalled][usize::from(state)];
                let piece = piece((to - from) as u64, stamp, state);
                let low = if state == PieceState::Journalled { Position(stamp) } else { NO_LOW };
                overlay.insert(from as u64, piece.at(low));
                model[from..to].iter_mut().filter(|old| **old <= stamp).for_each(|old| *old = stamp);
            }
            let mut seen = vec![0u64; LENGTH];
            let mut blocks = std::collections::BTreeSet::new();
            let mut volatile = 0;
            for (offset, piece) in overlay.iter() {
                let start = usize::try_from(offset).expect("small");
                let length = usize::try_from(piece.length).expect("small");
                for (byte, seen) in seen.iter_mut().enumerate().skip(start).take(length) {
                    prop_assert_eq!(*seen, 0);
                    *seen = piece.stamp;
                    if piece.state != PieceState::Flying {
                        blocks.insert(byte / BLOCK_BYTES);
                    }
                }
                if piece.state == PieceState::Volatile {
                    volatile += piece.length;
                }
            }
            prop_assert_eq!(seen, model);
            let is_volatile = |(_, piece): &(u64, &Piece)| piece.state == PieceState::Volatile;
            let offsets = |pieces: Vec<(u64, &Piece)>| -> Vec<u64> { pieces.iter().map(|(at, _)| *at).collect() };
            prop_assert_eq!(offsets(overlay.volatile(0, u64::MAX).collect()), offsets(overlay.iter().filter(is_volatile).collect()));
            let lows = overlay.iter().map(|(_, piece)| piece.low);
            prop_assert_eq!(overlay.low(), lows.min().unwrap_or(NO_LOW));
            prop_assert_eq!(overlay.volatile_bytes(), volatile);
            prop_assert_eq!(overlay.promised_blocks(), blocks.len() as u64);
            let volatile: Vec<_> = overlay.iter().filter(is_volatile).map(|(at, piece)| (at, at + piece.length)).collect();
            for from in (0..LENGTH as u64).step_by(BLOCK_BYTES) {
                let reaching = volatile.iter().any(|(_, end)| *end > from);
                let found = overlay.volatile_blocks(from, 500);
                prop_assert_eq!(found.is_some(), reaching);
                let Some((first, end)) = found else { continue };
                prop_assert!(first <= from && first % BLOCK == 0 && end % BLOCK == 0);
                let inside: Vec<_> = volatile.iter().filter(|(a, b)| *a < end && first < *b).collect();
                prop_assert!(inside.iter().all(|(a, b)| first <= *a && *b <= end), "none reaches over an end");
                let bytes: u64 = inside.iter().map(|(a, b)| b - a).sum();
                let is_last = volatile.iter().all(|(_, b)| *b <= end);
                prop_assert!(bytes >= 500 || is_last);
            }
        }
    }

    /// Goal: while newer bytes are only in memory, the record of the older ones
    /// that they cover stays needed.
    #[test]
    fn unrecorded_bytes_keep_the_record_beneath() {
        let mut overlay = Overlay::default();
        let journalled = |stamp| piece(100, stamp, PieceState::Journalled);
        overlay.insert(0, journalled(1).at(Position(5)));
        overlay.insert(0, piece(100, 2, PieceState::Volatile));
        assert_eq!(overlay.low(), Position(5));
        overlay.insert(0, journalled(3).at(Position(9)));
        assert_eq!(overlay.low(), Position(9), "it has a record of its own");
        overlay.remove(0, 100, 3);
        assert_eq!(overlay.low(), NO_LOW);
    }

    /// Goal: the same if the record comes later than the newer bytes that hide it.
    #[test]
    fn a_record_that_comes_hidden_stays_needed() {
        let mut overlay = Overlay::default();
        overlay.insert(0, piece(100, 2, PieceState::Flying));
        overlay.insert(10, piece(20, 1, PieceState::Journalled).at(Position(5)));
        assert_eq!(overlay.low(), Position(5));
        overlay.insert(0, piece(100, 2, PieceState::Journalled).at(Position(9)));
        assert_eq!(overlay.low(), Position(9));
    }
}
