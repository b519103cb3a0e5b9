//! The scheduler of transfers: which piece is fetched from which depot, and when.
//!
//! The paper's tool took "the copy with the best forecasted bandwidth", and found that "the
//! policy does not take into account that the depots only had 10 threads to use, or that
//! performance may be better when the load is spread evenly among depots with roughly the same
//! performance" (Network Storage Stack 3.3). Here a piece goes where it is expected to be
//! finished first, waiting included; depots that differ by less than a tenth share the load.
//! What was forecast is corrected by what is seen. All threads finish together: pieces are
//! taken as threads become free, and at the end, or where delivery in order waits for one, a
//! piece is fetched again from another depot when that is expected to be faster.
//!
//! How many connections a depot serves is learned: one that it refuses, or that gets no byte
//! while others of the same depot do, is one too many; later one more is tried.
//!
//! An upload is the same, the other way round: the sources of a piece are the depots that it
//! may go to, and copies of the same bytes go to depots apart.
//!
//! No I/O and no clock: the shell starts and ends tasks as [`Effect`]s say, and tells what
//! becomes of them. Memory is bounded: a piece counts from its first start until the shell has
//! [released](Input::Released) it.

mod depot;
mod input;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crossdock_types::Time;

use depot::DepotState;
pub use input::{Depot, DepotId, Effect, Failure, Input, Piece, PieceId, Settings, TaskId};

/// Depots whose forecasts differ by less are equal.
const NEAR: f64 = 0.10;

/// Pieces behind the first one that are looked at when that has to wait for its depot.
const LOOK_AHEAD: usize = 64;

/// A piece is fetched again if that is expected to take less than this part of what is left.
const AGAIN: f64 = 0.7;

/// How much longer than others of its depot did a connection may wait for its first byte.
const QUEUED_TIMES: u32 = 4;

/// It may wait so long at least, and at most.
const QUEUED_MIN: Duration = Duration::from_millis(200);
const QUEUED_MAX: Duration = Duration::from_secs(2);

/// What a connection carries is believed from then on.
const WARM: Duration = Duration::from_millis(300);

/// A piece that is under way is moved elsewhere, without waiting for a free thread, if that is
/// expected to take less than this part of what is left.
const MOVE: f64 = 0.4;

/// How often it is looked for what is slow.
const TICK: Duration = Duration::from_millis(100);

/// How often a piece may break before its source counts as one that does not have it.
const BROKEN_MAX: u32 = 20;

/// How often a piece is refused for want of connections before that counts as a failure.
const BUSY_MAX: u32 = 12;

/// The machine; see the module's page. After each [`handle`](Self::handle) all effects are
/// polled; after [`poll_timeout`](Self::poll_timeout) comes [`Input::Timeout`].
#[derive(Debug)]
pub struct Transfer {
    settings: Settings,
    depots: Vec<DepotState>,
    /// Pieces that are not finished.
    pieces: BTreeMap<PieceId, PieceState>,
    /// Those of them that nobody fetches, in order.
    waiting: BTreeSet<PieceId>,
    tasks: BTreeMap<TaskId, Task>,
    next_task: u64,
    /// Bytes of pieces that were started and not released.
    memory: BTreeMap<PieceId, u64>,
    memory_used: u64,
    /// Where copies of the same bytes are, or are going.
    spread: BTreeMap<u64, Vec<DepotId>>,
    effects: VecDeque<Effect>,
    now: Time,
}

#[derive(Debug)]
struct PieceState {
    piece: Piece,
    /// Sources that have failed, and those that are none.
    failed: Vec<bool>,
    missing: Vec<bool>,
    /// How often it was refused, and broke.
    busy: u32,
    broken: u32,
    running: Vec<TaskId>,
}

#[derive(Debug)]
struct Task {
    piece: PieceId,
    source: usize,
    depot: DepotId,
    bytes: u64,
    done: u64,
    started: Time,
    progressed: Time,
}

enum Choice {
    Start(usize),
    Wait,
    Lost,
}

impl Transfer {
    /// A machine that has nothing to do yet.
    #[must_use]
    pub fn new(settings: Settings, depots: &[Depot]) -> Self {
        Self {
            settings,
            depots: depots.iter().map(DepotState::new).collect(),
            pieces: BTreeMap::new(),
            waiting: BTreeSet::new(),
            tasks: BTreeMap::new(),
            next_task: 0,
            memory: BTreeMap::new(),
            memory_used: 0,
            spread: BTreeMap::new(),
            effects: VecDeque::new(),
            now: Time::default(),
        }
    }

