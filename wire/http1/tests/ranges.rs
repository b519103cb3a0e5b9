//! Range requests (RFC 9110 section 14), and the multipart content that answers them.

use std::ops::Range;

use crossdock_http1::Ranges::{Unsatisfiable, Whole};
use crossdock_http1::{
    ETag, HeadLimits, Multipart, Ranges, RequestHead, Validators, content_range,
    content_range_unsatisfied, parse_head, ranges,
};
use crossdock_types::WallTime;

const RANGES_MAX: usize = 4;
const MODIFIED: WallTime = WallTime(784_111_777_500_000_000); // 06 Nov 1994 08:49:37.5.

fn head(method: &str, lines: &str) -> RequestHead {
    let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let found = parse_head(text.as_bytes(), &HeadLimits::default());
    found.unwrap().expect("a complete head").0
}

fn found(method: &str, lines: &str, size: u64) -> Ranges {
    let validators = Validators {
        etag: ETag::strong(b"v1").unwrap(),
        modified: Some(MODIFIED),
    };
    ranges(&head(method, lines), size, &validators, RANGES_MAX)
}

const fn one(start: u64, end: u64) -> Ranges {
    Ranges::One(start..end)
}

fn many(all: &[Range<u64>]) -> Ranges {
    Ranges::Many(all.to_vec())
}

/// Goal: one range is the bytes that it says, as far as they are there.
#[test]
fn single_ranges_are_cut_to_the_size() {
    let rows = [
        ("14.1.2", "bytes=0-499", 10_000, one(0, 500)),
        ("14.1.2", "bytes=500-999", 10_000, one(500, 1000)),
        ("14.1.2", "bytes=-500", 10_000, one(9500, 10_000)),
        ("14.1.2", "bytes=9500-", 10_000, one(9500, 10_000)),
        ("14.1.2", "bytes=0-0", 10_000, one(0, 1)),
        ("14.1.2", "bytes=-1", 10_000, one(9999, 10_000)),
        ("14.1.2", "bytes=0-", 10, one(0, 10)),
        ("14.1.2", "bytes=5-100", 10, one(5, 10)),
        ("14.1.2", "bytes=-100", 10, one(0, 10)),
        ("14.1.2", "bytes=007-0008", 10, one(7, 9)),
        ("14.1.2", "bytes=9-9", 10, one(9, 10)),
        ("14.1.2", "bytes=0-18446744073709551615", 10, one(0, 10)),
        ("14.1.2", "bytes=0-99999999999999999999999", 10, one(0, 10)),
        ("14.1.2", "bytes=-99999999999999999999999", 10, one(0, 10)),
        (
            "14.1.2",
            "bytes=0-18446744073709551615",
            u64::MAX,
            one(0, u64::MAX),
        ),
        ("14.1.2", "bytes=10-", 10, Unsatisfiable),
        ("14.1.2", "bytes=10-20", 10, Unsatisfiable),
        (
            "14.1.2",
            "bytes=99999999999999999999999-",
            10,
            Unsatisfiable,
        ),
        ("14.1.2", "bytes=-0", 10, Unsatisfiable),
        ("14.1.2", "bytes=-00", 10, Unsatisfiable),
        ("14.1.2", "bytes=0-", 0, Unsatisfiable),
        ("14.1.2", "bytes=0-0", 0, Unsatisfiable),
        ("14.1.2", "bytes=-0", 0, Unsatisfiable),
        ("14.1.2", "bytes=-5", 0, Whole),
        ("14.1", "Bytes=0-4", 10, one(0, 5)),
        ("14.1", "items=0-4", 10, Whole),
        ("14.1", "byte=0-4", 10, Whole),
        ("14.1.1", "bytes 0-4", 10, Whole),
        ("14.1.1", "bytes=4-0", 10, Whole),
        ("14.1.1", "bytes=-", 10, Whole),
        ("14.1.1", "bytes=", 10, Whole),
        ("14.1.1", "bytes=,", 10, Whole),
        ("14.1.1", "bytes", 10, Whole),
        ("14.1.1", "", 10, Whole),
        ("14.1.1", "bytes=a-b", 10, Whole),
        ("14.1.1", "bytes=5", 10, Whole),
        ("14.1.1", "bytes=+1-2", 10, Whole),
        ("14.1.1", "bytes=0x0-4", 10, Whole),
        ("14.1.1", "bytes=1-2-3", 10, Whole),
        ("14.1.1", "bytes=--3", 10, Whole),
        ("14.1.1", "bytes=1 - 2", 10, Whole),
        ("14.1.1", "bytes= 0-4", 10, Whole),
        ("14.1.1", "bytes=0-4;x", 10, Whole),
    ];
    for (section, value, size, expected) in rows {
        let found = found("GET", &format!("Range: {value}\r\n"), size);
        assert_eq!(found, expected, "RFC 9110 {section}: {value} of {size}");
    }
}

