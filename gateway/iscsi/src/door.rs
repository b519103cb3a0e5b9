//! The machine: connections, sessions, units, tasks, and what they wait for.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use crossdock_iscsi_pdu::{AsyncMessage, Head, NO_TAG, NopIn, encode, opcode};
use crossdock_peer::{Call, CallId, Nexus, SiteAnswer, SiteOperation, SiteRequest};
use crossdock_router::RoutedReply;
use crossdock_scsi::{AdditionalSense, Sense, SenseKey, Status};
use crossdock_types::{Payload, Time};
use zerocopy::{Immutable, IntoBytes};

use crate::connection::{Connection, Phase};
use crate::fence::{Fence, Obedience};
use crate::figures::IscsiFigures;
use crate::manage::Management;
use crate::message::{ConnId, IscsiConfig, IscsiEffect, IscsiInput, LunTable, Portals};
use crate::refuse::{Access, outcome_of};
use crate::reserve::Change;
use crate::reset::Reset;
use crate::respond::Outcome;
use crate::session::{Session, SessionId};
use crate::task::{Stage, Task, TaskId};
use crate::token::Tokens;
use crate::unit::{Committed, Unit};

/// Calls of the door have this bit, those of others never.
const CALL_BIT: u64 = 1 << 55;

/// What an asynchronous message tells: all connections of the session end.
const SESSION_ENDS: u8 = 3;

/// Serves LUNs over iSCSI.
///
/// [`handle`](Self::handle) takes what happened; then
/// [`poll_effect`](Self::poll_effect) until it is empty, in order; then wait no longer
/// than [`poll_timeout`](Self::poll_timeout).
///
/// When a connection ends, its tasks are aborted: reads are withdrawn, writes that the
/// router has are done or not. With its last connection a session ends.
pub struct IscsiDoor {
    pub(crate) config: IscsiConfig,
    pub(crate) luns: Arc<LunTable>,
    pub(crate) portals: Portals,
    pub(crate) connections: BTreeMap<ConnId, Connection>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) units: BTreeMap<u64, Unit>,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pub(crate) calls: BTreeMap<CallId, CallOf>,
    pub(crate) managements: Vec<Management>,
    pub(crate) fences: Vec<Fence>,
    pub(crate) obediences: VecDeque<Obedience>,
    /// Who was registered with which unit, and is not any more, as of the LUNs that were told last.
    pub(crate) pushed_out: Vec<(u64, Nexus)>,
    /// What other gateways' resets have aborted and is not over, and at which unit.
    pub(crate) reset_tasks: Vec<(u64, TaskId)>,
    /// Resets of this gateway's, by the tickets under which the registry has them.
    pub(crate) resets: BTreeMap<u64, Reset>,
    /// Changes of reservations, by the tickets under which the registry has them.
    pub(crate) changes: BTreeMap<u64, Change>,
    pub(crate) changes_total: u64,
    calls_total: u64,
    pub(crate) tasks_total: u64,
    pub(crate) sessions_total: u16,
    pub(crate) transfers_total: u32,
    pub(crate) texts_total: u32,
    pub(crate) challenges_total: u64,
    pub(crate) tokens: Tokens,
    /// Bytes that tasks hold.
    pub(crate) held_bytes: usize,
    /// No connection has waited too long before this time.
    wake: Option<Time>,
    pub(crate) is_pumping: bool,
    /// A unit that was looked at already may have something to run.
    pub(crate) is_pumped_again: bool,
    pub(crate) is_stopping: bool,
    pub(crate) figures: IscsiFigures,
    pub(crate) effects: VecDeque<IscsiEffect>,
    with_output: VecDeque<ConnId>,
}

/// What a call is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallOf {
    /// A piece of a task's bytes, and of which unit.
    Task(TaskId, u64),
    /// A piece of a copy's bytes.
    Copy(TaskId),
    /// A commit of a unit.
    Commit(u64),
}

impl IscsiDoor {
    /// A door without connections and LUNs.
    #[must_use]
    pub fn new(config: IscsiConfig) -> Self {
        Self {
            config,
            luns: Arc::default(),
            portals: Portals::default(),
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            units: BTreeMap::new(),
            tasks: BTreeMap::new(),
            calls: BTreeMap::new(),
            managements: Vec::new(),
            fences: Vec::new(),
            obediences: VecDeque::new(),
            pushed_out: Vec::new(),
            reset_tasks: Vec::new(),
            resets: BTreeMap::new(),
            changes: BTreeMap::new(),
            changes_total: 0,
            calls_total: 0,
            tasks_total: 0,
            sessions_total: 0,
            transfers_total: 0,
            texts_total: 0,
            challenges_total: 0,
            tokens: Tokens::default(),
            held_bytes: 0,
            wake: None,
            is_pumping: false,
            is_pumped_again: false,
            is_stopping: false,
            figures: IscsiFigures::default(),
            effects: VecDeque::new(),
            with_output: VecDeque::new(),
        }
    }

