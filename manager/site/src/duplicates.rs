//! Remembered replies: a request that is sent again gets the reply of the
//! first time, also after a restart (CONSISTENCY 8).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crossdock_peer::{Call, DuplicateKey, SiteRequest};
use crossdock_types::WallTime;

use crate::commit::After;
use crate::replies::decode_reply;
use crate::site::Site;

/// A reply and when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) wall: WallTime,
    /// The intention that has to be done before the reply may go out.
    pub(crate) intention: Option<u64>,
    /// The encoded reply.
    pub(crate) reply: Box<[u8]>,
}

/// The remembered replies of a site, bounded in number and age.
#[derive(Debug)]
pub(crate) struct Duplicates {
    by_key: BTreeMap<DuplicateKey, Remembered>,
    /// Oldest first.
    by_age: VecDeque<(WallTime, DuplicateKey)>,
    count_max: usize,
    age_max_nanos: i64,
}

impl Duplicates {
    pub(crate) fn new(count_max: usize, age_max: std::time::Duration) -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_age: VecDeque::new(),
            count_max,
            age_max_nanos: i64::try_from(age_max.as_nanos()).unwrap_or(i64::MAX),
        }
    }

    pub(crate) fn get(&self, key: &DuplicateKey) -> Option<&Remembered> {
        self.by_key.get(key)
    }

    /// Remembers a reply; forgets what is too old or too many.
    pub(crate) fn insert(&mut self, key: DuplicateKey, remembered: Remembered) {
        let wall = remembered.wall;
        if self.by_key.insert(key, remembered).is_none() {
            self.by_age.push_back((wall, key));
        }
        let oldest = wall.0.saturating_sub(self.age_max_nanos);
        while let Some(&(age, key)) = self.by_age.front() {
            if self.by_age.len() <= self.count_max && age.0 >= oldest {
                break;
            }
            self.by_age.pop_front();
            self.by_key.remove(&key);
        }
    }

    /// Takes one from a checkpoint, where they are not in order of age.
    pub(crate) fn load(&mut self, key: DuplicateKey, remembered: Remembered) {
        self.by_key.insert(key, remembered);
    }

    /// All are loaded: order them by age.
    pub(crate) fn loaded(&mut self) {
        let mut by_age: Vec<_> = self
            .by_key
            .iter()
            .map(|(&key, remembered)| (remembered.wall, key))
            .collect();
        by_age.sort_unstable();
        self.by_age = by_age.into();
    }

    /// The first one after `after`, in key order.
    pub(crate) fn next_after(
        &self,
        after: Option<DuplicateKey>,
    ) -> Option<(DuplicateKey, &Remembered)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.by_key.range((from, Bound::Unbounded));
        rest.next().map(|(&key, remembered)| (key, remembered))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}

impl Site {
    /// A request that was carried out, or refused, before gets the same reply
    /// (CONSISTENCY 8).
    pub(crate) fn answer_duplicate(&mut self, wall: WallTime, call: &Call<SiteRequest>) -> bool {
        let Some(key) = &call.request.duplicate else {
            return false;
        };
        if let Some(reply) = self.refusals.get(wall, *key, call.id) {
            let newest = self.log_mut().newest();
            self.reply(reply, After::position(newest));
            return true;
        }
        let Some(remembered) = self.state.duplicates.get(key) else {
            return false;
        };
        let intention = remembered.intention;
        let Some(reply) = decode_reply(call.id, &remembered.reply) else {
            return false;
        };
        let reply = match intention {
            Some(id) => self.state.intentions.wait(id, reply),
            None => Some(reply),
        };
        if let Some(reply) = reply {
            let newest = self.log_mut().newest();
            self.reply(reply, After::position(newest));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn remember(duplicates: &mut Duplicates, number: u8, seconds: i64) {
        let remembered = Remembered {
            wall: WallTime::from_parts(seconds, 0),
            intention: None,
            reply: Box::from([number]),
        };
        duplicates.insert(DuplicateKey([number; 16]), remembered);
    }

    /// Goal: number and age are bounded, and the oldest goes first.
    #[test]
    fn old_replies_are_forgotten() {
        let limits = crate::SiteLimits::default();
        assert_eq!(limits.duplicates_max, 65_536);
        assert_eq!(limits.duplicate_age, Duration::from_secs(600));
        let mut duplicates = Duplicates::new(3, Duration::from_secs(100));
        for number in 0..5 {
            remember(&mut duplicates, number, number.into());
        }
        assert_eq!(duplicates.len(), 3);
        assert!(duplicates.get(&DuplicateKey([1; 16])).is_none());
        assert!(duplicates.get(&DuplicateKey([2; 16])).is_some());
        remember(&mut duplicates, 9, 103);
        assert_eq!(duplicates.len(), 3, "2 is too old");
        assert!(duplicates.get(&DuplicateKey([2; 16])).is_none());
        assert!(duplicates.get(&DuplicateKey([3; 16])).is_some());
    }
}
