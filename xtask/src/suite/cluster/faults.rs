//! Faults over real sockets: cables cut, hosts that hear or say nothing, members of
//! etcd away, a file system full. Clients wait for their answers and get them, nothing
//! that was answered is lost, and how long they waited is printed.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::{self, Call, CreateHow, StableHow};
use crossdock_nfs3::{Location, Name, Reply, SetAttributes, Status};
use crossdock_tests_crash::client::Client;
use crossdock_types::Payload;
use rustix::process::Signal;

use super::{ANSWERS, at_client, await_supervised, finish, raise};
use crate::rig::cluster::{Cluster, Cut, Options};
use crate::suite::Stage;
use crate::suite::ensemble::load::Load;

const OPTIONS: [&str; 6] = ["--nodes", "4", "--clients", "1", "--node-disk", "3G"];

/// How long a fault lasts: others have been put in the place of what it hit (2 s), and
/// have served for as long again.
const FAULT: Duration = Duration::from_secs(4);

/// A client that hears nothing for so long asks another gateway.
const CLIENT_PATIENCE: Duration = Duration::from_secs(1);

/// Members of etcd that are a majority.
const MAJORITY: [&str; 2] = ["etcd-0", "etcd-1"];

/// What a node's file system has left when it is full soon.
pub(super) const LEFT_BYTES: u64 = 64 << 20;
/// One WRITE of what fills it, and how much is tried.
const PIECE_BYTES: usize = 1 << 20;
const FILLER_PIECES: u64 = 1024;

pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    let mut cluster = raise(stage, Options::parse(&OPTIONS)?)?;
    at_client(&mut cluster, |cluster| all(stage, cluster))
}

fn all(stage: &Stage<'_>, cluster: &mut Cluster<'_>) -> Result<()> {
    let doors = cluster.nfs_doors();
    let load = Load::start_within("client", &doors, CLIENT_PATIENCE);
    load.pause(ANSWERS)?;
    let mut faults = Faults {
        stage,
        cluster,
        load: &load,
    };
    faults.cables()?;
    faults.etcd()?;
    faults.full(doors[0])?;
    finish(stage, load, &doors).map(drop)
}

/// What happens, one after the other, while clients work.
struct Faults<'run, 'paths> {
    stage: &'run Stage<'run>,
    cluster: &'run mut Cluster<'paths>,
    load: &'run Load,
}

impl Faults<'_, '_> {
    /// Each role, each way: nothing passes, nothing arrives, nothing leaves.
    fn cables(&mut self) -> Result<()> {
        for cut in [Cut::Both, Cut::Hearing, Cut::Saying] {
            let how = match cut {
                Cut::Both => "is cut off",
                Cut::Hearing => "hears nothing",
                Cut::Saying => "says nothing",
            };
            let manager = self.cluster.serving_manager()?;
            for name in ["node-1", &manager, "gateway-0"] {
                self.event(
                    &format!("{name} {how}"),
                    |cluster| cluster.cut(name, cut),
                    |cluster| cluster.mend(name, cut),
                )?;
            }
        }
        Ok(())
    }

    /// One member, then two of the three: what runs goes on; what needs them says so,
    /// and is there once they are.
    fn etcd(&mut self) -> Result<()> {
        self.event(
            "one of etcd stands still",
            |cluster| cluster.signal("etcd-0", Signal::STOP),
            |cluster| cluster.signal("etcd-0", Signal::CONT),
        )?;
        self.event(
            "one of etcd is killed",
            // Who comes back without them is another member, which nobody has added.
            |cluster| cluster.kill_keeping_files("etcd-0"),
            |cluster| cluster.begin("etcd-0"),
        )?;
        // Whoever starts meanwhile waits and says so, and is the one that serves then.
        let waits = Cell::new(0);
        self.event(
            "two of etcd stand still; a gateway that starts meanwhile waits",
            |cluster| {
                let mut all = MAJORITY.iter();
                all.try_for_each(|name| cluster.signal(name, Signal::STOP))?;
                cluster.kill("gateway-1")?;
                cluster.begin("gateway-1")?;
                waits.set(cluster.pid("gateway-1")?);
                cluster.await_said("gateway-1", "etcd does not answer: waiting for it")
            },
            |cluster| {
                ensure!(cluster.runs("gateway-1")?, "gateway-1 has not waited");
                let mut all = MAJORITY.iter();
                all.try_for_each(|name| cluster.signal(name, Signal::CONT))?;
                cluster.await_ready("gateway-1")?;
                let is_it = cluster.pid("gateway-1")? == waits.get();
                ensure!(is_it, "another gateway-1 was started");
                cluster.await_said("gateway-1", "etcd answers")
            },
        )?;
        self.event(
            "two of etcd are killed",
            |cluster| {
                // A majority's files are all that the ensemble's registry is.
                let mut all = MAJORITY.iter();
                all.try_for_each(|name| cluster.kill_keeping_files(name))
            },
            |cluster| {
                let mut all = MAJORITY.iter();
                all.try_for_each(|name| cluster.begin(name))
            },
        )
    }

