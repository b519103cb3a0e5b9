//! Files of bench/results: read, added to, written.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::paths::Paths;
use crate::process::output;
use crate::report;

/// The result of one benchmark, saved whenever rows are added.
pub(super) struct Document {
    file: PathBuf,
    commit: String,
    machine: String,
    /// Of this run.
    length: &'static str,
    value: Value,
}

impl Document {
    /// A result to which rows are added. Those of an earlier run stay beside
    /// the new ones if only some rows are measured.
    pub(super) fn open(paths: &Paths, bench: &str, full: bool, only_some: bool) -> Result<Self> {
        let file = folder(paths).join(bench).with_extension("json");
        let earlier = match only_some && file.exists() {
            true => read(&file)?["rows"].take(),
            false => json!([]),
        };
        let (commit, machine) = (commit(paths)?, report::machine()?);
        let value = json!({
            "bench": bench,
            "rows": earlier,
        });
        Ok(Self {
            file,
            commit,
            machine,
            length: if full { "full" } else { "short" },
            value,
        })
    }

    /// Adds rows, each in the place of an earlier one of the same name, variant
    /// and peer, and saves all.
    pub(super) fn add(&mut self, rows: Vec<Value>) -> Result<()> {
        let all = self.value["rows"].as_array_mut().context("no rows")?;
        for mut row in rows {
            row["commit"] = json!(self.commit);
            row["machine"] = json!(self.machine);
            row["length"] = json!(self.length);
            match all.iter_mut().find(|old| key(old) == key(&row)) {
                Some(old) => *old = row,
                None => all.push(row),
            }
        }
        fs::create_dir_all(self.file.parent().context("no folder")?)?;
        fs::write(&self.file, format!("{:#}\n", self.value))?;
        Ok(())
    }

    /// Says where it is.
    pub(super) fn announce(&self) {
        println!("wrote {}", self.file.display());
    }
}

/// All results of benchmarks, in the order of their names. (Suites keep figures there, too.)
pub(super) fn all(paths: &Paths) -> Result<Vec<Value>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder(paths))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "json") {
            files.push(path);
        }
    }
    files.sort();
    let results: Result<Vec<Value>> = files.iter().map(read).collect();
    let is_of_bench = |result: &Value| result["bench"].is_string();
    Ok(results?.into_iter().filter(is_of_bench).collect())
}

/// What is measured: the commit, and whether files differ from it.
pub(crate) fn commit(paths: &Paths) -> Result<String> {
    let git =
        |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(&paths.root));
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // What the benchmark itself writes is no difference.
    let changed = git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ":!bench/results",
        ":!docs/benchmarks*",
    ])?;
    Ok(match changed.is_empty() {
        true => commit,
        false => format!("{commit} with changes"),
    })
}

fn folder(paths: &Paths) -> PathBuf {
    paths.root.join("bench/results")
}

fn read(file: &PathBuf) -> Result<Value> {
    let text = fs::read_to_string(file)?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", file.display()))
}

fn key(row: &Value) -> [&Value; 3] {
    [&row["row"], &row["variant"], &row["peer"]["name"]]
}
