//! How the metrics of the catalogue follow from a snapshot.

mod catalogue;

use crate::snapshot::{
    DiskFigures, DiskSetFigures, NodeFigures, Procedure, SiteFigures, Snapshot, Traffic,
};
use crate::text::{Metric, Scale, Text};

/// A metric and its samples.
pub(crate) struct Family {
    pub(crate) metric: Metric,
    pub(crate) write: fn(&Snapshot, &mut Samples<'_>),
}

/// Where the samples of a metric go.
pub(crate) struct Samples<'text> {
    name: &'static str,
    text: &'text mut Text,
}

/// What a node can be.
const STATES: [&str; 4] = ["running", "opening", "stopped", "failed"];

/// What `/metrics` tells.
pub(crate) fn render(snapshot: &Snapshot) -> String {
    let mut text = Text::default();
    for family in catalogue::families() {
        text.begin(&family.metric);
        let name = family.metric.name;
        let text = &mut text;
        (family.write)(snapshot, &mut Samples { name, text });
    }
    text.finish()
}

impl Samples<'_> {
    pub(crate) fn value(&mut self, labels: &[(&str, &str)], value: f64) {
        self.text.sample(self.name, labels, value);
    }

    pub(crate) fn count(&mut self, labels: &[(&str, &str)], count: u64) {
        self.value(labels, count as f64);
    }

    pub(crate) fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        histogram: &crossdock_metrics::Histogram,
        scale: Scale,
    ) {
        self.text.histogram(self.name, labels, histogram, scale);
    }
}

pub(crate) fn of(procedure: &Procedure) -> [(&str, &str); 2] {
    [
        ("program", &procedure.program),
        ("procedure", &procedure.name),
    ]
}

pub(crate) fn requests(all: &Snapshot, out: &mut Samples<'_>) {
    for procedure in &all.procedures {
        for (status, &count) in &procedure.statuses {
            let [program, name] = of(procedure);
            out.count(&[program, name, ("status", status)], count);
        }
    }
}

pub(crate) fn durations(all: &Snapshot, out: &mut Samples<'_>) {
    for procedure in &all.procedures {
        out.histogram(&of(procedure), &procedure.latency, Scale::Seconds);
    }
}

pub(crate) fn clients(all: &Snapshot, out: &mut Samples<'_>, count: fn(&Traffic) -> u64) {
    for client in &all.clients {
        out.count(&[("client", &client.address)], count(&client.traffic));
    }
    out.count(&[("client", "other")], count(&all.other_clients));
}

pub(crate) fn exports(all: &Snapshot, out: &mut Samples<'_>, count: fn(&Traffic) -> u64) {
    for (path, traffic) in &all.exports {
        out.count(&[("export", path)], count(traffic));
    }
}

pub(crate) fn states(all: &Snapshot, out: &mut Samples<'_>) {
    for node in &all.status.nodes {
        let number = node.number.to_string();
        for state in STATES {
            let is_it = u64::from(node.state == state);
            out.count(&[("node", &number), ("state", state)], is_it);
        }
    }
}

pub(crate) fn nodes(all: &Snapshot, out: &mut Samples<'_>, count: fn(&NodeFigures) -> u64) {
    for node in &all.nodes {
        out.count(&[("node", &node.number.to_string())], count(node));
    }
}

pub(crate) fn disks(all: &Snapshot) -> impl Iterator<Item = (String, &DiskFigures)> {
    let nodes = all.nodes.iter();
    nodes.flat_map(|node| {
        let disks = node.disks.iter();
        disks.map(|disk| (node.number.to_string(), disk))
    })
}

pub(crate) fn sets(all: &Snapshot, out: &mut Samples<'_>, count: fn(&DiskSetFigures) -> u64) {
    for node in &all.nodes {
        for set in &node.sets {
            let (node, number) = (node.number.to_string(), set.number.to_string());
            let labels = [("node", &*node), ("set", &*number), ("kind", &*set.kind)];
            out.count(&labels, count(set));
        }
    }
}

pub(crate) fn sites(all: &Snapshot, out: &mut Samples<'_>, value: fn(&SiteFigures) -> f64) {
    for site in &all.sites {
        out.value(&[("site", &site.number.to_string())], value(site));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prometheus_parse::{Scrape, Value};

    use super::*;
    use crate::sample;
    use crate::text::MetricKind;

    /// Goal: what is told is read by somebody else's parser, every metric of the
    /// catalogue is there with its type and help, and no sample comes twice.
    #[test]
    fn every_metric_is_told_and_can_be_read() {
        let text = render(&sample::snapshot());
        let lines = text.lines().map(|line| Ok(line.to_owned()));
        let scrape = Scrape::parse(lines).expect("it can be read");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let mut seen = BTreeSet::new();
        for sample in samples {
            let (name, _) = sample.rsplit_once(' ').expect("a value");
            assert!(seen.insert(name.to_owned()), "{name} comes twice");
        }
        for family in catalogue::families() {
            let Metric { name, kind, help } = family.metric;
            assert!(scrape.docs.contains_key(name), "{name} has no help");
            assert!(help.ends_with('.') || help.ends_with('`'), "{name}: {help}");
            let mut values = scrape.samples.iter().filter(|sample| sample.metric == name);
            let first = values.next();
            let first = first.unwrap_or_else(|| panic!("{name} has no sample"));
            let is_kind = match (&first.value, kind) {
                (Value::Counter(_), MetricKind::Counter) => name.ends_with("_total"),
                (Value::Gauge(_), MetricKind::Gauge) => !name.ends_with("_total"),
                (Value::Histogram(buckets), MetricKind::Histogram) => {
                    let counts = buckets.iter().map(|bucket| bucket.count);
                    counts.is_sorted() && buckets.last().is_some_and(|last| last.count == 3.0)
                }
                _ => false,
            };
            assert!(is_kind, "{name}: {:?}", first.value);
        }
    }

    /// Goal: docs/metrics.md lists exactly what there is, with type and meaning.
    #[test]
    fn the_page_lists_every_metric() {
        let page = include_str!("../../../docs/metrics.md");
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let rows: Vec<Vec<&str>> = rows
            .map(|row| row.split('|').map(str::trim).collect())
            .collect();
        assert_eq!(rows.len(), catalogue::families().count());
        for (row, family) in rows.iter().zip(catalogue::families()) {
            let Metric { name, kind, help } = family.metric;
            let name = format!("`{name}`");
            assert_eq!(row[1..], [&name, kind.word(), row[3], help, ""]);
        }
    }
}
