//! The manager dies after every single message: what was acknowledged is
//! there, and the state is the one after some prefix of the operations.

mod rig;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{FileRef, NodeId, ObjectClass, SiteId};
use crossdock_peer::{AttributeChanges, OpenFor, SiteAnswer, SiteError, SiteOperation, Stability};
use crossdock_site::{OpenError, SiteLimits};
use crossdock_smallfile::SmallFilesConfig;

use rig::{READ, ROOT, Rig, create, once, plain, remove, write};

/// A small generator, so that a failure names its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

/// An operation on the files of one directory, by name.
#[derive(Clone, Debug)]
enum Step {
    Create(u64),
    Remove(u64),
    Rename(u64, u64),
    /// Content of that length, made of that byte, at the front.
    Write(u64, u8, usize),
    Cut(u64, u64),
    /// Makes columns and sets a size.
    Grow(u64),
}

/// Name → content, and whether it has columns.
type Files = BTreeMap<u64, (Vec<u8>, bool)>;

const NAMES: u64 = 4;
const GROWN_BYTES: u64 = 1 << 20;

fn script(random: &mut Random, length: usize, bytes_max: u64) -> Vec<Step> {
    (0..length)
        .map(|_| match random.below(12) {
            0..=3 => Step::Create(random.below(NAMES)),
            4..=5 => Step::Remove(random.below(NAMES)),
            6 => Step::Rename(random.below(NAMES), random.below(NAMES)),
            7..=9 => {
                let byte = u8::try_from(random.below(255)).expect("a byte") + 1;
                let length = usize::try_from(random.below(bytes_max)).expect("small") + 1;
                Step::Write(random.below(NAMES), byte, length)
            }
            10 => Step::Cut(random.below(NAMES), random.below(3000)),
            _ => Step::Grow(random.below(NAMES)),
        })
        .collect()
}

/// What the step does to the model; whether it does anything.
fn apply(files: &mut Files, step: &Step) -> bool {
    match step {
        Step::Create(name) => {
            let free = !files.contains_key(name);
            if free {
                files.insert(*name, (Vec::new(), false));
            }
            free
        }
        Step::Remove(name) => files.remove(name).is_some(),
        Step::Rename(from, to) => match files.remove(from) {
            Some(file) => {
                files.insert(*to, file);
                true
            }
            None => false,
        },
        Step::Write(name, byte, length) => {
            let Some((content, _)) = files.get_mut(name) else {
                return false;
            };
            if content.len() < *length {
                content.resize(*length, 0);
            }
            content[..*length].fill(*byte);
            true
        }
        Step::Cut(name, size) => {
            let Some((content, _)) = files.get_mut(name) else {
                return false;
            };
            content.resize(usize::try_from(*size).expect("small"), 0);
            true
        }
        Step::Grow(name) => {
            let Some((content, grown)) = files.get_mut(name) else {
                return false;
            };
            *grown = true;
            let size = usize::try_from(GROWN_BYTES).expect("small");
            content.resize(content.len().max(size), 0);
            true
        }
    }
}

/// Where a site is asked about names.
struct Client {
    rig: Rig,
    /// The files as they are after all steps that were sent.
    files: BTreeMap<u64, FileRef>,
}

impl Client {
    fn new(limits: SiteLimits) -> Self {
        // Every free block goes back to the nodes.
        let small_files = SmallFilesConfig {
            return_bytes_min: 0,
            ..SmallFilesConfig::new(SiteId(0))
        };
        Self {
            rig: Rig::with(limits, small_files),
            files: BTreeMap::new(),
        }
    }

    fn lookup(&mut self, name: u64) -> Result<FileRef, SiteError> {
        self.rig.lookup(&name.to_string())
    }

