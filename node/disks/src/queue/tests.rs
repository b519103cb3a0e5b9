//! The queue by example, and beside a model that scans a list.

use std::time::Duration;

use crossdock_types::{BLOCK_BYTES, Scatter};
use proptest::prelude::*;

use super::*;
use crate::lane::SWEEP_WINDOW;

const FAR: u64 = 10_000;

fn ms(milliseconds: u64) -> Time {
    Time::default() + Duration::from_millis(milliseconds)
}

fn read(token: u64, class: DiskClass, block: u64, deadline_ms: u64) -> QueuedRequest {
    let operation = DiskOperation::Read {
        offset_bytes: block * BLOCK_BYTES as u64,
        buffer: Scatter::zeroed(BLOCK_BYTES),
    };
    queued(token, class, operation, deadline_ms)
}

fn queued(
    token: u64,
    class: DiskClass,
    operation: DiskOperation,
    deadline_ms: u64,
) -> QueuedRequest {
    QueuedRequest {
        request: DiskRequest {
            token: DiskToken(token),
            operation,
        },
        class,
        since: ms(0),
        deadline: ms(deadline_ms),
    }
}

fn push(queue: &mut DiskQueue, request: QueuedRequest) {
    assert!(queue.push(request).is_ok(), "there is room");
}

/// Tokens in the order in which a disk with room would get them at `now`.
fn issue_all(queue: &mut DiskQueue, now: Time) -> Vec<u64> {
    std::iter::from_fn(|| queue.next(now).map(|request| request.token.0)).collect()
}

/// Goal: what somebody waits for by now goes before what nobody waits for.
#[test]
fn a_promoted_request_goes_with_its_new_class() {
    let mut queue = DiskQueue::new(1);
    push(&mut queue, read(1, DiskClass::Background, 1, FAR));
    push(&mut queue, read(2, DiskClass::Background, 2, FAR));
    push(&mut queue, read(3, DiskClass::Write, 3, FAR));
    queue.promote(DiskToken(2), DiskClass::Foreground, ms(20));
    queue.promote(DiskToken(3), DiskClass::Background, ms(0));
    queue.promote(DiskToken(9), DiskClass::Foreground, ms(0));
    let mut order = Vec::new();
    while let Some(request) = queue.next(ms(1)) {
        queue.promote(request.token, DiskClass::Journal, ms(0)); // Is at the disk already.
        assert!(queue.completed(ms(1), request.token, true));
        order.push(request.token.0);
    }
    assert_eq!(order, [2, 3, 1]);
}

/// Goal: what more people wait for goes first; a request that waited until its
/// deadline goes before everything else.
#[test]
fn urgent_classes_go_first_until_a_deadline_passes() {
    let mut queue = DiskQueue::new(32);
    push(&mut queue, read(1, DiskClass::Background, 1, 500));
    push(&mut queue, read(2, DiskClass::Write, 2, 100));
    push(&mut queue, read(3, DiskClass::Foreground, 3, FAR));
    push(&mut queue, read(4, DiskClass::Write, 4, FAR));
    push(
        &mut queue,
        queued(5, DiskClass::Journal, DiskOperation::Flush, FAR),
    );
    assert_eq!(issue_all(&mut queue, ms(200)), [2, 5, 3, 4, 1]);
}

/// Goal: what a disk does is counted by what it is and for what, with the time
/// that it waited and the time that it took; what is taken out counts as such.
#[test]
fn waits_and_operations_are_counted() {
    let mut queue = DiskQueue::new(1);
    push(&mut queue, read(1, DiskClass::Foreground, 1, FAR));
    push(&mut queue, read(2, DiskClass::Foreground, 2, FAR));
    push(
        &mut queue,
        queued(3, DiskClass::Write, DiskOperation::Flush, FAR),
    );
    assert_eq!(issue_all(&mut queue, ms(2)), [1]);
    let figures = queue.figures();
    let foreground = &figures.classes[DiskClass::Foreground as usize];
    assert_eq!((foreground.waiting, foreground.in_flight), (1, 1));
    assert_eq!((foreground.wait.count(), foreground.wait.sum()), (1, 2000));
    assert_eq!(queue.cancel(DiskToken(2)), Some(BLOCK_BYTES as u64));
    assert!(queue.completed(ms(5), DiskToken(1), false));
    assert_eq!(issue_all(&mut queue, ms(5)), [3]);
    assert!(queue.completed(ms(6), DiskToken(3), true));
    let figures = queue.figures();
    let [read, _, flush, _] = &figures.operations;
    assert_eq!((read.latency.sum(), read.failures), (3000, 1));
    assert_eq!(read.bytes, BLOCK_BYTES as u64);
    assert_eq!((flush.latency.sum(), flush.failures), (1000, 0));
    let cancelled = (figures.cancelled_total, figures.cancelled_bytes);
    assert_eq!(cancelled, (1, BLOCK_BYTES as u64));
}

