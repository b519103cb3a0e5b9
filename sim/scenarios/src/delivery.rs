//! Delivery: many streams of different rates over one disk arm, driven through the
//! production [`Delivery`] and [`DiskQueue`].
//!
//! Each seed is a set of streams that begin, stall, lose packets, are half-closed and
//! reset, over a network between door and node, and a disk that also fails. Held against
//! it: what is requested or read and not handed on never exceeds the memory, by the
//! door's own count; every byte of a stream that lives arrives in order, once, and in the
//! end; nothing read for it is thrown away; nobody waits without a request while there is
//! memory, and new streams begin in the order of their coming; nothing is issued for a
//! connection later than 10 ms after its reset.
//!
//! [`Delivery`]: crossdock_delivery::Delivery
//! [`DiskQueue`]: crossdock_disks::DiskQueue

mod connection;
mod node;
mod world;

use std::time::Duration;

use crossdock_delivery::{DeliveryConfig, Mutation, StreamClass, Switches};
use crossdock_sim::random::Random;
use crossdock_types::Time;

use crate::store_crash::Outcome;
use connection::Path;
use node::Arm;
use world::World;

/// A run that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_mins(20);

/// What a seed decides before anything runs.
#[derive(Clone, Debug)]
struct Plan {
    config: DeliveryConfig,
    arm: Arm,
    streams: Vec<StreamPlan>,
}

/// One stream, and what will happen to it.
#[derive(Clone, Debug)]
struct StreamPlan {
    begins: Time,
    class: StreamClass,
    total_bytes: u64,
    path: Path,
    resets: Option<Time>,
    finishes: Option<Time>,
    /// The client reads nothing from, and until.
    stall: Option<(Time, Time)>,
    /// Half of the rate, with signs of congestion in the beginning, from, and until.
    congestion: Option<(Time, Time)>,
}

/// Runs one seed, with a fault built in, if there is one.
#[must_use]
pub fn run(seed: u64, mutation: Option<Mutation>, history: bool) -> Outcome {
    let mut random = Random::new(seed);
    let plan = Plan::draw(&mut random, mutation);
    let mut world = World::new(&plan, random.fork(), history);
    let violation = world.live(Time::default() + PATIENCE).err();
    Outcome {
        violation,
        trace_hash: world.trace_hash,
        crashes: world.resets,
        gone_blocks: 0,
        calls: plan.streams.len() as u64,
        simulated: world.now.since(Time::default()),
        history: world.history,
    }
}

impl Plan {
    fn draw(random: &mut Random, mutation: Option<Mutation>) -> Self {
        let request_bytes_max = 256 << (10 + random.below(3));
        let config = DeliveryConfig {
            memory_bytes: request_bytes_max + (random.below(32 << 20) >> random.below(6)),
            request_bytes_max,
            switches: Switches {
                tdap: !random.one_in(5),
                edrc: !random.one_in(8),
                ..Switches::default()
            },
            literal_td: random.one_in(8),
            mutation,
            ..DeliveryConfig::default()
        };
        let arm = Arm {
            positioning: Duration::from_micros(random.between(100, 12_000)),
            bytes_per_second: random.between(10 << 20, 200 << 20),
            depth: 1 + random.index(32),
            fails_one_in: if random.one_in(4) { 200 } else { 0 },
        };
        // Now and then a crowd that comes at once.
        let (count, within) = match random.one_in(3) {
            true => (random.between(40, 150), Duration::from_millis(300)),
            false => (random.between(1, 40), Duration::from_secs(3)),
        };
        let streams = (0..count).map(|_| StreamPlan::draw(random, within));
        let streams = streams.collect();
        Self {
            config,
            arm,
            streams,
        }
    }
}

impl StreamPlan {
    fn draw(random: &mut Random, within: Duration) -> Self {
        let micros = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        let begins = Time::default() + Duration::from_micros(random.below(micros));
        let soon = |random: &mut Random| {
            begins + Duration::from_millis(random.below(8000) >> random.below(6))
        };
        let span = |random: &mut Random| {
            let from = soon(random);
            (
                from,
                from + Duration::from_millis(random.between(100, 5000)),
            )
        };
        let path = Path::draw(random);
        // As much as takes half a minute at most.
        let longest = path.client_rate.min(path.link_rate) * 30;
        let total_bytes = random.below(8 << 20) >> random.below(16);
        Self {
            begins,
            class: match random.one_in(6) {
                true => StreamClass::Background,
                false => StreamClass::Foreground,
            },
            total_bytes: total_bytes.min(longest),
            path,
            resets: random.one_in(5).then(|| soon(random)),
            finishes: random.one_in(6).then(|| soon(random)),
            stall: random.one_in(4).then(|| span(random)),
            congestion: random.one_in(3).then(|| span(random)),
        }
    }
}

#[cfg(test)]
mod comparison;
#[cfg(test)]
mod tests;
