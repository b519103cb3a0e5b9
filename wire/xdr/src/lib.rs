//! XDR (RFC 4506): bytes to types and back.
//!
//! [`Decoder`] walks over one record and borrows from it; [`Encoder`] appends
//! to one buffer and carries bulk bytes along by reference. [`Encode`] and
//! [`Decode`] are the two directions of a type; [`xdr_struct`] and [`xdr_enum`]
//! write them for types that are laid out field by field.
//!
//! Nothing here does I/O, and no input makes it panic or allocate more than the
//! input is long.

mod decoder;
mod encoder;
mod macros;

pub use decoder::{Decode, DecodeError, Decoder, Opaque};
pub use encoder::{Encode, Encoder, halves};

/// Size of an XDR unit: every item is a multiple of this long (RFC 4506 section 3).
pub const UNIT_BYTES: usize = 4;

/// `length_bytes` rounded up to whole units.
#[must_use]
pub const fn padded_bytes(length_bytes: usize) -> usize {
    length_bytes.next_multiple_of(UNIT_BYTES)
}

/// Encoded size of variable-length opaque data or a string: its length, its
/// bytes and their padding (RFC 4506 section 4.10).
#[must_use]
pub const fn opaque_bytes(length_bytes: usize) -> usize {
    UNIT_BYTES + padded_bytes(length_bytes)
}