/// Goal: requests with similar deadlines are issued upwards from where the disk
/// is, then from the lowest; one that is due much later waits for the next sweep.
#[test]
fn a_sweep_goes_upwards_within_a_deadline_window() {
    let mut queue = DiskQueue::new(32);
    for (token, block, deadline_ms) in [
        (1, 50, 1000),
        (2, 10, 1001),
        (3, 70, 1005),
        (4, 20, 1006), // Beyond the window of the first.
        (5, 60, 1002),
    ] {
        push(
            &mut queue,
            read(token, DiskClass::Foreground, block, deadline_ms),
        );
    }
    queue.head_bytes = 40 * BLOCK_BYTES as u64;
    assert_eq!(queue.next(ms(0)).map(|request| request.token.0), Some(1));
    push(&mut queue, read(6, DiskClass::Foreground, 65, 1003)); // Joins the sweep.
    assert_eq!(issue_all(&mut queue, ms(0)), [5, 6, 3, 2, 4]);
}

/// Goal: the disk never has more than its depth, and background work never more
/// than a quarter of it, even when it is overdue.
#[test]
fn depth_is_bounded_and_background_has_a_share() {
    let mut queue = DiskQueue::new(8);
    for token in 0..6 {
        push(&mut queue, read(token, DiskClass::Background, token, 0));
    }
    assert_eq!(issue_all(&mut queue, ms(1)), [0, 1]);
    for token in 10..20 {
        push(&mut queue, read(token, DiskClass::Foreground, token, FAR));
    }
    assert_eq!(issue_all(&mut queue, ms(1)), [10, 11, 12, 13, 14, 15]);
    assert_eq!(queue.in_flight(), 8);
    queue.completed(ms(0), DiskToken(0), true);
    assert_eq!(issue_all(&mut queue, ms(1)), [2]);
    queue.completed(ms(0), DiskToken(12), true);
    assert_eq!(issue_all(&mut queue, ms(1)), [16]);
}

/// Goal: what nobody waits for is never issued; what is in flight or unknown
/// cannot be cancelled.
#[test]
fn a_cancelled_request_is_never_issued() {
    let mut queue = DiskQueue::new(1);
    for token in 1..=3 {
        push(&mut queue, read(token, DiskClass::Foreground, token, FAR));
    }
    assert_eq!(issue_all(&mut queue, ms(0)), [1]);
    assert!(queue.cancel(DiskToken(2)).is_some());
    assert!(queue.cancel(DiskToken(2)).is_none(), "it is gone");
    assert!(queue.cancel(DiskToken(1)).is_none(), "it is in flight");
    assert!(queue.cancel(DiskToken(9)).is_none(), "it never was");
    queue.completed(ms(0), DiskToken(1), true);
    assert_eq!(issue_all(&mut queue, ms(0)), [3]);
    assert_eq!(queue.waiting(), 0);
}

/// Goal: what was postponed goes behind everything else while others wait, takes
/// no more than the background's share, and comes back by its time or when it is
/// wanted again, with the deadline that it had.
#[test]
fn a_postponed_request_goes_behind_until_its_time() {
    let mut queue = DiskQueue::new(1);
    for token in 1..=4 {
        push(&mut queue, read(token, DiskClass::Foreground, token, 20));
    }
    push(&mut queue, read(5, DiskClass::Background, 5, FAR));
    for token in [1, 2, 3] {
        assert!(queue.postpone(DiskToken(token), ms(100)));
    }
    let issued_at = |queue: &mut DiskQueue, now_ms| {
        let request = queue.next(ms(now_ms)).expect("something waits");
        assert!(queue.completed(ms(now_ms), request.token, true));
        request.token.0
    };
    assert_eq!(issued_at(&mut queue, 50), 4);
    queue.resume(DiskToken(3));
    queue.resume(DiskToken(3)); // It is there already.
    assert_eq!(issued_at(&mut queue, 50), 3, "wanted again");
    let figures = queue.figures();
    assert_eq!((figures.postponed_total, figures.postponed), (3, 2));
    assert_eq!(figures.classes[DiskClass::Foreground as usize].waiting, 2);
    push(&mut queue, read(6, DiskClass::Foreground, 6, 90));
    assert_eq!(issued_at(&mut queue, 99), 6);
    push(&mut queue, read(7, DiskClass::Foreground, 7, 110));
    assert_eq!(issued_at(&mut queue, 100), 1, "its time has come");
    assert!(!queue.postpone(DiskToken(1), ms(500)), "it is done");
    assert_eq!(issued_at(&mut queue, 100), 2);
}

