//! The machine: plans, and what is applied.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crossdock_limits::{
    LOCK_CLIENTS_MAX, LOCK_NAME_BYTES_MAX, LOCKS_MAX, LOCKS_PER_CLIENT_MAX, LOCKS_PER_FILE_MAX,
};
use crossdock_peer::{
    ForgetWhat, GrantId, ListedLock, LockClient, LockNotice, LockOperation, LockOwner, LockRange,
    LockRefusal, LockTerms, LockWanted, ShareTerms,
};

use crate::change::LockChange;
use crate::file::{FileLocks, Held, Share};
use crate::grace::Grace;
use crate::waiting::PendingGrant;

/// Bounds of what is kept (DESIGN invariant 9); those of waiting requests are
/// in `base/limits` alone.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Ranges of one file.
    pub per_file_max: usize,
    /// Ranges and reservations of one client.
    pub per_client_max: usize,
    /// Ranges and reservations.
    pub all_max: usize,
    /// Clients.
    pub clients_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_file_max: LOCKS_PER_FILE_MAX,
            per_client_max: LOCKS_PER_CLIENT_MAX,
            all_max: LOCKS_MAX,
            clients_max: LOCK_CLIENTS_MAX,
        }
    }
}

/// What becomes of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is done with these changes (none: it was so before).
    Change(Vec<LockChange>),
    /// It is not done.
    Refuse(LockRefusal),
}

/// How much clients of one name have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// How many clients they are.
    pub clients: usize,
    /// Ranges and share reservations that they have.
    pub held: usize,
    /// Requests of theirs that wait.
    pub waiting: usize,
}

/// What a client has.
#[derive(Debug, Default)]
pub(crate) struct ClientLocks {
    count: usize,
    pub(crate) is_monitored: bool,
}

/// The locks of a site. See the crate's page.
#[derive(Debug, Default)]
pub struct Locks {
    limits: Limits,
    /// By serial.
    pub(crate) files: BTreeMap<u64, FileLocks>,
    /// Those that have something.
    pub(crate) clients: BTreeMap<LockClient, ClientLocks>,
    /// How much each owner has; shared by all that it has.
    owners: BTreeMap<Arc<LockOwner>, usize>,
    total: usize,
    pub(crate) waiting_total: usize,
    /// How many requests of an owner wait in which file.
    pub(crate) waiting_of: BTreeMap<(LockOwner, u64), usize>,
    pub(crate) grants: BTreeMap<GrantId, PendingGrant>,
    pub(crate) grants_total: u64,
    pub(crate) grace: Option<Grace>,
    /// For doors, not bound to anything that has to be durable.
    pub(crate) notices: VecDeque<LockNotice>,
}

impl Locks {
    /// No locks.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// The same; its grants have the numbers behind `last`.
    #[must_use]
    pub const fn with_grants_after(mut self, last: GrantId) -> Self {
        self.grants_total = last.0;
        self
    }

    /// What to do about `operation` on `file`. Nothing that is durable changes;
    /// requests that have to wait do so from now on.
    pub fn plan(&mut self, file: u64, operation: &LockOperation) -> Decision {
        Decision::Change(match operation {
            LockOperation::Test(wanted) => match self.first_conflict(file, wanted) {
                _ if self.is_grace() => return Decision::Refuse(LockRefusal::GracePeriod),
                Some(held) => return Decision::Refuse(LockRefusal::Held(held.shown())),
                None => Vec::new(),
            },
            LockOperation::Lock(wanted, terms) => return self.plan_lock(file, wanted, terms),
            LockOperation::Cancel(wanted) => return self.plan_cancel(file, wanted),
            LockOperation::Unlock(owner, range) => {
                self.settle(file, owner, *range);
                self.plan_unlock(file, owner, *range)
            }
            LockOperation::Share(owner, share, terms) => {
                return self.plan_share(file, owner, *share, terms);
            }
            LockOperation::Unshare(owner) => self.plan_unshare(file, owner),
            LockOperation::Forget(client, what) => self.plan_forget(client, what),
            LockOperation::Told(client) => {
                self.told(client);
                Vec::new()
            }
            LockOperation::GrantAnswered(id, is_wanted) => self.grant_answered(*id, *is_wanted),
            LockOperation::List => Vec::new(),
            LockOperation::Release(name) => self.plan_release(name),
        })
    }

