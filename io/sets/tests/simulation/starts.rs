//! Which disks are refused when a node starts, and what it says.

use crossdock_disk::{Disk, DiskOperation, DiskRequest, DiskToken};
use crossdock_sets::{AssembleError, Kind};
use crossdock_sim::random::Random;
use crossdock_types::{AlignedBuffer, Time};

use crate::rig::{BLOCK, Rig, Shape, Slot, fresh_slots, try_assemble};

fn mirror() -> Shape {
    Shape {
        sets: vec![(Kind::Mirror, 2)],
        spares: 0,
        stripes: 20,
    }
}

/// Sets that were made, and their disks.
fn made(shape: &Shape, random: &mut Random) -> Vec<Slot> {
    let slots = fresh_slots(shape, random);
    let mut rig = Rig::start(shape.clone(), slots, Time::default(), random).expect("blank disks");
    let grow = DiskOperation::Grow {
        length_bytes: 8 * BLOCK,
    };
    rig.finish(grow).expect("to grow");
    rig.settle();
    rig.slots
}

/// Goal: a disk with anything else on it is not taken.
#[test]
fn a_foreign_disk_is_refused() {
    let mut random = Random::new(1);
    let mut slots = fresh_slots(&mirror(), &mut random);
    if let Slot::Good(disk) = &mut slots[1] {
        let mut content = AlignedBuffer::zeroed(4096);
        content[1080] = 0x53;
        let operation = DiskOperation::Write {
            offset_bytes: 0,
            pieces: vec![content.freeze()],
            is_durable: true,
        };
        let token = DiskToken(1);
        disk.submit(DiskRequest { token, operation });
        disk.step();
    }
    let refused = try_assemble(&mirror(), &slots, &mut random).expect_err("foreign");
    assert_eq!(refused, AssembleError::Foreign("disk1".to_owned()));
}

/// Goal: disks of other nodes, and sets of another shape, are refused.
#[test]
fn disks_of_others_are_refused() {
    let mut random = Random::new(2);
    let mut ours = made(&mirror(), &mut random);
    let mut others = made(&mirror(), &mut random);
    std::mem::swap(&mut ours[1], &mut others[1]);
    let refused = try_assemble(&mirror(), &ours, &mut random).expect_err("of others");
    assert!(
        matches!(refused, AssembleError::OtherPool { .. }),
        "{refused}"
    );

    let two = Shape {
        sets: vec![(Kind::Mirror, 2), (Kind::Mirror, 2)],
        ..mirror()
    };
    let slots = made(&two, &mut random);
    let other = Shape {
        sets: vec![(Kind::Stripe, 2), (Kind::Mirror, 2)],
        ..two.clone()
    };
    let refused = try_assemble(&other, &slots, &mut random).expect_err("another kind");
    assert!(
        matches!(refused, AssembleError::OtherShape { .. }),
        "{refused}"
    );
    try_assemble(&two, &slots, &mut random).expect("as they were made");
}

/// Goal: too many missing is an error, and one missing is not.
#[test]
fn what_lacks_too_much_is_refused() {
    let shape = Shape {
        sets: vec![(Kind::Parity, 4)],
        ..mirror()
    };
    let mut random = Random::new(3);
    let mut slots = made(&shape, &mut random);
    slots[1] = Slot::Gone;
    let assembled = try_assemble(&shape, &slots, &mut random).expect("one may lack");
    assert!(
        assembled.notes[0].contains("without disk 1"),
        "{:?}",
        assembled.notes
    );
    slots[2] = Slot::Gone;
    let refused = try_assemble(&shape, &slots, &mut random).expect_err("two lack");
    assert!(refused.to_string().contains("disk1"), "{refused}");
}

/// Goal: a disk that was missing for a while is old, and not used; two that were used one
/// without the other are told apart by nobody but an administrator.
#[test]
fn stale_disks_are_not_used() {
    let shape = mirror();
    let mut random = Random::new(4);
    let mut slots = made(&shape, &mut random);
    let away = std::mem::replace(&mut slots[1], Slot::Gone);
    let mut rig = Rig::start(shape.clone(), slots, Time::default(), &mut random).expect("one");
    rig.settle();
    let mut slots = rig.slots;
    slots[1] = away;
    let assembled = try_assemble(&shape, &slots, &mut random).expect("the newer one");
    assert!(
        assembled.notes[0].contains("is old"),
        "{:?}",
        assembled.notes
    );
    assert_eq!(assembled.disks().count(), 1);

    // The other one alone, too.
    let first = std::mem::replace(&mut slots[0], Slot::Gone);
    let mut rig = Rig::start(shape.clone(), slots, Time::default(), &mut random).expect("one");
    rig.settle();
    let mut slots = rig.slots;
    slots[0] = first;
    let refused = try_assemble(&shape, &slots, &mut random).expect_err("both are right");
    assert!(
        matches!(refused, AssembleError::Diverged { .. }),
        "{refused}"
    );
}

/// Goal: sets that are named later make the space longer; what is there stays.
#[test]
fn a_set_is_added() {
    let mut random = Random::new(5);
    let mut shape = mirror();
    let slots = made(&shape, &mut random);
    let mut rig = Rig::start(shape.clone(), slots, Time::default(), &mut random).expect("one");
    let before = rig.machine.capacity_bytes();
    let content = crate::model::content(3, 77);
    rig.write(3, vec![content.clone()]).expect("to write");
    rig.finish(DiskOperation::Flush).expect("to flush");
    rig.settle();
    let mut slots = rig.slots;
    shape.sets.push((Kind::Parity, 3));
    slots.extend(fresh_slots(&shape, &mut random).into_iter().take(3));
    let mut rig = Rig::start(shape, slots, Time::default(), &mut random).expect("one more");
    assert!(rig.machine.capacity_bytes() > before);
    assert_eq!(rig.read(3, 1).expect("to read"), content);
    let all = rig.machine.capacity_bytes();
    let grow = DiskOperation::Grow { length_bytes: all };
    rig.finish(grow).expect("to grow");
    let last = all / BLOCK - 1;
    let content = crate::model::content(last, 78);
    rig.write(last, vec![content.clone()]).expect("to write");
    assert_eq!(rig.read(last, 1).expect("to read"), content);
    rig.settle();
    rig.check_members().expect("they agree");
}
