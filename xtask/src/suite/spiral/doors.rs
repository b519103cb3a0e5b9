//! Nodes send what clients read from gateways, over HTTP and NFS: an ensemble of real
//! processes, each on a host of its own, and clients that know nothing of it. Each byte is
//! compared, and the hosts' own counters have to say that nodes have sent them.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossdock_sim::random::Random;
use serde_json::Value;

use super::readers::read_head;
use crate::install;
use crate::process::{program, run_logged};
use crate::rig::cluster::{Cluster, Host, Options, Role, in_network};
use crate::suite::Stage;
use crate::suite::spiral::udp::Served;

/// Of the file that is read most.
pub(super) const FILE_BYTES: usize = 64 << 20;
/// Of what could have been sent by nodes, so much has to be.
pub(super) const INJECTED_MIN: f64 = 0.95;
/// What lies at a file's site: gateways send it themselves.
pub(super) const SITE_BYTES: u64 = 64 << 10;
const HTTP_PORT: u16 = 8080;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    with_doors(stage, "suite-spiral-doors", |doors| doors.all())
}

/// Raises the rig of that name with a long file, and does `work` in its client's network.
pub(super) fn with_doors(
    stage: &Stage<'_>,
    rig: &str,
    work: impl FnOnce(&mut Doors<'_, '_>) -> Result<()> + Send,
) -> Result<()> {
    install::debian(&["curl", "iproute2", "libnfs-utils", "nftables", "util-linux"])?;
    install::etcd(stage.paths)?;
    let mut options = Options::spiral().with(&["--nodes", "3", "--clients", "1"])?;
    options.init = stage.init.to_vec();
    let folder = stage.folder.join("rig");
    let mut cluster = Cluster::up(stage.paths, rig, &folder, &options)?;
    let client = cluster.of(Role::Client).next().context("no client")?;
    let netns = client.netns.clone();
    in_network(&netns, || work(&mut Doors::new(stage, &mut cluster)?))
}

/// An ensemble with a file, and what was sent so far.
pub(super) struct Doors<'a, 'paths> {
    stage: &'a Stage<'a>,
    pub(super) cluster: &'a mut Cluster<'paths>,
    /// Of the first gateway.
    pub(super) http: SocketAddr,
    pub(super) other: SocketAddr,
    token: String,
    pub(super) content: Vec<u8>,
}

/// What was sent in which way, of all hosts together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) injected: u64,
    relayed: u64,
    pub(super) by_nodes: u64,
    /// What has left the gateways by their links.
    pub(super) from_gateways: u64,
    pub(super) pins: u64,
}

impl<'a, 'paths> Doors<'a, 'paths> {
    fn new(stage: &'a Stage<'a>, cluster: &'a mut Cluster<'paths>) -> Result<Self> {
        let words = ["token", "create", "--read", "--write", "--json"];
        let made = cluster.ask("manager-0", &words)?;
        let token = made["token"].as_str();
        let token = token
            .with_context(|| format!("no token: {made}"))?
            .to_owned();
        let mut doors = cluster.of(Role::Gateway).map(|host| host.address);
        let mut door = || Some(SocketAddr::from((doors.next()?, HTTP_PORT)));
        let (http, other) = (door().context("a gateway")?, door().context("two")?);
        let mut content = vec![0; FILE_BYTES];
        Random::new(6).fill(&mut content);
        drop(doors);
        let doors = Self {
            stage,
            cluster,
            http,
            other,
            token,
            content,
        };
        doors.put("/big.bin", &doors.content)?;
        Ok(doors)
    }

    fn all(&mut self) -> Result<()> {
        self.have_all_injected()?;
        self.counted("whole files", 2, Self::whole_files)?;
        self.counted("ranges", 0, Self::ranges)?;
        self.small_files().context("small files")?;
        self.counted("pipelined", 0, Self::pipelined)?;
        self.counted("HTTP/1.0", 1, Self::old_http)?;
        self.counted("many at once", 24, Self::many_at_once)?;
        self.counted("who reads slowly", 0, Self::slowly)?;
        self.leaving().context("clients that leave")?;
        self.counted("NFS over TCP", 1, Self::over_nfs)?;
        self.over_udp()?;
        self.overwritten().context("overwritten")?;
        self.status().context("what status and top say")?;
        self.node_killed().context("a node killed")?;
        self.gateway_killed().context("a gateway killed")?;
        self.forged().context("a stranger's datagrams")
    }

