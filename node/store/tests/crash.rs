//! Random histories with crashes at any moment, beside a model.
//!
//! Per block the model keeps what an acknowledged stable operation left, and
//! every later content that was not acknowledged: a crash may leave any of
//! them, but per block never a mix, and nothing older.

mod rig;

use std::collections::BTreeMap;

use crossdock_names::Incarnation;
use crossdock_peer::{CallId, NodeAnswer, NodeError, NodeRequest};
use crossdock_sim::random::Random;
use crossdock_store::StoreConfig;
use rig::*;

const OBJECTS: u64 = 3;
const BYTES_MAX: usize = 300_000;
const BLOCKS: usize = BYTES_MAX.div_ceil(BLOCK);

/// One operation that was sent, in order.
#[derive(Clone, Debug)]
struct Step {
    call: CallId,
    change: Change,
    is_durable: bool,
    is_answered: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Write {
        offset: usize,
        bytes: Vec<u8>,
        is_stable: bool,
    },
    Zero {
        offset: usize,
        length: usize,
    },
    Truncate {
        size: usize,
    },
}

/// What an object may hold: its steps since the last moment when all was durable.
#[derive(Clone, Debug, Default)]
struct Model {
    base: Vec<u8>,
    steps: Vec<Step>,
}

impl Model {
    fn current(&self) -> Vec<u8> {
        let mut bytes = self.base.clone();
        for step in &self.steps {
            step.change.apply(&mut bytes);
        }
        bytes
    }

    /// Everything up to and with this step is durable.
    fn mark(&mut self, last: usize) {
        for step in &mut self.steps[..=last] {
            step.is_durable = true;
        }
    }

    fn acknowledged(&mut self, call: CallId) {
        if let Some(step) = self.steps.iter_mut().find(|step| step.call == call) {
            step.is_answered = true;
            step.is_durable |= !matches!(
                step.change,
                Change::Write {
                    is_stable: false,
                    ..
                }
            );
        }
        // What is durable from the first step on needs no alternatives.
        while self.steps.first().is_some_and(|step| step.is_durable) {
            let step = self.steps.remove(0);
            step.change.apply(&mut self.base);
        }
    }

    /// Whether each block of `found` is one that some subset of the steps
    /// leaves: all durable ones, and any of the others, in order.
    fn check(&self, found: &[u8]) -> Result<(), String> {
        for block in 0..BLOCKS {
            let range = block * BLOCK..(block + 1) * BLOCK;
            let cut = |bytes: &[u8]| {
                let mut piece = vec![0u8; BLOCK];
                let end = range.end.min(bytes.len());
                if range.start < end {
                    piece[..end - range.start].copy_from_slice(&bytes[range.start..end]);
                }
                piece
            };
            let mut possible = vec![cut(&self.base)];
            for step in &self.steps {
                let mut next = Vec::new();
                for piece in &possible {
                    let mut changed = piece.clone();
                    step.change.apply_to_block(block, &mut changed);
                    if !step.is_durable {
                        next.push(piece.clone());
                    }
                    next.push(changed);
                }
                next.sort();
                next.dedup();
                possible = next;
                if possible.len() > 512 {
                    return Ok(()); // Too many to tell.
                }
            }
            if !possible.contains(&cut(found)) {
                let possible: Vec<_> = possible.iter().map(|piece| runs(piece)).collect();
                return Err(format!(
                    "block {block} is {:?}, possible are {possible:?}",
                    runs(&cut(found)),
                ));
            }
        }
        Ok(())
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write {
                offset, bytes: new, ..
            } => {
                let end = offset + new.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(new);
            }
            Self::Zero { offset, length } => {
                let end = (offset + length).min(bytes.len());
                if *offset < end {
                    bytes[*offset..end].fill(0);
                }
            }
            Self::Truncate { size } => bytes.resize(*size, 0),
        }
    }

    fn apply_to_block(&self, block: usize, piece: &mut [u8]) {
        let start = block * BLOCK;
        let mut fill = |from: usize, to: usize, source: Option<&[u8]>| {
            let (a, b) = (from.max(start), to.min(start + BLOCK));
            if a < b {
                match source {
                    Some(source) => {
                        piece[a - start..b - start].copy_from_slice(&source[a - from..b - from])
                    }
                    None => piece[a - start..b - start].fill(0),
                }
            }
        };
        match self {
            Self::Write { offset, bytes, .. } => fill(*offset, offset + bytes.len(), Some(bytes)),
            Self::Zero { offset, length } => fill(*offset, offset + length, None),
            Self::Truncate { size } => fill(*size, BYTES_MAX * 2, None),
        }
    }
}

fn small_config(boot: u64) -> StoreConfig {
    StoreConfig {
        journal_bytes: 512 << 10,
        growth_bytes: 1 << 20,
        cache_bytes: 256 << 10,
        dirty_bytes_max: 1 << 20,
        map_entries_max: 8,
        ..StoreConfig::new(NODE, Incarnation(boot), 8 << 20)
    }
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let mut rig = Rig::open(Disks::new(seed), small_config(1));
    let mut models: BTreeMap<u64, Model> = BTreeMap::new();
    let mut version = 1;
    for number in 0..OBJECTS {
        assert!(rig.call(create(object(number), version)).is_ok());
        models.insert(number, Model::default());
    }
    for _life in 0..3 {
        for _ in 0..random.between(5, 60) {
            version += 1;
            one_step(&mut rig, &mut random, &mut models, version, seed);
        }
        collect(&mut rig, &mut models);
        rig = rig.crash(&mut random);
        for (number, model) in &mut models {
            let found = rig
                .read(object(*number), 0, 1 << 20)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if let Err(what) = model.check(&found) {
                panic!("seed {seed}, object {number}: {what}");
            }
            // Commit, so that what was found is the base from now on.
            *model = Model {
                base: found,
                steps: Vec::new(),
            };
        }
    }
}

