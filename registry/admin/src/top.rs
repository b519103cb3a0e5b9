//! What happens now: rates from two snapshots, for `crossdock top`.

use crossdock_metrics::Histogram;
use serde::Serialize;

use crate::history::point;
use crate::snapshot::{DiskFigures, NodeFigures, Procedure, SlowRequest, Snapshot, Traffic};

/// Slow requests that are told.
const SLOW_MAX: usize = 5;

/// What happened between two snapshots, the busiest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Top {
    /// Its end, in seconds since 1970.
    pub at: f64,
    /// How long it was.
    pub seconds: f64,
    /// Seconds that the process has been serving.
    pub uptime_seconds: f64,
    /// Seconds of CPU a second.
    pub cpu: f64,
    /// Memory in use.
    pub resident_bytes: u64,
    /// Connections of the NFS door.
    pub connections: u64,
    /// Those of them that wait for room.
    pub connections_paused: u64,
    /// Connections of the HTTP doors of gateway and nodes.
    pub http_connections: u64,
    /// Connections of the iSCSI door.
    pub iscsi_connections: u64,
    /// Connections of depots.
    pub ibp_connections: u64,
    /// Requests of the NFS door in progress.
    pub calls: u64,
    /// Requests a second.
    pub requests: f64,
    /// Bytes a second read from files.
    pub read_bytes: f64,
    /// Bytes a second written to files.
    pub written_bytes: f64,
    /// Bytes a second that nodes were to send to clients themselves.
    pub injected_bytes: f64,
    /// Bytes a second that this gateway has sent where nodes might have.
    pub relayed_bytes: f64,
    /// The same of files' bytes in replies over UDP, which are in neither.
    pub udp_injected_bytes: f64,
    /// Bytes a second of replies over UDP that this gateway has sent.
    pub udp_relayed_bytes: f64,
    /// Bytes a second that nodes of this process have sent as gateways.
    pub sent_for_gateways_bytes: f64,
    /// Procedures that were called.
    pub procedures: Vec<ProcedureRate>,
    /// Clients that called, or are connected.
    pub clients: Vec<ClientRate>,
    /// Nodes, by number.
    pub nodes: Vec<NodeRate>,
    /// The newest slow requests, newest first.
    pub slow: Vec<SlowRequest>,
}

/// A procedure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcedureRate {
    /// `nfs3`, `mount3`, `nlm`, `nsm`.
    pub program: String,
    /// Its name.
    pub name: String,
    /// Calls a second.
    pub requests: f64,
    /// Those of them that failed.
    pub failures: f64,
    /// Half of them took less, in seconds.
    pub p50: Option<f64>,
    /// 99 of 100 took less.
    pub p99: Option<f64>,
}

/// A client.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientRate {
    /// Its address, or `other`.
    pub address: String,
    /// Connections.
    pub connections: u64,
    /// Requests a second.
    pub requests: f64,
    /// Bytes a second read from files.
    pub read_bytes: f64,
    /// Bytes a second written to files.
    pub written_bytes: f64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRate {
    /// Its number.
    pub number: u32,
    /// `running`, …
    pub state: String,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that new data can take.
    pub free_bytes: u64,
    /// Part of the journal that is in use.
    pub journal_used: f64,
    /// Durable writes of the journal a second.
    pub journal_flushes: f64,
    /// 99 of 100 of them took less, in seconds.
    pub journal_p99: Option<f64>,
    /// Bytes a second that the data disk read.
    pub disk_read_bytes: f64,
    /// Bytes a second that it wrote.
    pub disk_written_bytes: f64,
    /// Requests that wait before its disks.
    pub waiting: u64,
    /// Part of the read blocks that were in the cache; not there if none were read.
    pub cache_hits: Option<f64>,
}

