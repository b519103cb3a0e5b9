//! One start of the store under a random workload, with the model beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crossdock_names::{Epoch, Incarnation, ObjectId, Version};
use crossdock_peer::{CallId, NodeAnswer, NodeError, NodeRequest, PinId, ReadVersion};
use crossdock_sim::disk::SimDiskOptions;
use crossdock_sim::random::Random;
use crossdock_store::{DefragReport, EvacuationReport, ScrubReport};
use crossdock_types::{BLOCK_BYTES, Time};

use super::history::{History, brief, brief_outcome};
use super::model::{Model, Object, Presence};
use super::plan::Plan;
use super::rig::{Output, Rig, Step};

mod actions;
mod background;
mod closing;
mod replies;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Far more events than any start needs.
const EVENTS_MAX: u64 = 100_000;

/// Why a start ends early.
pub(super) enum Stop {
    /// Its time has come.
    Crash,
    /// A disk failed a change, and the store says so.
    Failed,
    /// The store did what it must not.
    Violation(String),
}

pub(super) use closing::Closing;

pub(super) type Outcome<T> = Result<T, Stop>;

/// What is remembered from one start to the next.
pub(super) struct Memory {
    pub(super) model: Model,
    pub(super) random: Random,
    pub(super) history: History,
    pub(super) calls: u64,
    pub(super) epoch: u64,
    /// The start before ended in order.
    pub(super) is_drained: bool,
    /// A start has opened the store: it is made.
    pub(super) is_made: bool,
    /// Of the start before: must be unknown now.
    pub(super) old: Option<(Incarnation, Option<PinId>)>,
    pub(super) closing: Closing,
}

pub(super) struct Driver<'a> {
    pub(super) plan: &'a Plan,
    pub(super) memory: &'a mut Memory,
    pub(super) rig: Rig,
    pub(super) boot: Incarnation,
    version: Version,
    pending: BTreeMap<CallId, Pending>,
    pins: Vec<Pin>,
    /// Events until the crash, if there is to be one.
    budget: Option<u64>,
    events: u64,
    /// Reads that nobody waits for any more; answers may still come.
    cancelled: BTreeSet<CallId>,
    /// The outcome that [`Driver::call`] waits for.
    direct: Option<Result<NodeAnswer, NodeError>>,
    /// A step of a scrub is under way.
    is_scrubbing: bool,
    /// What it found, if somebody waits for it.
    scrubbed: Option<ScrubReport>,
    /// A step of the mover is under way.
    is_moving: bool,
    /// What it did, if somebody waits for it.
    moved: Option<DefragReport>,
    /// A pass of emptying closed blocks is not at its end.
    is_emptying: bool,
    /// What its last step did, if somebody waits for it.
    evacuated: Option<EvacuationReport>,
    /// A scrub of everything has just found nothing wrong with these.
    sound: BTreeSet<ObjectId>,
    /// The store was found to have failed.
    has_failed: bool,
}

/// What a look at everything does to the model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Knowledge {
    /// Right after opening: what is there now is known, and durable.
    Settled,
    /// While unstable writes may be lost yet.
    Same,
}

struct Pending {
    object: ObjectId,
    kind: PendingKind,
}

enum PendingKind {
    // Nothing else is under way for the object beside these.
    Create {
        is_fresh: bool,
    },
    Remove,
    Pin {
        offset: u64,
        length: u64,
        lease: Duration,
    },
    Seal {
        fence: Epoch,
        is_fresh: bool,
    },
    /// The append that makes a log object.
    FirstAppend,

    Change {
        stable: bool,
        generation: u64,
    },
    Commit {
        covers: Vec<CallId>,
    },
    Read {
        offset: u64,
        length: u64,
        certain: BTreeSet<CallId>,
        /// Something in the range was newer than what was asked for.
        must_be_gone: bool,
        may_be_gone: bool,
    },
    PinnedRead(PinId),
    Stat {
        certain: BTreeSet<CallId>,
    },
    Unpin,
    /// Sent under an old generation or fence.
    Late,
    /// Somebody waits for the plain outcome.
    Direct,
}

impl PendingKind {
    const fn is_change(&self) -> bool {
        !matches!(
            self,
            Self::Pin { .. }
                | Self::Read { .. }
                | Self::PinnedRead(_)
                | Self::Stat { .. }
                | Self::Unpin
                | Self::Direct
        )
    }
}

