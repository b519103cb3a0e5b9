//! How fast processes may read from the disk: a control group. With it, requests wait in
//! queues on a machine whose disk would have answered them before others came.

use std::path::Path;

use anyhow::Result;

use super::cgroup::Group;
use super::device::Device;
use crate::install::is_root;

/// What nodes say of reads that they have taken back.
pub(crate) const WITHDRAWN: &str = "reads that nobody waits for any more were withdrawn";

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
        let Some(device) = Device::of(folder)?.filter(|_| is_root()) else {
            return Ok(None);
        };
        let Some(group) = Group::new("blkio", KEY, name)? else {
            return Ok(None);
        };
        let disk = device.number()?;
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
