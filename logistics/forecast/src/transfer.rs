//! The scheduler of transfers: which piece is fetched from which depot, and when.
//!
//! The paper's tool took "the copy with the best forecasted bandwidth", and found that "the
//! policy does not take into account that the depots only had 10 threads to use, or that
//! performance may be better when the load is spread evenly among depots with roughly the same
//! performance" (Network Storage Stack 3.3). Here a piece goes where it is expected to be
//! finished first, waiting included; depots that differ by less than a tenth share the load.
//! What was forecast is corrected by what is seen, also of pieces that are under way. It may be
//! wrong, so each depot gets a piece to show what it carries, and no more than its share of
//! connections before it has. What only slow depots have is begun first, as nothing at the end
//! could hurry it, and a depot that is clearly slower than others has no more connections than its
//! part of what all carry. A connection that is there already is worth the round trips that a
//! new one takes to open and to gather speed. All threads finish together: pieces are
//! taken as threads become free, and at the end, or where delivery in order waits for one, a
//! piece is fetched again from another depot when that is expected to be faster. What is much
//! slower than another depot would be goes there at once, and the depot that was left gets little
//! more until it is tried again.
//!
//! Where a depot reads requests ahead, the next one goes out on a connection before all bytes of
//! the one before have come: no round trip is idle.
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
mod estimate;
mod input;
mod task;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crossdock_types::Time;

use depot::DepotState;
pub use input::{Depot, DepotId, Effect, Failure, Input, Piece, PieceId, Settings, TaskId};
use task::Task;

/// Depots whose forecasts differ by less are equal.
const NEAR: f64 = 0.10;

/// Pieces behind the first one that are looked at when that has to wait for its depot.
const LOOK_AHEAD: usize = 64;

/// Pieces whose best depots differ by less than this factor come in the order of the file.
const RANK: f64 = 2.0;

/// A piece is fetched again if that is expected to take less than this part of what is left.
const AGAIN: f64 = 0.7;

/// How much longer than others of its depot did a connection may wait for its first byte.
const QUEUED_TIMES: u32 = 4;

/// It may wait so long at least, and at most.
const QUEUED_MIN: Duration = Duration::from_millis(200);
const QUEUED_MAX: Duration = Duration::from_secs(2);

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
    /// Those of them that nobody fetches, in order, by rank.
    waiting: BTreeSet<(u32, PieceId)>,
    tasks: BTreeMap<TaskId, Task>,
    next_task: u64,
    /// Bytes of pieces that were started and not released.
    memory: BTreeMap<PieceId, u64>,
    memory_used: u64,
    /// Where copies of the same bytes are, or are going.
    spread: BTreeMap<u64, Vec<DepotId>>,
    effects: VecDeque<Effect>,
    /// What connections to each depot carry now: it is asked for many times at each input.
    live: Vec<Option<f64>>,
    /// Connections that clearly slower depots may have.
    shares: Vec<Option<usize>>,
    now: Time,
}

#[derive(Debug)]
struct PieceState {
    piece: Piece,
    /// The higher, the better its depots are: those come later.
    rank: u32,
    /// Sources that have failed, and those that are none.
    failed: Vec<bool>,
    missing: Vec<bool>,
    /// How often it was refused, and broke.
    busy: u32,
    broken: u32,
    /// How often it was taken from a depot that was too slow.
    moved: u32,
    running: Vec<TaskId>,
}

