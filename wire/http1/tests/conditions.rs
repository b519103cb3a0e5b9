//! Entity tags, dates and conditions (RFC 9110 sections 5.6.7, 8.8 and 13).

use crossdock_http1::Condition::{Failed, NotModified, Proceed};
use crossdock_http1::{
    Condition, ETag, ETagList, HeadLimits, RequestHead, Validators, evaluate, http_date,
    parse_head, parse_http_date,
};
use crossdock_types::WallTime;

const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const EXACTLY: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
const MODIFIED_SECONDS: i64 = 784_111_777;

/// The tag `"v1"`, changed within the second EXACTLY.
fn current() -> Validators {
    Validators {
        etag: ETag::strong(b"v1").unwrap(),
        modified: Some(WallTime::from_parts(MODIFIED_SECONDS, 999_999_999)),
    }
}

fn head(method: &str, lines: &str) -> RequestHead {
    let lines = lines
        .replace("BEFORE", BEFORE)
        .replace("EXACTLY", EXACTLY)
        .replace("AFTER", AFTER);
    let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let found = parse_head(text.as_bytes(), &HeadLimits::default());
    found.unwrap().expect("a complete head").0
}

/// Section, method, lines, what becomes of it if the representation is there.
#[rustfmt::skip] // One case a line.
const THERE: &[(&str, &str, &str, Condition)] = &[
    ("13.2.2", "GET", "", Proceed),
    ("13.2.2", "PUT", "", Proceed),
    ("13.1.1", "GET", "If-Match: \"v1\"\r\n", Proceed),
    ("13.1.1", "GET", "If-Match: \"v2\"\r\n", Failed),
    ("13.1.1", "HEAD", "If-Match: \"v2\"\r\n", Failed),
    ("13.1.1", "PUT", "If-Match: \"v2\"\r\n", Failed),
    ("13.1.1", "DELETE", "If-Match: \"v2\", \"v1\"\r\n", Proceed),
    ("13.1.1", "PUT", "If-Match: \"v2\"\r\nIf-Match: \"v1\"\r\n", Proceed),
    ("13.1.1", "PUT", "If-Match: W/\"v1\"\r\n", Failed),
    ("13.1.1", "PUT", "If-Match: *\r\n", Proceed),
    ("13.1.1", "PUT", "If-Match: v1\r\n", Failed),
    ("13.1.1", "PUT", "If-Match:\r\n", Failed),
    ("13.1.1", "PUT", "If-Match: *, \"v1\"\r\n", Failed),
    ("13.1.4", "PUT", "If-Unmodified-Since: BEFORE\r\n", Failed),
    ("13.1.4", "PUT", "If-Unmodified-Since: EXACTLY\r\n", Proceed),
    ("13.1.4", "GET", "If-Unmodified-Since: AFTER\r\n", Proceed),
    ("13.1.4", "GET", "If-Unmodified-Since: BEFORE\r\n", Failed),
    ("13.1.4", "PUT", "If-Unmodified-Since: yesterday\r\n", Proceed),
    ("13.1.4", "PUT", "If-Unmodified-Since: BEFORE\r\nIf-Unmodified-Since: BEFORE\r\n", Proceed),
    ("13.2.2", "PUT", "If-Match: \"v1\"\r\nIf-Unmodified-Since: BEFORE\r\n", Proceed),
    ("13.2.2", "PUT", "If-Match: \"v2\"\r\nIf-Unmodified-Since: AFTER\r\n", Failed),
    ("13.1.2", "GET", "If-None-Match: \"v1\"\r\n", NotModified),
    ("13.1.2", "HEAD", "If-None-Match: \"v1\"\r\n", NotModified),
    ("13.1.2", "GET", "If-None-Match: W/\"v1\"\r\n", NotModified),
    ("13.1.2", "GET", "If-None-Match: \"v0\", W/\"v1\"\r\n", NotModified),
    ("13.1.2", "GET", "If-None-Match: \"v2\"\r\n", Proceed),
    ("13.1.2", "GET", "If-None-Match: \"V1\"\r\n", Proceed),
    ("13.1.2", "GET", "If-None-Match: *\r\n", NotModified),
    ("13.1.2", "GET", "If-None-Match: v1\r\n", Proceed),
    ("13.1.2", "PUT", "If-None-Match: *\r\n", Failed),
    ("13.1.2", "PUT", "If-None-Match: \"v1\"\r\n", Failed),
    ("13.1.2", "PUT", "If-None-Match: \"v2\"\r\n", Proceed),
    ("13.1.2", "DELETE", "If-None-Match: W/\"v1\"\r\n", Failed),
    ("13.1.2", "PUT", "If-None-Match: v1\r\n", Failed),
    ("13.1.3", "GET", "If-Modified-Since: BEFORE\r\n", Proceed),
    ("13.1.3", "GET", "If-Modified-Since: EXACTLY\r\n", NotModified),
    ("13.1.3", "HEAD", "If-Modified-Since: AFTER\r\n", NotModified),
    ("13.1.3", "PUT", "If-Modified-Since: AFTER\r\n", Proceed),
    ("13.1.3", "DELETE", "If-Modified-Since: AFTER\r\n", Proceed),
    ("13.1.3", "GET", "If-Modified-Since: EXACTLY; length=5\r\n", Proceed),
    ("13.1.3", "GET", "If-Modified-Since: Sun Nov  6 08:49:37 1994\r\n", NotModified),
    ("13.2.2", "GET", "If-None-Match: \"v2\"\r\nIf-Modified-Since: AFTER\r\n", Proceed),
    ("13.2.2", "GET", "If-None-Match: \"v1\"\r\nIf-Modified-Since: BEFORE\r\n", NotModified),
    ("13.2.2", "GET", "If-Match: \"v2\"\r\nIf-None-Match: \"v1\"\r\n", Failed),
    ("13.2.2", "GET", "If-Match: \"v1\"\r\nIf-None-Match: \"v1\"\r\n", NotModified),
    ("13.2.2", "GET", "If-Unmodified-Since: BEFORE\r\nIf-Modified-Since: AFTER\r\n", Failed),
    ("13.2.2", "PUT", "If-Match: *\r\nIf-None-Match: *\r\n", Failed),
    ("13.2.1", "OPTIONS", "If-Match: \"v2\"\r\n", Proceed),
    ("13.2.1", "PATCH", "If-None-Match: *\r\n", Proceed),
];

