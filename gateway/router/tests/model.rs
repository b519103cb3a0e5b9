//! The router over a faulty site and faulty nodes in memory, beside a flat
//! `Vec<u8>`: random reads, writes, commits and truncates near threshold and
//! stripe edges; answers in random order; busy, unavailable and re-routed
//! holders; and crashes that lose every byte that was not made durable.
//!
//! The client does what RFC 1813 asks of it: it keeps unstable writes until a
//! COMMIT returns the verifier that they were answered with, and sends them
//! again if it does not. After that nothing may be lost (CONSISTENCY 6).

mod peers;

use std::time::Duration;

use bytes::Bytes;
use crossdock_names::{Incarnation, SMALL_FILE_THRESHOLD_BYTES, STRIPE_UNIT_BYTES};
use crossdock_peer::{
    AttributeChanges, Call, CallId, Caller, SiteAnswer, SiteError, SiteOperation, SiteRequest,
    Stability, WriterId,
};
use crossdock_router::{RoutedReply, Router, RouterConfig, RouterEffect, RouterInput};
use crossdock_types::{Payload, Time};
use proptest::prelude::*;

use peers::{FILE, Peers, Random};

#[derive(Clone, Debug)]
enum Step {
    Write {
        offset: u64,
        length: usize,
        is_stable: bool,
    },
    /// Two unstable writes at once, side by side.
    Pair {
        offset: u64,
        lengths: (usize, usize),
    },
    Read {
        offset: u64,
        length: u64,
    },
    Commit,
    Zero {
        offset: u64,
        length: u64,
    },
    /// Of what lies beyond the threshold in the file, here and there.
    Copy {
        from: u64,
        to: u64,
        length: u64,
        frees_zeros: bool,
    },
    Truncate(u64),
    CrashSite,
    CrashNode(usize),
}

/// Offsets near the places where something changes.
fn offset() -> impl Strategy<Value = u64> {
    let edge = prop_oneof![
        Just(0),
        Just(SMALL_FILE_THRESHOLD_BYTES),
        Just(STRIPE_UNIT_BYTES),
        Just(2 * STRIPE_UNIT_BYTES),
        Just(3 * STRIPE_UNIT_BYTES),
    ];
    (edge, 0u64..40).prop_map(|(edge, near): (u64, u64)| (edge + near).saturating_sub(20))
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..50, 1000usize..2000, 200_000usize..600_000]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (offset(), length(), any::<bool>()).prop_map(|(offset, length, is_stable)| {
            Step::Write { offset, length, is_stable }
        }),
        2 => (offset(), (length(), length()))
            .prop_map(|(offset, lengths)| Step::Pair { offset, lengths }),
        4 => (offset(), length())
            .prop_map(|(offset, length)| Step::Read { offset, length: length as u64 }),
        2 => Just(Step::Commit),
        2 => (offset(), length())
            .prop_map(|(offset, length)| Step::Zero { offset, length: length as u64 }),
        2 => (offset(), offset(), length(), any::<bool>()).prop_map(
            |(from, to, length, frees_zeros)| {
                let length = length as u64;
                Step::Copy { from, to, length, frees_zeros }
            },
        ),
        1 => offset().prop_map(Step::Truncate),
        1 => Just(Step::CrashSite),
        1 => (0usize..2).prop_map(Step::CrashNode),
    ]
}

/// An unstable write that the client may have to send again.
struct Uncommitted {
    offset: u64,
    length: usize,
    verifier: [u8; 8],
}

/// A client, the router, and what the file should be.
struct World {
    router: Router,
    peers: Peers,
    random: Random,
    now: Time,
    requests_total: u64,
    model: Vec<u8>,
    uncommitted: Vec<Uncommitted>,
    has_crashed: bool, // Since everything was durable.
    is_stormy: bool,   // Crashes come in the middle of operations, too.
    fill: u8,
}

impl World {
    fn new(seed: u64, holders_max: usize, is_stormy: bool) -> Self {
        let peers = Peers::new();
        let mut config = RouterConfig::new(WriterId(seed));
        config.unstable_holders_max = holders_max;
        Self {
            router: Router::new(config, peers.table()),
            peers,
            random: Random::new(seed),
            now: Time::from_secs(1),
            requests_total: 0,
            model: Vec::new(),
            uncommitted: Vec::new(),
            has_crashed: false,
            is_stormy,
            fill: 0,
        }
    }

    /// Runs operations that are under way together; one that is told to try
    /// again does so.
    fn run(&mut self, operations: &[SiteOperation]) -> Vec<RoutedReply> {
        let mut replies: Vec<Option<RoutedReply>> = vec![None; operations.len()];
        loop {
            let first = self.requests_total;
            for (operation, reply) in operations.iter().zip(&replies) {
                self.requests_total += 1;
                if reply.is_none() {
                    self.ask(self.requests_total, operation.clone());
                }
            }
            for routed in self.until_quiet() {
                let index = usize::try_from(routed.reply.id.0 - first - 1).expect("small");
                if routed.reply.outcome != Err(SiteError::Busy) {
                    assert!(replies[index].replace(routed).is_none(), "answered twice");
                }
            }
            if replies.iter().all(Option::is_some) {
                return replies.into_iter().flatten().collect();
            }
        }
    }

