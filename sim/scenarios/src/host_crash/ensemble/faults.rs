//! What goes wrong around the clients of an ensemble.

use std::time::Duration;

use crossdock_types::Time;

use super::Faults;
use super::driver::Driver;
use super::network::{Pace, Place};

/// A process that ended starts again after up to this.
const RESTART_MAX_MILLIS: u64 = 6000;

/// Or now and then up to this: longer than a door waits for an answer.
const OUTAGE_MAX_MILLIS: u64 = 40_000;

/// What a slow direction takes for a message, and how many bytes per second it carries.
const LATENCY_MAX_MICROS: u64 = 12_000;
const SLOWEST: u64 = 1 << 20;
const FASTEST: u64 = 16 << 20;

impl Driver {
    pub(super) fn next_fault(&mut self) -> Time {
        let millis = match self.random.below(4) {
            0 => self.random.below(4),
            1 => self.random.below(60),
            _ => self.random.below(1500),
        };
        self.world.now + Duration::from_millis(millis)
    }

    /// How many requests more that is worth looking at with.
    pub(super) fn go_wrong(&mut self, faults: Faults) -> u64 {
        if faults == Faults::All && self.random.one_in(6) {
            return self.fall_apart();
        }
        if self.random.one_in(4) {
            self.rearrange();
            return 0;
        }
        let place = self.random.index(self.world.places());
        let other = self.random.index(self.world.places());
        let length = Duration::from_millis(match self.random.below(3) {
            0 => self.random.below(300),
            _ => self.random.below(5000),
        });
        match (faults, self.random.below(6)) {
            (Faults::All, 0) if place != other => {
                self.note(|| format!("nothing moves from {place} to {other} for {length:?}"));
                self.world.cut(place, other, length);
            }
            (Faults::All, 1) if place != other => {
                self.note(|| format!("the connection of {place} and {other} breaks"));
                self.world.break_link(place, other);
            }
            (Faults::All, 3) => {
                self.note(|| format!("process {place} does nothing for {length:?}"));
                self.world.pause(place, length);
            }
            (Faults::All, 2) => {
                self.note(|| format!("process {place} is cut from the registry for {length:?}"));
                self.world.cut_from_registry(place, length);
            }
            _ => self.kill(place),
        }
        0
    }

    /// Some directions between processes are slow from now on, each in its own way.
    pub(super) fn slow_links(&mut self) {
        let places = self.world.places();
        for (from, to) in (0..places).flat_map(|from| (0..places).map(move |to| (from, to))) {
            if from == to || !self.random.one_in(4) {
                continue;
            }
            let pace = Pace {
                latency: Duration::from_micros(self.random.below(LATENCY_MAX_MICROS)),
                bytes_per_second: self.random.between(SLOWEST, FASTEST),
            };
            self.note(|| format!("from {from} to {to} the network is slow: {pace:?}"));
            self.world.slow(from, to, pace);
        }
    }

    pub(super) fn kill(&mut self, place: Place) {
        if !self.world.is_running(place) {
            return;
        }
        self.crashes += 1;
        let longest = match self.random.one_in(6) {
            true => OUTAGE_MAX_MILLIS,
            false => RESTART_MAX_MILLIS,
        };
        let mut pause = Duration::from_millis(self.random.below(longest));
        if self.is_mended {
            pause = Duration::ZERO; // Drawn all the same: what follows stays what it was.
        }
        self.note(|| format!("process {place} is killed for {pause:?}"));
        self.world.kill(place, pause);
        self.disturb();
    }
}
