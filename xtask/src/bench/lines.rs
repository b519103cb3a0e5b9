//! Pictures of rows that belong together: a figure against what was varied, a line for
//! each series, and beside it, dashed, what it is compared with.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

/// One picture of a result.
pub(super) struct Chart {
    /// Which rows, and the end of the picture's name: those that are called so, each a
    /// point; and those whose names have more behind it and that have a whole line,
    /// `points` of three numbers.
    pub(super) row: &'static str,
    pub(super) title: &'static str,
    /// What is varied.
    pub(super) across: &'static str,
}

/// The pictures of `bench http`.
pub(super) const HTTP_CHARTS: [Chart; 6] = [
    chart(
        "capacity-rate",
        "From the slow disk: % of their rates that streams have, by all there are",
        "streams",
    ),
    chart(
        "cached-cpu",
        "Large files from memory beside sendfile: CPU s/GB",
        "connections",
    ),
    chart(
        "far-1s",
        "Streams near and far, new ones for 1 s: kb/s of each",
        "seconds",
    ),
    chart(
        "far-3s",
        "Streams near and far, new ones for 3 s: kb/s of each",
        "seconds",
    ),
    chart(
        "marks",
        "CE marks for a fifth of the streams: kb/s of each",
        "seconds",
    ),
    chart(
        "drops",
        "Losses of a fifth of the streams: kb/s of each",
        "seconds",
    ),
];

/// The pictures of `bench ensemble`.
pub(super) const CHARTS: [Chart; 13] = [
    chart("read", "Reading large files: MB/s", "nodes"),
    chart("write", "Writing large files: MB/s", "nodes"),
    chart("read-mirrored", "Reading two copies: MB/s", "nodes"),
    chart("write-mirrored", "Writing two copies: MB/s", "nodes"),
    chart("create-mix", "Create mix: op/s a manager", "processes"),
    chart(
        "create-mix-latency",
        "Create mix: seconds for 250,000 operations",
        "processes",
    ),
    chart(
        "scaling",
        "Create mix on managers with 0.05 of a processor each: op/s",
        "managers",
    ),
    chart(
        "affinity",
        "Create mix on four such managers: op/s",
        "% of new directories at other sites",
    ),
    chart(
        "affinity-busiest",
        "The busiest of four managers: times an even share",
        "% of new directories at other sites",
    ),
    chart("untar", "Unpacking names: op/s", "clients"),
    chart("mix", "SPECsfs97-like mix: delivered op/s", "offered op/s"),
    chart(
        "mix-latency",
        "SPECsfs97-like mix: mean latency in µs",
        "offered op/s",
    ),
    chart(
        "take-over",
        "The manager of all names dies: seconds until the answer",
        "files",
    ),
];

const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 240.0;
const LEGEND: f64 = 230.0;
const LINE: f64 = 16.0;
/// Parts of each axis that have a number.
const TICKS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
/// Told apart by people of all eyes.
const COLOURS: [&str; 6] = [
    "#2563a8", "#c46a1b", "#2e8b57", "#8b3a8b", "#666666", "#b22222",
];

/// Ours and the peer's at each place.
type Series = Vec<(f64, f64, f64)>;

const fn chart(row: &'static str, title: &'static str, across: &'static str) -> Chart {
    Chart { row, title, across }
}

