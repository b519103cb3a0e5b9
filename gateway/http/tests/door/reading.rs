//! GET and HEAD: files, ranges, conditions, directories.

use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::{Advice, DiskProfile, Guest};

use crate::rig::{Ended, Rig};
use crossdock_http::{HttpConfig, HttpInput, HttpLimits};
use crossdock_peer::{FileKind, SiteError, SiteOperation};

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

pub(crate) fn with(path: &str, header: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n")
}

pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at / 251 + at) % 251).expect("a byte");
    (0..bytes).map(byte).collect()
}

/// Goal: a small file is found by its path and sent whole, with what clients need to ask
/// again; HEAD has the same head and no content.
#[test]
fn a_small_file_is_sent() {
    let mut rig = Rig::new();
    rig.put("/docs/a.html", FileKind::Regular, "<p>hello</p>");
    let response = rig.ask(&get("/docs/a.html"));
    assert_eq!(response.status, 200);
    assert_eq!(response.text(), "<p>hello</p>");
    assert!(
        response
            .header("content-type")
            .is_some_and(|it| it.starts_with("text/html"))
    );
    assert_eq!(response.header("accept-ranges"), Some("bytes"));
    assert_eq!(
        response.header("date"),
        Some("Tue, 24 Nov 2026 12:00:00 GMT")
    );
    assert_eq!(
        response.header("last-modified"),
        Some("Tue, 24 Nov 2026 11:00:00 GMT")
    );
    let etag = response.header("etag").expect("a tag").to_owned();
    let head = rig.ask("HEAD /docs/a.html HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some("12"));
    assert_eq!(head.header("etag"), Some(&etag[..]));
    assert_eq!(rig.ask(&get("/docs/b.html")).status, 404);
    assert_eq!(rig.ask(&get("/docs/a.html/")).status, 404);
    assert_eq!(rig.ask(&get("/docs/a.html/c")).status, 404);
}

/// Goal: a large file comes through the delivery engine, whole and in order, also when
/// its pieces come out of order.
#[test]
fn a_large_file_is_streamed() {
    let mut rig = Rig::new();
    let content = pattern(3_000_000);
    rig.put("/big.bin", FileKind::Regular, content.clone());
    let id = rig.connect();
    rig.send(id, get("/big.bin"));
    while !rig.asked.is_empty() {
        // The newest first.
        let last = rig.asked.pop_back().expect("a call");
        rig.asked.push_front(last);
        rig.answer_one();
    }
    let response = rig.response(id);
    assert_eq!(response.status, 200);
    assert!(response.body == content);
    assert_eq!(rig.door.calls(), 0);
    assert_eq!(rig.door.figures().delivery.thrown_away_bytes, 0);
}

/// Goal: in a connection that nodes may send in the bytes of files are named where they
/// come: nothing else is, and what was not sent is given back when the client is gone.
#[test]
fn what_nodes_send_is_named() {
    let mut rig = Rig::new();
    rig.put("/big.bin", FileKind::Regular, vec![1; 3_000_000]);
    let (id, flow) = rig.connect_for_nodes();
    rig.send(id, get("/big.bin"));
    rig.settle();
    assert!(rig.flows.values().all(|of_call| *of_call == flow));
    let mut file = Vec::new();
    let head = rig.out[&id].len() - 3_000_000;
    for (at, extent) in &rig.named {
        assert_eq!(*at, head + file.len());
        assert_eq!(extent.pin() + extent.offset_bytes, file.len() as u64);
        file.resize(file.len() + extent.length_bytes, 0);
    }
    assert_eq!(file.len(), 3_000_000);
    assert_eq!(rig.released.take(), []);
    rig.named.clear();
    assert!(!rig.released.take().is_empty());

    rig.is_reading = false;
    rig.flows.clear();
    rig.send(id, get("/big.bin"));
    rig.settle();
    let pins = rig.flows.len() - rig.asked.len();
    rig.named.clear();
    rig.input(HttpInput::Closed(id));
    assert!(pins > 0);
    assert_eq!(rig.released.take().len(), pins, "all are back");
    rig.flows.clear();
    let other = rig.connect();
    rig.send(other, get("/big.bin"));
    rig.settle();
    assert!(rig.flows.is_empty() && rig.named.is_empty());
}

/// Goal: with several disks reads end where stripes of 256 KiB do, wherever a range begins,
/// also behind the gap between two of them.
#[test]
fn reads_go_along_the_stripes() {
    let mut rig = Rig::new();
    let content = pattern(3_000_000);
    rig.put("/big.bin", FileKind::Regular, content.clone());
    for disk in 0..2 {
        rig.input(HttpInput::Disk(disk, DiskProfile::default()));
    }
    let id = rig.connect();
    let ranges = "Range: bytes=50000-999999,2000000-2999999";
    rig.send(id, with("/big.bin", ranges));
    let mut ends = Vec::new();
    while let Some(call) = rig.asked.front() {
        if let SiteOperation::Read {
            offset_bytes,
            length_bytes,
            ..
        } = call.request.operation
        {
            ends.push(offset_bytes + length_bytes);
        }
        rig.answer_one();
    }
    let response = rig.response(id);
    assert_eq!(response.status, 206);
    let (first, second) = (&content[50_000..1_000_000], &content[2_000_000..3_000_000]);
    let holds = |part: &[u8]| {
        let mut all = response.body.windows(part.len());
        all.any(|window| window == part)
    };
    assert!(holds(first) && holds(second));
    // Others end with a range, or go beyond the first one; the first knows no rate yet.
    ends.retain(|end| end % (256 << 10) == 0);
    assert_eq!(ends, [1 << 18, 2 << 18, 11 << 18]);
}

/// Goal: what a stream asks for beyond what it has asked for before is wanted later, by the
/// time in which that is sent (T_n of TPF section 3.2): who has nothing yet is read for first.
#[test]
fn what_is_read_ahead_is_wanted_later() {
    let mut rig = Rig::new();
    rig.rate = 200_000;
    rig.unsent_bytes = 20_000;
    rig.put("/big", FileKind::Regular, vec![0; 2_000_000]);
    rig.input(HttpInput::Disk(0, DiskProfile::default()));
    for _ in 0..100 {
        let id = rig.connect();
        rig.send(id, get("/big"));
    }
    let mut later = 0;
    while let Some(call) = rig.asked.front() {
        if let SiteOperation::Read {
            offset_bytes,
            patience_ms,
            ..
        } = call.request.operation
        {
            // The socket's bytes, at 200 bytes a millisecond.
            let expected = if offset_bytes == 0 { 0 } else { 20_000 / 200 };
            assert_eq!(patience_ms, expected, "at {offset_bytes}");
            later += u32::from(offset_bytes > 0);
        }
        rig.answer_one();
        rig.pass(Duration::from_millis(5));
    }
    assert!(later >= 100, "{later}");
}

/// Goal: ranges of all kinds (RFC 9110 section 14): one, several, the last bytes, none that
/// is there; If-Range.
#[test]
fn ranges_are_sent() {
    let mut rig = Rig::new();
    let content = pattern(200_000);
    rig.put("/r", FileKind::Regular, content.clone());
    let one = rig.ask(&with("/r", "Range: bytes=70000-70009"));
    assert_eq!(one.status, 206);
    assert_eq!(
        one.header("content-range"),
        Some("bytes 70000-70009/200000")
    );
    assert_eq!(one.body, &content[70_000..70_010]);
    let last = rig.ask(&with("/r", "Range: bytes=-5"));
    assert_eq!(last.body, &content[199_995..]);
    let open = rig.ask(&with("/r", "Range: bytes=100000-"));
    assert!(open.body == content[100_000..]);
    let none = rig.ask(&with("/r", "Range: bytes=200000-"));
    assert_eq!(none.status, 416);
    assert_eq!(none.header("content-range"), Some("bytes */200000"));
    let many = rig.ask(&with("/r", "Range: bytes=0-1,199998-"));
    assert_eq!(many.status, 206);
    let kind = many.header("content-type").expect("a type").to_owned();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .expect("parts");
    let parts = many.body.split(|&byte| byte == b'\n').count();
    assert!(
        parts > 8
            && many
                .body
                .ends_with(format!("--{boundary}--\r\n").as_bytes())
    );
    assert!(many.body.windows(2).any(|it| it == &content[199_998..]));
    let stale = rig.ask(&with("/r", "Range: bytes=0-1\r\nIf-Range: \"no\""));
    assert_eq!((stale.status, stale.body.len()), (200, 200_000));
}

/// Goal: a connection that has been served and is idle holds nothing of what it has sent:
/// there may be ten thousand of them.
#[test]
fn idle_connections_hold_no_buffers() {
    let mut rig = Rig::new();
    rig.put("/a", FileKind::Regular, "a");
    let id = rig.connect();
    let chunk = Bytes::from(get("/a").into_bytes());
    rig.input(HttpInput::Received(id, chunk.clone()));
    rig.settle();
    assert_eq!(rig.response(id).status, 200);
    assert!(chunk.is_unique());
}

/// Goal: several ranges that are together a stream come whole, however the engine's
/// requests and the ranges fall.
#[test]
fn long_parts_are_streamed() {
    let mut rig = Rig::new();
    let content = pattern(4_000_000);
    rig.put("/r", FileKind::Regular, content.clone());
    for (field, ranges) in [
        (
            "10-19,1000000-1299999,-4",
            vec![10..20, 1_000_000..1_300_000, 3_999_996..4_000_000],
        ),
        (
            "0-1999999,2500000-",
            vec![0..2_000_000, 2_500_000..4_000_000],
        ),
        (
            "3-3,5-5,7-7,100-100000",
            vec![3..4, 5..6, 7..8, 100..100_001],
        ),
    ] {
        let response = rig.ask(&with("/r", &format!("Range: bytes={field}")));
        assert_eq!(response.status, 206);
        let mut rest = &response.body[..];
        for range in ranges {
            let head = rest.windows(4).position(|four| four == b"\r\n\r\n");
            rest = &rest[head.expect("a part's head") + 4..];
            assert!(
                rest.starts_with(&content[range.clone()]),
                "{range:?} of {field}"
            );
            rest = &rest[range.len()..];
        }
        assert!(rest.ends_with(b"--\r\n"), "{field}");
    }
}

/// Goal: conditional requests are answered by the version of the file.
#[test]
fn conditions_are_judged() {
    let mut rig = Rig::new();
    let file = rig.put("/c", FileKind::Regular, "one");
    let etag = rig
        .ask(&get("/c"))
        .header("etag")
        .expect("a tag")
        .to_owned();
    let same = rig.ask(&with("/c", &format!("If-None-Match: {etag}")));
    assert_eq!((same.status, same.body.len()), (304, 0));
    assert_eq!(rig.ask(&with("/c", "If-Match: \"other\"")).status, 412);
    rig.overwrite(file, "two");
    let new = rig.ask(&with("/c", &format!("If-None-Match: {etag}")));
    assert_eq!((new.status, new.text()), (200, "two".to_owned()));
}

/// Goal: requests that come at once are answered in their order, on one connection, which
/// stays open until its client wants otherwise.
#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut rig = Rig::new();
    for name in ["a", "b", "c"] {
        rig.put(name, FileKind::Regular, name);
    }
    let id = rig.connect();
    let all: String = ["/a", "/b", "/none", "/c"].map(get).concat();
    rig.send(id, all);
    rig.settle();
    let statuses: Vec<_> = rig
        .responses(id)
        .into_iter()
        .map(|response| (response.status, response.text()))
        .collect();
    assert_eq!(statuses[0], (200, "a".to_owned()));
    assert_eq!(statuses[1], (200, "b".to_owned()));
    assert_eq!(statuses[2].0, 404);
    assert_eq!(statuses[3], (200, "c".to_owned()));
    assert!(!rig.ended.contains_key(&id));
    rig.send(id, "GET /a HTTP/1.0\r\n\r\n");
    rig.settle();
    let old = rig.response(id);
    assert_eq!(old.header("connection"), Some("close"));
    assert_eq!(rig.ended[&id], Ended::Closed);
}

