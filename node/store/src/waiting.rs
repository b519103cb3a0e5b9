//! Requests that cannot go on yet: they wait for the index, per object, or for
//! room, all in the order in which they came.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossdock_names::ObjectId;
use crossdock_peer::{Call, CallId, NodeError, NodeRequest};
use crossdock_types::Time;

use crate::index::{IndexCall, Loaded, Wanted};
use crate::object::{Entry, Object};
use crate::runs::{WINDOW_BLOCKS, Window};
use crate::store::{Phase, Store, busy};

/// Why something cannot be done now. Nothing was changed.
#[derive(Debug)]
pub(crate) enum Hold {
    /// The index has to be asked first.
    Load(Box<Wanted>),
    /// Memory, journal or disk have to get free first.
    Room,
    /// Never.
    Refuse(NodeError),
}

impl Hold {
    pub(crate) fn group(group: u32) -> Self {
        Self::Load(Box::new(Wanted {
            groups: vec![group],
            ..Wanted::default()
        }))
    }
}

/// The queues.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    parked: BTreeMap<ObjectId, Parked>,
    stalled: VecDeque<Queued>,
    count: usize,
    /// Of the next request that comes.
    next_number: u64,
    loads: u64,
    loading_objects: BTreeSet<ObjectId>,
    loading_windows: BTreeSet<(u64, u64)>,
}

#[derive(Debug)]
struct Parked {
    /// They go on when this load has been answered.
    token: u64,
    /// In the order of their numbers.
    calls: VecDeque<Queued>,
}

/// A request that may have to wait; those of one object never overtake each
/// other, whichever queue they go through.
#[derive(Debug)]
struct Queued {
    number: u64,
    call: Call<NodeRequest>,
}

impl Parked {
    fn insert(&mut self, queued: Queued) {
        let at = self
            .calls
            .partition_point(|other| other.number < queued.number);
        self.calls.insert(at, queued);
    }
}

impl Waiting {
    /// Forgets a call that did not begin; whether there was one.
    fn cancel(&mut self, id: CallId) -> bool {
        !self.take(|call| call.id == id).is_empty()
    }

    /// Something was asked of the index for a request that is not done.
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty() || !self.loading_windows.is_empty()
    }

    pub(crate) fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let parked = self.parked.values().flat_map(|parked| &parked.calls);
        let calls = parked.chain(&self.stalled);
        let deadline = calls.map(|queued| queued.call.deadline).min()?;
        (deadline < Time(u64::MAX)).then_some(deadline)
    }

    pub(crate) fn take_all(&mut self) -> Vec<CallId> {
        let parked = std::mem::take(&mut self.parked);
        let parked = parked.into_values().flat_map(|parked| parked.calls);
        let calls = parked.chain(std::mem::take(&mut self.stalled));
        self.count = 0;
        calls.map(|queued| queued.call.id).collect()
    }

    /// What would change something; reads stay.
    pub(crate) fn take_changes(&mut self) -> Vec<CallId> {
        self.take(|call| is_change(&call.request))
    }

    fn take_expired(&mut self, now: Time) -> Vec<CallId> {
        self.take(|call| call.deadline <= now)
    }

    fn take(&mut self, is_meant: impl Fn(&Call<NodeRequest>) -> bool) -> Vec<CallId> {
        let mut taken = Vec::new();
        let mut stays = |queued: &Queued| {
            let is_meant = is_meant(&queued.call);
            if is_meant {
                taken.push(queued.call.id);
            }
            !is_meant
        };
        self.stalled.retain(&mut stays);
        for parked in self.parked.values_mut() {
            parked.calls.retain(&mut stays);
        }
        self.recount();
        taken
    }

    /// Waits for room, before what came later for the same object.
    fn stall(&mut self, queued: Queued) {
        let object = queued.call.request.object();
        let is_later =
            |other: &Queued| other.number > queued.number && other.call.request.object() == object;
        let at = self.stalled.iter().position(is_later);
        self.stalled
            .insert(at.unwrap_or(self.stalled.len()), queued);
        self.count += 1;
    }

    fn recount(&mut self) {
        let parked: usize = self.parked.values().map(|parked| parked.calls.len()).sum();
        self.count = parked + self.stalled.len();
    }
}

