//! One connection between two hosts, seen from one of them.
//!
//! No I/O and no clock here. The shell feeds [`LinkInput`]s with the current
//! time, carries out [`LinkEffect`]s in order, and calls back at
//! [`Link::poll_timeout`].

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use crossdock_limits::LINK_CALLS_MAX;
use crossdock_names::Epoch;
use crossdock_types::Time;

use crate::calls::{CallKey, CallRef, Calls, place_of_answer};
use crate::frame::Class;
use crate::handshake::{
    Identity, Peer, check_certificate, check_hello, check_welcome, hello, welcome,
};
use crate::interface::{CloseReason, LinkEffect, LinkInput};
use crate::outbox::{Outbox, empty};
use crate::reader::{FrameReader, Read};
use crate::{Credit, Frame, LinkConfig, Message, Refusal, Role, Stamped};

/// A slower network would not do: no link is given up while so much of a payload
/// arrives in a second.
const FILL_BYTES_PER_SECOND: u64 = 128 << 10;

/// How often calls that nobody waits for any more are looked for.
const LATE_EVERY: Duration = Duration::from_millis(250);

/// The machine of one connection.
///
/// Its clock begins with the first input; [`poll_timeout`](Self::poll_timeout)
/// asks for one at once.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    connects: bool,
    phase: Phase,
    identity: Option<Identity>,
    reader: FrameReader,
    outbox: Outbox,
    calls: Calls,
    effects: VecDeque<(LinkEffect, Credit)>,
    now: Time,
    /// When the last byte came.
    heard_at: Time,
    /// When late calls were looked for.
    tidied_at: Time,
    /// First and last time that the other host was asked since.
    pinged_at: Option<(Time, Time)>,
    /// Transmitted, and not with the kernel yet.
    unsent_bytes: usize,
    /// Received, and not given back to the other host's windows.
    held: Credit,
    /// Of these, what was handed on.
    handed: Credit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// Waits for the other host's first message.
    Greeting,
    /// Waits for a decision about the other host.
    Asking(Peer, Credit),
    Open(Peer),
    Ended,
}

impl Link {
    /// The side that has connected, and speaks first.
    #[must_use]
    pub fn connect(config: LinkConfig) -> Self {
        Self::new(config, true)
    }

    /// The side that was connected to.
    #[must_use]
    pub fn accept(config: LinkConfig) -> Self {
        Self::new(config, false)
    }

    fn new(config: LinkConfig, connects: bool) -> Self {
        let outbox = Outbox::new(config.queue_bytes_max);
        Self {
            config,
            connects,
            phase: Phase::New,
            identity: None,
            reader: FrameReader::new(),
            outbox,
            calls: Calls::default(),
            effects: VecDeque::new(),
            now: Time::default(),
            heard_at: Time::default(),
            tidied_at: Time::default(),
            pinged_at: None,
            unsent_bytes: 0,
            held: Credit::default(),
            handed: Credit::default(),
        }
    }

    /// Takes one input.
    ///
    /// # Panics
    /// If bytes are received while a [fill](LinkEffect::Fill) is under way.
    pub fn handle(&mut self, now: Time, input: LinkInput) {
        self.now = self.now.max(now);
        match self.phase {
            Phase::Ended => return self.handle_late(input),
            Phase::New => self.start(),
            _ => {}
        }
        match input {
            LinkInput::Certified(identity) => self.identity = Some(identity),
            LinkInput::Received(chunk) => self.receive(chunk),
            LinkInput::Filled(payload) => self.filled(payload),
            LinkInput::Send(sent) => self.send(sent),
            LinkInput::Sent { queued_bytes } => self.unsent_bytes = queued_bytes,
            LinkInput::Admit => {
                if let Phase::Asking(peer, window) = self.phase.clone() {
                    self.admit(peer, window);
                }
            }
            LinkInput::Refuse(refusal) => self.refuse(refusal),
            LinkInput::Close(reason) => self.end(reason),
            LinkInput::Timeout => self.handle_timeout(),
            LinkInput::Closed => self.end(CloseReason::Ended),
        }
        if self.now - self.tidied_at >= LATE_EVERY {
            self.tidied_at = self.now;
            self.drop_late();
        }
        self.pump();
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<LinkEffect> {
        let (effect, credit) = self.effects.pop_front()?;
        self.handed.call_bytes += credit.call_bytes;
        self.handed.reply_bytes += credit.reply_bytes;
        // A window at a time would stop the other host in between.
        let half = u64::try_from(self.config.window_bytes / 2).unwrap_or(u64::MAX);
        if self.handed.call_bytes.max(self.handed.reply_bytes) >= half.max(1) {
            let handed = std::mem::take(&mut self.handed);
            self.held.call_bytes -= handed.call_bytes;
            self.held.reply_bytes -= handed.reply_bytes;
            self.outbox.give(handed);
            self.pump();
        }
        Some(effect)
    }

    /// When [`LinkInput::Timeout`] is wanted at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.phase {
            Phase::New => Some(Time::default()),
            Phase::Greeting | Phase::Asking(..) => Some(self.heard_at + self.config.patience),
            Phase::Open(_) => Some(match self.pinged_at {
                None => self.heard_at + self.config.quiet,
                Some((first, last)) => self.dead_at(first).min(last + self.config.quiet),
            }),
            Phase::Ended => None,
        }
    }

    /// Who is at the other end, once both know each other.
    #[must_use]
    pub const fn peer(&self) -> Option<&Peer> {
        match &self.phase {
            Phase::Open(peer) => Some(peer),
            _ => None,
        }
    }

    /// Bytes that wait here to be sent, about: at most two queues full.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        self.outbox.queued_bytes()
    }

    /// How many calls of this host have no answer.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.ours()
    }
}

