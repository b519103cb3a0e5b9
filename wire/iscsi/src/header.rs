//! Basic header segments (RFC 7143 section 11): 48 bytes, big-endian.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | opcode | six bits; bit 6 of a request: immediate |
//! | 1 | 1 | flags | bit 7: final; the others are the PDU's own |
//! | 2 | 2 | specific | the PDU's own |
//! | 4 | 1 | ahs_words | length of additional headers, in words of four bytes |
//! | 5 | 3 | data_bytes | length of the data, without padding |
//! | 8 | 8 | lun | logical unit, or the PDU's own |
//! | 16 | 4 | task_tag | the initiator's number of the task |
//! | 20 | 28 | | the PDU's own, see below |

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub const BHS_BYTES: usize = 48;

/// A tag that no task and no transfer has.
pub const NO_TAG: u32 = 0xffff_ffff;

/// Operation codes.
pub mod opcode {
    /// NOP-Out.
    pub const NOP_OUT: u8 = 0x00;
    /// SCSI Command.
    pub const COMMAND: u8 = 0x01;
    /// Task Management Function Request.
    pub const TASK: u8 = 0x02;
    /// Login Request.
    pub const LOGIN: u8 = 0x03;
    /// Text Request.
    pub const TEXT: u8 = 0x04;
    /// SCSI Data-Out.
    pub const DATA_OUT: u8 = 0x05;
    /// Logout Request.
    pub const LOGOUT: u8 = 0x06;
    /// SNACK Request.
    pub const SNACK: u8 = 0x10;
    /// NOP-In.
    pub const NOP_IN: u8 = 0x20;
    /// SCSI Response.
    pub const RESPONSE: u8 = 0x21;
    /// Task Management Function Response.
    pub const TASK_RESPONSE: u8 = 0x22;
    /// Login Response.
    pub const LOGIN_RESPONSE: u8 = 0x23;
    /// Text Response.
    pub const TEXT_RESPONSE: u8 = 0x24;
    /// SCSI Data-In.
    pub const DATA_IN: u8 = 0x25;
    /// Logout Response.
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    /// Ready To Transfer.
    pub const READY: u8 = 0x31;
    /// Asynchronous Message.
    pub const ASYNC: u8 = 0x32;
    /// Reject.
    pub const REJECT: u8 = 0x3f;
}

const IMMEDIATE: u8 = 0x40;
const FINAL: u8 = 0x80;
const CONTINUE: u8 = 0x40;

/// What all headers begin with.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Head {
    /// Operation code, and whether the request is immediate.
    pub opcode: u8,
    /// Flags.
    pub flags: u8,
    /// The PDU's own.
    pub specific: [u8; 2],
    /// Length of additional headers, in words of four bytes.
    pub ahs_words: u8,
    /// Length of the data in bytes; [`encode`](crate::encode) fills it in.
    pub data_bytes: [u8; 3],
}

impl Head {
    /// A head with these flags.
    #[must_use]
    pub const fn new(opcode: u8, flags: u8) -> Self {
        Self {
            opcode,
            flags,
            specific: [0; 2],
            ahs_words: 0,
            data_bytes: [0; 3],
        }
    }

    /// The same with what is the PDU's own.
    #[must_use]
    pub const fn with(mut self, specific: [u8; 2]) -> Self {
        self.specific = specific;
        self
    }

    /// Which PDU it is.
    #[must_use]
    pub const fn code(&self) -> u8 {
        self.opcode & 0x3f
    }

    /// I: the request is served out of turn.
    #[must_use]
    pub const fn is_immediate(&self) -> bool {
        self.opcode & IMMEDIATE != 0
    }

    /// F: nothing of it follows.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        self.flags & FINAL != 0
    }

    /// C, of texts: the text goes on in the next PDU.
    #[must_use]
    pub const fn is_continued(&self) -> bool {
        self.flags & CONTINUE != 0
    }

    /// Length of the data in bytes.
    #[must_use]
    pub const fn data_length(&self) -> usize {
        let [a, b, c] = self.data_bytes;
        (a as usize) << 16 | (b as usize) << 8 | c as usize
    }

    /// Length of additional headers in bytes.
    #[must_use]
    pub const fn ahs_length(&self) -> usize {
        self.ahs_words as usize * 4
    }
}

