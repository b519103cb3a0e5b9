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

/// Tests at a time, each with LUNs of its own.
const LUNS: usize = 4;

/// What is known of a run: tests that must fail, with the reason, how many tests there are,
/// and how many are left out.
pub(super) struct Known {
    tests: usize,
    skipped: usize,
    failing: &'static [(&'static str, &'static str)],
}

/// Version 1.19 judges a variable before the answer that sets it has come, whatever the target
/// does; libiscsi has moved the line since (5553d6b, "Move an assert statement"). All else in it
/// holds.
const RESET: (&str, &str) = (
    "ALL.iSCSITMF.LUNResetSimpleAsync",
    "CU_ASSERT_EQUAL(reconnect_succeeded,1)",
);

/// Of LUNs with blocks of 512 bytes.
pub(super) const KNOWN_512: Known = Known {
    tests: 230,
    skipped: 20,
    failing: &[RESET],
};

/// Of LUNs with blocks of 4,096 bytes.
pub(super) const KNOWN_4096: Known = Known {
    tests: 230,
    skipped: 25,
    failing: &[RESET],
};

/// On which LUN a test is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// With a medium that can be taken out.
    Removable,
    /// Its initiator may only read it.
    ReadOnly,
    /// With blocks of 4 KiB.
    Whole,
    /// With blocks of 512 bytes.
    Small,
}

impl Kind {
    fn of(test: &str) -> Self {
        let is_of = |suite: &str| test.starts_with(suite);
        match test {
            "ALL.ReadOnly.ReadOnlySBC" => Self::ReadOnly,
            // It asks for the status of one block and wants that of the next physical one, which
            // are the same where each block is one (SBC-3: the first descriptor begins with the
            // block that was asked for).
            "ALL.GetLBAStatus.UnmapSingle" => Self::Whole,
            // It writes 2,048 blocks at once, which page B0h forbids where a block has 4 KiB.
            "ALL.ExtendedCopy.Simple" => Self::Small,
            // It wants a unit that was stopped to be ready, which SBC-3 says it is not.
            "ALL.StartStopUnit.NoLoej" => Self::Plain,
            _ if is_of("ALL.NoMedia.") || is_of("ALL.PreventAllow.") => Self::Removable,
            _ if is_of("ALL.StartStopUnit.") => Self::Removable,
            _ => Self::Plain,
        }
    }
}

/// LUNs of one worker: tests overwrite them, and take their media out.
struct Luns {
    plain: String,
    removable: String,
    read_only: String,
    whole: String,
    small: String,
}

impl Luns {
    fn make(disk: &Disk<'_>, number: usize, block_bytes: &str) -> Result<Self> {
        let make = |kind: &str, block_bytes: &str, more: &[&str]| {
            let words = [&["--block-size", block_bytes], more].concat();
            disk.lun(&format!("{kind}{number}"), &words)
        };
        let read_only = make("ro", block_bytes, &["--initiator", INITIATOR])?;
        let name = format!("ro{number}");
        let words = [
            "lun",
            "allow",
            &name,
            "--initiator",
            INITIATOR,
            "--read-only",
        ];
        disk.up.ask(disk.stage, &words)?.json(0)?;
        Ok(Self {
            plain: make("cu", block_bytes, &[])?,
            removable: make("re", block_bytes, &["--removable"])?,
            read_only,
            whole: make("wh", "4096", &[])?,
            small: make("sm", "512", &[])?,
        })
    }

    fn url(&self, kind: Kind) -> &str {
        match kind {
            Kind::Plain => &self.plain,
            Kind::Removable => &self.removable,
            Kind::ReadOnly => &self.read_only,
            Kind::Whole => &self.whole,
            Kind::Small => &self.small,
        }
    }
}

/// As which the program logs in.
const INITIATOR: &str = "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-test";

/// What a test needs that INQUIRY, REPORT SUPPORTED OPERATION CODES or the size of the LUN do
/// not offer: only these may be left out.
const ABSENT: [(&str, &str); 5] = [
    (
        "ALL.CompareAndWrite.InvalidDataOutSize",
        "physical blocks of several logical ones, where these have 4 KiB",
    ),
    ("ALL.StartStopUnit.NoLoej", "a removable medium"),
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
    let luns = (0..LUNS).map(|number| Luns::make(disk, number, &block_bytes));
    let luns: Vec<Luns> = luns.collect::<Result<_>>()?;
    let folder = disk
        .stage
        .folder
        .join(format!("iscsi-test-cu-{block_bytes}"));
    fs::create_dir_all(&folder)?;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| -> Result<()> {
        let workers = luns.iter().map(|luns| {
            scope.spawn(|| -> Result<()> {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (verdict, said) = run(test, luns.url(Kind::of(test)))?;
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

/// How many assertions of a test do not hold: "asserts  total  ran  passed  failed  inactive".
fn failed_asserts(said: &str) -> usize {
    let mut lines = said.lines().map(str::trim_start);
    let line = lines.find(|line| line.starts_with("asserts "));
    let failed = line.and_then(|line| line.split_whitespace().nth(4));
    failed.and_then(|failed| failed.parse().ok()).unwrap_or(0)
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
        let is_known =
            why.is_some_and(|(_, word)| said.contains(word) && failed_asserts(said) == 1);
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
