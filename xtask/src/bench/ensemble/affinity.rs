//! How names spread over managers by mkdir switching, and what that gives (Slice 5,
//! Figures 3 and 4): the create mix on managers with so little of a processor each that
//! they, and not this machine, are the limit.

use anyhow::Result;

use super::field::{Field, Sample};
use super::names::mix;
use super::{Figure, Keep, several};
use crate::bench::Options;
use crate::paths::Paths;

/// Part of a processor that each manager has.
const SHARE: f64 = 0.05;
/// Clients' processes, each with one request outstanding: so many that the managers, and
/// not the times of their answers, are the limit.
const PROCESSES: usize = 128;
/// Client hosts, over which processes are spread.
const CLIENTS: usize = 2;
/// Trees of directories that show how names spread, and directories in each.
const TREES: usize = 16;
const TREE: usize = 400;
/// Managers of the sweep, as in the paper.
const MANAGERS: usize = 4;
/// Probabilities of the sweep.
const PROBABILITIES: [f64; 7] = [0.0, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0];
/// With fewer MKDIRs redirected the paper had names spread evenly.
const SLICE_REDIRECTED: f64 = 0.2;

/// The probability that spreads names evenly (Slice 5, Figure 3): one of all managers.
#[expect(clippy::cast_precision_loss, reason = "some managers")]
pub(super) fn even(managers: usize) -> f64 {
    match managers {
        1 => 0.0,
        several => 1.0 / several as f64,
    }
}

/// With more and more managers.
pub(super) fn scaling(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let mut alone = None;
    for managers in [1, 2, 4] {
        let words = words_for(managers);
        let mut field = Field::raise_spread(paths, options, &words, even(managers))?;
        field.limit_managers(SHARE)?;
        let measured = mix(&field, options, PROCESSES)?;
        let alone = alone.get_or_insert_with(|| measured.per_second.clone());
        let figure = Figure {
            row: "scaling",
            variant: format!(
                "create mix, {PROCESSES} processes: {} with {SHARE} of a processor each",
                several(managers, "manager")
            ),
            place: Some(("all".to_owned(), managers)),
            unit: "op/s",
            ours: &measured.per_second,
            peer: ("the same with one manager", alone),
            is_less_better: false,
            goal: None,
        };
        keep(vec![figure.json()]);
    }
    Ok(())
}

/// With more and more of the new directories at other sites than their parents.
pub(super) fn sweep(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let mut together = None;
    for probability in PROBABILITIES {
        let words = words_for(MANAGERS);
        let mut field = Field::raise_spread(paths, options, &words, probability)?;
        let made = trees(&field)?;
        field.limit_managers(SHARE)?;
        let measured = mix(&field, options, PROCESSES)?;
        let together = together.get_or_insert_with(|| measured.per_second.clone());
        let percent = format!("{:.0} %", probability * 100.0);
        let variant = format!(
            "create mix, 4 managers with {SHARE} of a processor each, {percent} of new directories at other sites"
        );
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 100"
        )]
        let place = Some(("all".to_owned(), (probability * 100.0).round() as usize));
        let rate = Figure {
            row: "affinity",
            variant,
            place,
            unit: "op/s",
            ours: &measured.per_second,
            peer: ("the same with all names together", together),
            is_less_better: false,
            goal: None,
        };
        let cost = |row, unit, ours: f64, peer: (&str, f64)| {
            Figure {
                row,
                unit,
                variant: rate.variant.clone(),
                place: rate.place.clone(),
                ours: &[ours],
                peer: (peer.0, &[peer.1]),
                is_less_better: true,
                goal: None,
            }
            .json()
        };
        keep(vec![
            rate.json(),
            cost(
                "affinity-busiest",
                "of an even share",
                made.busiest,
                ("all alike", 1.0),
            ),
            cost(
                "affinity-redirected",
                "of MKDIRs",
                made.redirected,
                ("Slice spreads evenly below", SLICE_REDIRECTED),
            ),
        ]);
    }
    Ok(())
}

fn words_for(managers: usize) -> String {
    format!("--nodes 3 --managers {managers} --gateways 1 --clients {CLIENTS} --replicas 2")
}

/// How directories lie on managers.
struct Trees {
    /// How many the busiest manager has, as a multiple of an even share.
    busiest: f64,
    /// The part of them, 0 to 1, that lies at another site than its parent.
    redirected: f64,
}

/// Trees of directories by as many processes as in the paper.
fn trees(field: &Field<'_>) -> Result<Trees> {
    let lie = || field.managers_metric("crossdock_site_files");
    // Nothing else in this work concerns several sites.
    let decided = || field.managers_metric("crossdock_site_decisions_total");
    let before = (lie()?, decided()?);
    let words = format!(
        "--work tree --clients {} --count {TREE} --seconds 60",
        TREES / CLIENTS
    );
    let samples = field.load(CLIENTS, "trees", &words)?;
    let made = Sample::sum(&samples, |one| one.directories);
    let lie = since(&lie()?, &before.0);
    let even = lie.iter().sum::<f64>() / f64::from(u32::try_from(lie.len())?);
    Ok(Trees {
        busiest: lie.iter().copied().fold(0.0, f64::max) / even,
        redirected: since(&decided()?, &before.1).iter().sum::<f64>() / made,
    })
}

/// By how much each grew.
fn since(now: &[f64], before: &[f64]) -> Vec<f64> {
    let both = now.iter().zip(before);
    both.map(|(now, before)| now - before).collect()
}
