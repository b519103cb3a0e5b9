//! Resets of units, and clearings of task sets: here, and at all gateways.

use crossdock_iscsi::{IscsiConfig, IscsiInput};
use crossdock_iscsi_pdu::TaskFunction;
use crossdock_peer::{Nexus, Reservations, ReserveCause};

use crate::rig::{Done, Ended, Initiator, Rig, lun, management, ten};

/// What is told once a task set was cleared, and once a unit was reset.
const CLEARED: Option<(u8, u8, u8)> = Some((6, 0x2f, 0));
const RESET: Option<(u8, u8, u8)> = Some((6, 0x29, 0));

/// Goal: resetting the unit aborts the tasks of all sessions, and all are told.
#[test]
fn resets_are_told_to_all() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut other = Initiator::ready(&mut rig, 2);
    assert!(
        other
            .run(&mut rig, &[0x16, 0, 0, 0, 0, 0], (0, 0), b"")
            .is_good()
    );
    assert_eq!(initiator.read(&mut rig, 0, 1).status, 0x18);
    other.ask(&mut rig, &ten(0x28, 0, 1), (512, 0), b"");
    initiator.manage(&mut rig, TaskFunction::LogicalUnitReset, u32::MAX);
    assert_eq!(management(&rig.receive(initiator.id)), Some(0));
    assert!(rig.asked.is_empty() && rig.receive(other.id).is_empty());
    for initiator in [&mut initiator, &mut other] {
        assert_eq!(initiator.read(&mut rig, 0, 1).sense(), RESET);
        assert!(initiator.read(&mut rig, 0, 1).is_good());
    }
}

fn several_gateways() -> Rig {
    let mut rig = Rig::with(IscsiConfig {
        is_shared: true,
        ..IscsiConfig::default()
    });
    rig.waits_for_gateways = true;
    rig
}

/// Another gateway has changed the LUN's record.
fn change_elsewhere(rig: &mut Rig, cause: ReserveCause, change: impl FnOnce(&mut Reservations)) {
    let known = &mut rig.luns.get_mut(&1).expect("a LUN").reservations;
    change(known);
    let by = Nexus {
        initiator: "iqn.2026-11.example:elsewhere".to_owned(),
        isid: [9; 6],
        port: 7,
    };
    known.last = Some((by, cause));
    rig.tell_luns();
}

const RESETS: [TaskFunction; 3] = [
    TaskFunction::LogicalUnitReset,
    TaskFunction::TargetWarmReset,
    TaskFunction::TargetColdReset,
];

/// Goal: of a unit that several gateways serve a reset is done here at once, and answered when the
/// others have done it, too; each session is told once, and what comes meanwhile is served.
#[test]
fn a_reset_is_answered_when_all_gateways_have_done_it() {
    for function in RESETS {
        let mut rig = several_gateways();
        let mut initiator = Initiator::ready(&mut rig, 1);
        let mut other = Initiator::ready(&mut rig, 2);
        let write = other.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
        initiator.manage(&mut rig, function, u32::MAX);
        let is_cold = function == TaskFunction::TargetColdReset;
        let known = &rig.luns[&1].reservations;
        assert_eq!((known.resets, known.cold_resets), (1, is_cold.into()));
        let told = other.ask(&mut rig, &[0; 6], (0, 0), b"");
        assert_eq!(Done::of(told, rig.receive(other.id)).sense(), RESET);
        let ticket = rig.unobeyed.pop().expect("a reset on its way");
        rig.give(IscsiInput::Reserved(ticket, true));
        assert!(rig.receive(initiator.id).is_empty(), "a write is under way");
        let later = other.ask(&mut rig, &ten(0x28, 9, 1), (512, 0), b"");
        rig.answer_all();
        assert_eq!(management(&rig.receive(initiator.id)), Some(0), "{write}");
        if is_cold {
            assert_eq!(rig.ended.len(), 2);
            continue;
        }
        assert!(Done::of(later, rig.receive(other.id)).is_good());
        assert_eq!(initiator.read(&mut rig, 0, 1).sense(), RESET);
        assert!(initiator.read(&mut rig, 0, 1).is_good());
    }
    // One that finds others at it is tried again, and one that never gets there is refused.
    let mut rig = several_gateways();
    let initiator = Initiator::ready(&mut rig, 1);
    rig.takes_reservations = false;
    initiator.manage(&mut rig, TaskFunction::LogicalUnitReset, u32::MAX);
    assert_eq!(management(&rig.receive(initiator.id)), Some(255));
}

