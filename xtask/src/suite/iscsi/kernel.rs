//! The Linux kernel's own initiator, in a guest: a file system on a LUN beside the pool's files
//! over NFS, and a LUN by two gateways.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use super::prepare;
use crate::install;
use crate::rig::Life;
use crate::rig::network::{HOST, Network};
use crate::rig::server::GUESTS;
use crate::rig::slowdisk::{self, Slowdisk};
use crate::suite::Stage;
use crate::suite::cli::program::{Finished, Up, doors_at_free_ports, finish_command, text};
use crate::suite::kernel::{KILL_MARK, in_guest, mount_variables};

pub(in crate::suite) const ISCSI_PORT: u16 = 3260;
pub(in crate::suite) const NFS_PORT: u16 = 2049;

/// Disks of the server's, and bytes of each.
const DISKS: usize = 6;
const DISK_BYTES: u64 = 512 << 20;

/// What a guest prints before what it wants done, for which it waits.
const ORDER_MARK: &str = "@@do ";

/// What the guest is told of the gateway at that address, and of a LUN.
pub(in crate::suite) fn variables(
    gateway: Ipv4Addr,
    target: &str,
    done: &str,
) -> Vec<(&'static str, String)> {
    let mut variables = mount_variables(SocketAddr::from((gateway, NFS_PORT)));
    variables.extend([
        ("TARGET", target.to_owned()),
        ("ISCSI_PORT", ISCSI_PORT.to_string()),
        ("DONE", done.to_owned()),
    ]);
    variables
}

/// How a guest learns that an order was carried out: by a file that it sees.
pub(in crate::suite) struct Orders<'stage> {
    stage: &'stage Stage<'stage>,
    done: usize,
}

impl<'stage> Orders<'stage> {
    pub(in crate::suite) const fn new(stage: &'stage Stage<'stage>) -> Self {
        Self { stage, done: 0 }
    }

    /// Beginning of the files' names, as the guest sees it.
    pub(in crate::suite) fn path(&self) -> Result<String> {
        let folder = self.stage.folder.strip_prefix(&self.stage.paths.target)?;
        Ok(format!("/run/target/{}/done-", folder.display()))
    }

    /// How many were carried out.
    pub(in crate::suite) const fn count(&self) -> usize {
        self.done
    }

    /// The order in a line of the guest's, if it is one.
    pub(in crate::suite) fn of_line<'line>(&self, line: &'line str) -> Option<&'line str> {
        line.strip_prefix(ORDER_MARK)
    }

    /// The guest's last order has been carried out.
    pub(in crate::suite) fn done(&mut self) -> Result<()> {
        self.done += 1;
        File::create(self.stage.folder.join(format!("done-{}", self.done)))?;
        Ok(())
    }
}

/// ext4 on a LUN and files over NFS at once; kills, a disk that is taken out, the defragmenter.
pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    with_server(stage, 200, 4, 4000)
}

/// The same with 50 kills. Copies of all files are in the guest's memory.
pub(in crate::suite) fn run_long(stage: &Stage<'_>) -> Result<()> {
    with_server(stage, 1000, 50, 40_000)
}

fn with_server(stage: &Stage<'_>, rounds: u32, kills: u32, operations: u32) -> Result<()> {
    prepare(stage)?;
    install::kernel_initiator(stage.paths)?;
    let network = Network::new()?;
    slowdisk::build(stage.paths)?;
    let disks = (0..DISKS)
        .map(|number| {
            let folder = stage.folder.join(format!("disk-{number}"));
            Slowdisk::up(stage.paths, &folder, DISK_BYTES, Life::OfXtask)
        })
        .collect::<Result<Vec<_>>>()?;
    let names = disks.iter().map(Slowdisk::device);
    let names = names.collect::<Result<Vec<_>>>()?;
    let (mirror, parity) = (names[0..2].join(","), names[2..5].join(","));
    let spec = format!("mirror:{mirror};parity:{parity};spare:{}", names[5]);
    let mut server = Some(start(stage, &network, &["--disks", &spec])?);
    let ask = |server: &Option<Up>, words: &[&str]| match server {
        Some(server) => ask(stage, &network, server, words),
        None => bail!("no server"),
    };
    ask(&server, &["export", "set", "/", "--allow", GUESTS])?.expect(0, &[])?;
    let lun = ["lun", "create", "disk", "512M", "--client", GUESTS];
    let made = ask(&server, &lun)?.json(0)?;
    let target = made["target"].as_str().unwrap_or_default();

    let mut orders = Orders::new(stage);
    let mut variables = variables(HOST, target, &orders.path()?);
    variables.extend([
        ("ROUNDS", rounds.to_string()),
        ("KILLS", kills.to_string()),
        ("OPERATIONS", operations.to_string()),
    ]);
    let mut killed = 0;
    in_guest(stage, &network, "iscsi.sh", variables, |line| {
        if line == KILL_MARK {
            killed += 1;
            if let Some(running) = server.take() {
                running.kill();
            }
            server = Some(start(stage, &network, &[])?);
        }
        let Some(order) = orders.of_line(line) else {
            return Ok(());
        };
        match order {
            "hang" => disks[2].hang(true)?,
            "answer" => disks[2].hang(false)?,
            "pull" => disks[0].fail(true)?,
            "pulled" => {
                let listed = ask(&server, &["disk", "list"])?.json(0)?;
                let failed = &listed[0]["failed"][0]["name"];
                ensure!(failed == names[0], "no disk has failed: {listed}");
            }
            "defrag" => {
                let moved = ask(&server, &["defrag", "--now"])?.json(0)?;
                println!("defragmented: {moved}");
            }
            other => bail!("the guest wants {other}"),
        }
        orders.done()
    })?;
    if let Some(server) = server {
        server.stop()?;
    }
    let said = (killed, orders.count());
    ensure!(said == (kills, 5), "kills and orders: {said:?}");
    Ok(())
}

fn start(stage: &Stage<'_>, network: &Network, more: &[&str]) -> Result<Up> {
    let data = stage.folder.join("data");
    let mut command = network.program(stage.paths.release_binary());
    doors_at_free_ports(&mut command);
    command.args(["up", "--data", text(&data)?]).args(more);
    command.args(["--iscsi", &SocketAddr::from((HOST, ISCSI_PORT)).to_string()]);
    let nfs = SocketAddr::from((HOST, NFS_PORT)).to_string();
    Up::start_at(stage, command, &nfs, "127.0.0.1:7070")
}

fn ask(stage: &Stage<'_>, network: &Network, server: &Up, words: &[&str]) -> Result<Finished> {
    let mut command: Command = network.program(stage.paths.release_binary());
    command.args(words);
    command.args(["--json", "--admin", &server.admin]);
    finish_command(stage, command)
}
