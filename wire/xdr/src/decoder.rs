//! Reading XDR: a cursor over one record.
//!
//! Called by the codecs of `wire`. Whatever it returns either borrows from the
//! record or is a number; lengths are compared with the caller's bound and with
//! what is left of the record before anything else happens.

use std::ops::Range;

use bytes::Bytes;
use crossdock_types::Payload;
use thiserror::Error;

use crate::{UNIT_BYTES, padded_bytes};

/// A type that can be read from XDR, borrowing from a record that lives for `'a`.
pub trait Decode<'a>: Sized {
    /// Reads one value; the decoder stands behind it afterwards.
    ///
    /// # Errors
    /// The record ends too early or holds a value the type does not have. The
    /// decoder's position is then unspecified.
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError>;
}

/// Why bytes are not the expected type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The record ends within the value.
    #[error("record ends {missing_bytes} bytes too early")]
    Truncated {
        /// How many more bytes the value needs at least.
        missing_bytes: usize,
    },
    /// A length or a count exceeds the bound of its field.
    #[error("length {length} is above the limit of {length_max}")]
    TooLong {
        /// Length or count in the record.
        length: usize,
        /// Largest value allowed.
        length_max: usize,
    },
    /// A discriminant, an enumeration or a boolean has no such value.
    #[error("{value} is no {what}")]
    Invalid {
        /// Name of the type in its RFC.
        what: &'static str,
        /// The number found.
        value: u32,
    },
    /// Bytes are left where the record should end.
    #[error("{bytes} bytes behind the end")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}

/// Opaque data as it lies in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opaque<'a> {
    /// The bytes, without length and padding.
    pub bytes: &'a [u8],
    /// Where they begin, counted from the start of the record.
    pub start: usize,
}

impl Opaque<'_> {
    /// Place of the bytes in the record, for [`Bytes::slice`].
    #[must_use]
    pub const fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes.len()
    }
}

/// A cursor over one record.
///
/// Made from a slice, everything but [`bytes`](Self::bytes) and
/// [`payload`](Self::payload) borrows; made with [`of_record`](Self::of_record),
/// those two share the record's memory as well, so nothing is ever copied.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    record: &'a [u8],
    shared: Option<&'a Bytes>, // The same bytes as `record`, if the caller has them refcounted.
    position: usize,           // At most `record.len()`.
}

impl<'a> Decoder<'a> {
    /// A decoder at the start of `record`.
    #[must_use]
    pub const fn new(record: &'a [u8]) -> Self {
        Self {
            record,
            shared: None,
            position: 0,
        }
    }

    /// A decoder at the start of a refcounted record, whose bulk data can then
    /// be taken out without a copy.
    #[must_use]
    pub fn of_record(record: &'a Bytes) -> Self {
        Self {
            record,
            shared: Some(record),
            position: 0,
        }
    }

    /// Bytes read so far: the offset in the record of what comes next.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Bytes not read yet.
    #[must_use]
    pub const fn remaining_bytes(&self) -> usize {
        self.record.len() - self.position
    }

    /// Asserts that the whole record was read.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] if it was not.
    pub const fn finish(self) -> Result<(), DecodeError> {
        match self.remaining_bytes() {
            0 => Ok(()),
            bytes => Err(DecodeError::Trailing { bytes }),
        }
    }