/// Goal: a disk that has nothing else to do gets at once what was postponed, but
/// of many only the background's share at a time.
#[test]
fn an_idle_disk_gets_what_was_postponed() {
    let mut queue = DiskQueue::new(8);
    for token in 1..=5 {
        push(&mut queue, read(token, DiskClass::Foreground, token, 20));
        assert!(queue.postpone(DiskToken(token), ms(FAR)));
    }
    assert_eq!(issue_all(&mut queue, ms(0)), [1, 2]);
    push(&mut queue, read(6, DiskClass::Foreground, 6, 20));
    assert_eq!(
        issue_all(&mut queue, ms(0)),
        [6],
        "it waits for none of them"
    );
    assert!(queue.completed(ms(1), DiskToken(1), true));
    assert_eq!(issue_all(&mut queue, ms(1)), [3]);
    assert!(queue.cancel(DiskToken(4)).is_some());
    assert_eq!(
        issue_all(&mut queue, ms(FAR)),
        [5],
        "overdue: it has its class"
    );
}

/// Goal: a full queue gives a client's read back and stays as it was; what
/// cannot be refused without harm is taken.
#[test]
fn a_full_queue_refuses_clients() {
    let mut queue = DiskQueue::with_limits(1, 8);
    for token in 0..8 {
        push(&mut queue, read(token, DiskClass::Foreground, token, FAR));
    }
    let refused = queue.push(read(8, DiskClass::Foreground, 8, FAR));
    assert!(matches!(refused, Err(Full(request)) if request.request.token == DiskToken(8)));
    assert_eq!(queue.waiting(), 8);
    for class in [DiskClass::Journal, DiskClass::Write, DiskClass::Background] {
        push(&mut queue, read(8 + class as u64, class, 9, FAR));
    }
    assert_eq!(queue.waiting(), 11);
}

/// A waiting request of the model.
#[derive(Clone, Copy, Debug)]
struct Known {
    token: u64,
    class: DiskClass,
    place: u64,
    /// When it comes back, if it was postponed.
    deadline: Time,
    in_sweep: bool,
    /// Its deadline before it was.
    own_deadline: Option<Time>,
}

impl Known {
    fn lane(&self) -> usize {
        match self.own_deadline {
            Some(_) => POSTPONED,
            None => self.class as usize,
        }
    }

    fn is_background(&self) -> bool {
        self.own_deadline.is_some() || self.class == DiskClass::Background
    }
}

/// The same policy over a list.
struct Model {
    depth: usize,
    waiting: Vec<Known>,
    in_flight: Vec<Known>,
    sweep_until: [Time; 5],
    head: u64,
}

impl Model {
    fn push(&mut self, mut known: Known) {
        let lane = known.lane();
        let sweeping = self.waiting.iter().any(|k| k.lane() == lane && k.in_sweep);
        known.in_sweep = sweeping && known.deadline <= self.sweep_until[lane];
        self.waiting.push(known);
        self.waiting.sort_by_key(|k| k.token);
    }

    fn postpone(&mut self, index: usize, until: Time) {
        let mut known = self.waiting.remove(index);
        let own = known.own_deadline.unwrap_or(known.deadline);
        known.own_deadline = Some(own);
        known.deadline = own.max(until);
        self.push(known);
    }

    fn resume(&mut self, index: usize) {
        let mut known = self.waiting.remove(index);
        known.deadline = known.own_deadline.take().unwrap_or(known.deadline);
        self.push(known);
    }

    fn next(&mut self, now: Time) -> Option<u64> {
        if self.in_flight.len() == self.depth {
            return None;
        }
        let is_due = |k: &Known| k.own_deadline.is_some() && k.deadline <= now;
        while let Some(due) = self.waiting.iter().position(is_due) {
            let mut known = self.waiting.remove(due);
            known.own_deadline = None;
            self.push(known);
        }
        let background = self.in_flight.iter().filter(|k| k.is_background()).count();
        let has_share = background < self.depth.div_ceil(4);
        let allowed = |k: &&Known| !k.is_background() || has_share;
        let candidates: Vec<Known> = self.waiting.iter().filter(allowed).copied().collect();
        let wanted = candidates.iter().filter(|k| k.own_deadline.is_none());
        let overdue = wanted.min_by_key(|k| k.deadline);
        let overdue = overdue.filter(|k| k.deadline <= now).map(Known::lane);
        let lane = overdue.or_else(|| candidates.iter().map(Known::lane).min())?;
        self.begin_sweep(lane);
        let sweep = self
            .waiting
            .iter()
            .filter(|k| k.lane() == lane && k.in_sweep);
        let turn = *sweep.min_by_key(|k| (k.place < self.head, k.place))?;
        self.waiting.retain(|k| k.token != turn.token);
        self.in_flight.push(turn);
        self.head = turn.place + BLOCK_BYTES as u64;
        Some(turn.token)
    }

