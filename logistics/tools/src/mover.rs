//! The shell around [`Transfer`]: runs its tasks, tells it what becomes of them, and the
//! observer what is moved. What a task does, and what becomes of its piece, says a [`Work`].

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::time::{Duration, Instant};

use crossdock_forecast::{
    Depot, DepotId, Effect, Failure, Input, Piece, PieceId, Settings, TaskId, Transfer,
};
use crossdock_types::Time;
use thiserror::Error;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;

use crate::depot::Turn;
use crate::knowledge::Knowledge;
use crate::observer::Observer;
use crate::timeline::{Outcome, Span};
use crate::{Address, DepotError};

/// How bytes are moved, whatever tool does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Connections at a time.
    pub threads: usize,
    /// Of them to one depot.
    pub connections: usize,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// How long a connection may be without a byte before another source is taken.
    pub stall: Duration,
    /// How long a depot may be away before what only it has is lost.
    pub away: Duration,
    /// Whether idle threads fetch again what is slow.
    pub fetches_again: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            threads: 8,
            connections: 16,
            memory_bytes: 64 << 20,
            stall: Duration::from_secs(10),
            away: Duration::from_secs(3),
            fetches_again: true,
        }
    }
}

/// Parts that could not be moved.
#[derive(Debug, Error)]
#[error("{}", describe(.ranges, .reasons))]
pub struct Lost {
    /// Bytes of the file, in order.
    pub ranges: Vec<Range<u64>>,
    /// What was said last, of the first few.
    pub reasons: Vec<String>,
}

fn describe(ranges: &[Range<u64>], reasons: &[String]) -> String {
    let mut text = String::from("no source has");
    for (number, range) in ranges.iter().enumerate().take(8) {
        let comma = if number > 0 { "," } else { "" };
        text += &format!(
            "{comma} bytes {} to {}",
            range.start,
            range.end.saturating_sub(1)
        );
    }
    if ranges.len() > 8 {
        text += &format!(" and {} more parts", ranges.len() - 8);
    }
    for reason in reasons {
        text += &format!("; {reason}");
    }
    text
}

/// Why a task has not moved its piece.
#[derive(Debug, Error)]
pub(crate) enum TaskError {
    #[error(transparent)]
    Depot(#[from] DepotError),
    /// What came is not what it should be, or cannot be asked for at all.
    #[error("{0}")]
    Wrong(String),
}

impl TaskError {
    fn failure(&self) -> Failure {
        match self {
            Self::Depot(error) => error.failure(),
            Self::Wrong(_) => Failure::Missing,
        }
    }
}

/// Tells how many bytes of a piece have moved.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    task: TaskId,
    events: UnboundedSender<Event>,
    told: Option<Instant>,
}

impl Progress {
    /// At most once in a while: the scheduler needs no more.
    pub(crate) fn tell(&mut self, bytes: u64) {
        let now = Instant::now();
        let is_soon = |told: Instant| now - told < Duration::from_millis(20);
        if !self.told.is_some_and(is_soon) {
            self.told = Some(now);
            let task = self.task;
            // Who does not listen any more has ended.
            let _ = self.events.send(Event::Progress { task, bytes });
        }
    }
}

/// Waits for what tells nothing until it has ended, and says meanwhile that it has not.
pub(crate) async fn silently<T>(work: impl Future<Output = T>, mut progress: Progress) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(Duration::from_secs(1), work.as_mut()).await {
            Ok(result) => return result,
            Err(_) => progress.tell(0),
        }
    }
}

/// What is moved: the pieces of an upload, a download, or a copy between depots.
pub(crate) trait Work {
    /// What a task brings.
    type Output: Send + 'static;

    /// The next piece, and where in the file it is; none when there are no more for now.
    fn next_piece(&mut self) -> impl Future<Output = anyhow::Result<Option<(Piece, Range<u64>)>>>;

    /// Whether pieces that come later in the file wait for those before them.
    fn keeps_order(&self) -> bool;

    /// Whether a depot takes requests while it still sends what was asked for before.
    fn reads_ahead(&self, _depot: DepotId) -> bool {
        false
    }

    /// Moves a piece from, or to, the source of that number.
    fn start(
        &mut self,
        piece: PieceId,
        source: usize,
        turn: Turn,
        progress: Progress,
    ) -> impl Future<Output = Result<Self::Output, TaskError>> + Send + 'static;

    /// Whether the bytes of a piece pass through this machine: then how long it takes tells
    /// something of the way to its depot.
    fn passes_here(&self, piece: PieceId) -> bool;