    /// Reads a value of any type.
    ///
    /// # Errors
    /// As [`Decode::decode`] of the type.
    #[inline]
    pub fn get<T: Decode<'a>>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// Unsigned integer (RFC 4506 section 4.2).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Unsigned hyper integer (RFC 4506 section 4.5).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Boolean (RFC 4506 section 4.4).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`]; [`DecodeError::Invalid`] if neither 0 nor 1.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::Invalid {
                what: "bool",
                value,
            }),
        }
    }

    /// Fixed-length opaque data of a whole number of units (RFC 4506 section 4.9).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        const { assert!(N.is_multiple_of(UNIT_BYTES), "array with padding") };
        let Some(array) = self.record[self.position..].first_chunk::<N>() else {
            return Err(self.truncated(N));
        };
        self.position += N;
        Ok(*array)
    }

    /// Variable-length opaque data or a string of at most `length_max` bytes
    /// (RFC 4506 section 4.10), and where it lies.
    ///
    /// The padding must be there, but may hold anything: section 3 asks senders
    /// for zeros, and nothing is gained by losing those that do not listen.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`], [`DecodeError::Truncated`].
    #[inline]
    pub fn opaque_located(&mut self, length_max: usize) -> Result<Opaque<'a>, DecodeError> {
        let length = self.count(length_max)?;
        let padded = length.checked_next_multiple_of(UNIT_BYTES);
        let Some(padded) = padded.filter(|&padded| padded <= self.remaining_bytes()) else {
            return Err(self.truncated(length));
        };
        let start = self.position;
        self.position += padded;
        Ok(Opaque {
            bytes: &self.record[start..start + length],
            start,
        })
    }

    /// Variable-length opaque data or a string of at most `length_max` bytes.
    ///
    /// # Errors
    /// As [`opaque_located`](Self::opaque_located).
    #[inline]
    pub fn opaque(&mut self, length_max: usize) -> Result<&'a [u8], DecodeError> {
        Ok(self.opaque_located(length_max)?.bytes)
    }

    /// Variable-length opaque data that outlives the decoder: shared with the
    /// record where the decoder was made [`of_record`](Self::of_record), else
    /// copied.
    ///
    /// # Errors
    /// As [`opaque_located`](Self::opaque_located).
    pub fn bytes(&mut self, length_max: usize) -> Result<Bytes, DecodeError> {
        let opaque = self.opaque_located(length_max)?;
        Ok(self.share(opaque.range()))
    }

    /// [`bytes`](Self::bytes) as a payload.
    ///
    /// # Errors
    /// As [`opaque_located`](Self::opaque_located).
    pub fn payload(&mut self, length_max: usize) -> Result<Payload, DecodeError> {
        self.bytes(length_max).map(Payload::from)
    }

    /// Length of an array, at most `count_max` (RFC 4506 section 4.13).
    ///
    /// # Errors
    /// [`DecodeError::TooLong`], [`DecodeError::Truncated`].
    #[inline]
    pub fn count(&mut self, count_max: usize) -> Result<usize, DecodeError> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if length > count_max {
            return Err(DecodeError::TooLong {
                length,
                length_max: count_max,
            });
        }
        Ok(length)
    }

    /// The bytes of the record from `start` to here, shared or copied like
    /// [`bytes`](Self::bytes): keeps a part of the record that was read through.
    ///
    /// # Panics
    /// If `start` lies behind the position.
    #[must_use]
    pub fn since(&self, start: usize) -> Bytes {
        self.share(start..self.position)
    }

    fn share(&self, range: Range<usize>) -> Bytes {
        match self.shared {
            Some(record) => record.slice(range),
            None => Bytes::copy_from_slice(&self.record[range]),
        }
    }

    #[cold]
    const fn truncated(&self, length_bytes: usize) -> DecodeError {
        let needed = padded_bytes_saturating(length_bytes);
        DecodeError::Truncated {
            missing_bytes: needed.saturating_sub(self.remaining_bytes()),
        }
    }
}

const fn padded_bytes_saturating(length_bytes: usize) -> usize {
    if length_bytes > usize::MAX - UNIT_BYTES {
        usize::MAX
    } else {
        padded_bytes(length_bytes)
    }
}

impl<'a> Decode<'a> for () {
    fn decode(_: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl<'a> Decode<'a> for u32 {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.u32()
    }
}

impl<'a> Decode<'a> for u64 {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.u64()
    }
}

impl<'a> Decode<'a> for bool {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.bool()
    }
}

impl<'a, const N: usize> Decode<'a> for [u8; N] {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.array()
    }
}

/// Opaque data bounded by the record alone.
impl<'a> Decode<'a> for Payload {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.payload(usize::MAX)
    }
}

/// Optional data (RFC 4506 section 4.19), and every union of a boolean with
/// nothing in its `FALSE` arm, which looks the same.
impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.bool()?.then(|| T::decode(decoder)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lengths from the record are checked against the bound first and
    /// against the record second, and the largest length overflows nothing.
    #[test]
    fn lengths_are_checked_before_use() {
        let huge = [0xff; 8];
        assert_eq!(
            Decoder::new(&huge).opaque(64),
            Err(DecodeError::TooLong {
                length: 0xffff_ffff,
                length_max: 64
            })
        );
        assert_eq!(
            Decoder::new(&huge).opaque(usize::MAX),
            Err(DecodeError::Truncated {
                missing_bytes: 0xffff_fffc
            })
        );
        let unpadded = [0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0];
        assert_eq!(
            Decoder::new(&unpadded).opaque(8),
            Err(DecodeError::Truncated { missing_bytes: 1 })
        );
    }

    /// Goal: opaque data says where it lies, whatever its padding holds, and
    /// bulk data of a refcounted record is shared.
    #[test]
    fn opaque_data_is_located_and_shared() {
        let record = Bytes::from_static(&[0, 0, 0, 9, 0, 0, 0, 3, 7, 8, 9, 0xee, 0, 0, 0, 1]);
        let mut decoder = Decoder::of_record(&record);
        assert_eq!(decoder.u32(), Ok(9));
        let mut again = decoder.clone();
        let opaque = decoder.opaque_located(3).unwrap();
        assert_eq!((opaque.bytes, opaque.range()), (&[7, 8, 9][..], 8..11));
        assert_eq!(decoder.bool(), Ok(true));
        assert_eq!(decoder.finish(), Ok(()));

        let bytes = again.bytes(3).unwrap();
        assert_eq!(bytes.as_ptr(), record[8..].as_ptr());
        assert_eq!(again.finish(), Err(DecodeError::Trailing { bytes: 4 }));
    }

    /// Goal: a boolean is 0 or 1.
    #[test]
    fn other_booleans_are_refused() {
        assert_eq!(
            Decoder::new(&[0, 0, 0, 2]).get::<Option<u32>>(),
            Err(DecodeError::Invalid {
                what: "bool",
                value: 2
            })
        );
        assert_eq!(Decoder::new(&[0; 4]).get::<Option<u32>>(), Ok(None));
    }
}
