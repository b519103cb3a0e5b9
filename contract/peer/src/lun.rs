//! LUNs: files of the volume that initiators of iSCSI have as disks, who may, and who has
//! reserved them; as the registry keeps them, the admin API tells them and gateways serve them.

use std::fmt;
use std::net::IpAddr;

use crossdock_names::FileRef;
use serde::{Deserialize, Serialize};

use crate::Network;

/// What names of all targets begin with.
pub const TARGET_PREFIX: &str = "iqn.2026-11.io.crossdock:";

/// A LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lun {
    /// Its number among all of the world: random.
    pub id: u64,
    /// What it is called; its target is `iqn.2026-11.io.crossdock:NAME`.
    pub name: String,
    /// The file that holds its bytes.
    pub file: FileRef,
    /// How many it has.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Whether blocks have space only when they have been written.
    pub is_thin: bool,
    /// Whether initiators may take its medium out, and put it in again.
    #[serde(default)]
    pub is_removable: bool,
    /// Whether writes may be answered before they are durable, where one gateway alone has it.
    #[serde(default)]
    pub has_write_cache: bool,
    /// Who may use it.
    pub access: LunAccess,
    /// Who has reserved it.
    #[serde(default)]
    pub reservations: Reservations,
}

impl Lun {
    /// The name of its target.
    #[must_use]
    pub fn target(&self) -> String {
        format!("{TARGET_PREFIX}{}", self.name)
    }
}

/// Who may use a LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunAccess {
    /// Networks from which initiators may come.
    pub networks: Vec<Network>,
    /// Which initiators; without any: all.
    #[serde(default)]
    pub initiators: Vec<InitiatorRule>,
}

impl LunAccess {
    /// For all initiators of this machine.
    #[must_use]
    pub fn local() -> Self {
        Self {
            networks: Network::loopback(),
            initiators: Vec::new(),
        }
    }

    /// What an initiator that comes from there may do; `None`: nothing.
    #[must_use]
    pub fn rule(&self, initiator: &str, from: IpAddr) -> Option<InitiatorRule> {
        if !self.networks.iter().any(|network| network.contains(from)) {
            return None;
        }
        if self.initiators.is_empty() {
            return Some(InitiatorRule::open(initiator));
        }
        // Names are compared as they are written: both sides write them in lower case
        // (RFC 7143 section 4.2.7.2).
        let mut rules = self.initiators.iter();
        rules.find(|rule| rule.name == initiator).cloned()
    }
}

/// What one initiator may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitiatorRule {
    /// Its name.
    pub name: String,
    /// Whether it may only read.
    #[serde(default)]
    pub is_read_only: bool,
    /// By what it proves that it is who it says.
    #[serde(default)]
    pub chap: Option<ChapUser>,
    /// By what the target proves to it that it is the target.
    #[serde(default)]
    pub mutual: Option<ChapUser>,
}

impl InitiatorRule {
    /// It may do everything, and proves nothing.
    #[must_use]
    pub fn open(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            is_read_only: false,
            chap: None,
            mutual: None,
        }
    }
}

/// A name and a secret of CHAP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChapUser {
    /// The name.
    pub user: String,
    /// What only both sides know.
    pub secret: ChapSecret,
}

/// A secret that is not shown: CHAP takes it as it is, a hash of it would not do.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChapSecret(pub String);

impl fmt::Debug for ChapSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// An initiator's session, as reservations know it (I_T nexus).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nexus {
    /// Name of the initiator.
    pub initiator: String,
    /// Its number of the session.
    pub isid: [u8; 6],
    /// The target's port: each gateway has one, and each virtual address.
    #[serde(default = "first_port")]
    pub port: u16,
}

/// The only one that there was in earlier versions.
const fn first_port() -> u16 {
    1
}

/// Persistent reservations of a LUN (SPC-4 section 5.13).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservations {
    /// Grows with every change of a registration.
    pub generation: u32,
    /// Who is registered.
    pub registrants: Vec<Registrant>,
    /// The reservation.
    pub held: Option<Reservation>,
    /// Whether all of this outlasts a restart (APTPL).
    pub is_lasting: bool,
    /// Who changed it last, and how: others are told that.
    pub last: Option<(Nexus, ReserveCause)>,
    /// How often the unit was reset: that is no reservation, but like one it is answered when all
    /// gateways obey it.
    #[serde(default)]
    pub resets: u64,
    /// How many of these have ended all sessions, too (TARGET COLD RESET).
    #[serde(default)]
    pub cold_resets: u64,
    /// How often the task set was cleared (CLEAR TASK SET), which is answered likewise.
    #[serde(default)]
    pub clears: u64,
}

impl Reservations {
    /// The key of who is registered.
    #[must_use]
    pub fn key_of(&self, nexus: &Nexus) -> Option<u64> {
        let mut registrants = self.registrants.iter();
        let found = registrants.find(|registrant| registrant.nexus == *nexus);
        found.map(|registrant| registrant.key)
    }
}

/// Who is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registrant {
    /// Who.
    pub nexus: Nexus,
    /// By which key.
    pub key: u64,
}

/// A reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Who holds it; one of a type that all registrants hold names who made it.
    pub holder: Nexus,
    /// Its type (SPC-4 table 38).
    pub kind: u8,
}

/// How reservations were changed, as far as others are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReserveCause {
    /// Somebody has registered, or is not registered any more, or has reserved.
    Registered,
    /// The reservation was given up.
    Released,
    /// All was ended.
    Cleared,
    /// Others were pushed out.
    Preempted,
    /// The unit was reset, or its task set was cleared: the counts tell which. (Another cause could
    /// not be read by earlier versions.)
    Reset,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: address and name both have to be allowed; a list of names admits only those.
    #[test]
    fn access_is_by_address_and_name() {
        let mut access = LunAccess::local();
        let (here, away) = ([127, 0, 0, 1].into(), [10, 0, 0, 1].into());
        assert_eq!(
            access.rule("iqn.a", here),
            Some(InitiatorRule::open("iqn.a"))
        );
        assert_eq!(access.rule("iqn.a", away), None);
        let rule = InitiatorRule {
            is_read_only: true,
            ..InitiatorRule::open("iqn.b")
        };
        access.initiators.push(rule.clone());
        assert_eq!(access.rule("iqn.a", here), None);
        assert_eq!(access.rule("iqn.b", here), Some(rule));
    }

    /// Goal: a record that an earlier version has written is read, with counts that it does not know
    /// at 0.
    #[test]
    fn earlier_records_are_read() {
        let kept = r#"{"generation":3,"registrants":[],"held":null,"is_lasting":true,"last":null}"#;
        let expected = Reservations {
            generation: 3,
            is_lasting: true,
            ..Reservations::default()
        };
        let known: Reservations = serde_json::from_str(kept).expect("an earlier one");
        assert_eq!(known, expected);
    }

    /// Goal: secrets are kept, and not shown.
    #[test]
    fn secrets_are_not_shown() {
        let user = ChapUser {
            user: "u".to_owned(),
            secret: ChapSecret("hidden-secret".to_owned()),
        };
        assert!(!format!("{user:?}").contains("hidden"));
        let kept = serde_json::to_string(&user).expect("JSON");
        assert_eq!(serde_json::from_str::<ChapUser>(&kept).expect("one"), user);
    }
}
