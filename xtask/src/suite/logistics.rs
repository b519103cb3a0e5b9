//! The logistic tools against a real pool: its nodes as depots, found through its L-Bone.

mod volume;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossdock_lbone::{Answer, Request};
use serde_json::Value;

use super::Stage;
use super::cli::job;
use super::cli::program::{Finished, crossdock, finish_command, text};
use crate::install;
use crate::process::{Running, open_log, program};

/// How long the pool may take to be ready, and its L-Bone to notice something.
const PATIENCE: Duration = Duration::from_secs(30);

const NODES: usize = 4;

/// As the README shows it.
const FILM_BYTES: usize = 100_000_000;

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    install::debian(&["python3-minimal"])?;
    let pool = Pool::start(stage)?;
    let live = u32::try_from(NODES)?;
    pool.wait_for(live)?;
    let film = job::content("film", FILM_BYTES);
    fs::write(pool.local("film"), &film)?;
    python(&pool).context("the example in Python")?;
    volume::run(&pool).context("files of the volume")?;
    pool.wait_for(live)?;
    coded_upload(&pool).context("coded upload")?;
    whole_life(&pool, &film).context("upload to download")?;
    coded_download(&pool, &film).context("coded download")?;
    pool.wait_for(live - 1)?;
    routing(&pool, &film).context("move, refresh, trim")?;
    historic(&pool).context("the historic names")?;
    pool.stop()
}

/// `crossdock up`, and a folder in which the tools run.
struct Pool<'test> {
    stage: &'test Stage<'test>,
    running: Running,
    depots: Vec<SocketAddr>,
    lbone: SocketAddr,
    nfs: SocketAddr,
    admin: String,
}

impl<'test> Pool<'test> {
    fn start(stage: &'test Stage<'test>) -> Result<Self> {
        let data = stage.folder.join("data");
        let log = stage.folder.join("server.log");
        let nodes = NODES.to_string();
        let mut command = crossdock(stage, &["up", "--data", text(&data)?, "--nodes", &nodes]);
        command
            .args(["--nfs", "127.0.0.1:0", "--node-http", "off"])
            .args(["--http", "127.0.0.1:0"])
            .args(["--admin", "127.0.0.1:0", "--size", "2G", "--replicas", "2"])
            .stdin(Stdio::null())
            .stderr(File::create(&log)?);
        let (running, lines) = Running::start_with_output_lines(command, open_log(&stage.log)?)?;
        let deadline = Instant::now() + PATIENCE;
        let (mut depots, mut admin, mut nfs) = (Vec::new(), None, None);
        let lbone = loop {
            let Some(line) = lines.next(deadline)? else {
                bail!("the server ended: {}", fs::read_to_string(&log)?);
            };
            match line.trim().split_once(' ') {
                Some(("ibp", address)) => depots.push(address.parse()?),
                Some(("nfs", address)) => nfs = Some(address.parse()?),
                Some(("admin", address)) => admin = Some(address.to_owned()),
                Some(("lbone", address)) => break address.parse()?,
                _ => {}
            }
        };
        lines.ignore();
        ensure!(depots.len() == NODES, "{depots:?}");
        Ok(Self {
            stage,
            running,
            depots,
            lbone,
            nfs: nfs.context("no NFS door")?,
            admin: admin.context("no admin door")?,
        })
    }

    fn local(&self, name: &str) -> PathBuf {
        self.stage.folder.join(name)
    }

