//! How long things take: what the scheduler's choices follow.

use std::time::Duration;

use super::depot::DepotState;
use super::task::Task;
use super::{DepotId, Piece, RANK, TaskId, Transfer, rate, seconds};

/// A request goes out behind another one when that is expected to end within the time that its
/// depot takes for a first byte, and so much.
const LEAD: Duration = Duration::from_millis(20);

/// It goes so long before at most.
const LEAD_MAX: Duration = Duration::from_millis(500);

/// A connection without a byte for so long carries nothing.
const SILENT: Duration = Duration::from_secs(1);

/// Requests that are out on one connection at most.
const CHAIN_MAX: usize = 4;

/// What is under way tells that a depot is slower than it was from this part on.
const SLOWER: f64 = 0.5;

/// A forecast is false that is wrong by this factor.
const FALSE: f64 = 3.0;

/// A depot that carries less than this part of what all carry on average is clearly slower.
const BELOW_MEAN: f64 = 0.75;

impl Transfer {
    /// How long until a depot takes one more connection, in seconds.
    pub(super) fn wait(&self, depot: DepotId) -> f64 {
        let state = &self.depots[depot.0];
        let pause = (state.retry_at - self.now).as_secs_f64();
        if state.active < self.limit(depot) {
            return pause;
        }
        let of_depot = self.tasks.values();
        let of_depot = of_depot.filter(|task| task.depot == depot && !task.is_followed);
        let soonest = of_depot.map(|task| self.left(task));
        soonest.fold(f64::INFINITY, f64::min).max(pause)
    }

