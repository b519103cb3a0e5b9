//! What a process has cost so far, from /proc.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context;

/// Unit of CPU times in /proc (USER_HZ), the same on all machines that we build for.
const TICKS_PER_SECOND: f64 = 100.0;
/// Fields of /proc/PID/stat behind the program's name: user and system time of
/// all threads, also of those that have ended.
const FIELD_USER: usize = 11;
const FIELD_SYSTEM: usize = 12;

/// CPU time and context switches of a process at one moment.
pub(crate) struct Usage {
    cpu_seconds: f64,
    switches_by_thread: BTreeMap<String, u64>,
}

/// What a process has spent between two moments.
pub(crate) struct Spent {
    pub(crate) cpu_seconds: f64,
    pub(crate) context_switches: u64,
}

impl Usage {
    /// Looks at process `id`, a number or `self`.
    pub(crate) fn of(id: &str) -> anyhow::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))
            .with_context(|| format!("no process {id}"))?;
        Ok(Self {
            cpu_seconds: cpu_seconds(&stat).context("cannot read /proc/PID/stat")?,
            switches_by_thread: switches_by_thread(id)?,
        })
    }

    /// All of these processes together.
    pub(crate) fn of_all(ids: &[u32]) -> anyhow::Result<Self> {
        let mut all = Self {
            cpu_seconds: 0.0,
            switches_by_thread: BTreeMap::new(),
        };
        for id in ids {
            let mut one = Self::of(&id.to_string())?;
            all.cpu_seconds += one.cpu_seconds;
            all.switches_by_thread.append(&mut one.switches_by_thread);
        }
        Ok(all)
    }

    /// What was spent from `before` to this moment. Switches of threads that
    /// have ended in between are not seen.
    pub(crate) fn since(&self, before: &Self) -> Spent {
        let switches = self.switches_by_thread.iter().map(|(thread, count)| {
            let old = before.switches_by_thread.get(thread).copied();
            count.saturating_sub(old.unwrap_or(0))
        });
        Spent {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            context_switches: switches.sum(),
        }
    }
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name is in parentheses and may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let user: f64 = fields.get(FIELD_USER)?.parse().ok()?;
    let system: f64 = fields.get(FIELD_SYSTEM)?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn switches_by_thread(id: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut switches = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        let thread = thread?;
        // A thread may end while we look.
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else {
            continue;
        };
        let name = thread.file_name().to_string_lossy().into_owned();
        switches.insert(name, switches_of(&status));
    }
    Ok(switches)
}

/// Voluntary and other switches.
fn switches_of(status: &str) -> u64 {
    let lines = status.lines();
    let counts = lines.filter_map(|line| line.split_once("ctxt_switches:"));
    counts
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a program's name cannot shift the fields.
    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194304 10 0 0 0 250 50 0 0 20 0 1 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (short) S 1"), None);
    }

    /// Goal: both kinds of switches count.
    #[test]
    fn switches_of_both_kinds_are_added() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches_of(status), 15);
    }
}
