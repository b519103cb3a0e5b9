//! What every kind of process does when it starts: doors, event loop, signals,
//! the line that says that it is ready.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use crossdock_admin::{DoorStatus, Events, Watch};
use crossdock_depots::Record;
use crossdock_limits::{
    HTTP_CONNECTIONS_MAX, IBP_PROCESS_CONNECTIONS_MAX, ISCSI_CONNECTIONS_MAX, LINK_HANDSHAKES_MAX,
    NODE_HTTP_CONNECTIONS_MAX,
};
use crossdock_members::NodeDoor;
use crossdock_net::{Driver, KernelChoice, ListenerId, Options, Receiver, Started};
use crossdock_nfs::{DoorLimits, Services};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::config::{
    DepotSettings, DoorSettings, HttpSettings, Io, IscsiSettings, LboneSettings, NodeDoorSettings,
    ProcessSettings, Switch,
};
use crate::format;
use crate::leftover::when_free;
use crate::notify;
use crate::reload::Reloader;
use crate::shell::{NfsSockets, Order, RemoteControl, Shell};

/// Commands of other threads that wait for the data thread.
const ORDERS_MAX: usize = 64;

/// Open files that are enough for all clients and disks.
const DESCRIPTORS_WANTED: u64 = 32_768;

/// How long a killed predecessor may hold a port; another program holds it longer.
const PORT_PATIENCE: Duration = Duration::from_secs(3);

/// Connections beyond the door's: those that it is just refusing, and other hosts.
const CONNECTIONS_SPARE: usize = 64 + LINK_HANDSHAKES_MAX;

/// The sockets of a process, bound while it may still do that.
pub(crate) struct Doors {
    pub(crate) driver: Driver,
    /// How disks and sockets are driven.
    pub(crate) io: &'static str,
    /// In the order in which they are announced.
    pub(crate) bound: Vec<DoorStatus>,
    pub(crate) nfs: Vec<NfsSockets>,
    pub(crate) http: Vec<ListenerId>,
    pub(crate) iscsi: Vec<ListenerId>,
    /// Where initiators are told that targets are.
    pub(crate) portals: Vec<SocketAddr>,
    /// Of the nodes' own HTTP door.
    pub(crate) node_http: Vec<ListenerId>,
    /// Of depots, by the number of their nodes.
    pub(crate) depots: BTreeMap<u32, Vec<ListenerId>>,
    /// What clients are told about where programs are.
    pub(crate) services: Services,
    admin: Vec<TcpListener>,
    lbone: Vec<TcpListener>,
}

impl Doors {
    /// The event loop of this thread, without any door.
    pub(crate) fn start(settings: &ProcessSettings) -> anyhow::Result<Self> {
        let Started { driver, fallback } = start_driver(settings)?;
        if let Some(reason) = &fallback {
            warn!(%reason, "io_uring is not available: disks are driven by a thread pool, which is slower");
        }
        let io = if fallback.is_some() || settings.io == Io::Threads {
            "threads"
        } else {
            "io_uring"
        };
        Ok(Self {
            driver,
            io,
            bound: Vec::new(),
            nfs: Vec::new(),
            http: Vec::new(),
            iscsi: Vec::new(),
            portals: Vec::new(),
            node_http: Vec::new(),
            depots: BTreeMap::new(),
            services: Services {
                host: host_name(),
                ..Services::default()
            },
            admin: Vec::new(),
            lbone: Vec::new(),
        })
    }

    /// Where other hosts of the ensemble connect, and the address that it got.
    pub(crate) fn bind_link(
        &mut self,
        address: SocketAddr,
    ) -> anyhow::Result<(ListenerId, SocketAddr)> {
        let driver = &mut self.driver;
        let (listener, address) =
            when_free(PORT_PATIENCE, is_port_taken, || driver.listen(address))
                .map_err(|error| port_advice(error, "link", "listen", address))?;
        self.bound.push(door("link", address));
        Ok((listener, address))
    }

    /// Where NFS clients connect.
    pub(crate) fn bind_nfs(&mut self, settings: &DoorSettings) -> anyhow::Result<()> {
        for &address in settings.nfs.addresses() {
            let (bound, address) = bind(&mut self.driver, "nfs", address)?;
            self.nfs.push(bound);
            self.services.nfs.push(address);
            self.bound.push(door("nfs", address));
        }
        for &address in settings.portmap.addresses() {
            let (bound, address) = bind(&mut self.driver, "portmap", address)?;
            self.nfs.push(bound);
            self.services.portmap.push(address);
            self.bound.push(door("portmap", address));
        }
        Ok(())
    }

    /// Where HTTP clients connect.
    pub(crate) fn bind_http(&mut self, settings: &HttpSettings) -> anyhow::Result<()> {
        let name = if settings.http_tls.is_some() {
            "https"
        } else {
            "http"
        };
        for &address in settings.http.addresses() {
            let (listener, address) = listen(&mut self.driver, name, "http", address)?;
            self.http.push(listener);
            self.bound.push(door(name, address));
        }
        Ok(())
    }

