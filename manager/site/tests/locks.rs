//! Locks in the site's log: what was granted is there after a crash, who had
//! something is told, and nobody hears of a lock that may still be lost.

mod rig;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use crossdock_names::FileRef;
use crossdock_peer::{
    Caller, ForgetWhat, LockClient, LockNotice, LockOperation, LockOwner, LockRange, LockRefusal,
    LockTerms, LockWanted, SiteAnswer, SiteError, SiteOperation, SiteReply,
};
use crossdock_site::SiteLimits;

use rig::{ROOT, Rig, once, plain};

fn client(number: u8) -> LockClient {
    LockClient {
        name: Bytes::from(format!("host{number}")),
        address: IpAddr::from([192, 0, 2, number]),
    }
}

fn wanted(number: u8, offset: u64, length: u64) -> LockWanted {
    LockWanted {
        owner: LockOwner {
            client: client(number),
            process: 1,
            handle: Bytes::from_static(b"owner"),
        },
        range: LockRange::new(offset, length).expect("a range"),
        is_exclusive: true,
    }
}

fn terms() -> LockTerms {
    LockTerms {
        may_block: false,
        is_reclaim: false,
        is_monitored: true,
        state: 3,
        handle: Bytes::from_static(b"handle"),
        version: 4,
    }
}

fn lock(file: FileRef, wanted: LockWanted) -> SiteOperation {
    let operation = LockOperation::Lock(wanted, terms());
    SiteOperation::Locks { file, operation }
}

fn blocking(file: FileRef, wanted: LockWanted) -> SiteOperation {
    let terms = LockTerms {
        may_block: true,
        ..terms()
    };
    let operation = LockOperation::Lock(wanted, terms);
    SiteOperation::Locks { file, operation }
}

fn reclaim(file: FileRef, wanted: LockWanted) -> SiteOperation {
    let terms = LockTerms {
        is_reclaim: true,
        ..terms()
    };
    let operation = LockOperation::Lock(wanted, terms);
    SiteOperation::Locks { file, operation }
}

fn unlock(file: FileRef, wanted: &LockWanted) -> SiteOperation {
    let operation = LockOperation::Unlock(wanted.owner.clone(), wanted.range);
    SiteOperation::Locks { file, operation }
}

fn about(operation: LockOperation) -> SiteOperation {
    let file = ROOT;
    SiteOperation::Locks { file, operation }
}

fn held(wanted: &LockWanted) -> Result<SiteAnswer, SiteError> {
    Ok(SiteAnswer::NotLocked(LockRefusal::Held(wanted.clone())))
}

fn grace() -> Result<SiteAnswer, SiteError> {
    Ok(SiteAnswer::NotLocked(LockRefusal::GracePeriod))
}

fn done(reply: &SiteReply) {
    assert_eq!(reply.outcome, Ok(SiteAnswer::Done));
}

/// Whom the site had told when it opened.
fn told(rig: &mut Rig) -> (u32, Vec<LockClient>) {
    let restarted = std::mem::take(&mut rig.notices).into_iter();
    let mut restarted = restarted.filter_map(|notice| match notice {
        LockNotice::Restarted { state, clients } => Some((state, clients)),
        _ => None,
    });
    let first = restarted.next().expect("told when it opens");
    assert_eq!(restarted.next(), None, "once");
    first
}

/// Goal: locks survive the manager; their clients are told, with a new odd
/// state; only reclaims are taken until then, and a reclaim changes nothing.
#[test]
fn locks_survive_a_crash_and_are_taken_again() {
    let mut rig = Rig::new(SiteLimits::default());
    let (first_state, clients) = told(&mut rig);
    assert!(clients.is_empty());
    let file = rig.create("f");
    let (one, two) = (wanted(1, 0, 10), wanted(2, 10, 10));
    done(&rig.ask(lock(file, one.clone())));
    done(&rig.ask(lock(file, two.clone())));
    assert_eq!(rig.ask(lock(file, wanted(3, 5, 1))).outcome, held(&one));

    rig.restart();
    let (state, clients) = told(&mut rig);
    assert!(state % 2 == 1 && state != first_state);
    assert_eq!(clients, [client(1), client(2)]);
    assert_eq!(rig.site.lock_table().len(), 2);
    assert_eq!(rig.ask(lock(file, wanted(3, 50, 1))).outcome, grace());
    done(&rig.ask(reclaim(file, one.clone())));
    assert_eq!(rig.ask(reclaim(file, wanted(3, 5, 1))).outcome, held(&one));
    done(&rig.ask(about(LockOperation::Told(client(1)))));
    assert_eq!(rig.ask(lock(file, wanted(3, 50, 1))).outcome, grace());
    done(&rig.ask(about(LockOperation::Told(client(2)))));
    done(&rig.ask(lock(file, wanted(3, 50, 1))));
    assert_eq!(rig.ask(lock(file, wanted(3, 15, 1))).outcome, held(&two));
}

