//! Measurements between ends, each pair and quantity a series of its own.

use std::collections::BTreeMap;

use crate::forecaster::{Forecast, Forecaster};

/// Pairs that are kept; beyond them the one that was measured longest ago goes.
const PAIRS_MAX: usize = 4096;

/// From where to where, as clients name them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// Who sends.
    pub from: String,
    /// Who receives.
    pub to: String,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Of one connection, in bytes per second.
    Bandwidth,
    /// Of a request and its answer without data, in seconds.
    Latency,
}

/// All series.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    series: BTreeMap<(Pair, Quantity), (u64, Forecaster)>,
    turn: u64,
}

impl Measurements {
    /// Takes a measurement.
    pub fn observe(&mut self, pair: &Pair, quantity: Quantity, value: f64) {
        self.turn += 1;
        let key = (pair.clone(), quantity);
        if self.series.len() >= PAIRS_MAX && !self.series.contains_key(&key) {
            let oldest = self.series.iter().min_by_key(|(_, (turn, _))| *turn);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.series.remove(&oldest);
            }
        }
        let (turn, forecaster) = self.series.entry(key).or_default();
        *turn = self.turn;
        forecaster.observe(value);
    }

    /// What is to be expected; none of a pair that was never measured.
    #[must_use]
    pub fn forecast(&self, pair: &Pair, quantity: Quantity) -> Option<Forecast> {
        let (_, forecaster) = self.series.get(&(pair.clone(), quantity))?;
        forecaster.forecast()
    }

    /// The last measurements of every series, the oldest first: who takes them again in this
    /// order knows the same.
    pub fn histories(&self) -> impl Iterator<Item = (&Pair, Quantity, Vec<f64>)> {
        let mut series: Vec<_> = self.series.iter().collect();
        series.sort_by_key(|(_, (turn, _))| *turn);
        series
            .into_iter()
            .map(|((pair, quantity), (_, forecaster))| {
                (pair, *quantity, forecaster.history().collect())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(n: usize) -> Pair {
        Pair {
            from: "here".to_owned(),
            to: format!("depot-{n}"),
        }
    }

    /// Goal: pairs and quantities are series of their own; there are at most so many, and the
    /// one that was measured longest ago makes room.
    #[test]
    fn the_oldest_series_makes_room() {
        let mut all = Measurements::default();
        for n in 0..PAIRS_MAX {
            all.observe(&pair(n), Quantity::Bandwidth, n as f64);
        }
        all.observe(&pair(0), Quantity::Bandwidth, 0.0);
        all.observe(&pair(1), Quantity::Latency, 5.0);
        let found = |n, quantity| all.forecast(&pair(n), quantity).map(|found| found.value);
        assert_eq!(found(0, Quantity::Bandwidth), Some(0.0));
        assert_eq!(found(1, Quantity::Bandwidth), None);
        assert_eq!(found(1, Quantity::Latency), Some(5.0));
        assert_eq!(found(2, Quantity::Latency), None);
        let mut again = Measurements::default();
        for (pair, quantity, history) in all.histories() {
            history
                .iter()
                .for_each(|&value| again.observe(pair, quantity, value));
        }
        assert_eq!(
            again.forecast(&pair(7), Quantity::Bandwidth).unwrap().value,
            7.0
        );
    }
}
