//! Task management (RFC 7143 section 11.5): aborting tasks, resetting units. It is answered
//! when nothing of what was aborted can happen any more.

use std::collections::BTreeSet;

use crossdock_iscsi_pdu::{Head, TaskFunction, TaskRequest, TaskResponse, opcode};
use crossdock_scsi::{AdditionalSense, LogicalUnit};
use crossdock_types::{Payload, Time};

use crate::door::IscsiDoor;
use crate::message::ConnId;
use crate::reset::ResetKind;
use crate::session::SessionId;
use crate::task::TaskId;

/// Responses (RFC 7143 section 11.6.1).
const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const NO_UNIT: u8 = 2;
const NO_REASSIGNMENT: u8 = 4;
const NOT_SUPPORTED: u8 = 5;
const REJECTED: u8 = 255;

/// A function that waits for tasks to end.
#[derive(Debug)]
pub(crate) struct Management {
    connection: ConnId,
    tag: u32,
    /// Tasks.
    waits_for: BTreeSet<TaskId>,
    /// A reset that other gateways have not carried out yet, by its ticket.
    pub(crate) reset: Option<u64>,
    /// All sessions with this unit end behind it.
    ends_sessions_of: Option<u64>,
    response: u8,
}

impl Management {
    const fn new(connection: ConnId, tag: u32) -> Self {
        Self {
            connection,
            tag,
            waits_for: BTreeSet::new(),
            reset: None,
            ends_sessions_of: None,
            response: COMPLETE,
        }
    }
}

impl IscsiDoor {
    /// Carries out a function.
    pub(crate) fn serve_task_management(
        &mut self,
        now: Time,
        (id, session): (ConnId, SessionId),
        request: &TaskRequest,
    ) {
        let tag = request.task_tag.get();
        let unit = self.sessions.get(&session).and_then(|session| session.unit);
        let Some(unit) = unit else {
            return self.answer_management(id, tag, NOT_SUPPORTED);
        };
        let is_unit = LogicalUnit::decode(request.lun) == LogicalUnit::Number(0);
        let of_session = |task: TaskId| {
            let task = self.tasks.get(&task);
            task.is_some_and(|task| task.asked.session == session)
        };
        match TaskFunction::from_flags(request.head.flags) {
            Some(
                TaskFunction::AbortTask
                | TaskFunction::AbortTaskSet
                | TaskFunction::ClearTaskSet
                | TaskFunction::LogicalUnitReset,
            ) if !is_unit => self.answer_management(id, tag, NO_UNIT),
            Some(TaskFunction::AbortTask) => match self.referenced(session, request) {
                Referenced::Task(task) => {
                    let management = Management::new(id, tag);
                    self.abort(now, management, vec![task]);
                }
                Referenced::Passed => self.answer_management(id, tag, COMPLETE),
                Referenced::Nothing => self.answer_management(id, tag, NO_TASK),
            },
            Some(TaskFunction::AbortTaskSet) => {
                let own = self.task_set(unit).into_iter();
                let own = own.filter(|task| of_session(*task)).collect();
                self.abort(now, Management::new(id, tag), own);
            }
            Some(TaskFunction::ClearTaskSet) => {
                self.tell_cleared(unit, Some(session));
                let management = Management {
                    reset: self.tell_reset(session, ResetKind::TaskSet),
                    ..Management::new(id, tag)
                };
                self.abort(now, management, self.task_set(unit));
            }
            Some(
                function @ (TaskFunction::LogicalUnitReset
                | TaskFunction::TargetWarmReset
                | TaskFunction::TargetColdReset),
            ) => {
                self.reset(unit);
                let is_cold = function == TaskFunction::TargetColdReset;
                let kind = match is_cold {
                    true => ResetKind::Cold,
                    false => ResetKind::Unit,
                };
                let management = Management {
                    reset: self.tell_reset(session, kind),
                    ends_sessions_of: is_cold.then_some(unit),
                    ..Management::new(id, tag)
                };
                self.abort(now, management, self.tasks_of(unit));
            }
            Some(TaskFunction::TaskReassign) => self.answer_management(id, tag, NO_REASSIGNMENT),
            Some(TaskFunction::ClearAca) | None => self.answer_management(id, tag, NOT_SUPPORTED),
        }
    }

