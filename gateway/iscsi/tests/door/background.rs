//! Token copies that are answered before they are done (IMMED): what is told of them, and what ends
//! them.

use crossdock_iscsi::IscsiInput;
use crossdock_iscsi_pdu::{Response, TaskFunction};

use crate::copies::OTHER_FILE;
use crate::rig::{BLOCK, Done, Initiator, Rig};
use crate::tokens::{Range, begin, information, other, token_of, units, with_ranges};

/// Blocks that are copied: in two stretches, the first of them below the small-file threshold.
const SOURCE: [Range; 1] = [(1000, 8000)];

fn list(token: &[u8], flags: u8, ranges: &[Range]) -> Vec<u8> {
    let mut head = vec![0; 534];
    head[2] = flags;
    head[16..528].copy_from_slice(token);
    with_ranges(head, ranges)
}

/// A copy to the other unit has begun, under a number; what it was answered.
fn begin_copy(initiator: &mut Initiator, rig: &mut Rig, number: u8, token: &[u8]) -> Done {
    let list = list(token, 1, &[(500, 8000)]);
    let tag = begin(initiator, rig, (0x11, number), &list);
    Done::of(tag, rig.receive(initiator.id))
}

fn abort(initiator: &mut Initiator, rig: &mut Rig, number: u8) -> u32 {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[5]) = (0x83, 0x1c, number);
    initiator.ask(rig, &cdb, (0, 0), b"")
}

/// Status and blocks.
fn told(initiator: &mut Initiator, rig: &mut Rig, number: u8) -> (u8, u64) {
    let data = information(initiator, rig, number).data;
    assert_eq!(data[4], 0x11);
    let blocks = data[16..24].try_into().expect("eight");
    (data[5], u64::from_be_bytes(blocks))
}

fn answers_of(rig: &mut Rig, initiator: &Initiator, tag: u32) -> usize {
    let answers = rig.receive(initiator.id);
    let mut count = 0;
    for (response, _) in &answers {
        count += usize::from(match response {
            Response::Command(header) => header.task_tag.get() == tag,
            Response::Task(_) => tag == MANAGED,
            _ => false,
        });
    }
    count
}

/// In place of the tag of a function of task management.
const MANAGED: u32 = 0x7000_0000;

fn written_blocks(rig: &Rig) -> usize {
    let blocks = rig.others[&OTHER_FILE].chunks(BLOCK);
    blocks
        .filter(|block| block.iter().any(|it| *it != 9))
        .count()
}

/// Goal: the command is answered before anything is copied, others go on meanwhile, also such as
/// wait for all before them; it is told how far it is, under a number that nothing else gets, and
/// what has come of it.
#[test]
fn it_is_told_how_far_a_copy_is() {
    let mut rig = units();
    let token = token_of(&mut rig, &SOURCE);
    let expected = rig.content[1000 * BLOCK..9000 * BLOCK].to_vec();
    let mut holder = other(&mut rig, 2);
    assert!(begin_copy(&mut holder, &mut rig, 9, &token).is_good());
    assert_eq!((written_blocks(&rig), rig.asked.len()), (0, 1));
    assert_eq!(told(&mut holder, &mut rig, 9), (0x12, 0));
    let again = begin_copy(&mut holder, &mut rig, 9, &token);
    assert_eq!(again.sense(), Some((5, 0, 0x16)));
    let mut ordered = holder.command(&[0x28, 0, 0, 0, 0x70, 0, 0, 0, 1, 0], (512, 0));
    ordered.head.flags |= 2;
    let copy = rig.asked.pop_front().expect("the copy's");
    holder.send(&mut rig, &ordered, b"");
    rig.answer_all();
    let read = Done::of(ordered.task_tag.get(), rig.receive(holder.id));
    assert_eq!(read.data, [9; BLOCK]);
    rig.asked.push_back(copy);
    while written_blocks(&rig) == 0 {
        rig.answer_one();
    }
    assert_eq!(told(&mut holder, &mut rig, 9).0, 0x12);
    rig.answer_all();
    assert_eq!(told(&mut holder, &mut rig, 9), (0x01, 8000));
    assert!(rig.others[&OTHER_FILE][500 * BLOCK..8500 * BLOCK] == expected);
    assert!(rig.receive(holder.id).is_empty(), "it is answered once");
    // What fails is told there, too.
    rig.bad = Some(5000 * BLOCK as u64..6000 * BLOCK as u64);
    assert!(begin_copy(&mut holder, &mut rig, 9, &token).is_good());
    rig.answer_all();
    let data = information(&mut holder, &mut rig, 9).data;
    assert_eq!((data[5], data[12], data[34] & 0xf), (0x02, 2, 0xa));
    // What is refused before anything is copied is not begun.
    let beyond = list(&token, 1, &[(32_760, 9)]);
    let tag = begin(&mut holder, &mut rig, (0x11, 3), &beyond);
    let refused = Done::of(tag, rig.receive(holder.id));
    assert_eq!(refused.sense(), Some((5, 0x21, 0)));
    let figures = rig.door.figures();
    assert_eq!((figures.tasks, figures.held_bytes), (0, 0));
}

