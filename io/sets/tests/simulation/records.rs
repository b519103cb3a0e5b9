//! Records of a parity log that power leaves: of two of the same block the older one does not
//! outlive the newer one, whichever of what was being written over them came to the disk.
//!
//! It would say of a cell that it was not changed which was, and a start without another disk would
//! make that one's bytes of it (seed 6784 of an earlier order of requests).

use crossdock_disk::DiskOperation;
use crossdock_sets::Kind;
use crossdock_sim::random::Random;
use crossdock_types::Time;

use crate::model::content;
use crate::rig::{BLOCK, GEOMETRY, Rig, Shape, Slot, fresh_slots};

const MEMBERS: usize = 4;
const CELLS: u64 = MEMBERS as u64 - 1;

/// Blocks of a cell.
const ROWS: u64 = GEOMETRY.chunk_bytes as u64 / BLOCK;

/// The first block of a cell, in the space.
const fn first_of(stripe: u64, cell: u64) -> u64 {
    (stripe * CELLS + cell) * ROWS
}

fn write(rig: &mut Rig, block: u64, tag: u64) {
    rig.write(block, vec![content(block, tag)])
        .expect("a write");
    rig.finish(DiskOperation::Flush).expect("a flush");
}

/// Which disk has the first block of a cell: the one that differs when that is written.
fn disk_of(rig: &Rig, bytes: &[u8]) -> Option<usize> {
    let is_it = |slot: &Slot| match slot {
        Slot::Good(disk) => {
            let mut found = vec![0; bytes.len()];
            (0..rig.shape.stripes).any(|stripe| {
                let at = GEOMETRY.data_offset() + stripe * u64::from(GEOMETRY.chunk_bytes);
                disk.peek(at, &mut found);
                found == bytes
            })
        }
        _ => false,
    };
    rig.slots.iter().position(is_it)
}

fn run(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let shape = Shape {
        sets: vec![(Kind::Parity, MEMBERS)],
        spares: 0,
        stripes: 40,
    };
    let slots = fresh_slots(&shape, &mut random);
    let mut rig = Rig::start(shape.clone(), slots, Time::default(), &mut random)?;
    let length_bytes = first_of(32, 0) * BLOCK;
    rig.finish(DiskOperation::Grow { length_bytes })
        .map_err(|error| error.to_string())?;
    // Parity of each fourth stripe is on the same disk, whose log has six slots.
    let kept = first_of(0, 0);
    let bytes = content(kept, 1);
    write(&mut rig, kept, 1);
    let lost = disk_of(&rig, &bytes).ok_or("it is on no disk")?;
    for stripe in 1..4 {
        write(&mut rig, first_of(4 * stripe, 0), 2);
    }
    // One that says that the second cell is changed, and that the third one is not; and one of the
    // opposite.
    write(&mut rig, first_of(0, 1), 3);
    write(&mut rig, first_of(0, 2), 4);
    for stripe in 1..5 {
        write(&mut rig, first_of(4 * stripe, 1), 5);
    }
    // What is written over both is on its way when power fails, and a disk with it.
    for stripe in [5, 6] {
        let block = first_of(4 * stripe, 0);
        rig.submit(DiskOperation::Write {
            offset_bytes: block * BLOCK,
            pieces: vec![content(block, 6)],
            is_durable: false,
        });
    }
    for _ in 0..random.below(12) {
        rig.step();
    }
    let now = rig.now;
    let mut slots = rig.crash(&mut random);
    slots[lost] = Slot::Gone;
    let mut rig = Rig::start(shape, slots, now, &mut random)?;
    for (block, tag) in [(kept, 1), (first_of(0, 1), 3), (first_of(0, 2), 4)] {
        if rig.read(block, 1)? != content(block, tag) {
            return Err(format!("block {block} is lost"));
        }
    }
    Ok(())
}

/// Goal: a block that was flushed long ago is read back without its disk.
#[test]
fn old_records_do_not_outlive_newer_ones() {
    let lost = (0..400).filter_map(|seed| run(seed).err().map(|what| (seed, what)));
    let lost: Vec<(u64, String)> = lost.collect();
    assert_eq!(lost, []);
}
