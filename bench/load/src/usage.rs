//! What a process has cost so far, from /proc.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

/// Unit of CPU times in /proc (USER_HZ), the same on all machines that we build for.
const TICKS_PER_SECOND: f64 = 100.0;
/// What rounding to ticks may make of user and system time of some processes, in seconds.
const TICKS_OFF_MAX: f64 = 0.08;
/// Fields of /proc/PID/stat behind the program's name: user and system time of
/// all threads, also of those that have ended.
const FIELD_USER: usize = 11;
const FIELD_SYSTEM: usize = 12;

/// CPU time and context switches of a process at one moment.
pub(crate) struct Usage {
    cpu_seconds: f64,
    switches_by_thread: BTreeMap<String, u64>,
    /// The same as `cpu_seconds` without threads that have ended, but not rounded to
    /// ticks, in nanoseconds; empty where the kernel does not say.
    exact_by_thread: BTreeMap<String, u64>,
}

/// What a process has spent between two moments.
pub(crate) struct Spent {
    pub(crate) cpu_seconds: f64,
    pub(crate) context_switches: u64,
}

/// What the server, if it is known, and this process have spent since a moment.
pub(crate) struct Meter {
    server: Option<String>,
    before: Moment,
}

type Moment = (Option<Usage>, Usage);

/// What a load has cost.
pub(crate) struct LoadSpent {
    server: Option<Spent>,
    own: Spent,
}

impl Meter {
    /// Counts from now on.
    pub(crate) fn start(server_pid: Option<u32>) -> anyhow::Result<Self> {
        let server = server_pid.map(|id| id.to_string());
        let before = look(server.as_deref())?;
        Ok(Self { server, before })
    }

    /// What was spent by now.
    pub(crate) fn stop(&self) -> anyhow::Result<LoadSpent> {
        let (server, own) = look(self.server.as_deref())?;
        let before = &self.before;
        let server = server.zip(before.0.as_ref());
        Ok(LoadSpent {
            server: server.map(|(after, before)| after.since(before)),
            own: own.since(&before.1),
        })
    }
}

fn look(server: Option<&str>) -> anyhow::Result<Moment> {
    Ok((server.map(Usage::of).transpose()?, Usage::of("self")?))
}

impl LoadSpent {
    /// Adds it to what a load generator prints.
    pub(crate) fn add_to(&self, figures: &mut Value) {
        figures["load_cpu_seconds"] = json!(self.own.cpu_seconds);
        if let Some(spent) = &self.server {
            figures["server_cpu_seconds"] = json!(spent.cpu_seconds);
            figures["server_context_switches"] = json!(spent.context_switches);
        }
    }
}

impl Usage {
    /// Looks at process `id`, a number or `self`.
    pub(crate) fn of(id: &str) -> anyhow::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))
            .with_context(|| format!("no process {id}"))?;
        Ok(Self {
            cpu_seconds: cpu_seconds(&stat).context("cannot read /proc/PID/stat")?,
            switches_by_thread: switches_by_thread(id)?,
            exact_by_thread: exact_by_thread(id)?,
        })
    }

    /// All of these processes together.
    pub(crate) fn of_all(ids: &[u32]) -> anyhow::Result<Self> {
        let mut all = Self {
            cpu_seconds: 0.0,
            switches_by_thread: BTreeMap::new(),
            exact_by_thread: BTreeMap::new(),
        };
        for id in ids {
            let mut one = Self::of(&id.to_string())?;
            all.cpu_seconds += one.cpu_seconds;
            all.switches_by_thread.append(&mut one.switches_by_thread);
            all.exact_by_thread.append(&mut one.exact_by_thread);
        }
        Ok(all)
    }

    /// What was spent from `before` to this moment. Switches of threads that
    /// have ended in between are not seen.
    pub(crate) fn since(&self, before: &Self) -> Spent {
        let ticks = self.cpu_seconds - before.cpu_seconds;
        let exact = grown(&self.exact_by_thread, &before.exact_by_thread);
        let exact = Duration::from_nanos(exact).as_secs_f64();
        // A thread that has ended is in the ticks only.
        let is_whole = !self.exact_by_thread.is_empty() && (ticks - exact).abs() < TICKS_OFF_MAX;
        Spent {
            cpu_seconds: if is_whole { exact } else { ticks },
            context_switches: grown(&self.switches_by_thread, &before.switches_by_thread),
        }
    }
}

/// What all threads together have more than before.
fn grown(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> u64 {
    let more = now.iter().map(|(thread, count)| {
        let old = before.get(thread).copied();
        count.saturating_sub(old.unwrap_or(0))
    });
    more.sum()
}

/// Time on a processor, from schedstat of each thread.
fn exact_by_thread(id: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut times = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        let thread = thread?;
        // A thread may end while we look, and not every kernel counts this.
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        if let Some(time) = text.split(' ').next().and_then(|word| word.parse().ok()) {
            times.insert(thread.file_name().to_string_lossy().into_owned(), time);
        }
    }
    Ok(times)
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

    /// Goal: what a short run costs is not rounded away, and a thread that has begun
    /// counts from its beginning.
    #[test]
    fn short_runs_cost_something() {
        let usage = |cpu_seconds, exact: &[(&str, u64)]| Usage {
            cpu_seconds,
            switches_by_thread: BTreeMap::new(),
            exact_by_thread: exact.iter().map(|it| (it.0.to_owned(), it.1)).collect(),
        };
        let before = usage(1.0, &[("1", 5_000_000)]);
        let after = usage(1.0, &[("1", 7_000_000), ("2", 1_000_000)]);
        assert_eq!(after.since(&before).cpu_seconds, 0.003);
        // Threads that have ended were in the ticks.
        let much = usage(3.0, &[("1", 7_000_000)]);
        assert_eq!(much.since(&before).cpu_seconds, 2.0);
    }

    /// Goal: both kinds of switches count.
    #[test]
    fn switches_of_both_kinds_are_added() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches_of(status), 15);
    }
}
