//! Names: the paper's create mix on managers with a fixed part of a processor each
//! (Slice 5, Figure 3), and unpacking a tree's names with more and more clients.

use anyhow::Result;

use super::field::{Field, Sample};
use super::{Figure, Keep, affinity, rounds, several};
use crate::bench::Options;
use crate::paths::Paths;

/// Part of a processor that each manager has.
const SHARE: f64 = 0.25;
/// What a directory server of the paper did, with a processor of 450 MHz for itself.
const SLICE_OPERATIONS: f64 = 6000.0;
/// Its log: 0.5 MB/s at that rate.
const SLICE_LOG_BYTES: f64 = 0.5e6 / SLICE_OPERATIONS;
/// Operations of one process of the paper's benchmark: 36,000 files and directories.
const UNPACKED: f64 = 250_000.0;

/// Clients' processes, each with one request outstanding.
const PROCESSES: [usize; 4] = [1, 4, 8, 16];

/// Client hosts, over which processes are spread.
const CLIENTS: usize = 2;

/// On 1, 2 and 4 managers.
pub(super) fn create_mix(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    for managers in [1, 2, 4] {
        let words = format!(
            "--nodes 3 --managers {managers} --gateways 1 --clients {CLIENTS} --replicas 2"
        );
        let mut field = Field::raise_spread(paths, options, &words, affinity::even(managers))?;
        field.limit_managers(SHARE)?;
        let mut alone = None;
        for processes in PROCESSES {
            let measured = mix(&field, options, processes)?;
            let alone = *alone.get_or_insert(measured.mean_us);
            keep(measured.rows(managers, processes, alone));
        }
    }
    Ok(())
}

/// What a number of processes gave.
pub(super) struct Mix {
    pub(super) per_second: Vec<f64>,
    log_bytes: f64,
    cpu_us: f64,
    mean_us: f64,
}

/// The create mix by `processes`, with one request outstanding each.
pub(super) fn mix(field: &Field<'_>, options: &Options, processes: usize) -> Result<Mix> {
    let seconds = if options.full { 20 } else { 5 };
    let (mut per_second, mut operations, mut means) = (Vec::new(), 0.0, Vec::new());
    let log = || -> Result<f64> {
        let of_each = field.managers_metric("crossdock_site_log_bytes_total")?;
        Ok(of_each.iter().sum())
    };
    let before = (log()?, field.managers_cpu_seconds()?);
    for round in 0..rounds(options) {
        let hosts = CLIENTS.min(processes);
        let each = processes / hosts;
        let words = format!("--work names --clients {each} --count 1000000 --seconds {seconds}");
        let samples = field.load(hosts, &format!("mix-{processes}-{round}"), &words)?;
        per_second.push(Sample::per_second(&samples, |one| one.operations));
        operations += Sample::sum(&samples, |one| one.operations);
        means.push(Sample::mean_us(&samples));
    }
    means.sort_by(f64::total_cmp);
    Ok(Mix {
        per_second,
        log_bytes: (log()? - before.0) / operations,
        cpu_us: (field.managers_cpu_seconds()? - before.1) * 1e6 / operations,
        mean_us: means[means.len() / 2],
    })
}

impl Mix {
    fn rows(&self, managers: usize, processes: usize, alone_us: f64) -> Vec<serde_json::Value> {
        let variant = format!(
            "create mix: {} with {SHARE} of a processor each, processes: {processes}",
            several(managers, "manager")
        );
        #[expect(clippy::cast_precision_loss, reason = "some managers")]
        let per_manager = self.per_second.iter().map(|rate| rate / managers as f64);
        let per_manager: Vec<f64> = per_manager.collect();
        // The goal is of managers that are busy.
        let is_loaded = processes == PROCESSES[PROCESSES.len() - 1];
        let figure = Figure {
            row: "create-mix",
            variant,
            place: Some((several(managers, "manager"), processes)),
            unit: "op/s a manager",
            ours: &per_manager,
            peer: ("Slice: a server at 450 MHz", &[SLICE_OPERATIONS]),
            is_less_better: false,
            goal: is_loaded.then_some(1.0),
        };
        let less = |row, unit, ours, peer| {
            Figure {
                row,
                unit,
                ours,
                peer,
                variant: figure.variant.clone(),
                place: figure.place.clone(),
                is_less_better: true,
                goal: None,
            }
            .json()
        };
        let slice_cpu_us = 1e6 / SLICE_OPERATIONS;
        let unpacking = |mean_us: f64| mean_us * UNPACKED / 1e6;
        vec![
            figure.json(),
            less(
                "create-mix-cpu",
                "CPU µs/op",
                &[self.cpu_us],
                ("Slice: a server at 450 MHz", &[slice_cpu_us]),
            ),
            less(
                "create-mix-log",
                "log bytes/op",
                &[self.log_bytes],
                ("Slice: 0.5 MB/s at 6,000 op/s", &[SLICE_LOG_BYTES]),
            ),
            less(
                "create-mix-latency",
                "s for 250,000 op",
                &[unpacking(self.mean_us)],
                ("the same with one process", &[unpacking(alone_us)]),
            ),
        ]
    }
}

/// With 1 to 8 clients on hosts of their own.
pub(super) fn untar(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let files = if options.full { 36_000 } else { 3_600 };
    let words = "--nodes 3 --managers 4 --gateways 1 --clients 8 --replicas 2";
    let field = Field::raise_spread(paths, options, words, affinity::even(4))?;
    let mut alone = None;
    for clients in [1, 2, 4, 8] {
        let name = format!("untar-{clients}");
        let words = format!("--work names --count {files} --seconds 900");
        let samples = field.load(clients, &name, &words)?;
        let rate = Sample::per_second(&samples, |one| one.operations);
        let alone = *alone.get_or_insert(rate);
        let figure = Figure {
            row: "untar",
            variant: format!(
                "names of {files} files each: {}",
                several(clients, "client")
            ),
            place: Some(("all".to_owned(), clients)),
            unit: "op/s",
            ours: &[rate],
            peer: ("the same with one client", &[alone]),
            is_less_better: false,
            goal: None,
        };
        keep(vec![figure.json()]);
    }
    Ok(())
}
