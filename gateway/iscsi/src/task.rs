//! A command of an initiator, from its PDU to its answer: the data that it brings.
//!
//! Data comes with the command, unasked behind it, or as it is asked for (R2T). The pieces
//! of each come in order; anything else ends the command (RFC 7143 section 4.2.4).

use std::collections::BTreeMap;

use crossdock_iscsi_pdu::{DataOut, NO_TAG};
use crossdock_scsi::Sense;
use crossdock_types::Payload;

use crate::copying::Copying;
use crate::message::ConnId;
use crate::negotiate::Parameters;
use crate::plan::Planned;
use crate::session::SessionId;
use crate::transfer::Transfer;

/// A task, by a number that is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskId(pub(crate) u64);

/// In which order a task is carried out (SAM-5 section 8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    /// Whenever it suits.
    Simple,
    /// Behind all earlier ones, and before all later ones.
    Ordered,
    /// At once.
    HeadOfQueue,
}

/// What is known of a command from its PDU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) session: SessionId,
    pub(crate) connection: ConnId,
    /// The initiator's number of it.
    pub(crate) tag: u32,
    pub(crate) lun: [u8; 8],
    /// Whether it takes a place of the window.
    pub(crate) is_counted: bool,
    pub(crate) attribute: Attribute,
    /// Bytes that the initiator sends, or has room for.
    pub(crate) expected_bytes: u32,
    pub(crate) is_read: bool,
    pub(crate) is_write: bool,
}

/// A command in progress.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) asked: Asked,
    /// The LUN's number.
    pub(crate) unit: u64,
    pub(crate) planned: Planned,
    pub(crate) gather: Gather,
    pub(crate) stage: Stage,
    /// It goes on though its initiator has its answer: a copy.
    pub(crate) is_answered: bool,
    /// What is counted for it among the bytes that all hold.
    pub(crate) held_bytes: usize,
}

impl Task {
    /// Whether bytes of that unit may change by what is under way, whatever becomes of the task.
    pub(crate) fn writes_to(&self, unit: u64) -> bool {
        match &self.stage {
            Stage::Dying(_) => self.unit == unit,
            Stage::Copying(copying) => copying.is_writing_to(unit),
            _ => false,
        }
    }

    /// The same, or it may yet write there by itself.
    pub(crate) fn may_write_to(&self, unit: u64) -> bool {
        let is_running = matches!(self.stage, Stage::Running(_));
        let is_of_unit = is_running && self.unit == unit && self.planned.is_change();
        is_of_unit || self.writes_to(unit)
    }
}

/// How far a task is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its data is coming, or waits for room.
    Gathering,
    /// It waits for its turn at the unit.
    Waiting,
    /// The router is at it.
    Running(Box<Transfer>),
    /// It copies from units to units, or waits for its turn to.
    Copying(Box<Copying>),
    /// It waits for a commit, or for the registry.
    Settling,
    /// It was aborted; its writes are not answered yet.
    Dying(Box<Transfer>),
}

/// The data that a command brings.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// Bytes that are wanted.
    wanted_bytes: u32,
    /// Bytes that are there.
    received_bytes: u32,
    pieces: BTreeMap<u32, Payload>,
    /// Data that comes unasked, until its last PDU.
    unasked: Option<Sequence>,
    /// Up to where data was asked for, or comes unasked.
    asked_bytes: u32,
    /// By the target's numbers.
    transfers: BTreeMap<u32, Sequence>,
    /// PDUs that went to the initiator for the task.
    pub(crate) sent_pdus: u32,
}

/// PDUs that come in order.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    next_sn: u32,
    /// Where the next one's data belongs.
    offset: u32,
    end: u32,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

impl Gather {
    /// Data of a command that wants so much. `unasked_bytes`: how much may come without being
    /// asked for, if some does.
    pub(crate) fn new(wanted_bytes: u32, unasked_bytes: Option<u32>, immediate: Payload) -> Self {
        let received_bytes = u32::try_from(immediate.len()).unwrap_or(u32::MAX);
        let unasked = unasked_bytes.map(|bytes| Sequence {
            next_sn: 0,
            offset: received_bytes,
            end: bytes.max(received_bytes),
        });
        let mut gather = Self {
            wanted_bytes,
            received_bytes,
            asked_bytes: received_bytes,
            unasked,
            ..Self::default()
        };
        if received_bytes > 0 {
            gather.pieces.insert(0, immediate);
        }
        gather
    }

    /// Whether all is there that is wanted, and nothing is coming.
    pub(crate) fn is_complete(&self) -> bool {
        self.received_bytes >= self.wanted_bytes
            && self.unasked.is_none()
            && self.transfers.is_empty()
    }

    /// Takes a Data-Out PDU.
    ///
    /// # Errors
    /// It is not the one that should come.
    pub(crate) fn take(&mut self, header: &DataOut, data: Payload) -> Result<(), Sense> {
        let tag = header.transfer_tag.get();
        let sequence = match tag {
            NO_TAG => self.unasked.as_mut(),
            tag => self.transfers.get_mut(&tag),
        };
        let sequence = sequence.ok_or(UNEXPECTED)?;
        let length = u32::try_from(data.len()).map_err(|_| UNEXPECTED)?;
        let end = sequence.offset.checked_add(length).ok_or(UNEXPECTED)?;
        let is_next = header.data_sn.get() == sequence.next_sn
            && header.offset.get() == sequence.offset
            && end <= sequence.end;
        if !is_next {
            return Err(DATA_PHASE);
        }
        let place = sequence.offset;
        sequence.next_sn += 1;
        sequence.offset = end;
        let is_short = tag != NO_TAG && end < sequence.end;
        let asked_end = self.asked_bytes.max(end);
        self.received_bytes += length;
        if !data.is_empty() {
            self.pieces.insert(place, data);
        }
        match (tag, header.head.is_final()) {
            (NO_TAG, is_final) => {
                self.asked_bytes = asked_end;
                if is_final {
                    self.unasked = None;
                }
            }
            // What was asked for has to come, all of it.
            (_, true) if is_short => return Err(DATA_PHASE),
            (tag, true) => drop(self.transfers.remove(&tag)),
            (tag, false) if !is_short => {
                // All is there, and its last PDU does not say so.
                self.transfers.remove(&tag);
                return Err(DATA_PHASE);
            }
            (_, false) => {}
        }
        Ok(())
    }

