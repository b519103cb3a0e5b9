//! Bearer tokens and signed URLs of the HTTP door as the admin API tells and takes them.
//! Paths are written as in URLs: what is not a plain letter may be escaped, a `%` must be.

use crossdock_web::{SignedMethod, TokenRecord, UrlPath};
use serde::{Deserialize, Serialize};

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenStatus {
    /// Its number: eight hexadecimal digits.
    pub id: String,
    /// What administrators call it.
    pub name: String,
    /// Whether it lets read.
    pub read: bool,
    /// Whether it lets write.
    pub write: bool,
    /// At and below which path it holds.
    pub path: UrlPath,
    /// As which user its requests act.
    pub uid: u32,
    /// As which group.
    pub gid: u32,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
}

/// A token that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenAddition {
    /// What it is to be called; `None`: `token-` and its number.
    #[serde(default)]
    pub name: Option<String>,
    /// Whether it is to let read.
    pub read: bool,
    /// Whether it is to let write.
    pub write: bool,
    /// At and below which path it is to hold; `None`: everywhere.
    #[serde(default)]
    pub path: Option<UrlPath>,
    /// As which user its requests are to act.
    #[serde(default)]
    pub uid: u32,
    /// As which group.
    #[serde(default)]
    pub gid: u32,
    /// How long it is to hold, in seconds.
    pub seconds: u64,
}

/// A token that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCreated {
    /// What requests have to show. It is told once, and kept nowhere.
    pub token: String,
    /// What it allows.
    #[serde(flatten)]
    pub status: TokenStatus,
}

/// What a URL is to be signed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SigningMethod {
    /// Reading: GET and HEAD.
    #[serde(rename = "GET")]
    Get,
    /// Writing a whole file.
    #[serde(rename = "PUT")]
    Put,
}

/// A URL that is to be signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signing {
    /// What it is for.
    pub method: SigningMethod,
    /// The file, from the volume's root on; there need not be one.
    pub path: UrlPath,
    /// How long it is to hold, in seconds.
    pub seconds: u64,
    /// As which user the request is to act.
    #[serde(default)]
    pub uid: u32,
    /// As which group.
    #[serde(default)]
    pub gid: u32,
}

/// A URL that was signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// Path and query; scheme and host of a gateway belong before it.
    pub target: String,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
}

/// A file of which nodes are to send pieces under signed URLs of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PieceSigning {
    /// The file, from the volume's root on.
    pub path: UrlPath,
    /// First byte of what is wanted.
    #[serde(default)]
    pub offset_bytes: u64,
    /// How many bytes; all up to the file's end if nothing is said.
    #[serde(default)]
    pub length_bytes: Option<u64>,
    /// How long the URLs are to hold, in seconds.
    pub seconds: u64,
    /// As which user the file is opened.
    #[serde(default)]
    pub uid: u32,
    /// As which group.
    #[serde(default)]
    pub gid: u32,
}

/// A file's pieces, in order and without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedPieces {
    /// The file's length.
    pub size_bytes: u64,
    /// When the URLs end, in seconds since 1970.
    pub expires: u64,
    /// Path and query of the whole file; scheme and host of a gateway belong before it.
    pub target: String,
    /// The pieces.
    pub pieces: Vec<SignedPiece>,
}

/// A range of a file, and who sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedPiece {
    /// Where it begins in the file.
    pub offset_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
    /// Which node sends it; `None`: a gateway does, as a range of the whole file.
    pub node: Option<u32>,
    /// Under which URL the node does, of exactly these bytes.
    pub url: Option<String>,
}

impl From<&TokenRecord> for TokenStatus {
    fn from(record: &TokenRecord) -> Self {
        Self {
            id: format!("{:08x}", record.id),
            name: record.name.clone(),
            read: record.reads,
            write: record.writes,
            path: record.path.clone(),
            uid: record.uid,
            gid: record.gid,
            created: record.created,
            expires: record.expires,
        }
    }
}

impl From<SigningMethod> for SignedMethod {
    fn from(method: SigningMethod) -> Self {
        match method {
            SigningMethod::Get => Self::Get,
            SigningMethod::Put => Self::Put,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a misspelt key is refused instead of leaving a token wider than it was meant,
    /// and so is a path that could lead elsewhere.
    #[test]
    fn additions_are_read() {
        let text = r#"{"read": true, "write": false, "path": "/a%20b/c", "seconds": 60}"#;
        let addition: TokenAddition = serde_json::from_str(text).expect("an addition");
        let path = addition.path.expect("a path");
        assert_eq!(path.names(), [b"a b".to_vec(), b"c".to_vec()]);
        assert_eq!((addition.uid, addition.gid, addition.name), (0, 0, None));
        for wrong in [
            r#"{"read": true, "write": false, "prefix": "/a", "seconds": 60}"#,
            r#"{"read": true, "write": false, "path": "/a/../b", "seconds": 60}"#,
            r#"{"read": true, "write": false, "path": "a", "seconds": 60}"#,
            r#"{"read": true, "write": false}"#,
            r#"{"seconds": 60}"#,
        ] {
            assert!(
                serde_json::from_str::<TokenAddition>(wrong).is_err(),
                "{wrong}"
            );
        }
        let text = r#"{"method": "GET", "path": "/a", "seconds": 60}"#;
        let signing: Signing = serde_json::from_str(text).expect("a request");
        assert_eq!(signing.method, SigningMethod::Get);
        let delete = text.replace("GET", "DELETE");
        assert!(serde_json::from_str::<Signing>(&delete).is_err());
    }
}