/// Goal: several ranges keep their order, those that overlap or touch become one,
/// and too many are ignored.
#[test]
fn several_ranges_are_coalesced() {
    let rows = [
        ("14.1.2", "bytes=0-0,-1", many(&[0..1, 99..100])),
        (
            "5.6.1",
            "bytes=0-1, 4-5 ,,\t8-9",
            many(&[0..2, 4..6, 8..10]),
        ),
        ("15.3.7.2", "bytes=50-59,0-9", many(&[50..60, 0..10])),
        ("15.3.7.2", "bytes=0-9,10-19", one(0, 20)),
        ("15.3.7.2", "bytes=0-9,5-19", one(0, 20)),
        ("15.3.7.2", "bytes=5-9,5-9", one(5, 10)),
        ("15.3.7.2", "bytes=50-59,0-9,55-65", many(&[50..66, 0..10])),
        ("15.3.7.2", "bytes=50-59,0-9,10-49", one(0, 60)),
        (
            "15.3.7.2",
            "bytes=80-,0-9,60-69,5-64",
            many(&[80..100, 0..70]),
        ),
        ("15.3.7.2", "bytes=0-,0-,0-,0-", one(0, 100)),
        ("14.1.2", "bytes=200-,0-9", one(0, 10)),
        ("14.1.2", "bytes=200-,300-", Unsatisfiable),
        ("14.1.1", "bytes=0-9,x", Whole),
        ("14.1.1", "bytes=0-9,9-0", Whole),
        (
            "17.15",
            "bytes=0-0,2-2,4-4,6-6",
            many(&[0..1, 2..3, 4..5, 6..7]),
        ),
        ("17.15", "bytes=0-0,2-2,4-4,6-6,8-8", Whole),
        ("17.15", "bytes=0-,0-,0-,0-,0-", Whole),
    ];
    for (section, value, expected) in rows {
        let found = found("GET", &format!("Range: {value}\r\n"), 100);
        assert_eq!(found, expected, "RFC 9110 {section}: {value}");
    }
    let twice = found("GET", "Range: bytes=0-1\r\nRange: bytes=4-5\r\n", 100);
    assert_eq!(twice, Whole, "two fields are one malformed list");
}

/// Goal: ranges count in GET, and under an If-Range that holds.
#[test]
fn ranges_count_if_the_representation_is_the_same() {
    let rows = [
        ("14.2", "GET", "", one(0, 5)),
        ("14.2", "HEAD", "", Whole),
        ("14.2", "PUT", "", Whole),
        ("13.1.5", "GET", "If-Range: \"v1\"\r\n", one(0, 5)),
        ("13.1.5", "GET", "If-Range: \"v2\"\r\n", Whole),
        ("13.1.5", "GET", "If-Range: W/\"v1\"\r\n", Whole),
        ("13.1.5", "GET", "If-Range: \"v1\", \"v2\"\r\n", Whole),
        ("13.1.5", "GET", "If-Range: *\r\n", Whole),
        ("13.1.5", "GET", "If-Range: v1\r\n", Whole),
        ("13.1.5", "GET", "If-Range:\r\n", Whole),
        (
            "13.1.5",
            "GET",
            "If-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            one(0, 5),
        ),
        (
            "13.1.5",
            "GET",
            "If-Range: Sun, 06 Nov 1994 08:49:36 GMT\r\n",
            Whole,
        ),
        (
            "13.1.5",
            "GET",
            "If-Range: Sun, 06 Nov 1994 08:49:38 GMT\r\n",
            Whole,
        ),
    ];
    for (section, method, lines, expected) in rows {
        let found = found(method, &format!("Range: bytes=0-4\r\n{lines}"), 10);
        assert_eq!(found, expected, "RFC 9110 {section}: {method} {lines:?}");
    }
    assert_eq!(
        found("GET", "If-Range: \"v1\"\r\n", 10),
        Whole,
        "no Range at all"
    );
}

/// Goal: the field of the response names the bytes as clients read it (RFC 9110
/// section 14.4).
#[test]
fn content_range_is_inclusive() {
    assert_eq!(content_range(&(0..500), 1234), "bytes 0-499/1234");
    assert_eq!(content_range(&(7..8), 8), "bytes 7-7/8");
    assert_eq!(content_range_unsatisfied(47_022), "bytes */47022");
}

/// Goal: multipart content is what the specification shows, and has the length that
/// was computed before any of it was read (RFC 9110 section 14.6).
#[test]
fn multipart_content_has_the_computed_length() {
    let data: Vec<u8> = (0..100).collect();
    let parts = [50..60, 0..1, 98..100];
    let multipart = Multipart::new("THIS_STRING_SEPARATES").unwrap();
    let mut content = Vec::new();
    for range in &parts {
        content.extend(multipart.part_head(range, 100, "text/plain"));
        let bytes = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        content.extend(&data[bytes]);
    }
    content.extend(multipart.closing());
    let length = multipart.content_length(&parts, 100, "text/plain");
    assert_eq!(length, content.len() as u64);
    let expected = b"\r\n--THIS_STRING_SEPARATES\r\nContent-Type: text/plain\r\n\
        Content-Range: bytes 50-59/100\r\n\r\n23456789:;\r\n--THIS_STRING_SEPARATES\r\n";
    assert!(content.starts_with(expected), "{}", content.escape_ascii());
    assert!(content.ends_with(b"\r\n\r\nbc\r\n--THIS_STRING_SEPARATES--\r\n"));
    assert_eq!(
        multipart.content_type(),
        "multipart/byteranges; boundary=THIS_STRING_SEPARATES"
    );
}

/// Goal: a boundary needs no quoting, and ranges of any size do not overflow.
#[test]
fn boundaries_are_plain_and_lengths_saturate() {
    for boundary in ["", "a b", "a\r\n", "a\"", &"a".repeat(71)] {
        assert!(Multipart::new(boundary).is_none(), "{boundary:?}");
    }
    let multipart = Multipart::new(&"a".repeat(70)).unwrap();
    let ranges = [0..u64::MAX, 0..u64::MAX];
    assert_eq!(multipart.content_length(&ranges, u64::MAX, "a/b"), u64::MAX);
}
