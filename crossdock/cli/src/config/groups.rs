//! Groups of flags that several commands have in common: each flag is described
//! once, and is a key of the file of every command that has its group.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use crossdock_limits::{DISK_DEPTH_MAX, NFS_REQUEST_BYTES_MIN};
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use super::http::Switch;
use super::values::{Door, Io, LogFormat, Secret, Size, Transport, loopback};
use super::{Group, usage};
use crate::shell::{Https, TlsFiles};

/// Clients begin to notice.
const SLOW_MS_DEFAULT: u64 = 1000;

/// Seconds of grace for locks, as other servers have.
const GRACE_DEFAULT: u64 = 45;

/// Most seconds of it: nobody gets a new lock meanwhile.
const GRACE_MAX: u64 = 3600;

/// Longest look for work before a sleep, in microseconds.
const IDLE_POLL_MAX: u64 = 10_000;

/// Half of what a hard disk does.
pub(crate) const REBUILD_RATE_DEFAULT: u64 = 64 << 20;

/// Less would not keep up with anybody who writes.
const REBUILD_RATE_MIN: u64 = 64 << 10;

/// No device takes more at a time.
const DISK_DEPTH_LIMIT: usize = 1024;

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct StoreFlags {
    /// Directory of all data [default of up: ./crossdock-data].
    #[arg(long, value_name = "DIR", env = "CROSSDOCK_DATA")]
    pub(crate) data: Option<PathBuf>,
    /// Space of all nodes of this process together, like 500M, 20G, 1T
    /// [default: 80 % of the file system].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_SIZE")]
    pub(crate) size: Option<Size>,
    /// Memory for cached blocks, like 512M [default: 25 % of memory].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_CACHE")]
    pub(crate) cache: Option<Size>,
    /// Requests that each disk works on at a time; more wait by priority [default: 32].
    #[arg(long, value_name = "N", env = "CROSSDOCK_DISK_DEPTH")]
    pub(crate) disk_depth: Option<usize>,
    /// Bytes per second that a node copies to others which lack them while clients are
    /// served, like 64M [default: 64M].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_REBUILD_RATE")]
    pub(crate) rebuild_rate: Option<Size>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct DoorFlags {
    /// NFS and MOUNT door: an IPv4 and an IPv6 address at most [default: 127.0.0.1:2049].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_NFS")]
    pub(crate) nfs: Option<Door>,
    /// Portmapper door, by which clients find NLM to lock files: an IPv4 and an
    /// IPv6 address at most, port 111 [default: off].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_PORTMAP")]
    pub(crate) portmap: Option<Door>,
    /// Memory for calls and replies of all NFS clients together, like 256M, at least
    /// 16M [default: 512M, or an eighth of memory if that is less].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_REQUEST_MEMORY")]
    pub(crate) request_memory: Option<Size>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct VirtualFlags {
    /// The network interface on which this gateway has virtual addresses in turn with the
    /// others (cluster init --virtual), like eth0; needs the capabilities CAP_NET_ADMIN
    /// and CAP_NET_RAW [default: it has none].
    #[arg(long, value_name = "IFACE", env = "CROSSDOCK_VIRTUAL_INTERFACE")]
    pub(crate) virtual_interface: Option<String>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct CatchFlags {
    /// Nodes send long replies themselves, in the connections of this gateway's clients
    /// (third-party transfer): the network interface by which packets leave for clients,
    /// like eth0. Needs root, or the capabilities CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON;
    /// nodes with --spiral-listen take part [default: all bytes pass through the gateway].
    #[arg(long, value_name = "IFACE", env = "CROSSDOCK_SPIRAL_DEVICE")]
    pub(crate) spiral_device: Option<String>,
    /// Whether this gateway sends what it keeps of hot files to clients of other gateways, too,
    /// under their addresses: off where the network in between does not let that pass [default:
    /// on].
    #[arg(long, value_name = "on|off", env = "CROSSDOCK_SPIRAL_LEND")]
    pub(crate) spiral_lend: Option<Switch>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct FillFlags {
    /// This node sends long replies itself, as the gateways that have --spiral-device: where
    /// it takes their packets, an address with a UDP port that they reach, like
    /// 10.0.0.5:7072 (port 0 picks a free one). Needs root, or the capability CAP_NET_ADMIN,
    /// and a network that lets packets with the gateways' addresses pass [default: it sends
    /// to gateways only].
    #[arg(long, value_name = "ADDR", env = "CROSSDOCK_SPIRAL_LISTEN")]
    pub(crate) spiral_listen: Option<SocketAddr>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct GatewayNameFlags {
    /// What this gateway is called, by its administrators and each time that it starts:
    /// crossdock gateway revoke takes that name [default: the machine's name].
    #[arg(long, value_name = "NAME", env = "CROSSDOCK_GATEWAY_NAME")]
    pub(crate) gateway_name: Option<String>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct LockFlags {
    /// After a restart, how long clients have to take their locks again before
    /// new ones are given; it ends as soon as all of them are told [default: 45].
    #[arg(long, value_name = "SECONDS", env = "CROSSDOCK_GRACE")]
    pub(crate) grace: Option<u64>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ProcessFlags {
    /// Admin API: an IPv4 and an IPv6 address at most [default: 127.0.0.1:7070].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_ADMIN_DOOR")]
    pub(crate) admin: Option<Door>,
    /// Names, besides addresses and localhost, under which browsers may ask the admin API.
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        env = "CROSSDOCK_ADMIN_NAME"
    )]
    pub(crate) admin_name: Option<Vec<String>>,
    /// A request that takes longer is told in the log and kept to look at [default: 1000].
    #[arg(long, value_name = "MS", env = "CROSSDOCK_SLOW_MS")]
    pub(crate) slow_ms: Option<u64>,
    /// User to become once the doors are bound, by name or as UID:GID, when started
    /// as root [default: stay, without capabilities].
    #[arg(long, value_name = "NAME", env = "CROSSDOCK_USER")]
    pub(crate) user: Option<String>,
    /// How disks and sockets are driven [default: auto].
    #[arg(long, value_name = "HOW", env = "CROSSDOCK_IO")]
    pub(crate) io: Option<Io>,
    /// Bulk bytes go from sockets to disks and back as they lie in memory; off: they are
    /// copied once on their way, to see what that costs [default: on].
    #[arg(long, value_name = "HOW", env = "CROSSDOCK_ZERO_COPY")]
    pub(crate) zero_copy: Option<Switch>,
    /// Look for work for up to so long before going to sleep, if the last came so soon: who
    /// sends one request at a time is answered sooner, for more processor time [default: 0].
    #[arg(long, value_name = "US", env = "CROSSDOCK_IDLE_POLL")]
    pub(crate) idle_poll: Option<u64>,
    /// How log lines look [default: human].
    #[arg(long, value_name = "FORMAT", env = "CROSSDOCK_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Which log lines are shown, like `info` or `crossdock=debug` [default: info].
    #[arg(long, value_name = "FILTER", env = "CROSSDOCK_LOG")]
    pub(crate) log: Option<String>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct NodeDoorFlags {
    /// The nodes' own HTTP door, for signed URLs of pieces of files (crossdock sign --nodes):
    /// an IPv4 and an IPv6 address at most. Clients are told the first one, so it is not
    /// 0.0.0.0; port 0 picks a free one [default: 127.0.0.1:0 of up, else off].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_NODE_HTTP")]
    pub(crate) node_http: Option<Door>,
    /// HTTPS of that door: file with its certificates, its own first, as PEM, for the address
    /// that clients are told. It is read anew when it changes. With it the door takes HTTPS
    /// only [default: HTTP].
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_NODE_HTTP_CERT")]
    pub(crate) node_http_cert: Option<PathBuf>,
    /// HTTPS of that door: file with the key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_NODE_HTTP_KEY")]
    pub(crate) node_http_key: Option<PathBuf>,
}

/// Where and how clients of nodes are served.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeDoorSettings {
    pub(crate) node_http: Door,
    /// Certificates and key.
    pub(crate) node_http_tls: Option<TlsFiles>,
}

/// Which ensemble it is, and where it is kept.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct EnsembleFlags {
    /// Where etcd answers, like http://10.0.0.1:2379; several with commas.
    #[arg(
        long,
        value_name = "URL,…",
        value_delimiter = ',',
        env = "CROSSDOCK_ETCD"
    )]
    pub(crate) etcd: Option<Vec<String>>,
    /// The ensemble's name, as `crossdock cluster init` was given it.
    #[arg(long, value_name = "NAME", env = "CROSSDOCK_NAME")]
    pub(crate) name: Option<String>,
    /// The certificate of etcd's own authority: etcd is reached by https then.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_ETCD_CA")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// The certificate that etcd wants to see of this process.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_ETCD_CERT")]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_ETCD_KEY")]
    pub(crate) etcd_key: Option<PathBuf>,
}

/// How a process of an ensemble talks to the others.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct TransportFlags {
    /// How it talks to the others: as the ensemble was made, and this says that it
    /// must be so [default: as the ensemble was made].
    #[arg(long, value_name = "HOW", env = "CROSSDOCK_TRANSPORT")]
    pub(crate) transport: Option<Transport>,
    /// Directory of this process's key and certificate, its own; made if it is not there.
    #[arg(long, value_name = "DIR", env = "CROSSDOCK_IDENTITY")]
    pub(crate) identity: Option<PathBuf>,
    /// What `crossdock cluster token create` has printed: by it the process gets a
    /// certificate, if it has none that holds. Others see a command line: better
    /// the variable or the file.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "CROSSDOCK_TOKEN",
        hide_env_values = true
    )]
    pub(crate) token: Option<Secret>,
}

