//! The text format of Prometheus, version 0.0.4: what every scraper reads.

use std::fmt::Write;

use crossdock_metrics::Histogram;

/// How `/metrics` answers.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Bounds of a histogram of counts: up to 4,095.
const COUNT_BOUNDS: usize = 13;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// Only grows, until the process starts anew.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of values up to bounds, with their sum.
    Histogram,
}

/// A metric of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    /// Its name; the unit is its end.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) kind: MetricKind,
    /// What it means, in one line.
    pub(crate) help: &'static str,
}

/// What a histogram's integers stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Microseconds, told in seconds.
    Seconds,
    /// Numbers.
    Count,
}

/// Text that is being written.
#[derive(Debug, Default)]
pub(crate) struct Text {
    text: String,
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl MetricKind {
    /// Its word in the text format.
    #[must_use]
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Text {
    /// Begins a metric; its samples follow.
    pub(crate) fn begin(&mut self, metric: &Metric) {
        let Metric { name, kind, help } = metric;
        let _ = writeln!(self.text, "# HELP {name} {help}");
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.word());
    }

    /// A sample. Writing to a string cannot fail.
    pub(crate) fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.text.push_str(name);
        self.labels(labels, None);
        let _ = writeln!(self.text, " {value}");
    }

    /// The samples of a histogram.
    pub(crate) fn histogram(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        histogram: &Histogram,
        scale: Scale,
    ) {
        let (unit, bounds) = match scale {
            Scale::Seconds => (1e6, usize::MAX),
            Scale::Count => (1.0, COUNT_BOUNDS),
        };
        let count = histogram.count();
        for (bound, below) in histogram.below_powers().take(bounds) {
            // Counts are whole: below 2^n is up to 2^n - 1.
            let bound = match scale {
                Scale::Seconds => bound as f64 / unit,
                Scale::Count => (bound - 1) as f64,
            };
            let _ = write!(self.text, "{name}_bucket");
            self.labels(labels, Some(&bound.to_string()));
            let _ = writeln!(self.text, " {below}");
        }
        let _ = write!(self.text, "{name}_bucket");
        self.labels(labels, Some("+Inf"));
        let _ = writeln!(self.text, " {count}");
        let _ = write!(self.text, "{name}_sum");
        self.labels(labels, None);
        let _ = writeln!(self.text, " {}", histogram.sum() as f64 / unit);
        let _ = write!(self.text, "{name}_count");
        self.labels(labels, None);
        let _ = writeln!(self.text, " {count}");
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    fn labels(&mut self, labels: Labels<'_>, bound: Option<&str>) {
        let bound = bound.map(|bound| ("le", bound));
        let mut all = labels.iter().copied().chain(bound).peekable();
        if all.peek().is_none() {
            return;
        }
        self.text.push('{');
        while let Some((name, value)) = all.next() {
            let _ = write!(self.text, "{name}=\"");
            for character in value.chars() {
                match character {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
            if all.peek().is_some() {
                self.text.push(',');
            }
        }
        self.text.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the format to the letter, with every escape that it has.
    #[test]
    fn text_is_as_the_format_says() {
        let mut text = Text::default();
        text.begin(&Metric {
            name: "a_bytes",
            kind: MetricKind::Gauge,
            help: "Bytes of a.",
        });
        text.sample("a_bytes", &[], 0.5);
        text.sample("a_bytes", &[("path", "/\"q\\\n"), ("b", "ü")], 3.0);
        let mut histogram = Histogram::default();
        histogram.record(1);
        histogram.record(5);
        text.histogram("h", &[("x", "y")], &histogram, Scale::Count);
        let expected = "# HELP a_bytes Bytes of a.\n# TYPE a_bytes gauge\na_bytes 0.5\n\
            a_bytes{path=\"/\\\"q\\\\\\n\",b=\"ü\"} 3\n\
            h_bucket{x=\"y\",le=\"0\"} 0\nh_bucket{x=\"y\",le=\"1\"} 1\n\
            h_bucket{x=\"y\",le=\"3\"} 1\nh_bucket{x=\"y\",le=\"7\"} 2\n";
        let text = text.finish();
        assert!(text.starts_with(expected), "{text}");
        let end = "h_bucket{x=\"y\",le=\"4095\"} 2\nh_bucket{x=\"y\",le=\"+Inf\"} 2\n\
            h_sum{x=\"y\"} 6\nh_count{x=\"y\"} 2\n";
        assert!(text.ends_with(end), "{text}");
    }
}
