//! `crossdock cluster`: makes an ensemble, and lets processes into it.

mod join;
mod tokens;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use crossdock_members::{Change, State, TrustRecord, VirtualAddress};
use crossdock_names::HostId;
use crossdock_peer::Network;

use crate::addresses::virtual_address;
use crate::config::{EnsembleFlags, Names, Placement, Transport, check_pool, check_spread, usage};
use crate::identity::{forget_authority, make_authority};
use crate::{data, format, member};

/// Data sets that each of the first nodes leads: when another one comes, it takes some
/// of each.
const SETS_PER_NODE: u32 = 16;

#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Make an ensemble: what its processes agree on, in etcd. They are started then.
    #[command(
        after_help = "Examples:\n  crossdock cluster init --etcd http://10.0.0.1:2379,http://10.0.0.2:2379 \
        --name pool --nodes 3 --replicas 2 --allow 10.0.0.0/8\n  crossdock cluster init --etcd http://10.0.0.1:2379 \
        --name pool --nodes 3 --replicas 2 --transport tls --ca /etc/crossdock/ca"
    )]
    Init(InitArgs),
    /// Make, list and revoke tokens, by which new processes get certificates.
    #[command(subcommand)]
    Token(tokens::TokenCommand),
    /// Get a certificate for a process, the first one or one in the place of another.
    #[command(
        after_help = "Example:\n  crossdock cluster join --etcd http://10.0.0.1:2379 --name pool \
        --role gateway --identity /etc/crossdock/identity --token crossdock1-…"
    )]
    Join(join::JoinArgs),
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
    /// How its processes talk to each other, for good.
    #[arg(long, value_name = "HOW", default_value = "plain")]
    transport: Transport,
    /// With tls: the directory in which the ensemble's authority is made. Who has it
    /// makes members: managers that are to give certificates are shown it with --ca.
    #[arg(long, value_name = "DIR")]
    ca: Option<PathBuf>,
    /// How names lie over the sites, and so over the managers, for good.
    #[arg(long, value_name = "HOW", default_value = "switched")]
    names: Names,
    /// Probability, 0 to 1, that a new directory lies at another site, and so
    /// maybe with another manager, than its parent, for good [default: 0].
    #[arg(long, value_name = "P")]
    spread: Option<f64>,
    /// How large files lie over the nodes, for good.
    #[arg(long, value_name = "HOW", default_value = "striped")]
    placement: Placement,
    /// Who may mount the export `/`: networks like 10.0.0.0/8, or `everybody`
    /// [default: the gateways' own machines].
    #[arg(long, value_name = "NETWORK,…", value_delimiter = ',')]
    allow: Vec<Network>,
    /// Addresses that the gateways have in turn, each with the bits of its network, like
    /// 10.0.0.50/24: if a gateway dies another one takes its addresses over.
    #[arg(
        long = "virtual",
        value_name = "ADDR/BITS,…",
        value_delimiter = ',',
        value_parser = virtual_address
    )]
    addresses: Vec<VirtualAddress>,
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
        match self {
            Self::Init(args) => args.json,
            Self::Token(command) => command.prints_json(),
            Self::Join(_) => false,
        }
    }

    pub(crate) fn carry_out(self) -> anyhow::Result<()> {
        match self {
            Self::Init(args) => init(args),
            Self::Token(command) => command.carry_out(),
            Self::Join(args) => join::carry_out(args),
        }
    }
}

