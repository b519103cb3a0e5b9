//! What bytes cost the gateway and everybody, by the size of replies: sent by nodes, relayed
//! by a gateway of ours, and relayed by splice(2). Everything is on one processor, so that no
//! time goes into interrupts from one to the other.

use anyhow::Result;
use crossdock_limits::{INJECTED_HTTP_BYTES_MIN, INJECTED_NFS_BYTES_MIN, INJECTED_UDP_BYTES_MIN};

use super::RELAY;
use super::field::{Cost, Door, Field, Shape, Way};
use crate::bench::figures::{Comparison, Spread};
use crate::bench::{Keep, Options};
use crate::paths::Paths;

/// Bytes of replies of HTTP and NFS over TCP, and of NFS over UDP.
const SIZES: [usize; 8] = [
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    1 << 20,
];
const UDP_SIZES: [usize; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];
/// Where packets get lost, so many in a thousand.
const LOSSY: [(Door, usize); 4] = [
    (Door::Http, 64 << 10),
    (Door::Http, 1 << 20),
    (Door::Nfs, 64 << 10),
    (Door::Nfs, 1 << 20),
];
const LOST_PERMILLE: u32 = 10;
/// What is lost is known only when something has been.
const LOSSY_SECONDS_MIN: f64 = 2.0;
/// How gateways' windows answer to losses: as most systems have it, and by bandwidth.
const CONTROLS: [&str; 2] = ["cubic", "bbr"];
const NODES: u8 = 3;
/// Nodes send all that they may, so that the rows show from where on it pays.
const FORCED: &str = "4K";
/// Where nodes send no more than that leaves the gateway for each byte of a reply.
const INJECTED_LINK_MAX: f64 = 0.5;
const SPLICE: &str = "splice(2) in front of nginx, no storage system";

/// Over HTTP, where there is another relay.
pub(super) fn http(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let mut field = Field::raise(paths, options, Shape::of(NODES))?;
    field.inject_from(FORCED)?;
    field.splice()?;
    field.keep_on_one()?;
    let ways = [Way::Inject, Way::Relay, Way::Splice];
    sweep(&field, options, Door::Http, (&ways, &SIZES), keep)
}

/// NFS over TCP.
pub(super) fn nfs(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let mut field = Field::raise(paths, options, Shape::of(NODES))?;
    field.inject_from(FORCED)?;
    field.keep_on_one()?;
    let ways = [Way::Inject, Way::Relay];
    sweep(&field, options, Door::Nfs, (&ways, &SIZES), keep)
}

/// NFS over UDP.
pub(super) fn udp(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let mut field = Field::raise(paths, options, Shape::of(NODES))?;
    field.inject_from(FORCED)?;
    field.keep_on_one()?;
    let ways = [Way::Inject, Way::Relay];
    sweep(&field, options, Door::NfsUdp, (&ways, &UDP_SIZES), keep)
}

/// Over TCP while packets get lost on their way to the client: as the policy has it by itself, and
/// with a rule that nodes send all the same.
pub(super) fn with_losses(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let mut field = Field::raise(paths, options, Shape::of(NODES))?;
    field.keep_on_one()?;
    field.cluster.cut_segments_to("client-0")?;
    field.cluster.lose("client-0", LOST_PERMILLE)?;
    for is_ruled in [false, true] {
        if is_ruled {
            field.inject_from(FORCED)?;
        }
        let choice = match is_ruled {
            true => "by a rule",
            false => "the policy's choice",
        };
        for control in CONTROLS {
            for gateway in ["gateway-0", "gateway-1"] {
                let setting = format!("net.ipv4.tcp_congestion_control={control}");
                field.cluster.sysctl(gateway, &setting)?;
            }
            let lost = LOST_PERMILLE / 10;
            let more = format!(", {lost} % of packets lost, {control}, {choice}");
            for (door, size) in LOSSY {
                let ways = (&[Way::Inject, Way::Relay][..], size);
                let costs = alternate(&field, options, door, ways, LOSSY_SECONDS_MIN)?;
                let rows = Rows {
                    door,
                    size,
                    more: &more,
                };
                let goal = |row: &str| (row == "gateway-cpu" && !is_ruled).then_some(1.0);
                keep(rows.of(&costs[0], (RELAY, &costs[1]), goal));
            }
        }
    }
    Ok(())
}

/// All sizes.
fn sweep(
    field: &Field<'_>,
    options: &Options,
    door: Door,
    (ways, sizes): (&[Way], &[usize]),
    keep: Keep<'_>,
) -> Result<()> {
    let mut cheaper_from = None;
    for &size in sizes {
        let costs = alternate(field, options, door, (ways, size), 0.0)?;
        let rows = Rows {
            door,
            size,
            more: "",
        };
        let goal = |row: &str| goal(row, size);
        for (way, theirs) in ways.iter().zip(&costs).skip(1) {
            let name = if *way == Way::Splice { SPLICE } else { RELAY };
            keep(rows.of(&costs[0], (name, theirs), goal));
        }
        let median = |costs: &[Cost], of: fn(&Cost) -> f64| Spread::of(costs.iter().map(of)).median;
        let [ours, theirs] = [0, 1].map(|at| median(&costs[at], |cost| cost.gateway));
        let is_injected = median(&costs[0], |cost| cost.link) < INJECTED_LINK_MAX;
        match is_injected && ours <= theirs {
            true => cheaper_from = cheaper_from.or(Some(size)),
            false => cheaper_from = None,
        }
    }
    if let Some(size) = cheaper_from {
        keep(vec![crossover(door, size)]);
    }
    Ok(())
}