    /// A piece has moved; which ones need no memory any more.
    fn finished(
        &mut self,
        piece: PieceId,
        depot: DepotId,
        output: Self::Output,
    ) -> impl Future<Output = anyhow::Result<Vec<PieceId>>>;

    /// No source has it. Which pieces need no memory any more; or what is lost for good.
    fn lost(
        &mut self,
        piece: PieceId,
        reason: &str,
    ) -> impl Future<Output = anyhow::Result<Result<Vec<PieceId>, Range<u64>>>>;
}

enum Event {
    Progress { task: TaskId, bytes: u64 },
    Ended { task: TaskId },
}

struct Running<T> {
    handle: AbortHandle,
    result: tokio::task::JoinHandle<Result<T, TaskError>>,
    span: Span,
    depot: DepotId,
    piece: PieceId,
}

/// Does all of `work`.
///
/// # Errors
/// [`Lost`] if parts could not be moved, after all others were; or what the work itself said.
pub(crate) async fn run<W: Work>(
    work: &mut W,
    depots: &[Address],
    tuning: &Tuning,
    knowledge: &mut Knowledge,
    observer: &mut Observer,
) -> anyhow::Result<()> {
    let known = depots.iter().enumerate().map(|(number, depot)| Depot {
        rate: knowledge.bandwidth(depot),
        connections_max: tuning.connections,
        reads_ahead: work.reads_ahead(DepotId(number)),
    });
    let known: Vec<Depot> = known.collect();
    let settings = Settings {
        threads: tuning.threads.max(1),
        memory_bytes: tuning.memory_bytes,
        stall: tuning.stall,
        away: tuning.away,
        fetches_again: tuning.fetches_again,
        in_order: work.keeps_order(),
    };
    let (events, received) = mpsc::unbounded_channel();
    let mover = Mover {
        transfer: Transfer::new(settings, &known),
        depots,
        work,
        start: Instant::now(),
        tasks: BTreeMap::new(),
        outputs: BTreeMap::new(),
        pieces: BTreeMap::new(),
        reasons: BTreeMap::new(),
        lost: Vec::new(),
        events,
        observer,
        knowledge,
    };
    mover.run(received).await
}

struct Mover<'a, W: Work> {
    transfer: Transfer,
    depots: &'a [Address],
    work: &'a mut W,
    start: Instant,
    tasks: BTreeMap<TaskId, Running<W::Output>>,
    outputs: BTreeMap<TaskId, (DepotId, W::Output)>,
    /// Which bytes of the file pieces are, and how many are moved for that.
    pieces: BTreeMap<PieceId, (Range<u64>, Vec<DepotId>)>,
    reasons: BTreeMap<PieceId, String>,
    lost: Vec<(Range<u64>, String)>,
    events: UnboundedSender<Event>,
    observer: &'a mut Observer,
    knowledge: &'a mut Knowledge,
}

