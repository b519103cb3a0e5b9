//! What is printed: numbers for people, JSON for programs.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

/// Prints to standard output. A reader that has seen enough and left, like
/// `head`, is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Prints `value` as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(&format!(
        "{}\n",
        serde_json::to_string_pretty(value)?
    ))?)
}

/// Bytes with a binary unit: `1.5 GiB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut scaled = number as f64;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{number} B")
    } else {
        format!("{scaled:.1} {}", UNITS[unit])
    }
}

/// Columns that line up: the first row is the head.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: columns line up whatever they hold.
    #[test]
    fn tables_line_up() {
        let rows = [
            vec!["a".to_owned(), "bb".to_owned()],
            vec!["ccc".to_owned(), "d".to_owned()],
        ];
        assert_eq!(table(&rows), "a    bb\nccc  d\n");
        assert_eq!(
            (bytes(1023), bytes(1536 << 20)),
            ("1023 B".to_owned(), "1.5 GiB".to_owned())
        );
    }
}
