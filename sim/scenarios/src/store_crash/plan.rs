//! What a seed decides beforehand: bounds of the store, faults, and which
//! requests are likely.

use std::time::Duration;

use crossdock_names::{FileId, Incarnation, NodeId, ObjectClass, ObjectId, SiteId};
use crossdock_sim::disk::SimDiskOptions;
use crossdock_sim::random::Random;
use crossdock_store::{Mutation, StoreConfig};

/// Objects stay below this, so that requests meet often.
pub(super) const OBJECT_BYTES_MAX: u64 = 160 << 10;

const NODE: NodeId = NodeId(0x0de);
const KIB: u64 = 1 << 10;

pub(super) struct Plan {
    /// Starts of the store.
    pub(super) cycles: u64,
    /// Requests on their way at a time.
    pub(super) pipeline: usize,
    pub(super) objects: Vec<ObjectId>,
    /// Small writes are whole blocks that were written before, so that the
    /// store writes over them where they lie.
    pub(super) is_dense: bool,
    /// How likely each action is.
    weights: Vec<(Kind, u64)>,
    config: StoreConfig,
    /// What goes wrong with the disks while the store works, if anything does.
    faults: Faults,
}

/// Which faults the disks of a seed have.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Once in so many reads, writes and so on of the data disk; 0 never.
    read_error: u32,
    misdirected_write: u32,
    lost_write: u32,
    /// Of both disks, in half of the starts.
    failed_change: u32,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Write,
    StableWrite,
    SmallWrite,
    StableSmallWrite,
    LateWrite,
    Commit,
    Read,
    CancelledRead,
    Append,
    Seal,
    Truncate,
    Zero,
    Remove,
    Stat,
    Pin,
    PinnedRead,
    Unpin,
    Pause,
    FlipBit,
    /// The file system is full from now on, or not any more.
    FillDisk,
    Scrub,
    Defrag,
    ListChanges,
}

const KINDS: [(Kind, u64); 24] = [
    (Kind::Create, 6),
    (Kind::Write, 10),
    (Kind::StableWrite, 10),
    (Kind::SmallWrite, 10),
    (Kind::StableSmallWrite, 10),
    (Kind::LateWrite, 1),
    (Kind::Commit, 5),
    (Kind::Read, 10),
    (Kind::CancelledRead, 1),
    (Kind::Append, 10),
    (Kind::Seal, 1),
    (Kind::Truncate, 3),
    (Kind::Zero, 3),
    (Kind::Remove, 3),
    (Kind::Stat, 2),
    (Kind::Pin, 2),
    (Kind::PinnedRead, 2),
    (Kind::Unpin, 1),
    (Kind::Pause, 4),
    (Kind::FlipBit, 2),
    (Kind::FillDisk, 2),
    (Kind::Scrub, 2),
    (Kind::Defrag, 6),
    (Kind::ListChanges, 1),
];

impl Plan {
    pub(super) fn draw(random: &mut Random, mutation: Option<Mutation>) -> Self {
        // Bits flip on the data disk.
        let flips = random.one_in(4);
        let fills = random.one_in(4);
        // Bulk writes on a disk that is nearly full: what is freed is used again
        // at once.
        let is_tight = random.one_in(4);
        let is_dense = !is_tight && random.one_in(6);
        // Each seed leaves some kinds out and favours others, so that rare
        // mixtures come too.
        let weights = KINDS
            .into_iter()
            .map(|(kind, weight)| match (kind, random.below(4)) {
                (Kind::Create, _) => (kind, weight),
                (Kind::Write | Kind::StableWrite, _) if is_tight => (kind, weight * 8),
                (Kind::StableSmallWrite, _) if is_dense => (kind, weight * 30),
                (Kind::StableWrite, _) if is_dense => (kind, weight),
                (Kind::Pause, _) if is_dense => (kind, 0),
                (Kind::Pause, _) if is_tight => (kind, 0),
                (Kind::FlipBit, _) if !flips => (kind, 0),
                (Kind::FillDisk, _) if !fills => (kind, 0),
                (_, 0) => (kind, 0),
                (_, 1) => (kind, weight * 4),
                _ => (kind, weight),
            })
            .collect();
        let columns = match is_tight || is_dense {
            true => 1,
            false => random.between(1, 4),
        };
        let column = |number| ObjectId::column(FileId::new(SiteId(1), number), 1, 0, 0);
        let log = |number| ObjectId::of_site(ObjectClass::SiteLog, SiteId(2), number);
        let mut objects: Vec<ObjectId> = (1..=columns).map(column).collect();
        let of_site = |class| ObjectId::of_site(class, SiteId(2), 1);
        match is_dense {
            true => objects.push(log(1)),
            false => objects.extend([
                log(1),
                log(2),
                of_site(ObjectClass::SmallFiles),
                of_site(ObjectClass::Checkpoint),
            ]),
        }
        Self {
            cycles: random.between(3, 7),
            pipeline: 1 + random.index(8),
            objects,
            is_dense,
            weights,
            config: draw_config(random, (is_tight, is_dense), mutation),
            faults: Faults::draw(random),
        }
    }

