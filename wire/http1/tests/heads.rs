//! Request heads: syntax, fields and limits (RFC 9112 sections 2, 3 and 5; RFC 9110).

use crossdock_http1::HeadError::{
    Coding, CodingUnknown, Connect, Expectation, FieldName, FieldValue, HeadTooLarge, Host, Length,
    LengthAndCoding, LineEnding, RequestLine, TargetTooLong, TooManyFields, Version,
};
use crossdock_http1::{
    Framing, HeadError, HeadLimits, HttpVersion, Method, RequestHead, Status, parse_head,
};

/// What one reads as a request: the method if it is one.
type SyntaxRow = (&'static str, &'static [u8], Result<Method, HeadError>);

#[rustfmt::skip] // One case a line.
const SYNTAX: &[SyntaxRow] = &[
    ("9112 3", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Get)),
    ("9112 3", b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Head)),
    ("9112 3", b"PUT / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Put)),
    ("9112 3", b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Delete)),
    ("9112 3", b"OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Options)),
    ("9110 9.3.3", b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Post)),
    ("9110 9.3.8", b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Trace)),
    ("5789 2", b"PATCH / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Patch)),
    ("9110 9.1", b"PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Unknown)),
    ("9110 9.1", b"get / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Unknown)),
    ("9110 9.3.6", b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", Err(Connect)),
    ("9112 2.2", b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Method::Get)),
    ("9112 2.2", b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(LineEnding)),
    ("9112 2.2", b"GET / HTTP/1.1\nHost: a\r\n\r\n", Err(LineEnding)),
    ("9112 2.2", b"GET / HTTP/1.1\r\nHost: a\n\r\n", Err(LineEnding)),
    ("9112 2.2", b"GET / HTTP/1.1\r\nHost: a\r\n\nX", Err(LineEnding)),
    ("9112 2.2", b"GET / HTTP/1.1\r\nHost: a\r\rX: b\r\n\r\n", Err(LineEnding)),
    ("9112 2.2", b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", Err(LineEnding)),
    ("9112 2.2", b"GET \r/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(LineEnding)),
    ("9112 2.2", b"GET / HTTP/1.1\rHost: a\r\n\r\n", Err(LineEnding)),
    ("9112 2.2", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", Err(FieldName)),
    ("9112 3", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 3", b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 3", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 3", b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 3", b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 3", b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 3", b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 3", b"GET / \r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("1945 4.1", b"GET /\r\n\r\n", Err(RequestLine)),
    ("9112 2.3", b"GET / http/1.1\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 2.3", b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 2.3", b"GET / HTTP/1,1\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 2.3", b"GET / HTTP/11\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9112 2.3", b"GET / ICY/1.1\r\nHost: a\r\n\r\n", Err(RequestLine)),
    ("9110 15.6.6", b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", Err(Version)),
    ("9110 15.6.6", b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", Err(Version)),
    ("9110 15.6.6", b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", Err(Version)),
    ("9113 3.4", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Err(Version)),
    ("8446 5.1", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", Err(RequestLine)),
    ("9112 5.1", b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", Err(FieldName)),
    ("9112 5.1", b"GET / HTTP/1.1\r\nHost: a\r\nX\t: b\r\n\r\n", Err(FieldName)),
    ("9112 5", b"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", Err(FieldName)),
    ("9112 5", b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", Err(FieldName)),
    ("9112 5", b"GET / HTTP/1.1\r\nHost: a\r\nX(: b\r\n\r\n", Err(FieldName)),
    ("9112 5", b"GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n", Err(FieldName)),
    ("9112 5.2", b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", Err(FieldName)),
    ("9112 5.2", b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\n\r\n", Err(FieldName)),
    ("9110 5.5", b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", Err(FieldValue)),
    ("9110 5.5", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x7fb\r\n\r\n", Err(FieldValue)),
    ("9110 5.5", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x0bb\r\n\r\n", Err(FieldValue)),
    ("9110 5.5", b"GET / HTTP/1.1\r\nHost: a\r\nX: \xff\tb\r\n\r\n", Ok(Method::Get)),
    ("9110 5.5", b"GET / HTTP/1.1\r\nHost: a\r\nX:\r\n\r\n", Ok(Method::Get)),
    ("9112 3.2", b"GET / HTTP/1.1\r\n\r\n", Err(Host)),
    ("9112 3.2", b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Err(Host)),
    ("9112 3.2", b"GET / HTTP/1.0\r\nHost: a\r\nhOST: b\r\n\r\n", Err(Host)),
    ("9112 3.2", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Err(Host)),
    ("9112 3.2", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Err(Host)),
    ("9112 3.2", b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", Err(Host)),
    ("9112 3.2", b"GET / HTTP/1.1\r\nHost: a:80x\r\n\r\n", Err(Host)),
    ("9112 3.2", b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", Err(Host)),
    ("9112 3.2", b"GET / HTTP/1.1\r\nHost: [::1]80\r\n\r\n", Err(Host)),
    ("9112 3.2", b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", Ok(Method::Get)),
    ("9112 3.2", b"GET / HTTP/1.1\r\nHost:\r\n\r\n", Ok(Method::Get)),
    ("9112 3.2", b"GET / HTTP/1.0\r\n\r\n", Ok(Method::Get)),
    ("9110 10.1.1", b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n", Err(Expectation)),
];

/// Goal: what is a head is read as one, and what another reader might take for
/// something else is refused, with the same error however much has arrived.
#[test]
fn heads_are_read_strictly() {
    for (section, bytes, expected) in SYNTAX {
        let found = parse_head(bytes, &HeadLimits::default());
        let found = found.map(|head| head.expect("a complete head").0.method);
        assert_eq!(found, *expected, "RFC {section}: {}", bytes.escape_ascii());
        for cut in 0..bytes.len() {
            let found = parse_head(&bytes[..cut], &HeadLimits::default());
            match (found, expected) {
                (Ok(None), _) => {}
                (Err(error), Err(expected)) if error == *expected => {}
                (found, _) => panic!("{}: {found:?} at {cut}", bytes.escape_ascii()),
            }
        }
    }
}

/// The head `PUT / HTTP/1.1` (or 1.0) with these further lines.
fn head(version: &str, lines: &str) -> Result<RequestHead, HeadError> {
    let text = format!("PUT / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
    let found = parse_head(text.as_bytes(), &HeadLimits::default())?;
    let (head, length) = found.expect("a complete head");
    assert_eq!(length, text.len());
    Ok(head)
}

/// Goal: names are found in any case, values are without white space around them,
/// and lines of one name are one list in their order (RFC 9110 sections 5.1, 5.3).
#[test]
fn fields_are_found_and_joined() {
    let head = head(
        "1.0",
        "a: 1\r\nB:  x  y \t\r\nA:2\r\nAuthorization: bEARER  t0k=\r\n",
    )
    .unwrap();
    assert_eq!(head.header("A"), Some(&b"1, 2"[..]));
    assert_eq!(head.header("b"), Some(&b"x  y"[..]));
    assert_eq!(head.header("c"), None);
    assert_eq!(head.authorization(), Some(&b"bEARER  t0k="[..]));
    assert_eq!(head.bearer_token(), Some(&b"t0k="[..]));
    assert_eq!(head.host.as_deref(), Some(&b"a"[..]));
    assert_eq!(head.version, HttpVersion::Http10);
    let names: Vec<&[u8]> = head.headers().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"Host"[..], b"a", b"B", b"Authorization"]);
}

/// Goal: credentials that are not one bearer token are none.
#[test]
fn other_credentials_are_no_bearer_token() {
    for lines in [
        "",
        "Authorization: Basic abc\r\n",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer a b\r\n",
        "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
        "Authorization: Bearerabc\r\n",
    ] {
        assert_eq!(
            head("1.1", lines).unwrap().bearer_token(),
            None,
            "{lines:?}"
        );
    }
}

/// Goal: every limit holds to the byte, and is named by its status.
#[test]
fn limits_are_exact() {
    let text = b"GET /12345 HTTP/1.1\r\nHost: a\r\nX: b\r\n\r\n";
    let limits = HeadLimits {
        head_bytes_max: text.len(),
        headers_max: 2,
        target_bytes_max: 6,
    };
    assert!(parse_head(text, &limits).unwrap().is_some());
    let refusal = |limits: HeadLimits| {
        let error = parse_head(text, &limits).unwrap_err();
        (error, error.status())
    };
    let head_bytes_max = text.len() - 1;
    let smaller = HeadLimits {
        head_bytes_max,
        ..limits
    };
    assert_eq!(
        refusal(smaller),
        (HeadTooLarge, Status::HeaderFieldsTooLarge)
    );
    let smaller = HeadLimits {
        headers_max: 1,
        ..limits
    };
    assert_eq!(
        refusal(smaller),
        (TooManyFields, Status::HeaderFieldsTooLarge)
    );
    let smaller = HeadLimits {
        target_bytes_max: 5,
        ..limits
    };
    assert_eq!(refusal(smaller), (TargetTooLong, Status::UriTooLong));
}

/// Goal: a client that never ends its line, or sends nothing but empty ones, is
/// refused at the limit; no byte before.
#[test]
fn endless_heads_are_refused_at_the_limit() {
    let limits = HeadLimits::default();
    let max = limits.head_bytes_max;
    let lines = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; max]].concat();
    let empty = b"\r\n".repeat(max);
    for bytes in [lines, empty] {
        assert!(parse_head(&bytes[..max - 1], &limits).unwrap().is_none());
        assert_eq!(
            parse_head(&bytes[..max], &limits).unwrap_err(),
            HeadTooLarge
        );
        assert_eq!(parse_head(&bytes, &limits).unwrap_err(), HeadTooLarge);
    }
    let target = [b"GET /".to_vec(), vec![b'x'; max]].concat();
    let at = 4 + limits.target_bytes_max;
    assert!(parse_head(&target[..at], &limits).unwrap().is_none());
    assert_eq!(
        parse_head(&target[..=at], &limits).unwrap_err(),
        TargetTooLong
    );
}

/// Goal: a pipelined request begins where the one before it ended, whatever bytes
/// its content has (RFC 9112 section 9.3.2).
#[test]
fn pipelined_requests_are_cut_apart() {
    let first = &b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"[..];
    let second = &b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n"[..];
    let stream = [first, b"\n\0\r", second].concat();
    let limits = HeadLimits::default();
    let (head, length) = parse_head(&stream, &limits).unwrap().unwrap();
    assert_eq!((head.framing, length), (Framing::Length(3), first.len()));
    let rest = &stream[length + 3..];
    let (head, length) = parse_head(rest, &limits).unwrap().unwrap();
    assert_eq!((&head.target.raw[..], length), (&b"/b"[..], second.len()));
}

/// Goal: each refusal has the status of the specification.
#[test]
fn refusals_have_their_status() {
    let statuses = [
        (RequestLine, 400),
        (LineEnding, 400),
        (FieldName, 400),
        (FieldValue, 400),
        (HeadError::Target, 400),
        (Host, 400),
        (Length, 400),
        (LengthAndCoding, 400),
        (Coding, 400),
        (TargetTooLong, 414),
        (Expectation, 417),
        (HeadTooLarge, 431),
        (TooManyFields, 431),
        (CodingUnknown, 501),
        (Connect, 501),
        (Version, 505),
    ];
    for (error, number) in statuses {
        assert_eq!(error.status().number(), number, "{error}");
    }
}
