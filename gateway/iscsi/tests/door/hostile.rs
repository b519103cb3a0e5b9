//! Initiators that break the protocol, or take more than there is.

use crossdock_iscsi::{IscsiConfig, IscsiLimits};
use crossdock_iscsi_pdu::{
    Digests, Head, NO_TAG, NopOut, RejectReason, Response, Snack, encode, opcode,
};
use crossdock_types::Payload;

use crate::rig::{Done, Ended, Initiator, Rig, ten};

fn rejected(answers: &[crate::rig::Answer]) -> Vec<u8> {
    let rejects = answers.iter().filter_map(|(response, _)| match response {
        Response::Reject(it) => Some(it.head.specific[0]),
        _ => None,
    });
    rejects.collect()
}

/// Goal: commands outside of the window are passed over without a word, twice the same is
/// served once.
#[test]
fn numbers_outside_of_the_window_are_passed_over() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    for step in [-1i32, 128, 1_000_000, i32::MIN] {
        let right = initiator.cmd_sn;
        initiator.cmd_sn = right.wrapping_add_signed(step);
        initiator.ask(&mut rig, &ten(0x28, 0, 1), (512, 0), b"");
        initiator.cmd_sn = right;
    }
    assert!(rig.asked.is_empty() && rig.receive(initiator.id).is_empty());
    let header = initiator.command(&ten(0x28, 0, 1), (512, 0));
    initiator.send(&mut rig, &header, b"");
    initiator.send(&mut rig, &header, b"");
    assert_eq!(rig.asked.len(), 1);
    // As many early ones as there is room for, and no more.
    initiator.cmd_sn += 1;
    for _ in 0..1000 {
        initiator.ask(&mut rig, &ten(0x28, 0, 1), (512, 0), b"");
    }
    assert_eq!((rig.asked.len(), rig.door.figures().tasks), (1, 1));
}

/// Goal: data that breaks the rules ends its command with an error, and nothing of it is
/// written; what comes for nobody is dropped.
#[test]
fn data_that_breaks_the_rules_is_not_written() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    for (sn, offset, bytes) in [(1, 0, 512), (0, 512, 512), (0, 0, 1024), (u32::MAX, 0, 512)] {
        let tag = initiator.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), b"");
        let answers = rig.receive(initiator.id);
        let Some((Response::Ready(ready), _)) = answers.first() else {
            panic!("no data is asked for");
        };
        let transfer = ready.transfer_tag.get();
        initiator.data_out(
            &mut rig,
            (tag, transfer),
            (sn, offset, true),
            &vec![1; bytes],
        );
        let done = Done::of(tag, rig.receive(initiator.id));
        assert_eq!(done.sense(), Some((0xb, 0x4b, 0)), "{sn} {offset} {bytes}");
        initiator.data_out(&mut rig, (tag, transfer), (0, 0, true), &[1; 512]);
        assert!(rig.asked.is_empty() && rig.receive(initiator.id).is_empty());
    }
    let tag = initiator.ask(&mut rig, &ten(0x2a, 0, 1), (0, 512), b"");
    initiator.data_out(&mut rig, (tag, NO_TAG), (0, 0, true), &[1; 512]);
    let done = Done::of(tag, rig.receive(initiator.id));
    assert_eq!(done.sense(), Some((0xb, 0x0c, 0x0c)));
    let mut strict = Initiator::ready_with(&mut rig, 2, &[("ImmediateData", "No")]);
    let done = strict.run(&mut rig, &ten(0x2a, 0, 1), (0, 512), &[1; 512]);
    assert_eq!(done.sense(), Some((0xb, 0x0c, 0x0c)));
}

/// Goal: a header or data that was damaged on the way ends the connection, and is not served.
#[test]
fn damaged_pdus_are_not_served() {
    let digests = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    for (place, ended, reasons) in [
        (20, Ended::Aborted, vec![]),
        (60, Ended::Closed, vec![RejectReason::DataDigest as u8]),
    ] {
        let mut rig = Rig::new();
        let mut initiator = Initiator::ready_with(&mut rig, 1, &digests);
        let header = initiator.command(&ten(0x2a, 0, 1), (0, 512));
        let data = Payload::from(bytes::Bytes::from(vec![1; 512]));
        let mut bytes = encode(&header, data, initiator.digests).to_bytes().to_vec();
        bytes[place] ^= 1;
        rig.send_bytes(initiator.id, bytes);
        assert_eq!(rig.ended.get(&initiator.id), Some(&ended));
        assert_eq!(rejected(&rig.receive(initiator.id)), reasons);
        assert!(rig.asked.is_empty());
        assert_eq!(rig.door.figures().sessions, 0);
    }
}

