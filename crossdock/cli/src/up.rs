//! `crossdock up`: everything in one process.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use crossdock_admin::{DoorStatus, Watch};
use crossdock_net::{Driver, KernelChoice, Options, Started};
use crossdock_nfs::{DoorLimits, Services};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::config::{Door, Flags, Io, Settings};
use crate::data;
use crate::format;
use crate::leftover::when_free;
use crate::log;
use crate::notify;
use crate::privileges::{self, Account};
use crate::report::Surroundings;
use crate::shell::{NfsSockets, Order, RemoteControl, Shell};

/// Commands of other threads that wait for the data thread.
const ORDERS_MAX: usize = 64;

/// Open files that are enough for all clients and disks.
const DESCRIPTORS_WANTED: u64 = 16_384;

/// How long a killed predecessor may hold a port; another program holds it longer.
const PORT_PATIENCE: Duration = Duration::from_secs(3);

/// Connections beyond the door's: those that it is just refusing.
const CONNECTIONS_SPARE: usize = 64;

/// Runs until SIGINT or SIGTERM.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let settings = flags.settle()?;
    let events = log::start(&settings)?;
    raise_descriptor_limit();
    let account = settings.user.as_deref().map(Account::find).transpose()?;
    let mut directory = None;
    match account {
        Some(account) => account.prepare(&settings.data)?,
        None => directory = Some(data::open(&settings)?),
    }
    let Started {
        mut driver,
        fallback,
    } = start_driver(&settings)?;
    if let Some(reason) = &fallback {
        warn!(%reason, "io_uring is not available: disks are driven by a thread pool, which is slower");
    }
    let io = if fallback.is_some() || settings.io == Io::Threads {
        "threads"
    } else {
        "io_uring"
    };
    let mut doors = Vec::new();
    let mut sockets = Vec::new();
    let mut services = Services {
        host: host_name(),
        ..Services::default()
    };
    for &address in addresses(&settings.nfs) {
        let (bound, address) = bind(&mut driver, "nfs", address)?;
        sockets.push(bound);
        services.nfs.push(address);
        doors.push(door("nfs", address));
    }
    for &address in addresses(&settings.portmap) {
        let (bound, address) = bind(&mut driver, "portmap", address)?;
        sockets.push(bound);
        services.portmap.push(address);
        doors.push(door("portmap", address));
    }
    let (orders, received) = crossdock_net::channel(ORDERS_MAX, driver.waker());
    let orders = Arc::new(orders);
    let mut admin = Vec::new();
    for &address in addresses(&settings.admin) {
        let (listener, address) = crossdock_net::listener(address)
            .map_err(|error| port_advice(error, "admin", address))?;
        doors.push(door("admin", address));
        admin.push(listener);
    }
    // From here on there are other threads, which are to have no more rights.
    privileges::drop_all_but(CapabilitySet::empty(), account)?;
    let directory = match directory {
        Some(directory) => directory,
        // What the account makes is the account's.
        None => data::open(&settings)?,
    };
    stop_on_signals(Arc::clone(&orders))?;
    let surroundings = Surroundings {
        io,
        doors: doors.clone(),
        has_several_devices: directory.has_several_devices,
    };
    let mut shell = Shell::start(
        &settings,
        directory,
        driver,
        sockets,
        received,
        surroundings,
    )?;
    shell.tell_services(services);
    shell.run_until_ready()?;
    let control = Arc::new(RemoteControl::new(orders));
    let watch = Watch::new(control, events, settings.admin_name.clone());
    for listener in admin {
        crossdock_admin::serve(listener, Arc::clone(&watch))
            .context("cannot start the admin API")?;
    }
    shell.pin();
    shell.tell_exports();
    announce(&doors)?;
    notify::tell(notify::READY);
    info!(data = %settings.data.display(), io, "ready");
    shell.run()
}

/// Binds the TCP and the UDP socket of a door.
fn bind(
    driver: &mut Driver,
    name: &str,
    address: SocketAddr,
) -> anyhow::Result<(NfsSockets, SocketAddr)> {
    let (listener, address) = when_free(PORT_PATIENCE, is_port_taken, || driver.listen(address))
        .map_err(|error| port_advice(error, name, address))?;
    let (datagrams, _) = when_free(PORT_PATIENCE, is_port_taken, || {
        driver.bind_datagram(address)
    })
    .map_err(|error| port_advice(error, name, address))?;
    let sockets = NfsSockets {
        listener,
        datagrams,
        is_ipv6: address.is_ipv6(),
        is_portmap: name == "portmap",
    };
    Ok((sockets, address))
}

/// What this machine is called: clients are told it when we have restarted.
fn host_name() -> Vec<u8> {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_ascii().to_vec()
}

/// The contract with scripts: one line when every door answers, then one line
/// per door.
fn announce(doors: &[DoorStatus]) -> anyhow::Result<()> {
    let lines: String = doors
        .iter()
        .map(|door| format!("{} {}\n", door.name, door.address))
        .collect();
    Ok(format::print(&format!("crossdock ready\n{lines}"))?)
}

/// Where a door is to listen.
fn addresses(door: &Door) -> &[SocketAddr] {
    match door {
        Door::Off => &[],
        Door::At(addresses) => addresses,
    }
}

fn door(name: &str, address: SocketAddr) -> DoorStatus {
    DoorStatus {
        name: name.to_owned(),
        address: address.to_string(),
    }
}

fn start_driver(settings: &Settings) -> anyhow::Result<Started> {
    let kernel = match settings.io {
        Io::Auto => KernelChoice::Best,
        Io::Uring => KernelChoice::Ring,
        Io::Threads => KernelChoice::Epoll,
    };
    let options = Options {
        kernel,
        // The door refuses what is too much for it; the loop would only let it wait.
        connections_max: DoorLimits::default().connections_max + CONNECTIONS_SPARE,
        ..Options::default()
    };
    Driver::start(options).context(
        "cannot start the event loop; with --io uring the kernel must allow io_uring, --io auto falls back to threads",
    )
}

fn is_port_taken(error: &crossdock_net::NetError) -> bool {
    matches!(error, crossdock_net::NetError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse)
}

fn port_advice(error: crossdock_net::NetError, door: &str, address: SocketAddr) -> anyhow::Error {
    let crossdock_net::NetError::Listen { source, .. } = error else {
        return anyhow::Error::new(error).context(format!("the {door} door at {address}"));
    };
    let advice = match source.kind() {
        ErrorKind::AddrInUse => format!(
            "another program has the port: stop it, or choose another address with --{door} (port 0 picks a free one)"
        ),
        ErrorKind::PermissionDenied => {
            format!("ports below 1024 need root: choose another one with --{door}")
        }
        _ => format!("choose another address with --{door}"),
    };
    anyhow::Error::new(source).context(format!(
        "the {door} door cannot listen on {address}; {advice}"
    ))
}

/// SIGINT and SIGTERM end the process after what is in progress; a second one
/// ends it at once.
fn stop_on_signals(orders: Arc<crossdock_net::Sender<Order>>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for (count, _) in signals.forever().enumerate() {
                if count > 0 || orders.try_send(Order::Stop).is_err() {
                    std::process::exit(1);
                }
            }
        })?;
    Ok(())
}

/// Each client takes a descriptor; the usual soft limit of 1,024 is less than
/// the door serves.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .unwrap_or(DESCRIPTORS_WANTED)
        .min(DESCRIPTORS_WANTED);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, "cannot raise the limit of open files; with many clients, raise it (ulimit -n)");
        }
    }
}
