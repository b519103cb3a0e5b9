//! PDUs of the full feature phase: each in its turn to whom it is for.

use crossdock_iscsi_pdu::{
    DataOut, Head, LogoutRequest, LogoutResponse, NO_TAG, NopIn, NopOut, Pdu, Reject, RejectReason,
    Request, ScsiCommand, opcode,
};
use crossdock_limits::ISCSI_HELD_BYTES_MAX;
use crossdock_scsi::{
    AdditionalSense, Command, LogicalUnit, Sense, SenseKey, Status, parse_cdb, unmap_list,
};
use crossdock_types::{Payload, Time};

use crate::door::IscsiDoor;
use crate::medium::{NO_MEDIUM, needs_medium};
use crate::message::ConnId;
use crate::plan::{Plan, Planned, UNMAP_BYTES_MAX, UNMAP_DESCRIPTORS_MAX, in_range, plan};
use crate::respond::Outcome;
use crate::session::SessionId;
use crate::task::{Asked, Attribute, DATA_PHASE, Gather, Stage, Task, TaskId, UNEXPECTED};
use crate::unit::Claim;

/// In place of the operation code of a request that came before its turn, and was aborted.
pub(crate) const PASSED: u8 = 0x3e;

/// Immediate commands of one session at a time: they take no place of the window.
const IMMEDIATE_MAX: usize = 16;

impl IscsiDoor {
    /// Serves a PDU of a session's connection.
    pub(crate) fn serve(&mut self, now: Time, (id, session): (ConnId, SessionId), pdu: Pdu) {
        if !pdu.is_intact {
            // Error recovery level 0: the session begins anew (RFC 7143 section 7.1.4.1).
            self.reject(id, RejectReason::DataDigest, &pdu);
            self.leave_session(now, id, false);
            return self.shut(id);
        }
        let Some(request) = Request::decode(&pdu.header) else {
            return self.reject(id, RejectReason::Unsupported, &pdu);
        };
        let (cmd_sn, is_immediate) = match &request {
            Request::Data(data) => return self.serve_data(now, (id, session), data, pdu.data),
            Request::Snack(_) => return self.reject(id, RejectReason::Snack, &pdu),
            Request::Login(_) => return self.reject(id, RejectReason::Protocol, &pdu),
            Request::Nop(nop) => (nop.cmd_sn, nop.head.is_immediate()),
            Request::Command(command) => (command.cmd_sn, command.head.is_immediate()),
            Request::Task(task) => (task.cmd_sn, task.head.is_immediate()),
            Request::Text(text) => (text.cmd_sn, text.head.is_immediate()),
            Request::Logout(logout) => (logout.cmd_sn, logout.head.is_immediate()),
        };
        let commands_max = self.config.limits.commands_max;
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        let cmd_sn = cmd_sn.get();
        if is_immediate {
            return self.serve_request(now, (id, session), &request, &pdu);
        }
        if !known.is_in_window(cmd_sn, commands_max) {
            return; // RFC 7143 section 4.2.2.1: silently.
        }
        if cmd_sn != known.exp_cmd_sn {
            known.early.entry(cmd_sn).or_insert((id, pdu));
            return;
        }
        known.exp_cmd_sn = cmd_sn.wrapping_add(1);
        self.serve_request(now, (id, session), &request, &pdu);
        self.serve_early(now, session);
    }

    /// Those that came before their turn, as far as it is theirs now.
    fn serve_early(&mut self, now: Time, session: SessionId) {
        while let Some(known) = self.sessions.get_mut(&session)
            && let Some((id, pdu)) = known.early.remove(&known.exp_cmd_sn)
        {
            known.exp_cmd_sn = known.exp_cmd_sn.wrapping_add(1);
            if pdu.header[0] != PASSED
                && let Some(request) = Request::decode(&pdu.header)
            {
                self.serve_request(now, (id, session), &request, &pdu);
            }
        }
    }

