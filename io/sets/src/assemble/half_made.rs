//! Sets that were named and are none: because they were retired, or because power has failed
//! before all their disks knew of them.

use std::collections::BTreeSet;

use super::Assembler;
use crate::label::{DiskId, Label, Pool};

impl<F: FnMut() -> u64> Assembler<'_, F> {
    /// Sets that were retired count no more, wherever their disks are.
    pub(super) fn leave_out_retired(&mut self, pool: &Pool) {
        let is_of_retired = |label: &Label| {
            let place = pool.place_of(label.disk);
            place.is_some_and(|(set, _)| pool.sets[set].is_retired())
        };
        let (wish, labels) = (self.wish, &self.labels);
        let is_retired = |set: &usize| {
            let mut disks = wish.sets[*set].disks.iter();
            disks.any(|&place| labels[place].as_ref().is_some_and(is_of_retired))
        };
        let sets = std::mem::take(&mut self.sets);
        (self.retired, self.sets) = sets.into_iter().partition(is_retired);
        for &set in &self.retired {
            let disks = wish.sets[set].disks.iter();
            let names: Vec<&str> = disks
                .map(|&place| wish.disks[place].name.as_str())
                .collect();
            self.notes.push(format!(
                "{}:{} was retired, and is not used; leave it away, or wipe the beginnings of its disks to make another set of them",
                wish.sets[set].kind,
                names.join(",")
            ));
        }
    }

    /// Whether the disk at that place of the wish is of a set that was retired.
    pub(super) fn is_of_retired(&self, place: usize) -> bool {
        let mut sets = self.retired.iter().map(|&set| &self.wish.sets[set]);
        sets.any(|set| set.disks.contains(&place))
    }

    /// Takes the last sets out of the pool if nothing was ever stored on them and some of
    /// their disks are blank: they are made once more. Tells the disks that they had.
    pub(super) fn undo_half_made(&mut self, pool: &mut Pool) -> BTreeSet<DiskId> {
        let Some(first) = self.first_half_made(pool) else {
            return BTreeSet::new();
        };
        let undone = pool.sets.split_off(first);
        let is_old = |set: u16| usize::from(set) < first;
        pool.segments
            .retain(|segment| segment.shares.iter().all(|share| is_old(share.set)));
        let members = undone.iter().flat_map(|set| &set.members);
        members.map(|member| member.disk).collect()
    }

    fn first_half_made(&self, pool: &Pool) -> Option<usize> {
        let used = pool.sets.iter().enumerate();
        let mut used = used.filter(|(_, set)| !set.is_retired());
        let lacks_label = |at: usize, set: usize| {
            let wished = self.sets.get(at).map(|&wished| &self.wish.sets[wished]);
            let is_here = |disk: DiskId| {
                let mut labels = self.labels.iter().flatten();
                labels.any(|label| label.disk == disk)
            };
            let mut members = pool.sets[set].members.iter();
            let is_blank = |&place: &usize| {
                self.labels[place].is_none() && self.wish.disks[place].head.is_ok()
            };
            members.any(|member| !is_here(member.disk))
                && wished.is_some_and(|wished| wished.disks.iter().any(is_blank))
        };
        let mut live = 0;
        let mut first = used.find_map(|(number, set)| {
            live += 1;
            (set.formatted == 0 && lacks_label(live - 1, number)).then_some(number)
        })?;
        // Those that were made together share rows.
        for segment in pool.segments.iter().rev() {
            let shares = || segment.shares.iter().map(|share| usize::from(share.set));
            if shares().any(|set| set >= first) {
                first = shares().min()?.min(first);
            }
        }
        let is_unused = pool.sets[first..].iter().all(|set| set.formatted == 0);
        (first > 0 && is_unused).then_some(first)
    }
}
