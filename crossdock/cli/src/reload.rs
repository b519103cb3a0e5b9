//! Reading the configuration file again while the process runs (SIGHUP, or
//! `systemctl reload`): it is checked as at the start, what can change changes, and what
//! needs a restart is named. A file that is refused changes nothing.

use std::path::Path;

use crossdock_host::Tuning;
use crossdock_net::Sender;
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::{error, info, warn};

use crate::config::{
    DepotSettings, DoorSettings, GatewayFlags, ManagerFlags, MemberSettings, NodeFlags, Part,
    ProcessSettings, StoreSettings, UpFlags, UpSettings, UsageError,
};
use crate::log::Filter;
use crate::memory;
use crate::shell::Order;

/// Keys that take effect at once; all others need a restart.
const LIVE: [&str; 15] = [
    "cache",
    "disk_depth",
    "ibp_allow",
    "ibp_connections",
    "ibp_copy_to",
    "ibp_duration",
    "ibp_password",
    "ibp_rate",
    "ibp_size",
    "ibp_space",
    "ibp_stable",
    "log",
    "rebuild_rate",
    "request_memory",
    "slow_ms",
];

/// What keys of depots begin with.
const DEPOT: &str = "ibp_";

/// The command line and the environment that a process was started with, over which its
/// file is read again: they still win over it.
pub(crate) enum Origin {
    /// crossdock up
    Up(Box<UpFlags>),
    /// crossdock node run
    Node(Box<NodeFlags>),
    /// crossdock manager run
    Manager(Box<ManagerFlags>),
    /// crossdock gateway run
    Gateway(Box<GatewayFlags>),
}

/// What the configuration means, as far as it is looked at again.
struct Settled {
    /// As `config check` shows them.
    keys: Map<String, Value>,
    process: ProcessSettings,
    store: Option<StoreSettings>,
    door: Option<DoorSettings>,
    depot: Option<DepotSettings>,
}

impl Origin {
    fn file(&self) -> Option<&Path> {
        match self {
            Self::Up(flags) => flags.config.as_deref(),
            Self::Node(flags) => flags.config.as_deref(),
            Self::Manager(flags) => flags.config.as_deref(),
            Self::Gateway(flags) => flags.config.as_deref(),
        }
    }

    fn settle(&self) -> anyhow::Result<Settled> {
        match self {
            Self::Up(flags) => Settled::of_up(UpFlags::clone(flags).settle()?),
            Self::Node(flags) => Settled::of_member(NodeFlags::clone(flags).settle()?),
            Self::Manager(flags) => Settled::of_member(ManagerFlags::clone(flags).settle()?),
            Self::Gateway(flags) => Settled::of_member(GatewayFlags::clone(flags).settle()?),
        }
    }
}

impl Settled {
    fn of_up(settings: UpSettings) -> anyhow::Result<Self> {
        Ok(Self {
            keys: keys(&settings, Some(&settings.depot))?,
            process: settings.process,
            store: Some(settings.store),
            door: Some(settings.door),
            depot: Some(settings.depot),
        })
    }

    fn of_member(settings: MemberSettings) -> anyhow::Result<Self> {
        let depot = match &settings.part {
            Part::Node { depot, .. } => Some(&**depot),
            Part::Gateway { .. } | Part::Manager { .. } => None,
        };
        let keys = keys(&settings, depot)?;
        let (store, door, depot) = match settings.part {
            Part::Node { store, depot, .. } => (Some(store), None, Some(*depot)),
            Part::Gateway { door, .. } => (None, Some(door), None),
            Part::Manager { .. } => (None, None, None),
        };
        Ok(Self {
            keys,
            process: settings.process,
            store,
            door,
            depot,
        })
    }

    /// What of it the running machines take; the cache is shared by that many nodes.
    fn tuning(&self, nodes: usize) -> anyhow::Result<Tuning> {
        let cache = self.store.as_ref().map(memory::cache_bytes).transpose()?;
        let door = self.door.as_ref();
        Ok(Tuning {
            slow_after: Some(self.process.slow_after()),
            request_bytes: door.map(memory::request_bytes).transpose()?,
            cache_bytes: cache.map(|bytes| bytes / nodes.max(1)),
            disk_depth: self.store.as_ref().map(|store| store.disk_depth),
            rebuild_bytes_per_second: self.store.as_ref().map(|store| store.rebuild_rate),
            depot_policy: self.depot.as_ref().map(|depot| Box::new(depot.policy())),
        })
    }
}

/// All keys with their values, to be compared: also what others are not shown.
fn keys(
    settings: &impl Serialize,
    depot: Option<&DepotSettings>,
) -> anyhow::Result<Map<String, Value>> {
    let mut keys = match serde_json::to_value(settings)? {
        Value::Object(keys) => keys,
        other => anyhow::bail!("settings are no object: {other}"),
    };
    if let Some(depot) = depot {
        keys.insert("ibp_password".to_owned(), depot.password().into());
    }
    Ok(keys)
}

