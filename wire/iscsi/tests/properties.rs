//! Headers and texts come back as they went; any bytes are cut the same way however they
//! arrive.

use crossdock_fuzzing::{iscsi_stream, iscsi_text};
use crossdock_iscsi_pdu::{Request, Response, encode_text, parse_text};
use proptest::prelude::*;
use zerocopy::IntoBytes;

fn bytes_of(request: &Request) -> &[u8] {
    match request {
        Request::Nop(it) => it.as_bytes(),
        Request::Command(it) => it.as_bytes(),
        Request::Task(it) => it.as_bytes(),
        Request::Login(it) => it.as_bytes(),
        Request::Text(it) => it.as_bytes(),
        Request::Data(it) => it.as_bytes(),
        Request::Logout(it) => it.as_bytes(),
        Request::Snack(it) => it.as_bytes(),
    }
}

fn bytes_of_response(response: &Response) -> &[u8] {
    match response {
        Response::Nop(it) => it.as_bytes(),
        Response::Command(it) => it.as_bytes(),
        Response::Task(it) => it.as_bytes(),
        Response::Login(it) => it.as_bytes(),
        Response::Text(it) => it.as_bytes(),
        Response::Data(it) => it.as_bytes(),
        Response::Logout(it) => it.as_bytes(),
        Response::Ready(it) => it.as_bytes(),
        Response::Async(it) => it.as_bytes(),
        Response::Reject(it) => it.as_bytes(),
    }
}

proptest! {
    #[test]
    fn headers_come_back(bytes: [u8; 16], more: [[u8; 16]; 2]) {
        let mut header = [0; 48];
        header.as_mut_slice().copy_from_slice(&[bytes, more[0], more[1]].concat());
        if let Some(request) = Request::decode(&header) {
            prop_assert_eq!(bytes_of(&request), header);
        }
        if let Some(response) = Response::decode(&header) {
            prop_assert_eq!(bytes_of_response(&response), header);
        }
    }

    #[test]
    fn texts_come_back(pairs in prop::collection::vec(("[!-<>-~]{1,63}", "[ -~]{0,40}"), 0..20)) {
        let text = encode_text(pairs.iter().map(|(key, value)| (&key[..], &value[..])));
        prop_assert_eq!(parse_text(&text).expect("a text"), pairs);
    }

    #[test]
    fn any_bytes_are_a_stream(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        iscsi_stream(&bytes);
    }

    #[test]
    fn any_bytes_are_a_text_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        iscsi_text(&bytes);
    }
}