impl<W: Work> Mover<'_, W> {
    async fn run(mut self, mut received: UnboundedReceiver<Event>) -> anyhow::Result<()> {
        let result = self.move_all(&mut received).await;
        for running in self.tasks.values() {
            running.handle.abort();
        }
        result?;
        if self.lost.is_empty() {
            return Ok(());
        }
        self.lost.sort_by_key(|(range, _)| range.start);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut reasons = Vec::new();
        for (range, reason) in self.lost {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
            if reasons.len() < 3 && !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        Err(Lost { ranges, reasons }.into())
    }

    async fn move_all(&mut self, received: &mut UnboundedReceiver<Event>) -> anyhow::Result<()> {
        loop {
            let mut has_more = true;
            while has_more && self.transfer.wants_more() {
                match self.work.next_piece().await? {
                    Some((piece, range)) => self.add(piece, range),
                    None => has_more = false,
                }
                self.carry_out().await?;
            }
            self.carry_out().await?;
            if self.transfer.is_idle() {
                match has_more {
                    true => continue,
                    false => return Ok(()),
                }
            }
            let wait = match self.transfer.poll_timeout() {
                Some(at) => at - self.now(),
                None => Duration::from_secs(1),
            };
            match tokio::time::timeout(wait, received.recv()).await {
                Ok(Some(event)) => {
                    self.take(event).await;
                    while let Ok(event) = received.try_recv() {
                        self.take(event).await;
                    }
                }
                Ok(None) => return Ok(()),
                Err(_) => self.tell(Input::Timeout),
            }
            self.carry_out().await?;
        }
    }

    fn now(&self) -> Time {
        Time::default() + self.start.elapsed()
    }

    fn tell(&mut self, input: Input) {
        let now = self.now();
        self.transfer.handle(now, input);
    }

    fn add(&mut self, piece: Piece, range: Range<u64>) {
        self.pieces.insert(piece.id, (range, piece.sources.clone()));
        self.tell(Input::Add(piece));
    }

    async fn take(&mut self, event: Event) {
        match event {
            Event::Progress { task, bytes } => {
                if let Some(running) = self.tasks.get_mut(&task) {
                    self.observer
                        .moved(bytes.saturating_sub(running.span.bytes));
                    running.span.bytes = bytes;
                    self.tell(Input::Progress { task, bytes });
                }
            }
            Event::Ended { task } => self.ended(task).await,
        }
    }

    async fn ended(&mut self, task: TaskId) {
        let Some(running) = self.tasks.remove(&task) else {
            return; // It was called off when it had just ended.
        };
        let result = match running.result.await {
            Ok(result) => result,
            Err(error) => Err(TaskError::Wrong(error.to_string())),
        };
        let mut span = running.span;
        span.end = self.start.elapsed();
        match result {
            Ok(output) => {
                let whole = span.range.end - span.range.start;
                self.observer.moved(whole.saturating_sub(span.bytes));
                span.bytes = whole;
                span.outcome = Outcome::Done;
                if self.work.passes_here(running.piece) {
                    let depot = &self.depots[running.depot.0];
                    self.knowledge.moved(depot, whole, span.end - span.start);
                }
                self.outputs.insert(task, (running.depot, output));
                self.observer.span(span);
                self.tell(Input::Done { task });
            }
            Err(error) => {
                let failure = error.failure();
                self.observer.unmoved(span.bytes);
                span.outcome = Outcome::Failed(error.to_string());
                self.observer.span(span);
                self.reasons.insert(running.piece, error.to_string());
                self.tell(Input::Failed { task, failure });
            }
        }
    }

    async fn carry_out(&mut self) -> anyhow::Result<()> {
        while let Some(effect) = self.transfer.poll_effect() {
            match effect {
                Effect::Start {
                    task,
                    piece,
                    source,
                    behind,
                } => self.begin(Turn { task, behind }, piece, source),
                Effect::Cancel { task } => self.cancel(task),
                Effect::Finished { piece, task } => {
                    let Some((depot, output)) = self.outputs.remove(&task) else {
                        continue;
                    };
                    self.pieces.remove(&piece);
                    self.reasons.remove(&piece);
                    let released = self.work.finished(piece, depot, output).await?;
                    self.release(released);
                }
                Effect::Lost { piece } => {
                    let unknown = || "no depot is left that may have it".to_owned();
                    let reason = self.reasons.remove(&piece).unwrap_or_else(unknown);
                    self.pieces.remove(&piece);
                    match self.work.lost(piece, &reason).await? {
                        Ok(released) => self.release(released),
                        Err(range) => self.lost.push((range, reason)),
                    }
                }
            }
        }
        Ok(())
    }

    fn release(&mut self, pieces: Vec<PieceId>) {
        for piece in pieces {
            self.tell(Input::Released { piece });
        }
    }

    fn begin(&mut self, turn: Turn, piece: PieceId, source: usize) {
        let task = turn.task;
        let Some((range, sources)) = self.pieces.get(&piece) else {
            return;
        };
        let depot = sources[source];
        let progress = Progress {
            task,
            events: self.events.clone(),
            told: None,
        };
        let span = Span {
            thread: self.free_thread(),
            depot: self.depots[depot.0].to_string(),
            range: range.clone(),
            start: self.start.elapsed(),
            end: Duration::ZERO,
            bytes: 0,
            outcome: Outcome::Done,
        };
        let moving = self.work.start(piece, source, turn, progress);
        let events = self.events.clone();
        let result = tokio::spawn(async move {
            let result = moving.await;
            let _ = events.send(Event::Ended { task });
            result
        });
        let running = Running {
            handle: result.abort_handle(),
            result,
            span,
            depot,
            piece,
        };
        self.tasks.insert(task, running);
    }

    fn cancel(&mut self, task: TaskId) {
        if let Some(running) = self.tasks.remove(&task) {
            running.handle.abort();
            let mut span = running.span;
            span.end = self.start.elapsed();
            span.outcome = Outcome::Cancelled;
            self.observer.unmoved(span.bytes);
            self.observer.span(span);
        }
        self.outputs.remove(&task);
    }

    /// The first thread that does nothing.
    fn free_thread(&self) -> usize {
        let is_free = |thread: &usize| !self.tasks.values().any(|task| task.span.thread == *thread);
        (0..).find(is_free).unwrap_or(0)
    }
}