/// Where the key is that makes members of the ensemble.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct AuthorityFlags {
    /// Directory of the ensemble's authority, as `crossdock cluster init` has made it: this
    /// manager gives certificates to processes that have a token.
    #[arg(long, value_name = "DIR", env = "CROSSDOCK_CA")]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct LinkFlags {
    /// Where the ensemble's other processes reach this one; they are told this
    /// address, so it is not 0.0.0.0. Port 0 picks a free one.
    #[arg(long, value_name = "ADDR:PORT", env = "CROSSDOCK_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
}

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct NumberFlags {
    /// Which of the ensemble's nodes this is, from 0.
    #[arg(long, value_name = "K", env = "CROSSDOCK_NUMBER")]
    pub(crate) number: Option<u32>,
}

/// Where nodes keep what they hold.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StoreSettings {
    pub(crate) data: PathBuf,
    pub(crate) size: Option<u64>,
    pub(crate) cache: Option<u64>,
    pub(crate) disk_depth: usize,
    /// In bytes per second.
    pub(crate) rebuild_rate: u64,
}

/// Where clients are served.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DoorSettings {
    pub(crate) nfs: Door,
    pub(crate) portmap: Door,
    pub(crate) request_memory: Option<u64>,
}

/// How a process of an ensemble talks to the others.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TransportSettings {
    /// `None`: as the ensemble was made.
    pub(crate) transport: Option<Transport>,
    pub(crate) identity: Option<PathBuf>,
    pub(crate) token: Option<Secret>,
    /// Only managers have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
}