    /// A command in the folder, which asks this pool's L-Bone.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = crossdock(self.stage, words);
        command
            .current_dir(&self.stage.folder)
            .env("HOME", &self.stage.folder)
            .env("CROSSDOCK_LBONE", self.lbone.to_string())
            .env("CROSSDOCK_ADMIN", &self.admin)
            .env("CROSSDOCK_FORECASTS", self.local("forecasts.json"));
        command
    }

    fn finish(&self, words: &[&str]) -> Result<Finished> {
        finish_command(self.stage, self.command(words))
    }

    /// What a tool prints as JSON.
    fn json(&self, words: &[&str]) -> Result<Value> {
        self.finish(&[words, &["--json"]].concat())?.json(0)
    }

    /// Waits until the L-Bone knows of so many depots that answer.
    fn wait_for(&self, depots: u32) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut stream = TcpStream::connect(self.lbone)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(&Request::Count.encode())?;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes)?;
            match Answer::parse(&Request::Count, &bytes)? {
                Answer::Count { live, .. } if live == depots => return Ok(()),
                answer => ensure!(Instant::now() < deadline, "{answer:?}, not {depots}"),
            }
        }
    }

    fn expect_same(&self, name: &str, content: &[u8]) -> Result<()> {
        let found = fs::read(self.local(name))?;
        ensure!(found == content, "{name}: {} other bytes", found.len());
        fs::remove_file(self.local(name))?;
        Ok(())
    }

    fn stop(mut self) -> Result<()> {
        let status = self.running.terminate(PATIENCE)?;
        ensure!(status.success(), "the server stopped with {status}");
        Ok(())
    }
}

/// The example of the documentation runs as it is.
fn python(pool: &Pool<'_>) -> Result<()> {
    let mut python = program("python3");
    let [first, second, ..] = pool.depots[..] else {
        bail!("too few depots");
    };
    python
        .arg(pool.stage.paths.root.join("docs/examples/ibp.py"))
        .args([first.to_string(), second.to_string()]);
    finish_command(pool.stage, python)?.says(&["256000 bytes stored", "copied", "released"])
}

/// The README's example: upload, stat, augment, a node stopped, download.
fn whole_life(pool: &Pool<'_>, film: &[u8]) -> Result<()> {
    let reports = ["--report", "up.json", "--timeline", "up.svg"];
    let told = pool.json(&[&["upload", "film"], &reports[..]].concat())?;
    ensure!(
        told["bytes"] == FILM_BYTES && told["mappings"] == 20,
        "{told}"
    );
    let report: Value = serde_json::from_slice(&fs::read(pool.local("up.json"))?)?;
    ensure!(
        report["blocks"].as_array().is_some_and(|it| it.len() >= 20),
        "{report}"
    );
    let picture = fs::read_to_string(pool.local("up.svg"))?;
    ensure!(picture.matches("<rect").count() >= 20);
    let stat = pool.json(&["stat", "film.xnd"])?;
    let mappings = stat["mappings"].as_array().context("no mappings")?;
    let lives = |it: &Value| {
        it["seconds_left"]
            .as_i64()
            .is_some_and(|left| left > 86_000)
    };
    ensure!(mappings.len() == 20 && mappings.iter().all(lives), "{stat}");
    let known = |it: &Value| it["forecast_bytes_per_second"].as_f64().is_some();
    ensure!(mappings.iter().any(known), "{stat}");
    let told = pool.json(&["augment", "film.xnd", "--copies", "1"])?;
    ensure!(told["mappings_added"] == 20, "{told}");
    pool.finish(&["node", "stop", "0"])?.expect(0, &[])?;
    let told = pool.json(&["download", "film.xnd", "-o", "copy"])?;
    ensure!(told["bytes"] == FILM_BYTES, "{told}");
    pool.expect_same("copy", film)?;
    let part = [
        "download",
        "film.xnd",
        "-o",
        "part",
        "--range",
        "10000000-20000001",
    ];
    pool.json(&part)?;
    pool.expect_same("part", &film[10_000_000..20_000_001])?;
    let there = pool.finish(&["download", "film.xnd", "-o", "film"])?;
    there.expect(1, &["film is there already"])
}

/// Before the node is stopped: one copy only, and what restores it.
fn coded_upload(pool: &Pool<'_>) -> Result<()> {
    fs::write(pool.local("key"), "5a".repeat(32))?;
    let words = ["upload", "film", "-o", "coded.xnd", "--code", "2+1"];
    let coding = ["--compress", "--encrypt", "--key", "key", "--checksum"];
    let told = pool.json(&[&words[..], &coding].concat())?;
    ensure!(told["mappings"] == 30, "{told}");
    let stat = pool.finish(&["stat", "coded.xnd"])?;
    stat.says(&["aes256_gcm_encrypt", "parity 2+1", "until 20"])
}

