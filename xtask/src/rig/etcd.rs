//! A real etcd cluster: members that are started, killed and started again on the
//! data that they have.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::network::Network;
use crate::paths::Paths;
use crate::process::{Running, open_log, run};

/// How many members there are: one may be away.
pub(crate) const MEMBERS: usize = 3;
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// One member's command line, at address `at` of a cluster at `all`, with its data
/// in `folder` and etcd's own settings otherwise.
pub(crate) fn arguments(at: &str, all: &[String], folder: &str) -> Vec<String> {
    let name = |address: &str| format!("etcd-{address}");
    let cluster: Vec<String> = all
        .iter()
        .map(|address| format!("{}=http://{address}:{PEER_PORT}", name(address)))
        .collect();
    [
        ("--name", name(at)),
        ("--data-dir", folder.to_owned()),
        ("--listen-client-urls", endpoint(at)),
        ("--advertise-client-urls", endpoint(at)),
        ("--listen-peer-urls", format!("http://{at}:{PEER_PORT}")),
        (
            "--initial-advertise-peer-urls",
            format!("http://{at}:{PEER_PORT}"),
        ),
        ("--initial-cluster", cluster.join(",")),
        ("--logger", "zap".to_owned()),
        ("--log-level", "warn".to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

/// Where the member at `address` answers.
pub(crate) fn endpoint(address: &str) -> String {
    format!("http://{address}:{CLIENT_PORT}")
}

/// Waits, with a command that `program` puts where the members can be reached, until
/// they have a leader.
pub(crate) fn wait_for_leader(
    paths: &Paths,
    endpoints: &[String],
    program: impl Fn(&Path) -> Command,
) -> Result<()> {
    let mut ask = program(&paths.tool("etcdctl"));
    ask.args(["--endpoints", &endpoints.join(",")]);
    ask.args(["--dial-timeout=30s", "--command-timeout=30s", "get", "any"]);
    run(ask.stdout(Stdio::null())).context("etcd has no leader")
}

/// A cluster on the loopback addresses of one network.
pub(crate) struct Etcd<'network> {
    paths: &'network Paths,
    network: &'network Network,
    folder: PathBuf,
    members: Vec<Option<Running>>,
}

impl<'network> Etcd<'network> {
    /// Starts a fresh cluster with its data in `folder` and waits for its leader.
    pub(crate) fn start(
        paths: &'network Paths,
        network: &'network Network,
        folder: &Path,
    ) -> Result<Self> {
        let mut etcd = Self {
            paths,
            network,
            folder: folder.to_owned(),
            members: (0..MEMBERS).map(|_| None).collect(),
        };
        for member in 0..MEMBERS {
            etcd.restart(member)?;
        }
        etcd.wait()?;
        Ok(etcd)
    }

    /// Addresses of all members.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        (0..MEMBERS)
            .map(|member| endpoint(&address(member)))
            .collect()
    }

    /// Ends a member with SIGKILL.
    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member] = None;
    }

    /// Starts a member that was killed, on what it has written.
    pub(crate) fn restart(&mut self, member: usize) -> Result<()> {
        ensure!(self.members[member].is_none(), "member {member} is running");
        let all: Vec<String> = (0..MEMBERS).map(address).collect();
        let data = self.folder.join(format!("etcd-{member}"));
        let mut command = self.network.program(self.paths.tool("etcd"));
        command.args(arguments(&address(member), &all, Paths::plain(&data)?));
        let log = open_log(&self.folder.join(format!("etcd-{member}.log")))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.members[member] = Some(Running::start(command)?);
        Ok(())
    }

    /// Waits until there is a leader.
    pub(crate) fn wait(&self) -> Result<()> {
        let program = |name: &Path| self.network.program(name);
        wait_for_leader(self.paths, &self.endpoints(), program)
    }

    /// Forgets all revisions before `revision`.
    pub(crate) fn compact(&self, revision: u64) -> Result<()> {
        let mut compact = self.network.program(self.paths.tool("etcdctl"));
        compact.args(["--endpoints", &self.endpoints().join(",")]);
        run(compact
            .args(["compact", &revision.to_string()])
            .stdout(Stdio::null()))
    }
}

/// Every address of 127.0.0.0/8 is the network's own.
fn address(member: usize) -> String {
    format!("127.0.0.{}", member + 1)
}
