//! Which files are read again and again: of these the gateway keeps the bytes (SPIRAL section 2:
//! what nodes send never passes through, so nothing of it would ever be kept).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crossdock_names::FileRef;
use crossdock_types::Time;

/// What was read counts half after so long.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// So often, by its bytes, a file was read that is hot.
const READS_MIN: u64 = 3;
/// Files that are counted.
const FILES_MAX: usize = 8192;

/// Counts what is read of which files through a door.
#[derive(Debug, Default)]
pub struct Heat {
    /// Longer files are never hot.
    file_bytes_max: u64,
    files: BTreeMap<FileRef, Warmth>,
    /// The one counted first is the first.
    order: VecDeque<FileRef>,
}

#[derive(Clone, Copy, Debug)]
struct Warmth {
    bytes: u64,
    size_bytes: u64,
    since: Time,
}

impl Heat {
    /// From now on files of at most `file_bytes_max` bytes may be hot; 0: none.
    pub fn limit(&mut self, file_bytes_max: u64) {
        self.file_bytes_max = file_bytes_max;
        if file_bytes_max == 0 {
            self.files.clear();
            self.order.clear();
        }
    }

    /// So many bytes of a file of that size were read.
    pub fn note(&mut self, now: Time, file: FileRef, bytes: u64, size_bytes: u64) {
        if bytes == 0 || size_bytes > self.file_bytes_max {
            return;
        }
        let fresh = Warmth {
            bytes: 0,
            size_bytes,
            since: now,
        };
        let warmth = self.files.entry(file).or_insert_with(|| {
            self.order.push_back(file);
            fresh
        });
        warmth.cool(now);
        warmth.size_bytes = size_bytes;
        warmth.bytes = warmth.bytes.saturating_add(bytes);
        if self.files.len() > FILES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.files.remove(&oldest);
        }
    }

    /// Whether a file has been read so often lately.
    #[must_use]
    pub fn is_hot(&self, now: Time, file: FileRef) -> bool {
        self.files.get(&file).is_some_and(|warmth| {
            let mut warmth = *warmth;
            warmth.cool(now);
            warmth.bytes >= warmth.size_bytes.saturating_mul(READS_MIN)
        })
    }
}

impl Warmth {
    fn cool(&mut self, now: Time) {
        let halves = now.since(self.since).as_nanos() / HALF_LIFE.as_nanos();
        if halves > 0 {
            let halves = u32::try_from(halves).unwrap_or(u32::MAX);
            self.bytes = self.bytes.checked_shr(halves).unwrap_or(0);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;

    use super::*;

    fn file(number: u64) -> FileRef {
        FileRef {
            id: FileId(number),
            generation: 1,
        }
    }

    /// Goal: a file is hot that was read three times within some seconds, in whatever pieces;
    /// it cools down; long ones never are.
    #[test]
    fn what_is_read_often_is_hot() {
        let mut heat = Heat::default();
        heat.note(Time::from_secs(1), file(1), 300, 100);
        assert!(!heat.is_hot(Time::from_secs(1), file(1)), "nothing is kept");
        heat.limit(1000);
        for _ in 0..2 {
            heat.note(Time::from_secs(1), file(1), 100, 100);
        }
        heat.note(Time::from_secs(1), file(2), 10_000, 1001);
        let at = Time::from_secs(2);
        assert!(!heat.is_hot(at, file(1)) && !heat.is_hot(at, file(2)));
        heat.note(Time::from_secs(2), file(1), 60, 100);
        heat.note(Time::from_secs(2), file(1), 40, 100);
        assert!(heat.is_hot(at, file(1)));
        assert!(!heat.is_hot(Time::from_secs(15), file(1)));
        heat.limit(0);
        assert!(!heat.is_hot(at, file(1)));
    }

    /// Goal: there is a bound.
    #[test]
    fn few_files_are_counted() {
        let mut heat = Heat::default();
        heat.limit(1000);
        for number in 0..=FILES_MAX as u64 {
            heat.note(Time::from_secs(1), file(number), 3000, 1000);
        }
        assert_eq!((heat.files.len(), heat.order.len()), (FILES_MAX, FILES_MAX));
        assert!(!heat.is_hot(Time::from_secs(1), file(0)));
        assert!(heat.is_hot(Time::from_secs(1), file(1)));
    }
}