impl Store {
    /// Forgets a call that did not begin; whether there was one.
    pub(crate) fn cancel_waiting(&mut self, id: CallId) -> bool {
        self.waiting.cancel(id)
    }

    /// A request arrives: it is tried, unless it would overtake another.
    pub(crate) fn begin(&mut self, call: Call<NodeRequest>) {
        if call.deadline <= self.now {
            self.refuse(call.id, busy());
            return;
        }
        let is_full = self.waiting.count >= self.config.waiting_max;
        let number = self.waiting.next_number;
        self.waiting.next_number += 1;
        let object = call.request.object();
        let is_parked = object.is_some_and(|id| self.waiting.parked.contains_key(id));
        let must_wait = is_parked || (is_change(&call.request) && self.waiting.has_stalled());
        if must_wait && is_full {
            self.refuse(call.id, busy());
            return;
        }
        let parked = object.and_then(|id| self.waiting.parked.get_mut(id));
        if let Some(parked) = parked {
            parked.insert(Queued { number, call });
            self.waiting.count += 1;
        } else if must_wait {
            self.waiting.stall(Queued { number, call });
        } else if let Some(queued) = self.attempt(Queued { number, call }) {
            self.waiting.stall(queued);
        }
    }

    /// Gives it back if it has to wait for room.
    fn attempt(&mut self, queued: Queued) -> Option<Queued> {
        let call = &queued.call;
        if let Phase::Failed(what) = &self.phase
            && is_change(&call.request)
        {
            let error = self.media(what.clone());
            self.refuse(call.id, error);
            return None;
        }
        match self.dispatch(call) {
            Ok(()) => {}
            Err(Hold::Refuse(error)) => self.refuse(call.id, error),
            Err(Hold::Room) => return Some(queued),
            Err(Hold::Load(_)) if let Some(error) = self.index_error() => {
                self.refuse(call.id, error);
            }
            Err(Hold::Load(wanted)) => {
                let token = self.load(*wanted);
                let Some(object) = call.request.object().copied() else {
                    self.refuse(call.id, busy());
                    return None;
                };
                let parked = self.waiting.parked.entry(object).or_insert_with(|| Parked {
                    token,
                    calls: VecDeque::new(),
                });
                parked.token = token;
                parked.insert(queued);
                self.waiting.count += 1;
            }
        }
        None
    }

    /// Stalled requests go on in order until one has to wait again.
    pub(crate) fn retry_waiting(&mut self) {
        for _ in 0..self.waiting.stalled.len() {
            let Some(queued) = self.waiting.stalled.pop_front() else {
                return;
            };
            self.waiting.count -= 1;
            let object = queued.call.request.object();
            if let Some(parked) = object.and_then(|id| self.waiting.parked.get_mut(id)) {
                parked.insert(queued);
                self.waiting.count += 1;
            } else if let Some(queued) = self.attempt(queued) {
                self.waiting.stalled.push_front(queued);
                self.waiting.count += 1;
                return;
            }
        }
    }

    pub(crate) fn expire_waiting(&mut self) {
        // Without a block to settle to the journal gets no room either.
        let is_full = self.settling.is_starved && self.space.is_stuck();
        for id in self.waiting.take_expired(self.now) {
            let error = if is_full { NodeError::NoSpace } else { busy() };
            self.refuse(id, error);
        }
    }

    /// Asks the index for what is not on its way yet; after the answer to the
    /// returned load all of it is there.
    pub(crate) fn load(&mut self, mut wanted: Wanted) -> u64 {
        let waiting = &mut self.waiting;
        wanted
            .objects
            .retain(|id| waiting.loading_objects.insert(*id));
        wanted
            .windows
            .retain(|key| waiting.loading_windows.insert(*key));
        wanted
            .groups
            .retain(|group| self.space.begin_loading(*group));
        if wanted.objects.is_empty() && wanted.windows.is_empty() && wanted.groups.is_empty() {
            return waiting.loads;
        }
        waiting.loads += 1;
        wanted.token = waiting.loads;
        self.ask_index(IndexCall::Load(Box::new(wanted)));
        self.waiting.loads
    }

