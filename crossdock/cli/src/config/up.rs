//! Configuration of `crossdock up`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use crossdock_sets::spec::{self, NodeDisksSpec};
use serde::{Deserialize, Serialize};

use super::depot::{DepotFlags, DepotSettings};
use super::groups::{
    DoorFlags, DoorSettings, LockFlags, NodeDoorFlags, NodeDoorSettings, ProcessFlags,
    ProcessSettings, StoreFlags, StoreSettings,
};
use super::http::{HttpFlags, HttpSettings};
use super::iscsi::{IscsiFlags, IscsiSettings};
use super::lbone::{LboneFlags, LboneSettings};
use super::values::{Names, Placement, loopback};
use super::{File, Group, usage};

/// Nodes of a new all-in-one.
pub(crate) const NODES_DEFAULT: u32 = 4;

/// Most nodes of an all-in-one, or of an ensemble.
const NODES_MAX: u32 = 64;

/// The flags of `crossdock up`; a key of the file has the flag's name with `_`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct UpFlags {
    /// Configuration file.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    pool: PoolFlags,
    #[command(flatten)]
    door: DoorFlags,
    #[command(flatten)]
    http: HttpFlags,
    #[command(flatten)]
    iscsi: IscsiFlags,
    #[command(flatten)]
    node_door: NodeDoorFlags,
    #[command(flatten)]
    depot: DepotFlags,
    #[command(flatten)]
    process: ProcessFlags,
    #[command(flatten)]
    locks: LockFlags,
    #[command(flatten)]
    lbone: LboneFlags,
    #[command(flatten)]
    disks: DiskFlags,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct PoolFlags {
    /// Number of storage nodes, fixed when the data directory is made [default: 4].
    #[arg(long, value_name = "N", env = "CROSSDOCK_NODES")]
    nodes: Option<u32>,
    /// Copies of data on different nodes, fixed when the data directory is made [default: 1].
    #[arg(long, value_name = "N", env = "CROSSDOCK_REPLICAS")]
    replicas: Option<u32>,
    /// How names lie over the sites, fixed when the data directory is made [default: switched].
    #[arg(long, value_name = "HOW", env = "CROSSDOCK_NAMES")]
    names: Option<Names>,
    /// Probability, 0 to 1, that a new directory lies at another site than its
    /// parent, fixed when the data directory is made [default: 0].
    #[arg(long, value_name = "P", env = "CROSSDOCK_SPREAD")]
    spread: Option<f64>,
    /// How large files lie over the nodes, fixed when the data directory is made [default: striped].
    #[arg(long, value_name = "HOW", env = "CROSSDOCK_PLACEMENT")]
    placement: Option<Placement>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct DiskFlags {
    /// Disks of the nodes: `[N=]stripe|mirror|parity|spare:PATH,PATH…`, several separated by
    /// `;`, N is a node of up, 0 if left away. Fixed when the data directory is made, but for
    /// further sets and spares [default: each node has a file in the data directory].
    #[arg(long, value_name = "SPEC", env = "CROSSDOCK_DISKS")]
    disks: Option<String>,
}

impl Group for PoolFlags {
    fn over(self, file: Self) -> Self {
        Self {
            nodes: self.nodes.or(file.nodes),
            replicas: self.replicas.or(file.replicas),
            names: self.names.or(file.names),
            spread: self.spread.or(file.spread),
            placement: self.placement.or(file.placement),
        }
    }
}

impl Group for DiskFlags {
    fn over(self, file: Self) -> Self {
        Self {
            disks: self.disks.or(file.disks),
        }
    }
}

/// What `crossdock up` runs with, all defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UpSettings {
    #[serde(flatten)]
    pub(crate) store: StoreSettings,
    /// `None`: what the data directory has; 4 for a new one.
    pub(crate) nodes: Option<u32>,
    /// `None`: what the data directory has; 1 for a new one.
    pub(crate) replicas: Option<u32>,
    /// `None`: what the data directory has; none for a new one.
    pub(crate) disks: Option<String>,
    /// `None`: what the data directory has; switched for a new one.
    pub(crate) names: Option<Names>,
    /// `None`: what the data directory has; 0 for a new one.
    pub(crate) spread: Option<f64>,
    /// `None`: what the data directory has; striped for a new one.
    pub(crate) placement: Option<Placement>,
    #[serde(flatten)]
    pub(crate) door: DoorSettings,
    #[serde(flatten)]
    pub(crate) http: HttpSettings,
    #[serde(flatten)]
    pub(crate) iscsi: IscsiSettings,
    #[serde(flatten)]
    pub(crate) node_door: NodeDoorSettings,
    #[serde(flatten)]
    pub(crate) depot: DepotSettings,
    #[serde(flatten)]
    pub(crate) lbone: LboneSettings,
    #[serde(flatten)]
    pub(crate) process: ProcessSettings,
    /// In seconds.
    pub(crate) grace: u64,
}

impl UpFlags {
    /// With what that file says only.
    pub(super) fn of_file(path: PathBuf) -> Self {
        Self {
            config: Some(path),
            ..Self::default()
        }
    }

