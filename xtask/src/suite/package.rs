//! The packages on a machine that has nothing else: a bare Debian tree.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Stage;
use crate::process::{Running, open_log, output, program, run_logged};
use crate::rig::server::READY_PATIENCE;
use crate::{fresh, package};

/// How long a stop may take.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// Installs the Debian package, starts the program as its own user, takes the
/// package away again; then the tarball, on nothing but a C library.
pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let packages = package::make(stage.paths)?;
    let sums = packages.sums.parent().context("no folder")?;
    let mut check = program("sha256sum");
    check
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(sums);
    run_logged(check, &stage.log, stage.deadline)?;

    let tree = stage.folder.join("tree");
    run_logged(
        copy_of(&fresh::base_tree(stage.paths)?, &tree),
        &stage.log,
        stage.deadline,
    )?;
    fs::copy(&packages.deb, tree.join("crossdock.deb"))?;
    inside(stage, &["dpkg", "--install", "/crossdock.deb"])?;
    inside(
        stage,
        &[
            "crossdock",
            "config",
            "check",
            "/etc/crossdock/crossdock.toml",
        ],
    )?;
    serves(stage, "/usr/bin/crossdock", &["--user", "crossdock"])?;
    let owner = output(
        Command::new("stat")
            .args(["-c", "%U %u"])
            .arg(tree.join("var/lib/crossdock/registry")),
    )?;
    ensure!(!owner.ends_with(" 0"), "the data belongs to root: {owner}");
    inside(stage, &["dpkg", "--remove", "crossdock"])?;
    ensure!(
        !tree.join("usr/bin/crossdock").exists(),
        "the program is still there"
    );
    ensure!(
        tree.join("var/lib/crossdock/registry").exists()
            && tree.join("etc/crossdock/crossdock.toml").exists(),
        "data or configuration went with the program"
    );
    inside(stage, &["dpkg", "--purge", "crossdock"])?;
    ensure!(
        !tree.join("etc/crossdock/crossdock.toml").exists(),
        "a purge leaves the configuration"
    );
    ensure!(
        tree.join("var/lib/crossdock/registry").exists(),
        "a purge takes the data"
    );

    let mut unpack = program("tar");
    unpack
        .arg("-xzf")
        .arg(&packages.tarball)
        .arg("-C")
        .arg(tree.join("opt"));
    run_logged(unpack, &stage.log, stage.deadline)?;
    let name = packages
        .tarball
        .file_name()
        .context("no name")?
        .to_string_lossy()
        .into_owned();
    let name = name.trim_end_matches(".tar.gz");
    serves(stage, &format!("/opt/{name}/usr/bin/crossdock"), &[])
}

fn copy_of(base: &std::path::Path, tree: &std::path::Path) -> Command {
    let mut copy = program("cp");
    copy.arg("-a").arg(base).arg(tree);
    copy
}

fn chroot(stage: &Stage<'_>, words: &[&str]) -> Command {
    let mut command = program("chroot");
    command.arg(stage.folder.join("tree")).args(words);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.current_dir("/");
    command
}

fn inside(stage: &Stage<'_>, words: &[&str]) -> Result<()> {
    run_logged(chroot(stage, words), &stage.log, stage.deadline)
}

/// Starts the program in the tree, and stops it when it is ready.
fn serves(stage: &Stage<'_>, binary: &str, more: &[&str]) -> Result<()> {
    let mut words = vec![binary, "up", "--data", "/var/lib/crossdock", "--nodes", "1"];
    words.extend([
        "--size",
        "100M",
        "--nfs",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--iscsi",
        "127.0.0.1:0",
        "--ibp",
        "127.0.0.1:0",
        "--lbone",
        "127.0.0.1:0",
    ]);
    words.extend(more);
    let mut command = chroot(stage, &words);
    // Each start has data of its own.
    let data = stage.folder.join("tree/var/lib/crossdock");
    if data.exists() {
        fs::remove_dir_all(data)?;
    }
    command.stdin(Stdio::null()).stderr(open_log(&stage.log)?);
    let (mut running, lines) = Running::start_with_output_lines(command, open_log(&stage.log)?)?;
    let deadline = Instant::now() + READY_PATIENCE;
    while let Some(line) = lines.next(deadline)? {
        if line.starts_with("admin ") {
            lines.ignore();
            let status = running.terminate(STOP_PATIENCE)?;
            ensure!(status.success(), "{binary} stopped with {status}");
            return Ok(());
        }
    }
    anyhow::bail!("{binary} ended before it was ready")
}
