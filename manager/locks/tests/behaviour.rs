//! What the model does not know: turns, grants, deadlocks, grace, clients that
//! restart, bounds.

use std::net::IpAddr;

use bytes::Bytes;
use crossdock_locks::{Decision, Holdings, Limits, Locks};
use crossdock_peer::{
    ForgetWhat, GrantId, LockClient, LockNotice, LockOperation, LockOwner, LockRange, LockRefusal,
    LockTerms, LockWanted, ShareTerms,
};
use crossdock_types::Time;

const FILE: u64 = 3;

fn client(name: &str, last: u8) -> LockClient {
    LockClient {
        name: Bytes::copy_from_slice(name.as_bytes()),
        address: IpAddr::from([192, 0, 2, last]),
    }
}

fn owner(number: u8) -> LockOwner {
    LockOwner {
        client: client(&format!("host{number}"), number),
        process: number.into(),
        handle: Bytes::new(),
    }
}

fn wanted(number: u8, offset: u64, length: u64, is_exclusive: bool) -> LockWanted {
    LockWanted {
        owner: owner(number),
        range: LockRange::new(offset, length).expect("a range"),
        is_exclusive,
    }
}

fn terms() -> LockTerms {
    LockTerms {
        may_block: false,
        is_reclaim: false,
        is_monitored: true,
        state: 1,
        handle: Bytes::from_static(b"handle"),
        version: 4,
    }
}

fn blocking() -> LockTerms {
    LockTerms {
        may_block: true,
        ..terms()
    }
}

fn reclaim() -> LockTerms {
    LockTerms {
        is_reclaim: true,
        ..terms()
    }
}

/// Plans and applies; `Ok` if it was done.
fn run(locks: &mut Locks, file: u64, operation: LockOperation) -> Result<(), LockRefusal> {
    match locks.plan(file, &operation) {
        Decision::Change(changes) => {
            changes.iter().for_each(|change| locks.apply(change));
            Ok(())
        }
        Decision::Refuse(refusal) => Err(refusal),
    }
}

fn lock(locks: &mut Locks, wanted: LockWanted, terms: LockTerms) -> Result<(), LockRefusal> {
    run(locks, FILE, LockOperation::Lock(wanted, terms))
}

fn unlock(locks: &mut Locks, wanted: &LockWanted) {
    let operation = LockOperation::Unlock(wanted.owner.clone(), wanted.range);
    assert_eq!(run(locks, FILE, operation), Ok(()));
}

fn grants(locks: &mut Locks) -> Vec<(GrantId, LockWanted)> {
    let mut all = Vec::new();
    while let Some((changes, notice)) = locks.next_grant(FILE) {
        changes.iter().for_each(|change| locks.apply(change));
        let LockNotice::Granted(granted) = notice else {
            panic!("{notice:?}");
        };
        all.push((granted.id, granted.lock));
    }
    all
}

/// Goal: who came first is served first, and who holds nothing does not
/// overtake a waiting writer; who holds something may.
#[test]
fn requests_wait_for_their_turn() {
    let mut locks = Locks::new(Limits::default());
    assert_eq!(lock(&mut locks, wanted(1, 0, 10, false), terms()), Ok(()));
    let writer = wanted(2, 0, 10, true);
    assert_eq!(
        lock(&mut locks, writer.clone(), blocking()),
        Err(LockRefusal::Blocked)
    );
    let reader = wanted(3, 5, 1, false);
    assert_eq!(
        lock(&mut locks, reader.clone(), blocking()),
        Err(LockRefusal::Blocked)
    );
    assert_eq!(
        lock(&mut locks, wanted(1, 20, 1, false), blocking()),
        Ok(())
    );
    assert_eq!(lock(&mut locks, wanted(1, 5, 8, false), blocking()), Ok(()));
    // Asked again, each keeps its place.
    assert_eq!(
        lock(&mut locks, writer.clone(), blocking()),
        Err(LockRefusal::Blocked)
    );
    assert_eq!(locks.waiting(), 2);
    unlock(&mut locks, &wanted(1, 0, 0, false));
    let served: Vec<_> = grants(&mut locks)
        .into_iter()
        .map(|(_, lock)| lock)
        .collect();
    assert_eq!(served, std::slice::from_ref(&writer));
    unlock(&mut locks, &writer);
    let served: Vec<_> = grants(&mut locks)
        .into_iter()
        .map(|(_, lock)| lock)
        .collect();
    assert_eq!(served, [reader]);
    assert_eq!(locks.waiting(), 0);
}