/// Goal: small responses to pipelined requests do not wait until those before them have
/// gone, so that one send takes several; of what a client does not read no more is made.
#[test]
fn pipelined_responses_gather() {
    let mut rig = Rig::new();
    rig.put("/f", FileKind::Regular, vec![1; 60_000]);
    let id = rig.connect();
    rig.is_reading = false;
    rig.send(id, get("/f").repeat(4));
    rig.settle();
    assert_eq!(rig.responses(id).len(), 4);
    rig.send(id, get("/f").repeat(20));
    rig.settle();
    let unread_bytes = 4 * 60_000;
    let more = rig.responses(id).len();
    assert!((1..4).contains(&more), "{more} more behind {unread_bytes}");
}

/// Goal: a file that is overwritten while it is read is sent in one version, or the
/// connection ends before the response is complete.
#[test]
fn no_response_mixes_versions() {
    let mut rig = Rig::new();
    let file = rig.put("/f", FileKind::Regular, vec![1; 2_000_000]);
    let id = rig.connect();
    rig.send(id, get("/f"));
    // Its head and first bytes are out.
    while rig.out.get(&id).is_none_or(Vec::is_empty) {
        assert!(rig.answer_one());
    }
    rig.overwrite(file, vec![2; 2_000_000]);
    rig.settle();
    assert_eq!(rig.ended[&id], Ended::Aborted);
    let response = rig.response(id);
    assert!(response.body.len() < 2_000_000);
    assert!(response.body.iter().all(|&byte| byte == 1));
    // Before anything is out it begins anew.
    let file = rig.put("/g", FileKind::Regular, vec![1; 100_000]);
    let id = rig.connect();
    rig.send(id, get("/g"));
    rig.answer_one(); // The look-up.
    rig.overwrite(file, vec![2; 150_000]);
    rig.settle();
    let response = rig.response(id);
    assert_eq!((response.status, response.body.len()), (200, 150_000));
    assert!(response.body.iter().all(|&byte| byte == 2));
    // And after the last byte was read, before it was sent.
    let file = rig.put("/h", FileKind::Regular, vec![1; 100_000]);
    let id = rig.connect();
    rig.send(id, get("/h"));
    let is_check =
        |operation: &SiteOperation| matches!(operation, SiteOperation::GetAttributes { .. });
    while !rig
        .asked
        .front()
        .is_some_and(|call| is_check(&call.request.operation))
    {
        assert!(rig.answer_one(), "the file is asked for once more");
    }
    rig.overwrite(file, vec![2; 100_000]);
    rig.settle();
    let whole = rig.responses(id);
    let is_one = |byte: u8| whole.iter().all(|it| it.body.iter().all(|&it| it == byte));
    assert!(is_one(1) || is_one(2));
    assert!(rig.ended.get(&id) == Some(&Ended::Aborted) || whole[0].body.len() == 100_000);
}

