//! Entries of READDIR and READDIRPLUS (RFC 1813 sections 3.3.16 and 3.3.17).
//!
//! A list is kept encoded: the server's builder appends each entry to the bytes
//! that go out and knows exactly how many these are; the client walks over the
//! bytes that came in. Layout of an entry:
//!
//! | bytes | name | meaning |
//! |---|---|---|
//! | 4 | `TRUE` | an entry follows |
//! | 8 | fileid | number of the object |
//! | 4 + n + padding | name | its name |
//! | 8 | cookie | where to go on |
//! | 4 or 88 | attributes | READDIRPLUS only |
//! | 4 or 8 + n + padding | handle | READDIRPLUS only |

use bytes::Bytes;
use crossdock_limits::NFS_TCP_IO_BYTES_MAX;
use crossdock_xdr::{
    Decode, DecodeError, Decoder, Encode, Encoder, halves, opaque_bytes, xdr_struct,
};

use crate::attributes::Attributes;
use crate::names::{CookieVerifier, HANDLE_BYTES_MAX, HandleBuffer, Name};
use crate::reply::{self, Failure, Outcome};
use crate::status::Status;

const BOOL_BYTES: usize = 4;
const VERIFIER_BYTES: usize = 8;
const FILEID_AND_COOKIE_BYTES: usize = 16;

xdr_struct! {
    /// An entry of READDIR (`entry3`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Entry<'a> {
        /// Number of the object.
        pub fileid: u64,
        /// Its name.
        pub name: Name<'a>,
        /// Where to go on behind this entry.
        pub cookie: u64,
    }
}

impl Entry<'_> {
    /// Bytes that the entry takes in a list.
    #[must_use]
    pub const fn encoded_bytes(&self) -> usize {
        BOOL_BYTES + directory_bytes(self.name.0.len())
    }
}

/// An entry of READDIRPLUS (`entryplus3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPlus<'a> {
    /// Number of the object.
    pub fileid: u64,
    /// Its name.
    pub name: Name<'a>,
    /// Where to go on behind this entry.
    pub cookie: u64,
    /// Attributes of the object.
    pub attributes: Option<Attributes>,
    /// Its handle.
    pub object: Option<HandleBuffer>,
}

impl<'a> Decode<'a> for EntryPlus<'a> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            fileid: decoder.get()?,
            name: decoder.get()?,
            cookie: decoder.get()?,
            attributes: decoder.get()?,
            object: decoder.get()?,
        })
    }
}

/// In a few large steps: a reply has hundreds of them.
impl Encode for EntryPlus<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u64(self.fileid);
        encoder.put(&self.name);
        let [cookie_high, cookie_low] = halves(self.cookie);
        encoder.units([
            cookie_high,
            cookie_low,
            u32::from(self.attributes.is_some()),
        ]);
        if let Some(attributes) = &self.attributes {
            encoder.put(attributes);
        }
        encoder.put(&self.object);
    }
}

impl EntryPlus<'_> {
    /// Bytes that the entry takes in a list.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let handle_bytes = self
            .object
            .map_or(0, |handle| opaque_bytes(handle.as_bytes().len()));
        BOOL_BYTES
            + self.directory_bytes()
            + post_op_attributes_bytes(self.attributes.as_ref())
            + BOOL_BYTES
            + handle_bytes
    }

    /// The part of them that counts against the client's `dircount`.
    #[must_use]
    pub const fn directory_bytes(&self) -> usize {
        directory_bytes(self.name.0.len())
    }
}

/// An entry of READDIRPLUS with attributes, a handle and a name of up to 32 bytes.
const ENTRY_PLUS_BYTES_USUAL: usize = BOOL_BYTES
    + directory_bytes(32)
    + BOOL_BYTES
    + Attributes::ENCODED_BYTES
    + BOOL_BYTES
    + opaque_bytes(HANDLE_BYTES_MAX);

/// Fileid, name and cookie.
const fn directory_bytes(name_bytes: usize) -> usize {
    FILEID_AND_COOKIE_BYTES + opaque_bytes(name_bytes)
}

const fn post_op_attributes_bytes(attributes: Option<&Attributes>) -> usize {
    match attributes {
        Some(_) => BOOL_BYTES + Attributes::ENCODED_BYTES,
        None => BOOL_BYTES,
    }
}

/// What surrounds the entries in `READDIR3resok` and `READDIRPLUS3resok`:
/// attributes, verifier, the `FALSE` that ends the list, and `eof`.
const fn frame_bytes(directory: Option<&Attributes>) -> usize {
    post_op_attributes_bytes(directory) + VERIFIER_BYTES + BOOL_BYTES + BOOL_BYTES
}

/// A list of entries, encoded.
macro_rules! entry_list {
    ($(#[$meta:meta])* $list:ident of $entry:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $list {
            encoded: Bytes, // Each entry behind its TRUE; the last FALSE is not here.
        }

        impl $list {
            /// The entries in order.
            pub fn iter(&self) -> impl Iterator<Item = $entry<'_>> {
                let mut decoder = Decoder::new(&self.encoded);
                // Ends at the end: what is not a list of entries was never accepted.
                std::iter::from_fn(move || decoder.get::<Option<$entry<'_>>>().ok().flatten())
            }
        }

        impl Encode for $list {
            fn encode(&self, encoder: &mut Encoder) {
                encoder.splice(self.encoded.clone());
                encoder.bool(false);
            }
        }

        impl<'a> Decode<'a> for $list {
            fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
                let start = decoder.position();
                let mut at_entry = decoder.clone();
                while decoder.get::<Option<$entry<'a>>>()?.is_some() {
                    at_entry = decoder.clone();
                }
                let encoded = at_entry.since(start);
                Ok(Self { encoded })
            }
        }
    };
}

