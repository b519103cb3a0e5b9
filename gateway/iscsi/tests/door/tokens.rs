//! Token copies: who takes a token, what it stands for, and what is told of both commands.

use crossdock_names::SMALL_FILE_THRESHOLD_BYTES;
use crossdock_peer::{InitiatorRule, Nexus, Registrant, Reservation};
use crossdock_types::WallTime;

use crate::copies::{OTHER, OTHER_FILE, two_units};
use crate::rig::{BLOCK, Done, Initiator, Rig};

const KEY: [u8; 32] = [3; 32];
const NOW_SECONDS: i64 = 1_800_000_000;

/// First block and how many.
pub(crate) type Range = (u64, u32);

pub(crate) fn units() -> Rig {
    let mut rig = two_units();
    open(&mut rig);
    rig
}

/// The volume is open: its gateways know what tokens are made with.
fn open(rig: &mut Rig) {
    rig.door.learn_token_key(&KEY);
    at_second(rig, 0);
}

fn at_second(rig: &mut Rig, second: i64) {
    let wall = WallTime((NOW_SECONDS + second) * 1_000_000_000);
    rig.door.set_wall(wall);
}

pub(crate) fn other(rig: &mut Rig, number: u8) -> Initiator {
    let mut other = Initiator::new(rig, number);
    other.target = rig.luns[&OTHER].target();
    other.log_in(rig, &[]);
    other.run(rig, &[0; 6], (0, 0), b"");
    other
}

pub(crate) fn with_ranges(mut head: Vec<u8>, ranges: &[Range]) -> Vec<u8> {
    let length = u16::try_from(ranges.len() * 16).expect("few");
    head.extend(length.to_be_bytes());
    for (lba, blocks) in ranges {
        head.extend(lba.to_be_bytes());
        head.extend(blocks.to_be_bytes());
        head.extend([0; 4]);
    }
    let length = u16::try_from(head.len() - 2).expect("short");
    head[..2].copy_from_slice(&length.to_be_bytes());
    head
}

/// Asks for a token, or by one; the tag.
pub(crate) fn begin(
    initiator: &mut Initiator,
    rig: &mut Rig,
    (action, list_id): (u8, u8),
    list: &[u8],
) -> u32 {
    let length = u32::try_from(list.len()).expect("short");
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[9]) = (0x83, action, list_id);
    cdb[10..14].copy_from_slice(&length.to_be_bytes());
    initiator.ask(rig, &cdb, (0, length), list)
}

fn ask(initiator: &mut Initiator, rig: &mut Rig, what: (u8, u8), list: &[u8]) -> Done {
    let tag = begin(initiator, rig, what, list);
    rig.answer_all();
    Done::of(tag, rig.receive(initiator.id))
}

fn populate(initiator: &mut Initiator, rig: &mut Rig, list_id: u8, ranges: &[Range]) -> Done {
    ask(
        initiator,
        rig,
        (0x10, list_id),
        &with_ranges(vec![0; 14], ranges),
    )
}

fn write(
    initiator: &mut Initiator,
    rig: &mut Rig,
    (token, offset): (&[u8], u8),
    ranges: &[Range],
) -> Done {
    let mut head = vec![0; 534];
    head[15] = offset;
    head[16..528].copy_from_slice(token);
    ask(initiator, rig, (0x11, 9), &with_ranges(head, ranges))
}

pub(crate) fn information(initiator: &mut Initiator, rig: &mut Rig, list_id: u8) -> Done {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[5], cdb[12]) = (0x84, 7, list_id, 4);
    let tag = initiator.ask(rig, &cdb, (1024, 0), b"");
    Done::of(tag, rig.receive(initiator.id))
}

/// Makes a token of the first unit.
pub(crate) fn token_of(rig: &mut Rig, ranges: &[Range]) -> Vec<u8> {
    let mut initiator = Initiator::ready(rig, 1);
    assert!(populate(&mut initiator, rig, 7, ranges).is_good());
    let told = information(&mut initiator, rig, 7).data;
    assert_eq!(told.len(), 38 + 512);
    assert_eq!(told[4..6], [0x10, 1]);
    told[38..].to_vec()
}

fn at(lba: usize) -> usize {
    lba * BLOCK
}