    /// Does something that reads long files, `small` of whose parts gateways send themselves:
    /// nodes have sent what they could.
    pub(super) fn counted(
        &mut self,
        what: &str,
        small: u64,
        act: impl FnOnce(&Self) -> Result<u64>,
    ) -> Result<()> {
        let before = self.sent()?;
        let began = Instant::now();
        let bytes = act(self).with_context(|| what.to_owned())?;
        let took = began.elapsed();
        let after = self.sent()?;
        let eligible = bytes.saturating_sub(small * SITE_BYTES) as f64;
        let injected = (after.injected - before.injected) as f64 / eligible;
        let by_nodes = (after.by_nodes - before.by_nodes) as f64 / eligible;
        let link = (after.from_gateways - before.from_gateways) as f64 / bytes as f64;
        println!(
            "{what}: {bytes} bytes, {:.1} % of the eligible sent by nodes ({:.1} % with what was repeated), gateways' links {:.1} %, {:.0} MB/s",
            100.0 * injected,
            100.0 * by_nodes,
            100.0 * link,
            bytes as f64 / took.as_secs_f64() / 1e6,
        );
        ensure!(injected >= INJECTED_MIN, "{before:?} {after:?}");
        ensure!(by_nodes >= INJECTED_MIN, "{before:?} {after:?}");
        ensure!(link < 0.25, "{before:?} {after:?}");
        Ok(())
    }

    /// Hosts of a role that have not been killed.
    pub(super) fn running(&self, role: Role) -> Vec<String> {
        let down = self.cluster.names_down();
        let names = self.cluster.of(role).map(|host| host.name.clone());
        names.filter(|name| !down.contains(name)).collect()
    }

    pub(super) fn sent(&self) -> Result<Sent> {
        let mut sent = Sent {
            injected: 0,
            relayed: 0,
            by_nodes: 0,
            from_gateways: 0,
            pins: 0,
        };
        for host in self.running(Role::Gateway) {
            let told = self.transfer(&host)?;
            sent.injected += told["injected_bytes"].as_u64().unwrap_or(0);
            let relayed = told["relayed_bytes"].as_object().into_iter().flatten();
            sent.relayed += relayed.filter_map(|(_, bytes)| bytes.as_u64()).sum::<u64>();
            sent.from_gateways += self.cluster.received_from(&host)?;
        }
        for host in self.running(Role::Node) {
            let told = self.transfer(&host)?;
            sent.by_nodes += told["sent_bytes"].as_u64().unwrap_or(0);
            sent.pins += told["pins"].as_u64().unwrap_or(0);
        }
        Ok(sent)
    }

