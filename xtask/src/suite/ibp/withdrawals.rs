//! A client that is gone during its load: what it has asked of the disk is withdrawn, and the
//! node's log says so.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::talk::{Depots, Talk, content, keys};
use crate::rig::reads::{ReadLimit, WITHDRAWN};
use crate::suite::Stage;

/// Allocations, together many times what the node keeps in memory.
const ALLOCATIONS: usize = 24;
const BYTES: usize = 8 << 20;

/// One request at a time at each disk: what else is asked for waits in the node's queue.
const NODE: [&str; 4] = ["--cache", "12M", "--disk-depth", "1"];

/// What the process may read in a second while clients are killed, where the system can
/// bound it: a fast disk would have answered one request before the next one came.
const READ_BYTES_PER_SECOND: u64 = 32 << 20;

/// How often clients are killed until the node must have said something.
const ROUNDS: u32 = 12;

/// In how much time it tells.
const TELL_PATIENCE: Duration = Duration::from_secs(3);

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    let depots = Depots::start(stage, &NODE)?;
    let mut talk = depots.talk()?;
    let mut reads = Vec::new();
    for number in 0..ALLOCATIONS {
        let made = talk.allocate(&format!("1 1 3600 {BYTES}"))?;
        talk.store(&made.write, &content(u8::try_from(number)?, BYTES))?;
        reads.push(made.read);
    }
    let limit = ReadLimit::new("ibp", &stage.folder, READ_BYTES_PER_SECOND)?;
    match &limit {
        Some(limit) => limit.add(depots.pid())?,
        None => println!("reads cannot be slowed down here: the disk is as fast as it is"),
    }
    let before = depots.said()?.matches(WITHDRAWN).count();
    for round in 0..ROUNDS {
        let mut talks: Vec<Talk> = Vec::new();
        for read in &reads {
            let mut talk = depots.talk()?;
            talk.say(format!("0 8 {} 0 {BYTES} 60 \n", keys(read)))?;
            talks.push(talk);
        }
        thread::park_timeout(Duration::from_millis(3) * round);
        talks.into_iter().try_for_each(Talk::reset)?;
        let told = Instant::now();
        while told.elapsed() < TELL_PATIENCE {
            if depots.said()?.matches(WITHDRAWN).count() > before {
                limit.as_ref().map_or(Ok(()), ReadLimit::lift)?;
                return check(&depots, &reads).and_then(|()| depots.stop());
            }
            thread::park_timeout(Duration::from_millis(100));
        }
    }
    bail!("{ROUNDS} times {ALLOCATIONS} clients are gone, and no node says that it withdrew reads")
}

/// Nobody else is the worse for it.
fn check(depots: &Depots, reads: &[crossdock_ibp::Capability]) -> Result<()> {
    let mut talk = depots.talk()?;
    for (number, read) in reads.iter().enumerate() {
        let data = talk.load(read, "0 0", BYTES)?;
        ensure!(
            data == content(u8::try_from(number)?, BYTES),
            "allocation {number}"
        );
    }
    Ok(())
}
