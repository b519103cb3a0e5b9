//! Commands that read a stopped node's files.

use std::path::Path;

use anyhow::{Context, bail};
use crossdock_disk::FileBlockingDisk;

/// `crossdock fsck --node DIR`: proves a store consistent, or lists what is wrong.
pub(crate) fn fsck(directory: &Path, full: bool, json: bool) -> anyhow::Result<()> {
    let _ = (directory, full, json, FileBlockingDisk::open_or_create);
    bail!("not wired yet")
}
