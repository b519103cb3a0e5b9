//! What waits for a disk, and what goes to it next.
//!
//! The node puts a queue between the store's disk effects and each disk: it
//! pushes requests, issues what [`DiskQueue::next`] gives, and reports
//! completions. The kernel's queue stays short, so that whatever is urgent, or
//! no longer wanted, can still be told apart here.
//!
//! **Flushes.** A flush covers what had completed when it was *pushed*; whoever
//! needs writes covered waits for their completion before. It may therefore be
//! issued before or after anything else that waits here, and covers more, never
//! less, the later it is issued. A durable write covers only itself. Requests whose ranges meet are never
//! in this queue together (see the interface of disks), so none can overtake
//! another to any effect.
//!
//! **Postponement.** A request that is not wanted soon any more is moved behind
//! everything else, until a given time or until nothing else waits: so a disk
//! that has nothing better to do is never kept idle by it (TPF section 3.3: the
//! delay queue). It comes back by its time, or by [`DiskQueue::resume`].
//!
//! **Bounds.** Reads for clients are what others can ask for without end: they
//! are refused when the queue is full. The rest is bounded by the store that
//! asks (one journal write at a time, data writes by the memory that they hold,
//! upkeep by its steps), and cannot be refused without harm.

use std::collections::BTreeMap;

use crossdock_disk::{DiskOperation, DiskRequest, DiskToken};
use crossdock_limits::{DISK_DEPTH_MAX, DISK_QUEUE_REQUESTS_MAX};
use crossdock_types::Time;
use thiserror::Error;

use crate::figures::{DiskFigures, Operation};
use crate::lane::{Arrival, Lane, Ticket};
use crate::pace::{DiskPace, PaceMeter};

/// Background work and what was postponed take at most one part in this many of the
/// depth, so that they never hold up what somebody waits for.
const BACKGROUND_SHARE: usize = 4;

/// What a request is for, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskClass {
    /// Writes and flushes of a journal: many callers wait for one of them.
    Journal,
    /// A client waits for the bytes.
    Foreground,
    /// Data that a later journal record makes visible, and its flushes.
    Write,
    /// Read-ahead, applying journalled bytes, scrubbing, moving.
    Background,
}

/// A request and how it is to be treated.
#[derive(Debug)]
pub struct QueuedRequest {
    /// What the disk gets. Its token is unique among those that wait or are in
    /// flight.
    pub request: DiskRequest,
    /// What it is for.
    pub class: DiskClass,
    /// Since when it waits.
    pub since: Time,
    /// By when it should be issued: from then on it goes before all whose
    /// deadline is later by more than the length of a sweep, whatever their class.
    pub deadline: Time,
}

/// Too many requests wait for another one of this class; nothing was changed.
#[derive(Debug, Error)]
#[error("the queue of the disk is full")]
pub struct Full(
    /// The request, given back.
    pub QueuedRequest,
);

/// The requests that wait for one disk, and a count of those that it works on.
///
/// [`next`](Self::next) gives first what is overdue, in order of deadlines;
/// then by class; at last what was postponed. Within a class it goes in sweeps
/// over the disk, whose length in time is bounded by deadlines, also of what is
/// overdue: a disk that is behind needs them most.
#[derive(Debug)]
pub struct DiskQueue {
    depth: usize,
    waiting_max: usize,
    /// One for each class, and that of what was postponed, by the times at which it
    /// comes back.
    lanes: [Lane; CLASSES.len() + 1],
    waiting: BTreeMap<Arrival, Waiting>,
    by_token: BTreeMap<DiskToken, Arrival>,
    in_flight: BTreeMap<DiskToken, InFlight>,
    /// Of the background class, or postponed.
    background_in_flight: usize,
    arrivals: Arrival,
    /// The end of the request issued last.
    head_bytes: u64,
    pace: PaceMeter,
    figures: Box<DiskFigures>,
}

