//! A session of an initiator with a target: its connections, the order of its commands, its
//! tasks.

use std::collections::{BTreeMap, VecDeque};

use crossdock_iscsi_pdu::Pdu;
use crossdock_peer::{InitiatorRule, Nexus};
use crossdock_scsi::AdditionalSense;

use crate::copying::CopyProgress;
use crate::message::ConnId;
use crate::negotiate::Parameters;
use crate::task::TaskId;
use crate::token::TokenOperation;

/// Things that happened to the unit and were not told yet; more are told as the first one.
const ATTENTIONS_MAX: usize = 8;

/// The target's number of a session (TSIH); never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(pub(crate) u16);

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) nexus: Nexus,
    /// The LUN's number; a discovery session has none.
    pub(crate) unit: Option<u64>,
    /// What its initiator may do.
    pub(crate) rule: InitiatorRule,
    pub(crate) parameters: Parameters,
    /// By the initiator's numbers.
    pub(crate) connections: BTreeMap<u16, ConnId>,
    /// Number of the next command.
    pub(crate) exp_cmd_sn: u32,
    /// Commands that came before their turn.
    pub(crate) early: BTreeMap<u32, (ConnId, Pdu)>,
    /// By the initiator's numbers.
    pub(crate) tasks: BTreeMap<u32, TaskId>,
    /// Of these, those that count for the window: immediate ones do not.
    pub(crate) counted: u32,
    /// What is to be told with the next command.
    pub(crate) attentions: VecDeque<AdditionalSense>,
    /// It has said that the medium is to stay.
    pub(crate) is_preventing: bool,
    /// Copies in progress, and those that have ended, by the initiator's numbers.
    pub(crate) copies: BTreeMap<u8, CopyProgress>,
    /// The same of tokens that are made and used, by numbers of their own.
    pub(crate) tokens: BTreeMap<u32, TokenOperation>,
}

/// Whether number `a` is before `b`, in serial arithmetic (RFC 1982).
pub(crate) const fn is_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

impl Session {
    pub(crate) fn new(
        nexus: Nexus,
        unit: Option<u64>,
        rule: InitiatorRule,
        parameters: Parameters,
        cmd_sn: u32,
    ) -> Self {
        Self {
            nexus,
            unit,
            rule,
            parameters,
            connections: BTreeMap::new(),
            exp_cmd_sn: cmd_sn,
            early: BTreeMap::new(),
            tasks: BTreeMap::new(),
            counted: 0,
            // SPC-4 section 5.14: a new nexus learns that the unit has started.
            attentions: [AdditionalSense::RESET].into(),
            is_preventing: false,
            copies: BTreeMap::new(),
            tokens: BTreeMap::new(),
        }
    }

    /// The last command that there is room for: what is answered makes room.
    pub(crate) const fn max_cmd_sn(&self, commands_max: u32) -> u32 {
        let room = commands_max.saturating_sub(self.counted);
        self.exp_cmd_sn.wrapping_add(room).wrapping_sub(1)
    }

    /// Whether a command of that number is one that was not served and that there is room for.
    pub(crate) const fn is_in_window(&self, cmd_sn: u32, commands_max: u32) -> bool {
        let end = self.max_cmd_sn(commands_max).wrapping_add(1);
        !is_before(cmd_sn, self.exp_cmd_sn) && is_before(cmd_sn, end)
    }

    /// Something has happened to the unit.
    pub(crate) fn attend(&mut self, what: AdditionalSense) {
        if self.attentions.contains(&what) {
            return;
        }
        // A reset says all that was before.
        if matches!(
            what,
            AdditionalSense::RESET | AdditionalSense::DEVICE_RESET | AdditionalSense::NEXUS_LOSS
        ) {
            self.attentions.clear();
        }
        if self.attentions.len() < ATTENTIONS_MAX {
            self.attentions.push_back(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(cmd_sn: u32) -> Session {
        let nexus = Nexus {
            initiator: "iqn.a".to_owned(),
            isid: [0; 6],
            port: 1,
        };
        let rule = InitiatorRule::open("iqn.a");
        Session::new(nexus, Some(1), rule, Parameters::DEFAULT, cmd_sn)
    }

    /// Goal: the window is as wide as there is room, also where numbers begin anew; its end
    /// never goes back.
    #[test]
    fn windows_wrap_around() {
        let mut session = session(u32::MAX - 1);
        assert_eq!(session.max_cmd_sn(4), 1);
        for (cmd_sn, is_in) in [
            (u32::MAX - 2, false),
            (u32::MAX - 1, true),
            (0, true),
            (1, true),
            (2, false),
        ] {
            assert_eq!(session.is_in_window(cmd_sn, 4), is_in, "{cmd_sn}");
        }
        session.exp_cmd_sn = 0;
        session.counted = 2;
        assert_eq!(session.max_cmd_sn(4), 1, "taken, and not answered");
        session.counted = 4;
        session.exp_cmd_sn = 2;
        assert!(!session.is_in_window(2, 4));
        assert_eq!(session.max_cmd_sn(4), 1);
    }

    /// Goal: what happens is told once; a reset is told in place of what was before it.
    #[test]
    fn attentions_are_told_once() {
        let mut session = session(1);
        session.attend(AdditionalSense::CAPACITY_CHANGED);
        session.attend(AdditionalSense::CAPACITY_CHANGED);
        assert_eq!(session.attentions.len(), 2);
        session.attend(AdditionalSense::DEVICE_RESET);
        assert_eq!(session.attentions, [AdditionalSense::DEVICE_RESET]);
    }
}
