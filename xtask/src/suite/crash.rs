//! The kill -9 loop of tests/crash: a writer with many calls outstanding, a
//! witness of what was acknowledged, and a server killed at random moments.

use anyhow::Result;

use super::Stage;
use crate::process::run_logged;
use crate::rig::network::Network;

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    rounds(stage, 60)
}

pub(super) fn run_long(stage: &Stage<'_>) -> Result<()> {
    rounds(stage, 600)
}

fn rounds(stage: &Stage<'_>, rounds: u32) -> Result<()> {
    stage.expect_crossdock()?;
    let network = Network::new()?;
    let program = stage.paths.target.join("release/crossdock-tests-crash");
    let mut command = network.program(program);
    command.arg("--server").arg(stage.paths.release_binary());
    command.arg("--folder").arg(&stage.folder);
    command.args(["--rounds", &rounds.to_string()]);
    run_logged(command, &stage.log, stage.deadline)
}
