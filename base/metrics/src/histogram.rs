//! Log-linear histograms.

use std::time::Duration;

/// Values below it have a bucket each.
const LINEAR: usize = 4;

/// Buckets of each power of two from [`LINEAR`] on.
const PER_OCTAVE: usize = 4;

/// The highest power of two that has buckets; what is beyond counts to its last
/// one. In microseconds it is the minute from 67 s on.
const OCTAVE_MAX: u32 = 26;

/// The lowest.
const OCTAVE_MIN: u32 = LINEAR.trailing_zeros();

/// Buckets of a histogram.
pub const BUCKETS: usize = LINEAR + (OCTAVE_MAX - OCTAVE_MIN + 1) as usize * PER_OCTAVE;

/// How often which values came: four buckets for each power of two, so a
/// quantile is off by an eighth at most.
///
/// Recording is an index and two additions. Values are integers of any unit;
/// times are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            sum: 0,
        }
    }
}

impl Histogram {
    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        self.counts[index(value)] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// Counts a time.
    pub fn record_time(&mut self, time: Duration) {
        self.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// How many values there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// Adds what another one has counted.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// What came after `earlier`, an older copy of it. One that has begun anew
    /// since (its counts are lower) counts as a whole.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let began_anew = self
            .counts
            .iter()
            .zip(&earlier.counts)
            .any(|(now, then)| now < then);
        if began_anew {
            return self.clone();
        }
        let mut since = self.clone();
        for (count, then) in since.counts.iter_mut().zip(&earlier.counts) {
            *count -= then;
        }
        since.sum = since.sum.saturating_sub(earlier.sum);
        since
    }

    /// The value below which `part` (0 to 1) of all lie, interpolated within its
    /// bucket; `None` if there are none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = part.clamp(0.0, 1.0) * count as f64;
        let mut below = 0.0;
        for (index, &count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let count = count as f64;
            if below + count >= wanted {
                let (from, to) = (lower(index) as f64, lower(index + 1) as f64);
                return Some(from + (to - from) * ((wanted - below) / count));
            }
            below += count;
        }
        None
    }

    /// For each power of two up to 2^26: how many values were below it. Above
    /// lies only what is not told apart any more.
    pub fn below_powers(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut next = 0;
        let mut below = 0;
        (0..=OCTAVE_MAX).map(move |octave| {
            let bound = 1 << octave;
            while lower(next) < bound {
                below += self.counts[next];
                next += 1;
            }
            (bound, below)
        })
    }

    /// The buckets that are not empty, by number.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.counts.iter().copied().enumerate();
        counts.filter(|&(_, count)| count > 0)
    }

    /// A histogram of the given buckets, whose values sum up to `sum`; numbers
    /// that are none are left out.
    #[must_use]
    pub fn from_buckets(buckets: impl IntoIterator<Item = (usize, u64)>, sum: u64) -> Self {
        let mut histogram = Self {
            sum,
            ..Self::default()
        };
        for (index, count) in buckets {
            if let Some(bucket) = histogram.counts.get_mut(index) {
                *bucket += count;
            }
        }
        histogram
    }
}

/// The bucket of a value.
#[expect(clippy::cast_possible_truncation, reason = "below LINEAR, below 4")]
const fn index(value: u64) -> usize {
    if value < LINEAR as u64 {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros();
    if octave > OCTAVE_MAX {
        return BUCKETS - 1;
    }
    let within = (value >> (octave - OCTAVE_MIN)) & (PER_OCTAVE as u64 - 1);
    LINEAR + (octave - OCTAVE_MIN) as usize * PER_OCTAVE + within as usize
}

/// The lowest value of a bucket, or the end of the last one.
const fn lower(index: usize) -> u64 {
    if index < LINEAR {
        return index as u64;
    }
    let behind = index - LINEAR;
    let within = (behind % PER_OCTAVE) as u64;
    (LINEAR as u64 + within) << (behind / PER_OCTAVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every value lies in the bucket whose bounds say so, and buckets
    /// follow each other without gaps.
    #[test]
    fn buckets_cover_all_values_once() {
        for bucket in 0..BUCKETS {
            assert!(lower(bucket) < lower(bucket + 1));
            assert_eq!(index(lower(bucket)), bucket);
            assert_eq!(index(lower(bucket + 1) - 1), bucket);
        }
        assert_eq!(index(u64::MAX), BUCKETS - 1);
        assert_eq!(lower(BUCKETS), 1 << (OCTAVE_MAX + 1));
    }

    /// Goal: quantiles are within an eighth of the truth.
    #[test]
    fn quantiles_are_near_the_truth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=10_000).for_each(|value| histogram.record(value));
        for part in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let (found, truth) = (histogram.quantile(part).expect("values"), part * 10_000.0);
            assert!((found - truth).abs() <= truth / 8.0, "{part}: {found}");
        }
        assert_eq!((histogram.count(), histogram.sum()), (10_000, 50_005_000));
    }

    /// Goal: cumulative counts at powers of two say exactly what was below.
    #[test]
    fn powers_count_what_is_below() {
        let mut histogram = Histogram::default();
        (0..1000).for_each(|value| histogram.record(value));
        histogram.record(u64::MAX);
        let below: Vec<_> = histogram.below_powers().collect();
        assert_eq!(below.len(), 27);
        assert_eq!(below[0], (1, 1));
        assert_eq!(below[9], (512, 512));
        assert_eq!(below[10], (1024, 1000));
        assert_eq!(below[26], (1 << 26, 1000), "the last value is beyond");
    }

    /// Goal: the difference of two copies has what came between; one that began
    /// anew is taken whole; buckets can be sent elsewhere and put together again.
    #[test]
    fn differences_and_copies_hold_the_same() {
        let mut histogram = Histogram::default();
        histogram.record(7);
        let earlier = histogram.clone();
        histogram.record_time(Duration::from_millis(3));
        let since = histogram.since(&earlier);
        assert_eq!((since.count(), since.sum()), (1, 3000));
        assert_eq!(earlier.since(&histogram), earlier, "began anew");
        let copy = Histogram::from_buckets(histogram.buckets(), histogram.sum());
        assert_eq!(copy, histogram);
        let mut sum = earlier.clone();
        sum.add(&since);
        assert_eq!(sum, histogram);
        assert_eq!(
            Histogram::from_buckets([(BUCKETS, 1)], 0),
            Histogram::default()
        );
    }
}
