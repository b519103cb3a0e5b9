//! What records do to memory: the same for a record that was just appended and
//! for one that is replayed.

use crossdock_log::Position;
use crossdock_names::{ObjectId, Version};

use crate::object::{Entry, Head, Object};
use crate::overlay::{NO_LOW, Piece, PieceState};
use crate::record::Record;
use crate::runs::{DiskRange, RUN_BLOCKS_MAX, Run, WINDOW_BLOCKS, Window};
use crate::store::{BLOCK, Store};

/// Who applies a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applying {
    /// It was appended just now.
    Live,
    /// It is replayed, and the index does not know it.
    Replay,
    /// It is replayed for its bytes only: the index knows the rest.
    OverlayOnly,
}

impl Store {
    /// Appends a record to the journal and applies it.
    pub(crate) fn record(&mut self, record: Record) -> Position {
        let position = self.journal.append(&record);
        if let Some(id) = record.object() {
            self.apply(record, position, Applying::Live);
            if let Some(object) = self.object_mut(&id) {
                object.last_position = position;
            }
        } else {
            self.apply(record, position, Applying::Live);
        }
        position
    }

    /// All that the record concerns is in memory.
    pub(crate) fn apply(&mut self, record: Record, position: Position, how: Applying) {
        let next_stamp = record.stamp() + 1;
        self.totals.next_stamp = self.totals.next_stamp.max(next_stamp);
        if how == Applying::OverlayOnly {
            self.apply_bytes(record, position);
            return;
        }
        match record {
            Record::Create { .. } => self.apply_create(record),
            Record::Map { .. } => self.apply_map(record, position, how),
            Record::Fence { object, fence } => self.change_head(&object, Version::NONE, |head| {
                head.fence = head.fence.max(fence);
            }),
            Record::Inline {
                object,
                version,
                offset,
                ref bytes,
                ..
            } => {
                let end = offset + bytes.len() as u64;
                self.apply_bytes(record, position);
                self.change_head(&object, version, |head| head.size = head.size.max(end));
            }
            Record::Zero { .. } => self.apply_zero(record, position),
            Record::Truncate { .. } => self.apply_truncate(record, position),
            Record::Remove { object, version: _ } => self.apply_remove(&object),
            Record::Marker { .. } => self.apply_marker(record, position),
            Record::Reap {
                serial,
                first_block,
                end_block,
                is_last,
            } => {
                self.cut_windows(serial, first_block, end_block, position);
                if is_last && self.dead.remove(&serial) {
                    self.checkpoint.dead.push((serial, false));
                }
            }
            Record::Grown { blocks } => self.space.set_grown(blocks),
            Record::Attributes {
                object,
                reserved_blocks,
                version,
                attributes,
            } => self.change_head(&object, version, |head| {
                head.reserved_blocks = reserved_blocks;
                head.attributes = attributes;
            }),
        }
    }

    /// What a record does to an overlay.
    fn apply_bytes(&mut self, record: Record, position: Position) {
        let Some(id) = record.object() else {
            return;
        };
        let size = self.object(&id).map_or(0, |object| object.visible_size);
        self.change_overlay(&id, |object| match record {
            Record::Inline {
                stamp,
                version,
                offset,
                bytes,
                ..
            } if !bytes.is_empty() => {
                let piece = Piece::data(bytes, stamp, version, PieceState::Journalled);
                object.overlay.insert(offset, piece.at(position));
            }
            Record::Map {
                stamp,
                first_block,
                checksums,
                ..
            }
            | Record::Marker {
                stamp,
                first_block,
                checksums,
                ..
            } => {
                let end = first_block + checksums.len() as u64;
                object
                    .overlay
                    .remove(first_block * BLOCK, end * BLOCK, stamp);
            }
            Record::Zero {
                stamp,
                version,
                offset,
                length,
                ..
            } => {
                let end = offset.saturating_add(length);
                object.overlay.remove(offset, end, stamp);
                // Up to the end of the last block: what lies behind the object's
                // end in it stays zeros.
                let last = size.next_multiple_of(BLOCK);
                let [head, tail] = partial_blocks(offset, end.min(last));
                for (from, to) in [head, tail].into_iter().flatten() {
                    let zeros = Piece::zeros(to - from, stamp, version);
                    object.overlay.insert(from, zeros.at(position));
                }
            }
            Record::Truncate {
                stamp,
                version,
                size,
                ..
            } => {
                object.overlay.remove(size, u64::MAX, stamp);
                if !size.is_multiple_of(BLOCK) {
                    let zeros = Piece::zeros(BLOCK - size % BLOCK, stamp, version);
                    object.overlay.insert(size, zeros.at(position));
                }
            }
            Record::Remove { .. } => object.overlay.remove(0, u64::MAX, u64::MAX),
            _ => {}
        });
    }

