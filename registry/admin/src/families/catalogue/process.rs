//! The process: memory, its loop, its threads.

use super::family;
use crate::families::Family;
use crate::text::MetricKind;

pub(super) const FAMILIES: &[Family] = &[
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
