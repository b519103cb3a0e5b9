//! The checks of tests/conformance: NFSv3 and MOUNT byte by byte, without a
//! kernel's client in between.

use anyhow::Result;

use super::Stage;
use crate::process::run_logged;
use crate::rig::network::Network;

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    check(stage, &[])
}

/// The same of a volume whose names are hashed over sites.
pub(super) fn run_hashed(stage: &Stage<'_>) -> Result<()> {
    check(stage, &["--hashed"])
}

fn check(stage: &Stage<'_>, arguments: &[&str]) -> Result<()> {
    stage.expect_crossdock()?;
    let network = Network::new()?;
    let program = stage
        .paths
        .target
        .join("release/crossdock-tests-conformance");
    let mut command = network.program(program);
    command.arg("--server").arg(stage.paths.release_binary());
    command.arg("--folder").arg(&stage.folder);
    command.args(arguments);
    run_logged(command, &stage.log, stage.deadline)
}
