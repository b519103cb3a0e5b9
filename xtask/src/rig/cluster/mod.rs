//! `cargo xtask rig cluster up|down`: an ensemble of many hosts on one machine.
//!
//! Each host is a network namespace on a bridge of their own, and its process sees
//! nothing of this machine but programs: a node its own directory, a manager or a
//! gateway no writable path at all. So the network is the only channel between them.
//! The processes go on when `up` returns; `down` ends exactly those that it started.

mod faults;
pub(super) mod jail;
mod options;
pub(in crate::rig) mod switch;
mod weather;
mod whole;

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::etcd;
use crate::admin::ADMIN;
use crate::paths::Paths;
use crate::process::run;
use crate::{Usage, install};
pub(crate) use faults::Cut;
use jail::Process;
pub(crate) use jail::in_network;
use options::ipv6;
pub(crate) use options::{Options, Role, words_of};
pub(crate) use whole::missing_in;

/// Port between hosts.
const LINK_PORT: u16 = 7071;
/// Port of NFS at a gateway.
const NFS_PORT: u16 = 2049;
/// Port of HTTP at a gateway, where nodes send to its clients.
const HTTP_PORT: u16 = 8080;
/// Where nodes take packets of gateways then.
const TUNNEL_PORT: u16 = 7072;
/// What the ensemble is called.
const POOL: &str = "pool";
/// What is put before a program to have it see another wall clock: only that one, as
/// a machine's is wrong, with the others as they are (Debian's libfaketime).
const FAKE_CLOCK: [&str; 4] = [
    "/usr/bin/env",
    "LD_PRELOAD=/usr/$LIB/faketime/libfaketimeMT.so.1",
    "FAKETIME_DONT_FAKE_MONOTONIC=1",
    "FAKETIME_NO_CACHE=1",
];
/// How long a process may take until it serves.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// Which clients may mount: all of the rig, and those beside a gateway.
const NETWORKS: &str = "198.18.0.0/15,127.0.0.0/8,2001:2::/48";

/// Carries `cargo xtask rig cluster …` and `rig spiral …` out.
pub(crate) fn command(paths: &Paths, name: &str, words: &[&str]) -> Result<bool> {
    let options = match name {
        "spiral" => Options::spiral(),
        _ => Options::default(),
    };
    match words {
        ["up", flags @ ..] => {
            let options = options.with(flags)?;
            install::etcd(paths)?;
            install::debian(&["iproute2", "util-linux"])?;
            let mut build = crate::process::cargo();
            build.args(["build", "--release", "--bin", "crossdock"]);
            run(build.current_dir(&paths.root))?;
            if !install::is_root() {
                return as_root(name, &[&["up-built"], flags].concat());
            }
            up(paths, name, &options)
        }
        // What `up` calls through sudo.
        ["up-built", flags @ ..] => up(paths, name, &options.with(flags)?),
        ["down"] if !install::is_root() => as_root(name, words),
        ["down"] => down(name, &Cluster::folder(paths, name)).map(|()| true),
        _ => Err(Usage(format!("cargo xtask rig {name} up|down")).into()),
    }
}

fn as_root(name: &str, words: &[&str]) -> Result<bool> {
    let mut command = install::as_root("env");
    command.arg(std::env::current_exe()?).args(["rig", name]);
    run(command.args(words)).map(|()| true)
}

fn up(paths: &Paths, name: &str, options: &Options) -> Result<bool> {
    let folder = Cluster::folder(paths, name);
    let cluster = Cluster::up(paths, name, &folder, options)?;
    println!("{}", cluster.line());
    cluster.keep();
    Ok(true)
}

/// One host of the rig.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) address: Ipv4Addr,
    /// Its network namespace, as `ip netns` knows it.
    pub(crate) netns: String,
    /// It takes no packets of gateways, if it is a node.
    is_deaf: bool,
    process: Option<Process>,
}

