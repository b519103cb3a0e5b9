//! What can happen to the small files of a site.

use super::{SERIALS, THRESHOLD};

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Write {
        file: usize,
        start: usize,
        length: usize,
        stable: bool,
    },
    Commit {
        file: usize,
    },
    Truncate {
        file: usize,
        size: usize,
    },
    Flush {
        bytes_max: usize,
    },
    Mark,
    LogDurable {
        records: usize,
    },
    BackingDone {
        which: usize,
    },
    BackingFails {
        which: usize,
    },
    Read {
        file: usize,
        start: usize,
        length: usize,
        slow: bool,
    },
    SlowReadsEnd,
    Checkpoint {
        bytes_max: usize,
    },
    Crash {
        seed: u16,
    },
}

impl Event {
    pub(crate) fn from_numbers((kind, a, b, c): (u8, u16, u16, u16)) -> Self {
        let (a, b) = (usize::from(a), usize::from(b));
        let file = usize::from(c) % SERIALS.len();
        // Lengths favour small ones, offsets the edges of blocks.
        let length = [1, 100, 128, 4096, 4097, 8192, 20_000, 65_536][b % 8].min(1 + b);
        let start = if a % 3 == 0 { a / 8192 * 8192 } else { a };
        let start = start.min(THRESHOLD - length);
        match kind % 32 {
            0..=10 => Self::Write {
                file,
                start,
                length,
                stable: c >= 1 << 14,
            },
            11..=12 => Self::Commit { file },
            13..=14 => Self::Truncate {
                file,
                size: if b % 3 == 0 { 0 } else { a },
            },
            15..=16 => Self::Flush { bytes_max: a },
            17 => Self::Mark,
            18..=20 => Self::LogDurable { records: 1 + a % 8 },
            21..=23 => Self::BackingDone { which: a },
            24 => Self::BackingFails { which: a },
            25..=27 => Self::Read {
                file,
                start,
                length,
                slow: c % 2 == 0,
            },
            28 => Self::SlowReadsEnd,
            29..=30 => Self::Checkpoint {
                bytes_max: 1 + a % 500,
            },
            _ => Self::Crash { seed: c },
        }
    }
}
