//! Would a request wait for ever?

use std::collections::BTreeSet;

use crossdock_peer::{LockOwner, LockWanted};

use crate::machine::Locks;

/// Owners that are looked at; beyond, the request waits, and its process can be
/// interrupted.
const OWNERS_MAX: usize = 1024;

impl Locks {
    /// Whether those who are in the way of `wanted` wait, over whatever
    /// others, for its owner.
    pub(crate) fn is_deadlock(&self, file: u64, wanted: &LockWanted) -> bool {
        let Some(locks) = self.files.get(&file) else {
            return false;
        };
        let blockers = locks.conflicts(wanted);
        let mut open: Vec<&LockOwner> = blockers.map(|held| &*held.owner).collect();
        let mut seen: BTreeSet<&LockOwner> = BTreeSet::new();
        while let Some(owner) = open.pop() {
            if *owner == wanted.owner {
                return true;
            }
            if seen.len() >= OWNERS_MAX || !seen.insert(owner) {
                continue;
            }
            let from = (owner.clone(), 0);
            let to = (owner.clone(), u64::MAX);
            for (_, file) in self.waiting_of.range(from..=to).map(|(key, _)| key) {
                let Some(locks) = self.files.get(file) else {
                    continue;
                };
                for waiter in locks.waiting.iter().filter(|w| w.wanted.owner == *owner) {
                    open.extend(locks.conflicts(&waiter.wanted).map(|held| &*held.owner));
                }
            }
        }
        false
    }
}