    fn serve_request(
        &mut self,
        now: Time,
        (id, session): (ConnId, SessionId),
        request: &Request,
        pdu: &Pdu,
    ) {
        match request {
            Request::Nop(nop) => self.serve_nop(id, nop, pdu),
            Request::Command(command) => self.serve_command(now, (id, session), command, pdu),
            Request::Task(task) => self.serve_task_management(now, (id, session), task),
            Request::Text(text) => self.serve_text(id, text, pdu),
            Request::Logout(logout) => self.serve_logout(now, (id, session), logout),
            // They have no place in the order.
            Request::Data(_) | Request::Snack(_) | Request::Login(_) => {}
        }
    }

    fn serve_nop(&mut self, id: ConnId, nop: &NopOut, pdu: &Pdu) {
        if nop.task_tag.get() == NO_TAG {
            return; // The answer to ours: it is there.
        }
        let room = self.connections.get(&id);
        let room = room.map_or(0, |connection| connection.their_data_bytes_max);
        let mut data = pdu.data.clone();
        data.truncate(room);
        let numbers = self.numbers(id, true);
        let header = NopIn {
            head: Head::new(opcode::NOP_IN, 0x80),
            lun: nop.lun,
            task_tag: nop.task_tag,
            transfer_tag: NO_TAG.into(),
            stat_sn: numbers.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            ..NopIn::default()
        };
        self.push(id, &header, data);
    }

    fn serve_logout(
        &mut self,
        now: Time,
        (id, session): (ConnId, SessionId),
        logout: &LogoutRequest,
    ) {
        let connections = self.sessions.get(&session).map(|known| &known.connections);
        let meant = connections.and_then(|all| all.get(&logout.cid.get()).copied());
        let (response, meant) = match (logout.head.flags & 0x7f, meant) {
            (0, _) => (0, None),
            (1, Some(meant)) => (0, Some(meant)),
            (1, None) => (1, Some(id)),
            _ => (2, Some(id)), // No connection is recovered.
        };
        let numbers = self.numbers(id, true);
        let header = LogoutResponse {
            head: Head::new(opcode::LOGOUT_RESPONSE, 0x80).with([response, 0]),
            task_tag: logout.task_tag,
            stat_sn: numbers.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            ..LogoutResponse::default()
        };
        self.push(id, &header, Payload::new());
        match (response, meant) {
            (0, None) => self.end_session(now, session),
            (0, Some(meant)) => {
                self.leave_session(now, meant, false);
                self.shut(meant);
            }
            _ => {}
        }
    }

    /// Data that a command brings.
    fn serve_data(
        &mut self,
        now: Time,
        (id, session): (ConnId, SessionId),
        header: &DataOut,
        data: Payload,
    ) {
        let tasks = self.sessions.get(&session).map(|known| &known.tasks);
        let task = tasks.and_then(|tasks| tasks.get(&header.task_tag.get()).copied());
        // It may have been answered, or aborted, while its data was on the way.
        let Some(task) = task else { return };
        let Some(found) = self.tasks.get_mut(&task) else {
            return;
        };
        if !matches!(found.stage, Stage::Gathering) || found.asked.connection != id {
            return;
        }
        self.figures.received_bytes += data.len() as u64;
        match found.gather.take(header, data) {
            Ok(()) => self.gather_more(now, task),
            Err(sense) => self.complete(now, task, sense.into()),
        }
    }

    /// A task's data has come, or some of it: asks for more, or queues the task.
    fn gather_more(&mut self, now: Time, id: TaskId) {
        self.ask_for_data(id);
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        if task.gather.is_complete() && !task.gather.wants_more() {
            self.ready(now, id);
        }
    }

