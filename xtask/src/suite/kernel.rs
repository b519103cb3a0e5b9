//! Suites with the Linux kernel's NFS client: the scripts of tests/kernel, each
//! in a guest of its own against a server on fresh data.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Stage;
use super::pjdfstest::{Run, Table};
use crate::process::{output, run};
use crate::rig::guest::{self, Job};
use crate::rig::network::{HOST, Network};
use crate::rig::server::{Kind, Server};
use crate::rig::tree;

/// What the restart script prints when the server is to be killed.
pub(super) const KILL_MARK: &str = "@@kill";

/// What the basics script prints before what `crossdock quota` is to do.
const QUOTA_MARK: &str = "@@quota";

pub(super) fn basics(stage: &Stage<'_>) -> Result<()> {
    let is_ours = stage.server == Kind::Crossdock;
    let quotas = if is_ours { "yes" } else { "no" };
    let variables = vec![("QUOTAS", quotas.to_owned())];
    let mut quotas_set = 0;
    script_with(stage, "basics.sh", variables, |line, server| {
        if let Some(words) = line.strip_prefix(QUOTA_MARK) {
            quotas_set += 1;
            let words: Vec<&str> = words.split_whitespace().collect();
            server.administer(&[&["quota"], words.as_slice()].concat())?;
        }
        Ok(())
    })?;
    ensure!(!is_ours || quotas_set == 2, "{quotas_set} quotas were set");
    Ok(())
}

/// A made tree with links, modes and strange names, and real source: that of
/// every tenth crate that this workspace is built from.
pub(super) fn tree(stage: &Stage<'_>) -> Result<()> {
    tree_with(stage, 10)
}

/// The same with the source of all crates.
pub(super) fn tree_long(stage: &Stage<'_>) -> Result<()> {
    tree_with(stage, 1)
}

fn tree_with(stage: &Stage<'_>, every: usize) -> Result<()> {
    let made = stage.paths.test_data().join("tree");
    tree::make(&made)?;
    let sources = stage.folder.join("sources");
    copy_sources(stage, every, &sources)?;
    let mut trees = Vec::new();
    for folder in [made, sources] {
        let inner = folder.strip_prefix(&stage.paths.target)?;
        trees.push(format!("/run/target/{}", inner.display()));
    }
    script(stage, "tree.sh", vec![("TREES", trees.join(" "))])
}

pub(super) fn fsx(stage: &Stage<'_>) -> Result<()> {
    fsx_with(stage, "1 2", 3000)?;
    fsx_by_maps(stage, "3", 3000)
}

pub(super) fn fsx_long(stage: &Stage<'_>) -> Result<()> {
    fsx_with(stage, "11 12 13 14 15 16", 20_000)?;
    fsx_by_maps(stage, "17 18 19 20", 20_000)
}

pub(super) fn close_to_open(stage: &Stage<'_>) -> Result<()> {
    script(stage, "close-to-open.sh", vec![("ROUNDS", "60".to_owned())])
}

pub(super) fn sqlite(stage: &Stage<'_>) -> Result<()> {
    script(stage, "sqlite.sh", Vec::new())
}

/// POSIX's name and attribute calls, judged by the table beside the script.
pub(super) fn pjdfstest(stage: &Stage<'_>) -> Result<()> {
    judge_pjdfstest(stage, |said| {
        script_with(stage, "pjdfstest.sh", Vec::new(), |line, _server| {
            said.read(line)
        })
    })
}

/// The judgement of what `run` has read.
pub(super) fn judge_pjdfstest(
    stage: &Stage<'_>,
    run: impl FnOnce(&mut Run) -> Result<()>,
) -> Result<()> {
    let table = stage.paths.root.join("tests/kernel/pjdfstest.table");
    let table = Table::parse(&fs::read_to_string(table)?)?;
    let mut said = Run::default();
    let ended = run(&mut said);
    println!("{}", said.summary(&table));
    // A guest that did not come so far says more than what is missing then.
    ended?;
    said.judge(&table)
}

pub(super) fn restart(stage: &Stage<'_>) -> Result<()> {
    restart_with(stage, 200, 4)
}

pub(super) fn restart_long(stage: &Stage<'_>) -> Result<()> {
    restart_with(stage, 3000, 30)
}

fn fsx_with(stage: &Stage<'_>, seeds: &str, operations: u32) -> Result<()> {
    script(stage, "fsx.sh", fsx_variables(seeds, operations, 1))
}

/// The same with files that have block maps, and that are longer than several blocks.
fn fsx_by_maps(stage: &Stage<'_>, seeds: &str, operations: u32) -> Result<()> {
    if stage.server != Kind::Crossdock {
        return Ok(());
    }
    let network = Network::new()?;
    let arguments = &["--placement", "mapped"];
    let mut server = Server::start_told(arguments, stage.paths, &network, &stage.folder)?;
    let variables = fsx_variables(seeds, operations, 6);
    script_on(stage, &network, &mut server, "fsx.sh", variables, |_, _| {
        Ok(())
    })?;
    server.stop()
}

