//! docs/semantics.md, line by line: every promise has an id and names what
//! shows it, and that is really there.
//!
//! Every row of a table in the document is a promise: `| S-PART-1 | … | … |`.
//! In backticks, its last cell names at least one of
//! - `path.rs::name`: a test function in a file of the tree,
//! - `path.sh::words`: a step of a guest script that begins with these words,
//! - `suite NAME`: a suite of `cargo xtask test`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::suite;
use crate::suite::pjdfstest::Table;

/// The document, below the checkout.
const DOCUMENT: &str = "docs/semantics.md";
/// The exceptions of a public suite, which refer to the document.
const EXCEPTIONS: &str = "tests/kernel/pjdfstest.table";
/// Which scripts the suites run.
const SCRIPT_SUITES: &str = "xtask/src/suite/kernel.rs";

/// One row.
#[derive(Debug, PartialEq, Eq)]
struct Promise {
    id: String,
    text: String,
    shown_by: Vec<String>,
}

/// Checks the document below `root`; returns how many promises it has.
///
/// # Errors
/// Everything that is wrong, a line each.
pub(crate) fn check(root: &Path) -> Result<usize> {
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
    };
    let (promises, mut wrong) = parse(&read(DOCUMENT)?);
    for promise in &promises {
        for reference in &promise.shown_by {
            if let Err(error) = find(root, reference) {
                wrong.push(format!("{}: {error:#}", promise.id));
            }
        }
    }
    let table = Table::parse(&read(EXCEPTIONS)?)?;
    wrong.extend(uncited(&promises, &table));
    if !wrong.is_empty() {
        bail!("{DOCUMENT}:\n{}", wrong.join("\n"));
    }
    Ok(promises.len())
}

/// The promises of the document, and what is wrong with its rows.
fn parse(document: &str) -> (Vec<Promise>, Vec<String>) {
    let (mut promises, mut wrong) = (Vec::new(), Vec::new());
    let mut ids = BTreeSet::new();
    let mut above = "";
    for line in document.lines() {
        // The two lines at the head of a table are no promises.
        let is_head = !above.starts_with('|') || line.starts_with("|---");
        above = line;
        if is_head || !line.starts_with('|') {
            continue;
        }
        match parse_row(line) {
            Ok(promise) if !ids.insert(promise.id.clone()) => {
                wrong.push(format!("{}: twice", promise.id));
            }
            Ok(promise) => promises.push(promise),
            Err(error) => wrong.push(format!("{error:#}: {line}")),
        }
    }
    if promises.is_empty() {
        wrong.push("no promises".to_owned());
    }
    (promises, wrong)
}

fn parse_row(line: &str) -> Result<Promise> {
    let cells: Vec<&str> = line.trim().trim_matches('|').split('|').collect();
    let &[id, text, shown_by] = cells.as_slice() else {
        bail!("not three cells");
    };
    let (id, text) = (id.trim(), text.trim());
    ensure!(is_id(id), "{id} is no id");
    ensure!(!text.is_empty(), "{id} promises nothing");
    // What stands between backticks is every second part.
    let quoted = shown_by.split('`').skip(1).step_by(2);
    let shown_by: Vec<String> = quoted.map(str::to_owned).collect();
    ensure!(!shown_by.is_empty(), "{id} has no test");
    Ok(Promise {
        id: id.to_owned(),
        text: text.to_owned(),
        shown_by,
    })
}

/// `S-`, letters, `-`, a number.
fn is_id(id: &str) -> bool {
    let Some((part, number)) = id.strip_prefix("S-").and_then(|id| id.split_once('-')) else {
        return false;
    };
    !part.is_empty()
        && part.bytes().all(|byte| byte.is_ascii_uppercase())
        && number.parse::<u32>().is_ok()
}

/// Whether what shows a promise is there.
fn find(root: &Path, reference: &str) -> Result<()> {
    if let Some(name) = reference.strip_prefix("suite ") {
        ensure!(suite::find(name).is_some(), "no such suite: {name}");
        return Ok(());
    }
    let (path, name) = reference
        .split_once("::")
        .with_context(|| format!("{reference} names no test"))?;
    let source = fs::read_to_string(root.join(path)).with_context(|| format!("no file {path}"))?;
    if let Some(script) = path.strip_prefix("tests/kernel/") {
        let suites = fs::read_to_string(root.join(SCRIPT_SUITES))?;
        ensure!(
            suites.contains(&format!("\"{script}\"")),
            "no suite runs {script}"
        );
        ensure!(has_step(&source, name), "{path} has no step {name:?}");
        return Ok(());
    }
    ensure!(has_test(&source, name), "{path} has no test {name}");
    Ok(())
}

