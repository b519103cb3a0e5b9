//! Exports of a running server: added, narrowed, removed under a mount; trees
//! that nobody climbs out of; squash; the same over IPv6.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::{Call, Create, CreateHow, Getattr, Mkdir, Rename, Setattr};
use crossdock_nfs3::{HandleBuffer, Location, Name, Path, Reply, SetAttributes, Status, mount};
use crossdock_tests_crash::client::{self, Client};

use super::job;
use super::pool;
use super::program::{Finished, Up, crossdock, finish, text};
use super::service::{self, NODES};
use crate::process::{output, program};
use crate::suite::Stage;

/// The anonymous user of clients.
const NOBODY: u32 = 65_534;

/// An address for documentation: nobody has it.
const NOWHERE: &str = "192.0.2.1";

/// A directory is exported and used; what is changed counts for mounts that are
/// there; the registry keeps it over a restart.
pub(super) fn changes(stage: &Stage<'_>) -> Result<()> {
    let up = service::start(stage)?;
    let mut admin = Client::connect(up.nfs)?;
    let root = admin.root();
    let home = make_directory(&mut admin, &root, "home")?;
    make_directory(&mut admin, &home, "inner")?;
    let beside = make_directory(&mut admin, &root, "beside")?;
    create(&mut admin, &home, "old").map_err(|status| anyhow::anyhow!("{status}"))?;

    let export = |words: &[&str]| up.ask(stage, &[&["export"], words].concat());
    let added = export(&["add", "//home/", "--squash", "root"])?.json(0)?;
    ensure!(
        added["export"]["path"] == "/home"
            && added["notes"].to_string().contains("inside the export /,"),
        "{added}"
    );
    refusals(&export)?;
    let mut user = Client::connect(up.nfs)?;
    let mounted = mount(&mut user, "/home")?.map_err(|status| anyhow::anyhow!("{status}"))?;
    climb(&mut admin, &mut user, [&root, &beside], &mounted)?;
    ensure!(
        mount(&mut user, "/beside/inner")?.is_ok() && mount(&mut user, "/home/old")?.is_err(),
        "sub-directories are mounted, files are not"
    );

    // The super user is somebody else behind this export.
    let made = create(&mut user, &mounted, "new");
    let made = made.map_err(|status| anyhow::anyhow!("{status}"))?;
    ensure!(
        owner(&mut user, &made)? == NOBODY,
        "the owner is not squashed"
    );
    let before =
        lookup(&mut user, &mounted, "old").map_err(|status| anyhow::anyhow!("{status}"))?;
    ensure!(
        chmod(&mut user, &before)? == Some(Status::Perm),
        "root was let through"
    );
    ensure!(chmod(&mut user, &made)?.is_none(), "the owner is refused");
    export(&["set", "/home", "--squash", "all", "--anonymous-uid", "7"])?.json(0)?;
    ensure!(
        chmod(&mut user, &made)? == Some(Status::Perm),
        "all are uid 7 now"
    );
    export(&["set", "/home", "--squash", "none"])?.json(0)?;
    ensure!(chmod(&mut user, &before)?.is_none(), "root is root now");

    export(&["set", "/home", "--access", "ro"])?.json(0)?;
    ensure!(
        create(&mut user, &mounted, "x").err() == Some(Status::Rofs),
        "written"
    );
    ensure!(lookup(&mut user, &mounted, "new").is_ok(), "not readable");
    narrow(&export, &mut user, &mounted)?;
    up.stop()?;
    after_restart(stage)
}

/// What an administrator may get wrong is refused with a next step.
fn refusals(export: &dyn Fn(&[&str]) -> Result<Finished>) -> Result<()> {
    let cases: [(&[&str], i32, &[&str]); 9] = [
        (&["add", "/home"], 1, &["already", "export set /home"]),
        (&["add", "/nowhere/x"], 1, &["/nowhere/x", "make it"]),
        (&["add", "/home/old"], 1, &["no directory"]),
        (&["add", "/home/../x"], 1, &["`..`"]),
        (&["add", "home"], 1, &["begin with /"]),
        (
            &["add", "/beside", "--allow", "0.0.0.0/0"],
            2,
            &["lets in everybody", "`everybody`"],
        ),
        (
            &["add", "/beside", "--allow", "10.0.0.0/33"],
            2,
            &["1 to 32"],
        ),
        (&["set", "/home"], 2, &["--allow", "--squash"]),
        (&["remove", "/beside"], 1, &["not exported", "export list"]),
    ];
    for (words, code, expected) in cases {
        export(words)?
            .expect(code, expected)
            .with_context(|| format!("{words:?}"))?;
    }
    Ok(())
}

