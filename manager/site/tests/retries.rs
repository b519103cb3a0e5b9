//! What a client may send again, or go on with, after the site has died, and
//! what it is told of the state around its request.

mod rig;

use bytes::Bytes;
use crossdock_names::FileRef;
use crossdock_peer::{
    AttributeChanges, CreateMode, SiteAnswer, SiteError, SiteOperation, Stability, TimeChange,
};
use crossdock_site::SiteLimits;

use rig::{ROOT, Rig, create, file_of, many_checkpoints, once, plain, write};

fn exclusive(verifier: u8) -> SiteOperation {
    SiteOperation::Create {
        directory: ROOT,
        name: Bytes::from_static(b"lock"),
        mode: CreateMode::Exclusive([verifier; 8]),
    }
}

fn page(rig: &mut Rig, cookie: u64) -> (Vec<Bytes>, u64, bool) {
    let reply = rig.ask(SiteOperation::ReadDirectory {
        directory: ROOT,
        cookie,
        entries_max: 4,
        name_bytes_max: 1 << 16,
        with_attributes: false,
    });
    match reply.outcome {
        Ok(SiteAnswer::Directory {
            entries,
            end,
            verifier,
        }) => {
            assert_eq!(verifier, [0; 8], "cookies never become invalid");
            let last = entries.last().map_or(cookie, |entry| entry.cookie);
            let names = entries.into_iter().map(|entry| entry.name).collect();
            (names, last, end)
        }
        other => panic!("{other:?}"),
    }
}

/// Goal: an exclusive create whose reply was lost finds its own file when it is
/// sent again as a new request after a crash, until the client has set the
/// file's times; another client's is refused all the time (RFC 1813 section 3.3.8).
#[test]
fn an_exclusive_create_finds_its_file_after_a_crash() {
    let mut rig = Rig::new(SiteLimits::default());
    rig.send(once(1, exclusive(7)));
    rig.run();
    rig.restart();
    let again = rig.send(once(2, exclusive(7)));
    let stranger = rig.send(once(3, exclusive(8)));
    rig.run();
    let file: FileRef = file_of(&rig.replies[&again]);
    assert_eq!(rig.replies[&stranger].outcome, Err(SiteError::Exists));
    assert_eq!(rig.lookup("lock"), Ok(file));

    let set = rig.ask(SiteOperation::SetAttributes {
        file,
        changes: AttributeChanges {
            mode: Some(0o600),
            accessed: TimeChange::Now,
            modified: TimeChange::Now,
            ..AttributeChanges::default()
        },
        guard: None,
    });
    assert_eq!(set.outcome, Ok(SiteAnswer::Done));
    rig.restart();
    let late = rig.send(once(4, exclusive(7)));
    rig.run();
    assert_eq!(rig.replies[&late].outcome, Err(SiteError::Exists));
}

/// Goal: a request that was refused is refused again when an earlier sending of
/// it arrives late: its client was told so, and somebody may have made since what
/// it would now remove. As a new request it is carried out.
#[test]
fn a_refused_request_is_not_carried_out_later() {
    let mut rig = Rig::new(SiteLimits::default());
    let removal = rig::remove("file");
    let first = rig.send(once(1, removal.clone()));
    rig.run();
    let refused = rig.replies[&first].clone();
    assert_eq!(refused.outcome, Err(SiteError::NotFound));
    let file = rig.create("file");
    let late = rig.send(once(1, removal.clone()));
    rig.run();
    assert_eq!(rig.replies[&late].outcome, refused.outcome);
    assert_eq!(rig.replies[&late].subject, refused.subject);
    assert_eq!(rig.lookup("file"), Ok(file));
    let other = rig.send(once(2, removal));
    rig.run();
    assert_eq!(rig.replies[&other].outcome, Ok(SiteAnswer::Done));
}

/// Goal: what was done is answered as done, also to a sending that comes too late
/// to be begun; what was not is refused as not done.
#[test]
fn a_late_sending_gets_the_first_reply() {
    let mut rig = Rig::new(SiteLimits::default());
    let first = rig.send(once(1, create("file")));
    rig.run();
    rig.pass(std::time::Duration::from_secs(1));
    let past = crossdock_types::Time(rig.now.0 - 1);
    let late = rig.send_until(past, once(1, create("file")));
    let other = rig.send_until(past, once(2, create("other")));
    rig.run();
    assert_eq!(rig.replies[&late].outcome, rig.replies[&first].outcome);
    assert_eq!(rig.replies[&other].outcome, Err(SiteError::Busy));
    assert_eq!(rig.lookup("other"), Err(SiteError::NotFound));
}

/// Goal: a listing goes on after a crash with the cookie that it had, and shows
/// what is left once.
#[test]
fn a_cookie_is_good_after_a_crash() {
    let mut rig = Rig::new(SiteLimits::default());
    for number in 0..10 {
        rig.create(&format!("f{number}"));
    }
    let (mut names, mut cookie, mut end) = page(&mut rig, 0);
    while !end {
        rig.restart();
        let more;
        (more, cookie, end) = page(&mut rig, cookie);
        names.extend(more);
    }
    let expected: Vec<Bytes> = [".", ".."]
        .into_iter()
        .map(Bytes::from)
        .chain((0..10).map(|number| Bytes::from(format!("f{number}"))))
        .collect();
    assert_eq!(names, expected);
}

