//! What the registry holds, and the changes that can be made to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crossdock_names::{
    Epoch, FileId, FileRef, LayoutClass, NodeId, ReplicaSet, RoutingTable, SITES, SLOTS, SetId,
    SiteId, SiteRecord, Spread, VolumeId,
};
use crossdock_peer::{ExportRules, Lun, Reservations};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addresses::{AddressRecord, VirtualAddress};
use crate::daily::DailyWindow;
use crate::defrag::{DefragOrderRecord, DefragResult};
use crate::gateways::GatewayRecord;
use crate::homes::Placement;
use crate::hosts::HostRecord;
use crate::policy::PolicyRecord;
use crate::trust::{TOKENS_MAX, TokenRecord, TrustRecord};

/// A storage node of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its id.
    pub id: u64,
    /// Its place in the all-in-one: `node stop N` means this number.
    pub number: u32,
    /// Whether it was stopped by an administrator.
    pub stopped: bool,
    /// Whether a process has ever had it: from then on it needs the data that it
    /// had, as nobody else may have all of it.
    #[serde(default)]
    pub is_used: bool,
    /// Whether it is to hold nothing any more.
    #[serde(default)]
    pub is_draining: bool,
    /// When its disks are defragmented, every day, in an ensemble on many hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defrag: Option<DailyWindow>,
    /// What has come there of the last order to defragment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defrag_done: Option<DefragResult>,
}

impl NodeRecord {
    /// A place that nobody has had.
    pub(crate) const fn new(id: u64, number: u32) -> Self {
        Self {
            id,
            number,
            stopped: false,
            is_used: false,
            is_draining: false,
            defrag: None,
            defrag_done: None,
        }
    }
}

/// Members of a replica set, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRecord {
    /// Raised with every change of the members and every restart of the primary.
    pub epoch: u64,
    /// Who is in the set now; the first one orders.
    pub members: Vec<u64>,
    /// Who belongs to it when all are well; a member that left comes back when
    /// it has caught up. Members that are not among them leave it when these are.
    pub home: Vec<u64>,
    /// What was written under this epoch and later may not be on all of `home`.
    pub differs_since: u64,
    /// How often `home` was changed.
    #[serde(default)]
    pub moves: u64,
}

/// An export of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportRecord {
    /// Its number, part of every handle given out through it; never used again.
    pub id: u32,
    /// What clients mount: where the directory was when it was exported.
    pub path: String,
    /// The directory, wherever it is now.
    #[serde(default)]
    pub root: DirectoryRecord,
    /// Who may do what.
    #[serde(flatten)]
    pub rules: ExportRules,
}

/// A directory of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryRecord {
    /// Its number.
    pub file: u64,
    /// Which of the files that had this number.
    pub generation: u32,
}

impl Default for DirectoryRecord {
    /// The volume's root.
    fn default() -> Self {
        FileRef::root_of(SiteId(0)).into()
    }
}

impl From<FileRef> for DirectoryRecord {
    fn from(file: FileRef) -> Self {
        Self {
            file: file.id.0,
            generation: file.generation,
        }
    }
}

impl From<DirectoryRecord> for FileRef {
    fn from(record: DirectoryRecord) -> Self {
        Self {
            id: FileId(record.file),
            generation: record.generation,
        }
    }
}

