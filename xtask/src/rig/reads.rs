//! How fast processes may read from the disk: a control group. With it, requests wait in
//! queues on a machine whose disk would have answered them before others came.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{major, minor};

use super::cgroup::Group;

const KEY: &str = "blkio.throttle.read_bps_device";

/// What its members read of one disk is bounded, until [`ReadLimit::lift`].
pub(crate) struct ReadLimit {
    group: Group,
    /// Its number, as the controller wants it.
    disk: String,
}

impl ReadLimit {
    /// Of the disk on which `folder` lies, to so many bytes a second for all members together.
    /// `None` where the system cannot bound it: no such controller, no right to use it, or
    /// no disk of its own below the folder.
    pub(crate) fn new(name: &str, folder: &Path, bytes_per_second: u64) -> Result<Option<Self>> {
        let device = fs::metadata(folder)?.dev();
        let disk = PathBuf::from(format!(
            "/sys/dev/block/{}:{}",
            major(device),
            minor(device)
        ));
        let is_possible = disk.exists() && rustix::process::geteuid().is_root();
        if !is_possible {
            return Ok(None);
        }
        let Some(group) = Group::new("blkio", KEY, name)? else {
            return Ok(None);
        };
        // Limits are those of whole disks.
        let is_part = disk.join("partition").exists();
        let whole = if is_part { disk.join("..") } else { disk };
        let number = fs::read_to_string(whole.join("dev")).context("the number of the disk")?;
        let disk = number.trim().to_owned();
        let limit = Self { group, disk };
        limit.set(bytes_per_second)?;
        Ok(Some(limit))
    }

    /// Takes a process in, with all its threads.
    pub(crate) fn add(&self, pid: u32) -> Result<()> {
        self.group.add(pid)
    }

    /// Its members read as fast as they can from now on.
    pub(crate) fn lift(&self) -> Result<()> {
        self.set(0)
    }

    fn set(&self, bytes_per_second: u64) -> Result<()> {
        self.group
            .set(KEY, &format!("{} {bytes_per_second}", self.disk))
    }
}