/// Goal: a reset that another gateway was asked for aborts what came through this one, and is told
/// to its sessions; that it is obeyed is said when no write of what was aborted is under way. Other
/// changes of the record reset nothing.
#[test]
fn resets_of_other_gateways_are_carried_out() {
    let mut rig = several_gateways();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let read = initiator.ask(&mut rig, &ten(0x28, 8, 1), (512, 0), b"");
    let write = initiator.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    change_elsewhere(&mut rig, ReserveCause::Registered, |_| {});
    rig.give(IscsiInput::Reservations(1));
    assert_eq!((rig.asked.len(), &rig.obeyed[..]), (2, &[1][..]));
    change_elsewhere(&mut rig, ReserveCause::Reset, |it| it.resets += 1);
    rig.give(IscsiInput::Reservations(2));
    assert_eq!(rig.asked.len(), 1, "the read is withdrawn");
    assert_eq!(rig.obeyed, [1], "the write is under way");
    rig.answer_all();
    assert_eq!(rig.obeyed, [1, 2]);
    let answers = rig.receive(initiator.id);
    assert!(answers.is_empty(), "{read} and {write} are aborted");
    assert_eq!(initiator.read(&mut rig, 0, 1).sense(), RESET);
    assert!(initiator.read(&mut rig, 0, 1).is_good());
    // Two at a time: this gateway's own is carried out already, the other one is not.
    initiator.manage(&mut rig, TaskFunction::LogicalUnitReset, u32::MAX);
    assert_eq!(initiator.read(&mut rig, 0, 1).sense(), RESET);
    let read = initiator.ask(&mut rig, &ten(0x28, 8, 1), (512, 0), b"");
    change_elsewhere(&mut rig, ReserveCause::Reset, |it| it.resets += 1);
    assert!(rig.asked.is_empty(), "{read} is aborted");
    assert_eq!(initiator.read(&mut rig, 0, 1).sense(), RESET);
}

/// Goal: CLEAR TASK SET aborts what came through any gateway, and is answered when all have done it.
/// Whose commands it aborts here is told so, but not who asked for it, nor who had none.
#[test]
fn a_cleared_task_set_is_cleared_at_all_gateways() {
    let mut rig = several_gateways();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut other = Initiator::ready(&mut rig, 2);
    let mut idle = Initiator::ready(&mut rig, 3);
    initiator.ask(&mut rig, &ten(0x28, 8, 1), (512, 0), b"");
    let write = other.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    initiator.manage(&mut rig, TaskFunction::ClearTaskSet, u32::MAX);
    let known = &rig.luns[&1].reservations;
    assert_eq!((known.clears, known.resets, known.cold_resets), (1, 0, 0));
    rig.answer_all();
    assert!(rig.receive(initiator.id).is_empty(), "others have to do it");
    let ticket = rig.unobeyed.pop().expect("one on its way");
    rig.give(IscsiInput::Reserved(ticket, true));
    let answers = rig.receive(initiator.id);
    assert_eq!((answers.len(), management(&answers)), (1, Some(0)));
    assert!(rig.receive(other.id).is_empty(), "{write} is aborted");
    assert!(initiator.read(&mut rig, 0, 1).is_good());
    assert!(idle.read(&mut rig, 0, 1).is_good());
    assert_eq!(other.read(&mut rig, 0, 1).sense(), CLEARED);
    assert!(other.read(&mut rig, 0, 1).is_good());
    // One that finds others at it is tried again, and one that never gets there is refused.
    rig.takes_reservations = false;
    initiator.manage(&mut rig, TaskFunction::ClearTaskSet, u32::MAX);
    assert_eq!(management(&rig.receive(initiator.id)), Some(255));
}

