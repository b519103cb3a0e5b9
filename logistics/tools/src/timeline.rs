//! Which block moved when, on which thread, from or to which depot: as JSON and as a picture.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

/// Spans that are kept; the rest is only counted.
const SPANS_MAX: usize = 100_000;

/// One attempt to move a block.
#[derive(Clone, Debug)]
pub struct Span {
    /// Number of the connection that moved it, among those at that time.
    pub thread: usize,
    /// From or to where.
    pub depot: String,
    /// Which bytes of the file.
    pub range: Range<u64>,
    /// When it began, from the beginning of the transfer.
    pub start: Duration,
    /// When it ended.
    pub end: Duration,
    /// How many bytes had moved then.
    pub bytes: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The block has moved.
    Done,
    /// Another one was faster, or this one too slow.
    Cancelled,
    /// Why it has not.
    Failed(String),
}

/// All attempts of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    spans: Vec<Span>,
    left_out: u64,
}

impl Timeline {
    pub(crate) fn add(&mut self, span: Span) {
        match self.spans.len() < SPANS_MAX {
            true => self.spans.push(span),
            false => self.left_out += 1,
        }
    }

    /// As JSON: by depot, and each block.
    #[must_use]
    pub fn report(&self) -> Value {
        let depots: BTreeSet<&str> = self.spans.iter().map(|span| span.depot.as_str()).collect();
        let of_depot = |depot: &str| {
            let spans = || self.spans.iter().filter(|span| span.depot == depot);
            let count = |is: fn(&Outcome) -> bool| spans().filter(|it| is(&it.outcome)).count();
            let done = spans().filter(|span| span.outcome == Outcome::Done);
            json!({
                "depot": depot,
                "bytes": done.map(|span| span.bytes).sum::<u64>(),
                "blocks": count(|outcome| *outcome == Outcome::Done),
                "cancelled": count(|outcome| *outcome == Outcome::Cancelled),
                "failed": count(|outcome| matches!(outcome, Outcome::Failed(_))),
            })
        };
        let block = |span: &Span| {
            json!({
                "thread": span.thread,
                "depot": span.depot,
                "offset": span.range.start,
                "length": span.range.end - span.range.start,
                "start_seconds": span.start.as_secs_f64(),
                "end_seconds": span.end.as_secs_f64(),
                "bytes": span.bytes,
                "outcome": match &span.outcome {
                    Outcome::Done => "done",
                    Outcome::Cancelled => "cancelled",
                    Outcome::Failed(why) => why,
                },
            })
        };
        json!({
            "depots": depots.into_iter().map(of_depot).collect::<Vec<_>>(),
            "blocks": self.spans.iter().map(block).collect::<Vec<_>>(),
            "blocks_left_out": self.left_out,
        })
    }

    /// As a picture: a row for each thread, a bar for each block, a colour for each depot.
    #[must_use]
    pub fn svg(&self) -> String {
        const WIDTH: f64 = 960.0;
        const ROW: usize = 18;
        const LEFT: f64 = 40.0;
        const COLOURS: [&str; 8] = [
            "#4269d0", "#efb118", "#3ca951", "#ff725c", "#a463f2", "#6cc5b0", "#9c6b4e", "#97bbf5",
        ];
        let depots: BTreeSet<&str> = self.spans.iter().map(|span| span.depot.as_str()).collect();
        let depots: Vec<&str> = depots.into_iter().collect();
        let threads = self
            .spans
            .iter()
            .map(|span| span.thread + 1)
            .max()
            .unwrap_or(0);
        let whole = self
            .spans
            .iter()
            .map(|span| span.end)
            .max()
            .unwrap_or_default();
        let x = |at: Duration| LEFT + at.as_secs_f64() / whole.as_secs_f64().max(1e-9) * WIDTH;
        let height = ROW * (threads + depots.len() + 2);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n",
            WIDTH + LEFT + 20.0
        );
        for thread in 0..threads {
            let y = ROW * thread + 13;
            let _ = writeln!(svg, "<text x=\"4\" y=\"{y}\">{thread}</text>");
        }
        for span in &self.spans {
            let number = depots
                .iter()
                .position(|depot| *depot == span.depot)
                .unwrap_or(0);
            let colour = COLOURS[number % COLOURS.len()];
            let opacity = if span.outcome == Outcome::Done {
                "1"
            } else {
                "0.35"
            };
            let (from, to) = (x(span.start), x(span.end));
            let (width, height) = ((to - from).max(0.5), ROW - 3);
            let y = ROW * span.thread;
            let bytes = format!("{}–{}", span.range.start, span.range.end);
            let depot = escaped(&span.depot);
            let _ = writeln!(
                svg,
                "<rect x=\"{from:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{height}\" \
                 fill=\"{colour}\" fill-opacity=\"{opacity}\" stroke=\"#fff\" \
                 stroke-width=\"0.4\"><title>{depot}: {bytes}</title></rect>"
            );
        }
        let axis = ROW * threads + 13;
        let seconds = whole.as_secs_f64();
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{axis}\">0 to {seconds:.2} s</text>"
        );
        for (number, depot) in depots.iter().enumerate() {
            let y = ROW * (threads + 1 + number);
            let colour = COLOURS[number % COLOURS.len()];
            let _ = writeln!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text>",
                LEFT + 18.0,
                y + 10,
                escaped(depot)
            );
        }
        svg + "</svg>\n"
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: report and picture show every attempt, and how it ended.
    #[test]
    fn every_attempt_is_shown() {
        let span = |thread, depot: &str, outcome| Span {
            thread,
            depot: depot.to_owned(),
            range: 0..100,
            start: Duration::from_secs(1),
            end: Duration::from_secs(3),
            bytes: 100,
            outcome,
        };
        let mut timeline = Timeline::default();
        timeline.add(span(0, "a:1", Outcome::Done));
        timeline.add(span(1, "<b>:1", Outcome::Cancelled));
        timeline.add(span(1, "a:1", Outcome::Failed("gone".to_owned())));
        let report = timeline.report();
        assert_eq!(report["depots"][1]["failed"], 1);
        assert_eq!(report["blocks"][2]["outcome"], "gone");
        let svg = timeline.svg();
        assert_eq!(svg.matches("<title>").count(), 3);
        assert!(svg.contains("&lt;b>:1") && svg.contains("0 to 3.00 s"));
    }
}
