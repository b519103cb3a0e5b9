//! Heads of responses, media types, and which of several a client wants.

use HttpVersion::{Http10, Http11};
use crossdock_http1::{
    CONTINUE, ETag, HeadLimits, HttpVersion, RequestHead, ResponseHead, Status, Validators,
    media_type, parse_head, preferred,
};
use crossdock_types::WallTime;

const NOW: WallTime = WallTime(784_111_777_500_000_000);
const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

fn text(head: &ResponseHead) -> String {
    String::from_utf8(head.encode(NOW).to_vec()).unwrap()
}

/// Goal: a head is, byte for byte, the status line, the date, what frames the
/// content and what was added, in this order.
#[test]
fn heads_are_written() {
    let validators = Validators {
        etag: ETag::strong(b"v1").unwrap(),
        modified: Some(WallTime(0)),
    };
    let head = ResponseHead::new(Http11, Status::Ok)
        .content_length(5)
        .validators(&validators)
        .header("Content-Type", "text/plain");
    let expected = format!(
        "HTTP/1.1 200 OK\r\n{DATE}Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
         Content-Length: 5\r\nETag: \"v1\"\r\nContent-Type: text/plain\r\n\r\n"
    );
    assert_eq!(text(&head), expected);
}

/// Goal: both versions are told what happens to the connection; it closes where only
/// that ends the content (RFC 9112 sections 6.3 and 9.3).
#[test]
fn connections_are_announced() {
    let ok = Status::Ok;
    let rows = [
        (Http11, ok, Some(0), true, "", true),
        (Http11, ok, Some(0), false, "Connection: close\r\n", false),
        (Http11, ok, None, true, "Connection: close\r\n", false),
        (
            Http10,
            ok,
            Some(0),
            true,
            "Connection: keep-alive\r\n",
            true,
        ),
        (Http10, ok, Some(0), false, "Connection: close\r\n", false),
        (Http10, ok, None, true, "Connection: close\r\n", false),
        (Http11, Status::NoContent, None, true, "", true),
        (Http11, Status::NotModified, None, true, "", true),
        (
            Http10,
            Status::NotModified,
            None,
            true,
            "Connection: keep-alive\r\n",
            true,
        ),
    ];
    for (version, status, length, keep_alive, line, keeps_alive) in rows {
        let mut head = ResponseHead::new(version, status).keep_alive(keep_alive);
        if let Some(bytes) = length {
            head = head.content_length(bytes);
        }
        let found = text(&head);
        let found: Vec<&str> = found
            .lines()
            .filter(|line| line.starts_with("Conn"))
            .collect();
        let context = format!("{version:?} {status:?} {length:?} {keep_alive}");
        assert_eq!(found, line.lines().collect::<Vec<_>>(), "{context}");
        assert_eq!(head.keeps_alive(), keeps_alive, "{context}");
    }
}

/// Goal: nothing that a client chose can end a line (RFC 9110 section 5.5).
#[test]
fn values_cannot_split_a_response() {
    let head = ResponseHead::new(Http11, Status::NoContent)
        .header("Location", b"/a\r\nSet-Cookie: b\0\x7f\tc\xff");
    let found = head.encode(NOW);
    let expected = b"\r\nLocation: /a  Set-Cookie: b  \tc\xff\r\n\r\n";
    assert!(found.ends_with(expected), "{}", found.escape_ascii());
}

