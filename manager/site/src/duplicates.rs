//! Remembered replies: a request that is sent again gets the reply of the
//! first time, also after a restart (CONSISTENCY 8).

use std::collections::VecDeque;

use crossdock_peer::{Call, DuplicateKey, SiteAnswer, SiteOperation, SiteRequest};
use crossdock_types::WallTime;
use hashbrown::HashMap;

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
    /// Oldest first.
    by_age: VecDeque<(DuplicateKey, Remembered)>,
    /// How many were forgotten before the first of them.
    forgotten: u64,
    /// Its number, from the first that ever was.
    by_key: HashMap<DuplicateKey, u64>,
    count_max: usize,
    age_max_nanos: i64,
}

impl Duplicates {
    pub(crate) fn new(count_max: usize, age_max: std::time::Duration) -> Self {
        Self {
            by_age: VecDeque::new(),
            forgotten: 0,
            by_key: HashMap::new(),
            count_max,
            age_max_nanos: i64::try_from(age_max.as_nanos()).unwrap_or(i64::MAX),
        }
    }

    pub(crate) fn get(&self, key: &DuplicateKey) -> Option<&Remembered> {
        let number = *self.by_key.get(key)?;
        Some(&self.from(number).next()?.1)
    }

    /// Remembers a reply; forgets what is too old or too many.
    pub(crate) fn insert(&mut self, key: DuplicateKey, remembered: Remembered) {
        let oldest = remembered.wall.0.saturating_sub(self.age_max_nanos);
        self.load(key, remembered);
        while let Some((key, first)) = self.by_age.front() {
            if self.by_age.len() <= self.count_max && first.wall.0 >= oldest {
                break;
            }
            self.by_key.remove(key);
            self.by_age.pop_front();
            self.forgotten += 1;
        }
    }

    /// Takes one from a checkpoint, which has them in order of age.
    pub(crate) fn load(&mut self, key: DuplicateKey, remembered: Remembered) {
        let next = self.forgotten + self.by_age.len() as u64;
        let number = *self.by_key.entry(key).or_insert(next);
        let known = usize::try_from(number - self.forgotten).ok();
        match known.and_then(|behind| self.by_age.get_mut(behind)) {
            // Replay of what the checkpoint has already.
            Some((_, known)) => *known = remembered,
            None => self.by_age.push_back((key, remembered)),
        }
    }

    /// From the one with that number on, as far as they are not forgotten: in
    /// order of age, each with the number behind it.
    pub(crate) fn next_from(&self, number: u64) -> Option<(u64, DuplicateKey, &Remembered)> {
        let number = number.max(self.forgotten);
        let (key, remembered) = self.from(number).next()?;
        Some((number + 1, *key, remembered))
    }

    /// What was remembered has become void: the request was not done.
    pub(crate) fn forget(&mut self, key: &DuplicateKey) {
        let number = self.by_key.get(key).copied();
        let behind = number.and_then(|number| usize::try_from(number - self.forgotten).ok());
        if let Some((_, known)) = behind.and_then(|behind| self.by_age.get_mut(behind)) {
            known.reply = Box::default(); // It is none: see `answer_duplicate`.
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    fn from(&self, number: u64) -> impl Iterator<Item = &(DuplicateKey, Remembered)> {
        let behind = number.saturating_sub(self.forgotten);
        let behind = usize::try_from(behind).unwrap_or(usize::MAX);
        self.by_age.range(behind.min(self.by_age.len())..)
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
        let Some(mut reply) = decode_reply(call.id, &remembered.reply) else {
            return false;
        };
        // A record says that it was done; it is durable, so nobody loses what was written.
        let is_write = matches!(
            call.request.operation,
            SiteOperation::Write { .. } | SiteOperation::Zero { .. }
        );
        if is_write && reply.outcome == Ok(SiteAnswer::Done) {
            reply.outcome = Ok(SiteAnswer::Written {
                incarnation: self.incarnation(),
            });
        }
        let reply = match intention {
            Some(id) => self.state.intentions.wait(id, reply),
            None => Some(reply),
        };
        if let Some(reply) = reply {
            let newest = self.log_mut().newest();
            // Also for bytes that were to be written beside the record.
            let of_file = self.waits.of(call.request.operation.subject().id.serial());
            self.reply(reply, After::position(newest).and(of_file));
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

    /// Goal: a key that is remembered again is one, and what a checkpoint takes
    /// comes back.
    #[test]
    fn a_key_is_remembered_once() {
        let mut duplicates = Duplicates::new(3, Duration::from_secs(100));
        for (number, seconds) in [(1, 0), (7, 1), (2, 2), (7, 3), (3, 4)] {
            remember(&mut duplicates, number, seconds);
        }
        let wall = |duplicates: &Duplicates, number: u8| {
            let found = duplicates.get(&DuplicateKey([number; 16]));
            found.map(|found| found.wall)
        };
        assert_eq!(wall(&duplicates, 7), Some(WallTime::from_parts(3, 0)));
        assert_eq!((wall(&duplicates, 1), duplicates.len()), (None, 3));
        let mut loaded = Duplicates::new(3, Duration::from_secs(100));
        let mut next = 0;
        while let Some((behind, key, remembered)) = duplicates.next_from(next) {
            loaded.load(key, remembered.clone());
            next = behind;
        }
        for number in [7, 2, 3] {
            assert_eq!(wall(&loaded, number), wall(&duplicates, number));
        }
    }
}
