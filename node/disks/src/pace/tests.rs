//! Modelled disks, whose figures have to be found.

use std::collections::VecDeque;

use super::*;

/// A disk that reads one request after the other, in the order of their issue.
struct Model {
    positioning: Duration,
    bytes_per_second: u64,
    dice: u64,
    now: Time,
}

/// What is in flight: bytes, and whether it went on where the one before had ended.
type Read = (u64, bool);

impl Model {
    fn new(positioning: Duration, bytes_per_second: u64) -> Self {
        Self {
            positioning,
            bytes_per_second,
            dice: 7,
            now: Time::from_secs(1),
        }
    }

    fn roll(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice
    }

    /// A quarter of the reads go on where the one before has ended.
    fn mixed(&mut self) -> Read {
        let blocks = 1 + self.roll() % 256;
        (blocks << 12, self.roll().is_multiple_of(4))
    }

    fn service(&mut self, (bytes, is_sequential): Read) -> Duration {
        let positioning = match is_sequential {
            true => Duration::ZERO,
            false => self.positioning,
        };
        let nanos = bytes * 1_000_000_000 / self.bytes_per_second;
        let exact = positioning + Duration::from_nanos(nanos);
        // What turns is sometimes nearer, sometimes farther.
        let percent = u32::try_from(80 + self.roll() % 41).expect("few");
        exact * percent / 100
    }

    /// `count` reads, `depth` of them at a time.
    fn run(
        &mut self,
        meter: &mut PaceMeter,
        (count, depth): (usize, usize),
        mut next: impl FnMut(&mut Self) -> Read,
    ) {
        let mut in_flight: VecDeque<Read> = VecDeque::new();
        for at in 0..count + depth {
            if at < count {
                in_flight.push_back(next(self));
                meter.issued(self.now, true);
            }
            if at >= depth.saturating_sub(1)
                && let Some(read) = in_flight.pop_front()
            {
                self.now = self.now + self.service(read);
                meter.completed_read(self.now, read.0, read.1);
            }
        }
        assert!(in_flight.is_empty());
    }
}

fn assert_near(meter: &PaceMeter, model: &Model) {
    let DiskPace {
        positioning,
        sequential_bytes_per_second,
    } = meter.pace();
    let percent = |found: u128, right: u128| found * 100 / right;
    let of_positioning = percent(positioning.as_nanos(), model.positioning.as_nanos());
    let of_rate = percent(
        sequential_bytes_per_second.into(),
        model.bytes_per_second.into(),
    );
    assert!((85..=115).contains(&of_positioning), "{positioning:?}");
    assert!(
        (85..=115).contains(&of_rate),
        "{sequential_bytes_per_second}"
    );
}

fn slow() -> Model {
    Model::new(Duration::from_millis(8), 60_000_000)
}

/// Goal: a disk of 8 ms and 60 MB/s is found to be one, within 15 %, whether it
/// gets one request at a time or many, and so is one of another kind.
#[test]
fn what_a_disk_costs_is_found_at_any_depth() {
    for depth in [1, 2, 32] {
        for mut model in [
            slow(),
            Model::new(Duration::from_micros(120), 2_000_000_000),
        ] {
            let mut meter = PaceMeter::new();
            model.run(&mut meter, (2000, depth), Model::mixed);
            assert_near(&meter, &model);
        }
    }
}

/// Goal: it needs few reads for that: half a minute of a slow disk's work is
/// plenty, and a hundred reads are enough.
#[test]
fn a_hundred_reads_are_enough() {
    let (mut model, mut meter) = (slow(), PaceMeter::new());
    model.run(&mut meter, (100, 1), Model::mixed);
    assert_near(&meter, &model);
}

/// Goal: writes and flushes between the reads, however long they take, and reads
/// that fail change nothing.
#[test]
fn writes_and_failures_do_not_count() {
    let (mut model, mut meter) = (slow(), PaceMeter::new());
    for round in 0..200 {
        meter.issued(model.now, true);
        meter.issued(model.now, false);
        model.now = model.now + Duration::from_millis(300);
        match round % 2 {
            0 => meter.completed_read(model.now, 4096, false),
            _ => meter.failed_read(model.now),
        }
        meter.completed_other(model.now);
        model.run(&mut meter, (10, 4), Model::mixed);
    }
    assert_near(&meter, &model);
}

/// Goal: a disk that does not answer for seconds now and then is still the same
/// disk afterwards.
#[test]
fn a_hiccup_is_not_believed() {
    let (mut model, mut meter) = (slow(), PaceMeter::new());
    for _ in 0..10 {
        model.run(&mut meter, (200, 8), Model::mixed);
        meter.issued(model.now, true);
        model.now = model.now + Duration::from_secs(3);
        meter.completed_read(model.now, 4096, false);
    }
    model.run(&mut meter, (400, 8), Model::mixed);
    assert_near(&meter, &model);
}

/// Goal: a disk that becomes another one is found again, slower or faster.
#[test]
fn a_changed_disk_is_followed() {
    let (mut model, mut meter) = (slow(), PaceMeter::new());
    model.run(&mut meter, (3000, 8), Model::mixed);
    for (milliseconds, bytes_per_second) in [(30, 20_000_000), (4, 150_000_000)] {
        model.positioning = Duration::from_millis(milliseconds);
        model.bytes_per_second = bytes_per_second;
        model.run(&mut meter, (6000, 8), Model::mixed);
        assert_near(&meter, &model);
    }
}

/// Goal: reads that are all alike tell only what they take together; that is
/// right, and both figures stay within their bounds, as without a clock.
#[test]
fn reads_that_are_alike_tell_their_sum() {
    let (mut model, mut meter) = (slow(), PaceMeter::new());
    model.run(&mut meter, (1000, 4), |_| (512 << 10, false));
    let pace = meter.pace();
    let rate = pace.sequential_bytes_per_second;
    let sum = pace.positioning + Duration::from_nanos((512 << 10) * 1_000_000_000 / rate);
    let right = Duration::from_micros(8000 + 8738);
    assert!(sum > right * 85 / 100 && sum < right * 115 / 100, "{sum:?}");
    let mut meter = PaceMeter::new();
    let still = Time::from_secs(5);
    for _ in 0..100 {
        meter.issued(still, true);
        meter.completed_read(still, 4096, false);
    }
    assert_eq!(meter.pace(), PaceMeter::new().pace(), "no time, no news");
}

/// Goal: what a cache answers at once before the disk has to work is forgotten within
/// some seconds of its work; it must not be taken for endlessly fast.
#[test]
fn answers_of_a_cache_are_not_the_disks() {
    let (mut cache, mut meter) = (
        Model::new(Duration::from_micros(2), 50_000_000_000),
        PaceMeter::new(),
    );
    cache.run(&mut meter, (500, 1), Model::mixed);
    let mut model = Model {
        now: cache.now,
        ..slow()
    };
    model.run(&mut meter, (2000, 32), Model::mixed);
    assert_near(&meter, &model);
}
