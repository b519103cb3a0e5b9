//! Block maps of files (Slice 3.1, docs/decisions/0029): of each block the column in which
//! it lies.
//!
//! Kept in windows of [`MAP_WINDOW_BLOCKS`] entries, a byte each, without the unmapped ones
//! at their ends: a file takes 1 KiB for 1024 blocks, however large its holes are.

use std::collections::BTreeMap;

use bytes::Bytes;
use crossdock_names::{MAP_WINDOW_BLOCKS, MAP_WINDOWS_MAX, MapFragment, UNMAPPED};

use crate::cell::Cell;
use crate::mutation::Mutation;
use crate::state::Directory;

/// A window of a file's map: serial and number.
type Place = (u64, u64);

/// What a window costs beside its entries, about, in bytes.
const OVERHEAD_BYTES: usize = 64;

/// The maps of all files of a site.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    windows: BTreeMap<Place, Bytes>,
    bytes: usize,
}

impl Maps {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn put(&mut self, place: Place, columns: &Bytes) {
        self.remove(place);
        if !columns.is_empty() {
            self.bytes += columns.len() + OVERHEAD_BYTES;
            self.windows.insert(place, columns.clone());
        }
    }

    /// Blocks of a file from that one on lie nowhere.
    pub(crate) fn cut(&mut self, serial: u64, blocks: u64) {
        let first = blocks / MAP_WINDOW_BLOCKS;
        let cut = self.windows.range((serial, first)..=(serial, u64::MAX));
        let cut: Vec<Place> = cut.map(|(&place, _)| place).collect();
        for place in cut {
            let left = blocks.saturating_sub(place.1 * MAP_WINDOW_BLOCKS);
            let Some(columns) = self.windows.get(&place) else {
                continue;
            };
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let columns = columns.slice(..left.min(columns.len()));
            self.put(place, &columns);
        }
    }

    /// The next window from a place on, as the change that restores it.
    pub(crate) fn next_from(&self, place: Place) -> Option<(Place, Mutation)> {
        let ((serial, window), columns) = self.windows.range(place..).next()?;
        let put = Mutation::PutMap {
            serial: *serial,
            window: *window,
            columns: columns.clone(),
        };
        Some(((*serial, *window), put))
    }

    fn remove(&mut self, place: Place) {
        if let Some(old) = self.windows.remove(&place) {
            self.bytes -= old.len() + OVERHEAD_BYTES;
        }
    }
}

impl Directory {
    /// What a file's map says of the blocks `first..end`: whole windows, at most two,
    /// beginning with the first.
    #[must_use]
    pub fn map_of(&self, serial: u64, (first, end): (u64, u64)) -> MapFragment {
        let first_window = first / MAP_WINDOW_BLOCKS;
        let end = end.max(first + 1).div_ceil(MAP_WINDOW_BLOCKS);
        let windows = (end - first_window).min(MAP_WINDOWS_MAX);
        let mut columns: Vec<u8> = Vec::new();
        for (number, window) in (0..windows).map(|number| (number, first_window + number)) {
            if let Some(own) = self.maps.windows.get(&(serial, window)) {
                let before = usize::try_from(number * MAP_WINDOW_BLOCKS).unwrap_or(0);
                columns.resize(before, UNMAPPED);
                columns.extend_from_slice(own);
            }
        }
        MapFragment {
            first_window,
            windows,
            columns: columns.into(),
        }
    }

    /// Whether some of the blocks `first..end` of a file lie nowhere.
    #[must_use]
    pub fn has_unmapped(&self, serial: u64, (first, end): (u64, u64)) -> bool {
        let is_unmapped = |block: u64| {
            let place = (serial, block / MAP_WINDOW_BLOCKS);
            let index = usize::try_from(block % MAP_WINDOW_BLOCKS).unwrap_or(usize::MAX);
            let window = self.maps.windows.get(&place);
            window.is_none_or(|own| own.get(index).is_none_or(|&column| column == UNMAPPED))
        };
        (first..end).any(is_unmapped)
    }

