//! Sessions: several connections, task management, what happens to LUNs meanwhile.

use crossdock_iscsi::IscsiInput;
use crossdock_iscsi_pdu::{Head, LogoutRequest, NopOut, Response, TaskFunction, opcode};
use crossdock_types::Time;

use crate::rig::{Done, Ended, Initiator, Rig, management, ten};

/// Goal: commands of a session are served in the order of their numbers, over whichever
/// connection they come; each is answered where it came; losing one connection aborts its
/// own tasks only.
#[test]
fn two_connections_are_one_session() {
    let mut rig = Rig::new();
    let mut first = Initiator::ready_with(&mut rig, 1, &[("MaxConnections", "4")]);
    let mut second = Initiator::new(&mut rig, 1);
    (second.tsih, second.cid, second.cmd_sn) = (first.tsih, 1, first.cmd_sn);
    second.log_in(&mut rig, &[]);
    assert_eq!(second.tsih, first.tsih);
    let early = first.command(&ten(0x28, 1, 1), (512, 0)); // Number n, sent last.
    second.cmd_sn = first.cmd_sn;
    let tag = 77;
    second.tag = tag - 1;
    second.ask(&mut rig, &ten(0x28, 2, 1), (512, 0), b"");
    assert!(rig.asked.is_empty(), "it waits for its turn");
    first.send(&mut rig, &early, b"");
    assert_eq!(rig.asked.len(), 2);
    rig.answer_all();
    assert!(Done::of(early.task_tag.get(), rig.receive(first.id)).is_good());
    assert!(Done::of(tag, rig.receive(second.id)).is_good());
    first.cmd_sn = second.cmd_sn;
    let left = first.ask(&mut rig, &ten(0x28, 3, 1), (512, 0), b"");
    rig.give(IscsiInput::Closed(second.id));
    rig.answer_all();
    assert!(Done::of(left, rig.receive(first.id)).is_good());
    assert_eq!(rig.door.figures().sessions, 1);
    rig.give(IscsiInput::Closed(first.id));
    assert_eq!(rig.door.figures().sessions, 0);
}

/// Goal: an aborted read is withdrawn and not answered; an aborted write is waited for, and
/// nothing of it happens behind the answer.
#[test]
fn aborted_tasks_are_over_when_it_is_told() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let read = initiator.ask(&mut rig, &ten(0x28, 0, 1), (512, 0), b"");
    initiator.manage(&mut rig, TaskFunction::AbortTask, read);
    assert_eq!((rig.withdrawn.len(), rig.asked.len()), (1, 0));
    let answers = rig.receive(initiator.id);
    assert_eq!((answers.len(), management(&answers)), (1, Some(0)));
    initiator.manage(&mut rig, TaskFunction::AbortTask, read);
    assert_eq!(
        management(&rig.receive(initiator.id)),
        Some(1),
        "no such task"
    );
    let write = initiator.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    let behind = initiator.ask(&mut rig, &ten(0x28, 0, 1), (512, 0), b"");
    initiator.manage(&mut rig, TaskFunction::AbortTask, write);
    assert!(
        rig.receive(initiator.id).is_empty(),
        "the write is under way"
    );
    assert_eq!(rig.asked.len(), 1, "the read waits for it, too");
    rig.answer_all();
    let answers = rig.receive(initiator.id);
    assert_eq!(management(&answers), Some(0));
    assert!(Done::of(behind, answers).is_good());
}

