//! Command descriptor blocks: what an initiator wants.

use thiserror::Error;

use crate::bytes::{u16_at, u32_at, u64_at};
use crate::copy::CopyResults;
use crate::opcodes::{find, has_actions};
use crate::reservation::{ReserveIn, ReserveOutAction};
use crate::sense::{AdditionalSense, Sense};

/// Blocks of the unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRange {
    /// The first one.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

impl BlockRange {
    /// The block behind the last one; `None` beyond 64 bits.
    #[must_use]
    pub const fn end(self) -> Option<u64> {
        self.lba.checked_add(self.blocks as u64)
    }
}

/// What a command says about caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// DPO: the bytes will not be wanted again soon.
    pub is_once: bool,
    /// FUA: from and to the medium, before it is answered.
    pub is_forced: bool,
}

/// What VERIFY compares (BYTCHK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteCheck {
    /// Nothing: the medium is read.
    Medium,
    /// Each block with one that is sent.
    Blocks,
    /// Each block with the one that is sent.
    OneBlock,
}

/// Which form of MODE SENSE or MODE SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeForm {
    /// With six bytes: a header of four.
    Six,
    /// With ten bytes: a header of eight.
    Ten,
}

/// Which values MODE SENSE wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageControl {
    /// Those that count.
    Current,
    /// Ones where MODE SELECT may change something.
    Changeable,
    /// Those at the start.
    Default,
    /// Those that survive; there are none.
    Saved,
}

/// Which commands REPORT SUPPORTED OPERATION CODES asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpcodeQuery {
    /// All.
    All,
    /// The one of a code without service actions.
    Code(u8),
    /// The one of that code and action.
    Action(u8, u16),
    /// The one of that code, and of that action if it has some.
    Either(u8, u16),
}