    fn begin_sweep(&mut self, lane: usize) {
        if self.waiting.iter().any(|k| k.lane() == lane && k.in_sweep) {
            return;
        }
        let mut of_lane: Vec<&mut Known> = Vec::new();
        of_lane.extend(self.waiting.iter_mut().filter(|k| k.lane() == lane));
        let Some(earliest) = of_lane.iter().map(|k| k.deadline).min() else {
            return;
        };
        let until = earliest + SWEEP_WINDOW;
        self.sweep_until[lane] = until;
        for known in of_lane {
            known.in_sweep = known.deadline <= until;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push {
        class: usize,
        block: u64,
        patience_ms: u64,
    },
    Next,
    Complete(usize),
    Cancel(usize),
    Postpone(usize, u64),
    Resume(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_usize, 0..40_u64, 0..30_u64).prop_map(|(class, block, patience_ms)| {
            Step::Push { class, block, patience_ms }
        }),
        3 => Just(Step::Next),
        2 => any::<usize>().prop_map(Step::Complete),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (any::<usize>(), 0..40_u64).prop_map(|(any, by)| Step::Postpone(any, by)),
        1 => any::<usize>().prop_map(Step::Resume),
        1 => (0..10_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Goal: whatever happens in whatever order, the queue issues exactly what
    /// the model does, each request once, none that was cancelled, and keeps
    /// its bounds.
    #[test]
    fn the_queue_does_what_a_list_would(steps in prop::collection::vec(step(), 1..300)) {
        const WAITING_MAX: usize = 24;
        let mut queue = DiskQueue::with_limits(6, WAITING_MAX);
        let mut model = Model {
            depth: 6,
            waiting: Vec::new(),
            in_flight: Vec::new(),
            sweep_until: [Time::default(); 5],
            head: 0,
        };
        let (mut now_ms, mut token) = (0, 0);
        for step in steps {
            match step {
                Step::Push { class, block, patience_ms } => {
                    token += 1;
                    let class = CLASSES[class];
                    let request = read(token, class, block, now_ms + patience_ms);
                    let deadline = request.deadline;
                    let full = model.waiting.len() >= WAITING_MAX
                        && class == DiskClass::Foreground;
                    prop_assert_eq!(queue.push(request).is_err(), full);
                    if !full {
                        let place = block * BLOCK_BYTES as u64;
                        let own_deadline = None;
                        let in_sweep = false;
                        model.push(Known { token, class, place, deadline, in_sweep, own_deadline });
                    }
                }
                Step::Next => {
                    let issued = queue.next(ms(now_ms)).map(|request| request.token.0);
                    prop_assert_eq!(issued, model.next(ms(now_ms)));
                }
                Step::Complete(any) if !model.in_flight.is_empty() => {
                    let index = any % model.in_flight.len();
                    let token = DiskToken(model.in_flight.remove(index).token);
                    queue.completed(ms(0), token, true);
                }
                Step::Cancel(any) if !model.waiting.is_empty() => {
                    let index = any % model.waiting.len();
                    let known = model.waiting.remove(index);
                    prop_assert!(queue.cancel(DiskToken(known.token)).is_some());
                }
                Step::Postpone(any, by_ms) if !model.waiting.is_empty() => {
                    let index = any % model.waiting.len();
                    let until = ms(now_ms + by_ms);
                    prop_assert!(queue.postpone(DiskToken(model.waiting[index].token), until));
                    model.postpone(index, until);
                }
                Step::Resume(any) if !model.waiting.is_empty() => {
                    let index = any % model.waiting.len();
                    queue.resume(DiskToken(model.waiting[index].token));
                    model.resume(index);
                }
                Step::Wait(milliseconds) => now_ms += milliseconds,
                Step::Complete(_) | Step::Cancel(_) | Step::Postpone(..) | Step::Resume(_) => {}
            }
            prop_assert_eq!(queue.waiting(), model.waiting.len());
            prop_assert_eq!(queue.in_flight(), model.in_flight.len());
        }
    }
}
