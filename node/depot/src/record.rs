//! What a depot keeps of an allocation: the attributes of its object.
//!
//! | offset | bytes | name | meaning (little-endian) |
//! |---|---|---|---|
//! | 0 | 1 | format | 1 |
//! | 1 | 1 | kind | 1: an allocation |
//! | 2 | 1 | reliability | 1 volatile, 2 stable |
//! | 3 | 1 | storage type | 1 byte array, 2 buffer, 3 FIFO, 4 circular queue |
//! | 4 | 4 | read count | users that read |
//! | 8 | 4 | write count | users that write |
//! | 12 | 4 | | zeros |
//! | 16 | 8 | size | bytes that it may hold |
//! | 24 | 8 | start | position of the first byte that it holds |
//! | 32 | 8 | length | bytes that it holds |
//! | 40 | 8 | end | of its lease: milliseconds of the depot's clock; 2⁶⁴ − 1: for ever |
//! | 48 | 16 | secret | what its capabilities are made with |
//!
//! Positions only grow. A byte array begins at 0, and a position is an offset in the object.
//! So it is in a buffer: a new content lies where the old one is not. In a queue, position p
//! is at offset p modulo twice the size: what is stored never overwrites what is there before
//! the record says so.

use std::ops::Range;

use bytes::Bytes;
use crossdock_ibp::{Access, Reliability, StorageType};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::clock::Millis;

const FORMAT: u8 = 1;
const KIND: u8 = 1;

/// Room that a reservation has for blocks that begin and end within the object's.
const EDGES_BYTES: u64 = 8 << 10;

/// An allocation, but for its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) reliability: Reliability,
    pub(crate) storage: StorageType,
    pub(crate) read_count: u32,
    pub(crate) write_count: u32,
    pub(crate) size_bytes: u64,
    pub(crate) start: u64,
    pub(crate) length_bytes: u64,
    pub(crate) end: Millis,
    pub(crate) secret: [u8; 16],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Stored {
    format: u8,
    kind: u8,
    reliability: u8,
    storage: u8,
    read_count: U32,
    write_count: U32,
    zeros: U32,
    size: U64,
    start: U64,
    length: U64,
    end: U64,
    secret: [u8; 16],
}

const _: () = assert!(size_of::<Stored>() == 64);

impl Record {
    pub(crate) fn encode(&self) -> Bytes {
        let number = |number: i64| u8::try_from(number).unwrap_or(0);
        let stored = Stored {
            format: FORMAT,
            kind: KIND,
            reliability: number(self.reliability.number()),
            storage: number(self.storage.number()),
            read_count: U32::new(self.read_count),
            write_count: U32::new(self.write_count),
            zeros: U32::new(0),
            size: U64::new(self.size_bytes),
            start: U64::new(self.start),
            length: U64::new(self.length_bytes),
            end: U64::new(self.end.0),
            secret: self.secret,
        };
        Bytes::copy_from_slice(stored.as_bytes())
    }

    /// `None` if these are not the attributes of an allocation.
    pub(crate) fn decode(attributes: &[u8]) -> Option<Self> {
        let stored = Stored::ref_from_bytes(attributes).ok()?;
        if (stored.format, stored.kind) != (FORMAT, KIND) {
            return None;
        }
        let record = Self {
            reliability: Reliability::of(stored.reliability.into())?,
            storage: StorageType::of(stored.storage.into())?,
            read_count: stored.read_count.get(),
            write_count: stored.write_count.get(),
            size_bytes: stored.size.get(),
            start: stored.start.get(),
            length_bytes: stored.length.get(),
            end: Millis(stored.end.get()),
            secret: stored.secret,
        };
        (record.length_bytes <= record.size_bytes).then_some(record)
    }

    /// How many users there are of that kind.
    pub(crate) const fn count_mut(&mut self, access: Access) -> &mut u32 {
        match access {
            Access::Write => &mut self.write_count,
            Access::Read | Access::Manage => &mut self.read_count,
        }
    }

    /// Whether loads take bytes out.
    pub(crate) const fn is_queue(&self) -> bool {
        matches!(self.storage, StorageType::Fifo | StorageType::CircularQueue)
    }

    /// Bytes that are set aside for it on the node: volatile ones have what is left.
    pub(crate) const fn reservation_bytes(&self) -> u64 {
        match (self.reliability, self.storage) {
            (Reliability::Volatile, _) => 0,
            (Reliability::Stable, StorageType::ByteArray) => self.size_bytes,
            (Reliability::Stable, StorageType::Fifo) => self.size_bytes + EDGES_BYTES,
            // The old content stays until the new one is there.
            (Reliability::Stable, StorageType::Buffer | StorageType::CircularQueue) => {
                2 * self.size_bytes + EDGES_BYTES
            }
        }
    }

    /// The position behind its last byte.
    pub(crate) const fn tail(&self) -> u64 {
        self.start + self.length_bytes
    }

    /// The position at which `bytes` are stored.
    pub(crate) const fn place(&self, bytes: u64) -> u64 {
        match self.storage {
            StorageType::Buffer if bytes <= self.start => 0,
            _ => self.tail(),
        }
    }

