//! From what single runs gave to one row of a result.

use serde_json::{Value, json};

/// What one run of a load gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Operations, or megabytes, in a second.
    pub(super) rate: f64,
    /// CPU seconds of the server for an operation, or a megabyte.
    pub(super) cpu_seconds: f64,
    /// Context switches of the server for an operation, or a megabyte.
    pub(super) switches: f64,
    /// Part of the time that the load generator was busy.
    pub(super) load_busy: f64,
    /// All but one in a hundred requests were answered within so many microseconds.
    pub(super) p99_us: f64,
}

/// Something that is read out of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// More is better.
    Rate,
    /// CPU time: less is better.
    Cpu,
    /// Context switches: less is better.
    Switches,
    /// 99th percentile of latency: less is better. The median says no more than
    /// the rate does, because the number of outstanding requests is fixed.
    Tail,
}

impl Figure {
    pub(super) const ALL: [Self; 4] = [Self::Rate, Self::Cpu, Self::Switches, Self::Tail];

    /// What is put behind the row's name.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Rate => "",
            Self::Cpu => "-cpu",
            Self::Switches => "-switches",
            Self::Tail => "-p99",
        }
    }

    pub(super) const fn unit(self, is_bulk: bool) -> &'static str {
        match (self, is_bulk) {
            (Self::Rate, true) => "MB/s",
            (Self::Rate, false) => "op/s",
            (Self::Cpu, true) => "CPU s/GB",
            (Self::Cpu, false) => "CPU µs/op",
            (Self::Switches, true) => "switches/MB",
            (Self::Switches, false) => "switches/op",
            (Self::Tail, _) => "µs",
        }
    }

    fn of(self, sample: &Sample, is_bulk: bool) -> f64 {
        match self {
            Self::Rate => sample.rate,
            // Per MB to per GB, or seconds to microseconds.
            Self::Cpu if is_bulk => sample.cpu_seconds * 1e3,
            Self::Cpu => sample.cpu_seconds * 1e6,
            Self::Switches => sample.switches,
            Self::Tail => sample.p99_us,
        }
    }
}

/// Least, median and greatest of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    min: f64,
    pub(super) median: f64,
    max: f64,
}

impl Spread {
    /// The spread of `values`, of which there is at least one.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        Self {
            min: values[0],
            median: values[values.len() / 2],
            max: values[values.len() - 1],
        }
    }

    pub(super) fn json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

/// One row of a result: a figure of ours beside a peer's.
pub(super) fn row(
    (name, variant): (&str, &str),
    figure: Figure,
    is_bulk: bool,
    ours: &[Sample],
    (peer_name, theirs): (&str, &[Sample]),
) -> Value {
    let spread = |samples: &[Sample]| Spread::of(samples.iter().map(|it| figure.of(it, is_bulk)));
    let (mine, peer) = (spread(ours), spread(theirs));
    // More is always better in a ratio.
    let ratio = match figure {
        Figure::Rate => mine.median / peer.median,
        _ => peer.median / mine.median,
    };
    let mut row = json!({
        "row": format!("{name}{}", figure.suffix()),
        "variant": variant,
        "unit": figure.unit(is_bulk),
        "ours": mine.json(),
        "peer": peer.json(),
        // Nothing spent at all has no ratio.
        "ratio": ratio.is_finite().then_some(ratio),
        "goal": null,
        "met": null,
    });
    row["peer"]["name"] = json!(peer_name);
    if figure == Figure::Rate {
        // Where this is near 1, the load generator was the limit.
        row["ours"]["load_busy"] = json!(median_busy(ours));
        row["peer"]["load_busy"] = json!(median_busy(theirs));
    }
    row
}

fn median_busy(samples: &[Sample]) -> f64 {
    Spread::of(samples.iter().map(|one| one.load_busy)).median
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64, cpu_seconds: f64) -> Sample {
        Sample {
            rate,
            cpu_seconds,
            switches: 0.0,
            load_busy: 0.5,
            p99_us: 20.0,
        }
    }

    /// Goal: twice the rate and half the CPU both read 2.0; nothing spent reads null.
    #[test]
    fn in_a_ratio_more_is_better() {
        let ours = [
            sample(300.0, 0.001),
            sample(200.0, 0.001),
            sample(100.0, 0.004),
        ];
        let theirs = [sample(100.0, 0.002)];
        let row = |figure| row(("x", "y"), figure, false, &ours, ("peer", &theirs));
        assert_eq!(row(Figure::Rate)["ratio"], 2.0);
        assert_eq!(row(Figure::Rate)["ours"]["min"], 100.0);
        assert_eq!(row(Figure::Cpu)["ratio"], 2.0);
        assert_eq!(row(Figure::Cpu)["peer"]["median"], 2000.0);
        assert_eq!(row(Figure::Switches)["ratio"], Value::Null);
        assert_eq!(row(Figure::Tail)["row"], "x-p99");
    }
}
