//! Metrics of the iSCSI door.

use super::family;
use crate::families::Family;
use crate::text::MetricKind::{Counter, Gauge};

pub(super) const FAMILIES: &[Family] = &[
    family(
        "crossdock_iscsi_commands_total",
        Counter,
        "SCSI commands, by what they do.",
        |all, out| {
            for (kind, &count) in &all.iscsi.commands {
                out.count(&[("kind", kind)], count);
            }
        },
    ),
    family(
        "crossdock_iscsi_responses_total",
        Counter,
        "Answers to SCSI commands, by status.",
        |all, out| {
            for (status, &count) in &all.iscsi.responses {
                out.count(&[("status", status)], count);
            }
        },
    ),
    family(
        "crossdock_iscsi_sent_bytes_total",
        Counter,
        "Bytes of LUNs that were given to connections.",
        |all, out| out.count(&[], all.iscsi.sent_bytes),
    ),
    family(
        "crossdock_iscsi_received_bytes_total",
        Counter,
        "Bytes that came with SCSI commands.",
        |all, out| out.count(&[], all.iscsi.received_bytes),
    ),
    family(
        "crossdock_iscsi_copied_bytes_total",
        Counter,
        "Bytes that copies between LUNs have written: given by node to node, or through this gateway.",
        |all, out| {
            for (way, &count) in &all.iscsi.copied_bytes {
                out.count(&[("way", way)], count);
            }
        },
    ),
    family(
        "crossdock_iscsi_aborted_total",
        Counter,
        "SCSI commands that were aborted by task management or the end of a session.",
        |all, out| out.count(&[], all.iscsi.aborted_total),
    ),
    family(
        "crossdock_iscsi_withdrawn_total",
        Counter,
        "Reads of aborted SCSI commands that were withdrawn.",
        |all, out| out.count(&[], all.iscsi.withdrawn_total),
    ),
    family(
        "crossdock_iscsi_refused_logins_total",
        Counter,
        "iSCSI logins that were refused.",
        |all, out| out.count(&[], all.iscsi.refused_logins_total),
    ),
    family(
        "crossdock_iscsi_rejected_total",
        Counter,
        "iSCSI PDUs that were refused, or ended their connection.",
        |all, out| out.count(&[], all.iscsi.rejected_total),
    ),
    family(
        "crossdock_iscsi_connections",
        Gauge,
        "Connections of iSCSI initiators.",
        |all, out| out.count(&[], all.iscsi.connections),
    ),
    family(
        "crossdock_iscsi_sessions",
        Gauge,
        "Sessions of iSCSI initiators.",
        |all, out| out.count(&[], all.iscsi.sessions),
    ),
    family(
        "crossdock_iscsi_tasks",
        Gauge,
        "SCSI commands in progress.",
        |all, out| out.count(&[], all.iscsi.tasks),
    ),
    family(
        "crossdock_iscsi_held_bytes",
        Gauge,
        "Bytes that SCSI commands in progress hold.",
        |all, out| out.count(&[], all.iscsi.held_bytes),
    ),
];
