//! What pjdfstest said, against the table of what it cannot show over NFSv3.
//!
//! The table (tests/kernel/pjdfstest.table) names every test that must fail and
//! every group that is skipped, each with the line of docs/semantics.md that
//! says why. A run passes if it is exactly that, and everything else passed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

/// The script runs pjdfstest once for what needs a read-only mount, and once for the rest.
const RUNS: usize = 2;

/// What a test ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// Everything that a run said.
#[derive(Debug, Default)]
pub(super) struct Run {
    tests: BTreeMap<String, Verdict>,
    /// How many times pjdfstest came to its end.
    ends: usize,
}

/// What a run must say.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// How many tests there are.
    total: usize,
    /// Tests that fail.
    exceptions: BTreeSet<String>,
    /// Names, or beginnings of names with a `*`, and how many tests are skipped under each.
    skips: Vec<(String, usize)>,
    /// Lines of docs/semantics.md that are referred to, each with the test that does.
    pub(crate) reasons: Vec<(String, String)>,
}

impl Run {
    /// Takes one line of output in; whatever is not about a test's end is passed over.
    pub(super) fn read(&mut self, line: &str) -> Result<()> {
        self.ends += usize::from(line.starts_with("Summary:"));
        // What begins with a blank belongs to the test above it.
        if line.starts_with(char::is_whitespace) {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[name, said] = words.as_slice() else {
            return Ok(());
        };
        let verdict = match said {
            _ if !name.contains("::") => return Ok(()),
            "ok" => Verdict::Passed,
            "FAILED" => Verdict::Failed,
            "skipped" => Verdict::Skipped,
            _ => return Ok(()),
        };
        let before = self.tests.insert(name.to_owned(), verdict);
        ensure!(before.is_none(), "{name} ran twice");
        Ok(())
    }

    /// One line of numbers.
    pub(super) fn summary(&self, table: &Table) -> String {
        let failed = self.names(Verdict::Failed);
        let expected = failed
            .iter()
            .filter(|name| table.exceptions.contains(**name))
            .count();
        format!(
            "pjdfstest: {} passed, {} failed, {} skipped, {expected} exceptions, {} in all",
            self.names(Verdict::Passed).len(),
            failed.len() - expected,
            self.names(Verdict::Skipped).len(),
            self.tests.len(),
        )
    }

    /// Compares the run with `table`.
    ///
    /// # Errors
    /// Every difference, a line each.
    pub(super) fn judge(&self, table: &Table) -> Result<()> {
        ensure!(
            self.ends == RUNS,
            "pjdfstest came to its end {} times",
            self.ends
        );
        let mut wrong = Vec::new();
        if self.tests.len() != table.total {
            wrong.push(format!(
                "{} tests ran, not {}",
                self.tests.len(),
                table.total
            ));
        }
        let failed = self.names(Verdict::Failed);
        for name in &failed {
            if !table.exceptions.contains(*name) {
                wrong.push(format!("{name} failed"));
            }
        }
        for name in &table.exceptions {
            if !failed.contains(&name.as_str()) {
                wrong.push(format!("{name} is an exception and did not fail"));
            }
        }
        let mut skipped = self.names(Verdict::Skipped);
        for (pattern, count) in &table.skips {
            let (matching, rest): (Vec<_>, Vec<_>) =
                skipped.iter().partition(|name| matches(pattern, name));
            if matching.len() != *count {
                wrong.push(format!(
                    "{} tests are skipped as {pattern}, not {count}",
                    matching.len()
                ));
            }
            skipped = rest;
        }
        for name in skipped {
            wrong.push(format!("{name} was skipped"));
        }
        if !wrong.is_empty() {
            bail!("{}", wrong.join("\n"));
        }
        Ok(())
    }

    fn names(&self, wanted: Verdict) -> Vec<&str> {
        let of_verdict = self.tests.iter().filter(|(_, verdict)| **verdict == wanted);
        of_verdict.map(|(name, _)| name.as_str()).collect()
    }
}

impl Table {
    /// Reads the table; its head says what its lines are.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut table = Self::default();
        for (number, line) in text.lines().enumerate() {
            if !line.is_empty() && !line.starts_with('#') {
                table
                    .add(line)
                    .with_context(|| format!("line {} of the table", number + 1))?;
            }
        }
        Ok(table)
    }

    fn add(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["total", count] => self.total = count.parse()?,
            ["fails", name, reason, _, ..] => {
                ensure!(self.exceptions.insert((*name).to_owned()), "{name}: twice");
                self.refer(reason, name);
            }
            ["skips", pattern, count, reason, _, ..] => {
                self.skips.push(((*pattern).to_owned(), count.parse()?));
                self.refer(reason, pattern);
            }
            _ => bail!("not understood, or without a reason: {line}"),
        }
        Ok(())
    }

    fn refer(&mut self, reason: &str, name: &str) {
        self.reasons.push((reason.to_owned(), name.to_owned()));
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# a comment
total 4
fails utimensat::y2038 S-NFS-1 RFC 1813 section 2.6
skips chflags::* 1 S-NFS-2 no such attribute
";

    fn run(lines: &[&str]) -> Run {
        let mut run = Run::default();
        for line in lines {
            run.read(line).unwrap();
        }
        run
    }

    fn complaint(lines: &[&str]) -> String {
        let table = Table::parse(TABLE).unwrap();
        run(lines).judge(&table).unwrap_err().to_string()
    }

    const GOOD: [&str; 8] = [
        "Summary: 0 failed, 0 skipped, 0 passed, 0 expected failures, 0 total",
        "chmod::ctime::regular        ok",
        "chflags::set                 skipped",
        "\trequires features: chflags",
        "utimensat::y2038             FAILED",
        "\tassertion failed ok",
        "rename::loop                 ok",
        "Summary: 1 failed, 1 skipped, 2 passed, 0 expected failures, 4 total",
    ];

    /// Goal: a run that is as the table says passes, and is counted.
    #[test]
    fn a_run_as_the_table_says_passes() {
        let table = Table::parse(TABLE).unwrap();
        let run = run(&GOOD);
        run.judge(&table).unwrap();
        assert_eq!(
            run.summary(&table),
            "pjdfstest: 2 passed, 0 failed, 1 skipped, 1 exceptions, 4 in all"
        );
    }

    /// Goal: every kind of difference fails the run, and says which test it was.
    #[test]
    fn every_difference_fails_the_run() {
        let with = |at: usize, line| {
            let mut lines = GOOD;
            lines[at] = line;
            complaint(&lines)
        };
        assert_eq!(
            with(1, "chmod::ctime::regular FAILED"),
            "chmod::ctime::regular failed"
        );
        assert_eq!(
            with(4, "utimensat::y2038 ok"),
            "utimensat::y2038 is an exception and did not fail"
        );
        assert_eq!(with(6, "rename::loop skipped"), "rename::loop was skipped");
        assert_eq!(
            with(2, "chflags::set ok"),
            "0 tests are skipped as chflags::*, not 1"
        );
        assert_eq!(with(6, ""), "3 tests ran, not 4");
        assert_eq!(with(7, ""), "pjdfstest came to its end 1 times");
    }

    /// Goal: an exception without a reason is no line of the table.
    #[test]
    fn reasons_are_needed() {
        assert!(Table::parse("fails a::b S-NFS-1").is_err());
        assert!(Table::parse("fails a::b").is_err());
        assert!(Table::parse("skips a::* 3 S-NFS-1").is_err());
        let table = Table::parse(TABLE).unwrap();
        assert_eq!(table.reasons[0].0, "S-NFS-1");
    }
}
