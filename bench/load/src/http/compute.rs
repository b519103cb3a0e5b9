//! Somebody else's work, beside which a server is measured: multiplies matrices.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use serde_json::{Value, json};

#[derive(Args)]
pub(crate) struct Compute {
    /// Seconds until it begins.
    #[arg(long, default_value_t = 0.0)]
    after: f64,
    /// Seconds that it takes.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rows and columns of a matrix: with few it needs nothing but the processor.
    #[arg(long, default_value_t = 128)]
    order: usize,
}

pub(super) fn run(flags: &Compute) -> anyhow::Result<Value> {
    thread::sleep(Duration::try_from_secs_f64(flags.after)?);
    let order = flags.order;
    ensure!(order > 0, "no matrix");
    let end = Duration::try_from_secs_f64(flags.seconds)?;
    let one: Vec<f64> = (0..order * order).map(|at| (at % 7) as f64).collect();
    let mut product = vec![0.0; order * order];
    let (begun, mut count) = (Instant::now(), 0_u32);
    while begun.elapsed() < end {
        multiply(order, black_box(&one), black_box(&one), &mut product);
        count += 1;
    }
    black_box(&product);
    let per_second = f64::from(count) / begun.elapsed().as_secs_f64();
    Ok(json!({ "per_second": per_second }))
}

fn multiply(order: usize, left: &[f64], right: &[f64], product: &mut [f64]) {
    product.fill(0.0);
    for (row, sums) in left
        .chunks_exact(order)
        .zip(product.chunks_exact_mut(order))
    {
        for (factor, column) in row.iter().zip(right.chunks_exact(order)) {
            for (sum, value) in sums.iter_mut().zip(column) {
                *sum += factor * value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: it multiplies: with the unit matrix nothing changes.
    #[test]
    fn the_unit_matrix_changes_nothing() {
        const ORDER: usize = 12;
        let one: Vec<f64> = (0..ORDER * ORDER).map(|at| at as f64).collect();
        let unit: Vec<f64> = (0..ORDER * ORDER)
            .map(|at| f64::from(u8::from(at % (ORDER + 1) == 0)))
            .collect();
        let mut product = vec![1.0; ORDER * ORDER];
        multiply(ORDER, &one, &unit, &mut product);
        assert_eq!(product, one);
    }
}
