//! Locks between two kernels: two guests mount the server's own addresses, find
//! NLM by its portmapper, and lock the same files. The server is killed and
//! started again, and so is a guest.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Stage;
use crate::rig::guest::{Guest, Job};
use crate::rig::network::{LINK, Link, Network, SECOND_LINK};
use crate::rig::server::Server;

/// A client that waits asks again by itself after 30 s: a lock that comes
/// earlier has come by the server's call.
const CALL_PATIENCE: Duration = Duration::from_secs(15);

/// How often both guests add one to a number under a lock, each with two
/// processes.
const COUNTS: u32 = 40;

/// How long a guest that boots may take to tell the server.
const RESTART_PATIENCE: Duration = Duration::from_secs(40);

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let network = Network::new()?;
    network.add(&SECOND_LINK)?;
    let mut server = Server::start_open(stage.paths, &network, &stage.folder)?;
    let mut pair = Pair {
        first: boot(stage, &network, &LINK, "first")?,
        second: boot(stage, &network, &SECOND_LINK, "second")?,
        deadline: stage.deadline,
    };
    for (name, scene) in SCENES {
        println!("  {name}");
        scene(&mut pair).with_context(|| (*name).to_owned())?;
    }
    println!("  a server that is killed");
    killed_server(&mut pair, &mut server).context("a server that is killed")?;
    println!("  a guest that is killed");
    let Pair { first, second, .. } = pair;
    killed_guest(stage, &network, first, second).context("a guest that is killed")?;
    server.stop()
}

/// The two guests.
struct Pair {
    first: Guest,
    second: Guest,
    deadline: Instant,
}

impl Pair {
    fn first(&mut self, order: &str, expected: &str) -> Result<()> {
        expect(&mut self.first, self.deadline, order, expected)
    }

    fn second(&mut self, order: &str, expected: &str) -> Result<()> {
        expect(&mut self.second, self.deadline, order, expected)
    }
}

fn expect(guest: &mut Guest, deadline: Instant, order: &str, expected: &str) -> Result<()> {
    let found = guest.ask(order, deadline)?;
    ensure!(found == expected, "{order}: {found}, not {expected}");
    Ok(())
}

fn boot(stage: &Stage<'_>, network: &Network, link: &Link, name: &str) -> Result<Guest> {
    let exchange = stage.folder.join(name);
    fs::create_dir_all(&exchange)?;
    let log: PathBuf = stage.log.with_file_name(format!("kernel-locks-{name}.log"));
    let job = Job {
        script: "locks.sh",
        variables: vec![
            ("SERVER", link.host.to_string()),
            ("ADDRESS", link.guest.to_string()),
            ("NAME", name.to_owned()),
            ("PORT", String::new()),
            ("MOUNT_PORT", String::new()),
            ("EXPORT", "/".to_owned()),
            ("MOUNT_OPTIONS", String::new()),
        ],
        disks: Vec::new(),
        log: &log,
        deadline: stage.deadline,
    };
    Guest::start(stage.paths, network, &job, link, &exchange)
        .with_context(|| format!("guest {name}: see {}", log.display()))
}

/// Something that the two do; each in files of its own.
type Scene = fn(&mut Pair) -> Result<()>;

const SCENES: &[(&str, Scene)] = &[
    ("locks are in each other's way", conflicts),
    ("who waits is called when the lock is free", waiting),
    ("a process that dies leaves no lock", dying_process),
    ("flock is a lock of the whole file", whole_files),
    ("two who wait for each other are told", deadlock),
    ("a number is counted by four without a loss", counting),
];

fn conflicts(pair: &mut Pair) -> Result<()> {
    pair.first("p lock a ex 0 10", "ok")?;
    pair.second("p lock a ex 9 1", "EAGAIN")?;
    pair.second("p lock a sh 0 1", "EAGAIN")?;
    pair.second("p test a ex 5 100", "ex 0 10")?;
    pair.second("p lock a ex 10 0", "ok")?;
    pair.first("p test a sh 100 1", "ex 10 0")?;
    // POSIX: what is taken again is changed, and cut where it is given up.
    pair.first("p unlock a 4 2", "ok")?;
    pair.second("p lock a ex 4 2", "ok")?;
    pair.second("p test a ex 0 1", "ex 0 4")?;
    pair.second("p test a ex 6 1", "ex 6 4")?;
    pair.first("p lock a sh 0 4", "ok")?;
    pair.second("p lock a sh 0 4", "ok")?;
    pair.second("p lock a ex 0 4", "EAGAIN")?;
    // Processes of one guest are strangers as well.
    pair.first("q lock a ex 6 4", "EAGAIN")?;
    for guest in [&mut pair.first, &mut pair.second] {
        expect(guest, pair.deadline, "p unlock a 0 0", "ok")?;
    }
    pair.first("q test a ex 0 0", "free")
}

