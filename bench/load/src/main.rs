//! Load on an NFS server: raw RPCs from one thread over many connections, with
//! many requests outstanding on each; or on an HTTP server, or an iSCSI target. Prints one JSON line of
//! figures.

mod client;
mod floor;
mod http;
mod iscsi;
mod pace;
mod relay;
mod sfs;
mod udp;
mod untar;
mod usage;
mod workload;

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use crossdock_nfs3::{HandleBuffer, Procedure, mount};
use serde_json::{Value, json};

use crate::client::{Connection, wait_ready};
use crate::pace::Pace;
use crate::sfs::Mix;
use crate::untar::Untar;
use crate::usage::Meter;
use crate::workload::{ENTRIES, Kind, Needs, Workload};

/// Load on a server.
#[derive(Parser)]
struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Works on an NFS server and prints what it took.
    Run(Run),
    /// A server that answers every call at once: the floor. Prints its address.
    Floor,
    /// A relay of connections that copies nothing. Prints where it listens.
    Relay(relay::Relay),
    /// Works on an HTTP server.
    #[command(subcommand)]
    Http(http::Command),
    /// Works on an iSCSI target and prints what it took.
    Iscsi(iscsi::Load),
}

#[derive(Args)]
struct Run {
    /// NFS server.
    #[arg(long)]
    server: SocketAddr,
    /// MOUNT server, if it listens elsewhere.
    #[arg(long)]
    mount: Option<SocketAddr>,
    /// Path to mount.
    #[arg(long, default_value = "/")]
    path: String,
    /// Process of the server, to see what it spends.
    #[arg(long)]
    server_pid: Option<u32>,
    /// What to do.
    #[arg(long, value_enum)]
    work: Kind,
    /// Connections.
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Requests outstanding per connection.
    #[arg(long, default_value_t = 1)]
    outstanding: usize,
    /// Requests in all per connection, at most.
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// Seconds after which no more requests are sent.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Bytes per read or write.
    #[arg(long, default_value_t = 1 << 20)]
    size: usize,
    /// Bytes of the file, after which reads and writes begin again at 0.
    #[arg(long, default_value_t = 256 << 20)]
    span: usize,
    /// Operations per second of each connection, for `sfs`.
    #[arg(long, default_value_t = 100.0)]
    rate: f64,
    /// Operations per second of each connection, for other work; none: as many as are
    /// answered.
    #[arg(long)]
    pace: Option<f64>,
    /// By datagrams, for `random-read`.
    #[arg(long)]
    udp: bool,
    /// Files of each client: that an earlier run has made, or that `sfs` and `write-files` make.
    #[arg(long, default_value_t = 1)]
    files: usize,
    /// Part of every name, so that runs do not meet.
    #[arg(long, default_value = "load")]
    name: String,
    /// Leave the files there at the end.
    #[arg(long)]
    keep: bool,
    /// Use the files that a run of the same name has kept.
    #[arg(long)]
    again: bool,
}

fn main() -> anyhow::Result<()> {
    match Flags::parse().command {
        Command::Floor => floor::serve(),
        Command::Relay(flags) => relay::serve(&flags),
        Command::Http(command) => {
            println!("{}", http::run(&command)?);
            Ok(())
        }
        Command::Iscsi(flags) => {
            println!("{}", iscsi::run(&flags)?);
            Ok(())
        }
        Command::Run(flags) => {
            println!("{}", measure(&flags)?);
            Ok(())
        }
    }
}

