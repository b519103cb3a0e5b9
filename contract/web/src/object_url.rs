//! Signed URLs of a storage node's own objects: a gateway sends a client there with one,
//! and the node needs to ask nobody.
//!
//! `/o/OBJECT?node=ID&offset=BYTES&length=BYTES&version=N&expires=SECONDS&signature=DIGITS`:
//! object and node in 48 and 16 hexadecimal digits, the others decimal, version 0 for any.
//! It is for GET and HEAD. The signature is BLAKE3, keyed, as 64 hexadecimal digits, of:
//!
//! | offset | bytes | name | meaning (big-endian) |
//! |---|---|---|---|
//! | 0 | 1 | format | 1 |
//! | 1 | 24 | object | [`ObjectId`] |
//! | 25 | 8 | node | which one may answer |
//! | 33 | 8 | offset | first byte |
//! | 41 | 8 | length | bytes, at least 1 |
//! | 49 | 8 | version | 0 = any |
//! | 57 | 8 | expires | seconds since 1970; it holds before then |
//!
//! The key is BLAKE3's `derive_key` of a key that the node and the signer have in common.

use std::fmt;

use crossdock_names::{NodeId, OBJECT_ID_BYTES, ObjectId, Version};

use crate::Denial;
use crate::digits::{decimal, from_hex, hex};
use crate::query::Query;

const FORMAT: u8 = 1;

const CONTEXT: &str = "crossdock 2026 signed URLs of a node's objects";

/// What paths of objects begin with.
const PREFIX: &[u8] = b"/o/";

const PARAMETERS: [&str; 6] = [
    "node",
    "offset",
    "length",
    "version",
    "expires",
    "signature",
];

/// The key by which one node's URLs are signed.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectUrlKey([u8; 32]);

impl ObjectUrlKey {
    /// The one that follows from a node's key.
    #[must_use]
    pub fn derive(node_key: &[u8; 32]) -> Self {
        Self(blake3::derive_key(CONTEXT, node_key))
    }
}

impl fmt::Debug for ObjectUrlKey {
    /// Never shows the secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ObjectUrlKey")
    }
}

/// Bytes of an object that may be read for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectUrl {
    /// The object.
    pub object: ObjectId,
    /// The node that has it.
    pub node: NodeId,
    /// First byte.
    pub offset_bytes: u64,
    /// Number of bytes.
    pub length_bytes: u64,
    /// The version, or [`Version::NONE`] for any.
    pub version: Version,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
}

impl ObjectUrl {
    /// Path and query, signed.
    #[must_use]
    pub fn sign(&self, key: &ObjectUrlKey) -> String {
        format!(
            "/o/{}?node={:016x}&offset={}&length={}&version={}&expires={}&signature={}",
            hex(&self.object.encode()),
            self.node.0,
            self.offset_bytes,
            self.length_bytes,
            self.version.0,
            self.expires,
            hex(self.signature(key).as_bytes()),
        )
    }

    /// What a request for `path` and `query` at node `node` may read.
    ///
    /// # Errors
    /// [`Denial::Query`] if it is none of these URLs, [`Denial::Signature`] if it was not
    /// signed, or for another node, [`Denial::Ended`] if it was for an earlier time.
    pub fn verify(
        key: &ObjectUrlKey,
        node: NodeId,
        path: &[u8],
        query: &[u8],
        now_seconds: u64,
    ) -> Result<Self, Denial> {
        let (url, shown) = Self::parse(path, query).ok_or(Denial::Query)?;
        // Hashes of that crate compare in constant time.
        if url.signature(key) != blake3::Hash::from_bytes(shown) || url.node != node {
            return Err(Denial::Signature);
        }
        if now_seconds >= url.expires {
            return Err(Denial::Ended);
        }
        Ok(url)
    }

