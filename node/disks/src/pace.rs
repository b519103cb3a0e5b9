//! How fast a disk is: what positioning costs, and what each byte after it.
//!
//! A disk that works on reads alone takes `n · t_pos + b / B_seq` for `b` bytes at
//! `n` places. Both are found from completions that are seen anyway: the time in
//! which the disk had something to do is cut into *stretches*, each of which says
//! how long it took, at how many places it read, and how many bytes. A line of
//! least squares goes through them (delivery takes its round time from it, TPF
//! section 3.2: how many streams fit between the positioning and the bytes).
//!
//! With several requests in flight the time of one of them tells nothing, but the
//! disk was at work from the first issue to the last completion; so what comes out
//! is what the disk costs at the depth that it is used with. Stretches in which it
//! wrote or flushed tell nothing about reads and are left out.
//!
//! If all reads are alike the line is not determined; it then stays as near to the
//! one before as the new stretches allow.

use std::time::Duration;

use crossdock_types::Time;

/// A stretch that took so long, or had so many reads, is closed. Longer ones average
/// over more requests, shorter ones tell small reads from large ones.
const STRETCH: Duration = Duration::from_millis(50);
const STRETCH_READS: u32 = 8;

/// What was seen so many seconds of work ago counts by a factor of e less.
const MEMORY_SECONDS: f64 = 20.0;

/// A stretch counts as at most this many times what was expected of it: a disk
/// that was away for a second has not become slow for ever.
const SURPRISE_MAX: f64 = 8.0;

/// So many of these in a row are no surprise: what was seen before was not this disk, but
/// a cache in front of it.
const SURPRISES_MAX: u32 = 4;

/// By how many stretches the assumption counts, in each of both figures.
const ASSUMED_WEIGHT: f64 = 0.01;

/// What a disk is taken for before it has done anything: one that turns.
const ASSUMED: Line = Line {
    per_place: 8e-3,
    per_byte: 1.0 / 100e6,
};

/// Nothing beyond is believed: 1 µs to 1 s, 100 kB/s to 100 GB/s.
const PER_PLACE: (f64, f64) = (1e-6, 1.0);
const PER_BYTE: (f64, f64) = (1e-11, 1e-5);

/// How fast a disk reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPace {
    /// What it takes to begin to read elsewhere (t_pos).
    pub positioning: Duration,
    /// Bytes that it reads in a second once it is there (B_seq).
    pub sequential_bytes_per_second: u64,
}

/// What is assumed of a disk that has not done anything: 8 ms, 100 MB/s.
impl Default for DiskPace {
    fn default() -> Self {
        ASSUMED.pace()
    }
}

/// Follows the reads of one disk.
#[derive(Debug)]
pub(crate) struct PaceMeter {
    reads: usize,
    /// Writes, flushes and grows that the disk works on.
    others: usize,
    stretch: Option<Stretch>,
    fit: Fit,
}

/// A time in which the disk has had nothing but reads to do, always at least one.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Time,
    reads: u32,
    /// Those of them that did not go on where the one before had ended.
    places: u32,
    bytes: u64,
}

impl Stretch {
    const fn from(since: Time) -> Self {
        Self {
            since,
            reads: 0,
            places: 0,
            bytes: 0,
        }
    }
}

impl PaceMeter {
    pub(crate) fn new() -> Self {
        Self {
            reads: 0,
            others: 0,
            stretch: None,
            fit: Fit::from(ASSUMED),
        }
    }

    /// The disk gets a request.
    pub(crate) const fn issued(&mut self, now: Time, is_read: bool) {
        if !is_read {
            self.others += 1;
            self.stretch = None;
            return;
        }
        if self.reads == 0 && self.others == 0 {
            self.stretch = Some(Stretch::from(now));
        }
        self.reads += 1;
    }

    /// It has completed a read, which went on where the one before had ended, or not.
    pub(crate) fn completed_read(&mut self, now: Time, bytes: u64, is_sequential: bool) {
        self.reads = self.reads.saturating_sub(1);
        let Some(stretch) = &mut self.stretch else {
            return;
        };
        stretch.reads += 1;
        stretch.places += u32::from(!is_sequential);
        stretch.bytes = stretch.bytes.saturating_add(bytes);
        let took = now.since(stretch.since);
        if took >= STRETCH || stretch.reads >= STRETCH_READS || self.reads == 0 {
            self.fit
                .take(took.as_secs_f64(), stretch.places, stretch.bytes);
            self.stretch = (self.reads > 0).then_some(Stretch::from(now));
        }
    }

    /// It has completed something else.
    pub(crate) fn completed_other(&mut self, now: Time) {
        self.others = self.others.saturating_sub(1);
        if self.others == 0 && self.reads > 0 {
            self.stretch = Some(Stretch::from(now));
        }
    }