/// Goal: if a client is never reached the grace period ends at its time, and
/// its locks are still held, until it says that it has restarted.
#[test]
fn a_silent_client_keeps_its_locks_until_it_restarts() {
    let mut rig = Rig::new(SiteLimits::default());
    let file = rig.create("f");
    let one = wanted(1, 0, 10);
    done(&rig.ask(lock(file, one.clone())));
    rig.restart();
    assert_eq!(rig.ask(lock(file, wanted(2, 0, 1))).outcome, grace());
    rig.pass(Duration::from_secs(44));
    assert_eq!(rig.ask(lock(file, wanted(2, 0, 1))).outcome, grace());
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.ask(lock(file, wanted(2, 0, 1))).outcome, held(&one));
    let restarted = LockOperation::Forget(client(1), ForgetWhat::BeforeState(5));
    done(&rig.ask(about(restarted)));
    done(&rig.ask(lock(file, wanted(2, 0, 1))));
    rig.restart();
    assert_eq!(rig.site.lock_table().len(), 1, "it stays forgotten");
}

/// Goal: a LOCK that arrives a second time, after the UNLOCK and even after a
/// crash, takes nothing.
#[test]
fn a_retransmitted_lock_takes_nothing_again() {
    let mut rig = Rig::new(SiteLimits::default());
    let file = rig.create("f");
    let one = wanted(1, 0, 10);
    let first = rig.send(once(1, lock(file, one.clone())));
    rig.run();
    let first = rig.replies.remove(&first).expect("answered");
    done(&rig.ask(unlock(file, &one)));
    for _ in 0..2 {
        let again = rig.send(once(1, lock(file, one.clone())));
        rig.run();
        let again = rig.replies.remove(&again).expect("answered");
        assert_eq!(again.outcome, first.outcome);
        assert!(rig.site.lock_table().is_empty());
        rig.restart();
    }
}

/// Goal: who waited gets the lock, and is told only when every member has it in
/// the log; the client that does not want it gives it to the next.
#[test]
fn a_grant_is_told_when_it_is_durable() {
    let mut rig = Rig::new(SiteLimits::default());
    let file = rig.create("f");
    let (one, two, three) = (wanted(1, 0, 0), wanted(2, 0, 0), wanted(3, 7, 1));
    done(&rig.ask(lock(file, one.clone())));
    let blocked = Ok(SiteAnswer::NotLocked(LockRefusal::Blocked));
    assert_eq!(rig.ask(blocking(file, two.clone())).outcome, blocked);
    assert_eq!(rig.ask(blocking(file, three.clone())).outcome, blocked);
    rig.notices.clear();
    rig.send(plain(unlock(file, &one)));
    while rig.notices.is_empty() {
        assert!(rig.step(), "nobody was told");
        if !rig.notices.is_empty() {
            // Whoever takes over now knows it.
            rig.restart();
            assert_eq!(rig.site.lock_table().len(), 1);
        }
    }
    let LockNotice::Granted(granted) = rig.notices.remove(0) else {
        panic!("{:?}", rig.notices);
    };
    assert_eq!((&granted.lock, &granted.handle[..]), (&two, &b"handle"[..]));

    // The same again, without a crash, and the grant is refused.
    done(&rig.ask(about(LockOperation::Told(client(2)))));
    assert_eq!(rig.ask(blocking(file, three.clone())).outcome, blocked);
    assert_eq!(rig.ask(blocking(file, wanted(1, 9, 1))).outcome, blocked);
    rig.notices.clear();
    done(&rig.ask(unlock(file, &two)));
    let ids: Vec<_> = rig.notices.drain(..).filter_map(granted_id).collect();
    assert_eq!(ids.len(), 2, "their ranges are apart");
    done(&rig.ask(about(LockOperation::GrantAnswered(ids[0], false))));
    done(&rig.ask(about(LockOperation::GrantAnswered(ids[1], true))));
    assert_eq!(rig.site.lock_table().len(), 1);
}

