//! How far is read ahead of a client that reads on: a door says it of a range of the file,
//! and each node is told what of that lies with it.
//!
//! Nobody waits for it and nothing is asked again: where a range lies is known by the
//! file's lease, which the client's reads have brought. Without one, or where the map is
//! not known, nodes go on as they think right.

use std::collections::BTreeMap;

use crossdock_names::{ObjectId, SMALL_FILE_THRESHOLD_BYTES, UNMAPPED};
use crossdock_peer::{FileLayout, NodeRequest, OpenFor};

use crate::message::ReadAhead;
use crate::pieces::{self, ObjectPiece};
use crate::soft::Soft;

/// One node's part: a range of a column.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset_bytes: u64,
    end_bytes: u64,
}

/// What nodes are told, and how the file lies; nothing if that is not known.
pub(crate) fn cut(ahead: &ReadAhead, soft: &mut Soft) -> Option<(FileLayout, Vec<NodeRequest>)> {
    let ReadAhead { file, .. } = *ahead;
    let start = ahead.offset_bytes.max(SMALL_FILE_THRESHOLD_BYTES);
    let purpose = OpenFor::Read {
        offset_bytes: start,
        end_bytes: ahead.end_bytes,
    };
    let known = soft.leases.known(soft.now, file, &ahead.caller, purpose)?;
    let layout = known.layout.clone();
    let end = ahead.end_bytes.min(known.attributes.size_bytes);
    if layout.columns == 0 || end <= start {
        return None;
    }
    let mut column_of = soft.maps.columns_of(file, &known);
    // What is not known is not read ahead.
    let or_nowhere = |block| Some(column_of(block).unwrap_or(UNMAPPED));
    let pieces = pieces::split(&layout, or_nowhere, start, end)?;
    let told = by_column(&pieces).into_iter().map(|(object, part)| {
        let Part {
            offset_bytes,
            end_bytes,
        } = part;
        NodeRequest::Ahead {
            object,
            offset_bytes,
            length_bytes: if ahead.is_read {
                0
            } else {
                end_bytes - offset_bytes
            },
            is_wanted: ahead.is_wanted,
        }
    });
    let told = told.collect();
    Some((layout, told))
}

/// A column's pieces follow each other in it; between them there is nothing, or a hole.
fn by_column(pieces: &[ObjectPiece]) -> BTreeMap<ObjectId, Part> {
    let mut parts: BTreeMap<ObjectId, Part> = BTreeMap::new();
    for piece in pieces {
        let (offset_bytes, end_bytes) = (
            piece.object_offset,
            piece.object_offset + piece.length_bytes,
        );
        let part = parts.entry(piece.object).or_insert(Part {
            offset_bytes,
            end_bytes,
        });
        part.offset_bytes = part.offset_bytes.min(offset_bytes);
        part.end_bytes = part.end_bytes.max(end_bytes);
    }
    parts
}
