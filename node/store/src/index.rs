//! The index: what the journal's records amount to, in a database (redb).
//!
//! The store tells it about changes in batches, each with the position of the
//! journal up to which it is complete; a batch is one transaction. It is never
//! ahead of the journal, and what it lost since its last durable commit is
//! replayed from there. It may block: production runs it on its own thread.
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | 0 | [`Meta`] |
//! | `objects` | encoded object id (24 bytes) | a head, see `object.rs` |
//! | `runs` | serial, first block (16 bytes) | a run, see `runs.rs` |
//! | `space` | group (4 bytes) | its bitmap, 4096 bytes, see `space.rs` |
//! | `free` | group (4 bytes) | how many of its blocks are free (4 bytes) |
//! | `dead` | serial (8 bytes) | nothing: the runs of this serial are to be freed |

use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;

use crossdock_disk::{BlockingDisk, DiskError};
use crossdock_log::ChainPosition;
use crossdock_names::{OBJECT_ID_BYTES, ObjectClass, ObjectId, Version};
use crossdock_peer::ChangedRange;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use thiserror::Error;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::backend::{DiskBackend, clear, is_made, mark_made};
use crate::object::Head;
use crate::runs::{Run, RunKey, WINDOW_BLOCKS, run_key, split_run_key};
use crate::space::{BITMAP_BYTES, Bitmap, GROUP_BLOCKS, SpaceDelta, groups_of, within};
use crate::store::BLOCK;

pub(crate) const META: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("meta");
pub(crate) const OBJECTS: TableDefinition<'_, [u8; OBJECT_ID_BYTES], &[u8]> =
    TableDefinition::new("objects");
pub(crate) const RUNS: TableDefinition<'_, RunKey, &[u8]> = TableDefinition::new("runs");
pub(crate) const SPACE: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("space");
pub(crate) const FREE: TableDefinition<'_, u32, u32> = TableDefinition::new("free");
pub(crate) const DEAD: TableDefinition<'_, u64, ()> = TableDefinition::new("dead");

/// Memory that the database may use for its pages.
const DATABASE_CACHE_BYTES: usize = 32 << 20;

/// Ranges in one answer to a request for changes, about.
const CHANGES_MAX: usize = 4096;

/// Why the index cannot be opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IndexError {
    /// Made by a newer version of Crossdock.
    #[error(
        "the index has format version {found}, this program reads {supported}: use the version of crossdock that wrote it"
    )]
    UnknownFormat {
        /// What the disk says.
        found: u32,
        /// What this program reads.
        supported: u32,
    },
    /// The database or its disk says.
    #[error("the index cannot be opened: {0}")]
    Database(String),
}

impl From<DiskError> for IndexError {
    fn from(error: DiskError) -> Self {
        Self::Database(error.to_string())
    }
}

impl<E: Into<redb::Error>> From<E> for DatabaseFailure {
    fn from(error: E) -> Self {
        Self(error.into().to_string())
    }
}

/// What the database said, in words.
pub(crate) struct DatabaseFailure(pub(crate) String);

impl From<DatabaseFailure> for IndexError {
    fn from(failure: DatabaseFailure) -> Self {
        Self::Database(failure.0)
    }
}

/// What belongs to the store as a whole.
///
/// | offset | bytes | name | meaning (little-endian) |
/// |---|---|---|---|
/// | 0 | 8 | store | random number of the store |
/// | 8 | 8 | next | sequence of the frame where replay begins |
/// | 16 | 8 | epoch | of the frame before it |
/// | 24 | 4 | previous | checksum of the frame before it |
/// | 28 | 4 | – | zero |
/// | 32 | 8 | offset | of that frame in the ring, in bytes |
/// | 40 | 8 | complete | sequence of the last frame that the index knows wholly |
/// | 48 | 8 | next serial | of run maps |
/// | 56 | 8 | next stamp | of changes |
/// | 64 | 8 | objects | how many |
/// | 72 | 8 | committed blocks | in runs |
/// | 80 | 8 | reserved blocks | and not taken yet |
/// | 88 | 8 | grown | blocks of the data disk |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) store: u64,
    pub(crate) tail: RingPoint,
    pub(crate) complete: u64,
    pub(crate) next_serial: u64,
    pub(crate) next_stamp: u64,
    pub(crate) objects: u64,
    pub(crate) committed: u64,
    pub(crate) reserved: u64,
    pub(crate) grown: u64,
}

