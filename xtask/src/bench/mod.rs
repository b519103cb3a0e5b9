//! `cargo xtask bench NAME [ROW…]`: Crossdock beside its peers, in alternation,
//! on this machine. Results are kept in bench/results and shown in
//! docs/benchmarks.md.

mod as_root;
mod document;
mod ensemble;
pub(crate) mod figures;
mod lines;
mod nfs;
mod page;
mod plot;
mod restart;
mod store;

use anyhow::Result;

use crate::Usage;
use crate::paths::Paths;
use crate::rig::server::Kind;

pub(crate) use ensemble::run_as_root as run_ensemble_as_root;
pub(crate) use nfs::{run_as_root as run_nfs_as_root, run_growth_as_root};
pub(crate) use page::generate;

/// What can be measured.
const NAMES: &str = "nfs growth ensemble store restart";

/// What the command line asked for.
#[derive(Clone, Debug)]
struct Options {
    /// These rows; all if empty.
    rows: Vec<String>,
    /// Long runs.
    full: bool,
    /// What stands in the place of Crossdock.
    server: Kind,
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
        "ensemble" => as_root::run(paths, "ensemble", &parse(words, &ensemble::ROWS)?)?,
        "store" => store::run(paths, words)?,
        "restart" => restart::run(paths, &parse(words, &[])?)?,
        other => return Err(Usage(format!("no such benchmark: {other}\n{NAMES}")).into()),
    };
    generate(paths)?;
    Ok(measured)
}

/// Reads rows of `known` and flags.
fn parse(words: &[&str], known: &[&str]) -> Result<Options> {
    let mut options = Options {
        rows: Vec::new(),
        full: false,
        server: Kind::Crossdock,
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
                    Some(&"crossdock") => Kind::Crossdock,
                    Some(&"ganesha") => Kind::Ganesha,
                    _ => return Err(Usage("--server: crossdock or ganesha?".to_owned()).into()),
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
