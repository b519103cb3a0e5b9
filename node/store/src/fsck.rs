//! The offline check: reads the three files of a store and proves that they
//! agree. Changes nothing but what opening the database itself does.
//!
//! What it checks: superblock and index belong together; the journal's chain
//! and its records can be read; every run lies on the disk, belongs to an
//! object or to a dead run map, and shares no block with another; bitmaps and
//! counts equal the union of the runs; on wish, every block matches its
//! checksum, as far as no record of the journal is about to change it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use crossdock_checksum::crc32c;
use crossdock_disk::BlockingDisk;
use crossdock_log::{FrameReader, LogId};
use crossdock_names::ObjectId;
use crossdock_types::BLOCK_BYTES;
use redb::{ReadableDatabase, ReadableTable};

use crate::backend::is_made;
use crate::index::{
    DEAD, DatabaseFailure, FREE, IndexError, META, Meta, OBJECTS, RUNS, SPACE, open_database,
};
use crate::journal::{FoundSuperblock, RING_OFFSET, Superblock, padded};
use crate::object::Head;
use crate::record::Record;
use crate::runs::{Run, split_run_key};
use crate::space::{Bitmap, GROUP_BLOCKS};
use crate::store::BLOCK;

/// Findings beyond this many are counted only.
const FINDINGS_MAX: usize = 1000;

/// What the check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// Objects in the index.
    pub objects: u64,
    /// Runs in the index.
    pub runs: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Blocks whose content was compared with its checksum.
    pub verified_blocks: u64,
    /// Journal frames that a start would replay.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// What is wrong, in words; empty = consistent.
    pub findings: Vec<String>,
    /// How many findings there are in all.
    pub findings_total: u64,
}

impl FsckReport {
    fn find(&mut self, what: String) {
        self.findings_total += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(what);
        }
    }
}

/// Checks a store that nobody has open. `verifies_blocks` reads all data, too.
///
/// # Errors
/// [`IndexError`] if the files cannot be read at all.
pub fn fsck(
    journal: &dyn BlockingDisk,
    data: &dyn BlockingDisk,
    index: Box<dyn BlockingDisk>,
    verifies_blocks: bool,
) -> Result<FsckReport, IndexError> {
    let mut report = FsckReport::default();
    let index: Arc<dyn BlockingDisk> = Arc::from(index);
    let mut first = vec![0; 2 * BLOCK_BYTES];
    let is_short = journal.length_bytes()? < RING_OFFSET;
    if !is_short {
        journal.read_at(&mut first, 0)?;
    }
    let superblock = match Superblock::find(&first) {
        FoundSuperblock::Good(superblock) => superblock,
        FoundSuperblock::Blank if !is_made(&*index)? => return Ok(report), // Never made.
        other => {
            report.find(format!("superblock: {other:?}"));
            return Ok(report);
        }
    };
    if !is_made(&*index)? {
        report.find("the index is empty, the journal is not".to_owned());
        return Ok(report);
    }
    let content = Content::read(&index, &mut report)?;
    let Some(meta) = content.meta else {
        report.find("the index has no meta record".to_owned());
        return Ok(report);
    };
    if meta.store != superblock.store {
        report.find("journal and index belong to different stores".to_owned());
    }
    let pending = check_journal(journal, &superblock, &meta, &mut report)?;
    let taken = content.check_runs(&meta, &mut report);
    content.check_space(&meta, &taken, &mut report);
    if verifies_blocks {
        content.check_blocks(data, &pending, &mut report)?;
    }
    Ok(report)
}

/// All tables.
#[derive(Default)]
struct Content {
    meta: Option<Meta>,
    heads: BTreeMap<u64, (ObjectId, Head)>,
    dead: BTreeSet<u64>,
    runs: Vec<(u64, u64, Run)>,
    bitmaps: BTreeMap<u32, Bitmap>,
    counts: BTreeMap<u32, u32>,
}

