//! Commands of a well-behaved initiator: data there and back, caches, errors, reservations.

use crossdock_iscsi::{IscsiConfig, IscsiInput};
use crossdock_iscsi_pdu::{NO_TAG, Response};
use crossdock_peer::{Nexus, Registrant, Reservation, SiteError, SiteOperation, Stability};

use crate::rig::{BLOCK, Done, Initiator, Rig, ten};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251).to_le_bytes()[0]).collect()
}

/// The transfers that are asked for: tag, offset, length.
fn wanted(answers: &[crate::rig::Answer]) -> Vec<(u32, u32, u32)> {
    let ready = answers.iter().filter_map(|(response, _)| match response {
        Response::Ready(it) => Some((
            it.transfer_tag.get(),
            it.offset.get(),
            it.desired_bytes.get(),
        )),
        _ => None,
    });
    ready.collect()
}

/// Goal: data that comes with the command, unasked, and asked for in several transfers at a
/// time, under digests, lands where it belongs, and is read back in PDUs that the initiator
/// takes.
#[test]
fn data_goes_there_and_back() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready_with(
        &mut rig,
        1,
        &[
            ("HeaderDigest", "CRC32C"),
            ("DataDigest", "CRC32C,None"),
            ("InitialR2T", "No"),
            ("FirstBurstLength", "8192"),
            ("MaxBurstLength", "16384"),
            ("MaxOutstandingR2T", "2"),
            ("MaxRecvDataSegmentLength", "4096"),
        ],
    );
    assert!(initiator.digests.header && initiator.digests.data);
    let sent = pattern(100 * BLOCK);
    let mut header = initiator.command(&ten(0x2a, 7, 100), (0, 51_200));
    header.head.flags &= !0x80; // More follows unasked.
    initiator.send(&mut rig, &header, &sent[..4096]);
    let tag = header.task_tag.get();
    assert!(rig.receive(initiator.id).is_empty());
    initiator.data_out(&mut rig, (tag, NO_TAG), (0, 4096, true), &sent[4096..8192]);
    let mut open = wanted(&rig.receive(initiator.id));
    assert_eq!(open.len(), 2, "two at a time");
    while let Some((transfer, offset, length)) = open.pop() {
        let half = length / 2 / 512 * 512;
        let (from, middle, end) = (
            offset as usize,
            (offset + half) as usize,
            (offset + length) as usize,
        );
        initiator.data_out(
            &mut rig,
            (tag, transfer),
            (0, offset, false),
            &sent[from..middle],
        );
        initiator.data_out(
            &mut rig,
            (tag, transfer),
            (1, offset + half, true),
            &sent[middle..end],
        );
        open.extend(wanted(&rig.receive(initiator.id)));
    }
    rig.answer_all();
    assert!(Done::of(tag, rig.receive(initiator.id)).is_good());
    assert_eq!(rig.content[7 * BLOCK..107 * BLOCK], sent);
    let read = initiator.read(&mut rig, 7, 100);
    assert!(read.is_good() && read.data == sent);
    let short = initiator.run(&mut rig, &ten(0x28, 7, 2), (100, 0), b"");
    assert_eq!((short.residual, &short.data[..]), ((4, 924), &sent[..100]));
}

/// Goal: with the cache on writes are answered before they are durable, FUA and SYNCHRONIZE
/// CACHE are not; what was lost meanwhile is told, once; with the cache off every write is
/// durable.
#[test]
fn caches_are_honest() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let block = pattern(BLOCK);
    initiator.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &block);
    assert_eq!(rig.stabilities(), [Stability::Unstable]);
    rig.answer_all();
    let mut forced = ten(0x2a, 0, 1);
    forced[1] = 0x08;
    initiator.ask(&mut rig, &forced, (0, 512), &block);
    assert_eq!(rig.stabilities(), [Stability::Data]);
    rig.answer_all();
    rig.receive(initiator.id);
    let synchronize = ten(0x35, 0, 0);
    assert!(initiator.run(&mut rig, &synchronize, (0, 0), b"").is_good());
    initiator.run(&mut rig, &ten(0x2a, 0, 1), (0, 512), &block);
    rig.verifier = [2; 8]; // A node has begun anew.
    let lost = initiator.run(&mut rig, &synchronize, (0, 0), b"");
    assert_eq!(lost.sense(), Some((3, 0x0c, 0)));
    assert!(initiator.run(&mut rig, &synchronize, (0, 0), b"").is_good());
    let mut list = vec![0, 0, 0, 0, 0x08, 18];
    list.resize(24, 0);
    let select = [0x15, 0x10, 0, 0, 24, 0];
    initiator.ask(&mut rig, &select, (0, 24), &list);
    let is_commit = matches!(rig.asked[0].request.operation, SiteOperation::Commit { .. });
    assert!(is_commit, "what was cached becomes durable");
    rig.answer_all();
    rig.receive(initiator.id);
    initiator.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &block);
    assert_eq!(rig.stabilities(), [Stability::Data]);
}

