//! In which stretches a segment is copied, and how each of them is.

use std::ops::Range;

use crossdock_limits::MAPPED_BYTES_MAX;
use crossdock_names::SMALL_FILE_THRESHOLD_BYTES;
use crossdock_peer::MappedRanges;

/// Bytes that a copy reads before it writes them.
pub(crate) const STRETCH_BYTES: u64 = 4 << 20;

/// Bytes that nodes copy before others have a turn at the destination's blocks.
const COPIED_BYTES: u64 = 16 << 20;

/// What is done for a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The source's space is asked for.
    Asking,
    Reading,
    Writing,
    /// Nodes copy.
    Copying,
    /// The destination's space is given back.
    Freeing,
    /// Zeros are written to it.
    Zeroing,
}

impl Step {
    /// Whether the destination is changed by it.
    pub(super) const fn is_change(self) -> bool {
        !matches!(self, Self::Asking | Self::Reading)
    }
}

/// Bytes of a unit's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) unit: u64,
    pub(super) start: u64,
}

/// What is copied in one go, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) source: Span,
    pub(super) destination: Span,
    pub(super) bytes: u64,
    /// Its first step.
    pub(super) first: Step,
    /// Whether what needs no space at the destination gets none.
    pub(super) is_thin: bool,
    /// Zeros are written, whatever the source has.
    pub(super) is_zeros: bool,
}

impl Span {
    const fn behind(self, bytes: u64) -> Self {
        Self {
            unit: self.unit,
            start: self.start + bytes,
        }
    }
}

impl Stretch {
    /// What is copied of this one behind so many bytes; `mapped`: which of the source's bytes have
    /// space, as far as that is known, if some may have none here and there.
    pub(super) fn next(&self, done_bytes: u64, mapped: Option<&MappedRanges>) -> Self {
        let left = self.bytes - done_bytes;
        if self.is_zeros {
            let (step, bytes) = match self.is_thin {
                true => (Step::Freeing, MAPPED_BYTES_MAX),
                false => (Step::Zeroing, COPIED_BYTES),
            };
            return self.part(done_bytes, bytes.min(left), step);
        }
        let (from, to) = (self.source, self.destination);
        // Where the destination lies over the source, and behind it, the end goes first.
        if from.unit == to.unit && from.start.abs_diff(to.start) < self.bytes {
            let bytes = left.min(STRETCH_BYTES);
            let offset = match from.start < to.start {
                true => left - bytes,
                false => done_bytes,
            };
            return self.part(offset, bytes, Step::Reading);
        }
        let at = from.start + done_bytes;
        let small = at.min(to.start + done_bytes);
        let head = SMALL_FILE_THRESHOLD_BYTES.saturating_sub(small);
        let (step, bytes) = match mapped {
            _ if head > 0 => (Step::Reading, head),
            None => (Step::Copying, COPIED_BYTES),
            // In one question.
            Some(mapped) if at >= mapped.end_bytes => {
                (Step::Asking, MAPPED_BYTES_MAX - at % MAPPED_BYTES_MAX)
            }
            Some(mapped) => match run_at(mapped, at) {
                (true, end) => (Step::Copying, (end - at).min(COPIED_BYTES)),
                (false, end) => (Step::Freeing, end - at),
            },
        };
        self.part(done_bytes, bytes.min(left), step)
    }

    const fn part(&self, offset: u64, bytes: u64, first: Step) -> Self {
        Self {
            source: self.source.behind(offset),
            destination: self.destination.behind(offset),
            bytes,
            first,
            is_thin: self.is_thin,
            is_zeros: self.is_zeros,
        }
    }

    /// All of the source has space.
    pub(super) fn as_mapped(&self) -> MappedRanges {
        let run: Range<u64> = self.source.start..self.source.start + self.bytes;
        MappedRanges {
            end_bytes: run.end,
            runs: [run].into(),
        }
    }
}

