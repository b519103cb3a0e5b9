//! What is asked for, what comes of it, and why not.

use crossdock_members::NodeDoor;
use crossdock_peer::SiteError;
use crossdock_web::UrlPath;
use thiserror::Error;

use super::{OBJECT_URL_SECONDS_MAX, SIGNED_PIECES_BYTES_MAX};
use crate::walks::WALKS_MAX;
use crate::web::SignError;

/// What is to be signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnsOrder {
    /// The file, from the volume's root on.
    pub path: UrlPath,
    /// First byte of what is wanted.
    pub offset_bytes: u64,
    /// How many bytes; all up to the file's end if nothing is said.
    pub length_bytes: Option<u64>,
    /// How long the URLs are to hold, in seconds.
    pub seconds: u64,
    /// As which user the file is opened.
    pub uid: u32,
    /// As which group.
    pub gid: u32,
    /// Whether what is under a URL at a node is that part of the file, and not a range of
    /// its own.
    pub is_of_file: bool,
}

/// A file's pieces, in order and without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedColumns {
    /// The file's length.
    pub size_bytes: u64,
    /// When the URLs end, in seconds since 1970.
    pub expires: u64,
    /// Path and query of the whole file at gateways, signed.
    pub target: String,
    /// The pieces.
    pub pieces: Vec<SignedPiece>,
}

/// A range of a file, and who sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedPiece {
    /// Where it begins in the file.
    pub offset_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
    /// A node, under a URL of exactly these bytes; else a gateway, under that of the file.
    pub at_node: Option<NodePiece>,
}

/// A piece at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePiece {
    /// The node's number.
    pub number: u32,
    /// Its HTTP door.
    pub door: NodeDoor,
    /// Path and query, signed.
    pub target: String,
}

/// Why nothing was signed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ColumnsError {
    /// This process does not sign.
    #[error(transparent)]
    Sign(SignError),
    /// They cannot hold for so long.
    #[error(
        "URLs at nodes hold for 1 to {OBJECT_URL_SECONDS_MAX} s, not {0} s: they end with the right by which the gateway reads the file; for longer, sign a URL of the gateway"
    )]
    Seconds(u64),
    /// Nothing is there.
    #[error("the volume has no file {0}")]
    NotFound(UrlPath),
    /// It has no bytes.
    #[error("{0} is no regular file: only these lie in columns at nodes")]
    NotFile(UrlPath),
    /// The user may not read it.
    #[error("that user may not read {0}")]
    Denied(UrlPath),
    /// It would be too long a list.
    #[error(
        "at most {max} MiB of a file are signed at a time, not {0} bytes: say --offset and --length",
        max = SIGNED_PIECES_BYTES_MAX >> 20
    )]
    TooLong(u64),
    /// A depot does not make a capability.
    #[error("a node makes no capability: {0}")]
    Depot(String),
    /// The volume does not answer now.
    #[error("the volume did not answer ({0}); crossdock status may show why; try again")]
    Volume(SiteError),
    /// Too many at once.
    #[error("{WALKS_MAX} files are being signed at this moment; try again")]
    Busy,
}

impl ColumnsOrder {
    /// The end of what is wanted, in bytes.
    pub(super) fn end_bytes(&self) -> u64 {
        let length = self.length_bytes.unwrap_or(SIGNED_PIECES_BYTES_MAX);
        self.offset_bytes.saturating_add(length)
    }
}

/// Why a site did not do what was asked for a path.
pub(super) fn refusal(error: SiteError, path: UrlPath) -> ColumnsError {
    match error {
        SiteError::NotFound | SiteError::Stale | SiteError::NotDirectory => {
            ColumnsError::NotFound(path)
        }
        SiteError::AccessDenied | SiteError::NotOwner => ColumnsError::Denied(path),
        error => ColumnsError::Volume(error),
    }
}