    /// Applies a change, live or on replay.
    pub fn apply(&mut self, change: &LockChange) {
        match change {
            LockChange::Range {
                file,
                owner,
                range,
                mode,
                state,
                is_monitored,
            } => {
                let owner = self.intern(owner);
                let locks = self.files.entry(*file).or_default();
                let (removed, added) = locks.set(&owner, *range, *mode, *state);
                self.count(&owner, removed, added, *is_monitored);
                self.tidy(*file);
            }
            LockChange::Share {
                file,
                owner,
                terms,
                state,
                is_monitored,
            } => {
                let owner = self.intern(owner);
                let shares = &mut self.files.entry(*file).or_default().shares;
                let before = shares.len();
                shares.retain(|share| share.owner != owner);
                let removed = before - shares.len();
                shares.extend(terms.map(|terms| Share {
                    owner: Arc::clone(&owner),
                    terms,
                    state: *state,
                }));
                self.count(&owner, removed, terms.iter().count(), *is_monitored);
                self.tidy(*file);
            }
            LockChange::Forget { client, what } => self.forget(client, what),
        }
    }

    /// A file is gone, and all locks of it.
    pub fn remove_file(&mut self, file: u64) {
        self.dequeue(file, |_| true);
        let Some(locks) = self.files.remove(&file) else {
            return;
        };
        let held = locks.held.iter().map(|held| &held.owner);
        for owner in held.chain(locks.shares.iter().map(|share| &share.owner)) {
            self.count(owner, 1, 0, false);
        }
    }

    /// What doors are to be told; see also [`next_grant`](Self::next_grant).
    pub fn poll_notice(&mut self) -> Option<LockNotice> {
        self.notices.pop_front()
    }

    /// Files where a request may go on when what the client has, and what it
    /// waits for, is gone.
    #[must_use]
    pub fn files_of(&self, client: &LockClient) -> Vec<u64> {
        let has = |locks: &FileLocks| locks.held.iter().any(|h| h.owner.client == *client);
        let waits = |locks: &FileLocks| {
            let mut waiting = locks.waiting.iter();
            waiting.any(|waiter| waiter.wanted.owner.client == *client)
        };
        let files = self.files.iter();
        let files =
            files.filter(|(_, locks)| !locks.waiting.is_empty() && (has(locks) || waits(locks)));
        files.map(|(&file, _)| file).collect()
    }

    /// What the clients have whom [`LockOperation::Release`] would mean by `name`.
    #[must_use]
    pub fn holdings(&self, name: &[u8]) -> Holdings {
        let is_it = |client: &LockClient| is_called(client, name);
        let held = self.clients.iter().filter(|(client, _)| is_it(client));
        let waiting = self.waiting_of.iter();
        let waiting = waiting.filter(|((owner, _), _)| is_it(&owner.client));
        Holdings {
            clients: self.clients_called(name).len(),
            held: held.map(|(_, client)| client.count).sum(),
            waiting: waiting.map(|(_, count)| count).sum(),
        }
    }

    /// All locks and waiting requests, `count_max` at most.
    #[must_use]
    pub fn list(&self, count_max: usize) -> Vec<ListedLock> {
        let all = self.files.iter().flat_map(|(&file, locks)| {
            let held = locks.held.iter().map(move |held| ListedLock {
                file,
                lock: held.shown(),
                is_waiting: false,
            });
            let waiting = locks.waiting.iter().map(move |waiter| ListedLock {
                file,
                lock: waiter.wanted.clone(),
                is_waiting: true,
            });
            held.chain(waiting)
        });
        all.take(count_max).collect()
    }

