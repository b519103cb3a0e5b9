//! Answers to commands: data, status, sense; what was transferred and what was not.

use bytes::Bytes;
use crossdock_iscsi_pdu::{DataIn, Head, NO_TAG, ReadyToTransfer, ScsiResponse, opcode};
use crossdock_scsi::{Sense, Status};
use crossdock_types::{Payload, Time};

use crate::door::IscsiDoor;
use crate::message::ConnId;
use crate::task::{Asked, TaskId};

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Good,
    /// Done, and this is what was asked for.
    Data(Payload),
    /// Not done, and not for a fault of the command.
    Status(Status),
    /// Not done.
    Sense(Sense),
}

impl From<Sense> for Outcome {
    fn from(sense: Sense) -> Self {
        Self::Sense(sense)
    }
}

impl Outcome {
    /// Parameter data, as much of it as there is room for.
    pub(crate) fn parameters(mut data: Vec<u8>, allocation: u32) -> Self {
        data.truncate(usize::try_from(allocation).unwrap_or(usize::MAX));
        Self::Data(Bytes::from(data).into())
    }

    const fn status(&self) -> Status {
        match self {
            Self::Good | Self::Data(_) => Status::Good,
            Self::Status(status) => *status,
            Self::Sense(_) => Status::CheckCondition,
        }
    }
}

/// F, and the flags of data PDUs and responses.
const FINAL: u8 = 0x80;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const WITH_STATUS: u8 = 0x01;

/// Bytes that a command would have transferred, against those that the initiator expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Residual {
    flag: u8,
    bytes: u32,
}

impl Residual {
    fn of(bytes: u64, expected: u32) -> Self {
        let expected = u64::from(expected);
        let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        match bytes.cmp(&expected) {
            std::cmp::Ordering::Less => Self {
                flag: UNDERFLOW,
                bytes: narrow(expected - bytes),
            },
            std::cmp::Ordering::Equal => Self { flag: 0, bytes: 0 },
            std::cmp::Ordering::Greater => Self {
                flag: OVERFLOW,
                bytes: narrow(bytes - expected),
            },
        }
    }
}

impl IscsiDoor {
    /// Ends a task with an answer, unless it has one.
    pub(crate) fn complete(&mut self, now: Time, id: TaskId, outcome: Outcome) {
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        if task.is_answered {
            return self.bury(now, id);
        }
        let (asked, sent_pdus) = (task.asked, task.gather.sent_pdus);
        let out_bytes = task.planned.out_bytes;
        self.forget_task(now, id);
        self.answer(&asked, sent_pdus, outcome, out_bytes);
        self.pump(now);
    }

    /// Answers a command that needs no data of its initiator's.
    pub(crate) fn answer(
        &mut self,
        asked: &Asked,
        sent_pdus: u32,
        outcome: Outcome,
        out_bytes: u64,
    ) {
        self.figures.response(&outcome.status());
        let status = outcome.status();
        let data = match &outcome {
            Outcome::Data(data) => data.clone(),
            _ => Payload::new(),
        };
        let residual = match (asked.is_read, asked.is_write) {
            (true, _) => Residual::of(data.len() as u64, asked.expected_bytes),
            (_, true) => Residual::of(out_bytes, asked.expected_bytes),
            // Nothing was expected; what the command has to tell does not get there.
            _ => Residual::of(data.len() as u64, asked.expected_bytes),
        };
        let room = match asked.is_read {
            true => usize::try_from(asked.expected_bytes).unwrap_or(usize::MAX),
            false => 0,
        };
        let mut sent = data;
        sent.truncate(room);
        if status == Status::Good && !sent.is_empty() {
            return self.send_data(asked, sent_pdus, sent, residual);
        }
        let sense = match outcome {
            Outcome::Sense(sense) => self.sense_bytes(asked, &sense),
            _ => Payload::new(),
        };
        let numbers = self.numbers(asked.connection, true);
        let response = ScsiResponse {
            head: Head::new(opcode::RESPONSE, FINAL | residual.flag).with([0, status as u8]),
            task_tag: asked.tag.into(),
            stat_sn: numbers.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.max_cmd_sn.into(),
            exp_data_sn: sent_pdus.into(),
            residual: residual.bytes.into(),
            ..ScsiResponse::default()
        };
        self.push(asked.connection, &response, sense);
    }

    /// Sense data with its length before it (RFC 7143 section 11.4.7.2).
    fn sense_bytes(&self, asked: &Asked, sense: &Sense) -> Payload {
        let unit = self.unit_of(asked.session);
        let is_descriptor = unit.is_some_and(|unit| unit.pages.is_descriptor_sense);
        let sense = sense.encode(is_descriptor);
        let length = u16::try_from(sense.len()).unwrap_or(u16::MAX);
        let bytes = [&length.to_be_bytes()[..], &sense[..]].concat();
        Bytes::from(bytes).into()
    }

