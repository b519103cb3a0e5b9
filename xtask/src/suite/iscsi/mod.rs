//! iSCSI at the released program: Debian's initiators (libiscsi's tests and tools, QEMU's
//! block driver), and kills while they write.

mod conformance;
mod copies;
mod durability;
mod holes;
pub(super) mod initiator;
pub(super) mod kernel;
mod tools;
mod withdrawals;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Stage;
use super::cli::program::{Up, crossdock, text};
use crate::install;

/// A size at which the tests of libiscsi leave nothing out for want of room, in bytes.
const LUN_SIZE: &str = "128M";

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    prepare(stage)?;
    let disk = Disk::start(stage, "conformance")?;
    conformance::check(&disk, 512, &conformance::KNOWN_512)?;
    disk.up.stop()?;
    let disk = Disk::start(stage, "tools")?;
    tools::check(&disk)?;
    holes::check(&disk)?;
    copies::check(&disk)?;
    disk.up.stop()?;
    withdrawals::check(stage).context("withdrawn reads")?;
    durability::check(stage, 3)
}

/// Also with blocks of 4 KiB, and with as many kills as the issue wants.
pub(super) fn run_long(stage: &Stage<'_>) -> Result<()> {
    prepare(stage)?;
    let disk = Disk::start(stage, "conformance")?;
    conformance::check(&disk, 4096, &conformance::KNOWN_4096)?;
    disk.up.stop()?;
    durability::check(stage, 50)
}

fn prepare(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    install::iscsi_initiators()
}

/// `crossdock up` with an iSCSI door.
struct Disk<'stage> {
    stage: &'stage Stage<'stage>,
    up: Up,
    address: SocketAddr,
}

impl<'stage> Disk<'stage> {
    /// With data in a folder of that name, which may be there.
    fn start(stage: &'stage Stage<'stage>, name: &str) -> Result<Self> {
        Self::start_at(stage, &stage.folder.join(name), "127.0.0.1:0", &[])
    }

    /// One that is told more.
    fn start_at(
        stage: &'stage Stage<'stage>,
        data: &Path,
        address: &str,
        more: &[&str],
    ) -> Result<Self> {
        let words = ["up", "--nodes", "2", "--size", "1G", "--iscsi", address];
        let words = [&words[..], &["--data", text(data)?], more].concat();
        let free = "127.0.0.1:0";
        let up = Up::start_telling(stage, crossdock(stage, &words), free, free, "info")?;
        let address = up.iscsi.context("no iSCSI door")?;
        Ok(Self { stage, up, address })
    }

    /// Makes a LUN; its URL.
    fn lun(&self, name: &str, more: &[&str]) -> Result<String> {
        let words = [&["lun", "create", name, LUN_SIZE][..], more].concat();
        let made = self.up.ask(self.stage, &words)?.json(0)?;
        let target = made["target"].as_str().context("no target")?;
        Ok(format!("iscsi://{}/{target}/0", self.address))
    }

    /// A command line of an initiator's program, with its output.
    fn output(&self, name: &str, words: &[&str]) -> Result<String> {
        let mut command = Command::new("timeout");
        command.args(["60", name]).args(words);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{name} {}: {}\n{said}{}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(said)
    }
}
