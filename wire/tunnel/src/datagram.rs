//! Datagrams: an envelope, records, and a proof that nobody else has made them.

use std::fmt;

use crossdock_checksum::{MAC_BYTES, equal_in_constant_time, mac};
use thiserror::Error;

use crate::packet::{Record, RecordError};

/// The longest datagram: with its own headers it fits into a packet of any network of 1500
/// bytes, and of one that has a tunnel of its own.
pub const DATAGRAM_BYTES_MAX: usize = 1400;

const MAGIC: [u8; 4] = *b"XDTU";
const FORMAT: u8 = 2;
const ENVELOPE_BYTES: usize = 40;

/// What is left for records.
pub const PACKET_ROOM_BYTES: usize = DATAGRAM_BYTES_MAX - ENVELOPE_BYTES - MAC_BYTES;

/// What a gateway and a node have in common.
#[derive(Clone, PartialEq, Eq)]
pub struct TunnelKey {
    /// The number that datagrams carry.
    pub id: u8,
    /// The secret.
    pub key: [u8; 32],
}

impl fmt::Debug for TunnelKey {
    /// Never shows the secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TunnelKey({})", self.id)
    }
}

/// Between whom a datagram is, and which one it is.
///
/// | offset | bytes | name | meaning (big-endian) |
/// |---|---|---|---|
/// | 0 | 4 | magic | "XDTU" |
/// | 4 | 1 | format | 2 |
/// | 5 | 1 | key id | which key made the MAC |
/// | 6 | 2 | – | zero |
/// | 8 | 8 | sender | the gateway |
/// | 16 | 8 | sender's boot | |
/// | 24 | 8 | receiver's boot | the node's, in which the pins were given |
/// | 32 | 8 | sequence | from 1, each once between these two boots |
/// | 40 | | records | see [`Record`] |
/// | at the end | 16 | MAC | keyed BLAKE3 of all before it, first 128 bits |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The gateway.
    pub sender: u64,
    /// Its boot: sequence numbers begin again in another one.
    pub sender_boot: u64,
    /// The node's boot: pins are unknown in any other.
    pub receiver_boot: u64,
    /// Which datagram of those between the two it is.
    pub sequence: u64,
}

/// Why a datagram is not taken.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TunnelError {
    /// Shorter than what every datagram has, or longer than any.
    #[error("{0} bytes are no datagram of a redirector")]
    Length(usize),
    /// Something else, or of a format that this build cannot read.
    #[error("no datagram of a redirector: begins with {0:02x?}")]
    Format([u8; 8]),
    /// Made with a key that the receiver does not have.
    #[error("gateway {sender} and this node have no key {key_id}")]
    Key {
        /// Who says to have sent it.
        sender: u64,
        /// The key's number.
        key_id: u8,
    },
    /// Not made by whoever has the key.
    #[error("a datagram in the name of gateway {sender} is forged or damaged")]
    Forged {
        /// In whose name.
        sender: u64,
    },
}

/// A datagram that is being filled.
#[derive(Debug)]
pub struct Seal {
    bytes: Vec<u8>,
    key: TunnelKey,
}

impl Seal {
    /// An empty one, to be sealed with `key`.
    #[must_use]
    pub fn new(envelope: &Envelope, key: &TunnelKey) -> Self {
        let mut bytes = Vec::with_capacity(DATAGRAM_BYTES_MAX);
        bytes.extend(MAGIC);
        bytes.extend([FORMAT, key.id, 0, 0]);
        let numbers = [
            envelope.sender,
            envelope.sender_boot,
            envelope.receiver_boot,
            envelope.sequence,
        ];
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        Self {
            bytes,
            key: key.clone(),
        }
    }

    /// Whether nothing was put in yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.len() == ENVELOPE_BYTES
    }

    /// Puts a record in; false if there is no room for it here.
    ///
    /// # Errors
    /// [`RecordError`]: it is none that could be sent.
    pub fn push(&mut self, record: &Record<'_>) -> Result<bool, RecordError> {
        let before = self.bytes.len();
        record.encode(&mut self.bytes)?;
        if self.bytes.len() > ENVELOPE_BYTES + PACKET_ROOM_BYTES {
            self.bytes.truncate(before);
            return Ok(false);
        }
        Ok(true)
    }

    /// The datagram.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let mac = mac(&self.key.key, &self.bytes);
        self.bytes.extend(mac);
        self.bytes
    }
}

/// A datagram that somebody who has the key has made. That it comes for the first time is
/// another question: [`crate::ReplayWindow`].
#[derive(Clone, Copy, Debug)]
pub struct Opened<'a> {
    /// Between whom, and which one.
    pub envelope: Envelope,
    records: &'a [u8],
}

impl<'a> Opened<'a> {
    /// Its records. After an error there are no more.
    #[must_use]
    pub const fn records(&self) -> Records<'a> {
        Records { rest: self.records }
    }
}

/// The records of a datagram, one after the other.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = Record::decode(&mut self.rest);
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

/// Opens a datagram. `key` tells what a gateway and this node have under a number.
///
/// # Errors
/// [`TunnelError`]: it is to be dropped and counted; nothing in it is true.
pub fn open<'a, 'k>(
    bytes: &'a [u8],
    key: impl FnOnce(u64, u8) -> Option<&'k TunnelKey>,
) -> Result<Opened<'a>, TunnelError> {
    if bytes.len() < ENVELOPE_BYTES + MAC_BYTES || bytes.len() > DATAGRAM_BYTES_MAX {
        return Err(TunnelError::Length(bytes.len()));
    }
    let (signed, made) = bytes.split_at(bytes.len() - MAC_BYTES);
    let (envelope, records) = signed.split_at(ENVELOPE_BYTES);
    let mut words = envelope.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        bytes
    });
    let mut word = || words.next().unwrap_or_default();
    let start = word();
    let [magic @ .., format, key_id, 0, 0] = start else {
        return Err(TunnelError::Format(start));
    };
    if magic != MAGIC || format != FORMAT {
        return Err(TunnelError::Format(start));
    }
    let mut number = || u64::from_be_bytes(word());
    let envelope = Envelope {
        sender: number(),
        sender_boot: number(),
        receiver_boot: number(),
        sequence: number(),
    };
    let sender = envelope.sender;
    let key = key(sender, key_id).filter(|key| key.id == key_id);
    let key = key.ok_or(TunnelError::Key { sender, key_id })?;
    match equal_in_constant_time(&mac(&key.key, signed), made) {
        true => Ok(Opened { envelope, records }),
        false => Err(TunnelError::Forged { sender }),
    }
}
