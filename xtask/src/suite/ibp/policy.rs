//! What depots grant, read again from the configuration file while they run (SIGHUP).

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::talk::{Depots, keys};
use crate::suite::Stage;
use crate::suite::cli::program::text;

/// How long a change may take until depots follow it.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

const ALLOCATE_2_MB: &str = "0 1 1 1 60 2000000 0\n";

pub(super) fn read_again(stage: &Stage<'_>) -> Result<()> {
    let file = stage.folder.join("policy.toml");
    fs::write(&file, "ibp_size = \"1M\"\nibp_password = \"first\"\n")?;
    let depots = Depots::start(stage, &["--config", text(&file)?])?;
    depots.talk()?.expect(ALLOCATE_2_MB, " -45 \n")?;
    let made = depots.talk()?.allocate("1 1 600 1000")?;
    depots.talk()?.store(&made.write, b"here")?;
    // Copies stay on this machine, as the depots do.
    let target = "ibp://198.51.100.7:6714/0#k/5/WRITE";
    let (key, attribute) = (&made.read.key, &made.read.attribute_key);
    let send = format!("0 5 {key} {target} {attribute} 0 4 1 1 1 \n");
    depots.talk()?.expect(&send, " -44 \n")?;

    fs::write(&file, "ibp_size = \"4M\"\nibp_password = \"second\"\n")?;
    reload(&depots)?;
    answers(&depots, ALLOCATE_2_MB, "1 ibp://")?;
    answers(&depots, "0 4 2 first 0\n", "-29 ")?;
    answers(&depots, "0 4 2 second 0\n", "1 ")?;

    // A mistake changes nothing.
    fs::write(&file, "ibp_size = \"1M\"\nibp_allow = \"nowhere\"\n")?;
    reload(&depots)?;
    let deadline = Instant::now() + PATIENCE;
    while !depots.said()?.contains("the file is refused") {
        ensure!(Instant::now() < deadline, "{}", depots.said()?);
        std::thread::park_timeout(LOOK_EVERY);
    }
    answers(&depots, ALLOCATE_2_MB, "1 ibp://")?;

    fs::write(&file, "ibp_allow = \"192.0.2.0/24\"\n")?;
    reload(&depots)?;
    answers(&depots, ALLOCATE_2_MB, " -44 ")?;
    // What there is can still be read.
    let mut talk = depots.talk()?;
    ensure!(
        talk.load(&made.read, "0 0", 4)? == b"here",
        "{}",
        keys(&made.read)
    );
    depots.stop()
}

fn reload(depots: &Depots) -> Result<()> {
    let id = Pid::from_raw(i32::try_from(depots.pid())?).context("process id 0")?;
    Ok(kill_process(id, Signal::HUP)?)
}

/// Asks the first depot until its answer begins so.
fn answers(depots: &Depots, said: &str, wanted: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut talk = depots.talk()?;
        talk.say(said)?;
        let line = talk.line()?;
        if line.starts_with(wanted) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{said:?}: {line:?}");
        std::thread::park_timeout(LOOK_EVERY);
    }
}
