//! The ensemble: one of its gateways, mostly the first, has nodes send, the other one relays.
//! What is read from it, by whom, and what that costs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::admin::{self, ADMIN};
use crate::bench::nfs::number;
use crate::bench::{Options, cpu, rig_name};
use crate::paths::Paths;
use crate::process::{Running, program};
use crate::rig::cluster::{Cluster, Host, Options as RigOptions, Role, in_network, words_of};
use crate::rig::network::Network;
use crate::rig::nginx::{Nginx, Variant};

const HTTP_PORT: u16 = 8080;
const NFS_PORT: u16 = 2049;
/// Of the relay that splices, and of what is behind it.
const SPLICE_PORT: u16 = 8081;
/// The file that is read, over HTTP and NFS each.
pub(super) const FILE_BYTES: usize = 64 << 20;
/// What it is called over HTTP, and by the load generator over NFS.
const HTTP_PREFIX: &str = "big";
const NFS_NAME: &str = "read";
const PATIENCE: Duration = Duration::from_secs(60);

/// A client protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Http,
    Nfs,
    NfsUdp,
}

impl Door {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Nfs => "nfs",
            Self::NfsUdp => "nfs-udp",
        }
    }

    /// Words for READs of that size here and there in the large file, until so many seconds
    /// have passed.
    pub(super) fn reads(self, size: usize, seconds: f64) -> String {
        let nfs = format!(
            "run --work random-read --again --keep --count 100000000 --size {size} --span {FILE_BYTES} --name {NFS_NAME} --seconds {seconds} --outstanding"
        );
        match self {
            Self::Http => format!(
                "http requests --class prefix={HTTP_PREFIX},size={FILE_BYTES},range={size} --connections 1 --seconds {seconds}"
            ),
            Self::Nfs => nfs + " 4",
            Self::NfsUdp => nfs + " 4 --udp",
        }
    }

    /// Words for `rate` bytes per second out of the large file, or as many as come, by as many
    /// readers as there are nodes in the paper. Figures of HTTP count from `begin` on.
    pub(super) fn paced(self, rate: Option<f64>, begin: f64, seconds: f64) -> String {
        const READERS: usize = 5;
        const READ_BYTES: usize = 1 << 20;
        match self {
            Self::Http => format!(
                "http streams --group name=all,prefix={HTTP_PREFIX},count={READERS},shared={READERS},size={FILE_BYTES},rate={} --from {begin} --seconds {seconds}",
                rate.unwrap_or(0.0) / READERS as f64
            ),
            Self::Nfs | Self::NfsUdp => {
                let words = self.reads(READ_BYTES, seconds);
                match rate {
                    Some(rate) => format!("{words} --pace {}", rate / READ_BYTES as f64),
                    None => words,
                }
            }
        }
    }
}

/// How bytes get to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nodes send them.
    Inject,
    /// By way of a gateway.
    Relay,
    /// By way of a relay of connections that copies nothing, on the second gateway's host,
    /// from a web server on a node's: the least that a relay costs.
    Splice,
}

impl Way {
    fn place(self, is_relay_first: bool) -> usize {
        usize::from(matches!(self, Self::Inject) == is_relay_first)
    }
}

/// What ensemble it is.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) nodes: u8,
    pub(super) clients: u8,
    /// Megabits per second of each link but the clients'.
    pub(super) link_mbit: Option<u32>,
    /// Read cache of each node.
    pub(super) cache: &'static str,
    /// Whether nodes take no packets of gateways: all gateways relay.
    pub(super) is_deaf: bool,
    /// Whether the first gateway relays and the second one has nodes send.
    pub(super) is_relay_first: bool,
}

impl Shape {
    pub(super) const fn of(nodes: u8) -> Self {
        Self {
            nodes,
            clients: 1,
            link_mbit: None,
            cache: "64M",
            is_deaf: false,
            is_relay_first: false,
        }
    }
}