/// A place between two frames of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingPoint {
    /// Bytes from the ring's begin.
    pub(crate) offset: u64,
    /// What the frame there must say.
    pub(crate) chain: ChainPosition,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredMeta {
    store: U64,
    next: U64,
    epoch: U64,
    previous: U32,
    zero: U32,
    offset: U64,
    complete: U64,
    next_serial: U64,
    next_stamp: U64,
    objects: U64,
    committed: U64,
    reserved: U64,
    grown: U64,
}

const _: () = assert!(size_of::<StoredMeta>() == 96);

impl Meta {
    fn encode(&self) -> Vec<u8> {
        let stored = StoredMeta {
            store: U64::new(self.store),
            next: U64::new(self.tail.chain.next_sequence),
            epoch: U64::new(self.tail.chain.epoch),
            previous: U32::new(self.tail.chain.previous_checksum),
            zero: U32::new(0),
            offset: U64::new(self.tail.offset),
            complete: U64::new(self.complete),
            next_serial: U64::new(self.next_serial),
            next_stamp: U64::new(self.next_stamp),
            objects: U64::new(self.objects),
            committed: U64::new(self.committed),
            reserved: U64::new(self.reserved),
            grown: U64::new(self.grown),
        };
        stored.as_bytes().to_vec()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let stored = StoredMeta::ref_from_bytes(bytes).ok()?;
        Some(Self {
            store: stored.store.get(),
            tail: RingPoint {
                offset: stored.offset.get(),
                chain: ChainPosition {
                    next_sequence: stored.next.get(),
                    previous_checksum: stored.previous.get(),
                    epoch: stored.epoch.get(),
                },
            },
            complete: stored.complete.get(),
            next_serial: stored.next_serial.get(),
            next_stamp: stored.next_stamp.get(),
            objects: stored.objects.get(),
            committed: stored.committed.get(),
            reserved: stored.reserved.get(),
            grown: stored.grown.get(),
        })
    }
}

/// Something that the store wants from the index.
#[derive(Debug)]
pub struct IndexRequest(pub(crate) IndexCall);

/// The answer to an [`IndexRequest`].
#[derive(Debug)]
pub struct IndexReply(pub(crate) Result<IndexAnswer, String>);

#[derive(Debug)]
pub(crate) enum IndexCall {
    /// What there is at the start.
    Start,
    /// Parts of tables.
    Load(Box<Wanted>),
    /// Windows of `serial` from `window` on that have runs.
    NextWindows {
        serial: u64,
        window: u64,
        limit: usize,
    },
    List {
        class: ObjectClass,
        placement: Option<u64>,
        after: Option<ObjectId>,
        limit: usize,
    },
    /// Objects in order.
    NextObject(Walker, Option<ObjectId>),
    Changes {
        since: Version,
        after: Option<ObjectId>,
    },
    Apply(Box<Batch>),
    /// The data disk is to have so many blocks: the index sets room aside for
    /// what it will have to say about them.
    Reserve {
        blocks: u64,
    },
}

/// Who goes through all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walker {
    Scrub,
    Mover,
}

/// What is to be loaded; the answer has all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) token: u64,
    pub(crate) objects: Vec<ObjectId>,
    /// (serial, window)
    pub(crate) windows: Vec<(u64, u64)>,
    pub(crate) groups: Vec<u32>,
}

/// Changes up to a position of the journal.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) number: u64,
    pub(crate) objects: Vec<(ObjectId, Option<Vec<u8>>)>,
    pub(crate) runs: Vec<(RunKey, Option<Vec<u8>>)>,
    pub(crate) space: Vec<SpaceDelta>,
    pub(crate) dead: Vec<(u64, bool)>,
    pub(crate) meta: Meta,
    pub(crate) is_durable: bool,
}

#[derive(Debug)]
pub(crate) enum IndexAnswer {
    Started {
        meta: Option<Meta>,
        free: Vec<(u32, u32)>,
        dead: Vec<u64>,
    },
    Loaded(Box<Loaded>),
    NextWindows {
        serial: u64,
        windows: Vec<u64>,
    },
    List(Vec<ObjectId>),
    NextObject(Walker, Option<ObjectId>),
    Changes {
        changes: Vec<(u64, ChangedRange)>,
        more_after: Option<ObjectId>,
    },
    Applied {
        number: u64,
    },
    Reserved {
        blocks: u64,
        /// False: the file system has no room.
        is_there: bool,
    },
}

