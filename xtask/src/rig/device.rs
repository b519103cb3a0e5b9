//! The disk beneath a folder, as the kernel tells of it below `/sys`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Place of completed flushes in a device's `stat` (Linux,
/// Documentation/block/stat.rst), counted from 0.
const FLUSHES_FIELD: usize = 15;

/// A whole disk: a partition has no cache, flushes or limits of its own.
pub(crate) struct Device(PathBuf);

impl Device {
    /// That on which `folder` lies; `None` where that is no disk.
    pub(crate) fn of(folder: &Path) -> Result<Option<Self>> {
        let number = fs::metadata(folder)?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let Ok(device) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
            return Ok(None);
        };
        let disk = match device.join("partition").exists() {
            true => device.parent().context("a partition of nothing")?,
            false => &device,
        };
        Ok(Some(Self(disk.to_owned())))
    }

    /// Its number, as control groups want it: `major:minor`.
    pub(crate) fn number(&self) -> Result<String> {
        self.attribute("dev")
    }

    /// Whether what was written is lost with the power unless it was flushed.
    pub(crate) fn has_volatile_cache(&self) -> Result<bool> {
        Ok(self.attribute("queue/write_cache")? == "write back")
    }

    /// Flushes that it has completed so far.
    pub(crate) fn flushes(&self) -> Result<u64> {
        let stat = self.attribute("stat")?;
        let flushes = stat.split_whitespace().nth(FLUSHES_FIELD);
        Ok(flushes.context("the kernel counts no flushes")?.parse()?)
    }

    fn attribute(&self, name: &str) -> Result<String> {
        let file = self.0.join(name);
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(text.trim().to_owned())
    }
}