impl Content {
    fn read(
        disk: &Arc<dyn BlockingDisk>,
        report: &mut FsckReport,
    ) -> Result<Self, DatabaseFailure> {
        let database = open_database(disk)?;
        let transaction = database.begin_read()?;
        let mut content = Self::default();
        if let Some(stored) = transaction.open_table(META)?.get(0)? {
            content.meta = Meta::decode(stored.value());
        }
        for row in transaction.open_table(OBJECTS)?.iter()? {
            let (key, stored) = row?;
            report.objects += 1;
            let found = ObjectId::decode(&key.value()).zip(Head::decode(stored.value()));
            let Some((id, head)) = found else {
                report.find(format!("object {:x?} cannot be read", key.value()));
                continue;
            };
            let serial = head.serial;
            if let Some((other, _)) = content.heads.insert(serial, (id, head)) {
                report.find(format!("{id} and {other} share run map {serial}"));
            }
        }
        for row in transaction.open_table(RUNS)?.iter()? {
            let (key, stored) = row?;
            let (serial, first) = split_run_key(&key.value());
            match Run::decode(stored.value()) {
                Some(run) => content.runs.push((serial, first, run)),
                None => report.find(format!("run {serial}/{first} cannot be read")),
            }
        }
        for row in transaction.open_table(DEAD)?.iter()? {
            content.dead.insert(row?.0.value());
        }
        for row in transaction.open_table(SPACE)?.iter()? {
            let (group, stored) = row?;
            let bitmap = Bitmap::from_bytes(stored.value());
            content.bitmaps.insert(group.value(), bitmap);
        }
        for row in transaction.open_table(FREE)?.iter()? {
            let (group, count) = row?;
            content.counts.insert(group.value(), count.value());
        }
        Ok(content)
    }

    /// Every block that a run takes, and whose it is.
    fn check_runs(&self, meta: &Meta, report: &mut FsckReport) -> BTreeMap<u64, u64> {
        let mut taken = BTreeMap::new();
        let mut per_object: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last_end = (0, 0);
        for (serial, first, run) in &self.runs {
            report.runs += 1;
            report.blocks += run.blocks();
            *per_object.entry(*serial).or_insert(0) += run.blocks();
            let end = first + run.blocks();
            if last_end.0 == *serial && *first < last_end.1 {
                report.find(format!("run {serial}/{first} meets the run before it"));
            }
            last_end = (*serial, end);
            match self.heads.get(serial) {
                Some((id, head)) if end > head.mapped_end => {
                    report.find(format!(
                        "{id}: a run ends at block {end}, beyond {}",
                        head.mapped_end
                    ));
                }
                None if !self.dead.contains(serial) => {
                    report.find(format!("run {serial}/{first} belongs to no object"));
                }
                _ => {}
            }
            if run.disk + run.blocks() > meta.grown {
                report.find(format!("run {serial}/{first} lies beyond the disk's end"));
            }
            for block in run.disk..run.disk + run.blocks() {
                if let Some(other) = taken.insert(block, *serial) {
                    report.find(format!("block {block} is in run maps {serial} and {other}"));
                }
            }
        }
        for (serial, (id, head)) in &self.heads {
            let found = per_object.get(serial).copied().unwrap_or(0);
            if found != head.allocated_blocks {
                let said = head.allocated_blocks;
                report.find(format!("{id} has {found} blocks, its head says {said}"));
            }
        }
        if meta.objects != report.objects {
            report.find(format!(
                "{} objects, meta says {}",
                report.objects, meta.objects
            ));
        }
        taken
    }

    fn check_space(&self, meta: &Meta, taken: &BTreeMap<u64, u64>, report: &mut FsckReport) {
        for block in taken.keys() {
            let group = u32::try_from(block / GROUP_BLOCKS).unwrap_or(u32::MAX);
            let bitmap = self.bitmaps.get(&group);
            if !bitmap.is_some_and(|bitmap| bitmap.get(block % GROUP_BLOCKS)) {
                report.find(format!("block {block} is in a run, and free in the bitmap"));
            }
        }
        let mut marked = 0;
        for (group, bitmap) in &self.bitmaps {
            marked += bitmap.ones();
            let free = GROUP_BLOCKS - bitmap.ones();
            let said = self.counts.get(group).copied().map(u64::from);
            if said != Some(free) {
                report.find(format!(
                    "group {group} has {free} free blocks, {said:?} are counted"
                ));
            }
        }
        let used = taken.len() as u64;
        if marked != used {
            report.find(format!("bitmaps mark {marked} blocks, runs take {used}"));
        }
        if meta.committed != used {
            report.find(format!(
                "runs take {used} blocks, meta says {}",
                meta.committed
            ));
        }
    }