/// NOP-Out: is anybody there, or an answer to that.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct NopOut {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit.
    pub lun: [u8; 8],
    /// [`NO_TAG`]: no answer is wanted.
    pub task_tag: U32,
    /// That of the NOP-In which it answers, or [`NO_TAG`].
    pub transfer_tag: U32,
    /// Number of the command.
    pub cmd_sn: U32,
    /// Next status that is expected.
    pub exp_stat_sn: U32,
    #[doc(hidden)]
    pub _reserved: [u8; 16],
}

/// NOP-In.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct NopIn {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit.
    pub lun: [u8; 8],
    /// That of the NOP-Out which it answers, or [`NO_TAG`].
    pub task_tag: U32,
    /// [`NO_TAG`]: no answer is wanted.
    pub transfer_tag: U32,
    /// Number of the status.
    pub stat_sn: U32,
    /// Next command that is expected.
    pub exp_cmd_sn: U32,
    /// Last command that there is room for.
    pub max_cmd_sn: U32,
    #[doc(hidden)]
    pub _reserved: [u8; 12],
}

/// SCSI Command. Flags: 40h reads, 20h writes, lowest three bits: the task's attribute.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct ScsiCommand {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit.
    pub lun: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    /// Expected data transfer length.
    pub expected_bytes: U32,
    /// Number of the command.
    pub cmd_sn: U32,
    /// Next status that is expected.
    pub exp_stat_sn: U32,
    /// The command.
    pub cdb: [u8; 16],
}

impl ScsiCommand {
    /// A command with the SIMPLE attribute that reads and writes so many bytes; its task and its
    /// number are for the sender to say.
    ///
    /// # Panics
    /// If the command has more than 16 bytes.
    #[must_use]
    pub fn simple(cdb: &[u8], (reads, writes): (u32, u32)) -> Self {
        let read = if reads > 0 { 0x40 } else { 0 };
        let write = if writes > 0 { 0x20 } else { 0 };
        let mut command = Self {
            head: Head::new(opcode::COMMAND, FINAL | read | write | 1),
            expected_bytes: reads.max(writes).into(),
            ..Self::default()
        };
        command.cdb[..cdb.len()].copy_from_slice(cdb);
        command
    }
}

/// SCSI Response. Flags: 04h overflow, 02h underflow; specific: response and status.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct ScsiResponse {
    /// What all headers begin with.
    pub head: Head,
    #[doc(hidden)]
    pub _reserved: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    /// Zero.
    pub snack_tag: U32,
    /// Number of the status.
    pub stat_sn: U32,
    /// Next command that is expected.
    pub exp_cmd_sn: U32,
    /// Last command that there is room for.
    pub max_cmd_sn: U32,
    /// How many Data-In and R2T PDUs there were.
    pub exp_data_sn: U32,
    /// Zero.
    pub bidirectional_residual: U32,
    /// Bytes that were not transferred, or too many.
    pub residual: U32,
}

/// Task Management Function Request. Flags: the function.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct TaskRequest {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit.
    pub lun: [u8; 8],
    /// Number of this task.
    pub task_tag: U32,
    /// Number of the task that it is about, or [`NO_TAG`].
    pub referenced_tag: U32,
    /// Number of the command.
    pub cmd_sn: U32,
    /// Next status that is expected.
    pub exp_stat_sn: U32,
    /// Number of the command that it is about.
    pub ref_cmd_sn: U32,
    /// Of a reassignment.
    pub exp_data_sn: U32,
    #[doc(hidden)]
    pub _reserved: [u8; 8],
}

/// Task Management Function Response. Specific: the response.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct TaskResponse {
    /// What all headers begin with.
    pub head: Head,
    #[doc(hidden)]
    pub _reserved: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    #[doc(hidden)]
    pub _reserved_2: [u8; 4],
    /// Number of the status.
    pub stat_sn: U32,
    /// Next command that is expected.
    pub exp_cmd_sn: U32,
    /// Last command that there is room for.
    pub max_cmd_sn: U32,
    #[doc(hidden)]
    pub _reserved_3: [u8; 12],
}