/// A rig that is up. Dropping it takes it down.
pub(crate) struct Cluster<'paths> {
    paths: &'paths Paths,
    name: String,
    folder: PathBuf,
    options: Options,
    pub(crate) hosts: Vec<Host>,
    is_kept: bool,
}

impl<'paths> Cluster<'paths> {
    /// Where a rig is that a command line means.
    fn folder(paths: &Paths, name: &str) -> PathBuf {
        paths.target.join("rig").join(name)
    }

    /// Builds the rig `name` with its data and logs in `folder`, and waits until
    /// every process serves and the ensemble is whole. What is left of an earlier one is
    /// taken down first.
    pub(crate) fn up(
        paths: &'paths Paths,
        name: &str,
        folder: &Path,
        options: &Options,
    ) -> Result<Self> {
        ensure!(
            paths.release_binary().exists(),
            "target/release/crossdock is not built"
        );
        let mut cluster = Self::bare(paths, name, folder, options)?;
        cluster.start_all()?;
        cluster.await_whole()?;
        Ok(cluster)
    }

    /// The same with hosts on which nothing runs.
    pub(crate) fn bare(
        paths: &'paths Paths,
        name: &str,
        folder: &Path,
        options: &Options,
    ) -> Result<Self> {
        down(name, folder)?;
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder.join("logs"))?;
        let mut cluster = Self {
            paths,
            name: name.to_owned(),
            folder: folder.to_owned(),
            options: options.clone(),
            hosts: Vec::new(),
            is_kept: false,
        };
        cluster.make_hosts()?;
        Ok(cluster)
    }

    /// The process of a host.
    pub(crate) fn pid(&self, name: &str) -> Result<u32> {
        let process = self.hosts[self.index(name)?].process.as_ref();
        let process = process.with_context(|| format!("{name} does not run"))?;
        Ok(process.pid)
    }

    /// The hosts of that role, by name.
    pub(crate) fn of(&self, role: Role) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(move |host| host.role == role)
    }

    /// Where clients of a gateway connect.
    pub(crate) fn nfs_doors(&self) -> Vec<std::net::SocketAddr> {
        let gateways = self.of(Role::Gateway);
        gateways
            .map(|host| (host.address, NFS_PORT).into())
            .collect()
    }

    /// Where clients of a gateway on their own host connect.
    pub(crate) const OWN_DOOR: std::net::SocketAddr =
        std::net::SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), NFS_PORT);

    /// Kills a host: its process ends by SIGKILL, and all files that it had are deleted,
    /// as of a machine that is lost.
    pub(crate) fn kill(&mut self, name: &str) -> Result<()> {
        self.kill_keeping_files(name)?;
        let data = self.data(name);
        if data.exists() {
            fs::remove_dir_all(data)?;
        }
        Ok(())
    }

    /// The same of a host that keeps its files, as one that lost its power: for tests that
    /// are about what comes back with them.
    pub(crate) fn kill_keeping_files(&mut self, name: &str) -> Result<()> {
        let at = self.index(name)?;
        let process = self.hosts[at].process.take();
        process
            .with_context(|| format!("{name} does not run"))?
            .kill()?;
        self.save()
    }

    /// Hosts whose process was killed.
    pub(crate) fn names_down(&self) -> Vec<String> {
        let runs = |host: &&Host| host.role != Role::Client && host.process.is_none();
        let down = self.hosts.iter().filter(runs);
        down.map(|host| host.name.clone()).collect()
    }

    /// Whether a host's process has not ended by itself.
    pub(crate) fn runs(&self, name: &str) -> Result<bool> {
        let process = self.hosts[self.index(name)?].process.as_ref();
        Ok(process.is_some_and(Process::is_running))
    }

    /// Where a virtual address is served.
    pub(crate) fn virtual_doors(&self) -> Vec<std::net::SocketAddr> {
        let addresses = self.options.virtual_addresses().into_iter();
        addresses
            .map(|address| (address, NFS_PORT).into())
            .collect()
    }

    /// Virtual addresses of IPv6, where nodes send: there gateways serve HTTP, too.
    pub(crate) fn virtual_ipv6(&self) -> Vec<Ipv6Addr> {
        let addresses = self.options.virtual_addresses().into_iter();
        addresses
            .filter(|_| self.options.is_spiral)
            .map(ipv6)
            .collect()
    }

    /// The gateways that have an address on their interface.
    pub(crate) fn holders(&self, address: std::net::IpAddr) -> Result<Vec<String>> {
        let mut holders = Vec::new();
        for host in self.of(Role::Gateway) {
            if switch::has(&host.netns, address)? {
                holders.push(host.name.clone());
            }
        }
        Ok(holders)
    }

    /// Starts a host's process again, and waits until it serves.
    pub(crate) fn restart(&mut self, name: &str) -> Result<()> {
        self.begin(name)?;
        self.wait(self.index(name)?)
    }

    /// Waits until the process of a host serves.
    pub(crate) fn await_ready(&self, name: &str) -> Result<()> {
        self.wait(self.index(name)?)
    }

    /// Starts a host's process again.
    pub(crate) fn begin(&mut self, name: &str) -> Result<()> {
        let at = self.index(name)?;
        ensure!(self.hosts[at].process.is_none(), "{name} is running");
        self.start(at)
    }

    /// Waits until a line of a host's log has `wanted` in it, said since its process
    /// was started.
    pub(crate) fn await_said(&self, name: &str, wanted: &str) -> Result<()> {
        let process = self.hosts[self.index(name)?].process.as_ref();
        let process = process.with_context(|| format!("{name} does not run"))?;
        let says = |line: &str| line.contains(wanted);
        process.wait_for_line(&self.log(name), says, READY_PATIENCE)
    }

    /// What the process of a host says of itself.
    pub(crate) fn status(&self, name: &str) -> Result<Value> {
        self.ask(name, &["status", "--json"])
    }

    /// What `crossdock` with these words says, which have it ask the process of a host and
    /// print JSON.
    pub(crate) fn ask(&self, name: &str, words: &[&str]) -> Result<Value> {
        let host = &self.hosts[self.index(name)?];
        let mut ask = jail::command_in(&host.netns, &self.paths.release_binary());
        ask.args(words).args(["--admin", ADMIN]);
        let output = ask.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{name}: {output:?}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Bytes that have left a host by its link.
    pub(crate) fn received_from(&self, name: &str) -> Result<u64> {
        switch::bytes(&self.name, name, "rx")
    }

    /// Bytes that have come to a host by its link.
    pub(crate) fn sent_to(&self, name: &str) -> Result<u64> {
        switch::bytes(&self.name, name, "tx")
    }

    /// The manager of the root directory: the one that has files.
    pub(crate) fn serving_manager(&self) -> Result<String> {
        for manager in self.of(Role::Manager) {
            if self.status(&manager.name)?["files"].as_u64() > Some(0) {
                return Ok(manager.name.clone());
            }
        }
        bail!("no manager has files")
    }

    /// The line of JSON that describes the rig (DESIGN.md).
    pub(crate) fn line(&self) -> Value {
        let mut hosts: Vec<Value> = self
            .hosts
            .iter()
            .map(|host| {
                let pids: Vec<u32> = host.process.iter().map(|process| process.pid).collect();
                let (role, address) = (host.role.word(), host.address.to_string());
                json!({
                    "name": host.name, "role": role, "netns": host.netns,
                    "addr": address, "pids": pids,
                })
            })
            .collect();
        hosts.push(json!({
            "name": "switch", "role": "switch", "netns": switch::netns(&self.name, "switch"),
            "addr": "", "pids": [],
        }));
        json!({
            "hosts": hosts,
            "virtual": self.options.virtual_addresses(),
            "virtual_ipv6": self.virtual_ipv6(),
            "paths": {
                "data": self.folder.join("data"),
                "logs": self.folder.join("logs"),
                "program": self.paths.release_binary(),
            },
        })
    }

    /// Lets the rig go on without this handle.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }

    fn make_hosts(&mut self) -> Result<()> {
        switch::make(&self.name)?;
        for (number, role) in self.options.hosts() {
            let name = format!("{}-{number}", role.word());
            let host = Host {
                netns: switch::netns(&self.name, &name),
                address: role.address(number)?,
                name,
                role,
                is_deaf: false,
                process: None,
            };
            let rate = self.options.rate_mbit(role);
            self.hosts.push(host);
            // Whatever fails from here on, `down` knows what there is.
            self.save()?;
            let host = &self.hosts[self.hosts.len() - 1];
            switch::add(&self.name, &host.name, host.address, rate)?;
            if self.options.is_spiral {
                switch::add_ipv6(&self.name, &host.name, ipv6(host.address))?;
            }
        }
        Ok(())
    }

    fn start_all(&mut self) -> Result<()> {
        let of_etcd: Vec<usize> = self.indices(|host| host.role == Role::Etcd);
        for &at in &of_etcd {
            self.start(at)?;
        }
        let first = &self.hosts[of_etcd[0]];
        let etcdctl = jail::command_in(&first.netns, &self.paths.tool("etcdctl"));
        etcd::wait_for_leader(etcdctl, &self.etcd())?;
        self.init()?;
        if let Some(size) = &self.options.node_disk {
            self.of(Role::Node)
                .try_for_each(|node| self.make_disk(&node.name, size))?;
        }
        let others = self.indices(|host| self.is_member(host));
        for &at in &others {
            self.start(at)?;
        }
        others.iter().try_for_each(|&at| self.wait(at))
    }

    /// Whether a process of the ensemble is on that host.
    pub(crate) fn is_member(&self, host: &Host) -> bool {
        match host.role {
            Role::Etcd => false,
            Role::Client => {
                let mut clients = self.of(Role::Client);
                let place = clients.position(|client| client.name == host.name);
                place.is_some_and(|place| place < usize::from(self.options.client_gateways))
            }
            Role::Node | Role::Manager | Role::Gateway => true,
        }
    }

    fn indices(&self, is_wanted: impl Fn(&Host) -> bool) -> Vec<usize> {
        let all = self.hosts.iter().enumerate();
        all.filter(|(_, host)| is_wanted(host))
            .map(|(at, _)| at)
            .collect()
    }

    fn index(&self, name: &str) -> Result<usize> {
        let at = self.hosts.iter().position(|host| host.name == name);
        at.with_context(|| format!("there is no host {name}"))
    }

    fn data(&self, host: &str) -> PathBuf {
        let disk = self.disk(host);
        if disk.exists() {
            return disk.join("data");
        }
        self.folder.join("data").join(host)
    }

    fn log(&self, host: &str) -> PathBuf {
        self.folder.join("logs").join(host).with_extension("log")
    }

    /// Addresses of etcd.
    fn etcd(&self) -> String {
        let places = self.places();
        let endpoints: Vec<String> = places.iter().map(etcd::Place::endpoint).collect();
        endpoints.join(",")
    }

    fn places(&self) -> Vec<etcd::Place> {
        let hosts = self.of(Role::Etcd);
        hosts
            .map(|host| etcd::Place::new(host.address.to_string()))
            .collect()
    }

    fn init(&self) -> Result<()> {
        let host = &self.hosts[0];
        let mut init = jail::command_in(&host.netns, &self.paths.release_binary());
        init.args(["cluster", "init", "--etcd", &self.etcd(), "--name", POOL]);
        init.args(["--nodes", &self.options.nodes.to_string()]);
        init.args(["--replicas", &self.options.replicas.to_string()]);
        let addresses = self.options.virtual_addresses().into_iter();
        let addresses = addresses.map(|address| format!("{address}/{}", switch::PREFIX_BITS));
        let mut addresses: Vec<String> = addresses.collect();
        let ipv6 = self.virtual_ipv6().into_iter();
        addresses.extend(ipv6.map(|address| format!("{address}/{}", switch::PREFIX_BITS_IPV6)));
        init.args(["--virtual", &addresses.join(",")]);
        init.args(["--allow", NETWORKS]);
        init.args(&self.options.init);
        run(init.stdin(Stdio::null()).stdout(Stdio::null()))
    }

    /// What runs on a host, with the paths that it sees.
    fn words(&self, host: &Host) -> Result<Vec<String>> {
        let (_, number) = host.name.rsplit_once('-').context("no number")?;
        let number: usize = number.parse()?;
        if host.role == Role::Etcd {
            let arguments = etcd::arguments(number, &self.places(), jail::DATA);
            return Ok([vec!["/tools/etcd".to_owned()], arguments].concat());
        }
        let listen = format!("{}:{LINK_PORT}", host.address);
        let nfs = match host.role {
            Role::Client => Self::OWN_DOOR.to_string(),
            _ => format!("{}:{NFS_PORT}", host.address),
        };
        let (number, size, etcd) = (number.to_string(), &self.options.size, self.etcd());
        let role = match host.role {
            Role::Client => Role::Gateway,
            role => role,
        };
        let (own_http, tunnel) = (
            format!("{}:{HTTP_PORT}", host.address),
            format!("{}:{TUNNEL_PORT}", host.address),
        );
        // Virtual addresses are served as well, of which those of IPv6 are tried.
        let http = format!("{own_http},[::]:{HTTP_PORT}");
        let is_spiral = self.options.is_spiral && host.role != Role::Client;
        let mut words = vec!["/programs/crossdock", role.word(), "run"];
        words.extend(["--etcd", &etcd, "--name", POOL]);
        words.extend(["--listen", &listen, "--admin", ADMIN]);
        match role {
            Role::Node => words.extend([
                "--number",
                &number,
                "--data",
                jail::DATA,
                "--size",
                size,
                "--cache",
                &self.options.cache,
            ]),
            Role::Manager => words.extend(["--grace", "5"]),
            Role::Gateway => {
                words.extend(["--nfs", &nfs]);
                // One on a client's host serves that alone.
                if host.role == Role::Gateway {
                    words.extend(["--virtual-interface", switch::DEVICE]);
                }
            }
            Role::Etcd | Role::Client => bail!("{} runs nothing of ours", host.name),
        }
        match role {
            Role::Node if is_spiral => {
                words.extend(["--node-http", &own_http]);
                if !(self.options.is_deaf || host.is_deaf) {
                    words.extend(["--spiral-listen", &tunnel]);
                }
            }
            Role::Gateway if is_spiral => {
                words.extend(["--http", &http]);
                if !self.relays(host) {
                    words.extend(["--spiral-device", switch::DEVICE]);
                }
            }
            _ => {}
        }
        Ok(words.into_iter().map(str::to_owned).collect())
    }

    /// Whether all passes through a gateway though nodes could send.
    fn relays(&self, host: &Host) -> bool {
        let place = self.of(Role::Gateway).position(|one| one.name == host.name);
        let Options {
            gateways, relays, ..
        } = self.options;
        let first = match self.options.is_relay_first {
            true => 0,
            false => gateways.saturating_sub(relays),
        };
        let relaying = usize::from(first)..usize::from(first.saturating_add(relays));
        place.is_some_and(|place| relaying.contains(&place))
    }

    fn start(&mut self, at: usize) -> Result<()> {
        let host = &self.hosts[at];
        let data = self.data(&host.name);
        let has_data = matches!(host.role, Role::Etcd | Role::Node);
        if has_data {
            fs::create_dir_all(&data)?;
        }
        let place = jail::Place {
            netns: &host.netns,
            name: &host.name,
            data: has_data.then_some(data.as_path()),
            programs: &self.paths.target.join("release"),
            tools: &self.paths.tools().join("bin"),
        };
        let mut words = self.words(host)?;
        if let Some(seconds) = self.skew(at) {
            words.splice(0..0, FAKE_CLOCK.map(str::to_owned));
            words.insert(FAKE_CLOCK.len(), format!("FAKETIME={seconds:+}s"));
        }
        let process = jail::start(&place, &words, &self.log(&host.name))?;
        self.hosts[at].process = Some(process);
        self.save()
    }

    /// By how many seconds the wall clock of a host is wrong.
    fn skew(&self, at: usize) -> Option<i32> {
        let clocks = &self.options.clocks;
        let number = at.checked_rem(clocks.len())?;
        // What agrees by its own protocol keeps the machine's time.
        let is_ours = self.is_member(&self.hosts[at]);
        Some(clocks[number]).filter(|&seconds| is_ours && seconds != 0)
    }

    fn wait(&self, at: usize) -> Result<()> {
        let host = &self.hosts[at];
        let process = host.process.as_ref().context("it does not run")?;
        process
            .wait_for_line(
                &self.log(&host.name),
                |line| line == "crossdock ready",
                READY_PATIENCE,
            )
            .with_context(|| host.name.clone())
    }

    /// Writes down what `down` has to end and remove.
    fn save(&self) -> Result<()> {
        let processes = self.hosts.iter().filter_map(|host| host.process.as_ref());
        let state = json!({
            "folder": self.folder,
            "processes": processes.map(Process::to_json).collect::<Vec<Value>>(),
            "namespaces": self.hosts.iter().map(|host| host.netns.as_str()).collect::<Vec<&str>>(),
        });
        let file = state_file(&self.name);
        fs::create_dir_all(file.parent().context("no folder")?)?;
        Ok(fs::write(file, serde_json::to_vec(&state)?)?)
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = down(&self.name, &self.folder)
        {
            eprintln!("the rig {} is not all gone: {error:#}", self.name);
        }
    }
}

