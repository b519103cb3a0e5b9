//! Downloads over long lines, beside one stream of FTP and beside aria2c, and uploads (paper,
//! tests 1 and 2).

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::thread::sched_getaffinity;

use super::{Field, content};
use crate::bench::Keep;
use crate::bench::figures::Comparison;
use crate::process::{Running, open_log, run};
use crate::rig::depots;
use crate::rig::line::Line;
use crate::rig::network::Network;
use crate::rig::nginx::{Nginx, Variant};

/// As the paper's.
const BYTES: usize = 32 << 20;
const DEPOTS: usize = depots::ROUND_TRIPS.len();
const HTTP_PORT: u16 = 8080;
const FTP_PORT: u16 = 2121;
/// How long servers may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);
/// Goals of the issue: against one stream of FTP from so many threads on, and against aria2c.
const FTP_GOAL: f64 = 3.0;
const FTP_GOAL_THREADS: usize = 8;
const ARIA_GOAL: f64 = 1.0;
/// aria2c takes no more connections to one server.
const ARIA_PER_SERVER_MAX: usize = 16;

pub(super) fn download(field: &Field<'_>, keep: Keep<'_>) -> Result<()> {
    let world = World::start(field, "download", None)?;
    let mut ftp = Vec::new();
    for _ in 0..field.rounds() {
        ftp.push(world.rate(&mut world.ftp())?);
    }
    for depots in [1, 3, DEPOTS] {
        let exnode = world.upload(depots)?;
        // One thread takes longest, and is one stream however many depots there are.
        let threads: &[usize] = match (field.full, depots) {
            (true, _) => &[1, 2, 4, 8, 16, 32],
            (false, 1) => &[1, 8, 32],
            (false, _) => &[8, 32],
        };
        for &threads in threads {
            let (mut ours, mut aria) = (Vec::new(), Vec::new());
            for _ in 0..field.rounds() {
                ours.push(world.rate(&mut world.tool(&exnode, threads))?);
                aria.push(world.rate(&mut world.aria(depots, threads))?);
            }
            let compare = |name: &str, peer: &[f64], goal| {
                Comparison {
                    row: &format!("download-{depots}-depots"),
                    variant: format!("{threads} threads"),
                    place: Some((format!("{depots} depots"), threads)),
                    unit: "MB/s",
                    ours: &ours,
                    peer: (name, peer),
                    is_less_better: false,
                    goal,
                }
                .json()
            };
            let ftp_goal = (threads >= FTP_GOAL_THREADS).then_some(FTP_GOAL);
            keep(vec![
                compare("vsftpd, curl (one stream)", &ftp, ftp_goal),
                compare("nginx, aria2c", &aria, Some(ARIA_GOAL)),
            ]);
        }
    }
    Ok(())
}

/// Of an upload: its mappings.
const BLOCK_BYTES: usize = 1 << 20;

/// To one depot at the far end, with more and more threads.
pub(super) fn upload(field: &Field<'_>, keep: Keep<'_>) -> Result<()> {
    let depot = depots::far(0)?;
    let host = Line::server(0, depots::PORT).ip();
    let world = World::start(field, "upload", Some(host))?;
    let all: &[usize] = match field.full {
        true => &[1, 2, 4, 8, 16, 32],
        false => &[1, 8, 32],
    };
    let uploaded = world.folder.join("uploaded.xnd");
    let mappings: Vec<String> = (0..BYTES.div_ceil(BLOCK_BYTES))
        .map(|number| number.to_string())
        .collect();
    let mut one: Option<Vec<f64>> = None;
    for &threads in all {
        let mut rates = Vec::new();
        for _ in 0..field.rounds() {
            if uploaded.exists() {
                // The depot has no room for what all runs store.
                let mut trim = world.network.program(&world.binary);
                trim.arg("trim").arg(&uploaded);
                trim.args(["--mappings", &mappings.join(","), "--forecasts", "off"]);
                run(trim.stdin(Stdio::null()).stdout(Stdio::null()))?;
            }
            let count = threads.to_string();
            let mut upload = world.network.program(&world.binary);
            upload
                .args(["upload", "--block-size", "1M", "--duration", "10m"])
                .args(["--depot", &depot, "--threads", &count])
                .args(["--connections", &count, "--forecasts", "off", "--json"])
                .arg("-o")
                .arg(&uploaded)
                .arg(world.folder.join("root/film"))
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            let began = Instant::now();
            run(&mut upload)?;
            rates.push(BYTES as f64 / 1e6 / began.elapsed().as_secs_f64());
        }
        let one = one.get_or_insert_with(|| rates.clone());
        keep(vec![
            Comparison {
                row: "upload-1-depot",
                variant: format!("{threads} threads"),
                place: Some(("upload to 1 depot".to_owned(), threads)),
                unit: "MB/s",
                ours: &rates,
                peer: ("one thread", one),
                is_less_better: false,
                goal: (threads >= FTP_GOAL_THREADS).then_some(FTP_GOAL),
            }
            .json(),
        ]);
    }
    // What was stored is there, all of it.
    world.rate(&mut world.tool(&uploaded, 8))?;
    Ok(())
}

/// Servers of all kinds at one end, clients at the other.
struct World {
    network: Network,
    folder: PathBuf,
    binary: PathBuf,
    content: Vec<u8>,
    /// Where everything runs that is not the line.
    _running: Vec<Running>,
    _nginx: Nginx,
    _line: Line,
}