    fn serve_command(
        &mut self,
        now: Time,
        (id, session): (ConnId, SessionId),
        command: &ScsiCommand,
        pdu: &Pdu,
    ) {
        let flags = command.head.flags;
        let asked = Asked {
            session,
            connection: id,
            tag: command.task_tag.get(),
            lun: command.lun,
            is_counted: !command.head.is_immediate(),
            attribute: match flags & 7 {
                2 => Attribute::Ordered,
                3 => Attribute::HeadOfQueue,
                _ => Attribute::Simple,
            },
            expected_bytes: command.expected_bytes.get(),
            is_read: flags & 0x40 != 0,
            is_write: flags & 0x20 != 0,
        };
        let Some(known) = self.sessions.get(&session) else {
            return;
        };
        if known.unit.is_none() {
            return self.reject(id, RejectReason::Protocol, pdu);
        }
        if known.tasks.contains_key(&asked.tag) || asked.tag == NO_TAG {
            return self.reject(id, RejectReason::InProgress, pdu);
        }
        let immediate = known.tasks.len() - known.counted as usize;
        if !asked.is_counted && immediate >= IMMEDIATE_MAX {
            return self.reject(id, RejectReason::Immediate, pdu);
        }
        let kind = match (asked.is_read, asked.is_write) {
            (true, _) => 0,
            (_, true) => 1,
            _ => 2,
        };
        self.figures.commands_total[kind] += 1;
        self.figures.received_bytes += pdu.data.len() as u64;
        match self.admit(&asked, command, pdu) {
            Ok((planned, gather)) => self.begin(now, asked, planned, gather),
            Err(outcome) => {
                let outcome = *outcome;
                self.answer(&asked, 0, outcome, 0);
                // A medium that was taken out is to have all that was written.
                if let Some(unit) = self.sessions.get(&session).and_then(|it| it.unit) {
                    self.begin_commit(now, unit);
                }
            }
        }
    }

    /// What is to be done for a command, and the data that it wants; or its answer.
    fn admit(
        &mut self,
        asked: &Asked,
        command: &ScsiCommand,
        pdu: &Pdu,
    ) -> Result<(Planned, Gather), Box<Outcome>> {
        let refused = |sense: Sense| Box::new(Outcome::Sense(sense));
        let parsed = match (command.head.ahs_words, asked.is_read && asked.is_write) {
            (0, false) if !self.left_out().contains(&command.cdb[0]) => parse_cdb(&command.cdb),
            // Longer commands, and those that go both ways: there are none.
            _ => Err(crossdock_scsi::CdbError::Opcode(command.cdb[0])),
        };
        if LogicalUnit::decode(command.lun) != LogicalUnit::Number(0) {
            return Err(Box::new(self.answer_elsewhere(asked, &parsed)));
        }
        if let Some(sense) = self.attention_before(asked.session, &parsed) {
            return Err(refused(sense));
        }
        let command = parsed.map_err(|error| refused(error.into()))?;
        if self.is_reserved_against(asked.session, &command) {
            return Err(Box::new(Outcome::Status(Status::ReservationConflict)));
        }
        let unit = self.unit_of(asked.session);
        let unit = unit.ok_or_else(|| refused(Sense::illegal(AdditionalSense::NO_UNIT)))?;
        if unit.is_ejected && needs_medium(&command) {
            return Err(refused(NO_MEDIUM));
        }
        let Some(planned) = plan(&unit.lun, &command).map_err(refused)? else {
            return Err(Box::new(self.parameters(asked, &command)));
        };
        self.check_state(asked.session, &planned).map_err(refused)?;
        let gather = self.gather_for(asked, &planned, pdu)?;
        Ok((planned, gather))
    }

    /// Whether the unit can do it as it is.
    fn check_state(&self, session: SessionId, planned: &Planned) -> Result<(), Sense> {
        let (Some(unit), Some(session)) = (self.unit_of(session), self.sessions.get(&session))
        else {
            return Err(Sense::illegal(AdditionalSense::NO_UNIT));
        };
        let is_of_blocks = !matches!(
            planned.plan,
            Plan::ModeSelect(_) | Plan::ReserveOut { .. } | Plan::AbortCopy { .. }
        );
        if unit.is_stopped && is_of_blocks {
            return Err(Sense::new(SenseKey::NotReady, AdditionalSense::STOPPED));
        }
        if planned.is_change() {
            if session.rule.is_read_only {
                return Err(crate::plan::write_protected(false));
            }
            if unit.pages.is_software_protected {
                return Err(crate::plan::write_protected(true));
            }
        }
        Ok(())
    }