    fn ask(&mut self, id: u64, operation: SiteOperation) {
        let request = SiteRequest {
            caller: Caller::root(),
            duplicate: None,
            operation,
        };
        // Now and then there is hardly time for a second attempt.
        let patience_ms = match self.random.below(4) {
            0 => self.random.below(40) as u64,
            _ => 2000,
        };
        let call = Call {
            id: CallId(id),
            deadline: self.now + Duration::from_millis(patience_ms),
            request,
        };
        self.router
            .handle(self.now, RouterInput::Request(Box::new(call)));
    }

    /// Carries out effects, in any order of answers, until nothing is in progress.
    fn until_quiet(&mut self) -> Vec<RoutedReply> {
        let mut replies = Vec::new();
        let mut waiting = Vec::new();
        loop {
            while let Some(effect) = self.router.poll_effect() {
                match effect {
                    RouterEffect::Reply(routed) => replies.push(*routed),
                    other => waiting.push(other),
                }
            }
            if self.is_stormy && self.random.below(30) == 0 {
                self.crash_any();
            }
            if !waiting.is_empty() {
                let chosen = self.random.below(waiting.len());
                let effect = waiting.swap_remove(chosen);
                if let Some(input) = self.peers.carry_out(effect, &mut self.random) {
                    self.router.handle(self.now, input);
                }
            } else if let Some(table) = self.peers.newer_table() {
                self.router.handle(self.now, RouterInput::Table(table));
            } else if let Some(time) = self.router.poll_timeout() {
                self.now = self.now.max(time);
                self.router.handle(self.now, RouterInput::Timeout);
            } else {
                assert_eq!(self.router.requests(), 0, "stuck");
                return replies;
            }
        }
    }

    fn write_all(&mut self, writes: &[(u64, Vec<u8>, Stability)]) {
        let operation =
            |(offset, bytes, stability): &(u64, Vec<u8>, Stability)| SiteOperation::Write {
                file: FILE,
                offset_bytes: *offset,
                payload: Payload::from(Bytes::from(bytes.clone())),
                stability: *stability,
            };
        let operations: Vec<_> = writes.iter().map(operation).collect();
        for (routed, (offset, bytes, stability)) in self.run(&operations).iter().zip(writes) {
            let outcome = &routed.reply.outcome;
            assert!(
                matches!(outcome, Ok(SiteAnswer::Written { .. })),
                "{outcome:?}"
            );
            self.apply(*offset, bytes);
            if *stability == Stability::Unstable {
                self.uncommitted.push(Uncommitted {
                    offset: *offset,
                    length: bytes.len(),
                    verifier: routed.verifier,
                });
            }
        }
    }

    fn apply(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = usize::try_from(offset).expect("small");
        let end = start + bytes.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[start..end].copy_from_slice(bytes);
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        self.fill = self.fill % 250 + 1;
        vec![self.fill; length]
    }

    /// Commits until everything is promised to be durable.
    fn commit(&mut self) {
        for _ in 0..200 {
            let commit = SiteOperation::Commit {
                file: FILE,
                incarnation: Incarnation(0),
            };
            let routed = self.run(&[commit]).remove(0);
            assert_eq!(routed.reply.outcome, Ok(SiteAnswer::Committed));
            let is_safe = |write: &Uncommitted| write.verifier == routed.verifier;
            if self.uncommitted.iter().all(is_safe) {
                self.uncommitted.clear();
                self.has_crashed = false;
                return;
            }
            for write in std::mem::take(&mut self.uncommitted) {
                // What the client has there now, which may be newer.
                let start = usize::try_from(write.offset).expect("small");
                let range = start.min(self.model.len())..self.model.len();
                let bytes = self.model[range].iter().take(write.length);
                let bytes = bytes.copied().collect();
                self.write_all(&[(write.offset, bytes, Stability::Unstable)]);
            }
        }
        panic!("the verifier never settles");
    }

    /// Zeros never grow the file, and need no commit.
    fn zero(&mut self, offset: u64, length: u64) {
        let zero = SiteOperation::Zero {
            file: FILE,
            offset_bytes: offset,
            length_bytes: length,
        };
        let routed = self.run(&[zero]).remove(0);
        let outcome = &routed.reply.outcome;
        assert!(
            matches!(outcome, Ok(SiteAnswer::Written { .. })),
            "{outcome:?}"
        );
        let size = self.model.len();
        let at = |offset: u64| usize::try_from(offset).expect("small").min(size);
        self.model[at(offset)..at(offset + length)].fill(0);
    }