    /// All share reservations, `count_max` at most, by file.
    #[must_use]
    pub fn reservations(&self, count_max: usize) -> Vec<(u64, LockOwner, ShareTerms)> {
        let all = self.files.iter().flat_map(|(&file, locks)| {
            let shares = locks.shares.iter();
            shares.map(move |share| (file, (*share.owner).clone(), share.terms))
        });
        all.take(count_max).collect()
    }

    /// The changes that make the locks of the first file after `after`, for a
    /// checkpoint.
    #[must_use]
    pub fn scan(&self, after: Option<u64>) -> Option<(u64, Vec<LockChange>)> {
        let from = after.map_or(0, |after| after + 1);
        let (&file, locks) = self.files.range(from..).next()?;
        let is_monitored = |owner: &LockOwner| {
            let client = self.clients.get(&owner.client);
            client.is_some_and(|client| client.is_monitored)
        };
        let held = locks.held.iter().map(|held| LockChange::Range {
            file,
            owner: (*held.owner).clone(),
            range: held.range,
            mode: Some(held.is_exclusive),
            state: held.state,
            is_monitored: is_monitored(&held.owner),
        });
        let shares = locks.shares.iter().map(|share| LockChange::Share {
            file,
            owner: (*share.owner).clone(),
            terms: Some(share.terms),
            state: share.state,
            is_monitored: is_monitored(&share.owner),
        });
        Some((file, held.chain(shares).collect()))
    }

