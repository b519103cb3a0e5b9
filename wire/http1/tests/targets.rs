//! Targets of requests (RFC 9112 section 3.2; RFC 3986).

use crossdock_http1::{HeadError, HeadLimits, RequestHead, Target, encode_path, parse_head};

fn head(method: &str, target: &[u8]) -> Result<RequestHead, HeadError> {
    let start = format!("{method} ");
    let text = [
        start.as_bytes(),
        target,
        b" HTTP/1.1\r\nHost: field\r\n\r\n",
    ]
    .concat();
    let found = parse_head(&text, &HeadLimits::default())?;
    Ok(found.expect("a complete head").0)
}

/// Names with a slash before each, and one behind a directory; escaped as in Rust.
fn shown(target: &Target) -> String {
    let name = |name: &bytes::Bytes| format!("/{}", name.escape_ascii());
    let path: String = target.path.iter().map(name).collect();
    format!("{path}{}", if target.is_directory { "/" } else { "" })
}

/// Section, target, what it names; `None` if it is refused.
#[rustfmt::skip] // One case a line.
const PATHS: &[(&str, &[u8], Option<&str>)] = &[
    ("9112 3.2.1", b"/", Some("/")),
    ("9112 3.2.1", b"/a", Some("/a")),
    ("9112 3.2.1", b"/a/b/", Some("/a/b/")),
    ("3986 2.1", b"/%61%2Fb", None),
    ("3986 2.1", b"/%41%7e%20", Some("/A~ ")),
    ("3986 2.1", b"/%ff%0a%c3%a4", Some("/\\xff\\n\\xc3\\xa4")),
    ("3986 2.1", b"/%25%32%66", Some("/%2f")),
    ("3986 2.1", b"/%00", None),
    ("3986 2.1", b"/a%00b/c", None),
    ("3986 2.1", b"/%", None),
    ("3986 2.1", b"/%4", None),
    ("3986 2.1", b"/%4g", None),
    ("3986 2.1", b"/%+1", None),
    ("3986 2.1", b"/%u0041", None),
    ("3986 5.2.4", b"/a/./b", Some("/a/b")),
    ("3986 5.2.4", b"/a/b/.", Some("/a/b/")),
    ("3986 5.2.4", b"/a/b/..", Some("/a/")),
    ("3986 5.2.4", b"/a/b/c/./../../g", Some("/a/g")),
    ("3986 5.2.4", b"/..", Some("/")),
    ("3986 5.2.4", b"/../../etc/passwd", Some("/etc/passwd")),
    ("3986 5.2.4", b"/a/../../b", Some("/b")),
    ("3986 5.2.4", b"/a/.../b", Some("/a/.../b")),
    ("3986 5.2.4", b"/.a/..b", Some("/.a/..b")),
    ("3986 6.2.2.2", b"/a/%2e%2E/b", Some("/b")),
    ("3986 6.2.2.2", b"/a/.%2e/b", Some("/b")),
    ("3986 6.2.2.2", b"/%2e%2e/%2e%2e/etc", Some("/etc")),
    ("3986 6.2.2.2", b"/%2e%2e%2fetc", None),
    ("3986 5.2.4", b"/a//../b", Some("/a/b")),
    ("3986 3.3", b"//a///b//", Some("/a/b/")),
    ("3986 3.3", b"//", Some("/")),
    ("3986 3.3", b"/a;b=c,d:e@f!$&'()*+", Some("/a;b=c,d:e@f!$&\\'()*+")),
    ("3986 2", b"/[a]|{b}^`", Some("/[a]|{b}^`")),
    ("3986 2", b"/a\"b", None),
    ("3986 2", b"/a<b>", None),
    ("3986 2", b"/a\\b", None),
    ("3986 2", b"/..\\..\\etc", None),
    ("3986 2", b"/\xc3\xa4", None),
    ("3986 2", b"/\xff", None),
    ("3986 2", b"/a\x7f", None),
    ("3986 2", b"/a\x01b", None),
    ("9110 7.1", b"/a#b", None),
    ("9112 3.2.2", b"http://h/a/b", Some("/a/b")),
    ("9112 3.2.2", b"HTTP://h/a", Some("/a")),
    ("9112 3.2.2", b"https://h:443/a", Some("/a")),
    ("9112 3.2.2", b"http://h", Some("/")),
    ("9112 3.2.2", b"http://h?a=b", Some("/")),
    ("9112 3.2.2", b"http://[::1]:80/a", Some("/a")),
    ("9110 4.2.1", b"http:///a", None),
    ("9110 4.2.1", b"http://:80/a", None),
    ("9110 4.2.4", b"http://user@h/a", None),
    ("9112 3.2.2", b"http://h:80a/a", None),
    ("9112 3.2.2", b"http:/a", None),
    ("9112 3.2.2", b"ftp://h/a", None),
    ("9112 3.2", b"a/b", None),
    ("9112 3.2.3", b"h:80", None),
    ("9112 3.2.4", b"*", None),
    ("9112 3.2", b"?a", None),
];

