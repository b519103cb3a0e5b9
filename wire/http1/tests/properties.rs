//! What holds for any bytes: see the fuzz target.

use crossdock_fuzzing::http_request;
use proptest::prelude::*;

/// Pieces of requests, right ones and wrong ones.
const PIECES: &[&[u8]] = &[
    b"GET ",
    b"PUT ",
    b"OPTIONS ",
    b"/a%20b/../c",
    b"/%2e%2e/x?y=%zz",
    b"*",
    b"http://h:80/a",
    b" HTTP/1.1\r\n",
    b" HTTP/1.0\r\n",
    b" HTTP/1.2\r\n",
    b" HTTP/2",
    b"HTTP/1.1",
    b"Host: a\r\n",
    b"Host : a\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: +5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Range: bytes=0-5,3-9,-7,90-\r\n",
    b"If-Range: \"01\"\r\n",
    b"If-Match: \"01\"\r\n",
    b"X: y\r\n",
    b" folded\r\n",
    b"\r\n",
    b"\r",
    b"\n",
    b"\0",
    b" ",
    b":",
    b"%",
    b"\xff",
    b"5\r\nhello\r\n",
    b"1;a=b\r\nx\r\n",
    b"0\r\n\r\n",
    b"fffffffffffffffff\r\n",
];

fn pieces(count_max: usize) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(PIECES);
    prop::collection::vec(piece, 0..count_max).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Goal: any bytes are survived, and wherever they are cut the same is said.
    #[test]
    fn any_bytes_are_survived(input in prop::collection::vec(any::<u8>(), 0..300)) {
        http_request(&input);
    }

    /// Goal: the same for what looks like requests.
    #[test]
    fn likely_requests_are_survived(input in pieces(16)) {
        http_request(&input);
    }

    /// Goal: the same for what begins as a request and goes on with anything.
    #[test]
    fn requests_with_anything_in_them_are_survived(
        target in "[!-~]{0,12}",
        lines in "([A-Za-z-]{1,9}:[ -~]{0,9}\r\n){0,5}",
        tail in pieces(6),
    ) {
        let start = format!("GET /{target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        http_request(&[start.as_bytes(), &tail].concat());
    }

    /// Goal: the same for requests of which one byte was changed.
    #[test]
    fn damaged_requests_are_survived(at in 0..200_usize, byte: u8) {
        let mut input = b"PUT /a%20b/?x=y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
            If-Match: \"01\", W/\"a\"\r\nExpect: 100-continue\r\n\r\n\
            5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n".to_vec();
        let at = at % input.len();
        input[at] = byte;
        http_request(&input);
    }
}
