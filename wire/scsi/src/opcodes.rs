//! The commands that there are: for each its code, and which bits of its CDB mean something.
//!
//! One table says what is understood, what REPORT SUPPORTED OPERATION CODES tells of it (SPC-4
//! section 6.35), and which bits are reserved: a command with one of these is refused.

use crate::bytes::{long, short};
use crate::cdb::OpcodeQuery;

/// A command that is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// Operation code.
    pub code: u8,
    /// Service action, of codes that have some.
    pub action: Option<u16>,
    /// Which bits mean something; byte 0 is the code itself, and the length is the CDB's.
    pub usage: &'static [u8],
}

const fn opcode(code: u8, usage: &'static [u8]) -> Opcode {
    Opcode {
        code,
        action: None,
        usage,
    }
}

const fn action(code: u8, action: u16, usage: &'static [u8]) -> Opcode {
    Opcode {
        code,
        action: Some(action),
        usage,
    }
}

const FF: u8 = 0xff;
/// GROUP NUMBER.
const GROUP: u8 = 0x1f;
/// DPO and FUA, and FUA_NV of older initiators.
const CACHE: u8 = 0x1a;
/// DPO and BYTCHK.
const CHECK: u8 = 0x16;
const IMMED: u8 = 0x02;
/// IMMED, and SYNC_NV of older initiators.
const SYNC: u8 = 0x06;
/// ANCHOR and UNMAP.
const SAME: u8 = 0x18;

