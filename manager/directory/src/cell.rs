//! Attribute cells: everything that is known of a file but its names.

use crossdock_log::{get_byte, get_varint, put_varint};
use crossdock_names::{FileId, FileRef, LayoutClass, SiteId};
use crossdock_peer::{Attributes, BeforeAttributes, Device, FileKind, Rights};
use crossdock_types::WallTime;

use crate::slab::Record;

/// Format of an encoded cell.
const FORMAT: u8 = 1;

/// The attributes of one file.
///
/// Encoded: format (1 byte), then serial to ctime as varints in the order of the
/// fields here, times as zigzag varints; then truncate generation, columns,
/// segments, quota tree, layout, layout epoch, snapshot birth and death.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Number of the file within its site; 0 = vacant.
    pub serial: u64,
    /// Which of the files that had this number.
    pub generation: u32,
    /// Kind in the upper 4 bits, 12 permission bits below.
    pub kind_and_mode: u16,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes on disk; of special files instead major << 32 | minor.
    pub used_or_device: u64,
    /// Last read.
    pub accessed: WallTime,
    /// Last change of content.
    pub modified: WallTime,
    /// Last change of attributes.
    pub changed: WallTime,
    /// Quota tree; a rename never leaves it.
    pub quota_tree: u32,
    /// See [`Cell::rare`], [`Cell::change_rare`]; never there with nothing in it.
    pub rare: Option<Box<Rare>>,
}

/// What is known of a file that is large or was cut: it would make the cells of
/// all others half as large again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rare {
    /// Raised by every truncate (CONSISTENCY 5).
    pub truncate_generation: u64,
    /// Columns per segment; 0 = nothing was ever written beyond the threshold.
    pub columns: u16,
    /// How many segments have had columns made.
    pub segments: u32,
    /// Layout class.
    pub layout: LayoutClass,
    /// Raised when the class changes.
    pub layout_epoch: u32,
    /// Snapshot sequence at birth.
    pub snapshot_birth: u64,
    /// Snapshot sequence at death; 0 = alive.
    pub snapshot_death: u64,
}

/// Of a file that has nothing of it.
static NOTHING: Rare = Rare {
    truncate_generation: 0,
    columns: 0,
    segments: 0,
    layout: LayoutClass::STRIPED,
    layout_epoch: 0,
    snapshot_birth: 0,
    snapshot_death: 0,
};

impl Rare {
    /// Whether a map says where the file's blocks lie.
    #[must_use]
    pub const fn has_map(&self) -> bool {
        self.layout.map_block_bytes().is_some()
    }
}

impl Record for Cell {
    fn is_vacant(&self) -> bool {
        self.serial == 0
    }
}

impl Cell {
    /// What most files do not have.
    #[must_use]
    pub fn rare(&self) -> &Rare {
        self.rare.as_deref().unwrap_or(&NOTHING)
    }

    /// Changes what most files do not have.
    pub fn change_rare(&mut self, change: impl FnOnce(&mut Rare)) {
        let mut rare = self.rare().clone();
        change(&mut rare);
        self.set_rare(rare);
    }

    pub(crate) fn set_rare(&mut self, rare: Rare) {
        self.rare = (rare != NOTHING).then(|| Box::new(rare));
    }

