//! What the data thread tells of itself to whoever watches it.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_admin::snapshot::{
    Client, DepotFigures, DiskClass, DiskFigures, DiskOperation, DoorFigures, HttpFigures,
    IscsiFigures, LoopFigures, NodeFigures, NodeHttpFigures, Procedure, ProcessFigures,
    SiteFigures, SlowRequest, SlowWaits, Snapshot, Traffic,
};
use crossdock_disks::{DiskClass as Class, Operation};
use crossdock_host::{Host, HostFigures, HostStatus};
use crossdock_metrics::Histogram;
use crossdock_names::ExportId;
use crossdock_net::now;
use crossdock_nfs::SlowCall;
use crossdock_server::NodeCounts;
use crossdock_types::{Time, WallTime};
use tracing::{info, warn};

use super::{Shell, wall_time};
use crate::report;

/// Slow requests that are told in the log within [`SLOW_INTERVAL`]; all are
/// counted, and the newest are kept.
const SLOW_TOLD_MAX: u32 = 10;

/// See [`SLOW_TOLD_MAX`].
const SLOW_INTERVAL: Duration = Duration::from_secs(10);

/// Findings of a scrub that are told in the log; `crossdock scrub` has all.
const FINDINGS_TOLD_MAX: usize = 10;

/// What the log has been told of, so that it is not told too much.
#[derive(Debug, Default)]
pub(super) struct Told {
    slow_since: Time,
    slow: u32,
    slow_hidden: u64,
    is_scrubbing: bool,
    is_moving: bool,
}

impl Shell {
    /// The replies that were made are at the socket: their calls are counted,
    /// and what an administrator should know goes to the log.
    pub(super) fn settle_figures(&mut self, time: Time) {
        self.host.replies_sent(time);
        while let Some(slow) = self.host.next_slow() {
            self.tell_slow(time, &slow);
        }
        if self.told.is_scrubbing != self.host.scrub_progress().running {
            self.tell_scrub();
        }
        let is_elsewhere = self.host.orders_nodes(); // The nodes tell.
        if !is_elsewhere && self.told.is_moving != self.host.defrag_progress().running {
            self.tell_defrag();
        }
    }

    fn tell_slow(&mut self, time: Time, slow: &SlowCall) {
        let told = &mut self.told;
        if time.since(told.slow_since) >= SLOW_INTERVAL {
            if told.slow_hidden > 0 {
                warn!(
                    requests = told.slow_hidden,
                    "more slow requests were not told one by one"
                );
            }
            (told.slow_since, told.slow, told.slow_hidden) = (time, 0, 0);
        }
        if told.slow >= SLOW_TOLD_MAX {
            told.slow_hidden += 1;
            return;
        }
        told.slow += 1;
        let ms = millis(slow.took);
        let file = slow
            .file
            .map(|file| format!("{file:016x}"))
            .unwrap_or_default();
        warn!(
            ms,
            procedure = slow.procedure,
            client = %slow.client,
            file,
            status = %slow.status,
            bytes = slow.io_bytes,
            queue_ms = millis(slow.queued),
            site_ms = millis(slow.waited.site),
            nodes_ms = millis(slow.waited.nodes),
            "slow request"
        );
    }

    fn tell_scrub(&mut self) {
        let progress = self.host.scrub_progress();
        self.told.is_scrubbing = progress.running;
        if progress.running {
            info!("scrub started");
            return;
        }
        for finding in progress.findings.iter().take(FINDINGS_TOLD_MAX) {
            warn!("scrub found: {finding}");
        }
        info!(
            blocks = progress.blocks_checked,
            findings = progress.findings.len(),
            "scrub ended"
        );
    }

    fn tell_defrag(&mut self) {
        let progress = self.host.defrag_progress();
        self.told.is_moving = progress.running;
        if progress.running {
            info!(scheduled = progress.is_scheduled, "defragmentation started");
            return;
        }
        for error in progress.errors.iter().take(FINDINGS_TOLD_MAX) {
            warn!("defragmentation: {error}");
        }
        info!(
            moved_blocks = progress.moves.moved_blocks,
            runs_before = progress.found.runs,
            runs_after = progress.left.runs,
            "defragmentation ended"
        );
    }

