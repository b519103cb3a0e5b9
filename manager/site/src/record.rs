//! Log records: everything that one operation changes, in one piece.
//!
//! | part | what (varints; byte strings carry their length) |
//! |---|---|
//! | format | 1 byte, 1 |
//! | wall | zigzag: the clock when it was done |
//! | duplicate | 1 byte; 1: 16 bytes of key and a [`Shape`] follow |
//! | changes | until the end: tag and body |
//!
//! | tag | body |
//! |---|---|
//! | 1 | change of the directory ([`Mutation`]) |
//! | 2 | intention that is declared ([`Intention`]) |
//! | 3 | number of an intention that is done |
//! | 4 | record of the small files |
//! | 5 | chunk of the small files (checkpoints only) |
//! | 6 | key, wall, intention + 1 or 0, reply: a remembered reply (checkpoints only) |
//! | 7 | no intention below this number is declared (checkpoints only) |
//! | 8 | piece of the directory (checkpoints only), see [`PieceWriter`](crossdock_directory::PieceWriter) |
//! | 9 | what is kept for operations of other sites ([`Promise`]) |
//! | 10 | number (1 byte) and secret (32 bytes) of the key for proofs; of the root's site only |
//! | 11 | the same of the key for handles |
//! | 20 | change of the locks ([`LockChange`]) |

use bytes::Bytes;
use crossdock_directory::Mutation;
use crossdock_locks::LockChange;
use crossdock_log::{get_byte, get_varint, put_varint};
use crossdock_names::{HandleKey, ProofKey};
use crossdock_peer::DuplicateKey;
use crossdock_types::WallTime;

use crate::coordinator::Decision;
use crate::duplicates::Remembered;
use crate::intentions::{Intention, Kind};
use crate::promises::Promise;
use crate::replies::Shape;

const FORMAT: u8 = 1;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) wall: WallTime,
    pub(crate) duplicate: Option<(DuplicateKey, Shape)>,
    pub(crate) changes: Vec<Change>,
}

/// One change of the site's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Directory(Mutation),
    Declare(Intention),
    Done(u64),
    Small(Bytes),
    SmallChunk(Bytes),
    Remembered(DuplicateKey, Remembered),
    NextIntention(u64),
    Piece(Bytes),
    Lock(LockChange),
    Promise(Promise),
    ProofKey(ProofKey),
    HandleKey(HandleKey),
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        put_wall(&mut bytes, self.wall);
        match &self.duplicate {
            None => bytes.push(0),
            Some((key, shape)) => {
                bytes.push(1);
                bytes.extend_from_slice(&key.0);
                shape.encode(&mut bytes);
            }
        }
        for change in &self.changes {
            change.encode(&mut bytes);
        }
        bytes
    }

    /// Takes a whole record; `None` if it is none of this format.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        if get_byte(bytes)? != FORMAT {
            return None;
        }
        let wall = get_wall(bytes)?;
        let duplicate = match get_byte(bytes)? {
            0 => None,
            1 => Some((get_key(bytes)?, Shape::decode(bytes)?)),
            _ => return None,
        };
        let mut changes = Vec::new();
        while !bytes.is_empty() {
            changes.push(Change::decode(bytes)?);
        }
        Some(Self {
            wall,
            duplicate,
            changes,
        })
    }

    /// What it decides of other sites' files.
    pub(crate) fn decision(&self) -> Option<&Decision> {
        self.changes.iter().find_map(|change| match change {
            Change::Declare(Intention {
                kind: Kind::Finish(decision),
                ..
            }) => Some(decision.as_ref()),
            _ => None,
        })
    }

    /// The intention for whose end the operation's reply waits.
    pub(crate) fn awaited_intention(&self) -> Option<u64> {
        self.changes.iter().find_map(|change| match change {
            Change::Declare(intention) if intention.is_awaited() => Some(intention.id),
            _ => None,
        })
    }
}

