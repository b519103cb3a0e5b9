//! A control group of version 1: processes of which a controller counts or bounds something.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// Where controllers are mounted.
const CONTROLLERS: &str = "/sys/fs/cgroup";

/// How often it is tried to remove a group whose members were just killed.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// A control group. It goes when it is dropped, as far as it is empty.
pub(super) struct Group {
    folder: PathBuf,
}

impl Group {
    /// Makes it; `None` where the system has no such controller with this `key`.
    pub(super) fn new(controller: &str, key: &str, name: &str) -> Result<Option<Self>> {
        let controller = Path::new(CONTROLLERS).join(controller);
        if !controller.join(key).exists() {
            return Ok(None);
        }
        let folder = controller.join(format!("crossdock-{name}"));
        if folder.exists() {
            // Of a run that was killed.
            fs::remove_dir(&folder).with_context(|| format!("{} is in use", folder.display()))?;
        }
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Some(Self { folder }))
    }

    /// Takes a process in, with all its threads, and those that it starts from then on.
    pub(super) fn add(&self, pid: u32) -> Result<()> {
        self.set("cgroup.procs", &pid.to_string())
    }

    pub(super) fn text(&self, key: &str) -> Result<String> {
        Ok(fs::read_to_string(self.folder.join(key))?)
    }

    pub(super) fn number(&self, key: &str) -> Result<u64> {
        Ok(self.text(key)?.trim().parse()?)
    }

    pub(super) fn set(&self, key: &str, value: &str) -> Result<()> {
        let file = self.folder.join(key);
        fs::write(&file, value).with_context(|| format!("cannot write {}", file.display()))
    }
}

impl Drop for Group {
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