/// Goal: the first block that cannot be read is told, also of a long read.
#[test]
fn bad_blocks_are_told() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    rig.bad = Some(2_000_000..2_000_001);
    let failed = initiator.read(&mut rig, 10, 5000);
    assert_eq!(failed.sense(), Some((3, 0x11, 0)));
    let place = u64::from(failed.information()) * 512;
    assert!((1_996_000..=2_000_000).contains(&place), "{place}");
    rig.bad = None;
    assert!(initiator.read(&mut rig, 10, 5000).is_good());
}

/// Goal: the volume's errors become what an initiator understands.
#[test]
fn errors_are_translated() {
    for (error, status, sense) in [
        (SiteError::Busy, 8, None),
        (SiteError::NoSpace, 2, Some((7, 0x27, 7))),
        (SiteError::Io, 2, Some((3, 0x0c, 0))),
        (SiteError::Stale, 2, Some((2, 0x08, 0))),
        (SiteError::BadType, 2, Some((4, 0x44, 0))),
    ] {
        let mut rig = Rig::new();
        let mut initiator = Initiator::ready(&mut rig, 1);
        let tag = initiator.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
        let call = rig.asked.pop_front().expect("a call");
        rig.reply(call.id, Err(error));
        let done = Done::of(tag, rig.receive(initiator.id));
        assert_eq!((done.status, done.sense()), (status, sense), "{error:?}");
    }
}

/// Goal: nothing comes between comparing and writing; a difference is told with its place.
#[test]
fn compare_and_write_is_one_step() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut other = Initiator::ready(&mut rig, 2);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x89, 1);
    let data = [[0; 512], [1; 512]].concat();
    let first = initiator.ask(&mut rig, &cdb, (0, 1024), &data);
    let second = other.ask(&mut rig, &cdb, (0, 1024), &data);
    let third = other.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[9; 512]);
    assert_eq!(rig.asked.len(), 1, "one after the other");
    rig.answer_all();
    assert!(Done::of(first, rig.receive(initiator.id)).is_good());
    let answers = rig.receive(other.id);
    let missed = Done::of(second, answers.clone());
    assert_eq!(
        (missed.sense(), missed.information()),
        (Some((0xe, 0x1d, 0)), 0)
    );
    assert!(Done::of(third, answers).is_good());
    assert_eq!(rig.content[..512], [9; 512]);
}

/// Goal: what the volume does not know is told so that the initiator looks; blocks that lie in two
/// pieces, or too many of them, are refused.
#[test]
fn exchanges_that_cannot_be_are_refused() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x89, 2);
    let data = [[0; 1024], [1; 1024]].concat();
    for (error, status, sense) in [
        (SiteError::Busy, 8, None),
        (SiteError::Invalid, 2, Some((5, 0x24, 0))),
        (SiteError::NoSpace, 2, Some((7, 0x27, 7))),
    ] {
        let tag = initiator.ask(&mut rig, &cdb, (0, 2048), &data);
        let call = rig.asked.pop_front().expect("one call");
        assert!(rig.asked.is_empty());
        rig.reply(call.id, Err(error));
        let done = Done::of(tag, rig.receive(initiator.id));
        assert_eq!((done.status, done.sense()), (status, sense), "{error:?}");
    }
    cdb[13] = 129;
    let bytes = 2 * 129 * 512;
    let done = initiator.run(&mut rig, &cdb, (0, bytes), b"");
    assert_eq!(done.sense(), Some((5, 0x24, 0)));
    assert!(rig.asked.is_empty());
}

