//! Whose turn it is, and what comes of it.
//!
//! Who waits for memory goes first, the longest wait first, and gets at least H_min
//! before anybody else gets anything; then whoever something has happened to, in turn,
//! one request at a time. So a stream waits no longer than those before it need to send
//! what they have. The background's line moves when the foreground's is empty.

use std::time::Duration;

use crossdock_limits::TIMER_TICK_MILLIS;
use crossdock_types::Time;

use super::{Delivery, SAMPLE_PAUSE};
use crate::config::Mutation;
use crate::connection::{Decision, StreamClass, StreamId};
use crate::decide::{Horizon, decide_within, horizon};
use crate::number::seconds;
use crate::record::Record;
use crate::snapshot::{Snapshot, Verdict};
use crate::stream::{Looking, Stream};

/// Timers expire at multiples of this, many together.
const TICK: Duration = Duration::from_millis(TIMER_TICK_MILLIS);

/// A connection is not looked at again sooner than this.
const LOOK_MIN: Duration = Duration::from_millis(20);

/// One whose rate is not measured yet, after this: T_D says nothing of it.
const LOOK_UNMEASURED: Duration = Duration::from_millis(100);

const FOREGROUND: usize = StreamClass::Foreground as usize;
const BACKGROUND: usize = StreamClass::Background as usize;

impl Delivery {
    /// Something happens: who waits may find memory.
    pub(super) const fn wake(&mut self, now: Time) {
        self.now = now;
        self.is_line_stuck = [false; 2];
    }

    /// Something has happened to the stream: it is looked at in its turn.
    pub(super) fn touch(&mut self, stream: StreamId) {
        if let Some(known) = self.streams.get_mut(&stream)
            && !known.is_ready
        {
            known.is_ready = true;
            self.ready.push_back(stream);
        }
    }

    /// The disks have become other ones, or idle.
    pub(super) fn heed_disks(&mut self) {
        self.is_line_stuck = [false; 2];
        let postponed = self.streams.iter().filter(|(_, known)| {
            known.postponed_bytes > 0 || known.is_held && known.remaining_bytes > 0
        });
        for stream in postponed.map(|(&stream, _)| stream).collect::<Vec<_>>() {
            self.touch(stream);
        }
    }

    /// Looks at one stream; false if there is none to be looked at.
    pub(super) fn take_turn(&mut self) -> bool {
        if self.serve_line(FOREGROUND) {
            return true;
        }
        if let Some(stream) = self.ready.pop_front() {
            if let Some(known) = self.streams.get_mut(&stream) {
                known.is_ready = false;
                let class = known.class as usize;
                self.look_at(stream, !self.lines_before(class));
            }
            return true;
        }
        self.lines[FOREGROUND].is_empty() && self.serve_line(BACKGROUND)
    }

    /// Nobody waits who would come before a newcomer of this class.
    fn lines_before(&self, class: usize) -> bool {
        self.lines[..=class].iter().all(super::Line::is_empty)
    }

    fn serve_line(&mut self, class: usize) -> bool {
        let line = &self.lines[class];
        let first = match self.config.has(Mutation::NewestFirst) {
            true => line.last(),
            false => line.first(),
        };
        let Some(stream) = first.filter(|_| !self.is_line_stuck[class]) else {
            return false;
        };
        self.look_at(stream, false);
        let known = self.streams.get(&stream);
        self.is_line_stuck[class] = known.is_some_and(|known| known.waiting_since.is_some());
        true
    }

    fn look_at(&mut self, stream: StreamId, is_behind_others: bool) {
        let Some(known) = self.streams.get(&stream) else {
            return;
        };
        let snapshot = Snapshot {
            pool: self.pool(known.class),
            look: known.look(self.now, is_behind_others),
        };
        let horizon = horizon(&snapshot.pool, snapshot.look.rate);
        let verdict = decide_within(&snapshot, &horizon);
        if let Some(known) = self.streams.get_mut(&stream) {
            known.buffering = horizon.buffering;
        }
        if matches!(verdict, Verdict::Request { .. }) && self.looks_first(stream) {
            return self.schedule(stream, horizon);
        }
        self.recorder.push(Record {
            stream,
            snapshot,
            verdict,
        });
        self.carry_out(stream, verdict, horizon);
    }

    /// Before more is requested on a D1 that is only reckoned, the socket is looked at: by
    /// reckoning a client that has stopped takes its rate.
    fn looks_first(&mut self, stream: StreamId) -> bool {
        let now = self.now;
        let is_blind = self.config.has(Mutation::NeverLook);
        let Some(known) = self.streams.get_mut(&stream).filter(|_| !is_blind) else {
            return false;
        };
        let is_old = known.sample_age(now).is_some_and(|age| age >= SAMPLE_PAUSE);
        if !is_old || known.looking == Looking::Awaited {
            return false;
        }
        if std::mem::replace(&mut known.looking, Looking::Awaited) == Looking::No {
            self.decisions.push_back(Decision::Look { stream });
        }
        true
    }