struct Pin {
    id: PinId,
    object: ObjectId,
    expected: Vec<u8>,
    offset: u64,
    until: Time,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        memory: &'a mut Memory,
        rig: Rig,
        boot: Incarnation,
        budget: Option<u64>,
    ) -> Self {
        memory.epoch += 1;
        let version = Version::first_of(Epoch(memory.epoch));
        Self {
            plan,
            memory,
            rig,
            boot,
            version,
            pending: BTreeMap::new(),
            pins: Vec::new(),
            budget,
            events: 0,
            cancelled: BTreeSet::new(),
            direct: None,
            is_scrubbing: false,
            scrubbed: None,
            is_moving: false,
            moved: None,
            is_emptying: false,
            evacuated: None,
            sound: BTreeSet::new(),
            has_failed: false,
        }
    }

    /// Opens, checks what is there, works until the crash or for `actions`.
    pub(super) fn live(&mut self, actions: u64) -> Outcome<()> {
        let was_drained = std::mem::take(&mut self.memory.is_drained);
        let replayed = self.open()?;
        let allocated = self.verify(Knowledge::Settled)?;
        // What a full disk had no place for gets one now, meanwhile.
        if was_drained && replayed == 0 {
            self.check_space(allocated)?;
        }
        self.check_old_names()?;
        let [journal, data] = self.plan.draw_faults(&mut self.memory.random);
        self.rig.disks().journal.set_options(journal);
        self.rig.disks().data.set_options(data);
        for _ in 0..actions {
            while self.pending.len() >= self.plan.pipeline {
                self.step(None)?;
            }
            let kind = self.plan.draw_kind(&mut self.memory.random);
            self.act(kind)?;
            self.mind_closed();
        }
        Ok(())
    }

    /// Ends in order: everything answered, nothing pinned, all there, all
    /// space accounted for.
    pub(super) fn finish(&mut self) -> Outcome<()> {
        self.answer_all()?;
        self.end_faults();
        for pin in std::mem::take(&mut self.pins) {
            self.call(pin.object, NodeRequest::Unpin { pin: pin.id })?
                .ok();
        }
        self.empty_all()?;
        self.defrag_all()?;
        self.sound = self.scrub_all()?;
        let faults = self.rig.disks().data.faults();
        if faults.lost_writes + faults.misdirected_writes > 0 {
            self.sound.clear(); // What went wrong may not be mapped yet.
        }
        self.verify(Knowledge::Same)?;
        self.drain()?;
        for object in self.memory.model.values_mut() {
            object.make_durable();
        }
        self.memory.is_drained = true;
        Ok(())
    }

    /// The store has failed: everybody is told, changes are refused, reads go
    /// on, and a stop does not wait for what cannot come.
    pub(super) fn outlive_failure(&mut self) -> Outcome<()> {
        self.memory
            .history
            .note(self.rig.now, || "the store has failed".to_owned());
        self.has_failed = true;
        self.rig.outputs.clear();
        self.budget = None;
        self.answer_all()?;
        self.end_faults();
        for &id in &self.plan.objects {
            let remove = self.removal_of(id);
            match self.call(id, remove)? {
                Err(NodeError::Media { .. }) => {}
                other => return violation(format!("a change after the failure gave {other:?}")),
            }
        }
        self.verify(Knowledge::Same)?;
        self.drain()
    }

    fn answer_all(&mut self) -> Outcome<()> {
        while !self.pending.is_empty() || self.is_scrubbing || self.is_moving {
            self.step(None)?;
        }
        Ok(())
    }

    /// From now on the disks do what they are asked, but a full one stays full.
    fn end_faults(&mut self) {
        let disks = self.rig.disks();
        let sound = SimDiskOptions::default();
        disks.journal.set_options(sound);
        let no_space_one_in = disks.data.options().no_space_one_in;
        disks.data.set_options(SimDiskOptions {
            no_space_one_in,
            ..sound
        });
    }

    fn drain(&mut self) -> Outcome<()> {
        self.memory
            .history
            .note(self.rig.now, || "drain".to_owned());
        self.rig.drain();
        loop {
            self.step(None)?;
            if matches!(self.rig.outputs.pop_front(), Some(Output::Quiet)) {
                return Ok(());
            }
        }
    }

    /// No space leaks: what is allocated is what objects have, and nothing waits
    /// to be freed after an orderly end.
    fn check_space(&self, allocated: u64) -> Outcome<()> {
        let found = self.rig.status().allocated_bytes;
        if found != allocated {
            return violation(format!(
                "{found} bytes are allocated, the objects have {allocated}"
            ));
        }
        Ok(())
    }

    /// What the next start must not know any more.
    pub(super) fn leave(&mut self) {
        let pin = self.pins.last().map(|pin| pin.id);
        self.memory.old = Some((self.boot, pin));
    }

    /// Gives the records that were replayed.
    fn open(&mut self) -> Outcome<u64> {
        loop {
            self.step(None)?;
            match self.rig.outputs.pop_front() {
                Some(Output::Opened(Ok(report))) => {
                    self.memory.is_made = true;
                    let now = self.rig.now;
                    self.memory
                        .history
                        .note(now, || format!("open: {report:?}"));
                    return Ok(report.records);
                }
                Some(Output::Opened(Err(error))) => {
                    return violation(format!("the store does not open: {error}"));
                }
                Some(other) => return violation(format!("{other:?} before it is open")),
                None => {}
            }
        }
    }

    /// Reads everything and compares it with the model. Gives the bytes that the
    /// objects say they take.
    fn verify(&mut self, knowledge: Knowledge) -> Outcome<u64> {
        let listed = self.list_all()?;
        let ids: Vec<ObjectId> = self.memory.model.keys().copied().collect();
        if let Some(stranger) = listed.iter().find(|id| !ids.contains(id)) {
            return violation(format!("{stranger} was never made"));
        }
        let mut allocated = 0;
        for id in ids {
            allocated += self.verify_object(id, listed.contains(&id), knowledge)?;
        }
        Ok(allocated)
    }

    fn list_all(&mut self) -> Outcome<BTreeSet<ObjectId>> {
        let mut listed = BTreeSet::new();
        let classes: BTreeSet<_> = self.memory.model.keys().map(|id| id.class).collect();
        for class in classes {
            let mut after = None;
            loop {
                let request = NodeRequest::List {
                    class,
                    placement: None,
                    after,
                    limit: 3,
                };
                let any = self.plan.objects[0];
                match self.call(any, request)? {
                    Ok(NodeAnswer::List { objects, more }) => {
                        after = objects.last().copied();
                        listed.extend(objects);
                        if !more {
                            break;
                        }
                    }
                    Err(NodeError::Busy { .. }) => {}
                    other => return violation(format!("list gave {other:?}")),
                }
            }
        }
        Ok(listed)
    }

    fn verify_object(
        &mut self,
        id: ObjectId,
        is_listed: bool,
        knowledge: Knowledge,
    ) -> Outcome<u64> {
        let presence = self.object(id).presence;
        let is_settled = knowledge == Knowledge::Settled;
        match (presence, is_listed) {
            (Presence::Absent, true) => return violation(format!("{id} came back")),
            (Presence::Present, false) => return violation(format!("{id} is gone")),
            // A removal that failed may be seen and not last.
            (Presence::Unsure, false) if !is_settled => return Ok(0),
            (Presence::Absent | Presence::Unsure, false) => {
                self.object(id).reset(Presence::Absent);
                return Ok(0);
            }
            (Presence::Present | Presence::Unsure, true) => {}
        }
        let stat = match self.call(id, NodeRequest::Stat { object: id })? {
            Ok(NodeAnswer::Stat(stat)) => stat,
            other => return violation(format!("stat of {id} gave {other:?}")),
        };
        let observed = match self.read_now(id, 0, stat.size_bytes)? {
            Ok(bytes) => bytes,
            Err(error) => {
                self.excuse(id, &error)?;
                if self.sound.contains(&id) {
                    return violation(format!("{id}: {error}, and a scrub has not found it"));
                }
                self.object(id).is_damaged = true;
                self.verify_damaged(id, stat.size_bytes)?;
                if is_settled {
                    self.object(id).presence = Presence::Present;
                }
                return Ok(stat.allocated_bytes);
            }
        };
        let object = self.object(id);
        let checked = object.check_all(&stat, &observed);
        if checked.is_ok() && is_settled {
            object.settle(&stat, &observed);
        }
        checked.map_err(|what| Stop::Violation(format!("{id}: {what}")))?;
        Ok(stat.allocated_bytes)
    }

    /// A block is bad: all others must still be right.
    fn verify_damaged(&mut self, id: ObjectId, size: u64) -> Outcome<()> {
        let certain = self.object(id).certain_calls();
        for offset in (0..size).step_by(BLOCK_BYTES) {
            let length = BLOCK.min(size - offset);
            match self.read_now(id, offset, length)? {
                Ok(bytes) => {
                    let checked = self.object(id).check_read(offset, length, &bytes, &certain);
                    checked.map_err(|what| Stop::Violation(format!("{id}, damaged: {what}")))?;
                }
                Err(error) => self.excuse(id, &error)?,
            }
        }
        Ok(())
    }

    fn read_now(
        &mut self,
        object: ObjectId,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Outcome<Result<Vec<u8>, NodeError>> {
        if length_bytes == 0 {
            return Ok(Ok(Vec::new()));
        }
        let request = NodeRequest::Read {
            object,
            offset_bytes,
            length_bytes,
            version: ReadVersion::Current,
            patience_ms: 0,
        };
        match self.call(object, request)? {
            Ok(NodeAnswer::Read { payload, .. }) => Ok(Ok(payload.to_bytes().to_vec())),
            Ok(other) => violation(format!("a read gave {other:?}")),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Pins and unstable writes end with the start that took them.
    fn check_old_names(&mut self) -> Outcome<()> {
        let Some((incarnation, pin)) = self.memory.old else {
            return Ok(());
        };
        let present = |id: &&ObjectId| self.memory.model[*id].presence == Presence::Present;
        let Some(&object) = self.plan.objects.iter().find(present) else {
            return Ok(());
        };
        let commit = NodeRequest::Commit {
            object,
            incarnation,
        };
        match self.call(object, commit)? {
            Err(NodeError::Lost { current }) if current == self.boot => {}
            other => return violation(format!("commit to an old incarnation gave {other:?}")),
        }
        let Some(pin) = pin else {
            return Ok(());
        };
        let read = NodeRequest::Read {
            object,
            offset_bytes: 0,
            length_bytes: 1,
            version: ReadVersion::Pinned(pin),
            patience_ms: 0,
        };
        match self.call(object, read)? {
            Err(NodeError::UnknownPin) => Ok(()),
            other => violation(format!("a pin of the start before gave {other:?}")),
        }
    }

    /// Sends a request and waits for its outcome.
    fn call(
        &mut self,
        object: ObjectId,
        request: NodeRequest,
    ) -> Outcome<Result<NodeAnswer, NodeError>> {
        self.send(object, PendingKind::Direct, request);
        loop {
            self.step(None)?;
            if let Some(outcome) = self.direct.take() {
                let line = || format!("  {}", brief_outcome(&outcome));
                self.memory.history.note(self.rig.now, line);
                return Ok(outcome);
            }
        }
    }

    fn send(&mut self, object: ObjectId, kind: PendingKind, request: NodeRequest) -> CallId {
        self.memory.calls += 1;
        let id = CallId(self.memory.calls);
        let line = || format!("#{} {}", id.0, brief(&request));
        self.memory.history.note(self.rig.now, line);
        self.pending.insert(id, Pending { object, kind });
        self.rig.request(id, request);
        id
    }

    fn object(&mut self, id: ObjectId) -> &mut Object {
        self.memory.model.get_mut(&id).expect("a planned object")
    }

    /// Lets one thing happen and takes the replies to what is pending.
    fn step(&mut self, wake: Option<Time>) -> Outcome<Step> {
        match &mut self.budget {
            Some(0) => return Err(Stop::Crash),
            Some(events) => *events -= 1,
            None => {}
        }
        self.events += 1;
        if self.events > EVENTS_MAX {
            let status = self.rig.status();
            return violation(format!("the store is busy without an end: {status:?}"));
        }
        let step = self.rig.step(wake);
        for output in std::mem::take(&mut self.rig.outputs) {
            match output {
                Output::Reply(reply) if self.cancelled.remove(&reply.id) => {}
                Output::Reply(reply) => match self.pending.remove(&reply.id) {
                    Some(pending) if !matches!(pending.kind, PendingKind::Direct) => {
                        self.take_reply(pending, reply)?;
                    }
                    Some(_) => self.direct = Some(reply.outcome),
                    None => return violation(format!("a reply too many: {reply:?}")),
                },
                Output::Scrubbed(Ok(report)) => self.take_scrubbed(report)?,
                Output::Scrubbed(Err(_)) if self.has_failed => {}
                Output::Defragged(outcome) => self.take_defragged(outcome)?,
                Output::Evacuated(_) => self.take_evacuated(output)?,
                other => self.rig.outputs.push_back(other),
            }
        }
        if self.rig.status().has_failed && !self.has_failed {
            return match self.rig.failed_changes() {
                0 => violation("the store has failed without a reason".to_owned()),
                _ => Err(Stop::Failed),
            };
        }
        let is_told = self.direct.is_some()
            || self.scrubbed.is_some()
            || self.moved.is_some()
            || self.evacuated.is_some();
        if step == Step::Idle && self.rig.outputs.is_empty() && !is_told {
            return violation("the store is stuck: nothing will ever happen".to_owned());
        }
        Ok(step)
    }
}

fn violation<T>(what: String) -> Outcome<T> {
    Err(Stop::Violation(what))
}