/// Goal: ORWRITE loses nothing that others write between its reading and its writing, and says
/// that it is busy where they never stop.
#[test]
fn bits_are_added_whatever_others_write() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut cdb = [0; 16];
    // From 60 KiB on, over the end of the site's part.
    (cdb[0], cdb[9], cdb[13]) = (0x8b, 120, 16);
    let tag = initiator.ask(&mut rig, &cdb, (0, 8192), &[1; 8192]);
    rig.answer_one();
    assert_eq!(rig.asked.len(), 2, "an exchange on each side");
    rig.content[(64 << 10) + 7] = 6;
    rig.answer_all();
    assert!(Done::of(tag, rig.receive(initiator.id)).is_good());
    let mut expected = [1; 8192];
    expected[4096 + 7] = 7;
    assert_eq!(rig.content[60 << 10..68 << 10], expected);
    let tag = initiator.ask(&mut rig, &cdb, (0, 8192), &[2; 8192]);
    let mut rounds = 0;
    while !rig.asked.is_empty() {
        rig.answer_one();
        rig.content[60 << 10] = rig.content[60 << 10].wrapping_add(1);
        rounds += 1;
        assert!(rounds < 100, "it never ends");
        while rig.asked.len() > 1 {
            rig.answer_one();
        }
        rig.answer_one();
    }
    assert_eq!(Done::of(tag, rig.receive(initiator.id)).status, 8);
    assert_eq!(rounds, 16);
}

/// Goal: UNMAP makes holes, over several descriptors; WRITE SAME writes patterns.
#[test]
fn blocks_are_freed_and_repeated() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let same = ten(0x41, 0, 100);
    assert!(
        initiator
            .run(&mut rig, &same, (0, 512), &[7; 512])
            .is_good()
    );
    assert_eq!(rig.content[..100 * BLOCK], [7; 100 * BLOCK]);
    let mut list = vec![0, 38, 0, 32, 0, 0, 0, 0];
    for (lba, blocks) in [(3u64, 2u32), (50, 1)] {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 40, 0];
    assert!(initiator.run(&mut rig, &unmap, (0, 40), &list).is_good());
    let zeros = |lba: usize| {
        rig.content[lba * BLOCK..][..BLOCK]
            .iter()
            .all(|it| *it == 0)
    };
    assert!(zeros(3) && zeros(4) && zeros(50) && !zeros(5) && !zeros(49));
    assert_eq!(rig.holes, [1536..2560, 25_600..26_112]);
}

/// Goal: WRITE SAME with UNMAP makes holes of zeros only, and without it none; a unit that
/// is to have all its space keeps it.
#[test]
fn only_zeros_become_holes() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut same = |rig: &mut Rig, flags: u8, fill: u8| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[9], cdb[13]) = (0x93, flags, 8, 16);
        let data = vec![fill; if flags & 1 == 0 { 512 } else { 0 }];
        let bytes = u32::try_from(data.len()).expect("little");
        let done = initiator.run(rig, &cdb, (0, bytes), &data);
        let blocks = &rig.content[8 * BLOCK..24 * BLOCK];
        let is_same = blocks.iter().all(|byte| *byte == fill);
        (done.is_good() && is_same, std::mem::take(&mut rig.holes))
    };
    let hole = 4096..12_288;
    assert_eq!(same(&mut rig, 0x08, 7), (true, vec![]));
    assert_eq!(same(&mut rig, 0x00, 0), (true, vec![]));
    assert_eq!(same(&mut rig, 0x08, 0), (true, vec![hole.clone()]));
    assert_eq!(same(&mut rig, 0x01, 0), (true, vec![]));
    assert_eq!(same(&mut rig, 0x09, 0), (true, vec![hole]));
    rig.luns.get_mut(&1).expect("a LUN").is_thin = false;
    rig.tell_luns();
    assert!(!same(&mut rig, 0x08, 0).0, "it has no holes");
}

