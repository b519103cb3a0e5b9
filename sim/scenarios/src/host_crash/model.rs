//! What must, and what may, be there.
//!
//! A file is cells of an odd size, so that they meet blocks, stripe units and
//! the threshold at all places. Each write has a tag of its own and fills whole
//! cells; a cell remembers every tag that it may hold since the last one that is
//! certainly durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crossdock_nfs3::{HandleBuffer, WriteVerifier};

use super::flushes::{MARK_BYTES, Mark, bytes_of};

/// Bytes of a cell.
pub(super) const CELL_BYTES: u64 = CELL as u64;

/// The same, as a length in memory.
pub(super) const CELL: usize = 1000;

/// Cells of the largest file: beyond the threshold and three stripe units.
pub(super) const CELLS_MAX: usize = 900;

/// What is written as a unit, per column.
const BLOCK_BYTES: u64 = 4096;

/// Names a write; 0 are zeros.
pub(super) type Tag = u32;

/// A directory's number and a name's number in it.
pub(super) type NameKey = (usize, u8);

/// What a cell may hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    /// Since the last durable one, oldest first; the first may be left out if
    /// it is zeros. With the verifier of an unstable write.
    later: Vec<(Tag, Option<WriteVerifier>)>,
    durable: Tag,
    /// Whether any of them may show, not only the newest.
    is_open: bool,
}

/// A file or directory.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) handle: HandleBuffer,
    pub(super) is_directory: bool,
    pub(super) cells: Vec<Cell>,
    /// The size that is certainly durable, the one that shows, the largest possible.
    pub(super) size_low: u64,
    pub(super) size: u64,
    pub(super) size_high: u64,
    pub(super) is_size_open: bool,
    /// Cells that requests in flight read or write.
    pub(super) busy: Vec<(Range<usize>, bool)>,
    /// A request that allows no other is in flight.
    pub(super) is_locked: bool,
}

/// The volume.
#[derive(Default)]
pub(super) struct Model {
    pub(super) directories: Vec<HandleBuffer>,
    pub(super) files: BTreeMap<usize, File>,
    pub(super) names: BTreeMap<NameKey, usize>,
    pub(super) locked: BTreeSet<NameKey>,
    pub(super) next_file: usize,
    pub(super) next_tag: Tag,
}

/// The bytes of a name: a mark, so that it is recognised on the disks.
pub(super) fn name_of(key: NameKey) -> [u8; MARK_BYTES] {
    bytes_of(name_mark(key))
}

pub(super) fn name_mark((directory, number): NameKey) -> Mark {
    Mark(1 << 47 | (directory as u64) << 8 | u64::from(number))
}

pub(super) fn cell_mark(tag: Tag, cell: usize) -> Mark {
    Mark(u64::from(tag) << 16 | cell as u64)
}

/// Whether a cell's mark lies in one block, hence in one write.
pub(super) const fn has_whole_mark(cell: usize) -> bool {
    let start = cell as u64 * CELL_BYTES;
    start / BLOCK_BYTES == (start + MARK_BYTES as u64 - 1) / BLOCK_BYTES
}

/// Content of a cell.
pub(super) fn fill(tag: Tag, cell: usize, target: &mut [u8]) {
    if tag == 0 {
        target.fill(0);
        return;
    }
    let mut state = u64::from(tag) << 32 | cell as u64;
    for byte in &mut *target {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        *byte = (state >> 57) as u8; // Below 0x80: no mark begins here.
    }
    target[..MARK_BYTES].copy_from_slice(&bytes_of(cell_mark(tag, cell)));
}

impl Cell {
    /// Written, and answered.
    pub(super) fn wrote(&mut self, tag: Tag, unstable: Option<WriteVerifier>) {
        if unstable.is_some() {
            self.later.push((tag, unstable));
        } else {
            self.is(tag);
        }
    }

    /// Written perhaps.
    pub(super) fn may_have(&mut self, tag: Tag) {
        self.later.push((tag, None));
        self.is_open = true;
    }

    /// Certainly this, durable.
    pub(super) fn is(&mut self, tag: Tag) {
        self.durable = tag;
        self.later.clear();
        self.is_open = false;
    }

