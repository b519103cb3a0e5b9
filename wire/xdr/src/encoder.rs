//! Writing XDR: one growing buffer, with bulk bytes carried along by reference.
//!
//! Called by the codecs of `wire`. A message without bulk data ends as one
//! piece of memory; a READ reply ends as head, data pieces and padding, and the
//! data was never touched.

use bytes::{BufMut, Bytes, BytesMut};
use crossdock_types::Payload;

use crate::{UNIT_BYTES, padded_bytes};

/// A type that can be written as XDR.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, encoder: &mut Encoder);
}

/// The two units of an unsigned hyper integer (RFC 4506 section 4.5).
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the two halves of it")]
pub const fn halves(value: u64) -> [u32; 2] {
    [(value >> 32) as u32, value as u32]
}

/// A message in the making.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    buffer: BytesMut,               // Everything but the spliced pieces.
    splices: Vec<(usize, Payload)>, // Each goes before this offset of `buffer`; ascending.
    spliced_bytes: usize,
}

impl Encoder {
    /// An empty message; memory comes with the first value.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty message with room for `capacity_bytes`, bulk data not counted.
    #[must_use]
    pub fn with_capacity(capacity_bytes: usize) -> Self {
        Self::append_to(BytesMut::with_capacity(capacity_bytes))
    }

    /// A message that begins with what `buffer` holds and grows in its memory.
    #[must_use]
    pub const fn append_to(buffer: BytesMut) -> Self {
        Self {
            buffer,
            splices: Vec::new(),
            spliced_bytes: 0,
        }
    }

    /// Bytes written so far, bulk data included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len() + self.spliced_bytes
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes a value of any type.
    #[inline]
    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) {
        value.encode(self);
    }

    /// Unsigned integer (RFC 4506 section 4.2).
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.buffer.put_u32(value);
    }

    /// Unsigned hyper integer (RFC 4506 section 4.5).
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.buffer.put_u64(value);
    }

    /// Several units at once: what is laid out alike each time costs one step instead of one
    /// for each field.
    #[inline]
    pub fn units<const N: usize>(&mut self, units: [u32; N]) {
        let bytes = units.map(u32::to_be_bytes);
        self.buffer.put_slice(bytes.as_flattened());
    }

    /// Boolean (RFC 4506 section 4.4).
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Length of opaque data or of an array.
    ///
    /// # Panics
    /// If it does not fit 32 bits: nothing that large is ever sent.
    #[inline]
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("lengths in messages are bounded far below 4 GiB"));
    }

    /// Fixed-length opaque data of a whole number of units (RFC 4506 section 4.9).
    #[inline]
    pub fn array<const N: usize>(&mut self, value: &[u8; N]) {
        const { assert!(N.is_multiple_of(UNIT_BYTES), "array with padding") };
        self.buffer.put_slice(value);
    }

    /// Variable-length opaque data or a string, copied (RFC 4506 section 4.10).
    pub fn opaque(&mut self, value: &[u8]) {
        self.buffer.reserve(UNIT_BYTES + padded_bytes(value.len()));
        self.count(value.len());
        self.buffer.put_slice(value);
        if !value.len().is_multiple_of(UNIT_BYTES) {
            self.pad(value.len());
        }
    }

    /// Variable-length opaque data, carried along without a copy.
    pub fn opaque_payload(&mut self, value: &Payload) {
        self.count(value.len());
        if !value.is_empty() {
            self.spliced_bytes += value.len();
            self.splices.push((self.buffer.len(), value.clone()));
        }
        self.pad(value.len());
    }

    /// Bytes that are XDR already, carried along without a copy.
    pub fn splice(&mut self, encoded: Bytes) {
        self.spliced_bytes += encoded.len();
        self.splices.push((self.buffer.len(), encoded.into()));
    }

    /// Writes over four bytes at `offset`, for a length that is known only at
    /// the end.
    ///
    /// # Panics
    /// If these bytes were not written before the first bulk data.
    pub fn patch_u32(&mut self, offset: usize, value: u32) {
        let head_bytes = self
            .splices
            .first()
            .map_or(self.buffer.len(), |splice| splice.0);
        assert!(offset + UNIT_BYTES <= head_bytes, "patch behind the head");
        self.buffer[offset..offset + UNIT_BYTES].copy_from_slice(&value.to_be_bytes());
    }

    /// The message as pieces to be sent with one gathered call: exactly one
    /// piece if it holds no bulk data.
    #[must_use]
    pub fn into_payload(self) -> Payload {
        let Self {
            mut buffer,
            splices,
            ..
        } = self;
        let mut message = Payload::new();
        let mut at = 0;
        for (offset, piece) in splices {
            message.push(buffer.split_to(offset - at).freeze());
            message.append(piece);
            at = offset;
        }
        message.push(buffer.freeze());
        message
    }

    /// The message in one piece; copies if there is bulk data in it.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.into_payload().to_bytes()
    }

    fn pad(&mut self, length_bytes: usize) {
        self.buffer
            .put_bytes(0, padded_bytes(length_bytes) - length_bytes);
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Encoder) {}
}

impl Encode for u32 {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(*self);
    }
}

impl Encode for u64 {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u64(*self);
    }
}

impl Encode for bool {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        encoder.bool(*self);
    }
}

impl<const N: usize> Encode for [u8; N] {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        encoder.array(self);
    }
}

/// Opaque data, carried along without a copy.
impl Encode for Payload {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque_payload(self);
    }
}

/// Optional data (RFC 4506 section 4.19), and every union of a boolean with
/// nothing in its `FALSE` arm, which looks the same.
impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        encoder.bool(self.is_some());
        if let Some(value) = self {
            value.encode(encoder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: bulk data keeps its memory and its place between head and padding,
    /// and a length in the head can be filled in afterwards.
    #[test]
    fn bulk_data_is_carried_along_untouched() {
        let mut data = Payload::new();
        data.push(Bytes::from_static(b"ab"));
        data.push(Bytes::from_static(b"cde"));
        let mut encoder = Encoder::new();
        encoder.u32(0);
        encoder.put(&data);
        encoder.bool(true);
        assert_eq!(encoder.len(), 20);
        encoder.patch_u32(0, 0x0102_0304);

        let message = encoder.into_payload();
        let pieces = message.pieces();
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces[1].as_ptr(), data.pieces()[0].as_ptr());
        assert_eq!(pieces[2].as_ptr(), data.pieces()[1].as_ptr());
        assert_eq!(
            &message.to_bytes()[..],
            b"\x01\x02\x03\x04\0\0\0\x05abcde\0\0\0\0\0\0\x01"
        );
    }

    /// Goal: a message without bulk data is one piece of memory.
    #[test]
    fn small_message_is_one_piece() {
        let mut encoder = Encoder::append_to(BytesMut::from(&b"mark"[..]));
        encoder.put(&Some(7_u64));
        encoder.opaque(b"name");
        let message = encoder.into_payload();
        assert_eq!(message.pieces().len(), 1);
        assert_eq!(
            &message.to_bytes()[..],
            b"mark\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0\x04name"
        );
    }
}
