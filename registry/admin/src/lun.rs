//! LUNs as the admin API tells and takes them. Secrets come in, and never go out.

use crossdock_peer::{InitiatorRule, Lun, LunAccess, Network};
use serde::{Deserialize, Serialize};

/// A LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunStatus {
    /// What it is called.
    pub name: String,
    /// The name of its target; the LUN has number 0 there.
    pub target: String,
    /// How many bytes it has.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Whether blocks get space only when they are written.
    pub thin: bool,
    /// Whether initiators may take its medium out.
    #[serde(default)]
    pub removable: bool,
    /// Whether writes may be answered before they are durable.
    #[serde(default)]
    pub write_cache: bool,
    /// Its file, from the volume's root on.
    pub file: String,
    /// Networks from which initiators may come.
    pub clients: Vec<Network>,
    /// Which initiators; without any: all.
    pub initiators: Vec<InitiatorStatus>,
    /// Initiators that are registered for persistent reservations.
    pub registrants: Vec<String>,
    /// Who holds the reservation, and its type.
    pub reservation: Option<(String, u8)>,
}

/// What an initiator may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitiatorStatus {
    /// Its name.
    pub name: String,
    /// Whether it may only read.
    pub read_only: bool,
    /// As which user it proves itself by CHAP.
    pub chap: Option<String>,
    /// As which user the target proves itself to it.
    pub mutual: Option<String>,
}

impl From<&Lun> for LunStatus {
    fn from(lun: &Lun) -> Self {
        let initiator = |rule: &InitiatorRule| InitiatorStatus {
            name: rule.name.clone(),
            read_only: rule.is_read_only,
            chap: rule.chap.as_ref().map(|chap| chap.user.clone()),
            mutual: rule.mutual.as_ref().map(|chap| chap.user.clone()),
        };
        let held = lun.reservations.held.as_ref();
        let registrants = lun.reservations.registrants.iter();
        Self {
            name: lun.name.clone(),
            target: lun.target(),
            size_bytes: lun.size_bytes,
            block_bytes: lun.block_bytes,
            thin: lun.is_thin,
            removable: lun.is_removable,
            write_cache: lun.has_write_cache,
            file: format!("/.luns/{}", lun.name),
            clients: lun.access.networks.clone(),
            initiators: lun.access.initiators.iter().map(initiator).collect(),
            registrants: registrants
                .map(|registrant| registrant.nexus.initiator.clone())
                .collect(),
            reservation: held.map(|held| (held.holder.initiator.clone(), held.kind)),
        }
    }
}

/// A LUN that is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LunCreation {
    /// What it is to be called.
    pub name: String,
    /// How many bytes it is to have.
    pub size_bytes: u64,
    /// Bytes of a block: 512 or 4096.
    #[serde(default = "block_bytes")]
    pub block_bytes: u32,
    /// Whether blocks get space only when they are written.
    #[serde(default = "is_thin")]
    pub thin: bool,
    /// Whether initiators may take its medium out.
    #[serde(default)]
    pub removable: bool,
    /// Whether writes may be answered before they are durable.
    #[serde(default)]
    pub write_cache: bool,
    /// A file of the volume whose bytes it begins with.
    #[serde(default)]
    pub from: Option<String>,
    /// Who may use it; without: all initiators of this machine.
    #[serde(default = "LunAccess::local")]
    pub access: LunAccess,
}

const fn block_bytes() -> u32 {
    512
}

const fn is_thin() -> bool {
    true
}

/// What is to be different of a LUN; what is not said stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LunChange {
    /// How many bytes it is to have: not fewer than it has. Alone: a change of rules is
    /// another one.
    pub size_bytes: Option<u64>,
    /// Networks from which initiators may come, too.
    pub allow_clients: Vec<Network>,
    /// Networks from which they may not any more.
    pub deny_clients: Vec<Network>,
    /// Initiators that may use it, too, or otherwise.
    pub allow: Vec<InitiatorRule>,
    /// Initiators that may not any more.
    pub deny: Vec<String>,
}

impl LunChange {
    /// The rules as they are then.
    #[must_use]
    pub fn apply(&self, access: &LunAccess) -> LunAccess {
        let mut next = access.clone();
        next.networks
            .retain(|network| !self.deny_clients.contains(network));
        for network in &self.allow_clients {
            if !next.networks.contains(network) {
                next.networks.push(*network);
            }
        }
        let is_said = |rule: &InitiatorRule| {
            self.deny.contains(&rule.name) || self.allow.iter().any(|it| it.name == rule.name)
        };
        next.initiators.retain(|rule| !is_said(rule));
        next.initiators.extend(self.allow.iter().cloned());
        next
    }
}

#[cfg(test)]
mod tests {
    use crossdock_peer::{ChapSecret, ChapUser};

    use super::*;

    /// Goal: what is said is added or taken away, the rest stays; what is shown has no secret.
    #[test]
    fn changes_are_merged() {
        let user = ChapUser {
            user: "u".to_owned(),
            secret: ChapSecret("a-long-secret-it-is".to_owned()),
        };
        let proved = InitiatorRule {
            chap: Some(user),
            ..InitiatorRule::open("iqn.a")
        };
        let access = LunAccess {
            initiators: vec![proved.clone(), InitiatorRule::open("iqn.b")],
            ..LunAccess::local()
        };
        let change = LunChange {
            allow_clients: vec![Network::EVERYBODY],
            deny_clients: vec!["::1".parse().expect("a network")],
            allow: vec![InitiatorRule::open("iqn.c")],
            deny: vec!["iqn.b".to_owned()],
            ..LunChange::default()
        };
        let next = change.apply(&access);
        assert_eq!(next.networks.len(), 2);
        assert_eq!(next.initiators, [proved, InitiatorRule::open("iqn.c")]);
        let text = r#"{"name": "a", "size_bytes": 4096, "block": 512}"#;
        assert!(serde_json::from_str::<LunCreation>(text).is_err());
    }
}