    /// What a COMMIT of now would make durable.
    pub(super) fn unstable(&self) -> Option<(Tag, WriteVerifier)> {
        let &(tag, verifier) = self.later.last()?;
        Some((tag, verifier?))
    }

    /// A COMMIT that began when `tag` was the newest succeeded.
    pub(super) fn committed(&mut self, tag: Tag) {
        if let Some(at) = self.later.iter().position(|later| later.0 == tag) {
            self.later.drain(..=at);
            self.durable = tag;
            self.is_open &= !self.later.is_empty();
        }
    }

    /// What was not durable may be gone.
    pub(super) fn loses(&mut self) {
        self.is_open |= !self.later.is_empty();
    }

    /// What it may hold now, most likely first.
    pub(super) fn options(&self) -> Vec<Tag> {
        let newest = self.later.last().map_or(self.durable, |later| later.0);
        if !self.is_open {
            return vec![newest];
        }
        let later = self.later.iter().rev().map(|later| later.0);
        later.chain([self.durable]).collect()
    }
}

impl File {
    pub(super) fn new(handle: HandleBuffer, is_directory: bool) -> Self {
        Self {
            handle,
            is_directory,
            cells: vec![Cell::default(); CELLS_MAX],
            size_low: 0,
            size: 0,
            size_high: 0,
            is_size_open: false,
            busy: Vec::new(),
            is_locked: false,
        }
    }

    pub(super) fn can_use(&self, cells: &Range<usize>, writes: bool) -> bool {
        let meets = |other: &Range<usize>| cells.start < other.end && other.start < cells.end;
        !self.is_locked
            && !self
                .busy
                .iter()
                .any(|(other, other_writes)| meets(other) && (writes || *other_writes))
    }

    pub(super) fn can_lock(&self) -> bool {
        !self.is_locked && self.busy.is_empty()
    }

    pub(super) fn done_with(&mut self, cells: &Range<usize>) {
        if let Some(at) = self.busy.iter().position(|(other, _)| other == cells) {
            self.busy.swap_remove(at);
        }
    }

    pub(super) fn wrote(&mut self, cells: Range<usize>, tag: Tag, unstable: Option<WriteVerifier>) {
        let end_bytes = cells.end as u64 * CELL_BYTES;
        for cell in &mut self.cells[cells] {
            cell.wrote(tag, unstable);
        }
        self.size = self.size.max(end_bytes);
        self.size_high = self.size_high.max(end_bytes);
        if unstable.is_none() {
            self.size_low = self.size_low.max(end_bytes);
        }
    }

    pub(super) fn may_have_written(&mut self, cells: Range<usize>, tag: Tag) {
        let end_bytes = cells.end as u64 * CELL_BYTES;
        for cell in &mut self.cells[cells] {
            cell.may_have(tag);
        }
        if end_bytes > self.size {
            self.is_size_open = true;
        }
        self.size_high = self.size_high.max(end_bytes);
    }

    pub(super) fn truncated(&mut self, cells: usize) {
        for cell in &mut self.cells[cells..] {
            cell.is(0);
        }
        self.is_sized(cells as u64 * CELL_BYTES);
    }

    pub(super) fn is_sized(&mut self, size_bytes: u64) {
        self.size_low = size_bytes;
        self.size = size_bytes;
        self.size_high = size_bytes;
        self.is_size_open = false;
    }

    pub(super) fn may_be_truncated(&mut self, cells: usize) {
        let size_bytes = cells as u64 * CELL_BYTES;
        for cell in &mut self.cells[cells..] {
            if cell.options() != [0] {
                cell.may_have(0);
            }
        }
        self.size_low = self.size_low.min(size_bytes);
        self.size_high = self.size_high.max(size_bytes);
        self.is_size_open = true;
    }

    /// What is unstable now: cells with their tags, of writes with `verifier`.
    pub(super) fn unstable(&self) -> Vec<(usize, Tag, WriteVerifier)> {
        let cells = self.cells.iter().enumerate();
        cells
            .filter_map(|(number, cell)| {
                let (tag, verifier) = cell.unstable()?;
                Some((number, tag, verifier))
            })
            .collect()
    }

