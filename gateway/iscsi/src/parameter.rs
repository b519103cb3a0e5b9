//! Commands that are about the unit and not about its blocks.

use std::collections::BTreeSet;

use crossdock_limits::{EXCHANGE_BYTES_MAX, ISCSI_TRANSFER_BYTES_MAX};
use crossdock_scsi::{
    AdditionalSense, BlockLimits, BlockRange, CapacityData, CdbError, Command, Identity, LbaStatus,
    LogicalUnit, ModeForm, ModeParameters, OpcodeQuery, Portal, Provisioning, Sense, SenseKey,
    VpdPage, block_characteristics, block_limits, capacity_10, capacity_16, device_identification,
    lba_status, logical_block_provisioning, one_opcode, report_luns, standard_inquiry,
    supported_opcodes, supported_pages, supported_task_management, third_party_copy,
    unit_serial_number,
};

use crate::door::IscsiDoor;
use crate::plan::{SAME_BYTES_MAX, UNMAP_BYTES_MAX, UNMAP_DESCRIPTORS_MAX, in_range};
use crate::respond::Outcome;
use crate::session::SessionId;
use crate::task::{Asked, TaskId};
use crate::unit::Unit;

/// The group of target ports in which all are.
const PORT_GROUP: u16 = 1;

/// Held by one gateway, and obsolete since SPC-3.
const RESERVE_6: u8 = 0x16;
const RELEASE_6: u8 = 0x17;

/// Bytes of a transfer that is worth it.
const BEST_BYTES: u32 = 1 << 20;

/// Bytes of a block of the file.
const PHYSICAL_BYTES: u32 = 4096;

impl IscsiDoor {
    /// Answers a command that brings no data.
    pub(crate) fn parameters(&mut self, asked: &Asked, command: &Command) -> Outcome {
        let unit = self.unit_of(asked.session);
        let Some(unit) = unit else {
            return Sense::illegal(AdditionalSense::NO_UNIT).into();
        };
        match *command {
            Command::TestUnitReady if unit.is_stopped => {
                Sense::new(SenseKey::NotReady, AdditionalSense::STOPPED).into()
            }
            Command::TestUnitReady => Outcome::Good,
            Command::RequestSense {
                is_descriptor,
                allocation,
            } => self.request_sense(asked.session, is_descriptor, allocation),
            Command::Inquiry { page, allocation } => match inquiry(unit, self.port(asked), page) {
                Ok(data) => Outcome::parameters(data, allocation),
                Err(sense) => sense.into(),
            },
            Command::ReportLuns { select, allocation } => luns(select, allocation),
            Command::ReadCapacity10 => Outcome::parameters(capacity_10(&capacity(unit)), 8),
            Command::ReadCapacity16 { allocation } => {
                Outcome::parameters(capacity_16(&capacity(unit)), allocation)
            }
            Command::GetLbaStatus { lba, allocation } => status_of(unit, lba, allocation),
            Command::ModeSense { .. } => sense_mode(unit, self.is_read_only(asked), command),
            Command::StartStop {
                is_start,
                is_load,
                power,
            } => self.start_or_stop(asked.session, (is_start, is_load, power)),
            Command::PreventRemoval { is_prevented } => {
                self.prevent_removal(asked.session, is_prevented)
            }
            Command::Reserve => self.reserve(asked.session),
            Command::Release => self.release(asked.session),
            Command::ReserveIn { action, allocation } => {
                self.reserve_in(asked.session, action, allocation)
            }
            Command::CopyResults {
                results,
                list_id,
                allocation,
            } => self.copy_results(asked.session, results, (list_id, allocation)),
            Command::TokenInformation {
                list_id,
                allocation,
            } => self.token_results(asked.session, (list_id, allocation)),
            Command::ReportPortGroups {
                is_extended,
                allocation,
            } => Outcome::parameters(port_groups(is_extended, &self.portals.ports()), allocation),
            Command::ReportOpcodes {
                query,
                with_timeouts,
                allocation,
            } => opcodes(query, with_timeouts, self.left_out(), allocation),
            Command::ReportTaskManagement {
                is_long,
                allocation,
            } => Outcome::parameters(supported_task_management(is_long), allocation),
            Command::ReadDefectData {
                is_long,
                flags,
                allocation,
            } => Outcome::parameters(no_defects(is_long, flags), allocation),
            // Those of blocks were planned before.
            _ => Sense::illegal(AdditionalSense::INVALID_OPCODE).into(),
        }
    }