fn init(args: InitArgs) -> anyhow::Result<()> {
    let InitArgs {
        ensemble,
        nodes,
        replicas,
        transport,
        ca,
        names,
        spread,
        placement,
        allow,
        addresses,
        replace_after,
        json,
    } = args;
    let ensemble = ensemble.settle()?;
    check_pool(Some(nodes), Some(replicas))?;
    check_transport(transport, ca.is_some())?;
    check_spread(Some(names), spread)?;
    let mut state = fresh_state(nodes, replicas)?;
    if let Some(seconds) = replace_after {
        state.replace_after_seconds = seconds;
    }
    state.spread = data::spread_of(Some(names), spread);
    state.layout = placement.into();
    if let (false, Some(root)) = (allow.is_empty(), state.exports.first_mut()) {
        root.rules.networks = allow;
    }
    for address in addresses {
        let added = state.apply(Change::AddAddress { address });
        added.map_err(|conflict| usage(format!("--virtual {address}: {conflict}")))?;
    }
    let (number, volume, site_replicas) = (state.ensemble, state.volume, state.site_replicas);
    let registry = member::registry(&ensemble, HostId(data::random_u64()?))?;
    if let Some(ca) = &ca {
        // Its key stays there: the registry learns whom to believe, and no more.
        let authority = make_authority(ca, number)?;
        state.trust = Some(TrustRecord {
            authority: authority.certificate_pem().to_owned(),
            tokens: std::collections::BTreeMap::new(),
        });
    }
    let created = crossdock_etcd::create(&registry, &state);
    if let (Err(crossdock_etcd::Error::Exists { .. }), Some(ca)) = (&created, &ca) {
        // Nobody believes it. With any other error somebody may.
        forget_authority(ca)?;
    }
    created?;
    let (name, etcd) = (&ensemble.name, ensemble.etcd.join(","));
    if json {
        return format::print_json(&serde_json::json!({
            "name": name,
            "ensemble": format!("{number:016x}"),
            "volume": format!("{volume:016x}"),
            "nodes": nodes,
            "replicas": replicas,
            "site_replicas": site_replicas,
            "transport": transport,
            "names": names,
            "spread": state.spread.probability(),
            "placement": placement,
        }));
    }
    let made = format!(
        "ensemble {name} ({number:016x}) has {nodes} nodes, {replicas} copies of data, {site_replicas} of names\n"
    );
    let next = next_steps(&format!("--etcd {etcd} --name {name}"), nodes, ca.is_some());
    let ca = ca.map(|ca| ca.display().to_string()).unwrap_or_default();
    Ok(format::print(&(made + &next.replace("CA-DIR", &ca)))?)
}

/// With numbers that no other ensemble has.
fn fresh_state(nodes: u32, replicas: u32) -> anyhow::Result<State> {
    let ids = (0..nodes)
        .map(|_| data::random_u64())
        .collect::<anyhow::Result<Vec<u64>>>()?;
    let (number, volume) = (data::random_u64()?, data::random_u64()?);
    // Names are worth two copies wherever there are two nodes.
    let site_replicas = replicas.max(2).min(nodes);
    let state = State::fresh(number, volume, &ids, replicas, site_replicas);
    Ok(state.with_many_sets(SETS_PER_NODE))
}

fn check_transport(transport: Transport, has_ca: bool) -> anyhow::Result<()> {
    let what = match (transport, has_ca) {
        (Transport::Tls, false) => {
            "--transport tls needs a directory for the ensemble's authority: --ca DIR"
        }
        (Transport::Plain, true) => "--ca is for ensembles that talk over TLS: say --transport tls",
        _ => return Ok(()),
    };
    Err(usage(what.to_owned()))
}

/// How the ensemble's processes are started.
fn next_steps(at: &str, nodes: u32, is_tls: bool) -> String {
    let last = nodes - 1;
    if is_tls {
        return format!(
            "start the first manager on this machine; it gives certificates to the others. CA-DIR holds what makes members: keep a copy where nobody else gets it\n  \
             crossdock manager run {at} --listen ADDR:PORT --identity DIR --ca CA-DIR\n\
             then make a token for each process, and start it on its machine with that\n  \
             crossdock cluster token create {at} --role node|manager|gateway\n  \
             crossdock node run {at} --number K --data DIR --listen ADDR:PORT --identity DIR --token TOKEN    (K from 0 to {last})\n  \
             crossdock manager run {at} --listen ADDR:PORT --identity DIR --token TOKEN\n  \
             crossdock gateway run {at} --listen ADDR:PORT --nfs ADDR:2049 --identity DIR --token TOKEN\n"
        );
    }
    format!(
        "start on each machine what it is to do, each with an address of its own that the others reach:\n  \
         crossdock node run {at} --number K --data DIR --listen ADDR:PORT    (K from 0 to {last})\n  \
         crossdock manager run {at} --listen ADDR:PORT                       (two or more: one takes over for the other)\n  \
         crossdock gateway run {at} --listen ADDR:PORT --nfs ADDR:2049       (as many as you like)\n"
    )
}