/// All commands.
pub const OPCODES: &[Opcode] = &[
    opcode(0x00, &[0x00, 0, 0, 0, 0, 0]),
    opcode(0x03, &[0x03, 1, 0, 0, FF, 0]),
    opcode(0x08, &[0x08, 0x1f, FF, FF, FF, 0]),
    opcode(0x0a, &[0x0a, 0x1f, FF, FF, FF, 0]),
    opcode(0x12, &[0x12, 1, FF, FF, FF, 0]),
    opcode(0x15, &[0x15, 0x11, 0, 0, FF, 0]),
    opcode(0x16, &[0x16, 0, 0, 0, 0, 0]),
    opcode(0x17, &[0x17, 0, 0, 0, 0, 0]),
    opcode(0x1a, &[0x1a, 0x08, FF, FF, FF, 0]),
    opcode(0x1b, &[0x1b, 1, 0, 0x0f, 0xf7, 0]),
    opcode(0x1e, &[0x1e, 0, 0, 0, 1, 0]),
    opcode(0x25, &[0x25, 0, FF, FF, FF, FF, 0, 0, 1, 0]),
    opcode(0x28, &[0x28, CACHE, FF, FF, FF, FF, GROUP, FF, FF, 0]),
    opcode(0x2a, &[0x2a, CACHE, FF, FF, FF, FF, GROUP, FF, FF, 0]),
    opcode(0x2e, &[0x2e, CHECK, FF, FF, FF, FF, GROUP, FF, FF, 0]),
    opcode(0x2f, &[0x2f, CHECK, FF, FF, FF, FF, GROUP, FF, FF, 0]),
    opcode(0x34, &[0x34, IMMED, FF, FF, FF, FF, GROUP, FF, FF, 0]),
    opcode(0x35, &[0x35, SYNC, FF, FF, FF, FF, GROUP, FF, FF, 0]),
    opcode(0x37, &[0x37, 0, 0x1f, 0, 0, 0, 0, FF, FF, 0]),
    opcode(0x41, &[0x41, SAME, FF, FF, FF, FF, GROUP, FF, FF, 0]),
    opcode(0x42, &[0x42, 1, 0, 0, 0, 0, GROUP, FF, FF, 0]),
    opcode(0x55, &[0x55, 0x11, 0, 0, 0, 0, 0, FF, FF, 0]),
    opcode(0x5a, &[0x5a, 0x18, FF, FF, 0, 0, 0, FF, FF, 0]),
    action(0x5e, 0, &[0x5e, 0x1f, 0, 0, 0, 0, 0, FF, FF, 0]),
    action(0x5e, 1, &[0x5e, 0x1f, 0, 0, 0, 0, 0, FF, FF, 0]),
    action(0x5e, 2, &[0x5e, 0x1f, 0, 0, 0, 0, 0, FF, FF, 0]),
    action(0x5e, 3, &[0x5e, 0x1f, 0, 0, 0, 0, 0, FF, FF, 0]),
    action(0x5f, 0, &[0x5f, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(0x5f, 1, &[0x5f, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(0x5f, 2, &[0x5f, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(0x5f, 3, &[0x5f, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(0x5f, 4, &[0x5f, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(0x5f, 5, &[0x5f, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(0x5f, 6, &[0x5f, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0]),
    action(0x83, 0x00, &copy_usage(0x83, 0)),
    action(0x83, 0x10, &token_usage()),
    action(0x83, 0x11, &token_usage()),
    action(
        0x83,
        0x1c,
        &[0x83, 0x1f, FF, FF, FF, FF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ),
    action(0x84, 0x00, &copy_usage(0x84, FF)),
    action(0x84, 0x03, &copy_usage(0x84, FF)),
    action(0x84, 0x04, &copy_usage(0x84, FF)),
    action(
        0x84,
        0x07,
        &[0x84, 0x1f, FF, FF, FF, FF, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0],
    ),
    opcode(0x88, &long_usage(0x88, CACHE)),
    opcode(
        0x89,
        &[
            0x89, CACHE, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0, 0, FF, GROUP, 0,
        ],
    ),
    opcode(0x8a, &long_usage(0x8a, CACHE)),
    opcode(0x8b, &long_usage(0x8b, CACHE)),
    opcode(0x8e, &long_usage(0x8e, CHECK)),
    opcode(0x8f, &long_usage(0x8f, CHECK)),
    opcode(0x90, &long_usage(0x90, IMMED)),
    opcode(0x91, &long_usage(0x91, SYNC)),
    opcode(0x93, &long_usage(0x93, SAME | 1)),
    action(
        0x9e,
        0x10,
        &[0x9e, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0],
    ),
    action(
        0x9e,
        0x12,
        &[
            0x9e, 0x1f, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0,
        ],
    ),
    opcode(0xa0, &[0xa0, 0, FF, 0, 0, 0, FF, FF, FF, FF, 0, 0]),
    action(0xa3, 0x0a, &[0xa3, FF, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0]),
    action(
        0xa3,
        0x0c,
        &[0xa3, 0x1f, 0x87, FF, FF, FF, FF, FF, FF, FF, 0, 0],
    ),
    action(
        0xa3,
        0x0d,
        &[0xa3, 0x1f, 0x80, 0, 0, 0, FF, FF, FF, FF, 0, 0],
    ),
    opcode(
        0xa8,
        &[0xa8, CACHE, FF, FF, FF, FF, FF, FF, FF, FF, GROUP, 0],
    ),
    opcode(
        0xaa,
        &[0xaa, CACHE, FF, FF, FF, FF, FF, FF, FF, FF, GROUP, 0],
    ),
    opcode(
        0xae,
        &[0xae, CHECK, FF, FF, FF, FF, FF, FF, FF, FF, GROUP, 0],
    ),
    opcode(
        0xaf,
        &[0xaf, CHECK, FF, FF, FF, FF, FF, FF, FF, FF, GROUP, 0],
    ),
    opcode(0xb7, &[0xb7, 0x1f, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0]),
];

/// Of a command of 16 bytes with an address of eight and a length of four.
const fn long_usage(code: u8, flags: u8) -> [u8; 16] {
    [
        code, flags, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, GROUP, 0,
    ]
}

/// Of EXTENDED COPY and RECEIVE COPY RESULTS: the latter has a list identifier.
const fn copy_usage(code: u8, list_id: u8) -> [u8; 16] {
    [
        code, 0x1f, list_id, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0,
    ]
}

/// Of POPULATE TOKEN and WRITE USING TOKEN.
const fn token_usage() -> [u8; 16] {
    [
        0x83, 0x1f, 0, 0, 0, 0, FF, FF, FF, FF, FF, FF, FF, FF, GROUP, 0,
    ]
}

/// Whether commands of this code are told apart by a service action.
pub(crate) fn has_actions(code: u8) -> bool {
    let mut opcodes = OPCODES.iter();
    opcodes.any(|known| known.code == code && known.action.is_some())
}

/// The command of that code and action.
pub(crate) fn find(code: u8, action: Option<u16>) -> Option<&'static Opcode> {
    let mut opcodes = OPCODES.iter();
    opcodes.find(|known| known.code == code && known.action == action)
}

/// No limit on how long a command takes is told: nothing more than that there is none.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The list of all commands but those `without` (SPC-4 table 291).
#[must_use]
pub fn supported_opcodes(with_timeouts: bool, without: &[u8]) -> Vec<u8> {
    let mut data = vec![0; 4];
    let is_there = |opcode: &&Opcode| !without.contains(&opcode.code);
    for opcode in OPCODES.iter().filter(is_there) {
        let timeouts = if with_timeouts { 2 } else { 0 };
        let has_action = u8::from(opcode.action.is_some());
        data.extend([opcode.code, 0]);
        data.extend(opcode.action.unwrap_or_default().to_be_bytes());
        data.extend([0, timeouts | has_action]);
        data.extend(short(opcode.usage.len()).to_be_bytes());
        if with_timeouts {
            data.extend(TIMEOUTS);
        }
    }
    let length = long(data.len() - 4);
    data[..4].copy_from_slice(&length.to_be_bytes());
    data
}

/// What is told of one command (SPC-4 table 293), those `without` not being supported; `None` if
/// the question makes no sense: a code with service actions without one, or the other way round.
#[must_use]
pub fn one_opcode(query: OpcodeQuery, with_timeouts: bool, without: &[u8]) -> Option<Vec<u8>> {
    let (code, found) = match query {
        OpcodeQuery::All => return None,
        OpcodeQuery::Code(code) if has_actions(code) => return None,
        OpcodeQuery::Code(code) => (code, find(code, None)),
        OpcodeQuery::Action(code, action) => {
            let is_known = OPCODES.iter().any(|known| known.code == code);
            if is_known && !has_actions(code) {
                return None;
            }
            (code, find(code, Some(action)))
        }
        OpcodeQuery::Either(code, action) if has_actions(code) => (code, find(code, Some(action))),
        OpcodeQuery::Either(code, _) => (code, find(code, None)),
    };
    let found = found.filter(|opcode| !without.contains(&opcode.code));
    let Some(opcode) = found else {
        return Some(vec![0, 1, 0, 0]); // Not supported.
    };
    debug_assert_eq!(opcode.code, code);
    let timeouts = if with_timeouts { 0x80 } else { 0 };
    let mut data = vec![0, timeouts | 3]; // Supported as the standard says.
    data.extend(short(opcode.usage.len()).to_be_bytes());
    data.extend(opcode.usage);
    // The service action is part of the code.
    if let Some(action) = opcode.action {
        data[5] = data[5] & !0x1f | (action & 0x1f) as u8;
    }
    if with_timeouts {
        data.extend(TIMEOUTS);
    }
    Some(data)
}

/// The task management functions that there are (SPC-4 table 296): ABORT TASK, ABORT TASK
/// SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET; no QUERY TASK.
#[must_use]
pub fn supported_task_management(is_long: bool) -> Vec<u8> {
    let mut data = vec![0x80 | 0x40 | 0x10 | 0x08 | 0x02, 0, 0, 0];
    if is_long {
        data[3] = 12;
        data.extend([0; 12]);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each entry describes itself: its code, a length that its group has (SPC-4
    /// section 4.2.5.1), no bit of the control byte.
    #[test]
    fn entries_are_well_formed() {
        for opcode in OPCODES {
            assert_eq!(opcode.usage[0], opcode.code);
            let length = match opcode.code >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                group => panic!("no command is of group {group}"),
            };
            assert_eq!(opcode.usage.len(), length, "{:02x}", opcode.code);
            assert_eq!(opcode.usage.last(), Some(&0));
        }
        let mut known: Vec<_> = OPCODES.iter().map(|it| (it.code, it.action)).collect();
        known.dedup();
        assert_eq!(known.len(), OPCODES.len());
        assert!(known.is_sorted());
    }

    /// Goal: the list has an entry per command, and says where it ends.
    #[test]
    fn lists_are_as_long_as_they_say() {
        for (with_timeouts, entry_bytes) in [(false, 8), (true, 20)] {
            let list = supported_opcodes(with_timeouts, &[]);
            assert_eq!(list.len(), 4 + OPCODES.len() * entry_bytes);
            let length = u32::from_be_bytes([list[0], list[1], list[2], list[3]]);
            assert_eq!(length as usize, list.len() - 4);
        }
    }

    /// Goal: one command is described by what is asked for, and questions without sense
    /// are told from commands that are not there.
    #[test]
    fn one_command_is_described() {
        let read = one_opcode(OpcodeQuery::Code(0x28), false, &[]).expect("an answer");
        assert_eq!(read[..6], [0, 3, 0, 10, 0x28, 0x1a]);
        let capacity = one_opcode(OpcodeQuery::Action(0x9e, 0x10), true, &[]).expect("an answer");
        assert_eq!(capacity[..6], [0, 0x83, 0, 16, 0x9e, 0x10]);
        assert_eq!(capacity.len(), 4 + 16 + 12);
        let none = Some(vec![0, 1, 0, 0]);
        assert_eq!(one_opcode(OpcodeQuery::Code(0xff), false, &[]), none);
        assert_eq!(
            one_opcode(OpcodeQuery::Action(0x9e, 0x1f), false, &[]),
            none
        );
        assert_eq!(one_opcode(OpcodeQuery::Code(0x9e), false, &[]), None);
        assert_eq!(one_opcode(OpcodeQuery::Action(0x28, 0), false, &[]), None);
        assert!(one_opcode(OpcodeQuery::Either(0x28, 0), false, &[]).is_some());
    }
}