/// Goal: what a token stands for is written where its holder says, from an offset on, by nodes; it
/// is told how much that was.
#[test]
fn tokens_stand_for_blocks() {
    let mut rig = units();
    let token = token_of(&mut rig, &[(1000, 8000), (20_000, 4000)]);
    let before = rig.content.clone();
    let mut other = other(&mut rig, 2);
    let done = write(
        &mut other,
        &mut rig,
        (&token, 10),
        &[(500, 9000), (30_000, 20)],
    );
    assert!(done.is_good(), "{:?}", done.sense());
    let written = &rig.others[&OTHER_FILE];
    assert!(written[at(500)..at(8490)] == before[at(1010)..at(9000)]);
    assert!(written[at(8490)..at(9500)] == before[at(20_000)..at(21_010)]);
    assert_eq!(
        written[at(30_000)..at(30_020)],
        before[at(21_010)..at(21_030)]
    );
    for (start, end) in [(0, 500), (9500, 30_000), (30_020, 32_768)] {
        assert!(written[at(start)..at(end)].iter().all(|byte| *byte == 9));
    }
    let told = information(&mut other, &mut rig, 9).data;
    assert_eq!(told[4..6], [0x11, 1]);
    assert_eq!(told[16..24], 9020u64.to_be_bytes());
    assert_eq!(told[32..], [0; 4], "no token");
    let [by_nodes, through_here] = rig.door.figures().copied_bytes;
    assert!(through_here <= SMALL_FILE_THRESHOLD_BYTES, "{through_here}");
    assert_eq!(by_nodes + through_here, 9020 * BLOCK as u64);
    let unknown = information(&mut other, &mut rig, 8);
    assert_eq!(unknown.sense(), Some((5, 0x24, 0)));
    assert_eq!(rig.door.figures().held_bytes, 0);
}

/// Goal: another gateway with the same key takes the token, and reads what is there by then; one
/// without it does not, nor anybody after its time; no bit of it can be changed.
#[test]
fn tokens_are_proved_at_every_gateway() {
    let ranges = [(1000, 100)];
    let mut first = units();
    let token = token_of(&mut first, &ranges);
    let mut second = units();
    second.content[at(1000)..at(1100)].fill(77);
    let mut holder = other(&mut second, 2);
    assert!(write(&mut holder, &mut second, (&token, 0), &[(0, 100)]).is_good());
    assert_eq!(second.others[&OTHER_FILE][..at(100)], [77; 100 * BLOCK]);
    let again = token_of(&mut first, &ranges);
    assert_ne!(token[256..288], again[256..288], "nobody can guess it");
    let mut refused = |token: &[u8]| {
        let done = write(&mut holder, &mut second, (token, 0), &[(200, 8)]);
        assert_eq!(second.others[&OTHER_FILE][at(200)], 9);
        done.sense()
    };
    for byte in (8..512).step_by(7).chain([500, 511]) {
        let mut forged = token.clone();
        forged[byte] ^= 0x10;
        assert_eq!(refused(&forged), Some((5, 0x23, 5)), "byte {byte}");
    }
    at_second(&mut second, 3600);
    assert!(write(&mut holder, &mut second, (&token, 0), &[(0, 8)]).is_good());
    at_second(&mut second, 3601);
    let late = write(&mut holder, &mut second, (&token, 0), &[(0, 8)]);
    assert_eq!(late.sense(), Some((5, 0x23, 7)));
    let told = information(&mut holder, &mut second, 9).data;
    assert_eq!((told[4..6].to_vec(), told[12]), (vec![0x11, 2], 2));
    let mut stranger = two_units();
    stranger.door.learn_token_key(&[4; 32]);
    at_second(&mut stranger, 0);
    let mut holder = other(&mut stranger, 2);
    let unknown = write(&mut holder, &mut stranger, (&token, 0), &[(0, 8)]);
    assert_eq!(unknown.sense(), Some((5, 0x23, 5)));
}

