//! HTTP requests: head and chunks. Target and seeds.

use std::ops::Range;

use crossdock_http1::{
    ChunkError, ChunkedDecoder, Condition, ETag, HeadError, HeadLimits, Method, Ranges,
    RequestHead, Validators, encode_path, evaluate, parse_head, preferred, ranges,
};
use crossdock_types::WallTime;

/// Places at which an input is cut.
const CUTS_MAX: usize = 64;

/// Few enough that inputs of a fuzzer exceed them.
const TIGHT: HeadLimits = HeadLimits {
    head_bytes_max: 120,
    headers_max: 3,
    target_bytes_max: 24,
};

/// Reads a head, and the same bytes cut in many places; then what follows it (all of
/// it, if there is none) as chunks, at once and byte by byte.
///
/// # Panics
/// If a cut shows in what is said, a name cannot be a name, ranges are outside of
/// the representation or overlap, or a decoder stands still.
pub fn http_request(input: &[u8]) {
    let limits = HeadLimits::default();
    check_cuts(input, &TIGHT);
    check_cuts(input, &limits);
    let mut rest = input;
    if let Ok(Some((head, length))) = parse_head(input, &limits) {
        check_target(&head);
        check_answers(&head);
        rest = &input[length..];
    }
    assert_eq!(decode(rest, rest.len().max(1)), decode(rest, 1));
}

/// What is said of a head, apart from its meaning.
fn verdict(bytes: &[u8], limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
    let found = parse_head(bytes, limits)?;
    Ok(found.map(|(_, length)| length))
}

/// Less than a complete head is not one yet, less than a wrong one at most as wrong,
/// and more than either is the same.
fn check_cuts(input: &[u8], limits: &HeadLimits) {
    let whole = verdict(input, limits);
    let length = match whole {
        Ok(Some(length)) => length,
        _ => input.len(),
    };
    assert!(length <= input.len());
    for cut in (0..length).step_by(length / CUTS_MAX + 1) {
        let found = verdict(&input[..cut], limits);
        let is_prefix = match found {
            Ok(found) => found.is_none(),
            Err(_) => found == whole,
        };
        assert!(is_prefix, "{found:?} at {cut}, then {whole:?}");
    }
    if let Ok(Some(length)) = whole {
        assert_eq!(verdict(&input[..length], limits), whole);
    }
}

fn check_target(head: &RequestHead) {
    let names = &head.target.path;
    for name in names {
        assert!(!name.is_empty() && name != "." && name != "..");
        assert!(!name.iter().any(|byte| b"/\0".contains(byte)));
    }
    let path = encode_path(names.iter().map(|name| &name[..]));
    let text = format!("GET {path} HTTP/1.0\r\n\r\n");
    let limits = HeadLimits {
        head_bytes_max: usize::MAX, // Encoded names take up to three times as much.
        target_bytes_max: usize::MAX,
        ..HeadLimits::default()
    };
    let again = parse_head(text.as_bytes(), &limits);
    let (again, _) = again.ok().flatten().expect("a path that was written");
    assert_eq!(again.target.path, *names);
}

fn check_answers(head: &RequestHead) {
    const SIZE: u64 = 100;
    const RANGES_MAX: usize = 8;
    let validators = Validators {
        etag: ETag::of_bytes(&[1]),
        modified: Some(WallTime(0)),
    };
    assert_ne!(evaluate(head, None), Condition::NotModified);
    let is_reading = matches!(head.method, Method::Get | Method::Head);
    assert!(is_reading || evaluate(head, Some(&validators)) != Condition::NotModified);
    let offered = ["text/html", "application/json"];
    assert!(preferred(head, &offered).is_none_or(|found| offered.contains(&found)));
    let mut found = match ranges(head, SIZE, &validators, RANGES_MAX) {
        Ranges::Whole | Ranges::Unsatisfiable => Vec::new(),
        Ranges::One(range) => vec![range],
        Ranges::Many(ranges) => ranges,
    };
    assert!(found.len() <= RANGES_MAX);
    found.sort_by_key(|range| range.start);
    assert!(
        found
            .iter()
            .all(|range| !range.is_empty() && range.end <= SIZE)
    );
    let are_apart = |a: &Range<u64>, b: &Range<u64>| a.end < b.start;
    assert!(found.is_sorted_by(are_apart));
}

/// The content of a stream that arrives in pieces, how much of it was taken, and
/// whether it is complete, or why it is none.
fn decode(stream: &[u8], piece_bytes: usize) -> (Vec<u8>, Result<(usize, bool), ChunkError>) {
    let mut decoder = ChunkedDecoder::new();
    let (mut content, mut taken) = (Vec::new(), 0);
    for mut piece in stream.chunks(piece_bytes) {
        while !piece.is_empty() {
            let step = match decoder.decode(piece) {
                Ok(step) => step,
                Err(error) => return (content, Err(error)),
            };
            content.extend_from_slice(&piece[step.data]);
            taken += step.consumed;
            if step.is_finished {
                return (content, Ok((taken, true)));
            }
            assert!(step.consumed > 0, "a step that does nothing");
            piece = &piece[step.consumed..];
        }
    }
    (content, Ok((taken, false)))
}

pub(crate) fn http_request_seeds() -> Vec<Vec<u8>> {
    const SEEDS: &[&[u8]] = &[
        b"GET /a%20b/../c/?x=%2f&y HTTP/1.1\r\nHost: a:80\r\nRange: bytes=0-9,-5,50-\r\n\
          If-Range: \"01\"\r\n\r\n",
        b"GET http://[::1]:80/a HTTP/1.1\r\nHost: b\r\nIf-None-Match: W/\"01\", \"a,b\"\r\n\
          If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\r\n",
        b"PUT /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\
          If-Match: *\r\nAuthorization: Bearer t\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"PUT /f HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc",
        b"\r\nOPTIONS * HTTP/1.1\r\nhost:\r\nAccept: text/*;q=0.5, */*\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"1\r\nx\r\nffff\r\n",
        b"GET / HTTP/1.1\nHost: a\rb\n\n",
    ];
    SEEDS.iter().map(|seed| seed.to_vec()).collect()
}