    fn carry_out(&mut self, stream: StreamId, verdict: Verdict, horizon: Horizon) {
        match verdict {
            Verdict::Request { bytes } => {
                self.stop_waiting(stream);
                self.request(stream, bytes);
            }
            Verdict::Wait => self.start_waiting(stream),
            Verdict::Enough => self.stop_waiting(stream),
            Verdict::Postpone { bytes, by } => {
                let until = self.now + by;
                self.change(stream, |known| {
                    known.postponed_bytes += bytes;
                    known.postponed_until = Some(until);
                });
                self.figures.postponed_total += 1;
                self.figures.postponed_bytes += bytes;
                self.decide_on(stream, Decision::Postpone { stream, bytes, by });
            }
            Verdict::Resume => {
                self.change(stream, Stream::end_postponement);
                self.figures.resumed_total += 1;
                self.decide_on(stream, Decision::Resume { stream });
            }
        }
        self.schedule(stream, horizon);
    }

    fn request(&mut self, stream: StreamId, bytes: u64) {
        let is_kept = self.config.has(Mutation::RequestTwice);
        self.change(stream, |known| {
            known.requested_bytes += bytes;
            known.remaining_bytes -= if is_kept { bytes / 2 } else { bytes };
        });
        self.figures.requests.record(bytes);
        self.decide_on(stream, Decision::Request { stream, bytes });
    }

    /// A decision; there may be another one about the same stream.
    fn decide_on(&mut self, stream: StreamId, decision: Decision) {
        self.decisions.push_back(decision);
        self.touch(stream);
    }

    fn start_waiting(&mut self, stream: StreamId) {
        if let Some(known) = self.streams.get_mut(&stream)
            && known.waiting_since.is_none()
        {
            known.waiting_since = Some(self.now);
            self.lines[known.class as usize].insert(self.now, stream);
        }
    }

    fn stop_waiting(&mut self, stream: StreamId) {
        if let Some(known) = self.streams.get_mut(&stream)
            && let Some(since) = known.waiting_since.take()
        {
            self.lines[known.class as usize].remove(since, stream);
            self.figures.wait.record_time(self.now.since(since));
        }
    }

    /// When the stream has to be looked at again, if nothing happens to it before: when it
    /// is to be filled, for a socket may have taken everything, and when what is postponed,
    /// or held after a FIN, returns.
    fn schedule(&mut self, stream: StreamId, horizon: Horizon) {
        let now = self.now;
        let Some(known) = self.streams.get_mut(&stream) else {
            return;
        };
        let look = known.look(now, false);
        let Horizon {
            buffering, refill, ..
        } = horizon;
        let is_moving = look.remaining_bytes > 0 || look.requested_bytes > 0;
        let longest = match look.is_measured {
            true => refill.max(LOOK_MIN),
            false => LOOK_UNMEASURED,
        };
        // Not later than was planned since the last sample.
        let planned = known.look_at.filter(|when| *when > now);
        known.look_at = (look.unsent_bytes > 0 && is_moving).then(|| {
            let rate = look.rate.unwrap_or(1).max(1);
            let margin = seconds(look.ahead_bytes() as f64 / rate as f64);
            let when = now + margin.saturating_sub(refill).clamp(LOOK_MIN, longest);
            planned.map_or(when, |planned| planned.min(when))
        });
        if look.is_held && known.postponed_until.is_none() {
            known.postponed_until = Some(now + buffering / 2);
        }
        self.arm(stream);
    }

    fn arm(&mut self, stream: StreamId) {
        let is_blind = self.config.has(Mutation::NeverLook);
        let Some(known) = self.streams.get_mut(&stream) else {
            return;
        };
        if let Some(timer) = known.timer.take() {
            self.timers.remove(&(timer, stream));
        }
        let look_at = known.look_at.filter(|_| !is_blind);
        let first = [look_at, known.postponed_until].into_iter().flatten().min();
        known.timer = first.map(|when| when.round_up(TICK));
        if let Some(timer) = known.timer {
            self.timers.insert((timer, stream));
        }
    }

    /// The stream's timer has expired.
    pub(super) fn expire(&mut self, stream: StreamId) {
        let now = self.now;
        let Some(known) = self.streams.get_mut(&stream) else {
            return;
        };
        known.timer = None;
        if known.postponed_until.is_some_and(|until| until <= now) {
            known.end_postponement();
            known.is_held = false;
            // It takes another sign to postpone them again.
            known.is_troubled = false;
        }
        if known.look_at.is_some_and(|when| when <= now) {
            if known.looking == Looking::No {
                known.looking = Looking::Asked;
            }
            self.decisions.push_back(Decision::Look { stream });
        }
        self.touch(stream);
    }

    /// Takes a stream that ends out of every line.
    pub(super) fn unschedule(&mut self, stream: StreamId, known: &Stream) {
        if let Some(since) = known.waiting_since {
            self.lines[known.class as usize].remove(since, stream);
        }
        if let Some(timer) = known.timer {
            self.timers.remove(&(timer, stream));
        }
        if known.is_ready {
            self.ready.retain(|&ready| ready != stream);
        }
    }

    /// Forgets what was decided about a stream and not polled; how many bytes of it were
    /// requests.
    pub(super) fn forget_decisions(&mut self, stream: StreamId) -> u64 {
        let mut bytes = 0;
        self.decisions.retain(|decision| {
            if decision.stream() != stream {
                return true;
            }
            if let Decision::Request { bytes: more, .. } = decision {
                bytes += more;
            }
            false
        });
        bytes
    }
}
