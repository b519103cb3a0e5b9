//! `iscsi-test-cu` of Debian's libiscsi-bin: each test alone, with a time limit.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use super::Disk;

/// How long a test may take, in seconds.
const LIMIT_SECONDS: &str = "40";

/// Tests at a time, each with a LUN of its own: they overwrite it.
const LUNS: usize = 4;

/// What is known of a run: tests that must fail, with the reason, how many tests there are,
/// and how many are left out.
pub(super) struct Known {
    tests: usize,
    skipped: usize,
    failing: &'static [(&'static str, &'static str)],
}

/// Version 1.19 judges a variable before the answer that sets it has come; libiscsi has moved
/// the line since.
const RESET: (&str, &str) = (
    "ALL.iSCSITMF.LUNResetSimpleAsync",
    "CU_ASSERT_EQUAL(reconnect_succeeded,1)",
);

/// It wants the status from a block on that it has not asked for, where eight blocks make a
/// physical one (SBC-3 section 5.6.2).
const STATUS: (&str, &str) = (
    "ALL.GetLBAStatus.UnmapSingle",
    "lba offset in first descriptor does not",
);

/// Of LUNs with blocks of 512 bytes.
pub(super) const KNOWN_512: Known = Known {
    tests: 230,
    skipped: 32,
    failing: &[STATUS, RESET],
};

/// Of LUNs with blocks of 4,096 bytes.
pub(super) const KNOWN_4096: Known = Known {
    tests: 230,
    skipped: 37,
    failing: &[RESET],
};

/// What a test needs that INQUIRY, REPORT SUPPORTED OPERATION CODES or the size of the LUN do
/// not offer: only these may be left out.
const ABSENT: [(&str, &str); 7] = [
    ("ALL.NoMedia.", "a removable medium"),
    ("ALL.PreventAllow.", "a removable medium"),
    ("ALL.StartStopUnit.", "a removable medium"),
    ("ALL.ReadOnly.", "a medium that cannot be written"),
    ("ALL.Sanitize.", "SANITIZE"),
    ("ALL.WriteAtomic16.", "WRITE ATOMIC"),
    (
        "ALL.WriteSame1",
        "WRITE SAME of no blocks, or of more than its bound",
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
    Hung,
}

/// Runs all tests.
pub(super) fn check(disk: &Disk<'_>, block_bytes: u32, known: &Known) -> Result<()> {
    let tests = tests()?;
    let block_bytes = block_bytes.to_string();
    let luns = (0..LUNS).map(|number| {
        let name = format!("cu{number}");
        disk.lun(&name, &["--block-size", &block_bytes])
    });
    let luns: Vec<String> = luns.collect::<Result<_>>()?;
    let folder = disk
        .stage
        .folder
        .join(format!("iscsi-test-cu-{block_bytes}"));
    fs::create_dir_all(&folder)?;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| -> Result<()> {
        let workers = luns.iter().map(|url| {
            scope.spawn(|| -> Result<()> {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (verdict, said) = run(test, url)?;
                    fs::write(folder.join(format!("{test}.log")), &said)?;
                    let mut found = found.lock().expect("nobody panics with it");
                    found.insert(test.clone(), (verdict, said));
                }
                Ok(())
            })
        });
        let workers: Vec<_> = workers.collect();
        for worker in workers {
            match worker.join() {
                Ok(outcome) => outcome?,
                Err(_) => bail!("a worker has panicked"),
            }
        }
        Ok(())
    })?;
    let found = found.into_inner().expect("nobody panics with it");
    judge(&found, known)
}

/// The names of all tests.
fn tests() -> Result<Vec<String>> {
    let output = Command::new("iscsi-test-cu").arg("--list").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_test = |line: &&str| line.starts_with("ALL.") && line.matches('.').count() == 2;
    let tests: Vec<String> = text.lines().filter(is_test).map(str::to_owned).collect();
    ensure!(!tests.is_empty(), "iscsi-test-cu lists no tests: {text}");
    Ok(tests)
}

/// It compares one block more than it has made zeros before, whatever the test before it has
/// left there.
const UNPREPARED: &str = "ALL.MultipathIO.CompareAndWrite";

fn run(test: &str, url: &str) -> Result<(Verdict, String)> {
    if test == UNPREPARED {
        let mut zero = Command::new("qemu-io");
        zero.args(["-f", "raw", url, "-c", "write -z 0 2M"]);
        crate::process::output(&mut zero)?;
    }
    let mut command = Command::new("timeout");
    command.args([LIMIT_SECONDS, "iscsi-test-cu"]);
    command.args([
        "--dataloss",
        "--allow-sanitize",
        "--Verbose-scsi",
        "--normal",
    ]);
    command.arg(format!("--test={test}")).arg(url);
    if test.starts_with("ALL.Multipath") {
        command.arg(url); // Two sessions.
    }
    let output = command.output().context("iscsi-test-cu")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(124) {
        return Ok((Verdict::Hung, said));
    }
    // "tests  total  ran  passed  failed  inactive"
    let line = said
        .lines()
        .find(|line| line.trim_start().starts_with("tests "));
    let numbers = line.map(|line| line.split_whitespace().skip(1));
    let numbers: Vec<&str> = numbers.into_iter().flatten().collect();
    let verdict = match numbers[..] {
        [_, "1", "1", "0", _] if said.contains("[SKIPPED]") || said.contains("Skipping test") => {
            Verdict::Skipped
        }
        [_, "1", "1", "0", _] => Verdict::Passed,
        _ => Verdict::Failed,
    };
    Ok((verdict, said))
}

/// Whether what was found is what is known.
fn judge(found: &BTreeMap<String, (Verdict, String)>, known: &Known) -> Result<()> {
    let of = |verdict: Verdict| -> Vec<&str> {
        let tests = found.iter().filter(|(_, (it, _))| *it == verdict);
        tests.map(|(test, _)| test.as_str()).collect()
    };
    let [passed, failed, skipped, hung] = [
        Verdict::Passed,
        Verdict::Failed,
        Verdict::Skipped,
        Verdict::Hung,
    ]
    .map(of);
    println!(
        "iscsi-test-cu: {} tests, {} pass, {} fail, {} skip, {} hang",
        found.len(),
        passed.len(),
        failed.len(),
        skipped.len(),
        hung.len()
    );
    ensure!(hung.is_empty(), "these hang: {hung:?}");
    for test in &failed {
        let why = known.failing.iter().find(|(name, _)| name == test);
        let said = &found[*test].1;
        let is_known = why.is_some_and(|(_, word)| said.contains(word));
        ensure!(is_known, "{test} fails:\n{said}");
    }
    for (name, _) in known.failing {
        ensure!(
            failed.contains(name),
            "{name} passes by now: it is not known to fail"
        );
    }
    for test in &skipped {
        let why = ABSENT.iter().find(|(name, _)| test.starts_with(name));
        ensure!(why.is_some(), "{test} is left out, and nothing says why");
    }
    ensure!(
        found.len() == known.tests && skipped.len() <= known.skipped,
        "{} tests and {} skipped instead of {} and {}: {skipped:?}",
        found.len(),
        skipped.len(),
        known.tests,
        known.skipped
    );
    Ok(())
}
