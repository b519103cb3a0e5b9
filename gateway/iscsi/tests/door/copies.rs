//! EXTENDED COPY: blocks from unit to unit, who may have which, and how copies end.

use crossdock_iscsi::IscsiConfig;
use crossdock_iscsi_pdu::{Response, TaskFunction};
use crossdock_names::{FileId, FileRef, SMALL_FILE_THRESHOLD_BYTES};
use crossdock_peer::{
    InitiatorRule, LunAccess, Nexus, Registrant, Reservation, SiteOperation, Stability,
};
use crossdock_scsi::unit_naa;

use crate::rig::{BLOCK, Done, Initiator, Rig, lun, ten};

/// Number and file of the second LUN.
pub(crate) const OTHER: u64 = 2;
pub(crate) const OTHER_FILE: u64 = 8;
const BYTES: usize = 16 << 20;

/// Two LUNs of 16 MiB, the first one with a pattern.
pub(crate) fn two_units() -> Rig {
    let mut rig = Rig::with(IscsiConfig::default());
    let mut other = lun(OTHER, "other");
    other.file = FileRef {
        id: FileId(OTHER_FILE),
        generation: 1,
    };
    rig.luns.insert(OTHER, other);
    for lun in rig.luns.values_mut() {
        lun.size_bytes = BYTES as u64;
    }
    rig.content = (0..BYTES).map(|at| (at % 251).to_le_bytes()[0]).collect();
    rig.others.insert(OTHER_FILE, vec![9; BYTES]);
    rig.tell_luns();
    rig
}

/// A segment: from and to which unit, from which block on, how many.
type Segment = ((u16, u64), (u16, u64), u16);

/// A parameter list with both units: index 0 is the session's, 1 the other one.
fn list(list_id: u8, segments: &[Segment]) -> Vec<u8> {
    let mut list = vec![list_id, 0, 0, 64, 0, 0, 0, 0];
    let length = u32::try_from(segments.len() * 28).expect("little");
    list.extend(length.to_be_bytes());
    list.extend([0; 4]);
    for id in [1, OTHER] {
        list.extend([0xe4, 0, 0, 0, 0x01, 0x03, 0, 8]);
        list.extend(unit_naa(id).to_be_bytes());
        list.extend([0; 12]);
        list.extend([0, 0, 2, 0]);
    }
    for ((source, from), (destination, to), blocks) in segments {
        list.extend([0x02, 0, 0, 24]);
        list.extend(source.to_be_bytes());
        list.extend(destination.to_be_bytes());
        list.extend([0; 2]);
        list.extend(blocks.to_be_bytes());
        list.extend(from.to_be_bytes());
        list.extend(to.to_be_bytes());
    }
    list
}

fn copy_cdb(list: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x83;
    let length = u32::try_from(list.len()).expect("little");
    cdb[10..14].copy_from_slice(&length.to_be_bytes());
    cdb
}

fn begin(initiator: &mut Initiator, rig: &mut Rig, list: &[u8]) -> u32 {
    let bytes = u32::try_from(list.len()).expect("little");
    initiator.ask(rig, &copy_cdb(list), (0, bytes), list)
}

fn copy(initiator: &mut Initiator, rig: &mut Rig, list: &[u8]) -> Done {
    let tag = begin(initiator, rig, list);
    rig.answer_all();
    Done::of(tag, rig.receive(initiator.id))
}

/// RECEIVE COPY RESULTS.
fn results(initiator: &mut Initiator, rig: &mut Rig, action: u8, list_id: u8) -> Done {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[12]) = (0x84, action, list_id, 4);
    let tag = initiator.ask(rig, &cdb, (1024, 0), b"");
    Done::of(tag, rig.receive(initiator.id))
}

