//! Pieces of a checkpoint: many records in few bytes, each as what differs from
//! one before it in the same piece.
//!
//! | tag | record | what follows (varints; differences as zigzag varints) |
//! |---|---|---|
//! | 1 | cell | flags (1 byte), serial − the one of the cell before; then what the flags say |
//! | 3 | entry | flags (1 byte), then what they say |
//! | 8 | sizes | how many cells and entries the whole checkpoint has, about: may be missing |
//! | other | any other [`Mutation`] | its body |
//!
//! **Cell**, flags: 1 kind, mode, uid, gid and quota tree are those of the cell
//! before; 2 atime and mtime are ctime; 4 size and bytes on disk are 0; 8 one
//! link; 16 generation 1; 32 more follows. Then generation and links unless the
//! flags say them; kind << 12 | mode, uid, gid, quota tree unless flag 1; size
//! and bytes on disk unless flag 4; ctime − the one of the cell before; atime −
//! ctime and mtime − ctime unless flag 2; with flag 32 truncate generation,
//! columns, segments, layout class, layout epoch, snapshot birth and death.
//!
//! **Entry**, flags: the lower 4 bits name one of 16 predecessors, which the
//! entry replaces; 16 it has the same parent; 32 generation 1. Then parent unless
//! flag 16; child − the predecessor's; generation unless flag 32; cookie − the
//! predecessor's; how many bytes of the predecessor's name the name begins with,
//! how many more it has, and these. All predecessors begin with zeros.

use crossdock_limits::NAME_BYTES_MAX;
use crossdock_log::{get_byte, get_varint, put_varint};
use crossdock_names::{FileId, FileRef, LayoutClass};
use crossdock_types::WallTime;

use crate::cell::{Cell, Rare, get, get_time, zigzag};
use crate::mutation::Mutation;
use crate::state::Directory;

const CELL: u8 = 1;
const ENTRY: u8 = 3;
const SIZES: u8 = 8;

const SAME_OWNER: u8 = 1;
const SAME_TIMES: u8 = 2;
const EMPTY: u8 = 4;
const ONE_LINK: u8 = 8;
const CELL_GENERATION: u8 = 16;
const RARE: u8 = 32;

const PREDECESSOR: u8 = 15;
const SAME_PARENT: u8 = 16;
const ENTRY_GENERATION: u8 = 32;

/// More are not made room for at once.
const EXPECTED_MAX: usize = 1 << 24;

/// A piece that this version has not written, or not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a piece of a directory's checkpoint is damaged, or of another version")]
pub struct DamagedPiece;

/// Builds a piece.
#[derive(Debug, Default)]
pub struct PieceWriter {
    bytes: Vec<u8>,
    before: Before,
}

/// What the next record is compared with.
#[derive(Debug, Default)]
struct Before {
    cell: Cell,
    entries: [EntryBefore; PREDECESSOR as usize + 1],
}

#[derive(Debug, Default)]
struct EntryBefore {
    parent: u64,
    child: u64,
    cookie: u64,
    name: Vec<u8>,
}

impl PieceWriter {
    /// Bytes so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The piece.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds how much there is in all, so that a load can make room at once.
    pub fn put_sizes(&mut self, directory: &Directory) {
        let sizes = directory.memory_use();
        self.bytes.push(SIZES);
        put_varint(&mut self.bytes, sizes.cells as u64);
        put_varint(&mut self.bytes, sizes.entries as u64);
    }