    /// A node's file system has no room: writes say so, all else goes on, and what is
    /// removed makes room again.
    fn full(&mut self, door: SocketAddr) -> Result<()> {
        self.load.tolerate_full(true);
        let mut filler = None;
        self.event(
            "the file system of node-2 is full, by a client's file",
            |cluster| {
                cluster.fill("node-2", LEFT_BYTES)?;
                filler = Some(fill(door)?);
                Ok(())
            },
            |_| remove(door),
        )?;
        let filled = filler.context("not filled")?;
        println!("    {filled} MiB were written until NOSPC");
        self.cluster.unfill("node-2")?;
        self.load.tolerate_full(false);
        self.load.mark();
        self.load.pause(ANSWERS).map(drop)
    }

    /// A fault begins, lasts, and ends; then all is whole again.
    fn event(
        &mut self,
        what: &str,
        begin: impl FnOnce(&mut Cluster<'_>) -> Result<()>,
        end: impl FnOnce(&mut Cluster<'_>) -> Result<()>,
    ) -> Result<()> {
        self.load.mark();
        begin(self.cluster).with_context(|| what.to_owned())?;
        self.load.go_on(FAULT)?;
        let during = self.load.pause(ANSWERS);
        let during = during.with_context(|| what.to_owned())?;
        self.load.mark();
        end(self.cluster).with_context(|| what.to_owned())?;
        let replaced =
            await_supervised(self.stage, self.cluster).with_context(|| format!("after: {what}"))?;
        let after = self.load.pause(ANSWERS);
        let after = after.with_context(|| format!("after: {what}"))?;
        println!(
            "{what}: {during}; when it was over {after}; started again: {}",
            match replaced.is_empty() {
                true => "none".to_owned(),
                false => replaced.join(", "),
            }
        );
        during.judge(what)?;
        after.judge(&format!("after: {what}"))
    }
}

const FILLER: &[u8] = b"filler";

/// Writes until there is no room; how many MiB that were.
pub(super) fn fill(door: SocketAddr) -> Result<u64> {
    let mut client = Client::connect(door)?;
    let root = client.root();
    let location = Location {
        directory: root.as_handle(),
        name: Name(FILLER),
    };
    let create = Call::Create(call::Create {
        location,
        how: CreateHow::Guarded(SetAttributes::default()),
    });
    let file = match client.call(&create)? {
        Reply::Create(Ok(made)) => made.object.context("CREATE without a handle")?,
        other => bail!("CREATE: {:?}", other.status()),
    };
    for piece in 0..FILLER_PIECES {
        let mut data = Payload::new();
        data.push(vec![7; PIECE_BYTES].into());
        let write = Call::Write(call::Write {
            file: file.as_handle(),
            offset: piece * PIECE_BYTES as u64,
            count_bytes: u32::try_from(PIECE_BYTES)?,
            stable: StableHow::FileSync,
            data,
        });
        match client.call(&write)?.status() {
            None => {}
            Some(Status::NoSpc) => return Ok(piece),
            Some(other) => bail!("WRITE {piece}: {other:?}"),
        }
    }
    bail!("{FILLER_PIECES} MiB were written, and there is room")
}

/// Removes it.
pub(super) fn remove(door: SocketAddr) -> Result<()> {
    let mut client = Client::connect(door)?;
    // Not a call that was sent before.
    client.count_from(client.next_xid() + (1 << 11));
    let root = client.root();
    let location = Location {
        directory: root.as_handle(),
        name: Name(FILLER),
    };
    let removed = client.call(&Call::Remove(location))?;
    ensure!(removed.status().is_none(), "REMOVE: {:?}", removed.status());
    Ok(())
}
