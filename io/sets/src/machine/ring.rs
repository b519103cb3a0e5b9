//! The partial-parity log of one member: a ring of slots that are used in turn.
//!
//! A start believes the newest record of a stripe that it finds. Records are on their way together, and
//! power may tear one and leave what another one was to be written over; so a record is not written
//! over a newer one of a stripe before what was to be written over an older one of it is there.
//! Otherwise the older one could outlive the newer one, and say of cells that were written since that
//! they were not.

use std::collections::{BTreeMap, VecDeque};

/// The log of one member.
#[derive(Debug, Default)]
pub(super) struct Ring {
    next: u64,
    /// Records that are still needed, with flushes that had begun when their writes
    /// ended.
    live: BTreeMap<u64, Option<u64>>,
    /// What lies in the slots that were written since the start.
    slots: BTreeMap<u64, Noted>,
    /// The other slots may have records of an earlier start.
    has_older: bool,
    /// Records on their way, and what they are written over.
    writing: BTreeMap<u64, Content>,
    /// Works that wait for a slot.
    waiting: VecDeque<u64>,
}

/// What a record is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    pub(super) stripe: u64,
    /// From the first block that is written to behind the last.
    pub(super) rows: (usize, usize),
}

/// What lies in a slot.
#[derive(Clone, Copy, Debug)]
enum Content {
    Nothing,
    Unknown,
    Of(Noted),
}

/// Where a record may go.
pub(super) enum Place {
    /// It has this number.
    Taken(u64),
    /// Nowhere before one that is on its way is there.
    Behind,
    /// Nowhere before a flush.
    Full,
}

impl Content {
    /// Whether both may be records of the same block of a stripe.
    const fn may_meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => false,
            (Self::Of(a), Self::Of(b)) => {
                a.stripe == b.stripe && a.rows.0 < b.rows.1 && b.rows.0 < a.rows.1
            }
            (Self::Unknown, _) | (_, Self::Unknown) => true,
        }
    }
}

impl Ring {
    /// A log whose next record has that number.
    pub(super) fn from(next: u64) -> Self {
        Self {
            next,
            has_older: next > 0,
            ..Self::default()
        }
    }

    /// Gives a record its place; a work that finds none is told of by [`written`](Self::written) or
    /// [`retire`](Self::retire).
    pub(super) fn take(&mut self, slots: u64, noted: Noted, work: u64) -> Place {
        let oldest = self.live.keys().next().copied().unwrap_or(self.next);
        if self.next - oldest >= slots {
            self.waiting.push_back(work);
            return Place::Full;
        }
        let slot = self.next % slots;
        let content = match self.slots.get(&slot) {
            Some(noted) => Content::Of(*noted),
            None if self.has_older => Content::Unknown,
            None => Content::Nothing,
        };
        let mut on_their_way = self.writing.values();
        if on_their_way.any(|older| older.may_meet(&content)) {
            self.waiting.push_back(work);
            return Place::Behind;
        }
        let sequence = self.next;
        self.next += 1;
        self.live.insert(sequence, None);
        self.slots.insert(slot, noted);
        self.writing.insert(sequence, content);
        Place::Taken(sequence)
    }

    /// A record is there, or has failed; who has waited tries again.
    pub(super) fn written(&mut self, sequence: u64) -> VecDeque<u64> {
        self.writing.remove(&sequence);
        std::mem::take(&mut self.waiting)
    }

    /// What a record was for has ended: when, or it is stable.
    pub(super) fn ended(&mut self, sequence: u64, stamp: Option<u64>) {
        if stamp.is_none() {
            self.live.remove(&sequence);
        } else if let Some(record) = self.live.get_mut(&sequence) {
            *record = stamp;
        }
    }

    /// A flush has made everything stable that ended before it began.
    pub(super) fn retire(&mut self, flushed: u64) -> VecDeque<u64> {
        let is_needed = |stamp: &Option<u64>| stamp.is_none_or(|stamp| stamp >= flushed);
        self.live.retain(|_, stamp| is_needed(stamp));
        std::mem::take(&mut self.waiting)
    }

    /// There will be no room for those who wait.
    pub(super) fn give_up(&mut self) -> VecDeque<u64> {
        std::mem::take(&mut self.waiting)
    }

    /// The member is out: the next one in its place has no records.
    pub(super) fn clear(&mut self) {
        self.live.clear();
        self.slots.clear();
        self.writing.clear();
        self.has_older = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u64 = 4;

    fn noted(stripe: u64, first: usize) -> Noted {
        let rows = (first, first + 1);
        Noted { stripe, rows }
    }

    fn take(ring: &mut Ring, stripe: u64, first: usize) -> Option<u64> {
        match ring.take(SLOTS, noted(stripe, first), 77) {
            Place::Taken(sequence) => Some(sequence),
            Place::Behind | Place::Full => None,
        }
    }

    fn write(ring: &mut Ring, stripe: u64, first: usize) {
        let sequence = take(ring, stripe, first).expect("a place");
        ring.written(sequence);
        ring.ended(sequence, None);
    }

    /// Goal: a record is not written over one of a block while what is written over an older one of
    /// it is on its way; over others it is, also beside it in the same stripe.
    #[test]
    fn an_older_record_of_a_block_goes_first() {
        for (second, waits) in [((5, 0), true), ((5, 1), false), ((6, 0), false)] {
            let mut ring = Ring::from(0);
            write(&mut ring, 5, 0);
            write(&mut ring, second.0, second.1);
            write(&mut ring, 8, 0);
            write(&mut ring, 9, 0);
            assert_eq!(take(&mut ring, 10, 0), Some(4), "over the first one");
            assert_eq!(take(&mut ring, 11, 0).is_none(), waits);
            assert_eq!(
                ring.written(4).len(),
                usize::from(waits),
                "who waits is told"
            );
            if waits {
                assert_eq!(take(&mut ring, 11, 0), Some(5));
            }
        }
    }

    /// Goal: what an earlier start has left may be of any block; a new disk has nothing.
    #[test]
    fn records_of_an_earlier_start_go_one_after_the_other() {
        let mut ring = Ring::from(9);
        assert_eq!(take(&mut ring, 1, 0), Some(9));
        assert_eq!(take(&mut ring, 2, 0), None);
        ring.written(9);
        assert_eq!(take(&mut ring, 2, 0), Some(10));
        ring.clear();
        for sequence in 11..15 {
            assert_eq!(take(&mut ring, 3, 0), Some(sequence));
        }
        assert_eq!(take(&mut ring, 3, 0), None, "a flush has to come first");
    }
}