/// Goal: who asks for a name while it gets another file is sent one of the two, and is
/// never told that there is none.
#[test]
fn a_name_that_gets_another_file_is_never_missing() {
    for request in ["GET", "HEAD"] {
        for bytes in [100, 100_000] {
            let mut rig = Rig::new();
            let old = rig.put("/f", FileKind::Regular, vec![1; bytes]);
            let id = rig.connect();
            rig.send(id, format!("{request} /f HTTP/1.1\r\nHost: x\r\n\r\n"));
            rig.answer_one(); // The look-up.
            rig.put("/f", FileKind::Regular, vec![2; bytes + 1]);
            rig.forget(old);
            rig.settle();
            let response = rig.response(id);
            assert_eq!(response.status, 200, "{request} of {bytes}");
            let length = (bytes + 1).to_string();
            assert_eq!(response.header("content-length"), Some(&length[..]));
            assert!(response.body.iter().all(|&byte| byte == 2));
        }
    }
    // A file that is removed for good is not looked for for ever.
    let mut rig = Rig::new();
    rig.put("/f", FileKind::Regular, "x");
    let is_read = |operation: &SiteOperation| matches!(operation, SiteOperation::Read { .. });
    rig.failing = Some((is_read, SiteError::Stale));
    assert_eq!(rig.ask(&get("/f")).status, 503);
}