/// Nobody leaves `mounted`: not at its root, and not from a directory that is
/// moved out of it.
fn climb(
    admin: &mut Client,
    user: &mut Client,
    [root, beside]: [&HandleBuffer; 2],
    mounted: &HandleBuffer,
) -> Result<()> {
    let at = |user: &mut Client, from: &HandleBuffer, name: &str| lookup(user, from, name);
    let inner = at(user, mounted, "inner").map_err(|status| anyhow::anyhow!("{status}"))?;
    ensure!(
        at(user, mounted, "..") == Ok(*mounted),
        "the root has a parent"
    );
    ensure!(at(user, &inner, "..") == Ok(*mounted), "no way back");
    let home = lookup(admin, root, "home").map_err(|status| anyhow::anyhow!("{status}"))?;
    ensure!(home != *mounted, "a handle does not know its export");
    let call = Call::Rename(Rename {
        source: location(&home, "inner"),
        target: location(beside, "inner"),
    });
    ensure!(admin.call(&call)?.status().is_none(), "cannot rename");
    ensure!(at(user, &inner, "..") == Err(Status::Acces), "climbed out");
    Ok(())
}

/// Clients that are let in no more, and an export that is gone.
fn narrow(
    export: &dyn Fn(&[&str]) -> Result<Finished>,
    user: &mut Client,
    mounted: &HandleBuffer,
) -> Result<()> {
    export(&["set", "/home", "--secure-port", "on"])?.json(0)?;
    ensure!(
        lookup(user, mounted, "new") == Err(Status::Acces),
        "any port will do"
    );
    let narrowed = ["set", "/home", "--secure-port", "off", "--allow", NOWHERE];
    let answer = export(&narrowed)?.json(0)?;
    ensure!(answer["notes"].to_string().contains("--nfs"), "{answer}");
    ensure!(
        lookup(user, mounted, "new") == Err(Status::Acces),
        "still let in"
    );
    ensure!(
        mount(user, "/home")? == Err(mount::Status::Acces),
        "still mounted"
    );
    let listed = exports(user)?;
    ensure!(
        listed == ["/ 127.0.0.0/8 ::1/128", &format!("/home {NOWHERE}/32")],
        "{listed:?}"
    );
    export(&["set", "/home", "--allow", "127.0.0.0/8"])?.json(0)?;
    ensure!(lookup(user, mounted, "new").is_ok(), "not let in again");
    export(&["remove", "/home"])?.json(0)?;
    ensure!(
        lookup(user, mounted, "new") == Err(Status::Stale),
        "still exported"
    );
    // It is a directory of the other export, as it was.
    ensure!(mount(user, "/home")?.is_ok(), "gone altogether");
    let allowed = ["add", "/home", "--allow", "everybody", "--access", "ro"];
    export(&allowed)?.json(0)?;
    ensure!(
        lookup(user, mounted, "new") == Err(Status::Stale),
        "handles of the removed export are good for the new one"
    );
    Ok(())
}

fn after_restart(stage: &Stage<'_>) -> Result<()> {
    let up = service::start(stage)?;
    let list = up.ask(stage, &["export", "list"])?.json(0)?;
    ensure!(
        list[1]["path"] == "/home"
            && list[1]["networks"] == serde_json::json!(["everybody"])
            && list[1]["read_only"] == true
            && list[1]["id"] == 3,
        "{list}"
    );
    let mut user = Client::connect(up.nfs)?;
    let mounted = mount(&mut user, "/home")?.map_err(|status| anyhow::anyhow!("{status}"))?;
    ensure!(
        lookup(&mut user, &mounted, "new").is_ok(),
        "another directory"
    );
    up.ask(stage, &["export", "remove", "/home"])?.json(0)?;
    up.stop()?;
    Ok(())
}

/// NFS and MOUNT over TCP and UDP, the admin API and allow lists, at `::1`,
/// beside IPv4: from a client of our own and from libnfs.
pub(super) fn ipv6(stage: &Stage<'_>) -> Result<()> {
    let data = pool(stage);
    let command = crossdock(stage, &["up", "--nodes", NODES, "--data", text(&data)?]);
    let both = "127.0.0.1:0,[::1]:0";
    let mut up = Up::start_at(stage, command, both, "[::1]:0")?;
    let [ipv4, ipv6] = up.nfs_doors[..] else {
        bail!("two doors instead of {:?}", up.nfs_doors);
    };
    ensure!(ipv6.is_ipv6() && up.admin.starts_with("[::1]:"), "no IPv6");
    let status = up.ask(stage, &["status"])?.json(0)?;
    ensure!(
        status["doors"][1]["address"] == ipv6.to_string(),
        "{status}"
    );
    for address in [ipv4, ipv6] {
        up.nfs = address;
        job::verify(&up, "first").with_context(|| address.to_string())?;
        over_udp(address).with_context(|| format!("UDP at {address}"))?;
    }
    job::write(&up, "six")?;
    job::verify(&up, "six")?;
    by_libnfs(ipv6)?;

    let mut client = Client::connect(ipv6)?;
    let root = client.root();
    let mut listed = dump(&mut client)?;
    listed.dedup();
    ensure!(listed == ["127.0.0.1 /", "::1 /"], "{listed:?}");
    let only = |allowed| up.ask(stage, &["export", "set", "/", "--allow", allowed]);
    only("127.0.0.0/8")?.json(0)?;
    ensure!(
        lookup(&mut client, &root, "six-1") == Err(Status::Acces),
        "let in"
    );
    only("[::1]")?.json(0)?;
    ensure!(lookup(&mut client, &root, "six-1").is_ok(), "not let in");
    only("127.0.0.0/8,::1")?.json(0)?;
    let (other, taken) = (stage.folder.join("other-6"), ipv6.to_string());
    let arguments = ["up", "--data", text(&other)?, "--nfs", &taken];
    finish(stage, &arguments)?.expect(1, &["nfs door", &taken, "in use"])?;
    up.stop()?;
    Ok(())
}

