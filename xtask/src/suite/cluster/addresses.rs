//! Virtual addresses: a client that knows one address goes on there when the gateway
//! that has it dies or stands still.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::{self, Call, CreateHow};
use crossdock_nfs3::{HandleBuffer, Location, Name, Reply, SetAttributes};
use crossdock_tests_crash::client::{Client, call_by_datagram};
use rustix::process::Signal;

use super::ANSWERS;
use crate::rig::cluster::Cluster;
use crate::suite::ensemble::load::Load;

/// What a client may notice of a dead gateway.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long it may take until every gateway has its part of the addresses, or one that
/// was woken has given them up.
const PATIENCE: Duration = Duration::from_secs(20);

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Clients that ask one thing after the other, and how often.
const STEADY_CLIENTS: usize = 3;
const ASK_EVERY: Duration = Duration::from_millis(10);

pub(super) fn run(cluster: &mut Cluster<'_>) -> Result<()> {
    let doors = cluster.virtual_doors();
    let [first, second] = doors[..] else {
        bail!("the rig has not two virtual addresses: {doors:?}");
    };
    settle(cluster, &doors)?;
    answers_datagrams(first)?;
    let made = Made::new(first)?;
    die(cluster, first)?;
    made.check()?;
    // Gateways share them again when there are two.
    let dead = cluster.names_down();
    for name in &dead {
        cluster.restart(name)?;
    }
    settle(cluster, &doors)?;
    let stopped = stand_still(cluster, second)?;
    cluster.signal(&stopped, Signal::CONT)?;
    let others = |cluster: &Cluster<'_>| -> Result<bool> {
        let holders = cluster.holders(second.ip())?;
        Ok(holders.len() == 1 && !holders.contains(&stopped) && !cluster.runs(&stopped)?)
    };
    wait(
        cluster,
        "a gateway that was replaced gives its addresses up",
        others,
    )?;
    cluster.kill(&stopped)?;
    cluster.restart(&stopped)?;
    settle(cluster, &doors)
}

/// Every gateway has one.
fn settle(cluster: &Cluster<'_>, doors: &[SocketAddr]) -> Result<()> {
    wait(cluster, "each gateway has an address", |cluster| {
        let mut holders = Vec::new();
        for door in doors {
            holders.extend(cluster.holders(door.ip())?);
        }
        holders.sort();
        holders.dedup();
        Ok(holders.len() == doors.len())
    })
}

fn wait(
    cluster: &Cluster<'_>,
    what: &str,
    is_so: impl Fn(&Cluster<'_>) -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so(cluster)? {
        ensure!(Instant::now() < deadline, "not so: {what}");
        thread::park_timeout(LOOK_EVERY);
    }
    Ok(())
}

/// The gateway that has the address of `door` is killed, and clients that know nothing
/// else go on there.
fn die(cluster: &mut Cluster<'_>, door: SocketAddr) -> Result<()> {
    let holder = one_holder(cluster, door.ip())?;
    let load = Load::start("virtual", &[door]);
    load.pause(ANSWERS)?;
    load.mark();
    cluster.kill(&holder)?;
    let pause = load.pause(ANSWERS)?;
    load.finish()?;
    pause.judge(&format!("{holder} killed"))?;
    judge(&holder, "killed", door, pause.longest)
}

/// The same with one that stands still, while its machine acknowledges what clients
/// send: they wait until somebody wakes them. Which one it was.
fn stand_still(cluster: &Cluster<'_>, door: SocketAddr) -> Result<String> {
    let holder = one_holder(cluster, door.ip())?;
    let pause = Steady::around(door, || cluster.signal(&holder, Signal::STOP))?;
    judge(&holder, "stood still", door, pause)?;
    Ok(holder)
}

fn judge(holder: &str, what: &str, door: SocketAddr, pause: Duration) -> Result<()> {
    println!(
        "{holder} {what}, clients stay at {}: longest answer {:.2} s",
        door.ip(),
        pause.as_secs_f64()
    );
    ensure!(pause <= PAUSE_MAX, "the take-over took too long");
    Ok(())
}

/// Clients that keep their connections, as kernels do, and connect anew when one ends.
#[derive(Default)]
struct Steady {
    stops: AtomicBool,
    answers: AtomicU64,
}

