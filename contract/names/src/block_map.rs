//! Block maps: files whose bytes lie where somebody has decided, block by block (Slice 3.1,
//! docs/decisions/0029).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{FileId, ObjectId, SEGMENT_BYTES};

/// Entries of a window: what a site keeps, logs and tells of a map in one piece.
pub const MAP_WINDOW_BLOCKS: u64 = 1024;

/// Most windows that one answer tells.
pub const MAP_WINDOWS_MAX: u64 = 2;

/// Most columns of a file with a map: an entry is a byte.
pub const MAP_COLUMNS_MAX: u16 = 255;

/// The entry of a block that lies nowhere: it reads as zeros.
pub const UNMAPPED: u8 = u8::MAX;

/// Entries of a file's map that follow each other, whole windows of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapFragment {
    /// The window with which it begins.
    pub first_window: u64,
    /// How many windows, at most [`MAP_WINDOWS_MAX`]: of more, no host says so, only
    /// those are looked at.
    pub windows: u64,
    /// Of each block its column, or [`UNMAPPED`], as those behind the last one are.
    pub columns: Bytes,
}

impl MapFragment {
    /// The column of a block, [`UNMAPPED`] if it has none; `None` if the fragment
    /// does not tell.
    #[must_use]
    pub fn column_of(&self, block: u64) -> Option<u8> {
        let first = self.first_window.saturating_mul(MAP_WINDOW_BLOCKS);
        let within = block.checked_sub(first)?;
        if within >= self.windows.min(MAP_WINDOWS_MAX) * MAP_WINDOW_BLOCKS {
            return None;
        }
        let index = usize::try_from(within).ok()?;
        Some(self.columns.get(index).copied().unwrap_or(UNMAPPED))
    }
}

/// A part of a file's range that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPiece {
    /// Which block of the file.
    pub block: u64,
    /// Where it lies in the file, in bytes.
    pub file_offset: u64,
    /// How many bytes.
    pub length_bytes: u64,
}

impl BlockPiece {
    /// Cuts `start..end` of a file into blocks, in file order.
    ///
    /// # Panics
    /// If `block_bytes` is zero.
    pub fn split(start: u64, end: u64, block_bytes: u64) -> impl Iterator<Item = Self> {
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let block = at / block_bytes;
            let to = end.min((block + 1).saturating_mul(block_bytes));
            let piece = Self {
                block,
                file_offset: at,
                length_bytes: to - at,
            };
            at = to;
            Some(piece)
        })
    }

    /// The object that holds the piece if the block lies in `column`, and where it begins
    /// there: a column holds its blocks where they lie in the segment, with holes between.
    #[must_use]
    pub const fn place(&self, placement: FileId, generation: u32, column: u8) -> (ObjectId, u64) {
        let segment = (self.file_offset / SEGMENT_BYTES) as u32;
        let object = ObjectId::column(placement, generation, segment, column as u16);
        (object, self.file_offset % SEGMENT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a fragment does not tell is not taken for a hole.
    #[test]
    fn a_fragment_tells_of_its_windows_only() {
        let fragment = MapFragment {
            first_window: 2,
            windows: 1,
            columns: Bytes::from_static(&[3, UNMAPPED, 1]),
        };
        let first = 2 * MAP_WINDOW_BLOCKS;
        let told = |block: u64| fragment.column_of(block);
        assert_eq!(told(first - 1), None);
        assert_eq!(told(first), Some(3));
        assert_eq!(told(first + 1), Some(UNMAPPED));
        assert_eq!(told(first + 2), Some(1));
        assert_eq!(told(first + 3), Some(UNMAPPED));
        assert_eq!(told(first + MAP_WINDOW_BLOCKS), None);
    }

    /// Goal: pieces tile the range, each within a block, and lie in the segment's object
    /// where they lie in the segment.
    #[test]
    fn pieces_tile_the_range() {
        let block = 1 << 20;
        let (start, end) = (SEGMENT_BYTES - 10, SEGMENT_BYTES + block + 7);
        let pieces: Vec<_> = BlockPiece::split(start, end, block).collect();
        let mut at = start;
        for piece in &pieces {
            assert_eq!(piece.file_offset, at);
            at += piece.length_bytes;
        }
        assert_eq!((at, pieces.len()), (end, 3));
        let (object, offset) = pieces[0].place(FileId(7), 1, 4);
        assert_eq!(object, ObjectId::column(FileId(7), 1, 0, 4));
        assert_eq!(offset, SEGMENT_BYTES - 10);
        let (object, offset) = pieces[1].place(FileId(7), 1, 0);
        assert_eq!(object, ObjectId::column(FileId(7), 1, 1, 0));
        assert_eq!(offset, 0);
    }
}
