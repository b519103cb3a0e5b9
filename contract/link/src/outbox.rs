//! What waits to be sent over a link: in order, as far as the windows allow.
//!
//! Calls and replies have windows and queues of their own: calls that the other
//! host has no room for never keep a reply back, so that two hosts that wait for
//! each other's answers always get them. What waits here can still be taken back.

use std::collections::VecDeque;

use crossdock_peer::{NodeError, SiteError};
use crossdock_types::Time;

use crate::frame::Class;
use crate::{Credit, Frame, Message, Stamped};

/// What a frame takes in memory beside its payload, about.
const FRAME_BYTES: usize = 512;

/// Of what is only about calls, so many wait at most. Cancellations are bounded by calls.
const CONTROLS_MAX: usize = 4096;

/// When to ask again for what there was no room for.
const RETRY_MS: u32 = 100;

/// Frames and messages that wait.
#[derive(Debug)]
pub(crate) struct Outbox {
    calls: Lane,
    replies: Lane,
    controls: VecDeque<Stamped>,
    ping: bool,
    pong: bool,
    credit: Credit,
    next_number: u64,
}

#[derive(Debug)]
struct Lane {
    /// In the order of their numbers.
    queue: VecDeque<Queued>,
    /// How many of them were taken out.
    gone: usize,
    queued_bytes: usize,
    queued_bytes_max: usize,
    /// What the other host still takes; below 0 after a frame that exceeded it.
    window_bytes: i64,
}

#[derive(Debug)]
struct Queued {
    number: u64,
    /// `None`: taken out.
    sent: Option<Stamped>,
}

impl Lane {
    const fn new(queued_bytes_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            gone: 0,
            queued_bytes: 0,
            queued_bytes_max,
            window_bytes: 0,
        }
    }

    fn waiting(&self) -> usize {
        self.queue.len() - self.gone
    }

    fn push(&mut self, number: u64, sent: Stamped) {
        self.queued_bytes += size(&sent.frame);
        let sent = Some(sent);
        self.queue.push_back(Queued { number, sent });
    }

    fn pop(&mut self) -> Option<Stamped> {
        let sent = self.queue.pop_front()?.sent?;
        self.queued_bytes -= size(&sent.frame);
        self.tidy();
        Some(sent)
    }

    /// The number of the next frame, if it may go.
    fn next(&self) -> Option<u64> {
        let may_go = self.window_bytes > 0;
        self.queue.front().filter(|_| may_go).map(|it| it.number)
    }

    fn take_out(&mut self, number: u64) -> Option<Frame> {
        let found = self.queue.binary_search_by_key(&number, |it| it.number);
        let frame = self.queue.get_mut(found.ok()?)?.sent.take()?.frame;
        self.took_out(&frame);
        self.tidy();
        Some(frame)
    }

    fn take_out_all(&mut self, is_meant: impl Fn(&Frame) -> bool) -> Vec<Frame> {
        let queue = self.queue.iter_mut();
        let taken: Vec<Frame> = queue
            .filter_map(|queued| queued.sent.take_if(|sent| is_meant(&sent.frame)))
            .map(|sent| sent.frame)
            .collect();
        for frame in &taken {
            self.took_out(frame);
        }
        self.tidy();
        taken
    }

    fn holds(&self, number: u64) -> bool {
        let found = self.queue.binary_search_by_key(&number, |it| it.number);
        let queued = found.ok().and_then(|at| self.queue.get(at));
        queued.is_some_and(|queued| queued.sent.is_some())
    }

    fn took_out(&mut self, frame: &Frame) {
        self.gone += 1;
        self.queued_bytes -= size(frame);
    }

    /// The first one is there, and few places are empty.
    fn tidy(&mut self) {
        while self.queue.front().is_some_and(|it| it.sent.is_none()) {
            self.queue.pop_front();
            self.gone -= 1;
        }
        if self.gone > self.waiting() {
            self.queue.retain(|it| it.sent.is_some());
            self.gone = 0;
        }
    }
}

impl Outbox {
    pub(crate) const fn new(queue_bytes_max: usize) -> Self {
        Self {
            calls: Lane::new(queue_bytes_max),
            replies: Lane::new(queue_bytes_max),
            controls: VecDeque::new(),
            ping: false,
            pong: false,
            credit: Credit {
                call_bytes: 0,
                reply_bytes: 0,
            },
            next_number: 0,
        }
    }

