//! What is measured.

/// How the file of a journal came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journal {
    /// Zeros were written to all of it before.
    WrittenThrough,
    /// It has its space, but no content: each commit converts an extent.
    Fallocated,
    /// Each commit makes it longer.
    Growing,
}

/// One kind of load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// One block written and made stable, then the next one: microseconds of
    /// each.
    Commit {
        journal: Journal,
        /// Whether as one durable write, as the store does it, or as a write and
        /// then a flush. The peer always does the latter.
        is_durable: bool,
        /// While this is written to another file.
        beside_mb_per_second: u64,
    },
    /// Requests of one size at one depth: how many bytes in a second.
    Io {
        is_write: bool,
        is_random: bool,
        bytes: usize,
        depth: usize,
    },
}

/// A row of the result.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) variant: &'static str,
    pub(crate) load: Load,
}

/// Bytes of a commit.
pub(crate) const COMMIT_BYTES: usize = 4096;

/// Bytes of a write of the load beside commits.
pub(crate) const BESIDE_BYTES: usize = 256 << 10;

/// The load beside commits is flushed after so many bytes.
pub(crate) const BESIDE_FLUSH_BYTES: u64 = 16 << 20;

/// Length of the files, in bytes: more than is written in a round of commits.
pub(crate) const FILE_BYTES: u64 = 1 << 30;

pub(crate) const ROWS: [Row; 9] = [
    commit("journal written through", Journal::WrittenThrough, true, 0),
    commit(
        "journal written through, write then flush",
        Journal::WrittenThrough,
        false,
        0,
    ),
    commit("journal fallocated", Journal::Fallocated, true, 0),
    commit("journal growing", Journal::Growing, true, 0),
    commit(
        "journal written through, beside 100 MB/s",
        Journal::WrittenThrough,
        true,
        100,
    ),
    io("random-read", "4 KiB, depth 32", false, true),
    io("random-write", "4 KiB, depth 32", true, true),
    io("sequential-read", "1 MiB, depth 8", false, false),
    io("sequential-write", "1 MiB, depth 8", true, false),
];

const fn commit(
    variant: &'static str,
    journal: Journal,
    is_durable: bool,
    beside_mb_per_second: u64,
) -> Row {
    Row {
        name: "commit-latency",
        variant,
        load: Load::Commit {
            journal,
            is_durable,
            beside_mb_per_second,
        },
    }
}

const fn io(name: &'static str, variant: &'static str, is_write: bool, is_random: bool) -> Row {
    let (bytes, depth) = match is_random {
        true => (4096, 32),
        false => (1 << 20, 8),
    };
    Row {
        name,
        variant,
        load: Load::Io {
            is_write,
            is_random,
            bytes,
            depth,
        },
    }
}

impl Row {
    pub(crate) const fn is_latency(&self) -> bool {
        matches!(self.load, Load::Commit { .. })
    }

    pub(crate) const fn unit(&self) -> &'static str {
        match self.load {
            Load::Commit { .. } => "µs",
            Load::Io { .. } => "MB/s",
        }
    }
}