/// From where a piece is to come.
enum Choice {
    /// From any of these sources: they are about as good.
    Start(Vec<usize>),
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
            live: vec![None; depots.len()],
            shares: vec![None; depots.len()],
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
        self.live = self.live_rates();
        self.shares = self.shares();
        self.disbelieve();
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
            .filter(|(_, id)| !self.memory.contains_key(id));
        let bytes: u64 = new.map(|(_, id)| self.pieces[id].piece.bytes).sum();
        let enough = match self.settings.in_order {
            true => 2 * self.settings.threads,
            false => LOOK_AHEAD.max(2 * self.settings.threads),
        };
        self.pieces.is_empty()
            || self.waiting.len() < enough && self.memory_used + bytes < self.settings.memory_bytes
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pieces.is_empty()
    }

    /// What a connection to a depot is expected to carry, in bytes per second.
    #[must_use]
    pub fn rate(&self, depot: DepotId) -> Option<f64> {
        self.depots[depot.0].rate(self.now)
    }

    /// Connections that a depot is believed to serve.
    #[must_use]
    pub fn connections(&self, depot: DepotId) -> usize {
        self.depots[depot.0].limit
    }

    fn add(&mut self, piece: Piece) {
        let id = piece.id;
        let sources = piece.sources.len();
        let rank = match self.settings.in_order {
            true => 0,
            false => self.rank(&piece),
        };
        let state = PieceState {
            piece,
            rank,
            failed: vec![false; sources],
            missing: vec![false; sources],
            busy: 0,
            broken: 0,
            moved: 0,
            running: Vec::new(),
        };
        assert!(self.pieces.insert(id, state).is_none(), "{id:?} twice");
        self.waiting.insert((rank, id));
    }

    /// Where connections carry quite other than what was forecast, that counts for the order of
    /// what waits.
    fn disbelieve(&mut self) {
        if self.settings.in_order || !self.correct_forecasts() {
            return;
        }
        for (_, id) in std::mem::take(&mut self.waiting) {
            let rank = self.rank(&self.pieces[&id].piece);
            self.waiting.insert((rank, id));
            if let Some(state) = self.pieces.get_mut(&id) {
                state.rank = rank;
            }
        }
    }

    fn progress(&mut self, task: TaskId, bytes: u64) {
        if let Some(task) = self.tasks.get_mut(&task)
            && task.progress(self.now, bytes)
            && !task.was_behind
        {
            self.depots[task.depot.0].began(self.now - task.started);
        }
    }

    fn done(&mut self, id: TaskId) {
        let Some(task) = self.end_task(id) else {
            return; // Another one was faster, and this one's end was under way.
        };
        let bytes = task.bytes;
        let depot = &mut self.depots[task.depot.0];
        depot.succeeded(self.now, bytes, self.now - task.started);
        let Some(state) = self.pieces.remove(&task.piece) else {
            return;
        };
        self.waiting.remove(&(state.rank, task.piece));
        for other in state.running {
            if let Some(slower) = self.end_task(other) {
                if let Some(carried) = self.carried(&slower) {
                    self.depots[slower.depot.0].observe(carried);
                }
                self.cancel(other, slower.depot);
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
        depot.closed();
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
            self.waiting.insert((state.rank, task.piece));
        }
    }

    /// Forgets a task, and that its depot serves it. Each connection has one task that nobody
    /// follows, by which it is counted.
    fn end_task(&mut self, id: TaskId) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        let active = &mut self.depots[task.depot.0].active;
        match task.is_followed {
            true => {
                let next = self.tasks.values_mut().find(|it| it.behind == Some(id));
                next.into_iter().for_each(|next| next.has_turn(self.now));
            }
            false => *active -= 1,
        }
        let before = task.behind.and_then(|before| self.tasks.get_mut(&before));
        if let Some(before) = before {
            before.is_followed = false;
            *active += 1;
        }
        if let Some(state) = self.pieces.get_mut(&task.piece) {
            state.running.retain(|&running| running != id);
        }
        Some(task)
    }

    /// Has a task that was ended given up, and its connection with it.
    fn cancel(&mut self, task: TaskId, depot: DepotId) {
        self.depots[depot.0].closed();
        self.effects.push_back(Effect::Cancel { task });
    }

    /// How long a depot may keep a connection waiting for its first byte.
    fn patience(&self, depot: DepotId) -> Duration {
        let queued = self.depots[depot.0].first_byte * QUEUED_TIMES;
        queued.clamp(QUEUED_MIN, QUEUED_MAX)
    }

    /// Ends tasks that get nothing: behind others of the same depot, or at all.
    fn give_up_stalled(&mut self) {
        let has_turn = |(_, task): &(&TaskId, &Task)| task.behind.is_none();
        let ids = self.tasks.iter().filter(has_turn).map(|(&id, _)| id);
        for id in ids.collect::<Vec<_>>() {
            let task = &self.tasks[&id];
            let silent = self.now - task.progressed;
            let depot = task.depot;
            let served = self.tasks.values().filter(|other| {
                other.depot == depot && other.done > 0 && other.progressed >= task.started
            });
            let served = served.count();
            if task.done == 0 && silent >= self.patience(depot) && served > 0 {
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
        while self.threads() < self.settings.threads && self.start_waiting() {}
        self.ask_ahead();
        if !self.settings.fetches_again {
            return;
        }
        while self.threads() < self.settings.threads {
            let Some((task, source)) = self.slowest(AGAIN, true) else {
                return;
            };
            let piece = self.tasks[&task].piece;
            self.start(piece, source, None);
        }
        while let Some((id, source)) = self.slowest(MOVE, false) {
            let Some(task) = self.end_task(id) else {
                return;
            };
            self.cancel(id, task.depot);
            if let Some(carried) = self.carried(&task) {
                self.depots[task.depot.0].was_left(carried, self.now);
            }
            if let Some(state) = self.pieces.get_mut(&task.piece) {
                state.moved += 1;
            }
            self.start(task.piece, source, None);
        }
    }

    /// Threads that have something to do.
    fn threads(&self) -> usize {
        let tasks = self.tasks.values();
        tasks.filter(|task| !task.is_followed).count()
    }

    /// The pieces that may be started next, in order. Those behind one for which there is no
    /// room wait, too: delivery is in order.
    fn startable(&self) -> Vec<PieceId> {
        let first = self.pieces.first_key_value().map(|(&first, _)| first);
        let first = first.filter(|_| self.settings.in_order);
        let has_room = |id: &PieceId| {
            self.memory.contains_key(id)
                || first == Some(*id)
                || self.memory_used == 0
                || self.memory_used + self.pieces[id].piece.bytes <= self.settings.memory_bytes
        };
        let waiting = self.waiting.iter().map(|&(_, id)| id);
        match self.settings.in_order {
            true => waiting.take(LOOK_AHEAD).take_while(has_room).collect(),
            false => waiting.filter(has_room).take(LOOK_AHEAD).collect(),
        }
    }

    /// Starts the first piece that can be started; whether there was one.
    fn start_waiting(&mut self) -> bool {
        for id in self.startable() {
            match self.choose(id) {
                Choice::Start(good) => {
                    let state = &self.pieces[&id];
                    let depot = |source: usize| &self.depots[state.piece.sources[source].0];
                    let least = good
                        .into_iter()
                        .min_by_key(|&source| (depot(source).active, source));
                    if let Some(source) = least {
                        self.start(id, source, None);
                        return true;
                    }
                }
                Choice::Wait => {}
                Choice::Lost => {
                    if let Some(state) = self.pieces.remove(&id) {
                        self.waiting.remove(&(state.rank, id));
                    }
                    self.memory_used -= self.memory.remove(&id).unwrap_or(0);
                    self.effects.push_back(Effect::Lost { piece: id });
                }
            }
        }
        false
    }

    /// Has the next piece asked for on connections that are about to be free, where that is no
    /// worse than any other.
    fn ask_ahead(&mut self) {
        let is_end = |(_, task): &(&TaskId, &Task)| {
            let reads_ahead = self.depots[task.depot.0].reads_ahead;
            reads_ahead && !task.is_followed && self.ends_soon(task)
        };
        let ends = self.tasks.iter().filter(is_end);
        for (id, depot) in ends.map(|(&id, task)| (id, task.depot)).collect::<Vec<_>>() {
            // It would be in the place of the one that ends.
            self.depots[depot.0].active -= 1;
            match self.next_from(depot) {
                Some((piece, source)) => {
                    if let Some(task) = self.tasks.get_mut(&id) {
                        task.is_followed = true;
                    }
                    self.start(piece, source, Some(id));
                }
                None => self.depots[depot.0].active += 1,
            }
        }
    }

    /// The first piece that is to come from a depot.
    fn next_from(&mut self, depot: DepotId) -> Option<(PieceId, usize)> {
        for id in self.startable() {
            let Choice::Start(good) = self.choose(id) else {
                continue;
            };
            let sources = &self.pieces[&id].piece.sources;
            let mut good = good.into_iter();
            if let Some(source) = good.find(|&source| sources[source] == depot) {
                return Some((id, source));
            }
        }
        None
    }

    /// The source that is expected to finish first, and those that are about as good.
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
        if sources.is_empty() {
            return Choice::Lost;
        }
        let bytes = self.pieces[&id].piece.bytes;
        let depot = |source: usize| self.pieces[&id].piece.sources[source];
        let finish = |&source: &usize| {
            let depot = depot(source);
            let moving = self.seconds_at_start(depot, bytes);
            self.wait(depot) + self.opening(depot, bytes) + moving
        };
        let best = sources.iter().map(finish).fold(f64::INFINITY, f64::min);
        let is_good = |source: &usize| {
            let known = &self.depots[depot(*source).0];
            let can_start = self.can_start(depot(*source)) && !known.is_tried(self.now);
            can_start && finish(source) <= best * (1.0 + NEAR)
        };
        let good: Vec<usize> = sources.iter().copied().filter(is_good).collect();
        match good.is_empty() {
            true => Choice::Wait,
            false => Choice::Start(good),
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

    fn start(&mut self, id: PieceId, source: usize, behind: Option<TaskId>) {
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
        self.waiting.remove(&(state.rank, id));
        if self.memory.insert(id, bytes).is_none() {
            self.memory_used += bytes;
        }
        self.depots[depot.0].asked();
        let started = Task::new(self.now, (id, source), depot, bytes, behind);
        self.tasks.insert(task, started);
        let effect = Effect::Start {
            task,
            piece: id,
            source,
            behind,
        };
        self.effects.push_back(effect);
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