    /// How many ranges and reservations there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.total
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// How many requests wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting_total
    }

    fn plan_lock(&mut self, file: u64, wanted: &LockWanted, terms: &LockTerms) -> Decision {
        if let Some(refusal) = self.untimely(file, Some(wanted), terms.is_reclaim) {
            return Decision::Refuse(refusal);
        }
        // Whoever has nothing holds nobody up by waiting for his turn.
        let is_free = !self.owners.contains_key(&wanted.owner);
        let has_to_queue = terms.may_block
            && is_free
            && self
                .files
                .get(&file)
                .is_some_and(|locks| locks.is_awaited(wanted));
        let decision = self.plan_now(file, wanted, terms);
        match decision {
            Decision::Change(_) if !has_to_queue => {
                self.dequeue(file, |other| other == wanted);
                self.settle(file, &wanted.owner, wanted.range);
                decision
            }
            Decision::Refuse(LockRefusal::Held(_)) | Decision::Change(_) if terms.may_block => {
                if self.is_deadlock(file, wanted) {
                    return Decision::Refuse(LockRefusal::Deadlock);
                }
                let waits = self.enqueue(file, wanted.clone(), terms.clone());
                Decision::Refuse(if waits {
                    LockRefusal::Blocked
                } else {
                    LockRefusal::Full
                })
            }
            decision => decision,
        }
    }

    /// Whether it is not the time for it: new locks are not given in the grace
    /// period, old ones not taken again outside of it, but for those that are
    /// there.
    fn untimely(
        &self,
        file: u64,
        wanted: Option<&LockWanted>,
        is_reclaim: bool,
    ) -> Option<LockRefusal> {
        let is_there = || {
            let locks = self.files.get(&file);
            wanted.is_some_and(|wanted| locks.is_some_and(|locks| locks.has(wanted)))
        };
        let is_timely = self.is_grace() == is_reclaim || is_reclaim && is_there();
        (!is_timely).then_some(LockRefusal::GracePeriod)
    }

    /// What becomes of a request if it does not wait.
    pub(crate) fn plan_now(&self, file: u64, wanted: &LockWanted, terms: &LockTerms) -> Decision {
        let locks = self.files.get(&file);
        if locks.is_some_and(|locks| locks.has_just_so(wanted, terms.state)) {
            return Decision::Change(Vec::new());
        }
        if let Some(held) = self.first_conflict(file, wanted) {
            return Decision::Refuse(LockRefusal::Held(held.shown()));
        }
        let in_file = locks.map_or(0, |locks| locks.held.len());
        if in_file + 2 > self.limits.per_file_max || !self.has_room(&wanted.owner) {
            return Decision::Refuse(LockRefusal::Full);
        }
        Decision::Change(vec![LockChange::Range {
            file,
            owner: wanted.owner.clone(),
            range: wanted.range,
            mode: Some(wanted.is_exclusive),
            state: terms.state,
            is_monitored: terms.is_monitored,
        }])
    }

    fn plan_cancel(&mut self, file: u64, wanted: &LockWanted) -> Decision {
        if self.dequeue(file, |other| other == wanted) > 0 {
            return Decision::Change(Vec::new());
        }
        // It has been granted meanwhile, and nobody wants it any more.
        match self.pending_grant(file, wanted) {
            Some(id) => {
                self.notices.push_back(LockNotice::GrantSettled(id));
                Decision::Change(self.grant_answered(id, false))
            }
            None => Decision::Refuse(LockRefusal::NotWaiting),
        }
    }

    pub(crate) fn plan_unlock(
        &self,
        file: u64,
        owner: &LockOwner,
        range: LockRange,
    ) -> Vec<LockChange> {
        let locks = self.files.get(&file);
        let has_some = locks.is_some_and(|locks| locks.has_some(owner, range));
        let free = has_some.then(|| LockChange::Range {
            file,
            owner: owner.clone(),
            range,
            mode: None,
            state: 0,
            is_monitored: false,
        });
        free.into_iter().collect()
    }

    fn plan_share(
        &self,
        file: u64,
        owner: &LockOwner,
        share: ShareTerms,
        terms: &LockTerms,
    ) -> Decision {
        let shares = self.files.get(&file).map_or(&[][..], |locks| &locks.shares);
        let own = shares.iter().find(|other| *other.owner == *owner);
        let is_there = own.is_some_and(|own| own.terms == share);
        if is_there && terms.is_reclaim {
            return Decision::Change(Vec::new());
        }
        if let Some(refusal) = self.untimely(file, None, terms.is_reclaim) {
            return Decision::Refuse(refusal);
        }
        let is_denied = shares.iter().any(|other| {
            let crosses = other.terms.deny & share.access | share.deny & other.terms.access;
            crosses != 0 && *other.owner != *owner
        });
        if is_denied {
            return Decision::Refuse(LockRefusal::Shared);
        }
        if shares.len() >= self.limits.per_file_max || !self.has_room(owner) {
            return Decision::Refuse(LockRefusal::Full);
        }
        Decision::Change(vec![LockChange::Share {
            file,
            owner: owner.clone(),
            terms: Some(share),
            state: terms.state,
            is_monitored: terms.is_monitored,
        }])
    }

    fn plan_unshare(&self, file: u64, owner: &LockOwner) -> Vec<LockChange> {
        let shares = self.files.get(&file).map_or(&[][..], |locks| &locks.shares);
        let own = shares.iter().find(|share| *share.owner == *owner);
        let gone = own.map(|_| LockChange::Share {
            file,
            owner: owner.clone(),
            terms: None,
            state: 0,
            is_monitored: false,
        });
        gone.into_iter().collect()
    }

    /// A client says that it has restarted. Names may come with their domain or
    /// without it; a machine alone at its address may have a new one.
    fn plan_forget(&mut self, client: &LockClient, what: &ForgetWhat) -> Vec<LockChange> {
        let waiting = self.waiting_of.keys().map(|(owner, _)| &owner.client);
        let mut there: Vec<LockClient> = self
            .clients
            .keys()
            .chain(waiting)
            .filter(|known| known.address == client.address)
            .cloned()
            .collect();
        there.sort_unstable();
        there.dedup();
        if there.len() > 1 {
            let host = host_of(&client.name);
            there.retain(|known| host_of(&known.name).eq_ignore_ascii_case(host));
        }
        for known in &there {
            self.told(known);
        }
        let forget = |client| LockChange::Forget {
            client,
            what: what.clone(),
        };
        there.into_iter().map(forget).collect()
    }

    fn plan_release(&self, name: &[u8]) -> Vec<LockChange> {
        let forget = |client: &LockClient| LockChange::Forget {
            client: client.clone(),
            what: ForgetWhat::Everything,
        };
        self.clients_called(name).into_iter().map(forget).collect()
    }

    /// Those of that name or at that address which hold or wait for something.
    fn clients_called(&self, name: &[u8]) -> BTreeSet<&LockClient> {
        let waiting = self.waiting_of.keys().map(|(owner, _)| &owner.client);
        let all = self.clients.keys().chain(waiting);
        all.filter(|client| is_called(client, name)).collect()
    }

    fn first_conflict(&self, file: u64, wanted: &LockWanted) -> Option<&Held> {
        let locks = self.files.get(&file)?;
        locks.held.iter().find(|held| {
            held.range.overlaps(&wanted.range)
                && (held.is_exclusive || wanted.is_exclusive)
                && *held.owner != wanted.owner
        })
    }

    fn has_room(&self, owner: &LockOwner) -> bool {
        let limits = &self.limits;
        let is_short = |bytes: &[u8]| bytes.len() <= LOCK_NAME_BYTES_MAX;
        let of_client = self.clients.get(&owner.client);
        let of_client = match of_client {
            Some(client) => client.count + 2 <= limits.per_client_max,
            None => self.clients.len() < limits.clients_max,
        };
        of_client
            && self.total + 2 <= limits.all_max
            && is_short(&owner.client.name)
            && is_short(&owner.handle)
    }

    fn intern(&mut self, owner: &LockOwner) -> Arc<LockOwner> {
        match self.owners.get_key_value(owner) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(owner.clone()),
        }
    }

    /// Counts what an owner has less and more; monitored once, a client stays so
    /// as long as it has anything.
    fn count(&mut self, owner: &Arc<LockOwner>, removed: usize, added: usize, is_monitored: bool) {
        self.total = self.total + added - removed;
        let of_owner = self.owners.entry(Arc::clone(owner)).or_default();
        *of_owner = *of_owner + added - removed;
        if *of_owner == 0 {
            self.owners.remove(owner);
        }
        let client = self.clients.entry(owner.client.clone()).or_default();
        client.count = client.count + added - removed;
        client.is_monitored |= is_monitored;
        if client.count == 0 {
            self.clients.remove(&owner.client);
            self.told(&owner.client); // It has nothing to take again.
        }
    }

    fn forget(&mut self, client: &LockClient, what: &ForgetWhat) {
        self.forget_waiting(client, what);
        let goes = |owner: &LockOwner, state: u32| {
            let is_old = match what {
                ForgetWhat::Everything => true,
                ForgetWhat::BeforeState(new) => state != *new,
            };
            is_old && owner.client == *client
        };
        let mut gone = Vec::new();
        for locks in self.files.values_mut() {
            for held in locks
                .held
                .extract_if(.., |held| goes(&held.owner, held.state))
            {
                gone.push(held.owner);
            }
            for share in locks
                .shares
                .extract_if(.., |share| goes(&share.owner, share.state))
            {
                gone.push(share.owner);
            }
        }
        for owner in gone {
            self.count(&owner, 1, 0, false);
        }
        self.files.retain(|_, locks| !locks.is_empty());
    }

    pub(crate) fn tidy(&mut self, file: u64) {
        if self.files.get(&file).is_some_and(FileLocks::is_empty) {
            self.files.remove(&file);
        }
    }
}

impl Held {
    fn shown(&self) -> LockWanted {
        LockWanted {
            owner: (*self.owner).clone(),
            range: self.range,
            is_exclusive: self.is_exclusive,
        }
    }
}

/// Whether an administrator means that client.
fn is_called(client: &LockClient, name: &[u8]) -> bool {
    client.name == name || client.address.to_string().as_bytes() == name
}

/// The name without its domain.
fn host_of(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b'.').next().unwrap_or(name)
}
