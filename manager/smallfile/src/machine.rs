//! The state of a site's small files, and how changes become part of it.

use crossdock_names::{FileId, SiteId, Version};

use crate::{
    Change, Fetched, Plan, ReadPlan, ReadTicket, RecordError, RecordSummary, Sequence,
    SmallFileError, Write,
};

/// Bounds of the small files of a site.
#[derive(Clone, Copy, Debug)]
pub struct SmallFilesConfig {
    /// Whose files.
    pub site: SiteId,
    /// Largest size of one backing object; a multiple of 8 KiB up to 1 GiB.
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
}

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
        }
    }
}

/// Where the bytes of the backing objects are:
/// `backing = allocated + pending + free`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceFigures {
    /// End of the newest backing object, all before it counted whole.
    pub backing_bytes: u64,
    /// In fragments of files.
    pub allocated_bytes: u64,
    /// Freed, but not to be reused yet.
    pub pending_bytes: u64,
    /// Free for new fragments.
    pub free_bytes: u64,
}

/// What the small files of a site cost in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFigures {
    /// Files that have a map record.
    pub files: usize,
    /// Bytes of the map records.
    pub map_bytes: usize,
    /// Bytes of pieces that are in the log only (with their overhead).
    pub inlined_bytes: usize,
    /// Unstable bytes (with their overhead).
    pub unstable_bytes: usize,
    /// Bytes on their way to backing objects.
    pub in_flight_bytes: usize,
}

/// The small files of a site; see the crate's page for how a site drives it.
#[derive(Debug)]
pub struct SmallFiles {
    config: SmallFilesConfig,
}

impl SmallFiles {
    /// No files yet; load a checkpoint and replay records next, if there are any.
    #[must_use]
    pub const fn new(config: SmallFilesConfig) -> Self {
        Self { config }
    }

    /// How to read `length_bytes` at `offset_bytes`, which end at or below the
    /// threshold. The site has cut the range to the file's size; what was
    /// never written is zeros.
    ///
    /// # Errors
    /// [`SmallFileError::BeyondThreshold`].
    pub fn plan_read(
        &mut self,
        _file: FileId,
        _offset_bytes: u64,
        _length_bytes: u64,
    ) -> Result<ReadPlan, SmallFileError> {
        Err(SmallFileError::Busy)
    }

    /// How to write. An unstable write is buffered at once, if there is room;
    /// else it is planned as a stable one.
    ///
    /// # Errors
    /// Any [`SmallFileError`].
    pub fn plan_write(
        &mut self,
        _write: &Write,
        _fetched: &Fetched,
    ) -> Result<Plan, SmallFileError> {
        Err(SmallFileError::Busy)
    }

    /// How to make the unstable bytes of a file durable.
    ///
    /// # Errors
    /// [`SmallFileError::NoSpace`], [`SmallFileError::Busy`].
    pub fn plan_commit(
        &mut self,
        _file: FileId,
        _version: Version,
        _fetched: &Fetched,
    ) -> Result<Plan, SmallFileError> {
        Err(SmallFileError::Busy)
    }

    /// How to drop everything at and beyond `size_bytes` (any size; 0 also
    /// when the file is removed). Never fetches, never needs space.
    pub fn plan_truncate(&mut self, _file: FileId, _size_bytes: u64) -> Plan {
        Plan::Done { after: None }
    }

    /// How to move inlined pieces, up to `bytes_max` of them, into fragments:
    /// one stream of backing writes. Done when there are none left (that can move now).
    ///
    /// # Errors
    /// [`SmallFileError::NoSpace`], [`SmallFileError::Busy`].
    pub fn plan_flush(
        &mut self,
        _version: Version,
        _bytes_max: usize,
        _fetched: &Fetched,
    ) -> Result<Plan, SmallFileError> {
        Ok(Plan::Done { after: None })
    }

    /// A record that lets freed space be reused: to be logged when the site is
    /// idle or short of space; `None` if it would free nothing.
    pub fn plan_mark(&mut self) -> Option<Change> {
        None
    }

    /// Undoes changes whose backing writes failed (live), or that a
    /// [`crate::ReplayTail`] dropped. The operation that wanted the change is
    /// answered with the error after this one has settled.
    pub fn plan_void(&mut self, sequences: &[Sequence]) -> Change {
        Change {
            sequence: sequences.first().copied().unwrap_or_default(),
            record: Vec::new(),
            writes: Vec::new(),
            settles_unstable: Vec::new(),
            contents: Vec::new(),
        }
    }

    /// Makes a planned change, whose record has just been appended to the log.
    ///
    /// # Panics
    /// If another change was accepted after this one was planned.
    pub fn accept(&mut self, _change: &Change) {}

    /// The log is durable up to and with the record of this change.
    pub fn durable(&mut self, _sequence: Sequence) {}

    /// The backing writes of this change are durable on every member.
    pub fn written(&mut self, _sequence: Sequence) {}

    /// The backing reads under this ticket have ended, well or not.
    pub fn read_done(&mut self, _ticket: ReadTicket) {}

    /// Whether record and backing writes of a change are durable.
    #[must_use]
    pub const fn is_settled(&self, _sequence: Sequence) -> bool {
        true
    }

    /// What a record is about, for a [`crate::ReplayTail`].
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn summary(&self, _record: &[u8]) -> Result<RecordSummary, RecordError> {
        Err(RecordError::Malformed("empty"))
    }

    /// Applies a record of the log that has come out of the tail; one that the
    /// loaded checkpoint contains already is left out.
    ///
    /// # Errors
    /// [`RecordError`]: the log is not what this site wrote; the state is not
    /// to be used.
    pub fn replay(&mut self, _record: &[u8]) -> Result<(), RecordError> {
        Ok(())
    }

    /// Whether enough is inlined to call [`plan_flush`](Self::plan_flush).
    #[must_use]
    pub const fn flush_is_due(&self) -> bool {
        false
    }

    /// Bytes that a file takes in backing objects and in the log.
    #[must_use]
    pub const fn used_bytes(&self, _file: FileId) -> u64 {
        0
    }

    /// Where the backing bytes are.
    #[must_use]
    pub fn space(&self) -> SpaceFigures {
        SpaceFigures::default()
    }

    /// What it costs in memory.
    #[must_use]
    pub fn memory(&self) -> MemoryFigures {
        MemoryFigures::default()
    }

    /// The bounds in force.
    #[must_use]
    pub const fn config(&self) -> &SmallFilesConfig {
        &self.config
    }
}