/// Goal: segments of several stretches land where they belong, at another unit and at the same
/// one, also over themselves; nothing else changes, and writes are as durable as the unit's
/// cache says.
#[test]
fn blocks_go_from_unit_to_unit() {
    let mut rig = two_units();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let before = rig.content.clone();
    let segments = [
        ((0, 100), (1, 50), 20_000),
        ((1, 60), (1, 30_000), 3),
        ((0, 7), (0, 1007), 20_000),
        ((0xffff, 0), (0, 32_767), 1),
        ((0, 5), (1, 5), 0),
    ];
    let tag = begin(&mut initiator, &mut rig, &list(1, &segments));
    while !rig.is_copying() {
        assert_eq!(rig.asked.len(), 1, "one after the other");
        rig.answer_one();
    }
    assert_eq!(rig.stabilities(), [Stability::Unstable; 3]);
    rig.answer_all();
    assert!(Done::of(tag, rig.receive(initiator.id)).is_good());
    let other = &rig.others[&OTHER_FILE];
    let at = |lba: usize| lba * BLOCK;
    assert!(other[at(50)..at(20_050)] == before[at(100)..at(20_100)]);
    assert_eq!(other[at(30_000)..at(30_003)], before[at(110)..at(113)]);
    assert!(other[..at(50)].iter().all(|byte| *byte == 9));
    assert!(other[at(20_050)..at(30_000)].iter().all(|byte| *byte == 9));
    assert!(other[at(30_003)..].iter().all(|byte| *byte == 9));
    assert!(rig.content[at(1007)..at(21_007)] == before[at(7)..at(20_007)]);
    assert!(rig.content[..at(1007)] == before[..at(1007)]);
    assert_eq!(rig.content[at(32_767)..], before[..BLOCK]);
    assert_eq!(rig.door.figures().held_bytes, 0);
    let nothing = initiator.run(&mut rig, &copy_cdb(b""), (0, 0), b"");
    assert!(nothing.is_good());
}

/// Goal: nodes give each other all bytes but those that sites have; what has no space at the source
/// gets none at a thin destination, and nobody copies it; where the destination is not thin all is
/// copied.
#[test]
fn bytes_go_from_node_to_node() {
    let head = SMALL_FILE_THRESHOLD_BYTES;
    for is_thin in [true, false] {
        let mut rig = two_units();
        rig.luns.get_mut(&OTHER).expect("a LUN").is_thin = is_thin;
        rig.tell_luns();
        let mib = 1 << 20;
        rig.content[mib..3 * mib].fill(0);
        let hole = 1 << 20..2 << 20;
        rig.holes.push(hole.clone());
        let mut initiator = Initiator::ready(&mut rig, 1);
        let blocks = u16::try_from(8 * mib / BLOCK).expect("few");
        assert!(
            copy(
                &mut initiator,
                &mut rig,
                &list(1, &[((0, 0), (1, 0), blocks)])
            )
            .is_good()
        );
        assert!(rig.others[&OTHER_FILE][..8 * mib] == rig.content[..8 * mib]);
        assert_eq!(rig.others[&OTHER_FILE][8 * mib], 9);
        let holes = match is_thin {
            true => vec![hole],
            false => Vec::new(),
        };
        assert_eq!(rig.other_holes, holes);
        let copied = (8 << 20) - head - if is_thin { 1 << 20 } else { 0 };
        assert_eq!(rig.door.figures().copied_bytes, [copied, head]);
        assert_eq!(rig.door.figures().held_bytes, 0);
    }
}

/// Goal: what nodes cannot read is the source's medium error, and not the destination's.
#[test]
fn bad_blocks_of_the_source_are_told() {
    let mut rig = two_units();
    rig.bad = Some(5 << 20..(5 << 20) + 1);
    let mut initiator = Initiator::ready(&mut rig, 1);
    let failed = copy(
        &mut initiator,
        &mut rig,
        &list(1, &[((0, 1000), (1, 1000), 16_384)]),
    );
    assert_eq!(failed.sense(), Some((0xa, 0, 0)));
    assert_eq!(failed.forwarded(), Some((true, 2, 3, 0x11)));
}

/// Goal: zeros need no space where the destination is thin; where it is not they are written.
#[test]
fn zeros_become_holes() {
    for (is_thin, holes) in [(true, 1), (false, 0)] {
        let mut rig = two_units();
        rig.luns.get_mut(&OTHER).expect("a LUN").is_thin = is_thin;
        rig.tell_luns();
        rig.content[..8 * BLOCK].fill(0);
        let mut initiator = Initiator::ready(&mut rig, 1);
        let segments = [((0, 0), (1, 16), 8), ((0, 4), (1, 64), 8)];
        assert!(copy(&mut initiator, &mut rig, &list(1, &segments)).is_good());
        assert_eq!(rig.other_holes.len(), holes);
        let other = &rig.others[&OTHER_FILE];
        assert_eq!(other[16 * BLOCK..24 * BLOCK], [0; 8 * BLOCK]);
        assert_eq!(other[68 * BLOCK], rig.content[8 * BLOCK]);
    }
}