    /// Reads the file, if one is named, and fills in defaults.
    pub(crate) fn settle(self) -> anyhow::Result<UpSettings> {
        let mut file = File::read(self.config.as_deref())?;
        let store = file.complete(self.store)?;
        let pool = file.complete(self.pool)?;
        let door = file.complete(self.door)?;
        let http = file.complete(self.http)?;
        let iscsi = file.complete(self.iscsi)?;
        let node_door = file.complete(self.node_door)?;
        let depot = file.complete(self.depot)?;
        let process = file.complete(self.process)?;
        let locks = file.complete(self.locks)?;
        let lbone = file.complete(self.lbone)?;
        let disks = file.complete(self.disks)?;
        file.finish()?;
        let nodes = disks.nodes(pool.nodes)?;
        check_pool(nodes, pool.replicas)?;
        check_spread(pool.names, pool.spread)?;
        Ok(UpSettings {
            store: store.settle(Some("crossdock-data"))?,
            nodes,
            replicas: pool.replicas,
            disks: disks.disks,
            names: pool.names,
            spread: pool.spread,
            placement: pool.placement,
            door: door.settle()?,
            http: http.settle(loopback(8080))?,
            iscsi: iscsi.settle(loopback(3260)),
            node_door: node_door.settle(loopback(0))?,
            depot: depot.settle(loopback(crossdock_ibp::PORT))?,
            lbone: lbone.settle(loopback(crossdock_lbone::PORT))?,
            process: process.settle()?,
            grace: locks.settle()?,
        })
    }
}

impl DiskFlags {
    /// The SPEC of the one node that there is.
    pub(super) fn of_one(self) -> anyhow::Result<Option<String>> {
        let Some(spec) = self.disks else {
            return Ok(None);
        };
        let node = spec::parse_node(&spec).map_err(|error| usage(format!("disks: {error}")))?;
        match node.sets.is_empty() {
            true => Err(usage("disks: spares alone hold nothing".to_owned())),
            false => Ok(Some(spec)),
        }
    }

    /// How many nodes there are, of which all or none must have sets.
    fn nodes(&self, said: Option<u32>) -> anyhow::Result<Option<u32>> {
        let Some(spec) = &self.disks else {
            return Ok(said);
        };
        let named = spec::parse(spec).map_err(|error| usage(format!("disks: {error}")))?;
        let count = u32::try_from(named.len())?;
        let is_each = (0..count).all(|node| named.contains_key(&node));
        if !is_each || said.is_some_and(|said| said != count) {
            return Err(usage(format!(
                "disks must name sets of each node, from 0 on, or of none: they name {count} of {}",
                said.unwrap_or_else(|| named.keys().last().map_or(0, |last| last + 1))
            )));
        }
        Ok(Some(count))
    }
}

impl UpSettings {
    /// The disks of each node, as far as they were said.
    pub(crate) fn node_disks(&self) -> BTreeMap<u32, NodeDisksSpec> {
        // It was checked before.
        let disks = self.disks.as_deref().map(spec::parse);
        disks.and_then(Result::ok).unwrap_or_default()
    }
}

/// Whether there can be so many nodes and copies; nothing for what was not said.
pub(crate) fn check_pool(nodes: Option<u32>, replicas: Option<u32>) -> anyhow::Result<()> {
    let is_said = nodes.is_some();
    let nodes = nodes.unwrap_or(NODES_DEFAULT);
    if nodes == 0 || nodes > NODES_MAX {
        return Err(usage(format!(
            "nodes must be 1 to {NODES_MAX}, not {nodes}"
        )));
    }
    if let Some(replicas) = replicas
        && (replicas == 0 || (is_said && replicas > nodes) || replicas > NODES_MAX)
    {
        return Err(usage(format!(
            "replicas must be 1 to the number of nodes ({nodes}), not {replicas}"
        )));
    }
    Ok(())
}

/// Whether that is a probability, and says something; nothing if none was said.
pub(crate) fn check_spread(names: Option<Names>, spread: Option<f64>) -> anyhow::Result<()> {
    match spread {
        Some(_) if names == Some(Names::Hashed) => Err(usage(
            "hashed names lie over all their sites, whatever --spread says; leave --spread away, or say --names switched".to_owned(),
        )),
        Some(spread) if !(0.0..=1.0).contains(&spread) => Err(usage(format!(
            "spread is a probability, 0 to 1, not {spread}"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::UsageError;
    use super::*;

    /// Goal: a system has as many nodes as sets are named for, and all of them have some.
    #[test]
    fn sets_are_of_all_nodes_or_of_none() {
        let settle = |spec: &str, nodes| {
            let flags = UpFlags {
                disks: DiskFlags {
                    disks: Some(spec.to_owned()),
                },
                pool: PoolFlags {
                    nodes,
                    ..PoolFlags::default()
                },
                ..UpFlags::default()
            };
            flags.settle()
        };
        let settings = settle("mirror:/a,/b;1=stripe:/c", None).expect("good");
        assert_eq!(settings.nodes, Some(2));
        assert_eq!(settings.node_disks()[&1].sets.len(), 1);
        for (spec, nodes) in [
            ("1=stripe:/c", None),
            ("stripe:/c", Some(2)),
            ("stripe:/c;2=stripe:/d", None),
            ("raid:/a", None),
        ] {
            let error = settle(spec, nodes).expect_err(spec);
            assert!(error.downcast_ref::<UsageError>().is_some(), "exit code 2");
        }
    }
}