    /// Which task is meant.
    fn referenced(&mut self, session: SessionId, request: &TaskRequest) -> Referenced {
        let Some(session) = self.sessions.get_mut(&session) else {
            return Referenced::Nothing;
        };
        if let Some(&task) = session.tasks.get(&request.referenced_tag.get()) {
            return Referenced::Task(task);
        }
        let cmd_sn = request.ref_cmd_sn.get();
        // It came before its turn, and will not be served: its number is passed over.
        if let Some((_, pdu)) = session.early.get_mut(&cmd_sn) {
            pdu.header[0] = crate::serve::PASSED;
            return Referenced::Passed;
        }
        Referenced::Nothing
    }

    /// Aborts tasks; the answer waits for all of them.
    fn abort(&mut self, now: Time, mut management: Management, tasks: Vec<TaskId>) {
        for task in tasks {
            if !self.abort_task(now, task) {
                management.waits_for.insert(task);
            }
        }
        self.managements.push(management);
        self.settle_managements(now);
        self.pump(now);
    }

    /// What has become of a reset at other gateways: it is tried again under another ticket, or
    /// it is over.
    pub(crate) fn settle_reset(&mut self, now: Time, ticket: u64, next: Result<(), Option<u64>>) {
        let mut managements = self.managements.iter_mut();
        let Some(management) = managements.find(|it| it.reset == Some(ticket)) else {
            return;
        };
        match next {
            Ok(()) => management.reset = None,
            Err(Some(again)) => management.reset = Some(again),
            Err(None) => (management.reset, management.response) = (None, REJECTED),
        }
        self.settle_managements(now);
    }

    /// Answers functions whose tasks are all over, here and at other gateways.
    pub(crate) fn settle_managements(&mut self, now: Time) {
        for management in &mut self.managements {
            let tasks = &self.tasks;
            management.waits_for.retain(|task| tasks.contains_key(task));
        }
        let done = |management: &mut Management| {
            management.waits_for.is_empty() && management.reset.is_none()
        };
        let done: Vec<Management> = self.managements.extract_if(.., done).collect();
        for management in done {
            self.answer_management(management.connection, management.tag, management.response);
            let unit = management.ends_sessions_of;
            if let Some(unit) = unit.filter(|_| management.response == COMPLETE) {
                self.flush(management.connection);
                self.end_sessions_of(now, unit);
            }
        }
    }

    /// Everything that initiators have set of the unit is as at the start, but persistent
    /// reservations; a medium that was taken out stays out.
    pub(crate) fn reset(&mut self, unit: u64) {
        if let Some(unit) = self.units.get_mut(&unit) {
            unit.reserved_by = None;
            unit.is_stopped = false;
            unit.pages = unit.default_pages;
        }
        for session in self.sessions_of(unit) {
            self.attend(session, AdditionalSense::RESET);
            if let Some(session) = self.sessions.get_mut(&session) {
                session.copies.clear();
                session.tokens.clear();
                session.is_preventing = false;
            }
        }
    }

    /// All that is under way for a unit.
    pub(crate) fn tasks_of(&self, unit: u64) -> Vec<TaskId> {
        let tasks = self.tasks.iter().filter(|(_, task)| task.unit == unit);
        tasks.map(|(&id, _)| id).collect()
    }

    /// The same without copies that have been answered, which are of no task set.
    pub(crate) fn task_set(&self, unit: u64) -> Vec<TaskId> {
        let mut tasks = self.tasks_of(unit);
        tasks.retain(|task| self.tasks.get(task).is_some_and(|task| !task.is_answered));
        tasks
    }

    /// Whose commands are about to be cleared by somebody else is told (SAM-5, as TAS is 0: the
    /// commands are not answered).
    pub(crate) fn tell_cleared(&mut self, unit: u64, by: Option<SessionId>) {
        let tasks = self.task_set(unit).into_iter();
        let tasks = tasks.filter_map(|task| self.tasks.get(&task));
        let sessions: BTreeSet<SessionId> = tasks.map(|task| task.asked.session).collect();
        for session in sessions.into_iter().filter(|it| Some(*it) != by) {
            self.attend(session, AdditionalSense::COMMANDS_CLEARED);
        }
    }

    /// A cold reset ends all sessions with the target.
    pub(crate) fn end_sessions_of(&mut self, now: Time, unit: u64) {
        for session in self.sessions_of(unit) {
            self.end_session(now, session);
        }
    }

    fn answer_management(&mut self, id: ConnId, tag: u32, response: u8) {
        let numbers = self.numbers(id, true);
        let header = TaskResponse {
            head: Head::new(opcode::TASK_RESPONSE, 0x80).with([response, 0]),
            task_tag: tag.into(),
            stat_sn: numbers.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            ..TaskResponse::default()
        };
        self.push(id, &header, Payload::new());
    }
}

enum Referenced {
    Task(TaskId),
    /// It will not be served.
    Passed,
    Nothing,
}