/// A command. Lengths are in blocks, or in bytes of what is sent or may be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense {
        /// Descriptor format.
        is_descriptor: bool,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// INQUIRY.
    Inquiry {
        /// A page of vital product data.
        page: Option<u8>,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// REPORT LUNS.
    ReportLuns {
        /// SELECT REPORT.
        select: u8,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// READ CAPACITY (10).
    ReadCapacity10,
    /// READ CAPACITY (16).
    ReadCapacity16 {
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// GET LBA STATUS.
    GetLbaStatus {
        /// The first block.
        lba: u64,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// MODE SENSE.
    ModeSense {
        /// Which form.
        form: ModeForm,
        /// Which values.
        control: PageControl,
        /// Page code; 3Fh: all.
        page: u8,
        /// Subpage code.
        subpage: u8,
        /// DBD: no block descriptor.
        is_bare: bool,
        /// LLBAA: a block descriptor with an address of 64 bits.
        is_long: bool,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// MODE SELECT.
    ModeSelect {
        /// Which form.
        form: ModeForm,
        /// PF: pages as the standard says.
        is_standard: bool,
        /// SP: for good.
        is_saved: bool,
        /// Bytes that are sent.
        length: u32,
    },
    /// START STOP UNIT.
    StartStop {
        /// START.
        is_start: bool,
        /// LOEJ: load or eject the medium.
        is_load: bool,
        /// POWER CONDITION.
        power: u8,
    },
    /// PREVENT ALLOW MEDIUM REMOVAL.
    PreventRemoval {
        /// The medium is to stay.
        is_prevented: bool,
    },
    /// READ.
    Read(BlockRange, Access),
    /// WRITE.
    Write(BlockRange, Access),
    /// WRITE AND VERIFY.
    WriteVerify(BlockRange, ByteCheck),
    /// VERIFY.
    Verify(BlockRange, ByteCheck),
    /// ORWRITE (16).
    OrWrite(BlockRange, Access),
    /// COMPARE AND WRITE.
    CompareAndWrite(BlockRange, Access),
    /// PRE-FETCH.
    PreFetch {
        /// Which blocks; 0: to the end.
        range: BlockRange,
        /// IMMED: answered before it is done.
        is_immediate: bool,
    },
    /// SYNCHRONIZE CACHE.
    SynchronizeCache {
        /// Which blocks; 0: to the end.
        range: BlockRange,
        /// IMMED: answered before it is done.
        is_immediate: bool,
    },
    /// WRITE SAME.
    WriteSame {
        /// Which blocks; 0: to the end.
        range: BlockRange,
        /// UNMAP.
        is_unmap: bool,
        /// ANCHOR.
        is_anchor: bool,
        /// NDOB: the block is not sent, it is zeros.
        is_zero: bool,
    },
    /// UNMAP.
    Unmap {
        /// ANCHOR.
        is_anchor: bool,
        /// Bytes that are sent.
        length: u32,
    },
    /// EXTENDED COPY (LID1).
    ExtendedCopy {
        /// Bytes that are sent.
        length: u32,
    },
    /// POPULATE TOKEN.
    PopulateToken {
        /// By which its initiator asks for the token.
        list_id: u32,
        /// Bytes that are sent.
        length: u32,
    },
    /// WRITE USING TOKEN.
    WriteUsingToken {
        /// By which its initiator asks how far it is.
        list_id: u32,
        /// Bytes that are sent.
        length: u32,
    },
    /// COPY OPERATION ABORT.
    AbortCopy {
        /// Which copy.
        list_id: u32,
    },
    /// RECEIVE ROD TOKEN INFORMATION.
    TokenInformation {
        /// Of which command.
        list_id: u32,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// RECEIVE COPY RESULTS.
    CopyResults {
        /// What is asked for.
        results: CopyResults,
        /// Of which copy.
        list_id: u8,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// RESERVE (6).
    Reserve,
    /// RELEASE (6).
    Release,
    /// PERSISTENT RESERVE IN.
    ReserveIn {
        /// What is asked for.
        action: ReserveIn,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// PERSISTENT RESERVE OUT.
    ReserveOut {
        /// What is to be done.
        action: ReserveOutAction,
        /// SCOPE: 0 is the unit.
        scope: u8,
        /// TYPE.
        kind: u8,
        /// Bytes that are sent.
        length: u32,
    },
    /// REPORT TARGET PORT GROUPS.
    ReportPortGroups {
        /// With a header.
        is_extended: bool,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// REPORT SUPPORTED OPERATION CODES.
    ReportOpcodes {
        /// Which.
        query: OpcodeQuery,
        /// RCTD: with timeouts.
        with_timeouts: bool,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
    ReportTaskManagement {
        /// REPD: with timeouts.
        is_long: bool,
        /// Bytes that may be returned.
        allocation: u32,
    },
    /// READ DEFECT DATA.
    ReadDefectData {
        /// The form of 12 bytes: a header of eight.
        is_long: bool,
        /// The lists that are wanted, and their format.
        flags: u8,
        /// Bytes that may be returned.
        allocation: u32,
    },
}

/// Why bytes are no command that is understood.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CdbError {
    /// There is no such command.
    #[error("operation code {0:02x} is not supported")]
    Opcode(u8),
    /// A bit is set that means nothing, or a field has a value that none has.
    #[error("byte {byte} of the command is not valid")]
    Field {
        /// The byte.
        byte: u16,
        /// Its highest bit that is wrong.
        bit: Option<u8>,
    },
}

impl From<CdbError> for Sense {
    fn from(error: CdbError) -> Self {
        match error {
            CdbError::Opcode(_) => Self::illegal(AdditionalSense::INVALID_OPCODE),
            CdbError::Field { byte, bit } => Self::invalid_field(byte, bit),
        }
    }
}

/// Reads a command of up to 16 bytes; what lies behind its own length is not looked at.
///
/// # Errors
/// There is no such command, or a reserved bit is set in it.
pub fn parse_cdb(cdb: &[u8; 16]) -> Result<Command, CdbError> {
    let code = cdb[0];
    let action = has_actions(code).then_some(u16::from(cdb[1] & 0x1f));
    let opcode = match find(code, action) {
        Some(opcode) => opcode,
        None if action.is_some() => return Err(field(1, 4)),
        None => return Err(CdbError::Opcode(code)),
    };
    for (at, (&byte, usage)) in cdb.iter().zip(opcode.usage).enumerate().skip(1) {
        if let Some(bit) = (byte & !usage).checked_ilog2() {
            let byte = u16::try_from(at).unwrap_or_default();
            let bit = u8::try_from(bit).ok();
            return Err(CdbError::Field { byte, bit });
        }
    }
    match code {
        0x00..=0x1f => six(cdb),
        0x20..=0x5f => ten(cdb),
        0x80..=0x9f => sixteen(cdb),
        _ => twelve(cdb),
    }
}

const fn field(byte: u16, bit: u8) -> CdbError {
    CdbError::Field {
        byte,
        bit: Some(bit),
    }
}

fn six(cdb: &[u8; 16]) -> Result<Command, CdbError> {
    let short = u32::from(cdb[4]);
    let range = BlockRange {
        lba: u64::from(u32_at(cdb, 0) & 0x1f_ffff),
        blocks: if short == 0 { 256 } else { short },
    };
    Ok(match cdb[0] {
        0x00 => Command::TestUnitReady,
        0x03 => Command::RequestSense {
            is_descriptor: cdb[1] & 1 != 0,
            allocation: short,
        },
        0x08 => Command::Read(range, Access::default()),
        0x0a => Command::Write(range, Access::default()),
        0x12 if cdb[1] & 1 == 0 && cdb[2] != 0 => return Err(field(2, 7)),
        0x12 => Command::Inquiry {
            page: (cdb[1] & 1 != 0).then_some(cdb[2]),
            allocation: u32::from(u16_at(cdb, 3)),
        },
        0x15 => mode_select(cdb, ModeForm::Six, short),
        0x16 => Command::Reserve,
        0x17 => Command::Release,
        0x1a => mode_sense(cdb, ModeForm::Six, short),
        0x1b => Command::StartStop {
            is_start: cdb[4] & 1 != 0,
            is_load: cdb[4] & 2 != 0,
            power: cdb[4] >> 4,
        },
        0x1e => Command::PreventRemoval {
            is_prevented: cdb[4] & 1 != 0,
        },
        code => return Err(CdbError::Opcode(code)),
    })
}

fn ten(cdb: &[u8; 16]) -> Result<Command, CdbError> {
    let length = u32::from(u16_at(cdb, 7));
    let range = BlockRange {
        lba: u64::from(u32_at(cdb, 2)),
        blocks: length,
    };
    Ok(match cdb[0] {
        0x25 => Command::ReadCapacity10,
        0x37 => Command::ReadDefectData {
            is_long: false,
            flags: cdb[2],
            allocation: length,
        },
        0x42 => Command::Unmap {
            is_anchor: cdb[1] & 1 != 0,
            length,
        },
        0x55 => mode_select(cdb, ModeForm::Ten, length),
        0x5a => mode_sense(cdb, ModeForm::Ten, length),
        0x5e => Command::ReserveIn {
            action: ReserveIn::from_action(cdb[1] & 0x1f).ok_or(field(1, 4))?,
            allocation: length,
        },
        0x5f => Command::ReserveOut {
            action: ReserveOutAction::from_action(cdb[1] & 0x1f).ok_or(field(1, 4))?,
            scope: cdb[2] >> 4,
            kind: cdb[2] & 0x0f,
            length: u32_at(cdb, 5),
        },
        code => return of_blocks(cdb, code, range),
    })
}

fn twelve(cdb: &[u8; 16]) -> Result<Command, CdbError> {
    let length = u32_at(cdb, 6);
    let range = BlockRange {
        lba: u64::from(u32_at(cdb, 2)),
        blocks: length,
    };
    Ok(match (cdb[0], cdb[1] & 0x1f) {
        (0xa0, _) => Command::ReportLuns {
            select: cdb[2],
            allocation: length,
        },
        (0xa3, 0x0a) => Command::ReportPortGroups {
            is_extended: match cdb[1] >> 5 {
                0 => false,
                1 => true,
                _ => return Err(field(1, 7)),
            },
            allocation: length,
        },
        (0xa3, 0x0c) => Command::ReportOpcodes {
            query: match cdb[2] & 7 {
                0 => OpcodeQuery::All,
                1 => OpcodeQuery::Code(cdb[3]),
                2 => OpcodeQuery::Action(cdb[3], u16_at(cdb, 4)),
                3 => OpcodeQuery::Either(cdb[3], u16_at(cdb, 4)),
                _ => return Err(field(2, 2)),
            },
            with_timeouts: cdb[2] & 0x80 != 0,
            allocation: length,
        },
        (0xa3, 0x0d) => Command::ReportTaskManagement {
            is_long: cdb[2] & 0x80 != 0,
            allocation: length,
        },
        (0xb7, flags) => Command::ReadDefectData {
            is_long: true,
            flags,
            allocation: length,
        },
        // Of each of these the form with ten bytes has the same last five bits.
        (code, _) => return of_blocks(cdb, code, range),
    })
}

fn sixteen(cdb: &[u8; 16]) -> Result<Command, CdbError> {
    let length = u32_at(cdb, 10);
    let lba = u64_at(cdb, 2);
    let range = BlockRange {
        lba,
        blocks: length,
    };
    let access = access(cdb[1]);
    Ok(match (cdb[0], cdb[1] & 0x1f) {
        (0x83, 0x10) => Command::PopulateToken {
            list_id: u32_at(cdb, 6),
            length,
        },
        (0x83, 0x11) => Command::WriteUsingToken {
            list_id: u32_at(cdb, 6),
            length,
        },
        (0x83, 0x1c) => Command::AbortCopy {
            list_id: u32_at(cdb, 2),
        },
        (0x83, _) => Command::ExtendedCopy { length },
        (0x84, 0x07) => Command::TokenInformation {
            list_id: u32_at(cdb, 2),
            allocation: length,
        },
        (0x84, action) => Command::CopyResults {
            results: CopyResults::from_action(action).ok_or(field(1, 4))?,
            list_id: cdb[2],
            allocation: length,
        },
        (0x89, _) => {
            let blocks = u32::from(cdb[13]);
            Command::CompareAndWrite(BlockRange { lba, blocks }, access)
        }
        (0x8b, _) => Command::OrWrite(range, access),
        (0x9e, 0x10) => Command::ReadCapacity16 { allocation: length },
        (0x9e, 0x12) => Command::GetLbaStatus {
            lba,
            allocation: length,
        },
        (code, _) => return of_blocks(cdb, code, range),
    })
}

/// Commands that several forms have, told by the last five bits of their codes.
fn of_blocks(cdb: &[u8; 16], code: u8, range: BlockRange) -> Result<Command, CdbError> {
    let flags = cdb[1];
    Ok(match code {
        0x28 | 0x88 | 0xa8 => Command::Read(range, access(flags)),
        0x2a | 0x8a | 0xaa => Command::Write(range, access(flags)),
        0x2e | 0x8e | 0xae => Command::WriteVerify(range, byte_check(flags)?),
        0x2f | 0x8f | 0xaf => Command::Verify(range, byte_check(flags)?),
        0x34 | 0x90 => Command::PreFetch {
            range,
            is_immediate: flags & 2 != 0,
        },
        0x35 | 0x91 => Command::SynchronizeCache {
            range,
            is_immediate: flags & 2 != 0,
        },
        0x41 | 0x93 => Command::WriteSame {
            range,
            is_unmap: flags & 0x08 != 0,
            is_anchor: flags & 0x10 != 0,
            is_zero: flags & 0x01 != 0,
        },
        code => return Err(CdbError::Opcode(code)),
    })
}

const fn access(flags: u8) -> Access {
    Access {
        is_once: flags & 0x10 != 0,
        is_forced: flags & 0x08 != 0,
    }
}

fn byte_check(flags: u8) -> Result<ByteCheck, CdbError> {
    match flags >> 1 & 3 {
        0 => Ok(ByteCheck::Medium),
        1 => Ok(ByteCheck::Blocks),
        3 => Ok(ByteCheck::OneBlock),
        _ => Err(field(1, 2)),
    }
}

fn mode_sense(cdb: &[u8; 16], form: ModeForm, allocation: u32) -> Command {
    Command::ModeSense {
        form,
        control: match cdb[2] >> 6 {
            0 => PageControl::Current,
            1 => PageControl::Changeable,
            2 => PageControl::Default,
            _ => PageControl::Saved,
        },
        page: cdb[2] & 0x3f,
        subpage: cdb[3],
        is_bare: cdb[1] & 0x08 != 0,
        is_long: cdb[1] & 0x10 != 0,
        allocation,
    }
}

const fn mode_select(cdb: &[u8; 16], form: ModeForm, length: u32) -> Command {
    Command::ModeSelect {
        form,
        is_standard: cdb[1] & 0x10 != 0,
        is_saved: cdb[1] & 0x01 != 0,
        length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Command, CdbError> {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        parse_cdb(&cdb)
    }

    /// Goal: the same blocks are read by every form, each with its own bounds.
    #[test]
    fn every_form_of_read_is_understood() {
        let range = |lba, blocks| BlockRange { lba, blocks };
        let plain = Access::default();
        let forced = Access {
            is_once: true,
            is_forced: true,
        };
        let cases: [(&[u8], Command); 5] = [
            (
                &[0x08, 0x1f, 0xff, 0xff, 0, 0],
                Command::Read(range(0x1f_ffff, 256), plain),
            ),
            (
                &[0x28, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0],
                Command::Read(range(0xffff_ffff, 0), plain),
            ),
            (
                &[0x28, 0x18, 0, 0, 0, 1, 0x1f, 1, 2],
                Command::Read(range(1, 258), forced),
            ),
            (
                &[0xa8, 0, 0, 0, 0, 9, 1, 0, 0, 0],
                Command::Read(range(9, 1 << 24), plain),
            ),
            (
                &[0x88, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3],
                Command::Read(range(1 << 56 | 2, 3), plain),
            ),
        ];
        for (bytes, command) in cases {
            assert_eq!(parse(bytes), Ok(command), "{bytes:x?}");
        }
    }

    /// Goal: what is not understood is refused with the place that is wrong: other codes,
    /// protection, NACA, reserved bits, service actions.
    #[test]
    fn reserved_bits_are_refused() {
        let at = |byte, bit| Err(field(byte, bit));
        assert_eq!(parse(&[0xff]), Err(CdbError::Opcode(0xff)));
        assert_eq!(parse(&[0x04]), Err(CdbError::Opcode(4)));
        assert_eq!(parse(&[0x28, 0x20]), at(1, 5));
        assert_eq!(parse(&[0, 0, 0, 0, 0, 4]), at(5, 2));
        assert_eq!(parse(&[0x12, 0, 0x80, 0, 255, 0]), at(2, 7));
        assert_eq!(parse(&[0x9e, 0x11]), at(1, 4));
        assert_eq!(parse(&[0x5e, 0x1f]), at(1, 4));
        assert_eq!(parse(&[0x2f, 0x04]), at(1, 2));
        let late = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xff];
        assert!(
            parse(&late).is_ok(),
            "what lies behind is not the command's"
        );
    }

    /// Goal: copies, by tokens or not, and what is asked of them are told apart by their actions.
    #[test]
    fn copies_are_told_apart() {
        let mut cdb = [0; 16];
        (cdb[0], cdb[12], cdb[13]) = (0x83, 1, 2);
        assert_eq!(parse(&cdb), Ok(Command::ExtendedCopy { length: 258 }));
        let list_id = 7 << 8;
        (cdb[1], cdb[8]) = (0x10, 7);
        let length = 258;
        let populate = Command::PopulateToken { list_id, length };
        assert_eq!(parse(&cdb), Ok(populate));
        cdb[1] = 0x11;
        let write = Command::WriteUsingToken { list_id, length };
        assert_eq!(parse(&cdb), Ok(write));
        cdb[1] = 0x12;
        assert_eq!(parse(&cdb), Err(field(1, 4)));
        let mut abort = [0; 16];
        (abort[0], abort[1], abort[4]) = (0x83, 0x1c, 7);
        assert_eq!(parse(&abort), Ok(Command::AbortCopy { list_id }));
        (cdb[0], cdb[1], cdb[4], cdb[8]) = (0x84, 7, 7, 0);
        let told = Command::TokenInformation {
            list_id,
            allocation: 258,
        };
        assert_eq!(parse(&cdb), Ok(told));
        cdb[4] = 0;
        (cdb[0], cdb[1], cdb[2]) = (0x84, 3, 9);
        let asked = Command::CopyResults {
            results: CopyResults::OperatingParameters,
            list_id: 9,
            allocation: 258,
        };
        assert_eq!(parse(&cdb), Ok(asked));
        cdb[1] = 1; // Held data: there is none.
        assert_eq!(parse(&cdb), Err(field(1, 4)));
    }

    /// Goal: flags are told apart, one by one.
    #[test]
    fn flags_are_told_apart() {
        let same = |flags| match parse(&[0x93, flags]) {
            Ok(Command::WriteSame {
                is_unmap,
                is_anchor,
                is_zero,
                ..
            }) => (is_unmap, is_anchor, is_zero),
            other => panic!("{other:?}"),
        };
        assert_eq!(same(0x08), (true, false, false));
        assert_eq!(same(0x10), (false, true, false));
        assert_eq!(same(0x01), (false, false, true));
        assert_eq!(parse(&[0x41, 0x01]), Err(field(1, 0)), "not with ten bytes");
        let compared = parse(&[0x89, 0x08, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 2]);
        let range = BlockRange { lba: 7, blocks: 2 };
        let access = Access {
            is_once: false,
            is_forced: true,
        };
        assert_eq!(compared, Ok(Command::CompareAndWrite(range, access)));
    }
}
