//! Sites: logs, checkpoints, names.

use super::family;
use crate::families::{Family, sites};
use crate::text::{MetricKind, Scale};

pub(super) const FAMILIES: &[Family] = &[
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
        "crossdock_site_decisions_total",
        MetricKind::Counter,
        "Operations over several sites that a site decided.",
        |all, out| sites(all, out, |s| s.decisions as f64),
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
];
