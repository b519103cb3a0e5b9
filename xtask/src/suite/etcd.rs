//! The shared registry over a real etcd of three members, which are killed and come
//! back: changes by compare-and-swap, leases, watches. Each host is a process of its
//! own (`crossdock-tests-etcd`).

use std::io::Write;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Stage;
use crate::process::{Lines, Running};
use crate::rig::etcd::{Etcd, MEMBERS};
use crate::rig::network::Network;

const PREFIX: &str = "/crossdock/test";
/// How long a host's lease lasts.
const TTL: Duration = Duration::from_secs(2);
/// What etcd may take to notice that it has ended.
const SLACK: Duration = Duration::from_secs(2);
/// How long anything else may take, an election included.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) fn run(stage: &Stage<'_>) -> Result<()> {
    stage.expect_crossdock()?;
    let network = Network::new()?;
    let program = stage.paths.target.join("release/crossdock-tests-etcd");
    let endpoints: Vec<String> = (1..=MEMBERS)
        .map(|number| format!("http://127.0.0.{number}:2379"))
        .collect();
    let bench = Bench {
        stage,
        network: &network,
        program,
        endpoints: endpoints.join(","),
    };
    bench.nobody_there(&endpoints).context("no etcd")?;
    let mut etcd = Etcd::start(stage.paths, Some(&network), &stage.folder)?;
    ensure!(etcd.endpoints() == bench.endpoints, "{}", etcd.endpoints());
    bench.made_once().context("made once")?;
    let mut hosts = Vec::new();
    for host in 1..=3 {
        hosts.push(Host::start(&bench, host)?);
    }
    swaps(&mut hosts).context("changes at the same time")?;
    killed_host(&mut hosts).context("a killed host")?;
    graceful_stop(&mut hosts).context("a graceful stop")?;
    hosts.push(Host::start(&bench, 4)?);
    one_member_away(&mut etcd, &mut hosts).context("one member away")?;
    outage(&mut etcd, &mut hosts).context("an outage")?;
    compaction(&mut etcd, &mut hosts).context("a compaction")
}

/// What a host is started with.
struct Bench<'test> {
    stage: &'test Stage<'test>,
    network: &'test Network,
    program: PathBuf,
    endpoints: String,
}

impl Bench<'_> {
    fn command(&self, command: &str, host: u64) -> Command {
        let mut program = self.network.program(&self.program);
        program.args([command, &self.endpoints, PREFIX, &host.to_string()]);
        program.stdin(Stdio::null());
        program
    }

    fn ask(&self, command: &str) -> Result<Output> {
        Ok(self.command(command, 99).output()?)
    }

    fn refused(&self, command: &str, words: &[&str]) -> Result<()> {
        let output = self.ask(command)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "{command} did not fail");
        for word in words {
            ensure!(said.contains(word), "{command}: no {word:?} in {said}");
        }
        Ok(())
    }

    fn nobody_there(&self, endpoints: &[String]) -> Result<()> {
        let mut words: Vec<&str> = endpoints.iter().map(String::as_str).collect();
        words.push("refused");
        self.refused("read", &words)?;
        self.refused("create", &words)
    }

    /// Only the first of two that make an ensemble of one name has made it.
    fn made_once(&self) -> Result<()> {
        self.refused("read", &[PREFIX, "crossdock cluster init"])?;
        let output = self.ask("create")?;
        ensure!(output.status.success(), "{output:?}");
        let said = self.ask("read")?;
        ensure!(said.stdout.starts_with(b"state "), "{said:?}");
        // Another one: its state differs, as that of two has random numbers.
        let mut other = self.network.program(self.stage.paths.tool("etcdctl"));
        other.args(["--endpoints", &self.endpoints, "put"]);
        other.args([&format!("{PREFIX}2/state"), "{}"]);
        ensure!(other.stdin(Stdio::null()).output()?.status.success());
        let mut second = self.network.program(&self.program);
        second.args(["create", &self.endpoints, &format!("{PREFIX}2"), "1"]);
        let said = second.stdin(Stdio::null()).output()?;
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        ensure!(
            !said.status.success() && words.contains("already"),
            "{words}"
        );
        let mut unreadable = self.network.program(&self.program);
        unreadable.args(["read", &self.endpoints, &format!("{PREFIX}2"), "1"]);
        let said = unreadable.stdin(Stdio::null()).output()?;
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        ensure!(words.contains("another version"), "{words}");
        Ok(())
    }
}

