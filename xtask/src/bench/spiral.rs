//! `bench spiral`: an ensemble whose nodes send long replies themselves, beside the same
//! through a gateway that relays them. Both gateways belong to one ensemble, on hosts of
//! their own (`rig spiral`); a client reads from one and the other in turn.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossdock_sim::random::Random;
use serde_json::Value;

use super::figures::Comparison;
use super::restart::cpu_seconds;
use super::{Keep, Options, keep, parse};
use crate::paths::Paths;
use crate::process::{program, run_logged};
use crate::rig::cluster::{Cluster, Options as RigOptions, Role, in_network, words_of};

/// The rows that can be asked for.
pub(super) const ROWS: [&str; 3] = ["cpu-http", "cpu-nfs", "links"];

const HTTP_PORT: u16 = 8080;
const NFS_PORT: u16 = 2049;
const FILE_BYTES: usize = 64 << 20;
/// Of what each figure is measured.
const READ_BYTES: usize = 192 << 20;
/// Bytes of replies: where sending by nodes begins, and where it should pay.
const SIZES: [usize; 5] = [16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Each link but the clients'.
const LINK_MBIT: u32 = 200;
/// What the file is called that is read over NFS.
const NFS_NAME: &str = "read";
const PATIENCE: Duration = Duration::from_secs(60);
const RELAY: &str = "the same through a gateway that relays";

/// Measures, and prints the results of each row as one line; what people want to see
/// goes to standard error.
pub(crate) fn run_as_root(paths: &Paths, words: &[&str]) -> Result<bool> {
    let options = parse(words, &ROWS)?;
    let is_wanted = |row: &str| options.rows.is_empty() || options.rows.iter().any(|it| it == row);
    let mut all_measured = true;
    for row in ROWS.into_iter().filter(|row| is_wanted(row)) {
        let measured = match row {
            "cpu-http" => cpu(paths, &options, Door::Http, &keep),
            "cpu-nfs" => cpu(paths, &options, Door::Nfs, &keep),
            _ => links(paths, &options, &keep),
        };
        if let Err(error) = measured {
            eprintln!("{row}: FAILED: {error:#}");
            all_measured = false;
        }
    }
    Ok(all_measured)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    Http,
    Nfs,
}

impl Door {
    const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Nfs => "nfs",
        }
    }
}

/// What one run of reads has cost.
struct Cost {
    /// CPU seconds of the gateway's process for a GB.
    gateway: f64,
    /// Of all processors, for whatever.
    system: f64,
    /// Bytes that have left the gateway by its link, for each that the client got.
    link: f64,
    /// In MB.
    rate: f64,
}

/// CPU seconds of gateways for a GB, by the size of replies.
fn cpu(paths: &Paths, options: &Options, door: Door, keep: Keep<'_>) -> Result<()> {
    let field = Field::raise(paths, options, 3, None)?;
    let rounds = if options.full { 7 } else { 3 };
    for size in SIZES {
        let mut costs: [Vec<Cost>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (gateway, costs) in (0..2).zip(&mut costs) {
                costs.push(field.cost(door, gateway, size)?);
            }
        }
        let figure = |row: &str, unit: &str, goal: Option<f64>, of: fn(&Cost) -> f64| {
            let [ours, theirs] = costs
                .each_ref()
                .map(|costs| costs.iter().map(of).collect::<Vec<f64>>());
            Comparison {
                row: &format!("{row}-{}", door.word()),
                variant: format!("READs of {} KiB, 3 nodes, one connection", size >> 10),
                place: Some((door.word().to_owned(), size >> 10)),
                unit,
                ours: &ours,
                peer: (RELAY, &theirs),
                is_less_better: row != "rate",
                goal,
            }
            .json()
        };
        let goal = match size {
            0x1_0000 => Some(3.0),
            0x10_0000 => Some(8.0),
            _ => None,
        };
        let system = (size == 1 << 20).then_some(1.0 / 0.7);
        keep(vec![
            figure("gateway-cpu", "CPU s/GB", goal, |cost| cost.gateway),
            figure("system-cpu", "CPU s/GB", system, |cost| cost.system),
            figure("gateway-link", "bytes/byte", None, |cost| cost.link),
            figure("rate", "MB/s", None, |cost| cost.rate),
        ]);
    }
    Ok(())
}

