//! Third-party transfer over real kernels' TCP: redirector, tunnel and inflators between a
//! client that compares every byte and nodes whose bytes follow from pin and place
//! (tests/spiral), each in a network namespace of its own.

mod deaths;
mod doors;
mod faults;
mod kernel;
mod lending;
mod model;
mod policy;
mod promises;
mod readers;
mod udp;
mod volume;

use std::process::Command;

use anyhow::Result;

pub(super) use doors::run as run_doors;
pub(super) use faults::{run as run_faults, run_long as run_faults_long};
pub(super) use kernel::run_kernel;
pub(super) use policy::run as run_policy;
pub(super) use volume::run_volume;

use super::Stage;
use crate::process::run_logged;
use crate::rig::cluster::{Cluster, Options, Role};
use crate::{bpf, install};

/// What the rig is called: not as one that somebody has made by hand.
const RIG: &str = "suite-spiral";

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    bpf::check(stage.paths)?;
    install::debian(&["iproute2"])?;
    let words = ["--nodes", "3", "--clients", "1"];
    let folder = stage.folder.join("rig");
    let rig = Cluster::bare(stage.paths, RIG, &folder, &Options::parse(&words)?)?;
    let program = stage.paths.target.join("release/crossdock-tests-spiral");
    let mut command = Command::new(program);
    let one = |role| rig.of(role).take(1);
    let hosts = one(Role::Client).chain(one(Role::Gateway));
    for host in hosts.chain(rig.of(Role::Node)) {
        command.arg(&host.netns).arg(host.address.to_string());
    }
    run_logged(command, &stage.log, stage.deadline)
}
