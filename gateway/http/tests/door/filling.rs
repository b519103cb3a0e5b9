//! Content of uploads that is received where a disk takes it.

use std::time::Duration;

use crossdock_http::{ConnId, HttpInput};
use crossdock_peer::SiteOperation;
use crossdock_types::{BLOCK_BYTES, is_aligned};

use crate::rig::{Ended, Rig};
use crate::writing;

/// The first piece behind 9000 bytes: up to the end of a block.
const PIECE: usize = (64 << 10) - 9000 % BLOCK_BYTES;

fn content(bytes: usize) -> Vec<u8> {
    (0..=250).cycle().take(bytes).collect()
}

fn head(token: &str, framing: &str) -> String {
    format!("PUT /f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{framing}\r\n\r\n")
}

/// Bytes of the writes that wait to be answered that a disk would have to be given a copy of:
/// all but whole blocks that lie in the file as in memory.
fn copied(rig: &Rig) -> usize {
    let mut copied = 0;
    for call in &rig.asked {
        if let SiteOperation::Write {
            offset_bytes,
            payload,
            ..
        } = &call.request.operation
        {
            let mut at = usize::try_from(*offset_bytes).expect("small");
            for piece in payload.pieces() {
                let behind = (at.next_multiple_of(BLOCK_BYTES) - at).min(piece.len());
                let whole = (piece.len() - behind) / BLOCK_BYTES * BLOCK_BYTES;
                if whole == 0 || !is_aligned(&piece[behind..behind + whole]) {
                    copied += piece.len();
                } else {
                    copied += piece.len() - whole;
                }
                at += piece.len();
            }
        }
    }
    copied
}

/// Sends as a fast client does whose bytes come to the door as the loop gives them to it: so many
/// at a time at most, unless they are wanted in one piece. Answers as it goes; bytes that had to
/// be copied.
fn stream(rig: &mut Rig, id: ConnId, mut bytes: &[u8]) -> usize {
    let mut all_copied = 0;
    while !bytes.is_empty() {
        let step = bytes.len().min(8192);
        rig.send(id, &bytes[..step]);
        bytes = &bytes[step..];
        all_copied += copied(rig);
        rig.settle();
    }
    all_copied
}

/// Goal: of a long upload, by its length or in chunks, only what has come before it was known
/// to be one is copied; it is whole, and the next request is served.
#[test]
fn blocks_of_the_file_are_blocks_in_memory() {
    let content = content(5_000_000);
    let by_length = format!("Content-Length: {}", content.len());
    let mut in_chunks = Vec::new();
    for chunk in content.chunks(300_000) {
        in_chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        in_chunks.extend_from_slice(chunk);
        in_chunks.extend_from_slice(b"\r\n");
    }
    in_chunks.extend_from_slice(b"0\r\n\r\n");
    let chunks = content.len() / 300_000 + 1;
    for (framing, body, copied_max) in [
        (by_length.as_str(), &content, 4 * BLOCK_BYTES),
        // Around each chunk, what comes together with its beginning.
        (
            "Transfer-Encoding: chunked",
            &in_chunks,
            chunks * 4 * BLOCK_BYTES,
        ),
    ] {
        let (mut rig, token, _) = writing::rig();
        let id = rig.connect();
        let whole = [head(&token, framing).as_bytes(), body].concat();
        let copied = stream(&mut rig, id, &whole);
        assert_eq!(rig.response(id).status, 201);
        assert!(rig.content("/f") == Some(&content[..]));
        assert!(copied <= copied_max, "{framing}: {copied}");
        assert_eq!(rig.door.figures().upload_bytes, 0);
        rig.send(id, "GET /f HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\n\r\n");
        rig.settle();
        assert_eq!(rig.response(id).status, 206);
    }
}

/// Goal: pieces grow and shrink with the client, and a slow one sends as it comes: it is not
/// ended as long as it goes on, and is if it does not.
#[test]
fn pieces_suit_the_client() {
    let (mut rig, token, _) = writing::rig();
    let id = rig.connect();
    let content = content(2_000_000);
    rig.send(id, head(&token, "Content-Length: 2000000"));
    rig.settle();
    rig.send(id, &content[..1000]);
    assert!(rig.filling.is_empty(), "nothing is known of it");
    rig.send(id, &content[1000..9000]);
    assert!(rig.filling.contains_key(&id));
    assert_eq!(rig.door.figures().upload_bytes, 9000 + PIECE);
    // 64 KiB in 70 s: it has 60 s, and 16 for the piece.
    let piece = &content[9000..][..PIECE];
    rig.send(id, &piece[..piece.len() - 1]);
    rig.pass(Duration::from_secs(70));
    assert!(rig.ended.is_empty());
    rig.send(id, &piece[piece.len() - 1..]);
    assert_eq!(rig.door.figures().upload_bytes, 9000 + PIECE);
    for at in (9000 + PIECE..200_000).step_by(1000) {
        assert!(rig.filling.is_empty());
        rig.send(id, &content[at..at + 1000]);
        rig.pass(Duration::from_secs(50));
    }
    assert!(rig.ended.is_empty());
    rig.pass(Duration::from_secs(61));
    rig.settle();
    assert_eq!(rig.response(id).status, 408);
    assert_eq!(rig.door.figures().upload_bytes, 0);
    assert!(rig.names().is_empty());
}

/// Goal: a client that ends, is reset or is refused in the middle of a piece leaves nothing, and
/// is told where it can be.
#[test]
fn an_upload_that_breaks_within_a_piece_leaves_nothing() {
    for breaks in 0..3usize {
        let (mut rig, token, _) = writing::rig();
        let id = rig.connect();
        rig.send(id, head(&token, "Content-Length: 2000000"));
        rig.settle();
        let content = content(2_000_000);
        rig.send(id, &content[..1_500_000]);
        assert!(rig.filling.contains_key(&id));
        match breaks {
            0 => rig.input(HttpInput::PeerDone(id)),
            1 => rig.input(HttpInput::Closed(id)),
            _ => {
                rig.failing = Some((
                    |operation| matches!(operation, SiteOperation::Write { .. }),
                    crossdock_peer::SiteError::NoSpace,
                ));
                rig.settle();
                assert_eq!(rig.response(id).status, 507);
                // What is on its way is dropped, and the connection ends behind it.
                assert!(rig.ended.is_empty());
                rig.send(id, &content[1_500_000..]);
            }
        }
        rig.settle();
        let ended = [Some(&Ended::Aborted), None, Some(&Ended::Closed)];
        assert_eq!(rig.ended.get(&id), ended[breaks]);
        assert!(rig.names().is_empty());
        assert_eq!(rig.door.figures().upload_bytes, 0);
    }
}