/// Reads a process's file again.
pub(crate) struct Reloader {
    origin: Origin,
    filter: Filter,
    /// Nodes of this process.
    nodes: usize,
    /// What the process runs with.
    running: Map<String, Value>,
}

impl Reloader {
    /// `None` if there is no file: there is nothing to read again, and SIGHUP ends the
    /// process as it does others.
    ///
    /// # Errors
    /// What the process was started with cannot be settled, which it was before.
    pub(crate) fn new(
        origin: Origin,
        running: &impl Serialize,
        depot: Option<&DepotSettings>,
        filter: Filter,
        nodes: usize,
    ) -> anyhow::Result<Option<Self>> {
        if origin.file().is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            origin,
            filter,
            nodes,
            running: keys(running, depot)?,
        }))
    }

    /// Reads, checks, changes what can change, and says in the log what became of it.
    pub(crate) fn reload(&mut self, orders: &Sender<Order>) {
        let read = self.origin.settle().and_then(|settled| {
            let tuning = settled.tuning(self.nodes)?;
            Ok((settled, tuning))
        });
        let (settled, mut tuning) = match read {
            Ok(read) => read,
            Err(error) => return self.tell_refused(&error),
        };
        let (live, later) = changes(&self.running, &settled.keys);
        // What clients have changed stays, if nothing is said of it.
        if !live.iter().any(|key| key.starts_with(DEPOT)) {
            tuning.depot_policy = None;
        }
        if live.contains(&"log")
            && let Err(error) = self.filter.set(&settled.process.log)
        {
            return self.tell_refused(&error);
        }
        if live.iter().any(|key| *key != "log") && orders.try_send(Order::Tune(tuning)).is_err() {
            return warn!("the configuration is not changed: the process is stopping, or too busy");
        }
        let file = self.file();
        if live.is_empty() && later.is_empty() {
            info!(
                file,
                "the configuration was read again: nothing has changed"
            );
        }
        if !live.is_empty() {
            info!(
                file,
                changed = live.join(", "),
                "the configuration was read again"
            );
        }
        if !later.is_empty() {
            let keys = later.join(", ");
            warn!(file, keys, "these keys have changed and need a restart");
        }
        for key in LIVE {
            if let Some(value) = settled.keys.get(key) {
                self.running.insert(key.to_owned(), value.clone());
            }
        }
    }

    fn file(&self) -> String {
        let file = self.origin.file().unwrap_or_else(|| Path::new(""));
        file.display().to_string()
    }

    fn tell_refused(&self, error: &anyhow::Error) {
        let usage = error.downcast_ref::<UsageError>();
        let (line, column) = usage.and_then(|usage| usage.place).unzip();
        let file = self.file();
        let reason = format!("{error:#}");
        error!(
            file,
            line, column, reason, "the configuration is not changed: the file is refused"
        );
    }
}

/// Keys whose values differ: those that take effect at once, and those that do not.
fn changes<'keys>(
    running: &Map<String, Value>,
    read: &'keys Map<String, Value>,
) -> (Vec<&'keys str>, Vec<&'keys str>) {
    let differs = |(key, value): &(&String, &Value)| running.get(key.as_str()) != Some(*value);
    let changed = read.iter().filter(differs).map(|(key, _)| key.as_str());
    changed.partition(|key| LIVE.contains(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: keys that take effect at once are keys that there are, of some process, and
    /// what changed is told apart by whether it does.
    #[test]
    fn changes_are_told_apart() {
        let settings = UpFlags::default().settle().expect("defaults");
        let running = keys(&settings, Some(&settings.depot)).expect("an object");
        assert!(LIVE.iter().all(|key| running.contains_key(*key)));
        assert_eq!(changes(&running, &running), (vec![], vec![]));
        let mut read = running.clone();
        read.insert("slow_ms".to_owned(), 7.into());
        read.insert("nodes".to_owned(), 9.into());
        assert_eq!(changes(&running, &read), (vec!["slow_ms"], vec!["nodes"]));
    }

    /// Goal: what a file says counts for the machines only where the process has them, and
    /// the cache is shared out among the nodes.
    #[test]
    fn the_machines_get_what_is_theirs() {
        let settings = UpFlags::default().settle().expect("defaults");
        let mut settled = Settled::of_up(settings).expect("settings");
        settled.process.slow_ms = 7;
        if let Some(store) = &mut settled.store {
            store.cache = Some(4 << 20);
        }
        let tuning = settled.tuning(4).expect("numbers");
        assert_eq!(tuning.slow_after, Some(std::time::Duration::from_millis(7)));
        assert_eq!(tuning.cache_bytes, Some(1 << 20));
        assert!(tuning.depot_policy.is_some());
        settled.store = None;
        settled.door = None;
        settled.depot = None;
        let tuning = settled.tuning(4).expect("numbers");
        assert_eq!((tuning.cache_bytes, tuning.request_bytes), (None, None));
        assert_eq!(tuning.depot_policy, None);
    }
}
