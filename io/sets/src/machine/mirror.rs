//! Which regions of a mirror may differ after a loss of power: noted on all members before
//! the first write there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use crossdock_disk::DiskOperation;
use crossdock_types::BLOCK_BYTES;

use super::{DiskSets, Purpose};
use crate::geometry::INTENT_OFFSET;
use crate::intent::{REGIONS_MAX, RegionList};

/// Regions that are noted beyond one that is needed, for who writes on.
const REGIONS_AHEAD: u64 = 3;

/// The notes of a mirror.
#[derive(Debug, Default)]
pub(super) struct Intent {
    /// Regions that all members have noted.
    durable: BTreeMap<u64, Use>,
    pub(super) sequence: u64,
    /// The list that is being written.
    writing: Option<BTreeSet<u64>>,
    outstanding: usize,
    /// Works whose regions are not noted yet.
    waiting: VecDeque<(u64, Range<u64>)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    in_flight: usize,
    /// Flushes that had begun when the last write there ended.
    stamp: u64,
    is_written: bool,
}

impl Intent {
    /// There will be no room for those who wait.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = u64> + use<> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|(work, _)| work)
    }
}

impl DiskSets {
    fn regions(&self, stripes: &Range<u64>) -> Range<u64> {
        let each = u64::from(self.pool.geometry.region_stripes);
        stripes.start / each..stripes.end.div_ceil(each)
    }

    /// Whether a work may write there now; otherwise it will be stepped.
    pub(super) fn note_regions(&mut self, work: u64, set: usize, stripes: &Range<u64>) -> bool {
        let regions = self.regions(stripes);
        let intent = &mut self.sets[set].intent;
        let mut all = regions.clone();
        if all.all(|region| intent.durable.contains_key(&region)) {
            for region in regions {
                intent.durable.entry(region).or_default().in_flight += 1;
            }
            return true;
        }
        intent.waiting.push_back((work, regions));
        self.write_intent(set);
        false
    }

    pub(super) fn regions_written(&mut self, set: usize, stripes: &Range<u64>) {
        let regions = self.regions(stripes);
        let state = &mut self.sets[set];
        for region in regions {
            let found = state.intent.durable.entry(region).or_default();
            found.in_flight = found.in_flight.saturating_sub(1);
            found.stamp = state.flush_started;
            found.is_written = true;
        }
        if !self.sets[set].intent.waiting.is_empty() {
            self.write_intent(set);
        }
    }

    /// Notes the regions of those who wait, in the places of regions that are the same on
    /// all members.
    pub(super) fn write_intent(&mut self, set: usize) {
        let state = &self.sets[set];
        let intent = &state.intent;
        if intent.writing.is_some() || intent.waiting.is_empty() {
            return;
        }
        let flushed = state.flushed;
        let is_settled =
            |found: &Use| found.in_flight == 0 && (!found.is_written || found.stamp < flushed);
        let mut list: BTreeSet<u64> = intent.durable.keys().copied().collect();
        let mut wanted = BTreeSet::new();
        let mut room: Vec<u64> = Vec::new();
        for (&region, found) in &intent.durable {
            if is_settled(found) {
                room.push(region);
            }
        }
        let add =
            |region: u64, wanted: &BTreeSet<u64>, list: &mut BTreeSet<u64>, room: &mut Vec<u64>| {
                if list.contains(&region) {
                    return true;
                }
                while list.len() >= REGIONS_MAX {
                    match room.pop() {
                        Some(old) if wanted.contains(&old) => {}
                        Some(old) => {
                            list.remove(&old);
                        }
                        None => return false,
                    }
                }
                list.insert(region)
            };
        let mut is_short = false;
        for (_, regions) in &intent.waiting {
            for region in regions.clone() {
                wanted.insert(region);
                is_short |= !add(region, &wanted, &mut list, &mut room);
            }
            if is_short {
                break;
            }
        }
        let first = intent.waiting.front().map(|(_, regions)| regions.clone());
        let can_go = first.is_some_and(|regions| {
            let mut regions = regions;
            regions.all(|region| list.contains(&region))
        });
        if !can_go {
            // All of them may differ: after a flush they do not.
            self.flush_for_room(set);
            return;
        }
        if let Some(last) = wanted.last().copied().filter(|_| !is_short) {
            for region in last + 1..=last + REGIONS_AHEAD {
                if list.len() < REGIONS_MAX {
                    list.insert(region);
                }
            }
        }
        self.send_intent(set, list);
    }

    fn send_intent(&mut self, set: usize, list: BTreeSet<u64>) {
        let intent = &mut self.sets[set].intent;
        intent.sequence += 1;
        // What is not in the list any more must not be written to meanwhile.
        intent.durable.retain(|region, _| list.contains(region));
        let sequence = intent.sequence;
        let members = self.pool.sets[set].members.len();
        let mut outstanding = 0;
        for place in 0..members {
            let Some(disk) = self.member_disk(set, place) else {
                continue;
            };
            let notes = RegionList {
                disk: self.pool.sets[set].members[place].disk,
                sequence,
                regions: list.iter().copied().collect(),
            };
            let write = DiskOperation::Write {
                offset_bytes: INTENT_OFFSET + sequence % 2 * BLOCK_BYTES as u64,
                pieces: vec![notes.encode()],
                is_durable: true,
            };
            outstanding += 1;
            self.send(disk, Purpose::Intent(set), write);
        }
        let intent = &mut self.sets[set].intent;
        intent.writing = Some(list);
        intent.outstanding = outstanding;
        if outstanding == 0 {
            self.intent_written(set);
        }
    }

    pub(super) fn intent_answered(&mut self, set: usize) {
        let intent = &mut self.sets[set].intent;
        intent.outstanding = intent.outstanding.saturating_sub(1);
        if intent.outstanding == 0 {
            self.intent_written(set);
        }
    }

    fn intent_written(&mut self, set: usize) {
        let intent = &mut self.sets[set].intent;
        for region in intent.writing.take().into_iter().flatten() {
            intent.durable.entry(region).or_default();
        }
        // Those who can go, go; the others wait again.
        for (work, _) in std::mem::take(&mut intent.waiting) {
            self.step(work);
        }
    }
}