/// With a node stopped: all of it, but not without the key.
fn coded_download(pool: &Pool<'_>, film: &[u8]) -> Result<()> {
    pool.json(&["download", "coded.xnd", "-o", "decoded", "--key", "key"])?;
    pool.expect_same("decoded", film)?;
    let closed = pool.finish(&["download", "coded.xnd", "-o", "closed"])?;
    closed.expect(1, &["no mapping can be read", "a key is needed"])?;
    ensure!(!pool.local("closed").exists());
    Ok(())
}

/// What is left of the file goes elsewhere; what is not there any more is trimmed.
fn routing(pool: &Pool<'_>, film: &[u8]) -> Result<()> {
    let trimmed = pool.json(&["trim", "film.xnd", "--unreachable"])?;
    let removed = trimmed["removed"].as_array().context("nothing")?.len();
    ensure!(removed > 0, "{trimmed}");
    let refreshed = pool.json(&["refresh", "film.xnd", "--for", "2d"])?;
    ensure!(refreshed["failed"] == 0, "{refreshed}");
    let to = pool.depots[3].to_string();
    fs::write(pool.local("small"), &film[..5_000_000])?;
    let from = pool.depots[1].to_string();
    pool.json(&["upload", "small", "--depot", &from])?;
    pool.json(&["move", "small.xnd", "--depot", &to])?;
    let stat = pool.json(&["stat", "small.xnd"])?;
    ensure!(stat["mappings"][0]["depot"] == to.as_str(), "{stat}");
    pool.json(&[
        "modify",
        "small.xnd",
        "--remove",
        "write,manage",
        "-o",
        "public.xnd",
    ])?;
    ensure!(!fs::read_to_string(pool.local("public.xnd"))?.contains("MANAGE"));
    pool.json(&["download", "public.xnd", "-o", "moved"])?;
    pool.expect_same("moved", &film[..5_000_000])?;
    let measured = pool.json(&["forecast", &from, &to, "--probes", "2"])?;
    ensure!(
        measured["bandwidth_bytes_per_second"]["measurements"] == 2,
        "{measured}"
    );
    Ok(())
}

/// As scripts for LoRS have it, with an rc file, by name of the program and as subcommands.
fn historic(pool: &Pool<'_>) -> Result<()> {
    let mut rc = format!("LBONE_SERVER {} {}\n", pool.lbone.ip(), pool.lbone.port());
    rc += "DATA_BLOCKSIZE 1M\nDURATION 1h\n";
    fs::write(pool.local(".xndrc"), rc)?;
    let content = job::content("historic", 3_000_000);
    fs::write(pool.local("old"), &content)?;
    let upload = ["lors_upload", "-c", "2", "-k", "-z", "-h", "-f", "old"];
    pool.finish(&upload)?.expect(0, &[])?;
    let list = pool.finish(&["lors_ls", "old.xnd"])?;
    list.says(&["Hrwma  1", "1048576 127.0.0.1:"])?;
    ensure!(list.stdout.lines().count() == 6, "{}", list.stdout);
    pool.finish(&["lors_refresh", "-d", "1h", "old.xnd"])?
        .expect(0, &[])?;
    let link = pool.local("lors_download");
    std::os::unix::fs::symlink(pool.stage.paths.release_binary(), &link)?;
    let mut download = program(&link);
    download
        .args(["-t", "4", "-o", "old.back", "old.xnd"])
        .current_dir(&pool.stage.folder)
        .env("HOME", &pool.stage.folder);
    finish_command(pool.stage, download)?.expect(0, &[])?;
    pool.expect_same("old.back", &content)?;
    let trim = ["lors_trim", "-d", "-m", "0,1", "-f", "old.xnd"];
    pool.finish(&trim)?.expect(0, &[])?;
    let list = pool.finish(&["lors_ls", "old.xnd"])?;
    ensure!(list.stdout.lines().count() == 4, "{}", list.stdout);
    Ok(())
}
