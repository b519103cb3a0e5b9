//! `crossdock up`: everything in one process.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, bail};
use crossdock_admin::DoorStatus;
use crossdock_net::{Driver, KernelChoice, Options, Started};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::config::{Door, Flags, Io, LogFormat, Settings};
use crate::data;
use crate::shell::{Order, RemoteControl, Shell};

/// Commands of other threads that wait for the data thread.
const ORDERS_MAX: usize = 64;

/// Runs until SIGINT or SIGTERM.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let settings = flags.settle()?;
    start_logging(&settings)?;
    let directory = data::open(&settings)?;
    let Started { mut driver, fallback } = start_driver(&settings)?;
    if let Some(reason) = &fallback {
        warn!(%reason, "io_uring is not available: disks are driven by a thread pool, which is slower");
    }
    let io = if fallback.is_some() || settings.io == Io::Threads { "threads" } else { "io_uring" };
    let mut doors = Vec::new();
    let mut nfs = None;
    if let Door::At(address) = settings.nfs {
        let (listener, address) = driver.listen(address).map_err(|error| port_advice(error, "nfs", address))?;
        let (socket, _) =
            driver.bind_datagram(address).map_err(|error| port_advice(error, "nfs", address))?;
        nfs = Some((listener, socket));
        doors.push(door("nfs", address));
    }
    let (orders, received) = crossdock_net::channel(ORDERS_MAX, driver.waker());
    let orders = Arc::new(orders);
    let mut admin = None;
    if let Door::At(address) = settings.admin {
        let listener = std::net::TcpListener::bind(address).with_context(|| {
            format!("cannot listen on {address}; choose another address with --admin, or --admin off")
        })?;
        doors.push(door("admin", listener.local_addr()?));
        admin = Some(listener);
    }
    stop_on_signals(Arc::clone(&orders))?;
    let mut shell = Shell::start(&settings, directory, driver, nfs, received, io, doors.clone())?;
    shell.run_until_ready()?;
    if let Some(listener) = admin {
        crossdock_admin::serve(listener, Arc::new(RemoteControl::new(orders)))
            .context("cannot start the admin API")?;
    }
    announce(&doors)?;
    info!(data = %settings.data.display(), io, "ready");
    shell.run()
}

/// The contract with scripts: one line when every door answers, then one line
/// per door.
fn announce(doors: &[DoorStatus]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "crossdock ready")?;
    for door in doors {
        writeln!(out, "{} {}", door.name, door.address)?;
    }
    out.flush()?;
    Ok(())
}

fn door(name: &str, address: SocketAddr) -> DoorStatus {
    DoorStatus { name: name.to_owned(), address: address.to_string() }
}

fn start_driver(settings: &Settings) -> anyhow::Result<Started> {
    let kernel = match settings.io {
        Io::Auto => KernelChoice::Best,
        Io::Uring => KernelChoice::Ring,
        Io::Threads => KernelChoice::Epoll,
    };
    let options = Options { kernel, ..Options::default() };
    Driver::start(options).context(
        "cannot start the event loop; with --io uring the kernel must allow io_uring, --io auto falls back to threads",
    )
}

fn port_advice(error: crossdock_net::NetError, door: &str, address: SocketAddr) -> anyhow::Error {
    anyhow::Error::new(error).context(format!(
        "the {door} door cannot use {address}; if another server has the port, stop it or choose another address with --{door} (port 0 picks a free one); ports below 1024 need root"
    ))
}

/// SIGINT and SIGTERM end the process after what is in progress; a second one
/// ends it at once.
fn stop_on_signals(orders: Arc<crossdock_net::Sender<Order>>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for (count, _) in signals.forever().enumerate() {
            if count > 0 || orders.try_send(Order::Stop).is_err() {
                std::process::exit(1);
            }
        }
    })?;
    Ok(())
}

fn start_logging(settings: &Settings) -> anyhow::Result<()> {
    let Ok(filter) = tracing_subscriber::EnvFilter::try_new(&settings.log) else {
        bail!("the log filter {:?} is not valid; try `info` or `crossdock=debug`", settings.log);
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match settings.log_format {
        LogFormat::Human => builder.with_target(false).init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