fn has_step(script: &str, words: &str) -> bool {
    let steps = script
        .lines()
        .filter_map(|line| line.trim().strip_prefix("step \""));
    !words.is_empty() && steps.into_iter().any(|step| step.starts_with(words))
}

/// Whether `name` is a function under a test attribute that is not ignored.
fn has_test(source: &str, name: &str) -> bool {
    let mut attributes: Vec<&str> = Vec::new();
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push(line);
            continue;
        }
        let function = line.strip_prefix("fn ").and_then(|rest| {
            let (function, _) = rest.split_once('(')?;
            Some(function)
        });
        if function == Some(name) {
            return attributes.contains(&"#[test]")
                && !attributes.iter().any(|line| line.starts_with("#[ignore"));
        }
        attributes.clear();
    }
    false
}

/// Exceptions of the public suite that the document does not speak of.
fn uncited(promises: &[Promise], table: &Table) -> Vec<String> {
    let is_cited = |id: &str, name: &str| {
        let mut of_id = promises.iter().filter(|promise| promise.id == id);
        of_id.any(|promise| promise.text.contains(name))
    };
    table
        .reasons
        .iter()
        .filter(|(id, name)| !is_cited(id, name))
        .map(|(id, name)| format!("{id} does not speak of {name}, which {EXCEPTIONS} excepts"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Paths;

    const HEAD: &str = "# Title\n\n| id | promise | shown by |\n|---|---|---|\n";

    /// Goal: every line of the document names a test that is there.
    #[test]
    fn every_promise_of_the_document_has_its_test() {
        let root = Paths::find().unwrap().root;
        assert!(check(&root).unwrap() > 50);
    }

    /// Goal: a line without an id, without a test, or with an id that was there
    /// before is found.
    #[test]
    fn incomplete_lines_are_found() {
        let good = "| S-Z-9 | it holds | `suite cli` |";
        let wrong = |row: &str| parse(&format!("{HEAD}{good}\n{row}")).1;
        assert!(wrong("| S-A-1 | it holds | `suite cli` |").is_empty());
        for row in [
            "| S-A-1 | it holds | believe it |",
            "| it holds | `suite cli` |",
            "| A-1 | it holds | `suite cli` |",
            "| S-A-one | it holds | `suite cli` |",
            "| S-A-1 |  | `suite cli` |",
        ] {
            assert_eq!(wrong(row).len(), 1, "{row}");
        }
        assert_eq!(parse(HEAD).1, ["no promises"]);
        let twice = "| S-A-1 | it holds | `suite cli` |\n".repeat(2);
        assert_eq!(wrong(&twice), ["S-A-1: twice"]);
    }

    /// Goal: a test that is gone is found: function, file, attribute, step or suite.
    #[test]
    fn tests_that_are_gone_are_found() {
        let root = Paths::find().unwrap().root;
        let this = "xtask/src/semantics.rs::tests_that_are_gone_are_found";
        let step = "tests/kernel/basics.sh::links, special files";
        for there in ["suite cli", this, step] {
            find(&root, there).unwrap();
        }
        for gone in [
            "suite clip",
            "xtask/src/semantics.rs::tests_that_are_gone",
            "xtask/src/semantics.rs::check",
            "xtask/src/semantic.rs::check",
            "xtask/src/semantics.rs",
            "tests/kernel/basics.sh::links and special files",
            "tests/kernel/lib.sh::mount",
        ] {
            assert!(find(&root, gone).is_err(), "{gone}");
        }
        assert!(!has_test("#[test]\n#[ignore]\nfn slow() {}", "slow"));
    }

    /// Goal: an exception that the document does not explain is found.
    #[test]
    fn exceptions_are_cited() {
        let table = Table::parse("fails a::b S-A-1 a reason").unwrap();
        let cited = |row: &str| uncited(&parse(&format!("{HEAD}{row}")).0, &table).is_empty();
        assert!(cited("| S-A-1 | not a::b | `suite cli` |"));
        assert!(!cited("| S-A-1 | not a::c | `suite cli` |"));
        assert!(!cited("| S-A-2 | not a::b | `suite cli` |"));
    }
}
