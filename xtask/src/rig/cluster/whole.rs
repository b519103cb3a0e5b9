//! Whether the ensemble has come together.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Cluster, READY_PATIENCE};

/// How often it is asked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Cluster<'_> {
    /// Waits until nothing is missing.
    pub(super) fn await_whole(&self) -> Result<()> {
        let deadline = Instant::now() + READY_PATIENCE;
        while let Some(missing) = self.what_misses()? {
            ensure!(Instant::now() < deadline, missing);
            thread::park_timeout(LOOK_EVERY);
        }
        Ok(())
    }

    /// What is not as it should be, as all members see it: every process talks to every
    /// other one, and no set misses a member.
    pub(crate) fn what_misses(&self) -> Result<Option<String>> {
        let members = || self.hosts.iter().filter(|host| self.is_member(host));
        let count = members().count();
        for host in members() {
            if let Some(missing) = missing_in(&self.status(&host.name)?, count)? {
                return Ok(Some(format!("{} {missing}", host.name)));
            }
        }
        Ok(None)
    }
}

/// What a process misses by what it says of itself: it is to talk to so many processes,
/// itself included, and to know of no set that misses a member.
pub(crate) fn missing_in(status: &Value, count: usize) -> Result<Option<String>> {
    let hosts = status["hosts"].as_array().context("no list of hosts")?;
    let connected = hosts.iter().filter(|host| host["is_connected"] == true);
    let (known, connected) = (hosts.len(), connected.count());
    let short = &status["sets_short"];
    let is_whole = known == count && connected == count && *short == 0;
    Ok((!is_whole).then(|| {
        format!(
            "knows {known} of {count} hosts, talks to {connected}, and {short} sets miss a member"
        )
    }))
}
