//! The catalogue of metrics. docs/metrics.md lists the same; a test compares the
//! two.

use super::{
    Family, Samples, clients, disks, durations, exports, nodes, of, requests, sites, states,
};
use crate::snapshot::Snapshot;
use crate::text::{Metric, MetricKind, Scale};

pub(crate) const FAMILIES: &[Family] = &[
    family(
        "crossdock_build_info",
        MetricKind::Gauge,
        "Always 1; its labels are the version, and the ensemble that this process serves.",
        |all, out| {
            out.value(
                &[
                    ("version", &all.status.version),
                    ("ensemble", &all.status.ensemble),
                ],
                1.0,
            )
        },
    ),
    family(
        "crossdock_uptime_seconds",
        MetricKind::Gauge,
        "Seconds since the process was ready.",
        |all, out| out.value(&[], all.uptime_seconds),
    ),
    family(
        "crossdock_nfs_requests_total",
        MetricKind::Counter,
        "Requests that were answered, by procedure and by how they ended.",
        requests,
    ),
    family(
        "crossdock_nfs_request_duration_seconds",
        MetricKind::Histogram,
        "Time from a complete request, once the door has room for it, to its reply at the socket.",
        durations,
    ),
    family(
        "crossdock_nfs_received_bytes_total",
        MetricKind::Counter,
        "Bytes of requests.",
        |all, out| {
            for p in &all.procedures {
                out.value(&of(p), p.in_bytes as f64)
            }
        },
    ),
    family(
        "crossdock_nfs_sent_bytes_total",
        MetricKind::Counter,
        "Bytes of replies.",
        |all, out| {
            for p in &all.procedures {
                out.value(&of(p), p.out_bytes as f64)
            }
        },
    ),
    family(
        "crossdock_nfs_rejected_total",
        MetricKind::Counter,
        "Calls that the RPC layer refused: unknown programs, versions, procedures, credentials or arguments.",
        |all, out| out.count(&[], all.door.rejected_total),
    ),
    family(
        "crossdock_nfs_retransmitted_writes_total",
        MetricKind::Counter,
        "WRITEs that came again while the first was in progress.",
        |all, out| out.count(&[], all.door.retransmitted_total),
    ),
    family(
        "crossdock_nfs_slow_requests_total",
        MetricKind::Counter,
        "Requests that took longer than --slow-ms.",
        |all, out| out.count(&[], all.door.slow_total),
    ),
    family(
        "crossdock_nfs_connections",
        MetricKind::Gauge,
        "Connections of clients.",
        |all, out| out.count(&[], all.door.connections),
    ),
    family(
        "crossdock_nfs_connections_accepted_total",
        MetricKind::Counter,
        "Connections that were accepted.",
        |all, out| out.count(&[], all.event_loop.accepted_total),
    ),
    family(
        "crossdock_nfs_connections_paused",
        MetricKind::Gauge,
        "Connections that are not read from at this moment, for want of room.",
        |all, out| out.count(&[], all.door.connections_paused),
    ),
    family(
        "crossdock_nfs_pauses_total",
        MetricKind::Counter,
        "How often a connection was not read from any more for want of room.",
        |all, out| out.count(&[], all.door.pauses_total),
    ),
    family(
        "crossdock_nfs_requests_in_progress",
        MetricKind::Gauge,
        "Requests in progress.",
        |all, out| out.count(&[], all.door.calls),
    ),
    family(
        "crossdock_nfs_requests_in_progress_max",
        MetricKind::Gauge,
        "How many there may be; then connections are paused.",
        |all, out| out.count(&[], all.door.calls_max),
    ),
    family(
        "crossdock_nfs_held_bytes",
        MetricKind::Gauge,
        "Bytes of requests in progress, and of replies that clients have not taken.",
        |all, out| out.count(&[], all.door.held_bytes),
    ),
    family(
        "crossdock_nfs_held_max_bytes",
        MetricKind::Gauge,
        "How many there may be; then connections are paused.",
        |all, out| out.count(&[], all.door.held_bytes_max),
    ),
    family(
        "crossdock_router_requests_in_progress",
        MetricKind::Gauge,
        "Requests that the router works on.",
        |all, out| out.count(&[], all.door.routed),
    ),
    family(
        "crossdock_client_requests_total",
        MetricKind::Counter,
        "Requests by client address; all but the 256 that called last are `other`.",
        |all, out| clients(all, out, |t| t.requests),
    ),
    family(
        "crossdock_client_failures_total",
        MetricKind::Counter,
        "Those of them that failed.",
        |all, out| clients(all, out, |t| t.failures),
    ),
    family(
        "crossdock_client_read_bytes_total",
        MetricKind::Counter,
        "Bytes that clients have read from files.",
        |all, out| clients(all, out, |t| t.read_bytes),
    ),
    family(
        "crossdock_client_written_bytes_total",
        MetricKind::Counter,
        "Bytes that clients have written to files.",
        |all, out| clients(all, out, |t| t.written_bytes),
    ),
    family(
        "crossdock_client_connections",
        MetricKind::Gauge,
        "Connections by client address.",
        |all, out| {
            for c in &all.clients {
                out.count(&[("client", &c.address)], c.connections)
            }
        },
    ),
    family(
        "crossdock_export_requests_total",
        MetricKind::Counter,
        "Requests by export.",
        |all, out| exports(all, out, |t| t.requests),
    ),
    family(
        "crossdock_export_failures_total",
        MetricKind::Counter,
        "Those of them that failed.",
        |all, out| exports(all, out, |t| t.failures),
    ),
    family(
        "crossdock_export_read_bytes_total",
        MetricKind::Counter,
        "Bytes read from files, by export.",
        |all, out| exports(all, out, |t| t.read_bytes),
    ),
    family(
        "crossdock_export_written_bytes_total",
        MetricKind::Counter,
        "Bytes written to files, by export.",
        |all, out| exports(all, out, |t| t.written_bytes),
    ),
    family(
        "crossdock_node_state",
        MetricKind::Gauge,
        "1 for the state that a node is in, 0 for the others.",
        states,
    ),
    family(
        "crossdock_node_requests_total",
        MetricKind::Counter,
        "What a node was asked for, by kind.",
        |all, out| {
            for n in &all.nodes {
                for (kind, &count) in &n.requests {
                    out.count(&[("node", &n.number.to_string()), ("request", kind)], count)
                }
            }
        },
    ),
    family(
        "crossdock_node_requests_in_progress",
        MetricKind::Gauge,
        "Requests that a node works on.",
        |all, out| nodes(all, out, |n| n.calls),
    ),
    family(
        "crossdock_node_requests_refused_total",
        MetricKind::Counter,
        "Requests that a node refused because too many were in progress.",
        |all, out| nodes(all, out, |n| n.refused_total),
    ),
    family(
        "crossdock_node_capacity_bytes",
        MetricKind::Gauge,
        "Bytes that a node may hold.",
        |all, out| nodes(all, out, |n| n.capacity_bytes),
    ),
    family(
        "crossdock_node_used_bytes",
        MetricKind::Gauge,
        "Bytes in use.",
        |all, out| nodes(all, out, |n| n.used_bytes),
    ),
    family(
        "crossdock_node_free_bytes",
        MetricKind::Gauge,
        "Bytes that new data can take.",
        |all, out| nodes(all, out, |n| n.free_bytes),
    ),
    family(
        "crossdock_node_objects",
        MetricKind::Gauge,
        "Objects of a node.",
        |all, out| nodes(all, out, |n| n.objects),
    ),
    family(
        "crossdock_node_dirty_bytes",
        MetricKind::Gauge,
        "Bytes of unstable writes that are in memory only.",
        |all, out| nodes(all, out, |n| n.dirty_bytes),
    ),
    family(
        "crossdock_node_media_errors_total",
        MetricKind::Counter,
        "Blocks that could not be read or did not match their checksum.",
        |all, out| nodes(all, out, |n| n.media_errors),
    ),
    family(
        "crossdock_node_repaired_blocks_total",
        MetricKind::Counter,
        "Bad blocks that were written anew from another node.",
        |all, out| {
            for node in &all.status.nodes {
                out.count(&[("node", &node.number.to_string())], node.repaired_blocks);
            }
        },
    ),
    family(
        "crossdock_node_failed",
        MetricKind::Gauge,
        "1 if a disk of the node takes no writes any more.",
        |all, out| nodes(all, out, |n| u64::from(n.has_failed)),
    ),
    family(
        "crossdock_journal_capacity_bytes",
        MetricKind::Gauge,
        "Length of a node's journal.",
        |all, out| nodes(all, out, |n| n.journal_bytes),
    ),
    family(
        "crossdock_journal_used_bytes",
        MetricKind::Gauge,
        "Bytes of the journal between its tail and its head.",
        |all, out| nodes(all, out, |n| n.journal_used_bytes),
    ),
    family(
        "crossdock_journal_frame_records",
        MetricKind::Histogram,
        "Records of each journal frame: how many changes share one durable write.",
        |all, out| {
            for n in &all.nodes {
                out.histogram(
                    &[("node", &n.number.to_string())],
                    &n.frame_records,
                    Scale::Count,
                )
            }
        },
    ),
    family(
        "crossdock_journal_written_bytes_total",
        MetricKind::Counter,
        "Bytes of journal frames.",
        |all, out| nodes(all, out, |n| n.journal_written_bytes),
    ),
    family(
        "crossdock_journal_flushes_total",
        MetricKind::Counter,
        "Durable writes of the journal.",
        |all, out| nodes(all, out, |n| n.journal_flushes),
    ),
    family(
        "crossdock_journal_trims_total",
        MetricKind::Counter,
        "How often the journal's tail went on.",
        |all, out| nodes(all, out, |n| n.journal_trims),
    ),
    family(
        "crossdock_index_checkpoints_total",
        MetricKind::Counter,
        "Durable commits of a node's index.",
        |all, out| nodes(all, out, |n| n.checkpoints),
    ),
    family(
        "crossdock_disk_operation_duration_seconds",
        MetricKind::Histogram,
        "Time from the issue of a disk request to its completion.",
        |all, out| {
            for (n, d) in disks(all) {
                for o in &d.operations {
                    if o.latency.count() > 0 {
                        out.histogram(
                            &[("node", &n), ("disk", &d.name), ("operation", &o.name)],
                            &o.latency,
                            Scale::Seconds,
                        )
                    }
                }
            }
        },
    ),
    family(
        "crossdock_disk_moved_bytes_total",
        MetricKind::Counter,
        "Bytes read and written.",
        |all, out| {
            for (n, d) in disks(all) {
                for o in d.operations.iter().filter(|o| o.bytes > 0) {
                    out.count(
                        &[("node", &n), ("disk", &d.name), ("operation", &o.name)],
                        o.bytes,
                    )
                }
            }
        },
    ),
    family(
        "crossdock_disk_failures_total",
        MetricKind::Counter,
        "Disk requests that failed.",
        |all, out| {
            for (n, d) in disks(all) {
                for o in &d.operations {
                    out.count(
                        &[("node", &n), ("disk", &d.name), ("operation", &o.name)],
                        o.failures,
                    )
                }
            }
        },
    ),
    family(
        "crossdock_disk_wait_seconds",
        MetricKind::Histogram,
        "Time that a request waited before the disk, by class.",
        |all, out| {
            for (n, d) in disks(all) {
                for c in &d.classes {
                    if c.wait.count() > 0 {
                        out.histogram(
                            &[("node", &n), ("disk", &d.name), ("class", &c.name)],
                            &c.wait,
                            Scale::Seconds,
                        )
                    }
                }
            }
        },
    ),
    family(
        "crossdock_disk_waiting_requests",
        MetricKind::Gauge,
        "Requests that wait before a disk, by class.",
        |all, out| {
            for (n, d) in disks(all) {
                for c in &d.classes {
                    out.count(
                        &[("node", &n), ("disk", &d.name), ("class", &c.name)],
                        c.waiting,
                    )
                }
            }
        },
    ),
    family(
        "crossdock_disk_in_flight_requests",
        MetricKind::Gauge,
        "Requests that a disk works on, by class.",
        |all, out| {
            for (n, d) in disks(all) {
                for c in &d.classes {
                    out.count(
                        &[("node", &n), ("disk", &d.name), ("class", &c.name)],
                        c.in_flight,
                    )
                }
            }
        },
    ),
    family(
        "crossdock_disk_refused_total",
        MetricKind::Counter,
        "Reads that were refused because too many requests waited.",
        |all, out| {
            for (n, d) in disks(all) {
                out.count(&[("node", &n), ("disk", &d.name)], d.refused_total)
            }
        },
    ),
    family(
        "crossdock_disk_cancelled_total",
        MetricKind::Counter,
        "Reads that were taken out because nobody waited for them any more.",
        |all, out| {
            for (n, d) in disks(all) {
                out.count(&[("node", &n), ("disk", &d.name)], d.cancelled_total)
            }
        },
    ),
    family(
        "crossdock_cache_hit_blocks_total",
        MetricKind::Counter,
        "Blocks of 4 KiB that reads found in the cache.",
        |all, out| nodes(all, out, |n| n.cache_hit_blocks),
    ),
    family(
        "crossdock_cache_miss_blocks_total",
        MetricKind::Counter,
        "Blocks that reads fetched from the disk.",
        |all, out| nodes(all, out, |n| n.cache_miss_blocks),
    ),
    family(
        "crossdock_cache_evicted_blocks_total",
        MetricKind::Counter,
        "Blocks that left the cache for others.",
        |all, out| nodes(all, out, |n| n.cache_evicted_blocks),
    ),
    family(
        "crossdock_cache_used_bytes",
        MetricKind::Gauge,
        "Memory that a node's cache takes.",
        |all, out| nodes(all, out, |n| n.cache_used_bytes),
    ),
    family(
        "crossdock_cache_capacity_bytes",
        MetricKind::Gauge,
        "Memory that it may take.",
        |all, out| nodes(all, out, |n| n.cache_capacity_bytes),
    ),
    family(
        "crossdock_scrub_running",
        MetricKind::Gauge,
        "1 while a scrub is at work.",
        |all, out| out.count(&[], u64::from(all.scrub.running)),
    ),
    family(
        "crossdock_scrub_checked_blocks",
        MetricKind::Gauge,
        "Blocks that the scrub, or the last one, has checked.",
        |all, out| out.count(&[], all.scrub.blocks_checked),
    ),
    family(
        "crossdock_scrub_findings",
        MetricKind::Gauge,
        "Bad places that it has found.",
        |all, out| out.count(&[], all.scrub.findings.len() as u64),
    ),
    family(
        "crossdock_site_serving",
        MetricKind::Gauge,
        "1 if a site answers.",
        |all, out| sites(all, out, |s| f64::from(u8::from(s.is_serving))),
    ),
    family(
        "crossdock_site_log_frame_records",
        MetricKind::Histogram,
        "Records of each frame of a site's log: how many changes share one append.",
        |all, out| {
            for s in &all.sites {
                out.histogram(
                    &[("site", &s.number.to_string())],
                    &s.frame_records,
                    Scale::Count,
                )
            }
        },
    ),
    family(
        "crossdock_site_log_bytes_total",
        MetricKind::Counter,
        "Bytes of a site's log.",
        |all, out| sites(all, out, |s| s.log_bytes as f64),
    ),
    family(
        "crossdock_site_log_since_checkpoint_bytes",
        MetricKind::Gauge,
        "Bytes of the log since the newest checkpoint began: what a restart replays.",
        |all, out| sites(all, out, |s| s.log_bytes_since_checkpoint as f64),
    ),
    family(
        "crossdock_site_checkpoints_total",
        MetricKind::Counter,
        "Checkpoints that became valid.",
        |all, out| sites(all, out, |s| s.checkpoints as f64),
    ),
    family(
        "crossdock_site_checkpoint_duration_seconds",
        MetricKind::Gauge,
        "How long the last checkpoint took.",
        |all, out| sites(all, out, |s| s.checkpoint_seconds),
    ),
    family(
        "crossdock_site_checkpoint_age_seconds",
        MetricKind::Gauge,
        "How long ago it was; not there before the first.",
        |all, out| {
            for s in &all.sites {
                if let Some(age) = s.checkpoint_age_seconds {
                    out.value(&[("site", &s.number.to_string())], age)
                }
            }
        },
    ),
    family(
        "crossdock_site_checkpoint_bytes",
        MetricKind::Gauge,
        "Length of the last checkpoint.",
        |all, out| sites(all, out, |s| s.checkpoint_bytes as f64),
    ),
    family(
        "crossdock_site_files",
        MetricKind::Gauge,
        "Files and directories.",
        |all, out| sites(all, out, |s| s.files as f64),
    ),
    family(
        "crossdock_site_names",
        MetricKind::Gauge,
        "Names of files and directories.",
        |all, out| sites(all, out, |s| s.names as f64),
    ),
    family(
        "crossdock_site_small_files",
        MetricKind::Gauge,
        "Files with bytes below 64 KiB that the site keeps.",
        |all, out| sites(all, out, |s| s.small_files as f64),
    ),
    family(
        "crossdock_site_remembered_replies",
        MetricKind::Gauge,
        "Replies that are remembered for retransmissions.",
        |all, out| sites(all, out, |s| s.duplicates as f64),
    ),
    family(
        "crossdock_site_open_intentions",
        MetricKind::Gauge,
        "Operations over several objects that are not finished.",
        |all, out| sites(all, out, |s| s.intentions as f64),
    ),
    family(
        "crossdock_site_waiting_requests",
        MetricKind::Gauge,
        "Requests that wait to be carried out.",
        |all, out| sites(all, out, |s| s.waiting as f64),
    ),
    family(
        "crossdock_site_held_replies",
        MetricKind::Gauge,
        "Replies that wait until the log is durable.",
        |all, out| sites(all, out, |s| s.held as f64),
    ),
    family(
        "crossdock_memory_bytes",
        MetricKind::Gauge,
        "Memory by what it is for, as far as it is counted.",
        |all, out| {
            for (part, &bytes) in &all.memory {
                out.count(&[("part", part)], bytes)
            }
        },
    ),
    family(
        "crossdock_loop_turns_total",
        MetricKind::Counter,
        "Turns of the data thread's event loop.",
        |all, out| out.count(&[], all.event_loop.turns_total),
    ),
    family(
        "crossdock_loop_system_calls_total",
        MetricKind::Counter,
        "System calls of the event loop, to wait and to hand over work.",
        |all, out| out.count(&[], all.event_loop.enters_total),
    ),
    family(
        "crossdock_thread_cpu_seconds_total",
        MetricKind::Counter,
        "CPU time by thread; `crossdock` is the data thread.",
        |all, out| {
            for (name, &seconds) in &all.process.threads {
                out.value(&[("thread", name)], seconds)
            }
        },
    ),
    family(
        "process_cpu_seconds_total",
        MetricKind::Counter,
        "CPU time of the process.",
        |all, out| out.value(&[], all.process.cpu_seconds),
    ),
    family(
        "process_resident_memory_bytes",
        MetricKind::Gauge,
        "Memory in use.",
        |all, out| out.count(&[], all.process.resident_bytes),
    ),
    family(
        "process_virtual_memory_bytes",
        MetricKind::Gauge,
        "Address space.",
        |all, out| out.count(&[], all.process.virtual_bytes),
    ),
    family(
        "process_open_fds",
        MetricKind::Gauge,
        "Open files.",
        |all, out| out.count(&[], all.process.open_fds),
    ),
    family(
        "process_max_fds",
        MetricKind::Gauge,
        "How many there may be.",
        |all, out| out.count(&[], all.process.max_fds),
    ),
    family(
        "process_start_time_seconds",
        MetricKind::Gauge,
        "When the process was started, in seconds since 1970.",
        |all, out| out.value(&[], all.process.started),
    ),
];

const fn family(
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    write: fn(&Snapshot, &mut Samples<'_>),
) -> Family {
    Family {
        metric: Metric { name, kind, help },
        write,
    }
}