    /// Whether an answer with this id is for the door.
    #[must_use]
    pub const fn owns(id: CallId) -> bool {
        id.0 >> 55 == 1
    }

    /// Takes what happened.
    pub fn handle(&mut self, now: Time, input: IscsiInput) {
        match input {
            IscsiInput::Opened(id, peer, local) => self.open(now, id, peer, local),
            IscsiInput::Received(id, chunk) => self.receive(now, id, chunk),
            IscsiInput::Sent(id, bytes) => self.take_sent(now, id, bytes),
            IscsiInput::Closed(id) => {
                self.leave_session(now, id, false);
                self.connections.remove(&id);
            }
            IscsiInput::Luns(luns) => self.take_luns(now, luns),
            IscsiInput::Reservations(changes) => self.obey(changes),
            IscsiInput::Portals(portals) => self.portals = portals,
            IscsiInput::Reserved(ticket, is_done) => self.take_reserved(now, ticket, is_done),
            IscsiInput::Stop => self.stop(now),
            IscsiInput::Reply(routed) => self.take_reply(now, *routed),
            IscsiInput::Timeout => self.take_timeout(now),
        }
    }

    /// What is to be done next. What is ready together goes out in one send per
    /// connection, after everything else.
    pub fn poll_effect(&mut self) -> Option<IscsiEffect> {
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        while let Some(id) = self.with_output.pop_front() {
            if let Some(connection) = self.connections.get_mut(&id)
                && !connection.outbox.is_empty()
            {
                let payload = std::mem::take(&mut connection.outbox);
                return Some(IscsiEffect::Send(id, payload));
            }
        }
        None
    }

    /// When to call [`handle`](Self::handle) with [`IscsiInput::Timeout`].
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Time> {
        self.wake
    }

    /// What was counted.
    #[must_use]
    pub fn figures(&self) -> IscsiFigures {
        let mut figures = self.figures.clone();
        figures.connections = self.connections.len();
        figures.sessions = self.sessions.len();
        figures.tasks = self.tasks.len();
        figures.held_bytes = self.held_bytes;
        figures
    }

    fn open(&mut self, now: Time, id: ConnId, peer: SocketAddr, local: Option<SocketAddr>) {
        if self.is_stopping || self.connections.len() >= self.config.limits.connections_max {
            self.effects.push_back(IscsiEffect::Abort(id));
            return;
        }
        let connection = Connection::new(now, peer, local);
        self.watch(&connection);
        self.connections.insert(id, connection);
    }

