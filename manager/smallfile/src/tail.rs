//! The end of a log that is being replayed: holds back what may be void.

use std::collections::VecDeque;

use crate::{BackingRead, RecordSummary, Sequence};

/// Holds records of the log, whole (`T` is the site's own record, with all its
/// roles), from the first whose backing writes may not have landed.
///
/// The site pushes every record; what is certain comes out of
/// [`pop`](Self::pop) in order. At the end of the log it reads what
/// [`unverified`](Self::unverified) names on **every** member, calls
/// [`verified`](Self::verified) or [`void`](Self::void) for each, pops the rest,
/// and makes the record of [`crate::SmallFiles::plan_void`] for the void ones
/// durable before it serves anything.
///
/// A change is void if a member *has* other bytes, or fewer. A member that
/// cannot be reached, or whose medium fails, proves nothing: the change may have
/// been acknowledged.
#[derive(Debug)]
pub struct ReplayTail<T> {
    held: VecDeque<Held<T>>,
}

#[derive(Debug)]
struct Held<T> {
    record: T,
    sequence: Option<Sequence>,
    verify: Vec<BackingRead>,
}

impl<T> ReplayTail<T> {
    /// Nothing held.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            held: VecDeque::new(),
        }
    }

    /// Takes the next record of the log, with the summary of its small-file
    /// part if it has one. Void records that it held are dropped whole.
    pub fn push(&mut self, record: T, summary: Option<RecordSummary>) {
        let Some(summary) = summary else {
            self.held.push_back(Held {
                record,
                sequence: None,
                verify: Vec::new(),
            });
            return;
        };
        self.held.retain(|held| {
            held.sequence
                .is_none_or(|own| !summary.voids.contains(&own))
        });
        for held in &mut self.held {
            if held.sequence.is_some_and(|own| own < summary.written_below) {
                held.verify.clear();
            }
        }
        self.held.push_back(Held {
            record,
            sequence: Some(summary.sequence),
            verify: summary.verify,
        });
    }

    /// The next record that is certain; `None` if there is none or the next
    /// has to be verified.
    pub fn pop(&mut self) -> Option<T> {
        let next = self.held.front()?;
        if !next.verify.is_empty() {
            return None;
        }
        self.held.pop_front().map(|held| held.record)
    }

    /// What has to be read and compared, at the end of the log.
    pub fn unverified(&self) -> impl Iterator<Item = (Sequence, &[BackingRead])> {
        self.held.iter().filter_map(|held| {
            let sequence = held.sequence?;
            (!held.verify.is_empty()).then_some((sequence, held.verify.as_slice()))
        })
    }

    /// The bytes of that record are there, on every member.
    pub fn verified(&mut self, sequence: Sequence) {
        for held in &mut self.held {
            if held.sequence == Some(sequence) {
                held.verify.clear();
            }
        }
    }

    /// The bytes of that record are not there: it was never acknowledged, and
    /// is dropped whole.
    pub fn void(&mut self, sequence: Sequence) {
        self.held.retain(|held| held.sequence != Some(sequence));
    }

    /// How many records are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl<T> Default for ReplayTail<T> {
    fn default() -> Self {
        Self::new()
    }
}