    pub(super) fn transfer(&self, host: &str) -> Result<Value> {
        self.cluster.ask(host, &["status", "--spiral", "--json"])
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    pub(super) fn put(&self, path: &str, content: &[u8]) -> Result<()> {
        let file = self.stage.folder.join("sent");
        fs::write(&file, content)?;
        let mut curl = self.curl_to_write();
        curl.arg("-T").arg(&file);
        curl.arg(format!("http://{}{path}", self.other));
        run_logged(curl, &self.stage.log, self.stage.deadline)
    }

    fn received(&self, name: &str) -> PathBuf {
        self.stage.folder.join(format!("received-{name}"))
    }

    /// A curl that may change something.
    pub(super) fn curl_to_write(&self) -> Command {
        let mut curl = program("curl");
        curl.args(["-sS", "--fail", "--max-time", "60"]);
        curl.args(["-H", &format!("Authorization: Bearer {}", self.token)]);
        curl
    }

    pub(super) fn curl(&self, words: &[&str], name: &str) -> Result<Vec<u8>> {
        let file = self.received(name);
        let mut curl = program("curl");
        curl.args(["-sS", "--fail", "--max-time", "60", "-o"])
            .arg(&file);
        run_logged(curl_with(curl, words), &self.stage.log, self.stage.deadline)?;
        let content = fs::read(&file)?;
        fs::remove_file(&file)?;
        Ok(content)
    }

    pub(super) fn compare(&self, from: usize, got: &[u8]) -> Result<()> {
        let expected = self.content.get(from..from + got.len());
        let expected = expected.context("bytes behind the end")?;
        if got == expected {
            return Ok(());
        }
        let mut both = got.iter().zip(expected);
        let at = both.position(|(a, b)| a != b).unwrap_or(0);
        bail!("byte {} is {}, not {}", from + at, got[at], expected[at])
    }

    /// Of the long file.
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// The same as readers call it.
    pub(super) fn judge(&self, from: u64, got: &[u8]) -> Result<()> {
        self.compare(usize::try_from(from)?, got)
    }

    pub(super) fn client(&self) -> Result<&Host> {
        self.cluster.of(Role::Client).next().context("no client")
    }

    /// Waits until a gateway knows all nodes that send.
    pub(super) fn await_tunnels(&self, gateway: &str) -> Result<()> {
        self.until("all tunnels are there", || {
            Ok(self.transfer(gateway)?["tunnels"].as_u64() == Some(3))
        })
    }

    pub(super) fn whole_files(&self) -> Result<u64> {
        for _ in 0..2 {
            self.whole_of("/big.bin")?;
        }
        Ok(2 * FILE_BYTES as u64)
    }

    /// Files that end below what sites keep, each written over between two reads of it.
    fn small_files(&self) -> Result<()> {
        let before = self.sent()?;
        let mut random = Random::new(13);
        let mut bytes = 0;
        for number in 0..12 {
            let path = format!("/small-{number}.bin");
            for _ in 0..2 {
                let length = 20_000 + random.index(45_000);
                let from = random.index(FILE_BYTES - length);
                self.put(&path, &self.content[from..from + length])?;
                let got = self.curl(&[&self.url(&path)], "small")?;
                ensure!(got.len() == length, "{} of {length} bytes", got.len());
                self.compare(from, &got)?;
                bytes += length as u64;
            }
        }
        let after = self.sent()?;
        let [injected, by_nodes] = [
            after.injected - before.injected,
            after.by_nodes - before.by_nodes,
        ]
        .map(|sent| sent as f64 / bytes as f64);
        println!(
            "small files: {bytes} bytes, {:.1} % of them sent by nodes",
            100.0 * injected
        );
        ensure!(
            injected.min(by_nodes) >= INJECTED_MIN,
            "{before:?} {after:?}"
        );
        Ok(())
    }

    fn ranges(&self) -> Result<u64> {
        let mut random = Random::new(7);
        let mut bytes = 0;
        for round in 0..24 {
            let length = match round {
                0 => 1,
                1 => FILE_BYTES / 2,
                _ => 64 * 1024 + random.index(3 << 20),
            };
            let from = 65_536 + random.index(FILE_BYTES - length - 65_536);
            let range = format!("{from}-{}", from + length - 1);
            let got = self.curl(&["-r", &range, &self.url("/big.bin")], "range")?;
            ensure!(got.len() == length, "{} of {length} bytes", got.len());
            self.compare(from, &got)?;
            bytes += length as u64;
        }
        Ok(bytes)
    }

    /// Requests that are sent before the answers to earlier ones have come.
    fn pipelined(&self) -> Result<u64> {
        let mut random = Random::new(8);
        let mut socket = self.connect()?;
        let mut ranges = Vec::new();
        for _ in 0..10 {
            let length = 100_000 + random.index(900_000);
            let from = 65_536 + random.index(FILE_BYTES - length - 65_536);
            ranges.push((from, length));
        }
        let requests: String = ranges
            .iter()
            .map(|(from, length)| {
                let last = from + length - 1;
                format!("GET /big.bin HTTP/1.1\r\nHost: x\r\nRange: bytes={from}-{last}\r\n\r\n")
            })
            .collect();
        socket.write_all(requests.as_bytes())?;
        let mut sum = 0;
        for (from, length) in ranges {
            let head = read_head(&mut socket)?;
            ensure!(head.starts_with("HTTP/1.1 206 "), "{head}");
            let mut body = vec![0; length];
            socket.read_exact(&mut body)?;
            self.compare(from, &body)?;
            sum += length as u64;
        }
        Ok(sum)
    }

    fn old_http(&self) -> Result<u64> {
        let got = self.curl(&["--http1.0", &self.url("/big.bin")], "old")?;
        ensure!(got.len() == FILE_BYTES, "{} bytes", got.len());
        self.compare(0, &got)?;
        Ok(FILE_BYTES as u64)
    }

    fn many_at_once(&self) -> Result<u64> {
        let sum = AtomicU64::new(0);
        let read = || -> Result<()> {
            let mut socket = self.connect()?;
            socket
                .write_all(b"GET /big.bin HTTP/1.1\r\nHost: x\r\nRange: bytes=0-8388607\r\n\r\n")?;
            read_head(&mut socket)?;
            let mut body = vec![0; 8 << 20];
            socket.read_exact(&mut body)?;
            sum.fetch_add(body.len() as u64, Relaxed);
            self.compare(0, &body)
        };
        let netns = &self.client()?.netns;
        thread::scope(|scope| {
            let all: Vec<_> = (0..24)
                .map(|_| scope.spawn(|| in_network(netns, read)))
                .collect();
            all.into_iter()
                .try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("a panic"))?)
        })?;
        Ok(sum.into_inner())
    }

    fn slowly(&self) -> Result<u64> {
        let words = [
            "--limit-rate",
            "4M",
            "-r",
            "1048576-13631487",
            &self.url("/big.bin"),
        ];
        let got = self.curl(&words, "slow")?;
        ensure!(got.len() == 12 << 20, "{} bytes", got.len());
        self.compare(1 << 20, &got)?;
        Ok(got.len() as u64)
    }

    /// Clients that are gone leave nothing behind.
    fn leaving(&self) -> Result<()> {
        for round in 0..20 {
            let mut socket = self.connect()?;
            socket.write_all(b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n")?;
            let mut some = vec![0; 100_000 + round * 70_000];
            read_head(&mut socket)?;
            socket.read_exact(&mut some)?;
            self.compare(0, &some)?;
        }
        self.until("the pins are back", || Ok(self.sent()?.pins == 0))
    }

    fn over_nfs(&self) -> Result<u64> {
        self.whole_over_nfs("/big.bin")?;
        Ok(FILE_BYTES as u64)
    }

    /// A copy of the long file, whole, over HTTP.
    pub(super) fn whole_of(&self, path: &str) -> Result<()> {
        let got = self.curl(&[&self.url(path)], "whole")?;
        ensure!(got.len() == FILE_BYTES, "{} bytes", got.len());
        self.compare(0, &got)
    }

    /// The same over NFS.
    pub(super) fn whole_over_nfs(&self, path: &str) -> Result<()> {
        let door = self.cluster.nfs_doors()[0];
        let (ip, port) = (door.ip(), door.port());
        let url = format!("nfs://{ip}/{path}?version=3&nfsport={port}&mountport={port}");
        let got = program("nfs-cat").arg(&url).output()?;
        ensure!(got.status.success(), "nfs-cat {url}: {}", got.status);
        ensure!(got.stdout.len() == FILE_BYTES, "{} bytes", got.stdout.len());
        self.compare(0, &got.stdout)
    }

    /// The other gateway gives the name another file again and again: what comes whole is one
    /// of them.
    fn overwritten(&self) -> Result<()> {
        // Longer than what gateways keep of their own (decision 0040).
        const BYTES: usize = 17 << 20;
        let version = |number: u8| vec![number; BYTES];
        self.put("/changing", &version(1))?;
        let (is_over, whole) = (AtomicBool::new(false), AtomicU64::new(0));
        let before = self.sent()?;
        let netns = &self.client()?.netns;
        let read = || -> Result<()> {
            while !is_over.load(Relaxed) {
                let mut socket = self.connect()?;
                socket.write_all(b"GET /changing HTTP/1.0\r\n\r\n")?;
                let mut all = Vec::new();
                // One that is broken off has changed meanwhile.
                if socket.read_to_end(&mut all).is_err() {
                    continue;
                }
                let head = all
                    .windows(4)
                    .position(|it| it == b"\r\n\r\n")
                    .context("a head")?;
                let body = &all[head + 4..];
                if all.starts_with(b"HTTP/1.1 200") && body.len() == BYTES {
                    ensure!(body[0] != 0, "dummy bytes");
                    let other = body.iter().position(|&byte| byte != body[0]);
                    ensure!(other.is_none(), "a mix at {other:?}");
                    whole.fetch_add(1, Relaxed);
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| in_network(netns, read)))
                .collect();
            let written = (2..22).try_for_each(|number| self.put("/changing", &version(number)));
            is_over.store(true, Relaxed);
            let read = readers
                .into_iter()
                .try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("a panic"))?);
            written.and(read)
        })?;
        let (whole, injected) = (whole.into_inner(), self.sent()?.injected - before.injected);
        println!("overwritten: {whole} downloads whole, {injected} bytes by nodes");
        ensure!(whole >= 10, "{whole} downloads were whole");
        ensure!(injected > whole * (BYTES as u64 - SITE_BYTES) * 9 / 10);
        Ok(())
    }

    fn status(&self) -> Result<()> {
        let told = self.transfer("gateway-0")?;
        ensure!(told["tunnels"].as_u64() == Some(3), "{told}");
        let full = self.cluster.ask(
            "gateway-0",
            &["top", "--once", "--json", "--interval", "0.2"],
        )?;
        ensure!(full["injected_bytes"].is_number(), "{full}");
        Ok(())
    }

    /// Connections whose clients have taken a MiB of a file, and now take nothing.
    pub(super) fn standing(&self) -> Result<Vec<TcpStream>> {
        let begin = |_| {
            let mut socket = self.connect()?;
            socket.write_all(b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n")?;
            read_head(&mut socket)?;
            let mut got = vec![0; 1 << 20];
            socket.read_exact(&mut got)?;
            self.compare(0, &got)?;
            Ok(socket)
        };
        (0..4).map(begin).collect()
    }

    /// A node that dies with bytes that it has promised: others send them, in connections that
    /// have stood still meanwhile. No wrong byte arrives anywhere, and when it is back it sends again.
    fn node_killed(&mut self) -> Result<()> {
        let standing = self.standing()?;
        let (is_over, wrong) = (AtomicBool::new(false), AtomicU64::new(0));
        let (whole, broken) = (AtomicU64::new(0), AtomicU64::new(0));
        let (http, content) = (self.http, &self.content);
        let served = Served::at(self.cluster.nfs_doors()[0])?;
        let netns = self.client()?.netns.clone();
        let read = || -> Result<()> {
            while !is_over.load(Relaxed) {
                let (got, is_whole) = download(http)?;
                let is_right = got.iter().zip(content).all(|(a, b)| a == b);
                wrong.fetch_add(u64::from(!is_right), Relaxed);
                let count = if is_whole { &whole } else { &broken };
                count.fetch_add(1, Relaxed);
            }
            Ok(())
        };
        let (cluster, netns) = (&mut *self.cluster, &netns);
        thread::scope(|scope| {
            let mut readers: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| in_network(netns, read)))
                .collect();
            let over_udp = || served.read_until(&is_over, content);
            readers.push(scope.spawn(move || in_network(netns, over_udp)));
            wait(Duration::from_secs(1));
            let killed = cluster.kill_keeping_files("node-1");
            wait(Duration::from_secs(8));
            let restarted = killed.and_then(|()| cluster.restart("node-1"));
            wait(Duration::from_secs(3));
            is_over.store(true, Relaxed);
            let read = readers
                .into_iter()
                .try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("a panic"))?);
            restarted.and(read)
        })?;
        let (whole, broken) = (whole.into_inner(), broken.into_inner());
        println!("a node killed: {whole} downloads whole, {broken} broken off, none wrong");
        ensure!(wrong.into_inner() == 0, "wrong bytes");
        ensure!(whole >= 4, "{whole} whole");
        for mut socket in standing {
            let mut rest = vec![0; FILE_BYTES - (1 << 20)];
            socket.read_exact(&mut rest)?;
            self.compare(1 << 20, &rest)?;
        }
        let told = self.transfer("gateway-0")?;
        println!("of it, sent by others: {} bytes", told["refilled_bytes"]);
        ensure!(told["refilled_bytes"].as_u64() > Some(0), "{told}");
        self.await_tunnels("gateway-0")?;
        self.counted("after that", 2, Self::whole_files)
    }

    /// What comes to a tunnel from a host that is no gateway does nothing, and is counted.
    fn forged(&self) -> Result<()> {
        let node = self.cluster.of(Role::Node).next().context("a node")?;
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        let count = |told: &Value| told["refused"]["forged"].as_u64().unwrap_or(0);
        let before = count(&self.transfer(&node.name)?);
        let mut random = Random::new(9);
        for _ in 0..100 {
            let mut datagram = vec![0; 1 + random.index(1400)];
            random.fill(&mut datagram);
            socket.send_to(&datagram, (node.address, 7072))?;
        }
        self.until("all are counted", || {
            Ok(count(&self.transfer(&node.name)?) >= before + 100)
        })
    }

    pub(super) fn until(&self, what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
        let deadline = self.stage.deadline.min(Instant::now() + PATIENCE);
        while !is_so()? {
            ensure!(Instant::now() < deadline, "not in time: {what}");
            wait(LOOK_EVERY);
        }
        Ok(())
    }

    pub(super) fn connect(&self) -> Result<TcpStream> {
        connect(self.http)
    }
}

pub(super) fn connect(to: SocketAddr) -> Result<TcpStream> {
    let socket = TcpStream::connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn curl_with(mut curl: Command, words: &[&str]) -> Command {
    curl.args(words);
    curl
}

/// What came of the file, and whether that is all of it.
fn download(from: SocketAddr) -> Result<(Vec<u8>, bool)> {
    let mut socket = connect(from)?;
    socket.write_all(b"GET /big.bin HTTP/1.0\r\n\r\n")?;
    let Ok(head) = read_head(&mut socket) else {
        return Ok((Vec::new(), false));
    };
    if !head.starts_with("HTTP/1.1 200") {
        return Ok((Vec::new(), false));
    }
    let mut got = Vec::new();
    let ended = socket.read_to_end(&mut got);
    let is_whole = ended.is_ok() && got.len() == FILE_BYTES;
    Ok((got, is_whole))
}

pub(super) fn wait(time: Duration) {
    thread::park_timeout(time);
}