/// Goal: a request that waits can be taken back, also when it was granted
/// meanwhile; a client that does not want its grant gives it back; one that
/// asked again, and was told, need not be called any more.
#[test]
fn grants_are_settled_by_who_speaks_first() {
    let mut locks = Locks::new(Limits::default());
    let (holder, waiter) = (wanted(1, 0, 0, true), wanted(2, 0, 0, true));
    let cancel = |locks: &mut Locks| run(locks, FILE, LockOperation::Cancel(waiter.clone()));
    assert_eq!(cancel(&mut locks), Err(LockRefusal::NotWaiting));

    lock(&mut locks, holder.clone(), terms()).unwrap();
    let _ = lock(&mut locks, waiter.clone(), blocking());
    assert_eq!(cancel(&mut locks), Ok(()));
    unlock(&mut locks, &holder);
    assert_eq!(grants(&mut locks), []);

    for ending in 0..3 {
        lock(&mut locks, holder.clone(), terms()).unwrap();
        let _ = lock(&mut locks, waiter.clone(), blocking());
        unlock(&mut locks, &holder);
        let (id, _) = grants(&mut locks)[0];
        let answered = |wanted| LockOperation::GrantAnswered(id, wanted);
        match ending {
            0 => assert_eq!(cancel(&mut locks), Ok(())),
            1 => run(&mut locks, 0, answered(false)).unwrap(),
            _ => {
                lock(&mut locks, waiter.clone(), blocking()).unwrap();
                assert_eq!(locks.poll_notice(), Some(LockNotice::GrantSettled(id)));
                run(&mut locks, 0, answered(false)).unwrap();
                assert_eq!(locks.len(), 1, "a late answer takes nothing away");
                unlock(&mut locks, &waiter);
            }
        }
        assert!(locks.is_empty(), "ending {ending}");
        while locks.poll_notice().is_some() {}
    }
}

/// Goal: a circle of owners who wait for each other, over two files, is found
/// when it would close, and waiting for one's own client is none.
#[test]
fn a_circle_is_refused() {
    let mut locks = Locks::new(Limits::default());
    let other_file = FILE + 1;
    lock(&mut locks, wanted(1, 0, 1, true), terms()).unwrap();
    lock(&mut locks, wanted(2, 1, 1, true), terms()).unwrap();
    run(
        &mut locks,
        other_file,
        LockOperation::Lock(wanted(3, 0, 1, true), terms()),
    )
    .unwrap();
    let one = wanted(1, 1, 1, false);
    assert_eq!(lock(&mut locks, one, blocking()), Err(LockRefusal::Blocked));
    let two = LockOperation::Lock(wanted(2, 0, 0, true), blocking());
    assert_eq!(run(&mut locks, other_file, two), Err(LockRefusal::Blocked));
    let three = wanted(3, 0, 1, true);
    assert_eq!(
        lock(&mut locks, three.clone(), blocking()),
        Err(LockRefusal::Deadlock)
    );
    let held = lock(&mut locks, three, terms());
    assert_eq!(held, Err(LockRefusal::Held(wanted(1, 0, 1, true))));
    let mut friend = wanted(1, 0, 1, true);
    friend.owner.process = 77;
    assert_eq!(
        lock(&mut locks, friend, blocking()),
        Err(LockRefusal::Blocked)
    );
}