/// The picture as SVG; `None` if there is nothing to show.
pub(super) fn svg(result: &Value, chart: &Chart) -> Option<String> {
    let all = series(result, chart);
    let points = || all.values().flatten();
    let right = points().map(|point| point.0).reduce(f64::max)?;
    let top = points()
        .map(|point| point.1.max(point.2))
        .reduce(f64::max)?;
    let x = |value: f64| LEFT + value / right * WIDTH;
    let y = |value: f64| TOP + HEIGHT - value / top * HEIGHT;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" font-size="11" fill="#333">
<rect width="100%" height="100%" fill="#fff"/>
<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{}</text>
<text x="{}" y="{}" text-anchor="end">{}</text>"##,
        LEFT + WIDTH + LEGEND,
        TOP + HEIGHT + 50.0,
        chart.title,
        LEFT + WIDTH,
        TOP + HEIGHT + 36.0,
        chart.across,
    );
    for part in TICKS {
        let (at_x, at_y) = (right * part, top * part);
        let _ = writeln!(
            text,
            r##"<line x1="{LEFT}" x2="{}" y1="{1:.1}" y2="{1:.1}" stroke="#ddd"/>
<text x="{2}" y="{3:.1}" text-anchor="end">{4}</text>
<text x="{5:.1}" y="{6}" text-anchor="middle">{7}</text>"##,
            LEFT + WIDTH,
            y(at_y),
            LEFT - 8.0,
            y(at_y) + 4.0,
            number(at_y),
            x(at_x),
            TOP + HEIGHT + 18.0,
            number(at_x),
        );
    }
    for (place, (name, points)) in all.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        for (is_peer, dashes) in [(true, r#" stroke-dasharray="4 3""#), (false, "")] {
            let places = points.iter().map(|&(at, ours, theirs)| {
                let value = if is_peer { theirs } else { ours };
                format!("{:.1},{:.1}", x(at), y(value))
            });
            let places: Vec<String> = places.collect();
            let _ = writeln!(
                text,
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>"#,
                places.join(" ")
            );
        }
        #[expect(clippy::cast_precision_loss, reason = "some lines")]
        let down = TOP + 12.0 + place as f64 * LINE;
        let _ = writeln!(
            text,
            r#"<text x="{}" y="{down}" fill="{colour}">{name}</text>"#,
            LEFT + WIDTH + 12.0
        );
    }
    text.push_str("</svg>\n");
    Some(text)
}

fn series(result: &Value, chart: &Chart) -> BTreeMap<String, Series> {
    let mut all: BTreeMap<String, Series> = BTreeMap::new();
    for row in result["rows"].as_array().into_iter().flatten() {
        if let Some((name, points)) = line(row, chart) {
            all.insert(name.to_owned(), points);
        }
        if row["row"] != chart.row {
            continue;
        }
        let median = |side: &str| row[side]["median"].as_f64();
        let point = row["x"].as_f64().zip(median("ours")).zip(median("peer"));
        let (Some(((at, ours), theirs)), Some(name)) = (point, row["series"].as_str()) else {
            continue;
        };
        all.entry(name.to_owned())
            .or_default()
            .push((at, ours, theirs));
    }
    for points in all.values_mut() {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    all
}

/// A row's own line, if it has one and belongs to the picture.
fn line<'row>(row: &'row Value, chart: &Chart) -> Option<(&'row str, Series)> {
    let more = row["row"].as_str()?.strip_prefix(chart.row)?;
    let points = row["points"].as_array().filter(|_| more.starts_with('-'))?;
    let points = points.iter().filter_map(|point| {
        let at = |place: usize| point[place].as_f64();
        Some((at(0)?, at(1)?, at(2)?))
    });
    Some((row["series"].as_str()?, points.collect()))
}

fn number(value: f64) -> String {
    match value {
        value if value >= 10.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: rows of the picture are its lines, in the order of what was varied; others
    /// and those without a place are not.
    #[test]
    fn rows_become_lines() {
        let row = |name: &str, x: Option<f64>, ours: f64| {
            json!({
                "row": name, "series": "a", "x": x,
                "ours": {"median": ours}, "peer": {"median": 1.0},
            })
        };
        let result = json!({"rows": [
            row("read", Some(4.0), 8.0),
            row("read", Some(2.0), 4.0),
            row("read", None, 5.0),
            row("write", Some(1.0), 5.0),
        ]});
        let all = series(&result, &CHARTS[0]);
        assert_eq!(all["a"], [(2.0, 4.0, 1.0), (4.0, 8.0, 1.0)]);
        let picture = svg(&result, &CHARTS[0]).expect("a picture");
        assert!(picture.contains("280.0,160.0 490.0,40.0"), "{picture}");
        assert!(svg(&json!({"rows": []}), &CHARTS[0]).is_none());
    }

    /// Goal: a row with a line of its own is in the picture whose name its own begins
    /// with, and in no other.
    #[test]
    fn rows_have_lines() {
        let row = |name: &str| json!({"row": name, "series": name, "points": [[0.0, 1.0, 2.0], [1.0, 3.0, 4.0]]});
        let result = json!({"rows": [row("far-near"), row("farther-near"), row("far")]});
        let all = series(&result, &chart("far", "", ""));
        assert_eq!(all.len(), 1);
        assert_eq!(all["far-near"], [(0.0, 1.0, 2.0), (1.0, 3.0, 4.0)]);
    }
}
