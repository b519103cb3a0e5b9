//! How long clients wait when the manager of all names is killed, with more and more
//! files on its site: it is noticed, its leases are waited out, and another manager reads
//! the site's checkpoint and log.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::field::{Field, Sample, load_from};
use super::{Figure, Keep};
use crate::bench::Options;
use crate::paths::Paths;
use crate::rig::cluster::{Cluster, Role};

/// Numbers of files; the last one with `--full`.
const FILES: [usize; 3] = [10_000, 100_000, 1_000_000];

/// Clients that make them, with as many requests outstanding each.
const MAKERS: usize = 8;

/// Kills with each number of files.
const KILLS: usize = 3;

/// How long a client asks without a pause: the manager dies in the middle.
const SECONDS: u64 = 16;
const KILLED_AFTER: Duration = Duration::from_secs(3);

/// What we want with a million files, all included.
const SECONDS_MAX: f64 = 5.0;

/// On three nodes, of which one may have any part of the log.
pub(super) fn measure(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let sizes = if options.full { 3 } else { 2 };
    for files in FILES.into_iter().take(sizes) {
        let words = "--nodes 3 --managers 2 --gateways 1 --clients 1 --replicas 2";
        let mut field = Field::raise(paths, options, words)?;
        let words = format!(
            "--work create --clients {MAKERS} --outstanding {MAKERS} --count {} --seconds 900 --keep",
            files / MAKERS
        );
        field.load(1, "take-over", &words)?;
        expect_files(&field, files)?;
        let mut pauses = Vec::new();
        for kill in 0..KILLS {
            pauses.push(pause(paths, &mut field, kill)?);
        }
        expect_files(&field, files)?;
        #[expect(clippy::cast_precision_loss, reason = "a million")]
        let per_million = files as f64 / 1e6;
        let figure = Figure {
            row: "take-over",
            variant: format!("the manager dies that serves {files} files"),
            place: Some(("all".to_owned(), files)),
            unit: "s until the answer",
            ours: &pauses,
            peer: ("goal with a million files", &[SECONDS_MAX]),
            is_less_better: true,
            goal: (per_million >= 1.0).then_some(1.0),
        };
        keep(vec![figure.json()]);
    }
    Ok(())
}

/// That those are there which the kills are about.
fn expect_files(field: &Field<'_>, files: usize) -> Result<()> {
    let found: f64 = field.managers_metric("crossdock_site_files")?.iter().sum();
    #[expect(clippy::cast_precision_loss, reason = "a million")]
    let wanted = files as f64;
    ensure!(
        found >= wanted,
        "the managers have {found} files, not {wanted}"
    );
    Ok(())
}

/// The longest answer, in seconds, while the manager that serves is killed.
fn pause(paths: &Paths, field: &mut Field<'_>, kill: usize) -> Result<f64> {
    let manager = field.cluster.serving_manager()?;
    let client = field.cluster.of(Role::Client).next();
    let client = client.context("there is no client")?;
    let (netns, name) = (client.netns.clone(), client.name.clone());
    let words = format!("--work getattr --count 1000000000 --seconds {SECONDS}");
    let asks = format!("asks-{kill}");
    let samples: Vec<Sample> = thread::scope(|scope| {
        let places = std::iter::once((netns.as_str(), name.as_str()));
        let load = scope.spawn(|| load_from(paths, places, Cluster::OWN_DOOR, &asks, &words));
        thread::park_timeout(KILLED_AFTER);
        let killed = field.cluster.kill(&manager);
        let samples = load
            .join()
            .map_err(|_| anyhow::anyhow!("the load panicked"))?;
        killed.and(samples)
    })?;
    field.cluster.restart(&manager)?;
    let longest_us = samples.iter().map(|one| one.longest_us);
    Ok(longest_us.fold(0.0, f64::max) / 1e6)
}
