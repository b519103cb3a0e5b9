//! Random requests of several owners, against a model that knows for every byte
//! who has it and how.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use crossdock_locks::{Decision, Limits, LockChange, Locks};
use crossdock_peer::{
    ForgetWhat, LockClient, LockNotice, LockOperation, LockOwner, LockRange, LockRefusal,
    LockTerms, LockWanted,
};
use proptest::prelude::*;

const BYTES: u64 = 24;
const OWNERS: u32 = 4;
const FILE: u64 = 7;

/// Owners 0 and 1 are processes of one client, 2 and 3 of another.
fn owner(number: u32) -> LockOwner {
    let address = [192, 0, 2, if number < 2 { 1 } else { 2 }];
    LockOwner {
        client: LockClient {
            name: Bytes::from(if number < 2 { "a" } else { "b" }),
            address: IpAddr::from(address),
        },
        process: number,
        handle: Bytes::from_static(b"o"),
    }
}

fn terms(may_block: bool) -> LockTerms {
    LockTerms {
        may_block,
        is_reclaim: false,
        is_monitored: true,
        state: 1,
        handle: Bytes::new(),
        version: 4,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Lock(u32, u64, u64, bool),
    Blocking(u32, u64, u64, bool),
    Unlock(u32, u64, u64),
    Test(u32, u64, u64, bool),
    Forget(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..OWNERS, 0..BYTES, 0..=BYTES);
    prop_oneof![
        4 => (range.clone(), any::<bool>()).prop_map(|((o, f, l), e)| Step::Lock(o, f, l, e)),
        2 => (range.clone(), any::<bool>()).prop_map(|((o, f, l), e)| Step::Blocking(o, f, l, e)),
        4 => range.clone().prop_map(|(o, f, l)| Step::Unlock(o, f, l)),
        1 => (range, any::<bool>()).prop_map(|((o, f, l), e)| Step::Test(o, f, l, e)),
        1 => (0..OWNERS).prop_map(Step::Forget),
    ]
}

/// Per owner and byte: nothing, shared, exclusive; the last byte stands for all
/// that follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model(BTreeMap<(u32, u64), bool>);

impl Model {
    fn bytes(range: LockRange) -> impl Iterator<Item = u64> {
        range.first..=range.last.min(BYTES)
    }

    fn is_free(&self, who: u32, range: LockRange, is_exclusive: bool) -> bool {
        Self::bytes(range).all(|byte| {
            (0..OWNERS).filter(|other| *other != who).all(|other| {
                let held = self.0.get(&(other, byte));
                held.is_none_or(|held| !held && !is_exclusive)
            })
        })
    }

    fn set(&mut self, who: u32, range: LockRange, mode: Option<bool>) {
        for byte in Self::bytes(range) {
            match mode {
                Some(mode) => self.0.insert((who, byte), mode),
                None => self.0.remove(&(who, byte)),
            };
        }
    }

    fn of(locks: &Locks) -> Self {
        let mut model = Self::default();
        for listed in locks.list(usize::MAX).iter().filter(|l| !l.is_waiting) {
            let (lock, who) = (&listed.lock, listed.lock.owner.process);
            for byte in Self::bytes(lock.range) {
                let before = model.0.insert((who, byte), lock.is_exclusive);
                assert_eq!(before, None, "an owner has a byte twice");
            }
        }
        model
    }
}

fn range(first: u64, length: u64) -> LockRange {
    // A length that reaches the model's end means "to the end".
    let length = if first + length >= BYTES { 0 } else { length };
    LockRange::new(first, length).expect("a small range")
}

fn grant_waiting(locks: &mut Locks, model: &mut Model, log: &mut Vec<LockChange>) {
    while let Some((changes, notice)) = locks.next_grant(FILE) {
        let LockNotice::Granted(granted) = notice else {
            panic!("{notice:?}");
        };
        let (wanted, who) = (&granted.lock, granted.lock.owner.process);
        assert!(model.is_free(who, wanted.range, wanted.is_exclusive));
        model.set(who, wanted.range, Some(wanted.is_exclusive));
        apply(locks, changes, log);
    }
}

fn apply(locks: &mut Locks, changes: Vec<LockChange>, log: &mut Vec<LockChange>) {
    for change in changes {
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        let mut rest = &bytes[..];
        assert_eq!(LockChange::decode(&mut rest).as_ref(), Some(&change));
        assert!(rest.is_empty());
        locks.apply(&change);
        log.push(change);
    }
}

fn take(locks: &mut Locks, model: &mut Model, log: &mut Vec<LockChange>, step: &Step) {
    let mut do_lock = |who: u32, first, length, is_exclusive, may_block| {
        let wanted = LockWanted {
            owner: owner(who),
            range: range(first, length),
            is_exclusive,
        };
        let is_free = model.is_free(who, wanted.range, is_exclusive);
        let operation = LockOperation::Lock(wanted.clone(), terms(may_block));
        match locks.plan(FILE, &operation) {
            Decision::Change(changes) => {
                assert!(is_free);
                model.set(who, wanted.range, Some(is_exclusive));
                apply(locks, changes, log);
            }
            Decision::Refuse(LockRefusal::Held(holder)) => {
                assert!(!is_free && !may_block);
                let other = holder.owner.process;
                let byte = holder.range.first.max(wanted.range.first).min(BYTES);
                assert_eq!(model.0.get(&(other, byte)), Some(&holder.is_exclusive));
            }
            Decision::Refuse(LockRefusal::Blocked) => assert!(may_block),
            Decision::Refuse(LockRefusal::Deadlock) => assert!(may_block && !is_free),
            other => panic!("{other:?}"),
        }
    };
    match *step {
        Step::Lock(who, first, length, is_exclusive) => {
            do_lock(who, first, length, is_exclusive, false);
        }
        Step::Blocking(who, first, length, is_exclusive) => {
            do_lock(who, first, length, is_exclusive, true);
        }
        Step::Unlock(who, first, length) => {
            let range = range(first, length);
            let operation = LockOperation::Unlock(owner(who), range);
            let Decision::Change(changes) = locks.plan(FILE, &operation) else {
                panic!("an unlock is never refused");
            };
            apply(locks, changes, log);
            model.set(who, range, None);
        }
        Step::Test(who, first, length, is_exclusive) => {
            let wanted = LockWanted {
                owner: owner(who),
                range: range(first, length),
                is_exclusive,
            };
            let is_free = model.is_free(who, wanted.range, is_exclusive);
            let decision = locks.plan(FILE, &LockOperation::Test(wanted));
            assert_eq!(decision == Decision::Change(Vec::new()), is_free);
        }
        Step::Forget(who) => {
            let client = owner(who).client;
            let forget = LockOperation::Forget(client.clone(), ForgetWhat::Everything);
            let Decision::Change(changes) = locks.plan(FILE, &forget) else {
                panic!("never refused");
            };
            apply(locks, changes, log);
            for who in 0..OWNERS {
                if owner(who).client == client {
                    model.set(who, range(0, 0), None);
                }
            }
        }
    }
    grant_waiting(locks, model, log);
}

proptest! {
    /// Goal: whatever owners do, each has exactly the bytes that POSIX gives it;
    /// nobody waits for what is free; and the log alone makes the same state,
    /// also when a part of it is applied again.
    #[test]
    fn every_byte_belongs_to_whom_the_model_says(
        steps in prop::collection::vec(step(), 1..60),
        again in 0usize..60,
    ) {
        let mut locks = Locks::new(Limits::default());
        let mut model = Model::default();
        let mut log = Vec::new();
        for step in &steps {
            take(&mut locks, &mut model, &mut log, step);
            prop_assert_eq!(&Model::of(&locks), &model);
            for listed in locks.list(usize::MAX).iter().filter(|l| l.is_waiting) {
                let (lock, who) = (&listed.lock, listed.lock.owner.process);
                prop_assert!(!model.is_free(who, lock.range, lock.is_exclusive));
            }
        }
        let mut replayed = Locks::new(Limits::default());
        log.iter().for_each(|change| replayed.apply(change));
        prop_assert_eq!(&Model::of(&replayed), &model);
        prop_assert_eq!(replayed.len(), locks.len());
        // A checkpoint shows the end; replay begins somewhere before it.
        let from = again.min(log.len());
        log[from..].iter().for_each(|change| replayed.apply(change));
        prop_assert_eq!(&Model::of(&replayed), &model);
        // What a checkpoint holds makes it as well.
        let mut loaded = Locks::new(Limits::default());
        let mut after = None;
        while let Some((file, changes)) = replayed.scan(after) {
            after = Some(file);
            changes.iter().for_each(|change| loaded.apply(change));
        }
        prop_assert_eq!(&Model::of(&loaded), &model);
        // All gone: nothing is left behind.
        loaded.remove_file(FILE);
        prop_assert!(loaded.is_empty() && loaded.scan(None).is_none());
    }

    /// Goal: no bytes make the decoder panic, and what it takes it gives back.
    #[test]
    fn any_bytes_can_be_read(bytes: Vec<u8>) {
        if let Some(change) = LockChange::decode(&mut &bytes[..]) {
            let mut again = Vec::new();
            change.encode(&mut again);
            prop_assert_eq!(LockChange::decode(&mut &again[..]), Some(change));
        }
    }
}
