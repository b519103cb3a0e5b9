//! Runs of whole blocks, by place and by size. None crosses into the next
//! object; neighbours within one are joined.

use std::collections::{BTreeMap, BTreeSet};

/// A set of blocks as runs.
#[derive(Debug)]
pub(crate) struct Runs {
    blocks_per_object: u32,
    /// First block → how many.
    by_place: BTreeMap<u32, u32>,
    /// The same as (how many, first block): the best fit comes first.
    by_size: BTreeSet<(u32, u32)>,
}

impl Runs {
    pub(crate) const fn new(blocks_per_object: u32) -> Self {
        Self {
            blocks_per_object,
            by_place: BTreeMap::new(),
            by_size: BTreeSet::new(),
        }
    }

    /// Every run as (first block, how many), in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.by_place.iter().map(|(&start, &count)| (start, count))
    }

    /// The run that lies last.
    pub(crate) fn last(&self) -> Option<(u32, u32)> {
        let (&start, &count) = self.by_place.last_key_value()?;
        Some((start, count))
    }

    /// Where the smallest run of at least `count` blocks begins.
    pub(crate) fn find_best(&self, count: u32) -> Option<u32> {
        let best = self.by_size.range((count, 0)..).next();
        best.map(|&(_, start)| start)
    }

    /// The largest run, if it has `count_min` blocks.
    pub(crate) fn find_largest(&self, count_min: u32) -> Option<(u32, u32)> {
        let largest = self.by_size.last().filter(|(count, _)| *count >= count_min);
        largest.map(|&(count, start)| (start, count))
    }

    /// Blocks of the largest run.
    pub(crate) fn largest(&self) -> u32 {
        self.by_size.last().map_or(0, |&(count, _)| count)
    }

    /// Adds blocks that are not in it, of one object.
    pub(crate) fn insert(&mut self, start: u32, count: u32) {
        let (mut start, mut count) = (start, count);
        if !start.is_multiple_of(self.blocks_per_object)
            && let Some((&left, &length)) = self.by_place.range(..start).next_back()
            && left + length == start
        {
            self.remove(left, length);
            (start, count) = (left, count + length);
        }
        let right = start + count;
        if !right.is_multiple_of(self.blocks_per_object)
            && let Some(&length) = self.by_place.get(&right)
        {
            self.remove(right, length);
            count += length;
        }
        self.put(start, count);
    }

    /// Takes blocks out; false, and nothing has changed, if not all are in it.
    pub(crate) fn take(&mut self, start: u32, count: u32) -> bool {
        let Some((&first, &length)) = self.by_place.range(..=start).next_back() else {
            return false;
        };
        let is_in = start + count <= first + length;
        if is_in {
            self.cut(start, count);
        }
        is_in
    }

    /// Takes those of the blocks out that are in it.
    pub(crate) fn cut(&mut self, start: u32, count: u32) {
        let end = start + count;
        while let Some((&first, &length)) = self.by_place.range(..end).next_back()
            && first + length > start
        {
            self.remove(first, length);
            self.put(first, start.saturating_sub(first));
            self.put(end, (first + length).saturating_sub(end));
            if first < start {
                break;
            }
        }
    }

    fn put(&mut self, start: u32, count: u32) {
        if count > 0 {
            self.by_place.insert(start, count);
            self.by_size.insert((count, start));
        }
    }

    fn remove(&mut self, start: u32, count: u32) {
        self.by_place.remove(&start);
        self.by_size.remove(&(count, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(runs: &Runs) -> Vec<(u32, u32)> {
        let by_size: BTreeSet<_> = runs.iter().map(|(start, count)| (count, start)).collect();
        assert_eq!(by_size, runs.by_size);
        runs.iter().collect()
    }

    /// Goal: neighbours join up to the end of their object, and any part can
    /// be taken out.
    #[test]
    fn runs_join_and_split() {
        let mut runs = Runs::new(8);
        for block in [3, 1, 2, 7, 8, 9, 12] {
            runs.insert(block, 1);
        }
        assert_eq!(all(&runs), [(1, 3), (7, 1), (8, 2), (12, 1)]);
        assert!(!runs.take(9, 2), "one of them is not in it");
        assert!(runs.take(2, 1));
        assert_eq!(all(&runs), [(1, 1), (3, 1), (7, 1), (8, 2), (12, 1)]);
        runs.cut(3, 6);
        assert_eq!(all(&runs), [(1, 1), (9, 1), (12, 1)]);
        runs.insert(10, 2);
        assert_eq!(runs.find_largest(4), Some((9, 4)));
        assert_eq!(runs.find_largest(5), None);
        assert_eq!((runs.find_best(1), runs.largest()), (Some(1), 4));
    }
}