    /// What goes wrong with journal and data disk in one start.
    pub(super) fn draw_faults(&self, random: &mut Random) -> [SimDiskOptions; 2] {
        let Faults {
            read_error,
            misdirected_write,
            lost_write,
            failed_change,
        } = self.faults;
        let failed_change = match random.coin() {
            true => failed_change,
            false => 0,
        };
        let both = SimDiskOptions {
            write_error_one_in: failed_change,
            flush_error_one_in: failed_change,
            ..SimDiskOptions::default()
        };
        let data = SimDiskOptions {
            read_error_one_in: read_error,
            misdirected_write_one_in: misdirected_write,
            lost_write_one_in: lost_write,
            ..both
        };
        [both, data]
    }

    pub(super) fn config(&self, random: &mut Random) -> StoreConfig {
        StoreConfig {
            boot: Incarnation(random.next_u64()),
            ..self.config.clone()
        }
    }

    pub(super) fn draw_kind(&self, random: &mut Random) -> Kind {
        let all = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut point = random.below(all);
        for &(kind, weight) in &self.weights {
            if point < weight {
                return kind;
            }
            point -= weight;
        }
        Kind::Pause
    }
}

impl Faults {
    fn draw(random: &mut Random) -> Self {
        // Half of the seeds have none of them: there, everything must be right.
        if random.coin() {
            return Self::default();
        }
        let mut rarity = |low, high| match random.one_in(3) {
            true => u32::try_from(random.between(low, high)).unwrap_or(0),
            false => 0,
        };
        Self {
            read_error: rarity(5, 200),
            misdirected_write: rarity(10, 200),
            lost_write: rarity(10, 200),
            failed_change: rarity(20, 400),
        }
    }
}

fn draw_config(
    random: &mut Random,
    (is_tight, is_dense): (bool, bool),
    mutation: Option<Mutation>,
) -> StoreConfig {
    let blocks = match is_tight {
        true => random.between(90, 140),
        false => random.between(64, 1024),
    };
    let capacity_bytes = blocks * 4 * KIB;
    let interval = |random: &mut Random| match random.coin() {
        true => Duration::from_micros(random.between(100, 2000)),
        false => Duration::from_millis(random.between(1, 30)),
    };
    let journal_blocks = match is_dense {
        true => random.between(66, 72),
        false => random.between(66, 256),
    };
    StoreConfig {
        journal_bytes: journal_blocks * 4 * KIB,
        growth_bytes: random.between(16, 128) * 4 * KIB,
        cache_bytes: [0, 64, 512][random.index(3)] << 10,
        dirty_bytes_max: [256, 1024][random.index(2)] << 10,
        map_entries_max: 8 + random.index(31),
        waiting_max: 16 + random.index(49),
        checkpoint_interval: interval(random),
        writeback_delay: interval(random),
        mutation,
        ..StoreConfig::new(NODE, Incarnation(0), capacity_bytes)
    }
}