fn one_step(
    rig: &mut Rig,
    random: &mut Random,
    models: &mut BTreeMap<u64, Model>,
    version: u64,
    seed: u64,
) {
    let number = random.below(OBJECTS);
    let id = object(number);
    let kind = random.below(100);
    let offset = random.index(BYTES_MAX - 1);
    let length = match random.below(3) {
        0 => random.index(200) + 1,
        1 => random.index(10_000) + 1,
        _ => random.index(150_000) + 1,
    };
    let length = length.min(BYTES_MAX - offset);
    let offset = if random.coin() {
        offset / BLOCK * BLOCK
    } else {
        offset
    };
    let fill = u8::try_from(version % 251 + 1).expect("below 252");
    let (request, change) = match kind {
        0..=69 => {
            let is_stable = random.coin();
            let bytes = vec![fill; length];
            let request = write(id, offset as u64, bytes.clone(), is_stable, version);
            (
                request,
                Change::Write {
                    offset,
                    bytes,
                    is_stable,
                },
            )
        }
        70..=76 => (
            zero(id, offset as u64, length as u64, version),
            Change::Zero { offset, length },
        ),
        77..=82 => (
            truncate(id, offset as u64, version),
            Change::Truncate { size: offset },
        ),
        83..=88 => {
            let model = models.get_mut(&number).expect("there");
            let last = model.steps.len();
            let outcome = rig.call(commit(id, rig.config.boot));
            collect(rig, models);
            match outcome {
                Ok(NodeAnswer::Committed) if last > 0 => {
                    let model = models.get_mut(&number).expect("there");
                    let last = model.steps.len().min(last);
                    if last > 0 {
                        model.mark(last - 1);
                        model.acknowledged(CallId(0));
                    }
                }
                Ok(_) | Err(NodeError::Busy { .. }) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
            return;
        }
        89..=94 => {
            collect(rig, models);
            if models[&number].steps.iter().any(|step| !step.is_answered) {
                return; // A read may overtake a write that waits for room.
            }
            let found = rig
                .read(id, 0, 1 << 20)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            collect(rig, models);
            let expected = models[&number].current();
            assert!(
                found == expected,
                "seed {seed}: object {number} reads otherwise than written: {:?}",
                found
                    .iter()
                    .zip(&expected)
                    .position(|(a, b)| a != b)
                    .or(Some(found.len()))
            );
            return;
        }
        95..=97 => {
            for _ in 0..random.below(30) {
                rig.step();
            }
            return;
        }
        _ => {
            rig.wait(random.below(12));
            return;
        }
    };
    let call = rig.send(request);
    let model = models.get_mut(&number).expect("there");
    model.steps.push(Step {
        call,
        change,
        is_durable: false,
        is_answered: false,
    });
    for _ in 0..random.below(6) {
        rig.step();
    }
    collect(rig, models);
}

fn collect(rig: &mut Rig, models: &mut BTreeMap<u64, Model>) {
    for reply in rig.replies.drain(..) {
        if let Err(error) = &reply.outcome {
            panic!("{error}");
        }
        for model in models.values_mut() {
            model.acknowledged(reply.id);
        }
    }
}

/// Goal: invariant 1, and that no block is ever a mix.
#[test]
fn acknowledged_bytes_survive_crashes() {
    let from = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = std::env::var("SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(150);
    match from {
        Some(seed) => run(seed),
        None => (0..seeds).for_each(run),
    }
}

/// Goal: what was removed stays removed, and its blocks show nowhere.
#[test]
fn removals_survive_crashes() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut rig = Rig::open(Disks::new(seed), small_config(1));
        let mut version = 1;
        for _ in 0..4 {
            for number in 0..6 {
                version += 1;
                let _ = rig.send(create(object(number), version));
                let _ = rig.send(write(object(number), 0, vec![1; 70_000], true, version));
            }
            for _ in 0..random.below(60) {
                rig.step();
            }
            let removed = rig.call(remove(object(random.below(6)), version));
            assert!(removed.is_ok());
            rig.replies.clear();
            rig = rig.crash(&mut random);
        }
        for number in 0..6 {
            assert!(
                rig.call(NodeRequest::Remove {
                    object: object(number),
                    context: context(),
                    order: given(version)
                })
                .is_ok()
            );
        }
        rig.wait(60);
        assert_eq!(rig.store.status().allocated_bytes, 0, "seed {seed}");
    }
}

fn runs(bytes: &[u8]) -> Vec<(usize, u8)> {
    let mut runs: Vec<(usize, u8)> = Vec::new();
    for byte in bytes {
        match runs.last_mut() {
            Some((count, last)) if last == byte => *count += 1,
            _ => runs.push((1, *byte)),
        }
    }
    runs
}