#[derive(Debug)]
struct Waiting {
    request: DiskRequest,
    class: DiskClass,
    since: Time,
    /// Its deadline unless it was postponed.
    deadline: Time,
    is_postponed: bool,
    ticket: Ticket,
}

#[derive(Debug)]
struct InFlight {
    class: DiskClass,
    /// Whether it takes of the share of the background.
    is_background: bool,
    /// A read that goes on where the request issued before it ends.
    is_sequential: bool,
    issued: Time,
    operation: Operation,
    bytes: u64,
}

const CLASSES: [DiskClass; 4] = DiskClass::ALL;

/// The lane of what was postponed.
const POSTPONED: usize = CLASSES.len();

impl Waiting {
    const fn lane(&self) -> usize {
        match self.is_postponed {
            true => POSTPONED,
            false => self.class as usize,
        }
    }
}

impl Default for DiskQueue {
    fn default() -> Self {
        Self::new(DISK_DEPTH_MAX)
    }
}

impl DiskQueue {
    /// A queue for a disk that gets at most `depth` requests at a time.
    ///
    /// # Panics
    /// If `depth` is 0.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self::with_limits(depth, DISK_QUEUE_REQUESTS_MAX)
    }

    /// The disk gets at most `depth` requests at a time from now on, at least one; what
    /// it works on already is not taken back.
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth.max(1);
    }

    /// The same with another limit on the requests that wait, from which on
    /// [`DiskClass::Foreground`] is refused.
    ///
    /// # Panics
    /// If a limit is 0.
    #[must_use]
    pub fn with_limits(depth: usize, waiting_max: usize) -> Self {
        assert!(depth > 0 && waiting_max > 0, "a queue that never moves");
        Self {
            depth,
            waiting_max,
            lanes: Default::default(),
            waiting: BTreeMap::new(),
            by_token: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            background_in_flight: 0,
            arrivals: 0,
            head_bytes: 0,
            pace: PaceMeter::new(),
            figures: Box::default(),
        }
    }

    /// Lets a request wait for its turn.
    ///
    /// # Errors
    /// [`Full`], with the request; only of [`DiskClass::Foreground`].
    ///
    /// # Panics
    /// If a request with this token waits or is in flight.
    pub fn push(&mut self, queued: QueuedRequest) -> Result<(), Full> {
        let is_full = self.waiting.len() >= self.waiting_max;
        if is_full && queued.class == DiskClass::Foreground {
            self.figures.refused_total += 1;
            return Err(Full(queued));
        }
        let QueuedRequest {
            request,
            class,
            since,
            deadline,
        } = queued;
        let token = request.token;
        self.arrivals += 1;
        let ticket = Ticket {
            deadline,
            place_bytes: place(&request.operation).map_or(self.head_bytes, |(start, _)| start),
            arrival: self.arrivals,
        };
        let other = self.by_token.insert(token, ticket.arrival);
        let known = other.is_some() || self.in_flight.contains_key(&token);
        assert!(!known, "{token:?} is in use");
        self.lanes[class as usize].push(ticket);
        let waiting = Waiting {
            request,
            class,
            since,
            deadline,
            is_postponed: false,
            ticket,
        };
        self.waiting.insert(ticket.arrival, waiting);
        Ok(())
    }

    /// The next request for the disk, if there is one and the disk has room.
    /// It is in flight until [`completed`](Self::completed).
    pub fn next(&mut self, now: Time) -> Option<DiskRequest> {
        if self.in_flight.len() >= self.depth {
            return None;
        }
        self.return_due(now);
        let arrival = self
            .overdue(now)
            .or_else(|| self.most_urgent())
            .or_else(|| self.next_postponed())?;
        let waiting = self.take(arrival)?;
        Some(self.issue(now, waiting))
    }

    fn issue(&mut self, now: Time, waiting: Waiting) -> DiskRequest {
        let Waiting {
            request,
            class,
            since,
            is_postponed,
            ..
        } = waiting;
        self.figures.classes[class as usize]
            .wait
            .record_time(now.since(since));
        let (operation, bytes) = Operation::of(&request.operation);
        let mut is_sequential = false;
        if let Some((start_bytes, end_bytes)) = place(&request.operation) {
            is_sequential = operation == Operation::Read && start_bytes == self.head_bytes;
            self.head_bytes = end_bytes;
        }
        let is_background = is_postponed || class == DiskClass::Background;
        self.background_in_flight += usize::from(is_background);
        self.pace.issued(now, operation == Operation::Read);
        let in_flight = InFlight {
            class,
            is_background,
            is_sequential,
            issued: now,
            operation,
            bytes,
        };
        self.in_flight.insert(request.token, in_flight);
        request
    }

    /// The disk has completed the request, well or not. False if no such request
    /// is in flight.
    pub fn completed(&mut self, now: Time, token: DiskToken, is_well: bool) -> bool {
        let Some(ended) = self.in_flight.remove(&token) else {
            return false;
        };
        self.background_in_flight -= usize::from(ended.is_background);
        match ended.operation {
            Operation::Read if is_well => {
                self.pace
                    .completed_read(now, ended.bytes, ended.is_sequential);
            }
            Operation::Read => self.pace.failed_read(now),
            _ => self.pace.completed_other(now),
        }
        let figures = &mut self.figures.operations[ended.operation as usize];
        figures.latency.record_time(now.since(ended.issued));
        figures.bytes += ended.bytes;
        figures.failures += u64::from(!is_well);
        true
    }

    /// How fast the disk reads, as far as is known.
    #[must_use]
    pub fn pace(&self) -> DiskPace {
        self.pace.pace()
    }

    /// Everything that was counted, and what waits and is in flight now.
    #[must_use]
    pub fn figures(&self) -> DiskFigures {
        let mut figures = self.figures.as_ref().clone();
        for (class, lane) in figures.classes.iter_mut().zip(&self.lanes) {
            class.waiting = lane.len();
        }
        for in_flight in self.in_flight.values() {
            figures.classes[in_flight.class as usize].in_flight += 1;
        }
        if self.lanes[POSTPONED].len() > 0 {
            let postponed = self.waiting.values().filter(|it| it.is_postponed);
            for waiting in postponed {
                figures.classes[waiting.class as usize].waiting += 1;
                figures.postponed += 1;
            }
        }
        figures.pace = self.pace();
        figures
    }

    /// Nobody waits for the request any more: removes it, if it still waits, and
    /// returns how many bytes it would have moved.
    ///
    /// `None` if it is in flight or unknown; then its completion comes, or came.
    pub fn cancel(&mut self, token: DiskToken) -> Option<u64> {
        let arrival = self.by_token.get(&token).copied()?;
        let taken = self.take(arrival)?;
        let (_, bytes) = Operation::of(&taken.request.operation);
        self.figures.cancelled_total += 1;
        self.figures.cancelled_bytes += bytes;
        Some(bytes)
    }

    /// The request is more urgent than it was: it waits with those of `class`, and is
    /// issued by `deadline` if that is earlier than its own. One that does not wait
    /// any more, or is as urgent already, stays as it is.
    pub fn promote(&mut self, token: DiskToken, class: DiskClass, deadline: Time) {
        self.change(token, |waiting| {
            if waiting.class >= class {
                waiting.class = class;
                waiting.deadline = waiting.deadline.min(deadline);
            }
        });
    }

    /// The request is not wanted before `until`: until then it goes only when
    /// nothing else waits. The last word counts. False if it does not wait here.
    pub fn postpone(&mut self, token: DiskToken, until: Time) -> bool {
        let is_here = self.change(token, |waiting| {
            waiting.is_postponed = true;
            waiting.ticket.deadline = until.max(waiting.deadline);
        });
        self.figures.postponed_total += u64::from(is_here);
        is_here
    }

    /// It is wanted as it was before it was postponed.
    pub fn resume(&mut self, token: DiskToken) {
        self.change(token, |waiting| waiting.is_postponed = false);
    }

    /// Changes how a request waits; a deadline that was not postponed is its own.
    /// False if it does not wait.
    fn change(&mut self, token: DiskToken, change: impl FnOnce(&mut Waiting)) -> bool {
        let arrival = self.by_token.get(&token).copied();
        let Some(waiting) = arrival.and_then(|arrival| self.waiting.get_mut(&arrival)) else {
            return false;
        };
        self.lanes[waiting.lane()].remove(waiting.ticket);
        change(waiting);
        if !waiting.is_postponed {
            waiting.ticket.deadline = waiting.deadline;
        }
        self.lanes[waiting.lane()].push(waiting.ticket);
        true
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests that the disk works on.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// What was postponed up to now waits with its class again, overdue.
    fn return_due(&mut self, now: Time) {
        while let Some((until, arrival)) = self.lanes[POSTPONED].earliest()
            && until <= now
            && let Some(waiting) = self.waiting.get_mut(&arrival)
        {
            self.lanes[POSTPONED].remove(waiting.ticket);
            waiting.is_postponed = false;
            waiting.deadline = until;
            self.lanes[waiting.class as usize].push(waiting.ticket);
        }
    }

    /// If a request is overdue, the one whose turn it is in the class of that whose
    /// deadline is the earliest.
    fn overdue(&mut self, now: Time) -> Option<Arrival> {
        let earliest = |class: DiskClass| Some((self.lanes[class as usize].earliest()?, class));
        let ((deadline, _), class) = self.issuable().filter_map(earliest).min()?;
        (deadline <= now).then(|| self.lanes[class as usize].next_in_sweep(self.head_bytes))?
    }

    /// The request whose turn it is in the most urgent class that has one.
    fn most_urgent(&mut self) -> Option<Arrival> {
        let class = self
            .issuable()
            .find(|&class| self.lanes[class as usize].len() > 0)?;
        self.lanes[class as usize].next_in_sweep(self.head_bytes)
    }

    /// The request whose turn it is of those that were postponed.
    fn next_postponed(&mut self) -> Option<Arrival> {
        self.has_share()
            .then(|| self.lanes[POSTPONED].next_in_sweep(self.head_bytes))?
    }

    /// Whether the background may have another request in flight.
    const fn has_share(&self) -> bool {
        self.background_in_flight < self.depth.div_ceil(BACKGROUND_SHARE)
    }

    /// The classes of which the disk may get another request.
    fn issuable(&self) -> impl Iterator<Item = DiskClass> + use<> {
        let background = self.has_share();
        CLASSES
            .into_iter()
            .filter(move |&class| background || class != DiskClass::Background)
    }

    fn take(&mut self, arrival: Arrival) -> Option<Waiting> {
        let waiting = self.waiting.remove(&arrival)?;
        self.by_token.remove(&waiting.request.token);
        self.lanes[waiting.lane()].remove(waiting.ticket);
        Some(waiting)
    }
}

/// Where on the disk a request begins and ends; a flush and a grow have no place.
fn place(operation: &DiskOperation) -> Option<(u64, u64)> {
    let (start, bytes) = match operation {
        DiskOperation::Read {
            offset_bytes,
            buffer,
        }
        | DiskOperation::ReadOther {
            offset_bytes,
            buffer,
            ..
        } => (*offset_bytes, buffer.len()),
        DiskOperation::Write {
            offset_bytes,
            pieces,
            ..
        } => (*offset_bytes, pieces.iter().map(|piece| piece.len()).sum()),
        DiskOperation::Flush | DiskOperation::Grow { .. } => return None,
    };
    Some((start, start.saturating_add(bytes as u64)))
}

#[cfg(test)]
mod tests;
