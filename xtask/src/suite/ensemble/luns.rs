//! Initiators that share a LUN through two gateways of an ensemble: they count by COMPARE AND WRITE
//! while nodes are killed, and obey each other's reservations from the moment that these are
//! answered; a reset through one gateway aborts what came through the other; what they are told of the gateways, and what these do not offer
//! (docs/decisions/0049). And copies from LUN to LUN that no gateway sees the bytes of.

mod copies;
mod portals;
mod resets;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Processes;
use super::members::{Ensemble, Member};
use crate::install;
use crate::rig::etcd::Etcd;
use crate::suite::Stage;
use crate::suite::iscsi::initiator::{Initiator, Said};

/// Blocks that are counted in: one that a site has, and one that lies in a column.
const COUNTERS: [u32; 2] = [5, 3000];

/// Initiators that count, half of them through each gateway.
const COUNTING: u8 = 6;

/// For how long, and how often a node is killed meanwhile.
const COUNTED_FOR: Duration = Duration::from_secs(12);
const KILLS: usize = 2;

/// How often a LUN is reserved and released, and taken from its holder.
const RESERVED: u32 = 20;

/// What one initiator has counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Was told to be done.
    done: u64,
    /// May have been done.
    unclear: u64,
    /// Was told not to be done, as somebody else had counted.
    missed: u64,
}

pub(in super::super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    install::iscsi_initiators()?;
    let etcd = Etcd::start(stage.paths, None, &stage.folder)?;
    let ensemble = Ensemble::over(&etcd, stage)?;
    ensemble.init(&[])?;
    let mut processes = Processes::start_with(&ensemble, 0..3, || {
        ["gateway-a", "gateway-b"]
            .iter()
            .map(|name| ensemble.with_doors(name, "gateway", &["--gateway-name", name], &["iscsi"]))
            .collect()
    })?;
    processes.await_whole(stage)?;
    make_lun(&ensemble, &processes.gateways[0], "shared", "64M")?;
    portals::check(stage, &mut processes).context("portals")?;
    copies::check(&ensemble, &processes).context("copies")?;
    count(stage, &mut processes).context("counting")?;
    reserve(&processes).context("reservations")?;
    resets::check(&processes).context("resets")?;
    processes.stop()
}

fn make_lun(ensemble: &Ensemble<'_>, gateway: &Member<'_>, name: &str, size: &str) -> Result<()> {
    let admin = gateway.door("admin")?.to_string();
    let words = ["lun", "create", name, size, "--admin", &admin];
    ensemble.finish(&words)?.expect(0, &[])
}

fn initiator(processes: &Processes<'_>, number: u8) -> Result<Initiator> {
    let gateways = &processes.gateways;
    let gateway = &gateways[usize::from(number) % gateways.len()];
    Initiator::connect(gateway.door("iscsi")?, number, "shared")
}

/// No increment that was answered is lost, and none is done twice.
fn count(stage: &Stage<'_>, processes: &mut Processes<'_>) -> Result<()> {
    let is_over = AtomicBool::new(false);
    let mut initiators = Vec::new();
    for number in 0..COUNTING {
        initiators.push(initiator(processes, number)?);
    }
    let counted = thread::scope(|scope| {
        let counting: Vec<_> = initiators
            .into_iter()
            .map(|initiator| scope.spawn(|| count_on(initiator, &is_over)))
            .collect();
        let killed = kill_nodes(stage, processes);
        is_over.store(true, Ordering::Relaxed);
        let counted: Result<Vec<_>> = counting
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("it panicked"))?)
            .collect();
        killed.and(counted)
    })?;
    let mut reader = initiator(processes, 50)?;
    for (at, lba) in COUNTERS.into_iter().enumerate() {
        let sum = |of: fn(&Counted) -> u64| counted.iter().map(|all| of(&all[at])).sum::<u64>();
        let (done, unclear) = (sum(|it| it.done), sum(|it| it.unclear));
        let missed = sum(|it| it.missed);
        let value = read_counter(&mut reader, lba)?;
        println!(
            "block {lba}: {value} counted, {done} answered, {unclear} unclear, {missed} missed"
        );
        ensure!(
            (done..=done + unclear).contains(&value),
            "block {lba} has counted {value}, answered were {done}, unclear {unclear}"
        );
        ensure!(
            done > 100 && missed > 10,
            "they were hardly in each other's way"
        );
    }
    Ok(())
}

fn kill_nodes(stage: &Stage<'_>, processes: &mut Processes<'_>) -> Result<()> {
    let pause = COUNTED_FOR / (u32::try_from(KILLS)? + 1);
    pass(pause); // It is for a time that they count.
    for node in 0..KILLS {
        processes.nodes[node].kill();
        pass(pause);
        processes.nodes[node].restart(stage)?;
        processes.await_whole(stage)?;
    }
    Ok(())
}