    /// What is to be asked for next, under this number.
    pub(crate) fn ask(&mut self, parameters: &Parameters, tag: u32) -> Option<Wanted> {
        let is_full = self.transfers.len() >= parameters.transfers_max as usize;
        if self.unasked.is_some() || is_full || self.asked_bytes >= self.wanted_bytes {
            return None;
        }
        let offset = self.asked_bytes;
        let length = (self.wanted_bytes - offset).min(parameters.max_burst_bytes);
        self.asked_bytes += length;
        self.transfers.insert(
            tag,
            Sequence {
                next_sn: 0,
                offset,
                end: offset + length,
            },
        );
        Some(Wanted { offset, length })
    }

    /// Whether something would be asked for if there was room.
    pub(crate) const fn wants_more(&self) -> bool {
        self.unasked.is_none() && self.asked_bytes < self.wanted_bytes
    }

    /// Gives the data away, in order and as much as was wanted.
    pub(crate) fn finish(&mut self) -> Payload {
        let mut whole = Payload::new();
        for (_, piece) in std::mem::take(&mut self.pieces) {
            whole.append(piece);
        }
        whole.truncate(self.wanted_bytes as usize);
        whole
    }
}

/// UNEXPECTED UNSOLICITED DATA.
pub(crate) const UNEXPECTED: Sense = Sense::new(
    crossdock_scsi::SenseKey::AbortedCommand,
    crossdock_scsi::AdditionalSense::UNEXPECTED_DATA,
);

/// DATA PHASE ERROR.
pub(crate) const DATA_PHASE: Sense = Sense::new(
    crossdock_scsi::SenseKey::AbortedCommand,
    crossdock_scsi::AdditionalSense(0x4b, 0x00),
);

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use crossdock_iscsi_pdu::{Head, opcode};

    use super::*;

    fn pdu(tag: u32, sn: u32, offset: u32, is_final: bool) -> DataOut {
        DataOut {
            head: Head::new(opcode::DATA_OUT, if is_final { 0x80 } else { 0 }),
            transfer_tag: tag.into(),
            data_sn: sn.into(),
            offset: offset.into(),
            ..DataOut::default()
        }
    }

    fn data(bytes: usize) -> Payload {
        Bytes::from(vec![7; bytes]).into()
    }

    fn parameters(max_burst_bytes: u32, transfers_max: u32) -> Parameters {
        Parameters {
            max_burst_bytes,
            transfers_max,
            ..Parameters::DEFAULT
        }
    }

    /// Goal: data that comes with the command, unasked and asked for is put together, with
    /// several transfers at a time whose PDUs come mixed.
    #[test]
    fn all_kinds_of_data_are_put_together() {
        let parameters = parameters(20, 2);
        let mut gather = Gather::new(60, Some(20), data(10));
        assert_eq!(gather.ask(&parameters, 1), None, "some is coming unasked");
        assert_eq!(gather.take(&pdu(NO_TAG, 0, 10, true), data(10)), Ok(()));
        let wanted = |offset, length| Some(Wanted { offset, length });
        assert_eq!(gather.ask(&parameters, 1), wanted(20, 20));
        assert_eq!(gather.ask(&parameters, 2), wanted(40, 20));
        assert_eq!(gather.ask(&parameters, 3), None, "two at a time");
        assert_eq!(gather.take(&pdu(2, 0, 40, false), data(5)), Ok(()));
        assert_eq!(gather.take(&pdu(1, 0, 20, true), data(20)), Ok(()));
        assert!(!gather.is_complete());
        assert_eq!(gather.take(&pdu(2, 1, 45, true), data(15)), Ok(()));
        assert!(gather.is_complete());
        assert_eq!(gather.finish().len(), 60);
    }

    /// Goal: PDUs that are not the next one, are of nobody, or are too long or too short, end
    /// the command.
    #[test]
    fn data_out_of_order_is_refused() {
        let parameters = parameters(20, 1);
        for (header, bytes, error) in [
            (pdu(1, 1, 0, true), 20, DATA_PHASE),
            (pdu(1, 0, 4, true), 16, DATA_PHASE),
            (pdu(1, 0, 0, true), 21, DATA_PHASE),
            (pdu(1, 0, 0, true), 19, DATA_PHASE),
            (pdu(1, 0, 0, false), 20, DATA_PHASE),
            (pdu(2, 0, 0, true), 20, UNEXPECTED),
            (pdu(NO_TAG, 0, 0, true), 20, UNEXPECTED),
        ] {
            let mut gather = Gather::new(40, None, Payload::new());
            assert!(gather.ask(&parameters, 1).is_some());
            assert_eq!(gather.take(&header, data(bytes)), Err(error), "{header:?}");
        }
    }
}