/// Goal: a unit that grows is told; one that is removed ends its sessions, announced.
#[test]
fn luns_change_under_their_sessions() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    rig.luns.get_mut(&1).expect("a LUN").size_bytes = 8 << 20;
    rig.tell_luns();
    let told = initiator.read(&mut rig, 0, 1);
    assert_eq!(told.sense(), Some((6, 0x2a, 9)));
    let capacity = initiator.run(&mut rig, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], (8, 0), b"");
    assert_eq!(capacity.data[..4], [0, 0, 0x3f, 0xff]);
    let read = initiator.ask(&mut rig, &ten(0x28, 0, 1), (512, 0), b"");
    rig.luns.clear();
    rig.tell_luns();
    let answers = rig.receive(initiator.id);
    assert!(
        matches!(answers[..], [(Response::Async(message), _)] if message.event == 3),
        "{read}"
    );
    assert_eq!(rig.ended.get(&initiator.id), Some(&Ended::Closed));
    assert_eq!(rig.door.figures().tasks, 0);
}

/// Goal: who may not use the unit any more is thrown out; who may only read can do that.
#[test]
fn rights_change_under_their_sessions() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let rule = crossdock_peer::InitiatorRule {
        is_read_only: true,
        ..crossdock_peer::InitiatorRule::open(&initiator.name)
    };
    rig.luns.get_mut(&1).expect("a LUN").access.initiators = vec![rule];
    rig.tell_luns();
    assert!(initiator.read(&mut rig, 0, 1).is_good());
    let refused = initiator.run(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    assert_eq!(refused.sense(), Some((7, 0x27, 0)));
    rig.luns.get_mut(&1).expect("a LUN").access.networks.clear();
    rig.tell_luns();
    assert_eq!(rig.ended.get(&initiator.id), Some(&Ended::Closed));
}

/// Goal: logging out is answered, and ends connection and session; the same initiator that
/// begins anew takes the place of its old session.
#[test]
fn sessions_end_and_begin_anew() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let again = Initiator::ready(&mut rig, 1);
    assert_eq!(rig.ended.get(&initiator.id), Some(&Ended::Closed));
    assert_eq!(rig.door.figures().sessions, 1);
    initiator = again;
    let header = LogoutRequest {
        head: Head::new(opcode::LOGOUT, 0x80),
        task_tag: 9.into(),
        cmd_sn: initiator.cmd_sn.into(),
        ..LogoutRequest::default()
    };
    initiator.send(&mut rig, &header, b"");
    let answers = rig.receive(initiator.id);
    assert!(matches!(answers[..], [(Response::Logout(it), _)] if it.head.specific[0] == 0));
    assert_eq!(rig.ended.get(&initiator.id), Some(&Ended::Closed));
    assert_eq!(rig.door.figures().sessions, 0);
}

/// Goal: a ping comes back with its data; a silent initiator is asked, and dropped if it does
/// not answer.
#[test]
fn signs_of_life_are_given_and_wanted() {
    let mut rig = Rig::new();
    let initiator = Initiator::ready(&mut rig, 1);
    let ping = NopOut {
        head: Head::new(opcode::NOP_OUT | 0x40, 0x80),
        task_tag: 3.into(),
        transfer_tag: u32::MAX.into(),
        cmd_sn: initiator.cmd_sn.into(),
        ..NopOut::default()
    };
    initiator.send(&mut rig, &ping, b"hello");
    let answers = rig.receive(initiator.id);
    assert!(
        matches!(&answers[..], [(Response::Nop(_), data)] if data.to_bytes()[..] == b"hello"[..])
    );
    rig.now = Time::from_secs(31);
    rig.give(IscsiInput::Timeout);
    let answers = rig.receive(initiator.id);
    assert!(matches!(&answers[..], [(Response::Nop(it), _)] if it.task_tag.get() == u32::MAX));
    let pong = NopOut {
        task_tag: u32::MAX.into(),
        transfer_tag: 1.into(),
        ..ping
    };
    initiator.send(&mut rig, &pong, b"");
    for (seconds, ended) in [(45, None), (61, None), (77, Some(&Ended::Aborted))] {
        rig.now = Time::from_secs(seconds);
        rig.give(IscsiInput::Timeout);
        assert_eq!(rig.ended.get(&initiator.id), ended, "{seconds}");
    }
    assert_eq!(rig.door.figures().sessions, 0);
}
