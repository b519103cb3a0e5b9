//! Remembered refusals: a request that was refused, and comes again late, is
//! not carried out after its client was told that it failed and went on.
//!
//! In memory only. A refusal changed nothing, so nothing of it is in the log;
//! and what could bring a request of before a restart late, a connection or a
//! datagram on its way, hardly outlives one.

use std::collections::{BTreeMap, VecDeque};

use crossdock_peer::{CallId, DuplicateKey, SiteAnswer, SiteError, SiteReply};
use crossdock_types::WallTime;

/// How many are remembered: as many as clients can have under way by far.
const REFUSALS_MAX: usize = 4096;

/// The newest refusals.
#[derive(Debug)]
pub(crate) struct Refusals {
    by_key: BTreeMap<DuplicateKey, SiteReply>,
    /// Oldest first.
    by_age: VecDeque<(WallTime, DuplicateKey)>,
    age_max_nanos: i64,
}

impl Refusals {
    pub(crate) fn new(age_max: std::time::Duration) -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_age: VecDeque::new(),
            age_max_nanos: i64::try_from(age_max.as_nanos()).unwrap_or(i64::MAX),
        }
    }

    /// The refusal of an earlier sending, to the call `id`.
    pub(crate) fn get(
        &mut self,
        wall: WallTime,
        key: DuplicateKey,
        id: CallId,
    ) -> Option<SiteReply> {
        self.forget(wall, REFUSALS_MAX);
        let reply = self.by_key.get(&key)?.clone();
        Some(SiteReply { id, ..reply })
    }

    /// Remembers `reply`, if it is a refusal that stands: what was not tried, or
    /// has to be tried elsewhere, is tried again.
    pub(crate) fn note(&mut self, wall: WallTime, key: DuplicateKey, reply: &SiteReply) {
        let tries_again = [SiteError::Busy, SiteError::Moved, SiteError::Unanswered];
        let stands = match &reply.outcome {
            Err(error) => !tries_again.contains(error),
            Ok(answer) => matches!(answer, SiteAnswer::Differs { .. }),
        };
        if !stands {
            return;
        }
        self.forget(wall, REFUSALS_MAX - 1);
        if self.by_key.insert(key, reply.clone()).is_none() {
            self.by_age.push_back((wall, key));
        }
    }

    fn forget(&mut self, wall: WallTime, count_max: usize) {
        let oldest = wall.0.saturating_sub(self.age_max_nanos);
        while let Some(&(age, key)) = self.by_age.front() {
            if self.by_age.len() <= count_max && age.0 >= oldest {
                break;
            }
            self.by_age.pop_front();
            self.by_key.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(number: u64) -> DuplicateKey {
        DuplicateKey(u128::from(number).to_le_bytes())
    }

    fn refusal(error: SiteError) -> SiteReply {
        SiteReply::refusal(CallId(1), error)
    }

    /// Goal: number and age are bounded, the oldest goes first, and what asks to
    /// try again is not remembered.
    #[test]
    fn the_newest_refusals_are_remembered() {
        let mut refusals = Refusals::new(Duration::from_secs(100));
        let at = |seconds| WallTime::from_parts(seconds, 0);
        let count = REFUSALS_MAX as u64;
        for number in 0..=count {
            refusals.note(at(50), key(number), &refusal(SiteError::Exists));
        }
        let mut get = |number, seconds| refusals.get(at(seconds), key(number), CallId(7));
        assert_eq!(get(0, 60), None);
        let reply = get(1, 150).expect("remembered");
        assert_eq!(
            (reply.id, reply.outcome),
            (CallId(7), Err(SiteError::Exists))
        );
        assert_eq!(get(1, 151), None);
        for error in [SiteError::Busy, SiteError::Moved] {
            refusals.note(at(200), key(3), &refusal(error));
            assert_eq!(refusals.get(at(200), key(3), CallId(8)), None);
        }
    }
}
