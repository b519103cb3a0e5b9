//! Physical changes: the only way in which a directory's state changes, live
//! and on replay.
//!
//! Every one sets an absolute value, so applying it twice, or to a state that
//! already contains later ones, does no harm once all later ones follow: a
//! checkpoint can be taken while the site works.
//!
//! | tag | what follows (varints; byte strings carry their length) |
//! |---|---|
//! | 1 | cell ([`Cell`]) |
//! | 2 | serial |
//! | 3 | parent serial, name, child id, child generation, cookie |
//! | 4 | parent serial, name |
//! | 5 | serial, parent id, parent generation, next cookie |
//! | 6 | serial, text |
//! | 7 | next serial |
//! | 44 | site, number |
//! | 45 | serial, window, columns (a byte each) |
//! | 46 | serial, blocks |

use bytes::Bytes;
use crossdock_limits::PATH_BYTES_MAX;
use crossdock_log::{get_byte, get_varint, put_varint};
use crossdock_names::{FileId, FileRef, SiteId};
use crossdock_peer::QuotaLimits;

use crate::cell::{Cell, get};

/// One physical change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The cell is this.
    PutCell(Cell),
    /// The cell is gone, with link text and directory listing.
    RemoveCell {
        /// Which.
        serial: u64,
    },
    /// The directory has this entry.
    PutEntry {
        /// Serial of the directory.
        parent: u64,
        /// The name.
        name: Bytes,
        /// The file and where its cell is.
        child: FileRef,
        /// Its readdir cookie.
        cookie: u64,
    },
    /// The directory has no such entry.
    RemoveEntry {
        /// Serial of the directory.
        parent: u64,
        /// The name.
        name: Bytes,
    },
    /// What a directory has beside its cell and entries.
    PutDirectory {
        /// Serial of the directory.
        serial: u64,
        /// Its parent.
        parent: FileRef,
        /// Counter part of the next entry's cookie; it never goes back.
        next_cookie: u64,
    },
    /// Text of a symbolic link.
    PutLink {
        /// Serial of the link.
        serial: u64,
        /// The text.
        target: Bytes,
    },
    /// No serial below this is given out (again).
    NextSerial {
        /// The next one.
        serial: u64,
    },
    /// A tree with a quota.
    PutTree {
        /// Its number.
        tree: u32,
        /// Serial of the directory where it begins.
        root: u64,
        /// What it may hold.
        limits: QuotaLimits,
    },
    /// The tree has no quota any more; its cells keep the number, which then
    /// means nothing.
    RemoveTree {
        /// Its number.
        tree: u32,
    },
    /// These cells belong to the tree, as far as they are there.
    TagCells {
        /// Its number.
        tree: u32,
        /// Of the cells, ascending.
        serials: Vec<u64>,
    },
    /// No tree number below this is given out (again).
    NextTree {
        /// The next one.
        tree: u32,
    },
    /// That window of a file's block map is this.
    PutMap {
        /// Serial of the file.
        serial: u64,
        /// Which window.
        window: u64,
        /// Of each block its column, or [`UNMAPPED`](crossdock_names::UNMAPPED), as
        /// those behind the last one are.
        columns: Bytes,
    },
    /// Blocks of a file from that one on lie nowhere.
    CutMap {
        /// Serial of the file.
        serial: u64,
        /// The first of them.
        blocks: u64,
    },
    /// No directory that a site numbered below this is adopted (again).
    Settled {
        /// The site that numbered it.
        origin: SiteId,
        /// The first number that may still come.
        below: u64,
    },
}

impl Mutation {
    /// Serial of the file or directory whose state it changes.
    #[must_use]
    pub const fn serial(&self) -> Option<u64> {
        match self {
            Self::PutCell(cell) => Some(cell.serial),
            Self::RemoveCell { serial }
            | Self::PutDirectory { serial, .. }
            | Self::PutLink { serial, .. }
            | Self::PutMap { serial, .. }
            | Self::CutMap { serial, .. } => Some(*serial),
            Self::PutEntry { parent, .. } | Self::RemoveEntry { parent, .. } => Some(*parent),
            // What belongs to which tree is not shown to anybody.
            Self::NextSerial { .. }
            | Self::PutTree { .. }
            | Self::RemoveTree { .. }
            | Self::TagCells { .. }
            | Self::NextTree { .. }
            | Self::Settled { .. } => None,
        }
    }

