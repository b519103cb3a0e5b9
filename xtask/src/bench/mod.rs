//! `cargo xtask bench NAME [ROW…]`: Crossdock beside its peers, in alternation,
//! on this machine. Results are kept in bench/results and shown in
//! docs/benchmarks.md.

mod as_root;
mod cpu;
mod document;
mod ensemble;
pub(crate) mod figures;
mod http;
mod ibp;
mod iscsi;
mod lines;
mod nfs;
mod page;
mod plot;
mod restart;
mod spiral;
mod store;
mod webbench;

use anyhow::Result;
use serde_json::Value;

use crate::Usage;
use crate::paths::Paths;

pub(crate) use document::commit;
pub(crate) use ensemble::run_as_root as run_ensemble_as_root;
pub(crate) use http::run_as_root as run_http_as_root;
pub(crate) use ibp::run_as_root as run_ibp_as_root;
pub(crate) use iscsi::run_as_root as run_iscsi_as_root;
pub(crate) use nfs::{run_as_root as run_nfs_as_root, run_growth_as_root};
pub(crate) use page::generate;
pub(crate) use spiral::run_as_root as run_spiral_as_root;

/// What can be measured.
const NAMES: &str = "nfs growth http ibp ensemble iscsi spiral store restart";

/// What stands in the place of Crossdock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// Itself.
    Crossdock,
    /// The peer of `nfs`.
    Ganesha,
    /// The peer of `http`.
    Nginx,
}

impl Subject {
    /// How the command line says it.
    const fn word(self) -> &'static str {
        match self {
            Self::Crossdock => "crossdock",
            Self::Ganesha => "ganesha",
            Self::Nginx => "nginx",
        }
    }
}

/// What the command line asked for.
#[derive(Clone, Debug)]
struct Options {
    /// These rows; all if empty.
    rows: Vec<String>,
    /// Long runs.
    full: bool,
    server: Subject,
    /// Further words of `cluster init`, for `ensemble`.
    init: String,
}

/// Measures; `false` if a row could not be measured.
pub(crate) fn run(paths: &Paths, words: &[&str]) -> Result<bool> {
    let [name, words @ ..] = words else {
        return Err(Usage(format!("bench: which? {NAMES}")).into());
    };
    let measured = match *name {
        "nfs" => as_root::run(paths, "nfs", &parse(words, &nfs::row_names())?)?,
        "growth" => as_root::run(paths, "growth", &parse(words, &[])?)?,
        "http" => as_root::run(paths, "http", &parse(words, &http::ROWS)?)?,
        "ibp" => as_root::run(paths, "ibp", &parse(words, &ibp::ROWS)?)?,
        "ensemble" => as_root::run(paths, "ensemble", &parse(words, &ensemble::ROWS)?)?,
        "iscsi" => as_root::run(paths, "iscsi", &parse(words, &iscsi::row_names())?)?,
        "spiral" => as_root::run(paths, "spiral", &parse(words, &spiral::ROWS)?)?,
        "store" => store::run(paths, words)?,
        "restart" => restart::run(paths, &parse(words, &[])?)?,
        other => return Err(Usage(format!("no such benchmark: {other}\n{NAMES}")).into()),
    };
    generate(paths)?;
    Ok(measured)
}

/// What a rig is called that is measured: another process may measure at the same time.
fn rig_name() -> String {
    format!("bench-{}", std::process::id())
}

/// Hands results to who keeps them.
fn keep(rows: Vec<Value>) {
    for row in &rows {
        let number = |value: &Value| value.as_f64().map_or(f64::NAN, |it| it);
        eprintln!(
            "{:<24} {:>12.2} {:<14} {:>12.2} {:<44} ratio {:.2}  {}",
            row["row"].as_str().unwrap_or("?"),
            number(&row["ours"]["median"]),
            row["unit"].as_str().unwrap_or("?"),
            number(&row["peer"]["median"]),
            row["peer"]["name"].as_str().unwrap_or("?"),
            number(&row["ratio"]),
            row["variant"].as_str().unwrap_or("?"),
        );
    }
    println!("{}", Value::Array(rows));
}

/// Where results go when they are there.
type Keep<'run> = &'run dyn Fn(Vec<Value>);

/// Reads rows of `known` and flags.
fn parse(words: &[&str], known: &[&str]) -> Result<Options> {
    let mut options = Options {
        rows: Vec::new(),
        full: false,
        server: Subject::Crossdock,
        init: String::new(),
    };
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--full" => options.full = true,
            "--init" => {
                let init = words.next().copied();
                options.init = init
                    .ok_or_else(|| Usage("--init: which words?".to_owned()))?
                    .to_owned();
            }
            "--server" => {
                options.server = match words.next() {
                    Some(&"crossdock") => Subject::Crossdock,
                    Some(&"ganesha") => Subject::Ganesha,
                    Some(&"nginx") => Subject::Nginx,
                    _ => {
                        let text = "--server: crossdock, ganesha (nfs) or nginx (http)?";
                        return Err(Usage(text.to_owned()).into());
                    }
                }
            }
            row if known.contains(&row) => options.rows.push(row.to_owned()),
            other => {
                let known = known.join(" ");
                return Err(Usage(format!("no such row: {other}\nrows: {known}")).into());
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a misspelt row is wrong usage, not a run of nothing.
    #[test]
    fn unknown_rows_are_refused() {
        let known = ["read", "write"];
        let options = parse(&["write", "--full"], &known).unwrap();
        assert!(options.full && options.rows == ["write"]);
        assert!(parse(&["wirte"], &known).is_err_and(|error| error.is::<Usage>()));
        assert!(parse(&["--server", "samba"], &known).is_err_and(|error| error.is::<Usage>()));
    }
}
