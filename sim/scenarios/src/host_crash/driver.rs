//! The clients of one start: they send, wait, send again, and hold the replies
//! against the model.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use crossdock_nfs::ConnId;
use crossdock_nfs3::{Call, HandleBuffer, Procedure, Reply, Status, WriteVerifier};
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::acts::{Act, Circumstances, Next};
use super::draw::draw;
use super::flushes::Moment;
use super::model::Model;
use super::rig::{Rig, Step};
use super::{Shape, wire};

/// Clients, each with an address and a connection of its own.
pub(super) const CLIENTS: usize = 3;

/// Requests on their way at a time, at most.
const PIPELINE_MAX: u64 = 12;

/// No request takes longer than this in simulated time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that is told to try again waits so long.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Acknowledged requests that a client may send again as if the reply were lost.
const REMEMBERED_MAX: usize = 4;

/// Why a start ends early.
#[derive(Debug)]
pub(super) enum Stop {
    /// Power fails.
    Crash,
    /// Something that must not be.
    Violation(String),
}

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Self::Violation(what)
    }
}

/// What outlives a start.
pub(super) struct Memory {
    pub(super) model: Model,
    pub(super) random: Random,
    pub(super) next_xid: u32,
    pub(super) next_connection: u64,
    /// Requests that a crash caught: those about data, and those about names.
    pub(super) caught: Vec<Pending>,
    pub(super) caught_names: Vec<Pending>,
    /// Acknowledged requests with their replies.
    pub(super) answered: VecDeque<(usize, Bytes, Bytes)>,
    /// Verifiers of this start, and of earlier ones.
    pub(super) verifier: Option<WriteVerifier>,
    pub(super) old_verifiers: Vec<WriteVerifier>,
    pub(super) calls: u64,
    pub(super) history: Option<Vec<String>>,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) client: usize,
    pub(super) act: Act,
    pub(super) procedure: Procedure,
    pub(super) record: Bytes,
    sent: Option<Moment>,
    sent_at: Time,
    is_disturbed: bool,
}

pub(super) struct Driver<'a> {
    pub(super) shape: Shape,
    pub(super) memory: &'a mut Memory,
    pub(super) rig: Rig,
    /// Events until power fails.
    budget: Option<u64>,
    pub(super) connections: Vec<ConnId>,
    pending: BTreeMap<u32, Pending>,
    again: Vec<(Time, Pending)>,
    /// The node that an administrator plays with, and whether it is stopped.
    node: (u32, bool),
    /// A node was away in this start: the sets of sites take it back at the
    /// next one only.
    pub(super) is_uneven: bool,
}

impl Memory {
    pub(super) fn note(&mut self, now: Time, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(format!("{:>9} µs  {}", now.0 / 1000, line()));
        }
    }
}

impl<'a> Driver<'a> {
    pub(super) fn new(shape: Shape, memory: &'a mut Memory, rig: Rig, budget: Option<u64>) -> Self {
        let number = u32::try_from(memory.random.below(u64::from(shape.nodes))).unwrap_or(0);
        Self {
            shape,
            memory,
            rig,
            budget,
            connections: Vec::new(),
            pending: BTreeMap::new(),
            again: Vec::new(),
            node: (number, false),
            is_uneven: false,
        }
    }

    /// Waits until the host serves, and connects.
    pub(super) fn open(&mut self) -> Result<(), Stop> {
        let status = self.rig.status();
        let stopped = status
            .nodes
            .iter()
            .find(|node| node.state.word() == "stopped");
        if let Some(node) = stopped {
            self.node = (node.number, true);
            self.is_uneven = true;
        }
        let deadline = self.rig.now + PATIENCE;
        while !self.rig.is_ready() {
            self.step(Some(deadline))?;
            if self.rig.now >= deadline {
                return Err(Stop::Violation("the host does not become ready".to_owned()));
            }
        }
        for client in 0..CLIENTS {
            self.memory.next_connection += 1;
            let connection = ConnId(self.memory.next_connection);
            self.rig.connect(connection, client);
            self.connections.push(connection);
        }
        self.memory
            .old_verifiers
            .extend(self.memory.verifier.take());
        // Once: afterwards the handle has to be good for ever.
        if self.memory.model.directories.is_empty() {
            let root = self.mount()?;
            self.memory.model.directories.push(root);
        }
        Ok(())
    }