/// The ensemble. Dropping it takes it down.
pub(super) struct Field<'paths> {
    paths: &'paths Paths,
    folder: PathBuf,
    // Before the hosts on which it is.
    splicing: Option<Splicing>,
    pub(super) cluster: Cluster<'paths>,
    token: String,
    is_relay_first: bool,
    /// On which processor clients are.
    client_cpu: Option<usize>,
}

/// The relay that splices, and what is behind it.
struct Splicing {
    relay: Running,
    server: Nginx,
}

/// What one run of reads has cost.
pub(super) struct Cost {
    /// CPU seconds of the gateway's process, or of the relay's, for a GB.
    pub(super) gateway: f64,
    /// Of all processes.
    pub(super) system: f64,
    /// Bytes that have left the gateway by its link, for each that the client got.
    pub(super) link: f64,
    /// In MB per second.
    pub(super) rate: f64,
}

/// A load that runs beside others.
pub(super) struct Load(Child);

impl Load {
    /// What it says when it has ended.
    pub(super) fn figures(self) -> Result<Value> {
        let output = self.0.wait_with_output()?;
        ensure!(output.status.success(), "crossdock-load: {output:?}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl<'paths> Field<'paths> {
    /// Raises it without any file.
    pub(super) fn bare(paths: &'paths Paths, options: &Options, shape: Shape) -> Result<Self> {
        let Shape { nodes, clients, .. } = shape;
        let mut words = format!(
            "--nodes {nodes} --clients {clients} --gateways 2 --relays 1 --replicas 1 --size 1G --cache {}",
            shape.cache
        );
        if let Some(mbit) = shape.link_mbit {
            words += &format!(" --rate node={mbit} --rate gateway={mbit}");
        }
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut rig = RigOptions::spiral().with(&words)?;
        rig.init = words_of(&options.init);
        rig.is_deaf = shape.is_deaf;
        rig.is_relay_first = shape.is_relay_first;
        let folder = paths.test_data().join("bench-spiral");
        let cluster = Cluster::up(paths, &rig_name(), &folder, &rig)?;
        let words = ["token", "create", "--read", "--write", "--json"];
        let made = cluster.ask("manager-0", &words)?;
        let token = made["token"].as_str().context("no token")?.to_owned();
        Ok(Self {
            paths,
            folder,
            cluster,
            token,
            is_relay_first: shape.is_relay_first,
            client_cpu: None,
            splicing: None,
        })
    }

    /// The same with the files that are read; nodes have them in memory.
    pub(super) fn raise(paths: &'paths Paths, options: &Options, shape: Shape) -> Result<Self> {
        let field = Self::bare(paths, options, shape)?;
        field.make(&[format!("prefix={HTTP_PREFIX},size={FILE_BYTES}")])?;
        let words = format!(
            "run --work write --keep --count 64 --span {FILE_BYTES} --name {NFS_NAME} --server {}",
            field.address(Door::Nfs, Way::Relay)?
        );
        field.load(0, &words)?;
        field.warm()?;
        Ok(field)
    }

    /// What is read lies in memory.
    fn warm(&self) -> Result<()> {
        for door in [Door::Http, Door::Nfs] {
            for way in [Way::Inject, Way::Relay] {
                let words = door.reads(1 << 20, 0.5);
                let address = self.address(door, way)?;
                self.load(0, &format!("{words} --server {address}"))?;
            }
        }
        Ok(())
    }

    /// Other processes of the same gateways.
    pub(super) fn start_gateways_anew(&mut self) -> Result<()> {
        let gateways = self.cluster.of(Role::Gateway);
        let names: Vec<String> = gateways.map(|host| host.name.clone()).collect();
        for name in names {
            self.cluster.kill(&name)?;
            self.cluster.restart(&name)?;
        }
        self.warm()
    }

    /// Makes files over HTTP.
    pub(super) fn make(&self, classes: &[String]) -> Result<()> {
        let mut words = format!(
            "http make --token {} --server {}",
            self.token,
            self.address(Door::Http, Way::Relay)?
        );
        for class in classes {
            words += " --class ";
            words += class;
        }
        self.load(0, &words).map(drop)
    }

    /// Has nodes send replies from a length on, whatever else would be chosen.
    pub(super) fn inject_from(&self, length: &str) -> Result<()> {
        let words = ["policy", "set", "/", "inject", "--from", length, "--json"];
        self.cluster.ask("manager-0", &words)?;
        let gateway = &self.host(Way::Inject)?.name;
        let until = Instant::now() + PATIENCE;
        // The registry tells it.
        while self.cluster.ask(gateway, &["policy", "show", "--json"])? == json!([]) {
            ensure!(Instant::now() < until, "{gateway} has no rule");
            thread::park_timeout(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Starts the third way.
    pub(super) fn splice(&mut self) -> Result<()> {
        let root = self.folder.join("spliced");
        let mut make = Command::new(self.generator());
        make.args(["http", "make", "--server", "127.0.0.1:1", "--into"]);
        make.arg(&root).arg("--class");
        make.arg(format!("prefix={HTTP_PREFIX},size={FILE_BYTES}"));
        ensure!(make.stdout(Stdio::null()).status()?.success(), "no file");
        let node = self.cluster.of(Role::Node).next().context("no node")?;
        let network = Network::of_host(&node.netns);
        let folder = self.folder.join("nginx");
        let server = Nginx::start(Variant::Sendfile, &network, &root, &folder, SPLICE_PORT)?;
        let listen = self.address(Door::Http, Way::Splice)?;
        let gateway = self.host(Way::Splice)?;
        let mut command = Network::of_host(&gateway.netns).program(self.generator());
        command.args(["relay", "--listen", &listen.to_string(), "--to"]);
        command.arg(format!("{}:{SPLICE_PORT}", node.address));
        command.stdin(Stdio::null());
        let log = self.folder.join("splice.log");
        let (relay, lines) = Running::start_with_lines(command, &log)?;
        let said = lines.next(Instant::now() + PATIENCE)?;
        ensure!(said.is_some(), "it relays nothing: see {}", log.display());
        lines.ignore();
        self.splicing = Some(Splicing { relay, server });
        Ok(())
    }
    /// Has everything run on one processor, clients too.
    pub(super) fn keep_on_one(&mut self) -> Result<()> {
        let cpu = cpu::last()?;
        self.client_cpu = Some(cpu);
        self.pids()?
            .into_iter()
            .try_for_each(|pid| cpu::keep_on(cpu, pid))
    }

    /// Leaves the last processor to the gateways; everything else is on the first.
    pub(super) fn keep_apart(&mut self) -> Result<()> {
        let last = cpu::last()?;
        ensure!(last > 0, "two processors are needed");
        self.client_cpu = Some(0);
        for pid in self.pids()? {
            cpu::keep_on(0, pid)?;
        }
        for gateway in self.cluster.of(Role::Gateway) {
            cpu::keep_on(last, self.cluster.pid(&gateway.name)?)?;
        }
        Ok(())
    }

    /// Of all processes but clients.
    fn pids(&self) -> Result<Vec<u32>> {
        let hosts = self.cluster.hosts.iter();
        let hosts = hosts.filter(|host| host.role != Role::Client);
        let mut pids: Vec<u32> = hosts
            .map(|host| self.cluster.pid(&host.name))
            .collect::<Result<_>>()?;
        if let Some(Splicing { relay, server }) = &self.splicing {
            pids.push(relay.pid());
            pids.extend(server.pids()?);
        }
        Ok(pids)
    }

    fn host(&self, way: Way) -> Result<&Host> {
        let mut gateways = self.cluster.of(Role::Gateway);
        let place = way.place(self.is_relay_first);
        gateways.nth(place).context("no gateway")
    }

    /// Where clients connect.
    pub(super) fn address(&self, door: Door, way: Way) -> Result<SocketAddr> {
        let port = match (door, way) {
            (Door::Http, Way::Splice) => SPLICE_PORT,
            (Door::Http, _) => HTTP_PORT,
            (Door::Nfs | Door::NfsUdp, _) => NFS_PORT,
        };
        Ok((self.host(way)?.address, port).into())
    }

    /// The process by which bytes get to clients.
    pub(super) fn pid(&self, way: Way) -> Result<u32> {
        match (way, &self.splicing) {
            (Way::Splice, Some(splicing)) => Ok(splicing.relay.pid()),
            _ => self.cluster.pid(&self.host(way)?.name),
        }
    }

    /// CPU seconds of all processes but clients so far.
    fn spent(&self) -> Result<f64> {
        self.pids()?.into_iter().map(cpu::seconds).sum()
    }

    /// Reads in replies of that size.
    pub(super) fn cost(&self, door: Door, way: Way, size: usize, seconds: f64) -> Result<Cost> {
        self.cost_of(door, way, &door.reads(size, seconds))
    }

    /// What a load costs.
    pub(super) fn cost_of(&self, door: Door, way: Way, words: &str) -> Result<Cost> {
        let words = format!(
            "{words} --server {} --server-pid {}",
            self.address(door, way)?,
            self.pid(way)?
        );
        let name = &self.host(way)?.name;
        let before = (self.spent()?, self.cluster.received_from(name)?);
        let figures = self.load(0, &words)?;
        let client = number(&figures, "load_cpu_seconds")?;
        let system = self.spent()? - before.0 + client;
        #[expect(clippy::cast_precision_loss, reason = "some bytes")]
        let link = (self.cluster.received_from(name)? - before.1) as f64;
        let bytes = number(&figures, "bytes")?;
        let gigabytes = bytes / 1e9;
        Ok(Cost {
            gateway: number(&figures, "server_cpu_seconds")? / gigabytes,
            system: system / gigabytes,
            link: link / bytes,
            rate: bytes / 1e6 / number(&figures, "seconds")?,
        })
    }

    /// Has the load generator do that on a client's host; its figures.
    pub(super) fn load(&self, client: usize, words: &str) -> Result<Value> {
        self.start_load(client, words)?
            .figures()
            .with_context(|| words.to_owned())
    }

    /// The same beside others.
    pub(super) fn start_load(&self, client: usize, words: &str) -> Result<Load> {
        let host = self.cluster.of(Role::Client).nth(client);
        let network = Network::of_host(&host.context("no client")?.netns);
        let mut command = match self.client_cpu {
            None => network.program(self.generator()),
            Some(cpu) => {
                let mut command = network.program("taskset");
                command.args(["--cpu-list", &cpu.to_string()]);
                command.arg(self.generator());
                command
            }
        };
        command.args(words.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Load(
            command.spawn().context("cannot start crossdock-load")?,
        ))
    }

    /// Somebody else's work on the gateways' processor, which takes what they leave; how
    /// often it was done in a second.
    pub(super) fn compute(&self, begin: f64, seconds: f64) -> Result<f64> {
        // With SCHED_IDLE it makes nobody wait.
        let mut command = program("chrt");
        command.args(["--idle", "0", "taskset", "--cpu-list"]);
        command.arg(cpu::last()?.to_string()).arg(self.generator());
        let words = format!("http compute --order 16 --after {begin} --seconds {seconds}");
        command.args(words.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let figures = Load(command.spawn()?).figures()?;
        number(&figures, "per_second")
    }

    /// A metric of all nodes together.
    pub(super) fn nodes_metric(&self, metric: &str) -> Result<f64> {
        let nodes = self.cluster.of(Role::Node);
        let values = nodes.map(|node| {
            let text = in_network(&node.netns, || admin::get(ADMIN, "/metrics", PATIENCE))?;
            let lines = text.lines().filter(|line| line.starts_with(metric));
            let value = |line: &str| line.rsplit_once(' ')?.1.parse::<f64>().ok();
            Ok(lines.filter_map(value).sum::<f64>())
        });
        values.sum()
    }

    /// Bytes that have come to a gateway by its link.
    pub(super) fn fetched(&self, way: Way) -> Result<u64> {
        self.cluster.sent_to(&self.host(way)?.name)
    }

    fn generator(&self) -> PathBuf {
        self.paths.target.join("release/crossdock-load")
    }
}