/// Goal: a directory is a page for people and JSON for programs, with every name; its path
/// ends with a slash, and a page of its own goes first.
#[test]
fn directories_are_listed() {
    let mut rig = Rig::new();
    rig.put("/d/one.txt", FileKind::Regular, "1");
    rig.put("/d/sub/x", FileKind::Regular, "x");
    rig.put("/d/.crossdock-upload-1-1", FileKind::Regular, "half");
    let moved = rig.ask(&get("/d?x=1"));
    assert_eq!(
        (moved.status, moved.header("location")),
        (301, Some("/d/?x=1"))
    );
    let page = rig.ask(&get("/d/"));
    assert_eq!(page.status, 200);
    assert!(page.text().contains("href=\"./one.txt\"") && page.text().contains("./sub/"));
    assert!(!page.text().contains("crossdock-upload"));
    let list = rig.ask(&with("/d/", "Accept: application/json"));
    assert_eq!(list.header("content-type"), Some("application/json"));
    assert!(list.text().contains("\"name\":\"one.txt\""));
    assert_eq!(rig.ask(&get("/d/.crossdock-upload-1-1")).status, 404);
    rig.put("/d/index.html", FileKind::Regular, "mine");
    assert_eq!(rig.ask(&get("/d/")).text(), "mine");
    assert!(rig.ask(&get("/d/?list")).text().contains("one.txt"));
    assert_eq!(rig.ask(&get("/")).status, 200);
}

