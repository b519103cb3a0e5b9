//! From what single runs gave to one row of a result.

use serde_json::{Value, json};

/// What one run of a load gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Operations, or megabytes, in a second.
    pub(super) rate: f64,
    /// CPU seconds of the server for an operation, or a megabyte.
    pub(super) cpu_seconds: Option<f64>,
    /// Context switches of the server for an operation, or a megabyte.
    pub(super) switches: Option<f64>,
    /// System calls of the server for an operation, or a megabyte.
    pub(super) calls: Option<f64>,
    /// Part of the time that the load generator was busy.
    pub(super) load_busy: Option<f64>,
    /// Half of the requests were answered within so many microseconds.
    pub(super) p50_us: Option<f64>,
    /// All but one in a hundred.
    pub(super) p99_us: Option<f64>,
    /// All but one in a thousand.
    pub(super) p999_us: Option<f64>,
}

impl Sample {
    /// Of a limit, of which nothing else is known.
    pub(super) const fn of_rate(rate: f64) -> Self {
        Self {
            rate,
            cpu_seconds: None,
            switches: None,
            calls: None,
            load_busy: None,
            p50_us: None,
            p99_us: None,
            p999_us: None,
        }
    }
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
    /// System calls: less is better.
    Calls,
    /// Median of latency: less is better.
    Median,
    /// 99th percentile of latency: less is better.
    Tail,
    /// 99.9th percentile of latency: less is better.
    FarTail,
}

impl Figure {
    pub(super) const ALL: [Self; 7] = [
        Self::Rate,
        Self::Cpu,
        Self::Switches,
        Self::Calls,
        Self::Median,
        Self::Tail,
        Self::FarTail,
    ];

    /// What is put behind the row's name.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Rate => "",
            Self::Cpu => "-cpu",
            Self::Switches => "-switches",
            Self::Calls => "-calls",
            Self::Median => "-p50",
            Self::Tail => "-p99",
            Self::FarTail => "-p999",
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
            (Self::Calls, true) => "system calls/MB",
            (Self::Calls, false) => "system calls/op",
            (Self::Median | Self::Tail | Self::FarTail, _) => "µs",
        }
    }

    fn of(self, sample: &Sample, is_bulk: bool) -> Option<f64> {
        match self {
            Self::Rate => Some(sample.rate),
            // Per MB to per GB, or seconds to microseconds.
            Self::Cpu if is_bulk => sample.cpu_seconds.map(|seconds| seconds * 1e3),
            Self::Cpu => sample.cpu_seconds.map(|seconds| seconds * 1e6),
            Self::Switches => sample.switches,
            Self::Calls => sample.calls,
            Self::Median => sample.p50_us,
            Self::Tail => sample.p99_us,
            Self::FarTail => sample.p999_us,
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

/// One row of a result: a figure of ours beside a peer's; `None` if one of us has
/// no such figure.
pub(super) fn row(
    (name, variant): (String, String),
    figure: Figure,
    is_bulk: bool,
    ours: &[Sample],
    (peer_name, theirs): (&str, &[Sample]),
    goal: Option<f64>,
) -> Option<Value> {
    let spread = |samples: &[Sample]| {
        let values: Option<Vec<f64>> = samples.iter().map(|it| figure.of(it, is_bulk)).collect();
        Some(Spread::of(values?.into_iter()))
    };
    let (mine, peer) = (spread(ours)?, spread(theirs)?);
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
        "goal": goal,
        "met": goal.map(|goal| ratio >= goal),
    });
    row["peer"]["name"] = json!(peer_name);
    if figure == Figure::Rate {
        // Where this is near 1, the load generator was the limit.
        row["ours"]["load_busy"] = json!(median_busy(ours));
        row["peer"]["load_busy"] = json!(median_busy(theirs));
    }
    Some(row)
}

fn median_busy(samples: &[Sample]) -> Option<f64> {
    let busy: Option<Vec<f64>> = samples.iter().map(|one| one.load_busy).collect();
    Some(Spread::of(busy?.into_iter()).median)
}

/// One figure beside what it is compared with.
pub(super) struct Comparison<'text> {
    pub(super) row: &'text str,
    pub(super) variant: String,
    /// Which line of a picture it belongs to, and where.
    pub(super) place: Option<(String, usize)>,
    pub(super) unit: &'text str,
    pub(super) ours: &'text [f64],
    pub(super) peer: (&'text str, &'text [f64]),
    /// Costs and times; otherwise more is better.
    pub(super) is_less_better: bool,
    pub(super) goal: Option<f64>,
}

impl Comparison<'_> {
    pub(super) fn json(&self) -> Value {
        let ours = Spread::of(self.ours.iter().copied());
        let theirs = Spread::of(self.peer.1.iter().copied());
        let ratio = match self.is_less_better {
            true => theirs.median / ours.median,
            false => ours.median / theirs.median,
        };
        let mut peer = theirs.json();
        peer["name"] = json!(self.peer.0);
        let place = self.place.as_ref();
        json!({
            "row": self.row,
            "variant": self.variant,
            "series": place.map(|(series, _)| series),
            "x": place.map(|(_, x)| x),
            "unit": self.unit,
            "ours": ours.json(),
            "peer": peer,
            "ratio": ratio.is_finite().then_some(ratio),
            "goal": self.goal,
            // Nothing at all of a cost meets any goal.
            "met": self.goal.map(|goal| {
                ratio >= goal || (self.is_less_better && ours.median == 0.0)
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64, cpu_seconds: f64) -> Sample {
        Sample {
            cpu_seconds: Some(cpu_seconds),
            switches: Some(0.0),
            load_busy: Some(0.5),
            p99_us: Some(20.0),
            ..Sample::of_rate(rate)
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
        let row = |figure| {
            let name = ("x".to_owned(), "y".to_owned());
            let row = row(name, figure, false, &ours, ("peer", &theirs), Some(2.5));
            row.unwrap_or_default()
        };
        assert_eq!(row(Figure::Rate)["ratio"], 2.0);
        assert_eq!(row(Figure::Rate)["ours"]["min"], 100.0);
        assert_eq!(row(Figure::Cpu)["ratio"], 2.0);
        assert_eq!(row(Figure::Cpu)["peer"]["median"], 2000.0);
        assert_eq!(row(Figure::Switches)["ratio"], Value::Null);
        assert_eq!(row(Figure::Tail)["row"], "x-p99");
        assert_eq!(row(Figure::Rate)["met"], false);
        assert_eq!(row(Figure::Calls), Value::Null, "nobody has counted them");
    }

    /// Goal: in a ratio more is better, of rates and of costs.
    #[test]
    fn comparisons_are_of_rates_and_of_costs() {
        let figure = |is_less_better| {
            let figure = Comparison {
                row: "x",
                variant: String::new(),
                place: Some(("line".to_owned(), 4)),
                unit: "y",
                ours: &[2.0],
                peer: ("peer", &[4.0]),
                is_less_better,
                goal: Some(1.0),
            };
            figure.json()
        };
        assert_eq!(figure(true)["ratio"], 2.0);
        assert_eq!(figure(true)["met"], true);
        assert_eq!(figure(false)["ratio"], 0.5);
        assert_eq!(figure(false)["met"], false);
        assert_eq!(figure(false)["peer"]["name"], "peer");
        assert_eq!(figure(false)["x"], 4);
    }
}
