//! Which parts of a file's range go to which column object.

use std::collections::BTreeMap;

use crossdock_limits::OBJECT_IO_BYTES_MAX;
use crossdock_names::{BlockPiece, ColumnPiece, ObjectId, UNMAPPED};
use crossdock_peer::{FileLayout, ReadVersion};

/// A range of a file that lies in one piece in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectPiece {
    pub(crate) object: ObjectId,
    pub(crate) object_offset: u64,
    pub(crate) file_offset: u64,
    pub(crate) length_bytes: u64,
}

/// Cuts `start..end` of a file, in file order, without blocks that lie nowhere. Neighbours
/// in one object stay together, so a file with one column is read in one request.
///
/// `column_of` is asked for files with a block map; `None` if it does not know a block.
pub(crate) fn split(
    layout: &FileLayout,
    column_of: impl FnMut(u64) -> Option<u8>,
    start: u64,
    end: u64,
) -> Option<Vec<ObjectPiece>> {
    let mut pieces = Vec::new();
    if let Some(block_bytes) = layout.class.map_block_bytes() {
        let blocks = BlockPiece::split(start, end, block_bytes);
        split_by_map(layout, column_of, blocks, &mut pieces)?;
        return Some(pieces);
    }
    for piece in ColumnPiece::split(start, end.saturating_sub(start), layout.columns) {
        let piece = ObjectPiece {
            object: piece.object(layout.placement, layout.generation),
            object_offset: piece.object_offset,
            file_offset: piece.file_offset,
            length_bytes: piece.length_bytes,
        };
        push(&mut pieces, piece);
    }
    Some(pieces)
}

/// The same of what is read: of a file without columns, and behind the end, nothing lies anywhere.
pub(crate) fn split_for_read(
    layout: &FileLayout,
    column_of: impl FnMut(u64) -> Option<u8>,
    start: u64,
    end: u64,
) -> Option<Vec<ObjectPiece>> {
    match layout.columns == 0 || end <= start {
        true => Some(Vec::new()),
        false => split(layout, column_of, start, end),
    }
}

/// Which version of its columns a reader is to be given.
pub(crate) const fn version_to_read(layout: &FileLayout) -> ReadVersion {
    match layout.class.map_block_bytes() {
        Some(_) => ReadVersion::MappedUnder(layout.truncate_generation),
        None => ReadVersion::Current,
    }
}

fn split_by_map(
    layout: &FileLayout,
    mut column_of: impl FnMut(u64) -> Option<u8>,
    blocks: impl Iterator<Item = BlockPiece>,
    pieces: &mut Vec<ObjectPiece>,
) -> Option<()> {
    for piece in blocks {
        let column = column_of(piece.block)?;
        if column == UNMAPPED {
            continue;
        }
        let (object, object_offset) = piece.place(layout.placement, layout.generation, column);
        let piece = ObjectPiece {
            object,
            object_offset,
            file_offset: piece.file_offset,
            length_bytes: piece.length_bytes,
        };
        push(pieces, piece);
    }
    Some(())
}

/// The same without regard to the order in the file and to how much is moved at a time: one
/// piece for what lies in one stretch in an object.
pub(crate) fn stretches(pieces: &[ObjectPiece]) -> Vec<ObjectPiece> {
    let mut stretches: Vec<ObjectPiece> = Vec::new();
    let mut last: BTreeMap<ObjectId, usize> = BTreeMap::new();
    for piece in pieces {
        if let Some(stretch) = last
            .get(&piece.object)
            .and_then(|at| stretches.get_mut(*at))
            && stretch.object_offset + stretch.length_bytes == piece.object_offset
        {
            stretch.length_bytes += piece.length_bytes;
            continue;
        }
        last.insert(piece.object, stretches.len());
        stretches.push(*piece);
    }
    stretches
}

fn push(pieces: &mut Vec<ObjectPiece>, piece: ObjectPiece) {
    if let Some(last) = pieces.last_mut()
        && last.object == piece.object
        && last.object_offset + last.length_bytes == piece.object_offset
        && last.length_bytes + piece.length_bytes <= OBJECT_IO_BYTES_MAX as u64
    {
        last.length_bytes += piece.length_bytes;
        return;
    }
    pieces.push(piece);
}

#[cfg(test)]
mod tests {
    use crossdock_names::{FileId, LayoutClass, MapFragment, STRIPE_UNIT_BYTES};

    use super::*;

    fn layout(columns: u16) -> FileLayout {
        FileLayout {
            class: LayoutClass::STRIPED,
            class_epoch: 0,
            placement: FileId(7),
            generation: 1,
            columns,
            truncate_generation: 0,
            map: MapFragment::default(),
            capability: None,
        }
    }

    fn striped(columns: u16, start: u64, end: u64) -> Vec<ObjectPiece> {
        let pieces = split(&layout(columns), |_| None, start, end);
        pieces.expect("stripes need no map")
    }

    /// Goal: one column is one request up to the limit; several columns are one
    /// request per stripe unit.
    #[test]
    fn neighbours_in_one_object_stay_together() {
        let limit = OBJECT_IO_BYTES_MAX as u64;
        assert_eq!(striped(1, 100, 100 + limit).len(), 1);
        assert_eq!(striped(1, 0, limit + STRIPE_UNIT_BYTES).len(), 2);
        let pieces = striped(4, 100, 100 + STRIPE_UNIT_BYTES);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].length_bytes, STRIPE_UNIT_BYTES - 100);
        assert_eq!((pieces[1].object.column, pieces[1].length_bytes), (1, 100));
        assert_eq!(striped(4, 5, 5), []);
    }

    /// Goal: a long range is one stretch in each column, whatever the stripes; a gap makes
    /// two.
    #[test]
    fn stretches_are_as_long_as_they_can_be() {
        let unit = STRIPE_UNIT_BYTES;
        let pieces = striped(2, unit / 2, 6 * unit);
        let stretches = stretches(&pieces);
        let seen = stretches
            .iter()
            .map(|piece| (piece.object.column, piece.object_offset, piece.length_bytes));
        let seen: Vec<_> = seen.collect();
        assert_eq!(seen, [(0, unit / 2, 5 * unit / 2), (1, 0, 3 * unit)]);
        let apart = [pieces[0], pieces[4]];
        assert_eq!(super::stretches(&apart), apart);
    }

    /// Goal: blocks go where the map says, neighbours in one column together, holes
    /// nowhere; and what the map does not tell is not guessed.
    #[test]
    fn a_map_says_where_blocks_lie() {
        let layout = FileLayout {
            class: LayoutClass(16),
            ..layout(4)
        };
        let columns = [2, 2, UNMAPPED, 1];
        let column_of = |block: u64| columns.get(usize::try_from(block).ok()?).copied();
        let block = 1 << 16;
        let pieces = split(&layout, column_of, 7, 4 * block).expect("all is known");
        let seen = pieces.iter().map(|piece| {
            assert_eq!(piece.object_offset, piece.file_offset);
            (piece.object.column, piece.file_offset, piece.length_bytes)
        });
        let seen: Vec<_> = seen.collect();
        assert_eq!(seen, [(2, 7, 2 * block - 7), (1, 3 * block, block)]);
        assert_eq!(split(&layout, column_of, 0, 4 * block + 1), None);
    }
}
