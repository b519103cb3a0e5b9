//! Requests that wait, and grants whose clients do not know of them yet: in
//! memory only. After a restart clients ask again, as they do every now and
//! then in any case.

use crossdock_limits::{LOCK_WAITERS_MAX, LOCK_WAITERS_PER_FILE_MAX};
use crossdock_peer::{
    ForgetWhat, GrantId, GrantedLock, LockClient, LockNotice, LockOwner, LockRange, LockTerms,
    LockWanted,
};

use crate::change::LockChange;
use crate::file::FileLocks;
use crate::machine::{Decision, Locks};

/// A request that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) wanted: LockWanted,
    pub(crate) terms: LockTerms,
}

/// A grant that its client has to answer.
#[derive(Clone, Debug)]
pub(crate) struct PendingGrant {
    pub(crate) file: u64,
    pub(crate) wanted: LockWanted,
}

impl Locks {
    /// Has a request wait; `false` if too many do. One that waits already is
    /// asked again: it keeps its place.
    pub(crate) fn enqueue(&mut self, file: u64, wanted: LockWanted, terms: LockTerms) -> bool {
        let is_full = self.waiting_total >= LOCK_WAITERS_MAX;
        let locks = self.files.entry(file).or_default();
        if let Some(known) = locks.waiting.iter_mut().find(|w| w.wanted == wanted) {
            known.terms = terms;
            return true;
        }
        if is_full || locks.waiting.len() >= LOCK_WAITERS_PER_FILE_MAX {
            self.tidy(file);
            return false;
        }
        let key = (wanted.owner.clone(), file);
        *self.waiting_of.entry(key).or_default() += 1;
        locks.waiting.push_back(Waiter { wanted, terms });
        self.waiting_total += 1;
        true
    }

    /// Takes back the waiting requests that `is_it` picks; how many.
    pub(crate) fn dequeue(&mut self, file: u64, is_it: impl Fn(&LockWanted) -> bool) -> usize {
        let Some(locks) = self.files.get_mut(&file) else {
            return 0;
        };
        let (gone, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut locks.waiting)
            .into_iter()
            .partition(|waiter| is_it(&waiter.wanted));
        locks.waiting = stay.into();
        self.waiting_total -= gone.len();
        for waiter in &gone {
            let key = (waiter.wanted.owner.clone(), file);
            if let Some(count) = self.waiting_of.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.waiting_of.remove(&key);
                }
            }
        }
        self.tidy(file);
        gone.len()
    }

    /// The next request of the file that need not wait any longer: what to log
    /// for it, and what to tell its client once that is durable. To be called
    /// again, after the changes have been applied, until there is none.
    pub fn next_grant(&mut self, file: u64) -> Option<(Vec<LockChange>, LockNotice)> {
        let waiting = self.files.get(&file)?.waiting.iter();
        let mut found = None;
        for waiter in waiting {
            let decision = self.plan_now(file, &waiter.wanted, &waiter.terms);
            if let Decision::Change(changes) = decision {
                found = Some((waiter.clone(), changes));
                break;
            }
        }
        let (Waiter { wanted, terms }, changes) = found?;
        self.dequeue(file, |other| *other == wanted);
        self.grants_total += 1;
        let id = GrantId(self.grants_total);
        let pending = PendingGrant {
            file,
            wanted: wanted.clone(),
        };
        self.grants.insert(id, pending);
        let notice = LockNotice::Granted(Box::new(GrantedLock {
            id,
            lock: wanted,
            handle: terms.handle,
            version: terms.version,
        }));
        Some((changes, notice))
    }

    /// A client has answered a grant; one that does not want it gives it back.
    pub(crate) fn grant_answered(&mut self, id: GrantId, is_wanted: bool) -> Vec<LockChange> {
        match self.grants.remove(&id) {
            // It asked again meanwhile, or gave the lock up.
            None => Vec::new(),
            Some(_) if is_wanted => Vec::new(),
            Some(PendingGrant { file, wanted }) => {
                self.plan_unlock(file, &wanted.owner, wanted.range)
            }
        }
    }

    /// The owner has spoken about these bytes itself: its client need not be
    /// told of grants there any more.
    pub(crate) fn settle(&mut self, file: u64, owner: &LockOwner, range: LockRange) {
        let settled = |_: &GrantId, pending: &mut PendingGrant| {
            pending.file == file
                && pending.wanted.range.overlaps(&range)
                && pending.wanted.owner == *owner
        };
        let ids: Vec<GrantId> = self
            .grants
            .extract_if(.., settled)
            .map(|(id, _)| id)
            .collect();
        self.notices
            .extend(ids.into_iter().map(LockNotice::GrantSettled));
    }

    /// The grant that a cancelled request has got meanwhile.
    pub(crate) fn pending_grant(&self, file: u64, wanted: &LockWanted) -> Option<GrantId> {
        let mut all = self.grants.iter();
        all.find(|(_, pending)| pending.file == file && pending.wanted == *wanted)
            .map(|(&id, _)| id)
    }

    /// Nobody waits for a client that has restarted, or to be told of it.
    pub(crate) fn forget_waiting(&mut self, client: &LockClient, what: &ForgetWhat) {
        let files: Vec<u64> = self
            .waiting_of
            .keys()
            .filter(|(owner, _)| owner.client == *client)
            .map(|&(_, file)| file)
            .collect();
        for file in files {
            let old: Vec<LockWanted> = self.files.get(&file).map_or_else(Vec::new, |locks| {
                let waiting = locks.waiting.iter();
                let old = waiting.filter(|waiter| match what {
                    ForgetWhat::Everything => true,
                    ForgetWhat::BeforeState(state) => waiter.terms.state != *state,
                });
                old.map(|waiter| waiter.wanted.clone()).collect()
            });
            self.dequeue(file, |wanted| {
                wanted.owner.client == *client && old.contains(wanted)
            });
        }
        let settled =
            |_: &GrantId, pending: &mut PendingGrant| pending.wanted.owner.client == *client;
        let ids: Vec<GrantId> = self
            .grants
            .extract_if(.., settled)
            .map(|(id, _)| id)
            .collect();
        self.notices
            .extend(ids.into_iter().map(LockNotice::GrantSettled));
    }
}

impl FileLocks {
    /// Whether somebody else who came earlier waits for what is wanted.
    pub(crate) fn is_awaited(&self, wanted: &LockWanted) -> bool {
        self.waiting
            .iter()
            .take_while(|waiter| waiter.wanted != *wanted)
            .any(|waiter| {
                waiter.wanted.range.overlaps(&wanted.range)
                    && (waiter.wanted.is_exclusive || wanted.is_exclusive)
                    && waiter.wanted.owner != wanted.owner
            })
    }
}
