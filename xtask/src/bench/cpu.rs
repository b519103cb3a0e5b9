//! What processes have cost, and which processor they may use.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result};

use crate::process::run;

/// Unit of CPU times in /proc, the same on all machines that we build for.
const USER_HZ: f64 = 100.0;
/// Fields of /proc/PID/stat behind the program's name (proc(5), 14 and 15): user and system
/// time of all threads, also of those that have ended.
const FIELDS: [usize; 2] = [11, 12];

/// CPU seconds of a process so far, user and system, in steps of 10 ms.
pub(super) fn seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    seconds_in(&stat)
}

fn seconds_in(stat: &str) -> Result<f64> {
    // The name is in parentheses and may hold anything.
    let (_, fields) = stat.rsplit_once(") ").context("no name in stat")?;
    let ticks = FIELDS.map(|index| -> Result<f64> {
        let field = fields.split(' ').nth(index).context("stat is short")?;
        Ok(field.parse()?)
    });
    let [user, system] = ticks;
    Ok((user? + system?) / USER_HZ)
}

/// The last processor, where data threads are.
pub(super) fn last() -> Result<usize> {
    Ok(thread::available_parallelism()?.get() - 1)
}

/// Has all threads of a process, and those that they start, run on one processor.
pub(super) fn keep_on(cpu: usize, pid: u32) -> Result<()> {
    let mut taskset = Command::new("taskset");
    taskset.args(["--all-tasks", "--cpu-list", "--pid", &cpu.to_string()]);
    run(taskset.arg(pid.to_string()).stdout(Stdio::null()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the kernel's text is read right, also with a name that misleads.
    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 99 0 0 0 150 50 0 0 20 0 5 0 1";
        assert!((seconds_in(stat).unwrap() - 200.0 / USER_HZ).abs() < 1e-9);
        assert!(seconds_in("7 (short) S 1").is_err());
    }
}
