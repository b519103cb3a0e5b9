//! The process as the kernel sees it (proc(5)).

use std::collections::BTreeMap;
use std::fs;

use crate::snapshot::ProcessFigures;

/// Threads that are told apart, at most: data, control, one index a node.
const THREADS_MAX: usize = 128;

/// USER_HZ: the kernel tells times to programs in hundredths of a second,
/// whatever its own clock does.
const TICKS: f64 = 100.0;

/// What the kernel says about this process. What it does not say is zero.
pub(crate) fn figures() -> ProcessFigures {
    let own = stat("/proc/self/stat");
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
    let booted = number_after(&boot, "btime").unwrap_or_default() as f64;
    ProcessFigures {
        started: booted + own.as_ref().map_or(0, |own| own.started_ticks) as f64 / TICKS,
        cpu_seconds: own.as_ref().map_or(0, |own| own.cpu_ticks) as f64 / TICKS,
        threads: threads(),
        resident_bytes: number_after(&status, "VmRSS:").unwrap_or_default() * 1024,
        virtual_bytes: number_after(&status, "VmSize:").unwrap_or_default() * 1024,
        open_fds: fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
        max_fds: open_files_max().unwrap_or_default(),
    }
}

struct Stat {
    name: String,
    cpu_ticks: u64,
    started_ticks: u64,
}

fn stat(path: &str) -> Option<Stat> {
    let text = fs::read_to_string(path).ok()?;
    // The name stands in parentheses, and may hold anything.
    let (before, after) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    // Behind the name comes field 3; 14 and 15 are user and system time, 22 the start.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        name: name.to_owned(),
        cpu_ticks: field(14)? + field(15)?,
        started_ticks: field(22)?,
    })
}

fn threads() -> BTreeMap<String, f64> {
    let mut threads = BTreeMap::new();
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return threads;
    };
    for task in tasks.flatten().take(THREADS_MAX) {
        let path = task.path().join("stat");
        if let Some(stat) = path.to_str().and_then(stat) {
            *threads.entry(stat.name).or_default() += stat.cpu_ticks as f64 / TICKS;
        }
    }
    threads
}

fn open_files_max() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    number_after(&limits, "Max open files")
}

/// The number behind the name at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the kernel's figures of this very process are read and make sense.
    #[test]
    fn the_kernel_knows_this_process() {
        let figures = figures();
        assert!(figures.resident_bytes > 1 << 20 && figures.virtual_bytes > figures.resident_bytes);
        assert!(figures.open_fds > 2 && figures.max_fds >= figures.open_fds);
        assert!(figures.started > 1e9 && !figures.threads.is_empty());
    }
}