/// Everything the registry holds about one ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The ensemble's random number.
    pub ensemble: u64,
    /// The volume's random number.
    pub volume: u64,
    /// Raised with every change that routing depends on.
    pub table_epoch: u64,
    /// Nodes by number.
    pub nodes: Vec<NodeRecord>,
    /// Replica sets by id.
    pub sets: BTreeMap<u32, SetRecord>,
    /// Sets for data, in order: slot s lists them beginning with entry s mod length,
    /// as many as a file's segment has columns.
    pub data_sets: Vec<u32>,
    /// How many of them a slot lists; 0 stands for all.
    #[serde(default)]
    pub columns: u32,
    /// Per site its epoch and set.
    pub sites: Vec<(u64, u32)>,
    /// Sites that have been opened before: one of these without a log is an
    /// error, any other one is new.
    pub opened_sites: BTreeSet<u16>,
    /// Exports.
    pub exports: Vec<ExportRecord>,
    /// No export has ever had this number or a larger one, unless one of
    /// `exports` has.
    #[serde(default)]
    pub next_export: u32,
    /// Copies of data.
    pub replicas: u32,
    /// Copies of site logs and small files.
    pub site_replicas: u32,
    /// What belonged to a node of an ensemble that is away for longer goes to others.
    #[serde(default = "replace_after")]
    pub replace_after_seconds: u64,
    /// Where new directories go, for good.
    #[serde(default)]
    pub spread: Spread,
    /// How the bytes of new files are spread, for good.
    #[serde(default)]
    pub layout: LayoutClass,
    /// The processes of an ensemble on many hosts; nothing where all is one.
    #[serde(default)]
    pub hosts: BTreeMap<u64, HostRecord>,
    /// Which of them serves each site.
    #[serde(default)]
    pub owners: BTreeMap<u16, u64>,
    /// Gateways by name, those that have stopped too.
    #[serde(default)]
    pub gateways: BTreeMap<String, GatewayRecord>,
    /// Addresses of clients' doors that gateways have in turn.
    #[serde(default)]
    pub addresses: Vec<AddressRecord>,
    /// Whom they believe, if they talk over TLS.
    #[serde(default)]
    pub trust: Option<TrustRecord>,
    /// Which way bytes go to clients, in the order in which it was said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<PolicyRecord>,
    /// Bearer tokens of the HTTP door; their secrets are not here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub web_tokens: Vec<crossdock_web::TokenRecord>,
    /// LUNs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub luns: Vec<Lun>,
    /// The directory in which their files are, once there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun_directory: Option<DirectoryRecord>,
    /// How often somebody has changed a LUN's reservations.
    #[serde(default)]
    pub reservation_changes: u64,
    /// When the nodes' disks are defragmented, every day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defrag: Option<DailyWindow>,
    /// What the nodes of an ensemble on many hosts were last ordered to defragment at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defrag_order: Option<DefragOrderRecord>,
}

/// Somebody else was faster.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Conflict {
    /// The expected epoch is not the current one.
    #[error("{what} is at epoch {current}, not {expected}")]
    Epoch {
        /// Set or site.
        what: String,
        /// What the change named.
        expected: u64,
        /// What is.
        current: u64,
    },
    /// Another export has the path.
    #[error("{path} is exported already")]
    Exported {
        /// The path.
        path: String,
    },
    /// The export has other rules by now than the change had seen.
    #[error("the export {path} has been changed meanwhile")]
    Changed {
        /// Its path.
        path: String,
    },
    /// That process has been declared dead; it has to begin anew under another
    /// number.
    #[error("host {host:016x} has been replaced")]
    Replaced {
        /// Which.
        host: u64,
    },
    /// The state does not allow it.
    #[error("{why}")]
    Refused {
        /// Why, and what to do.
        why: String,
    },
    /// It is there already.
    #[error("{what} is there already")]
    Exists {
        /// Which.
        what: String,
    },
    /// There are as many as there may be.
    #[error("there are {what} already")]
    Full {
        /// How many of what.
        what: String,
    },
    /// The ensemble talks in the clear.
    #[error("the ensemble was made without TLS: there are no tokens")]
    NoTrust,
    /// No room for another token.
    #[error("there are {TOKENS_MAX} tokens already, or one of that number; revoke some")]
    Tokens,
    /// Another bearer token is called so.
    #[error("there is a token {name} already")]
    TokenName {
        /// The name.
        name: String,
    },
    /// No such set, site, node, export or address.
    #[error("there is no {what}")]
    Unknown {
        /// Which.
        what: String,
    },
}