/// The same if nothing is there.
const NOT_THERE: &[(&str, &str, &str, Condition)] = &[
    ("13.1.1", "PUT", "If-Match: *\r\n", Failed),
    ("13.1.1", "PUT", "If-Match: \"v1\"\r\n", Failed),
    ("13.1.2", "PUT", "If-None-Match: *\r\n", Proceed),
    ("13.1.2", "PUT", "If-None-Match: \"v1\"\r\n", Proceed),
    ("13.1.2", "PUT", "If-None-Match: v1\r\n", Failed),
    ("13.1.4", "PUT", "If-Unmodified-Since: BEFORE\r\n", Proceed),
    ("13.2.1", "GET", "If-Match: *\r\n", Proceed),
    ("13.2.1", "HEAD", "If-None-Match: *\r\n", Proceed),
    ("13.2.1", "DELETE", "If-Match: \"v1\"\r\n", Proceed),
];

/// Goal: conditions are compared in the order of the specification, each as it says.
#[test]
fn conditions_decide_in_order() {
    for (section, method, lines, expected) in THERE {
        let found = evaluate(&head(method, lines), Some(&current()));
        assert_eq!(found, *expected, "RFC 9110 {section}: {method} {lines:?}");
    }
    for (section, method, lines, expected) in NOT_THERE {
        let found = evaluate(&head(method, lines), None);
        assert_eq!(
            found, *expected,
            "RFC 9110 {section}: {method} {lines:?}, not there"
        );
    }
}

/// Goal: dates are ignored where the date of the last change is not known (RFC 9110
/// sections 13.1.3 and 13.1.4).
#[test]
fn dates_are_ignored_without_a_date_to_compare() {
    let current = Validators {
        modified: None,
        ..current()
    };
    for lines in [
        "If-Modified-Since: AFTER\r\n",
        "If-Unmodified-Since: BEFORE\r\n",
    ] {
        assert_eq!(
            evaluate(&head("GET", lines), Some(&current)),
            Proceed,
            "{lines}"
        );
    }
}

/// RFC 9110 section 8.8.3.2: two tags, strong and weak comparison.
const COMPARISONS: &[(&str, &str, bool, bool)] = &[
    ("W/\"1\"", "W/\"1\"", false, true),
    ("W/\"1\"", "W/\"2\"", false, false),
    ("W/\"1\"", "\"1\"", false, true),
    ("\"1\"", "\"1\"", true, true),
    ("\"1\"", "\"2\"", false, false),
    ("\"a\"", "\"A\"", false, false),
    ("\"\"", "\"\"", true, true),
];