/// In a ratio of costs more is better.
fn goal(row: &str, size: usize) -> Option<f64> {
    match (row, size >> 10) {
        ("gateway-cpu", 64) => Some(3.0),
        ("gateway-cpu", 1024) => Some(8.0),
        ("system-cpu", 1024) => Some(1.0 / 0.7),
        _ => None,
    }
}

/// From which size on, of those that were measured, the gateway spends no more.
#[expect(clippy::cast_precision_loss, reason = "some KiB")]
fn crossover(door: Door, size: usize) -> serde_json::Value {
    let threshold = match door {
        Door::Http => INJECTED_HTTP_BYTES_MIN,
        Door::Nfs => INJECTED_NFS_BYTES_MIN,
        Door::NfsUdp => INJECTED_UDP_BYTES_MIN,
    };
    Comparison {
        row: &format!("crossover-{}", door.word()),
        variant: "least size from which on nodes' sending costs the gateway no more".to_owned(),
        place: None,
        unit: "KiB",
        ours: &[(size >> 10) as f64],
        peer: ("the threshold as it is", &[(threshold >> 10) as f64]),
        is_less_better: true,
        goal: None,
    }
    .json()
}

/// Each way in turn, a few times, and for so many seconds at least.
fn alternate(
    field: &Field<'_>,
    options: &Options,
    door: Door,
    (ways, size): (&[Way], usize),
    seconds_min: f64,
) -> Result<Vec<Vec<Cost>>> {
    let (rounds, seconds) = if options.full { (7, 3.0) } else { (3, 0.7) };
    let seconds = f64::max(seconds, seconds_min);
    let mut costs: Vec<Vec<Cost>> = ways.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (&way, costs) in ways.iter().zip(&mut costs) {
            costs.push(field.cost(door, way, size, seconds)?);
        }
    }
    Ok(costs)
}

/// What is said of one size.
struct Rows<'text> {
    door: Door,
    size: usize,
    more: &'text str,
}

impl Rows<'_> {
    fn of(
        &self,
        ours: &[Cost],
        (peer, theirs): (&str, &[Cost]),
        goal: impl Fn(&str) -> Option<f64>,
    ) -> Vec<serde_json::Value> {
        let figure = |row: &str, unit: &str, of: fn(&Cost) -> f64| {
            let [ours, theirs] = [ours, theirs].map(|it| it.iter().map(of).collect::<Vec<f64>>());
            let kib = self.size >> 10;
            let door = self.door.word();
            Comparison {
                row: &format!("{row}-{door}"),
                variant: format!(
                    "{door}: READs of {kib} KiB, {NODES} nodes, one connection, one processor{}",
                    self.more
                ),
                place: Some((door.to_owned(), kib)),
                unit,
                ours: &ours,
                peer: (peer, &theirs),
                is_less_better: row != "rate",
                goal: goal(row),
            }
            .json()
        };
        vec![
            figure("gateway-cpu", "CPU s/GB", |cost| cost.gateway),
            figure("system-cpu", "CPU s/GB", |cost| cost.system),
            figure("gateway-link", "bytes/byte", |cost| cost.link),
            figure("rate", "MB/s", |cost| cost.rate),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(gateway: f64, link: f64) -> Cost {
        Cost {
            gateway,
            system: 4.0,
            link,
            rate: 100.0,
        }
    }

    /// Goal: a third at 64 KiB and an eighth at 1 MiB are asked of the gateway, and nothing
    /// where the issue asks nothing; half the cost reads 2.0 and misses both.
    #[test]
    fn goals_are_of_their_sizes() {
        let rows = |kib: usize| {
            let rows = Rows {
                door: Door::Http,
                size: kib << 10,
                more: "",
            };
            let goal = |row: &str| goal(row, kib << 10);
            rows.of(&[cost(0.5, 0.01)], (RELAY, &[cost(1.0, 1.0)]), goal)
        };
        let gateway = |kib| rows(kib)[0].clone();
        assert_eq!(gateway(64)["row"], "gateway-cpu-http");
        assert_eq!(gateway(64)["ratio"], 2.0);
        assert_eq!(gateway(64)["goal"], 3.0);
        assert_eq!(gateway(64)["met"], false);
        assert_eq!(gateway(1024)["goal"], 8.0);
        assert_eq!(gateway(256)["goal"], serde_json::Value::Null);
        assert_eq!(rows(1024)[1]["met"], false, "0.7 of the system's time");
        assert_eq!(rows(64)[1]["goal"], serde_json::Value::Null);
    }
}
