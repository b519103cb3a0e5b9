//! Signed URLs of a storage node's own objects: a gateway sends a client there with one,
//! and the node needs to ask nobody.
//!
//! `/o/OBJECT?node=ID&offset=BYTES&length=BYTES&version=N&expires=SECONDS&minter=ID&holder=ID&until=SECONDS&signature=DIGITS`:
//! object in 48 hexadecimal digits, ids in 16, the others decimal, version 0 for any.
//! A client that asked a gateway for a range of a file comes with that range; for it
//! `&at=BYTES&size=BYTES` say where in the file the bytes lie and how long it is, and what is
//! there under the URL is that file, with no other bytes. It is for GET and HEAD. The signature is BLAKE3, keyed, as 64 hexadecimal digits, of:
//!
//! | offset | bytes | name | meaning (big-endian) |
//! |---|---|---|---|
//! | 0 | 1 | format | 2; 3 with a place in a file |
//! | 1 | 24 | object | [`ObjectId`] |
//! | 25 | 8 | node | which one may answer |
//! | 33 | 8 | offset | first byte |
//! | 41 | 8 | length | bytes, at least 1 |
//! | 49 | 8 | version | 0 = any |
//! | 57 | 8 | expires | seconds since 1970; it holds before then |
//! | 65 | 8 | at | format 3: where in the file the first byte lies |
//! | 73 | 8 | size | format 3: bytes of the file |
//!
//! The key is BLAKE3's `derive_key` of the MAC of a [`FileCapability`] (docs/decisions/0024)
//! to read the file whose column the object is: `minter` made it for the gateway `holder`,
//! and it ends at `until`. The node has the minter's key, so it makes the same capability, and
//! from it the key. So whoever signs has a right to read the file, and what is signed is
//! never more than that right; who has the URL only cannot make the capability from it.

use crossdock_names::{
    FileCapability, FileId, HostId, NodeId, OBJECT_ID_BYTES, ObjectId, Rights, Scope, Version,
};

use crate::digits::{decimal, from_hex, hex};
use crate::query::Query;

const FORMAT: u8 = 2;
const FORMAT_PLACED: u8 = 3;

const CONTEXT: &str = "crossdock 2026 signed URLs of a file's columns";

/// What paths of objects begin with.
const PREFIX: &[u8] = b"/o/";

const PARAMETERS: [&str; 11] = [
    "node",
    "offset",
    "length",
    "version",
    "expires",
    "minter",
    "holder",
    "until",
    "signature",
    "at",
    "size",
];

/// Bytes of an object that may be read for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectUrl {
    /// The object, a column of a file.
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
    /// Of which file they are a part; else they are all that there is under the URL.
    pub place: Option<FilePlace>,
}

/// Where bytes lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// The first of them.
    pub offset_bytes: u64,
    /// Length of the file.
    pub size_bytes: u64,
}

impl ObjectUrl {
    /// Path and query, signed by the right to read the file; `None` if `right` is another
    /// one, or ends before the URL.
    #[must_use]
    pub fn sign(&self, right: &FileCapability) -> Option<String> {
        let is_it = right.covers_column(&self.object) && right.rights == Rights::READ;
        if !is_it || self.expires > right.expiry_seconds {
            return None;
        }
        let mut text = format!(
            "/o/{}?node={:016x}&offset={}&length={}&version={}&expires={}&minter={:016x}&holder={:016x}&until={}&signature={}",
            hex(&self.object.encode()),
            self.node.0,
            self.offset_bytes,
            self.length_bytes,
            self.version.0,
            self.expires,
            right.minter.0,
            right.holder.0,
            right.expiry_seconds,
            hex(self.signature(right).as_bytes()),
        );
        if let Some(place) = self.place {
            text += &format!("&at={}&size={}", place.offset_bytes, place.size_bytes);
        }
        Some(text)
    }

    fn signature(&self, right: &FileCapability) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&blake3::derive_key(CONTEXT, &right.mac));
        hasher.update(&[match self.place {
            None => FORMAT,
            Some(_) => FORMAT_PLACED,
        }]);
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
        if let Some(place) = self.place {
            hasher.update(&place.offset_bytes.to_be_bytes());
            hasher.update(&place.size_bytes.to_be_bytes());
        }
        hasher.finalize()
    }
}

/// What a request shows, before anything of it was checked.
pub(crate) struct Shown {
    pub(crate) url: ObjectUrl,
    /// The right by which it says that it was signed, without its MAC.
    pub(crate) right: FileCapability,
    signature: [u8; 32],
}

impl Shown {
    /// `None` if it is not written as such a URL.
    pub(crate) fn parse(path: &[u8], query: &[u8]) -> Option<Self> {
        let object: [u8; OBJECT_ID_BYTES] = from_hex(path.strip_prefix(PREFIX)?)?;
        let object = ObjectId::decode(&object)?;
        let query = Query::parse(query, PARAMETERS)?;
        let number = |at| decimal(query.value(at)?);
        let id = |at| Some(u64::from_be_bytes(from_hex(query.value(at)?)?));
        let url = ObjectUrl {
            object,
            node: NodeId(id(0)?),
            offset_bytes: number(1)?,
            length_bytes: number(2)?,
            version: Version(number(3)?),
            expires: number(4)?,
            place: match (query.value(9), query.value(10)) {
                (None, None) => None,
                _ => Some(FilePlace {
                    offset_bytes: number(9)?,
                    size_bytes: number(10)?,
                }),
            },
        };
        let right = FileCapability {
            rights: Rights::READ,
            minter: HostId(id(5)?),
            holder: HostId(id(6)?),
            scope: Scope::Columns {
                placement: FileId(object.placement),
                generation: object.generation,
            },
            expiry_seconds: number(7)?,
            mac: [0; 16],
        };
        let end = url.offset_bytes.checked_add(url.length_bytes)?;
        let is_inside = url.place.is_none_or(|place| {
            let end = place.offset_bytes.checked_add(url.length_bytes);
            end.is_some_and(|end| end <= place.size_bytes)
        });
        let is_one = is_inside
            && end > url.offset_bytes
            && right.covers_column(&object)
            && url.expires <= right.expiry_seconds;
        let signature = from_hex(query.value(8)?)?;
        is_one.then_some(Self {
            url,
            right,
            signature,
        })
    }

    /// Whether it was signed by the right, whose MAC is known by now.
    pub(crate) fn is_signed_by(&self, right: &FileCapability) -> bool {
        // Hashes of that crate compare in constant time.
        self.url.signature(right) == blake3::Hash::from_bytes(self.signature)
    }
}