/// Goal: after a restart only reclaims are taken until every client that is
/// monitored was told, or the time is up; what was held is held, and taking it
/// again changes nothing, in time or late.
#[test]
fn only_reclaims_are_taken_in_the_grace_period() {
    let mut locks = Locks::new(Limits::default());
    assert!(locks.begin_grace(Time::from_secs(9)).is_empty() && !locks.is_grace());
    lock(&mut locks, wanted(1, 0, 10, true), terms()).unwrap();
    lock(&mut locks, wanted(2, 10, 10, true), terms()).unwrap();
    let unmonitored = LockTerms {
        is_monitored: false,
        ..terms()
    };
    lock(&mut locks, wanted(3, 20, 10, true), unmonitored).unwrap();

    assert_eq!(
        locks.begin_grace(Time::from_secs(9)),
        [client("host1", 1), client("host2", 2)]
    );
    assert_eq!(locks.grace_end(), Some(Time::from_secs(9)));
    let grace = Err(LockRefusal::GracePeriod);
    assert_eq!(lock(&mut locks, wanted(4, 50, 1, false), terms()), grace);
    assert_eq!(lock(&mut locks, wanted(4, 50, 1, false), blocking()), grace);
    assert_eq!(
        run(
            &mut locks,
            FILE,
            LockOperation::Test(wanted(4, 50, 1, false))
        ),
        grace
    );
    assert_eq!(lock(&mut locks, wanted(1, 0, 10, true), reclaim()), Ok(()));
    let stolen = lock(&mut locks, wanted(4, 0, 1, true), reclaim());
    assert_eq!(stolen, Err(LockRefusal::Held(wanted(1, 0, 10, true))));
    assert_eq!(lock(&mut locks, wanted(4, 40, 1, true), reclaim()), Ok(()));

    run(&mut locks, 0, LockOperation::Told(client("host1", 1))).unwrap();
    assert!(locks.is_grace());
    unlock(&mut locks, &wanted(2, 10, 10, true));
    assert!(!locks.is_grace(), "who has nothing left need not be told");
    assert_eq!(lock(&mut locks, wanted(4, 50, 1, false), terms()), Ok(()));
    assert_eq!(
        lock(&mut locks, wanted(1, 0, 10, true), reclaim()),
        Ok(()),
        "late"
    );
    assert_eq!(
        lock(&mut locks, wanted(1, 60, 1, true), reclaim()),
        grace,
        "never held"
    );

    locks.begin_grace(Time::from_secs(20));
    locks.end_grace(Time::from_secs(19));
    assert!(locks.is_grace());
    locks.end_grace(Time::from_secs(20));
    assert!(!locks.is_grace());
}

/// Goal: a client that has restarted has nothing of the time before, and all of
/// the time after, however often it says so; its neighbours keep theirs.
#[test]
fn a_client_that_restarts_loses_what_it_had() {
    let mut locks = Locks::new(Limits::default());
    let of_state = |state| LockTerms { state, ..terms() };
    lock(&mut locks, wanted(1, 0, 1, true), of_state(5)).unwrap();
    lock(&mut locks, wanted(1, 10, 1, true), of_state(7)).unwrap();
    lock(&mut locks, wanted(2, 20, 1, true), of_state(5)).unwrap();
    let _ = lock(&mut locks, wanted(1, 20, 1, true), blocking());
    // Alone at its address, it may have another name now.
    let named_anew = LockClient {
        name: Bytes::from_static(b"other.example"),
        ..client("host1", 1)
    };
    let forget = LockOperation::Forget(named_anew, ForgetWhat::BeforeState(7));
    for _ in 0..2 {
        run(&mut locks, 0, forget.clone()).unwrap();
        assert_eq!((locks.len(), locks.waiting()), (2, 0));
    }
    // Two behind one address are told apart by their names.
    let mut neighbour = wanted(1, 30, 1, true);
    neighbour.owner.client.name = Bytes::from_static(b"neighbour.example");
    lock(&mut locks, neighbour, of_state(7)).unwrap();
    let named_short = LockClient {
        name: Bytes::from_static(b"NEIGHBOUR"),
        ..client("host1", 1)
    };
    run(
        &mut locks,
        0,
        LockOperation::Forget(named_short, ForgetWhat::Everything),
    )
    .unwrap();
    assert_eq!(locks.len(), 2);
    // From another address nobody is believed.
    let foreign = LockOperation::Forget(client("host1", 9), ForgetWhat::Everything);
    run(&mut locks, 0, foreign).unwrap();
    assert_eq!(locks.len(), 2);
    run(
        &mut locks,
        0,
        LockOperation::Release(Bytes::from_static(b"192.0.2.1")),
    )
    .unwrap();
    run(
        &mut locks,
        0,
        LockOperation::Release(Bytes::from_static(b"host2")),
    )
    .unwrap();
    assert!(locks.is_empty());
}