/// Goal: a write that is sent again after a crash, as a new request, leaves the
/// content that it left the first time.
#[test]
fn a_write_may_be_sent_again() {
    let mut rig = Rig::new(SiteLimits::default());
    let file = rig.create("f");
    for _ in 0..3 {
        rig.write(file, 2, b"content", Stability::Stable);
        rig.restart();
        assert_eq!(rig.read(file), b"\0\0content");
    }
}

/// Goal: a rename over a name never leaves it free, and loses neither file
/// before the other has it: not to who looks meanwhile, and not if the manager
/// dies after any message.
#[test]
fn a_rename_over_a_name_never_leaves_it_free() {
    for deaths in 0..20 {
        let mut rig = Rig::new(SiteLimits::default());
        let (new, old) = (rig.create("new"), rig.create("kept"));
        let look = || {
            plain(SiteOperation::Lookup {
                directory: ROOT,
                name: Bytes::from_static(b"kept"),
            })
        };
        let mut looks = vec![rig.send(look())];
        let renamed = rig.send(once(
            1,
            SiteOperation::Rename {
                from_directory: ROOT,
                from_name: Bytes::from_static(b"new"),
                to_directory: ROOT,
                to_name: Bytes::from_static(b"kept"),
            },
        ));
        looks.push(rig.send(look()));
        for _ in 0..deaths {
            rig.step();
            looks.push(rig.send(look()));
        }
        let seen = looks.iter().filter_map(|id| rig.replies.get(id));
        for reply in seen {
            let file = file_of(reply);
            assert!(file == new || file == old, "after {deaths} messages");
        }
        let is_answered = rig.replies.contains_key(&renamed);
        rig.restart();
        let (at_new, at_kept) = (rig.lookup("new"), rig.lookup("kept"));
        let before = (Ok(new), Ok(old));
        let after = (Err(SiteError::NotFound), Ok(new));
        assert!(
            (at_new, at_kept) == after || !is_answered && (at_new, at_kept) == before,
            "after {deaths} messages: {at_new:?}, {at_kept:?}"
        );
    }
}

/// Goal: a reply has the attributes of what it changed from before and after it,
/// and a refusal those of what it did not change (RFC 1813 section 2.6, wcc_data).
#[test]
fn replies_have_the_attributes_of_before_and_after() {
    let mut rig = Rig::new(SiteLimits::default());
    let before = rig.attributes(ROOT);
    let made = rig.ask(create("f"));
    let after = rig.attributes(ROOT);
    assert!(after.changed > before.changed);
    let seen = made.subject.before.expect("it was known");
    assert_eq!(
        (seen.size_bytes, seen.modified, seen.changed),
        (before.size_bytes, before.modified, before.changed)
    );
    assert_eq!(made.subject.after, Some(after.clone()));

    let refused = rig.ask(create("f"));
    assert_eq!(refused.outcome, Err(SiteError::Exists));
    assert_eq!(refused.subject.after, Some(after));
}

/// Goal: a write, and zeros, that a gateway has numbered, get the first answer when they are sent
/// again, also after a restart, and what others have written since stays; without a number they
/// are done again. One whose bytes did not get to every member was not done.
#[test]
fn a_numbered_write_is_done_once() {
    let mut rig = Rig::new(many_checkpoints());
    let file = rig.create("a");
    let zero = SiteOperation::Zero {
        file,
        offset_bytes: 100,
        length_bytes: 6000,
    };
    let small = write(file, 100, &[2; 512], Stability::Stable);
    let large = write(file, 100, &[2; 6000], Stability::Stable);
    for (number, operation) in (1..).zip([small, large.clone(), zero]) {
        rig.write(file, 0, &[1; 10_000], Stability::Stable);
        let request = once(number, operation.clone());
        let id = rig.send(request.clone());
        rig.run();
        let done = rig.replies[&id].outcome.clone();
        assert!(matches!(done, Ok(SiteAnswer::Written { .. })), "{done:?}");
        rig.write(file, 0, &[3; 10_000], Stability::Stable);
        for restarts in [false, true] {
            if restarts {
                rig.restart();
            }
            let id = rig.send(request.clone());
            rig.run();
            let again = rig.replies[&id].outcome.clone();
            assert!(matches!(again, Ok(SiteAnswer::Written { .. })), "{again:?}");
            assert_eq!(rig.read(file), [3; 10_000], "{number}, {restarts}");
        }
        rig.ask(operation);
        assert_ne!(rig.read(file), [3; 10_000], "{number}");
    }
    // Both of two sendings under way are told that it was done; it is, once.
    rig.write(file, 0, &[1; 10_000], Stability::Stable);
    let ids = [(); 2].map(|()| rig.send(once(50, large.clone())));
    let between = rig.send(plain(write(file, 100, &[4; 6000], Stability::Stable)));
    rig.run();
    for id in ids.iter().chain([&between]) {
        assert!(rig.replies[id].outcome.is_ok());
    }
    assert_eq!(rig.read(file)[100..6100], [4; 6000]);

    for node in rig.nodes.values_mut() {
        node.no_space_for_small_files = true;
    }
    let request = once(60, large);
    for is_full in [true, false] {
        for node in rig.nodes.values_mut() {
            node.no_space_for_small_files = is_full;
        }
        let id = rig.send(request.clone());
        rig.run();
        let outcome = &rig.replies[&id].outcome;
        assert_eq!(outcome.is_ok(), !is_full, "{outcome:?}");
        let fill = if is_full { 4 } else { 2 };
        assert_eq!(rig.read(file)[100..6100], [fill; 6000]);
    }
}