/// A change to the registry; also its record in the registry's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Replaces everything: the first record of a log.
    Snapshot(Box<State>),
    /// New members of a set, with epoch + 1.
    SetMembers {
        /// The set.
        set: u32,
        /// Epoch that was seen.
        expected: u64,
        /// Members in order.
        members: Vec<u64>,
    },
    /// All of the set's `home` are equal and members, with epoch + 1.
    SetEqual {
        /// The set.
        set: u32,
        /// Epoch that was seen.
        expected: u64,
        /// Which homes were meant: how often they had been changed.
        #[serde(default)]
        moves: u64,
    },
    /// A new owner of a site: epoch + 1.
    RaiseSite {
        /// The site.
        site: u16,
        /// Epoch that was seen.
        expected: u64,
    },
    /// A manager gives sites to another one: epoch + 1 for each that it has as it was seen.
    MoveSites {
        /// Each with the epoch that was seen.
        sites: Vec<(u16, u64)>,
        /// The process that gets them.
        to: u64,
    },
    /// A manager is to give all its sites to others, and to end.
    Retire {
        /// Its number.
        host: u64,
    },
    /// A site has made its log. Before that it answers nobody.
    SiteOpened {
        /// The site.
        site: u16,
        /// Under which epoch: under another one it may have been made elsewhere.
        #[serde(default)]
        expected: Option<u64>,
    },
    /// All parts of the process restarted: epoch + 1 for every set and site.
    RaiseAll,
    /// A node is stopped or started by an administrator.
    NodeStopped {
        /// Its number.
        number: u32,
        /// Which.
        stopped: bool,
    },
    /// A process has started, and takes what its nodes' earlier processes had.
    Join {
        /// Its number.
        host: u64,
        /// What it is.
        record: HostRecord,
    },
    /// A process has ended, or is believed to: from now on nothing that it writes
    /// counts, and others take over what it served.
    Leave {
        /// Its number.
        host: u64,
    },
    /// Nodes come, go, and get other homes.
    Place(Placement),
    /// A directory is exported, under a number that the state gives it.
    AddExport {
        /// What clients mount.
        path: String,
        /// The directory.
        root: DirectoryRecord,
        /// Who may do what.
        rules: ExportRules,
    },
    /// An export has other rules.
    SetExport {
        /// Its number.
        id: u32,
        /// The rules that were seen; earlier versions did not say.
        #[serde(default)]
        expected: Option<ExportRules>,
        /// Who may do what from now on.
        rules: ExportRules,
    },
    /// A directory is exported no more.
    RemoveExport {
        /// The export's number.
        id: u32,
    },
    /// Gateways have one more address in turn.
    AddAddress {
        /// Which.
        address: VirtualAddress,
    },
    /// They have it no more.
    RemoveAddress {
        /// Which.
        address: IpAddr,
    },
    /// A gateway that is to give an address up has done so.
    ReleaseAddress {
        /// Which.
        address: IpAddr,
        /// The gateway.
        host: u64,
    },
    /// A gateway that is about to end has given up its addresses, and takes no more.
    RetireGateway {
        /// Which.
        host: u64,
    },
    /// Nodes and managers refuse the gateway of that name.
    RevokeGateway {
        /// Which.
        name: String,
    },
    /// They refuse it no more.
    RestoreGateway {
        /// Which.
        name: String,
    },
    /// A gateway is scoped to exports, from now on.
    ScopeGateway {
        /// Which.
        name: String,
        /// By number; `None`: to all.
        exports: Option<BTreeSet<u32>>,
    },
    /// Processes that have this token are given a certificate.
    AddToken {
        /// Its number.
        id: u32,
        /// What it allows.
        record: TokenRecord,
    },
    /// No more.
    RemoveToken {
        /// The token's number.
        id: u32,
    },
    /// One more rule of the policy, in place of one of the same place and conditions.
    SetPolicy {
        /// Which; its number is kept if no other rule has it.
        record: PolicyRecord,
    },
    /// A rule of the policy does not count any more.
    RemovePolicy {
        /// Its number.
        id: u32,
    },
    /// Whoever shows this bearer token may do something over HTTP.
    AddWebToken {
        /// What.
        record: crossdock_web::TokenRecord,
    },
    /// No more.
    RemoveWebToken {
        /// The token's number.
        id: u32,
    },
    /// Initiators have one more LUN.
    AddLun {
        /// Which.
        record: Lun,
        /// Where the files of all LUNs are.
        directory: DirectoryRecord,
    },
    /// A LUN has another size, or other rules.
    SetLun {
        /// As it was seen.
        expected: Box<Lun>,
        /// As it is from now on.
        wanted: Box<Lun>,
    },
    /// They have it no more.
    RemoveLun {
        /// Its number.
        id: u64,
    },
    /// Other initiators have reserved it.
    SetReservations {
        /// Its number.
        id: u64,
        /// As it was seen.
        expected: Box<Reservations>,
        /// As it is from now on.
        wanted: Box<Reservations>,
    },
    /// A gateway obeys reservations as they were after so many changes, and nothing of those who
    /// have lost their right by them is written through it any more.
    ObeyReservations {
        /// The gateway's process.
        host: u64,
        /// How many changes.
        changes: u64,
    },
    /// The nodes' disks are defragmented at another time, or only when it is said.
    SetDefrag {
        /// When, every day.
        window: Option<DailyWindow>,
    },
    /// One node's are.
    SetNodeDefrag {
        /// Its id.
        node: u64,
        /// When, every day.
        window: Option<DailyWindow>,
    },
    /// The nodes that are there are to put together at once what they have.
    OrderDefrag {
        /// One more than that of the last order that was seen.
        number: u64,
        /// Of this file; `None`: everything.
        file: Option<u64>,
        /// What its path is.
        path: Option<String>,
    },
    /// They are not to go on with that.
    StopDefrag {
        /// Number of the order.
        number: u64,
    },
    /// An order is over at a node.
    EndDefrag {
        /// The node's id.
        node: u64,
        /// What came of it.
        result: DefragResult,
    },
}

