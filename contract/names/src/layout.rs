//! Layout classes and the arithmetic of striping (Slice 3.1, DESIGN "Objects of a file").

use serde::{Deserialize, Serialize};

use crate::{FileId, ObjectId};

/// Files, and heads of files, below this many bytes live at small-file sites
/// (Slice 3.1).
pub const SMALL_FILE_THRESHOLD_BYTES: u64 = 64 << 10;

/// Bytes of a file that lie in one column before the next column's turn.
pub const STRIPE_UNIT_BYTES: u64 = 256 << 10;

/// Bytes of a file that share one column count.
pub const SEGMENT_BYTES: u64 = 64 << 30;

/// How a file's bytes are spread. The number is kept in handles and attribute cells.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LayoutClass(pub u8);

impl LayoutClass {
    /// Threshold of 64 KiB, stripe unit of 256 KiB, static striping.
    pub const STRIPED: Self = Self(0);

    /// The same with a block map in place of the stripes: each block of 1 MiB lies in the
    /// column that the file's site has chosen for it. The number is the power of two of
    /// the blocks' length.
    pub const MAPPED: Self = Self(20);

    /// Bytes of a block of a file with a block map, 64 KiB to 64 MiB; `None` for others.
    #[must_use]
    pub const fn map_block_bytes(self) -> Option<u64> {
        match self.0 {
            power @ 16..=26 => Some(1 << power),
            _ => None,
        }
    }

    /// The end, in bytes, that column `column` of `segment` has when the file
    /// ends at `size`: what a truncate sends to that column.
    #[must_use]
    pub const fn column_end(self, size: u64, segment: u32, column: u16, columns: u16) -> u64 {
        match self.map_block_bytes() {
            Some(_) => within_segment(size, segment),
            None => ColumnPiece::column_end(size, segment, column, columns),
        }
    }

    /// The least end, in bytes, that the file has when column `column` of `segment` ends
    /// at `column_end`; 0 for an empty column.
    #[must_use]
    pub const fn file_end(self, column_end: u64, segment: u32, column: u16, columns: u16) -> u64 {
        match self.map_block_bytes() {
            Some(_) if column_end == 0 => 0,
            Some(_) => segment as u64 * SEGMENT_BYTES + column_end,
            None => ColumnPiece::file_end(column_end, segment, column, columns),
        }
    }
}

/// How much of `segment` lies before the file's end at `size`, in bytes.
const fn within_segment(size: u64, segment: u32) -> u64 {
    let left = size.saturating_sub(segment as u64 * SEGMENT_BYTES);
    if left < SEGMENT_BYTES {
        left
    } else {
        SEGMENT_BYTES
    }
}

/// A part of a file's range that lies in one piece in one column object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnPiece {
    /// Which 64 GiB of the file.
    pub segment: u32,
    /// Which column of the segment.
    pub column: u16,
    /// Where it lies in the column object, in bytes.
    pub object_offset: u64,
    /// Where it lies in the file, in bytes.
    pub file_offset: u64,
    /// How many bytes.
    pub length_bytes: u64,
}