fn count_on(mut initiator: Initiator, is_over: &AtomicBool) -> Result<[Counted; 2]> {
    let mut counted = [Counted::default(); 2];
    while !is_over.load(Ordering::Relaxed) {
        for (lba, counted) in COUNTERS.into_iter().zip(&mut counted) {
            let value = read_counter(&mut initiator, lba)?;
            let (old, new) = (block_of(value), block_of(value + 1));
            match initiator.compare_and_write(lba, &old, &new)? {
                Said::Good(_) => counted.done += 1,
                Said::Miscompare => counted.missed += 1,
                Said::Busy => counted.unclear += 1,
                Said::Attention => {}
                other => bail!("COMPARE AND WRITE of block {lba}: {other:?}"),
            }
        }
    }
    Ok(counted)
}

fn read_counter(initiator: &mut Initiator, lba: u32) -> Result<u64> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        match initiator.read(lba)? {
            Said::Good(data) => {
                let value = data.first_chunk().context("a short block")?;
                let value = u64::from_be_bytes(*value);
                ensure!(data == block_of(value), "block {lba} is torn");
                return Ok(value);
            }
            Said::Busy => pass(Duration::from_millis(20)), // As it was told.
            Said::Attention => {}
            other => bail!("READ of block {lba}: {other:?}"),
        }
    }
    bail!("block {lba} cannot be read for a minute")
}

fn block_of(value: u64) -> Vec<u8> {
    value.to_be_bytes().repeat(64)
}

/// A reservation that is taken at one gateway is obeyed at the other one by every command that
/// is sent behind its answer; who was pushed out has no write behind the answer.
fn reserve(processes: &Processes<'_>) -> Result<()> {
    let mut holder = initiator(processes, 10)?;
    let mut other = initiator(processes, 11)?;
    let mut slowest = Duration::ZERO;
    let is_good = |said: &Said| matches!(said, Said::Good(_));
    for initiator in [&mut holder, &mut other] {
        let registered = initiator.settled(|it| it.register())?;
        ensure!(is_good(&registered), "REGISTER AND IGNORE EXISTING KEY");
    }
    for round in 0..RESERVED {
        let lba = 100 + round;
        let free = other.settled(|it| it.write(lba, &block_of(1)))?;
        ensure!(is_good(&free), "round {round}: it is reserved already");
        let asked = Instant::now();
        let reserved = holder.settled(|it| it.reserve(1))?;
        slowest = slowest.max(asked.elapsed());
        ensure!(is_good(&reserved), "round {round}: RESERVE: {reserved:?}");
        let refused = other.write(lba, &block_of(2))?;
        ensure!(
            refused == Said::Conflict,
            "round {round}: a write behind the reservation: {refused:?}"
        );
        let released = holder.settled(|it| it.release(1))?;
        ensure!(is_good(&released), "round {round}: RELEASE: {released:?}");
        wait_until_free(&mut other, lba)?;
    }
    println!("{RESERVED} reservations were obeyed at once; the slowest took {slowest:.1?}");
    preempt(&mut holder, processes)
}

/// What is given back may be told late: nobody is harmed by that.
fn wait_until_free(other: &mut Initiator, lba: u32) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        match other.settled(|it| it.write(lba, &block_of(3)))? {
            Said::Good(_) => return Ok(()),
            Said::Conflict => pass(Duration::from_millis(5)),
            said => bail!("a write: {said:?}"),
        }
    }
    bail!("what was released is reserved for 10 s still")
}

/// One writes through the other gateway all the time, and is pushed out: what is there when that
/// is answered stays.
fn preempt(holder: &mut Initiator, processes: &Processes<'_>) -> Result<()> {
    let lba = 500;
    for round in 0..RESERVED {
        let number = 21 + 2 * u8::try_from(round)?; // Through the other gateway.
        let mut victim = initiator(processes, number)?;
        victim.settled(|it| it.register())?;
        // Write exclusive, for all who are registered.
        let reserved = holder.settled(|it| it.reserve(5))?;
        ensure!(matches!(reserved, Said::Good(_)), "RESERVE: {reserved:?}");
        let writing = thread::spawn(move || -> Result<u64> {
            for value in 1.. {
                match victim.settled(|it| it.write(lba, &block_of(value)))? {
                    Said::Good(_) => {}
                    Said::Conflict => return Ok(value - 1),
                    said => bail!("a write: {said:?}"),
                }
            }
            Ok(0)
        });
        pass(Duration::from_millis(30)); // It writes for a while.
        let preempted = holder.settled(|it| it.preempt_and_abort(5, number))?;
        ensure!(matches!(preempted, Said::Good(_)), "PREEMPT: {preempted:?}");
        let told = read_counter(holder, lba)?;
        let written = writing
            .join()
            .map_err(|_| anyhow::anyhow!("it panicked"))??;
        let later = read_counter(holder, lba)?;
        ensure!(
            told == later && written <= told,
            "round {round}: {told} was there behind the answer, {later} later; {written} were answered"
        );
        holder.settled(|it| it.release(5))?;
    }
    println!("{RESERVED} who wrote were pushed out, and wrote no more");
    Ok(())
}

/// Lets other processes go on for a while.
#[expect(
    clippy::disallowed_methods,
    reason = "how long initiators work, and when they ask again, is a matter of time"
)]
fn pass(duration: Duration) {
    thread::sleep(duration);
}