    /// Answers a command to a unit that there is none of.
    pub(crate) fn answer_elsewhere(
        &self,
        asked: &Asked,
        parsed: &Result<Command, CdbError>,
    ) -> Outcome {
        let no_unit = Sense::illegal(AdditionalSense::NO_UNIT);
        match (parsed, self.unit_of(asked.session)) {
            (Ok(Command::ReportLuns { select, allocation }), Some(_)) => luns(*select, *allocation),
            (
                Ok(Command::Inquiry {
                    page: None,
                    allocation,
                }),
                Some(unit),
            ) => {
                let target = unit.lun.target();
                let data = standard_inquiry(&identity(unit, &target), false);
                Outcome::parameters(data, *allocation)
            }
            (
                Ok(Command::RequestSense {
                    is_descriptor,
                    allocation,
                }),
                Some(_),
            ) => Outcome::parameters(no_unit.encode(*is_descriptor), *allocation),
            _ => no_unit.into(),
        }
    }

    /// MODE SELECT: the other sessions are told.
    pub(crate) fn select_mode(&mut self, id: TaskId, form: ModeForm, list: &[u8]) -> Outcome {
        let Some(task) = self.tasks.get(&id) else {
            return Outcome::Good;
        };
        let (number, session) = (task.unit, task.asked.session);
        let Some(unit) = self.units.get_mut(&number) else {
            return Sense::illegal(AdditionalSense::NO_UNIT).into();
        };
        let parameters = mode_parameters(unit, false);
        let selected = match unit.pages.select(&parameters, form, list) {
            Ok(selected) => selected,
            Err(error) => return Outcome::Sense(error.into()),
        };
        let was_cached = std::mem::replace(&mut unit.pages, selected).is_write_cached;
        if was_cached && !selected.is_write_cached {
            unit.cache.want(None);
        }
        let others = self.sessions_of(number).into_iter();
        for other in others.filter(|other| *other != session) {
            self.attend(other, AdditionalSense::MODE_CHANGED);
        }
        Outcome::Good
    }

    fn request_sense(
        &mut self,
        session: SessionId,
        is_descriptor: bool,
        allocation: u32,
    ) -> Outcome {
        let session = self.sessions.get_mut(&session);
        let what = session.and_then(|session| session.attentions.pop_front());
        let sense = match what {
            Some(what) => Sense::new(SenseKey::UnitAttention, what),
            None => Sense::new(SenseKey::NoSense, AdditionalSense::NONE),
        };
        Outcome::parameters(sense.encode(is_descriptor), allocation)
    }

    /// Codes of commands that are not understood here.
    pub(crate) const fn left_out(&self) -> &'static [u8] {
        match self.config.is_shared {
            true => &[RESERVE_6, RELEASE_6],
            false => &[],
        }
    }

    /// Number of the port through which something is asked.
    fn port(&self, asked: &Asked) -> u16 {
        let session = self.sessions.get(&asked.session);
        session.map_or(self.portals.port, |session| session.nexus.port)
    }

    fn is_read_only(&self, asked: &Asked) -> bool {
        let session = self.sessions.get(&asked.session);
        session.is_some_and(|session| session.rule.is_read_only)
    }
}

fn identity<'a>(unit: &Unit, target: &'a str) -> Identity<'a> {
    Identity {
        id: unit.lun.id,
        target,
        revision: "0001",
        is_removable: unit.lun.is_removable,
    }
}

fn inquiry(unit: &Unit, port: u16, page: Option<u8>) -> Result<Vec<u8>, Sense> {
    let target = unit.lun.target();
    let identity = identity(unit, &target);
    let Some(code) = page else {
        return Ok(standard_inquiry(&identity, true));
    };
    let page = VpdPage::from_code(code).ok_or(Sense::invalid_field(2, Some(7)))?;
    let portal = Portal {
        port,
        group: PORT_GROUP,
    };
    Ok(match page {
        VpdPage::SupportedPages => supported_pages(),
        VpdPage::SerialNumber => unit_serial_number(&identity),
        VpdPage::Identification => device_identification(&identity, portal),
        VpdPage::ThirdPartyCopy => third_party_copy(unit.lun.block_bytes),
        VpdPage::BlockLimits => block_limits(&limits(unit)),
        VpdPage::BlockCharacteristics => block_characteristics(),
        VpdPage::Provisioning => logical_block_provisioning(unit.lun.is_thin),
    })
}

