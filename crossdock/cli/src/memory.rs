//! How much memory the parts of the process may take.

use std::fs;

use crossdock_limits::{
    DELIVERY_MEMORY_BYTES, DELIVERY_REQUEST_BYTES_MAX, NFS_REQUEST_BYTES_MAX, NFS_REQUEST_BYTES_MIN,
};

use crate::config::{DoorSettings, StoreSettings};

/// Where neither the configuration nor the system says how much there is.
const MEMORY_BYTES: u64 = 4 << 30;

/// Bytes of all read caches: as configured, or a quarter of all memory.
pub(crate) fn cache_bytes(settings: &StoreSettings) -> anyhow::Result<usize> {
    let bytes = settings.cache.unwrap_or_else(|| all_bytes() / 4);
    Ok(usize::try_from(bytes)?)
}

/// Bytes for what the NFS door holds: as configured, or an eighth of all memory
/// up to the usual.
pub(crate) fn request_bytes(settings: &DoorSettings) -> anyhow::Result<usize> {
    let usual = NFS_REQUEST_BYTES_MIN as u64..=NFS_REQUEST_BYTES_MAX as u64;
    let eighth = || (all_bytes() / 8).clamp(*usual.start(), *usual.end());
    Ok(usize::try_from(
        settings.request_memory.unwrap_or_else(eighth),
    )?)
}

/// Bytes for what is read ahead of connections, unless configured: an eighth of all memory up
/// to the usual.
pub(crate) fn delivery_bytes() -> u64 {
    (all_bytes() / 8).clamp(8 * DELIVERY_REQUEST_BYTES_MAX, DELIVERY_MEMORY_BYTES)
}

/// The memory that this process may use: of the machine or of its cgroup,
/// whichever is less.
fn all_bytes() -> u64 {
    machine_bytes().map_or(MEMORY_BYTES, |machine| machine.min(cgroup_bytes()))
}

fn machine_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok()?;
    let total = machine.lines().next()?.split_whitespace().nth(1)?;
    Some(total.parse::<u64>().ok()? * 1024)
}

fn cgroup_bytes() -> u64 {
    let limits = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    limits
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
        .min()
        .unwrap_or(u64::MAX)
}