impl State {
    /// The state of a fresh all-in-one ensemble of `nodes` nodes.
    ///
    /// Data sets are chains: set k holds node k and the `replicas` − 1 after it,
    /// so every node is primary once. Site sets likewise, numbered from 1,000.
    ///
    /// # Panics
    /// If there are no nodes, or fewer than replicas.
    #[must_use]
    pub fn fresh(
        ensemble: u64,
        volume: u64,
        nodes: &[u64],
        replicas: u32,
        site_replicas: u32,
    ) -> Self {
        let chain = |first: usize, length: u32| -> Vec<u64> {
            (0..length as usize)
                .map(|step| nodes[(first + step) % nodes.len()])
                .collect()
        };
        assert!(
            nodes.len() >= replicas.max(site_replicas) as usize && replicas > 0,
            "{} nodes cannot hold {replicas} copies",
            nodes.len()
        );
        let mut sets = BTreeMap::new();
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        for number in 0..count {
            for (id, length) in [(number, replicas), (SITE_SETS + number, site_replicas)] {
                sets.insert(id, SetRecord::whole(chain(number as usize, length)));
            }
        }
        Self {
            ensemble,
            volume,
            table_epoch: 1,
            nodes: (0..count)
                .map(|number| NodeRecord::new(nodes[number as usize], number))
                .collect(),
            sets,
            data_sets: (0..count).collect(),
            columns: 0,
            sites: (0..SITES)
                .map(|site| (0, SITE_SETS + u32::try_from(site).unwrap_or(0) % count))
                .collect(),
            opened_sites: BTreeSet::new(),
            exports: vec![ExportRecord {
                id: 1,
                path: "/".to_owned(),
                root: DirectoryRecord::default(),
                rules: ExportRules::local(),
            }],
            next_export: 2,
            replicas,
            site_replicas,
            replace_after_seconds: replace_after(),
            spread: Spread::default(),
            layout: LayoutClass::default(),
            hosts: BTreeMap::new(),
            owners: BTreeMap::new(),
            gateways: BTreeMap::new(),
            addresses: Vec::new(),
            trust: None,
            policy: Vec::new(),
            web_tokens: Vec::new(),
            luns: Vec::new(),
            lun_directory: None,
            reservation_changes: 0,
            defrag: None,
            defrag_order: None,
        }
    }

