//! A long line inside a network (bench/line): clients reach a server of the same network
//! on paths that take their time, and lose or mark packets when told so.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_line::{CLIENT, CLIENT_SEEN, SERVER, SERVER_SEEN, address};
use serde_json::Value;

use super::network::Network;
use crate::paths::Paths;
use crate::process::{Running, output, run};

const DEVICE: &str = "line0";
/// How long its process may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// Packets that may wait for its process: more than all windows of a benchmark have.
const QUEUE_PACKETS: u32 = 20_000;
/// What marks and loses packets, in nftables.
const TABLE: &str = "line";

/// What happens to packets from the server, on their way to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// They are marked as having met congestion (CE, RFC 3168), if the connection
    /// understands that.
    Marks,
    /// They are lost.
    Drops,
}

/// A line. It goes when it is dropped, with its device and all its addresses.
pub(crate) struct Line {
    _running: Running,
}

impl Line {
    /// Makes it in `network`, with a path for each of these times; it runs on one
    /// processor.
    pub(crate) fn up(
        paths: &Paths,
        network: &Network,
        round_trips: &[Duration],
        cpu: usize,
        log: &Path,
    ) -> Result<Self> {
        let mut command = network.program("taskset");
        command.arg("-c").arg(cpu.to_string());
        command.arg(paths.target.join("release/crossdock-line"));
        command.args(["--device", DEVICE]).stdin(Stdio::null());
        for time in round_trips {
            command.arg(format!("--rtt-ms={}", time.as_millis()));
        }
        let (running, lines) = Running::start_with_lines(command, log)?;
        let line = lines.next(Instant::now() + PATIENCE)?;
        ensure!(line.as_deref() == Some("ready"), "see {}", log.display());
        lines.ignore();
        let ip = |words: String| run(network.program("ip").args(words.split(' ')));
        ip(format!("link set {DEVICE} txqueuelen {QUEUE_PACKETS} up"))?;
        for path in 0..u8::try_from(round_trips.len())? {
            for (local, seen) in [(CLIENT, SERVER_SEEN), (SERVER, CLIENT_SEEN)] {
                let (local, seen) = (address(path, local), address(path, seen));
                ip(format!("address add {local}/32 dev {DEVICE}"))?;
                ip(format!("route add {seen}/32 dev {DEVICE} src {local}"))?;
            }
        }
        Ok(Self { _running: running })
    }

    /// Where a client reaches, on a path, what listens at `port` of all addresses.
    pub(crate) fn server(path: u8, port: u16) -> SocketAddr {
        SocketAddr::from((address(path, SERVER_SEEN), port))
    }

    /// From now on `permille` of the packets from the server meet this on a path.
    pub(crate) fn disturb(
        network: &Network,
        path: u8,
        disturbance: Disturbance,
        permille: u32,
    ) -> Result<()> {
        let (which, what) = match disturbance {
            // ECT(0) or ECT(1).
            Disturbance::Marks => ("ip ecn 1-2", "counter ip ecn set ce"),
            Disturbance::Drops => ("ip protocol tcp", "counter drop"),
        };
        let (from, to) = (address(path, SERVER_SEEN), address(path, CLIENT));
        let rules = format!(
            "table ip {TABLE} {{\n chain arriving {{\n type filter hook prerouting priority 0\n \
             ip saddr {from} ip daddr {to} {which} numgen random mod 1000 < {permille} {what}\n}}\n}}\n"
        );
        run(network.program("nft").arg(rules))
    }

    /// Ends that; how many packets have met it.
    pub(crate) fn calm(network: &Network) -> Result<u64> {
        let list = ["--json", "list", "table", "ip", TABLE];
        let list = output(network.program("nft").args(list))?;
        run(network
            .program("nft")
            .args(["delete", "table", "ip", TABLE]))?;
        packets(&serde_json::from_str(&list)?).context("no counter")
    }
}

/// What the counter of the only rule says.
fn packets(list: &Value) -> Option<u64> {
    let objects = list["nftables"].as_array()?;
    let rule = objects
        .iter()
        .find_map(|it| it["rule"]["expr"].as_array())?;
    let counter = rule.iter().find_map(|it| it.get("counter"))?;
    counter["packets"].as_u64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: packets are read from what nft lists, and a list without a counter is not
    /// taken for none.
    #[test]
    fn the_counter_is_found() {
        let list = |expr: Value| {
            json!({"nftables": [
                {"metainfo": {"version": "1.0.6"}},
                {"chain": {"name": "arriving"}},
                {"rule": {"chain": "arriving", "expr": expr}},
            ]})
        };
        let counted = json!([{"match": {}}, {"counter": {"packets": 42, "bytes": 7}}]);
        assert_eq!(packets(&list(counted)), Some(42));
        assert_eq!(packets(&list(json!([{"match": {}}]))), None);
    }
}