impl Steady {
    /// The longest that one of them was without an answer while something happens, and
    /// until all have many.
    fn around(door: SocketAddr, happens: impl FnOnce() -> Result<()>) -> Result<Duration> {
        let clients: [Self; STEADY_CLIENTS] = std::array::from_fn(|_| Self::default());
        thread::scope(|scope| {
            let threads = clients.each_ref().map(|one| scope.spawn(|| one.work(door)));
            let more = |deadline: Instant| {
                let before = clients.each_ref().map(Self::count);
                while clients
                    .iter()
                    .zip(before)
                    .any(|(one, had)| one.count() < had + ANSWERS)
                {
                    ensure!(Instant::now() < deadline, "a client gets no answers");
                    thread::park_timeout(LOOK_EVERY);
                }
                Ok(())
            };
            let went_on = more(Instant::now() + PATIENCE)
                .and_then(|()| happens())
                .and_then(|()| more(Instant::now() + PATIENCE));
            clients
                .iter()
                .for_each(|one| one.stops.store(true, Ordering::Relaxed));
            went_on?;
            let pauses = threads.into_iter().filter_map(|thread| thread.join().ok());
            pauses.max().context("no clients")
        })
    }

    fn count(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// The longest time between two answers.
    fn work(&self, door: SocketAddr) -> Duration {
        let (mut longest, mut last) = (Duration::ZERO, Instant::now());
        while !self.stops.load(Ordering::Relaxed) {
            let Ok(mut client) = Client::connect(door) else {
                thread::park_timeout(ASK_EVERY);
                continue;
            };
            let root = client.root();
            let object = root.as_handle();
            while !self.stops.load(Ordering::Relaxed) {
                let reply = client.call(&Call::Getattr(call::Getattr { object }));
                if !matches!(reply, Ok(Reply::Getattr(Ok(_)))) {
                    break;
                }
                self.answers.fetch_add(1, Ordering::Relaxed);
                longest = longest.max(last.elapsed());
                last = Instant::now();
                thread::park_timeout(ASK_EVERY);
            }
        }
        longest
    }
}

fn one_holder(cluster: &Cluster<'_>, address: IpAddr) -> Result<String> {
    let mut holders = cluster.holders(address)?;
    ensure!(holders.len() == 1, "{address} is at {holders:?}");
    holders.pop().context("nobody has it")
}

/// UDP is answered from the address that was asked: the client takes nothing else.
fn answers_datagrams(door: SocketAddr) -> Result<()> {
    let reply = call_by_datagram(door, &Call::Null)?;
    ensure!(reply == Reply::Null, "{reply:?}");
    Ok(())
}

/// Changes of names that were answered by a gateway.
struct Made {
    door: SocketAddr,
    root: HandleBuffer,
    /// Numbers of the calls, and the answers.
    create: (u32, Reply),
    rename: (u32, Reply),
}

impl Made {
    fn new(door: SocketAddr) -> Result<Self> {
        let mut client = Client::connect(door)?;
        let root = client.root();
        let create = carry_out(&mut client, 0x7700_0001, &create(&root))?;
        let rename = carry_out(&mut client, 0x7700_0002, &rename(&root))?;
        ensure!(matches!(create.1, Reply::Create(Ok(_))), "{:?}", create.1);
        ensure!(matches!(rename.1, Reply::Rename(Ok(_))), "{:?}", rename.1);
        Ok(Self {
            door,
            root,
            create,
            rename,
        })
    }

    /// Sent again, through whoever has the address now, they get the same answers.
    fn check(&self) -> Result<()> {
        let mut client = Client::connect(self.door)?;
        let create = carry_out(&mut client, self.create.0, &create(&self.root))?;
        ensure!(create == self.create, "{create:?}, not {:?}", self.create);
        let rename = carry_out(&mut client, self.rename.0, &rename(&self.root))?;
        ensure!(rename == self.rename, "{rename:?}, not {:?}", self.rename);
        Ok(())
    }
}

fn carry_out(client: &mut Client, xid: u32, call: &Call<'_>) -> Result<(u32, Reply)> {
    ensure!(client.send_again(xid, call)?, "the connection is gone");
    client.receive()?.context("the connection is gone")
}

fn create(root: &HandleBuffer) -> Call<'_> {
    Call::Create(call::Create {
        location: place(root, "made"),
        how: CreateHow::Guarded(SetAttributes::default()),
    })
}

fn rename(root: &HandleBuffer) -> Call<'_> {
    Call::Rename(call::Rename {
        source: place(root, "made"),
        target: place(root, "renamed"),
    })
}

fn place<'a>(directory: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: directory.as_handle(),
        name: Name(name.as_bytes()),
    }
}