/// Goal: links are followed within the volume, wherever they lead, and never in circles.
#[test]
fn links_are_followed() {
    let mut rig = Rig::new();
    rig.put("/a/b/file", FileKind::Regular, "found");
    rig.put("/a/up", FileKind::Symlink, "../a/b");
    rig.put("/abs", FileKind::Symlink, "/a/b/file");
    rig.put("/loop", FileKind::Symlink, "loop");
    rig.put("/out", FileKind::Symlink, "../../../a/b/file");
    for path in ["/a/up/file", "/abs", "/out"] {
        let response = rig.ask(&get(path));
        assert_eq!(
            (response.status, response.text()),
            (200, "found".to_owned()),
            "{path}"
        );
    }
    assert_eq!(rig.ask(&get("/loop")).status, 404);
}

/// Goal: when a client is gone, what was asked for it is withdrawn at once.
#[test]
fn reads_of_dead_connections_are_withdrawn() {
    let mut rig = Rig::new();
    rig.put("/big", FileKind::Regular, vec![0; 4_000_000]);
    let id = rig.connect();
    rig.send(id, get("/big"));
    rig.answer_one();
    let reads = rig.asked.len();
    assert!(reads > 0);
    rig.input(HttpInput::Closed(id));
    assert_eq!(rig.withdrawn.len(), reads);
    assert!(rig.asked.is_empty());
    assert_eq!(rig.door.calls(), 0);
}

/// Goal: somebody who is busy is asked again; a read that fails ends the response: with a
/// status before its first byte, with a reset after.
#[test]
fn failures_are_told_or_end_the_connection() {
    let mut rig = Rig::new();
    rig.put("/big", FileKind::Regular, vec![0; 3_000_000]);
    let is_read = |operation: &SiteOperation| matches!(operation, SiteOperation::Read { .. });
    rig.failing = Some((is_read, SiteError::Busy));
    let id = rig.connect();
    rig.send(id, get("/big"));
    rig.settle();
    assert!(!rig.out.contains_key(&id));
    rig.failing = None;
    rig.pass(Duration::from_secs(1));
    rig.settle();
    assert_eq!(rig.response(id).body.len(), 3_000_000);
    rig.failing = Some((is_read, SiteError::Io));
    assert_eq!(rig.ask(&get("/big")).status, 500);
    rig.failing = None;
    let id = rig.connect();
    rig.send(id, get("/big"));
    while rig.out.get(&id).is_none_or(Vec::is_empty) {
        assert!(rig.answer_one());
    }
    rig.failing = Some((is_read, SiteError::Io));
    rig.settle();
    assert_eq!(rig.ended[&id], Ended::Aborted);
    rig.failing = Some((is_read, SiteError::AccessDenied));
    let denied = rig.ask(&get("/big"));
    assert_eq!(denied.status, 401);
    assert!(denied.header("www-authenticate").is_some());
}