    fn apply_create(&mut self, record: Record) {
        let Record::Create {
            object: id,
            serial,
            incarnation,
            reserved_blocks,
            version,
            attributes,
        } = record
        else {
            return;
        };
        self.totals.next_serial = self.totals.next_serial.max(serial + 1);
        if self.object(&id).is_some() {
            return;
        }
        let head = Head {
            serial,
            incarnation,
            reserved_blocks,
            version,
            attributes,
            ..Head::default()
        };
        self.totals.objects += 1;
        self.totals.reserved += head.outstanding_blocks();
        self.put_entry(id, Some(Box::new(Object::of(head))));
    }

    fn apply_map(&mut self, record: Record, position: Position, how: Applying) {
        let Record::Map {
            object: id,
            stamp,
            version,
            first_block,
            disk,
            end_bytes,
            ref checksums,
        } = record
        else {
            return;
        };
        let Some(serial) = self.object(&id).map(|object| object.head.serial) else {
            return;
        };
        let end = first_block + checksums.len() as u64;
        let freed = self.cut_windows(serial, first_block, end, position);
        self.space.commit(
            DiskRange {
                block: disk,
                blocks: end - first_block,
            },
            how == Applying::Live,
        );
        let whole = Run {
            disk,
            version,
            references: 1,
            checksums: checksums.clone(),
        };
        let mut at = first_block;
        while at < end {
            let number = at / WINDOW_BLOCKS;
            let to = end
                .min(at + RUN_BLOCKS_MAX)
                .min((number + 1) * WINDOW_BLOCKS);
            let run = whole.part(at - first_block, to - first_block);
            self.window(serial, number).insert(at, run);
            at = to;
        }
        self.apply_bytes(record, position);
        self.trim_flights(&id, first_block * BLOCK, end * BLOCK, stamp);
        self.change_head(&id, version, |head| {
            head.size = head.size.max(end_bytes);
            head.mapped_end = head.mapped_end.max(end);
            head.allocated_blocks = (head.allocated_blocks + end - first_block) - freed;
        });
    }

    fn apply_zero(&mut self, record: Record, position: Position) {
        let Record::Zero {
            object: id,
            stamp,
            version,
            offset,
            length,
        } = record
        else {
            return;
        };
        let Some(object) = self.object(&id) else {
            return;
        };
        let end = offset.saturating_add(length);
        let serial = object.head.serial;
        let first = offset.div_ceil(BLOCK);
        let last = (end / BLOCK).min(object.head.mapped_end);
        let freed = self.cut_windows(serial, first, last, position);
        self.apply_bytes(record, position);
        self.trim_flights(&id, offset, end, stamp);
        self.change_head(&id, version, |head| {
            head.hole_version = head.hole_version.max(version);
            head.allocated_blocks -= freed;
        });
    }

    fn apply_truncate(&mut self, record: Record, position: Position) {
        let Record::Truncate {
            object: id,
            stamp,
            version,
            size,
            generation,
            serial,
        } = record
        else {
            return;
        };
        let Some(object) = self.object(&id) else {
            return;
        };
        let (old_serial, mapped_end) = (object.head.serial, object.head.mapped_end);
        let mut freed = 0;
        let mut new_end = mapped_end;
        if serial == old_serial {
            let first = size.div_ceil(BLOCK);
            freed = self.cut_windows(serial, first, mapped_end, position);
            new_end = mapped_end.min(first);
        } else {
            self.totals.next_serial = self.totals.next_serial.max(serial + 1);
            self.bury(old_serial);
        }
        self.apply_bytes(record, position);
        self.trim_flights(&id, size, u64::MAX, stamp);
        self.change_head(&id, version, |head| {
            head.allocated_blocks = match serial == head.serial {
                true => head.allocated_blocks - freed,
                false => 0,
            };
            head.mapped_end = if serial == head.serial { new_end } else { 0 };
            head.serial = serial;
            head.size = size;
            head.hole_version = head.hole_version.max(version);
            head.truncate_generation = head.truncate_generation.max(generation);
        });
        if let Some(object) = self.object_mut(&id) {
            object.visible_size = size;
        }
    }

    fn apply_remove(&mut self, id: &ObjectId) {
        let Some(object) = self.object(id) else {
            return;
        };
        let serial = object.head.serial;
        let outstanding = object.head.outstanding_blocks();
        self.totals.reserved -= outstanding;
        self.totals.objects -= 1;
        self.change_overlay(id, |object| object.overlay.remove(0, u64::MAX, u64::MAX));
        self.trim_flights(id, 0, u64::MAX, u64::MAX);
        self.bury(serial);
        self.put_entry(*id, None);
    }