fn limits(unit: &Unit) -> BlockLimits {
    let block_bytes = unit.lun.block_bytes;
    let blocks = |bytes: u32| bytes / block_bytes;
    let narrow = |bytes: u64| u32::try_from(bytes / u64::from(block_bytes)).unwrap_or(u32::MAX);
    let of_thin = |number: u32| if unit.lun.is_thin { number } else { 0 };
    BlockLimits {
        compare_blocks_max: u8::try_from(blocks(EXCHANGE_BYTES_MAX)).unwrap_or(u8::MAX),
        granularity_blocks: u16::try_from(blocks(PHYSICAL_BYTES)).unwrap_or(1).max(1),
        transfer_blocks_max: blocks(ISCSI_TRANSFER_BYTES_MAX),
        transfer_blocks_best: blocks(BEST_BYTES),
        unmap_blocks_max: of_thin(narrow(UNMAP_BYTES_MAX)),
        unmap_descriptors_max: of_thin(UNMAP_DESCRIPTORS_MAX),
        unmap_granularity_blocks: of_thin(blocks(PHYSICAL_BYTES)),
        same_blocks_max: narrow(SAME_BYTES_MAX).into(),
    }
}

fn capacity(unit: &Unit) -> CapacityData {
    let block_bytes = unit.lun.block_bytes;
    let physical = PHYSICAL_BYTES / block_bytes.max(1);
    CapacityData {
        blocks: unit.lun.size_bytes / u64::from(block_bytes),
        block_bytes,
        physical_exponent: u8::try_from(physical.max(1).ilog2()).unwrap_or(0),
        is_thin: unit.lun.is_thin,
    }
}

fn luns(select: u8, allocation: u32) -> Outcome {
    if allocation < 16 {
        return Sense::invalid_field(6, None).into();
    }
    match select {
        0 | 2 => Outcome::parameters(report_luns(&[LogicalUnit::Number(0)]), allocation),
        1 => Outcome::parameters(report_luns(&[]), allocation), // Well-known ones only.
        _ => Sense::invalid_field(2, None).into(),
    }
}

/// All blocks of a unit that is not thin have space.
fn status_of(unit: &Unit, lba: u64, allocation: u32) -> Outcome {
    let blocks = BlockRange { lba, blocks: 1 };
    if let Err(sense) = in_range(&unit.lun, blocks) {
        return sense.into();
    }
    let left = capacity(unit).blocks - lba;
    let run = LbaStatus {
        lba,
        blocks: u32::try_from(left).unwrap_or(u32::MAX),
        provisioning: Provisioning::Mapped,
    };
    Outcome::parameters(lba_status(&[run]), allocation)
}

fn mode_parameters(unit: &Unit, is_protected: bool) -> ModeParameters {
    let capacity = capacity(unit);
    ModeParameters {
        blocks: capacity.blocks,
        block_bytes: capacity.block_bytes,
        is_protected,
    }
}

fn sense_mode(unit: &Unit, is_protected: bool, command: &Command) -> Outcome {
    let Command::ModeSense {
        form,
        control,
        page,
        subpage,
        is_bare,
        is_long,
        allocation,
    } = *command
    else {
        return Sense::illegal(AdditionalSense::INVALID_OPCODE).into();
    };
    if control == crossdock_scsi::PageControl::Saved {
        return Sense::illegal(AdditionalSense::NO_SAVING).into();
    }
    let parameters = mode_parameters(unit, is_protected);
    let told = unit.pages.sense(
        &unit.default_pages,
        &parameters,
        (form, control),
        (page, subpage),
        (is_bare, is_long),
    );
    match told {
        Some(data) => Outcome::parameters(data, allocation),
        None => Sense::invalid_field(2, Some(5)).into(),
    }
}

fn opcodes(query: OpcodeQuery, with_timeouts: bool, without: &[u8], allocation: u32) -> Outcome {
    let data = match query {
        OpcodeQuery::All => Some(supported_opcodes(with_timeouts, without)),
        query => one_opcode(query, with_timeouts, without),
    };
    match data {
        Some(data) => Outcome::parameters(data, allocation),
        None => Sense::invalid_field(2, Some(2)).into(),
    }
}

/// One group of all ports, active and optimised: a unit is as near through each gateway (SPC-4
/// section 6.36).
fn port_groups(is_extended: bool, ports: &BTreeSet<u16>) -> Vec<u8> {
    let mut group = vec![0, 0x01]; // Its state; that active and optimised is supported.
    group.extend(PORT_GROUP.to_be_bytes());
    let count = u8::try_from(ports.len()).unwrap_or(u8::MAX);
    group.extend([0, 0, 0, count]);
    for port in ports.iter().take(usize::from(count)) {
        group.extend([0, 0]);
        group.extend(port.to_be_bytes());
    }
    let head: &[u8] = if is_extended { &[0x10, 0, 0, 0] } else { &[] };
    let length = u32::try_from(head.len() + group.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], head, &group].concat()
}

/// No block is bad for good: others take their places.
fn no_defects(is_long: bool, flags: u8) -> Vec<u8> {
    match is_long {
        true => vec![0, flags & 0x1f, 0, 0, 0, 0, 0, 0],
        false => vec![0, flags & 0x1f, 0, 0],
    }
}
