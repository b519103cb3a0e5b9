//! An ensemble of real processes over real sockets on loopback: etcd, nodes,
//! managers, gateways, and NFS clients that go on while the others are killed.

mod capabilities;
mod defrag;
mod depots;
mod exports;
mod fsck;
mod hellos;
mod homes;
mod kernel;
pub(super) mod load;
mod locks;
mod luns;
mod members;
mod paths;
mod pause;
mod pieces;
mod refusals;
mod scoped;
mod secure;
mod sets;
mod space;
mod withdrawals;

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::Stage;
use crate::rig::etcd::Etcd;
pub(super) use depots::run as run_depots;
pub(super) use kernel::run as run_kernel;
use load::{Files, Load};
pub(super) use luns::run as run_luns;
use members::{Ensemble, Member};
pub(super) use paths::run as run_paths;
pub(super) use secure::run as run_secure;
pub(super) use sets::run as run_sets;
pub(super) use withdrawals::run as run_withdrawals;

/// Answers that each client has to have after something was killed.
const ANSWERS: u64 = 40;

/// Everything that runs.
struct Processes<'stage> {
    nodes: Vec<Member<'stage>>,
    managers: Vec<Member<'stage>>,
    gateways: Vec<Member<'stage>>,
}

impl<'stage> Processes<'stage> {
    fn start(ensemble: &Ensemble<'stage>, nodes: Range<u32>) -> Result<Self> {
        let gateways = ["gateway-a", "gateway-b"].iter();
        Self::start_with(ensemble, nodes, || {
            gateways.map(|name| ensemble.gateway(name)).collect()
        })
    }

    /// The same with these gateways, which are started last.
    fn start_with(
        ensemble: &Ensemble<'stage>,
        nodes: Range<u32>,
        gateways: impl FnOnce() -> Result<Vec<Member<'stage>>>,
    ) -> Result<Self> {
        Ok(Self {
            nodes: nodes
                .map(|number| ensemble.node(number))
                .collect::<Result<_>>()?,
            managers: ["manager-a", "manager-b"]
                .iter()
                .map(|name| ensemble.manager(name))
                .collect::<Result<_>>()?,
            gateways: gateways()?,
        })
    }

    fn count(&self) -> usize {
        self.nodes.len() + self.managers.len() + self.gateways.len()
    }

    fn doors(&self) -> Result<Vec<SocketAddr>> {
        let gateways = self.gateways.iter();
        gateways.map(|gateway| gateway.door("nfs")).collect()
    }

    /// Every process talks to every other one, and no set misses a member.
    fn await_whole(&self, stage: &Stage<'_>) -> Result<()> {
        let all = self.nodes.iter().chain(&self.managers);
        for member in all.chain(&self.gateways) {
            member.await_whole(stage, self.count())?;
        }
        Ok(())
    }

    /// The place of the manager that has the files.
    fn serving_manager(&self, stage: &Stage<'_>) -> Result<usize> {
        for (place, manager) in self.managers.iter().enumerate() {
            if manager.status(stage)?["files"].as_u64() > Some(0) {
                return Ok(place);
            }
        }
        bail!("no manager has files")
    }

    /// Gateways first, so that clients are answered; nodes last.
    fn stop(&mut self) -> Result<()> {
        let all = self.gateways.iter_mut().chain(&mut self.managers);
        all.chain(&mut self.nodes).try_for_each(Member::stop)
    }
}

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let etcd = Etcd::start(stage.paths, None, &stage.folder)?;
    let ensemble = Ensemble::over(&etcd, stage)?;
    ensemble.init(&[])?;
    refusals::before(&ensemble)?;
    refusals::without_etcd(&ensemble)?;
    let mut processes = Processes::start(&ensemble, 0..3)?;
    processes.await_whole(stage)?;
    refusals::second(&ensemble)?;
    let (node, manager) = (&processes.nodes[0], &processes.managers[0]);
    hellos::run(stage, [node, manager, &processes.gateways[0]]).context("strangers")?;
    refusals::orders(&ensemble, &processes.nodes[0], &processes.gateways[0])?;

    exports::run(stage, &processes).context("exports")?;
    space::run(&processes).context("space")?;
    capabilities::impostor(stage, &processes).context("an impostor")?;
    capabilities::revoke(stage, &mut processes).context("revoking")?;

    locks::run(stage, &mut processes).context("locks")?;

    let load = Load::start("client", &processes.doors()?);
    load.pause(ANSWERS)?;
    fsck::under_load(stage, &processes).context("fsck")?;
    kill_one_after_the_other(stage, &mut processes, &load)?;
    freeze(stage, &mut processes, &load)?;
    homes::change(&ensemble, &mut processes, &load)?;
    let files = load.finish()?;
    let made: u64 = files.iter().map(Files::made).sum();
    println!("{made} files were written, read and renamed meanwhile");
    verify(&files, &processes)?;

    let began = Instant::now();
    processes.stop()?;
    println!(
        "all stopped in order: {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let mut processes = Processes::start(&ensemble, 1..4)?;
    verify(&files, &processes)?;
    processes.await_whole(stage)?;
    fsck::at_rest(stage, &processes, made).context("fsck")?;
    processes.stop()
}

fn verify(files: &[Files], processes: &Processes<'_>) -> Result<()> {
    for gateway in processes.doors()? {
        files.iter().try_for_each(|files| files.verify(gateway))?;
    }
    Ok(())
}

/// The clients go on: nothing is refused, and what was answered is there.
fn kill_one_after_the_other(
    stage: &Stage<'_>,
    processes: &mut Processes<'_>,
    load: &Load,
) -> Result<()> {
    for turn in 0..2 {
        let serving = processes.serving_manager(stage)?;
        kill(stage, processes, load, |all| &mut all.managers[serving])?;
        kill(stage, processes, load, |all| &mut all.nodes[turn])?;
        kill(stage, processes, load, |all| &mut all.gateways[turn])?;
        refusals::nonsense(&processes.nodes[2])?;
    }
    Ok(())
}

/// The manager that serves stands still until others have taken over, and goes on:
/// it learns that it has been replaced, answers nobody any more, and ends.
fn freeze(stage: &Stage<'_>, processes: &mut Processes<'_>, load: &Load) -> Result<()> {
    let serving = processes.serving_manager(stage)?;
    let manager = &mut processes.managers[serving];
    load.mark();
    manager.signal(Signal::STOP)?;
    let pause = load.pause(ANSWERS)?;
    manager.signal(Signal::CONT)?;
    manager.await_replaced()?;
    let what = format!("{} stood still", manager.name());
    println!("{what}: {pause}; replaced, it ended");
    pause.judge(&what)?;
    manager.restart(stage)?;
    processes.await_whole(stage)
}

/// Kills one, waits until the clients are served, starts it again and waits
/// until it is a member like before.
fn kill<'stage>(
    stage: &Stage<'_>,
    processes: &mut Processes<'stage>,
    load: &Load,
    which: impl for<'all> Fn(&'all mut Processes<'stage>) -> &'all mut Member<'stage>,
) -> Result<()> {
    load.mark();
    which(processes).kill();
    let pause = load.pause(ANSWERS)?;
    load.mark();
    which(processes).restart(stage)?;
    let back = Instant::now();
    processes.await_whole(stage)?;
    let back = back.elapsed();
    let again = load.pause(ANSWERS)?;
    let name = which(processes).name();
    println!(
        "{name} killed: {pause}; back after {:.2} s, {again} meanwhile",
        back.as_secs_f64()
    );
    pause.judge(&format!("{name} killed"))?;
    again.judge(&format!("{name} is back"))
}