    fn mount(&mut self) -> Result<HandleBuffer, Stop> {
        self.memory.next_xid += 1;
        let record = wire::encode_mount(self.memory.next_xid);
        let reply = self.exchange(0, record)?;
        let root = wire::decode_mount(&reply)?;
        root.ok_or_else(|| Stop::Violation("the root is not mounted".to_owned()))
    }

    /// Sends up to `actions` requests and waits for all replies.
    pub(super) fn work(&mut self, actions: u64) -> Result<(), Stop> {
        let pipeline = self.memory.random.between(1, PIPELINE_MAX);
        let mut left = actions;
        let mut next_at = self.rig.now;
        loop {
            self.take_replies()?;
            let is_idle = self.pending.is_empty() && self.again.is_empty();
            if left == 0 && is_idle {
                return Ok(());
            }
            let has_room = left > 0 && (self.pending.len() as u64) < pipeline;
            if has_room && self.rig.now >= next_at {
                left -= 1;
                self.act()?;
                let pause_micros_max = match self.memory.random.below(40) {
                    0 => 3_000_000,
                    1..4 => 50_000,
                    _ => 400,
                };
                let pause = self.memory.random.below(pause_micros_max);
                next_at = self.rig.now + Duration::from_micros(pause);
            }
            self.send_again();
            let again = self.again.iter().map(|(due, _)| *due).min();
            let has_room = left > 0 && (self.pending.len() as u64) < pipeline;
            let wake = again.into_iter().chain(has_room.then_some(next_at)).min();
            let limit = self.rig.now + PATIENCE;
            self.step(Some(wake.map_or(limit, |wake| wake.min(limit))))?;
            self.check_patience()?;
        }
    }

    /// Lets time pass, without new requests.
    pub(super) fn settle(&mut self, pause: Duration) -> Result<(), Stop> {
        let until = self.rig.now + pause;
        while self.rig.now < until {
            self.step(Some(until))?;
            self.take_replies()?;
        }
        Ok(())
    }

    pub(super) fn step(&mut self, wake: Option<Time>) -> Result<Step, Stop> {
        if self.budget.is_some_and(|budget| self.rig.events >= budget) {
            return Err(Stop::Crash);
        }
        let step = self.rig.step(wake)?;
        while let Some(warning) = self.rig.warnings.pop_front() {
            self.memory
                .note(self.rig.now, || format!("warning: {warning}"));
            // Nothing may stay unequal on disks that take writes.
            if !self.is_uneven && self.rig.failed_at.is_none() {
                return Err(Stop::Violation(format!("warning: {warning}")));
            }
        }
        Ok(step)
    }

    fn check_patience(&self) -> Result<(), Stop> {
        let late = |pending: &&Pending| self.rig.now.since(pending.sent_at) >= PATIENCE;
        match self.pending.values().find(late) {
            None => Ok(()),
            Some(pending) => Err(Stop::Violation(format!(
                "{:?} is not answered within {} s",
                pending.act,
                PATIENCE.as_secs()
            ))),
        }
    }

    fn act(&mut self) -> Result<(), Stop> {
        if self.shape.stops_nodes && self.memory.random.one_in(25) {
            return self.stop_or_start();
        }
        // Not every draw can be done now; what cannot is left out.
        for _ in 0..8 {
            let Memory { model, random, .. } = &mut *self.memory;
            if let Some(act) = draw(model, random) {
                let client = self.memory.random.index(CLIENTS);
                self.issue(client, act);
                break;
            }
        }
        Ok(())
    }

