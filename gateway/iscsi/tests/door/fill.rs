//! Data of writes that is received where a disk takes it.

use std::time::Duration;

use bytes::Bytes;
use crossdock_iscsi::IscsiInput;
use crossdock_iscsi_pdu::{DataOut, Head, NO_TAG, Response, encode, opcode};
use crossdock_peer::SiteOperation;
use crossdock_types::{BLOCK_BYTES, Payload, is_aligned};

use crate::rig::{BLOCK, Done, Initiator, Rig, ten};

/// Data of one PDU.
const DATA_BYTES: usize = 256 << 10;

/// All of a write of 1 MiB comes with the command and in one transfer.
const BURSTS: [(&str, &str); 2] = [
    ("FirstBurstLength", "262144"),
    ("MaxBurstLength", "1048576"),
];

fn pattern(bytes: usize) -> Bytes {
    (0..=250).cycle().take(bytes).collect()
}

/// Sends a PDU so that the first receive of it ends behind `cut` bytes.
fn send_cut(
    rig: &mut Rig,
    initiator: &Initiator,
    header: &(impl zerocopy::IntoBytes + zerocopy::Immutable),
    (data, cut): (Bytes, usize),
) {
    let bytes = encode(header, Payload::from(data), initiator.digests).to_bytes();
    rig.send_bytes(initiator.id, bytes.slice(..cut));
    assert!(rig.filling.contains_key(&initiator.id), "behind {cut}");
    rig.send_bytes(initiator.id, bytes.slice(cut..));
    assert!(!rig.filling.contains_key(&initiator.id));
}

/// Writes 1 MiB at a block, its data in four PDUs: with the command, and asked for.
fn write(rig: &mut Rig, initiator: &mut Initiator, lba: u32, cut: usize) -> u32 {
    let data = pattern(4 * DATA_BYTES);
    let part = |number: usize| data.slice(number * DATA_BYTES..(number + 1) * DATA_BYTES);
    let header = initiator.command(&ten(0x2a, lba, 2048), (0, 1 << 20));
    send_cut(rig, initiator, &header, (part(0), cut));
    let tag = header.task_tag.get();
    let answers = rig.receive(initiator.id);
    let Some((Response::Ready(ready), _)) = answers.first() else {
        panic!("no data is asked for");
    };
    for number in 1..4 {
        let offset = number * DATA_BYTES;
        let header = DataOut {
            head: Head::new(opcode::DATA_OUT, if number == 3 { 0x80 } else { 0 }),
            task_tag: tag.into(),
            transfer_tag: ready.transfer_tag,
            data_sn: u32::try_from(number - 1).expect("small").into(),
            offset: u32::try_from(offset).expect("small").into(),
            ..DataOut::default()
        };
        send_cut(rig, initiator, &header, (part(number), cut));
    }
    tag
}

/// Goal: wherever the first receive of a PDU ends, and with digests or without, blocks of the
/// unit are blocks in memory, and what is written is what was sent.
#[test]
fn blocks_of_the_unit_are_blocks_in_memory() {
    for digest in ["None", "CRC32C"] {
        let mut rig = Rig::new();
        let digests = [("HeaderDigest", digest), ("DataDigest", digest)];
        let pairs = [&BURSTS[..], &digests].concat();
        let mut initiator = Initiator::ready_with(&mut rig, 1, &pairs);
        for (lba, cut) in [(0, 52), (8, 512), (7, 52), (1003, 8192), (2048, 100_000)] {
            let tag = write(&mut rig, &mut initiator, lba, cut);
            let first = lba as usize * BLOCK;
            for call in &rig.asked {
                let SiteOperation::Write {
                    offset_bytes,
                    payload,
                    ..
                } = &call.request.operation
                else {
                    panic!("no write");
                };
                let mut at = usize::try_from(*offset_bytes).expect("small");
                for piece in payload.pieces() {
                    let behind = at.next_multiple_of(BLOCK_BYTES) - at;
                    let whole = (piece.len() - behind) / BLOCK_BYTES * BLOCK_BYTES;
                    assert!(is_aligned(&piece[behind..behind + whole]), "{lba} {cut}");
                    at += piece.len();
                }
            }
            rig.answer_all();
            assert!(Done::of(tag, rig.receive(initiator.id)).is_good());
            assert!(rig.content[first..first + (1 << 20)] == pattern(1 << 20));
        }
    }
}

/// Goal: data that belongs to nothing is not waited for in one piece, nor is what is short.
#[test]
fn only_data_of_writes_is_filled() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready(&mut rig, 1);
    let header = DataOut {
        head: Head::new(opcode::DATA_OUT, 0x80),
        task_tag: 77.into(),
        transfer_tag: NO_TAG.into(),
        ..DataOut::default()
    };
    let bytes = encode(&header, pattern(DATA_BYTES).into(), initiator.digests).to_bytes();
    rig.send_bytes(initiator.id, bytes.slice(..500));
    assert!(rig.filling.is_empty(), "of no task");
    rig.send_bytes(initiator.id, bytes.slice(500..));
    let header = initiator.command(&ten(0x2a, 0, 8), (0, 4096));
    let bytes = encode(&header, pattern(4096).into(), initiator.digests).to_bytes();
    rig.send_bytes(initiator.id, bytes.slice(..500));
    assert!(rig.filling.is_empty(), "short");
    rig.send_bytes(initiator.id, bytes.slice(500..));
    rig.answer_all();
    let tag = header.task_tag.get();
    assert!(Done::of(tag, rig.receive(initiator.id)).is_good());
}

/// Goal: an initiator whose line is slow has the time that its data takes, of which the door
/// hears nothing before all is there; one that has stopped is thrown out in the end.
#[test]
fn who_sends_slowly_is_not_taken_for_dead() {
    let mut rig = Rig::new();
    let mut initiator = Initiator::ready_with(&mut rig, 1, &BURSTS);
    let header = initiator.command(&ten(0x2a, 0, 512), (0, 256 << 10));
    let data = pattern(DATA_BYTES);
    let bytes = encode(&header, data.into(), initiator.digests).to_bytes();
    rig.send_bytes(initiator.id, bytes.slice(..500));
    let pass = |rig: &mut Rig, seconds| {
        for _ in 0..seconds {
            rig.now = rig.now + Duration::from_secs(1);
            rig.give(IscsiInput::Timeout);
        }
    };
    // 4 KiB a second: 64 s for the data, and what an idle one has.
    pass(&mut rig, 90);
    assert!(rig.ended.is_empty() && rig.receive(initiator.id).is_empty());
    pass(&mut rig, 10);
    assert!(matches!(
        rig.receive(initiator.id)[..],
        [(Response::Nop(_), _)]
    ));
    pass(&mut rig, 15);
    assert!(rig.ended.contains_key(&initiator.id));
}