    /// Where initiators connect.
    pub(crate) fn bind_iscsi(&mut self, settings: &IscsiSettings) -> anyhow::Result<()> {
        for &address in settings.iscsi.addresses() {
            let (listener, address) = listen(&mut self.driver, "iscsi", "iscsi", address)?;
            self.iscsi.push(listener);
            self.portals.push(address);
            self.bound.push(door("iscsi", address));
        }
        Ok(())
    }

    /// Where HTTP clients connect that have a signed URL of a node; the first address, which
    /// others are told, if there is one.
    pub(crate) fn bind_node_http(
        &mut self,
        settings: &NodeDoorSettings,
    ) -> anyhow::Result<Option<NodeDoor>> {
        let is_secure = settings.node_http_tls.is_some();
        let name = if is_secure { "node-https" } else { "node-http" };
        let mut first = None;
        for &address in settings.node_http.addresses() {
            let (listener, address) = listen(&mut self.driver, name, "node-http", address)?;
            self.node_http.push(listener);
            self.bound.push(door(name, address));
            first = first.or(Some(NodeDoor { address, is_secure }));
        }
        Ok(first)
    }

    /// Where clients of depots connect: the first node's at the address itself, the next ones'
    /// at the ports behind it; with port 0 each at one of its own. The first address of each
    /// node's, which others are told.
    pub(crate) fn bind_depots(
        &mut self,
        settings: &DepotSettings,
        numbers: impl Iterator<Item = u32>,
    ) -> anyhow::Result<BTreeMap<u32, SocketAddr>> {
        let mut first = BTreeMap::new();
        for (number, behind) in numbers.zip(0..) {
            for &address in settings.ibp.addresses() {
                let mut address = address;
                if address.port() != 0 {
                    let port = address.port().checked_add(behind);
                    address.set_port(port.context("--ibp: there are not so many ports")?);
                }
                let (listener, address) = listen(&mut self.driver, "ibp", "ibp", address)?;
                self.depots.entry(number).or_default().push(listener);
                self.bound.push(door("ibp", address));
                first.entry(number).or_insert(address);
            }
        }
        Ok(first)
    }

    /// Where clients ask for depots.
    pub(crate) fn bind_lbone(&mut self, settings: &LboneSettings) -> anyhow::Result<()> {
        for &address in settings.lbone.addresses() {
            let (listener, address) = when_free(PORT_PATIENCE, is_port_taken, || {
                crossdock_net::listener(address)
            })
            .map_err(|error| port_advice(error, "lbone", "lbone", address))?;
            self.bound.push(door("lbone", address));
            self.lbone.push(listener);
        }
        Ok(())
    }

    /// Where administrators connect; the first address, if there is one.
    pub(crate) fn bind_admin(
        &mut self,
        settings: &ProcessSettings,
    ) -> anyhow::Result<Option<SocketAddr>> {
        let mut first = None;
        for &address in settings.admin.addresses() {
            let (listener, address) = when_free(PORT_PATIENCE, is_port_taken, || {
                crossdock_net::listener(address)
            })
            .map_err(|error| port_advice(error, "admin", "admin", address))?;
            self.bound.push(door("admin", address));
            self.admin.push(listener);
            first = first.or(Some(address));
        }
        Ok(first)
    }

    /// The way by which other threads reach the data thread.
    pub(crate) fn orders(&self) -> (Arc<crossdock_net::Sender<Order>>, Receiver<Order>) {
        let (orders, received) = crossdock_net::channel(ORDERS_MAX, self.driver.waker());
        (Arc::new(orders), received)
    }

    /// What goes on beside the data thread once it serves.
    pub(crate) fn take_background(&mut self) -> Background {
        Background {
            admin: std::mem::take(&mut self.admin),
            lbone: std::mem::take(&mut self.lbone),
            depots: Vec::new(),
            doors: self.bound.clone(),
        }
    }
}

/// What goes on beside the data thread.
pub(crate) struct Background {
    admin: Vec<TcpListener>,
    lbone: Vec<TcpListener>,
    /// Depots of elsewhere, which the L-Bone knows, too.
    pub(crate) depots: Vec<Record>,
    doors: Vec<DoorStatus>,
}

impl Background {
    /// Turns the loop until every part serves, says so, and goes on until a stop
    /// was ordered and everything is quiet.
    pub(crate) fn run(
        self,
        mut shell: Shell,
        settings: &ProcessSettings,
        events: Arc<Events>,
        orders: Arc<crossdock_net::Sender<Order>>,
    ) -> anyhow::Result<()> {
        shell.run_until_ready()?;
        let control = Arc::new(RemoteControl::new(orders));
        let watch = Watch::new(control, events, settings.admin_name.clone());
        for listener in self.admin {
            crossdock_admin::serve(listener, Arc::clone(&watch))
                .context("cannot start the admin API")?;
        }
        if !self.lbone.is_empty() {
            let served = crossdock_depots::serve(self.lbone);
            let handle = served.context("cannot start the L-Bone")?;
            shell.serve_lbone(handle, self.depots);
        }
        shell.pin();
        shell.tell_exports();
        announce(&self.doors)?;
        notify::tell(notify::READY);
        info!("ready");
        shell.run()
    }
}