    /// The other host takes so many more bytes.
    pub(crate) fn open(&mut self, credit: Credit) {
        let more = |window: i64, bytes: u64| {
            window.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX))
        };
        self.calls.window_bytes = more(self.calls.window_bytes, credit.call_bytes);
        self.replies.window_bytes = more(self.replies.window_bytes, credit.reply_bytes);
    }

    /// Lines a frame up and tells its number; `None`: there is no room for that
    /// call. A reply for which there is none loses what it carries, but is sent:
    /// its call was counted.
    pub(crate) fn push(&mut self, mut sent: Stamped) -> Option<u64> {
        let number = self.next_number;
        self.next_number += 1;
        let class = sent.frame.class();
        let lane = match class {
            Class::Call => &mut self.calls,
            Class::Reply => &mut self.replies,
            Class::Control => {
                self.controls.push_back(sent);
                return Some(number);
            }
        };
        if lane.queued_bytes + size(&sent.frame) > lane.queued_bytes_max {
            if class == Class::Call {
                return None;
            }
            empty(&mut sent.frame);
        }
        lane.push(number, sent);
        Some(number)
    }

    /// Lines up what is about a call, so that it does not come before that: behind it
    /// if it still waits here. What there is no room for is left out: nothing but
    /// speed depends on it.
    pub(crate) fn push_behind(&mut self, call: u64, sent: Stamped) {
        if !self.calls.holds(call) {
            if self.controls.len() < CONTROLS_MAX {
                self.controls.push_back(sent);
            }
            return;
        }
        let number = self.next_number;
        self.next_number += 1;
        if self.calls.queued_bytes + size(&sent.frame) <= self.calls.queued_bytes_max {
            self.calls.push(number, sent);
        }
    }

    /// How many replies and notices wait.
    pub(crate) fn replies(&self) -> usize {
        self.replies.waiting()
    }

    /// Bytes of calls and replies that wait, about.
    pub(crate) const fn queued_bytes(&self) -> usize {
        self.calls.queued_bytes + self.replies.queued_bytes
    }

    /// Takes a call back: whether it was not sent yet.
    pub(crate) fn take_back(&mut self, number: u64) -> bool {
        self.calls.take_out(number).is_some()
    }

    /// Takes out the calls that nobody waits for any more.
    pub(crate) fn take_late(&mut self, now: Time) -> Vec<Frame> {
        let is_late = |frame: &Frame| frame.deadline().is_some_and(|deadline| deadline <= now);
        self.calls.take_out_all(is_late)
    }

    pub(crate) const fn ping(&mut self) {
        self.ping = true;
    }

    pub(crate) const fn pong(&mut self) {
        self.pong = true;
    }

    /// So much was handed on: the other host will be told.
    pub(crate) const fn give(&mut self, credit: Credit) {
        self.credit.call_bytes += credit.call_bytes;
        self.credit.reply_bytes += credit.reply_bytes;
    }

    /// The next message that may be sent. What is about the link itself goes
    /// first; then the older of the first call and the first reply.
    pub(crate) fn pop(&mut self) -> Option<Message> {
        if std::mem::take(&mut self.pong) {
            return Some(Message::Pong);
        }
        if std::mem::take(&mut self.ping) {
            return Some(Message::Ping);
        }
        if self.credit != Credit::default() {
            return Some(Message::Credit(std::mem::take(&mut self.credit)));
        }
        if let Some(cancel) = self.controls.pop_front() {
            return Some(Message::Frame(cancel));
        }
        let lane = match (self.calls.next(), self.replies.next()) {
            (None, None) => return None,
            (Some(call), Some(reply)) if call < reply => &mut self.calls,
            (Some(_), None) => &mut self.calls,
            (_, Some(_)) => &mut self.replies,
        };
        lane.pop().map(Message::Frame)
    }

    /// A frame of so many bytes is on its way.
    pub(crate) fn sent(&mut self, class: Class, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        match class {
            Class::Call => self.calls.window_bytes -= bytes,
            Class::Reply => self.replies.window_bytes -= bytes,
            Class::Control => {}
        }
    }
}

/// Replaces what a reply carries by "try again", where that is long. Nothing is
/// lost by it: what has long answers changes nothing.
pub(crate) fn empty(reply: &mut Frame) {
    use crossdock_peer::{NodeAnswer, SiteAnswer};
    match reply {
        Frame::NodeReply { reply, .. } => {
            if let Ok(NodeAnswer::Read { .. } | NodeAnswer::List { .. } | NodeAnswer::Changes(_)) =
                reply.outcome
            {
                reply.outcome = Err(NodeError::Busy {
                    retry_after_ms: RETRY_MS,
                });
            }
        }
        Frame::SiteReply { reply, proofs, .. } => {
            if let Ok(
                SiteAnswer::Read { .. } | SiteAnswer::Directory { .. } | SiteAnswer::Locked(_),
            ) = reply.outcome
            {
                reply.outcome = Err(SiteError::Busy);
                proofs.clear();
            }
        }
        _ => {}
    }
}

fn size(frame: &Frame) -> usize {
    FRAME_BYTES + frame.payload().map_or(0, crossdock_types::Payload::len)
}
