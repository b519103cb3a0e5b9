//! The decoder over bytes that nobody has checked.

use crossdock_fuzzing::xdr;
use crossdock_types::Payload;
use crossdock_xdr::{Decoder, Encoder, opaque_bytes, padded_bytes};
use proptest::prelude::*;

proptest! {
    /// Goal: no sequence of reads over any bytes panics or leaves the record.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        xdr(&bytes);
    }

    /// Goal: primitives are read as they were written, and take the room that
    /// the size functions say.
    #[test]
    fn primitives_are_decoded_as_they_were_encoded(
        number: u32,
        large: u64,
        flag: bool,
        optional: Option<u64>,
        text in prop::collection::vec(any::<u8>(), 0..40),
        array: [u8; 12],
    ) {
        let mut encoder = Encoder::with_capacity(16);
        encoder.u32(number);
        encoder.u64(large);
        encoder.bool(flag);
        encoder.put(&optional);
        let before = encoder.len();
        encoder.opaque(&text);
        prop_assert_eq!(encoder.len() - before, opaque_bytes(text.len()));
        prop_assert_eq!(opaque_bytes(text.len()), 4 + padded_bytes(text.len()));
        encoder.array(&array);
        encoder.put(&Payload::from(bytes::Bytes::copy_from_slice(&text)));

        let record = encoder.into_bytes();
        let mut decoder = Decoder::of_record(&record);
        prop_assert_eq!(decoder.u32(), Ok(number));
        prop_assert_eq!(decoder.u64(), Ok(large));
        prop_assert_eq!(decoder.bool(), Ok(flag));
        prop_assert_eq!(decoder.get(), Ok(optional));
        prop_assert_eq!(decoder.opaque(40), Ok(&text[..]));
        prop_assert_eq!(decoder.array(), Ok(array));
        prop_assert_eq!(decoder.payload(40).unwrap().to_bytes(), &text[..]);
        prop_assert_eq!(decoder.finish(), Ok(()));
    }
}