    /// What data a command brings, and how.
    fn gather_for(
        &self,
        asked: &Asked,
        planned: &Planned,
        pdu: &Pdu,
    ) -> Result<Gather, Box<Outcome>> {
        let refused = |sense: Sense| Box::new(Outcome::Sense(sense));
        let Some(session) = self.sessions.get(&asked.session) else {
            return Err(refused(UNEXPECTED));
        };
        let parameters = &session.parameters;
        let expected = if asked.is_write {
            asked.expected_bytes
        } else {
            0
        };
        if planned.takes_all() && !fits(planned, expected) {
            return Err(refused(wrong_length(&planned.plan)));
        }
        let unasked_max = parameters.first_burst_bytes.min(expected);
        let immediate_max = match parameters.is_immediate_data {
            true => unasked_max,
            false => 0,
        };
        let is_more = asked.is_write && pdu.header[1] & 0x80 == 0;
        if pdu.data.len() > immediate_max as usize || (is_more && parameters.is_initial_r2t) {
            return Err(refused(UNEXPECTED));
        }
        let wanted = u32::try_from(planned.out_bytes)
            .unwrap_or(u32::MAX)
            .min(expected);
        let held = self.held_bytes + wanted as usize;
        if held > self.config.limits.held_bytes_max.min(ISCSI_HELD_BYTES_MAX) {
            return Err(Box::new(Outcome::Status(Status::TaskSetFull)));
        }
        let unasked = is_more.then_some(unasked_max);
        Ok(Gather::new(wanted, unasked, pdu.data.clone()))
    }

    /// A command becomes a task.
    fn begin(&mut self, now: Time, asked: Asked, planned: Planned, gather: Gather) {
        let unit = self.sessions.get(&asked.session).and_then(|it| it.unit);
        let Some(unit) = unit else { return };
        self.tasks_total += 1;
        let id = TaskId(self.tasks_total);
        let held_bytes = usize::try_from(planned.out_bytes.min(asked.expected_bytes.into()));
        let held_bytes = held_bytes.unwrap_or_default();
        self.held_bytes += held_bytes;
        if let Some(session) = self.sessions.get_mut(&asked.session) {
            session.tasks.insert(asked.tag, id);
            session.counted += u32::from(asked.is_counted);
        }
        self.tasks.insert(
            id,
            Task {
                asked,
                unit,
                planned,
                gather,
                stage: Stage::Gathering,
                is_answered: false,
                held_bytes,
            },
        );
        self.gather_more(now, id);
    }

    /// All of a task's data is there.
    fn ready(&mut self, now: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let attribute = task.asked.attribute;
        let number = task.unit;
        match task.planned.plan.clone() {
            Plan::ModeSelect(form) => {
                let list = task.gather.finish().to_bytes();
                let outcome = self.select_mode(id, form, &list);
                self.complete(now, id, outcome);
                // What was cached before the cache was turned off.
                return self.begin_commit(now, number);
            }
            Plan::ReserveOut {
                action,
                scope,
                kind,
            } => {
                let list = task.gather.finish().to_bytes();
                task.stage = Stage::Settling;
                return self.reserve_out(now, id, action, (scope, kind), &list);
            }
            Plan::ExtendedCopy => {
                let list = task.gather.finish().to_bytes();
                return self.queue_copy(now, id, &list);
            }
            Plan::PopulateToken { list_id } => {
                let list = task.gather.finish().to_bytes();
                return self.populate(now, id, list_id, &list);
            }
            Plan::WriteUsingToken { list_id } => {
                let list = task.gather.finish().to_bytes();
                return self.write_by_token(now, id, list_id, &list);
            }
            Plan::AbortCopy { list_id } => {
                task.stage = Stage::Settling;
                return self.abort_copy(now, id, list_id);
            }
            Plan::Unmap => {
                let list = task.gather.finish().to_bytes();
                if let Err(sense) = self.plan_unmap(id, &list) {
                    return self.complete(now, id, sense.into());
                }
            }
            Plan::PreFetch => return self.complete(now, id, Outcome::Good),
            Plan::Synchronize { is_immediate } => {
                task.stage = Stage::Settling;
                let unit = task.unit;
                if let Some(unit) = self.units.get_mut(&unit) {
                    unit.cache.want((!is_immediate).then_some(id));
                }
                self.begin_commit(now, unit);
                if is_immediate {
                    self.complete(now, id, Outcome::Good);
                }
                return;
            }
            _ => {}
        }
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let range = task.planned.range.clone();
        if range.is_empty() {
            let outcome = match task.planned.plan {
                Plan::Read => Outcome::Data(Payload::new()),
                _ => Outcome::Good,
            };
            return self.complete(now, id, outcome);
        }
        task.stage = Stage::Waiting;
        let claim = Claim {
            range,
            is_change: task.planned.is_change(),
            attribute,
        };
        if !self
            .units
            .get(&task.unit)
            .is_some_and(|unit| unit.pages.is_write_cached)
        {
            task.planned.is_forced = true;
        }
        if let Some(unit) = self.units.get_mut(&task.unit) {
            unit.queue(id, claim);
        }
        self.pump(now);
    }