impl Change {
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Directory(mutation) => {
                bytes.push(1);
                mutation.encode(bytes);
            }
            Self::Declare(intention) => {
                bytes.push(2);
                intention.encode(bytes);
            }
            Self::Done(id) => {
                bytes.push(3);
                put_varint(bytes, *id);
            }
            Self::Small(record) => {
                bytes.push(4);
                put_bytes(bytes, record);
            }
            Self::SmallChunk(chunk) => {
                bytes.push(5);
                put_bytes(bytes, chunk);
            }
            Self::Remembered(key, remembered) => {
                bytes.push(6);
                bytes.extend_from_slice(&key.0);
                put_wall(bytes, remembered.wall);
                put_varint(bytes, remembered.intention.map_or(0, |id| id + 1));
                put_bytes(bytes, &remembered.reply);
            }
            Self::NextIntention(id) => {
                bytes.push(7);
                put_varint(bytes, *id);
            }
            Self::Piece(piece) => {
                bytes.push(8);
                put_bytes(bytes, piece);
            }
            Self::Promise(promise) => {
                bytes.push(9);
                promise.encode(bytes);
            }
            Self::ProofKey(key) => {
                bytes.extend_from_slice(&[10, key.id]);
                bytes.extend_from_slice(&key.key);
            }
            Self::HandleKey(key) => {
                bytes.extend_from_slice(&[11, key.id]);
                bytes.extend_from_slice(&key.key);
            }
            Self::Lock(change) => {
                bytes.push(20);
                change.encode(bytes);
            }
        }
    }

    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(match get_byte(bytes)? {
            1 => Self::Directory(Mutation::decode(bytes)?),
            2 => Self::Declare(Intention::decode(bytes)?),
            3 => Self::Done(get_varint(bytes)?),
            4 => Self::Small(get_bytes(bytes)?),
            5 => Self::SmallChunk(get_bytes(bytes)?),
            6 => Self::Remembered(
                get_key(bytes)?,
                Remembered {
                    wall: get_wall(bytes)?,
                    intention: get_varint(bytes)?.checked_sub(1),
                    reply: get_bytes(bytes)?.as_ref().into(),
                },
            ),
            7 => Self::NextIntention(get_varint(bytes)?),
            8 => Self::Piece(get_bytes(bytes)?),
            9 => Self::Promise(Promise::decode(bytes)?),
            10 => {
                let (id, key) = get_secret(bytes)?;
                Self::ProofKey(ProofKey { id, key })
            }
            11 => {
                let (id, key) = get_secret(bytes)?;
                Self::HandleKey(HandleKey { id, key })
            }
            20 => Self::Lock(LockChange::decode(bytes)?),
            _ => return None,
        })
    }
}

pub(crate) fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

pub(crate) fn put_wall(bytes: &mut Vec<u8>, wall: WallTime) {
    put_varint(bytes, ((wall.0 << 1) ^ (wall.0 >> 63)).cast_unsigned());
}

pub(crate) fn get_number<T: TryFrom<u64>>(bytes: &mut &[u8]) -> Option<T> {
    T::try_from(get_varint(bytes)?).ok()
}

pub(crate) fn get_bytes(bytes: &mut &[u8]) -> Option<Bytes> {
    let length = get_number(bytes)?;
    let (value, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(Bytes::copy_from_slice(value))
}

pub(crate) fn get_wall(bytes: &mut &[u8]) -> Option<WallTime> {
    let number = get_varint(bytes)?;
    Some(WallTime(
        (number >> 1).cast_signed() ^ -(number & 1).cast_signed(),
    ))
}

fn get_secret(bytes: &mut &[u8]) -> Option<(u8, [u8; 32])> {
    let id = get_byte(bytes)?;
    let (key, rest) = bytes.split_first_chunk::<32>()?;
    *bytes = rest;
    Some((id, *key))
}

fn get_key(bytes: &mut &[u8]) -> Option<DuplicateKey> {
    let (key, rest) = bytes.split_first_chunk::<16>()?;
    *bytes = rest;
    Some(DuplicateKey(*key))
}