/// (serial, window) and its runs by their first block.
pub(crate) type LoadedWindow = ((u64, u64), Vec<(u64, Run)>);

#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) token: u64,
    pub(crate) objects: Vec<(ObjectId, Option<Head>)>,
    pub(crate) windows: Vec<LoadedWindow>,
    pub(crate) groups: Vec<(u32, Vec<u8>)>,
}

/// The index of a store; it blocks.
pub struct Index {
    database: Database,
    disk: Arc<dyn BlockingDisk>,
}

impl Index {
    /// Opens the index on its disk, or makes one on an empty disk.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn open(disk: Box<dyn BlockingDisk>) -> Result<Self, IndexError> {
        let disk: Arc<dyn BlockingDisk> = Arc::from(disk);
        let is_new = !is_made(&*disk)?;
        if is_new {
            clear(&*disk)?;
        }
        let database = open_database(&disk)?;
        let index = Self { database, disk };
        if is_new {
            index.make_tables()?;
            mark_made(&*index.disk)?;
        }
        Ok(index)
    }

    /// Carries out one request.
    pub fn handle(&mut self, request: IndexRequest) -> IndexReply {
        IndexReply(self.answer(request.0).map_err(|failure| failure.0))
    }

    fn answer(&self, call: IndexCall) -> Result<IndexAnswer, DatabaseFailure> {
        match call {
            IndexCall::Start => self.start(),
            IndexCall::Load(wanted) => self.load(&wanted),
            IndexCall::NextWindows {
                serial,
                window,
                limit,
            } => self.next_windows(serial, window, limit),
            IndexCall::List {
                class,
                placement,
                after,
                limit,
            } => self.list(class, placement, after, limit),
            IndexCall::NextObject(walker, after) => {
                Ok(IndexAnswer::NextObject(walker, self.next_object(after)?))
            }
            IndexCall::Changes { since, after } => self.changes(since, after),
            IndexCall::Apply(batch) => self.apply(*batch),
            IndexCall::Reserve { blocks } => {
                let is_there = self.disk.reserve(room_for(blocks)).is_ok();
                Ok(IndexAnswer::Reserved { blocks, is_there })
            }
        }
    }

    fn make_tables(&self) -> Result<(), DatabaseFailure> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_quick_repair(true);
        transaction.open_table(META)?;
        transaction.open_table(OBJECTS)?;
        transaction.open_table(RUNS)?;
        transaction.open_table(SPACE)?;
        transaction.open_table(FREE)?;
        transaction.open_table(DEAD)?;
        Ok(transaction.commit()?)
    }

    fn start(&self) -> Result<IndexAnswer, DatabaseFailure> {
        let transaction = self.database.begin_read()?;
        let meta = match transaction.open_table(META)?.get(0)? {
            None => None,
            Some(stored) => Some(Meta::decode(stored.value()).ok_or_else(|| damaged("meta"))?),
        };
        let mut free = Vec::new();
        for row in transaction.open_table(FREE)?.iter()? {
            let (group, count) = row?;
            free.push((group.value(), count.value()));
        }
        let mut dead = Vec::new();
        for row in transaction.open_table(DEAD)?.iter()? {
            dead.push(row?.0.value());
        }
        Ok(IndexAnswer::Started { meta, free, dead })
    }

    fn load(&self, wanted: &Wanted) -> Result<IndexAnswer, DatabaseFailure> {
        let transaction = self.database.begin_read()?;
        let mut loaded = Loaded {
            token: wanted.token,
            ..Loaded::default()
        };
        let objects = transaction.open_table(OBJECTS)?;
        for object in &wanted.objects {
            let head = match objects.get(object.encode())? {
                None => None,
                Some(stored) => {
                    Some(Head::decode(stored.value()).ok_or_else(|| damaged("object"))?)
                }
            };
            loaded.objects.push((*object, head));
        }
        let runs = transaction.open_table(RUNS)?;
        for &(serial, window) in &wanted.windows {
            let mut found = Vec::new();
            let from = run_key(serial, window * WINDOW_BLOCKS);
            let to = run_key(serial, (window + 1) * WINDOW_BLOCKS);
            for row in runs.range(from..to)? {
                let (key, stored) = row?;
                let run = Run::decode(stored.value()).ok_or_else(|| damaged("run"))?;
                found.push((split_run_key(&key.value()).1, run));
            }
            loaded.windows.push(((serial, window), found));
        }
        let space = transaction.open_table(SPACE)?;
        for &group in &wanted.groups {
            let bitmap = space.get(group)?;
            let bitmap = bitmap.map_or_else(Vec::new, |stored| stored.value().to_vec());
            loaded.groups.push((group, bitmap));
        }
        Ok(IndexAnswer::Loaded(Box::new(loaded)))
    }

    fn next_windows(
        &self,
        serial: u64,
        window: u64,
        limit: usize,
    ) -> Result<IndexAnswer, DatabaseFailure> {
        let transaction = self.database.begin_read()?;
        let runs = transaction.open_table(RUNS)?;
        let mut windows = Vec::new();
        let mut at = window;
        while windows.len() < limit {
            let from = run_key(serial, at * WINDOW_BLOCKS);
            let Some(row) = runs.range(from..=run_key(serial, u64::MAX))?.next() else {
                break;
            };
            let first = split_run_key(&row?.0.value()).1;
            windows.push(first / WINDOW_BLOCKS);
            at = first / WINDOW_BLOCKS + 1;
        }
        Ok(IndexAnswer::NextWindows { serial, windows })
    }

    fn list(
        &self,
        class: ObjectClass,
        placement: Option<u64>,
        after: Option<ObjectId>,
        limit: usize,
    ) -> Result<IndexAnswer, DatabaseFailure> {
        let transaction = self.database.begin_read()?;
        let objects = transaction.open_table(OBJECTS)?;
        let (first, last) = list_bounds(class, placement);
        let from = after.map_or(first, |after| after.encode().max(first));
        let mut found = Vec::new();
        if from <= last {
            for row in objects.range(from..=last)? {
                let id = ObjectId::decode(&row?.0.value()).ok_or_else(|| damaged("object id"))?;
                if after.is_none_or(|after| id > after) {
                    found.push(id);
                }
                if found.len() == limit {
                    break;
                }
            }
        }
        Ok(IndexAnswer::List(found))
    }

    fn next_object(&self, after: Option<ObjectId>) -> Result<Option<ObjectId>, DatabaseFailure> {
        let transaction = self.database.begin_read()?;
        let objects = transaction.open_table(OBJECTS)?;
        let from = after.map_or([0; OBJECT_ID_BYTES], |after| after.encode());
        for row in objects.range(from..)? {
            let id = ObjectId::decode(&row?.0.value()).ok_or_else(|| damaged("object id"))?;
            if Some(id) != after {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    fn changes(
        &self,
        since: Version,
        after: Option<ObjectId>,
    ) -> Result<IndexAnswer, DatabaseFailure> {
        let transaction = self.database.begin_read()?;
        let objects = transaction.open_table(OBJECTS)?;
        let runs = transaction.open_table(RUNS)?;
        let from = after.map_or([0; OBJECT_ID_BYTES], |after| after.encode());
        let mut changes = Vec::new();
        for row in objects.range(from..)? {
            let (key, stored) = row?;
            let id = ObjectId::decode(&key.value()).ok_or_else(|| damaged("object id"))?;
            let head = Head::decode(stored.value()).ok_or_else(|| damaged("object"))?;
            if Some(id) == after || head.version < since {
                continue;
            }
            push_changes(&runs, id, &head, since, &mut changes)?;
            if changes.len() >= CHANGES_MAX {
                let more_after = Some(id);
                return Ok(IndexAnswer::Changes {
                    changes,
                    more_after,
                });
            }
        }
        Ok(IndexAnswer::Changes {
            changes,
            more_after: None,
        })
    }

    fn apply(&self, batch: Batch) -> Result<IndexAnswer, DatabaseFailure> {
        let mut transaction = self.database.begin_write()?;
        if batch.is_durable {
            transaction.set_quick_repair(true);
        } else {
            transaction.set_durability(Durability::None)?;
        }
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for (object, head) in &batch.objects {
                match head {
                    Some(head) => objects.insert(object.encode(), head.as_slice())?,
                    None => objects.remove(object.encode())?,
                };
            }
            let mut runs = transaction.open_table(RUNS)?;
            for (key, run) in &batch.runs {
                match run {
                    Some(run) => runs.insert(key, run.as_slice())?,
                    None => runs.remove(key)?,
                };
            }
            let mut dead = transaction.open_table(DEAD)?;
            for (serial, is_dead) in &batch.dead {
                match is_dead {
                    true => dead.insert(serial, ())?,
                    false => dead.remove(serial)?,
                };
            }
            let mut space = transaction.open_table(SPACE)?;
            let mut free = transaction.open_table(FREE)?;
            apply_space(&mut space, &mut free, &batch.space)?;
            let mut meta = transaction.open_table(META)?;
            meta.insert(0, batch.meta.encode().as_slice())?;
        }
        transaction.commit()?;
        Ok(IndexAnswer::Applied {
            number: batch.number,
        })
    }
}

/// Bytes of an index of so many blocks, generously: one that finds no room fails
/// its node, which then could not even remove anything.
const fn room_for(blocks: u64) -> u64 {
    const ROOM_MIN_BYTES: u64 = 8 << 20;
    const ROOM_PER_BLOCK_BYTES: u64 = 64;
    ROOM_MIN_BYTES + blocks * ROOM_PER_BLOCK_BYTES
}

pub(crate) fn open_database(disk: &Arc<dyn BlockingDisk>) -> Result<Database, DatabaseFailure> {
    let backend = DiskBackend::open(Arc::clone(disk)).map_err(io::Error::other)?;
    Ok(Database::builder()
        .set_cache_size(DATABASE_CACHE_BYTES)
        .create_with_backend(backend)?)
}

/// First and last encoded id that a list can have.
fn list_bounds(
    class: ObjectClass,
    placement: Option<u64>,
) -> ([u8; OBJECT_ID_BYTES], [u8; OBJECT_ID_BYTES]) {
    let id = |placement, rest: u32| {
        let column = if rest == 0 { 0 } else { u16::MAX };
        ObjectId {
            class,
            placement,
            generation: rest,
            branch: rest,
            segment: rest,
            column,
        }
        .encode()
    };
    let first = placement.unwrap_or(0);
    (id(first, 0), id(placement.unwrap_or(u64::MAX), u32::MAX))
}

fn push_changes(
    runs: &impl ReadableTable<RunKey, &'static [u8]>,
    object: ObjectId,
    head: &Head,
    since: Version,
    changes: &mut Vec<(u64, ChangedRange)>,
) -> Result<(), DatabaseFailure> {
    if head.hole_version >= since {
        // What a truncate or zero dropped is not known range by range.
        let range = ChangedRange {
            object,
            offset_bytes: 0,
            length_bytes: head.size,
            version: head.hole_version,
        };
        changes.push((head.serial, range));
    }
    let (from, to) = (run_key(head.serial, 0), run_key(head.serial, u64::MAX));
    for row in runs.range(from..=to)? {
        let (key, stored) = row?;
        let run = Run::decode(stored.value()).ok_or_else(|| damaged("run"))?;
        let (_, first_block) = split_run_key(&key.value());
        let length_bytes = head.bytes_in(first_block, run.blocks());
        if run.version >= since && length_bytes > 0 {
            let range = ChangedRange {
                object,
                offset_bytes: first_block * BLOCK,
                length_bytes,
                version: run.version,
            };
            changes.push((head.serial, range));
        }
    }
    Ok(())
}

/// Brings bitmaps and counts up to date, each group read and written once.
fn apply_space(
    space: &mut redb::Table<'_, u32, &'static [u8]>,
    free: &mut redb::Table<'_, u32, u32>,
    deltas: &[SpaceDelta],
) -> Result<(), DatabaseFailure> {
    let mut bitmaps = std::collections::BTreeMap::new();
    for delta in deltas {
        for group in groups_of(delta.range) {
            let Some(range) = within(delta.range, group) else {
                continue;
            };
            let bitmap = match bitmaps.entry(group) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let stored = space.get(group)?;
                    let empty = || Bitmap::from_bytes(&[0; BITMAP_BYTES]);
                    let found = |stored: redb::AccessGuard<'_, &'static [u8]>| {
                        Bitmap::from_bytes(stored.value())
                    };
                    entry.insert(stored.map_or_else(empty, found))
                }
            };
            bitmap.set(range, delta.is_taken);
        }
    }
    for (group, bitmap) in bitmaps {
        let count = u32::try_from(GROUP_BLOCKS - bitmap.ones()).unwrap_or(0);
        space.insert(group, bitmap.to_bytes().as_slice())?;
        free.insert(group, count)?;
    }
    Ok(())
}

fn damaged(what: &str) -> DatabaseFailure {
    DatabaseFailure(format!("a stored {what} cannot be read"))
}