/// Ends the processes of a rig with its data in `folder`, and removes its namespaces, as its state
/// file has them; whether there is one.
///
/// # Errors
/// Something does not end, or the rig of that name is another checkout's.
pub(in crate::rig) fn end(name: &str, folder: &Path) -> Result<bool> {
    let Ok(state) = fs::read(state_file(name)) else {
        return Ok(false);
    };
    let state: Value = serde_json::from_slice(&state)?;
    let owner = Path::new(state["folder"].as_str().context("no folder")?);
    ensure!(
        owner == folder,
        "the rig {name} belongs to another checkout, with its data in {}: take it down there",
        owner.display()
    );
    for process in state["processes"].as_array().into_iter().flatten() {
        Process::from_json(process)?.kill()?;
    }
    let namespaces = state["namespaces"].as_array().into_iter().flatten();
    let namespaces: Vec<&str> = namespaces.filter_map(Value::as_str).collect();
    switch::remove(name, &namespaces)?;
    Ok(true)
}

/// Ends the processes of a rig and removes its namespaces and data. The logs stay.
///
/// # Errors
/// Something does not end, or the rig of that name is another checkout's.
fn down(name: &str, folder: &Path) -> Result<()> {
    if !end(name, folder)? {
        return Ok(());
    }
    faults::remove_disks(folder)?;
    let data = folder.join("data");
    if data.exists() {
        fs::remove_dir_all(data)?;
    }
    Ok(fs::remove_file(state_file(name))?)
}

/// Where a rig is written down: gone after a restart of the machine, as it is.
pub(in crate::rig) fn state_file(name: &str) -> PathBuf {
    PathBuf::from(format!("/run/crossdock-rig/{name}.json"))
}