    /// Bytes that it takes beside its own.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.rare.as_ref().map_or(0, |_| size_of::<Rare>())
    }

    /// The file's type.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        match FileKind::from_number((self.kind_and_mode >> 12) as u8) {
            Some(kind) => kind,
            None => FileKind::Regular, // Never: decoding and making check it.
        }
    }

    /// The 12 permission bits.
    #[must_use]
    pub const fn mode(&self) -> u32 {
        (self.kind_and_mode & 0o7777) as u32
    }

    /// Sets the permission bits.
    pub const fn set_mode(&mut self, mode: u32) {
        self.kind_and_mode = self.kind_and_mode & 0xf000 | (mode & 0o7777) as u16;
    }

    /// Whose it is, and who may do what.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        Rights {
            uid: self.uid,
            gid: self.gid,
            mode: self.mode(),
        }
    }

    pub(crate) const fn set_rights(&mut self, rights: Rights) {
        (self.uid, self.gid) = (rights.uid, rights.gid);
        self.set_mode(rights.mode);
    }

    /// An empty directory that is made now.
    pub(crate) fn of_directory(directory: FileRef, rights: Rights, wall: WallTime) -> Self {
        Self {
            serial: directory.id.serial(),
            generation: directory.generation,
            kind_and_mode: Self::pack_kind(FileKind::Directory, rights.mode),
            links: 2,
            uid: rights.uid,
            gid: rights.gid,
            size_bytes: crate::create::DIRECTORY_BYTES,
            used_or_device: crate::create::DIRECTORY_BYTES,
            accessed: wall,
            modified: wall,
            changed: wall,
            ..Self::default()
        }
    }

    /// Kind and mode in one number.
    #[must_use]
    pub const fn pack_kind(kind: FileKind, mode: u32) -> u16 {
        (kind as u16) << 12 | (mode & 0o7777) as u16
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.kind() == FileKind::Regular
    }

    /// The file's name for requests.
    #[must_use]
    pub const fn file(&self, site: SiteId) -> FileRef {
        FileRef {
            id: FileId::new(site, self.serial),
            generation: self.generation,
        }
    }

    /// What a client sees.
    #[must_use]
    pub fn attributes(&self, site: SiteId) -> Attributes {
        let special = matches!(self.kind(), FileKind::Block | FileKind::Character);
        #[expect(clippy::cast_possible_truncation, reason = "two halves of a u64")]
        let device = Device {
            major: (self.used_or_device >> 32) as u32,
            minor: self.used_or_device as u32,
        };
        Attributes {
            file: self.file(site),
            kind: self.kind(),
            mode: self.mode(),
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size_bytes: self.size_bytes,
            used_bytes: if special { 0 } else { self.used_or_device },
            device: if special { device } else { Device::default() },
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
        }
    }

    /// What weak cache consistency data says of the time before an operation.
    #[must_use]
    pub const fn before(&self) -> BeforeAttributes {
        BeforeAttributes {
            size_bytes: self.size_bytes,
            modified: self.modified,
            changed: self.changed,
        }
    }

    /// The time of a change now: never at or before the last one, whatever the
    /// clock does, so that clients see every change.
    #[must_use]
    pub fn tick(&self, wall: WallTime) -> WallTime {
        wall.max(WallTime(self.changed.0.saturating_add(1)))
    }

    /// Marks a change of attributes.
    pub fn touch_changed(&mut self, wall: WallTime) {
        self.changed = self.tick(wall);
    }

    /// Marks a change of content.
    pub fn touch_modified(&mut self, wall: WallTime) {
        self.changed = self.tick(wall);
        self.modified = self.changed;
    }

    /// Appends the encoded cell.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let rare = self.rare();
        bytes.push(FORMAT);
        for number in [
            self.serial,
            self.generation.into(),
            self.kind_and_mode.into(),
            self.links.into(),
            self.uid.into(),
            self.gid.into(),
            self.size_bytes,
            self.used_or_device,
            zigzag(self.accessed),
            zigzag(self.modified),
            zigzag(self.changed),
            rare.truncate_generation,
            rare.columns.into(),
            rare.segments.into(),
            self.quota_tree.into(),
            rare.layout.0.into(),
            rare.layout_epoch.into(),
            rare.snapshot_birth,
            rare.snapshot_death,
        ] {
            put_varint(bytes, number);
        }
    }

    /// Takes a cell from the front of `bytes`; `None` if it is none.
    pub fn decode(bytes: &mut &[u8]) -> Option<Self> {
        if get_byte(bytes)? != FORMAT {
            return None;
        }
        let mut cell = Self {
            serial: get_varint(bytes)?,
            generation: get(bytes)?,
            kind_and_mode: get(bytes)?,
            links: get(bytes)?,
            uid: get(bytes)?,
            gid: get(bytes)?,
            size_bytes: get_varint(bytes)?,
            used_or_device: get_varint(bytes)?,
            accessed: get_time(bytes)?,
            modified: get_time(bytes)?,
            changed: get_time(bytes)?,
            ..Self::default()
        };
        let (truncate_generation, columns, segments) =
            (get_varint(bytes)?, get(bytes)?, get(bytes)?);
        cell.quota_tree = get(bytes)?;
        cell.set_rare(Rare {
            truncate_generation,
            columns,
            segments,
            layout: LayoutClass(get(bytes)?),
            layout_epoch: get(bytes)?,
            snapshot_birth: get_varint(bytes)?,
            snapshot_death: get_varint(bytes)?,
        });
        cell.checked()
    }

    /// Itself, if its numbers make sense.
    pub(crate) fn checked(self) -> Option<Self> {
        FileKind::from_number((self.kind_and_mode >> 12) as u8)?;
        (self.serial > 0 && self.serial < 1 << 48).then_some(self)
    }
}

/// Signed to unsigned, small magnitudes to small numbers.
pub(crate) const fn zigzag(time: WallTime) -> u64 {
    ((time.0 << 1) ^ (time.0 >> 63)) as u64
}

/// Takes a time that [`zigzag`] made.
pub(crate) fn get_time(bytes: &mut &[u8]) -> Option<WallTime> {
    let number = get_varint(bytes)?;
    Some(WallTime((number >> 1) as i64 ^ -((number & 1) as i64)))
}

/// Takes a number of a narrower type.
pub(crate) fn get<T: TryFrom<u64>>(bytes: &mut &[u8]) -> Option<T> {
    T::try_from(get_varint(bytes)?).ok()
}
