//! Clients that go, that stand still, and that say what makes no sense.

mod rig;

use crossdock_depot::{DepotInput, DepotPolicy};
use crossdock_ibp::answer;
use crossdock_sim::random::Random;
use rig::{Rig, keys};

/// Goal: a client that is gone during its load leaves nothing: its reads are taken back, and
/// others load and store.
#[test]
fn a_load_ends_with_its_client() {
    let mut rig = Rig::new(1, DepotPolicy::default());
    for storage in [1, 3] {
        let made = rig.allocate(&format!("1 {storage} 600 4000000"));
        rig.store(&made.write, &vec![5; 4_000_000]);
        for steps in 0..6 {
            let id = rig.connect();
            rig.stalled.insert(id);
            let cancelled = rig.cancelled;
            rig.say(id, format!("0 8 {} 0 0 60\n", keys(&made.read)));
            (0..steps).for_each(|_| _ = rig.step());
            rig.give(DepotInput::Closed(id));
            assert!(
                steps > 0 || rig.cancelled > cancelled,
                "nothing was taken back"
            );
            rig.settle();
        }
        assert_eq!(rig.content(&made).len(), 4_000_000);
    }
    assert!(rig.depot.figures().withdrawn_total > 0);
    assert_eq!(rig.depot.figures().held_bytes, 0);
}

/// Goal: a store ends with its client, or when its data does not come, at any step: nothing of
/// it is there, no space is taken, and the next one begins.
#[test]
fn a_store_ends_with_its_client() {
    for storage in [1, 2, 3, 4] {
        let mut rig = Rig::new(2, DepotPolicy::default());
        let made = rig.allocate(&format!("1 {storage} 600 2000000"));
        rig.wait(10);
        let taken = rig.taken_bytes();
        for steps in 0..12 {
            let id = rig.begin_store(&made.write, 2_000_000);
            rig.say(id, vec![9; 1_100_000]);
            (0..steps).for_each(|_| _ = rig.step());
            match steps % 3 {
                0 => rig.give(DepotInput::Closed(id)),
                1 => {
                    rig.give(DepotInput::PeerDone(id));
                    assert_eq!(rig.answer(id), " -2 \n");
                }
                _ => {
                    rig.wait(61);
                    assert_eq!(rig.answer(id), " -42 \n");
                }
            }
            rig.settle();
            let probe = rig.probe(&made.read).expect("it is there");
            assert_eq!(probe.size_bytes, 0, "type {storage}, {steps} steps");
        }
        rig.wait(10);
        assert_eq!(rig.taken_bytes(), taken, "type {storage}");
        rig.store(&made.write, &vec![7; 2_000_000]);
        assert!(rig.content(&made) == vec![7; 2_000_000]);
    }
}

/// Goal: a client that takes nothing of its load is left in time, and nobody waits for it.
#[test]
fn a_reader_that_stands_still_is_left() {
    let mut rig = Rig::new(3, DepotPolicy::default());
    let made = rig.allocate("1 3 600 3000000");
    rig.store(&made.write, &vec![5; 3_000_000]);
    let id = rig.connect();
    rig.stalled.insert(id);
    rig.say(id, format!("0 8 {} 0 0 60\n", keys(&made.read)));
    rig.wait(59);
    assert!(!rig.ended.contains(&id));
    rig.wait(2);
    assert!(rig.ended.contains(&id));
    assert_eq!(rig.content(&made).len(), 3_000_000, "none were taken");
}

/// Goal: lines that do not end, and clients that say nothing, have their time.
#[test]
fn idle_clients_are_left() {
    let mut rig = Rig::new(4, DepotPolicy::default());
    let (slow, idle) = (rig.connect(), rig.connect());
    rig.say(slow, "0 4");
    rig.wait(14);
    assert!(rig.ended.is_empty());
    rig.wait(2);
    assert_eq!(rig.answer(slow), " -42 \n");
    assert!(rig.ended.contains(&slow) && !rig.ended.contains(&idle));
    rig.wait(50);
    assert!(rig.ended.contains(&idle));
    assert_eq!(rig.depot.figures().connections, 0);
    assert_eq!(rig.depot.figures().late_total, 2);
}

/// Goal: random bytes and requests that are nearly right end their connections and nothing
/// else: what is there stays.
#[test]
fn garbage_does_no_harm() {
    let mut random = Random::new(7);
    let mut rig = Rig::new(7, DepotPolicy::default());
    let made = rig.allocate("2 1 3600 100000");
    rig.store(&made.write, b"here");
    let fields = [
        "0",
        "1",
        "2",
        "4",
        "5",
        "8",
        "9",
        "13",
        "40",
        "43",
        "45",
        "-1",
        "77",
        "x",
        "ibp",
        "99999999999999999999",
        "9223372036854775807",
        "ibp://h:1/0#k/5/WRITE",
    ];
    let read = keys(&made.read);
    for _ in 0..3000 {
        let id = rig.connect();
        for _ in 0..random.between(1, 3) {
            let mut said = Vec::new();
            for _ in 0..random.between(1, 10) {
                let field = match random.one_in(6) {
                    true => read.as_str(),
                    false => fields[random.index(fields.len())],
                };
                said.extend_from_slice(field.as_bytes());
                said.push(b" \n\t\r\0"[random.index(5).min(random.index(5))]);
            }
            if random.one_in(3) {
                let at = random.index(said.len());
                said[at] = u8::try_from(random.below(256)).expect("a byte");
            }
            said.push(b'\n');
            rig.say(id, said);
        }
        rig.settle();
        rig.give(DepotInput::Closed(id));
    }
    rig.settle();
    assert_eq!(rig.content(&made), b"here");
    assert_eq!(rig.depot.figures().connections, 0);
    assert!(rig.depot.figures().refused_total > 1000);
}

