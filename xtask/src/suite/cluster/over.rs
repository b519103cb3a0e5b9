//! Suites that know a single server, over an ensemble: with the gateway on a host of
//! its own, and with one on the client's host that serves its loopback only, as the
//! paper's client-based proxy does (Slice 4.1).

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::{names, raise};
use crate::process::run_logged;
use crate::rig::cluster::{Cluster, Options, Role, in_network};
use crate::rig::network::{HOST, LINK, Network};
use crate::suite::Stage;
use crate::suite::kernel::{in_guest, judge_pjdfstest, mount_variables};

/// Three of everything that has to agree, and a client with a gateway of its own.
const OPTIONS: [&str; 8] = [
    "--nodes",
    "3",
    "--managers",
    "3",
    "--clients",
    "1",
    "--client-gateways",
    "1",
];

/// Further words of `cluster init` where names are hashed.
const HASHED: [&str; 2] = ["--names", "hashed"];

/// The doors that are tested, and what they are called.
fn doors(cluster: &Cluster<'_>) -> Result<[(&'static str, SocketAddr); 2]> {
    let other = cluster.nfs_doors().first().copied();
    Ok([
        (
            "the gateway on a host of its own",
            other.context("no gateway")?,
        ),
        ("the gateway on the client's host", Cluster::OWN_DOOR),
    ])
}

/// The network of the client's host.
pub(super) fn client(cluster: &Cluster<'_>) -> Result<Network> {
    let client = cluster.of(Role::Client).next().context("no client")?;
    Ok(Network::of_host(&client.netns))
}

/// The rig, in which names lie as the suite says; both doors serve, and every manager has
/// names.
fn raise_over<'stage>(stage: &Stage<'stage>, is_hashed: bool) -> Result<Cluster<'stage>> {
    let mut options = Options::parse(&OPTIONS)?;
    if is_hashed {
        options.init.extend(HASHED.map(str::to_owned));
    }
    let cluster = raise(stage, options)?;
    let host = cluster.of(Role::Client).next().context("no client")?;
    let door = Cluster::OWN_DOOR;
    let shares = in_network(&host.netns, || names::spread(&cluster, door))?;
    println!("files at the sites of each manager: {shares:?}");
    Ok(cluster)
}

/// The checks of tests/conformance, but for those that start servers of their own.
pub(in crate::suite) fn conformance(stage: &Stage<'_>) -> Result<()> {
    let is_hashed = stage.init.iter().any(|word| word == "hashed");
    conform(stage, is_hashed)
}

/// The same where names are hashed over sites.
pub(in crate::suite) fn conformance_hashed(stage: &Stage<'_>) -> Result<()> {
    conform(stage, true)
}

fn conform(stage: &Stage<'_>, is_hashed: bool) -> Result<()> {
    let cluster = raise_over(stage, is_hashed)?;
    let client = client(&cluster)?;
    let program = stage
        .paths
        .target
        .join("release/crossdock-tests-conformance");
    let mut failed = Ok(());
    for (which, door) in doors(&cluster)? {
        let mut command = client.program(&program);
        command.args(["--at", &door.to_string()]);
        if is_hashed {
            command.arg("--hashed");
        }
        let ended = run_logged(command, &stage.log, stage.deadline);
        // What the other one says is worth knowing all the same.
        if failed.is_ok() {
            failed = ended.context(which);
        }
    }
    failed
}

/// pjdfstest over a Linux kernel's mount.
pub(in crate::suite) fn pjdfstest(stage: &Stage<'_>) -> Result<()> {
    test_posix(stage, false)
}

/// The same where names are hashed over sites.
pub(in crate::suite) fn pjdfstest_hashed(stage: &Stage<'_>) -> Result<()> {
    test_posix(stage, true)
}

fn test_posix(stage: &Stage<'_>, is_hashed: bool) -> Result<()> {
    let cluster = raise_over(stage, is_hashed)?;
    let client = client(&cluster)?;
    client.add(&LINK)?;
    for (which, door) in doors(&cluster)? {
        println!("{which}:");
        let _forward = client.forward(door, &stage.folder.join("forward.log"))?;
        let variables = mount_variables(SocketAddr::from((HOST, door.port())));
        judge_pjdfstest(stage, |said| {
            in_guest(stage, &client, "pjdfstest.sh", variables, |line| {
                said.read(line)
            })
        })
        .context(which)?;
    }
    Ok(())
}