    pub(crate) fn index_loaded(&mut self, loaded: Loaded) {
        for (id, head) in loaded.objects {
            self.waiting.loading_objects.remove(&id);
            self.tick += 1;
            let used = self.tick;
            self.objects.entry(id).or_insert_with(|| Entry {
                object: head.map(|head| Box::new(Object::of(head))),
                is_dirty: false,
                batch: 0,
                used,
            });
        }
        for (key, runs) in loaded.windows {
            self.waiting.loading_windows.remove(&key);
            self.tick += 1;
            let used = self.tick;
            self.windows
                .entry(key)
                .or_insert_with(|| Window::loaded(runs, used));
        }
        for (group, bitmap) in loaded.groups {
            self.space.loaded(group, &bitmap);
        }
        if matches!(self.phase, Phase::Opening(_)) {
            self.go_on_replaying();
            return;
        }
        self.wake_parked(loaded.token);
        self.scrub_loaded(loaded.token);
        self.mover_loaded(loaded.token);
    }

    fn wake_parked(&mut self, token: u64) {
        let is_awake = |parked: &Parked| parked.token <= token;
        let awake: Vec<ObjectId> = (self.waiting.parked.iter())
            .filter(|(_, parked)| is_awake(parked))
            .map(|(id, _)| *id)
            .collect();
        for id in awake {
            let Some(mut parked) = self.waiting.parked.remove(&id) else {
                continue;
            };
            self.waiting.count -= parked.calls.len();
            while let Some(queued) = parked.calls.pop_front() {
                // The one before may wait for room now: this one stays behind it.
                if is_change(&queued.call.request) && self.waiting.has_stalled() {
                    self.waiting.stall(queued);
                    continue;
                }
                if let Some(queued) = self.attempt(queued) {
                    self.waiting.stall(queued);
                }
                if let Some(again) = self.waiting.parked.get_mut(&id) {
                    // The others wait behind it as before.
                    self.waiting.count += parked.calls.len();
                    again.calls.append(&mut parked.calls);
                }
            }
        }
    }

    /// The object is known, or known not to be there.
    pub(crate) fn need_object(&mut self, id: &ObjectId) -> Result<(), Hold> {
        self.tick += 1;
        if let Some(entry) = self.objects.get_mut(id) {
            entry.used = self.tick;
            return Ok(());
        }
        Err(Hold::Load(Box::new(Wanted {
            objects: vec![*id],
            ..Wanted::default()
        })))
    }

    /// The object is there.
    pub(crate) fn need_existing(&mut self, id: &ObjectId) -> Result<(), Hold> {
        self.need_object(id)?;
        match self.object(id) {
            Some(_) => Ok(()),
            None => Err(Hold::Refuse(NodeError::NoObject)),
        }
    }

    /// The runs of blocks `from..to` of an object that is there are known.
    pub(crate) fn need_blocks(&mut self, id: &ObjectId, from: u64, to: u64) -> Result<(), Hold> {
        let Some(object) = self.object(id) else {
            return Ok(());
        };
        // A window that is mapped in part is needed whole.
        let mapped_end = object.head.mapped_end.next_multiple_of(WINDOW_BLOCKS);
        let serial = object.head.serial;
        let missing = self.missing_windows(serial, from, to.min(mapped_end));
        if missing.is_empty() {
            return Ok(());
        }
        Err(Hold::Load(Box::new(Wanted {
            windows: missing,
            ..Wanted::default()
        })))
    }

    /// Which windows of blocks `from..to` are not in memory.
    pub(crate) fn missing_windows(&mut self, serial: u64, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        if from < to {
            self.tick += 1;
            for number in from / WINDOW_BLOCKS..=(to - 1) / WINDOW_BLOCKS {
                match self.windows.get_mut(&(serial, number)) {
                    Some(window) => window.used = self.tick,
                    None => missing.push((serial, number)),
                }
            }
        }
        missing
    }
}

const fn is_change(request: &NodeRequest) -> bool {
    !matches!(
        request,
        NodeRequest::Read { .. }
            | NodeRequest::Stat { .. }
            | NodeRequest::Mapped { .. }
            | NodeRequest::List { .. }
            | NodeRequest::Changes { .. }
            | NodeRequest::Pin { .. }
            | NodeRequest::Unpin { .. }
            | NodeRequest::Ahead { .. }
            | NodeRequest::Share { .. }
            | NodeRequest::Exchange { .. }
            | NodeRequest::Copy { .. }
    )
}