fn measure(flags: &Run) -> anyhow::Result<Value> {
    ensure!(
        flags.clients > 0 && flags.outstanding > 0 && flags.count > 0,
        "clients, outstanding and count must be at least 1"
    );
    ensure!(
        !flags.udp || (flags.work == Kind::RandomRead && flags.pace.is_none()),
        "by datagrams goes random-read alone, as fast as it is answered"
    );
    ensure!(
        (1..=1 << 20).contains(&flags.size) && flags.span >= flags.size,
        "size must be from 1 byte to 1 MiB, span at least size"
    );
    let limit = Duration::try_from_secs_f64(flags.seconds)?;
    let mut clients = prepare(flags, limit)?;
    let (mut directories, mut repeated) = (0, 0);
    let mut mixes = match flags.work {
        Kind::Sfs => {
            let all = std::mem::take(&mut clients).into_iter().enumerate();
            let mixes =
                all.map(|(number, client)| Mix::new(client, number, flags.files, flags.rate));
            mixes.collect::<anyhow::Result<_>>()?
        }
        _ => Vec::new(),
    };
    let mut latencies_us = Vec::with_capacity(flags.clients * flags.count.min(1 << 20));

    let meter = Meter::start(flags.server_pid)?;
    let (started, started_at) = (Instant::now(), SystemTime::now());
    match flags.work {
        Kind::Untar | Kind::Names | Kind::Tree => {
            (clients, directories) = unpack(clients, flags, limit, &mut latencies_us)?;
        }
        Kind::Sfs => sfs::drive(&mut mixes, flags.outstanding, limit, &mut latencies_us)?,
        Kind::RandomRead if flags.udp => {
            repeated = udp::drive(&mut clients, flags, limit, &mut latencies_us)?;
        }
        kind => match kind.of_each_file() {
            Some(kind) => each_file(&mut clients, kind, flags, &mut latencies_us)?,
            None => drive(&mut clients, flags.outstanding, limit, &mut latencies_us)?,
        },
    }
    let seconds = started.elapsed().as_secs_f64();
    let spent = meter.stop()?;

    if !flags.keep {
        for client in &mut clients {
            if flags.work.of_each_file().is_some() {
                client.clean_files()?;
            }
            client.clean()?;
        }
    }
    let mut figures = figures(flags, seconds, latencies_us)?;
    // Loads that run beside each other are one.
    let put_off: usize = clients.iter().map(Workload::put_off).sum();
    let put_off = put_off + mixes.iter().map(Mix::put_off).sum::<usize>();
    figures["put_off"] = json!(put_off);
    figures["directories"] = json!(directories);
    figures["repeated"] = json!(repeated);
    figures["started_at"] = json!(started_at.duration_since(UNIX_EPOCH)?.as_secs_f64());
    spent.add_to(&mut figures);
    Ok(figures)
}

/// Connects all clients and makes what the work needs: a file with content to
/// read, files to remove.
fn prepare(flags: &Run, limit: Duration) -> anyhow::Result<Vec<Workload>> {
    let mut clients = Vec::new();
    for _ in 0..flags.clients {
        let connection = Connection::open(flags.server)?;
        clients.push(Workload::new(connection, flags.size, flags.span)?);
    }
    if flags.work != Kind::Null {
        let root = Connection::open(flags.mount.unwrap_or(flags.server))?.mount(&flags.path)?;
        for (number, client) in clients.iter_mut().enumerate() {
            let name = format!("{}-{number}", flags.name);
            match flags.again {
                true => client.find(&root, &name)?,
                false => client.settle(&root, &name)?,
            }
        }
    }
    let is_content = flags.work.needs() == Needs::Content && !flags.again;
    let first = match flags.work.needs() {
        // The whole of it.
        Needs::Content => is_content.then_some(Duration::MAX),
        Needs::Files => Some(limit),
        Needs::Entries => Some(Duration::MAX),
        Needs::Nothing => None,
    };
    if let Some(limit) = first {
        for client in &mut clients {
            match flags.work.needs() {
                Needs::Content => client.begin_content(),
                Needs::Entries => client.begin(Kind::Create, ENTRIES),
                _ => client.begin(Kind::Create, flags.count),
            }
        }
        drive(&mut clients, 8, limit, &mut Vec::new())?;
    }
    for client in &mut clients {
        // As many as were made before the limit.
        let count = match flags.work.needs() {
            Needs::Files => client.done(),
            _ => flags.count,
        };
        client.set_size(flags.size);
        client.set_files(flags.files.max(1));
        client.begin(flags.work, count);
        if let Some(rate) = flags.pace {
            client.set_pace(Pace::new(rate, Instant::now())?);
        }
    }
    Ok(clients)
}

/// Runs all clients until they are done, or nothing more is sent after `limit`.
fn drive(
    clients: &mut [Workload],
    outstanding: usize,
    limit: Duration,
    latencies_us: &mut Vec<u64>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut busy: Vec<&mut Workload> = clients.iter_mut().collect();
    for client in &mut busy {
        client.fill(outstanding)?;
    }
    while !busy.is_empty() {
        let due = busy.iter().filter_map(|client| client.due()).min();
        let patience = due.map(|due| due.saturating_duration_since(Instant::now()));
        let ready = wait_ready(busy.iter().map(|client| client.connection()), patience)?;
        let is_late = started.elapsed() >= limit;
        for (client, is_ready) in busy.iter_mut().zip(ready) {
            if is_late {
                client.stop();
            }
            if is_ready || due.is_some() {
                client.turn(outstanding, latencies_us)?;
            }
        }
        busy.retain(|client| !client.is_done());
    }
    for client in clients {
        client.finish().context("the last request")?;
    }
    Ok(())
}

