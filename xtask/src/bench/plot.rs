//! Pictures of results: for each row the ratio to each peer as a dot on a
//! logarithmic axis, with a line at 1 and a mark where the goal is.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

/// One picture of a result.
pub(super) struct Plot {
    /// Behind the name of the file.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Which rows: those whose names end so; "" for those without a suffix.
    pub(super) suffix: &'static str,
}

/// The pictures of `bench nfs`.
pub(super) const PLOTS: [Plot; 2] = [
    Plot {
        name: "rate",
        title: "Rate, as a multiple of the peer's",
        suffix: "",
    },
    Plot {
        name: "cpu",
        title: "Work per CPU second, as a multiple of the peer's",
        suffix: "-cpu",
    },
];

/// Suffixes of rows that are not rates.
const SUFFIXES: [&str; 5] = ["-cpu", "-switches", "-calls", "-p50", "-p99"];

/// The peers that are shown, by a word of their names, with their colours.
const SERIES: [(&str, &str, &str); 2] = [
    ("plain", "nfs-ganesha, plain", "#c46a1b"),
    ("durable", "nfs-ganesha, durable", "#2563a8"),
];

const LEFT: f64 = 150.0;
const WIDTH: f64 = 560.0;
const LINE: f64 = 17.0;
const TOP: f64 = 64.0;
/// Ends of the axis.
const LEAST: f64 = 0.2;
const MOST: f64 = 50.0;
const TICKS: [f64; 8] = [0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 50.0];

/// What is shown of one row: ratio and goal by series.
type Line = BTreeMap<usize, (f64, Option<f64>)>;

/// The picture as SVG; `None` if there is nothing to show.
pub(super) fn svg(result: &Value, plot: &Plot) -> Option<String> {
    let lines = lines(result, plot);
    if lines.is_empty() {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "some dozens of lines")]
    let bottom = TOP + lines.len() as f64 * LINE;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" font-size="11" fill="#333">
<rect width="100%" height="100%" fill="#fff"/>
<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{}</text>"##,
        LEFT + WIDTH + 40.0,
        bottom + 34.0,
        plot.title
    );
    legend(&mut text);
    axis(&mut text, bottom);
    for (number, (label, line)) in lines.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "some dozens of lines")]
        let y = TOP + (number as f64 + 0.5) * LINE;
        let _ = writeln!(
            text,
            r#"<text x="{}" y="{}" text-anchor="end">{label}</text>"#,
            LEFT - 10.0,
            y + 4.0
        );
        for (series, (ratio, goal)) in line {
            let (_, name, colour) = SERIES[*series];
            if let Some(goal) = goal {
                let x = place(*goal);
                let _ = writeln!(
                    text,
                    r#"<path d="M{x} {} v{}" stroke="{colour}" stroke-width="2" opacity="0.45"/>"#,
                    y - 6.0,
                    12.0
                );
            }
            let _ = writeln!(
                text,
                r#"<circle cx="{:.1}" cy="{y}" r="4" fill="{colour}"><title>{label}, {name}: {ratio:.2}</title></circle>"#,
                place(*ratio)
            );
        }
    }
    text.push_str("</svg>\n");
    Some(text)
}

fn lines(result: &Value, plot: &Plot) -> Vec<(String, Line)> {
    let mut lines: Vec<(String, Line)> = Vec::new();
    for row in result["rows"].as_array().into_iter().flatten() {
        let name = row["row"].as_str().unwrap_or_default();
        let is_wanted = match plot.suffix {
            "" => SUFFIXES.iter().all(|suffix| !name.ends_with(suffix)),
            suffix => name.ends_with(suffix),
        };
        let peer = row["peer"]["name"].as_str().unwrap_or_default();
        let series = SERIES.iter().position(|(word, ..)| peer.contains(word));
        let (Some(series), Some(ratio), true) = (series, row["ratio"].as_f64(), is_wanted) else {
            continue;
        };
        let label = name.trim_end_matches(plot.suffix).to_owned();
        let point = (ratio, row["goal"].as_f64());
        match lines.iter_mut().find(|(known, _)| *known == label) {
            Some((_, line)) => drop(line.insert(series, point)),
            None => lines.push((label, Line::from([(series, point)]))),
        }
    }
    lines
}

fn legend(text: &mut String) {
    let mut x = LEFT;
    for (_, name, colour) in SERIES {
        let _ = writeln!(
            text,
            r#"<circle cx="{x}" cy="38" r="4" fill="{colour}"/><text x="{}" y="42">{name}</text>"#,
            x + 8.0
        );
        x += 160.0;
    }
    let _ = writeln!(
        text,
        r##"<path d="M{x} 32 v12" stroke="#777" stroke-width="2" opacity="0.6"/><text x="{}" y="42">goal</text>"##,
        x + 6.0
    );
}

fn axis(text: &mut String, bottom: f64) {
    for tick in TICKS {
        let x = place(tick);
        let (colour, width) = match tick {
            1.0 => ("#333", 1.5),
            _ => ("#ddd", 1.0),
        };
        let _ = writeln!(
            text,
            r#"<path d="M{x:.1} {TOP} V{bottom}" stroke="{colour}" stroke-width="{width}"/><text x="{x:.1}" y="{}" text-anchor="middle">{tick}×</text>"#,
            bottom + 18.0
        );
    }
}

fn place(ratio: f64) -> f64 {
    let part = (ratio.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
    LEFT + part * WIDTH
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: rates and CPU go to pictures of their own, and equal lies on the line.
    #[test]
    fn each_picture_has_its_rows() {
        let row = |name: &str, peer: &str, ratio: f64| json!({"row": name, "ratio": ratio, "goal": 2.0, "peer": {"name": peer}});
        let result = json!({"rows": [
            row("create 1x1", "nfs-ganesha 4.3 VFS, plain", 1.0),
            row("create 1x1", "nfs-ganesha 4.3 VFS, durable", 3.0),
            row("create 1x1-cpu", "nfs-ganesha 4.3 VFS, plain", 2.0),
            row("create 1x1", "floor", 9.0),
        ]});
        let rates = lines(&result, &PLOTS[0]);
        assert_eq!(rates.len(), 1);
        assert_eq!(rates[0].1.len(), 2);
        assert_eq!(lines(&result, &PLOTS[1])[0].0, "create 1x1");
        let picture = svg(&result, &PLOTS[0]).unwrap();
        assert!(picture.contains(&format!("cx=\"{:.1}\"", place(1.0))));
        assert_eq!(svg(&json!({"rows": []}), &PLOTS[0]), None);
    }
}