    /// The requests that make a step, given the file that has the name.
    fn requests(step: &Step, file: Option<FileRef>) -> Vec<SiteOperation> {
        let text = |name: &u64| Bytes::from(name.to_string());
        match step {
            Step::Create(name) => vec![create(&name.to_string())],
            Step::Remove(name) => vec![remove(&name.to_string())],
            Step::Rename(from, to) => vec![SiteOperation::Rename {
                from_directory: ROOT,
                from_name: text(from),
                to_directory: ROOT,
                to_name: text(to),
            }],
            Step::Write(_, byte, length) => file
                .map(|file| write(file, 0, &vec![*byte; *length], Stability::Stable))
                .into_iter()
                .collect(),
            Step::Cut(_, size) => file
                .map(|file| SiteOperation::SetAttributes {
                    file,
                    changes: AttributeChanges {
                        size_bytes: Some(*size),
                        ..AttributeChanges::default()
                    },
                    guard: None,
                })
                .into_iter()
                .collect(),
            Step::Grow(_) => file
                .map(|file| {
                    let purpose = OpenFor::Write {
                        offset_bytes: 0,
                        end_bytes: GROWN_BYTES,
                    };
                    let push = SiteOperation::PushAttributes {
                        file,
                        size_at_least_bytes: GROWN_BYTES,
                        wrote: true,
                        read: false,
                        truncate_generation: u64::MAX,
                        stability: Stability::Stable,
                        written: None,
                        lease: None,
                    };
                    [
                        SiteOperation::Open {
                            file,
                            purpose,
                            holder: None,
                        },
                        push,
                    ]
                })
                .into_iter()
                .flatten()
                .collect(),
        }
    }

    /// What is there now, as the model has it.
    fn state(&mut self) -> Files {
        let mut files = Files::new();
        for name in 0..NAMES {
            let Ok(file) = self.lookup(name) else {
                continue;
            };
            let size = self.rig.attributes(file).size_bytes;
            let reply = self.rig.ask(SiteOperation::Read {
                file,
                offset_bytes: 0,
                length_bytes: 65536,
                patience_ms: 0,
            });
            let Ok(SiteAnswer::Read { payload, .. }) = reply.outcome else {
                panic!("{reply:?}");
            };
            let mut content = payload.to_bytes().to_vec();
            content.resize(usize::try_from(size).expect("small"), 0);
            let reply = self.rig.ask(SiteOperation::Open {
                file,
                purpose: READ,
                holder: None,
            });
            let Ok(SiteAnswer::Opened { layout, .. }) = reply.outcome else {
                panic!("{reply:?}");
            };
            files.insert(name, (content, layout.columns > 0));
        }
        files
    }

    /// Columns are there for living files that have them, and for no others.
    fn check_columns(&mut self) {
        let mut expected = Vec::new();
        for name in 0..NAMES {
            if let Ok(file) = self.lookup(name)
                && let Ok(cell) = self.rig.site.directory().cell(file)
                && cell.rare().segments > 0
            {
                expected.push(file.id.0);
            }
        }
        let mut there: Vec<u64> = self.rig.columns().iter().map(|id| id.placement).collect();
        there.sort_unstable();
        let mut columns: Vec<u64> = expected.iter().flat_map(|&id| [id; 3]).collect();
        columns.sort_unstable();
        assert_eq!(there, columns, "columns of living files");
        assert_eq!(self.rig.site.open_intentions(), 0);
    }

    /// The members' logs are equal from the first object that no member has
    /// dropped after a checkpoint.
    fn check_members(&self) {
        let log = |node: u64| -> BTreeMap<u32, Vec<u8>> {
            let objects = &self.rig.nodes[&NodeId(node)].objects;
            let log = objects
                .iter()
                .filter(|(id, _)| id.class == ObjectClass::SiteLog);
            log.map(|(id, object)| (id.segment, object.bytes.clone()))
                .collect()
        };
        let (one, two) = (log(1), log(2));
        let kept = |number: &u32| {
            let on = |log: &BTreeMap<u32, Vec<u8>>| {
                log.get(number).is_some_and(|bytes| !bytes.is_empty())
            };
            on(&one) && on(&two)
        };
        let Some(first) = one.keys().copied().find(kept) else {
            return; // A checkpoint has replaced all of it.
        };
        let differs = one
            .range(first..)
            .zip(two.range(first..))
            .find(|(left, right)| left != right)
            .map(|((number, _), _)| number);
        assert_eq!(differs, None, "a log object on which members differ");
    }
}