/// Whether what lies at `at` has space, and up to where that is so, of what is known.
fn run_at(mapped: &MappedRanges, at: u64) -> (bool, u64) {
    let run = mapped.runs.iter().find(|run| run.end > at);
    match run {
        Some(run) if run.start <= at => (true, run.end.min(mapped.end_bytes)),
        Some(run) => (false, run.start.min(mapped.end_bytes)),
        None => (false, mapped.end_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn whole(from: (u64, u64), to: (u64, u64), bytes: u64) -> Stretch {
        let span = |(unit, start)| Span { unit, start };
        Stretch {
            source: span(from),
            destination: span(to),
            bytes,
            first: Step::Reading,
            is_thin: true,
            is_zeros: false,
        }
    }

    /// Step, source, destination and length of each stretch.
    fn all(whole: &Stretch, mapped: Option<&MappedRanges>) -> Vec<(Step, u64, u64, u64)> {
        let (mut done, mut seen) = (0, Vec::new());
        while done < whole.bytes {
            let next = whole.next(done, mapped);
            let (from, to) = (next.source.start, next.destination.start);
            seen.push((next.first, from, to, next.bytes));
            if next.first == Step::Asking {
                break;
            }
            done += next.bytes;
        }
        seen
    }

    /// Goal: nodes copy all but what a site has here or there, and what is copied over itself.
    #[test]
    fn what_sites_have_goes_through_the_gateway() {
        let head = SMALL_FILE_THRESHOLD_BYTES;
        assert_eq!(
            all(&whole((1, 0), (2, 512), 20 * MIB), None),
            [
                (Step::Reading, 0, 512, head),
                (Step::Copying, head, 512 + head, 16 * MIB),
                (
                    Step::Copying,
                    head + 16 * MIB,
                    512 + head + 16 * MIB,
                    4 * MIB - head
                ),
            ]
        );
        assert_eq!(
            all(&whole((1, MIB), (2, 512), 512), None),
            [(Step::Reading, MIB, 512, 512)]
        );
        let moved = all(&whole((1, MIB), (1, 2 * MIB), 5 * MIB), None);
        let expected = [
            (Step::Reading, 2 * MIB, 3 * MIB, 4 * MIB),
            (Step::Reading, MIB, 2 * MIB, MIB),
        ];
        assert_eq!(moved, expected);
        let beside = all(&whole((1, MIB), (1, 2 * MIB), MIB), None);
        assert_eq!(beside, [(Step::Copying, MIB, 2 * MIB, MIB)]);
    }

    /// Goal: zeros come from nowhere, and take space only where there is to be some.
    #[test]
    fn zeros_are_written_as_the_destination_has_them() {
        let mut zeros = whole((2, MIB), (2, MIB), 100 * MIB);
        zeros.is_zeros = true;
        let seen = |zeros: &Stretch| {
            let all = all(zeros, None).into_iter();
            all.map(|(step, _, to, bytes)| (step, to, bytes))
                .collect::<Vec<_>>()
        };
        let freed = [
            (Step::Freeing, MIB, 64 * MIB),
            (Step::Freeing, 65 * MIB, 36 * MIB),
        ];
        assert_eq!(seen(&zeros), freed);
        (zeros.is_thin, zeros.bytes) = (false, 20 * MIB);
        let written = [
            (Step::Zeroing, MIB, 16 * MIB),
            (Step::Zeroing, 17 * MIB, 4 * MIB),
        ];
        assert_eq!(seen(&zeros), written);
    }

    /// Goal: what has no space at the source is freed, what has some is copied, and what is not
    /// known is asked for.
    #[test]
    fn holes_are_not_copied() {
        let mut mapped = MappedRanges::default();
        let copy = whole((1, 4 * MIB), (2, 8 * MIB), 40 * MIB);
        let asked = [(Step::Asking, 4 * MIB, 8 * MIB, 40 * MIB)];
        assert_eq!(all(&copy, Some(&mapped)), asked);
        mapped.runs = vec![MIB..5 * MIB, 6 * MIB..26 * MIB];
        mapped.end_bytes = 36 * MIB;
        assert_eq!(
            all(&copy, Some(&mapped)),
            [
                (Step::Copying, 4 * MIB, 8 * MIB, MIB),
                (Step::Freeing, 5 * MIB, 9 * MIB, MIB),
                (Step::Copying, 6 * MIB, 10 * MIB, 16 * MIB),
                (Step::Copying, 22 * MIB, 26 * MIB, 4 * MIB),
                (Step::Freeing, 26 * MIB, 30 * MIB, 10 * MIB),
                (Step::Asking, 36 * MIB, 40 * MIB, 8 * MIB),
            ]
        );
        let next = copy.next(32 * MIB, Some(&mapped)).as_mapped();
        let run = 36 * MIB..44 * MIB;
        assert_eq!((next.end_bytes, next.runs), (run.end, vec![run]));
    }
}