/// Goal: with the disk full of volatile bytes a stable allocation has what it was promised;
/// with nothing to revoke it is refused.
#[test]
fn stable_allocations_have_their_space() {
    let policy = DepotPolicy {
        total_bytes: Some(1 << 30),
        ..DepotPolicy::default()
    };
    let mut rig = Rig::new(8, policy);
    let volatile = rig.allocate("1 1 600 40000000");
    for _ in 0..20 {
        rig.store(&volatile.write, &vec![1; 2_000_000]);
    }
    let stable = rig.allocate("2 1 600 30000000");
    assert!(rig.probe(&volatile.read).is_none(), "it has made room");
    for _ in 0..15 {
        rig.store(&stable.write, &vec![2; 2_000_000]);
    }
    assert!(rig.content(&stable) == vec![2; 30_000_000]);
    assert_eq!(rig.ask("0 1 2 1 600 60000000 0\n"), " -19 \n");
    let said = format!("0 9 {} 43 0 70000000 600 2 0\n", keys(&stable.manage));
    assert_eq!(rig.ask(said), " -19 \n");
    let probe = rig.probe(&stable.read).expect("it is there");
    assert_eq!(probe.size_bytes_max, 30_000_000, "as it was");
    assert_eq!(rig.depot.figures().gone, [0, 1, 0]);
    let said = format!("0 9 {} 43 0 30000000 600 1 0\n", keys(&stable.manage));
    assert_eq!(rig.ask(said), answer::done(), "it is volatile now");
    assert_eq!(rig.depot.figures().stable_bytes, 0);
}

/// Goal: who may not allocate is told so, and may still use capabilities; with a policy that was
/// read again it may, and who had its space keeps it though there would not be as much now.
#[test]
fn allocations_are_for_those_who_may() {
    let mut rig = Rig::new(9, DepotPolicy::default());
    let made = rig.allocate("2 1 600 2000");
    rig.store(&made.write, b"here");
    let far = "198.51.100.7:4000";
    let ask = |rig: &mut Rig, said: &str| {
        let id = rig.connect_from(far);
        rig.say(id, said);
        rig.settle();
        rig.answer(id)
    };
    assert_eq!(ask(&mut rig, "0 1 1 1 60 1000 0\n"), " -44 \n");
    assert_eq!(ask(&mut rig, "1 1 0 1 1 60 1000 0\n"), " -44 \n");
    let load = format!("0 8 {} 0 4 1\n", keys(&made.read));
    assert!(ask(&mut rig, &load).starts_with("1 4 \n"));
    let policy = DepotPolicy {
        allocators: vec!["198.51.100.0/24".parse().expect("a network")],
        size_bytes_max: Some(1000),
        ..DepotPolicy::default()
    };
    rig.give(DepotInput::Policy(policy));
    assert!(ask(&mut rig, "0 1 1 1 60 1000 0\n").starts_with("1 ibp://"));
    assert_eq!(ask(&mut rig, "0 1 1 1 60 1001 0\n"), " -45 \n");
    assert_eq!(rig.ask("0 1 1 1 60 1000 0\n"), " -44 \n");
    assert_eq!(rig.content(&made), b"here");
}

/// Goal: a copy goes where copies may go; elsewhere its client is told that it may not, and the
/// source is as it was.
#[test]
fn copies_go_where_they_may() {
    let mut rig = Rig::new(10, DepotPolicy::default());
    let made = rig.allocate("2 1 600 2000");
    rig.store(&made.write, b"here");
    let (key, attribute) = (&made.read.key, &made.read.attribute_key);
    let send =
        |host: &str| format!("0 5 {key} ibp://{host}:6714/0#k/5/WRITE {attribute} 0 4 1 1 1\n");
    assert_eq!(rig.ask(send("198.51.100.7")), " -44 \n");
    assert_eq!(rig.ask(send("127.0.0.1")), " -13 \n", "nobody is there");
    let policy = DepotPolicy {
        copy_targets: vec!["198.51.100.7".parse().expect("a network")],
        ..DepotPolicy::default()
    };
    rig.give(DepotInput::Policy(policy));
    assert_eq!(rig.ask(send("198.51.100.7")), " -13 \n");
    assert_eq!(rig.ask(send("127.0.0.1")), " -44 \n");
    assert_eq!(rig.content(&made), b"here");
    assert_eq!(rig.depot.figures().connections, 0);
}