/// A process that follows the registry.
struct Host {
    number: u64,
    running: Running,
    input: Option<ChildStdin>,
    lines: Lines,
    revision: u64,
    state: Value,
    expired: Vec<u64>,
}

impl Host {
    fn start(bench: &Bench<'_>, number: u64) -> Result<Self> {
        let mut command = bench.command("follow", number);
        command.stdin(Stdio::piped());
        let (mut running, lines) = Running::start_with_lines(command, &bench.stage.log)?;
        let input = running.take_stdin();
        let mut host = Self {
            number,
            running,
            input,
            lines,
            revision: 0,
            state: Value::Null,
            expired: Vec::new(),
        };
        host.until(|host, _| host.members().contains(&number))?;
        Ok(host)
    }

    fn order(&mut self, order: &str) -> Result<()> {
        let input = self.input.as_mut().context("it has been stopped")?;
        Ok(writeln!(input, "{order}")?)
    }

    fn members(&self) -> Vec<u64> {
        let hosts = self.state["hosts"].as_array();
        let hosts = hosts.into_iter().flatten();
        hosts.filter_map(Value::as_u64).collect()
    }

    fn exports(&self) -> usize {
        self.state["exports"].as_array().map_or(0, Vec::len)
    }

    /// Reads what it says until `wanted` is so.
    fn until(&mut self, mut wanted: impl FnMut(&Self, &str) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut line = String::new();
        while !wanted(self, &line) {
            let next = self.lines.next(deadline);
            let next = next.with_context(|| format!("host {}: after {line}", self.number))?;
            line = next.with_context(|| format!("host {} has ended", self.number))?;
            self.take(&line)?;
        }
        Ok(())
    }

    /// Reads all that it says within `length`.
    fn for_a_while(&mut self, length: Duration) -> Result<()> {
        let end = Instant::now() + length;
        while Instant::now() < end {
            match self.lines.next(end) {
                Ok(Some(line)) => self.take(&line)?,
                Ok(None) => bail!("host {} has ended", self.number),
                Err(_) => break, // It said nothing more.
            }
        }
        Ok(())
    }

    fn take(&mut self, line: &str) -> Result<()> {
        if let Some(state) = line.strip_prefix("state ") {
            let (revision, state) = state.split_once(' ').context("half a line")?;
            let revision = revision.parse()?;
            ensure!(
                revision > self.revision,
                "{revision} after {}",
                self.revision
            );
            self.revision = revision;
            self.state = serde_json::from_str(state)?;
        } else if let Some(host) = line.strip_prefix("expired ") {
            self.expired.push(host.parse()?);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.running.pid())?).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }
}

/// Every host adds exports, all at the same moment; and waits until all are there.
fn add_exports(hosts: &mut [Host], round: &str, of_each: usize) -> Result<usize> {
    let before = hosts.iter().map(Host::exports).max().unwrap_or(0);
    for number in 0..of_each {
        for host in &mut *hosts {
            let path = format!("export /{round}-{}-{number}", host.number);
            host.order(&path)?;
        }
    }
    Ok(before + of_each * hosts.len())
}

fn swaps(hosts: &mut [Host]) -> Result<()> {
    let expected = add_exports(hosts, "swaps", 30)?;
    for host in &mut *hosts {
        host.until(|host, _| host.exports() == expected && host.members() == [1, 2, 3])?;
        ensure!(host.expired.is_empty(), "{:?}", host.expired);
    }
    Ok(())
}

/// Of a host that is killed the others learn when its lease has ended.
fn killed_host(hosts: &mut Vec<Host>) -> Result<()> {
    let mut killed = hosts.remove(2);
    killed.running.kill();
    let killed_at = Instant::now();
    for host in &mut *hosts {
        host.until(|host, _| host.expired == [3])?;
    }
    let after = killed_at.elapsed();
    println!(
        "a killed host was declared gone after {:.1} s",
        after.as_secs_f32()
    );
    ensure!(after <= TTL + SLACK, "only after {after:?}");
    ensure!(after >= TTL / 3, "already after {after:?}");
    hosts[0].order("replace 3")?;
    for host in hosts {
        host.until(|host, _| host.members() == [1, 2])?;
        host.expired.clear();
    }
    Ok(())
}

