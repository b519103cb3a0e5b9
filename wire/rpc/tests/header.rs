//! Headers of calls and replies: round trips, refusals, and bytes laid out by
//! hand after RFC 5531.

use crossdock_fuzzing::{Dice, rpc_call, rpc_reply, samples};
use crossdock_rpc::{
    AcceptStatus, AuthStatus, AuthSys, CallError, CallHeader, Credential, Groups, Rejection,
    ReplyHeader, Verifier,
};
use crossdock_xdr::{DecodeError, Decoder, Encode, Encoder};
use proptest::prelude::*;

fn encoded<T: Encode>(value: &T) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.put(value);
    encoder.into_bytes().to_vec()
}

/// Words of a message, in hexadecimal.
fn words(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

proptest! {
    /// Goal: headers survive the way over the wire, and not a byte can be missing.
    #[test]
    fn headers_are_decoded_as_they_were_encoded(seed: u64) {
        let call = samples::call_header(&mut Dice::new(seed));
        let bytes = encoded(&call);
        let mut decoder = Decoder::new(&bytes);
        prop_assert_eq!(CallHeader::decode(&mut decoder), Ok(call));
        prop_assert_eq!(decoder.finish(), Ok(()));
        for length in 0..bytes.len() {
            prop_assert!(CallHeader::decode(&mut Decoder::new(&bytes[..length])).is_err());
        }

        let reply = samples::reply_header(&mut Dice::new(seed));
        let bytes = encoded(&reply);
        prop_assert_eq!(Decoder::new(&bytes).get(), Ok(reply));
        for length in 0..bytes.len() {
            let result = Decoder::new(&bytes[..length]).get::<ReplyHeader<'_>>();
            prop_assert!(result.is_err());
        }
    }

    /// Goal: whatever a peer sends, nothing panics.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        rpc_call(&bytes);
        rpc_reply(&bytes);
    }
}

/// Goal: a call as a Unix client sends it (RFC 5531 section 9 and appendix A).
#[test]
fn call_with_auth_sys_is_laid_out_as_in_the_rfc() {
    let bytes = words(
        "12345678 00000000 00000002 000186a3 00000003 00000001
         00000001 00000024 0000002a 00000004 686f7374 000003e8 00000064
         00000003 00000004 00000018 0000001b
         00000000 00000000",
    );
    let header = CallHeader {
        xid: 0x1234_5678,
        program: 100_003,
        version: 3,
        procedure: 1,
        credential: Credential::Sys(AuthSys {
            stamp: 42,
            machine_name: b"host",
            uid: 1000,
            gid: 100,
            groups: Groups::new(&[4, 24, 27]).unwrap(),
        }),
        verifier: Verifier::NONE,
    };
    assert_eq!(CallHeader::decode(&mut Decoder::new(&bytes)), Ok(header));
    assert_eq!(encoded(&header), bytes);
}

/// Goal: each kind of reply (RFC 5531 section 9).
#[test]
fn replies_are_laid_out_as_in_the_rfc() {
    let mismatch = AcceptStatus::ProgramMismatch { low: 3, high: 3 };
    let table = [
        (
            ReplyHeader::success(7),
            "00000007 00000001 00000000 00000000 00000000 00000000",
        ),
        (
            ReplyHeader::accepted(7, AcceptStatus::ProgramUnavailable),
            "00000007 00000001 00000000 00000000 00000000 00000001",
        ),
        (
            ReplyHeader::accepted(7, mismatch),
            "00000007 00000001 00000000 00000000 00000000 00000002 00000003 00000003",
        ),
        (
            ReplyHeader::accepted(7, AcceptStatus::ProcedureUnavailable),
            "00000007 00000001 00000000 00000000 00000000 00000003",
        ),
        (
            ReplyHeader::accepted(7, AcceptStatus::GarbageArguments),
            "00000007 00000001 00000000 00000000 00000000 00000004",
        ),
        (
            ReplyHeader::accepted(7, AcceptStatus::SystemError),
            "00000007 00000001 00000000 00000000 00000000 00000005",
        ),
        (
            ReplyHeader::denied(7, Rejection::RpcMismatch { low: 2, high: 2 }),
            "00000007 00000001 00000001 00000000 00000002 00000002",
        ),
        (
            ReplyHeader::denied(7, Rejection::Auth(AuthStatus::TooWeak)),
            "00000007 00000001 00000001 00000001 00000005",
        ),
    ];
    for (header, text) in table {
        assert_eq!(encoded(&header), words(text), "{header:?}");
        assert_eq!(Decoder::new(&words(text)).get(), Ok(header));
    }
}

/// Goal: a record that is no call gets no answer; a call gets the refusal that it
/// deserves, with its own number.
#[test]
fn bad_calls_get_the_answer_of_the_rfc() {
    let answer = |text: &str| {
        let bytes = words(text);
        let error = CallHeader::decode(&mut Decoder::new(&bytes)).unwrap_err();
        (error, error.reply())
    };
    // Not even a number; a reply instead of a call.
    assert_eq!(answer("0000").1, None);
    let (error, reply) = answer("00000009 00000001 00000000");
    let what = "RPC call";
    let value = 1;
    assert_eq!(
        error,
        CallError::NotACall(DecodeError::Invalid { what, value })
    );
    assert_eq!(reply, None);
    // RPC version 3.
    assert_eq!(
        answer("00000009 00000000 00000003").1,
        Some(ReplyHeader::denied(
            9,
            Rejection::RpcMismatch { low: 2, high: 2 }
        ))
    );
    // Ends after the program.
    assert_eq!(
        answer("00000009 00000000 00000002 000186a3").1,
        Some(ReplyHeader::accepted(9, AcceptStatus::GarbageArguments))
    );
    // A credential of 401 bytes; AUTH_SYS with 17 groups; a verifier of 401 bytes.
    let start = "00000009 00000000 00000002 000186a3 00000003 00000000";
    let bad_credential = ReplyHeader::denied(9, Rejection::Auth(AuthStatus::BadCredential));
    assert_eq!(
        answer(&format!("{start} 00000006 00000191 {}", "00".repeat(404))).1,
        Some(bad_credential)
    );
    assert_eq!(
        answer(&format!(
            "{start} 00000001 00000058 00000000 00000000 00000000 00000000 00000011 {}",
            "00".repeat(68)
        ))
        .1,
        Some(bad_credential)
    );
    assert_eq!(
        answer(&format!("{start} 00000000 00000000 00000000 00000191")).1,
        Some(ReplyHeader::denied(
            9,
            Rejection::Auth(AuthStatus::BadVerifier)
        ))
    );
}