    /// Appends the encoded change.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::PutCell(cell) => {
                bytes.push(1);
                cell.encode(bytes);
            }
            Self::RemoveCell { serial } => {
                bytes.push(2);
                put_varint(bytes, *serial);
            }
            Self::PutEntry {
                parent,
                name,
                child,
                cookie,
            } => {
                bytes.push(3);
                put_varint(bytes, *parent);
                put_bytes(bytes, name);
                put_file(bytes, child);
                put_varint(bytes, *cookie);
            }
            Self::RemoveEntry { parent, name } => {
                bytes.push(4);
                put_varint(bytes, *parent);
                put_bytes(bytes, name);
            }
            Self::PutDirectory {
                serial,
                parent,
                next_cookie,
            } => {
                bytes.push(5);
                put_varint(bytes, *serial);
                put_file(bytes, parent);
                put_varint(bytes, *next_cookie);
            }
            Self::PutLink { serial, target } => {
                bytes.push(6);
                put_varint(bytes, *serial);
                put_bytes(bytes, target);
            }
            Self::NextSerial { serial } => {
                bytes.push(7);
                put_varint(bytes, *serial);
            }
            Self::PutTree { tree, root, limits } => {
                bytes.push(40);
                put_varint(bytes, (*tree).into());
                put_varint(bytes, *root);
                put_limit(bytes, limits.bytes);
                put_limit(bytes, limits.files);
            }
            Self::RemoveTree { tree } => {
                bytes.push(41);
                put_varint(bytes, (*tree).into());
            }
            Self::TagCells { tree, serials } => {
                bytes.push(42);
                put_varint(bytes, (*tree).into());
                put_serials(bytes, serials);
            }
            Self::NextTree { tree } => {
                bytes.push(43);
                put_varint(bytes, (*tree).into());
            }
            Self::PutMap {
                serial,
                window,
                columns,
            } => {
                bytes.push(45);
                put_varint(bytes, *serial);
                put_varint(bytes, *window);
                put_bytes(bytes, columns);
            }
            Self::CutMap { serial, blocks } => {
                bytes.push(46);
                put_varint(bytes, *serial);
                put_varint(bytes, *blocks);
            }
            Self::Settled { origin, below } => {
                bytes.push(44);
                put_varint(bytes, origin.0.into());
                put_varint(bytes, *below);
            }
        }
    }

    /// Takes a change from the front of `bytes`; `None` if it is none.
    pub fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let tag = get_byte(bytes)?;
        Some(match tag {
            1 => Self::PutCell(Cell::decode(bytes)?),
            2 => Self::RemoveCell {
                serial: get_serial(bytes)?,
            },
            3 => Self::PutEntry {
                parent: get_serial(bytes)?,
                name: get_bytes(bytes)?,
                child: get_file(bytes)?,
                cookie: get_varint(bytes)?,
            },
            4 => Self::RemoveEntry {
                parent: get_serial(bytes)?,
                name: get_bytes(bytes)?,
            },
            5 => Self::PutDirectory {
                serial: get_serial(bytes)?,
                parent: get_file(bytes)?,
                next_cookie: get_varint(bytes)?,
            },
            6 => Self::PutLink {
                serial: get_serial(bytes)?,
                target: get_bytes(bytes)?,
            },
            7 => Self::NextSerial {
                serial: get_serial(bytes)?,
            },
            40 => Self::PutTree {
                tree: get(bytes)?,
                root: get_serial(bytes)?,
                limits: QuotaLimits {
                    bytes: get_limit(bytes)?,
                    files: get_limit(bytes)?,
                },
            },
            41 => Self::RemoveTree { tree: get(bytes)? },
            42 => Self::TagCells {
                tree: get(bytes)?,
                serials: get_serials(bytes)?,
            },
            43 => Self::NextTree { tree: get(bytes)? },
            45 => Self::PutMap {
                serial: get_serial(bytes)?,
                window: get_varint(bytes)?,
                columns: get_bytes(bytes)?,
            },
            46 => Self::CutMap {
                serial: get_serial(bytes)?,
                blocks: get_varint(bytes)?,
            },
            44 => Self::Settled {
                origin: SiteId(get(bytes)?),
                below: get_varint(bytes)?,
            },
            _ => return None,
        })
    }
}

fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

pub(crate) fn put_file(bytes: &mut Vec<u8>, file: &FileRef) {
    put_varint(bytes, file.id.0);
    put_varint(bytes, file.generation.into());
}

