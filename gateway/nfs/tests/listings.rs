//! READDIR and READDIRPLUS: sizes to the byte, cookies, handles.

mod support;

use bytes::Bytes;
use crossdock_names::FileRef;
use crossdock_nfs3::call::{Readdir, Readdirplus};
use crossdock_nfs3::{Call, CookieVerifier, Reply, Status};
use crossdock_peer::{DirectoryEntry, FileKind, SiteAnswer, SiteOperation};
use support::*;

fn entries(count: u64) -> Vec<DirectoryEntry> {
    let entry = |number: u64| {
        let file = FileRef {
            id: crossdock_names::FileId(100 + number),
            generation: 1,
        };
        DirectoryEntry {
            file: file.id,
            name: match number {
                0 => Bytes::from_static(b"."),
                1 => Bytes::from_static(b".."),
                _ => Bytes::from(format!("name-{number:03}")),
            },
            cookie: number + 3,
            attributes: Some(attributes(file, FileKind::Regular)),
        }
    };
    (0..count).map(entry).collect()
}

fn listed(count: u64, end: bool) -> SiteAnswer {
    SiteAnswer::Directory {
        entries: entries(count),
        end,
        verifier: *b"cookies!",
    }
}

/// Goal: replies of READDIR are as large as the client allows and never larger;
/// what did not fit is not said to be the end.
#[test]
fn readdir_fills_the_count_exactly() {
    let mut bench = bench();
    let root = handle(ROOT);
    let readdir = |count_bytes, cookie, verifier| {
        Call::Readdir(Readdir {
            directory: root.as_handle(),
            cookie,
            verifier: CookieVerifier(verifier),
            count_bytes,
        })
    };
    for count_bytes in (100..600).step_by(4) {
        let call = readdir(count_bytes, 0, [0; 8]);
        let (_, reply) = bench.round(&call, Ok(listed(10, true)), root_cache());
        let limit = usize::try_from(count_bytes).expect("small");
        // Attributes, verifier, list end, eof; then the entries.
        let sizes = [28, 28, 32, 32, 32, 32, 32, 32, 32, 32].iter();
        let mut room = limit.saturating_sub(88 + 8 + 4 + 4);
        let fits = sizes.take_while(|size| {
            let is_in = **size <= room;
            room = room.saturating_sub(**size);
            is_in
        });
        match (fits.count(), reply) {
            (0, reply) => assert_eq!(reply.status(), Some(Status::TooSmall)),
            (fits, Reply::Readdir(Ok(list))) => {
                assert_eq!(
                    (list.entries.iter().count(), list.is_end),
                    (fits, fits == 10)
                );
            }
            (_, other) => panic!("{other:?}"),
        }
    }
    let (request, reply) = bench.round(
        &readdir(4096, 5, *b"cookies!"),
        Ok(listed(3, false)),
        root_cache(),
    );
    let SiteOperation::ReadDirectory { cookie: 5, .. } = request.operation else {
        panic!("{request:?}");
    };
    let Reply::Readdir(Ok(list)) = reply else {
        panic!("{reply:?}");
    };
    let names: Vec<_> = list
        .entries
        .iter()
        .map(|e| (e.name.0, e.fileid, e.cookie))
        .collect();
    assert_eq!(names[2], (&b"name-002"[..], 102, 5));
    assert!(!list.is_end);
    let old = readdir(4096, 5, *b"outdated");
    let (_, reply) = bench.round(&old, Ok(listed(3, false)), root_cache());
    assert_eq!(reply.status(), Some(Status::BadCookie));
}

/// Goal: READDIRPLUS has handles that open, none that lead out of an export,
/// and obeys both counts.
#[test]
fn readdirplus_gives_handles_within_both_counts() {
    let mut bench = bench();
    let root = handle(ROOT);
    let mut list = |directory_count_bytes, count_bytes| {
        let call = Call::Readdirplus(Readdirplus {
            directory: root.as_handle(),
            cookie: 0,
            verifier: CookieVerifier([0; 8]),
            directory_count_bytes,
            count_bytes,
        });
        let (request, reply) = bench.round(&call, Ok(listed(10, true)), root_cache());
        let SiteOperation::ReadDirectory {
            with_attributes: true,
            ..
        } = request.operation
        else {
            panic!("{request:?}");
        };
        match reply {
            Reply::Readdirplus(Ok(list)) => list,
            other => panic!("{other:?}"),
        }
    };
    let all = list(4096, 8192);
    let entries: Vec<_> = all.entries.iter().collect();
    assert_eq!((entries.len(), all.is_end), (10, true));
    assert_eq!((entries[0].object, entries[1].object), (None, None));
    for entry in &entries[2..] {
        let handle = keys().open(entry.object.expect("a handle").as_bytes());
        assert_eq!(handle.expect("ours").file.id.0, entry.fileid);
        assert_eq!(entry.attributes.expect("attributes").fileid, entry.fileid);
    }
    // Names are 24, 24 and 28 bytes each.
    let few = list(24 + 24 + 28, 8192);
    assert_eq!((few.entries.iter().count(), few.is_end), (3, false));
    let tight = list(4096, 600);
    assert!(tight.entries.iter().count() < 10 && !tight.is_end);
}
