//! How much memory servers may use: a control group of version 1.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where the controller is mounted.
const CONTROLLER: &str = "/sys/fs/cgroup/memory";

/// A memory cgroup. It goes when it is dropped, as far as it is empty.
pub(crate) struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    /// Makes it, page cache included in what its members may use; `None` where the
    /// system has no such controller.
    pub(crate) fn new(name: &str, bytes: u64) -> Result<Option<Self>> {
        let controller = Path::new(CONTROLLER);
        if !controller.join("memory.limit_in_bytes").exists() {
            return Ok(None);
        }
        let folder = controller.join(format!("crossdock-{name}"));
        if folder.exists() {
            // Of a run that was killed.
            fs::remove_dir(&folder).with_context(|| format!("{} is in use", folder.display()))?;
        }
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let group = Self { folder };
        group.set("memory.limit_in_bytes", bytes)?;
        Ok(Some(group))
    }

    /// Takes a process in, with all its threads, and those that it starts from then on.
    pub(crate) fn add(&self, pid: u32) -> Result<()> {
        self.set("cgroup.procs", u64::from(pid))
    }

    /// Processes that were killed because it was full.
    pub(crate) fn killed(&self) -> Result<u64> {
        let text = fs::read_to_string(self.folder.join("memory.oom_control"))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(count.context("no oom_kill")?.trim().parse()?)
    }

    /// The most that was used at a time, in bytes.
    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        self.number("memory.max_usage_in_bytes")
    }

    /// The most that buffers of TCP have had, which is counted apart; 0 where it is not
    /// counted.
    pub(crate) fn socket_bytes(&self) -> u64 {
        self.number("memory.kmem.tcp.max_usage_in_bytes")
            .unwrap_or(0)
    }

    fn number(&self, key: &str) -> Result<u64> {
        let text = fs::read_to_string(self.folder.join(key))?;
        Ok(text.trim().parse()?)
    }

    fn set(&self, key: &str, value: u64) -> Result<()> {
        let file = self.folder.join(key);
        fs::write(&file, value.to_string())
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The servers have ended, or it stays until the next start of the machine.
        let _ = fs::remove_dir(&self.folder);
    }
}