    /// What UNMAP's list says becomes the plan.
    fn plan_unmap(&mut self, id: TaskId, list: &[u8]) -> Result<(), Sense> {
        let Some(task) = self.tasks.get_mut(&id) else {
            return Ok(());
        };
        let Some(unit) = self.units.get(&task.unit) else {
            return Err(Sense::illegal(AdditionalSense::NO_UNIT));
        };
        let descriptors = unmap_list(list, UNMAP_DESCRIPTORS_MAX as usize)?;
        let mut ranges = Vec::new();
        // Those without blocks say nothing, wherever they are (SBC-3 section 5.28.2).
        for descriptor in descriptors.into_iter().filter(|it| it.blocks > 0) {
            let blocks = crossdock_scsi::BlockRange {
                lba: descriptor.lba,
                blocks: descriptor.blocks,
            };
            ranges.push(in_range(&unit.lun, blocks)?);
        }
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if bytes > UNMAP_BYTES_MAX {
            return Err(Sense::invalid_parameter(2, None));
        }
        let start = ranges.iter().map(|range| range.start).min();
        let end = ranges.iter().map(|range| range.end).max();
        task.planned.range = start.unwrap_or_default()..end.unwrap_or_default();
        task.planned.plan = Plan::Free(ranges);
        Ok(())
    }

    /// Before a unit's first command behind something that has happened to it, that is told.
    fn attention_before(
        &mut self,
        session: SessionId,
        parsed: &Result<Command, crossdock_scsi::CdbError>,
    ) -> Option<Sense> {
        let is_told = !matches!(
            parsed,
            Ok(Command::Inquiry { .. } | Command::ReportLuns { .. } | Command::RequestSense { .. })
        );
        let session = self.sessions.get_mut(&session).filter(|_| is_told)?;
        let what = session.attentions.pop_front()?;
        Some(Sense::new(SenseKey::UnitAttention, what))
    }

    /// Refuses a PDU, and shows its header.
    pub(crate) fn reject(&mut self, id: ConnId, reason: RejectReason, pdu: &Pdu) {
        self.figures.rejected_total += 1;
        let numbers = self.numbers(id, true);
        let header = Reject {
            head: Head::new(opcode::REJECT, 0x80).with([reason as u8, 0]),
            task_tag: NO_TAG.into(),
            stat_sn: numbers.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            ..Reject::default()
        };
        let data = bytes::Bytes::copy_from_slice(&pdu.header);
        self.push(id, &header, data.into());
    }
}

/// Whether the initiator sends what the command wants.
fn fits(planned: &Planned, expected: u32) -> bool {
    let expected = u64::from(expected);
    match planned.plan {
        // These have a length of their own: anything else is a mistake.
        Plan::CompareAndWrite | Plan::WriteSame { .. } => planned.out_bytes == expected,
        _ => planned.out_bytes <= expected,
    }
}

fn wrong_length(plan: &Plan) -> Sense {
    match plan {
        Plan::Unmap
        | Plan::ExtendedCopy
        | Plan::PopulateToken { .. }
        | Plan::WriteUsingToken { .. }
        | Plan::ModeSelect(_)
        | Plan::ReserveOut { .. } => Sense::illegal(AdditionalSense::LIST_LENGTH),
        Plan::CompareAndWrite | Plan::WriteSame { .. } => {
            Sense::illegal(AdditionalSense::INVALID_FIELD)
        }
        _ => DATA_PHASE,
    }
}