/// Goal: the token of zeros, which everybody knows, makes holes, or writes zeros where there are to
/// be none.
#[test]
fn zeros_have_a_token() {
    let mut token = vec![0; 512];
    token[..8].copy_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 1, 0xf8]);
    for (is_thin, holes) in [(true, 2), (false, 0)] {
        let mut rig = units();
        rig.luns.get_mut(&OTHER).expect("a LUN").is_thin = is_thin;
        rig.tell_luns();
        let mut other = other(&mut rig, 2);
        let ranges = [(10, 30_000), (31_000, 5)];
        assert!(write(&mut other, &mut rig, (&token, 0), &ranges).is_good());
        assert_eq!(rig.other_holes.len(), holes);
        let written = &rig.others[&OTHER_FILE];
        let is = |start: usize, end: usize, fill: u8| {
            written[at(start)..at(end)].iter().all(|byte| *byte == fill)
        };
        assert!(is(10, 30_010, 0) && is(31_000, 31_005, 0));
        assert!(is(0, 10, 9) && is(30_010, 31_000, 9) && is(31_005, 32_768, 9));
    }
}

/// Goal: a token is made of blocks that there are and that its maker may read, and used where its
/// holder may write, for no more than it stands for.
#[test]
fn tokens_give_no_other_right() {
    let mut rig = two_units();
    let mut early = Initiator::ready(&mut rig, 3);
    assert_eq!(
        populate(&mut early, &mut rig, 1, &[(0, 1)]).status,
        8,
        "not open yet"
    );
    open(&mut rig);
    for (ranges, sense) in [
        (&[(32_760, 9)][..], (5, 0x21, 0)),
        (&[(0, 4), (3, 1)], (5, 0x26, 0)),
        (&[], (5, 0x26, 0)),
    ] {
        let refused = populate(&mut early, &mut rig, 1, ranges);
        assert_eq!(refused.sense(), Some(sense));
    }
    let token = token_of(&mut rig, &[(1000, 16)]);
    let mut holder = other(&mut rig, 2);
    let mut sense = |rig: &mut Rig, offset, ranges: &[Range]| {
        write(&mut holder, rig, (&token, offset), ranges).sense()
    };
    assert_eq!(sense(&mut rig, 1, &[(0, 16)]), Some((5, 0x26, 0)));
    assert_eq!(sense(&mut rig, 0, &[(32_760, 9)]), Some((5, 0x21, 0)));
    // Somebody reserves the source for himself, and gives it back.
    let nexus = Nexus {
        initiator: "iqn.2026-11.example:8".to_owned(),
        isid: [0x80, 0, 0, 0, 0, 8],
        port: 1,
    };
    let reservations = &mut rig.luns.get_mut(&1).expect("a LUN").reservations;
    reservations.registrants.push(Registrant {
        nexus: nexus.clone(),
        key: 5,
    });
    reservations.held = Some(Reservation {
        holder: nexus,
        kind: 3,
    });
    rig.tell_luns();
    assert_eq!(sense(&mut rig, 0, &[(0, 16)]), Some((0xa, 0, 0)));
    let mut kept = Initiator::new(&mut rig, 5);
    kept.log_in(&mut rig, &[]);
    kept.run(&mut rig, &[0; 6], (0, 0), b"");
    assert_eq!(populate(&mut kept, &mut rig, 1, &[(0, 1)]).status, 0x18);
    rig.luns.get_mut(&1).expect("a LUN").reservations.held = None;
    rig.tell_luns();
    assert_eq!(sense(&mut rig, 0, &[(0, 16)]), None);
    rig.luns.get_mut(&1).expect("a LUN").size_bytes = 1000 * BLOCK as u64;
    rig.tell_luns();
    let gone = (0..3).find_map(|_| sense(&mut rig, 0, &[(0, 16)]).filter(|it| it.0 != 6));
    assert_eq!(gone, Some((5, 0x23, 6)));
    let rule = InitiatorRule {
        is_read_only: true,
        ..InitiatorRule::open("iqn.2026-11.example:4")
    };
    let mut rig = units();
    rig.luns.get_mut(&OTHER).expect("a LUN").access.initiators = vec![rule];
    rig.tell_luns();
    let token = token_of(&mut rig, &[(1000, 16)]);
    let mut reader = other(&mut rig, 4);
    let refused = write(&mut reader, &mut rig, (&token, 0), &[(0, 16)]);
    assert_eq!(refused.forwarded(), Some((false, 2, 7, 0x27)));
    assert!(rig.others[&OTHER_FILE].iter().all(|byte| *byte == 9));
}