    /// Makes the change, or leaves everything as it is.
    ///
    /// # Errors
    /// [`Conflict`]: the change had seen something older.
    pub fn apply(&mut self, change: Change) -> Result<(), Conflict> {
        match change {
            Change::Snapshot(state) => *self = *state,
            Change::SetMembers {
                set,
                expected,
                members,
            } => {
                let record = self.sets.get_mut(&set).ok_or_else(|| unknown("set", set))?;
                check_epoch("set", set, expected, record.epoch)?;
                record.epoch += 1;
                record.members = members;
            }
            Change::SetEqual {
                set,
                expected,
                moves,
            } => {
                let record = self.sets.get_mut(&set).ok_or_else(|| unknown("set", set))?;
                check_epoch("set", set, expected, record.epoch)?;
                check_epoch("home of set", set, moves, record.moves)?;
                record.epoch += 1;
                record.members = record.home.clone();
                record.differs_since = record.epoch;
            }
            Change::RaiseSite { site, expected } => {
                let record = self
                    .sites
                    .get_mut(usize::from(site))
                    .ok_or_else(|| unknown("site", u32::from(site)))?;
                check_epoch("site", u32::from(site), expected, record.0)?;
                record.0 += 1;
            }
            Change::MoveSites { sites, to } => self.move_sites(&sites, to)?,
            Change::Retire { host } => self.retire(host)?,
            Change::SiteOpened { site, expected } => {
                let record = self.sites.get(usize::from(site));
                let (epoch, _) = *record.ok_or_else(|| unknown("site", u32::from(site)))?;
                check_epoch("site", u32::from(site), expected.unwrap_or(epoch), epoch)?;
                self.opened_sites.insert(site);
            }
            Change::RaiseAll => {
                self.sets.values_mut().for_each(|set| set.epoch += 1);
                self.sites.iter_mut().for_each(|site| site.0 += 1);
                self.forget_reservations();
            }
            Change::NodeStopped { number, stopped } => {
                let node = self
                    .nodes
                    .iter_mut()
                    .find(|node| node.number == number)
                    .ok_or_else(|| unknown("node", number))?;
                node.stopped = stopped;
            }
            Change::Join { host, record } => self.join(host, record)?,
            Change::Leave { host } => self.leave(host)?,
            Change::RevokeGateway { name } => self.revoke_gateway(&name, true)?,
            Change::RestoreGateway { name } => self.revoke_gateway(&name, false)?,
            Change::ScopeGateway { name, exports } => self.scope_gateway(&name, exports)?,
            Change::Place(placement) => self.place(placement)?,
            // Routing does not depend on exports, policy, tokens and LUNs.
            Change::AddExport { path, root, rules } => return self.add_export(path, root, rules),
            Change::SetExport {
                id,
                expected,
                rules,
            } => {
                let export = self.exports.iter_mut().find(|export| export.id == id);
                let export = export.ok_or_else(|| unknown("export", id))?;
                if expected.is_some_and(|expected| expected != export.rules) {
                    let path = export.path.clone();
                    return Err(Conflict::Changed { path });
                }
                export.rules = rules;
                return Ok(());
            }
            Change::RemoveExport { id } => {
                let at = self.exports.iter().position(|export| export.id == id);
                self.exports
                    .remove(at.ok_or_else(|| unknown("export", id))?);
                return Ok(());
            }
            // Nor on where clients connect.
            Change::AddAddress { address } => return self.add_address(address),
            Change::RemoveAddress { address } => return self.remove_address(address),
            Change::ReleaseAddress { address, host } => {
                return self.release_address(address, host);
            }
            Change::RetireGateway { host } => return self.retire_gateway(host),
            Change::AddToken { id, record } => return self.add_token(id, record),
            Change::RemoveToken { id } => return self.remove_token(id),
            Change::SetPolicy { record } => return self.set_policy(record),
            Change::RemovePolicy { id } => return self.remove_policy(id),
            Change::AddWebToken { record } => return self.add_web_token(record),
            Change::RemoveWebToken { id } => return self.remove_web_token(id),
            Change::AddLun { record, directory } => return self.add_lun(record, directory),
            Change::SetLun { expected, wanted } => return self.set_lun(&expected, *wanted),
            Change::RemoveLun { id } => return self.remove_lun(id),
            Change::SetReservations {
                id,
                expected,
                wanted,
            } => return self.set_reservations(id, &expected, *wanted),
            Change::ObeyReservations { host, changes } => {
                return self.obey_reservations(host, changes);
            }
            Change::SetDefrag { window } => return self.schedule_defrag(None, window),
            Change::SetNodeDefrag { node, window } => {
                return self.schedule_defrag(Some(node), window);
            }
            Change::OrderDefrag { number, file, path } => {
                return self.order_defrag(number, file, path);
            }
            Change::StopDefrag { number } => return self.stop_defrag(number),
            Change::EndDefrag { node, result } => return self.end_defrag(node, result),
        }
        self.table_epoch += 1;
        Ok(())
    }