/// The handshake, and the end.
impl Link {
    fn start(&mut self) {
        self.heard_at = self.now;
        self.phase = Phase::Greeting;
        if self.config.fills {
            self.reader.lend();
        }
        if self.connects {
            self.transmit_at_once(&Message::Hello(hello(&self.config)));
        }
    }

    fn greet(&mut self, message: &Message) {
        match message {
            Message::Hello(hello) if !self.connects => {
                let checked = check_hello(&self.config, hello);
                match checked.and_then(|checked| self.certified(checked)) {
                    Ok((peer, window)) if self.config.asks => {
                        self.phase = Phase::Asking(peer.clone(), window);
                        self.push(LinkEffect::Asked(peer));
                    }
                    Ok((peer, window)) => self.admit(peer, window),
                    Err(refusal) => self.refuse(refusal),
                }
            }
            Message::Welcome(welcome) if self.connects => {
                let checked = check_welcome(&self.config, welcome);
                match checked.and_then(|checked| self.certified(checked)) {
                    Ok((peer, window)) => self.open(peer, window),
                    Err(refusal) => self.refuse(refusal),
                }
            }
            Message::Refuse(refusal) => self.end(CloseReason::RefusedByPeer(refusal.clone())),
            _ => self.end(CloseReason::Protocol("it does not say who it is")),
        }
    }

    fn certified(&self, checked: (Peer, Credit)) -> Result<(Peer, Credit), Refusal> {
        let (mut peer, window) = checked;
        check_certificate(&self.config, self.identity.as_ref(), &peer)?;
        let identity = self
            .identity
            .as_ref()
            .filter(|_| peer.role == Role::Gateway);
        peer.gateway = identity.and_then(|identity| identity.gateway.clone());
        Ok((peer, window))
    }

    fn admit(&mut self, peer: Peer, window: Credit) {
        let welcome = welcome(&self.config, &peer);
        self.transmit_at_once(&Message::Welcome(welcome));
        self.open(peer, window);
    }

    fn open(&mut self, peer: Peer, window: Credit) {
        self.heard_at = self.now;
        self.phase = Phase::Open(peer.clone());
        self.reader.trust();
        self.outbox.open(window);
        self.push(LinkEffect::Ready(peer));
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.transmit_at_once(&Message::Refuse(refusal.clone()));
        self.end(CloseReason::Refused(refusal));
    }

    fn transmit_at_once(&mut self, message: &Message) {
        match message.encode(self.now) {
            Ok(encoded) => {
                self.unsent_bytes += encoded.len();
                let pieces = encoded.into_pieces().collect();
                self.push(LinkEffect::Transmit(pieces));
            }
            Err(error) => self.end(error.into()),
        }
    }

    /// Tells everybody who waits.
    fn end(&mut self, reason: CloseReason) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        let ours: Vec<CallRef> = self.calls.take_ours().collect();
        let theirs: Vec<Frame> = self.calls.take_theirs().collect();
        for call in ours {
            self.push(LinkEffect::Lost(call));
        }
        // This host's own news: no table is needed for it.
        for cancel in theirs {
            self.push(LinkEffect::Frame(cancel.by(Epoch(0))));
        }
        self.push(LinkEffect::Close(reason));
        // What waited is of no use any more, and may be large.
        self.outbox = Outbox::new(0);
        self.reader = FrameReader::new();
    }

    /// A call that comes after the end gets its answer, too.
    fn handle_late(&mut self, input: LinkInput) {
        if let LinkInput::Send(sent) = input
            && let Some((key, to)) = CallKey::of_call(&sent.frame)
        {
            self.push(LinkEffect::Lost(key.call(to)));
        }
    }

    fn push(&mut self, effect: LinkEffect) {
        self.effects.push_back((effect, Credit::default()));
    }
}

