//! A Linux kernel mounts a gateway of an ensemble and writes without a pause while
//! the other processes are killed, one after the other: its hard mount goes on.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::Processes;
use super::members::Ensemble;
use crate::rig::etcd::Etcd;
use crate::rig::network::{HOST, Network};
use crate::rig::server::GUESTS;
use crate::suite::Stage;
use crate::suite::kernel::{KILL_MARK, in_guest, mount_variables};

/// Where the guest finds NFS and MOUNT.
const NFS_PORT: u16 = 2049;

/// Files that the guest writes, and kills on the way.
const ROUNDS: u32 = 400;
const KILLS: usize = 6;

/// The suite.
pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let network = Network::new()?;
    let etcd = Etcd::start(stage.paths, Some(&network), &stage.folder)?;
    let ensemble = Ensemble {
        network: Some(&network),
        ..Ensemble::over(&etcd, stage)?
    };
    ensemble.init(&["--allow", GUESTS])?;
    let door = SocketAddr::from((HOST, NFS_PORT));
    let mut processes = Processes::start_with(&ensemble, 0..3, || {
        Ok(vec![ensemble.gateway_at("gateway-a", &[("nfs", door)])?])
    })?;
    processes.await_whole(stage)?;
    let mut variables = mount_variables(door);
    variables.extend([("ROUNDS", ROUNDS.to_string()), ("KILLS", KILLS.to_string())]);
    let mut kills = 0;
    in_guest(stage, &network, "restart.sh", variables, |line| {
        if line == KILL_MARK {
            kill(stage, &mut processes, kills)?;
            kills += 1;
        }
        Ok(())
    })?;
    ensure!(kills >= KILLS, "{kills} processes were killed, not {KILLS}");
    processes.stop()
}

/// Kills a manager, a node, the gateway, in turn, and starts it again at once; the
/// next one is killed only when all is whole again, as there are two copies.
fn kill(stage: &Stage<'_>, processes: &mut Processes<'_>, number: usize) -> Result<()> {
    let began = Instant::now();
    let turn = number / 3;
    let victim = match number % 3 {
        0 => &mut processes.managers[turn % 2],
        1 => &mut processes.nodes[turn % 3],
        _ => &mut processes.gateways[0],
    };
    victim.kill();
    victim.restart(stage)?;
    let name = victim.name().to_owned();
    processes.await_whole(stage)?;
    println!(
        "{name} killed and started again: all is whole after {:.2} s",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}