fn waiting(pair: &mut Pair) -> Result<()> {
    pair.first("p lock b ex 0 0", "ok")?;
    pair.second("begin w lockw b ex 3 4", "begun")?;
    pair.second("begin v lockw b sh 7 1", "begun")?;
    pair.second("end w 2", "waiting")?;
    pair.first("p unlock b 0 0", "ok")?;
    let since = Instant::now();
    let seconds = CALL_PATIENCE.as_secs();
    pair.second(&format!("end w {seconds}"), "ok")?;
    pair.second(&format!("end v {seconds}"), "ok")?;
    println!("    after {:.1} s", since.elapsed().as_secs_f64());
    pair.first("p test b ex 0 0", "ex 3 4")?;
    pair.second("die w", "ok")?;
    pair.second("die v", "ok")
}

fn dying_process(pair: &mut Pair) -> Result<()> {
    pair.first("d lock c ex 0 0", "ok")?;
    pair.second("begin w lockw c ex 0 0", "begun")?;
    pair.second("end w 1", "waiting")?;
    pair.first("die d", "ok")?;
    pair.second(&format!("end w {}", CALL_PATIENCE.as_secs()), "ok")?;
    // One that dies while it waits stands in nobody's way later.
    pair.first("begin x lockw c ex 0 0", "begun")?;
    pair.first("end x 1", "waiting")?;
    pair.first("die x", "ok")?;
    pair.second("die w", "ok")?;
    pair.second("y lockw c ex 0 0", "ok")?;
    pair.second("die y", "ok")
}

fn whole_files(pair: &mut Pair) -> Result<()> {
    pair.first("p flock d ex", "ok")?;
    pair.second("p flock d sh", "EAGAIN")?;
    pair.second("p test d ex 0 1", "ex 0 0")?;
    pair.first("p flock d sh", "ok")?;
    pair.second("p flock d sh", "ok")?;
    pair.second("p flock d ex", "EAGAIN")?;
    pair.first("p flock d un", "ok")?;
    pair.second("p flock d ex", "ok")?;
    pair.second("p flock d un", "ok")
}

fn deadlock(pair: &mut Pair) -> Result<()> {
    pair.first("p lock e ex 0 1", "ok")?;
    pair.second("p lock e ex 1 1", "ok")?;
    pair.first("begin p lockw e ex 1 1", "begun")?;
    pair.first("end p 2", "waiting")?;
    pair.second("p lockw e ex 0 1", "EDEADLK")?;
    pair.second("p unlock e 0 0", "ok")?;
    pair.first(&format!("end p {}", CALL_PATIENCE.as_secs()), "ok")?;
    pair.first("p unlock e 0 0", "ok")
}

fn counting(pair: &mut Pair) -> Result<()> {
    let order = |name: &str| format!("begin {name} count number {COUNTS}");
    for name in ["c1", "c2"] {
        pair.first(&order(name), "begun")?;
        pair.second(&order(name), "begun")?;
    }
    let mut last = 0;
    for name in ["c1", "c2"] {
        for guest in [&mut pair.first, &mut pair.second] {
            let total = guest.ask(&format!("end {name} 100"), pair.deadline)?;
            last = last.max(total.parse::<u32>().with_context(|| total.clone())?);
        }
    }
    ensure!(last == 4 * COUNTS, "{last} counted, not {}", 4 * COUNTS);
    Ok(())
}

/// Killed and started again, the server has all locks; the guests are told, take
/// theirs again, and go on.
fn killed_server(pair: &mut Pair, server: &mut Server<'_>) -> Result<()> {
    pair.first("p lock f ex 0 10", "ok")?;
    pair.second("p lock f ex 10 10", "ok")?;
    pair.second("begin w lockw f ex 0 5", "begun")?;
    pair.second("end w 1", "waiting")?;
    server.kill();
    server.restart()?;
    let since = Instant::now();
    pair.second("p lock f ex 50 1", "ok")?;
    // The grace period is over: both guests were told.
    println!(
        "    a new lock after {:.1} s",
        since.elapsed().as_secs_f64()
    );
    pair.second("p lock f ex 0 1", "EAGAIN")?;
    pair.first("p test f ex 10 1", "ex 10 10")?;
    pair.second("end w 0", "waiting")?;
    pair.first("p unlock f 0 0", "ok")?;
    pair.second("end w 35", "ok")?;
    pair.first("p test f ex 0 0", "ex 0 5")?;
    pair.second("die w", "ok")?;
    pair.second("p unlock f 0 0", "ok")?;
    pair.first("p lock f ex 0 0", "ok")?;
    pair.first("p unlock f 0 0", "ok")
}

/// A guest dies with its locks: they stand until it has booted again and says so.
fn killed_guest(
    stage: &Stage<'_>,
    network: &Network,
    mut first: Guest,
    mut second: Guest,
) -> Result<()> {
    let deadline = stage.deadline;
    expect(&mut second, deadline, "p lock g ex 0 0", "ok")?;
    drop(second);
    expect(&mut first, deadline, "p lock g ex 0 0", "EAGAIN")?;
    expect(&mut first, deadline, "begin p lockw g ex 0 0", "begun")?;
    let mut second = boot(stage, network, &SECOND_LINK, "second")?;
    let seconds = RESTART_PATIENCE.as_secs();
    expect(&mut first, deadline, &format!("end p {seconds}"), "ok")?;
    expect(&mut second, deadline, "p lock g ex 0 0", "EAGAIN")?;
    expect(&mut first, deadline, "umount", "ok")?;
    expect(&mut second, deadline, "umount", "ok")
}