fn fsx_variables(seeds: &str, operations: u32, mib: u64) -> Vec<(&'static str, String)> {
    vec![
        ("SEEDS", seeds.to_owned()),
        ("OPERATIONS", operations.to_string()),
        ("LENGTH", (mib << 20).to_string()),
    ]
}

fn restart_with(stage: &Stage<'_>, rounds: u32, kills: u32) -> Result<()> {
    let variables = vec![("ROUNDS", rounds.to_string()), ("KILLS", kills.to_string())];
    let mut seen = 0;
    script_with(stage, "restart.sh", variables, |line, server| {
        if line == KILL_MARK {
            seen += 1;
            server.kill();
            server.restart()?;
        }
        Ok(())
    })?;
    ensure!(seen >= kills, "the server was killed only {seen} times");
    Ok(())
}

fn script(stage: &Stage<'_>, name: &str, variables: Vec<(&str, String)>) -> Result<()> {
    script_with(stage, name, variables, |_line, _server| Ok(()))
}

/// Runs a script in a guest; shows the guest's kernel and its first mount line,
/// which a run without a real client could not have.
fn script_with(
    stage: &Stage<'_>,
    name: &str,
    variables: Vec<(&str, String)>,
    on_line: impl FnMut(&str, &mut Server<'_>) -> Result<()>,
) -> Result<()> {
    let network = Network::new()?;
    let mut server = Server::start(stage.server, stage.paths, &network, &stage.folder)?;
    script_on(stage, &network, &mut server, name, variables, on_line)?;
    server.stop()
}

/// The same with a server that has been started.
fn script_on(
    stage: &Stage<'_>,
    network: &Network,
    server: &mut Server<'_>,
    name: &str,
    variables: Vec<(&str, String)>,
    mut on_line: impl FnMut(&str, &mut Server<'_>) -> Result<()>,
) -> Result<()> {
    let mut all = vec![
        ("SERVER", HOST.to_string()),
        ("PORT", server.port().to_string()),
        ("MOUNT_PORT", server.mount_port().to_string()),
        ("EXPORT", server.export()?),
        ("MOUNT_OPTIONS", server.mount_options().to_owned()),
    ];
    all.extend(variables);
    in_guest(stage, network, name, all, |line| on_line(line, server))
}

/// Where a guest finds NFS and MOUNT, which share a port, and mounts the whole volume.
pub(super) fn mount_variables(door: SocketAddr) -> Vec<(&'static str, String)> {
    vec![
        ("SERVER", door.ip().to_string()),
        ("PORT", door.port().to_string()),
        ("MOUNT_PORT", door.port().to_string()),
        ("EXPORT", "/".to_owned()),
        ("MOUNT_OPTIONS", String::new()),
    ]
}

/// The same with a server that stands already, as `variables` describe it.
pub(super) fn in_guest(
    stage: &Stage<'_>,
    network: &Network,
    name: &str,
    variables: Vec<(&str, String)>,
    mut on_line: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let job = Job {
        script: name,
        variables,
        disks: Vec::new(),
        log: &stage.log,
        deadline: stage.deadline,
    };
    let (mut kernel, mut mount) = (None, None);
    let code = guest::run_job(stage.paths, network, &job, |line| {
        if kernel.is_none() && line.starts_with("guest kernel ") {
            kernel = Some(line.to_owned());
        }
        if mount.is_none() && line.contains(" nfs rw,") {
            mount = Some(line.to_owned());
        }
        on_line(line)
    })?;
    println!("{}", kernel.context("the guest's kernel is not known")?);
    println!("{}", mount.context("the guest has mounted nothing")?);
    ensure!(code == 0, "{name} failed with {code}");
    Ok(())
}

/// Copies the sources of the first of every so many dependencies, as cargo has unpacked
/// them, to `to`.
fn copy_sources(stage: &Stage<'_>, every: usize, to: &PathBuf) -> Result<()> {
    // Only what this machine builds: the rest may not be downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = output(
        crate::process::cargo()
            .args(["metadata", "--format-version=1", "--filter-platform"])
            .arg(platform)
            .current_dir(&stage.paths.root),
    )?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    fs::create_dir_all(to)?;
    // Those with a source come from the registry; the others are our own.
    let foreign = |package: &&serde_json::Value| !package["source"].is_null();
    for package in packages.iter().filter(foreign).step_by(every) {
        let manifest = package["manifest_path"].as_str().context("no manifest")?;
        let folder = manifest.trim_end_matches("/Cargo.toml");
        run(Command::new("cp").args(["-r", folder]).arg(to))?;
    }
    Ok(())
}
