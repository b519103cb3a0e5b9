//! Properties over any order of inputs.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_delivery::{
    Congestion, Decision, Delivery, DeliveryConfig, DiskProfile, End, StreamClass, StreamId,
    Switches, TcpSample, replay,
};
use crossdock_types::Time;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Open(u64, bool),
    Deliver(usize, u64),
    Fail(usize),
    Hand(usize, u64),
    Sample(usize, TcpSample),
    Close(usize, u8),
    Disk(DiskProfile),
    Pass(u64),
}

fn sample() -> impl Strategy<Value = TcpSample> {
    (
        0..1_000_000_u64,
        0..u64::MAX,
        any::<(bool, bool, u8)>(),
        0..u64::MAX / 2,
        (0..5_u64, 0..1000_u64),
    )
        .prop_map(
            |(
                unsent_bytes,
                delivery_rate,
                (limited, zero, state),
                acked_bytes,
                (delivered_ce, busy),
            )| {
                TcpSample {
                    unsent_bytes,
                    delivery_rate,
                    is_app_limited: limited,
                    acked_bytes,
                    busy: Duration::from_millis(busy),
                    congestion: match state % 4 {
                        0 => Congestion::Open,
                        1 => Congestion::Disorder,
                        2 => Congestion::Recovery,
                        _ => Congestion::Loss,
                    },
                    delivered_ce,
                    is_window_zero: zero,
                    rtt: Duration::from_millis(u64::from(state)),
                }
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..4_000_000_u64, any::<bool>()).prop_map(|(bytes, back)| Step::Open(bytes, back)),
        4 => (any::<usize>(), 1..600_000_u64).prop_map(|(who, bytes)| Step::Deliver(who, bytes)),
        1 => any::<usize>().prop_map(Step::Fail),
        4 => (any::<usize>(), 1..600_000_u64).prop_map(|(who, bytes)| Step::Hand(who, bytes)),
        4 => (any::<usize>(), sample()).prop_map(|(who, sample)| Step::Sample(who, sample)),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(who, end)| Step::Close(who, end)),
        1 => (any::<u64>(), any::<u64>(), 0..200_u32).prop_map(|(micros, rate, load_percent)| {
            Step::Disk(DiskProfile {
                positioning: Duration::from_micros(micros),
                sequential_bytes_per_second: rate,
                load_percent,
            })
        }),
        2 => (0..3000_u64).prop_map(Step::Pass),
    ]
}

/// What the door knows of a stream.
#[derive(Debug, Default)]
struct Known {
    total: u64,
    asked: u64,
    requested: u64,
    ready: u64,
    sample: TcpSample,
    is_to_be_looked_at: bool,
}

fn config(memory_kib: u64, bits: u8) -> DeliveryConfig {
    DeliveryConfig {
        memory_bytes: memory_kib << 10,
        switches: Switches {
            tdap: bits & 1 == 0,
            edrc: bits & 2 == 0,
            ..Switches::default()
        },
        literal_td: bits & 4 != 0,
        ..DeliveryConfig::default()
    }
}

/// The door's side of one step; panics where the engine breaks a promise.
struct Door {
    delivery: Delivery,
    memory: u64,
    is_eager: bool,
    now: Time,
    next: u64,
    known: BTreeMap<StreamId, Known>,
    dying: u64,
}

impl Door {
    fn pick(&self, who: usize) -> Option<StreamId> {
        let count = self.known.len().max(1);
        self.known.keys().nth(who % count).copied()
    }