/// All clients write or read a file, and when all have done so the next one.
fn each_file(
    clients: &mut [Workload],
    kind: Kind,
    flags: &Run,
    latencies_us: &mut Vec<u64>,
) -> anyhow::Result<()> {
    for number in 0..flags.files {
        for client in &mut *clients {
            client.begin_file(kind, number)?;
        }
        drive(clients, flags.outstanding, Duration::MAX, latencies_us)?;
    }
    Ok(())
}

/// Unpacks until the limit, and ends what was begun.
fn unpack(
    clients: Vec<Workload>,
    flags: &Run,
    limit: Duration,
    latencies_us: &mut Vec<u64>,
) -> anyhow::Result<(Vec<Workload>, usize)> {
    let started = Instant::now();
    let all = clients.into_iter();
    let mut busy: Vec<Untar> = all
        .map(|client| Untar::new(client, flags.outstanding, flags.work, flags.count))
        .collect();
    let (mut done, mut directories) = (Vec::new(), 0);
    for client in &mut busy {
        client.ask()?;
    }
    while !busy.is_empty() {
        let ready = wait_ready(busy.iter().map(Untar::connection), None)?;
        let is_late = started.elapsed() >= limit;
        for (client, is_ready) in busy.iter_mut().zip(ready) {
            if is_late {
                client.stop();
            }
            if is_ready {
                client.turn(latencies_us)?;
            }
        }
        let (ended, rest): (Vec<_>, Vec<_>) = busy.into_iter().partition(Untar::is_done);
        directories += ended.iter().map(Untar::directories).sum::<usize>();
        done.extend(ended.into_iter().map(Untar::into_workload));
        busy = rest;
    }
    Ok((done, directories))
}

fn figures(flags: &Run, seconds: f64, mut latencies_us: Vec<u64>) -> anyhow::Result<Value> {
    ensure!(!latencies_us.is_empty(), "no request was answered");
    latencies_us.sort_unstable();
    let at = |percent: usize| latencies_us[(latencies_us.len() - 1) * percent / 100];
    let operations = latencies_us.len();
    let bytes = if flags.work.is_bulk() {
        operations * flags.size
    } else {
        0
    };
    Ok(json!({
        "work": format!("{:?}", flags.work).to_lowercase(),
        "clients": flags.clients,
        "outstanding": flags.outstanding,
        "operations": operations,
        "bytes": bytes,
        "seconds": seconds,
        "operations_per_second": operations as f64 / seconds,
        "bytes_per_second": bytes as f64 / seconds,
        "mean_us": latencies_us.iter().sum::<u64>() as f64 / operations as f64,
        "p50_us": at(50),
        "p90_us": at(90),
        "p99_us": at(99),
        "max_us": at(100),
    }))
}

/// MOUNT and NFS over the client's plumbing.
impl Connection {
    fn mount(&mut self, path: &str) -> anyhow::Result<HandleBuffer> {
        let call = mount::Call::Mnt(crossdock_nfs3::Path(path.as_bytes()));
        let record = self.call_and_wait(
            mount::PROGRAM,
            mount::VERSION,
            mount::Procedure::Mnt as u32,
            &call,
        )?;
        let mut decoder = client::results(&record)?;
        match mount::Reply::decode(mount::Procedure::Mnt, &mut decoder)? {
            mount::Reply::Mnt(Ok(mounted)) => Ok(mounted.root),
            other => anyhow::bail!("MNT {path}: {other:?}"),
        }
    }

    /// An NFS call, waiting for its reply.
    pub(crate) fn nfs(
        &mut self,
        call: &crossdock_nfs3::Call<'_>,
    ) -> anyhow::Result<crossdock_nfs3::Reply> {
        let procedure: Procedure = call.procedure();
        let record = self.call_and_wait(
            crossdock_nfs3::PROGRAM,
            crossdock_nfs3::VERSION,
            procedure as u32,
            call,
        )?;
        let mut decoder = client::results(&record)?;
        Ok(crossdock_nfs3::Reply::decode(procedure, &mut decoder)?)
    }
}