/// Binds the TCP socket of a door.
fn listen(
    driver: &mut Driver,
    name: &str,
    flag: &str,
    address: SocketAddr,
) -> anyhow::Result<(ListenerId, SocketAddr)> {
    when_free(PORT_PATIENCE, is_port_taken, || driver.listen(address))
        .map_err(|error| port_advice(error, name, flag, address))
}

/// Binds the TCP and the UDP socket of a door.
fn bind(
    driver: &mut Driver,
    name: &str,
    address: SocketAddr,
) -> anyhow::Result<(NfsSockets, SocketAddr)> {
    let (listener, address) = when_free(PORT_PATIENCE, is_port_taken, || driver.listen(address))
        .map_err(|error| port_advice(error, name, name, address))?;
    let (datagrams, _) = when_free(PORT_PATIENCE, is_port_taken, || {
        driver.bind_datagram(address)
    })
    .map_err(|error| port_advice(error, name, name, address))?;
    let sockets = NfsSockets {
        listener,
        datagrams,
        address,
        is_portmap: name == "portmap",
        virtual_at: None,
    };
    Ok((sockets, address))
}

/// What this machine is called: clients are told it when we have restarted.
pub(crate) fn host_name() -> Vec<u8> {
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

fn door(name: &str, address: SocketAddr) -> DoorStatus {
    DoorStatus {
        name: name.to_owned(),
        address: address.to_string(),
    }
}

fn start_driver(settings: &ProcessSettings) -> anyhow::Result<Started> {
    let kernel = match settings.io {
        Io::Auto => KernelChoice::Best,
        Io::Uring => KernelChoice::Ring,
        Io::Threads => KernelChoice::Epoll,
    };
    let options = Options {
        kernel,
        // The door refuses what is too much for it; the loop would only let it wait.
        connections_max: DoorLimits::default().connections_max
            + HTTP_CONNECTIONS_MAX
            + ISCSI_CONNECTIONS_MAX
            + NODE_HTTP_CONNECTIONS_MAX
            + IBP_PROCESS_CONNECTIONS_MAX
            + CONNECTIONS_SPARE,
        zero_copy: settings.zero_copy == Switch::On,
        idle_poll: Duration::from_micros(settings.idle_poll),
        ..Options::default()
    };
    Driver::start(options).context(
        "cannot start the event loop; with --io uring the kernel must allow io_uring, --io auto falls back to threads",
    )
}

fn is_port_taken(error: &crossdock_net::NetError) -> bool {
    matches!(error, crossdock_net::NetError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse)
}

fn port_advice(
    error: crossdock_net::NetError,
    door: &str,
    flag: &str,
    address: SocketAddr,
) -> anyhow::Error {
    let crossdock_net::NetError::Listen { source, .. } = error else {
        return anyhow::Error::new(error).context(format!("the {door} door at {address}"));
    };
    let advice = match source.kind() {
        ErrorKind::AddrInUse => format!(
            "another program has the port: stop it, or choose another address with --{flag} (port 0 picks a free one)"
        ),
        ErrorKind::PermissionDenied => {
            format!("ports below 1024 need root: choose another one with --{flag}")
        }
        _ => format!("choose another address with --{flag}"),
    };
    anyhow::Error::new(source).context(format!(
        "the {door} door cannot listen on {address}; {advice}"
    ))
}

/// SIGINT and SIGTERM end the process after what is in progress; a second one
/// ends it at once. SIGHUP has a file read again, where there is one.
pub(crate) fn follow_signals(
    orders: Arc<crossdock_net::Sender<Order>>,
    mut reloader: Option<Reloader>,
) -> anyhow::Result<()> {
    let hangup = reloader.as_ref().map(|_| SIGHUP);
    let wanted = [SIGINT, SIGTERM].into_iter().chain(hangup);
    let mut signals = Signals::new(wanted).context("cannot watch for signals")?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut is_stopping = false;
            for signal in signals.forever() {
                match &mut reloader {
                    Some(reloader) if signal == SIGHUP => reloader.reload(&orders),
                    _ if is_stopping || orders.try_send(Order::Stop).is_err() => {
                        std::process::exit(1);
                    }
                    _ => is_stopping = true,
                }
            }
        })?;
    Ok(())
}

/// Each client takes a descriptor; the usual soft limit of 1,024 is less than
/// the door serves.
pub(crate) fn raise_descriptor_limit() {
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
