//! What a node has promised to send comes also when it dies: in the version that was promised,
//! by whoever has that, or by the gateway itself.

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::doors::{Doors, FILE_BYTES, SITE_BYTES};
use super::readers::{Http, Nfs};
use crate::rig::cluster::Role;

const PATH: &str = "/promised.bin";
const NAME: &str = "promised.bin";
const DRAINED: &str = "/drained.bin";
const NFS_PORT: u16 = 2049;
const MIB: u64 = 1 << 20;
/// READs of a MiB whose answers nobody takes at first.
const READS: u64 = 16;
/// What the client's system takes of them nevertheless, at most.
const TAKEN_BYTES_MAX: u64 = 8 * MIB;
/// A range that nobody takes, of which as much as this is in the client's system.
const LEFT_BYTES: u64 = 2 * MIB;
const TAKEN_BYTES: usize = 64 << 10;
/// How long it may take to find that nobody has the bytes: members have 20 s to come back.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// What a gateway has done where nodes could not.
#[derive(Clone, Copy, Debug)]
struct Done {
    /// Bytes that were found elsewhere.
    refilled: u64,
    /// Bytes that it has sent itself.
    own: u64,
    reset: u64,
}

impl Doors<'_, '_> {
    pub(super) fn promises(&mut self) -> Result<()> {
        self.put(PATH, &self.content)?;
        self.overwritten_then_killed()
            .context("overwritten, then its node killed")?;
        self.no_copy_left().context("no copy left")?;
        self.nobody_else_sends()
            .context("a node killed, and no other one sends")
    }

    /// A node that is drained leaves its sets with what it has promised, alive; what it has
    /// promised is written over at those that have its sets then, and it is killed. What comes is
    /// what was there when it was promised: a member has kept it. The first gateway is not needed.
    pub(super) fn drained_then_killed(&mut self) -> Result<()> {
        self.put(DRAINED, &self.content)?;
        let name = DRAINED.trim_start_matches('/');
        let door = SocketAddr::new(self.other.ip(), NFS_PORT);
        let mut nfs = Nfs::open(door, name)?;
        for number in 0..READS {
            let from = SITE_BYTES + number * MIB;
            nfs.ask(from..from + MIB)?;
        }
        let all = READS * MIB;
        self.until("nodes hold what was asked for", || {
            Ok(self.held()? >= all - TAKEN_BYTES_MAX)
        })?;
        let before = self.done_by("gateway-1")?;
        let manager = self.cluster.serving_manager()?;
        self.cluster
            .ask(&manager, &["node", "drain", "1", "--json"])?;
        self.until("node 1 is empty", || {
            let places = self.cluster.ask(&manager, &["node", "list", "--json"])?;
            let places = places.as_array().context("no list of nodes")?;
            let drained = places.iter().find(|place| place["number"] == 1);
            Ok(drained.is_some_and(|place| place["sets"] == 0 && place["leaving"] == 0))
        })?;
        let held = self.transfer("node-1")?["held_bytes"].as_u64();
        ensure!(held > Some(0), "node 1 holds nothing: {held:?}");
        let mut other = Nfs::open(door, name)?;
        for number in 0..READS {
            other.write(SITE_BYTES + number * MIB, vec![0xee; usize::try_from(MIB)?])?;
        }
        self.cluster.kill_keeping_files("node-1")?;
        let mut judge = |at: u64, bytes: &[u8]| self.judge(at, bytes);
        for _ in 0..READS {
            nfs.take(&mut judge)?;
        }
        let after = self.done_by("gateway-1")?;
        let refilled = after.refilled - before.refilled;
        println!("drained, written over, killed: {refilled} bytes found elsewhere, as they were");
        ensure!(refilled > 0, "{before:?} {after:?}");
        ensure!(after.reset == before.reset, "{before:?} {after:?}");
        Ok(())
    }

    fn done(&self) -> Result<Done> {
        self.done_by("gateway-0")
    }

    fn done_by(&self, gateway: &str) -> Result<Done> {
        let told = self.transfer(gateway)?;
        let count = |what: &str| told[what].as_u64().context("a figure");
        Ok(Done {
            refilled: count("refilled_bytes")?,
            own: count("sent_bytes")?,
            reset: count("reset_total")?,
        })
    }

    /// Bytes that nodes hold for gateways.
    fn held(&self) -> Result<u64> {
        let nodes = self.running(Role::Node);
        let held = nodes.iter().map(|node| {
            let told = self.transfer(node)?;
            told["held_bytes"].as_u64().context("a figure")
        });
        held.sum()
    }

    fn whole_again(&self) -> Result<()> {
        self.until("all sets are whole", || {
            // Its sites may be about to open, too.
            let manager = self.cluster.serving_manager();
            let status = manager.and_then(|manager| self.cluster.status(&manager));
            Ok(status.is_ok_and(|status| status["sets_short"] == 0))
        })
    }

