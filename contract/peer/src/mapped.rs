//! Which bytes of an object or a file have space, and which are holes.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Ranges with space, as of one moment; in bytes, in order, none touching the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedRanges {
    /// What has space, of what is told.
    pub runs: Vec<Range<u64>>,
    /// So far it is told: less than was asked where there are too many ranges.
    pub end_bytes: u64,
}

impl MappedRanges {
    /// Adds a range that begins where the last one does, or behind it.
    pub fn add(&mut self, range: Range<u64>) {
        match self.runs.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ if range.is_empty() => {}
            _ => self.runs.push(range),
        }
    }

    /// Leaves the first `runs_max` ranges, and tells no more than those.
    pub fn cut(&mut self, runs_max: usize) {
        if let Some(left_out) = self.runs.get(runs_max) {
            self.end_bytes = left_out.start;
            self.runs.truncate(runs_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: neighbours become one, and what does not fit is not told as a hole.
    #[test]
    fn ranges_grow_together_and_are_cut() {
        let mut mapped = MappedRanges {
            runs: Vec::new(),
            end_bytes: 100,
        };
        for range in [3..3, 5..10, 10..12, 11..14, 20..30, 40..50] {
            mapped.add(range);
        }
        assert_eq!(mapped.runs, [5..14, 20..30, 40..50]);
        mapped.cut(3);
        assert_eq!(mapped.end_bytes, 100);
        mapped.cut(1);
        let mut told = MappedRanges {
            runs: Vec::new(),
            end_bytes: 20,
        };
        told.add(5..14);
        assert_eq!(mapped, told);
    }
}