    /// Everything, at this moment.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        let (time, wall) = (now(), wall_time());
        let uptime = time.since(self.started);
        let status = self.status().ok()?;
        let scrub = report::scrub(&self.host).ok()?;
        let defrag = report::defrag(&self.host).ok()?;
        let figures = self.host.figures(time);
        let stores = self.host.status();
        let at = seconds(wall);
        let paths = self.host.exports().iter();
        let paths: BTreeMap<u32, &str> = paths.map(|one| (one.id, one.path.as_str())).collect();
        let path = |id: ExportId| paths.get(&id.0).map(|path| (*path).to_owned());
        let door = &figures.door;
        let exports = door.exports.iter();
        let slow = |call: &SlowCall| SlowRequest {
            at: at - time.since(call.at).as_secs_f64(),
            export: call.export.and_then(path),
            ..slow_request(call)
        };
        Some(Snapshot {
            at,
            uptime_seconds: uptime.as_secs_f64(),
            status: serde_json::from_value(status).ok()?,
            procedures: door.procedures.iter().map(procedure).collect(),
            clients: door.clients.iter().map(client).collect(),
            other_clients: traffic(&door.other_clients),
            exports: exports
                .filter_map(|(id, sum)| Some((path(*id)?, traffic(sum))))
                .collect(),
            memory: memory(&figures, &stores),
            nodes: nodes(&self.host, &figures, &stores)
                .into_iter()
                .map(|node| NodeFigures {
                    sets: self.set_figures(node.number),
                    ..node
                })
                .collect(),
            sites: sites(&figures),
            scrub: serde_json::from_value(scrub).ok()?,
            defrag: serde_json::from_value(defrag).ok()?,
            event_loop: LoopFigures {
                turns_total: self.turns_total,
                enters_total: self.driver.enters(),
                accepted_total: self.doors.accepted_total(),
            },
            slow: door.slow.iter().map(slow).collect(),
            door: door_figures(&figures),
            http: http_figures(&self.host.http_figures()),
            iscsi: iscsi_figures(&self.host.iscsi_figures()),
            node_http: node_http_figures(&self.host.object_figures()),
            transfer: self.transfer_figures(),
            process: ProcessFigures::default(),
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(wall: WallTime) -> f64 {
    wall.0 as f64 / 1e9
}

fn traffic(traffic: &crossdock_nfs::Traffic) -> Traffic {
    Traffic {
        requests: traffic.requests,
        failures: traffic.failures,
        read_bytes: traffic.read_bytes,
        written_bytes: traffic.written_bytes,
    }
}

fn client(client: &crossdock_nfs::ClientFigures) -> Client {
    Client {
        address: client.address.to_string(),
        connections: client.connections as u64,
        idle_seconds: client.idle.as_secs_f64(),
        traffic: traffic(&client.traffic),
    }
}

fn procedure(procedure: &crossdock_nfs::ProcedureFigures) -> Procedure {
    let ok = ("ok".to_owned(), procedure.succeeded);
    Procedure {
        program: procedure.program.to_owned(),
        name: procedure.name.to_owned(),
        statuses: procedure.failed.iter().cloned().chain([ok]).collect(),
        latency: procedure.latency.clone(),
        in_bytes: procedure.in_bytes,
        out_bytes: procedure.out_bytes,
    }
}

fn slow_request(call: &SlowCall) -> SlowRequest {
    SlowRequest {
        at: 0.0,
        seconds: call.took.as_secs_f64(),
        program: call.program.to_owned(),
        procedure: call.procedure.to_owned(),
        client: call.client.to_string(),
        export: None,
        file: call.file,
        status: call.status.clone(),
        io_bytes: call.io_bytes,
        waited: slow_waits(call),
    }
}

fn slow_waits(call: &SlowCall) -> SlowWaits {
    let known = call.waited.site + call.waited.nodes;
    SlowWaits {
        queue: call.queued.as_secs_f64(),
        site: call.waited.site.as_secs_f64(),
        nodes: call.waited.nodes.as_secs_f64(),
        other: call.took.saturating_sub(known).as_secs_f64(),
    }
}

fn door_figures(figures: &HostFigures) -> DoorFigures {
    let door = &figures.door;
    DoorFigures {
        connections: door.connections as u64,
        connections_paused: door.paused as u64,
        pauses_total: door.pauses_total,
        calls: door.calls as u64,
        calls_max: door.calls_max as u64,
        held_bytes: door.held_bytes as u64,
        held_bytes_max: door.held_bytes_max as u64,
        rejected_total: door.rejected_total,
        retransmitted_total: door.retransmitted_total,
        slow_total: door.slow_total,
        routed: figures.routed as u64,
        file_leases: figures.file_leases as u64,
        map_windows: figures.map_windows as u64,
    }
}

/// Methods in the order in which the door counts them.
const METHODS: [&str; 6] = ["get", "head", "put", "delete", "options", "other"];

fn http_figures(http: &crossdock_http::HttpFigures) -> HttpFigures {
    let requests = METHODS.iter().zip(http.requests_total);
    let responses = (1..).zip(http.responses_total);
    let delivery = &http.delivery;
    HttpFigures {
        requests: requests
            .map(|(method, count)| ((*method).to_owned(), count))
            .collect(),
        responses: responses
            .map(|(class, count)| (format!("{class}xx"), count))
            .collect(),
        connections: http.connections as u64,
        sent_bytes: http.sent_bytes,
        received_bytes: http.received_bytes,
        upload_bytes: http.upload_bytes as u64,
        changed_total: http.changed_total,
        late_total: http.late_total,
        streams: delivery.streams as u64,
        waiting: delivery.waiting as u64,
        rate_net: delivery.rate_net,
        buffering_seconds: delivery.buffering_time.as_secs_f64(),
        memory_used: delivery.memory_used,
        memory_bytes: delivery.memory_bytes,
        withdrawn_total: http.withdrawn_total,
        postponed_total: http.postponed_total,
        postponed_bytes: delivery.postponed_bytes,
        thrown_away_bytes: delivery.thrown_away_bytes,
        unclaimed_bytes: delivery.unclaimed_bytes,
        dead_bytes: delivery.dead_bytes,
        delivery_requests: delivery.requests.count(),
        delivery_requested_bytes: delivery.requests.sum(),
        residence: delivery.residence.time.clone(),
        residence_percent: delivery.residence.percent.clone(),
    }
}

fn iscsi_figures(door: &crossdock_iscsi::IscsiFigures) -> IscsiFigures {
    let named = |names: &[&str], counts: &[u64]| {
        let pairs = names.iter().zip(counts);
        pairs
            .map(|(name, &count)| ((*name).to_owned(), count))
            .collect()
    };
    let statuses = ["good", "check_condition", "reservation_conflict", "busy"];
    IscsiFigures {
        commands: named(&["read", "write", "other"], &door.commands_total),
        responses: named(&statuses, &door.responses_total),
        sent_bytes: door.sent_bytes,
        received_bytes: door.received_bytes,
        copied_bytes: named(&["nodes", "gateway"], &door.copied_bytes),
        aborted_total: door.aborted_total,
        withdrawn_total: door.withdrawn_total,
        refused_logins_total: door.refused_logins_total,
        rejected_total: door.rejected_total,
        connections: door.connections as u64,
        sessions: door.sessions as u64,
        tasks: door.tasks as u64,
        held_bytes: door.held_bytes as u64,
    }
}

fn node_http_figures(door: &crossdock_objects::ObjectDoorFigures) -> NodeHttpFigures {
    let responses = (1..).zip(door.responses_total);
    NodeHttpFigures {
        responses: responses
            .map(|(class, count)| (format!("{class}xx"), count))
            .collect(),
        connections: door.connections as u64,
        sent_bytes: door.sent_bytes,
        held_bytes: door.held_bytes,
        withdrawn_total: door.withdrawn_total,
        postponed_total: door.postponed_total,
        broken_total: door.broken_total,
        late_total: door.late_total,
    }
}

fn depot_figures(depot: &crossdock_depot::DepotFigures) -> DepotFigures {
    let named = |names: &[&str], counts: &[u64]| {
        let names = names.iter().map(|name| (*name).to_owned());
        names.zip(counts.iter().copied()).collect()
    };
    DepotFigures {
        commands: named(&crossdock_depot::COMMANDS, &depot.commands),
        refused_total: depot.refused_total,
        busy_total: depot.busy_total,
        connections: depot.connections as u64,
        late_total: depot.late_total,
        stored_bytes: depot.stored_bytes,
        sent_bytes: depot.sent_bytes,
        held_bytes: depot.held_bytes,
        broken_total: depot.broken_total,
        withdrawn_total: depot.withdrawn_total,
        postponed_total: depot.postponed_total,
        allocations: depot.allocations as u64,
        gone: named(&crossdock_depot::GONE, &depot.gone),
        stable_bytes: depot.stable_bytes,
        volatile_bytes: depot.volatile_bytes,
    }
}

fn memory(figures: &HostFigures, stores: &HostStatus) -> BTreeMap<String, u64> {
    let sum = |part: fn(&crossdock_store::StoreStatus) -> u64| -> u64 {
        stores.nodes.iter().map(|node| part(&node.store)).sum()
    };
    let of_sites = |part: fn(&crossdock_site::SiteFigures) -> usize| -> u64 {
        figures
            .sites
            .iter()
            .map(|(_, site)| part(site) as u64)
            .sum()
    };
    let parts = [
        ("cache", sum(|store| store.cache_used_bytes)),
        ("unstable", sum(|store| store.dirty_bytes)),
        ("directory", of_sites(|site| site.directory_bytes)),
        ("small_file_maps", of_sites(|site| site.small.map_bytes)),
        (
            "small_file_inlined",
            of_sites(|site| site.small.inlined_bytes),
        ),
        (
            "small_file_unstable",
            of_sites(|site| site.small.unstable_bytes),
        ),
        (
            "small_file_in_flight",
            of_sites(|site| site.small.in_flight_bytes),
        ),
        ("requests", figures.door.held_bytes as u64),
    ];
    parts.map(|(part, bytes)| (part.to_owned(), bytes)).into()
}

fn nodes(host: &Host, figures: &HostFigures, stores: &HostStatus) -> Vec<NodeFigures> {
    let stores = stores.nodes.iter();
    let nodes = stores.filter_map(|node| {
        let mut running = figures.nodes.iter();
        let (_, counts, records) = running.find(|(number, ..)| *number == node.number)?;
        let depot = host.depot_figures(node.number);
        Some(NodeFigures {
            depot: depot.map(|depot| depot_figures(&depot)),
            ..node_figures(node, counts, records)
        })
    });
    nodes.collect()
}

fn node_figures(
    node: &crossdock_host::NodeFigures,
    counts: &NodeCounts,
    records: &Histogram,
) -> NodeFigures {
    let store = &node.store;
    let requests = crossdock_server::REQUESTS.iter().zip(counts.requests);
    NodeFigures {
        number: node.number,
        requests: requests
            .map(|(kind, count)| ((*kind).to_owned(), count))
            .collect(),
        calls: counts.calls as u64,
        refused_total: counts.refused_total,
        disks: ["journal", "data"]
            .into_iter()
            .zip(&counts.disks)
            .map(|(name, disk)| disk_figures(name, disk))
            .collect(),
        frame_records: records.clone(),
        journal_written_bytes: store.frame_bytes,
        journal_flushes: store.journal_flushes,
        journal_trims: store.journal_trims,
        journal_bytes: store.journal_bytes,
        journal_used_bytes: store.journal_used_bytes,
        checkpoints: store.checkpoints,
        capacity_bytes: store.capacity_bytes,
        used_bytes: store.allocated_bytes,
        free_bytes: store.free_bytes,
        objects: store.objects,
        dirty_bytes: store.dirty_bytes,
        cache_hit_blocks: store.cache_hit_blocks,
        cache_miss_blocks: store.cache_miss_blocks,
        read_ahead_blocks: store.read_ahead_blocks,
        cache_evicted_blocks: store.cache_evicted_blocks,
        cache_used_bytes: store.cache_used_bytes,
        cache_capacity_bytes: store.cache_capacity_bytes,
        media_errors: store.media_errors,
        has_failed: store.has_failed,
        depot: None,
        sets: Vec::new(),
    }
}

fn disk_figures(name: &str, disk: &crossdock_disks::DiskFigures) -> DiskFigures {
    let operations = Operation::ALL.into_iter().zip(&disk.operations);
    let classes = Class::ALL.into_iter().zip(&disk.classes);
    DiskFigures {
        name: name.to_owned(),
        operations: operations
            .map(|(operation, figures)| DiskOperation {
                name: operation.word().to_owned(),
                latency: figures.latency.clone(),
                bytes: figures.bytes,
                failures: figures.failures,
            })
            .collect(),
        classes: classes
            .map(|(class, figures)| DiskClass {
                name: class.word().to_owned(),
                wait: figures.wait.clone(),
                waiting: figures.waiting as u64,
                in_flight: figures.in_flight as u64,
            })
            .collect(),
        refused_total: disk.refused_total,
        cancelled_total: disk.cancelled_total,
        cancelled_bytes: disk.cancelled_bytes,
        postponed_total: disk.postponed_total,
        postponed: disk.postponed as u64,
        positioning_seconds: disk.pace.positioning.as_secs_f64(),
        sequential_bytes_per_second: disk.pace.sequential_bytes_per_second,
    }
}

fn sites(figures: &HostFigures) -> Vec<SiteFigures> {
    let sites = figures.sites.iter().map(|(id, site)| SiteFigures {
        number: u32::from(id.0),
        is_serving: site.is_serving,
        frame_records: site.frames.records.clone(),
        log_bytes: site.frames.bytes,
        log_bytes_since_checkpoint: site.log_bytes_since_checkpoint,
        checkpoints: site.checkpoints,
        checkpoint_seconds: site
            .last_checkpoint
            .map_or(0.0, |(took, _)| took.as_secs_f64()),
        checkpoint_age_seconds: site.last_checkpoint.map(|(_, age)| age.as_secs_f64()),
        checkpoint_bytes: site.checkpoint_bytes,
        files: site.cells as u64,
        names: site.entries as u64,
        small_files: site.small.files as u64,
        duplicates: site.duplicates as u64,
        intentions: site.intentions as u64,
        decisions: site.decisions,
        waiting: site.waiting as u64,
        held: site.held as u64,
    });
    sites.collect()
}
