//! What is read for whom, and when, as the delivery engine says; and what comes of it.

use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::{Decision, End, StreamClass, StreamId};
use crossdock_peer::{Call, CallId, NodeAnswer, NodeError, NodeReply, NodeRequest};
use crossdock_types::{Time, WallTime};

use crate::door::{Asked, CALL_BIT, ObjectDoor};
use crate::message::{ConnId, ObjectDoorEffect};
use crate::transfer::{Next, Transfer};

impl ObjectDoor {
    /// Asks whether the object is there, and for its version.
    pub(crate) fn look(&mut self, now: Time, id: ConnId) {
        self.ask(now, id, |transfer, call| Some(transfer.stat(call)));
    }

    /// The response has so many bytes: from here on the engine says when they are read.
    pub(crate) fn open_stream(&mut self, now: Time, id: ConnId, bytes: u64) {
        self.ask_untold(now, id);
        self.streams_total += 1;
        let stream = StreamId(self.streams_total);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let pace = connection.pace.take();
        if let Some(transfer) = connection.transfer.as_deref_mut() {
            transfer.stream = Some(stream);
        }
        self.streams.insert(stream, id);
        self.delivery
            .open(now, stream, bytes, StreamClass::Foreground);
        if let Some(pace) = pace {
            self.delivery.resume(now, stream, *pace);
        }
        self.carry_decisions(now);
    }

    /// Tells the node that it is told how far is read ahead. Nobody waits for the answer.
    fn ask_untold(&mut self, now: Time, id: ConnId) {
        if self.delivery.config().switches.tdap
            && let Some(transfer) = self.transfer(id)
        {
            let (node, request) = (transfer.node(), transfer.ahead());
            self.calls_total += 1;
            let call = Call {
                id: CallId(CALL_BIT | self.calls_total),
                deadline: now + self.config.patience,
                request,
            };
            self.effects.push_back(ObjectDoorEffect::Node(node, call));
        }
    }

    /// Does what the engine has decided.
    pub(crate) fn carry_decisions(&mut self, now: Time) {
        while let Some(decision) = self.delivery.poll_decision() {
            let stream = decision.stream();
            let Some(&id) = self.streams.get(&stream) else {
                continue; // What a stream has asked for is taken back when it ends.
            };
            match decision {
                Decision::Request { bytes, .. } => self.read_on(now, id, bytes),
                Decision::Postpone { bytes, by, .. } => self.postpone(id, bytes, by),
                Decision::Resume { .. } => self.hurry(id),
                Decision::Look { .. } => self.effects.push_back(ObjectDoorEffect::Sample(id)),
                Decision::Withdraw { .. } => {}
            }
        }
    }

    /// Asks for the next `bytes` of a response, which are wanted within T_n.
    fn read_on(&mut self, now: Time, id: ConnId, bytes: u64) {
        let stream = self.transfer(id).and_then(|transfer| transfer.stream);
        let patience_ms = stream.map_or(0, |stream| self.delivery.patience_ms(stream, bytes));
        let mut left = bytes;
        while left > 0 {
            let asked = self.ask(now, id, |transfer, call| {
                let range = transfer.next_range(left)?;
                left -= range.end - range.start;
                Some(transfer.read(call, range, patience_ms))
            });
            if !asked {
                return;
            }
        }
    }

    /// Asks again for what a busy node has not done.
    pub(crate) fn retry(&mut self, now: Time, id: ConnId) {
        let Some(transfer) = self.transfer(id) else {
            return;
        };
        transfer.retry = None;
        if !transfer.is_reading() {
            return self.look(now, id);
        }
        let again = |transfer: &mut Transfer, call| {
            let range = transfer.lacking()?;
            Some(transfer.read(call, range, 0))
        };
        while self.ask(now, id, again) {}
    }

    /// Asks the node of a connection's request for what `what` says, if that is something.
    fn ask(
        &mut self,
        now: Time,
        id: ConnId,
        what: impl FnOnce(&mut Transfer, CallId) -> Option<NodeRequest>,
    ) -> bool {
        let call = CallId(CALL_BIT | (self.calls_total + 1));
        let Some(transfer) = self.transfer(id) else {
            return false;
        };
        let node = transfer.node();
        let Some(request) = what(transfer, call) else {
            return false;
        };
        self.calls_total += 1;
        self.calls.insert(call, id);
        let call = Call {
            id: call,
            deadline: now + self.config.patience,
            request,
        };
        self.effects.push_back(ObjectDoorEffect::Node(node, call));
        true
    }

    /// Its last reads can wait, so many bytes of them.
    fn postpone(&mut self, id: ConnId, bytes: u64, by: Duration) {
        let mut left = bytes;
        for (call, of_call) in self.calls_of(id).into_iter().rev() {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(of_call);
            self.figures.postponed_total += 1;
            if let Some(node) = self.node_of(id) {
                let postpone = ObjectDoorEffect::Postpone(node, call, by);
                self.effects.push_back(postpone);
            }
        }
    }

    fn hurry(&mut self, id: ConnId) {
        for (call, _) in self.calls_of(id) {
            if let Some(node) = self.node_of(id) {
                self.effects.push_back(ObjectDoorEffect::Hurry(node, call));
            }
        }
    }

    fn calls_of(&mut self, id: ConnId) -> Vec<(CallId, u64)> {
        let transfer = self.transfer(id);
        transfer.map_or_else(Vec::new, |transfer| transfer.calls().collect())
    }