    /// The changes by which the unmapped ones of the blocks `first..end` of a file get
    /// their columns, which `choose` names.
    pub fn map_blocks(
        &self,
        serial: u64,
        (first, end): (u64, u64),
        mut choose: impl FnMut() -> u8,
    ) -> Vec<Mutation> {
        let mut changes = Vec::new();
        for window in first / MAP_WINDOW_BLOCKS..end.div_ceil(MAP_WINDOW_BLOCKS) {
            let base = window * MAP_WINDOW_BLOCKS;
            let index = |block: u64| usize::try_from(block - base).unwrap_or(usize::MAX);
            let old = self.maps.windows.get(&(serial, window));
            let mut columns = old.map_or_else(Vec::new, |old| old.to_vec());
            let to = index(end.min(base + MAP_WINDOW_BLOCKS));
            columns.resize(columns.len().max(to), UNMAPPED);
            let mut is_changed = false;
            for column in &mut columns[index(first.max(base))..to] {
                if *column == UNMAPPED {
                    *column = choose();
                    is_changed = true;
                }
            }
            if is_changed {
                changes.push(Mutation::PutMap {
                    serial,
                    window,
                    columns: columns.into(),
                });
            }
        }
        changes
    }
}

impl Cell {
    /// The change by which a file that is cut at `size_bytes` loses the blocks behind its
    /// end, if it has a map.
    #[must_use]
    pub fn cut_map(&self, size_bytes: u64) -> Option<Mutation> {
        let block_bytes = self.rare().layout.map_block_bytes()?;
        Some(Mutation::CutMap {
            serial: self.serial,
            blocks: size_bytes.div_ceil(block_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use crossdock_names::{LayoutClass, SiteId};

    use super::*;
    use crate::Scan;

    const FILE: u64 = 7;
    const WINDOW: u64 = MAP_WINDOW_BLOCKS;

    fn mapped(directory: &mut Directory, blocks: (u64, u64), column: u8) {
        for change in directory.map_blocks(FILE, blocks, || column) {
            directory.apply(&change);
        }
    }

    fn column_of(directory: &Directory, block: u64) -> u8 {
        let fragment = directory.map_of(FILE, (block, block + 1));
        fragment.column_of(block).expect("the window asked for")
    }

    /// Goal: blocks keep the column that they got first, over the edge of a window, and lie
    /// nowhere once they are cut off.
    #[test]
    fn blocks_keep_their_columns_until_they_are_cut_off() {
        let mut directory = Directory::new(SiteId(0), 1);
        mapped(&mut directory, (WINDOW - 2, WINDOW + 1), 3);
        mapped(&mut directory, (WINDOW - 4, WINDOW + 2), 5);
        let columns = |directory: &Directory| -> Vec<u8> {
            let blocks = WINDOW - 5..WINDOW + 3;
            blocks.map(|block| column_of(directory, block)).collect()
        };
        assert_eq!(columns(&directory), [255, 5, 5, 3, 3, 3, 5, 255]);
        let mut cell = Cell {
            serial: FILE,
            ..Cell::default()
        };
        assert_eq!(cell.cut_map(0), None);
        cell.change_rare(|rare| rare.layout = LayoutClass::MAPPED);
        let cut = cell.cut_map(((WINDOW - 1) << 20) - 9);
        directory.apply(&cut.expect("it has a map"));
        assert_eq!(columns(&directory), [255, 5, 5, 3, 255, 255, 255, 255]);
        directory.apply(&Mutation::RemoveCell { serial: FILE });
        assert_eq!(columns(&directory), [255; 8]);
        assert_eq!(directory.maps.bytes(), 0);
    }

    /// Goal: a fragment of two windows tells both, also if the first is empty.
    #[test]
    fn a_fragment_spans_two_windows() {
        let mut directory = Directory::new(SiteId(0), 1);
        mapped(&mut directory, (WINDOW, WINDOW + 1), 2);
        let fragment = directory.map_of(FILE, (WINDOW - 1, WINDOW + 1));
        assert_eq!((fragment.first_window, fragment.windows), (0, 2));
        assert_eq!(fragment.column_of(WINDOW - 1), Some(UNMAPPED));
        assert_eq!(fragment.column_of(WINDOW), Some(2));
    }

    /// Goal: what a scan gives restores all maps.
    #[test]
    fn a_scan_restores_them() {
        let mut directory = Directory::new(SiteId(0), 1);
        mapped(&mut directory, (5, 3 * WINDOW), 1);
        let mut copy = Directory::new(SiteId(0), 1);
        let mut scan = Scan::default();
        while let Some(change) = directory.scan(&mut scan) {
            copy.apply(&change);
        }
        assert_eq!(copy.maps.windows, directory.maps.windows);
        assert_eq!(copy.maps.windows.len(), 3);
    }
}
