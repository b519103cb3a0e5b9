//! A gateway that is scoped to an export (docs/decisions/0028): clients get that and nothing
//! else through it, also after its restart, and what it gives out is good at others.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{self, Call, CreateHow, StableHow};
use crossdock_nfs3::{HandleBuffer, Location, Name, Path, Reply, SetAttributes, Status, mount};
use crossdock_tests_crash::client::Client;
use crossdock_types::Payload;

use super::Processes;
use super::members::Ensemble;

/// How long the registry may take to tell all.
const PATIENCE: Duration = Duration::from_secs(10);

const LOOK_EVERY: Duration = Duration::from_millis(20);

const NAME: &str = "gateway-c";
const PATH: &str = "/scoped";
const TEXT: &[u8] = b"through a gateway that is trusted less";

/// Beyond the part of a file that its site has: nodes are asked, too.
const OFFSET: u64 = 200_000;

pub(super) fn run<'stage>(
    ensemble: &Ensemble<'stage>,
    processes: &mut Processes<'stage>,
) -> Result<()> {
    let admin = processes.managers[0].door("admin")?.to_string();
    let order = |words: &[&str]| ensemble.finish(&[words, &["--admin", &admin]].concat());
    let trusted = processes.doors()?[0];
    let mut client = Client::connect(trusted)?;
    let all = client.root();
    let _ = client.call(&Call::Mkdir(call::Mkdir {
        location: location(&all, "scoped"),
        attributes: SetAttributes::default(),
    }))?;
    order(&["export", "add", PATH])?.expect(0, &[])?;
    let scope = |name, exports| order(&["gateway", "scope", name, "--exports", exports]);
    scope("nobody", PATH)?.expect(1, &["no gateway nobody"])?;
    scope("gateway-a", "/nowhere")?.expect(1, &["/nowhere is not exported"])?;

    // By its token: it has the scope before it has a certificate.
    let more = ["--gateway-name", NAME, "--exports", PATH];
    let token = ensemble.token(&more)?;
    let identity = ensemble.identity(NAME);
    let identity = identity.to_str().context("not UTF-8")?;
    let join = |name: &str| {
        let words = ["cluster", "join", "--role", "gateway", "--token", &token];
        let more = ["--identity", identity, "--gateway-name", name];
        ensemble.finish(&[&words[..], &more, &ensemble.at(Ensemble::NAME)].concat())
    };
    join("gateway-d")?.expect(1, &["is for the gateway gateway-c"])?;
    join(NAME)?.expect(0, &[])?;
    let mut scoped = ensemble.gateway(NAME)?;
    let listed = order(&["gateway", "list"])?;
    listed.expect(0, &[])?;
    ensure!(listed.stdout.contains(PATH), "{}", listed.stdout);

    let door = scoped.door("nfs")?;
    let inside = wait("the export is mounted", || mounted(door, PATH))?;
    for path in ["/", "/elsewhere"] {
        ensure!(mounted(door, path)?.is_none(), "{path} is mounted");
    }
    let mut client = Client::connect_to(door, PATH)?;
    let file = written(&mut client, &inside)?;
    let stale = client.call(&getattr(&all))?;
    ensure!(stale.status() == Some(Status::Stale), "{stale:?}");
    let mut bytes = file.as_handle().as_bytes().to_vec();
    bytes[60] ^= 1;
    let forged = HandleBuffer::new(&bytes).context("too long")?;
    let refused = client.call(&getattr(&forged))?;
    ensure!(refused.status() == Some(Status::BadHandle), "{refused:?}");

    scoped.kill();
    scoped.restart(ensemble.stage)?;
    for door in [scoped.door("nfs")?, trusted] {
        let read = wait("it is read with the same handle", || read(door, &file))?;
        ensure!(read == TEXT, "{read:?}");
    }
    println!("a gateway that is scoped to {PATH} serves that, and nothing else");
    order(&["gateway", "scope", NAME, "--all"])?.expect(0, &["everything"])?;
    wait("/ is mounted", || mounted(scoped.door("nfs")?, "/"))?;
    processes.gateways.push(scoped);
    Ok(())
}

fn location<'a>(directory: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: directory.as_handle(),
        name: Name(name.as_bytes()),
    }
}

fn getattr(handle: &HandleBuffer) -> Call<'_> {
    let object = handle.as_handle();
    Call::Getattr(call::Getattr { object })
}

/// The handle of what is mounted there, if it is.
fn mounted(door: SocketAddr, path: &str) -> Result<Option<HandleBuffer>> {
    let Ok(mut client) = Client::connect_to(door, PATH) else {
        return Ok(None); // It does not know of the export yet.
    };
    match client.call_mount(&mount::Call::Mnt(Path(path.as_bytes())))? {
        mount::Reply::Mnt(Ok(mounted)) => Ok(Some(mounted.root)),
        mount::Reply::Mnt(Err(_)) => Ok(None),
        other => bail!("{other:?}"),
    }
}

/// A file with some text.
fn written(client: &mut Client, directory: &HandleBuffer) -> Result<HandleBuffer> {
    let made = client.call(&Call::Create(call::Create {
        location: location(directory, "file"),
        how: CreateHow::Unchecked(SetAttributes::default()),
    }))?;
    let Reply::Create(Ok(made)) = made else {
        bail!("{made:?}");
    };
    let file = made.object.context("no handle")?;
    let written = client.call(&Call::Write(call::Write {
        file: file.as_handle(),
        offset: OFFSET,
        count_bytes: u32::try_from(TEXT.len())?,
        stable: StableHow::FileSync,
        data: Payload::from(Bytes::from_static(TEXT)),
    }))?;
    ensure!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    Ok(file)
}

/// What is in the file, through that door.
fn read(door: SocketAddr, file: &HandleBuffer) -> Result<Option<Vec<u8>>> {
    let mut client = Client::connect_to(door, PATH)?;
    let reply = client.call(&Call::Read(call::Read {
        file: file.as_handle(),
        offset: OFFSET,
        count_bytes: 4096,
    }))?;
    match reply {
        Reply::Read(Ok(read)) => Ok(Some(read.data.to_bytes().to_vec())),
        other if other.status() == Some(Status::Jukebox) => Ok(None),
        other => bail!("{other:?}"),
    }
}

fn wait<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "not so: {what}");
        thread::park_timeout(LOOK_EVERY);
    }
}
