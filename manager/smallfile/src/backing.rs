//! From units of backing space to objects, and neighbouring fragments to one
//! read or write.

use bytes::Bytes;
use crossdock_limits::OBJECT_IO_BYTES_MAX;
use crossdock_names::{ObjectClass, ObjectId, SiteId, Version};
use crossdock_types::{BLOCK_BYTES as NODE_BLOCK_BYTES, Payload};

use crate::map::Block;
use crate::space::UNIT_BYTES;
use crate::{BackingRead, BackingWrite, FragmentCheck};

/// Which objects the units of a site's backing space lie in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backing {
    pub(crate) site: SiteId,
    pub(crate) units_per_object: u32,
}

impl Backing {
    /// Object and byte offset of a unit.
    pub(crate) const fn place(&self, unit: u32) -> (ObjectId, u64) {
        let number = unit / self.units_per_object;
        let offset = (unit % self.units_per_object) as u64 * UNIT_BYTES as u64;
        (
            ObjectId::of_site(ObjectClass::SmallFiles, self.site, number),
            offset,
        )
    }

    /// Adds the range `start..end` of a fragment to `reads`, as a part of the
    /// last one if it lies right behind it. Its checksum is compared if the
    /// whole fragment is read.
    pub(crate) fn push_read(
        &self,
        reads: &mut Vec<BackingRead>,
        block: &Block,
        range: (u32, u32),
        version: Version,
    ) {
        let (start, end) = range;
        let (object, fragment_offset) = self.place(block.unit);
        let offset_bytes = fragment_offset + u64::from(start);
        let whole = start == 0 && end == u32::from(block.stored);
        let mut check = whole.then_some(FragmentCheck {
            start_bytes: 0,
            length_bytes: end,
            crc: block.crc,
        });
        if let Some(last) = reads.last_mut()
            && last.object == object
            && last.offset_bytes + u64::from(last.length_bytes) == offset_bytes
            && (last.length_bytes + end - start) as usize <= OBJECT_IO_BYTES_MAX
        {
            if let Some(check) = &mut check {
                check.start_bytes = last.length_bytes;
            }
            last.length_bytes += end - start;
            last.version = last.version.max(version);
            last.checks.extend(check);
            return;
        }
        reads.push(BackingRead {
            object,
            offset_bytes,
            length_bytes: end - start,
            version,
            checks: check.into_iter().collect(),
        });
    }

    /// The writes of these fragments; neighbours become one write. What a
    /// fragment has beyond its bytes is filled with zeros up to the next one,
    /// or to a whole block of the node, which is cheaper for it than a part.
    pub(crate) fn writes(
        &self,
        mut fragments: Vec<(Block, Bytes)>,
        version: Version,
    ) -> Vec<BackingWrite> {
        fragments.sort_by_key(|(block, _)| block.unit);
        let mut writes: Vec<BackingWrite> = Vec::new();
        let mut first_unit = 0;
        let mut end_unit = None;
        for (block, bytes) in fragments {
            let (object, offset_bytes) = self.place(block.unit);
            let within = (block.unit - first_unit) as usize * UNIT_BYTES as usize;
            let joined = writes.last_mut().filter(|last| {
                end_unit == Some(block.unit)
                    && last.object == object
                    && within + bytes.len() <= OBJECT_IO_BYTES_MAX
            });
            if let Some(last) = joined {
                last.payload.push_zeros(within - last.payload.len());
                last.payload.push(bytes);
            } else {
                first_unit = block.unit;
                writes.push(BackingWrite {
                    object,
                    offset_bytes,
                    payload: Payload::from(bytes),
                    version,
                });
            }
            let stored = usize::from(block.stored);
            let whole_blocks = stored.next_multiple_of(NODE_BLOCK_BYTES);
            if let Some(last) = writes.last_mut()
                && whole_blocks <= (block.units() * UNIT_BYTES) as usize
            {
                last.payload.push_zeros(whole_blocks - stored);
            }
            end_unit = block.unit.checked_add(block.units());
        }
        writes
    }
}