/// Goal: how far a copy is is told while it goes on and when it has ended; its identifier is
/// taken meanwhile; what failed is told, and a reset forgets all.
#[test]
fn copies_are_told_of() {
    let mut rig = two_units();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let unknown = results(&mut initiator, &mut rig, 0, 7);
    assert_eq!(unknown.sense(), Some((5, 0x24, 0)));
    let segments = [((0, 0), (1, 0), 16), ((0, 0), (1, 0), 10_000)];
    let tag = begin(&mut initiator, &mut rig, &list(7, &segments));
    let status = results(&mut initiator, &mut rig, 0, 7);
    assert_eq!(status.data, [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    let again = begin(&mut initiator, &mut rig, &list(7, &segments));
    let refused = Done::of(again, rig.receive(initiator.id));
    assert_eq!(refused.sense(), Some((5, 0x00, 0x16)));
    rig.answer_one();
    rig.answer_one();
    let status = results(&mut initiator, &mut rig, 0, 7);
    assert_eq!(status.data, [0, 0, 0, 8, 0, 0, 1, 0, 0, 0, 0x20, 0]);
    rig.answer_all();
    assert!(Done::of(tag, rig.receive(initiator.id)).is_good());
    let status = results(&mut initiator, &mut rig, 0, 7);
    assert_eq!(status.data[4..7], [1, 0, 2]);
    let details = results(&mut initiator, &mut rig, 4, 7);
    assert_eq!(details.data, [0; 4]);
    // The second segment ends beyond the unit.
    let segments = [((0, 0), (1, 8), 1), ((0, 0), (1, 32_760), 9)];
    let failed = copy(&mut initiator, &mut rig, &list(8, &segments));
    assert_eq!(
        (failed.sense(), failed.information()),
        (Some((0xa, 0, 0)), 1)
    );
    assert_eq!(failed.forwarded(), Some((false, 2, 5, 0x21)));
    assert_eq!(
        rig.others[&OTHER_FILE][8 * BLOCK..9 * BLOCK],
        rig.content[..BLOCK]
    );
    let status = results(&mut initiator, &mut rig, 0, 8);
    assert_eq!(status.data[4..7], [2, 0, 1]);
    let details = results(&mut initiator, &mut rig, 4, 8);
    assert_eq!((details.data[56], details.data[62]), (2, 0xa));
    initiator.manage(&mut rig, TaskFunction::LogicalUnitReset, u32::MAX);
    rig.receive(initiator.id);
    results(&mut initiator, &mut rig, 0, 8); // It is told of the reset.
    let unknown = results(&mut initiator, &mut rig, 0, 8);
    assert_eq!(unknown.sense(), Some((5, 0x24, 0)));
}

/// Goal: a copy reads and writes only what its initiator may: units that it may not open are
/// not there for it, others say why they refuse; nothing is written.
#[test]
fn copies_need_the_rights_of_their_initiators() {
    let rule = |is_read_only| InitiatorRule {
        is_read_only,
        ..InitiatorRule::open("iqn.2026-11.example:1")
    };
    let secret = || {
        Some(crossdock_peer::ChapUser {
            user: "u".to_owned(),
            secret: crossdock_peer::ChapSecret("a secret of some length".to_owned()),
        })
    };
    let away = vec!["10.0.0.0/8".parse().expect("a network")];
    let reserved = |rig: &mut Rig| {
        let nexus = Nexus {
            initiator: "iqn.2026-11.example:2".to_owned(),
            isid: [0x80, 0, 0, 0, 0, 2],
            port: 1,
        };
        let known = &mut rig.luns.get_mut(&OTHER).expect("a LUN").reservations;
        let registrant = Registrant {
            nexus: nexus.clone(),
            key: 5,
        };
        known.registrants.push(registrant);
        known.held = Some(Reservation {
            holder: nexus,
            kind: 1,
        });
    };
    type Change<'a> = Box<dyn Fn(&mut Rig) + 'a>;
    let access = |change: fn(&mut LunAccess, InitiatorRule), rule: InitiatorRule| -> Change<'_> {
        Box::new(move |rig| {
            let lun = rig.luns.get_mut(&OTHER).expect("a LUN");
            change(&mut lun.access, rule.clone());
        })
    };
    let name = |access: &mut LunAccess, rule| access.initiators = vec![rule];
    let stranger = InitiatorRule::open("iqn.2026-11.example:9");
    let proven = InitiatorRule {
        chap: secret(),
        ..rule(false)
    };
    let networks = away.clone();
    let elsewhere: Change<'_> = Box::new(move |rig| {
        let lun = rig.luns.get_mut(&OTHER).expect("a LUN");
        lun.access.networks.clone_from(&networks);
    });
    let unreachable = (Some((0xa, 0x0d, 2)), None);
    let cases: [(Change<'_>, _); 6] = [
        (access(name, stranger), unreachable),
        (elsewhere, unreachable),
        (access(name, proven), unreachable),
        (
            access(name, rule(true)),
            (Some((0xa, 0, 0)), Some((false, 2, 7, 0x27))),
        ),
        (
            Box::new(reserved),
            (Some((0xa, 0, 0)), Some((false, 0x18, 0, 0))),
        ),
        (access(name, rule(false)), (None, None)),
    ];
    for (at, (change, expected)) in cases.into_iter().enumerate() {
        let mut rig = two_units();
        change(&mut rig);
        rig.tell_luns();
        let mut initiator = Initiator::ready(&mut rig, 1);
        let done = copy(&mut initiator, &mut rig, &list(1, &[((0, 0), (1, 0), 8)]));
        assert_eq!((done.sense(), done.forwarded()), expected, "case {at}");
        let is_same = rig.others[&OTHER_FILE].iter().all(|byte| *byte == 9);
        assert_eq!(is_same, !done.is_good(), "case {at}");
    }
}

