//! Which parts of a file's range lie where.

use std::ops::Range;

use crossdock_names::{BlockPiece, ColumnPiece, ObjectId, SMALL_FILE_THRESHOLD_BYTES, UNMAPPED};
use crossdock_peer::FileLayout;

/// A range of the file, and the column where it lies, from that offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
    pub(super) column: Option<(ObjectId, u64)>,
}

/// Cuts a range of a file, in order, by where it lies.
pub(super) fn split(layout: &FileLayout, range: Range<u64>) -> Vec<Piece> {
    let below = range.start.max(SMALL_FILE_THRESHOLD_BYTES).min(range.end);
    let mut pieces = Vec::new();
    let mut push = |offset_bytes: u64, length_bytes: u64, column| {
        if length_bytes > 0 {
            pieces.push(Piece {
                offset_bytes,
                length_bytes,
                column,
            });
        }
    };
    push(range.start, below.saturating_sub(range.start), None);
    let length = range.end.saturating_sub(below);
    match layout.class.map_block_bytes() {
        _ if layout.columns == 0 => push(below, length, None),
        Some(block_bytes) => {
            for piece in BlockPiece::split(below, range.end, block_bytes) {
                let column = layout.map.column_of(piece.block);
                let column = column.filter(|&column| column != UNMAPPED);
                let place = |column| piece.place(layout.placement, layout.generation, column);
                push(piece.file_offset, piece.length_bytes, column.map(place));
            }
        }
        None => {
            for piece in ColumnPiece::split(below, length, layout.columns) {
                let object = piece.object(layout.placement, layout.generation);
                let column = Some((object, piece.object_offset));
                push(piece.file_offset, piece.length_bytes, column);
            }
        }
    }
    pieces
}

/// Neighbours that lie behind each other in one column, or in none, become one piece.
pub(super) fn merge(pieces: impl Iterator<Item = Piece>) -> Vec<Piece> {
    let mut merged: Vec<Piece> = Vec::new();
    for piece in pieces {
        if let Some(last) = merged.last_mut() {
            let next = last
                .column
                .map(|(object, offset)| (object, offset + last.length_bytes));
            if next == piece.column {
                last.length_bytes += piece.length_bytes;
                continue;
            }
        }
        merged.push(piece);
    }
    merged
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use crossdock_names::{FileId, LayoutClass, MapFragment, STRIPE_UNIT_BYTES};

    use super::*;

    const UNIT: u64 = STRIPE_UNIT_BYTES;

    fn layout(class: LayoutClass, columns: u16) -> FileLayout {
        FileLayout {
            class,
            class_epoch: 0,
            placement: FileId(7),
            generation: 1,
            columns,
            truncate_generation: 0,
            map: MapFragment {
                first_window: 0,
                windows: 1,
                columns: Bytes::from_static(&[0, 0, UNMAPPED, 1]),
            },
            capability: None,
        }
    }

    /// Offset, length, column and offset in it.
    type Shown = (u64, u64, Option<(u16, u64)>);

    fn cut(layout: &FileLayout, range: Range<u64>) -> Vec<Shown> {
        let pieces = merge(split(layout, range).into_iter()).into_iter();
        let shown = pieces.map(|piece| {
            let column = piece.column.map(|(object, offset)| (object.column, offset));
            (piece.offset_bytes, piece.length_bytes, column)
        });
        shown.collect()
    }

    /// Goal: pieces follow each other without gaps, one for each stretch of a column; what
    /// lies below the threshold, or nowhere, is of no column.
    #[test]
    fn a_file_is_cut_where_it_lies_elsewhere() {
        let head = SMALL_FILE_THRESHOLD_BYTES;
        let striped = layout(LayoutClass::STRIPED, 2);
        assert_eq!(
            cut(&striped, 0..2 * UNIT + 5),
            [
                (0, head, None),
                (head, UNIT - head, Some((0, head))),
                (UNIT, UNIT, Some((1, 0))),
                (2 * UNIT, 5, Some((0, UNIT))),
            ]
        );
        assert_eq!(cut(&striped, 10..20), [(10, 10, None)]);
        assert_eq!(cut(&striped, UNIT..UNIT), []);
        let one = layout(LayoutClass::STRIPED, 1);
        assert_eq!(
            cut(&one, 0..99 * UNIT),
            [(0, head, None), (head, 99 * UNIT - head, Some((0, head)))]
        );
        let none = layout(LayoutClass::STRIPED, 0);
        assert_eq!(cut(&none, 0..UNIT), [(0, UNIT, None)]);
        let block = 1 << 20;
        assert_eq!(
            cut(&layout(LayoutClass::MAPPED, 2), head..5 * block),
            [
                (head, 2 * block - head, Some((0, head))),
                (2 * block, block, None),
                (3 * block, block, Some((1, 3 * block))),
                (4 * block, block, None),
            ]
        );
    }
}
