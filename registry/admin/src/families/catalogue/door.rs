//! Who serves, and what clients ask of it.

use super::family;
use crate::families::{Family, clients, durations, exports, of, requests};
use crate::text::MetricKind;

pub(super) const FAMILIES: &[Family] = &[
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
        "crossdock_router_file_leases",
        MetricKind::Gauge,
        "Leases of files by which the router reads and writes without asking their sites.",
        |all, out| out.count(&[], all.door.file_leases),
    ),
    family(
        "crossdock_router_map_windows",
        MetricKind::Gauge,
        "Pieces of files' block maps that the router knows, of up to 1 KiB each.",
        |all, out| out.count(&[], all.door.map_windows),
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
];