/// Goal: what the lists of a copy get wrong is told by segment or field: a place that is not in
/// the list, one by a name that nobody has, blocks of another length.
#[test]
fn wrong_places_are_told() {
    let mut rig = two_units();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let good = list(1, &[((0, 0), (1, 0), 8)]);
    let mut sense = |bytes: &[u8]| copy(&mut initiator, &mut rig, bytes).sense();
    assert_eq!(sense(&list(1, &[((0, 0), (2, 0), 8)])), Some((0xa, 8, 4)));
    let nowhere = list(1, &[((0xfffe, 0), (1, 0), 8)]);
    assert_eq!(sense(&nowhere), Some((0xa, 8, 4)));
    let mut nobody = good.clone();
    nobody[16 + 32 + 8] ^= 1;
    assert_eq!(sense(&nobody), Some((0xa, 0x0d, 2)));
    let mut long = good.clone();
    long[16 + 30] = 16;
    assert_eq!(sense(&long), Some((0xa, 0x0d, 3)));
    assert_eq!(sense(&good[..60]), Some((5, 0x1a, 0)));
    let mut tape = good.clone();
    tape[80] = 3;
    assert_eq!(sense(&tape), Some((5, 0x26, 9)));
    assert_eq!(sense(&good), None);
    rig.luns.get_mut(&OTHER).expect("a LUN").block_bytes = 4096;
    rig.tell_luns();
    let mut larger = list(2, &[((0, 0), (1, 1), 16)]);
    larger[16 + 32 + 30] = 0x10;
    let mut odd = larger.clone();
    odd[16 + 64 + 11] = 15;
    let failed = copy(&mut initiator, &mut rig, &odd);
    assert_eq!(failed.sense(), Some((0xa, 0x26, 0x0a)));
    assert!(copy(&mut initiator, &mut rig, &larger).is_good());
    assert_eq!(rig.others[&OTHER_FILE][4096..12_288], rig.content[..8192]);
}

/// Goal: copies crosswise, one of them ordered, and a write between them all end; COMPARE AND
/// WRITE of a block that a copy writes is one step still.
#[test]
fn copies_do_not_wait_for_each_other() {
    let mut rig = two_units();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let there = list(1, &[((0, 0), (1, 0), 8), ((0, 8), (1, 8), 8)]);
    let back = list(2, &[((1, 0), (0, 0), 8), ((1, 8), (0, 8), 8)]);
    let first = begin(&mut initiator, &mut rig, &there);
    let mut header = initiator.command(&copy_cdb(&back), (0, 136));
    header.head.flags = header.head.flags & !7 | 2; // Ordered.
    initiator.send(&mut rig, &header, &back);
    let second = header.task_tag.get();
    let third = begin(&mut initiator, &mut rig, &list(3, &[((0, 0), (1, 0), 8)]));
    let write = initiator.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    rig.answer_all();
    let answers = rig.receive(initiator.id);
    for tag in [first, second, third, write] {
        assert!(Done::of(tag, answers.clone()).is_good());
    }
    rig.content[..BLOCK].fill(0);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x89, 1);
    let data = [[0; 512], [5; 512]].concat();
    let compared = initiator.ask(&mut rig, &cdb, (0, 1024), &data);
    let copied = begin(&mut initiator, &mut rig, &list(4, &[((1, 9), (0, 0), 1)]));
    rig.answer_all();
    let answers = rig.receive(initiator.id);
    assert!(Done::of(compared, answers.clone()).is_good());
    assert!(Done::of(copied, answers).is_good());
    assert_eq!(
        rig.content[..BLOCK],
        rig.others[&OTHER_FILE][9 * BLOCK..10 * BLOCK]
    );
}