impl ColumnPiece {
    /// Cuts `offset..offset + length` of a file with `columns` columns into
    /// pieces, in file order. The file offsets keep their place: what the
    /// small-file site holds is a hole in the first column.
    ///
    /// # Panics
    /// If `columns` is zero.
    pub fn split(offset: u64, length: u64, columns: u16) -> impl Iterator<Item = Self> {
        assert!(columns > 0, "a file without columns");
        let end = offset.saturating_add(length);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let piece = Self::first_of(at, end, columns);
            at += piece.length_bytes;
            Some(piece)
        })
    }

    /// The object that holds the piece.
    #[must_use]
    pub const fn object(&self, placement: FileId, generation: u32) -> ObjectId {
        ObjectId::column(placement, generation, self.segment, self.column)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "segments of a 2^63 byte file fit 27 bits, the column is below a u16"
    )]
    const fn first_of(at: u64, end: u64, columns: u16) -> Self {
        let in_segment = at % SEGMENT_BYTES;
        let unit = in_segment / STRIPE_UNIT_BYTES;
        let in_unit = in_segment % STRIPE_UNIT_BYTES;
        let room = STRIPE_UNIT_BYTES - in_unit;
        let left = end - at;
        Self {
            segment: (at / SEGMENT_BYTES) as u32,
            column: (unit % columns as u64) as u16,
            object_offset: unit / columns as u64 * STRIPE_UNIT_BYTES + in_unit,
            file_offset: at,
            length_bytes: if left < room { left } else { room },
        }
    }

    /// See [`LayoutClass::column_end`].
    const fn column_end(size: u64, segment: u32, column: u16, columns: u16) -> u64 {
        let within = within_segment(size, segment);
        let units = within / STRIPE_UNIT_BYTES;
        let rest = within % STRIPE_UNIT_BYTES;
        let (columns, column) = (columns as u64, column as u64);
        let whole = units / columns + if column < units % columns { 1 } else { 0 };
        let part = if column == units % columns { rest } else { 0 };
        whole * STRIPE_UNIT_BYTES + part
    }

    /// See [`LayoutClass::file_end`].
    const fn file_end(column_end: u64, segment: u32, column: u16, columns: u16) -> u64 {
        if column_end == 0 {
            return 0;
        }
        let last = column_end - 1;
        let (unit, in_unit) = (last / STRIPE_UNIT_BYTES, last % STRIPE_UNIT_BYTES);
        let unit = unit * columns as u64 + column as u64;
        segment as u64 * SEGMENT_BYTES + unit * STRIPE_UNIT_BYTES + in_unit + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: pieces cover the range without gap or overlap, each within one unit.
    #[test]
    fn pieces_tile_the_range() {
        let (offset, length) = (
            SEGMENT_BYTES - STRIPE_UNIT_BYTES - 10,
            3 * STRIPE_UNIT_BYTES,
        );
        let pieces: Vec<_> = ColumnPiece::split(offset, length, 3).collect();
        let mut at = offset;
        for piece in &pieces {
            assert_eq!(piece.file_offset, at);
            assert!(piece.length_bytes > 0 && piece.length_bytes <= STRIPE_UNIT_BYTES);
            at += piece.length_bytes;
        }
        assert_eq!(at, offset + length);
        assert_eq!(pieces[0].length_bytes, 10);
        assert_eq!(
            (pieces[2].segment, pieces[2].column, pieces[2].object_offset),
            (1, 0, 0)
        );
    }

    /// Goal: the furthest of what the columns' ends say is the file's end.
    #[test]
    fn the_columns_tell_the_file_s_end() {
        let unit = STRIPE_UNIT_BYTES;
        let sizes = [
            0,
            1,
            unit - 1,
            unit,
            5 * unit + 7,
            SEGMENT_BYTES,
            SEGMENT_BYTES + 9,
        ];
        let classes = [LayoutClass::STRIPED, LayoutClass::MAPPED];
        for (columns, size) in (1..5u16).flat_map(|columns| sizes.map(|size| (columns, size))) {
            for class in classes {
                let ends = (0..2).flat_map(|segment| {
                    (0..columns).map(move |column| {
                        let end = class.column_end(size, segment, column, columns);
                        class.file_end(end, segment, column, columns)
                    })
                });
                assert_eq!(ends.max(), Some(size), "{columns} columns of {class:?}");
            }
        }
    }

    /// Goal: a column's end is where its last piece ends, for every size near
    /// unit edges.
    #[test]
    fn column_end_matches_the_pieces() {
        for columns in 1..5u16 {
            for size in [
                0,
                1,
                STRIPE_UNIT_BYTES - 1,
                STRIPE_UNIT_BYTES,
                5 * STRIPE_UNIT_BYTES + 7,
            ] {
                for column in 0..columns {
                    let end = ColumnPiece::split(0, size, columns)
                        .filter(|piece| piece.column == column)
                        .map(|piece| piece.object_offset + piece.length_bytes)
                        .max()
                        .unwrap_or(0);
                    assert_eq!(ColumnPiece::column_end(size, 0, column, columns), end);
                }
            }
        }
    }
}