    fn check_blocks(
        &self,
        data: &dyn BlockingDisk,
        pending: &Pending,
        report: &mut FsckReport,
    ) -> Result<(), IndexError> {
        let mut buffer = vec![0; BLOCK_BYTES];
        for (serial, first, run) in &self.runs {
            let Some((id, _)) = self.heads.get(serial) else {
                continue; // Dead: nobody will read it.
            };
            for (number, expected) in (0..).zip(&run.checksums) {
                if pending.has(id, first + number) {
                    continue;
                }
                data.read_at(&mut buffer, (run.disk + number) * BLOCK)?;
                report.verified_blocks += 1;
                let found = crc32c(&buffer);
                if found != *expected {
                    let (at, disk) = (first + number, run.disk + number);
                    report.find(format!(
                        "{id} block {at} (disk block {disk}): checksum {found:08x}, {expected:08x} is right"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// What the index's checksums need not describe: blocks that records change
/// which the index does not know yet, as the old ones may have been given to
/// others; and blocks whose whole content is in the journal, as they may have
/// been torn while they were written over in place.
#[derive(Default)]
struct Pending {
    blocks: BTreeSet<(ObjectId, u64)>,
    objects: BTreeSet<ObjectId>,
    /// Bytes of blocks that the journal holds in part, as (from, to) in a block.
    parts: BTreeMap<(ObjectId, u64), Vec<(u64, u64)>>,
}

impl Pending {
    /// Any record that a start would replay.
    fn add_bytes(&mut self, record: &Record) {
        let Record::Inline {
            object,
            offset,
            bytes,
            ..
        } = record
        else {
            return;
        };
        let (mut at, end) = (*offset, offset + bytes.len() as u64);
        while at < end {
            let block = at / BLOCK;
            let to = end.min((block + 1) * BLOCK);
            let parts = self.parts.entry((*object, block)).or_default();
            parts.push((at % BLOCK, to - block * BLOCK));
            at = to;
        }
    }

    /// All bytes of the block are in the journal.
    fn covers(&self, object: &ObjectId, block: u64) -> bool {
        let Some(parts) = self.parts.get(&(*object, block)) else {
            return false;
        };
        let mut parts = parts.clone();
        parts.sort_unstable();
        let reach = parts
            .iter()
            .fold(0, |reach, (from, to)| match *from <= reach {
                true => reach.max(*to),
                false => reach,
            });
        reach >= BLOCK
    }

    /// A record that the index does not know.
    fn add(&mut self, record: &Record) {
        match record {
            Record::Map {
                object,
                first_block,
                checksums,
                ..
            }
            | Record::Marker {
                object,
                first_block,
                checksums,
                ..
            } => {
                let end = first_block + checksums.len() as u64;
                let blocks = (*first_block..end).map(|block| (*object, block));
                self.blocks.extend(blocks);
            }
            Record::Zero { object, .. }
            | Record::Truncate { object, .. }
            | Record::Remove { object, .. } => {
                self.objects.insert(*object);
            }
            _ => {}
        }
    }

    fn has(&self, object: &ObjectId, block: u64) -> bool {
        self.objects.contains(object)
            || self.blocks.contains(&(*object, block))
            || self.covers(object, block)
    }
}

/// Follows the chain; gives the blocks whose mapping its records change, and
/// which the index's checksums need not describe any more.
fn check_journal(
    journal: &dyn BlockingDisk,
    superblock: &Superblock,
    meta: &Meta,
    report: &mut FsckReport,
) -> Result<Pending, IndexError> {
    let mut pending = Pending::default();
    let mut reader = FrameReader::new(LogId(superblock.store), meta.tail.chain);
    let mut at = meta.tail.offset;
    let mut last = meta.tail.chain.next_sequence.saturating_sub(1);
    loop {
        let mut frame = read_frame(journal, superblock, &mut reader, at)?;
        if frame.is_none() && at != 0 {
            at = 0;
            frame = read_frame(journal, superblock, &mut reader, 0)?;
        }
        let Some(frame) = frame else {
            break;
        };
        report.frames += 1;
        last = frame.sequence;
        at = (at + padded(frame.length_bytes as u64)) % superblock.ring_bytes;
        for bytes in frame.records() {
            report.records += 1;
            let Some(record) = Record::decode(&bytes) else {
                report.find(format!("frame {last} has an unknown record"));
                continue;
            };
            pending.add_bytes(&record);
            if last > meta.complete {
                pending.add(&record);
            }
        }
    }
    if last < meta.complete {
        let complete = meta.complete;
        report.find(format!(
            "the journal ends at frame {last}, the index knows frame {complete}"
        ));
    }
    Ok(pending)
}

fn read_frame(
    journal: &dyn BlockingDisk,
    superblock: &Superblock,
    reader: &mut FrameReader,
    at: u64,
) -> Result<Option<crossdock_log::Frame>, IndexError> {
    let mut header = vec![0; BLOCK_BYTES];
    journal.read_at(&mut header, RING_OFFSET + at)?;
    let Some(length) = reader.length_of(&header) else {
        return Ok(None);
    };
    if at + length as u64 > superblock.ring_bytes {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    journal.read_at(&mut bytes, RING_OFFSET + at)?;
    Ok(reader.read(&Bytes::from(bytes)).ok())
}