/// SCSI Data-Out.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct DataOut {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit.
    pub lun: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    /// That of the R2T which it answers, or [`NO_TAG`].
    pub transfer_tag: U32,
    #[doc(hidden)]
    pub _reserved: [u8; 4],
    /// Next status that is expected.
    pub exp_stat_sn: U32,
    #[doc(hidden)]
    pub _reserved_2: [u8; 4],
    /// Which of the PDUs of its sequence.
    pub data_sn: U32,
    /// Where its data belongs, in bytes.
    pub offset: U32,
    #[doc(hidden)]
    pub _reserved_3: [u8; 4],
}

/// SCSI Data-In. Flags: 40h acknowledge, 04h overflow, 02h underflow, 01h with status; specific: 0 and status.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct DataIn {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit.
    pub lun: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    /// [`NO_TAG`].
    pub transfer_tag: U32,
    /// Number of the status, if there is one.
    pub stat_sn: U32,
    /// Next command that is expected.
    pub exp_cmd_sn: U32,
    /// Last command that there is room for.
    pub max_cmd_sn: U32,
    /// Which of the task's PDUs.
    pub data_sn: U32,
    /// Where its data belongs, in bytes.
    pub offset: U32,
    /// Bytes that were not transferred, or too many.
    pub residual: U32,
}

/// Ready To Transfer.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct ReadyToTransfer {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit.
    pub lun: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    /// Number of the transfer.
    pub transfer_tag: U32,
    /// Number that the next status will have.
    pub stat_sn: U32,
    /// Next command that is expected.
    pub exp_cmd_sn: U32,
    /// Last command that there is room for.
    pub max_cmd_sn: U32,
    /// Which of the task's PDUs.
    pub r2t_sn: U32,
    /// Where the data belongs, in bytes.
    pub offset: U32,
    /// How much is wanted.
    pub desired_bytes: U32,
}

/// Asynchronous Message.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct AsyncMessage {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit.
    pub lun: [u8; 8],
    /// [`NO_TAG`].
    pub task_tag: U32,
    #[doc(hidden)]
    pub _reserved: [u8; 4],
    /// Number of the status.
    pub stat_sn: U32,
    /// Next command that is expected.
    pub exp_cmd_sn: U32,
    /// Last command that there is room for.
    pub max_cmd_sn: U32,
    /// 0: sense data; 1: log out; 2: the connection ends; 3: all do; 4: negotiate.
    pub event: u8,
    /// Of a vendor's event.
    pub code: u8,
    /// The event's own.
    pub parameters: [U16; 3],
    #[doc(hidden)]
    pub _reserved_2: [u8; 4],
}

/// Text Request.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct TextRequest {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit, of a request that goes on.
    pub lun: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    /// That of the answer which it goes on after, or [`NO_TAG`].
    pub transfer_tag: U32,
    /// Number of the command.
    pub cmd_sn: U32,
    /// Next status that is expected.
    pub exp_stat_sn: U32,
    #[doc(hidden)]
    pub _reserved: [u8; 16],
}

/// Text Response.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct TextResponse {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit, of an answer that goes on.
    pub lun: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    /// [`NO_TAG`]: nothing follows.
    pub transfer_tag: U32,
    /// Number of the status.
    pub stat_sn: U32,
    /// Next command that is expected.
    pub exp_cmd_sn: U32,
    /// Last command that there is room for.
    pub max_cmd_sn: U32,
    #[doc(hidden)]
    pub _reserved: [u8; 12],
}

/// Login Request. Flags: [`LoginFlags`]; specific: highest and lowest version.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct LoginRequest {
    /// What all headers begin with.
    pub head: Head,
    /// The initiator's number of the session.
    pub isid: [u8; 6],
    /// The target's; 0: a new one.
    pub tsih: U16,
    /// Number of the task.
    pub task_tag: U32,
    /// Number of the connection.
    pub cid: U16,
    #[doc(hidden)]
    pub _reserved: [u8; 2],
    /// Number of the command.
    pub cmd_sn: U32,
    /// Next status that is expected.
    pub exp_stat_sn: U32,
    #[doc(hidden)]
    pub _reserved_2: [u8; 16],
}