/// MB per second where every link but the clients' is slow.
fn links(paths: &Paths, options: &Options, keep: Keep<'_>) -> Result<()> {
    let rounds = if options.full { 5 } else { 2 };
    let mut one_node = None;
    for nodes in 1..=4 {
        let field = Field::raise(paths, options, nodes, Some(LINK_MBIT))?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(field.whole(0)?);
            theirs.push(field.whole(1)?);
        }
        let figure = |row: &str, peer: (&str, &[f64]), goal| {
            Comparison {
                row,
                variant: format!("one download, links of {LINK_MBIT} Mbit/s, {nodes} nodes"),
                place: Some(("one download".to_owned(), usize::from(nodes))),
                unit: "MB/s",
                ours: &ours,
                peer,
                is_less_better: false,
                goal,
            }
            .json()
        };
        let mut sorted = ours.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        let linear = *one_node.get_or_insert(median) * f64::from(nodes);
        keep(vec![
            figure("links", (RELAY, &theirs), None),
            figure(
                "links-linear",
                ("so many times one node", &[linear]),
                Some(0.95),
            ),
        ]);
    }
    Ok(())
}

/// The ensemble: its first gateway has nodes send, its second one relays.
struct Field<'paths> {
    paths: &'paths Paths,
    cluster: Cluster<'paths>,
    client: String,
}

impl<'paths> Field<'paths> {
    fn raise(
        paths: &'paths Paths,
        options: &Options,
        nodes: u8,
        link_mbit: Option<u32>,
    ) -> Result<Self> {
        let mut words =
            format!("--nodes {nodes} --clients 1 --gateways 2 --relays 1 --replicas 1 --size 1G");
        if let Some(mbit) = link_mbit {
            words += &format!(" --rate node={mbit} --rate gateway={mbit}");
        }
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut rig = RigOptions::spiral().with(&words)?;
        rig.init = words_of(&options.init);
        let folder = paths.test_data().join("bench-spiral");
        let name = format!("bench-{}", std::process::id());
        let cluster = Cluster::up(paths, &name, &folder, &rig)?;
        let client = cluster.of(Role::Client).next().context("no client")?;
        let client = client.netns.clone();
        let field = Self {
            paths,
            cluster,
            client,
        };
        field.fill(&folder)?;
        Ok(field)
    }

    /// Makes the files that are read: nodes have them in memory.
    fn fill(&self, folder: &std::path::Path) -> Result<()> {
        let words = ["token", "create", "--read", "--write", "--json"];
        let made = self.cluster.ask("manager-0", &words)?;
        let token = made["token"].as_str().context("no token")?;
        let mut content = vec![0; FILE_BYTES];
        Random::new(3).fill(&mut content);
        let file = folder.join("big.bin");
        fs::write(&file, content)?;
        let mut curl = program("nsenter");
        curl.arg(format!("--net=/run/netns/{}", self.client))
            .arg("--");
        curl.args(["curl", "-sS", "--fail", "-T"]).arg(&file);
        curl.args(["-H", &format!("Authorization: Bearer {token}")]);
        curl.arg(format!("http://{}/big.bin", self.door(Door::Http, 0)?));
        let log = folder.join("bench.log");
        run_logged(curl, &log, Instant::now() + PATIENCE)?;
        self.whole(1)?;
        let words = format!("--work write --keep --count 64 --span {FILE_BYTES} --name {NFS_NAME}");
        self.load(self.door(Door::Nfs, 1)?, &words).map(drop)
    }

    fn gateway(&self, place: usize) -> Result<(&str, Ipv4Addr)> {
        let host = self
            .cluster
            .of(Role::Gateway)
            .nth(place)
            .context("no gateway")?;
        Ok((&host.name, host.address))
    }

    fn door(&self, door: Door, gateway: usize) -> Result<SocketAddr> {
        let port = match door {
            Door::Http => HTTP_PORT,
            Door::Nfs => NFS_PORT,
        };
        Ok((self.gateway(gateway)?.1, port).into())
    }