    /// What it says, and the signature that it shows.
    fn parse(path: &[u8], query: &[u8]) -> Option<(Self, [u8; 32])> {
        let object: [u8; OBJECT_ID_BYTES] = from_hex(path.strip_prefix(PREFIX)?)?;
        let query = Query::parse(query, PARAMETERS)?;
        let number = |at| decimal(query.value(at)?);
        let url = Self {
            object: ObjectId::decode(&object)?,
            node: NodeId(u64::from_be_bytes(from_hex(query.value(0)?)?)),
            offset_bytes: number(1)?,
            length_bytes: number(2)?,
            version: Version(number(3)?),
            expires: number(4)?,
        };
        let end = url.offset_bytes.checked_add(url.length_bytes)?;
        let signature = from_hex(query.value(5)?)?;
        (end > url.offset_bytes).then_some((url, signature))
    }

    fn signature(&self, key: &ObjectUrlKey) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&key.0);
        hasher.update(&[FORMAT]);
        hasher.update(&self.object.encode());
        for number in [
            self.node.0,
            self.offset_bytes,
            self.length_bytes,
            self.version.0,
            self.expires,
        ] {
            hasher.update(&number.to_be_bytes());
        }
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;
    use proptest::prelude::*;

    use super::*;

    fn url() -> ObjectUrl {
        ObjectUrl {
            object: ObjectId::column(FileId(9), 1, 0, 2),
            node: NodeId(7),
            offset_bytes: 4096,
            length_bytes: 100,
            version: Version(3),
            expires: 1000,
        }
    }

    fn verify(key: u8, node: u64, target: &str, now: u64) -> Result<ObjectUrl, Denial> {
        let (path, query) = target.split_once('?').expect("a query");
        let key = ObjectUrlKey::derive(&[key; 32]);
        ObjectUrl::verify(&key, NodeId(node), path.as_bytes(), query.as_bytes(), now)
    }

    /// Goal: it comes back as it was signed, at its node, until it ends.
    #[test]
    fn a_signed_object_is_read_where_it_lies() {
        let signed = url().sign(&ObjectUrlKey::derive(&[1; 32]));
        let begin = "/o/000000000000000000090000000100000000000000000002?node=0000000000000007&offset=4096&length=100&version=3&expires=1000&signature=";
        assert!(signed.starts_with(begin), "{signed}");
        assert_eq!(verify(1, 7, &signed, 999), Ok(url()));
        assert_eq!(verify(1, 7, &signed, 1000), Err(Denial::Ended));
        assert_eq!(verify(1, 8, &signed, 999), Err(Denial::Signature));
        assert_eq!(verify(2, 7, &signed, 999), Err(Denial::Signature));
    }

    /// Goal: nothing in it can be changed, and nothing comes with it.
    #[test]
    fn forged_objects_are_refused() {
        let signed = url().sign(&ObjectUrlKey::derive(&[1; 32]));
        for (from, to) in [
            ("0002?", "0003?"),
            ("offset=4096", "offset=0"),
            ("length=100", "length=101"),
            ("version=3", "version=0"),
            ("expires=1000", "expires=1001"),
        ] {
            let forged = signed.replace(from, to);
            assert_eq!(verify(1, 7, &forged, 0), Err(Denial::Signature), "{to}");
        }
        for (from, to) in [
            ("/o/", "/o//"),
            ("/o/", "/p/"),
            ("0002?", "?"),
            ("/o/0000", "/o/ffff"),
            ("offset=4096", "offset=18446744073709551615"),
            ("length=100", "length=0"),
            ("length=100", "length=-1"),
            ("version=3", "version=3&x=1"),
            ("node=0000000000000007", "node=7"),
        ] {
            let wrong = signed.replace(from, to);
            assert_eq!(verify(1, 7, &wrong, 0), Err(Denial::Query), "{to}");
        }
    }

    proptest! {
        /// Goal: no text from a client is more than refused.
        #[test]
        fn no_text_panics(path in "(/o/)?[0-9a-f]{0,50}", query in "[a-z0-9=&:]{0,80}") {
            let key = ObjectUrlKey::derive(&[1; 32]);
            let verified =
                ObjectUrl::verify(&key, NodeId(7), path.as_bytes(), query.as_bytes(), 0);
            prop_assert!(verified.is_err());
        }
    }
}
