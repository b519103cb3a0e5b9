//! Metrics of the HTTP doors, of gateways and of nodes, and of the delivery engine.

use super::family;
use crate::families::Family;
use crate::text::MetricKind::{Counter, Gauge, Histogram};
use crate::text::Scale;

pub(super) const FAMILIES: &[Family] = &[
    family(
        "crossdock_http_requests_total",
        Counter,
        "Requests over HTTP, by method.",
        |all, out| {
            for (method, &count) in &all.http.requests {
                out.count(&[("method", method)], count);
            }
        },
    ),
    family(
        "crossdock_http_responses_total",
        Counter,
        "Responses over HTTP, by the class of their status.",
        |all, out| {
            for (class, &count) in &all.http.responses {
                out.count(&[("class", class)], count);
            }
        },
    ),
    family(
        "crossdock_http_connections",
        Gauge,
        "Connections of HTTP clients.",
        |all, out| out.count(&[], all.http.connections),
    ),
    family(
        "crossdock_http_sent_bytes_total",
        Counter,
        "Bytes of files that were given to connections.",
        |all, out| out.count(&[], all.http.sent_bytes),
    ),
    family(
        "crossdock_http_received_bytes_total",
        Counter,
        "Bytes of contents that came.",
        |all, out| out.count(&[], all.http.received_bytes),
    ),
    family(
        "crossdock_http_upload_bytes",
        Gauge,
        "Bytes of contents on their way to the volume.",
        |all, out| out.count(&[], all.http.upload_bytes),
    ),
    family(
        "crossdock_http_changed_total",
        Counter,
        "Responses that were broken off because their file has changed.",
        |all, out| out.count(&[], all.http.changed_total),
    ),
    family(
        "crossdock_http_late_total",
        Counter,
        "Connections that were ended because their clients took too long.",
        |all, out| out.count(&[], all.http.late_total),
    ),
    family(
        "crossdock_node_http_responses_total",
        Counter,
        "Responses of the nodes' HTTP door, by the class of their status.",
        |all, out| {
            for (class, &count) in &all.node_http.responses {
                out.count(&[("class", class)], count);
            }
        },
    ),
    family(
        "crossdock_node_http_connections",
        Gauge,
        "Connections at the nodes' HTTP door.",
        |all, out| out.count(&[], all.node_http.connections),
    ),
    family(
        "crossdock_node_http_sent_bytes_total",
        Counter,
        "Bytes of objects that were given to connections of the nodes' HTTP door.",
        |all, out| out.count(&[], all.node_http.sent_bytes),
    ),
    family(
        "crossdock_node_http_held_bytes",
        Gauge,
        "Bytes of responses of that door that are asked for, or not taken by the kernel.",
        |all, out| out.count(&[], all.node_http.held_bytes),
    ),
    family(
        "crossdock_node_http_broken_total",
        Counter,
        "Responses of that door that were broken off: the object has changed, or cannot be read.",
        |all, out| out.count(&[], all.node_http.broken_total),
    ),
    family(
        "crossdock_node_http_late_total",
        Counter,
        "Connections of that door that were ended because their clients took too long.",
        |all, out| out.count(&[], all.node_http.late_total),
    ),
    family(
        "crossdock_node_http_withdrawn_total",
        Counter,
        "Reads of that door that were withdrawn, as their connections are gone.",
        |all, out| out.count(&[], all.node_http.withdrawn_total),
    ),
    family(
        "crossdock_node_http_postponed_total",
        Counter,
        "Reads of that door that were moved behind others, as their connections are stalled.",
        |all, out| out.count(&[], all.node_http.postponed_total),
    ),
    family(
        "crossdock_delivery_streams",
        Gauge,
        "Responses whose bytes are read as their connections take them, and files that NFS clients read on.",
        |all, out| out.count(&[], all.http.streams),
    ),
    family(
        "crossdock_delivery_waiting",
        Gauge,
        "Streams that wait for memory.",
        |all, out| out.count(&[], all.http.waiting),
    ),
    family(
        "crossdock_delivery_rate_bytes",
        Gauge,
        "Bytes a second that the connections of all streams take (B_net of the TPF paper).",
        |all, out| out.count(&[], all.http.rate_net),
    ),
    family(
        "crossdock_delivery_buffering_seconds",
        Gauge,
        "For how long connections are read ahead of (T_D of the TPF paper).",
        |all, out| out.value(&[], all.http.buffering_seconds),
    ),
    family(
        "crossdock_delivery_memory_bytes",
        Gauge,
        "Bytes that are requested or read, and not yet handed to sockets (of NFS: read ahead at nodes, and not yet asked for).",
        |all, out| out.count(&[], all.http.memory_used),
    ),
    family(
        "crossdock_delivery_memory_max_bytes",
        Gauge,
        "Bytes that there may be of those.",
        |all, out| out.count(&[], all.http.memory_bytes),
    ),
    family(
        "crossdock_delivery_withdrawn_total",
        Counter,
        "Reads that were withdrawn, as their connections are gone.",
        |all, out| out.count(&[], all.http.withdrawn_total),
    ),
    family(
        "crossdock_delivery_postponed_total",
        Counter,
        "Reads that were moved behind others, as their connections are stalled.",
        |all, out| out.count(&[], all.http.postponed_total),
    ),
    family(
        "crossdock_delivery_postponed_bytes_total",
        Counter,
        "Bytes that connections in trouble were found to have asked for too early, which is why reads were moved behind others.",
        |all, out| out.count(&[], all.http.postponed_bytes),
    ),
    family(
        "crossdock_delivery_thrown_away_bytes_total",
        Counter,
        "Bytes that were read and not sent, although their connections live.",
        |all, out| out.count(&[], all.http.thrown_away_bytes),
    ),
    family(
        "crossdock_delivery_unclaimed_bytes_total",
        Counter,
        "Bytes that nodes were told to read ahead for NFS clients, which have not asked for them.",
        |all, out| out.count(&[], all.http.unclaimed_bytes),
    ),
    family(
        "crossdock_delivery_dead_bytes_total",
        Counter,
        "Bytes that were read, or were being read, for connections that died.",
        |all, out| out.count(&[], all.http.dead_bytes),
    ),
    family(
        "crossdock_delivery_requests_total",
        Counter,
        "Reads that the engine has asked for.",
        |all, out| out.count(&[], all.http.delivery_requests),
    ),
    family(
        "crossdock_delivery_requested_bytes_total",
        Counter,
        "Their bytes.",
        |all, out| out.count(&[], all.http.delivery_requested_bytes),
    ),
    family(
        "crossdock_delivery_residence_seconds",
        Histogram,
        "Time from a block's arrival from the disk until its bytes left for the network.",
        |all, out| out.histogram(&[], &all.http.residence, Scale::Seconds),
    ),
    family(
        "crossdock_delivery_residence_percent",
        Histogram,
        "The same, in percent of what the connection was read ahead of for.",
        |all, out| out.histogram(&[], &all.http.residence_percent, Scale::Count),
    ),
];