    /// How much faster than the slowest depot the best one of a piece is, as was forecast, in steps.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few steps"
    )]
    pub(super) fn rank(&self, piece: &Piece) -> u32 {
        let told = |depot: &DepotState| depot.prior;
        let slowest = self.depots.iter().filter_map(told).reduce(f64::min);
        let sources = piece.sources.iter().map(|depot| &self.depots[depot.0]);
        let best = sources.filter_map(told).reduce(f64::max);
        best.zip(slowest).map_or(0, |(best, slowest)| {
            (best / slowest).log(RANK).round() as u32
        })
    }

    /// Takes what connections to a depot carry together for its forecast where that was wrong by
    /// [`FALSE`]; whether one was.
    pub(super) fn correct_forecasts(&mut self) -> bool {
        let mut carried: Vec<Option<f64>> = vec![Some(0.0); self.depots.len()];
        for task in self.tasks.values().filter(|task| task.behind.is_none()) {
            let sum = &mut carried[task.depot.0];
            // Of one that has just begun that says nothing.
            *sum = sum.zip(self.task_rate(task)).map(|(sum, rate)| sum + rate);
        }
        let mut is_false = false;
        for (depot, carried) in self.depots.iter_mut().zip(carried) {
            let carried = carried.filter(|&carried| carried > 0.0);
            let Some((told, carried)) = depot.prior.as_mut().zip(carried) else {
                continue;
            };
            if carried < *told / FALSE || carried > *told * FALSE {
                *told = carried;
                is_false = true;
            }
        }
        is_false
    }

    /// Connections that clearly slower depots may have: as many as their part of what all carry,
    /// or as others leave.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "few connections"
    )]
    pub(super) fn shares(&self) -> Vec<Option<usize>> {
        let rates = self.depots.iter().map(|depot| depot.rate(self.now));
        let rates: Vec<Option<f64>> = rates.collect();
        let known = rates.iter().flatten();
        let (sum, count) = (known.clone().sum::<f64>(), known.count() as f64);
        let limits: usize = self.depots.iter().map(|depot| depot.limit).sum();
        let threads = self.settings.threads;
        let share = |(depot, rate): (&DepotState, &Option<f64>)| {
            let rate = rate.filter(|rate| rate * count < BELOW_MEAN * sum)?;
            let part = (threads as f64 * rate / sum).ceil() as usize;
            let left = threads.saturating_sub(limits - depot.limit);
            Some(part.max(left).max(1))
        };
        self.depots.iter().zip(&rates).map(share).collect()
    }

    /// Connections that a depot may have now: of one that has shown nothing in this transfer no
    /// more than an equal share, as what was forecast of it may be wrong.
    pub(super) fn limit(&self, depot: DepotId) -> usize {
        let limit = self.depots[depot.0].limit;
        if let Some(share) = self.shares[depot.0] {
            return limit.min(share);
        }
        match self.proven_rate(depot) {
            Some(_) => limit,
            None => limit.min(self.settings.threads.div_ceil(self.depots.len()).max(1)),
        }
    }

    /// Whether a depot takes one more connection now.
    pub(super) fn can_start(&self, depot: DepotId) -> bool {
        let state = &self.depots[depot.0];
        state.can_start(self.now) && state.active < self.limit(depot)
    }

    /// How long a depot needs for so many bytes, in seconds.
    ///
    /// What was forecast counts until something is seen of the depot, also of pieces that have
    /// not ended. Who is not known at all is taken to be as good as the best: it gets to show it.
    pub(super) fn seconds(&self, depot: DepotId, bytes: u64) -> f64 {
        let state = &self.depots[depot.0];
        let live = self.live[depot.0];
        let expected = match (state.seen(self.now), live) {
            (Some(seen), Some(live)) if live < SLOWER * seen => live,
            (Some(seen), _) => seen,
            (None, Some(live)) => live,
            (None, None) => state.rate(self.now).unwrap_or_else(|| self.best_rate()),
        };
        seconds(bytes, expected)
    }

    /// The same for a piece that nobody fetches: a depot that has shown nothing, and has no
    /// connection, gets to show what it carries, whatever was forecast.
    pub(super) fn seconds_at_start(&self, depot: DepotId, bytes: u64) -> f64 {
        match self.proven_rate(depot) {
            None if self.depots[depot.0].active == 0 => {
                let known = self.seconds(depot, bytes);
                known.min(seconds(bytes, self.best_rate()))
            }
            _ => self.seconds(depot, bytes),
        }
    }

    /// What a new connection to a depot costs, if one is needed for so many bytes.
    pub(super) fn opening(&self, depot: DepotId, bytes: u64) -> f64 {
        let carried = rate(bytes, self.seconds(depot, bytes));
        self.depots[depot.0].opening(bytes, carried)
    }

    /// What a connection to a depot carries, as far as it was seen to.
    fn proven_rate(&self, depot: DepotId) -> Option<f64> {
        let live = self.live[depot.0];
        match (self.depots[depot.0].proven(), live) {
            (Some(seen), Some(live)) if live < SLOWER * seen => Some(live),
            (Some(seen), _) => Some(seen),
            (None, live) => live,
        }
    }

    /// By how much connections to a depot are slower with one more, if it is their line that
    /// limits them: what is moved has to be worth it even then, or all of it goes to one depot.
    fn sharing(&self, depot: DepotId) -> f64 {
        match u32::try_from(self.depots[depot.0].active) {
            Ok(active @ 1..) => f64::from(active + 1) / f64::from(active),
            _ => 1.0,
        }
    }

    fn best_rate(&self) -> f64 {
        let rate = |depot: &DepotState| depot.rate(self.now);
        self.depots.iter().filter_map(rate).fold(1.0, f64::max)
    }

    /// What connections to each depot carry now, if they have been there for some time.
    pub(super) fn live_rates(&self) -> Vec<Option<f64>> {
        let mut live = vec![None; self.depots.len()];
        for task in self.tasks.values() {
            let best: &mut Option<f64> = &mut live[task.depot.0];
            if let Some(rate) = self.task_rate(task) {
                *best = Some(best.map_or(rate, |best| best.max(rate)));
            }
        }
        live
    }

    /// What a task carries now, if it has been there for some time.
    pub(super) fn task_rate(&self, task: &Task) -> Option<f64> {
        task.rate(self.now, self.depots[task.depot.0].first_byte)
    }

    /// What it has carried; of one that has just begun that says nothing.
    pub(super) fn carried(&self, task: &Task) -> Option<f64> {
        let elapsed = self.now - task.started;
        let is_silent = task.done == 0 && elapsed >= SILENT;
        let silent = is_silent.then(|| rate(0, elapsed.as_secs_f64()));
        self.task_rate(task).or(silent)
    }

    /// How long a task still takes, in seconds, with those before it on its connection.
    pub(super) fn left(&self, task: &Task) -> f64 {
        if let Some(before) = task.behind.and_then(|before| self.tasks.get(&before)) {
            return self.left(before) + self.seconds(task.depot, task.bytes);
        }
        let elapsed = (self.now - task.started).as_secs_f64();
        // As long again as it has already taken for nothing, at least.
        let silent = (self.now - task.progressed).as_secs_f64();
        match self.task_rate(task) {
            None => (self.seconds(task.depot, task.bytes) - elapsed).max(silent),
            Some(rate) => seconds(task.bytes - task.done, rate).max(silent),
        }
    }

    /// Whether the next request is to go out on a task's connection now, for its bytes to come
    /// right behind those that are coming.
    pub(super) fn ends_soon(&self, task: &Task) -> bool {
        let mut length = 1;
        let mut before = task.behind;
        while let Some(task) = before.and_then(|before| self.tasks.get(&before)) {
            length += 1;
            before = task.behind;
        }
        let lead = (self.depots[task.depot.0].first_byte + LEAD).min(LEAD_MAX);
        // A forecast that is wrong would have all pieces wait in one line.
        let is_known = self.proven_rate(task.depot).is_some();
        is_known && length < CHAIN_MAX && self.left(task) <= lead.as_secs_f64()
    }

    /// Whether a piece that was moved has time to come from where it is now. All depots may be
    /// farther away than thought, or their connections held back after a quick beginning: with each
    /// further move the next one gets twice as long.
    fn has_time(&self, task: &Task) -> bool {
        let Some(moves) = self.pieces[&task.piece].moved.checked_sub(1) else {
            return false;
        };
        let patience = self.patience(task.depot).saturating_mul(1 << moves.min(16));
        self.now - task.started < patience
    }

    /// The task for which another source would save most time, and that source, if it takes
    /// less than `part` of what is left; of pieces that nobody else fetches. By what is hoped of
    /// depots, for threads that have nothing else to do; or by what they have shown, where one of
    /// which nothing was seen yet gets one piece at a time.
    pub(super) fn slowest(&self, part: f64, is_idle: bool) -> Option<(TaskId, usize)> {
        let mut best: Option<(f64, TaskId, usize)> = None;
        for (&id, task) in &self.tasks {
            let state = &self.pieces[&task.piece];
            let is_alone = state.running.len() == 1 && state.piece.spread.is_none();
            // What waits for another one's connection is not slow; that one may be.
            if !is_alone || task.behind.is_some() {
                continue;
            }
            if !is_idle && self.has_time(task) {
                continue;
            }
            let left = self.left(task);
            for source in self.usable(task.piece) {
                let depot = state.piece.sources[source];
                if depot == task.depot || !self.can_start(depot) {
                    continue;
                }
                let known = &self.depots[depot.0];
                let elsewhere = match self.proven_rate(depot) {
                    _ if is_idle => {
                        let hoped = known.hoped().unwrap_or_else(|| self.best_rate());
                        seconds(task.bytes, hoped)
                    }
                    Some(rate) => seconds(task.bytes, rate / self.sharing(depot)),
                    None if known.active > 0 => continue,
                    None => self.seconds(depot, task.bytes),
                };
                let opening = self.opening(depot, task.bytes);
                let saved = left - opening - elsewhere / part;
                if saved > 0.0 && best.is_none_or(|(most, ..)| saved > most) {
                    best = Some((saved, id, source));
                }
            }
        }
        best.map(|(_, task, source)| (task, source))
    }
}
