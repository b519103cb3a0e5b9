//! Two paths to a LUN: the Linux kernel in a guest has it by two gateways of an ensemble.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};

use super::Processes;
use super::members::Ensemble;
use crate::install;
use crate::process::run as run_program;
use crate::rig::etcd::Etcd;
use crate::rig::network::{HOST, Network};
use crate::rig::server::GUESTS;
use crate::suite::Stage;
use crate::suite::iscsi::kernel::{ISCSI_PORT, NFS_PORT, Orders, variables};
use crate::suite::kernel::{KILL_MARK, in_guest};

/// Where a second gateway is, whom the guest reaches by the first one's machine.
const SECOND: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 9);

/// Bytes of a LUN, and files that the guest writes on it.
const LUN_SIZE: &str = "256M";
const ROUNDS: u32 = 120;

/// A Linux kernel has a LUN by two gateways, which its device mapper makes one disk of: one is
/// killed under a writer.
pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    install::kernel_initiator(stage.paths)?;
    let network = Network::new()?;
    let address = format!("{SECOND}/32");
    run_program(
        network
            .program("ip")
            .args(["address", "add", &address, "dev", "lo"]),
    )?;
    let etcd = Etcd::start(stage.paths, Some(&network), &stage.folder)?;
    let ensemble = Ensemble {
        network: Some(&network),
        ..Ensemble::over(&etcd, stage)?
    };
    ensemble.init(&["--allow", GUESTS])?;
    let doors = |address: Ipv4Addr| {
        [("nfs", NFS_PORT), ("iscsi", ISCSI_PORT)]
            .map(|(door, port)| (door, SocketAddr::from((address, port))))
    };
    let mut processes = Processes::start_with(&ensemble, 0..3, || {
        Ok(vec![
            ensemble.gateway_at("gateway-a", &doors(HOST))?,
            ensemble.gateway_at("gateway-b", &doors(SECOND))?,
        ])
    })?;
    processes.await_whole(stage)?;
    let admin = processes.gateways[1].door("admin")?.to_string();
    let lun = ["lun", "create", "disk", LUN_SIZE, "--client", GUESTS];
    let made = ensemble.finish(&[&lun[..], &["--json", "--admin", &admin]].concat())?;
    let made = made.json(0)?;
    let target = made["target"].as_str().context("no target")?;

    let mut orders = Orders::new(stage);
    let mut variables = variables(SECOND, target, &orders.path()?);
    variables.extend([
        ("FIRST", HOST.to_string()),
        ("ROUNDS", ROUNDS.to_string()),
        ("KILLS", "1".to_owned()),
    ]);
    in_guest(stage, &network, "multipath.sh", variables, |line| {
        if line == KILL_MARK {
            processes.gateways[0].kill();
        }
        if orders.of_line(line) == Some("start") {
            processes.gateways[0].restart(stage)?;
            orders.done()?;
        }
        Ok(())
    })?;
    ensure!(
        orders.count() == 1,
        "the first gateway was not started again"
    );
    processes.stop()
}