impl World {
    /// With `host` the depots' capabilities call their host so, and not as it was reached.
    fn start(field: &Field<'_>, name: &str, host: Option<IpAddr>) -> Result<Self> {
        let folder = field.folder(name)?;
        let network = Network::new()?;
        let cpus = sched_getaffinity(None)?;
        let last = (0..1024).rev().find(|&cpu| cpus.is_set(cpu)).unwrap_or(0);
        let line = depots::long_ways(field.paths, &network, last, &folder.join("line.log"))?;
        let binary = field.paths.release_binary();
        let content = content(BYTES);
        let root = folder.join("root");
        fs::create_dir_all(&root)?;
        fs::write(root.join("film"), &content)?;
        let listen = format!("0.0.0.0:{}", depots::PORT);
        let mut program = network.program(&binary);
        if let Some(host) = host {
            program.env("CROSSDOCK_IBP_HOST", host.to_string());
        }
        let depots = depots::start(program, DEPOTS, &listen, &folder)?;
        let running = vec![depots.running, vsftpd(&network, &root, &folder)?];
        let nginx = Nginx::start(
            Variant::Sendfile,
            &network,
            &root,
            &folder.join("nginx"),
            HTTP_PORT,
        )?;
        Ok(Self {
            network,
            folder,
            binary,
            content,
            _running: running,
            _nginx: nginx,
            _line: line,
        })
    }

    /// Has a copy of the film at each of so many depots; the exNode has them where they are seen
    /// from the far end.
    fn upload(&self, depots: usize) -> Result<PathBuf> {
        let near: Vec<String> = (0..depots).map(depots::near).collect();
        let copies = depots.to_string();
        let file = self.folder.join(format!("film-{depots}.xnd"));
        let mut upload = self.network.program(&self.binary);
        upload
            .args(["upload", "--direct", "--block-size", "4M"])
            .args(["--copies", &copies, "--depot", &near.join(",")])
            .args(["--forecasts", "off", "--json", "-o"])
            .arg(&file)
            .arg(self.folder.join("root/film"))
            .stdout(Stdio::null());
        run(&mut upload)?;
        depots::move_away(&file, depots)?;
        Ok(file)
    }

    fn out(&self) -> PathBuf {
        self.folder.join("out")
    }

    fn tool(&self, exnode: &Path, threads: usize) -> Command {
        let mut tool = self.network.program(&self.binary);
        let threads = threads.to_string();
        tool.args(["download", "--force", "--threads", &threads])
            .args([
                "--connections",
                &threads,
                "--forecasts",
                "off",
                "--json",
                "-o",
            ])
            .arg(self.out())
            .arg(exnode);
        tool
    }

    fn ftp(&self) -> Command {
        let mut curl = self.network.program("curl");
        curl.args(["--silent", "--show-error", "--output"])
            .arg(self.out());
        curl.arg(format!("ftp://{}/film", Line::server(0, FTP_PORT)));
        curl
    }

    /// As many connections as ours, spread over as many ways.
    fn aria(&self, depots: usize, threads: usize) -> Command {
        let mut aria = self.network.program("aria2c");
        let per_server = threads.div_ceil(depots).min(ARIA_PER_SERVER_MAX);
        aria.args([
            "--quiet",
            "--allow-overwrite=true",
            "--file-allocation=none",
        ])
        .args([
            "--no-conf",
            "--min-split-size=1M",
            "--auto-file-renaming=false",
        ])
        .arg(format!("--max-connection-per-server={per_server}"))
        .arg(format!("--split={threads}"))
        .arg(format!("--dir={}", self.folder.display()))
        .arg("--out=out");
        for depot in 0..depots.min(threads) {
            let path = u8::try_from(depot).unwrap_or(0);
            aria.arg(format!("http://{}/film", Line::server(path, HTTP_PORT)));
        }
        aria
    }

    /// Runs it, and compares what came; MB/s.
    fn rate(&self, command: &mut Command) -> Result<f64> {
        if self.out().exists() {
            fs::remove_file(self.out())?;
        }
        let began = Instant::now();
        let output = command.stdin(Stdio::null()).output()?;
        let elapsed = began.elapsed();
        ensure!(
            output.status.success(),
            "{command:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(
            fs::read(self.out())? == self.content,
            "{command:?}: other bytes"
        );
        Ok(BYTES as f64 / 1e6 / elapsed.as_secs_f64())
    }
}

/// Debian's vsftpd for anybody.
fn vsftpd(network: &Network, root: &Path, folder: &Path) -> Result<Running> {
    // Its user reads what lies there.
    for place in root.ancestors().take(3) {
        let mut mode = fs::metadata(place)?.permissions();
        mode.set_mode(mode.mode() | 0o055);
        fs::set_permissions(place, mode)?;
    }
    fs::create_dir_all("/run/vsftpd/empty")?;
    let config = folder.join("vsftpd.conf");
    fs::write(
        &config,
        format!(
            "listen=YES\nlisten_ipv6=NO\nlisten_port={FTP_PORT}\nbackground=NO\nanonymous_enable=YES\n\
             no_anon_password=YES\nlocal_enable=NO\nanon_root={}\nsecure_chroot_dir=/run/vsftpd/empty\n\
             xferlog_enable=NO\nuse_localtime=NO\nseccomp_sandbox=NO\n",
            root.display()
        ),
    )?;
    let log = open_log(&folder.join("vsftpd.log"))?;
    let mut command = network.program("vsftpd");
    command.arg(&config).stdin(Stdio::null());
    command.stdout(log.try_clone()?).stderr(log);
    let running = Running::start(command)?;
    let deadline = Instant::now() + PATIENCE;
    // It says nothing when it listens.
    let asks = |network: &Network| {
        let url = format!("ftp://127.0.0.1:{FTP_PORT}/");
        let mut curl = network.program("curl");
        let output = curl.args(["--silent", "--list-only", &url]).output();
        output.is_ok_and(|output| output.status.success())
    };
    while !asks(network) {
        ensure!(Instant::now() < deadline, "vsftpd does not answer");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    Ok(running)
}
