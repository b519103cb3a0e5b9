//! A real etcd cluster: members that are started, killed and started again on the
//! data that they have.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::etcd_tls::EtcdTls;
use super::network::Network;
use crate::paths::Paths;
use crate::process::{Running, open_log, program, run};

/// How many members there are: one may be away.
pub(crate) const MEMBERS: usize = 3;

/// Where a member is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its IP address.
    pub(crate) address: String,
    client_port: u16,
    peer_port: u16,
    is_tls: bool,
}

impl Place {
    /// At the ports that etcd has by default.
    pub(crate) fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            client_port: 2379,
            peer_port: 2380,
            is_tls: false,
        }
    }

    /// A place for each member on the machine's own loopback, at ports that are free and
    /// that no two of them share: all are held until all are found.
    fn free() -> Result<Vec<Self>> {
        let listeners = (0..2 * MEMBERS).map(|_| TcpListener::bind("127.0.0.1:0"));
        let listeners: Vec<TcpListener> = listeners.collect::<std::io::Result<_>>()?;
        let pairs = listeners.chunks_exact(2).map(|pair| {
            Ok(Self {
                address: "127.0.0.1".to_owned(),
                client_port: pair[0].local_addr()?.port(),
                peer_port: pair[1].local_addr()?.port(),
                is_tls: false,
            })
        });
        pairs.collect()
    }

    /// Where it answers.
    pub(crate) fn endpoint(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.address, self.client_port)
    }

    fn peer(&self) -> String {
        format!("http://{}:{}", self.address, self.peer_port)
    }
}

/// The command line of member `number` of a cluster at `places`, with its data in
/// `folder` and etcd's own settings otherwise.
pub(crate) fn arguments(number: usize, places: &[Place], folder: &str) -> Vec<String> {
    let name = |number: usize| format!("etcd-{number}");
    let cluster: Vec<String> = places
        .iter()
        .enumerate()
        .map(|(number, place)| format!("{}={}", name(number), place.peer()))
        .collect();
    let place = &places[number];
    [
        ("--name", name(number)),
        ("--data-dir", folder.to_owned()),
        ("--listen-client-urls", place.endpoint()),
        ("--advertise-client-urls", place.endpoint()),
        ("--listen-peer-urls", place.peer()),
        ("--initial-advertise-peer-urls", place.peer()),
        ("--initial-cluster", cluster.join(",")),
        ("--logger", "zap".to_owned()),
        ("--log-level", "warn".to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

/// Waits until the members at `endpoints` have a leader: `etcdctl` is the program
/// where they can be reached.
pub(crate) fn wait_for_leader(mut etcdctl: Command, endpoints: &str) -> Result<()> {
    etcdctl.args(["--endpoints", endpoints]);
    etcdctl.args(["--dial-timeout=30s", "--command-timeout=30s", "get", "any"]);
    run(etcdctl.stdout(Stdio::null())).context("etcd has no leader")
}

/// A cluster on loopback: that of a network, or the machine's own.
pub(crate) struct Etcd<'network> {
    paths: &'network Paths,
    network: Option<&'network Network>,
    folder: PathBuf,
    places: Vec<Place>,
    members: Vec<Option<Running>>,
    tls: Option<EtcdTls>,
}

impl<'network> Etcd<'network> {
    /// Starts a fresh cluster with its data in `folder` and waits for its leader.
    pub(crate) fn start(
        paths: &'network Paths,
        network: Option<&'network Network>,
        folder: &Path,
    ) -> Result<Self> {
        let places = match network {
            Some(_) => (1..=MEMBERS)
                .map(|number| Place::new(format!("127.0.0.{number}")))
                .collect(),
            None => Place::free()?,
        };
        let mut etcd = Self {
            paths,
            network,
            folder: folder.to_owned(),
            places,
            members: (0..MEMBERS).map(|_| None).collect(),
            tls: None,
        };
        etcd.begin()?;
        Ok(etcd)
    }

    /// The same on the machine's own loopback, for clients with a certificate only.
    pub(crate) fn start_secure(paths: &'network Paths, folder: &Path) -> Result<Self> {
        let mut places = Place::free()?;
        places.iter_mut().for_each(|place| place.is_tls = true);
        let mut etcd = Self {
            paths,
            network: None,
            folder: folder.to_owned(),
            places,
            members: (0..MEMBERS).map(|_| None).collect(),
            tls: Some(EtcdTls::make(folder)?),
        };
        etcd.begin()?;
        Ok(etcd)
    }

    fn begin(&mut self) -> Result<()> {
        for member in 0..MEMBERS {
            self.restart(member)?;
        }
        self.wait()
    }

    /// Flags by which the binary under test reaches it, beside the endpoints.
    pub(crate) fn flags(&self) -> Result<Vec<String>> {
        let Some(tls) = &self.tls else {
            return Ok(Vec::new());
        };
        let flags = [
            ("--etcd-ca", &tls.ca),
            ("--etcd-cert", &tls.client.0),
            ("--etcd-key", &tls.client.1),
        ];
        let mut words = Vec::new();
        for (flag, path) in flags {
            words.extend([flag.to_owned(), Paths::plain(path)?.to_owned()]);
        }
        Ok(words)
    }

    /// Addresses of all members, with commas.
    pub(crate) fn endpoints(&self) -> String {
        let endpoints: Vec<String> = self.places.iter().map(Place::endpoint).collect();
        endpoints.join(",")
    }

    /// Ends a member with SIGKILL.
    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member] = None;
    }

    /// Starts a member that was killed, on what it has written.
    pub(crate) fn restart(&mut self, member: usize) -> Result<()> {
        ensure!(self.members[member].is_none(), "member {member} is running");
        let data = self.folder.join(format!("etcd-{member}"));
        let mut command = self.program("etcd");
        command.args(arguments(member, &self.places, Paths::plain(&data)?));
        if let Some(tls) = &self.tls {
            command.args(tls.of_member());
        }
        let log = open_log(&self.folder.join(format!("etcd-{member}.log")))?;
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        self.members[member] = Some(Running::start(command)?);
        Ok(())
    }

    /// Waits until there is a leader.
    pub(crate) fn wait(&self) -> Result<()> {
        wait_for_leader(self.etcdctl(), &self.endpoints())
    }

    /// Forgets all revisions before `revision`.
    pub(crate) fn compact(&self, revision: u64) -> Result<()> {
        let mut compact = self.etcdctl();
        compact.args(["--endpoints", &self.endpoints()]);
        compact.args(["compact", &revision.to_string()]);
        run(compact.stdout(Stdio::null()))
    }

    fn etcdctl(&self) -> Command {
        let mut etcdctl = self.program("etcdctl");
        if let Some(tls) = &self.tls {
            etcdctl.args(tls.of_client());
        }
        etcdctl
    }

    fn program(&self, name: &str) -> Command {
        let path = self.paths.tool(name);
        match self.network {
            Some(network) => network.program(path),
            None => program(path),
        }
    }
}
