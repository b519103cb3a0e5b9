//! What the site logs of locks.
//!
//! | tag | body (varints; byte strings carry their length) |
//! |---|---|
//! | 1 | file, owner, first, last, mode (0 free, 1 shared, 2 exclusive), state, 1 if monitored: the owner's right to these bytes |
//! | 2 | file, owner, access + 1 or 0, deny, state, 1 if monitored: the owner's share reservation, if any |
//! | 3 | client, 0: forget all of the client; or client, 1, state: all of another state |
//!
//! An owner is client, process, handle; a client is name and address (4 or 16
//! bytes).

use std::net::IpAddr;

use bytes::Bytes;
use crossdock_log::{get_byte, get_varint, put_varint};
use crossdock_peer::{ForgetWhat, LockClient, LockOwner, LockRange, ShareTerms};

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockChange {
    /// The owner has these bytes, exclusively or not, or has them no more.
    Range {
        /// Serial of the file.
        file: u64,
        /// Whose.
        owner: LockOwner,
        /// Which bytes.
        range: LockRange,
        /// `Some(true)` exclusive, `Some(false)` shared, `None` free.
        mode: Option<bool>,
        /// State number of the client's monitor.
        state: u32,
        /// Whether the client is told of a restart.
        is_monitored: bool,
    },
    /// The owner has this reservation, or none.
    Share {
        /// Serial of the file.
        file: u64,
        /// Whose.
        owner: LockOwner,
        /// Which.
        terms: Option<ShareTerms>,
        /// State number of the client's monitor.
        state: u32,
        /// Whether the client is told of a restart.
        is_monitored: bool,
    },
    /// The client has restarted.
    Forget {
        /// Which.
        client: LockClient,
        /// What goes.
        what: ForgetWhat,
    },
}

impl LockChange {
    /// The file that it is about, if it is one.
    #[must_use]
    pub const fn file(&self) -> Option<u64> {
        match self {
            Self::Range { file, .. } | Self::Share { file, .. } => Some(*file),
            Self::Forget { .. } => None,
        }
    }

    /// Appends the encoded change.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Range {
                file,
                owner,
                range,
                mode,
                state,
                is_monitored,
            } => {
                bytes.push(1);
                put_varint(bytes, *file);
                put_owner(bytes, owner);
                put_varint(bytes, range.first);
                put_varint(bytes, range.last);
                bytes.push(mode.map_or(0, |is_exclusive| 1 + u8::from(is_exclusive)));
                put_varint(bytes, (*state).into());
                bytes.push((*is_monitored).into());
            }
            Self::Share {
                file,
                owner,
                terms,
                state,
                is_monitored,
            } => {
                bytes.push(2);
                put_varint(bytes, *file);
                put_owner(bytes, owner);
                bytes.push(terms.map_or(0, |terms| terms.access + 1));
                bytes.push(terms.map_or(0, |terms| terms.deny));
                put_varint(bytes, (*state).into());
                bytes.push((*is_monitored).into());
            }
            Self::Forget { client, what } => {
                bytes.push(3);
                put_client(bytes, client);
                match what {
                    ForgetWhat::Everything => bytes.push(0),
                    ForgetWhat::BeforeState(state) => {
                        bytes.push(1);
                        put_varint(bytes, (*state).into());
                    }
                }
            }
        }
    }

    /// Takes one from the front of `bytes`; `None` if there is none.
    pub fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(match get_byte(bytes)? {
            1 => Self::Range {
                file: get_varint(bytes)?,
                owner: get_owner(bytes)?,
                range: get_range(bytes)?,
                mode: match get_byte(bytes)? {
                    0 => None,
                    1 => Some(false),
                    2 => Some(true),
                    _ => return None,
                },
                state: get_u32(bytes)?,
                is_monitored: get_flag(bytes)?,
            },
            2 => Self::Share {
                file: get_varint(bytes)?,
                owner: get_owner(bytes)?,
                terms: {
                    let (access, deny) = (get_byte(bytes)?, get_byte(bytes)?);
                    if access > 4 || deny > 3 {
                        return None;
                    }
                    let terms = access.checked_sub(1);
                    terms.map(|access| ShareTerms { access, deny })
                },
                state: get_u32(bytes)?,
                is_monitored: get_flag(bytes)?,
            },
            3 => Self::Forget {
                client: get_client(bytes)?,
                what: match get_byte(bytes)? {
                    0 => ForgetWhat::Everything,
                    1 => ForgetWhat::BeforeState(get_u32(bytes)?),
                    _ => return None,
                },
            },
            _ => return None,
        })
    }
}

fn put_owner(bytes: &mut Vec<u8>, owner: &LockOwner) {
    put_client(bytes, &owner.client);
    put_varint(bytes, owner.process.into());
    put_bytes(bytes, &owner.handle);
}

fn get_owner(bytes: &mut &[u8]) -> Option<LockOwner> {
    Some(LockOwner {
        client: get_client(bytes)?,
        process: get_u32(bytes)?,
        handle: get_bytes(bytes)?,
    })
}

fn put_client(bytes: &mut Vec<u8>, client: &LockClient) {
    put_bytes(bytes, &client.name);
    match client.address {
        IpAddr::V4(address) => put_bytes(bytes, &address.octets()),
        IpAddr::V6(address) => put_bytes(bytes, &address.octets()),
    }
}

fn get_client(bytes: &mut &[u8]) -> Option<LockClient> {
    let name = get_bytes(bytes)?;
    let address = get_bytes(bytes)?;
    let address = match <[u8; 4]>::try_from(&address[..]) {
        Ok(octets) => IpAddr::from(octets),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(&address[..]).ok()?),
    };
    Some(LockClient { name, address })
}

fn get_range(bytes: &mut &[u8]) -> Option<LockRange> {
    let (first, last) = (get_varint(bytes)?, get_varint(bytes)?);
    (first <= last).then_some(LockRange { first, last })
}

fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

fn get_bytes(bytes: &mut &[u8]) -> Option<Bytes> {
    let length = usize::try_from(get_varint(bytes)?).ok()?;
    let (value, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(Bytes::copy_from_slice(value))
}

fn get_flag(bytes: &mut &[u8]) -> Option<bool> {
    match get_byte(bytes)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn get_u32(bytes: &mut &[u8]) -> Option<u32> {
    u32::try_from(get_varint(bytes)?).ok()
}
