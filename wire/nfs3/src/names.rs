//! Handles, names and verifiers.

use crossdock_limits::{NAME_DECODE_BYTES_MAX, PATH_DECODE_BYTES_MAX};
use crossdock_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, xdr_struct};

/// NFS3_FHSIZE: longest file handle, in bytes (RFC 1813 section 2.4).
pub const HANDLE_BYTES_MAX: usize = 64;

/// A file handle in a record: at most [`HANDLE_BYTES_MAX`] bytes whose meaning
/// is the server's (`nfs_fh3`, RFC 1813 section 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle<'a>(&'a [u8]);

impl<'a> Handle<'a> {
    /// The handle of these bytes, unless they are too many.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > HANDLE_BYTES_MAX {
            return None;
        }
        Some(Self(bytes))
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Decode<'a> for Handle<'a> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.opaque(HANDLE_BYTES_MAX).map(Self)
    }
}

impl Encode for Handle<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(self.0);
    }
}

/// A file handle of its own, as results carry it.
#[derive(Clone, Copy)]
pub struct HandleBuffer {
    bytes: [u8; HANDLE_BYTES_MAX],
    length_bytes: usize,
}

impl HandleBuffer {
    /// The handle of these bytes, unless they are too many.
    #[must_use]
    pub fn new(handle: &[u8]) -> Option<Self> {
        Handle::new(handle).map(Self::from)
    }

    /// The handle, borrowed.
    #[must_use]
    pub fn as_handle(&self) -> Handle<'_> {
        Handle(self.as_bytes())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length_bytes]
    }
}

impl From<Handle<'_>> for HandleBuffer {
    fn from(handle: Handle<'_>) -> Self {
        let mut bytes = [0; HANDLE_BYTES_MAX];
        bytes[..handle.0.len()].copy_from_slice(handle.0);
        Self {
            bytes,
            length_bytes: handle.0.len(),
        }
    }
}

impl PartialEq for HandleBuffer {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for HandleBuffer {}

impl std::fmt::Debug for HandleBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_handle().fmt(formatter)
    }
}

impl<'a> Decode<'a> for HandleBuffer {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Handle::decode(decoder).map(Self::from)
    }
}

impl Encode for HandleBuffer {
    fn encode(&self, encoder: &mut Encoder) {
        self.as_handle().encode(encoder);
    }
}

/// A name in a directory: any bytes, up to [`NAME_DECODE_BYTES_MAX`] of them.
/// Which names are allowed is for the server to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(pub &'a [u8]);

impl<'a> Decode<'a> for Name<'a> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.opaque(NAME_DECODE_BYTES_MAX).map(Self)
    }
}

impl Encode for Name<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(self.0);
    }
}

/// The text of a symbolic link or the path of an export: any bytes, up to
/// [`PATH_DECODE_BYTES_MAX`] of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path<'a>(pub &'a [u8]);

impl<'a> Decode<'a> for Path<'a> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.opaque(PATH_DECODE_BYTES_MAX).map(Self)
    }
}

impl Encode for Path<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(self.0);
    }
}

xdr_struct! {
    /// A name in a directory (`diropargs3`, RFC 1813 section 2.6).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Location<'a> {
        /// The directory.
        pub directory: Handle<'a>,
        /// The name in it.
        pub name: Name<'a>,
    }
}

/// A newtype for eight bytes that the server or the client chose.
macro_rules! verifier {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 8]);

        impl<'record> Decode<'record> for $name {
            fn decode(decoder: &mut Decoder<'record>) -> Result<Self, DecodeError> {
                decoder.array().map(Self)
            }
        }

        impl Encode for $name {
            fn encode(&self, encoder: &mut Encoder) {
                encoder.array(&self.0);
            }
        }
    };
}

verifier! {
    /// Tells whether a directory's cookies are still good (`cookieverf3`).
    CookieVerifier
}
verifier! {
    /// Tells an exclusive CREATE from another one's (`createverf3`).
    CreateVerifier
}
verifier! {
    /// Changes when unstable writes may have been lost (`writeverf3`).
    WriteVerifier
}
