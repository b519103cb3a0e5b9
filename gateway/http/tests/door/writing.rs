//! PUT and DELETE: uploads that are there whole or not at all, and who may.

use std::sync::Arc;
use std::time::Duration;

use crate::rig::{Ended, Response, Rig};
use crossdock_http::HttpInput;
use crossdock_peer::{FileKind, SiteError, SiteOperation};
use crossdock_web::{Gate, TokenRecord, TokenSecret, Tokens};

fn token(id: u32, path: &str, reads: bool, writes: bool) -> (TokenRecord, String) {
    let secret = TokenSecret {
        id,
        secret: [u8::try_from(id).expect("small"); 32],
    };
    let record = TokenRecord {
        id,
        name: format!("t{id}"),
        digest: secret.digest(),
        reads,
        writes,
        path: path.parse().expect("a path"),
        uid: 0,
        gid: 0,
        created: 0,
        expires: u64::MAX,
    };
    (record, secret.reveal())
}

/// A rig that knows a token for everything, and one for /in.
pub(crate) fn rig() -> (Rig, String, String) {
    let mut rig = Rig::new();
    let (all, all_secret) = token(1, "/", true, true);
    let (inside, inside_secret) = token(2, "/in", true, true);
    let gate = Gate {
        tokens: Arc::new(Tokens::new(&[all, inside])),
        ..Gate::default()
    };
    rig.input(HttpInput::Gate(gate));
    (rig, all_secret, inside_secret)
}

fn put(path: &str, token: &str, more: &str, content: &str) -> String {
    format!(
        "PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n{more}\r\n{content}",
        content.len()
    )
}

