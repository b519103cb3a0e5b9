//! A machine whose policy denies io_uring, as container runtimes do.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Result;
use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// Number of `io_uring_setup`, the same on all machines.
const IO_URING_SETUP: i64 = 425;

/// Becomes `program`, for which io_uring is not permitted
/// (`xtask without-io-uring PROGRAM ARGUMENT…`).
pub(crate) fn become_without_io_uring(program: &str, arguments: &[&str]) -> Result<bool> {
    let refusal = u32::try_from(Errno::PERM.raw_os_error())?;
    let filter = SeccompFilter::new(
        BTreeMap::from([(IO_URING_SETUP, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(refusal),
        std::env::consts::ARCH.try_into()?,
    )?;
    let filter: BpfProgram = filter.try_into()?;
    apply_filter(&filter)?;
    Err(Command::new(program).args(arguments).exec().into())
}