    /// Reads through a gateway in replies of that size.
    fn cost(&self, door: Door, gateway: usize, size: usize) -> Result<Cost> {
        let (name, _) = self.gateway(gateway)?;
        let spent = || {
            cpu_seconds(&fs::read_to_string(format!(
                "/proc/{}/stat",
                self.cluster.pid(name)?
            ))?)
        };
        let address = self.door(door, gateway)?;
        let before = (
            spent()?,
            system_seconds()?,
            self.cluster.received_from(name)?,
        );
        let began = Instant::now();
        let bytes = match door {
            Door::Http => in_network(&self.client, || ranges(address, size))?,
            Door::Nfs => self.read_nfs(address, size)?,
        };
        let seconds = began.elapsed().as_secs_f64();
        let gigabytes = bytes / 1e9;
        #[expect(clippy::cast_precision_loss, reason = "some bytes")]
        let link = (self.cluster.received_from(name)? - before.2) as f64;
        Ok(Cost {
            gateway: (spent()? - before.0) / gigabytes,
            system: (system_seconds()? - before.1) / gigabytes,
            link: link / bytes,
            rate: bytes / 1e6 / seconds,
        })
    }

    /// Downloads the file; in MB per second.
    fn whole(&self, gateway: usize) -> Result<f64> {
        let address = self.door(Door::Http, gateway)?;
        in_network(&self.client, || {
            let began = Instant::now();
            let mut socket = connect(address)?;
            socket.write_all(b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n")?;
            receive(&mut socket, FILE_BYTES)?;
            #[expect(clippy::cast_precision_loss, reason = "some bytes")]
            Ok(FILE_BYTES as f64 / 1e6 / began.elapsed().as_secs_f64())
        })
    }

    /// READs here and there in the file that [`Self::fill`] has made for them.
    fn read_nfs(&self, address: SocketAddr, size: usize) -> Result<f64> {
        let count = READ_BYTES / size;
        let words = format!(
            "--work random-read --again --keep --count {count} --outstanding 4 --size {size} --span {FILE_BYTES} --name {NFS_NAME}"
        );
        self.load(address, &words)?["bytes"]
            .as_f64()
            .context("no bytes")
    }

    fn load(&self, address: SocketAddr, words: &str) -> Result<Value> {
        let mut command = program("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.client))
            .arg("--");
        command.arg(self.paths.target.join("release/crossdock-load"));
        command.args(["run", "--seconds", "60", "--server", &address.to_string()]);
        command.args(words.split_whitespace()).stdin(Stdio::null());
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "crossdock-load {words}: {output:?}"
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Ranges of that size, one after the other; bytes that came.
fn ranges(address: SocketAddr, size: usize) -> Result<f64> {
    let mut socket = connect(address)?;
    let mut random = Random::new(size as u64);
    let places = (FILE_BYTES - 65_536) / size;
    let count = READ_BYTES / size;
    for _ in 0..count {
        let from = 65_536 + random.index(places) * size;
        let last = from + size - 1;
        let request =
            format!("GET /big.bin HTTP/1.1\r\nHost: x\r\nRange: bytes={from}-{last}\r\n\r\n");
        socket.write_all(request.as_bytes())?;
        receive(&mut socket, size)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "some bytes")]
    Ok((count * size) as f64)
}

/// Takes a response whose content is so long.
fn receive(socket: &mut TcpStream, length: usize) -> Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let mut head = Vec::new();
    let mut got = loop {
        let bytes = socket.read(&mut buffer)?;
        ensure!(bytes > 0, "the connection has ended");
        head.extend_from_slice(&buffer[..bytes]);
        if let Some(end) = head.windows(4).position(|it| it == b"\r\n\r\n") {
            ensure!(head.starts_with(b"HTTP/1.1 20"), "refused");
            break head.len() - end - 4;
        }
    };
    while got < length {
        let bytes = socket.read(&mut buffer)?;
        ensure!(bytes > 0, "{got} of {length} bytes");
        got += bytes;
    }
    Ok(())
}

/// Of all processors, since the machine has started: what was not idle.
fn system_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("no processors")?;
    let fields = line.split_whitespace().skip(1);
    let ticks: Vec<f64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    // user nice system idle iowait irq softirq steal
    let busy = ticks.iter().enumerate();
    let busy = busy.filter(|(at, _)| matches!(at, 0 | 1 | 2 | 5 | 6));
    Ok(busy.map(|(_, ticks)| ticks).sum::<f64>() / 100.0)
}