/// Goal: GET LBA STATUS tells runs and holes from the block on that is asked for, as many as
/// there is room for; of a unit with all its space that it has it.
#[test]
fn holes_are_told() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    rig.holes = vec![4096..8192, 1 << 20..2 << 20];
    let mut status = |rig: &mut Rig, lba: u8, room: u8| -> Vec<(u64, u32, u8)> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[9], cdb[13]) = (0x9e, 0x12, lba, room);
        let done = initiator.run(rig, &cdb, (room.into(), 0), b"");
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        let runs = done.data[8..].chunks_exact(16).map(|run| {
            let blocks = u32::try_from(number(&run[8..12])).expect("four bytes");
            (number(&run[..8]), blocks, run[12])
        });
        runs.collect()
    };
    assert_eq!(status(&mut rig, 0, 24), [(0, 8, 0)]);
    assert_eq!(status(&mut rig, 9, 24), [(9, 7, 1)]);
    let all = [(8, 8, 1), (16, 2032, 0), (2048, 2048, 1), (4096, 4096, 0)];
    assert_eq!(status(&mut rig, 8, 72), all);
    rig.luns.get_mut(&1).expect("a LUN").is_thin = false;
    rig.tell_luns();
    assert_eq!(status(&mut rig, 8, 72), [(8, 8184, 0)]);
}

/// Goal: a reservation that was made through another gateway is obeyed from the moment that it is
/// told: who waits for his turn is refused then, and it is said to be obeyed when what has begun
/// against it is over, and not before; in the order in which they were told.
#[test]
fn reservations_of_other_gateways_are_obeyed() {
    let mut rig = Rig::new();
    let mut holder = Initiator::ready(&mut rig, 1);
    let mut other = Initiator::ready(&mut rig, 2);
    let begun = other.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    let waits = other.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[2; 512]);
    let reads = other.ask(&mut rig, &ten(0x28, 8, 1), (512, 0), b"");
    let nexus = Nexus {
        initiator: holder.name.clone(),
        isid: holder.isid,
        port: 1,
    };
    let reserve = |rig: &mut Rig, held: Option<u8>| {
        let known = &mut rig.luns.get_mut(&1).expect("a LUN").reservations;
        known.held = held.map(|kind| Reservation {
            holder: nexus.clone(),
            kind,
        });
        rig.tell_luns();
    };
    reserve(&mut rig, Some(1));
    rig.give(IscsiInput::Reservations(7));
    reserve(&mut rig, None);
    rig.give(IscsiInput::Reservations(8));
    reserve(&mut rig, Some(1));
    rig.give(IscsiInput::Reservations(9));
    let refused = other.ask(&mut rig, &ten(0x2a, 4, 1), (0, 512), &[3; 512]);
    let refused = Done::of(refused, rig.receive(other.id));
    assert_eq!(refused.status, 0x18);
    assert_eq!(rig.obeyed, [0; 0], "a write is under way");
    rig.answer_one();
    assert_eq!(rig.obeyed, [7, 8, 9]);
    rig.answer_all();
    let answers = rig.receive(other.id);
    assert!(Done::of(begun, answers.clone()).is_good());
    assert_eq!(Done::of(waits, answers.clone()).status, 0x18);
    assert!(Done::of(reads, answers).is_good(), "it may read");
    assert_eq!(rig.content[..512], [1; 512]);
    let written = holder.run(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[4; 512]);
    assert!(written.is_good());
    // Who was pushed out is waited for, also where nothing is reserved.
    let known = &mut rig.luns.get_mut(&1).expect("a LUN").reservations;
    (known.held, known.registrants) = (None, vec![Registrant { nexus, key: 1 }]);
    rig.tell_luns();
    let begun = holder.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[5; 512]);
    let known = &mut rig.luns.get_mut(&1).expect("a LUN").reservations;
    known.registrants.clear();
    rig.tell_luns();
    rig.give(IscsiInput::Reservations(10));
    assert_eq!(rig.obeyed, [7, 8, 9]);
    rig.answer_all();
    assert_eq!(rig.obeyed, [7, 8, 9, 10]);
    assert!(Done::of(begun, rig.receive(holder.id)).is_good());
}