impl Top {
    /// What happened between two snapshots of one process.
    #[must_use]
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Self {
        let whole = point(earlier, later);
        let seconds = whole.seconds;
        let mut procedures: Vec<ProcedureRate> = later
            .procedures
            .iter()
            .map(|procedure| procedure_rate(earlier, procedure, seconds))
            .filter(|rate| rate.requests > 0.0)
            .collect();
        procedures.sort_by(|a, b| b.requests.total_cmp(&a.requests));
        let nodes = later.status.nodes.iter().map(|status| {
            let find = |all: &Snapshot| {
                let mut nodes = all.nodes.iter();
                nodes.find(|node| node.number == status.number).cloned()
            };
            let (before, now) = (find(earlier), find(later));
            node_rate(
                status.number,
                &status.state,
                before.as_ref(),
                now.as_ref(),
                seconds,
            )
        });
        let depots = later.nodes.iter().filter_map(|node| node.depot.as_ref());
        let rate = |of: fn(&Snapshot) -> u64| {
            of(later).saturating_sub(of(earlier)) as f64 / seconds.max(f64::MIN_POSITIVE)
        };
        Self {
            injected_bytes: rate(|all| all.transfer.injected_bytes),
            relayed_bytes: rate(|all| all.transfer.relayed_bytes.values().sum()),
            udp_injected_bytes: rate(|all| all.transfer.udp.injected_bytes),
            udp_relayed_bytes: rate(|all| all.transfer.udp.relayed_bytes.values().sum()),
            sent_for_gateways_bytes: rate(|all| {
                all.transfer.sent_bytes + all.transfer.udp.sent_bytes
            }),
            at: whole.at,
            seconds,
            uptime_seconds: later.uptime_seconds,
            cpu: whole.cpu,
            resident_bytes: later.process.resident_bytes,
            connections: later.door.connections,
            connections_paused: later.door.connections_paused,
            http_connections: later.http.connections + later.node_http.connections,
            iscsi_connections: later.iscsi.connections,
            ibp_connections: depots.map(|depot| depot.connections).sum(),
            calls: later.door.calls,
            // The sum of nothing is -0, which people would see.
            requests: whole.requests.values().sum::<f64>() + 0.0,
            read_bytes: whole.read_bytes,
            written_bytes: whole.written_bytes,
            procedures,
            clients: clients(earlier, later, seconds),
            nodes: nodes.collect(),
            slow: later.slow.iter().rev().take(SLOW_MAX).cloned().collect(),
        }
    }
}

fn procedure_rate(earlier: &Snapshot, now: &Procedure, seconds: f64) -> ProcedureRate {
    let is_it = |other: &&Procedure| other.program == now.program && other.name == now.name;
    let before = earlier.procedures.iter().find(is_it);
    let latency = match before {
        Some(before) => now.latency.since(&before.latency),
        None => now.latency.clone(),
    };
    let failures = now.failures() - before.map_or(0, Procedure::failures).min(now.failures());
    ProcedureRate {
        program: now.program.clone(),
        name: now.name.clone(),
        requests: latency.count() as f64 / seconds,
        failures: failures as f64 / seconds,
        p50: quantile(&latency, 0.5),
        p99: quantile(&latency, 0.99),
    }
}

fn clients(earlier: &Snapshot, later: &Snapshot, seconds: f64) -> Vec<ClientRate> {
    let rate = |address: &str, connections, now: Traffic, before: Option<Traffic>| {
        let before = before.unwrap_or_default();
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        ClientRate {
            address: address.to_owned(),
            connections,
            requests: rate(now.requests, before.requests),
            read_bytes: rate(now.read_bytes, before.read_bytes),
            written_bytes: rate(now.written_bytes, before.written_bytes),
        }
    };
    let own = later.clients.iter().map(|client| {
        let mut before = earlier.clients.iter();
        let before = before.find(|other| other.address == client.address);
        let before = before.map(|before| before.traffic);
        rate(&client.address, client.connections, client.traffic, before)
    });
    let others = rate("other", 0, later.other_clients, Some(earlier.other_clients));
    let mut clients: Vec<ClientRate> = own
        .chain([others])
        .filter(|client| client.requests > 0.0 || client.connections > 0)
        .collect();
    clients.sort_by(|a, b| b.requests.total_cmp(&a.requests));
    clients
}

