//! Copies and parity that nobody reads: what one disk holds other than it was written is found
//! and mended, wherever it lies; then any other disk may be lost.

use std::collections::BTreeMap;

use crossdock_disk::{DiskError, DiskOperation};
use crossdock_sets::{Kind, SetsEvent};
use crossdock_sim::random::Random;
use crossdock_types::{AlignedBuffer, Time};

use crate::Run;
use crate::model::Model;
use crate::rig::{BLOCK, Rig, Shape, Slot, fresh_slots};

fn shape(random: &mut Random) -> Shape {
    let sets = [
        (Kind::Mirror, 2),
        (Kind::Mirror, 3),
        (Kind::Parity, 3),
        (Kind::Parity, 5),
    ];
    Shape {
        sets: vec![sets[random.index(4)], sets[random.index(4)]],
        spares: 0,
        stripes: random.between(20, 40),
    }
}

/// What whoever knows the space does meanwhile: reads all of it, and mends what is wrong.
fn mend_what_is_read(run: &mut Run, rig: &mut Rig) -> Result<u64, String> {
    let mut mended = 0;
    for block in 0..run.model.blocks() {
        let read = rig.read(block, 1)?;
        if run.model.check(block, &read, true).is_ok() {
            continue;
        }
        mended += 1;
        let mut attempt = 1;
        let right = loop {
            match rig.read_other(block, attempt) {
                Ok(other) if run.model.check(block, &other, true).is_ok() => break other,
                Err(DiskError::NoOther) => return Err(format!("block {block} is lost")),
                _ => attempt += 1,
            }
        };
        let right = AlignedBuffer::padded_from(&right).freeze();
        rig.write(block, vec![right])?;
    }
    Ok(mended)
}

/// The number that an event tells which one is looked for.
fn told(rig: &mut Rig, pick: impl Fn(&SetsEvent) -> Option<u64>) -> Result<u64, String> {
    rig.settle();
    let found = rig.events.iter().find_map(pick);
    rig.events.clear();
    found.ok_or_else(|| "nothing is told".to_owned())
}

fn compare(rig: &mut Rig) -> Result<u64, String> {
    let begun = rig.machine.begin_comparing(rig.now);
    begun.map_err(|error| error.to_string())?;
    rig.carry();
    told(rig, |event| match event {
        SetsEvent::Compared { differing } => Some(*differing),
        _ => None,
    })
}

fn agree(rig: &mut Rig) -> Result<u64, String> {
    rig.machine.agree(rig.now);
    rig.carry();
    told(rig, |event| match event {
        SetsEvent::Agreed { blocks } => Some(*blocks),
        _ => None,
    })
}

/// How many blocks were read wrong, and how many that nobody reads.
fn run(seed: u64) -> Result<(u64, u64), String> {
    let mut random = Random::new(seed);
    let shape = shape(&mut random);
    let slots = fresh_slots(&shape, &mut random);
    let mut run = Run {
        random: random.fork(),
        model: Model::default(),
        asked: BTreeMap::new(),
        is_growing: false,
    };
    let mut rig = Rig::start(shape, slots, Time::default(), &mut random)?;
    let length_bytes = rig.machine.capacity_bytes();
    rig.finish(DiskOperation::Grow { length_bytes })
        .map_err(|error| error.to_string())?;
    run.model.grow(length_bytes / BLOCK);
    // With clients at work nothing differs, and nothing is held up for good.
    let begun = rig.machine.begin_comparing(rig.now);
    begun.map_err(|error| error.to_string())?;
    rig.carry();
    for _ in 0..random.between(100, 600) {
        if run.asked.len() < 8 && random.coin() {
            run.ask(&mut rig);
        }
        rig.step();
        run.take_completions(&mut rig)?;
    }
    run.drain(&mut rig)?;
    rig.settle();
    let is_odd = |event: &SetsEvent| !matches!(event, SetsEvent::Compared { differing: 0 });
    if rig.events.len() != 1 || rig.events.iter().any(is_odd) {
        return Err(format!("under load: {:?}", rig.events));
    }
    rig.events.clear();
    rig.finish(DiskOperation::Flush)
        .map_err(|error| error.to_string())?;
    if agree(&mut rig)? != 0 {
        return Err("what was the same was written".to_owned());
    }

    let victim = random.index(rig.slots.len());
    if let Slot::Good(disk) = &mut rig.slots[victim] {
        for _ in 0..random.between(1, 40) {
            disk.flip_bit();
        }
    }
    let differing = compare(&mut rig)?;
    let mended = mend_what_is_read(&mut run, &mut rig)?;
    let agreed = agree(&mut rig)?;
    if differing < mended || agreed > differing {
        return Err(format!(
            "{differing} differed, {mended} were mended, {agreed} made the same"
        ));
    }
    if compare(&mut rig)? != 0 {
        return Err("not all of it was found".to_owned());
    }
    agree(&mut rig)?;
    rig.check_members()?;
    // Now the others are not needed any more.
    let other = (victim + 1 + random.index(rig.slots.len() - 1)) % rig.slots.len();
    rig.kill(other);
    for block in 0..run.model.blocks() {
        let read = rig.read(block, 1)?;
        run.model.check(block, &read, true)?;
    }
    Ok((mended, agreed))
}

/// Goal: as above, for any disk and any places. `SETS_SEED` runs one seed.
#[test]
fn what_nobody_reads_is_found_and_mended() {
    if let Ok(seed) = std::env::var("SETS_SEED") {
        let seed = seed.parse().expect("a number");
        assert_eq!(run(seed).err(), None);
        return;
    }
    let (mut mended, mut agreed) = (0, 0);
    let mut failed = Vec::new();
    for seed in 0..200 {
        match run(seed) {
            Ok(found) => {
                mended += found.0;
                agreed += found.1;
            }
            Err(what) => failed.push(format!("seed {seed}: {what}")),
        }
    }
    failed.truncate(10);
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(mended > 200 && agreed > 200, "{mended} and {agreed}");
}