/// Goal: paths are the names that they stand for, never above the root; what has no
/// clear meaning is refused.
#[test]
fn targets_name_what_they_say() {
    for (section, target, expected) in PATHS {
        let found = head("GET", target);
        let expected = expected.map(str::to_owned).ok_or(HeadError::Target);
        // What no request line can have at all is noticed before.
        let found = found
            .map(|head| shown(&head.target))
            .map_err(|error| match error {
                HeadError::RequestLine => HeadError::Target,
                error => error,
            });
        assert_eq!(found, expected, "RFC {section}: {}", target.escape_ascii());
    }
}

/// Goal: `*` is for OPTIONS, also in the form in which a proxy gets it (RFC 9112
/// section 3.2.4).
#[test]
fn asterisk_is_for_options() {
    for (target, is_server) in [
        ("*", true),
        ("http://h", true),
        ("http://h/", false),
        ("/", false),
    ] {
        let head = head("OPTIONS", target.as_bytes()).unwrap();
        assert_eq!(head.target.is_server, is_server, "{target}");
        assert!(head.target.path.is_empty());
    }
    assert_eq!(head("HEAD", b"*").unwrap_err(), HeadError::Target);
}

/// Goal: the authority of the target counts, and the Host field else (RFC 9112
/// section 3.2.2).
#[test]
fn host_is_that_of_the_target() {
    for (target, host) in [
        ("/", "field"),
        ("http://h:81/", "h:81"),
        ("https://[::1]?a", "[::1]"),
    ] {
        let head = head("GET", target.as_bytes()).unwrap();
        assert_eq!(head.host.as_deref(), Some(host.as_bytes()), "{target}");
    }
}

/// Section, target, pairs; `None` if it is refused.
type QueryRow = (
    &'static str,
    &'static str,
    Option<&'static [(&'static str, &'static str)]>,
);

const QUERIES: &[QueryRow] = &[
    ("3986 3.4", "/a", Some(&[])),
    ("3986 3.4", "/a?", Some(&[])),
    ("3986 3.4", "/a?b", Some(&[("b", "")])),
    ("3986 3.4", "/a?b=c&d=e", Some(&[("b", "c"), ("d", "e")])),
    ("3986 3.4", "/a?b=c=d&&=e", Some(&[("b", "c=d"), ("", "e")])),
    ("3986 3.4", "/a?b=/../c?d", Some(&[("b", "/../c?d")])),
    ("3986 2.1", "/a?b%3d=%26+%2B", Some(&[("b=", "&++")])),
    ("3986 2.1", "/a?b=%zz", None),
    ("3986 2.1", "/a?%1", None),
    ("9110 7.1", "/a?b#c", None),
];

/// Goal: queries are pairs, decoded after they were cut.
#[test]
fn queries_are_pairs() {
    for (section, target, expected) in QUERIES {
        let found = head("GET", target.as_bytes());
        let found = found.ok().map(|head| head.target.query);
        let pair = |(name, value): &(&'static str, &'static str)| ((*name).into(), (*value).into());
        let expected = expected.map(|pairs| pairs.iter().map(pair).collect());
        assert_eq!(found, expected, "RFC {section}: {target}");
    }
    let head = head("GET", b"/?a=1&b=2&a=3").unwrap();
    assert_eq!(head.target.query_value("a"), Some(&b"1"[..]));
    assert_eq!(head.target.query_value("c"), None);
}

/// Goal: what is written into links needs no quoting anywhere.
#[test]
fn paths_are_encoded_to_unreserved_characters() {
    let path = |names: &[&'static [u8]]| encode_path(names.iter().copied());
    assert_eq!(path(&[]), "/");
    assert_eq!(path(&[b"a-b._~Z9"]), "/a-b._~Z9");
    assert_eq!(
        path(&[b"a b", b"\xff%<&\"'?#\r\n"]),
        "/a%20b/%FF%25%3C%26%22%27%3F%23%0D%0A"
    );
}
