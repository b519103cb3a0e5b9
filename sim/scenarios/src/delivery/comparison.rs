//! The shape of the paper's 4.3: 180 streams of 1 Mb/s and 120 of 200 kb/s on a disk that
//! seeks.

use std::time::Duration;

use crossdock_delivery::{DeliveryConfig, DeliveryFigures, StreamClass, Switches};
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::connection::Path;
use super::node::Arm;
use super::world::World;
use super::{Plan, StreamPlan};

const WARM: u64 = 20;
const END: u64 = 60;

/// What all clients want, in bytes per second.
const WANTED: f64 = 180.0 * 125_000.0 + 120.0 * 25_000.0;

/// Bytes per second that clients got after the beginning, the figures, and the longest that
/// T_D was.
fn run(config: DeliveryConfig, positioning_millis: u64) -> (f64, DeliveryFigures, Duration) {
    let mut random = Random::new(7);
    let stream = |client_rate, begins| StreamPlan {
        begins: Time::default() + Duration::from_millis(begins),
        class: StreamClass::Foreground,
        total_bytes: 1 << 29,
        path: Path {
            link_rate: 100 << 20,
            client_rate,
            round_trip: Duration::from_millis(10),
            window_bytes: 64 << 10,
            socket_bytes: 32 << 10,
        },
        resets: None,
        finishes: None,
        stall: None,
        congestion: None,
    };
    let streams = (0..300).map(|index| {
        let client_rate = if index % 5 < 3 { 125_000 } else { 25_000 };
        stream(client_rate, random.below(10_000))
    });
    let plan = Plan {
        config,
        arm: Arm {
            positioning: Duration::from_millis(positioning_millis),
            bytes_per_second: 60_000_000,
            depth: 4,
            fails_one_in: 0,
        },
        streams: streams.collect(),
    };
    let mut world = World::new(&plan, Random::new(8), false);
    let until = |world: &mut World, seconds| {
        world.pass(Time::from_secs(seconds)).expect("sound");
        world.received_bytes()
    };
    let warm = until(&mut world, WARM);
    let before = world.delivery().figures().residence.time;
    let mut longest = Duration::ZERO;
    for second in WARM + 1..=END {
        until(&mut world, second);
        longest = longest.max(world.delivery().figures().buffering_time);
    }
    let got = world.received_bytes() - warm;
    let mut figures = world.delivery().figures();
    figures.residence.time = figures.residence.time.since(&before);
    (got as f64 / (END - WARM) as f64, figures, longest)
}

fn config(memory_bytes: u64, tdap: bool) -> DeliveryConfig {
    DeliveryConfig {
        memory_bytes,
        switches: Switches {
            tdap,
            ..Switches::default()
        },
        ..DeliveryConfig::default()
    }
}

/// Goal: with read-ahead by rates the same disk carries more than with 128 KiB for each
/// (paper: 16 to 36 % more for the fast), T_D is a matter of seconds, nothing is read and
/// thrown away, and what was read is sent within about T_D (1.6 of it).
#[test]
fn reading_ahead_by_rates_carries_more_than_a_fixed_window() {
    const MEMORY: u64 = 192 << 20;
    let (fixed, ..) = run(config(MEMORY, false), 8);
    // T_D goes up and down with the disk's load: what was read is as old as it was then.
    let (tdap, figures, term) = run(config(MEMORY, true), 8);
    let residence = figures.residence.time.quantile(0.99).expect("blocks") / 1e6;
    println!(
        "of {WANTED:.0} bytes/s: fixed {fixed:.0}, by rates {tdap:.0}, T_D {term:?}, \
         residence {residence:.2} s"
    );
    assert!(tdap > fixed * 1.25, "{tdap} against {fixed}");
    let seconds = term.as_secs_f64();
    assert!((1.0..15.0).contains(&seconds), "{term:?}");
    assert_eq!(figures.thrown_away_bytes, 0);
    assert!(figures.memory_used_max <= MEMORY);
    assert!(residence <= seconds * 1.6, "{residence} s, T_D {term:?}");
}

/// Goal: it still carries all where memory is so short that T_D is what the budget allows.
#[test]
fn reading_ahead_by_rates_carries_all_when_memory_is_short() {
    let (fixed, ..) = run(config(96 << 20, false), 8);
    let (tdap, figures, _) = run(config(96 << 20, true), 8);
    println!("of {WANTED:.0} bytes/s in 96 MiB: fixed {fixed:.0}, by rates {tdap:.0}");
    assert!(tdap >= WANTED * 0.95, "{tdap} against {fixed}");
    assert_eq!(figures.thrown_away_bytes, 0);
}

/// Goal: a disk that can carry all streams does.
#[test]
fn a_disk_that_is_fast_enough_carries_all() {
    let (tdap, figures, _) = run(config(96 << 20, true), 4);
    println!(
        "of {WANTED:.0} bytes/s: {tdap:.0}, T_D {:?}",
        figures.buffering_time
    );
    assert!(tdap >= WANTED * 0.95, "{tdap} of {WANTED}");
}
