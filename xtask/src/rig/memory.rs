//! How much memory servers may use: a control group of version 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// Where the controller is mounted.
const CONTROLLER: &str = "/sys/fs/cgroup/memory";

/// More than buffers of sockets ever need.
const SOCKET_BYTES: u64 = 4 << 30;
/// How often it is tried to remove a group whose members were just killed.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

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
        // Buffers of sockets are only counted where they have a limit. They are no part
        // of the other one.
        group.set("memory.kmem.tcp.limit_in_bytes", SOCKET_BYTES)?;
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
        for _ in 0..TRIES {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::park_timeout(BETWEEN_TRIES);
        }
        // Somebody is still in it: it stays until the next run.
    }
}