fn granted_id(notice: LockNotice) -> Option<crossdock_peer::GrantId> {
    match notice {
        LockNotice::Granted(granted) => Some(granted.id),
        _ => None,
    }
}

/// Goal: with the last link of a file its locks go, also in a replay; who does
/// not know the file, or may not touch it, locks nothing.
#[test]
fn a_removed_file_has_no_locks() {
    let mut rig = Rig::new(SiteLimits::default());
    let file = rig.create("f");
    done(&rig.ask(lock(file, wanted(1, 0, 0))));
    let stranger = Caller {
        uid: 5,
        gid: 5,
        groups: [].into(),
    };
    let other = rig.create("other");
    rig.ask(SiteOperation::SetAttributes {
        file: other,
        changes: crossdock_peer::AttributeChanges {
            mode: Some(0o600),
            ..Default::default()
        },
        guard: None,
    });
    let refused = rig.ask_as(stranger.clone(), lock(other, wanted(2, 0, 0)));
    assert_eq!(refused.outcome, Err(SiteError::AccessDenied));
    // Giving up needs no right.
    done(&rig.ask_as(stranger, unlock(other, &wanted(2, 0, 0))));
    done(&rig.remove("f"));
    assert!(rig.site.lock_table().is_empty());
    assert_eq!(
        rig.ask(lock(file, wanted(1, 0, 0))).outcome,
        Err(SiteError::Stale)
    );
    rig.notices.clear();
    rig.restart();
    assert!(rig.site.lock_table().is_empty());
    let (_, clients) = told(&mut rig);
    assert!(clients.is_empty(), "who has nothing is not told");
}

/// Goal: the manager dies after any message: a lock that was acknowledged is
/// held, one that was given up is not.
#[test]
fn what_was_acknowledged_is_held_wherever_the_manager_dies() {
    for deaths in 0..24 {
        let mut rig = Rig::new(SiteLimits::default());
        let file = rig.create("f");
        let (kept, gone) = (wanted(1, 0, 10), wanted(1, 20, 10));
        done(&rig.ask(lock(file, gone.clone())));
        let take = rig.send(plain(lock(file, kept.clone())));
        let give = rig.send(plain(unlock(file, &gone)));
        for _ in 0..deaths {
            if !rig.step() {
                break;
            }
        }
        rig.step_unanswered();
        let acknowledged = |id| rig.replies.contains_key(&id);
        let (taken, given) = (acknowledged(take), acknowledged(give));
        rig.restart();
        let listed = rig.site.lock_table().list(10);
        let has = |wanted: &LockWanted| listed.iter().any(|lock| lock.lock == *wanted);
        assert!(has(&kept) || !taken, "death {deaths}");
        assert!(!has(&gone) || !given, "death {deaths}");
    }
}

/// Goal: locks go through checkpoints, while they change.
#[test]
fn locks_are_in_checkpoints() {
    let mut rig = Rig::new(rig::many_checkpoints());
    let files: Vec<FileRef> = (0..5).map(|n| rig.create(&format!("f{n}"))).collect();
    for round in 0..60u64 {
        for (file, number) in files.iter().zip(1u8..) {
            done(&rig.ask(lock(*file, wanted(number, round * 10, 5))));
            if round % 3 == 0 {
                done(&rig.ask(unlock(*file, &wanted(number, round * 10, 5))));
            }
        }
    }
    let before = rig.site.lock_table().list(usize::MAX);
    assert_eq!(before.len(), 5 * 40);
    rig.restart();
    let report = rig.opened.as_ref().expect("opened").as_ref().expect("well");
    assert!(report.checkpoint.is_some(), "{report:?}");
    assert_eq!(rig.site.lock_table().list(usize::MAX), before);
}