    fn step(&mut self, step: &Step) -> Option<()> {
        match *step {
            Step::Open(total, is_back) => {
                self.next += 1;
                let stream = StreamId(self.next);
                let class = match is_back {
                    true => StreamClass::Background,
                    false => StreamClass::Foreground,
                };
                self.known.insert(
                    stream,
                    Known {
                        total,
                        ..Known::default()
                    },
                );
                self.delivery.open(self.now, stream, total, class);
                if total % 3 > 0 {
                    self.delivery.set_place(self.now, stream, total / 7);
                }
            }
            Step::Deliver(who, bytes) => {
                let stream = self.pick(who)?;
                let known = self.known.get_mut(&stream)?;
                let bytes = bytes.min(known.requested);
                known.requested -= bytes;
                known.ready += bytes;
                self.delivery.delivered(self.now, stream, bytes);
            }
            Step::Fail(who) => {
                let stream = self.pick(who)?;
                let known = self.known.get_mut(&stream)?;
                let bytes = std::mem::take(&mut known.requested);
                self.delivery.failed(self.now, stream, bytes);
            }
            Step::Hand(who, bytes) => {
                let stream = self.pick(who)?;
                let known = self.known.get_mut(&stream)?;
                let bytes = bytes.min(known.ready);
                known.ready -= bytes;
                self.delivery.handed(self.now, stream, bytes);
            }
            Step::Sample(who, sample) => {
                let stream = self.pick(who)?;
                self.known.get_mut(&stream)?.sample = sample;
                self.delivery.sample(self.now, stream, sample);
            }
            Step::Close(who, end) => {
                let stream = self.pick(who)?;
                let end = match end % 3 {
                    0 => End::Done,
                    1 => End::Reset,
                    _ => End::PeerFinished,
                };
                if end != End::PeerFinished {
                    let known = self.known.remove(&stream)?;
                    if !self.delivery.config().switches.edrc {
                        self.dying += known.requested;
                    }
                }
                self.delivery.close(self.now, stream, end);
            }
            Step::Disk(profile) => self.delivery.set_disk(self.next % 3, profile),
            Step::Pass(millis) => {
                self.now = self.now + Duration::from_millis(millis);
                self.delivery.timeout(self.now);
            }
        }
        Some(())
    }

    fn poll(&mut self) {
        let mut decisions = 0;
        while let Some(decision) = self.delivery.poll_decision() {
            decisions += 1;
            assert!(decisions < 100_000, "it never ends");
            match decision {
                Decision::Request { stream, bytes } => {
                    let known = self.known.get_mut(&stream).expect("a stream that lives");
                    known.requested += bytes;
                    known.asked += bytes;
                    assert!(bytes > 0 && known.asked <= known.total, "beyond the end");
                }
                Decision::Look { stream } => {
                    let known = self.known.get_mut(&stream).expect("a stream that lives");
                    known.is_to_be_looked_at = true;
                }
                _ => (),
            }
            self.check();
            if !self.is_eager {
                break;
            }
        }
    }

    fn check(&self) {
        let sum: u64 = self
            .known
            .values()
            .map(|known| known.requested + known.ready)
            .sum();
        assert!(sum + self.dying <= self.memory, "{sum} of {}", self.memory);
        let used = self.delivery.figures().memory_used;
        assert!(used <= self.memory && (!self.is_eager || used >= sum));
    }

    /// Looks at sockets as the engine asks for it: as they were.
    fn look(&mut self) {
        loop {
            self.poll();
            let asked = self
                .known
                .iter_mut()
                .find(|(_, known)| known.is_to_be_looked_at);
            let Some((&stream, known)) = asked else {
                return;
            };
            known.is_to_be_looked_at = false;
            self.delivery.sample(self.now, stream, known.sample);
        }
    }

    /// Nobody starves: with memory free, and everything polled and looked at, who has
    /// nothing at all has asked.
    fn check_fairness(&mut self) {
        self.look();
        let free = self.memory - self.delivery.figures().memory_used;
        if free < self.delivery.config().request_bytes_max {
            return;
        }
        assert_eq!(self.delivery.figures().waiting, 0, "{free} bytes are free");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Goal: in any order of inputs, however strange the samples and profiles, the memory
    /// is never overrun, no stream is asked beyond its end, polling ends, foreground
    /// streams do not wait while there is room, and every decision is decided the same
    /// again.
    #[test]
    fn the_budget_holds_in_any_order_of_inputs(
        steps in prop::collection::vec(step(), 1..120),
        memory_kib in prop_oneof![Just(1024_u64), 1024..8192_u64],
        bits in any::<u8>(),
        is_eager in any::<bool>(),
    ) {
        let config = config(memory_kib, bits);
        let mut delivery = Delivery::new(config);
        delivery.record(10_000);
        let mut door = Door {
            delivery,
            memory: memory_kib << 10,
            is_eager,
            now: Time::default(),
            next: 0,
            known: BTreeMap::new(),
            dying: 0,
        };
        let has_background = steps.iter().any(|step| matches!(step, Step::Open(_, true)));
        for step in &steps {
            door.step(step);
            door.poll();
            if is_eager && !has_background {
                door.check_fairness();
            }
        }
        prop_assert!(replay(door.delivery.records()).is_ok());
        let seen = door.delivery.figures();
        prop_assert!(seen.memory_used_max <= seen.memory_bytes);
    }
}