    /// What lies within the file, beyond the threshold, and not over itself; a client that has
    /// committed loses nothing by it.
    fn copy(&mut self, (from, to): (u64, u64), length: u64, frees_zeros: bool) {
        self.commit();
        let end = self.model.len() as u64;
        let first = from.min(to);
        let length = length
            .min(end.saturating_sub(from.max(to)))
            .min(from.abs_diff(to));
        if first < SMALL_FILE_THRESHOLD_BYTES || length == 0 {
            return;
        }
        let copy = SiteOperation::Copy {
            file: FILE,
            offset_bytes: to,
            source: FILE,
            source_offset_bytes: from,
            length_bytes: length,
            stability: Stability::Stable,
            frees_zeros,
        };
        let routed = self.run(&[copy]).remove(0);
        let outcome = &routed.reply.outcome;
        assert!(
            matches!(outcome, Ok(SiteAnswer::Written { .. })),
            "{outcome:?}"
        );
        let at = |offset: u64| usize::try_from(offset).expect("small");
        let source = at(from)..at(from + length);
        self.model.copy_within(source, at(to));
    }

    fn read(&mut self, offset: u64, length: u64) {
        let read = SiteOperation::Read {
            file: FILE,
            offset_bytes: offset,
            length_bytes: length,
            patience_ms: 0,
        };
        let routed = self.run(&[read]).remove(0);
        if self.has_crashed {
            return; // Unstable bytes may be old or new until they are committed.
        }
        let Ok(SiteAnswer::Read {
            payload,
            end_of_file,
        }) = routed.reply.outcome
        else {
            panic!("{:?}", routed.reply.outcome);
        };
        let size = self.model.len() as u64;
        let (start, end) = (offset.min(size), offset.saturating_add(length).min(size));
        let at = |offset: u64| usize::try_from(offset).expect("small");
        let expected = &self.model[at(start)..at(end)];
        assert!(
            payload.to_bytes()[..] == *expected,
            "{offset}+{length} of {size}"
        );
        assert_eq!(
            end_of_file,
            offset + length >= size,
            "{offset}+{length} of {size}"
        );
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write {
                offset,
                length,
                is_stable,
            } => {
                let bytes = self.bytes(length);
                let stability = if is_stable {
                    Stability::Stable
                } else {
                    Stability::Unstable
                };
                self.write_all(&[(offset, bytes, stability)]);
            }
            Step::Pair { offset, lengths } => {
                let (first, second) = (self.bytes(lengths.0), self.bytes(lengths.1));
                let next = offset + lengths.0 as u64;
                let unstable = Stability::Unstable;
                self.write_all(&[(offset, first, unstable), (next, second, unstable)]);
            }
            Step::Read { offset, length } => self.read(offset, length),
            Step::Commit => self.commit(),
            Step::Zero { offset, length } => self.zero(offset, length),
            Step::Copy {
                from,
                to,
                length,
                frees_zeros,
            } => self.copy((from, to), length, frees_zeros),
            Step::Truncate(size) => {
                self.commit(); // As clients do.
                let changes = AttributeChanges {
                    size_bytes: Some(size),
                    ..AttributeChanges::default()
                };
                let truncate = SiteOperation::SetAttributes {
                    file: FILE,
                    changes,
                    guard: None,
                };
                let routed = self.run(&[truncate]).remove(0);
                assert_eq!(routed.reply.outcome, Ok(SiteAnswer::Done));
                self.model.resize(usize::try_from(size).expect("small"), 0);
            }
            Step::CrashSite => {
                self.peers.crash_site();
                self.has_crashed = true;
            }
            Step::CrashNode(index) => {
                self.peers.crash_node(index);
                self.has_crashed = true;
            }
        }
    }

    fn crash_any(&mut self) {
        self.has_crashed = true;
        match self.random.below(3) {
            0 => self.peers.crash_site(),
            node => self.peers.crash_node(node - 1),
        }
    }

    /// Everything was committed: after a loss of all the rest it is all there.
    fn finish(mut self) {
        self.is_stormy = false;
        self.commit();
        self.peers.crash_site();
        self.peers.crash_node(0);
        self.peers.crash_node(1);
        let size = self.model.len() as u64;
        for offset in (0..=size).step_by(1 << 20) {
            self.read(offset, 1 << 20);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Goal: what is read is what was written, and what was committed survives
    /// every crash, whatever goes wrong in between.
    #[test]
    fn file_behaves_like_a_vector(
        seed in any::<u64>(),
        holders_max in prop_oneof![Just(2usize), Just(1000)],
        is_stormy in any::<bool>(),
        steps in prop::collection::vec(step(), 1..25),
    ) {
        let mut world = World::new(seed, holders_max, is_stormy);
        for step in steps {
            world.step(step);
        }
        world.finish();
    }
}
