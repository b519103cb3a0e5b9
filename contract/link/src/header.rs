//! The fixed beginning of every message between hosts.

use crossdock_checksum::{crc32c, crc32c_append};
use thiserror::Error;

/// Bytes of the header.
///
/// | offset | bytes | name | meaning (little-endian) |
/// |---|---|---|---|
/// | 0 | 4 | magic | "XDLK" |
/// | 4 | 1 | format | 1 |
/// | 5 | 1 | kind | which message |
/// | 6 | 2 | flags | zero |
/// | 8 | 4 | body length | bytes |
/// | 12 | 4 | payload length | bytes |
/// | 16 | 4 | payload checksum | CRC32C of the payload |
/// | 20 | 4 | checksum | CRC32C of bytes 0–19 and the body |
pub const HEADER_BYTES: usize = 24;

const MAGIC: [u8; 4] = *b"XDLK";
const FORMAT: u8 = 1;
const CHECKSUM_AT: usize = 20;

/// Which message; the numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Hello = 1,
    Welcome = 2,
    Refuse = 3,
    Ping = 4,
    Pong = 5,
    Credit = 6,
    NodeCall = 16,
    NodeReply = 17,
    CancelNode = 18,
    SiteCall = 19,
    SiteReply = 20,
    Lock = 21,
    Renew = 22,
    Granted = 23,
    Space = 24,
    Clients = 25,
    Minting = 26,
    AskClock = 27,
    Clock = 28,
    Recall = 29,
    ProvenCall = 30,
    ProvenReply = 31,
    Proving = 32,
    Handling = 33,
    PostponeNode = 34,
    ResumeNode = 35,
    DiskProfile = 36,
    Transfer = 37,
    Defrag = 38,
}

impl Kind {
    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Refuse,
            4 => Self::Ping,
            5 => Self::Pong,
            6 => Self::Credit,
            16 => Self::NodeCall,
            17 => Self::NodeReply,
            18 => Self::CancelNode,
            19 => Self::SiteCall,
            20 => Self::SiteReply,
            21 => Self::Lock,
            22 => Self::Renew,
            23 => Self::Granted,
            24 => Self::Space,
            25 => Self::Clients,
            26 => Self::Minting,
            27 => Self::AskClock,
            28 => Self::Clock,
            29 => Self::Recall,
            30 => Self::ProvenCall,
            31 => Self::ProvenReply,
            32 => Self::Proving,
            33 => Self::Handling,
            34 => Self::PostponeNode,
            35 => Self::ResumeNode,
            36 => Self::DiskProfile,
            37 => Self::Transfer,
            38 => Self::Defrag,
            _ => return None,
        })
    }

    /// What people call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Welcome => "welcome",
            Self::Refuse => "refusal",
            Self::Ping => "ping",
            Self::Pong => "pong",
            Self::Credit => "credit",
            Self::NodeCall => "call of a node",
            Self::NodeReply => "reply of a node",
            Self::CancelNode => "cancellation",
            Self::SiteCall => "call of a site",
            Self::SiteReply => "reply of a site",
            Self::Lock => "lock notice",
            Self::Renew => "question for a lease",
            Self::Granted => "lease",
            Self::Space => "space of a node",
            Self::Clients => "clients of an address",
            Self::Minting => "key of a manager",
            Self::AskClock => "question for the time of day",
            Self::Clock => "time of day",
            Self::Recall => "recall of a lease",
            Self::ProvenCall => "call of a site with proofs",
            Self::ProvenReply => "reply of a site with proofs",
            Self::Proving => "key for proofs",
            Self::Handling => "key for handles",
            Self::PostponeNode => "postponement",
            Self::ResumeNode => "end of a postponement",
            Self::DiskProfile => "profile of a disk",
            Self::Transfer => "word about a transfer",
            Self::Defrag => "word about a defragmentation",
        }
    }
}

