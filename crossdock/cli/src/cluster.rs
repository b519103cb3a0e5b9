//! `crossdock cluster init`: makes an ensemble.

use clap::{Args, Subcommand};
use crossdock_members::State;
use crossdock_names::HostId;
use crossdock_peer::Network;

use crate::config::{EnsembleFlags, check_pool, check_spread};
use crate::{data, format, member};

/// Data sets that each of the first nodes leads: when another one comes, it takes some
/// of each.
const SETS_PER_NODE: u32 = 16;

#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Make an ensemble: what its processes agree on, in etcd. They are started then.
    #[command(
        after_help = "Example:\n  crossdock cluster init --etcd http://10.0.0.1:2379,http://10.0.0.2:2379 \
        --name pool --nodes 3 --replicas 2 --allow 10.0.0.0/8"
    )]
    Init(InitArgs),
}

#[derive(Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    ensemble: EnsembleFlags,
    /// Number of storage nodes to begin with; a file is striped over as many, for good.
    #[arg(long, value_name = "N")]
    nodes: u32,
    /// Copies of data on different nodes, for good.
    #[arg(long, value_name = "R")]
    replicas: u32,
    /// Probability, 0 to 1, that a new directory lies at another site, and so
    /// maybe with another manager, than its parent, for good.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    spread: f64,
    /// Who may mount the export `/`: networks like 10.0.0.0/8, or `everybody`
    /// [default: the gateways' own machines].
    #[arg(long, value_name = "NETWORK,…", value_delimiter = ',')]
    allow: Vec<Network>,
    /// What belongs to a node that is away for longer goes to other nodes [default: 900].
    #[arg(long, value_name = "SECONDS")]
    replace_after: Option<u64>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

impl ClusterCommand {
    /// Whether what it prints is for programs.
    pub(crate) const fn prints_json(&self) -> bool {
        let Self::Init(args) = self;
        args.json
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        let Self::Init(args) = self;
        init(args)
    }
}

fn init(args: InitArgs) -> anyhow::Result<()> {
    let InitArgs {
        ensemble,
        nodes,
        replicas,
        spread,
        allow,
        replace_after,
        json,
    } = args;
    let ensemble = ensemble.settle()?;
    check_pool(Some(nodes), Some(replicas))?;
    check_spread(Some(spread))?;
    let ids = (0..nodes)
        .map(|_| data::random_u64())
        .collect::<anyhow::Result<Vec<u64>>>()?;
    let (number, volume, key) = (
        data::random_u64()?,
        data::random_u64()?,
        data::random_bytes()?,
    );
    // Names are worth two copies wherever there are two nodes.
    let site_replicas = replicas.max(2).min(nodes);
    let state = State::fresh(number, volume, &ids, replicas, site_replicas, key);
    let mut state = state.with_many_sets(SETS_PER_NODE);
    if let Some(seconds) = replace_after {
        state.replace_after_seconds = seconds;
    }
    state.spread = data::spread_of(spread);
    if let (false, Some(root)) = (allow.is_empty(), state.exports.first_mut()) {
        root.rules.networks = allow;
    }
    let registry = member::registry(&ensemble, HostId(data::random_u64()?));
    crossdock_etcd::create(&registry, &state)?;
    let (name, etcd) = (&ensemble.name, ensemble.etcd.join(","));
    if json {
        return format::print_json(&serde_json::json!({
            "name": name,
            "ensemble": format!("{number:016x}"),
            "volume": format!("{volume:016x}"),
            "nodes": nodes,
            "replicas": replicas,
            "site_replicas": site_replicas,
            "spread": spread,
        }));
    }
    let at = format!("--etcd {etcd} --name {name}");
    Ok(format::print(&format!(
        "ensemble {name} ({number:016x}) has {nodes} nodes, {replicas} copies of data, {site_replicas} of names\n\
         start on each machine what it is to do, each with an address of its own that the others reach:\n  \
         crossdock node run {at} --number K --data DIR --listen ADDR:PORT    (K from 0 to {})\n  \
         crossdock manager run {at} --listen ADDR:PORT                       (two or more: one takes over for the other)\n  \
         crossdock gateway run {at} --listen ADDR:PORT --nfs ADDR:2049       (as many as you like)\n",
        nodes - 1
    ))?)
}