/// A limit: 0 = none, 1 = one, which follows.
fn put_limit(bytes: &mut Vec<u8>, limit: Option<u64>) {
    bytes.push(limit.is_some().into());
    if let Some(limit) = limit {
        put_varint(bytes, limit);
    }
}

fn get_limit(bytes: &mut &[u8]) -> Option<Option<u64>> {
    match get_byte(bytes)? {
        0 => Some(None),
        1 => get_varint(bytes).map(Some),
        _ => None,
    }
}

/// How many, then of each how far it lies above the one before.
fn put_serials(bytes: &mut Vec<u8>, serials: &[u64]) {
    put_varint(bytes, serials.len() as u64);
    let mut before = 0;
    for &serial in serials {
        put_varint(bytes, serial - before);
        before = serial;
    }
}

fn get_serials(bytes: &mut &[u8]) -> Option<Vec<u64>> {
    let count: usize = get(bytes)?;
    let mut serials = Vec::with_capacity(count.min(bytes.len()));
    let mut serial = 0u64;
    for _ in 0..count {
        serial = serial.checked_add(get_serial(bytes)?)?;
        serials.push(serial);
    }
    (serial < 1 << 48).then_some(serials)
}

fn get_serial(bytes: &mut &[u8]) -> Option<u64> {
    get_varint(bytes).filter(|serial| (1..1 << 48).contains(serial))
}

pub(crate) fn get_file(bytes: &mut &[u8]) -> Option<FileRef> {
    Some(FileRef {
        id: FileId(get_varint(bytes)?),
        generation: get(bytes)?,
    })
}

fn get_bytes(bytes: &mut &[u8]) -> Option<Bytes> {
    let length: usize = get(bytes)?;
    if length > PATH_BYTES_MAX {
        return None;
    }
    let (value, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(Bytes::copy_from_slice(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn survives(mutation: &Mutation) {
        let mut bytes = Vec::new();
        mutation.encode(&mut bytes);
        let mut rest = bytes.as_slice();
        assert_eq!(Mutation::decode(&mut rest).as_ref(), Some(mutation));
        assert!(rest.is_empty());
        for cut in 0..bytes.len() {
            assert_eq!(Mutation::decode(&mut &bytes[..cut]), None, "cut at {cut}");
        }
    }

    /// Goal: every kind of change comes back, and a cut one is none.
    #[test]
    fn changes_survive_the_log() {
        let child = FileRef {
            id: FileId(77),
            generation: 3,
        };
        survives(&Mutation::PutCell(Cell {
            serial: 5,
            kind_and_mode: Cell::pack_kind(crossdock_peer::FileKind::Fifo, 0o1755),
            size_bytes: u64::MAX,
            accessed: crossdock_types::WallTime(-5),
            changed: crossdock_types::WallTime(i64::MIN),
            ..Cell::default()
        }));
        survives(&Mutation::RemoveCell { serial: 9 });
        survives(&Mutation::PutEntry {
            parent: 1,
            name: Bytes::from_static(b"\xff name"),
            child,
            cookie: 3,
        });
        survives(&Mutation::RemoveEntry {
            parent: 1,
            name: Bytes::from_static(b"x"),
        });
        survives(&Mutation::PutDirectory {
            serial: 2,
            parent: child,
            next_cookie: 8,
        });
        survives(&Mutation::PutLink {
            serial: 2,
            target: Bytes::from_static(b"../x"),
        });
        survives(&Mutation::NextSerial { serial: 12 });
        for limits in [
            QuotaLimits::default(),
            QuotaLimits {
                bytes: Some(u64::MAX),
                files: Some(0),
            },
        ] {
            survives(&Mutation::PutTree {
                tree: 3,
                root: 9,
                limits,
            });
        }
        survives(&Mutation::RemoveTree { tree: u32::MAX });
        survives(&Mutation::NextTree { tree: 4 });
        survives(&Mutation::PutMap {
            serial: 3,
            window: 1 << 20,
            columns: Bytes::from_static(&[0, 255, 3]),
        });
        survives(&Mutation::CutMap {
            serial: 3,
            blocks: 1 << 26,
        });
        for serials in [vec![], vec![1], vec![7, 8, 1 << 40]] {
            survives(&Mutation::TagCells { tree: 3, serials });
        }
    }

    proptest! {
        /// Goal: no bytes make the decoder panic.
        #[test]
        fn random_bytes_do_no_harm(bytes: Vec<u8>) {
            Mutation::decode(&mut bytes.as_slice());
        }
    }
}