/// Goal: PREEMPT AND ABORT is answered when nothing of those whom it has preempted is written any
/// more: what they have asked for is not answered.
#[test]
fn preempted_writes_are_over_when_it_is_told() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut other = Initiator::ready(&mut rig, 2);
    let out = |action: u8, kind: u8| [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let list = |key: u8, action_key: u8| {
        let mut list = vec![0; 24];
        (list[7], list[15]) = (key, action_key);
        list
    };
    let register = |rig: &mut Rig, initiator: &mut Initiator, key: u8| {
        let done = initiator.run(rig, &out(0, 0), (0, 24), &list(0, key));
        assert!(done.is_good());
    };
    register(&mut rig, &mut initiator, 1);
    register(&mut rig, &mut other, 2);
    let reserved = initiator.run(&mut rig, &out(1, 1), (0, 24), &list(1, 0));
    assert!(reserved.is_good());
    initiator.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    initiator.ask(&mut rig, &ten(0x28, 9, 1), (512, 0), b"");
    assert_eq!(rig.asked.len(), 2);
    let tag = other.ask(&mut rig, &out(5, 1), (0, 24), &list(2, 1));
    assert_eq!(rig.asked.len(), 1, "the read is withdrawn");
    assert!(rig.receive(other.id).is_empty(), "the write is under way");
    rig.answer_all();
    assert!(Done::of(tag, rig.receive(other.id)).is_good());
    assert!(rig.receive(initiator.id).is_empty());
    assert_eq!(rig.door.figures().tasks, 0);
}

/// Goal: a medium that is taken out is not there for anybody, until it is loaded; it stays in as
/// long as somebody wants that, who is there; of a unit without one nothing is taken out.
#[test]
fn media_come_and_go() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let (eject, load) = ([0x1b, 0, 0, 0, 2, 0], [0x1b, 0, 0, 0, 3, 0]);
    let prevent = |is_prevented| [0x1e, 0, 0, 0, is_prevented, 0];
    let run = |rig: &mut Rig, initiator: &mut Initiator, cdb: [u8; 6]| {
        let done = initiator.run(rig, &cdb, (0, 0), b"");
        (done.status, done.sense())
    };
    let (good, prevented) = ((0, None), (2, Some((5, 0x53, 2))));
    let refused = run(&mut rig, &mut initiator, eject);
    assert_eq!(refused, (2, Some((5, 0x24, 0))));
    rig.luns.get_mut(&1).expect("a LUN").is_removable = true;
    rig.tell_luns();
    let mut other = Initiator::ready(&mut rig, 2);
    assert_eq!(run(&mut rig, &mut other, prevent(1)), good);
    assert_eq!(run(&mut rig, &mut initiator, eject), prevented);
    assert!(initiator.read(&mut rig, 0, 1).is_good());
    assert_eq!(run(&mut rig, &mut other, prevent(0)), good);
    assert_eq!(run(&mut rig, &mut initiator, eject), good);
    for initiator in [&mut initiator, &mut other] {
        let read = initiator.read(&mut rig, 0, 1);
        assert_eq!(read.sense(), Some((2, 0x3a, 0)));
        let inquiry = initiator.run(&mut rig, &[0x12, 0, 0, 0, 36, 0], (36, 0), b"");
        assert_eq!(inquiry.data[1], 0x80);
    }
    assert_eq!(run(&mut rig, &mut initiator, prevent(1)), good);
    assert_eq!(run(&mut rig, &mut other, load), prevented);
    rig.give(crossdock_iscsi::IscsiInput::Closed(initiator.id));
    assert_eq!(run(&mut rig, &mut other, load), good);
    assert!(other.read(&mut rig, 0, 1).is_good());
    let mut third = Initiator::ready(&mut rig, 3);
    assert_eq!(run(&mut rig, &mut other, eject), good);
    assert_eq!(run(&mut rig, &mut other, load), good);
    let told = third.read(&mut rig, 0, 1);
    assert_eq!(told.sense(), Some((6, 0x28, 0)));
}

