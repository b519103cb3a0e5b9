//! Load on an NFS server: raw RPCs from one thread over many connections, with
//! many requests outstanding on each. Prints one JSON line of figures.

mod client;
mod workload;

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Parser;
use crossdock_nfs3::{Procedure, mount};
use serde_json::json;

use crate::client::{Connection, wait_readable};
use crate::workload::{Kind, Workload};

/// Load on an NFS server.
#[derive(Parser)]
struct Flags {
    /// NFS server.
    #[arg(long)]
    server: SocketAddr,
    /// MOUNT server, if it listens elsewhere.
    #[arg(long)]
    mount: Option<SocketAddr>,
    /// Path to mount.
    #[arg(long, default_value = "/")]
    path: String,
    /// What to do.
    #[arg(long, value_enum)]
    work: Kind,
    /// Connections.
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Requests outstanding per connection.
    #[arg(long, default_value_t = 1)]
    outstanding: usize,
    /// Requests in all per connection.
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// Bytes per read or write.
    #[arg(long, default_value_t = 1 << 20)]
    size: usize,
    /// Part of every name, so that runs do not meet.
    #[arg(long, default_value = "load")]
    name: String,
}

fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    ensure!(
        flags.clients > 0 && flags.outstanding > 0 && flags.size <= 1 << 20,
        "clients and outstanding must be at least 1, size at most 1 MiB"
    );
    let mut mounter = Connection::open(flags.mount.unwrap_or(flags.server))?;
    let root = mounter.mount(&flags.path)?;
    let mut clients = Vec::new();
    for number in 0..flags.clients {
        let connection = Connection::open(flags.server)?;
        let name = format!("{}-{number}", flags.name);
        clients.push(Workload::prepare(
            connection,
            root,
            flags.work,
            &name,
            flags.count,
            flags.size,
        )?);
    }
    let started = Instant::now();
    let mut latencies_us = Vec::with_capacity(flags.clients * flags.count);
    while clients.iter().any(|client| !client.is_done()) {
        for client in &mut clients {
            client.turn(flags.outstanding, &mut latencies_us)?;
        }
        let busy = clients
            .iter()
            .filter(|client| !client.is_done())
            .map(Workload::connection);
        wait_readable(busy)?;
    }
    for client in &mut clients {
        client.finish().context("the last request")?;
    }
    let seconds = started.elapsed().as_secs_f64();
    latencies_us.sort_unstable();
    let at = |percent: usize| latencies_us[(latencies_us.len() - 1) * percent / 100];
    let operations = latencies_us.len();
    let bytes = if flags.work.is_bulk() {
        operations * flags.size
    } else {
        0
    };
    println!(
        "{}",
        json!({
            "work": format!("{:?}", flags.work).to_lowercase(),
            "clients": flags.clients,
            "outstanding": flags.outstanding,
            "operations": operations,
            "seconds": seconds,
            "operations_per_second": operations as f64 / seconds,
            "bytes_per_second": bytes as f64 / seconds,
            "p50_us": at(50),
            "p99_us": at(99),
        })
    );
    Ok(())
}

/// MOUNT over the client's plumbing.
impl Connection {
    fn mount(&mut self, path: &str) -> anyhow::Result<crossdock_nfs3::HandleBuffer> {
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