/// Goal: a reset of the unit, and the end of the session, end such copies, behind the writes that
/// are under way; an end of other commands does not.
#[test]
fn resets_and_lost_sessions_end_copies() {
    for is_reset in [true, false] {
        let mut rig = units();
        let token = token_of(&mut rig, &SOURCE);
        let mut holder = other(&mut rig, 2);
        assert!(begin_copy(&mut holder, &mut rig, 9, &token).is_good());
        for function in [TaskFunction::AbortTaskSet, TaskFunction::ClearTaskSet] {
            holder.manage(&mut rig, function, 0);
            assert_eq!(answers_of(&mut rig, &holder, MANAGED), 1);
        }
        assert_eq!(told(&mut holder, &mut rig, 9), (0x12, 0));
        while !rig.is_copying() {
            rig.answer_one();
        }
        let before = rig.asked.len();
        if is_reset {
            holder.manage(&mut rig, TaskFunction::LogicalUnitReset, 0);
            assert_eq!(
                answers_of(&mut rig, &holder, MANAGED),
                0,
                "nodes are writing"
            );
        } else {
            rig.give(IscsiInput::Closed(holder.id));
            assert_eq!(rig.door.figures().sessions, 1, "only the maker's");
        }
        assert_eq!((rig.asked.len(), rig.door.figures().tasks), (before, 1));
        for _ in 0..before {
            rig.answer_one();
        }
        assert!(rig.asked.is_empty(), "nothing more is copied");
        let figures = rig.door.figures();
        assert_eq!((figures.tasks, figures.held_bytes), (0, 0));
        if is_reset {
            assert_eq!(answers_of(&mut rig, &holder, MANAGED), 1);
            assert_eq!(
                information(&mut holder, &mut rig, 9).sense(),
                Some((6, 0x29, 0))
            );
            let unknown = information(&mut holder, &mut rig, 9);
            assert_eq!(unknown.sense(), Some((5, 0x24, 0)));
        }
    }
}

/// Goal: COPY OPERATION ABORT ends a copy, answered or not, and is answered when nothing more of it
/// is written; there is no copy that is over.
#[test]
fn copies_are_aborted_by_their_numbers() {
    let mut rig = units();
    let token = token_of(&mut rig, &SOURCE);
    let mut holder = other(&mut rig, 2);
    for flags in [1, 0] {
        let list = list(&token, flags, &[(500, 8000)]);
        let copy = begin(&mut holder, &mut rig, (0x11, 9), &list);
        let answers = answers_of(&mut rig, &holder, copy);
        assert_eq!(answers, usize::from(flags));
        while !rig.is_copying() {
            rig.answer_one();
        }
        let tag = abort(&mut holder, &mut rig, 8);
        let unknown = Done::of(tag, rig.receive(holder.id));
        assert_eq!(unknown.sense(), Some((5, 0x24, 0)));
        let tag = abort(&mut holder, &mut rig, 9);
        assert!(rig.receive(holder.id).is_empty(), "nodes are writing");
        for _ in 0..rig.asked.len() {
            rig.answer_one();
        }
        assert!(rig.asked.is_empty());
        let answers = rig.receive(holder.id);
        if flags == 0 {
            let ended = Done::of(copy, answers.clone());
            assert_eq!(ended.sense(), Some((0xa, 0, 0)));
        }
        assert_eq!(answers.len(), 2 - usize::from(flags));
        assert!(Done::of(tag, answers).is_good());
        assert_eq!(told(&mut holder, &mut rig, 9).0, 0x60);
        let tag = abort(&mut holder, &mut rig, 9);
        let over = Done::of(tag, rig.receive(holder.id));
        assert_eq!(over.sense(), Some((5, 0x24, 0)));
    }
}

/// Goal: who aborts a copy's command as well hears no more of that.
#[test]
fn aborted_commands_are_not_answered() {
    let mut rig = units();
    let token = token_of(&mut rig, &SOURCE);
    let mut holder = other(&mut rig, 2);
    let list = list(&token, 0, &[(500, 8000)]);
    let copy = begin(&mut holder, &mut rig, (0x11, 9), &list);
    while !rig.is_copying() {
        rig.answer_one();
    }
    let tag = abort(&mut holder, &mut rig, 9);
    holder.manage(&mut rig, TaskFunction::AbortTask, copy);
    assert!(rig.receive(holder.id).is_empty(), "nodes are writing");
    rig.answer_all();
    let answers = rig.receive(holder.id);
    assert_eq!(answers.len(), 2, "both functions, not the copy");
    assert!(Done::of(tag, answers).is_good());
    assert_eq!(rig.door.figures().tasks, 0);
}

/// Goal: a session has no more such copies than may be, nor have all of them; what was refused can be
/// asked for again.
#[test]
fn copies_in_the_background_are_bounded() {
    let mut rig = units();
    let token = token_of(&mut rig, &SOURCE);
    let mut holders: Vec<Initiator> = (2..11).map(|number| other(&mut rig, number)).collect();
    let mut begun = 0;
    for holder in &mut holders {
        for number in 0..4 {
            let done = begin_copy(holder, &mut rig, number, &token);
            // Half of the memory for commands, 4 MiB each.
            assert_eq!(done.status, if begun < 32 { 0 } else { 0x28 });
            begun += 1;
        }
        let full = begin_copy(holder, &mut rig, 4, &token);
        assert_eq!(full.status, 0x28);
    }
    rig.answer_all();
    let last = holders.last_mut().expect("one");
    assert!(begin_copy(last, &mut rig, 4, &token).is_good());
    rig.answer_all();
    assert_eq!(told(last, &mut rig, 4), (0x01, 8000));
    assert_eq!(rig.door.figures().held_bytes, 0);
}

/// Goal: tokens are not taken back, and nobody is told that they were.
#[test]
fn tokens_are_not_taken_back() {
    let mut rig = units();
    let token = token_of(&mut rig, &SOURCE);
    let mut holder = other(&mut rig, 2);
    let list = list(&token, 2, &[(500, 8000)]);
    let tag = begin(&mut holder, &mut rig, (0x11, 9), &list);
    let refused = Done::of(tag, rig.receive(holder.id));
    assert_eq!(refused.sense(), Some((5, 0x26, 0)));
    assert_eq!(written_blocks(&rig), 0);
}
