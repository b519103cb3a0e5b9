//! A file server's day at rising load (Slice 5, Figures 5 and 6): on 1 to 6 nodes whose
//! links are slow, beside nfs-ganesha on one host with such a link.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::Value;

use super::field::{Field, Sample, folder, load_from};
use super::{Figure, Keep, affinity, several};
use crate::bench::{Options, rig_name};
use crate::paths::Paths;
use crate::rig::cluster::{Cluster, Options as RigOptions, Role};
use crate::rig::network::Network;
use crate::rig::server::{Kind, Server};

/// Of each node's link, and of the peer's, both ways.
const LINK_MBIT: u32 = 20;
/// Hosts that send, and processes on each.
const CLIENTS: usize = 2;
const PROCESSES: usize = 4;
/// Files of each process.
const FILES: usize = 100;
/// Operations per second that are offered in all.
const OFFERED: [usize; 4] = [500, 1000, 2000, 4000];

/// What one load gave: delivered operations per second, and their mean latency.
type Delivered = (f64, f64);

pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let peer = ganesha(paths, options)?;
    let nodes: &[usize] = if options.full {
        &[1, 2, 3, 4, 5, 6]
    } else {
        &[1, 3, 6]
    };
    for &nodes in nodes {
        let words = format!(
            "--nodes {nodes} --managers 2 --gateways 1 --clients {CLIENTS} --replicas 1 --rate node={LINK_MBIT}"
        );
        let field = Field::raise_spread(paths, options, &words, affinity::even(2))?;
        for (&offered, &theirs) in OFFERED.iter().zip(&peer) {
            let samples = field.load(
                CLIENTS,
                &format!("mix-{offered}"),
                &words_for(options, offered),
            )?;
            keep(rows(nodes, offered, delivered(&samples), theirs));
        }
    }
    Ok(())
}

/// The peer under every load.
fn ganesha(paths: &Paths, options: &Options) -> Result<Vec<Delivered>> {
    let clients = CLIENTS.to_string();
    let rate = format!("node={LINK_MBIT}");
    let words = ["--nodes", "1", "--clients", &clients, "--rate", &rate];
    let cluster = Cluster::bare(
        paths,
        &rig_name(),
        &folder(paths),
        &RigOptions::parse(&words)?,
    )?;
    let host = cluster.of(Role::Node).next().context("no host")?;
    let network = Network::of_host(&host.netns);
    let server = Server::start(Kind::Ganesha, paths, &network, &folder(paths).join("peer"))?;
    let door = SocketAddr::from((host.address, server.port()));
    let mount = SocketAddr::from((host.address, server.mount_port()));
    let (export, mut all) = (server.export()?, Vec::new());
    for offered in OFFERED {
        let hosts = cluster.of(Role::Client);
        let places = hosts.map(|host| (host.netns.as_str(), host.name.as_str()));
        let words = words_for(options, offered);
        let words = format!("{words} --mount {mount} --path {export}");
        let samples = load_from(paths, places, door, &format!("mix-{offered}"), &words)?;
        all.push(delivered(&samples));
    }
    Ok(all)
}

fn words_for(options: &Options, offered: usize) -> String {
    let seconds = if options.full { 60 } else { 6 };
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let rate = offered as f64 / (CLIENTS * PROCESSES) as f64;
    format!(
        "--work sfs --clients {PROCESSES} --outstanding 8 --files {FILES} --rate {rate} --seconds {seconds}"
    )
}

fn delivered(samples: &[Sample]) -> Delivered {
    let rate = Sample::per_second(samples, |one| one.operations);
    (rate, Sample::mean_us(samples))
}

fn rows(nodes: usize, offered: usize, ours: Delivered, theirs: Delivered) -> Vec<Value> {
    let rate = Figure {
        row: "mix",
        variant: format!(
            "SPECsfs97-like mix: {} at {LINK_MBIT} Mbit/s, {offered} op/s offered",
            several(nodes, "node")
        ),
        place: Some((several(nodes, "node"), offered)),
        unit: "op/s",
        ours: &[ours.0],
        peer: ("nfs-ganesha, plain, one host with such a link", &[theirs.0]),
        is_less_better: false,
        goal: None,
    };
    let latency = Figure {
        row: "mix-latency",
        variant: rate.variant.clone(),
        place: rate.place.clone(),
        unit: "µs",
        ours: &[ours.1],
        peer: (rate.peer.0, &[theirs.1]),
        is_less_better: true,
        goal: None,
    };
    vec![rate.json(), latency.json()]
}