    /// Stops the node, or starts it again.
    pub(super) fn stop_or_start(&mut self) -> Result<(), Stop> {
        let (number, is_stopped) = self.node;
        let now = self.rig.now;
        if is_stopped {
            self.memory.note(now, || format!("start node {number}"));
            self.rig.start_node(number)?;
        } else {
            let nodes = self.rig.status().nodes;
            if nodes.iter().any(|node| node.state.word() != "running") {
                return Ok(()); // It has not come back completely.
            }
            self.memory.note(now, || format!("stop node {number}"));
            self.rig.stop_node(number)?;
            self.is_uneven = true;
        }
        self.node = (number, !is_stopped);
        self.memory.model.loses();
        for pending in self.pending.values_mut() {
            pending.is_disturbed = true;
        }
        Ok(())
    }

    /// Has all nodes running, and gives them time to become equal.
    pub(super) fn bring_nodes_back(&mut self) -> Result<(), Stop> {
        if self.node.1 {
            self.stop_or_start()?;
        }
        self.settle(Duration::from_secs(10))
    }

    fn issue(&mut self, client: usize, act: Act) {
        self.memory.next_xid += 1;
        let xid = self.memory.next_xid;
        let record = act.encode(xid, &self.memory.model);
        let procedure = act.procedure(&self.memory.model);
        act.lock(&mut self.memory.model);
        let pending = Pending {
            client,
            act,
            procedure,
            record,
            sent: Some(self.rig.watch.now()),
            sent_at: self.rig.now,
            is_disturbed: false,
        };
        self.send(xid, pending);
    }

    fn send(&mut self, xid: u32, pending: Pending) {
        self.memory.calls += 1;
        let (now, client) = (self.rig.now, pending.client);
        self.memory.note(now, || {
            format!("client {client}, #{xid}: {:?}", pending.act)
        });
        self.rig
            .send(self.connections[client], pending.record.clone());
        self.pending.insert(xid, pending);
    }

    fn send_again(&mut self) {
        let now = self.rig.now;
        let (due, later) = std::mem::take(&mut self.again)
            .into_iter()
            .partition(|(due, _)| *due <= now);
        self.again = later;
        for (_, mut pending) in due {
            self.memory.next_xid += 1;
            let xid = self.memory.next_xid;
            pending.record = pending.act.encode(xid, &self.memory.model);
            pending.sent_at = now;
            self.send(xid, pending);
        }
    }

    /// Sends a request of an earlier start again, byte for byte.
    pub(super) fn resend(&mut self, mut pending: Pending) -> Result<(), Stop> {
        pending.sent = None;
        pending.sent_at = self.rig.now;
        let xid = wire::xid(&pending.record.slice(4..))?;
        self.send(xid, pending);
        self.work(0)
    }

    pub(super) fn take_replies(&mut self) -> Result<(), Stop> {
        while let Some((connection, record)) = self.rig.replies.pop_front() {
            let xid = wire::xid(&record)?;
            let pending = self.pending.remove(&xid);
            let pending = pending.filter(|it| self.connections[it.client] == connection);
            let Some(pending) = pending else {
                return Err(Stop::Violation(format!(
                    "a reply to #{xid}, which nobody asked"
                )));
            };
            self.take_reply(xid, pending, record)?;
        }
        Ok(())
    }

    fn take_reply(&mut self, xid: u32, pending: Pending, record: Bytes) -> Result<(), Stop> {
        let reply = wire::decode(pending.procedure, &record)?;
        let now = self.rig.now;
        let status = reply.status();
        self.memory.note(now, || match status {
            None => format!("#{xid} is done"),
            Some(status) => format!("#{xid}: {status}"),
        });
        self.check_verifier(&reply)?;
        if self.is_of_failed_disk(status)? {
            self.pending.insert(xid, pending);
            return Err(Stop::Crash);
        }
        pending.act.unlock(&mut self.memory.model);
        let circumstances = Circumstances {
            watch: &self.rig.watch,
            sent: pending.sent,
            is_disturbed: pending.is_disturbed,
            copies: match self.is_uneven {
                false => self.shape.replicas as usize,
                true => 1,
            },
        };
        let next = pending
            .act
            .replied(&mut self.memory.model, &reply, &circumstances)
            .map_err(|what| Stop::Violation(format!("#{xid} {:?}: {what}", pending.act)))?;
        match next {
            Next::Again => {
                pending.act.lock(&mut self.memory.model);
                self.again.push((now + AGAIN_AFTER, pending));
            }
            Next::Done if pending.act.is_once() => {
                let answered = &mut self.memory.answered;
                answered.push_back((pending.client, pending.record, record));
                if answered.len() > REMEMBERED_MAX {
                    answered.pop_front();
                }
            }
            Next::Done => {}
        }
        Ok(())
    }