/// A host that stops says so.
fn graceful_stop(hosts: &mut Vec<Host>) -> Result<()> {
    let mut stopped = hosts.remove(1);
    let stopped_at = Instant::now();
    stopped.input = None;
    let status = stopped.running.wait(Instant::now() + PATIENCE)?;
    ensure!(status.success(), "{status}");
    let host = &mut hosts[0];
    host.until(|host, _| host.expired == [2])?;
    let after = stopped_at.elapsed();
    ensure!(after < TTL / 2, "only after {after:?}");
    host.order("replace 2")?;
    host.until(|host, _| host.members() == [1])?;
    host.expired.clear();
    Ok(())
}

/// With one member killed all goes on, and nobody speaks of an outage; which of the
/// three was the leader does not matter, so each has its turn.
fn one_member_away(etcd: &mut Etcd<'_>, hosts: &mut [Host]) -> Result<()> {
    for member in 0..MEMBERS {
        etcd.kill(member);
        let killed_at = Instant::now();
        let expected = add_exports(hosts, &format!("without-{member}"), 5)?;
        for host in &mut *hosts {
            host.until(|host, _| host.exports() == expected)?;
        }
        let pause = killed_at.elapsed().as_secs_f32();
        println!("without member {member} changes took {pause:.1} s");
        etcd.restart(member)?;
        etcd.wait()?;
        for host in &mut *hosts {
            host.for_a_while(TTL / 2)?;
            ensure!(host.expired.is_empty(), "{:?} expired", host.expired);
        }
    }
    Ok(())
}

/// While two are away what was proposed waits, longer than any lease lasts; then it
/// is done, and nobody has been declared gone.
fn outage(etcd: &mut Etcd<'_>, hosts: &mut [Host]) -> Result<()> {
    etcd.kill(0);
    etcd.kill(1);
    for host in &mut *hosts {
        host.until(|_, line| line.starts_with("away ") && line.contains("127.0.0.1:2379"))?;
    }
    let before = hosts.iter().map(Host::exports).max().unwrap_or(0);
    let expected = add_exports(hosts, "outage", 5)?;
    for host in &mut *hosts {
        host.for_a_while(TTL)?;
        ensure!(host.exports() == before, "changes without a majority");
    }
    etcd.restart(0)?;
    etcd.restart(1)?;
    for host in &mut *hosts {
        let mut is_back = false;
        host.until(|host, line| {
            is_back |= line == "back";
            is_back && host.exports() == expected
        })?;
    }
    for host in &mut *hosts {
        host.for_a_while(TTL * 2)?;
        ensure!(host.expired.is_empty(), "{:?} expired", host.expired);
        ensure!(host.members() == [1, 4], "{:?}", host.members());
    }
    Ok(())
}

/// A host that stands still while its watch breaks, and while what it missed is
/// forgotten by etcd, knows all when it goes on; and is heard of again.
fn compaction(etcd: &mut Etcd<'_>, hosts: &mut Vec<Host>) -> Result<()> {
    let mut stopped = hosts.pop().context("no hosts")?;
    stopped.signal(Signal::STOP)?;
    for member in 0..MEMBERS {
        etcd.kill(member);
    }
    for member in 0..MEMBERS {
        etcd.restart(member)?;
    }
    etcd.wait()?;
    let expected = add_exports(hosts, "compaction", 5)?;
    hosts[0].until(|host, _| host.exports() == expected)?;
    etcd.compact(hosts[0].revision)?;
    stopped.signal(Signal::CONT)?;
    stopped.until(|host, _| host.exports() == expected)?;
    // Changes reach it by its new watch.
    let expected = add_exports(hosts, "afterwards", 1)?;
    stopped.until(|host, _| host.exports() == expected)?;
    hosts[0].expired.clear();
    hosts[0].for_a_while(TTL * 2)?;
    ensure!(hosts[0].expired.is_empty(), "{:?}", hosts[0].expired);
    Ok(())
}
