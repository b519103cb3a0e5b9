//! Where content ends, and whether connections stay open (RFC 9112 sections 6 and 9).

use crossdock_http1::HeadError::{Coding, CodingUnknown, Length, LengthAndCoding};
use crossdock_http1::{Framing, HeadError, HeadLimits, RequestHead, parse_head};

/// The head `PUT / HTTP/1.1` (or 1.0) with these further lines.
fn head(version: &str, lines: &str) -> Result<RequestHead, HeadError> {
    let text = format!("PUT / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
    let found = parse_head(text.as_bytes(), &HeadLimits::default())?;
    let (head, length) = found.expect("a complete head");
    assert_eq!(length, text.len());
    Ok(head)
}

type FramingRow = (
    &'static str,
    &'static str,
    &'static str,
    Result<Framing, HeadError>,
);

#[rustfmt::skip] // One case a line.
const FRAMING: &[FramingRow] = &[
    ("9112 6.3", "1.1", "", Ok(Framing::None)),
    ("9112 6.3", "1.0", "", Ok(Framing::None)),
    ("9112 6.2", "1.1", "Content-Length: 5\r\n", Ok(Framing::Length(5))),
    ("9112 6.2", "1.0", "content-LENGTH:5\r\n", Ok(Framing::Length(5))),
    ("9110 8.6", "1.1", "Content-Length: 0\r\n", Ok(Framing::Length(0))),
    ("9110 8.6", "1.1", "Content-Length: \t007 \t\r\n", Ok(Framing::Length(7))),
    ("9110 8.6", "1.1", "Content-Length: 18446744073709551615\r\n", Ok(Framing::Length(u64::MAX))),
    ("9110 8.6", "1.1", "Content-Length: 18446744073709551616\r\n", Err(Length)),
    ("9110 8.6", "1.1", "Content-Length:\r\n", Err(Length)),
    ("9110 8.6", "1.1", "Content-Length: +5\r\n", Err(Length)),
    ("9110 8.6", "1.1", "Content-Length: -5\r\n", Err(Length)),
    ("9110 8.6", "1.1", "Content-Length: 0x5\r\n", Err(Length)),
    ("9110 8.6", "1.1", "Content-Length: 5 5\r\n", Err(Length)),
    ("9110 8.6", "1.1", "Content-Length: 5.0\r\n", Err(Length)),
    ("9110 8.6", "1.1", "Content-Length: 5;\r\n", Err(Length)),
    ("9110 8.6", "1.1", "Content-Length: \u{665}\r\n", Err(Length)),
    ("9110 8.6", "1.1", "Content-Length: 5, 5\r\n", Err(Length)),
    ("9112 6.3", "1.1", "Content-Length: 5\r\nContent-Length: 5\r\n", Err(Length)),
    ("9112 6.3", "1.1", "Content-Length: 5\r\nContent-Length: 6\r\n", Err(Length)),
    ("9112 6.3", "1.1", "Content-Length: 5\r\nContent-Length:\r\n", Err(Length)),
    ("9112 7.1", "1.1", "Transfer-Encoding: chunked\r\n", Ok(Framing::Chunked)),
    ("9112 7", "1.1", "transfer-encoding: CHUNKED\r\n", Ok(Framing::Chunked)),
    ("9112 6.1", "1.0", "Transfer-Encoding: chunked\r\n", Err(Coding)),
    ("9112 6.3", "1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(LengthAndCoding)),
    ("9112 6.3", "1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Err(LengthAndCoding)),
    ("9112 6.3", "1.1", "Transfer-Encoding: x\r\nContent-Length: y\r\n", Err(LengthAndCoding)),
    ("9112 6.1", "1.1", "Transfer-Encoding: gzip, chunked\r\n", Err(CodingUnknown)),
    ("9112 6.1", "1.1", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", Err(CodingUnknown)),
    ("9112 6.1", "1.1", "Transfer-Encoding: , chunked\r\n", Err(CodingUnknown)),
    ("9112 6.3", "1.1", "Transfer-Encoding: chunked, gzip\r\n", Err(Coding)),
    ("9112 6.1", "1.1", "Transfer-Encoding: chunked, chunked\r\n", Err(Coding)),
    ("9112 6.1", "1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(Coding)),
    ("9112 6.3", "1.1", "Transfer-Encoding: identity\r\n", Err(Coding)),
    ("9112 6.3", "1.1", "Transfer-Encoding:\r\n", Err(Coding)),
    ("9112 6.3", "1.1", "Transfer-Encoding: xchunked\r\n", Err(Coding)),
    ("9112 6.3", "1.1", "Transfer-Encoding: \"chunked\"\r\n", Err(Coding)),
    ("9112 6.3", "1.1", "Transfer-Encoding: chunked;a=b\r\n", Err(Coding)),
];

/// Goal: content has one end that everybody sees, or the request is refused.
#[test]
fn content_is_framed_without_doubt() {
    for (section, version, lines, expected) in FRAMING {
        let found = head(version, lines).map(|head| head.framing);
        assert_eq!(found, *expected, "RFC {section}: {version} {lines:?}");
    }
}

/// Section, version, lines, whether the connection stays open.
#[rustfmt::skip] // One case a line.
const CONNECTIONS: &[(&str, &str, &str, bool)] = &[
    ("9112 9.3", "1.1", "", true),
    ("9112 9.3", "1.0", "", false),
    ("9112 9.3", "1.0", "Connection: Keep-Alive\r\n", true),
    ("9112 9.3", "1.1", "Connection: close\r\n", false),
    ("9112 9.3", "1.1", "Connection: TE, Close\r\n", false),
    ("9112 9.3", "1.1", "Connection: te\r\nConnection: close\r\n", false),
    ("9112 9.3", "1.0", "Connection: keep-alive, close\r\n", false),
    ("9112 9.3", "1.1", "Connection: not-close\r\n", true),
];

/// Goal: connections stay open for those who expect it.
#[test]
fn connections_persist_by_version_and_option() {
    for (section, version, lines, expected) in CONNECTIONS {
        let found = head(version, lines).unwrap().keep_alive;
        assert_eq!(found, *expected, "RFC {section}: {version} {lines:?}");
    }
}

/// Section, version, lines, whether the client waits.
#[rustfmt::skip] // One case a line.
const EXPECTATIONS: &[(&str, &str, &str, bool)] = &[
    ("9110 10.1.1", "1.1", "Content-Length: 5\r\n", false),
    ("9110 10.1.1", "1.1", "Content-Length: 5\r\nExpect: 100-Continue\r\n", true),
    ("9110 10.1.1", "1.1", "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n", true),
    ("9110 10.1.1", "1.0", "Content-Length: 5\r\nExpect: 100-continue\r\n", false),
    ("9110 10.1.1", "1.1", "Expect: 100-continue\r\n", false),
    ("9110 10.1.1", "1.1", "Content-Length: 0\r\nExpect: 100-continue\r\n", false),
];

/// Goal: 100 is sent to those who wait for it.
#[test]
fn clients_that_wait_are_known() {
    for (section, version, lines, expected) in EXPECTATIONS {
        let found = head(version, lines).unwrap().expects_continue;
        assert_eq!(found, *expected, "RFC {section}: {version} {lines:?}");
    }
}
