//! Windows of files' block maps, as far as this router has been told (Slice 3.1,
//! docs/decisions/0029).
//!
//! Within a truncate generation, which is the map's epoch, a block that has a column keeps
//! it: such entries outlast leases, and the node refuses those of an older generation. That
//! a block has none is believed only under the lease with which it was told.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_names::{FileRef, MAP_WINDOW_BLOCKS, MAP_WINDOWS_MAX, UNMAPPED};
use crossdock_peer::{FileLayout, LeaseId};

use crate::leases::Known;

/// File and number of a window.
type Place = (FileRef, u64);

/// The windows of all files, those that were used last.
#[derive(Debug)]
pub(crate) struct Maps {
    windows: BTreeMap<Place, Window>,
    by_use: BTreeMap<u64, Place>,
    uses_total: u64,
    windows_max: usize,
}

#[derive(Debug)]
struct Window {
    generation: u64,
    /// Under which unmapped blocks are known to be so.
    lease: Option<LeaseId>,
    columns: Bytes,
    used: u64,
}

impl Maps {
    /// None; at most `windows_max` at a time.
    pub(crate) const fn new(windows_max: usize) -> Self {
        Self {
            windows: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses_total: 0,
            windows_max,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.windows.len()
    }

    /// Takes what came with an open, and the lease that came with it.
    pub(crate) fn take(&mut self, file: FileRef, layout: &FileLayout, lease: Option<LeaseId>) {
        let map = &layout.map;
        for number in 0..map.windows.min(MAP_WINDOWS_MAX) {
            let at = usize::try_from(number * MAP_WINDOW_BLOCKS).unwrap_or(usize::MAX);
            let end = at.saturating_add(WINDOW).min(map.columns.len());
            let columns = map.columns.slice(at.min(end)..end);
            let place = (file, map.first_window.saturating_add(number));
            self.put(place, layout.truncate_generation, lease, columns);
        }
    }

    /// The column of a block, [`UNMAPPED`] if it has none; `None` if that is not known.
    pub(crate) fn column_of(
        &mut self,
        file: FileRef,
        layout: &FileLayout,
        lease: LeaseId,
        block: u64,
    ) -> Option<u8> {
        let place = (file, block / MAP_WINDOW_BLOCKS);
        let window = self.windows.get(&place)?;
        if window.generation != layout.truncate_generation {
            return None;
        }
        let index = usize::try_from(block % MAP_WINDOW_BLOCKS).ok()?;
        let column = window.columns.get(index).copied().unwrap_or(UNMAPPED);
        if column == UNMAPPED && window.lease != Some(lease) {
            return None;
        }
        self.touch(place);
        Some(column)
    }

    /// The columns of a file's blocks, as far as they are known under its lease.
    pub(crate) fn columns_of(
        &mut self,
        file: FileRef,
        known: &Known,
    ) -> impl FnMut(u64) -> Option<u8> {
        move |block| self.column_of(file, &known.layout, known.lease, block)
    }

    fn put(&mut self, place: Place, generation: u64, lease: Option<LeaseId>, columns: Bytes) {
        if self.windows_max == 0 {
            return;
        }
        let old = self.windows.get(&place);
        let old = old.filter(|old| old.generation >= generation);
        let (lease, columns) = match old {
            Some(old) if old.generation > generation => return, // It was told before that.
            // Answers may overtake each other: what has a column keeps it.
            Some(old) => (lease.or(old.lease), union(&old.columns, columns)),
            None => (lease, columns),
        };
        self.make_room(place);
        let used = self.windows.get(&place).map_or(0, |old| old.used);
        let window = Window {
            generation,
            lease,
            columns,
            used,
        };
        self.windows.insert(place, window);
        self.touch(place);
    }

    fn make_room(&mut self, place: Place) {
        if self.windows.len() >= self.windows_max
            && !self.windows.contains_key(&place)
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.windows.remove(&oldest);
        }
    }

