//! Nodes: their journals, disks, caches, scrubs.

use super::family;
use crate::families::{Family, disks, nodes, sets, states};
use crate::text::{MetricKind, Scale};

pub(super) const FAMILIES: &[Family] = &[
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
        "crossdock_node_bad_blocks",
        MetricKind::Gauge,
        "Blocks that are known to be bad: neither repaired nor written anew since.",
        |all, out| {
            for node in &all.status.nodes {
                out.count(&[("node", &node.number.to_string())], node.bad_blocks);
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
        "crossdock_disk_cancelled_bytes_total",
        MetricKind::Counter,
        "Bytes that those reads would have moved.",
        |all, out| {
            for (n, d) in disks(all) {
                out.count(&[("node", &n), ("disk", &d.name)], d.cancelled_bytes)
            }
        },
    ),
    family(
        "crossdock_disk_postponed_total",
        MetricKind::Counter,
        "Reads that were moved behind others because their client does not take them.",
        |all, out| {
            for (n, d) in disks(all) {
                out.count(&[("node", &n), ("disk", &d.name)], d.postponed_total)
            }
        },
    ),
    family(
        "crossdock_disk_postponed_requests",
        MetricKind::Gauge,
        "Reads that are behind others now.",
        |all, out| {
            for (n, d) in disks(all) {
                out.count(&[("node", &n), ("disk", &d.name)], d.postponed)
            }
        },
    ),
    family(
        "crossdock_disk_positioning_seconds",
        MetricKind::Gauge,
        "What it takes to begin to read elsewhere, found from the reads so far.",
        |all, out| {
            for (n, d) in disks(all).filter(|(_, d)| d.name == "data") {
                let labels = [("node", &*n), ("disk", &*d.name)];
                out.value(&labels, d.positioning_seconds)
            }
        },
    ),
    family(
        "crossdock_disk_sequential_bytes_per_second",
        MetricKind::Gauge,
        "What it reads in a second once it is there, found from the reads so far.",
        |all, out| {
            for (n, d) in disks(all).filter(|(_, d)| d.name == "data") {
                let labels = [("node", &*n), ("disk", &*d.name)];
                out.count(&labels, d.sequential_bytes_per_second)
            }
        },
    ),
    family(
        "crossdock_disk_set_lacking_members",
        MetricKind::Gauge,
        "Members of a disk set that lack something, or are not there.",
        |all, out| sets(all, out, |set| set.lacking),
    ),
    family(
        "crossdock_disk_set_read_errors_total",
        MetricKind::Counter,
        "Reads that members of a disk set have failed; others gave the bytes if they could.",
        |all, out| sets(all, out, |set| set.read_errors),
    ),
    family(
        "crossdock_disk_set_rebuild_bytes",
        MetricKind::Gauge,
        "Bytes that a rebuild of a disk set has still to make.",
        |all, out| sets(all, out, |set| set.rebuild_bytes),
    ),
    family(
        "crossdock_disk_set_unreadable_stripes",
        MetricKind::Gauge,
        "Stripes that a rebuild could not make, as other members could not be read.",
        |all, out| sets(all, out, |set| set.unreadable_stripes),
    ),
    family(
        "crossdock_disk_set_differing_blocks_total",
        MetricKind::Counter,
        "Blocks of a disk set in which scrubs have found copies or parity that differ.",
        |all, out| sets(all, out, |set| set.differing_blocks),
    ),
    family(
        "crossdock_disk_set_agreed_blocks_total",
        MetricKind::Counter,
        "Blocks of a disk set that scrubs have written anew, so that copies and parity agree.",
        |all, out| sets(all, out, |set| set.agreed_blocks),
    ),
    family(
        "crossdock_cache_hit_blocks_total",
        MetricKind::Counter,
        "Blocks of 4 KiB that reads found in the cache, or on their way there.",
        |all, out| nodes(all, out, |n| n.cache_hit_blocks),
    ),
    family(
        "crossdock_cache_miss_blocks_total",
        MetricKind::Counter,
        "Blocks that reads fetched from the disk.",
        |all, out| nodes(all, out, |n| n.cache_miss_blocks),
    ),
    family(
        "crossdock_read_ahead_blocks_total",
        MetricKind::Counter,
        "Blocks that were fetched for sequential readers before they asked.",
        |all, out| nodes(all, out, |n| n.read_ahead_blocks),
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
        "crossdock_defrag_running",
        MetricKind::Gauge,
        "1 while the nodes' disks are defragmented.",
        |all, out| out.count(&[], u64::from(all.defrag.running)),
    ),
    family(
        "crossdock_defrag_moved_blocks",
        MetricKind::Gauge,
        "Blocks that this pass, or the last one, has given another place.",
        |all, out| out.count(&[], all.defrag.moved_blocks),
    ),
    family(
        "crossdock_defrag_runs",
        MetricKind::Gauge,
        "Runs of contiguous blocks in which objects lay when it came to them, and lie since.",
        |all, out| {
            for (when, layout) in [("found", &all.defrag.found), ("left", &all.defrag.left)] {
                out.count(&[("when", when)], layout.runs);
            }
        },
    ),
    family(
        "crossdock_defrag_objects",
        MetricKind::Gauge,
        "Objects with blocks that it has come to: at best each is one run.",
        |all, out| out.count(&[], all.defrag.found.objects),
    ),
    family(
        "crossdock_defrag_sequential_percent",
        MetricKind::Gauge,
        "Rate of sequential reads on a disk with one arm, by the model, as a share of that of a contiguous layout.",
        |all, out| {
            for (when, layout) in [("found", &all.defrag.found), ("left", &all.defrag.left)] {
                out.count(&[("when", when)], layout.sequential_percent);
            }
        },
    ),
];