    /// Whether nothing was written over it, or is just being written.
    pub(super) fn is_newest(&self, cell: usize, tag: Tag) -> bool {
        let is_written = |(cells, writes): &(Range<usize>, bool)| *writes && cells.contains(&cell);
        let newest = self.cells[cell].unstable().map(|(newest, _)| newest);
        newest == Some(tag) && !self.busy.iter().any(is_written)
    }

    pub(super) fn committed(&mut self, cell: usize, tag: Tag) {
        self.cells[cell].committed(tag);
        let end_bytes = (cell as u64 + 1) * CELL_BYTES;
        self.size_low = self.size_low.max(end_bytes);
    }

    /// What was not durable may be gone.
    pub(super) fn loses(&mut self) {
        self.cells.iter_mut().for_each(Cell::loses);
        self.is_size_open |= self.size_low != self.size_high;
    }

    /// Which sizes may show.
    pub(super) fn sizes(&self) -> (u64, u64) {
        match self.is_size_open {
            true => (self.size_low, self.size_high),
            false => (self.size, self.size),
        }
    }

    /// The largest size that may show while others write.
    pub(super) fn size_max(&self) -> u64 {
        let writes = self.busy.iter().filter(|(_, writes)| *writes);
        let ends = writes.map(|(cells, _)| cells.end as u64 * CELL_BYTES);
        ends.chain([self.sizes().1]).max().unwrap_or_default()
    }

    /// Checks bytes that were read from `offset`; with `adopt`, what shows is
    /// certain from now on.
    pub(super) fn check(&mut self, offset: u64, data: &[u8], adopt: bool) -> Result<(), String> {
        let mut expected = vec![0; CELL];
        let end = offset + data.len() as u64;
        let mut at = offset;
        let mut shown: BTreeMap<usize, Vec<Tag>> = BTreeMap::new();
        while at < end {
            // A piece lies in one cell and one block.
            let number = index(at / CELL_BYTES);
            let cell_start = number as u64 * CELL_BYTES;
            let piece_end = (cell_start + CELL_BYTES)
                .min((at / BLOCK_BYTES + 1) * BLOCK_BYTES)
                .min(end);
            let found = &data[index(at - offset)..index(piece_end - offset)];
            let Some(cell) = self.cells.get(number) else {
                return Err(format!("there are bytes at {at}"));
            };
            let options = cell.options();
            let is_it = |tag: &&Tag| {
                fill(**tag, number, &mut expected);
                expected[index(at - cell_start)..index(piece_end - cell_start)] == *found
            };
            let tag = options.iter().find(is_it).copied().ok_or_else(|| {
                format!(
                    "cell {number} (bytes {at}..{piece_end}) holds {:02x?}…, should be of {options:?}",
                    &found[..found.len().min(MARK_BYTES)]
                )
            });
            shown.entry(number).or_default().push(tag?);
            at = piece_end;
        }
        if adopt {
            for (number, tags) in shown {
                let start = number as u64 * CELL_BYTES;
                let is_whole = start >= offset && start + CELL_BYTES <= end;
                let is_one = tags.iter().all(|tag| *tag == tags[0]);
                if is_whole && is_one {
                    self.cells[number].is(tags[0]);
                }
            }
        }
        Ok(())
    }
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl Model {
    pub(super) fn loses(&mut self) {
        self.files.values_mut().for_each(File::loses);
    }

    pub(super) fn tag(&mut self) -> Tag {
        self.next_tag += 1;
        self.next_tag
    }

    pub(super) fn add(&mut self, file: File) -> usize {
        self.next_file += 1;
        self.files.insert(self.next_file, file);
        self.next_file
    }
}

impl File {
    /// The size that shows after a start is certain; cells beyond it are gone.
    pub(super) fn shows_size(&mut self, size_bytes: u64) -> Result<(), String> {
        let first_gone = size_bytes.div_ceil(CELL_BYTES);
        for (number, cell) in self.cells.iter_mut().enumerate() {
            if number as u64 >= first_gone {
                if !cell.options().contains(&0) {
                    return Err(format!("cell {number} is gone"));
                }
                cell.is(0);
            }
        }
        self.is_sized(size_bytes);
        Ok(())
    }
}
