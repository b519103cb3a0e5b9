//! Depots of nodes that are processes of their own: any process tells of them, and files of the
//! volume are read and written through them.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_lbone::{Answer, DepotQuery, Request};
use crossdock_tests_crash::client::Client;

use super::Processes;
use super::members::{Ensemble, Member};
use crate::rig::etcd::Etcd;
use crate::suite::Stage;
use crate::suite::cli::job;

/// In how much time an L-Bone has heard of a change, and has asked.
const HEARD_PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// In several stripes.
const FILM_BYTES: usize = 5_000_000;

/// Where the nodes are.
const PLACES: [&str; 3] = ["airport= TYS", "airport= TRN", "c= kr"];

pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let etcd = Etcd::start(stage.paths, None, &stage.folder)?;
    let ensemble = Ensemble::over(&etcd, stage)?;
    ensemble.init(&[])?;
    let node = |(number, place): (u32, &str)| {
        let more = ["--cache", "32M", "--lbone-location", place];
        ensemble.node_of(number, &more, &["ibp", "lbone"])
    };
    let manager = ["--grace", "1"];
    let gateway = ["--gateway-name", "gateway-a"];
    let mut processes = Processes {
        nodes: (0..).zip(PLACES).map(node).collect::<Result<_>>()?,
        managers: vec![ensemble.with_doors("manager-a", "manager", &manager, &["lbone"])?],
        gateways: vec![ensemble.with_doors(
            "gateway-a",
            "gateway",
            &gateway,
            &["nfs", "http", "lbone"],
        )?],
    };
    processes.await_whole(stage)?;
    tell_the_same(&processes).context("the L-Bone of every process")?;
    volume(&ensemble, &mut processes).context("files of the volume")?;
    processes.stop()
}

fn all<'all, 'stage>(
    processes: &'all Processes<'stage>,
) -> impl Iterator<Item = &'all Member<'stage>> {
    let all = processes.nodes.iter().chain(&processes.managers);
    all.chain(&processes.gateways)
}

/// Nodes have joined by themselves, with their places: whoever is asked says the same.
fn tell_the_same(processes: &Processes<'_>) -> Result<()> {
    let turin = processes.nodes[1].door("ibp")?;
    for member in all(processes) {
        await_live(member, 3)?;
        let near = Request::Depots(DepotQuery {
            depots_max: None,
            stable_mb: 1,
            volatile_mb: 0,
            duration_seconds: 60,
            location: "airport= GVA".to_owned(),
        });
        match ask(member.door("lbone")?, &near)? {
            Answer::Depots(depots) => {
                let first = depots.first().context("no depots")?;
                let at = format!("{}:{}", first.host, first.port);
                ensure!(
                    depots.len() == 3 && at == turin.to_string(),
                    "{} tells {depots:?}",
                    member.name()
                );
            }
            other => anyhow::bail!("{other:?}"),
        }
    }
    Ok(())
}

/// Waits until a process's L-Bone knows of so many depots that answer.
fn await_live(member: &Member<'_>, wanted: u32) -> Result<()> {
    let began = Instant::now();
    loop {
        match ask(member.door("lbone")?, &Request::Count)? {
            Answer::Count { live, .. } if live == wanted => return Ok(()),
            answer => ensure!(
                began.elapsed() < HEARD_PATIENCE,
                "{}: {answer:?}, not {wanted}",
                member.name()
            ),
        }
        thread::park_timeout(PAUSE);
    }
}

fn ask(lbone: SocketAddr, request: &Request) -> Result<Answer> {
    let mut stream = TcpStream::connect(lbone)?;
    stream.set_read_timeout(Some(HEARD_PATIENCE))?;
    stream.write_all(&request.encode())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(Answer::parse(request, &bytes)?)
}

/// The gateway has nodes of other processes make capabilities; with one node killed all bytes are at
/// others. A file comes back through the gateway.
fn volume(ensemble: &Ensemble<'_>, processes: &mut Processes<'_>) -> Result<()> {
    let gateway = &processes.gateways[0];
    let mut client = Client::connect(gateway.door("nfs")?)?;
    job::write_one(&mut client, "film", FILM_BYTES)?;
    let film = job::content("film", FILM_BYTES);
    let admin = gateway.door("admin")?.to_string();
    let folder = &ensemble.stage.folder;
    let [exnode, back] = ["film.xnd", "back"].map(|name| folder.join(name));
    let [exnode, back] = [&exnode, &back].map(|path| path.to_str().context("not UTF-8"));
    let (exnode, back) = (exnode?, back?);
    let export = ["exnode", "export", "/film", "-o", exnode, "--admin", &admin];
    ensemble.finish(&export)?.expect(0, &[])?;
    let text = fs::read_to_string(exnode)?;
    for node in &processes.nodes {
        let door = node.door("ibp")?;
        ensure!(
            text.contains(&format!("ibp://{door}/")),
            "{door} gives nothing"
        );
    }
    let download = [
        "download",
        exnode,
        "-o",
        back,
        "--force",
        "--forecasts",
        "off",
    ];
    let expect_same = || -> Result<()> {
        ensemble.finish(&download)?.expect(0, &[])?;
        ensure!(fs::read(back)? == film, "other bytes");
        Ok(())
    };
    expect_same()?;
    processes.nodes[0].kill();
    expect_same().context("with a node killed")?;
    for member in all(processes).skip(1) {
        await_live(member, 2)?;
    }
    processes.nodes[0].restart(ensemble.stage)?;
    processes.await_whole(ensemble.stage)?;
    for member in all(processes) {
        await_live(member, 3)?;
    }
    let import = ["exnode", "import", exnode, "/again", "--admin", &admin];
    ensemble.finish(&import)?.expect(0, &[])?;
    let again = job::lookup(&mut client, "again")?;
    let failures = job::read_handle(&mut client, &again, &film)?;
    ensure!(failures.iter().all(Option::is_none), "{failures:?}");
    Ok(())
}