fn small_limits() -> SiteLimits {
    SiteLimits {
        segment_bytes_max: 3000,
        checkpoint_log_bytes_max: 4000,
        checkpoint_ratio_max: u64::MAX,
        checkpoint_chunk_bytes: 500,
        ..SiteLimits::default()
    }
}

/// Runs the steps one after the other until `deaths` messages were carried out;
/// then the manager dies. Returns whether it lived.
fn run_until(seed: u64, steps: &[Step], deaths: usize) -> bool {
    let mut client = Client::new(SiteLimits {
        // Freed space is reused, or goes back, at once.
        volatile_patience: if seed.is_multiple_of(2) {
            Duration::ZERO
        } else {
            SiteLimits::default().volatile_patience
        },
        ..small_limits()
    });
    client.rig.shuffle = seed; // 0 keeps the order.
    let mut model = Files::new();
    let mut budget = deaths;
    for (number, step) in steps.iter().enumerate() {
        let mut after = model.clone();
        let changes = apply(&mut after, step);
        let name = match step {
            Step::Create(name) | Step::Remove(name) | Step::Rename(name, _) => *name,
            Step::Write(name, ..) | Step::Cut(name, _) | Step::Grow(name) => *name,
        };
        let file = client.files.get(&name).copied();
        for operation in Client::requests(step, file) {
            let key = u8::try_from(number % 250).expect("a byte");
            let request = match operation {
                SiteOperation::Open { .. } | SiteOperation::PushAttributes { .. } => {
                    plain(operation)
                }
                operation => once(key, operation),
            };
            let id = client.rig.send(request.clone());
            while !client.rig.replies.contains_key(&id) {
                if budget == 0 {
                    let what = format!("seed {seed}, {deaths} messages, at {number}: {step:?}");
                    // One more arrives, but its answer does not.
                    client.rig.step_unanswered();
                    die_and_check(&mut client, &model, &after, &what);
                    return false;
                }
                budget -= 1;
                assert!(client.rig.step(), "stuck at {step:?}");
            }
            let reply = client.rig.replies.remove(&id).expect("there");
            assert_eq!(reply.outcome.is_ok(), changes, "{step:?}: {reply:?}");
            if let (Step::Create(name), Ok(answer)) = (step, &reply.outcome) {
                client.files.insert(*name, rig::found(answer));
            }
        }
        if changes {
            match step {
                Step::Remove(name) => drop(client.files.remove(name)),
                Step::Rename(from, to) => {
                    let file = client.files.remove(from).expect("there");
                    client.files.insert(*to, file);
                }
                _ => {}
            }
        }
        model = after;
    }
    client.rig.run();
    assert_eq!(client.state(), model, "seed {seed}");
    client.check_columns();
    true
}

fn die_and_check(client: &mut Client, model: &Files, after: &Files, what: &str) {
    client.rig.restart();
    assert!(
        matches!(client.rig.opened, Some(Ok(_))),
        "{what}: {:?}",
        client.rig.opened
    );
    client.check_members();
    let state = client.state();
    client.rig.run();
    // A step that makes columns and pushes a size may have done the first only.
    let grown = |files: &Files| -> Files {
        let both = files.iter();
        both.map(|(name, (content, _))| (*name, (content.clone(), false)))
            .collect()
    };
    let whole = state == *model || state == *after;
    let half = grown(&state) == grown(model);
    assert!(whole || half, "{what}: neither before nor after the step");
    client.check_columns();
    client.rig.restart();
    assert_eq!(client.state(), state, "{what}: a second restart");
}

fn crash_everywhere(seeds: std::ops::Range<u64>, bytes_max: u64) {
    for seed in seeds {
        let steps = script(&mut Random(seed), 32, bytes_max);
        let mut deaths = 0;
        while !run_until(seed, &steps, deaths) {
            deaths += 1;
        }
    }
}

/// Goal: with writes that are inlined in the log.
#[test]
fn a_death_after_any_message_loses_nothing_acknowledged() {
    crash_everywhere(0..12, 3000);
}

/// Goal: with writes that go to backing objects beside the log.
#[test]
fn a_death_between_log_and_bytes_loses_nothing_acknowledged() {
    crash_everywhere(100..112, 40_000);
}