    pub(crate) fn take_reply(&mut self, now: Time, wall: WallTime, reply: NodeReply) {
        let call = reply.id;
        let Some(id) = self.calls.remove(&call) else {
            return; // Nobody waits any more.
        };
        let Some(transfer) = self.transfer(id) else {
            return;
        };
        let node = transfer.node();
        let next = match (reply.outcome, transfer.is_reading()) {
            (Ok(NodeAnswer::Stat(stat)), false) => transfer.found(stat.version),
            (Ok(NodeAnswer::Read { payload, .. }), true) => transfer.arrived(call, payload),
            // No answer to what was asked is as good as none.
            (Ok(_), _) => transfer.failed(call, &NodeError::Unavailable { node }),
            (Err(error), _) => transfer.failed(call, &error),
        };
        self.follow(now, wall, id, next);
        self.carry_decisions(now);
        self.go_on(now, wall, id);
    }

    fn follow(&mut self, now: Time, wall: WallTime, id: ConnId, next: Next) {
        let Some(transfer) = self.transfer(id) else {
            return;
        };
        match next {
            Next::Open(bytes) => self.open_stream(now, id, bytes),
            Next::Answer(head) => {
                let head = head.keep_alive(transfer.keep_alive);
                self.answer(wall, id, &head);
                self.finish(now, id);
            }
            Next::Arrived(bytes) => {
                if let Some(stream) = transfer.stream {
                    self.delivery.delivered(now, stream, bytes);
                }
                self.send_ready(wall, id);
            }
            Next::Wait(pause) => {
                let when = now + pause;
                // One of several reads that were refused brings all back.
                if transfer.retry.is_none() {
                    transfer.retry = Some(when);
                    self.retries.insert((when, id));
                }
            }
            Next::Restart => {
                self.drop_content(now, id, End::Done);
                self.look(now, id);
            }
            Next::Refuse(status, hint) => {
                let asked = Asked {
                    keep_alive: transfer.keep_alive,
                    ..Asked::by(&transfer.head)
                };
                self.drop_content(now, id, End::Done);
                self.refuse(wall, id, asked, status, &hint);
                self.finish(now, id);
            }
            Next::Abort => {
                self.figures.broken_total += 1;
                self.abort(now, id);
            }
        }
    }

    /// Sends what has come, as far as it is wanted at the socket; the head goes before.
    pub(crate) fn send_ready(&mut self, wall: WallTime, id: ConnId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let Some(transfer) = connection.transfer.as_deref_mut() else {
            return;
        };
        let Some(stream) = transfer.stream else {
            return;
        };
        let unsent_bytes = usize::try_from(connection.unsent_bytes).unwrap_or(usize::MAX);
        let room = self
            .delivery
            .sending_bytes_max(stream)
            .saturating_sub(unsent_bytes);
        let (pieces, bytes) = transfer.sendable(room);
        if bytes == 0 {
            return; // The rest when some of it has gone, or has come.
        }
        let keep_alive = transfer.keep_alive;
        if let Some(head) = transfer.response.take() {
            self.answer(wall, id, &head.keep_alive(keep_alive));
        }
        self.figures.sent_bytes += bytes;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.unsent_bytes += bytes;
        }
        self.push(id, pieces);
    }

    /// Gives pieces to the connection, in one send with what goes there anyway.
    pub(crate) fn push(&mut self, id: ConnId, pieces: Vec<Bytes>) {
        match self.effects.back_mut() {
            Some(ObjectDoorEffect::Send(to, before)) if *to == id => before.extend(pieces),
            _ if pieces.is_empty() => {}
            _ => self.effects.push_back(ObjectDoorEffect::Send(id, pieces)),
        }
    }

    pub(crate) fn take_sent(&mut self, now: Time, wall: WallTime, id: ConnId, bytes: usize) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.active = now;
        let of_object = connection.sent(bytes as u64);
        let is_gone = connection.unsent_bytes == 0;
        let transfer = connection.transfer.as_deref();
        let is_sent = transfer.is_some_and(Transfer::is_sent);
        if let Some(stream) = transfer.and_then(|transfer| transfer.stream) {
            self.delivery.handed(now, stream, of_object);
            if is_gone && is_sent {
                self.end_stream(now, id, End::Done);
                self.finish(now, id);
            } else if self.delivery.wants_sample(now, stream) {
                self.effects.push_back(ObjectDoorEffect::Sample(id));
            }
        }
        self.send_ready(wall, id);
        self.carry_decisions(now);
        self.go_on(now, wall, id);
    }

    /// The engine has nothing more to do for the request.
    fn end_stream(&mut self, now: Time, id: ConnId, end: End) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let transfer = connection.transfer.as_deref_mut();
        if let Some(stream) = transfer.and_then(|transfer| transfer.stream.take()) {
            self.streams.remove(&stream);
            connection.pace = self.delivery.close(now, stream, end).map(Box::new);
        }
    }

    /// What a request has read, or is reading, is of no use: what has not come is taken back.
    pub(crate) fn drop_content(&mut self, now: Time, id: ConnId, end: End) {
        let calls = self.calls_of(id);
        let node = self.node_of(id);
        self.end_stream(now, id, end);
        for (call, _) in calls {
            self.calls.remove(&call);
            self.figures.withdrawn_total += 1;
            let cancel = node.map(|node| ObjectDoorEffect::Cancel(node, call));
            self.effects.extend(cancel);
        }
        let retry = self.transfer(id).and_then(|transfer| {
            transfer.forget_content();
            transfer.retry.take()
        });
        if let Some(when) = retry {
            self.retries.remove(&(when, id));
        }
    }
}
