//! Files of the volume for IBP clients (docs/decisions/0046).

use std::fmt;

use crossdock_web::UrlPath;
use serde::{Deserialize, Serialize};

/// A file of which depots are to give the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSharing {
    /// The file, from the volume's root on.
    pub path: UrlPath,
    /// First byte of what is wanted.
    #[serde(default)]
    pub offset_bytes: u64,
    /// How many bytes; all up to the file's end if nothing is said.
    #[serde(default)]
    pub length_bytes: Option<u64>,
    /// How long the capabilities are to hold, in seconds.
    pub seconds: u32,
    /// As which user the file is opened.
    #[serde(default)]
    pub uid: u32,
    /// As which group.
    #[serde(default)]
    pub gid: u32,
}

/// What of it, and who gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFile {
    /// The file's length.
    pub size_bytes: u64,
    /// When it was changed last, in nanoseconds since 1970: parts of a file with the same are
    /// of one state.
    pub changed_ns: i64,
    /// Its first bytes, if these are wanted, in hexadecimal digits: no node gives them.
    pub head: String,
    /// What comes behind them, in order and without gaps.
    pub pieces: Vec<SharedPiece>,
    /// Depots of the volume's nodes, as HOST:PORT.
    pub depots: Vec<String>,
}

/// A range of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPiece {
    /// Where it begins in the file.
    pub offset_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
    /// Read capabilities of exactly these bytes, of several nodes; none where they are zeros.
    pub capabilities: Vec<String>,
}

/// A file that is to be fetched from depots into the volume.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileImport {
    /// The file, from the volume's root on; there need not be one.
    pub path: UrlPath,
    /// Its exNode, as JSON.
    pub exnode: String,
    /// The key of an encrypted file, in hexadecimal digits.
    #[serde(default)]
    pub key: Option<String>,
    /// Whether a file that is there is replaced.
    #[serde(default)]
    pub replaces: bool,
    /// Connections to depots at a time.
    pub threads: usize,
    /// As which user the file is written.
    #[serde(default)]
    pub uid: u32,
    /// As which group.
    #[serde(default)]
    pub gid: u32,
}

/// Capabilities and keys are for no log.
impl fmt::Debug for FileImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileImport")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// How far an import is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportStatus {
    /// Its number in this process.
    pub id: u32,
    /// The file's length; 0 while that is not known.
    pub size_bytes: u64,
    /// What of it has come.
    pub moved_bytes: u64,
    /// Whether it is over.
    pub is_over: bool,
    /// Why the file was not made, if it is over without it.
    pub error: Option<String>,
}