    /// A read has failed: how long that took tells nothing.
    pub(crate) fn failed_read(&mut self, now: Time) {
        self.reads = self.reads.saturating_sub(1);
        let goes_on = self.reads > 0 && self.others == 0;
        self.stretch = goes_on.then_some(Stretch::from(now));
    }

    pub(crate) fn pace(&self) -> DiskPace {
        self.fit.line.pace()
    }
}

/// Seconds per place and seconds per byte.
#[derive(Clone, Copy, Debug)]
struct Line {
    per_place: f64,
    per_byte: f64,
}

impl Line {
    fn expects(self, places: f64, bytes: f64) -> f64 {
        self.per_place * places + self.per_byte * bytes
    }

    /// All of it takes so many times as long.
    fn times(self, factor: f64) -> Self {
        Self {
            per_place: (self.per_place * factor).clamp(PER_PLACE.0, PER_PLACE.1),
            per_byte: (self.per_byte * factor).clamp(PER_BYTE.0, PER_BYTE.1),
        }
    }

    fn pace(self) -> DiskPace {
        #[expect(clippy::cast_possible_truncation, reason = "within its bounds")]
        let sequential_bytes_per_second = (1.0 / self.per_byte) as u64;
        DiskPace {
            positioning: Duration::from_secs_f64(self.per_place),
            sequential_bytes_per_second,
        }
    }
}

/// Least squares over stretches, each weighted by 1 / the time that it took or was
/// expected to take, whichever is longer: what is averaged over more counts more, as its
/// error is relatively smaller, but a few reads that some cache answered at once must not
/// count more than minutes of the disk's own.
#[derive(Clone, Copy, Debug)]
struct Fit {
    places_places: f64,
    places_bytes: f64,
    bytes_bytes: f64,
    places_time: f64,
    bytes_time: f64,
    line: Line,
    /// Stretches in a row that took much longer than expected.
    surprises: u32,
}

impl Fit {
    /// Nothing was seen yet.
    const fn from(line: Line) -> Self {
        Self {
            places_places: 0.0,
            places_bytes: 0.0,
            bytes_bytes: 0.0,
            places_time: 0.0,
            bytes_time: 0.0,
            line,
            surprises: 0,
        }
    }

    /// A stretch of `seconds`.
    fn take(&mut self, seconds: f64, places: u32, bytes: u64) {
        let (places, bytes) = (f64::from(places), bytes as f64);
        if seconds <= 0.0 || bytes <= 0.0 {
            return; // The clock has not moved: all of it was there at once.
        }
        let mut expected = self.line.expects(places, bytes);
        let is_surprise = seconds > SURPRISE_MAX * expected;
        self.surprises = if is_surprise { self.surprises + 1 } else { 0 };
        if self.surprises == SURPRISES_MAX {
            *self = Self::from(self.line.times(seconds / expected));
            expected = seconds;
        }
        let seconds = seconds.min(SURPRISE_MAX * expected);
        let longer = seconds.max(expected);
        let kept = (1.0 - longer / MEMORY_SECONDS).max(0.0);
        let weight = 1.0 / longer;
        let follow = |sum: &mut f64, more: f64| *sum = *sum * kept + more;
        follow(&mut self.places_places, weight * places * places);
        follow(&mut self.places_bytes, weight * places * bytes);
        follow(&mut self.bytes_bytes, weight * bytes * bytes);
        follow(&mut self.places_time, weight * places * seconds);
        follow(&mut self.bytes_time, weight * bytes * seconds);
        self.solve();
    }

    /// The line through the stretches and, lightly, through the line before: one
    /// read of nothing at one place, and one of as long without a place.
    fn solve(&mut self) {
        let Line {
            per_place,
            per_byte,
        } = self.line;
        let bytes = per_place / per_byte;
        let weight = ASSUMED_WEIGHT / per_place;
        let pp = self.places_places + weight;
        let bb = self.bytes_bytes + weight * bytes * bytes;
        let pt = self.places_time + ASSUMED_WEIGHT;
        let bt = self.bytes_time + ASSUMED_WEIGHT * bytes;
        let pb = self.places_bytes;
        let determinant = pp * bb - pb * pb; // Positive by the assumption's weight.
        if determinant <= 0.0 {
            return;
        }
        let clamp = |value: f64, (min, max): (f64, f64)| value.clamp(min, max);
        let mut place = clamp((pt * bb - bt * pb) / determinant, PER_PLACE);
        let byte = clamp((bt - pb * place) / bb, PER_BYTE);
        place = clamp((pt - pb * byte) / pp, PER_PLACE);
        self.line = Line {
            per_place: place,
            per_byte: byte,
        };
    }
}

#[cfg(test)]
mod tests;