/// What every process has.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProcessSettings {
    pub(crate) admin: Door,
    pub(crate) admin_name: Vec<String>,
    pub(crate) slow_ms: u64,
    /// `None`: stay who we are.
    pub(crate) user: Option<String>,
    pub(crate) io: Io,
    pub(crate) zero_copy: Switch,
    /// In microseconds.
    pub(crate) idle_poll: u64,
    pub(crate) log_format: LogFormat,
    pub(crate) log: String,
}

/// Gives a group the file's keys where there are no flags.
macro_rules! group {
    ($group:ident: $($key:ident),+) => {
        impl Group for $group {
            fn over(self, file: Self) -> Self {
                Self { $($key: self.$key.or(file.$key)),+ }
            }
        }
    };
}

group!(StoreFlags: data, size, cache, disk_depth, rebuild_rate);
group!(DoorFlags: nfs, portmap, request_memory);
group!(VirtualFlags: virtual_interface);
group!(CatchFlags: spiral_device, spiral_lend);
group!(FillFlags: spiral_listen);
group!(GatewayNameFlags: gateway_name);
group!(LockFlags: grace);
group!(NodeDoorFlags: node_http, node_http_cert, node_http_key);
group!(ProcessFlags: admin, admin_name, slow_ms, user, io, zero_copy, idle_poll, log_format, log);
group!(EnsembleFlags: etcd, name, etcd_ca, etcd_cert, etcd_key);
group!(TransportFlags: transport, identity, token);
group!(AuthorityFlags: ca);
group!(LinkFlags: listen);
group!(NumberFlags: number);

impl StoreFlags {
    pub(super) fn settle(self, data_default: Option<&str>) -> anyhow::Result<StoreSettings> {
        let data = self.data.or_else(|| data_default.map(PathBuf::from));
        let data = data.ok_or_else(|| missing("data", "the directory of the node's data"))?;
        let disk_depth = self.disk_depth.unwrap_or(DISK_DEPTH_MAX);
        if disk_depth == 0 || disk_depth > DISK_DEPTH_LIMIT {
            return Err(usage(format!(
                "disk_depth must be 1 to {DISK_DEPTH_LIMIT}, not {disk_depth}"
            )));
        }
        let rebuild_rate = self
            .rebuild_rate
            .map_or(REBUILD_RATE_DEFAULT, |size| size.0);
        if rebuild_rate < REBUILD_RATE_MIN {
            return Err(usage(format!(
                "rebuild_rate must be at least {}K, not {rebuild_rate} bytes per second",
                REBUILD_RATE_MIN >> 10
            )));
        }
        Ok(StoreSettings {
            data,
            size: self.size.map(|size| size.0),
            cache: self.cache.map(|size| size.0),
            disk_depth,
            rebuild_rate,
        })
    }
}

