//! The state of a site's small files, and how changes become part of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use crossdock_names::{SiteId, Version};

use crate::backing::Backing;
use crate::map::{BLOCK_BYTES, Block, Blocks, Maps};
use crate::overlay::{END, Overlay};
use crate::record::{Body, Record};
use crate::space::{BLOCK_UNITS, Space};
use crate::{BackingHole, Change, ReadTicket, RecordError, RecordSummary, Sequence};

/// A stable write of up to this many bytes goes into the log record
/// (CONSISTENCY 10).
pub const INLINE_BYTES_MAX: usize = 4096;

/// Bounds of the small files of a site.
#[derive(Clone, Copy, Debug)]
pub struct SmallFilesConfig {
    /// Whose files.
    pub site: SiteId,
    /// Largest size of one backing object; a multiple of 8 KiB from 128 KiB to
    /// 1 GiB. It never changes in a site's life: addresses follow from it.
    pub object_bytes_max: u64,
    /// Largest size of all backing objects, up to 512 GiB.
    pub backing_bytes_max: u64,
    /// Bytes of pieces inlined in the log and held in memory; beyond it small
    /// writes take fragments like large ones.
    pub inlined_bytes_max: usize,
    /// Unstable bytes in memory; beyond it unstable writes are done stable.
    pub unstable_bytes_max: usize,
    /// Bytes on their way to backing objects; beyond it writes are refused as busy.
    pub in_flight_bytes_max: usize,
    /// Free space is given back to the nodes in runs of at least so many bytes
    /// (whole blocks of 8 KiB): smaller ones are soon taken again.
    pub return_bytes_min: u64,
}

/// Most that is given back in one step: a node looks at every run of it.
const RETURN_BYTES_MAX: u64 = 16 << 20;

impl SmallFilesConfig {
    /// The usual bounds for `site`.
    #[must_use]
    pub const fn new(site: SiteId) -> Self {
        Self {
            site,
            object_bytes_max: 1 << 30,
            backing_bytes_max: 512 << 30,
            inlined_bytes_max: 32 << 20,
            unstable_bytes_max: 64 << 20,
            in_flight_bytes_max: 64 << 20,
            return_bytes_min: 64 << 10,
        }
    }
}

/// What has become of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its record or its backing writes are not durable yet.
    Pending,
    /// It is durable: whoever waits for it is answered.
    Settled,
    /// It was undone. A reply that shows it is not sent but planned again.
    Void,
}

/// Void changes that are remembered for those who wait for them; more never
/// fail within the time that a reply waits.
const VOID_REMEMBERED_MAX: usize = 4096;

/// The small files of a site; see the crate's page for how a site drives it.
///
/// A file with backing writes under way takes no other durable change until
/// they have landed or are void: so undoing is putting back what was there.
/// Freed space is reused once a durable record says that no change up to the
/// freeing one can become void any more, and no read of it is under way.
#[derive(Debug)]
pub struct SmallFiles {
    pub(crate) config: SmallFilesConfig,
    pub(crate) backing: Backing,
    pub(crate) maps: Maps,
    /// In the log, not in fragments; above the fragments.
    pub(crate) inlined: Overlay,
    /// In memory only; above all else.
    pub(crate) unstable: Overlay,
    pub(crate) space: Space,
    /// Number of the next change.
    pub(crate) next: u64,
    /// Records of all changes below are durable.
    pub(crate) durable_below: u64,
    /// Highest `written_below` in any record, and in any durable one.
    marked_below: u64,
    pub(crate) marked_below_durable: u64,
    /// Accepted, record not durable.
    logged: VecDeque<Logged>,
    /// The last change of each file that has unsettled ones.
    recent: BTreeMap<u64, u64>,
    /// Changes with backing writes under way.
    pub(crate) in_flight: BTreeMap<u64, InFlight>,
    pub(crate) in_flight_bytes: usize,
    /// The change whose backing writes are under way, by file.
    pub(crate) busy: BTreeMap<u64, u64>,
    pub(crate) pending: VecDeque<PendingFree>,
    pub(crate) pending_units: u64,
    reads: BTreeSet<u64>,
    next_read: u64,
    /// Changes that became void lately.
    void: BTreeSet<u64>,
    /// How many did so far.
    pub(crate) voids: u64,
}