/// Login Response. Flags: [`LoginFlags`]; specific: highest and active version.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct LoginResponse {
    /// What all headers begin with.
    pub head: Head,
    /// The initiator's number of the session.
    pub isid: [u8; 6],
    /// The target's, when login is complete.
    pub tsih: U16,
    /// Number of the task.
    pub task_tag: U32,
    #[doc(hidden)]
    pub _reserved: [u8; 4],
    /// Number of the status.
    pub stat_sn: U32,
    /// Next command that is expected.
    pub exp_cmd_sn: U32,
    /// Last command that there is room for.
    pub max_cmd_sn: U32,
    /// 0: well; 1: elsewhere; 2: the initiator's fault; 3: the target's.
    pub status_class: u8,
    /// Which.
    pub status_detail: u8,
    #[doc(hidden)]
    pub _reserved_2: [u8; 10],
}

/// Logout Request. Flags: the reason: 0 ends the session, 1 the connection, 2 recovers it.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct LogoutRequest {
    /// What all headers begin with.
    pub head: Head,
    #[doc(hidden)]
    pub _reserved: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    /// Number of the connection.
    pub cid: U16,
    #[doc(hidden)]
    pub _reserved_2: [u8; 2],
    /// Number of the command.
    pub cmd_sn: U32,
    /// Next status that is expected.
    pub exp_stat_sn: U32,
    #[doc(hidden)]
    pub _reserved_3: [u8; 16],
}

/// Logout Response. Specific: the response: 0 done, 1 no such connection, 2 no recovery, 3 failed.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct LogoutResponse {
    /// What all headers begin with.
    pub head: Head,
    #[doc(hidden)]
    pub _reserved: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    #[doc(hidden)]
    pub _reserved_2: [u8; 4],
    /// Number of the status.
    pub stat_sn: U32,
    /// Next command that is expected.
    pub exp_cmd_sn: U32,
    /// Last command that there is room for.
    pub max_cmd_sn: U32,
    #[doc(hidden)]
    pub _reserved_3: [u8; 4],
    /// Seconds before connecting again.
    pub time_to_wait: U16,
    /// Seconds for which tasks are kept.
    pub time_to_retain: U16,
    #[doc(hidden)]
    pub _reserved_4: [u8; 4],
}

/// SNACK Request. Flags: which PDUs are missed.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Snack {
    /// What all headers begin with.
    pub head: Head,
    /// Logical unit.
    pub lun: [u8; 8],
    /// Number of the task.
    pub task_tag: U32,
    /// Number of the transfer.
    pub transfer_tag: U32,
    #[doc(hidden)]
    pub _reserved: [u8; 4],
    /// Next status that is expected.
    pub exp_stat_sn: U32,
    #[doc(hidden)]
    pub _reserved_2: [u8; 8],
    /// The first that is missed.
    pub first: U32,
    /// How many.
    pub count: U32,
}

/// Reject; its data is the header that is refused. Specific: [`RejectReason`].
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Reject {
    /// What all headers begin with.
    pub head: Head,
    #[doc(hidden)]
    pub _reserved: [u8; 8],
    /// [`NO_TAG`].
    pub task_tag: U32,
    #[doc(hidden)]
    pub _reserved_2: [u8; 4],
    /// Number of the status.
    pub stat_sn: U32,
    /// Next command that is expected.
    pub exp_cmd_sn: U32,
    /// Last command that there is room for.
    pub max_cmd_sn: U32,
    /// Of a refused SNACK.
    pub data_sn: U32,
    #[doc(hidden)]
    pub _reserved_3: [u8; 8],
}

/// A stage of the login phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Who is it?
    Security = 0,
    /// What is agreed on?
    Operational = 1,
    /// The session is there.
    FullFeature = 3,
}

impl Stage {
    const fn from_number(number: u8) -> Option<Self> {
        Some(match number & 3 {
            0 => Self::Security,
            1 => Self::Operational,
            3 => Self::FullFeature,
            _ => return None,
        })
    }
}

/// The flags of login requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginFlags {
    /// T: to the next stage.
    pub is_transit: bool,
    /// C: the text goes on.
    pub is_continued: bool,
    /// CSG: the stage it is in.
    pub current: Stage,
    /// NSG: the next one.
    pub next: Stage,
}

