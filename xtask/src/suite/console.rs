//! The console in a real browser: headless Chromium opens the page of a server
//! under load.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{Call, Commit, Create, CreateHow, Getattr, Read, StableHow, Write};
use crossdock_nfs3::{HandleBuffer, Location, Name, Reply, SetAttributes};
use crossdock_tests_crash::client::Client;
use crossdock_types::Payload;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::Stage;
use super::cli::program::{Up, crossdock, text};
use crate::console;
use crate::install;
use crate::paths::Paths;
use crate::process::{program, run_logged};
use crate::rig::server::Kind;

/// Clients, each with an address of its own.
const CLIENTS: u8 = 5;

/// Bytes of a READ or WRITE.
const PIECE_BYTES: usize = 32 << 10;

/// Pieces of a client's file: on both sides of what sites keep.
const PIECES: u64 = 24;

/// For how long the page is watched in the suite.
const SECONDS: u64 = 5;

/// For how long it is watched for a picture.
const PICTURE_SECONDS: u64 = 60;

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    console::check(stage.paths)?;
    watch(stage, &stage.folder.join("console.png"), SECONDS)
}

/// Takes the pictures of the docs, from a server under load.
pub(crate) fn take_picture(paths: &Paths) -> Result<()> {
    let folder = paths.test_data().join("console-picture");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let stage = Stage {
        paths,
        server: Kind::Crossdock,
        init: &[],
        log: paths.logs().join("console-picture.log"),
        folder,
        deadline: Instant::now() + Duration::from_secs(PICTURE_SECONDS + 120),
    };
    console::build(paths)?;
    let taken = stage.folder.join("console.png");
    watch(&stage, &taken, PICTURE_SECONDS)?;
    fs::copy(&taken, paths.root.join("docs/console.png"))?;
    println!("wrote docs/console.png");
    Ok(())
}

/// Has the browser check the page while clients work, and take a picture.
fn watch(stage: &Stage<'_>, picture: &Path, seconds: u64) -> Result<()> {
    install::browser()?;
    let data = stage.folder.join("data");
    // What waits for the disk shall be among the slow requests.
    let arguments = ["up", "--slow-ms", "2", "--data", text(&data)?];
    let up = Up::start(stage, crossdock(stage, &arguments))?;
    let is_over = AtomicBool::new(false);
    let watched = thread::scope(|scope| {
        let over = &is_over;
        let nfs = up.nfs;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || work(nfs, number, over)))
            .collect();
        let watched = open(stage, &up.admin, picture, seconds);
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client
                .join()
                .map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        watched
    });
    watched?;
    up.stop()?;
    Ok(())
}

fn open(stage: &Stage<'_>, admin: &str, picture: &Path, seconds: u64) -> Result<()> {
    let mut node = program("node");
    node.current_dir(stage.paths.target.join("console"));
    node.args(["test.mjs", "/usr/bin/chromium", &format!("http://{admin}/")]);
    node.args([text(picture)?, &seconds.to_string()]);
    run_logged(node, &stage.log, stage.deadline)
}

/// A client's work: a file is written, read and looked at, over and over, by
/// each in another measure.
fn work(server: SocketAddr, number: u8, is_over: &AtomicBool) -> Result<()> {
    let mut client = Client::over_stream(connect_from(number, server)?)?;
    let file = create(&mut client, &format!("file-{number}"))?;
    let data = Bytes::from(vec![number; PIECE_BYTES]);
    let measure = u64::from(number) + 1;
    for round in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let offset = round % PIECES * PIECE_BYTES as u64;
        let stable = if round % 7 == 0 {
            StableHow::FileSync
        } else {
            StableHow::Unstable
        };
        let count_bytes = u32::try_from(PIECE_BYTES)?;
        let reply = client.call(&Call::Write(Write {
            file: file.as_handle(),
            offset,
            count_bytes,
            stable,
            data: Payload::from(data.clone()),
        }))?;
        ensure!(matches!(reply, Reply::Write(Ok(_))), "{reply:?}");
        for _ in 0..measure {
            let object = file.as_handle();
            client.call(&Call::Getattr(Getattr { object }))?;
            let file = file.as_handle();
            client.call(&Call::Read(Read {
                file,
                offset,
                count_bytes,
            }))?;
        }
        if round % PIECES == 0 {
            let commit = Commit {
                file: file.as_handle(),
                offset: 0,
                count_bytes: 0,
            };
            client.call(&Call::Commit(commit))?;
            client.call(&Call::Lookup(in_root(&client.root(), "nothing")))?;
        }
    }
    Ok(())
}

fn create(client: &mut Client, name: &str) -> Result<HandleBuffer> {
    let root = client.root();
    let call = Call::Create(Create {
        location: in_root(&root, name),
        how: CreateHow::Unchecked(SetAttributes::default()),
    });
    match client.call(&call)? {
        Reply::Create(Ok(made)) => made.object.context("no handle"),
        other => anyhow::bail!("cannot make {name}: {:?}", other.status()),
    }
}

fn in_root<'a>(root: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: root.as_handle(),
        name: Name(name.as_bytes()),
    }
}

/// A connection from an address of the loopback network that is this client's.
fn connect_from(number: u8, server: SocketAddr) -> Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let own = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, number + 11), 0);
    bind(&socket, &own)?;
    connect(&socket, &server)?;
    Ok(TcpStream::from(socket))
}