    fn receive(&mut self, now: Time, id: ConnId, chunk: Bytes) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.active = now;
            connection.filling_bytes = 0;
            connection.is_asked = false;
            connection.reader.push(chunk);
            self.serve_arrived(now, id);
        }
    }

    /// Serves what has arrived, as long as what is answered is taken, too.
    fn serve_arrived(&mut self, now: Time, id: ConnId) {
        let unsent_bytes_max = self.config.limits.unsent_bytes_max;
        while let Some(connection) = self.connections.get_mut(&id) {
            if connection.is_closing {
                connection.reader.clear();
                break;
            }
            if connection.unsent_bytes > unsent_bytes_max {
                break;
            }
            match connection.reader.take() {
                Ok(Some(pdu)) => match connection.session() {
                    Some(session) => self.serve(now, (id, session), pdu),
                    None => self.serve_login(now, id, &pdu),
                },
                Ok(None) => {
                    self.begin_fill(id);
                    break;
                }
                Err(_) => {
                    // Where the next PDU begins cannot be told.
                    self.figures.rejected_total += 1;
                    return self.drop_connection(now, id);
                }
            }
        }
        self.hold_back(id);
    }

    /// Stops reading from who does not take what he is answered, and reads on.
    fn hold_back(&mut self, id: ConnId) {
        let unsent_bytes_max = self.config.limits.unsent_bytes_max;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let is_full = connection.unsent_bytes > unsent_bytes_max;
        if std::mem::replace(&mut connection.is_paused, is_full) != is_full {
            self.effects.push_back(match is_full {
                true => IscsiEffect::Pause(id),
                false => IscsiEffect::Resume(id),
            });
        }
    }

    fn take_sent(&mut self, now: Time, id: ConnId, bytes: usize) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let was_full = connection.unsent_bytes > self.config.limits.unsent_bytes_max;
        connection.unsent_bytes = connection.unsent_bytes.saturating_sub(bytes);
        if was_full {
            self.serve_arrived(now, id);
            self.pump(now);
        }
    }

    fn take_reply(&mut self, now: Time, routed: RoutedReply) {
        match self.calls.remove(&routed.reply.id) {
            Some(CallOf::Task(task, unit)) => self.take_piece(now, task, unit, routed),
            Some(CallOf::Copy(task)) => self.take_copied(now, task, routed),
            Some(CallOf::Commit(unit)) => self.take_commit(now, unit, &routed),
            None => {} // It was withdrawn.
        }
    }

    /// Asks the router, as the ensemble itself: who may use a LUN was judged before.
    pub(crate) fn ask(&mut self, now: Time, of: CallOf, operation: SiteOperation) -> CallId {
        self.calls_total += 1;
        let id = CallId(CALL_BIT | self.calls_total);
        self.calls.insert(id, of);
        let call = Call {
            id,
            deadline: now + self.config.patience,
            request: SiteRequest::as_root(operation),
        };
        self.effects.push_back(IscsiEffect::Router(Box::new(call)));
        id
    }

    /// Has the router make durable what was written, if somebody wants that and it is not
    /// under way.
    pub(crate) fn begin_commit(&mut self, now: Time, number: u64) {
        let Some(unit) = self.units.get_mut(&number) else {
            return;
        };
        let file = unit.lun.file;
        if unit.cache.begin() {
            let operation = SiteOperation::Commit {
                file,
                incarnation: crossdock_names::Incarnation::default(), // The router knows it.
            };
            self.ask(now, CallOf::Commit(number), operation);
        }
    }

    fn take_commit(&mut self, now: Time, number: u64, routed: &RoutedReply) {
        let Some(unit) = self.units.get_mut(&number) else {
            return;
        };
        let (verifier, error) = match routed.reply.outcome {
            Ok(SiteAnswer::Committed) => (Some(routed.verifier), None),
            Ok(_) => (None, Some(crossdock_peer::SiteError::Io)),
            Err(error) => (None, Some(error)),
        };
        let (waiting, committed) = unit.cache.end(verifier);
        let outcome = match (committed, error) {
            (Committed::Durable, _) => Outcome::Good,
            (Committed::Failed, Some(error)) => outcome_of(error, Access::Write, 0),
            (Committed::Failed, None) => Outcome::Status(Status::Busy),
            (Committed::Lost, _) => {
                let lost = AdditionalSense::WRITE_ERROR;
                Outcome::Sense(Sense::new(SenseKey::MediumError, lost))
            }
        };
        for task in waiting {
            self.complete(now, task, outcome.clone());
        }
        self.begin_commit(now, number);
    }

    /// A task is over, and answered or not.
    pub(crate) fn forget_task(&mut self, now: Time, id: TaskId) {
        self.detach(id);
        let Some(task) = self.tasks.remove(&id) else {
            return;
        };
        self.held_bytes -= task.held_bytes;
        if let Some(unit) = self.units.get_mut(&task.unit) {
            unit.remove(id);
        }
        if let Stage::Copying(copying) = &task.stage
            && let Some(place) = copying.place()
            && let Some(unit) = self.units.get_mut(&place)
        {
            unit.end_step(id);
        }
        self.settle(now);
    }

    /// The initiator's number of it can be another task's.
    pub(crate) fn detach(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(&task.asked.session)
            && session.tasks.get(&task.asked.tag) == Some(&id)
        {
            session.tasks.remove(&task.asked.tag);
            session.counted -= u32::from(task.asked.is_counted);
        }
    }

    /// Nobody wants the task any more. Whether it is over: writes that the router has are
    /// not, until they are answered.
    pub(crate) fn abort_task(&mut self, now: Time, id: TaskId) -> bool {
        self.figures.aborted_total += 1;
        self.detach(id);
        let is_over = self.stop_transfer(id);
        if is_over {
            self.forget_task(now, id);
        }
        is_over
    }

    /// The last write of an aborted task is answered.
    pub(crate) fn bury(&mut self, now: Time, id: TaskId) {
        self.forget_task(now, id);
        self.pump(now);
    }

    /// A connection is no more one of a session's; its tasks are aborted, and so is the
    /// session with the last connection, unless another one takes its place.
    pub(crate) fn leave_session(&mut self, now: Time, id: ConnId, is_replaced: bool) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let Phase::Full(number, cid) = connection.phase else {
            return;
        };
        let Some(session) = self.sessions.get_mut(&number) else {
            return;
        };
        if session.connections.get(&cid) != Some(&id) {
            return; // It has left before.
        }
        session.connections.remove(&cid);
        session.early.retain(|_, (from, _)| *from != id);
        let is_last = session.connections.is_empty();
        let tasks = self.tasks.iter();
        let own = tasks.filter(|(_, task)| task.asked.connection == id && !task.is_answered);
        let own: Vec<TaskId> = own.map(|(&task, _)| task).collect();
        for task in own {
            self.abort_task(now, task);
        }
        if is_last && !is_replaced {
            self.end_session(now, number);
        }
        self.pump(now);
    }

    /// A session ends: what it has reserved in the old way is free.
    pub(crate) fn end_session(&mut self, now: Time, number: SessionId) {
        let Some(session) = self.sessions.get(&number) else {
            return;
        };
        let connections: Vec<ConnId> = session.connections.values().copied().collect();
        let unit = session.unit;
        for id in connections {
            self.leave_session(now, id, true);
            self.shut(id);
        }
        let tasks = self.tasks.iter();
        let behind = tasks.filter(|(_, task)| task.asked.session == number && task.is_answered);
        let behind: Vec<TaskId> = behind.map(|(&task, _)| task).collect();
        for task in behind {
            self.abort_task(now, task);
        }
        self.sessions.remove(&number);
        if let Some(unit) = unit.and_then(|unit| self.units.get_mut(&unit)) {
            unit.reserved_by.take_if(|holder| *holder == number);
        }
    }

    /// Nothing more is served: it ends behind what is to be sent.
    pub(crate) fn shut(&mut self, id: ConnId) {
        self.flush(id);
        if let Some(connection) = self.connections.get_mut(&id)
            && !std::mem::replace(&mut connection.is_closing, true)
        {
            connection.reader.clear();
            self.effects.push_back(IscsiEffect::Close(id));
        }
    }

    /// The connection is of no use any more.
    pub(crate) fn drop_connection(&mut self, now: Time, id: ConnId) {
        self.leave_session(now, id, false);
        if self.connections.remove(&id).is_some() {
            self.effects.push_back(IscsiEffect::Abort(id));
        }
    }

    /// Puts a PDU behind what is to be sent.
    pub(crate) fn push(
        &mut self,
        id: ConnId,
        header: &(impl IntoBytes + Immutable),
        data: Payload,
    ) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.is_closing {
            return;
        }
        let pdu = encode(header, data, connection.digests);
        connection.unsent_bytes += pdu.len();
        if connection.outbox.is_empty() {
            self.with_output.push_back(id);
        }
        connection.outbox.append(pdu);
    }

    /// Gives out what is to be sent before what is done next.
    pub(crate) fn flush(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.outbox.is_empty()
        {
            let payload = std::mem::take(&mut connection.outbox);
            self.effects.push_back(IscsiEffect::Send(id, payload));
        }
    }

    pub(crate) fn session_of(&self, id: ConnId) -> Option<&Session> {
        self.sessions.get(&self.connections.get(&id)?.session()?)
    }

    pub(crate) fn unit_of(&self, session: SessionId) -> Option<&Unit> {
        self.units.get(&self.sessions.get(&session)?.unit?)
    }

    pub(crate) fn unit_of_mut(&mut self, session: SessionId) -> Option<&mut Unit> {
        self.units.get_mut(&self.sessions.get(&session)?.unit?)
    }

    /// All sessions with a unit.
    pub(crate) fn sessions_of(&self, unit: u64) -> Vec<SessionId> {
        let sessions = self.sessions.iter();
        let with_it = sessions.filter(|(_, session)| session.unit == Some(unit));
        with_it.map(|(&number, _)| number).collect()
    }

    /// A session is to be told something with its next command.
    pub(crate) fn attend(&mut self, session: SessionId, what: AdditionalSense) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.attend(what);
        }
    }

    /// The LUNs may be others than before.
    fn take_luns(&mut self, now: Time, luns: Arc<LunTable>) {
        let gone: Vec<u64> = self.units.keys().copied().collect();
        for number in gone.into_iter().filter(|number| !luns.contains_key(number)) {
            for session in self.sessions_of(number) {
                self.announce_end(session);
                self.end_session(now, session);
            }
            self.units.remove(&number);
        }
        let is_shared = self.config.is_shared;
        for (&number, lun) in luns.iter() {
            let unit = self.units.entry(number);
            let unit = unit.or_insert_with(|| Unit::new(lun.clone(), is_shared));
            let before = std::mem::replace(&mut unit.lun, lun.clone());
            if before == *lun {
                continue;
            }
            if before.size_bytes != lun.size_bytes {
                for session in self.sessions_of(number) {
                    self.attend(session, AdditionalSense::CAPACITY_CHANGED);
                }
            }
            let registered = before.reservations.registrants.iter();
            let is_out = |nexus: &&Nexus| lun.reservations.key_of(nexus).is_none();
            let out = registered.map(|it| &it.nexus).filter(is_out).cloned();
            self.pushed_out.extend(out.map(|nexus| (number, nexus)));
            self.tell_reserved(number, &before.reservations);
            self.follow_resets(now, number, &before.reservations);
            self.judge_sessions(now, number);
        }
        self.luns = luns;
    }

    /// Who may not use the unit any more, or has to prove something else, is thrown out.
    fn judge_sessions(&mut self, now: Time, number: u64) {
        for id in self.sessions_of(number) {
            let (Some(session), Some(unit)) = (self.sessions.get(&id), self.units.get(&number))
            else {
                continue;
            };
            let connections = session.connections.values();
            let mut connections = connections.filter_map(|it| self.connections.get(it));
            let from = connections.next().map(Connection::from);
            let initiator = &session.nexus.initiator;
            let rule = from.and_then(|from| unit.lun.access.rule(initiator, from));
            let is_same_proof = rule.as_ref().is_some_and(|rule| {
                rule.chap == session.rule.chap && rule.mutual == session.rule.mutual
            });
            match (rule, self.sessions.get_mut(&id)) {
                (Some(rule), Some(session)) if is_same_proof => session.rule = rule,
                _ => self.end_session(now, id),
            }
        }
    }

    /// Tells a session that it ends.
    fn announce_end(&mut self, session: SessionId) {
        let connections = self
            .sessions
            .get(&session)
            .map(|it| it.connections.values());
        let first = connections.and_then(|mut all| all.next().copied());
        let Some(id) = first else { return };
        let numbers = self.numbers(id, true);
        let header = AsyncMessage {
            head: Head::new(opcode::ASYNC, 0x80),
            task_tag: NO_TAG.into(),
            stat_sn: numbers.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            event: SESSION_ENDS,
            ..AsyncMessage::default()
        };
        self.push(id, &header, Payload::new());
    }

    fn stop(&mut self, now: Time) {
        self.is_stopping = true;
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.announce_end(session);
            self.end_session(now, session);
        }
        let connections: Vec<ConnId> = self.connections.keys().copied().collect();
        for id in connections {
            self.shut(id);
        }
    }

    fn watch(&mut self, connection: &Connection) {
        let deadline = connection.deadline(&self.config.limits);
        self.wake = Some(self.wake.map_or(deadline, |wake| wake.min(deadline)));
    }

    fn take_timeout(&mut self, now: Time) {
        if self.wake.is_none_or(|wake| now < wake) {
            return;
        }
        let limits = self.config.limits;
        let late = |connection: &Connection| connection.deadline(&limits) <= now;
        let connections = self.connections.iter();
        let late = connections.filter(|(_, connection)| late(connection));
        let late: Vec<(ConnId, bool)> = late
            .map(|(&id, it)| (id, it.session().is_none() || it.is_asked || it.is_closing))
            .collect();
        for (id, is_over) in late {
            match is_over {
                true => self.drop_connection(now, id),
                false => self.ask_for_life(id),
            }
        }
        let deadlines = self.connections.values().map(|it| it.deadline(&limits));
        self.wake = deadlines.min();
    }

    /// NOP-In: is the initiator there still?
    fn ask_for_life(&mut self, id: ConnId) {
        let numbers = self.numbers(id, false);
        let header = NopIn {
            head: Head::new(opcode::NOP_IN, 0x80),
            task_tag: NO_TAG.into(),
            transfer_tag: 1.into(), // Any but none.
            stat_sn: numbers.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            ..NopIn::default()
        };
        self.push(id, &header, Payload::new());
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_asked = true;
        }
    }
}