    /// Takes what has happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = now;
        match input {
            Input::Add(piece) => self.add(piece),
            Input::Progress { task, bytes } => self.progress(task, bytes),
            Input::Done { task } => self.done(task),
            Input::Failed { task, failure } => self.failed(task, failure),
            Input::Released { piece } => {
                self.memory_used -= self.memory.remove(&piece).unwrap_or(0);
            }
            Input::Timeout => {}
        }
        self.give_up_stalled();
        self.schedule();
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to tell that time has passed; none while there is nothing to wait for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let stalls = self
            .tasks
            .values()
            .map(|task| (task.progressed + self.settings.stall).max(self.now + TICK));
        let is_waiting = !self.waiting.is_empty();
        let retries = self.depots.iter().map(|depot| depot.retry_at);
        let retries = retries.filter(|&at| is_waiting && at > self.now);
        let tick = (!self.tasks.is_empty()).then(|| self.now + TICK);
        stalls.chain(retries).chain(tick).min()
    }

    /// Whether more pieces are needed to keep all threads busy, and there is memory for one.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        let new = self
            .waiting
            .iter()
            .filter(|id| !self.memory.contains_key(id));
        let bytes: u64 = new.map(|id| self.pieces[id].piece.bytes).sum();
        self.pieces.is_empty()
            || self.waiting.len() < 2 * self.settings.threads
                && self.memory_used + bytes < self.settings.memory_bytes
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pieces.is_empty()
    }

    /// What a connection to a depot is expected to carry, in bytes per second.
    #[must_use]
    pub fn rate(&self, depot: DepotId) -> Option<f64> {
        self.depots[depot.0].rate()
    }

    /// Connections that a depot is believed to serve.
    #[must_use]
    pub fn connections(&self, depot: DepotId) -> usize {
        self.depots[depot.0].limit
    }

    fn add(&mut self, piece: Piece) {
        let id = piece.id;
        let sources = piece.sources.len();
        let state = PieceState {
            piece,
            failed: vec![false; sources],
            missing: vec![false; sources],
            busy: 0,
            broken: 0,
            running: Vec::new(),
        };
        assert!(self.pieces.insert(id, state).is_none(), "{id:?} twice");
        self.waiting.insert(id);
    }

    fn progress(&mut self, task: TaskId, bytes: u64) {
        if let Some(task) = self.tasks.get_mut(&task) {
            if task.done == 0 && bytes > 0 {
                self.depots[task.depot.0].began(self.now - task.started);
            }
            task.done = bytes.min(task.bytes);
            task.progressed = self.now;
        }
    }

    fn done(&mut self, id: TaskId) {
        let Some(task) = self.end_task(id) else {
            return; // Another one was faster, and this one's end was under way.
        };
        let bytes = task.bytes;
        let depot = &mut self.depots[task.depot.0];
        depot.succeeded(bytes, self.now - task.started);
        let Some(state) = self.pieces.remove(&task.piece) else {
            return;
        };
        self.waiting.remove(&task.piece);
        for other in state.running {
            if let Some(slower) = self.end_task(other) {
                let depot = &mut self.depots[slower.depot.0];
                depot.observe(slower.done, self.now - slower.started);
                self.effects.push_back(Effect::Cancel { task: other });
            }
        }
        let (piece, task) = (task.piece, id);
        self.effects.push_back(Effect::Finished { piece, task });
    }

    fn failed(&mut self, id: TaskId, failure: Failure) {
        let Some(task) = self.end_task(id) else {
            return;
        };
        let depot = &mut self.depots[task.depot.0];
        match failure {
            Failure::Busy => depot.refused(self.now),
            Failure::Broken => depot.broke(self.now),
            Failure::Missing => {}
        }
        let Some(state) = self.pieces.get_mut(&task.piece) else {
            return;
        };
        match failure {
            Failure::Busy => {
                state.busy += 1;
                state.missing[task.source] |= state.busy.is_multiple_of(BUSY_MAX);
            }
            Failure::Broken => {
                state.broken += 1;
                state.failed[task.source] = true;
                state.missing[task.source] |= state.broken.is_multiple_of(BROKEN_MAX);
            }
            Failure::Missing => state.missing[task.source] = true,
        }
        if let Some(spread) = state.piece.spread {
            let apart = self.spread.entry(spread).or_default();
            apart.retain(|&depot| depot != task.depot);
        }
        if state.running.is_empty() {
            self.waiting.insert(task.piece);
        }
    }

    /// Forgets a task, and that its depot serves it.
    fn end_task(&mut self, id: TaskId) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        self.depots[task.depot.0].active -= 1;
        if let Some(state) = self.pieces.get_mut(&task.piece) {
            state.running.retain(|&running| running != id);
        }
        Some(task)
    }

    /// Ends tasks that get nothing: behind others of the same depot, or at all.
    fn give_up_stalled(&mut self) {
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            let task = &self.tasks[&id];
            let silent = self.now - task.progressed;
            let depot = task.depot;
            let served = self.tasks.values().filter(|other| {
                other.depot == depot && other.done > 0 && other.progressed >= task.started
            });
            let served = served.count();
            let queued = self.depots[depot.0].first_byte * QUEUED_TIMES;
            let queued = queued.clamp(QUEUED_MIN, QUEUED_MAX);
            if task.done == 0 && silent >= queued && served > 0 {
                self.effects.push_back(Effect::Cancel { task: id });
                self.failed(id, Failure::Busy);
                self.depots[depot.0].limit = served;
            } else if silent >= self.settings.stall {
                self.effects.push_back(Effect::Cancel { task: id });
                self.failed(id, Failure::Broken);
            }
        }
    }

    fn schedule(&mut self) {
        while self.tasks.len() < self.settings.threads && self.start_waiting() {}
        if !self.settings.fetches_again {
            return;
        }
        while self.tasks.len() < self.settings.threads {
            let Some((task, source)) = self.slowest(AGAIN) else {
                return;
            };
            let piece = self.tasks[&task].piece;
            self.start(piece, source);
        }
        while let Some((id, source)) = self.slowest(MOVE) {
            let Some(task) = self.end_task(id) else {
                return;
            };
            self.effects.push_back(Effect::Cancel { task: id });
            let depot = &mut self.depots[task.depot.0];
            depot.observe(task.done, self.now - task.started);
            self.start(task.piece, source);
        }
    }

    /// Starts the first piece that can be started; whether there was one.
    fn start_waiting(&mut self) -> bool {
        let first: Vec<PieceId> = self.waiting.iter().take(LOOK_AHEAD).copied().collect();
        for id in first {
            let bytes = self.pieces[&id].piece.bytes;
            let has_room = self.memory.contains_key(&id)
                || self
                    .pieces
                    .first_key_value()
                    .is_some_and(|(&first, _)| first == id)
                || self.memory_used + bytes <= self.settings.memory_bytes;
            if !has_room {
                return false; // Those behind it wait, too: delivery is in order.
            }
            match self.choose(id) {
                Choice::Start(source) => {
                    self.start(id, source);
                    return true;
                }
                Choice::Wait => {}
                Choice::Lost => {
                    self.waiting.remove(&id);
                    self.pieces.remove(&id);
                    self.memory_used -= self.memory.remove(&id).unwrap_or(0);
                    self.effects.push_back(Effect::Lost { piece: id });
                }
            }
        }
        false
    }

    /// The source that is expected to finish first; of those that are about as good, one of the
    /// depot with the least to do.
    fn choose(&mut self, id: PieceId) -> Choice {
        let mut sources = self.usable(id);
        if sources.is_empty() {
            let Some(state) = self.pieces.get_mut(&id) else {
                return Choice::Wait;
            };
            // Who may come back is asked again.
            for (failed, depot) in state.failed.iter_mut().zip(&state.piece.sources) {
                *failed &= self.depots[depot.0].is_away(self.now, self.settings.away);
            }
            sources = self.usable(id);
        }
        let bytes = self.pieces[&id].piece.bytes;
        let depot = |source: usize| self.pieces[&id].piece.sources[source];
        let finish =
            |&source: &usize| self.wait(depot(source)) + self.seconds(depot(source), bytes);
        let best = sources.iter().map(finish).fold(f64::INFINITY, f64::min);
        let good = sources.iter().copied().filter(|source| {
            let can_start = self.depots[depot(*source).0].can_start(self.now);
            can_start && finish(source) <= best * (1.0 + NEAR)
        });
        let least = good.min_by_key(|&source| (self.depots[depot(source).0].active, source));
        match least {
            Some(source) => Choice::Start(source),
            None if sources.is_empty() => Choice::Lost,
            None => Choice::Wait,
        }
    }

    /// Sources of a piece that have not failed, of depots that may have it.
    fn usable(&self, id: PieceId) -> Vec<usize> {
        let state = &self.pieces[&id];
        let apart = state
            .piece
            .spread
            .and_then(|spread| self.spread.get(&spread));
        let is_usable = |&source: &usize| {
            let depot = state.piece.sources[source];
            let known = &self.depots[depot.0];
            // Who has been away for long is asked now and then, and waited for no more.
            let is_away = known.retry_at > self.now && known.is_away(self.now, self.settings.away);
            !is_away
                && !state.failed[source]
                && !state.missing[source]
                && !apart.is_some_and(|apart| apart.contains(&depot))
        };
        (0..state.piece.sources.len()).filter(is_usable).collect()
    }

    /// How long until a depot takes one more connection, in seconds.
    fn wait(&self, depot: DepotId) -> f64 {
        let state = &self.depots[depot.0];
        let pause = (state.retry_at - self.now).as_secs_f64();
        if state.active < state.limit {
            return pause;
        }
        let of_depot = self.tasks.values().filter(|task| task.depot == depot);
        let soonest = of_depot.map(|task| self.left(task));
        soonest.fold(f64::INFINITY, f64::min).max(pause)
    }

    /// How long a depot needs for so many bytes, in seconds. Who is not known is taken to be as
    /// good as the best: it gets to show it.
    fn seconds(&self, depot: DepotId, bytes: u64) -> f64 {
        let known = self.depots[depot.0].rate();
        let best = || {
            let rates = self.depots.iter().filter_map(DepotState::rate);
            rates.fold(1.0, f64::max)
        };
        let expected = known.unwrap_or_else(best);
        // What is under way tells of a change before it has ended.
        let live = self.live_rate(depot).filter(|&live| live < expected / 2.0);
        seconds(bytes, live.unwrap_or(expected))
    }

    /// What connections to a depot carry now, if they have been there for some time.
    fn live_rate(&self, depot: DepotId) -> Option<f64> {
        let is_warm = |task: &&Task| task.depot == depot && self.now - task.started >= WARM;
        let warm = self.tasks.values().filter(is_warm);
        let rates = warm.map(|task| rate(task.done, (self.now - task.started).as_secs_f64()));
        rates.reduce(f64::max)
    }

    /// How long a task still takes, in seconds.
    fn left(&self, task: &Task) -> f64 {
        let elapsed = (self.now - task.started).as_secs_f64();
        // As long again as it has already taken for nothing, at least.
        let silent = (self.now - task.progressed).as_secs_f64();
        if task.done == 0 || self.now - task.started < WARM {
            return (self.seconds(task.depot, task.bytes) - elapsed).max(silent);
        }
        seconds(task.bytes - task.done, rate(task.done, elapsed)).max(silent)
    }

    fn start(&mut self, id: PieceId, source: usize) {
        let Some(state) = self.pieces.get_mut(&id) else {
            return;
        };
        let (bytes, depot) = (state.piece.bytes, state.piece.sources[source]);
        let task = TaskId(self.next_task);
        self.next_task += 1;
        state.running.push(task);
        if let Some(spread) = state.piece.spread {
            self.spread.entry(spread).or_default().push(depot);
        }
        self.waiting.remove(&id);
        if self.memory.insert(id, bytes).is_none() {
            self.memory_used += bytes;
        }
        self.depots[depot.0].active += 1;
        let started = Task {
            piece: id,
            source,
            depot,
            bytes,
            done: 0,
            started: self.now,
            progressed: self.now,
        };
        self.tasks.insert(task, started);
        let effect = Effect::Start {
            task,
            piece: id,
            source,
        };
        self.effects.push_back(effect);
    }

    /// The task for which another source would save most time, and that source, if it takes
    /// less than `part` of what is left; of pieces that nobody else fetches.
    fn slowest(&self, part: f64) -> Option<(TaskId, usize)> {
        let mut best: Option<(f64, TaskId, usize)> = None;
        for (&id, task) in &self.tasks {
            let state = &self.pieces[&task.piece];
            if state.running.len() > 1 || state.piece.spread.is_some() {
                continue;
            }
            let left = self.left(task);
            for source in self.usable(task.piece) {
                let depot = state.piece.sources[source];
                if depot == task.depot || !self.depots[depot.0].can_start(self.now) {
                    continue;
                }
                let saved = left - self.seconds(depot, task.bytes) / part;
                if saved > 0.0 && best.is_none_or(|(most, ..)| saved > most) {
                    best = Some((saved, id, source));
                }
            }
        }
        best.map(|(_, task, source)| (task, source))
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn seconds(bytes: u64, rate: f64) -> f64 {
    bytes as f64 / rate.max(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn rate(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / seconds.max(1e-6)
}
