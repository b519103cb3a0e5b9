//! Which parts of a file's range go to which column object.

use crossdock_limits::OBJECT_IO_BYTES_MAX;
use crossdock_names::{ColumnPiece, ObjectId};
use crossdock_peer::FileLayout;

/// A range of a file that lies in one piece in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectPiece {
    pub(crate) object: ObjectId,
    pub(crate) object_offset: u64,
    pub(crate) file_offset: u64,
    pub(crate) length_bytes: u64,
}

/// Cuts `start..end` of a file, in file order. Neighbours in one object stay
/// together, so a file with one column is read in one request.
pub(crate) fn split(layout: &FileLayout, start: u64, end: u64) -> Vec<ObjectPiece> {
    let mut pieces: Vec<ObjectPiece> = Vec::new();
    for piece in ColumnPiece::split(start, end.saturating_sub(start), layout.columns) {
        let object = piece.object(layout.placement, layout.generation);
        if let Some(last) = pieces.last_mut()
            && last.object == object
            && last.object_offset + last.length_bytes == piece.object_offset
            && last.length_bytes + piece.length_bytes <= OBJECT_IO_BYTES_MAX as u64
        {
            last.length_bytes += piece.length_bytes;
            continue;
        }
        pieces.push(ObjectPiece {
            object,
            object_offset: piece.object_offset,
            file_offset: piece.file_offset,
            length_bytes: piece.length_bytes,
        });
    }
    pieces
}

#[cfg(test)]
mod tests {
    use crossdock_names::{FileId, LayoutClass, STRIPE_UNIT_BYTES};

    use super::*;

    fn layout(columns: u16) -> FileLayout {
        FileLayout {
            class: LayoutClass::STRIPED,
            class_epoch: 0,
            placement: FileId(7),
            generation: 1,
            columns,
            truncate_generation: 0,
            capability: None,
        }
    }

    /// Goal: one column is one request up to the limit; several columns are one
    /// request per stripe unit.
    #[test]
    fn neighbours_in_one_object_stay_together() {
        let limit = OBJECT_IO_BYTES_MAX as u64;
        assert_eq!(split(&layout(1), 100, 100 + limit).len(), 1);
        assert_eq!(split(&layout(1), 0, limit + STRIPE_UNIT_BYTES).len(), 2);
        let pieces = split(&layout(4), 100, 100 + STRIPE_UNIT_BYTES);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].length_bytes, STRIPE_UNIT_BYTES - 100);
        assert_eq!((pieces[1].object.column, pieces[1].length_bytes), (1, 100));
        assert_eq!(split(&layout(4), 5, 5), []);
    }
}