entry_list! {
    /// The entries of a READDIR reply.
    EntryList of Entry
}
entry_list! {
    /// The entries of a READDIRPLUS reply.
    EntryPlusList of EntryPlus
}

/// Gathers a READDIR reply that is no larger than the client wants.
#[derive(Debug)]
pub struct ReaddirBuilder {
    directory: Option<Attributes>,
    verifier: CookieVerifier,
    encoder: Encoder,
    room_bytes: usize,
}

impl ReaddirBuilder {
    /// An empty reply; `count_bytes` is the client's
    /// [`count_bytes`](crate::call::Readdir::count_bytes).
    #[must_use]
    pub fn new(directory: Option<Attributes>, verifier: CookieVerifier, count_bytes: u32) -> Self {
        Self {
            room_bytes: room_bytes(count_bytes, directory.as_ref()),
            directory,
            verifier,
            encoder: Encoder::new(),
        }
    }

    /// Adds `entry`, or returns `false` if there is no room for it: then finish.
    pub fn push(&mut self, entry: &Entry<'_>) -> bool {
        let Some(room_bytes) = self.room_bytes.checked_sub(entry.encoded_bytes()) else {
            return false;
        };
        self.room_bytes = room_bytes;
        self.encoder.bool(true);
        self.encoder.put(entry);
        true
    }

    /// The reply. `is_end`: the directory has no more entries.
    ///
    /// # Errors
    /// [`Status::TooSmall`] if there are entries but not even one had room.
    pub fn finish(self, is_end: bool) -> Outcome<reply::Readdir, Option<Attributes>> {
        if self.encoder.is_empty() && !is_end {
            return Err(Failure::new(Status::TooSmall, self.directory));
        }
        Ok(reply::Readdir {
            directory: self.directory,
            verifier: self.verifier,
            entries: EntryList {
                encoded: self.encoder.into_bytes(),
            },
            is_end,
        })
    }
}

/// Gathers a READDIRPLUS reply that is no larger than the client wants.
#[derive(Debug)]
pub struct ReaddirplusBuilder {
    directory: Option<Attributes>,
    verifier: CookieVerifier,
    encoder: Encoder,
    room_bytes: usize,
    directory_room_bytes: usize,
}

impl ReaddirplusBuilder {
    /// An empty reply; the counts are the client's
    /// [`directory_count_bytes`](crate::call::Readdirplus::directory_count_bytes) and
    /// [`count_bytes`](crate::call::Readdirplus::count_bytes).
    #[must_use]
    pub fn new(
        directory: Option<Attributes>,
        verifier: CookieVerifier,
        directory_count_bytes: u32,
        count_bytes: u32,
    ) -> Self {
        Self {
            room_bytes: room_bytes(count_bytes, directory.as_ref()),
            directory_room_bytes: usize::try_from(directory_count_bytes).unwrap_or(usize::MAX),
            directory,
            verifier,
            encoder: Encoder::new(),
        }
    }

    /// Takes memory for so many entries at once, as far as there is room for them.
    #[must_use]
    pub fn expecting(mut self, entries: usize) -> Self {
        let bytes = entries.saturating_mul(ENTRY_PLUS_BYTES_USUAL);
        self.encoder = Encoder::with_capacity(bytes.min(self.room_bytes));
        self
    }

    /// Adds `entry`, or returns `false` if there is no room for it: then finish.
    ///
    /// The first entry is not held against `directory_count_bytes`, so that a
    /// client that asks for hardly any still gets on.
    pub fn push(&mut self, entry: &EntryPlus<'_>) -> bool {
        let directory_bytes = entry.directory_bytes();
        if directory_bytes > self.directory_room_bytes && !self.encoder.is_empty() {
            return false;
        }
        let Some(room_bytes) = self.room_bytes.checked_sub(entry.encoded_bytes()) else {
            return false;
        };
        self.room_bytes = room_bytes;
        self.directory_room_bytes = self.directory_room_bytes.saturating_sub(directory_bytes);
        self.encoder.bool(true);
        self.encoder.put(entry);
        true
    }

    /// The reply. `is_end`: the directory has no more entries.
    ///
    /// # Errors
    /// [`Status::TooSmall`] if there are entries but not even one had room.
    pub fn finish(self, is_end: bool) -> Outcome<reply::Readdirplus, Option<Attributes>> {
        if self.encoder.is_empty() && !is_end {
            return Err(Failure::new(Status::TooSmall, self.directory));
        }
        Ok(reply::Readdirplus {
            directory: self.directory,
            verifier: self.verifier,
            entries: EntryPlusList {
                encoded: self.encoder.into_bytes(),
            },
            is_end,
        })
    }
}

/// Room for entries in a reply of `count_bytes`, and in any reply at all.
fn room_bytes(count_bytes: u32, directory: Option<&Attributes>) -> usize {
    usize::try_from(count_bytes)
        .unwrap_or(usize::MAX)
        .min(NFS_TCP_IO_BYTES_MAX)
        .saturating_sub(frame_bytes(directory))
}
