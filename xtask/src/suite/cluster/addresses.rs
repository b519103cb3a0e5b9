//! Virtual addresses: a client that knows one address goes on there when the gateway
//! that has it dies or stands still.

use std::net::{IpAddr, SocketAddr};
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

pub(super) fn run(cluster: &mut Cluster<'_>) -> Result<()> {
    let doors = cluster.virtual_doors();
    let [first, second] = doors[..] else {
        bail!("the rig has not two virtual addresses: {doors:?}");
    };
    settle(cluster, &doors)?;
    answers_datagrams(first)?;
    let made = Made::new(first)?;
    take_over(cluster, first, "killed", |cluster, name| cluster.kill(name))?;
    made.check()?;
    // Gateways share them again when there are two.
    let dead = cluster.names_down();
    for name in &dead {
        cluster.restart(name)?;
    }
    settle(cluster, &doors)?;
    let stopped = take_over(cluster, second, "standing still", |cluster, name| {
        cluster.signal(name, Signal::STOP)
    })?;
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

/// Something happens to the gateway that has the address of `door`, and clients that
/// know nothing else go on there; which gateway it was.
fn take_over(
    cluster: &mut Cluster<'_>,
    door: SocketAddr,
    what: &str,
    happens: impl FnOnce(&mut Cluster<'_>, &str) -> Result<()>,
) -> Result<String> {
    let holder = one_holder(cluster, door.ip())?;
    let load = Load::start(&[door]);
    load.pause(ANSWERS)?;
    load.mark();
    happens(cluster, &holder)?;
    let pause = load.pause(ANSWERS)?;
    load.finish()?;
    println!(
        "{holder} {what}, clients stay at {}: longest answer {:.2} s",
        door.ip(),
        pause.as_secs_f64()
    );
    ensure!(pause <= PAUSE_MAX, "the take-over took too long");
    Ok(holder)
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