    fn add_export(
        &mut self,
        path: String,
        root: DirectoryRecord,
        rules: ExportRules,
    ) -> Result<(), Conflict> {
        if self.exports.iter().any(|export| export.path == path) {
            return Err(Conflict::Exported { path });
        }
        let used = self
            .exports
            .iter()
            .map(|export| export.id.saturating_add(1))
            .max();
        let id = self.next_export.max(used.unwrap_or(1));
        self.next_export = id.saturating_add(1);
        self.exports.push(ExportRecord {
            id,
            path,
            root,
            rules,
        });
        Ok(())
    }

    /// The routing table that follows from the state.
    #[must_use]
    pub fn table(&self) -> RoutingTable {
        let rotated = |slot: usize| -> Vec<SetId> {
            let first = slot % self.data_sets.len();
            let (before, from) = self.data_sets.split_at(first);
            let listed = match self.columns {
                0 => self.data_sets.len(),
                columns => columns as usize,
            };
            let rotated = from.iter().chain(before).take(listed);
            rotated.map(|&id| SetId(id)).collect()
        };
        RoutingTable {
            epoch: Epoch(self.table_epoch),
            sets: self
                .sets
                .iter()
                .map(|(&id, set)| {
                    let members = set.members.iter().map(|&node| NodeId(node)).collect();
                    (
                        SetId(id),
                        ReplicaSet {
                            epoch: Epoch(set.epoch),
                            members,
                        },
                    )
                })
                .collect(),
            slots: (0..SLOTS).map(rotated).collect(),
            sites: self
                .sites
                .iter()
                .map(|&(epoch, set)| SiteRecord {
                    epoch: Epoch(epoch),
                    set: SetId(set),
                })
                .collect(),
            spread: self.spread,
            layout: self.layout,
            hosts: self.host_table(),
        }
    }

    /// The volume's id.
    #[must_use]
    pub const fn volume_id(&self) -> VolumeId {
        VolumeId(self.volume)
    }

    /// The epoch of `site`.
    #[must_use]
    pub fn site_epoch(&self, site: SiteId) -> Epoch {
        Epoch(
            self.sites
                .get(usize::from(site.0))
                .map_or(0, |record| record.0),
        )
    }
}

/// Ids of the sets that hold site objects begin here.
pub const SITE_SETS: u32 = 1000;

/// Longer than machines take to start again, and than most people to plug them in.
const fn replace_after() -> u64 {
    15 * 60
}

fn unknown(what: &str, number: u32) -> Conflict {
    Conflict::Unknown {
        what: format!("{what} {number}"),
    }
}