/// Goal: who preempts and aborts at the destination is answered when the copy's writes there are
/// over; the copy goes no further, and says why.
#[test]
fn preempted_copies_write_no_more() {
    let mut rig = two_units();
    let nexus = |number: u8| Nexus {
        initiator: format!("iqn.2026-11.example:{number}"),
        isid: [0x80, 0, 0, 0, 0, number],
        port: 1,
    };
    let known = &mut rig.luns.get_mut(&OTHER).expect("a LUN").reservations;
    known.registrants = [1, 2]
        .map(|number| Registrant {
            nexus: nexus(number),
            key: number.into(),
        })
        .to_vec();
    known.held = Some(Reservation {
        holder: nexus(1),
        kind: 1,
    });
    rig.tell_luns();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut other = Initiator::new(&mut rig, 2);
    other.target = rig.luns[&OTHER].target();
    other.log_in(&mut rig, &[]);
    other.run(&mut rig, &[0; 6], (0, 0), b"");
    let tag = begin(
        &mut initiator,
        &mut rig,
        &list(1, &[((0, 0), (1, 0), 10_000), ((0, 0), (1, 20_000), 8)]),
    );
    while !rig.is_copying() {
        rig.answer_one();
    }
    let mut keys = vec![0; 24];
    (keys[7], keys[15]) = (2, 1);
    let preempt = [0x5f, 5, 1, 0, 0, 0, 0, 0, 24, 0];
    let preempting = other.ask(&mut rig, &preempt, (0, 24), &keys);
    assert!(rig.receive(other.id).is_empty(), "writes are under way");
    rig.answer_all();
    assert!(Done::of(preempting, rig.receive(other.id)).is_good());
    let done = Done::of(tag, rig.receive(initiator.id));
    assert_eq!(done.forwarded(), Some((false, 0x18, 0, 0)));
    let (copied, left) = rig.others[&OTHER_FILE].split_at(10_000 * BLOCK);
    assert!(*copied == rig.content[..copied.len()]);
    assert!(left.iter().all(|byte| *byte == 9));
}

/// Goal: an aborted copy reads no more, and behind the answer writes no more, at its own unit
/// and at the other; a unit that is removed meanwhile ends the copy.
#[test]
fn aborted_copies_are_over_when_it_is_told() {
    let is_write = |rig: &Rig| {
        let operations = rig.asked.iter().map(|call| &call.request.operation);
        operations
            .map(|operation| matches!(operation, SiteOperation::Write { .. }))
            .next()
    };
    let managed = |rig: &mut Rig, initiator: &Initiator| {
        let answers = rig.receive(initiator.id);
        answers
            .iter()
            .any(|(response, _)| matches!(response, Response::Task(_)))
    };
    let mut rig = two_units();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let bytes = list(1, &[((0, 0), (1, 0), 10_000)]);
    let tag = begin(&mut initiator, &mut rig, &bytes);
    initiator.manage(&mut rig, TaskFunction::AbortTask, tag);
    assert!(rig.asked.is_empty() && managed(&mut rig, &initiator));
    assert_eq!(rig.withdrawn.len(), 1);
    let tag = begin(&mut initiator, &mut rig, &bytes);
    while is_write(&rig) == Some(false) {
        rig.answer_one();
    }
    initiator.manage(&mut rig, TaskFunction::AbortTask, tag);
    assert!(!managed(&mut rig, &initiator), "writes are under way");
    rig.answer_all();
    assert!(managed(&mut rig, &initiator));
    let status = results(&mut initiator, &mut rig, 0, 1);
    assert_eq!(status.data[4], 2);
    assert_eq!(rig.door.figures().held_bytes, 0);
    let tag = begin(&mut initiator, &mut rig, &bytes);
    while !rig.is_copying() {
        rig.answer_one();
    }
    initiator.manage(&mut rig, TaskFunction::AbortTask, tag);
    assert!(!managed(&mut rig, &initiator), "nodes are writing");
    assert_eq!(rig.withdrawn.len(), 1);
    rig.answer_all();
    assert!(managed(&mut rig, &initiator));
    let tag = begin(&mut initiator, &mut rig, &bytes);
    rig.luns.remove(&OTHER);
    rig.tell_luns();
    rig.answer_all();
    let done = Done::of(tag, rig.receive(initiator.id));
    assert_eq!(done.sense(), Some((0xa, 0x0d, 2)));
}
