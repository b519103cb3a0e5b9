//! Large files: bytes per second beside what the nodes' links carry (Slice 5, Table 2).

use anyhow::Result;

use super::field::{Field, Sample};
use super::{Figure, Keep, rounds, several};
use crate::bench::Options;
use crate::paths::Paths;

/// Of each node's link, both ways: so low that two processors drive six of them.
const LINK_MBIT: u32 = 40;
/// Payload of a full frame of 1,514 bytes: TCP with timestamps over IPv4.
const PAYLOAD: f64 = 1448.0 / 1514.0;
/// Part of the links' payload rate that is to be reached.
const GOAL: f64 = 0.95;

/// Files of all clients together, for each node and copy: they are written whole in the
/// shortest run, and the least of them has many stripes at each node.
const FILES_MIB: usize = 16;
/// How long each load is on: the first and the last second, when not all of it is on its
/// way, are a small part.
const SECONDS: u32 = 20;
/// Requests of 1 MiB that all clients together have on their way, or two each.
const OUTSTANDING: usize = 12;

/// With so many copies: on 1 to 6 nodes, with 1 to 8 clients.
pub(super) fn measure(
    paths: &Paths,
    options: &Options,
    replicas: usize,
    keep: Keep<'_>,
) -> Result<()> {
    let nodes: &[usize] = match (options.full, replicas) {
        (true, _) => &[1, 2, 3, 4, 5, 6],
        (false, 1) => &[1, 2, 4, 6],
        (false, _) => &[2, 4, 6],
    };
    let clients: &[usize] = if options.full { &[1, 2, 4, 8] } else { &[1, 8] };
    for &nodes in nodes.iter().filter(|&&nodes| nodes >= replicas) {
        let words = format!(
            "--nodes {nodes} --managers 1 --gateways 1 --clients 8 --replicas {replicas} --rate node={LINK_MBIT}"
        );
        let field = Field::raise(paths, options, &words)?;
        for &clients in clients {
            keep(with(&field, options, (nodes, clients, replicas))?);
        }
    }
    Ok(())
}

fn with(
    field: &Field<'_>,
    options: &Options,
    (nodes, clients, replicas): (usize, usize, usize),
) -> Result<Vec<serde_json::Value>> {
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for round in 0..rounds(options) {
        let name = format!("bulk-{clients}-{round}");
        let outstanding = (OUTSTANDING / clients).max(2);
        let common = format!(
            "--seconds {SECONDS} --count 100000 --outstanding {outstanding} --span {}",
            (FILES_MIB << 20) * nodes / replicas / clients
        );
        let rate = |words: &str| -> Result<f64> {
            let samples = field.load(clients, &name, &format!("{words} {common}"))?;
            Ok(Sample::per_second(&samples, |one| one.bytes) / 1e6)
        };
        written.push(rate("--work write --keep")?);
        read.push(rate("--work read --again")?);
    }
    #[expect(clippy::cast_precision_loss, reason = "some nodes and copies")]
    let (all, copies) = (nodes as f64, replicas as f64);
    let links = all * f64::from(LINK_MBIT) / 8.0 * PAYLOAD;
    let mirrored = if replicas > 1 { "-mirrored" } else { "" };
    let figure = |what: &str, ours: &[f64], limit: (&str, f64)| {
        Figure {
            row: &format!("{what}{mirrored}"),
            variant: format!(
                "large files, {}: {} at {LINK_MBIT} Mbit/s, {}",
                if replicas > 1 {
                    "two copies"
                } else {
                    "one copy"
                },
                several(nodes, "node"),
                several(clients, "client")
            ),
            place: Some((several(clients, "client"), nodes)),
            unit: "MB/s",
            ours,
            peer: (limit.0, &[limit.1]),
            is_less_better: false,
            goal: Some(GOAL),
        }
        .json()
    };
    let written_limit = match replicas {
        1 => "payload of the nodes' links",
        _ => "payload of the nodes' links, a part for each copy",
    };
    Ok(vec![
        figure("read", &read, ("payload of the nodes' links", links)),
        figure("write", &written, (written_limit, links / copies)),
    ])
}