fn delete(rig: &mut Rig, path: &str, token: &str) -> Response {
    rig.ask(&format!(
        "DELETE {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    ))
}

/// Goal: a file is put, replaced and removed; each answer tells what came of it, and the
/// tag is that of the new version.
#[test]
fn files_come_and_go() {
    let (mut rig, token, _) = rig();
    let made = rig.ask(&put("/f", &token, "", "one"));
    assert_eq!(made.status, 201);
    assert_eq!(rig.content("/f"), Some(&b"one"[..]));
    let tag = made.header("etag").expect("a tag").to_owned();
    let same = rig.ask(&format!(
        "GET /f HTTP/1.1\r\nHost: x\r\nIf-None-Match: {tag}\r\n\r\n"
    ));
    assert_eq!(same.status, 304);
    assert_eq!(rig.ask(&put("/f", &token, "", "two")).status, 204);
    assert_eq!(rig.content("/f"), Some(&b"two"[..]));
    assert_eq!(rig.ask(&put("/empty", &token, "", "")).status, 201);
    assert_eq!(rig.content("/empty"), Some(&b""[..]));
    assert_eq!(delete(&mut rig, "/f", &token).status, 204);
    assert_eq!(delete(&mut rig, "/f", &token).status, 404);
    assert_eq!(rig.names(), ["empty"], "nothing is left of uploads");
}

/// Goal: directories are made by a slash, once and again, and removed when they are empty;
/// what is below none is a conflict.
#[test]
fn directories_come_and_go() {
    let (mut rig, token, _) = rig();
    assert_eq!(rig.ask(&put("/d/", &token, "", "")).status, 201);
    assert_eq!(rig.ask(&put("/d/", &token, "", "")).status, 204);
    assert_eq!(rig.ask(&put("/d/f", &token, "", "x")).status, 201);
    assert_eq!(rig.ask(&put("/d", &token, "", "x")).status, 409);
    assert_eq!(rig.ask(&put("/none/f", &token, "", "x")).status, 409);
    assert_eq!(delete(&mut rig, "/d/", &token).status, 409);
    assert_eq!(delete(&mut rig, "/d/f", &token).status, 204);
    assert_eq!(delete(&mut rig, "/d/", &token).status, 204);
    assert_eq!(rig.ask(&put("/", &token, "", "x")).status, 409);
}

/// Goal: a long upload arrives in pieces and in order, in chunks or by its length, and
/// whoever reads meanwhile sees the old file.
#[test]
fn a_long_upload_is_whole() {
    let (mut rig, token, _) = rig();
    rig.put("/big", FileKind::Regular, "old");
    let content: Vec<u8> = (0..3_500_000u32).map(|at| (at % 255) as u8).collect();
    let id = rig.connect();
    let head = format!(
        "PUT /big HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    rig.send(id, head);
    for chunk in content.chunks(70_000) {
        let mut bytes = format!("{:x}\r\n", chunk.len()).into_bytes();
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
        for part in bytes.chunks(50_000) {
            rig.send(id, part);
        }
        assert_eq!(rig.content("/big"), Some(&b"old"[..]));
        rig.settle();
    }
    rig.send(id, "0\r\n\r\n");
    rig.settle();
    assert_eq!(rig.response(id).status, 204);
    assert!(rig.content("/big") == Some(&content[..]));
    assert_eq!(rig.names(), ["big"]);
    assert_eq!(rig.door.figures().upload_bytes, 0);
}

/// Goal: a client that is gone before its upload is complete leaves nothing, whenever it
/// goes.
#[test]
fn a_broken_upload_leaves_nothing() {
    for answers in 0..8 {
        let (mut rig, token, _) = rig();
        rig.put("/f", FileKind::Regular, "old");
        let id = rig.connect();
        let all = put("/f", &token, "", &"x".repeat(2_000_000));
        rig.send(id, &all[..all.len() - 1]);
        for _ in 0..answers {
            rig.answer_one();
        }
        rig.input(HttpInput::Closed(id));
        rig.settle();
        assert_eq!(rig.names(), ["f"], "after {answers} answers");
        assert_eq!(rig.content("/f"), Some(&b"old"[..]));
        assert_eq!(rig.door.figures().upload_bytes, 0);
        assert_eq!(rig.door.calls(), 0);
    }
}

/// Goal: who may not write is told so before he sends, and a client that asks first sends
/// only when it may.
#[test]
fn who_waits_is_told() {
    let (mut rig, token, inside) = rig();
    let refused = rig.ask("PUT /f HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").is_some());
    assert_eq!(rig.ask(&put("/out", &inside, "", "x")).status, 403);
    rig.ask(&put("/in/", &token, "", ""));
    assert_eq!(rig.ask(&put("/in/f", &inside, "", "x")).status, 201);
    // Where he has no more rights than anybody he has these.
    let read = format!("GET /g HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {inside}\r\n\r\n");
    rig.put("/g", FileKind::Regular, "open");
    assert_eq!(rig.ask(&read).text(), "open");
    // A link leads nobody out of what his token is for.
    rig.put("/in/link", FileKind::Symlink, "/");
    assert_eq!(rig.ask(&put("/in/link/g", &inside, "", "x")).status, 403);
    let id = rig.connect();
    rig.send(id, format!(
        "PUT /g HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    ));
    rig.settle();
    assert_eq!(rig.response(id).status, 100);
    rig.send(id, "abc");
    rig.settle();
    assert_eq!(rig.response(id).status, 204);
    let id = rig.connect();
    rig.send(
        id,
        "PUT /g HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
    );
    rig.settle();
    assert_eq!(rig.response(id).status, 401);
    assert_eq!(rig.ended[&id], Ended::Closed);
}

/// Goal: conditions are judged before an upload and again before it takes its name.
#[test]
fn conditions_hold_until_the_end() {
    let (mut rig, token, _) = rig();
    assert_eq!(
        rig.ask(&put("/f", &token, "If-None-Match: *\r\n", "one"))
            .status,
        201
    );
    assert_eq!(
        rig.ask(&put("/f", &token, "If-None-Match: *\r\n", "two"))
            .status,
        412
    );
    let id = rig.connect();
    let all = put("/new", &token, "If-None-Match: *\r\n", "mine");
    rig.send(id, &all[..all.len() - 1]);
    rig.settle();
    rig.put("/new", FileKind::Regular, "theirs");
    rig.send(id, "e");
    rig.settle();
    assert_eq!(rig.response(id).status, 412);
    assert_eq!(rig.content("/new"), Some(&b"theirs"[..]));
    assert_eq!(rig.names(), ["f", "new"]);
}

/// Goal: what cannot be stored is told by its status, and leaves nothing; a client that
/// stops sending ends.
#[test]
fn failed_uploads_are_told() {
    let (mut rig, token, _) = rig();
    let is_write = |operation: &SiteOperation| matches!(operation, SiteOperation::Write { .. });
    rig.failing = Some((is_write, SiteError::NoSpace));
    assert_eq!(rig.ask(&put("/f", &token, "", "abc")).status, 507);
    rig.failing = None;
    assert!(rig.names().is_empty());
    let bad = format!(
        "PUT /f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    );
    assert_eq!(rig.ask(&bad).status, 400);
    assert!(rig.names().is_empty());
    let id = rig.connect();
    rig.send(
        id,
        &put("/f", &token, "", "abc")[..200.min(put("/f", &token, "", "abc").len() - 1)],
    );
    rig.settle();
    rig.pass(Duration::from_secs(61));
    rig.settle();
    assert_eq!(rig.response(id).status, 408);
    assert!(rig.names().is_empty());
}

/// Goal: when the process ends, a change that is under way is finished and told; downloads
/// and uploads end at once, and leave nothing.
#[test]
fn the_end_is_orderly() {
    let (mut rig, token, _) = rig();
    rig.put("/big", FileKind::Regular, vec![0; 3_000_000]);
    let idle = rig.connect();
    let download = rig.connect();
    rig.send(download, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    rig.answer_one();
    let upload = rig.connect();
    let all = put("/new", &token, "", &"x".repeat(5000));
    rig.send(upload, &all[..all.len() - 1]);
    rig.settle_but(1);
    let change = rig.connect();
    rig.send(change, put("/d/", &token, "", ""));
    rig.answer_last();
    rig.input(HttpInput::Stop);
    rig.settle();
    assert_eq!(rig.ended[&idle], Ended::Closed);
    assert_eq!(rig.ended[&download], Ended::Aborted);
    assert_eq!(rig.ended[&upload], Ended::Aborted);
    assert_eq!(rig.response(change).status, 201);
    assert_eq!(rig.ended[&change], Ended::Closed);
    assert_eq!(rig.names(), ["big", "d"]);
    assert_eq!(rig.door.calls(), 0);
}