/// Goal: Last-Modified is never later than Date (RFC 9110 section 8.8.2.1), and left
/// out where no date can be written.
#[test]
fn last_modified_is_not_in_the_future() {
    let head = |modified| {
        let etag = ETag::of_bytes(&[1]);
        let validators = Validators { etag, modified };
        text(&ResponseHead::new(Http11, Status::NotModified).validators(&validators))
    };
    let later = WallTime(NOW.0 + 10_000_000_000);
    assert!(head(Some(later)).contains("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
    assert!(!head(Some(WallTime(-1))).contains("Last-Modified"));
    assert!(!head(None).contains("Last-Modified"));
}

/// Goal: 204 and 100 have no Content-Length (RFC 9110 section 8.6), 304 may.
#[test]
fn lengths_are_left_out_where_forbidden() {
    let has =
        |status| text(&ResponseHead::new(Http11, status).content_length(7)).contains("Length: 7");
    assert!(!has(Status::NoContent));
    assert!(!has(Status::Continue));
    assert!(has(Status::NotModified));
    assert!(has(Status::RangeNotSatisfiable));
}

/// Goal: every status is written with its number and phrase, 100 as the constant.
#[test]
fn statuses_have_numbers_and_phrases() {
    for &status in Status::ALL {
        let line = format!("HTTP/1.1 {} {}\r\n", status.number(), status.reason());
        assert!(text(&ResponseHead::new(Http11, status)).starts_with(&line));
        assert!((100..600).contains(&status.number()) && !status.reason().is_empty());
    }
    assert!(Status::ALL.is_sorted_by(|a, b| a.number() < b.number()));
    assert_eq!(CONTINUE, b"HTTP/1.1 100 Continue\r\n\r\n");
}

/// Goal: a date can be written at any time that a clock may show.
#[test]
fn any_time_is_survived() {
    for at in [i64::MIN, -1, 0, i64::MAX] {
        let head = ResponseHead::new(Http11, Status::Ok).encode(WallTime(at));
        assert!(head.starts_with(b"HTTP/1.1 200 OK\r\nDate: "), "{at}");
    }
}

/// Goal: types follow the last extension of a name, in any case; what has none, or an
/// unknown one, is just bytes.
#[test]
fn media_types_follow_names() {
    let rows: [(&[u8], &str); 11] = [
        (b"a.html", "text/html"),
        (b"a.HTML", "text/html"),
        (b"a.tar.gz", "application/gzip"),
        (b"film.mp4", "video/mp4"),
        (b"\xff\n.png", "image/png"),
        (b".png", "application/octet-stream"),
        (b"png", "application/octet-stream"),
        (b"a.", "application/octet-stream"),
        (b"a.unknown", "application/octet-stream"),
        (b"a.p\xffg", "application/octet-stream"),
        (b"", "application/octet-stream"),
    ];
    for (name, expected) in rows {
        assert_eq!(media_type(name), expected, "{}", name.escape_ascii());
    }
}

fn head(lines: &str) -> RequestHead {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let found = parse_head(text.as_bytes(), &HeadLimits::default());
    found.unwrap().expect("a complete head").0
}

/// Goal: a listing is JSON for those who ask for it, and HTML for browsers (RFC 9110
/// section 12.5.1).
#[test]
fn clients_get_what_they_prefer() {
    let rows = [
        ("", Some("text/html")),
        ("Accept: */*\r\n", Some("text/html")),
        ("Accept: application/json\r\n", Some("application/json")),
        ("Accept: APPLICATION/JSON\r\n", Some("application/json")),
        ("Accept: application/*\r\n", Some("application/json")),
        (
            "Accept: text/html,application/xml;q=0.9,*/*;q=0.8\r\n",
            Some("text/html"),
        ),
        (
            "Accept: application/json, */*;q=0.1\r\n",
            Some("application/json"),
        ),
        ("Accept: */*, text/html;q=0.5\r\n", Some("application/json")),
        (
            "Accept: text/html;q=0.2, application/json;q=0.25\r\n",
            Some("application/json"),
        ),
        (
            "Accept: text/html;level=1;q=0.2, application/json;Q=0.1\r\n",
            Some("text/html"),
        ),
        (
            "Accept: text/html;q=0, application/json\r\n",
            Some("application/json"),
        ),
        ("Accept: text/*;q=0, */*\r\n", Some("application/json")),
        (
            "Accept: text/html;q=2, application/json;q=0.001\r\n",
            Some("application/json"),
        ),
        (
            "Accept: text/html;q=0.x, application/json;q=0.1\r\n",
            Some("application/json"),
        ),
        ("Accept: image/png\r\n", None),
        ("Accept: */*;q=0\r\n", None),
        ("Accept: text\r\n", None),
    ];
    for (lines, expected) in rows {
        let found = preferred(&head(lines), &["text/html", "application/json"]);
        assert_eq!(found, expected, "{lines:?}");
    }
}