    /// The runs of a serial belong to nobody any more; they are freed step by step.
    fn bury(&mut self, serial: u64) {
        if self.dead.insert(serial) {
            self.checkpoint.dead.push((serial, true));
        }
    }

    fn put_entry(&mut self, id: ObjectId, object: Option<Box<Object>>) {
        self.tick += 1;
        let batch = self.objects.get(&id).map_or(0, |entry| entry.batch);
        let entry = Entry {
            object,
            is_dirty: true,
            batch,
            used: self.tick,
        };
        self.objects.insert(id, entry);
        self.totals.dirty_entries += 1;
    }

    /// Changes what is recorded of an object, and the sums.
    fn change_head(&mut self, id: &ObjectId, version: Version, change: impl FnOnce(&mut Head)) {
        let Some(entry) = self.objects.get_mut(id) else {
            return;
        };
        let Some(object) = entry.object.as_deref_mut() else {
            return;
        };
        entry.is_dirty = true;
        let before = object.head.outstanding_blocks();
        change(&mut object.head);
        object.head.version = object.head.version.max(version);
        object.visible_size = object.visible_size.max(object.head.size);
        object.visible_version = object.visible_version.max(version);
        let after = object.head.outstanding_blocks();
        self.totals.reserved = (self.totals.reserved + after) - before;
        self.totals.dirty_entries += 1;
    }

    /// Changes an overlay, and the sums.
    pub(crate) fn change_overlay(&mut self, id: &ObjectId, change: impl FnOnce(&mut Object)) {
        let now = self.now.0.max(1);
        let Some(object) = self.object_mut(id) else {
            return;
        };
        let overlay = &object.overlay;
        let before = (overlay.volatile_bytes(), overlay.promised_blocks());
        change(object);
        let overlay = &object.overlay;
        let after = (overlay.volatile_bytes(), overlay.promised_blocks());
        if after.0 == 0 {
            object.volatile_since = 0;
        } else if object.volatile_since == 0 {
            object.volatile_since = now;
        }
        let is_empty = overlay.is_empty();
        let totals = &mut self.totals;
        totals.volatile_bytes = (totals.volatile_bytes + after.0) - before.0;
        totals.promised_blocks = (totals.promised_blocks + after.1) - before.1;
        if is_empty {
            self.overlaid.remove(id);
        } else {
            self.overlaid.insert(*id);
        }
    }

    /// Takes blocks out of a run map; they are free once `position` is durable.
    pub(crate) fn cut_windows(
        &mut self,
        serial: u64,
        from: u64,
        to: u64,
        position: Position,
    ) -> u64 {
        let mut freed = Vec::new();
        if from < to {
            let keys = (serial, from / WINDOW_BLOCKS)..=(serial, (to - 1) / WINDOW_BLOCKS);
            for (_, window) in self.windows.range_mut(keys) {
                window.cut(from, to, |range| freed.push(range));
            }
        }
        for range in &freed {
            self.space.free_range(*range, position);
        }
        freed.iter().map(|range| range.blocks).sum()
    }

    /// A window that is in memory, or beyond all that the index has.
    pub(crate) fn window(&mut self, serial: u64, number: u64) -> &mut Window {
        self.tick += 1;
        let window = self.windows.entry((serial, number)).or_default();
        window.used = self.tick;
        window
    }

    fn apply_marker(&mut self, record: Record, position: Position) {
        let Record::Marker {
            object: id,
            version,
            first_block,
            ref checksums,
            ..
        } = record
        else {
            return;
        };
        let Some(serial) = self.object(&id).map(|object| object.head.serial) else {
            return;
        };
        for (block, checksum) in (first_block..).zip(checksums) {
            self.window(serial, block / WINDOW_BLOCKS)
                .set_checksum(block, *checksum, version);
        }
        self.apply_bytes(record, position);
        self.change_head(&id, version, |_| {});
    }

    /// The oldest record that is needed for bytes that are in no run.
    pub(crate) fn overlay_low(&self) -> Position {
        let lows = self.overlaid.iter().filter_map(|id| self.object(id));
        lows.map(|object| object.overlay.low())
            .min()
            .unwrap_or(NO_LOW)
    }
}

/// The parts of `from..to` that lie in a block without filling it.
fn partial_blocks(from: u64, to: u64) -> [Option<(u64, u64)>; 2] {
    if from >= to {
        return [None, None];
    }
    let first_whole = from.div_ceil(BLOCK) * BLOCK;
    let end_whole = to / BLOCK * BLOCK;
    if first_whole > end_whole {
        return [Some((from, to)), None]; // Both ends in one block.
    }
    [
        (from < first_whole).then_some((from, first_whole)),
        (end_whole < to).then_some((end_whole, to)),
    ]
}