#[derive(Debug)]
struct Logged {
    sequence: u64,
    written_below: u64,
    serials: Vec<u64>,
}

/// A change whose backing writes are under way.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) files: BTreeMap<u64, FileInFlight>,
    bytes: usize,
}

/// What such a change did to a file, and what was there before.
#[derive(Debug)]
pub(crate) struct FileInFlight {
    pub(crate) contents: Vec<(usize, Bytes)>,
    before: Blocks,
    inlined_before: Vec<(u32, Bytes)>,
    unstable_before: Vec<(u32, Bytes)>,
}

/// A fragment that was freed, but may still be needed.
#[derive(Debug)]
pub(crate) struct PendingFree {
    freed_by: u64,
    /// Reads below this number may be reading it.
    reads_below: u64,
    pub(crate) unit: u32,
    pub(crate) units: u32,
}

impl SmallFiles {
    /// No files yet; load a checkpoint and replay records next, if there are any.
    ///
    /// # Panics
    /// If the bounds of the configuration are not as described there.
    #[must_use]
    pub fn new(config: SmallFilesConfig) -> Self {
        let block_bytes = u64::from(BLOCK_BYTES);
        let blocks_per_object = u32::try_from(config.object_bytes_max / block_bytes)
            .ok()
            .filter(|&blocks| blocks >= 16 && config.object_bytes_max <= 1 << 30)
            .expect("a backing object has 128 KiB to 1 GiB");
        // One block less than units can name, so that ends can be named too.
        let blocks_max = (config.backing_bytes_max / block_bytes).min((1 << 26) - 1);
        Self {
            config,
            backing: Backing {
                site: config.site,
                units_per_object: blocks_per_object * BLOCK_UNITS,
            },
            maps: Maps::default(),
            inlined: Overlay::default(),
            unstable: Overlay::default(),
            space: Space::new(
                blocks_per_object,
                u32::try_from(blocks_max).unwrap_or(u32::MAX),
            ),
            next: 1,
            durable_below: 1,
            marked_below: 0,
            marked_below_durable: 0,
            logged: VecDeque::new(),
            recent: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            busy: BTreeMap::new(),
            pending: VecDeque::new(),
            pending_units: 0,
            reads: BTreeSet::new(),
            next_read: 0,
            void: BTreeSet::new(),
            voids: 0,
        }
    }

    /// Makes a planned change, whose record has just been appended to the log.
    ///
    /// # Panics
    /// If another change was accepted after this one was planned.
    pub fn accept(&mut self, change: &Change) {
        assert_eq!(
            change.sequence.0, self.next,
            "a change that was planned before another"
        );
        self.apply(&change.decoded, Some(change))
            .expect("what was planned in the same step fits");
        let serials = change.decoded.serials();
        if !change.invisible {
            for &serial in &serials {
                self.recent.insert(serial, change.sequence.0);
            }
        }
        self.logged.push_back(Logged {
            sequence: change.sequence.0,
            written_below: change.decoded.written_below,
            serials,
        });
    }

    /// The log is durable up to and with the record of this change.
    pub fn durable(&mut self, sequence: Sequence) {
        self.durable_below = self.durable_below.max(sequence.0 + 1);
        while let Some(logged) = self
            .logged
            .pop_front_if(|logged| logged.sequence <= sequence.0)
        {
            self.marked_below_durable = self.marked_below_durable.max(logged.written_below);
            self.forget_settled(logged.sequence, &logged.serials);
        }
        self.release_pending();
    }