/// Goal: more data than was agreed on ends the connection before it comes; PDUs that nobody
/// knows, or that have no place, are refused and the connection goes on.
#[test]
fn pdus_without_a_place_are_refused() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let snack = Snack {
        head: Head::new(opcode::SNACK, 0x80),
        ..Snack::default()
    };
    initiator.send(&mut rig, &snack, b"");
    let unknown = Snack {
        head: Head::new(0x1f, 0x80),
        ..Snack::default()
    };
    initiator.send(&mut rig, &unknown, b"");
    let login = Snack {
        head: Head::new(opcode::LOGIN, 0x80),
        ..Snack::default()
    };
    initiator.send(&mut rig, &login, b"");
    assert_eq!(rejected(&rig.receive(initiator.id)), [3, 5, 4]);
    assert!(initiator.read(&mut rig, 0, 1).is_good());
    let mut header = initiator.command(&ten(0x2a, 0, 1), (0, 512));
    header.head.data_bytes = [0xff, 0xff, 0xff];
    let bytes = zerocopy::IntoBytes::as_bytes(&header).to_vec();
    rig.send_bytes(initiator.id, bytes);
    assert_eq!(rig.ended.get(&initiator.id), Some(&Ended::Aborted));
    let stranger = rig.connect_from("127.0.0.1:5");
    let snack = encode(&snack, Payload::new(), Digests::default()).to_bytes();
    rig.send_bytes(stranger, snack);
    assert_eq!(rig.ended.get(&stranger), Some(&Ended::Aborted));
}

/// Goal: who does not take his answers is not read from, nor is anything read for him.
#[test]
fn slow_readers_are_held_back() {
    let mut rig = Rig::with(IscsiConfig {
        limits: IscsiLimits {
            unsent_bytes_max: 10_000,
            ..IscsiLimits::default()
        },
        ..IscsiConfig::default()
    });
    let mut initiator = Initiator::ready(&mut rig, 1);
    rig.is_reading = false;
    let ping = NopOut {
        head: Head::new(opcode::NOP_OUT | 0x40, 0x80),
        task_tag: 3.into(),
        transfer_tag: NO_TAG.into(),
        ..NopOut::default()
    };
    for _ in 0..200 {
        initiator.send(&mut rig, &ping, &[0; 200]);
    }
    assert_eq!(rig.paused.get(&initiator.id), Some(&true));
    let pongs = rig.receive(initiator.id).len();
    assert!((40..60).contains(&pongs), "{pongs}");
    initiator.ask(&mut rig, &ten(0x28, 0, 1), (512, 0), b"");
    assert!(rig.asked.is_empty());
    rig.is_reading = true;
    rig.give(crossdock_iscsi::IscsiInput::Sent(initiator.id, 100_000));
    assert_eq!(rig.paused.get(&initiator.id), Some(&false));
    assert_eq!(rig.asked.len(), 1);
}

/// Goal: what commands hold is bounded: writes beyond it are told so, reads wait.
#[test]
fn memory_is_bounded() {
    let mut rig = Rig::with(IscsiConfig {
        limits: IscsiLimits {
            held_bytes_max: 8192,
            ..IscsiLimits::default()
        },
        ..IscsiConfig::default()
    });
    let mut initiator = Initiator::ready(&mut rig, 1);
    let first = initiator.ask(&mut rig, &ten(0x2a, 0, 12), (0, 6144), b"");
    let second = initiator.ask(&mut rig, &ten(0x2a, 20, 12), (0, 6144), b"");
    assert_eq!(Done::of(second, rig.receive(initiator.id)).status, 0x28);
    initiator.ask(&mut rig, &ten(0x28, 100, 12), (6144, 0), b"");
    assert!(rig.asked.is_empty(), "it waits for room");
    initiator.manage(
        &mut rig,
        crossdock_iscsi_pdu::TaskFunction::AbortTask,
        first,
    );
    assert_eq!(rig.asked.len(), 1);
    rig.answer_all();
    assert_eq!(rig.door.figures().held_bytes, 0);
}

/// Goal: garbage behind a login, cut anywhere, never makes the door fail, and nothing of a
/// dead connection is left.
#[test]
fn garbage_is_survived() {
    let mut state = 1u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u32
    };
    for _ in 0..300 {
        let mut rig = Rig::new();
        let mut initiator = Initiator::ready(&mut rig, 1);
        for _ in 0..20 {
            let cdb: Vec<u8> = (0..16).map(|_| next().to_le_bytes()[0]).collect();
            let mut header = initiator.command(&cdb, (next() % 2048, next() % 2048));
            let code = [0x01, 0x05, 0x02, 0x04, 0x00, 0x06, 0x10, 0x41][next() as usize % 8];
            header.head.opcode = code;
            if next() % 2 == 0 {
                header.cdb[0] = crossdock_scsi::OPCODES[next() as usize % 50].code;
                header.cdb[1] = 0;
            }
            if next() % 4 == 0 {
                header.head.flags = next().to_le_bytes()[0];
            }
            let data = vec![next().to_le_bytes()[0]; next() as usize % 600];
            initiator.send(&mut rig, &header, &data);
            if next() % 3 == 0 {
                rig.answer_all();
            }
        }
        rig.answer_all();
        rig.give(crossdock_iscsi::IscsiInput::Closed(initiator.id));
        rig.answer_all();
        let figures = rig.door.figures();
        assert_eq!(
            (figures.tasks, figures.held_bytes, figures.sessions),
            (0, 0, 0)
        );
    }
}