impl LoginFlags {
    /// Of an initiator that has said all about the operation of its session: from there to the
    /// full feature phase.
    pub const TO_FULL_FEATURE: Self = Self {
        is_transit: true,
        is_continued: false,
        current: Stage::Operational,
        next: Stage::FullFeature,
    };

    /// Reads the flags; `None` if they name a stage that there is none of, or go on and to
    /// the next stage at a time.
    #[must_use]
    pub const fn decode(flags: u8) -> Option<Self> {
        let (Some(current), Some(next)) =
            (Stage::from_number(flags >> 2), Stage::from_number(flags))
        else {
            return None;
        };
        let (is_transit, is_continued) = (flags & FINAL != 0, flags & CONTINUE != 0);
        if is_transit && is_continued {
            return None;
        }
        Some(Self {
            is_transit,
            is_continued,
            current,
            next,
        })
    }

    /// As a byte; without a transit the next stage is 0.
    #[must_use]
    pub const fn encode(self) -> u8 {
        let next = match self.is_transit {
            true => FINAL | self.next as u8,
            false => 0,
        };
        let goes_on = if self.is_continued { CONTINUE } else { 0 };
        next | goes_on | (self.current as u8) << 2
    }
}

/// Functions of task management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TaskFunction {
    /// One task.
    AbortTask = 1,
    /// All tasks of the session at the unit.
    AbortTaskSet = 2,
    /// A contingent allegiance, of which there is none.
    ClearAca = 3,
    /// All tasks at the unit.
    ClearTaskSet = 4,
    /// The unit.
    LogicalUnitReset = 5,
    /// All units.
    TargetWarmReset = 6,
    /// All units, and all sessions.
    TargetColdReset = 7,
    /// A task goes on over another connection.
    TaskReassign = 8,
}

impl TaskFunction {
    /// The function in the flags of a request.
    #[must_use]
    pub const fn from_flags(flags: u8) -> Option<Self> {
        Some(match flags & 0x7f {
            1 => Self::AbortTask,
            2 => Self::AbortTaskSet,
            3 => Self::ClearAca,
            4 => Self::ClearTaskSet,
            5 => Self::LogicalUnitReset,
            6 => Self::TargetWarmReset,
            7 => Self::TargetColdReset,
            8 => Self::TaskReassign,
            _ => return None,
        })
    }
}

/// Why a PDU is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RejectReason {
    /// Its data was damaged on the way.
    DataDigest = 0x02,
    /// A SNACK asks for what is not there.
    Snack = 0x03,
    /// It breaks the protocol.
    Protocol = 0x04,
    /// There is no such command.
    Unsupported = 0x05,
    /// Too many are immediate.
    Immediate = 0x06,
    /// Its task is in progress.
    InProgress = 0x07,
    /// A field is invalid.
    Invalid = 0x09,
    /// There is no room for what is negotiated.
    Negotiation = 0x0b,
}

/// What an initiator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Nop.
    Nop(NopOut),
    /// Command.
    Command(ScsiCommand),
    /// Task.
    Task(TaskRequest),
    /// Login.
    Login(LoginRequest),
    /// Text.
    Text(TextRequest),
    /// Data.
    Data(DataOut),
    /// Logout.
    Logout(LogoutRequest),
    /// Snack.
    Snack(Snack),
}

impl Request {
    /// Reads a header; `None` if its operation code is none of an initiator's.
    #[must_use]
    pub fn decode(header: &[u8; BHS_BYTES]) -> Option<Self> {
        Some(match header[0] & 0x3f {
            opcode::NOP_OUT => Self::Nop(NopOut::read_from_bytes(header).ok()?),
            opcode::COMMAND => Self::Command(ScsiCommand::read_from_bytes(header).ok()?),
            opcode::TASK => Self::Task(TaskRequest::read_from_bytes(header).ok()?),
            opcode::LOGIN => Self::Login(LoginRequest::read_from_bytes(header).ok()?),
            opcode::TEXT => Self::Text(TextRequest::read_from_bytes(header).ok()?),
            opcode::DATA_OUT => Self::Data(DataOut::read_from_bytes(header).ok()?),
            opcode::LOGOUT => Self::Logout(LogoutRequest::read_from_bytes(header).ok()?),
            opcode::SNACK => Self::Snack(Snack::read_from_bytes(header).ok()?),
            _ => return None,
        })
    }
}