/// MNT and GETATTR in datagrams.
fn over_udp(address: SocketAddr) -> Result<()> {
    let root = match client::mount_by_datagram(address, &mount::Call::Mnt(Path(b"/")))? {
        mount::Reply::Mnt(Ok(mounted)) => mounted.root,
        other => bail!("{other:?}"),
    };
    let object = root.as_handle();
    match client::call_by_datagram(address, &Call::Getattr(Getattr { object }))? {
        Reply::Getattr(Ok(_)) => Ok(()),
        other => bail!("{other:?}"),
    }
}

/// libnfs takes an IPv6 address without brackets.
fn by_libnfs(address: SocketAddr) -> Result<()> {
    let url = format!(
        "nfs://{}/?version=3&nfsport={1}&mountport={1}",
        address.ip(),
        address.port()
    );
    let list = output(program("nfs-ls").arg(url))?;
    ensure!(list.lines().any(|line| line.ends_with(" six-1")), "{list}");
    Ok(())
}

fn mount(client: &mut Client, path: &str) -> Result<Result<HandleBuffer, mount::Status>> {
    match client.call_mount(&mount::Call::Mnt(Path(path.as_bytes())))? {
        mount::Reply::Mnt(mounted) => Ok(mounted.map(|mounted| mounted.root)),
        other => bail!("{other:?}"),
    }
}

/// Paths with their networks, as `showmount -e` shows them.
fn exports(client: &mut Client) -> Result<Vec<String>> {
    let mount::Reply::Export(exports) = client.call_mount(&mount::Call::Export)? else {
        bail!("no list");
    };
    let words = |export: &mount::Export| {
        let words = std::iter::once(&export.path).chain(&export.groups);
        let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word)).collect();
        words.join(" ")
    };
    Ok(exports.iter().map(words).collect())
}

/// Hosts with paths, as `showmount -a` shows them.
fn dump(client: &mut Client) -> Result<Vec<String>> {
    let mount::Reply::Dump(mounts) = client.call_mount(&mount::Call::Dump)? else {
        bail!("no list");
    };
    let words = |mount: &mount::Mount| {
        let [host, path] = [&mount.host, &mount.path].map(|word| String::from_utf8_lossy(word));
        format!("{host} {path}")
    };
    Ok(mounts.iter().map(words).collect())
}

pub(super) fn make_directory(
    client: &mut Client,
    at: &HandleBuffer,
    name: &str,
) -> Result<HandleBuffer> {
    let call = Call::Mkdir(Mkdir {
        location: location(at, name),
        attributes: SetAttributes {
            mode: Some(0o777),
            ..SetAttributes::default()
        },
    });
    match client.call(&call)? {
        Reply::Mkdir(Ok(made)) => made.object.context("no handle"),
        other => bail!("cannot make {name}: {:?}", other.status()),
    }
}

pub(super) fn create(
    client: &mut Client,
    at: &HandleBuffer,
    name: &str,
) -> Result<HandleBuffer, Status> {
    let call = Call::Create(Create {
        location: location(at, name),
        how: CreateHow::Guarded(SetAttributes::default()),
    });
    match client.call(&call) {
        Ok(Reply::Create(Ok(made))) => made.object.ok_or(Status::ServerFault),
        Ok(other) => Err(other.status().unwrap_or(Status::ServerFault)),
        Err(_) => Err(Status::ServerFault),
    }
}

fn lookup(client: &mut Client, at: &HandleBuffer, name: &str) -> Result<HandleBuffer, Status> {
    match client.call(&Call::Lookup(location(at, name))) {
        Ok(Reply::Lookup(Ok(found))) => Ok(found.object),
        Ok(other) => Err(other.status().unwrap_or(Status::ServerFault)),
        Err(_) => Err(Status::ServerFault),
    }
}

fn chmod(client: &mut Client, file: &HandleBuffer) -> Result<Option<Status>> {
    let call = Call::Setattr(Setattr {
        object: file.as_handle(),
        attributes: SetAttributes {
            mode: Some(0o640),
            ..SetAttributes::default()
        },
        guard: None,
    });
    Ok(client.call(&call)?.status())
}

fn owner(client: &mut Client, file: &HandleBuffer) -> Result<u32> {
    let object = file.as_handle();
    match client.call(&Call::Getattr(Getattr { object }))? {
        Reply::Getattr(Ok(attributes)) => Ok(attributes.uid),
        other => bail!("{other:?}"),
    }
}

pub(super) fn location<'a>(directory: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: directory.as_handle(),
        name: Name(name.as_bytes()),
    }
}