    /// The backing writes of this change are durable on every member. (One
    /// that is not under way any more is no error.)
    pub fn written(&mut self, sequence: Sequence) {
        let Some(in_flight) = self.in_flight.remove(&sequence.0) else {
            return;
        };
        self.in_flight_bytes -= in_flight.bytes;
        let serials: Vec<u64> = in_flight.files.into_keys().collect();
        for serial in &serials {
            self.busy.remove(serial);
        }
        self.forget_settled(sequence.0, &serials);
    }

    /// The backing reads under this ticket have ended, well or not.
    pub fn read_done(&mut self, ticket: ReadTicket) {
        self.reads.remove(&ticket.0);
        self.release_pending();
    }

    /// What has become of a change that was accepted.
    #[must_use]
    pub fn standing(&self, sequence: Sequence) -> Standing {
        if self.void.contains(&sequence.0) {
            Standing::Void
        } else if sequence.0 < self.durable_below && !self.in_flight.contains_key(&sequence.0) {
            Standing::Settled
        } else {
            Standing::Pending
        }
    }

    /// What a record is about, for a [`crate::ReplayTail`]; to be called once
    /// for every record of the log, in order, before it is pushed there.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn summary(&mut self, record: &[u8]) -> Result<RecordSummary, RecordError> {
        let record = Record::decode(record)?;
        // Noted here, since it holds even if the tail drops the record as void:
        // space that was reused because of it is claimed by later records.
        self.marked_below = self.marked_below.max(record.written_below);
        self.marked_below_durable = self.marked_below;
        self.release_pending();
        let mut summary = record.summary(self.backing);
        if record.sequence < self.next {
            // The checkpoint has it, and was published when its bytes were there;
            // they may have been freed and overwritten since.
            summary.verify.clear();
        }
        Ok(summary)
    }

    /// Applies a record of the log that has come out of the tail; one that the
    /// loaded checkpoint contains already is left out.
    ///
    /// # Errors
    /// [`RecordError`]: the log is not what this site wrote; the state is not
    /// to be used.
    pub fn replay(&mut self, record: &[u8]) -> Result<(), RecordError> {
        let record = Record::decode(record)?;
        if record.sequence < self.next {
            return Ok(());
        }
        self.apply(&record, None)?;
        self.durable_below = self.next;
        self.marked_below_durable = self.marked_below;
        self.release_pending();
        Ok(())
    }

    /// Whether a record appended now would let more be reused than those
    /// appended so far will: a site that is idle then logs
    /// [`plan_mark`](Self::plan_mark).
    #[must_use]
    pub fn mark_helps(&self) -> bool {
        // In the order in which they were freed.
        let marked = self
            .pending
            .partition_point(|free| free.freed_by < self.marked_below);
        let next = self.pending.get(marked);
        next.is_some_and(|free| free.freed_by < self.written_below())
    }

    /// Whether there is free space that is worth giving back to the nodes.
    #[must_use]
    pub fn return_helps(&self) -> bool {
        self.space.has_held(self.return_blocks_min())
    }

    /// Free space to be given back: it is not free until
    /// [`end_return`](Self::end_return).
    ///
    /// No replay needs its bytes, for the reason for which they could be
    /// overwritten now: a durable record says that the changes that wrote them,
    /// and those that freed them, are not verified any more. The hole itself
    /// needs no record. After a restart nodes may differ in free space, of which
    /// nobody reads a byte; all of it is given back again.
    pub fn begin_return(&mut self) -> Option<BackingHole> {
        let block_bytes = u64::from(BLOCK_BYTES);
        let blocks_max = u32::try_from(RETURN_BYTES_MAX / block_bytes).unwrap_or(u32::MAX);
        let blocks_min = self.return_blocks_min();
        let (start_block, count) = self.space.begin_return(blocks_min, blocks_max)?;
        let (object, offset_bytes) = self.backing.place(start_block * BLOCK_UNITS);
        Some(BackingHole {
            object,
            offset_bytes,
            length_bytes: u64::from(count) * block_bytes,
            start_block,
        })
    }

    /// All members have answered, and may be written to again there.
    /// `is_given_back`: it is a hole on all of them; else it is tried again.
    pub fn end_return(&mut self, hole: &BackingHole, is_given_back: bool) {
        self.space.end_return(hole.start_block, is_given_back);
    }

    /// The bounds in force.
    #[must_use]
    pub const fn config(&self) -> &SmallFilesConfig {
        &self.config
    }

    /// What a reply about the file has to wait for.
    pub(crate) fn unsettled(&self, serial: u64) -> Option<Sequence> {
        let sequence = self.recent.get(&serial).copied().map(Sequence)?;
        (self.standing(sequence) != Standing::Settled).then_some(sequence)
    }

    /// Backing writes of all changes below this are durable.
    pub(crate) fn written_below(&self) -> u64 {
        self.in_flight
            .first_key_value()
            .map_or(self.next, |(&sequence, _)| sequence)
    }

    pub(crate) fn begin_read(&mut self) -> ReadTicket {
        let ticket = ReadTicket(self.next_read);
        self.next_read += 1;
        self.reads.insert(ticket.0);
        ticket
    }

    /// Whether space will become free by itself.
    pub(crate) fn has_pending_space(&self) -> bool {
        !self.pending.is_empty() || self.space.returning_units() > 0
    }

    fn return_blocks_min(&self) -> u32 {
        let blocks = self.config.return_bytes_min / u64::from(BLOCK_BYTES);
        u32::try_from(blocks.max(1)).unwrap_or(u32::MAX)
    }

    /// The one way in which durable state changes. `live` is the change that
    /// the record came from; in a replay everything is written already.
    fn apply(&mut self, record: &Record, live: Option<&Change>) -> Result<(), RecordError> {
        let sequence = record.sequence;
        match &record.body {
            Body::Inline(pieces) => {
                for (serial, offset, bytes) in pieces {
                    self.inlined.insert(*serial, *offset, bytes.clone());
                }
            }
            Body::Write { version, files } => {
                let mut in_flight = InFlight::default();
                for (serial, blocks) in files {
                    let mut file = self.apply_blocks(sequence, *version, *serial, blocks)?;
                    let contents = live.and_then(|change| change.contents.get(serial));
                    file.contents = contents.cloned().unwrap_or_default();
                    in_flight.bytes += file
                        .contents
                        .iter()
                        .map(|(_, bytes)| bytes.len())
                        .sum::<usize>();
                    in_flight.files.insert(*serial, file);
                }
                if live.is_some() {
                    self.begin_flight(sequence, in_flight);
                }
            }
            Body::Truncate { serial, size } => self.apply_truncate(sequence, *serial, *size),
            Body::Void(voids) => {
                for &void in voids {
                    self.undo(void, sequence);
                }
            }
            Body::Mark => {}
        }
        for &(serial, start, end) in live.map_or(&[][..], |change| &change.settles_unstable) {
            let cut = self.unstable.cut(serial, start, end);
            if let Some(file) = self
                .in_flight
                .get_mut(&sequence)
                .and_then(|own| own.files.get_mut(&serial))
            {
                file.unstable_before = cut;
            }
        }
        self.next = sequence + 1;
        self.marked_below = self.marked_below.max(record.written_below);
        Ok(())
    }

    /// Exchanges blocks of a file; returns what was there before.
    fn apply_blocks(
        &mut self,
        sequence: u64,
        version: Version,
        serial: u64,
        blocks: &[(usize, Block)],
    ) -> Result<FileInFlight, RecordError> {
        let before = self.maps.get(serial);
        let mut after = before;
        after.version = after.version.max(version);
        let mut inlined_before = Vec::new();
        for &(index, block) in blocks {
            if !self.space.claim(block.unit, block.units()) {
                return Err(RecordError::Overlap { sequence });
            }
            self.retire(sequence, &after.blocks[index]);
            after.blocks[index] = block;
            let (start, end) = block_range(index);
            inlined_before.extend(self.inlined.cut(serial, start, end));
        }
        self.maps.set(serial, &after);
        Ok(FileInFlight {
            contents: Vec::new(),
            before,
            inlined_before,
            unstable_before: Vec::new(),
        })
    }

    fn apply_truncate(&mut self, sequence: u64, serial: u64, size: u32) {
        let mut blocks = self.maps.get(serial);
        for index in 0..blocks.blocks.len() {
            let (start, _) = block_range(index);
            if start >= size {
                self.retire(sequence, &blocks.blocks[index]);
                blocks.blocks[index] = Block::HOLE;
            } else if let Ok(keep) = u16::try_from(size - start) {
                let block = &mut blocks.blocks[index];
                block.valid = block.valid.min(keep);
            }
        }
        self.maps.set(serial, &blocks);
        self.inlined.cut(serial, size, END);
    }

    fn begin_flight(&mut self, sequence: u64, in_flight: InFlight) {
        for &serial in in_flight.files.keys() {
            let other = self.busy.insert(serial, sequence);
            assert_eq!(other, None, "a busy file takes no other change");
        }
        self.in_flight_bytes += in_flight.bytes;
        self.in_flight.insert(sequence, in_flight);
    }

    /// Puts back what was there before the change `void`. In a replay there is
    /// nothing to undo: the tail has dropped it.
    fn undo(&mut self, void: u64, sequence: u64) {
        let Some(in_flight) = self.in_flight.remove(&void) else {
            return;
        };
        self.voids += 1;
        self.void.insert(void);
        if self.void.len() > VOID_REMEMBERED_MAX {
            self.void.pop_first();
        }
        self.in_flight_bytes -= in_flight.bytes;
        let restored: u64 = {
            let own = self.pending.iter().filter(|free| free.freed_by == void);
            own.map(|free| u64::from(free.units)).sum()
        };
        self.pending.retain(|free| free.freed_by != void);
        self.pending_units -= restored;
        for (serial, file) in in_flight.files {
            let now = self.maps.get(serial);
            for (index, _) in file.contents {
                self.retire(sequence, &now.blocks[index]);
            }
            self.maps.set(serial, &file.before);
            for (start, bytes) in file.inlined_before {
                self.inlined.insert(serial, start, bytes);
            }
            for (start, bytes) in file.unstable_before {
                self.unstable.insert_below(serial, start, &bytes);
            }
            self.busy.remove(&serial);
            self.recent.insert(serial, sequence);
        }
    }

    /// Frees a fragment, later.
    fn retire(&mut self, sequence: u64, block: &Block) {
        if block.is_hole() {
            return;
        }
        self.pending_units += u64::from(block.units());
        self.pending.push_back(PendingFree {
            freed_by: sequence,
            reads_below: self.next_read,
            unit: block.unit,
            units: block.units(),
        });
    }

    fn release_pending(&mut self) {
        let reading = self.reads.first().copied().unwrap_or(u64::MAX);
        while let Some(free) = self.pending.pop_front_if(|free| {
            free.freed_by < self.marked_below_durable && free.reads_below <= reading
        }) {
            self.pending_units -= u64::from(free.units);
            self.space.release(free.unit, free.units);
        }
    }

    fn forget_settled(&mut self, sequence: u64, serials: &[u64]) {
        if self.standing(Sequence(sequence)) != Standing::Settled {
            return;
        }
        for serial in serials {
            if self.recent.get(serial) == Some(&sequence) {
                self.recent.remove(serial);
            }
        }
    }
}

/// First byte of a block in its file, and the byte after it.
pub(crate) fn block_range(index: usize) -> (u32, u32) {
    let start = u32::try_from(index).unwrap_or(0) * BLOCK_BYTES;
    (start, start + BLOCK_BYTES)
}