    /// READs that were answered, but whose bytes nobody has taken; another gateway's client
    /// writes over them, and one of the nodes that hold them is killed. What comes is what was
    /// there when they were answered: other members have kept it.
    fn overwritten_then_killed(&mut self) -> Result<()> {
        let mut nfs = Nfs::open(self.nfs_door(), NAME)?;
        for number in 0..READS {
            let from = SITE_BYTES + number * MIB;
            nfs.ask(from..from + MIB)?;
        }
        let all = READS * MIB;
        self.until("nodes hold what was asked for", || {
            Ok(self.held()? >= all - TAKEN_BYTES_MAX)
        })?;
        let before = self.done()?;
        let mut other = Nfs::open(SocketAddr::new(self.other.ip(), NFS_PORT), NAME)?;
        for number in 0..READS {
            other.write(SITE_BYTES + number * MIB, vec![0xee; usize::try_from(MIB)?])?;
        }
        self.cluster.kill_keeping_files("node-1")?;
        let mut judge = |at: u64, bytes: &[u8]| self.judge(at, bytes);
        for _ in 0..READS {
            nfs.take(&mut judge)?;
        }
        let after = self.done()?;
        println!(
            "overwritten, then its node killed: {} bytes as they were, {} of them found elsewhere",
            all,
            after.refilled - before.refilled
        );
        ensure!(after.refilled > before.refilled, "{before:?} {after:?}");
        ensure!(after.reset == before.reset, "{before:?} {after:?}");
        let now = |_: u64, bytes: &[u8]| {
            ensure!(
                bytes.iter().all(|&byte| byte == 0xee),
                "not what was written"
            );
            Ok(())
        };
        other.read(SITE_BYTES..SITE_BYTES + all, now)
    }

    /// The only node that sends dies with what it holds: its copies' nodes do not send, so the
    /// gateway does.
    fn nobody_else_sends(&mut self) -> Result<()> {
        self.cluster.deafen("node-1")?;
        self.cluster.restart("node-1")?;
        self.whole_again()?;
        self.cluster.kill_keeping_files("node-2")?;
        self.cluster.deafen("node-2")?;
        self.cluster.restart("node-2")?;
        self.whole_again()?;
        let before = self.done()?;
        let standing = self.standing()?;
        self.until("node-0 holds some", || Ok(self.held()? > 0))?;
        self.cluster.kill_keeping_files("node-0")?;
        for mut socket in standing {
            let mut rest = vec![0; FILE_BYTES - (1 << 20)];
            socket.read_exact(&mut rest)?;
            self.compare(1 << 20, &rest)?;
        }
        let after = self.done()?;
        println!(
            "a node killed, and no other one sends: {} bytes by the gateway itself, {} with what was repeated",
            after.refilled - before.refilled,
            after.own - before.own
        );
        ensure!(after.own > before.own, "{before:?} {after:?}");
        ensure!(after.reset == before.reset, "{before:?} {after:?}");
        let held = || Ok(self.transfer("gateway-0")?["pins"].as_u64() == Some(0));
        self.until("the gateway holds nothing any more", held)
    }

    /// All nodes die with what they have promised: clients of both doors get what had been sent, and
    /// then a reset, as nobody can say what belongs behind it.
    fn no_copy_left(&mut self) -> Result<()> {
        self.cluster.restart("node-1")?;
        self.whole_again()?;
        self.await_tunnels("gateway-0")?;
        let range = FILE_BYTES as u64 - LEFT_BYTES..FILE_BYTES as u64;
        let mut http = Http::connect(self.http)?;
        set_socket_recv_buffer_size(&http.socket, TAKEN_BYTES)?;
        http.ask("/big.bin", &range)?;
        http.head()?;
        let mut nfs = Nfs::open(self.nfs_door(), NAME)?;
        for number in 0..READS {
            let from = SITE_BYTES + (READS + number) * MIB;
            nfs.ask(from..from + MIB)?;
        }
        let all = READS * MIB + LEFT_BYTES - TAKEN_BYTES_MAX;
        self.until("what was asked for is held", || Ok(self.held()? >= all))?;
        let before = self.done()?;
        for number in 0..3 {
            self.cluster.kill_keeping_files(&format!("node-{number}"))?;
        }
        let died = Instant::now();
        let judge = |at: u64, bytes: &[u8]| self.judge(at, bytes);
        let Err(error) = http.body(range, judge) else {
            bail!("all has come over HTTP");
        };
        let error = error.downcast::<std::io::Error>().context("not a reset")?;
        ensure!(error.kind() == ErrorKind::ConnectionReset, "{error}");
        // This client says nothing else of resets; the gateway counts them.
        let answers = (0..READS).try_for_each(|_| nfs.take(&mut { judge }));
        ensure!(answers.is_err(), "all has come over NFS");
        let took = died.elapsed();
        ensure!(took <= GONE_WITHIN, "resets after {took:?}");
        let resets = self.done()?.reset - before.reset;
        println!(
            "no copy left: {resets} connections reset within {:.1} s",
            took.as_secs_f64()
        );
        ensure!(resets == 2, "{before:?} {:?}", self.done()?);
        let others = ["node-0", "node-2"];
        others
            .iter()
            .try_for_each(|node| self.cluster.begin(node))?;
        let mut others = others.iter();
        others.try_for_each(|node| self.cluster.await_ready(node))
    }
}