/// Goal: a CLEAR TASK SET that another gateway was asked for aborts what came through this one, and
/// is told once to those whose commands it aborts; it is obeyed when no write of them is under way.
/// It resets nothing.
#[test]
fn clearings_by_other_gateways_are_carried_out() {
    let mut rig = several_gateways();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut other = Initiator::ready(&mut rig, 2);
    let mut idle = Initiator::ready(&mut rig, 3);
    let read = initiator.ask(&mut rig, &ten(0x28, 8, 1), (512, 0), b"");
    let write = other.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    change_elsewhere(&mut rig, ReserveCause::Reset, |it| it.clears += 1);
    rig.give(IscsiInput::Reservations(1));
    assert_eq!(rig.asked.len(), 1, "the read is withdrawn");
    assert!(rig.obeyed.is_empty(), "the write is under way");
    rig.answer_all();
    assert_eq!(rig.obeyed, [1]);
    for initiator in [&mut initiator, &mut other] {
        let answers = rig.receive(initiator.id);
        assert!(answers.is_empty(), "{read} and {write} are aborted");
        assert_eq!(initiator.read(&mut rig, 0, 1).sense(), CLEARED);
        assert!(initiator.read(&mut rig, 0, 1).is_good());
    }
    assert!(idle.read(&mut rig, 0, 1).is_good());
    // This gateway's own is carried out already, another one behind it is not.
    initiator.manage(&mut rig, TaskFunction::ClearTaskSet, u32::MAX);
    other.ask(&mut rig, &ten(0x28, 8, 1), (512, 0), b"");
    rig.tell_luns();
    assert_eq!(rig.asked.len(), 1, "it came behind that");
    change_elsewhere(&mut rig, ReserveCause::Reset, |it| it.clears += 1);
    assert!(rig.asked.is_empty());
    assert_eq!(other.read(&mut rig, 0, 1).sense(), CLEARED);
    // A reset says more than a clearing.
    other.ask(&mut rig, &ten(0x28, 8, 1), (512, 0), b"");
    change_elsewhere(&mut rig, ReserveCause::Reset, |it| {
        it.clears += 1;
        it.resets += 1;
    });
    assert_eq!(other.read(&mut rig, 0, 1).sense(), RESET);
    assert!(other.read(&mut rig, 0, 1).is_good());
}

/// Goal: a cold reset that another gateway was asked for ends the sessions with the unit, not those
/// with other units; it is obeyed when no write of theirs is under way. Initiators come back to a
/// unit that was reset.
#[test]
fn cold_resets_of_other_gateways_end_sessions() {
    let mut rig = several_gateways();
    rig.luns.insert(2, lun(2, "second"));
    rig.tell_luns();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let mut beside = Initiator::new(&mut rig, 2);
    beside.target = "iqn.2026-11.io.crossdock:second".to_owned();
    beside.log_in(&mut rig, &[]);
    assert_eq!(beside.read(&mut rig, 0, 1).sense(), RESET);
    let read = initiator.ask(&mut rig, &ten(0x28, 8, 1), (512, 0), b"");
    let write = initiator.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    change_elsewhere(&mut rig, ReserveCause::Reset, |it| {
        it.resets += 1;
        it.cold_resets += 1;
    });
    rig.give(IscsiInput::Reservations(1));
    assert_eq!(rig.ended, [(initiator.id, Ended::Closed)].into());
    assert_eq!(rig.asked.len(), 1, "the read is withdrawn");
    assert!(rig.obeyed.is_empty(), "the write is under way");
    rig.answer_all();
    assert_eq!(rig.obeyed, [1]);
    let answers = rig.receive(initiator.id);
    assert!(answers.is_empty(), "{read} and {write} are aborted");
    assert!(beside.read(&mut rig, 0, 1).is_good());
    initiator = Initiator::ready(&mut rig, 1);
    assert!(initiator.read(&mut rig, 0, 1).is_good());
    // This gateway's own ends no session before it is answered.
    initiator.manage(&mut rig, TaskFunction::TargetColdReset, u32::MAX);
    rig.tell_luns();
    assert_eq!(rig.ended.get(&initiator.id), None);
    let ticket = rig.unobeyed.pop().expect("a reset on its way");
    rig.give(IscsiInput::Reserved(ticket, true));
    assert_eq!(management(&rig.receive(initiator.id)), Some(0));
    assert_eq!(rig.ended.get(&initiator.id), Some(&Ended::Closed));
}

/// Goal: the sessions end also if who has asked for a cold reset is gone when it is carried out; one
/// that is refused ends none.
#[test]
fn cold_resets_end_sessions_if_they_are_carried_out() {
    let mut rig = several_gateways();
    let asking = Initiator::ready(&mut rig, 1);
    let mut other = Initiator::ready(&mut rig, 2);
    asking.manage(&mut rig, TaskFunction::TargetColdReset, u32::MAX);
    rig.give(IscsiInput::Closed(asking.id));
    assert_eq!(other.read(&mut rig, 0, 1).sense(), RESET);
    let ticket = rig.unobeyed.pop().expect("a reset on its way");
    rig.give(IscsiInput::Reserved(ticket, true));
    assert_eq!(rig.ended.get(&other.id), Some(&Ended::Closed));
    let mut initiator = Initiator::ready(&mut rig, 1);
    rig.takes_reservations = false;
    initiator.manage(&mut rig, TaskFunction::TargetColdReset, u32::MAX);
    assert_eq!(management(&rig.receive(initiator.id)), Some(255));
    assert_eq!(initiator.read(&mut rig, 0, 1).sense(), RESET);
    assert!(initiator.read(&mut rig, 0, 1).is_good());
}