/// Goal: a reservation keeps others out, who are told when it is taken from them; a change
/// that somebody else was faster with is tried anew, and given up at last.
#[test]
fn reservations_keep_others_out() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut other = Initiator::ready(&mut rig, 2);
    let out = |action: u8, kind: u8| [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let list = |key: u8, action_key: u8| {
        let mut list = vec![0; 24];
        (list[7], list[15]) = (key, action_key);
        list
    };
    assert!(
        initiator
            .run(&mut rig, &out(0, 0), (0, 24), &list(0, 1))
            .is_good()
    );
    assert!(
        initiator
            .run(&mut rig, &out(1, 1), (0, 24), &list(1, 0))
            .is_good()
    );
    let kept = other.run(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    assert_eq!(kept.status, 0x18);
    assert!(other.read(&mut rig, 0, 1).is_good(), "others may read");
    assert!(
        initiator
            .run(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512])
            .is_good()
    );
    assert!(
        other
            .run(&mut rig, &out(6, 0), (0, 24), &list(0, 2))
            .is_good()
    );
    assert!(
        other
            .run(&mut rig, &out(4, 3), (0, 24), &list(2, 1))
            .is_good()
    );
    let told = initiator.read(&mut rig, 0, 1);
    assert_eq!(told.sense(), Some((6, 0x2a, 5)));
    assert_eq!(initiator.read(&mut rig, 0, 1).status, 0x18);
    rig.takes_reservations = false;
    let busy = other.run(&mut rig, &out(2, 3), (0, 24), &list(2, 0));
    assert_eq!(busy.status, 8);
}

/// Goal: where other gateways serve the unit, too, nothing is offered that would hold at one only:
/// it is refused, and not listed.
#[test]
fn what_holds_at_one_gateway_is_not_offered_at_several() {
    let mut rig = Rig::with(IscsiConfig {
        is_shared: true,
        ..IscsiConfig::default()
    });
    rig.luns.get_mut(&1).expect("a LUN").is_removable = true;
    rig.tell_luns();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut run = |cdb: &[u8], expected: (u32, u32), data: &[u8]| {
        let done = initiator.run(&mut rig, cdb, expected, data);
        (done.sense(), done.data)
    };
    let (opcode, field, list) = (Some((5, 0x20, 0)), Some((5, 0x24, 0)), Some((5, 0x26, 0)));
    for code in [0x16, 0x17] {
        assert_eq!(run(&[code, 0, 0, 0, 0, 0], (0, 0), b"").0, opcode);
        let (_, told) = run(&[0xa3, 0x0c, 1, code, 0, 0, 0, 0, 0, 4, 0, 0], (4, 0), b"");
        assert_eq!(told, [0, 1, 0, 0], "not supported");
    }
    let (_, told) = run(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0], (2048, 0), b"");
    let mut codes = told[4..].chunks(8).map(|entry| entry[0]);
    assert!(codes.clone().any(|code| code == 0x15));
    assert!(!codes.any(|code| code == 0x16 || code == 0x17));
    for (stop, sense) in [(0, field), (2, field), (1, None), (3, None)] {
        assert_eq!(run(&[0x1b, 0, 0, 0, stop, 0], (0, 0), b"").0, sense);
    }
    // Control mode page: what may be changed, and an attempt at it.
    let (_, page) = run(&[0x1a, 8, 0x4a, 0, 255, 0], (255, 0), b"");
    assert_eq!(page[4..], [0x0a, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let (_, mut page) = run(&[0x1a, 8, 0x0a, 0, 255, 0], (255, 0), b"");
    (page[0], page[2]) = (0, 0);
    let select = [0x15, 0x10, 0, 0, 16, 0];
    assert_eq!(run(&select, (0, 16), &page).0, None, "as it is");
    page[4 + 4] = 8; // SWP
    assert_eq!(run(&select, (0, 16), &page).0, list);
    // Registering with all ports.
    let mut register = [0; 24];
    (register[15], register[20]) = (1, 4);
    let cdb = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    assert_eq!(run(&cdb, (0, 24), &register).0, list);
}
