//! What holds for every message of locking, over random values and bytes.

use crossdock_fuzzing::{Dice, nlm_call, nlm_reply, nsm, portmap, samples};
use crossdock_nlm::lock::{Arguments, Procedure, Results, Status, Versioned, Width};
use crossdock_nlm::portmap::{self as map, BindProcedure};
use crossdock_nlm::status;
use crossdock_xdr::{DecodeError, Decoder, Encode, Encoder};
use proptest::prelude::*;

const WIDTHS: [Width; 2] = [Width::Narrow, Width::Wide];

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.put(value);
    encoder.into_bytes().to_vec()
}

/// `decode` reads all of `bytes` as `value`, and no strict beginning of them.
fn check<'a, T: PartialEq + std::fmt::Debug>(
    bytes: &'a [u8],
    value: &T,
    decode: impl Fn(&mut Decoder<'a>) -> Result<T, DecodeError>,
) {
    let mut decoder = Decoder::new(bytes);
    assert_eq!(decode(&mut decoder).as_ref(), Ok(value));
    assert_eq!(decoder.finish(), Ok(()));
    for length in (0..bytes.len()).step_by(1 + bytes.len() / 64) {
        assert!(decode(&mut Decoder::new(&bytes[..length])).is_err());
    }
}

proptest! {
    /// Goal: every message of NLM survives the way over the wire in both
    /// widths, and not a byte of it can be missing.
    #[test]
    fn locks_are_decoded_as_they_were_encoded(seed: u64) {
        for &procedure in Procedure::ALL {
            for width in WIDTHS {
                let call = samples::lock_arguments(procedure, width, &mut Dice::new(seed));
                let bytes = encoded(&Versioned(width, call));
                check(&bytes, &call, |decoder| Arguments::decode(procedure, width, decoder));
                let reply = samples::lock_results(procedure, width, &mut Dice::new(seed));
                let bytes = encoded(&Versioned(width, reply));
                check(&bytes, &reply, |decoder| Results::decode(procedure, width, decoder));
            }
        }
    }

    /// Goal: the same for the status monitor.
    #[test]
    fn states_are_decoded_as_they_were_encoded(seed: u64) {
        for &procedure in status::Procedure::ALL {
            let call = samples::status_arguments(procedure, &mut Dice::new(seed));
            let bytes = encoded(&call);
            check(&bytes, &call, |decoder| status::Arguments::decode(procedure, decoder));
            let reply = samples::status_results(procedure, &mut Dice::new(seed));
            let bytes = encoded(&reply);
            check(&bytes, &reply, |decoder| status::Results::decode(procedure, decoder));
        }
    }

    /// Goal: the same for the portmapper and rpcbind.
    #[test]
    fn ports_are_decoded_as_they_were_encoded(seed: u64) {
        for &procedure in map::Procedure::ALL {
            let call = samples::map_arguments(procedure, &mut Dice::new(seed));
            let bytes = encoded(&call);
            check(&bytes, &call, |decoder| map::Arguments::decode(procedure, decoder));
            let reply = samples::map_results(procedure, &mut Dice::new(seed));
            let bytes = encoded(&reply);
            check(&bytes, &reply, |decoder| map::Results::decode(procedure, decoder));
        }
        for &procedure in BindProcedure::ALL {
            let call = samples::bind_arguments(procedure, &mut Dice::new(seed));
            let bytes = encoded(&call);
            check(&bytes, &call, |decoder| map::Arguments::decode_bind(procedure, decoder));
            let reply = samples::bind_results(procedure, &mut Dice::new(seed));
            let bytes = encoded(&reply);
            check(&bytes, &reply, |decoder| map::Results::decode_bind(procedure, decoder));
        }
    }

    /// Goal: no bytes make a decoder fail in another way than by its errors.
    #[test]
    fn any_bytes_can_be_read(bytes: Vec<u8>) {
        nlm_call(&bytes);
        nlm_reply(&bytes);
        nsm(&bytes);
        portmap(&bytes);
    }
}

/// Goal: earlier versions are never told what they cannot understand.
#[test]
fn narrow_statuses_are_those_of_version_three() {
    for &status in Status::ALL {
        assert!(status.of_width(Width::Narrow) <= Status::GracePeriod);
        assert_eq!(status.of_width(Width::Wide), status);
    }
}