    /// Adds a piece of the state.
    pub fn put(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::PutCell(cell) => self.put_cell(cell),
            Mutation::PutEntry {
                parent,
                name,
                child,
                cookie,
            } => self.put_entry(*parent, name, *child, *cookie),
            other => other.encode(&mut self.bytes),
        }
    }

    fn put_cell(&mut self, cell: &Cell) {
        let before = &self.before.cell;
        let flag = |is_so: bool, flag: u8| if is_so { flag } else { 0 };
        let owner = |cell: &Cell| (cell.kind_and_mode, cell.uid, cell.gid, cell.quota_tree);
        let times = cell.accessed == cell.changed && cell.modified == cell.changed;
        let flags = flag(owner(cell) == owner(before), SAME_OWNER)
            | flag(times, SAME_TIMES)
            | flag(cell.size_bytes == 0 && cell.used_or_device == 0, EMPTY)
            | flag(cell.links == 1, ONE_LINK)
            | flag(cell.generation == 1, CELL_GENERATION)
            | flag(*cell.rare() != *Cell::default().rare(), RARE);
        let bytes = &mut self.bytes;
        bytes.extend([CELL, flags]);
        put_difference(bytes, cell.serial, before.serial);
        let mut put_unless = |flag: u8, numbers: &[u64]| {
            if flags & flag == 0 {
                numbers.iter().for_each(|&number| put_varint(bytes, number));
            }
        };
        put_unless(CELL_GENERATION, &[cell.generation.into()]);
        put_unless(ONE_LINK, &[cell.links.into()]);
        let (kind, uid, gid, tree) = owner(cell);
        put_unless(
            SAME_OWNER,
            &[kind.into(), uid.into(), gid.into(), tree.into()],
        );
        put_unless(EMPTY, &[cell.size_bytes, cell.used_or_device]);
        let changed = cell.changed;
        put_unless(0, &[time_difference(changed, before.changed)]);
        let times = [cell.accessed, cell.modified].map(|time| time_difference(time, changed));
        put_unless(SAME_TIMES, &times);
        if flags & RARE != 0 {
            let rare = cell.rare();
            let numbers = [
                rare.truncate_generation,
                rare.columns.into(),
                rare.segments.into(),
                rare.layout.0.into(),
                rare.layout_epoch.into(),
                rare.snapshot_birth,
                rare.snapshot_death,
            ];
            put_unless(0, &numbers);
        }
        self.before.cell = cell.clone();
    }

    fn put_entry(&mut self, parent: u64, name: &[u8], child: FileRef, cookie: u64) {
        let [lowest, ..] = parent.to_le_bytes();
        let mut flags = lowest & PREDECESSOR;
        let before = &mut self.before.entries[usize::from(flags)];
        if parent == before.parent {
            flags |= SAME_PARENT;
        }
        if child.generation == 1 {
            flags |= ENTRY_GENERATION;
        }
        let bytes = &mut self.bytes;
        bytes.extend([ENTRY, flags]);
        if flags & SAME_PARENT == 0 {
            put_varint(bytes, parent);
        }
        put_difference(bytes, child.id.0, before.child);
        if flags & ENTRY_GENERATION == 0 {
            put_varint(bytes, child.generation.into());
        }
        put_difference(bytes, cookie, before.cookie);
        let both = before.name.iter().zip(name);
        let shared = both.take_while(|(old, new)| old == new).count();
        put_varint(bytes, shared as u64);
        put_varint(bytes, (name.len() - shared) as u64);
        bytes.extend_from_slice(&name[shared..]);
        (before.parent, before.child, before.cookie) = (parent, child.id.0, cookie);
        before.name.truncate(shared);
        before.name.extend_from_slice(&name[shared..]);
    }
}

impl Directory {
    /// Takes what a piece holds.
    ///
    /// # Errors
    /// The piece is damaged; what was before the damage is there.
    pub fn load(&mut self, mut piece: &[u8]) -> Result<(), DamagedPiece> {
        let bytes = &mut piece;
        let mut before = Before::default();
        while !bytes.is_empty() {
            self.load_record(bytes, &mut before).ok_or(DamagedPiece)?;
        }
        Ok(())
    }

    fn load_record(&mut self, bytes: &mut &[u8], before: &mut Before) -> Option<()> {
        match *bytes.first()? {
            CELL => {
                *bytes = &bytes[1..];
                let cell = get_cell(bytes, &before.cell)?;
                self.put_cell(&cell);
                before.cell = cell;
            }
            ENTRY => {
                *bytes = &bytes[1..];
                self.load_entry(bytes, before)?;
            }
            SIZES => {
                *bytes = &bytes[1..];
                let (cells, entries): (usize, usize) = (get(bytes)?, get(bytes)?);
                self.expect(cells.min(EXPECTED_MAX), entries.min(EXPECTED_MAX));
            }
            _ => self.apply(&Mutation::decode(bytes)?),
        }
        Some(())
    }