fn node_rate(
    number: u32,
    state: &str,
    before: Option<&NodeFigures>,
    now: Option<&NodeFigures>,
    seconds: f64,
) -> NodeRate {
    let sum = |part: &dyn Fn(&NodeFigures) -> u64| {
        // A node that was started anew counts from zero.
        let (before, now) = (before.map_or(0, part), now.map_or(0, part));
        if now < before { now } else { now - before }
    };
    let rate = |part: &dyn Fn(&NodeFigures) -> u64| sum(part) as f64 / seconds;
    let bytes = |name: &'static str| {
        move |node: &NodeFigures| {
            let operations = disk(node, "data").map(|disk| disk.operations.iter());
            let mut operations = operations.into_iter().flatten();
            operations
                .find(|one| one.name == name)
                .map_or(0, |one| one.bytes)
        }
    };
    let hits = sum(&|node| node.cache_hit_blocks);
    let reads = hits + sum(&|node| node.cache_miss_blocks);
    let flushes = now.map(writes).map(|now| match before.map(writes) {
        Some(before) => now.since(&before),
        None => now,
    });
    NodeRate {
        number,
        state: state.to_owned(),
        used_bytes: now.map_or(0, |node| node.used_bytes),
        free_bytes: now.map_or(0, |node| node.free_bytes),
        journal_used: now.map_or(0.0, |node| {
            node.journal_used_bytes as f64 / node.journal_bytes.max(1) as f64
        }),
        journal_flushes: rate(&|node| node.journal_flushes),
        journal_p99: flushes.and_then(|flushes| quantile(&flushes, 0.99)),
        disk_read_bytes: rate(&bytes("read")),
        disk_written_bytes: rate(&bytes("write")),
        waiting: now.map_or(0, |node| {
            let classes = node.disks.iter().flat_map(|disk| &disk.classes);
            classes.map(|class| class.waiting).sum()
        }),
        cache_hits: (reads > 0).then(|| hits as f64 / reads as f64),
    }
}

/// Writes of a node's journal.
fn writes(node: &NodeFigures) -> Histogram {
    let operations = disk(node, "journal").map(|disk| disk.operations.iter());
    let mut operations = operations.into_iter().flatten();
    let write = operations.find(|one| one.name == "write");
    write.map(|write| write.latency.clone()).unwrap_or_default()
}

fn disk<'a>(node: &'a NodeFigures, name: &str) -> Option<&'a DiskFigures> {
    node.disks.iter().find(|disk| disk.name == name)
}

fn quantile(latency: &Histogram, part: f64) -> Option<f64> {
    latency.quantile(part).map(|micros| micros / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// Goal: rates are differences over time, the busiest come first, idle ones
    /// are left out, and a node that began anew has no absurd rates.
    #[test]
    fn rates_are_differences_over_time() {
        let earlier = sample::snapshot();
        let mut later = earlier.clone();
        later.at += 2.0;
        let getattr = &mut later.procedures[1];
        (0..10).for_each(|_| getattr.latency.record(64));
        getattr.statuses.insert("noent".to_owned(), 3);
        later.clients[0].traffic.requests += 10;
        later.clients[0].traffic.written_bytes += 2000;
        later.nodes[0].disks[1].operations[0].bytes += 100;
        later.nodes[0].cache_hit_blocks += 3;
        later.nodes[0].cache_miss_blocks += 1;
        later.nodes[1].journal_flushes = 2; // Less than before.
        let top = Top::between(&earlier, &later);
        assert_eq!(
            (top.seconds, top.requests, top.written_bytes),
            (2.0, 5.0, 1000.0)
        );
        let [getattr] = &top.procedures[..] else {
            panic!("{:?}", top.procedures);
        };
        assert_eq!(
            (getattr.name.as_str(), getattr.requests, getattr.failures),
            ("GETATTR", 5.0, 1.0)
        );
        assert!(getattr.p99.is_some_and(|p99| (60e-6..90e-6).contains(&p99)));
        assert_eq!((top.clients.len(), top.clients[0].requests), (1, 5.0));
        assert_eq!(
            (top.nodes[0].disk_read_bytes, top.nodes[0].cache_hits),
            (50.0, Some(0.75))
        );
        assert_eq!(
            (top.nodes[1].journal_flushes, top.nodes[1].cache_hits),
            (1.0, None)
        );
        assert_eq!(top.slow.len(), 1);
    }
}