/// Goal: the table of the specification.
#[test]
fn tags_compare_strongly_and_weakly() {
    let tag = |text: &str| ETag::parse(text.as_bytes()).unwrap();
    for (a, b, strong, weak) in COMPARISONS {
        assert_eq!(tag(a).eq_strong(&tag(b)), *strong, "{a} {b}");
        assert_eq!(tag(a).eq_weak(&tag(b)), *weak, "{a} {b}");
        assert_eq!(tag(a).to_bytes(), a.as_bytes());
    }
}

/// RFC 9110 sections 8.8.3 and 5.6.1: a list and its tags, `None` if it is none.
type ListRow = (&'static [u8], Option<&'static [&'static [u8]]>);

#[rustfmt::skip] // One case a line.
const LISTS: &[ListRow] = &[
    (b"\"a\"", Some(&[b"\"a\""])),
    (b"\"a\",W/\"b\" , \"c\"", Some(&[b"\"a\"", b"W/\"b\"", b"\"c\""])),
    (b",\"a\",, \"b\",", Some(&[b"\"a\"", b"\"b\""])),
    (b"\"a,b\", \"W/\"", Some(&[b"\"a,b\"", b"\"W/\""])),
    (b"\"\xff\\\"", Some(&[b"\"\xff\\\""])),
    (b"\"a\" \"b\"", None),
    (b"\"a\"b", None),
    (b"\"a", None),
    (b"a", None),
    (b"w/\"a\"", None),
    (b"W/ \"a\"", None),
    (b"\"a b\"", None),
    (b"\"a\", *", None),
    (b",", None),
    (b"", None),
];

/// Goal: lists are cut at commas outside of quotes, and nothing else is a list.
#[test]
fn tag_lists_are_parsed() {
    for (value, expected) in LISTS {
        let found = ETagList::parse(value).map(|list| match list {
            ETagList::Any => panic!("{} is any", value.escape_ascii()),
            ETagList::Tags(tags) => tags.iter().map(ETag::to_bytes).collect::<Vec<_>>(),
        });
        let found = found
            .as_ref()
            .map(|tags| tags.iter().map(|tag| &tag[..]).collect());
        assert_eq!(
            found,
            expected.map(<[_]>::to_vec),
            "{}",
            value.escape_ascii()
        );
    }
    assert!(matches!(ETagList::parse(b"*"), Some(ETagList::Any)));
}

/// Goal: a tag made of bytes is strong, differs with every byte, and can be sent.
#[test]
fn tags_are_made_of_bytes() {
    let tag = ETag::of_bytes(&[0, 1, 0xab, 0xff]);
    assert_eq!(&tag.to_bytes()[..], b"\"0001abff\"");
    assert!(!tag.is_weak());
    assert!(ETag::strong(b"a\"b").is_none());
    assert!(ETag::strong(b"a b").is_none());
    assert!(ETag::strong(b"a\r\nb").is_none());
}

/// RFC 9110 section 5.6.7: a date and its seconds.
const DATES: &[(&str, Option<i64>)] = &[
    ("Sun, 06 Nov 1994 08:49:37 GMT", Some(MODIFIED_SECONDS)),
    ("Sunday, 06-Nov-94 08:49:37 GMT", Some(MODIFIED_SECONDS)),
    ("Sun Nov  6 08:49:37 1994", Some(MODIFIED_SECONDS)),
    ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
    ("Thu, 29 Feb 2024 00:00:00 GMT", Some(1_709_164_800)),
    ("Wed, 30 Feb 2024 00:00:00 GMT", None),
    ("Sun, 06 Nov 1994 08:49:37 CET", None),
    ("Sun, 06 Nov 1994 24:49:37 GMT", None),
    ("06 Nov 1994 08:49:37 GMT", None),
    ("1994-11-06T08:49:37Z", None),
    ("784111777", None),
    ("", None),
];

/// Goal: the three formats are read, and nothing else.
#[test]
fn dates_are_read_in_three_formats() {
    for (text, expected) in DATES {
        assert_eq!(parse_http_date(text.as_bytes()), *expected, "{text}");
    }
    assert_eq!(parse_http_date(b"\xff"), None);
}

/// Goal: dates are written as the specification wants it, rounded down; those that
/// none can be written for are not.
#[test]
fn dates_are_written() {
    let date = |at| http_date(WallTime(at));
    assert_eq!(
        date(MODIFIED_SECONDS * 1_000_000_000 + 5).as_deref(),
        Some(EXACTLY)
    );
    assert_eq!(date(0).as_deref(), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
    assert_eq!(date(-1), None);
    assert_eq!(date(i64::MIN), None);
    assert_eq!(
        date(i64::MAX).as_deref(),
        Some("Fri, 11 Apr 2262 23:47:16 GMT")
    );
}