    fn load_entry(&mut self, bytes: &mut &[u8], before: &mut Before) -> Option<()> {
        let flags: u8 = get_byte(bytes)?;
        let before = &mut before.entries[usize::from(flags & PREDECESSOR)];
        if flags & SAME_PARENT == 0 {
            before.parent = get_varint(bytes)?;
        }
        if !(1..1 << 48).contains(&before.parent) {
            return None;
        }
        before.child = get_difference(bytes, before.child)?;
        let generation = match flags & ENTRY_GENERATION {
            0 => get(bytes)?,
            _ => 1,
        };
        before.cookie = get_difference(bytes, before.cookie)?;
        let (shared, more): (usize, usize) = (get(bytes)?, get(bytes)?);
        if shared > before.name.len() || more > NAME_BYTES_MAX - shared {
            return None;
        }
        let (rest, behind) = bytes.split_at_checked(more)?;
        *bytes = behind;
        before.name.truncate(shared);
        before.name.extend_from_slice(rest);
        let child = FileRef {
            id: FileId(before.child),
            generation,
        };
        self.put_entry(before.parent, &before.name, child, before.cookie);
        Some(())
    }
}

fn get_cell(bytes: &mut &[u8], before: &Cell) -> Option<Cell> {
    let flags = get_byte(bytes)?;
    let is = |flag: u8| flags & flag != 0;
    let mut cell = Cell {
        serial: get_difference(bytes, before.serial)?,
        generation: if is(CELL_GENERATION) { 1 } else { get(bytes)? },
        links: if is(ONE_LINK) { 1 } else { get(bytes)? },
        kind_and_mode: before.kind_and_mode,
        uid: before.uid,
        gid: before.gid,
        quota_tree: before.quota_tree,
        ..Cell::default()
    };
    if !is(SAME_OWNER) {
        cell.kind_and_mode = get(bytes)?;
        (cell.uid, cell.gid) = (get(bytes)?, get(bytes)?);
        cell.quota_tree = get(bytes)?;
    }
    if !is(EMPTY) {
        (cell.size_bytes, cell.used_or_device) = (get_varint(bytes)?, get_varint(bytes)?);
    }
    cell.changed = get_later(bytes, before.changed)?;
    (cell.accessed, cell.modified) = (cell.changed, cell.changed);
    if !is(SAME_TIMES) {
        cell.accessed = get_later(bytes, cell.changed)?;
        cell.modified = get_later(bytes, cell.changed)?;
    }
    if is(RARE) {
        cell.set_rare(Rare {
            truncate_generation: get_varint(bytes)?,
            columns: get(bytes)?,
            segments: get(bytes)?,
            layout: LayoutClass(get(bytes)?),
            layout_epoch: get(bytes)?,
            snapshot_birth: get_varint(bytes)?,
            snapshot_death: get_varint(bytes)?,
        });
    }
    cell.checked()
}

/// `number` − `before`, modulo 2^64, in few bytes if it is small.
fn put_difference(bytes: &mut Vec<u8>, number: u64, before: u64) {
    let difference = number.wrapping_sub(before).cast_signed();
    put_varint(bytes, zigzag(WallTime(difference)));
}

fn get_difference(bytes: &mut &[u8], before: u64) -> Option<u64> {
    let difference = get_time(bytes)?;
    Some(before.wrapping_add(difference.0.cast_unsigned()))
}

const fn time_difference(time: WallTime, before: WallTime) -> u64 {
    zigzag(WallTime(time.0.wrapping_sub(before.0)))
}

fn get_later(bytes: &mut &[u8], before: WallTime) -> Option<WallTime> {
    let difference = get_time(bytes)?;
    Some(WallTime(before.0.wrapping_add(difference.0)))
}