    fn touch(&mut self, place: Place) {
        if let Some(window) = self.windows.get_mut(&place) {
            self.uses_total += 1;
            self.by_use.remove(&window.used);
            window.used = self.uses_total;
            self.by_use.insert(window.used, place);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "1024")]
const WINDOW: usize = MAP_WINDOW_BLOCKS as usize;

/// Of each block the column that one of them has.
fn union(old: &Bytes, new: Bytes) -> Bytes {
    let is_mapped = |columns: &Bytes, index: usize| {
        let column = columns.get(index);
        column.is_some_and(|&column| column != UNMAPPED)
    };
    let mut only_old = (0..old.len()).filter(|&at| is_mapped(old, at) && !is_mapped(&new, at));
    if only_old.next().is_none() {
        return new;
    }
    let mut all = vec![UNMAPPED; old.len().max(new.len())];
    for (index, column) in all.iter_mut().enumerate() {
        let from = if is_mapped(old, index) { old } else { &new };
        *column = from.get(index).copied().unwrap_or(UNMAPPED);
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use crossdock_names::{FileId, LayoutClass, MapFragment};

    use super::*;

    const LEASE: LeaseId = LeaseId(7);

    fn file(number: u64) -> FileRef {
        FileRef {
            id: FileId(number),
            generation: 1,
        }
    }

    fn told(generation: u64, columns: &'static [u8]) -> FileLayout {
        FileLayout {
            class: LayoutClass::MAPPED,
            class_epoch: 0,
            placement: FileId(1),
            generation: 1,
            columns: 4,
            truncate_generation: generation,
            map: MapFragment {
                first_window: 0,
                windows: 1,
                columns: Bytes::from_static(columns),
            },
            capability: None,
        }
    }

    /// Goal: columns are known as long as the generation lasts, holes under their lease.
    #[test]
    fn holes_are_believed_under_their_lease_only() {
        let mut maps = Maps::new(4);
        maps.take(file(1), &told(5, &[2, 255]), Some(LEASE));
        let known = |maps: &mut Maps, generation, lease, block| {
            maps.column_of(file(1), &told(generation, &[]), LeaseId(lease), block)
        };
        assert_eq!(known(&mut maps, 5, 7, 0), Some(2));
        assert_eq!(known(&mut maps, 5, 8, 0), Some(2));
        assert_eq!(known(&mut maps, 5, 7, 1), Some(255));
        assert_eq!(known(&mut maps, 5, 7, 900), Some(255));
        assert_eq!(known(&mut maps, 5, 8, 1), None);
        assert_eq!(known(&mut maps, 6, 7, 0), None);
        assert_eq!(known(&mut maps, 5, 7, MAP_WINDOW_BLOCKS), None);
    }

    /// Goal: an answer that comes late takes no columns away, nor does one of an older
    /// generation; a newer generation begins anew.
    #[test]
    fn late_answers_take_nothing_away() {
        let mut maps = Maps::new(4);
        let column = |maps: &mut Maps, generation, block| {
            maps.column_of(file(1), &told(generation, &[]), LEASE, block)
        };
        maps.take(file(1), &told(5, &[2, 3]), Some(LEASE));
        maps.take(file(1), &told(5, &[2]), None);
        assert_eq!(column(&mut maps, 5, 1), Some(3));
        maps.take(file(1), &told(4, &[9, 9]), None);
        assert_eq!(column(&mut maps, 5, 0), Some(2));
        maps.take(file(1), &told(6, &[255, 1]), Some(LEASE));
        assert_eq!(column(&mut maps, 6, 0), Some(255));
        assert_eq!(column(&mut maps, 6, 1), Some(1));
    }

    /// Goal: there are no more than allowed; the one that was not used for longest goes.
    #[test]
    fn the_oldest_goes_first() {
        let mut maps = Maps::new(2);
        for number in [1, 2] {
            maps.take(file(number), &told(5, &[1]), None);
        }
        let column =
            |maps: &mut Maps, number| maps.column_of(file(number), &told(5, &[]), LEASE, 0);
        assert_eq!(column(&mut maps, 1), Some(1));
        maps.take(file(3), &told(5, &[1]), None);
        assert_eq!(maps.len(), 2);
        assert_eq!(column(&mut maps, 2), None);
        assert_eq!(column(&mut maps, 1), Some(1));
    }
}