/// Receiving.
impl Link {
    fn receive(&mut self, mut chunk: Bytes) {
        assert!(self.reader.lent_bytes() == 0, "received while filling");
        self.hear();
        while self.phase != Phase::Ended {
            let calls = &self.calls;
            let read = self
                .reader
                .next(self.now, &mut chunk, |frame| calls.place(frame));
            match read {
                Ok(Some(Read::Message(message, bytes))) => self.take(message, bytes),
                Ok(Some(Read::Fill(fill))) => return self.push(LinkEffect::Fill(fill)),
                Ok(None) => return,
                Err(error) => return self.end(error.into()),
            }
        }
    }

    fn filled(&mut self, payload: Bytes) {
        self.hear();
        match self.reader.filled(payload) {
            Ok(Some(Read::Message(message, bytes))) => self.take(message, bytes),
            Ok(_) => {}
            Err(error) => self.end(error.into()),
        }
    }

    const fn hear(&mut self) {
        if matches!(self.phase, Phase::Open(_)) {
            self.heard_at = self.now;
            self.pinged_at = None;
        }
    }

    fn take(&mut self, message: Message, bytes: usize) {
        match (&self.phase, message) {
            (Phase::Greeting, message) => self.greet(&message),
            (Phase::Open(_), Message::Ping) => self.outbox.pong(),
            (Phase::Open(_), Message::Pong) => {}
            (Phase::Open(_), Message::Credit(credit)) => self.outbox.open(credit),
            (Phase::Open(_), Message::Frame(sent)) => self.take_frame(sent, bytes),
            (Phase::Open(_), Message::Refuse(refusal)) => {
                self.end(CloseReason::RefusedByPeer(refusal));
            }
            _ => self.end(CloseReason::Protocol("a message out of its time")),
        }
    }

    fn take_frame(&mut self, sent: Stamped, bytes: usize) {
        let frame = &sent.frame;
        let length = u64::try_from(bytes).unwrap_or(u64::MAX);
        let window = u64::try_from(self.config.window_bytes).unwrap_or(u64::MAX);
        let (mut credit, mut held) = (Credit::default(), 0);
        match frame.class() {
            Class::Call => (credit.call_bytes, held) = (length, self.held.call_bytes),
            Class::Reply => (credit.reply_bytes, held) = (length, self.held.reply_bytes),
            Class::Control => {}
        }
        if held >= window {
            return self.end(CloseReason::Protocol("it sends more than its window"));
        }
        self.held.call_bytes += credit.call_bytes;
        self.held.reply_bytes += credit.reply_bytes;
        if let Some((key, to)) = CallKey::of_call(frame) {
            if self.calls.theirs() >= LINK_CALLS_MAX {
                return self.end(CloseReason::Protocol("it waits for too many answers"));
            }
            self.calls.came(key, to);
        }
        let is_awaited = match (frame.about(), CallKey::of_reply(frame)) {
            (Some((from, to, id)), _) => self.calls.is_theirs(CallKey::Node(from, to, id)),
            (_, Some(key)) => self.calls.end(key),
            (_, None) => true,
        };
        if is_awaited {
            self.effects.push_back((LinkEffect::Frame(sent), credit));
        } else {
            self.handed.call_bytes += credit.call_bytes;
            self.handed.reply_bytes += credit.reply_bytes;
        }
    }
}

/// Sending.
impl Link {
    fn send(&mut self, sent: Stamped) {
        match sent.frame.class() {
            Class::Call => self.send_call(sent),
            Class::Reply => self.send_reply(sent),
            Class::Control => self.send_control(sent),
        }
    }

    fn send_call(&mut self, sent: Stamped) {
        let Some((key, to)) = CallKey::of_call(&sent.frame) else {
            return;
        };
        let place = place_of_answer(&sent.frame);
        let is_full = self.calls.ours() >= LINK_CALLS_MAX;
        match self.outbox.push(sent) {
            Some(number) if is_full => {
                self.outbox.take_back(number);
                self.push(LinkEffect::Busy(key.call(to)));
            }
            Some(number) => self.calls.begin(key, to, number, place),
            None => self.push(LinkEffect::Busy(key.call(to))),
        }
    }