    /// Where in the object positions lie: in one piece, or two.
    pub(crate) fn ranges(&self, from: u64, bytes: u64) -> Vec<Range<u64>> {
        if bytes == 0 {
            return Vec::new();
        }
        let ring = match self.is_queue() {
            true => 2 * self.size_bytes,
            false => u64::MAX,
        };
        let first = from % ring;
        let until = (first + bytes).min(ring);
        let rest = bytes - (until - first);
        let second = (rest > 0).then_some(0..rest);
        [Some(first..until), second].into_iter().flatten().collect()
    }

    /// With `bytes` stored at the position that [`place`](Self::place) says; and the positions
    /// that it does not hold any more.
    pub(crate) fn stored(mut self, bytes: u64) -> (Self, Range<u64>) {
        let before = self;
        match self.storage {
            StorageType::ByteArray | StorageType::Fifo => self.length_bytes += bytes,
            StorageType::Buffer => {
                self.start = self.place(bytes);
                self.length_bytes = bytes;
                return (self, before.start..before.tail());
            }
            StorageType::CircularQueue => {
                self.length_bytes += bytes;
                let dropped = self.length_bytes.saturating_sub(self.size_bytes);
                self.start += dropped;
                self.length_bytes -= dropped;
            }
        }
        (self, before.start..self.start)
    }

    /// With `bytes` written at `offset`: of byte arrays.
    pub(crate) fn written(mut self, offset: u64, bytes: u64) -> Self {
        self.length_bytes = self.length_bytes.max(offset + bytes);
        self
    }

    /// With its first `bytes` taken out; and the positions that they had.
    pub(crate) const fn taken(mut self, bytes: u64) -> (Self, Range<u64>) {
        let from = self.start;
        self.start += bytes;
        self.length_bytes -= bytes;
        (self, from..self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(storage: StorageType) -> Record {
        Record {
            reliability: Reliability::Stable,
            storage,
            read_count: 1,
            write_count: 2,
            size_bytes: 10,
            start: 0,
            length_bytes: 0,
            end: Millis(77),
            secret: [5; 16],
        }
    }

    /// Goal: a record survives its encoding; what is none is refused.
    #[test]
    fn records_come_back_from_their_bytes() {
        let (mut stored, _) = record(StorageType::Fifo).stored(7);
        stored.reliability = Reliability::Volatile;
        let bytes = stored.encode();
        assert_eq!(Record::decode(&bytes), Some(stored));
        assert_eq!(Record::decode(&bytes[..63]), None);
        for at in 0..4 {
            let mut wrong = bytes.to_vec();
            wrong[at] = 9;
            assert_eq!(Record::decode(&wrong), None, "byte {at}");
        }
        stored.length_bytes = 11;
        assert_eq!(Record::decode(&stored.encode()), None);
    }

    /// Goal: two stores of 6 into 10 bytes, in each type that takes both: the old content is
    /// not touched by what is stored, and is given up with the record.
    #[test]
    fn what_is_stored_lies_where_nothing_is() {
        let (first, freed) = record(StorageType::Buffer).stored(6);
        assert_eq!((first.start, first.length_bytes, freed), (0, 6, 0..0));
        assert_eq!(first.place(6), 6);
        let (second, freed) = first.stored(6);
        assert_eq!((second.start, second.length_bytes, freed), (6, 6, 0..6));
        assert_eq!((second.place(6), second.place(7)), (0, 12));

        let (first, _) = record(StorageType::CircularQueue).stored(6);
        let places = |record: &Record| -> Vec<(u64, u64)> {
            let ranges = record.ranges(record.place(6), 6).into_iter();
            ranges.map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(places(&first), [(6, 12)]);
        let (second, freed) = first.stored(6);
        assert_eq!((second.start, second.length_bytes, freed), (2, 10, 0..2));
        let (third, _) = second.stored(6);
        assert_eq!(places(&third), [(18, 20), (0, 4)]);
        let (empty, freed) = third.taken(10);
        assert_eq!((empty.length_bytes, freed), (0, 8..18));
    }

    /// Goal: no type ever stores outside of what is reserved for it, or over what it holds.
    #[test]
    fn stores_stay_within_the_reservation() {
        for storage in [
            StorageType::Buffer,
            StorageType::Fifo,
            StorageType::CircularQueue,
        ] {
            let mut now = record(storage);
            for step in 0..1000_u64 {
                let room = match storage {
                    StorageType::Fifo => now.size_bytes - now.length_bytes,
                    _ => now.size_bytes,
                };
                let bytes = (step * 7 % 11).min(room);
                let new = now.ranges(now.place(bytes), bytes);
                let old = now.ranges(now.start, now.length_bytes);
                for new in &new {
                    assert!(new.end <= 3 * now.size_bytes, "{storage:?} {new:?}");
                    assert!(
                        old.iter()
                            .all(|old| old.end <= new.start || new.end <= old.start)
                    );
                }
                now = now.stored(bytes).0;
                if now.is_queue() {
                    now = now.taken(now.length_bytes.min(step * 5 % 8)).0;
                }
            }
        }
    }
}