/// Why bytes are no message. The stream cannot be read any further: the
/// connection has to be closed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// Not the first four bytes of a message.
    #[error("no message between hosts: begins with {0:02x?} instead of \"XDLK\"")]
    Magic([u8; 4]),
    /// A header that this build cannot read.
    #[error("message format {0} is unknown, this host has format {FORMAT}")]
    Format(u8),
    /// A message that this build does not have.
    #[error("message kind {0} is unknown")]
    Kind(u8),
    /// Flags that this build does not have.
    #[error("message flags {0:#06x} are unknown")]
    Flags(u16),
    /// A body beyond the limit.
    #[error("a body of {bytes} bytes, at most {bytes_max} are taken")]
    BodyTooLong {
        /// What the header says.
        bytes: u32,
        /// The limit.
        bytes_max: usize,
    },
    /// A payload beyond the limit.
    #[error("a payload of {bytes} bytes, at most {bytes_max} are taken")]
    PayloadTooLong {
        /// What the header says.
        bytes: u32,
        /// The limit.
        bytes_max: usize,
    },
    /// Header or body were changed on the way.
    #[error("header or body of a message is damaged: checksum {found:08x}, must be {expected:08x}")]
    Checksum {
        /// What the bytes give.
        found: u32,
        /// What the header says.
        expected: u32,
    },
    /// The payload was changed on the way.
    #[error("payload of a message is damaged: checksum {found:08x}, must be {expected:08x}")]
    PayloadChecksum {
        /// What the bytes give.
        found: u32,
        /// What the header says.
        expected: u32,
    },
    /// A sound body that means nothing.
    #[error("the body of a {kind} makes no sense: {what}")]
    Body {
        /// Which message.
        kind: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A payload behind a message that has none.
    #[error("a {0} with a payload")]
    NoPayload(&'static str),
}

/// A decoded header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) body_bytes: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_checksum: u32,
    checksum: u32,
    /// Of the header's own bytes.
    covered: u32,
}

/// What lengths are taken now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) body_bytes_max: usize,
    pub(crate) payload_bytes_max: usize,
}

impl Header {
    /// Writes the header of `message`, whose body lies behind the room for it.
    pub(crate) fn write(message: &mut [u8], kind: Kind, payload_bytes: u32, checksum: u32) {
        let (header, body) = message.split_at_mut(HEADER_BYTES);
        let body_bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        header[..4].copy_from_slice(&MAGIC);
        header[4] = FORMAT;
        header[5] = kind as u8;
        header[6..8].fill(0);
        header[8..12].copy_from_slice(&body_bytes.to_le_bytes());
        header[12..16].copy_from_slice(&payload_bytes.to_le_bytes());
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        let covered = crc32c_append(crc32c(&header[..CHECKSUM_AT]), body);
        header[CHECKSUM_AT..].copy_from_slice(&covered.to_le_bytes());
    }

    /// Reads what the first bytes of a message say, and whether that is taken.
    pub(crate) fn read(bytes: &[u8; HEADER_BYTES], bounds: Bounds) -> Result<Self, FrameError> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        if bytes[4] != FORMAT {
            return Err(FrameError::Format(bytes[4]));
        }
        let kind = Kind::from_number(bytes[5]).ok_or(FrameError::Kind(bytes[5]))?;
        let flags = u16::from_le_bytes([bytes[6], bytes[7]]);
        if flags != 0 {
            return Err(FrameError::Flags(flags));
        }
        let header = Self {
            kind,
            body_bytes: word(8),
            payload_bytes: word(12),
            payload_checksum: word(16),
            checksum: word(CHECKSUM_AT),
            covered: crc32c(&bytes[..CHECKSUM_AT]),
        };
        header.check_lengths(bounds)?;
        Ok(header)
    }

    fn check_lengths(&self, bounds: Bounds) -> Result<(), FrameError> {
        let is_above = |bytes: u32, max: usize| usize::try_from(bytes).is_ok_and(|it| it > max);
        if is_above(self.body_bytes, bounds.body_bytes_max) {
            return Err(FrameError::BodyTooLong {
                bytes: self.body_bytes,
                bytes_max: bounds.body_bytes_max,
            });
        }
        if is_above(self.payload_bytes, bounds.payload_bytes_max) {
            return Err(FrameError::PayloadTooLong {
                bytes: self.payload_bytes,
                bytes_max: bounds.payload_bytes_max,
            });
        }
        Ok(())
    }

    /// Length of the whole message.
    pub(crate) fn message_bytes(&self) -> usize {
        let long = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        HEADER_BYTES + long(self.body_bytes) + long(self.payload_bytes)
    }

    /// Whether header and body are what was sent.
    pub(crate) fn check_body(&self, body: &[u8]) -> Result<(), FrameError> {
        let found = crc32c_append(self.covered, body);
        let expected = self.checksum;
        if found != expected {
            return Err(FrameError::Checksum { found, expected });
        }
        Ok(())
    }

    /// Whether the payload is what was sent.
    pub(crate) fn check_payload(&self, payload: &[u8]) -> Result<(), FrameError> {
        let (found, expected) = (crc32c(payload), self.payload_checksum);
        if found != expected {
            return Err(FrameError::PayloadChecksum { found, expected });
        }
        Ok(())
    }
}