    /// Sends data as PDUs that the initiator takes, in sequences of a burst; the last one has
    /// the status.
    fn send_data(&mut self, asked: &Asked, first_sn: u32, data: Payload, residual: Residual) {
        let parameters = self
            .sessions
            .get(&asked.session)
            .map(|session| session.parameters);
        let connection = self.connections.get(&asked.connection);
        let (Some(parameters), Some(connection)) = (parameters, connection) else {
            return;
        };
        let pdu_bytes = connection.their_data_bytes_max;
        let burst_bytes = parameters.max_burst_bytes as usize;
        self.figures.sent_bytes += data.len() as u64;
        let (mut offset, mut data_sn) = (0, first_sn);
        while offset < data.len() {
            let burst_end = (offset / burst_bytes + 1) * burst_bytes;
            let end = (offset + pdu_bytes).min(burst_end).min(data.len());
            let is_last = end == data.len();
            let numbers = self.numbers(asked.connection, is_last);
            let mut header = DataIn {
                head: Head::new(opcode::DATA_IN, 0),
                lun: asked.lun,
                task_tag: asked.tag.into(),
                transfer_tag: NO_TAG.into(),
                exp_cmd_sn: numbers.exp_cmd_sn.into(),
                max_cmd_sn: numbers.max_cmd_sn.into(),
                data_sn: data_sn.into(),
                offset: u32::try_from(offset).unwrap_or(u32::MAX).into(),
                ..DataIn::default()
            };
            if is_last || end == burst_end {
                header.head.flags = FINAL;
            }
            if is_last {
                header.head.flags |= WITH_STATUS | residual.flag;
                header.stat_sn = numbers.stat_sn.into();
                header.residual = residual.bytes.into();
            }
            self.push(asked.connection, &header, data.slice(offset, end));
            offset = end;
            data_sn += 1;
        }
    }

    /// Asks for data of tasks, as far as there is room.
    pub(crate) fn ask_for_data(&mut self, id: TaskId) {
        loop {
            let tag = self.transfers_total.wrapping_add(1);
            let Some(task) = self.tasks.get_mut(&id) else {
                return;
            };
            let asked = task.asked;
            let Some(session) = self.sessions.get(&asked.session) else {
                return;
            };
            let Some(wanted) = task.gather.ask(&session.parameters, tag) else {
                return;
            };
            let r2t_sn = task.gather.sent_pdus;
            task.gather.sent_pdus += 1;
            // NO_TAG is no tag.
            self.transfers_total = if tag + 1 == NO_TAG { 0 } else { tag };
            let numbers = self.numbers(asked.connection, false);
            let header = ReadyToTransfer {
                head: Head::new(opcode::READY, FINAL),
                lun: asked.lun,
                task_tag: asked.tag.into(),
                transfer_tag: tag.into(),
                stat_sn: numbers.stat_sn.into(),
                exp_cmd_sn: numbers.exp_cmd_sn.into(),
                max_cmd_sn: numbers.max_cmd_sn.into(),
                r2t_sn: r2t_sn.into(),
                offset: wanted.offset.into(),
                desired_bytes: wanted.length.into(),
            };
            self.push(asked.connection, &header, Payload::new());
        }
    }

    /// Numbers for a PDU of a connection; one with a status takes a number.
    pub(crate) fn numbers(&mut self, id: ConnId, has_status: bool) -> Numbers {
        let commands_max = self.config.limits.commands_max;
        let session = self.session_of(id).map(|session| {
            let exp_cmd_sn = session.exp_cmd_sn;
            (exp_cmd_sn, session.max_cmd_sn(commands_max))
        });
        let (exp_cmd_sn, max_cmd_sn) = session.unwrap_or_default();
        let Some(connection) = self.connections.get_mut(&id) else {
            return Numbers::default();
        };
        let stat_sn = connection.stat_sn;
        connection.stat_sn = stat_sn.wrapping_add(has_status.into());
        Numbers {
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
        }
    }
}

/// What every PDU of a target says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) stat_sn: u32,
    pub(crate) exp_cmd_sn: u32,
    pub(crate) max_cmd_sn: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is missing and what is too much are told apart.
    #[test]
    fn residuals_are_told() {
        let of = |bytes, expected| {
            let residual = Residual::of(bytes, expected);
            (residual.flag, residual.bytes)
        };
        assert_eq!(of(512, 512), (0, 0));
        assert_eq!(of(512, 1000), (UNDERFLOW, 488));
        assert_eq!(of(1024, 1000), (OVERFLOW, 24));
        assert_eq!(of(1 << 40, 0), (OVERFLOW, u32::MAX));
    }
}
