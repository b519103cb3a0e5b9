//! How much memory servers may use: a control group.

use anyhow::{Context, Result};

use super::cgroup::Group;

/// More than buffers of sockets ever need.
const SOCKET_BYTES: u64 = 4 << 30;

/// What its members use of memory, and that they use no more.
pub(crate) struct MemoryGroup(Group);

impl MemoryGroup {
    /// Makes it, page cache included in what its members may use; `None` where the
    /// system has no such controller.
    pub(crate) fn new(name: &str, bytes: u64) -> Result<Option<Self>> {
        let Some(group) = Group::new("memory", "memory.limit_in_bytes", name)? else {
            return Ok(None);
        };
        group.set("memory.limit_in_bytes", &bytes.to_string())?;
        // Buffers of sockets are only counted where they have a limit. They are no part
        // of the other one.
        group.set("memory.kmem.tcp.limit_in_bytes", &SOCKET_BYTES.to_string())?;
        Ok(Some(Self(group)))
    }

    /// Takes a process in, with all its threads, and those that it starts from then on.
    pub(crate) fn add(&self, pid: u32) -> Result<()> {
        self.0.add(pid)
    }

    /// Processes that were killed because it was full.
    pub(crate) fn killed(&self) -> Result<u64> {
        let text = self.0.text("memory.oom_control")?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(count.context("no oom_kill")?.trim().parse()?)
    }

    /// The most that was used at a time, in bytes.
    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        self.0.number("memory.max_usage_in_bytes")
    }

    /// The most that buffers of TCP have had, which is counted apart; 0 where it is not
    /// counted.
    pub(crate) fn socket_bytes(&self) -> u64 {
        self.0
            .number("memory.kmem.tcp.max_usage_in_bytes")
            .unwrap_or(0)
    }
}
