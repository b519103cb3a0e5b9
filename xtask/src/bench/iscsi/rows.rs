//! What `bench iscsi` measures.

use super::{Flags, flag};
use crate::bench::figures::Figure;

/// The row of reads from the disk, and those of blocks beside files.
pub(super) const COLD: &str = "cold-read-32";
pub(super) const FILES: &str = "files";
pub(super) const TOGETHER: &str = "files-together";

/// Bytes of one request of blocks beside files.
pub(super) const FILE_SIZES: [u32; 11] = [
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
];

/// Bytes that are read and written here and there.
const SPAN_BYTES: u64 = 64 << 20;

/// One row: the same commands for all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) variant: &'static str,
    work: &'static str,
    size: u32,
    pub(super) depth: u32,
    span_bytes: u64,
    /// Answered when durable.
    pub(super) is_forced: bool,
    /// All of it is durable at the end.
    is_flushed: bool,
    pub(super) is_bulk: bool,
}

const READ: &str = "4 KiB here and there, from memory";
const WRITE: &str = "4 KiB here and there, write cache on, a flush at the end";
const FORCED: &str = "4 KiB here and there, each durable (FUA)";
const SEQUENTIAL: &str = "in sequence: reads from memory, writes with a flush at the end";

const fn random(name: &'static str, work: &'static str, depth: u32) -> Row {
    Row {
        name,
        variant: READ,
        work,
        size: 4096,
        depth,
        span_bytes: SPAN_BYTES,
        is_forced: false,
        is_flushed: false,
        is_bulk: false,
    }
}

const fn written(name: &'static str, depth: u32) -> Row {
    Row {
        variant: WRITE,
        is_flushed: true,
        ..random(name, "random-write", depth)
    }
}

const fn forced(name: &'static str, depth: u32) -> Row {
    Row {
        variant: FORCED,
        is_forced: true,
        ..random(name, "random-write", depth)
    }
}

const fn sequential(name: &'static str, work: &'static str, size: u32, is_flushed: bool) -> Row {
    Row {
        variant: SEQUENTIAL,
        size,
        is_flushed,
        is_bulk: true,
        ..random(name, work, 8)
    }
}

/// All rows of commands, in the order in which they are measured.
pub(super) const fn all() -> [Row; 13] {
    [
        random("random-read-1", "random-read", 1),
        random("random-read-32", "random-read", 32),
        random("random-read-128", "random-read", 128),
        written("random-write-1", 1),
        written("random-write-32", 32),
        written("random-write-128", 128),
        forced("forced-write-1", 1),
        forced("forced-write-32", 32),
        forced("forced-write-128", 128),
        sequential("read-64k", "read", 64 << 10, false),
        sequential("read-1m", "read", 1 << 20, false),
        sequential("write-64k", "write", 64 << 10, true),
        sequential("write-1m", "write", 1 << 20, true),
    ]
}

/// What else the server is told for rows in which it looks for work before it sleeps.
pub(super) const POLLING: [&str; 2] = ["--idle-poll", "50"];

/// Rows of a server that is told so.
pub(super) fn polling() -> [Row; 3] {
    let row = |name, variant, row| Row {
        name,
        variant,
        ..row
    };
    [
        row(
            "random-read-1-polling",
            "4 KiB here and there, from memory, ours with --idle-poll 50",
            random("", "random-read", 1),
        ),
        row(
            "random-write-1-polling",
            "4 KiB here and there, write cache on, a flush at the end, ours with --idle-poll 50",
            written("", 1),
        ),
        row(
            "forced-write-1-polling",
            "4 KiB here and there, each durable (FUA), ours with --idle-poll 50",
            forced("", 1),
        ),
    ]
}

/// Reads from the disk, of the whole unit.
pub(super) const fn cold() -> Row {
    Row {
        variant: "4 KiB here and there, from the disk",
        span_bytes: super::LUN_BYTES,
        ..random(COLD, "random-read", 32)
    }
}

/// Names of all rows.
pub(in crate::bench) fn names() -> Vec<&'static str> {
    let (all, polling) = (all(), polling());
    let names = all.iter().chain(&polling).map(|row| row.name);
    let others = [
        COLD,
        FILES,
        TOGETHER,
        super::copies::ROW,
        super::copies::COSTS,
        super::modelled::SETS,
        super::modelled::FILES,
        super::modelled::DEFRAG,
    ];
    names.chain(others).collect()
}

impl Row {
    /// What the load generator is told.
    pub(super) fn flags(&self, seconds: f64) -> Flags {
        let mut flags = vec![
            flag("--work", self.work),
            flag("--size", self.size),
            flag("--outstanding", self.depth),
            flag("--span", self.span_bytes),
            flag("--seconds", seconds),
        ];
        if self.is_forced {
            flags.push(flag("--forced", ""));
        }
        if self.is_flushed {
            flags.push(flag("--flush", ""));
        }
        flags
    }

    /// The goals: beside the better peer, twice the rate or half the CPU time for a
    /// command, half the tail, and no less in sequence.
    pub(super) fn goal(&self, figure: Figure) -> Option<f64> {
        match (figure, self.is_bulk) {
            (Figure::Rate, true) => Some(1.0),
            (Figure::Rate | Figure::Cpu, false) if self.depth == 32 => Some(2.0),
            (Figure::Tail, false) => Some(2.0),
            _ => None,
        }
    }
}

/// What the load generator is told for blocks beside a file.
pub(super) fn block_flags(size: u32, is_write: bool, seconds: f64) -> Flags {
    let row = Row {
        size,
        is_flushed: is_write,
        work: if is_write {
            "random-write"
        } else {
            "random-read"
        },
        ..random(FILES, "", 8)
    };
    row.flags(seconds)
}

/// A number of bytes for people.
pub(super) fn told(size: u32) -> String {
    match size {
        size if size >= 1 << 20 => format!("{} MiB", size >> 20),
        size => format!("{} KiB", size >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names are unique, and rows ask for what they say.
    #[test]
    fn rows_are_what_they_say() {
        let mut names = names();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for row in all().into_iter().chain(polling()) {
            let is_forced = row.flags(1.0).iter().any(|(name, _)| *name == "--forced");
            assert_eq!(is_forced, row.name.starts_with("forced"));
            assert_eq!(row.is_bulk, row.size > 4096);
        }
        assert_eq!(
            (told(1024), told(1 << 20)),
            ("1 KiB".into(), "1 MiB".into())
        );
    }
}