    /// A verifier of an earlier start must not come back.
    fn check_verifier(&mut self, reply: &Reply) -> Result<(), Stop> {
        let verifier = match reply {
            Reply::Write(Ok(done)) => done.verifier,
            Reply::Commit(Ok(done)) => done.verifier,
            _ => return Ok(()),
        };
        if self.memory.old_verifiers.contains(&verifier) {
            return Err(Stop::Violation(
                "an old write verifier came back".to_owned(),
            ));
        }
        self.memory.verifier = Some(verifier);
        Ok(())
    }

    /// Sends a record and waits for its reply.
    pub(super) fn exchange(&mut self, client: usize, record: Bytes) -> Result<Bytes, Stop> {
        let xid = wire::xid(&record.slice(4..))?;
        self.memory.calls += 1;
        self.rig.send(self.connections[client], record);
        let deadline = self.rig.now + PATIENCE;
        loop {
            while let Some((_, reply)) = self.rig.replies.pop_front() {
                if wire::xid(&reply)? == xid {
                    return Ok(reply);
                }
            }
            if self.rig.now >= deadline {
                return Err(Stop::Violation(format!("#{xid} is not answered")));
            }
            self.step(Some(deadline))?;
        }
    }

    /// Sends two records at once, from two clients, and waits for both replies.
    #[cfg(test)]
    pub(super) fn exchange_both(
        &mut self,
        first: Bytes,
        second: Bytes,
    ) -> Result<[Bytes; 2], Stop> {
        let xids = [
            wire::xid(&first.slice(4..))?,
            wire::xid(&second.slice(4..))?,
        ];
        self.rig.send(self.connections[0], first);
        self.rig.send(self.connections[1], second);
        let deadline = self.rig.now + PATIENCE;
        let mut replies = BTreeMap::new();
        while self.rig.now < deadline {
            while let Some((_, reply)) = self.rig.replies.pop_front() {
                replies.insert(wire::xid(&reply)?, reply);
            }
            if let (Some(first), Some(second)) = (replies.get(&xids[0]), replies.get(&xids[1])) {
                return Ok([first.clone(), second.clone()]);
            }
            self.step(Some(deadline))?;
        }
        Err(Stop::Violation("two requests are not answered".to_owned()))
    }

    /// Calls, and calls again for as long as it is told to try later.
    pub(super) fn call(&mut self, call: &Call<'_>) -> Result<Reply, Stop> {
        for _ in 0..500 {
            self.memory.next_xid += 1;
            let record = wire::encode(self.memory.next_xid, call);
            let record = self.exchange(0, record)?;
            let reply = wire::decode(call.procedure(), &record)?;
            self.check_verifier(&reply)?;
            if reply.status() != Some(Status::Jukebox) {
                return Ok(reply);
            }
            self.settle(AGAIN_AFTER)?;
        }
        Err(Stop::Violation(format!(
            "{:?} is told to try later for ever",
            call.procedure()
        )))
    }

    /// The start is over: what is on its way stays for the next one.
    pub(super) fn leave(&mut self) {
        let pending = std::mem::take(&mut self.pending).into_values();
        let again = std::mem::take(&mut self.again).into_iter();
        for pending in pending.chain(again.map(|(_, pending)| pending)) {
            match pending.act {
                // What it was to show is not known any more.
                Act::Read { .. } => pending.act.unlock(&mut self.memory.model),
                _ => self.memory.caught.push(pending),
            }
        }
    }
}
