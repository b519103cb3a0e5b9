//! The nodes' IBP depots.

use super::family;
use crate::families::{Family, Samples};
use crate::snapshot::{DepotFigures, Snapshot};
use crate::text::MetricKind;

fn depots(all: &Snapshot, out: &mut Samples<'_>, value: fn(&DepotFigures) -> u64) {
    for node in &all.nodes {
        if let Some(depot) = &node.depot {
            out.count(&[("node", &node.number.to_string())], value(depot));
        }
    }
}

pub(super) const FAMILIES: &[Family] = &[
    family(
        "crossdock_ibp_requests_total",
        MetricKind::Counter,
        "Requests that a depot has understood, by command.",
        |all, out| {
            for node in &all.nodes {
                for (command, &count) in node.depot.iter().flat_map(|depot| &depot.commands) {
                    let number = node.number.to_string();
                    out.count(&[("node", &number), ("command", command)], count);
                }
            }
        },
    ),
    family(
        "crossdock_ibp_refused_total",
        MetricKind::Counter,
        "Requests that a depot has refused, or that have failed.",
        |all, out| depots(all, out, |depot| depot.refused_total),
    ),
    family(
        "crossdock_ibp_busy_total",
        MetricKind::Counter,
        "Connections and requests that a depot has told to come again.",
        |all, out| depots(all, out, |depot| depot.busy_total),
    ),
    family(
        "crossdock_ibp_connections",
        MetricKind::Gauge,
        "Connections of a depot: of its clients, and to other depots.",
        |all, out| depots(all, out, |depot| depot.connections),
    ),
    family(
        "crossdock_ibp_late_total",
        MetricKind::Counter,
        "Connections of a depot that were ended because the other side took too long.",
        |all, out| depots(all, out, |depot| depot.late_total),
    ),
    family(
        "crossdock_ibp_stored_bytes_total",
        MetricKind::Counter,
        "Bytes that were stored in a depot.",
        |all, out| depots(all, out, |depot| depot.stored_bytes),
    ),
    family(
        "crossdock_ibp_sent_bytes_total",
        MetricKind::Counter,
        "Bytes of loads and copies that a depot has given to connections.",
        |all, out| depots(all, out, |depot| depot.sent_bytes),
    ),
    family(
        "crossdock_ibp_held_bytes",
        MetricKind::Gauge,
        "Bytes of loads and copies that are asked for, or not taken by the kernel.",
        |all, out| depots(all, out, |depot| depot.held_bytes),
    ),
    family(
        "crossdock_ibp_broken_total",
        MetricKind::Counter,
        "Loads of a depot that were broken off.",
        |all, out| depots(all, out, |depot| depot.broken_total),
    ),
    family(
        "crossdock_ibp_withdrawn_total",
        MetricKind::Counter,
        "Reads of a depot that were withdrawn, as their connections are gone.",
        |all, out| depots(all, out, |depot| depot.withdrawn_total),
    ),
    family(
        "crossdock_ibp_postponed_total",
        MetricKind::Counter,
        "Reads of a depot that were moved behind others, as their connections are stalled.",
        |all, out| depots(all, out, |depot| depot.postponed_total),
    ),
    family(
        "crossdock_ibp_allocations",
        MetricKind::Gauge,
        "Allocations of a depot.",
        |all, out| depots(all, out, |depot| depot.allocations),
    ),
    family(
        "crossdock_ibp_allocations_gone_total",
        MetricKind::Counter,
        "Allocations that have ended: expired, revoked for stable ones, or released.",
        |all, out| {
            for node in &all.nodes {
                for (why, &count) in node.depot.iter().flat_map(|depot| &depot.gone) {
                    let number = node.number.to_string();
                    out.count(&[("node", &number), ("reason", why)], count);
                }
            }
        },
    ),
    family(
        "crossdock_ibp_promised_bytes",
        MetricKind::Gauge,
        "Bytes that a depot's allocations may hold.",
        |all, out| {
            for node in &all.nodes {
                let Some(depot) = &node.depot else { continue };
                let number = node.number.to_string();
                for (kind, bytes) in [
                    ("stable", depot.stable_bytes),
                    ("volatile", depot.volatile_bytes),
                ] {
                    out.count(&[("node", &number), ("reliability", kind)], bytes);
                }
            }
        },
    ),
];