    fn send_reply(&mut self, sent: Stamped) {
        // Nobody has asked on this link: the call came over an earlier one.
        if CallKey::of_reply(&sent.frame).is_some_and(|key| !self.calls.answered(key)) {
            return;
        }
        // Replies always find room; notices have no call that bounds them.
        let _ = self.outbox.push(sent);
        if self.outbox.replies() > 2 * LINK_CALLS_MAX {
            self.end(CloseReason::Overrun);
        }
    }

    fn send_control(&mut self, sent: Stamped) {
        let Some((from, to, id)) = sent.frame.about() else {
            return;
        };
        let key = CallKey::Node(from, to, id);
        if !matches!(sent.frame, Frame::CancelNode { .. }) {
            if let Some(number) = self.calls.number_of(key) {
                self.outbox.push_behind(number, sent);
            }
            return;
        }
        let Some(number) = self.calls.cancel(key) else {
            return;
        };
        if self.outbox.take_back(number) {
            self.calls.end(key);
        } else {
            let _ = self.outbox.push(sent);
        }
    }

    /// Transmits what may go.
    fn pump(&mut self) {
        let mut pieces = Vec::new();
        while matches!(self.phase, Phase::Open(_))
            && self.unsent_bytes < self.config.unsent_bytes_max
        {
            let Some(message) = self.outbox.pop() else {
                break;
            };
            self.put(message, &mut pieces);
        }
        if !pieces.is_empty() && self.phase != Phase::Ended {
            self.push(LinkEffect::Transmit(pieces));
        }
    }

    fn put(&mut self, message: Message, pieces: &mut Vec<Bytes>) {
        let call = match &message {
            Message::Frame(sent) => CallKey::of_call(&sent.frame),
            _ => None,
        };
        let class = match &message {
            Message::Frame(sent) => sent.frame.class(),
            _ => Class::Control,
        };
        let encoded = match (message.encode(self.now), message, call) {
            (Ok(encoded), ..) => encoded,
            // It can be asked in smaller parts.
            (Err(_), _, Some((key, to))) => {
                self.calls.end(key);
                return self.push(LinkEffect::Busy(key.call(to)));
            }
            (Err(_), Message::Frame(mut sent), None) => {
                empty(&mut sent.frame);
                match Message::Frame(sent).encode(self.now) {
                    Ok(encoded) => encoded,
                    Err(error) => return self.end(error.into()),
                }
            }
            (Err(error), ..) => return self.end(error.into()),
        };
        self.outbox.sent(class, encoded.len());
        self.unsent_bytes += encoded.len();
        pieces.extend(encoded.into_pieces());
    }
}

/// Time.
impl Link {
    fn handle_timeout(&mut self) {
        let since = self.now - self.heard_at;
        match self.phase {
            Phase::Greeting | Phase::Asking(..) if since >= self.config.patience => {
                self.end(CloseReason::NoHandshake(since));
            }
            Phase::Open(_) => self.keep_alive(since),
            _ => {}
        }
    }

    fn keep_alive(&mut self, since: Duration) {
        let quiet = self.config.quiet;
        match self.pinged_at {
            Some((first, _)) if self.now >= self.dead_at(first) => {
                self.end(CloseReason::Silent(since));
            }
            Some((first, last)) if self.now >= last + quiet => {
                self.pinged_at = Some((first, self.now));
                self.outbox.ping();
            }
            None if since >= quiet => {
                self.pinged_at = Some((self.now, self.now));
                self.outbox.ping();
            }
            _ => {}
        }
    }

    /// Counted from the first question, not from the last byte: if it was this
    /// host that stood still, the other one has time to answer. What is received
    /// elsewhere is not seen before it is complete.
    fn dead_at(&self, first_ping: Time) -> Time {
        let lent = u64::try_from(self.reader.lent_bytes()).unwrap_or(u64::MAX);
        let filling = Duration::from_millis(lent.saturating_mul(1000) / FILL_BYTES_PER_SECOND);
        first_ping + self.config.patience.saturating_sub(self.config.quiet) + filling
    }

    fn drop_late(&mut self) {
        for frame in self.outbox.take_late(self.now) {
            if let Some((key, to)) = CallKey::of_call(&frame) {
                self.calls.end(key);
                self.push(LinkEffect::Busy(key.call(to)));
            }
        }
    }
}
