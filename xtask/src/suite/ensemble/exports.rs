//! Exports are changed through any process, and every gateway's door follows.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_nfs3::call::{self, Call};
use crossdock_nfs3::{HandleBuffer, Location, Name, Path, Reply, SetAttributes, Status, mount};
use crossdock_tests_crash::client::Client;

use super::Processes;
use crate::suite::Stage;
use crate::suite::cli::program::{Finished, finish};

/// How much later than the one that was asked another gateway may follow.
const PATIENCE: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_millis(20);

const PATH: &str = "/shared";

/// What is exported through one gateway is mounted through the other one, and refused by
/// both when it is removed.
pub(super) fn run(stage: &Stage<'_>, processes: &Processes<'_>) -> Result<()> {
    let [one, other] = &processes.gateways[..] else {
        anyhow::bail!("there are not two gateways");
    };
    let ask = |words: &[&str], admin: SocketAddr| -> Result<Finished> {
        finish(stage, &[words, &["--admin", &admin.to_string()]].concat())
    };
    let (first, second) = (one.door("admin")?, other.door("admin")?);
    let (door, other_door) = (one.door("nfs")?, other.door("nfs")?);
    make_directory(door)?;
    ask(&["export", "add", "/nowhere"], first)?.expect(1, &["no directory /nowhere"])?;
    ask(&["export", "add", PATH], first)?.expect(0, &[])?;
    ask(&["export", "add", PATH], first)?.expect(1, &["exported already"])?;
    let root = mounted(other_door)?;
    let listed = ask(&["export", "list", "--json"], second)?.json(0)?;
    let listed = listed.as_array().context("no list")?;
    let is_there = listed.iter().any(|export| export["path"] == PATH);
    ensure!(is_there, "{listed:?}");
    ask(&["export", "add", PATH], second)?.expect(1, &["exported already"])?;
    // A process without a door changes them, too.
    let manager = processes.managers[0].door("admin")?;
    let node = processes.nodes[0].door("admin")?;
    ask(&["export", "set", PATH, "--access", "ro"], node)?.expect(0, &[])?;
    wait("writing is refused", || {
        let mut client = Client::connect(other_door)?;
        let reply = client.call(&mkdir(&root, "below"))?;
        Ok(reply.status() == Some(Status::Rofs))
    })?;
    ask(&["export", "remove", PATH], manager)?.expect(0, &[])?;
    for door in [door, other_door] {
        wait("the handle is stale", || {
            let mut client = Client::connect(door)?;
            let reply = client.call(&getattr(&root))?;
            Ok(reply.status() == Some(Status::Stale))
        })?;
    }
    ask(&["export", "remove", PATH], first)?.expect(1, &["not exported"])
}

/// Mounts the export, once the gateway knows of it, and looks into it.
fn mounted(door: SocketAddr) -> Result<HandleBuffer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = Client::connect(door)?;
        let reply = client.call_mount(&mount::Call::Mnt(Path(PATH.as_bytes())))?;
        if let mount::Reply::Mnt(Ok(mounted)) = reply {
            let reply = client.call(&getattr(&mounted.root))?;
            // Below `/` it could be mounted before, too: then by a handle of that export.
            let is_own = mounted.root != at_root(&mut client)?;
            if is_own && matches!(reply, Reply::Getattr(Ok(_))) {
                return Ok(mounted.root);
            }
        }
        ensure!(Instant::now() < deadline, "{PATH} is not mounted");
        thread::park_timeout(LOOK_EVERY);
    }
}

/// The same directory, as the export `/` has it.
fn at_root(client: &mut Client) -> Result<HandleBuffer> {
    let root = client.root();
    let name = PATH.trim_start_matches('/');
    match client.call(&Call::Lookup(place(&root, name)))? {
        Reply::Lookup(Ok(found)) => Ok(found.object),
        other => anyhow::bail!("LOOKUP of {name}: {:?}", other.status()),
    }
}

fn make_directory(door: SocketAddr) -> Result<()> {
    let mut client = Client::connect(door)?;
    let root = client.root();
    match client.call(&mkdir(&root, PATH.trim_start_matches('/')))? {
        Reply::Mkdir(Ok(made)) => made.object.context("MKDIR without a handle").map(|_| ()),
        other => anyhow::bail!("MKDIR: {:?}", other.status()),
    }
}

fn getattr(directory: &HandleBuffer) -> Call<'_> {
    Call::Getattr(call::Getattr {
        object: directory.as_handle(),
    })
}

fn mkdir<'a>(directory: &'a HandleBuffer, name: &'a str) -> Call<'a> {
    Call::Mkdir(call::Mkdir {
        location: place(directory, name),
        attributes: SetAttributes::default(),
    })
}

fn place<'a>(directory: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: directory.as_handle(),
        name: Name(name.as_bytes()),
    }
}

fn wait(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "not so: {what}");
        thread::park_timeout(LOOK_EVERY);
    }
    Ok(())
}