/// What a target sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// Nop.
    Nop(NopIn),
    /// Command.
    Command(ScsiResponse),
    /// Task.
    Task(TaskResponse),
    /// Login.
    Login(LoginResponse),
    /// Text.
    Text(TextResponse),
    /// Data.
    Data(DataIn),
    /// Logout.
    Logout(LogoutResponse),
    /// Ready.
    Ready(ReadyToTransfer),
    /// Async.
    Async(AsyncMessage),
    /// Reject.
    Reject(Reject),
}

impl Response {
    /// Reads a header; `None` if its operation code is none of a target's.
    #[must_use]
    pub fn decode(header: &[u8; BHS_BYTES]) -> Option<Self> {
        Some(match header[0] & 0x3f {
            opcode::NOP_IN => Self::Nop(NopIn::read_from_bytes(header).ok()?),
            opcode::RESPONSE => Self::Command(ScsiResponse::read_from_bytes(header).ok()?),
            opcode::TASK_RESPONSE => Self::Task(TaskResponse::read_from_bytes(header).ok()?),
            opcode::LOGIN_RESPONSE => Self::Login(LoginResponse::read_from_bytes(header).ok()?),
            opcode::TEXT_RESPONSE => Self::Text(TextResponse::read_from_bytes(header).ok()?),
            opcode::DATA_IN => Self::Data(DataIn::read_from_bytes(header).ok()?),
            opcode::LOGOUT_RESPONSE => Self::Logout(LogoutResponse::read_from_bytes(header).ok()?),
            opcode::READY => Self::Ready(ReadyToTransfer::read_from_bytes(header).ok()?),
            opcode::ASYNC => Self::Async(AsyncMessage::read_from_bytes(header).ok()?),
            opcode::REJECT => Self::Reject(Reject::read_from_bytes(header).ok()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: fields lie where RFC 7143 has them.
    #[test]
    fn fields_are_where_they_belong() {
        let mut bytes = [0u8; BHS_BYTES];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(at).expect("48 bytes");
        }
        bytes[0] = 0x41;
        let Some(Request::Command(command)) = Request::decode(&bytes) else {
            panic!("a command");
        };
        assert!(command.head.is_immediate() && !command.head.is_final());
        assert_eq!(command.head.data_length(), 0x05_0607);
        assert_eq!(command.head.ahs_length(), 16);
        assert_eq!(command.lun, [8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(command.task_tag.get(), 0x1011_1213);
        assert_eq!(command.expected_bytes.get(), 0x1415_1617);
        assert_eq!(command.exp_stat_sn.get(), 0x1c1d_1e1f);
        assert_eq!(command.cdb[0], 32);
        assert_eq!(command.as_bytes(), bytes);
        bytes[0] = 0x03;
        let Some(Request::Login(login)) = Request::decode(&bytes) else {
            panic!("a login");
        };
        assert_eq!((login.tsih.get(), login.cid.get()), (0x0e0f, 0x1415));
        bytes[0] = 0x23;
        let Some(Response::Login(login)) = Response::decode(&bytes) else {
            panic!("a login's answer");
        };
        assert_eq!((login.status_class, login.status_detail), (36, 37));
        bytes[0] = 0x32;
        let Some(Response::Async(message)) = Response::decode(&bytes) else {
            panic!("a message");
        };
        assert_eq!((message.event, message.parameters[1].get()), (36, 0x2829));
        bytes[0] = 0x3e;
        assert!(Request::decode(&bytes).is_none() && Response::decode(&bytes).is_none());
    }

    /// Goal: login flags come back; those that cannot be are refused.
    #[test]
    fn login_flags_are_checked() {
        for (byte, is_valid) in [
            (0x87, true),
            (0x40, true),
            (0x04, true),
            (0xc1, false),
            (0x08, false),
        ] {
            let flags = LoginFlags::decode(byte);
            assert_eq!(flags.is_some(), is_valid, "{byte:x}");
            assert!(flags.is_none_or(|flags| flags.encode() == byte));
        }
    }
}