/// Goal: clients have their time: for a head, for a response, for a next request; a client
/// that takes nothing is reset.
#[test]
fn slow_clients_end() {
    let mut rig = Rig::new();
    rig.put("/big", FileKind::Regular, vec![0; 3_000_000]);
    let slow = rig.connect();
    rig.send(slow, "GET / HT");
    rig.pass(Duration::from_secs(10));
    rig.send(slow, "T");
    rig.pass(Duration::from_secs(6));
    assert_eq!(rig.response(slow).status, 408);
    assert_eq!(rig.ended[&slow], Ended::Closed);
    let idle = rig.connect();
    rig.pass(Duration::from_secs(80));
    assert_eq!(rig.ended[&idle], Ended::Closed);
    let stuck = rig.connect();
    rig.is_reading = false;
    rig.send(stuck, get("/big"));
    rig.settle();
    let asked = rig.out[&stuck].len();
    assert!(asked < 3_000_000, "it has not taken anything yet");
    rig.pass(Duration::from_secs(125));
    assert_eq!(rig.ended[&stuck], Ended::Aborted);
    assert_eq!(
        rig.door.figures().connections,
        2,
        "until the shell says that they are gone"
    );
}

/// Goal: limits are kept: connections, rates, heads; each is told by its own status.
#[test]
fn limits_are_told() {
    let config = HttpConfig {
        limits: HttpLimits {
            connections_max: 2,
            requests_per_second: Some(1),
            ..HttpLimits::default()
        },
        ..HttpConfig::default()
    };
    let mut rig = Rig::with(config);
    rig.put("/a", FileKind::Regular, "a");
    let first = rig.connect();
    let second = rig.connect();
    rig.send(first, "GET ");
    rig.send(second, "GET ");
    let third = rig.connect();
    assert_eq!(rig.response(third).status, 503);
    assert_eq!(rig.ended[&third], Ended::Closed);
    rig.input(HttpInput::Closed(third));
    rig.send(first, &get("/a")[4..]);
    let more: String = get("/a").repeat(12);
    rig.send(first, more);
    rig.settle();
    let statuses: Vec<u16> = rig.responses(first).iter().map(|it| it.status).collect();
    assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 10);
    assert!(statuses.ends_with(&[429]));
    rig.send(second, format!("/{} HTTP/1.1\r\n", "a".repeat(9000)));
    assert_eq!(rig.response(second).status, 414);
}

/// Goal: what a server in front could read otherwise is refused, and the connection ends.
#[test]
fn smuggling_is_refused() {
    let cases = [
        (
            "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            400,
        ),
        (
            "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("PRI * HTTP/2.0\r\n\r\n", 505),
    ];
    for (request, status) in cases {
        let mut rig = Rig::new();
        let id = rig.connect();
        rig.send(id, request);
        rig.settle();
        assert_eq!(rig.response(id).status, status, "{request}");
        assert_eq!(rig.ended[&id], Ended::Closed, "{request}");
    }
}

/// Goal: another door's streams are decided about by the same engine, within the same
/// memory, and the door is told what is decided.
#[test]
fn another_door_has_the_engine_as_well() {
    let mut rig = Rig::new();
    let stream = Guest::stream(7);
    let total_bytes = 10 << 20;
    let open = Guest::Open {
        stream,
        total_bytes,
        unit_bytes: 4096,
        place_bytes: 0,
    };
    rig.input(HttpInput::Guest(open));
    let first = match rig.advice[..] {
        [
            Advice::Request {
                stream: of,
                remaining_bytes,
            },
        ] => {
            assert_eq!(of, stream);
            total_bytes - remaining_bytes
        }
        ref other => panic!("{other:?}"),
    };
    let figures = rig.door.figures().delivery;
    assert_eq!((figures.streams, figures.memory_used), (1, first));
    let lost = Guest::Lost { stream };
    rig.input(HttpInput::Guest(lost));
    let figures = rig.door.figures().delivery;
    assert_eq!((figures.streams, figures.memory_used), (0, 0));
    assert_eq!((rig.advice.len(), rig.withdrawn.len()), (1, 0));
}