fn check_epoch(what: &str, number: u32, expected: u64, current: u64) -> Result<(), Conflict> {
    if expected == current {
        return Ok(());
    }
    Err(Conflict::Epoch {
        what: format!("{what} {number}"),
        expected,
        current,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of two changes that saw the same epoch, the second one loses.
    #[test]
    fn second_of_two_swaps_loses() {
        let mut state = State::fresh(1, 2, &[10, 11, 12], 2, 1);
        let first = Change::SetMembers {
            set: 0,
            expected: 1,
            members: vec![10],
        };
        let second = Change::SetMembers {
            set: 0,
            expected: 1,
            members: vec![11],
        };
        assert_eq!(state.apply(first), Ok(()));
        assert!(matches!(
            state.apply(second),
            Err(Conflict::Epoch { current: 2, .. })
        ));
        assert_eq!(state.sets[&0].members, [10]);
    }

    /// Goal: an export's number is never given to another one, and a path is
    /// exported once.
    #[test]
    fn export_numbers_are_never_used_again() {
        let mut state = State::fresh(1, 2, &[10], 1, 1);
        let epoch = state.table_epoch;
        let add = |path: &str| Change::AddExport {
            path: path.to_owned(),
            root: DirectoryRecord::default(),
            rules: ExportRules::local(),
        };
        assert_eq!(state.apply(add("/a")), Ok(()));
        assert!(matches!(
            state.apply(add("/a")),
            Err(Conflict::Exported { .. })
        ));
        assert_eq!(state.apply(Change::RemoveExport { id: 2 }), Ok(()));
        let again = state.apply(Change::RemoveExport { id: 2 });
        assert!(matches!(again, Err(Conflict::Unknown { .. })));
        assert_eq!(state.apply(add("/a")), Ok(()));
        let mut rules = ExportRules::local();
        rules.read_only = true;
        let set = Change::SetExport {
            id: 3,
            expected: Some(ExportRules::local()),
            rules,
        };
        assert_eq!(state.apply(set.clone()), Ok(()));
        let again = state.apply(set);
        assert!(matches!(again, Err(Conflict::Changed { .. })));
        let ids: Vec<_> = state.exports.iter().map(|export| export.id).collect();
        assert_eq!((ids, state.exports[1].rules.read_only), (vec![1, 3], true));
        assert_eq!(state.table_epoch, epoch);
    }

    /// Goal: what earlier versions wrote about exports is still understood.
    #[test]
    fn older_records_of_exports_are_read() {
        let old = r#"{"id":1,"path":"/","networks":["127.0.0.0/8","::1/128"],
            "read_only":false,"squash":"None"}"#;
        let record: ExportRecord = serde_json::from_str(old).expect("a record");
        let fresh = State::fresh(1, 2, &[10], 1, 1);
        assert_eq!(record, fresh.exports[0]);
        let squashed = old.replace(r#""None""#, r#"{"Root":{"uid":7,"gid":8}}"#);
        let record: ExportRecord = serde_json::from_str(&squashed).expect("a record");
        let squash = crossdock_peer::Squash::Root { uid: 7, gid: 8 };
        assert_eq!(record.rules.squash, squash);
        let rules = serde_json::to_string(&record.rules).expect("JSON");
        let old = format!(r#"{{"SetExport":{{"id":1,"rules":{rules}}}}}"#);
        let change: Change = serde_json::from_str(&old).expect("a change");
        let id = 1;
        let (expected, rules) = (None, record.rules.clone());
        let set = Change::SetExport {
            id,
            expected,
            rules,
        };
        assert_eq!(change, set);
        let written = serde_json::to_string(&record).expect("JSON");
        assert_eq!(
            serde_json::from_str::<ExportRecord>(&written).expect("a record"),
            record
        );
    }

    /// Goal: every node is primary of one data set, and a slot lists each set once.
    #[test]
    fn load_is_even_over_nodes() {
        let table = State::fresh(1, 2, &[10, 11, 12, 13], 2, 2).table();
        let primaries: Vec<u64> = (0..4)
            .filter_map(|set| table.set(SetId(set)))
            .map(|set| set.members[0].0)
            .collect();
        assert_eq!(primaries, [10, 11, 12, 13]);
        assert_eq!(table.slots[5], [SetId(1), SetId(2), SetId(3), SetId(0)]);
        assert_eq!(table.sites.len(), SITES);
    }
}