/// Goal: what an administrator gives up is counted before, is all of those
/// clients, waiting requests and reservations too, and lets others go on.
#[test]
fn an_administrator_gives_up_all_of_a_client() {
    let mut locks = Locks::new(Limits::default());
    lock(&mut locks, wanted(1, 0, 10, false), terms()).unwrap();
    lock(&mut locks, wanted(2, 50, 10, true), terms()).unwrap();
    let refused = lock(&mut locks, wanted(2, 0, 10, true), blocking());
    assert_eq!(refused, Err(LockRefusal::Blocked));
    let refused = lock(&mut locks, wanted(3, 0, 5, false), blocking());
    assert_eq!(refused, Err(LockRefusal::Blocked));
    let share = ShareTerms { access: 1, deny: 2 };
    let share = LockOperation::Share(owner(2), share, terms());
    run(&mut locks, FILE + 1, share).unwrap();

    let has = locks.holdings(b"host2");
    assert_eq!((has.clients, has.held, has.waiting), (1, 2, 1));
    assert_eq!(locks.holdings(b"192.0.2.2"), has);
    assert_eq!(locks.holdings(b"host"), Holdings::default());
    assert_eq!(locks.reservations(9).len(), 1);
    // Who only waits can be named as well, and keeps others from their turn.
    let third = locks.holdings(b"host3");
    assert_eq!((third.clients, third.held, third.waiting), (1, 0, 1));
    assert_eq!(locks.files_of(&client("host2", 2)), [FILE]);
    let release = LockOperation::Release(Bytes::from_static(b"host2"));
    run(&mut locks, 0, release).unwrap();
    assert_eq!(locks.holdings(b"host2"), Holdings::default());
    let (changes, _) = locks.next_grant(FILE).expect("the third's turn");
    changes.iter().for_each(|change| locks.apply(change));
    assert_eq!((locks.len(), locks.waiting()), (2, 0));
    assert!(locks.reservations(9).is_empty());
}

/// Goal: share reservations keep others out as they say, and no one's own.
#[test]
fn share_reservations_deny_what_they_say() {
    let mut locks = Locks::new(Limits::default());
    let mut share = |number, access, deny, terms| {
        let share = ShareTerms { access, deny };
        run(
            &mut locks,
            FILE,
            LockOperation::Share(owner(number), share, terms),
        )
    };
    assert_eq!(share(1, 1, 2, terms()), Ok(()));
    assert_eq!(
        share(2, 2, 0, terms()),
        Err(LockRefusal::Shared),
        "writing is denied"
    );
    assert_eq!(
        share(2, 1, 1, terms()),
        Err(LockRefusal::Shared),
        "somebody reads"
    );
    assert_eq!(share(2, 1, 2, terms()), Ok(()));
    assert_eq!(
        share(1, 3, 0, terms()),
        Err(LockRefusal::Shared),
        "2 denies writing"
    );
    assert_eq!(share(1, 1, 2, reclaim()), Ok(()));
    assert_eq!(locks.len(), 2);
    run(&mut locks, FILE, LockOperation::Unshare(owner(2))).unwrap();
    run(&mut locks, FILE, LockOperation::Unshare(owner(2))).unwrap();
    assert_eq!(locks.len(), 1);
}

/// Goal: bounds hold, and giving up is always possible.
#[test]
fn bounds_refuse_new_locks_only() {
    let limits = Limits {
        per_file_max: 6,
        per_client_max: 4,
        all_max: 8,
        clients_max: 2,
    };
    let mut locks = Locks::new(limits);
    let full = Err(LockRefusal::Full);
    let mut at = |number, offset| lock(&mut locks, wanted(number, offset, 1, true), terms());
    assert_eq!((at(1, 0), at(1, 10), at(1, 20)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(at(1, 30), full, "of this client");
    assert_eq!((at(2, 1), at(2, 11)), (Ok(()), Ok(())));
    assert_eq!(at(2, 21), full, "of the file");
    let elsewhere = LockOperation::Lock(wanted(3, 0, 1, true), terms());
    assert_eq!(
        run(&mut locks, FILE + 1, elsewhere),
        full,
        "one client too many"
    );
    let mut long = wanted(1, 40, 1, true);
    long.owner.handle = Bytes::from(vec![0; 256]);
    assert_eq!(
        run(&mut locks, FILE + 1, LockOperation::Lock(long, terms())),
        full
    );
    for number in [1, 2] {
        unlock(&mut locks, &wanted(number, 0, 0, true));
    }
    assert!(locks.is_empty());
}

/// Goal: ranges are those of POSIX: length 0 means all that follow, and nothing
/// reaches beyond the largest offset.
#[test]
fn ranges_end_where_posix_does() {
    let max = u64::try_from(i64::MAX).unwrap();
    let range = |offset, length| LockRange::new(offset, length).map(|r| (r.last, r.length()));
    assert_eq!(range(5, 0), Some((u64::MAX, 0)));
    assert_eq!(range(5, 1), Some((5, 1)));
    assert_eq!(range(0, max), Some((max - 1, max)));
    assert_eq!(
        range(1, max),
        Some((u64::MAX, 0)),
        "the last byte that there is"
    );
    assert_eq!(range(max, 1), Some((u64::MAX, 0)));
    assert_eq!(range(max, 2), None);
    assert_eq!(range(max + 1, 0), None);
    assert_eq!(range(u64::MAX, 1), None);
}
