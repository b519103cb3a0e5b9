//! Somebody else's work on the server's processor, while streams at their own rates are
//! served from memory: what is left of it.

use anyhow::Result;

use super::ablation::DAEMON;
use super::field::{Field, Standing, Who};
use super::streams::Beside;
use crate::bench::Keep;
use crate::bench::nfs::number;

/// Streams, each with its own file.
const STREAMS: usize = 50;
const FILE_BYTES: u64 = 4 << 20;
/// What they have together, in Mb/s.
const RATES_MBIT: [u32; 3] = [100, 200, 400];
/// Seconds until all streams run.
const BEGIN: f64 = 1.0;

/// Multiplications of matrices in a second, beside each server.
pub(super) fn measure(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    let all = field.stand_cached(&[class()])?;
    for rate_mbit in RATES_MBIT {
        let mut found: Vec<_> = all.iter().map(|it| (it.who, Vec::new())).collect();
        for _ in 0..rounds(field) {
            for (standing, (_, values)) in all.iter().zip(&mut found) {
                values.push(once(field, standing, rate_mbit)?);
            }
        }
        let variant = format!("beside {STREAMS} streams of {rate_mbit} Mb/s together, from memory");
        let beside = Beside {
            row: "beside",
            variant: variant.clone(),
            unit: "matrices/s",
            is_less_better: false,
            goal: Some(1.0),
        };
        keep(beside.rows(field, &found, |value: &(f64, f64)| Ok(value.0))?);
        let served = Beside {
            row: "beside-served",
            unit: "Mb/s",
            goal: None,
            ..beside
        };
        keep(served.rows(field, &found, |value: &(f64, f64)| Ok(value.1))?);
    }
    Ok(())
}

/// The same at the highest rate, with and without giving way.
pub(super) fn without_daemon(field: &mut Field<'_>, keep: Keep<'_>) -> Result<()> {
    drop(field.stand_cached(&[class()])?);
    let rate_mbit = RATES_MBIT[RATES_MBIT.len() - 1];
    let mut found = [Who::Ours, Who::Without(DAEMON)].map(|who| (who, Vec::new()));
    for _ in 0..rounds(field) {
        for (who, values) in &mut found {
            let standing = field.stand_again(*who)?;
            // The files come into memory.
            once(field, &standing, rate_mbit)?;
            values.push(once(field, &standing, rate_mbit)?);
        }
    }
    let beside = Beside {
        row: "ablation-daemon",
        variant: format!("beside {STREAMS} streams of {rate_mbit} Mb/s together, from memory"),
        unit: "matrices/s",
        is_less_better: false,
        goal: None,
    };
    keep(beside.rows(field, &found, |value: &(f64, f64)| Ok(value.0))?);
    Ok(())
}

fn class() -> String {
    format!("prefix=b,count={STREAMS},size={FILE_BYTES}")
}

const fn rounds(field: &Field<'_>) -> usize {
    if field.full { 5 } else { 3 }
}

/// Matrices in a second, and what was served meanwhile, in Mb/s.
fn once(field: &Field<'_>, standing: &Standing, rate_mbit: u32) -> Result<(f64, f64)> {
    let seconds = if field.full { 10.0 } else { 2.0 };
    let rate = f64::from(rate_mbit) * 1e6 / 8.0 / STREAMS as f64;
    let words = [
        "streams".to_owned(),
        format!(
            "--group=name=all,prefix=b,count={STREAMS},size={FILE_BYTES},rate={rate},ramp={}",
            BEGIN / 2.0
        ),
        format!("--from={BEGIN}"),
        format!("--seconds={}", 2.0 * BEGIN + seconds),
        "--receive-buffer=65536".to_owned(),
        "--segment=1448".to_owned(),
    ];
    let load = field.load_beside(standing, &words)?;
    let after = format!("--after={BEGIN}");
    let seconds = format!("--seconds={seconds}");
    let figures = field.on_server_cpu(&["compute", &after, &seconds])?;
    let served = load.figures()?;
    Ok((
        number(&figures, "per_second")?,
        8e-6 * number(&served, "bytes")? / number(&served, "seconds")?,
    ))
}