impl DoorFlags {
    pub(super) fn settle(self) -> anyhow::Result<DoorSettings> {
        let request_memory = self.request_memory.map(|size| size.0);
        if let Some(bytes) = request_memory
            && bytes < NFS_REQUEST_BYTES_MIN as u64
        {
            return Err(usage(format!(
                "request_memory must be at least {}M, some of the largest calls at a time, not {bytes} bytes",
                NFS_REQUEST_BYTES_MIN >> 20
            )));
        }
        Ok(DoorSettings {
            nfs: self.nfs.unwrap_or_else(|| loopback(2049)),
            portmap: self.portmap.unwrap_or(Door::Off),
            request_memory,
        })
    }
}

impl TransportFlags {
    pub(super) fn settle(self, authority: AuthorityFlags) -> anyhow::Result<TransportSettings> {
        let Self {
            transport,
            identity,
            token,
        } = self;
        let ca = authority.ca;
        if transport == Some(Transport::Plain) && (identity.is_some() || ca.is_some()) {
            return Err(usage(
                "--transport plain has no use for --identity and --ca: leave them away, or say --transport tls".to_owned(),
            ));
        }
        let wants_tls = transport == Some(Transport::Tls) || token.is_some() || ca.is_some();
        if wants_tls && identity.is_none() {
            return Err(missing(
                "identity",
                "the directory of this process's key and certificate",
            ));
        }
        Ok(TransportSettings {
            transport,
            identity,
            token,
            ca,
        })
    }
}

impl NodeDoorFlags {
    pub(super) fn settle(self, default: Door) -> anyhow::Result<NodeDoorSettings> {
        let (certificate, key) = (self.node_http_cert, self.node_http_key);
        let node_http_tls = TlsFiles::of("--node-http", certificate, key).map_err(usage)?;
        let door = self.node_http.unwrap_or(default);
        let mut addresses = door.addresses().iter();
        if let Some(all) = addresses.find(|address| address.ip().is_unspecified()) {
            return Err(usage(format!(
                "--node-http {all} is no address that clients can be sent to: name one of this machine's, like 10.0.0.5:8081"
            )));
        }
        Ok(NodeDoorSettings {
            node_http: door,
            node_http_tls,
        })
    }
}

impl NodeDoorSettings {
    /// Certificate and key, if clients are to talk over TLS.
    pub(crate) fn https(&self) -> anyhow::Result<Option<Https>> {
        self.node_http_tls.as_ref().map(Https::read).transpose()
    }
}

impl LockFlags {
    /// In seconds.
    pub(super) fn settle(&self) -> anyhow::Result<u64> {
        let grace = self.grace.unwrap_or(GRACE_DEFAULT);
        if grace > GRACE_MAX {
            return Err(usage(format!(
                "grace must be 0 to {GRACE_MAX} seconds, not {grace}"
            )));
        }
        Ok(grace)
    }
}

impl ProcessFlags {
    pub(super) fn settle(self) -> anyhow::Result<ProcessSettings> {
        let log = self.log.unwrap_or_else(|| "info".to_owned());
        if let Err(error) = EnvFilter::try_new(&log) {
            return Err(usage(format!(
                "the log filter {log:?} is not valid ({error}); try `info` or `crossdock=debug`"
            )));
        }
        let idle_poll = self.idle_poll.unwrap_or(0);
        if idle_poll > IDLE_POLL_MAX {
            return Err(usage(format!(
                "idle-poll must be 0 to {IDLE_POLL_MAX} microseconds, not {idle_poll}"
            )));
        }
        Ok(ProcessSettings {
            admin: self.admin.unwrap_or_else(|| loopback(7070)),
            admin_name: self.admin_name.unwrap_or_default(),
            slow_ms: self.slow_ms.unwrap_or(SLOW_MS_DEFAULT),
            user: self.user,
            io: self.io.unwrap_or(Io::Auto),
            zero_copy: self.zero_copy.unwrap_or(Switch::On),
            idle_poll,
            log_format: self.log_format.unwrap_or(LogFormat::Human),
            log,
        })
    }
}

impl ProcessSettings {
    /// From which time on a request is slow.
    pub(crate) const fn slow_after(&self) -> Duration {
        Duration::from_millis(self.slow_ms)
    }
}

/// A flag without which nothing can begin.
pub(super) fn missing(key: &str, what: &str) -> anyhow::Error {
    let in_file = key.replace('-', "_");
    usage(format!(
        "--{key} is missing (or the key {in_file} of the file): {what}"
    ))
}