/// Goal: a manager that dies while it opens the site leaves it to the next one.
#[test]
fn a_death_during_opening_loses_nothing() {
    for deaths in 0..120 {
        let mut rig = Rig::new(small_limits());
        for number in 0..40 {
            rig.create(&number.to_string());
        }
        let last = rig.send(plain(create("last")));
        rig.step_unanswered();
        assert!(!rig.replies.contains_key(&last));
        rig.begin_restart();
        for _ in 0..deaths {
            rig.step();
        }
        rig.step_unanswered();
        rig.restart();
        for number in 0..40 {
            let name = number.to_string();
            assert!(
                rig.lookup(&name).is_ok(),
                "{number} after {deaths} messages"
            );
        }
        assert!(rig.lookup("last").is_ok(), "one member had it");
    }
}

/// Goal: of operations sent without waiting, those that survive are the first
/// ones, and all that were acknowledged are among them.
#[test]
fn what_survives_is_a_prefix() {
    for seed in 0..10 {
        let mut random = Random(1000 + seed);
        let names: Vec<u64> = (0..60).map(|_| random.below(6)).collect();
        for deaths in (0..60).step_by(3) {
            // Checkpoints all the time, of states that are far ahead of the log.
            let mut rig = Rig::new(SiteLimits {
                checkpoint_log_bytes_max: 300,
                checkpoint_ratio_max: u64::MAX,
                checkpoint_chunk_bytes: 400,
                ..small_limits()
            });
            rig.shuffle = seed;
            let mut states = vec![Vec::new()];
            let mut calls = Vec::new();
            for name in &names {
                let mut next: Vec<u64> = states[states.len() - 1].clone();
                let operation = match next.iter().position(|known| known == name) {
                    Some(at) => {
                        next.remove(at);
                        remove(&name.to_string())
                    }
                    None => {
                        next.push(*name);
                        next.sort_unstable();
                        create(&name.to_string())
                    }
                };
                states.push(next);
                calls.push(rig.send(plain(operation)));
                if random.below(2) == 0 {
                    rig.step();
                }
            }
            for _ in 0..deaths {
                rig.step();
            }
            let acknowledged = calls
                .iter()
                .take_while(|id| rig.replies.contains_key(id))
                .count();
            let all = calls.iter().filter(|id| rig.replies.contains_key(id));
            assert_eq!(all.count(), acknowledged, "answered in order");
            rig.step_unanswered();
            rig.restart();
            let there: Vec<u64> = (0..6)
                .filter(|name| rig.lookup(&name.to_string()).is_ok())
                .collect();
            assert!(
                states[acknowledged..].contains(&there),
                "seed {seed}, {deaths} messages: {acknowledged} were acknowledged"
            );
        }
    }
}

/// Goal: a log that on one member is no log any more before its end is read from another
/// one; if no member has it, the site does not open as if there had been nothing.
#[test]
fn what_one_member_has_lost_of_the_log_another_one_has() {
    for (from, what) in [(0, 0), (200, 0), (700, 0xff)] {
        let mut rig = Rig::new(SiteLimits::default());
        for number in 0..40 {
            rig.create(&number.to_string());
        }
        let damage = |rig: &mut Rig, node: u64| {
            let objects = &mut rig.nodes.get_mut(&NodeId(node)).expect("a node").objects;
            let logs = objects.iter_mut();
            let mut logs = logs.filter(|(id, _)| id.class == ObjectClass::SiteLog);
            let (_, log) = logs
                .rfind(|(_, log)| log.bytes.len() > 1000)
                .expect("a log");
            log.bytes[from..].fill(what);
        };
        damage(&mut rig, 1);
        rig.restart();
        for number in 0..40 {
            let found = rig.lookup(&number.to_string());
            assert!(found.is_ok(), "{number}: {found:?}, {:?}", rig.opened);
        }
        damage(&mut rig, 2);
        rig.begin_restart();
        rig.run();
        let is_damage = matches!(rig.opened, Some(Err(OpenError::Damaged { .. })));
        assert!(is_damage, "{:?}", rig.opened);
    }
}
