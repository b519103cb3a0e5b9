//! Configuration of the processes of an ensemble: `crossdock node run`,
//! `manager run` and `gateway run`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use crossdock_secure::{GATEWAY_NAME_BYTES_MAX as NAME_BYTES_MAX, is_name};
use serde::Serialize;

use super::depot::{DepotFlags, DepotSettings};
use super::groups::{
    AuthorityFlags, CatchFlags, DoorFlags, DoorSettings, EnsembleFlags, FillFlags,
    GatewayNameFlags, LinkFlags, LockFlags, NodeDoorFlags, NodeDoorSettings, NumberFlags,
    ProcessFlags, ProcessSettings, StoreFlags, StoreSettings, TransportFlags, TransportSettings,
    VirtualFlags, missing,
};
use super::http::{HttpFlags, HttpSettings, Switch};
use super::iscsi::{IscsiFlags, IscsiSettings};
use super::lbone::{LboneFlags, LboneSettings};
use super::up::DiskFlags;
use super::values::Door;
use super::{File, usage};

/// The flags of `crossdock node run`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct NodeFlags {
    /// Configuration file.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    ensemble: EnsembleFlags,
    #[command(flatten)]
    number: NumberFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    door: NodeDoorFlags,
    #[command(flatten)]
    disks: DiskFlags,
    #[command(flatten)]
    depot: DepotFlags,
    #[command(flatten)]
    filling: FillFlags,
    #[command(flatten)]
    link: LinkFlags,
    #[command(flatten)]
    transport: TransportFlags,
    #[command(flatten)]
    lbone: LboneFlags,
    #[command(flatten)]
    process: ProcessFlags,
}

/// The flags of `crossdock manager run`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ManagerFlags {
    /// Configuration file.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    ensemble: EnsembleFlags,
    #[command(flatten)]
    link: LinkFlags,
    #[command(flatten)]
    transport: TransportFlags,
    #[command(flatten)]
    authority: AuthorityFlags,
    #[command(flatten)]
    locks: LockFlags,
    #[command(flatten)]
    lbone: LboneFlags,
    #[command(flatten)]
    process: ProcessFlags,
}

/// The flags of `crossdock gateway run`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GatewayFlags {
    /// Configuration file.
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    ensemble: EnsembleFlags,
    #[command(flatten)]
    link: LinkFlags,
    #[command(flatten)]
    transport: TransportFlags,
    #[command(flatten)]
    door: DoorFlags,
    #[command(flatten)]
    http: HttpFlags,
    #[command(flatten)]
    iscsi: IscsiFlags,
    #[command(flatten)]
    addresses: VirtualFlags,
    #[command(flatten)]
    catching: CatchFlags,
    #[command(flatten)]
    name: GatewayNameFlags,
    #[command(flatten)]
    lbone: LboneFlags,
    #[command(flatten)]
    process: ProcessFlags,
}

/// Which ensemble it is, and where it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EnsembleSettings {
    pub(crate) etcd: Vec<String>,
    pub(crate) name: String,
    pub(crate) etcd_ca: Option<PathBuf>,
    /// Certificate and key.
    pub(crate) etcd_own: Option<(PathBuf, PathBuf)>,
}

/// What a process of an ensemble runs with, all defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MemberSettings {
    #[serde(flatten)]
    pub(crate) ensemble: EnsembleSettings,
    pub(crate) listen: SocketAddr,
    #[serde(flatten)]
    pub(crate) transport: TransportSettings,
    #[serde(flatten)]
    pub(crate) part: Part,
    #[serde(flatten)]
    pub(crate) lbone: LboneSettings,
    #[serde(flatten)]
    pub(crate) process: ProcessSettings,
}

/// What the process does in the ensemble.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Part {
    Node {
        number: u32,
        #[serde(flatten)]
        store: StoreSettings,
        #[serde(flatten)]
        door: NodeDoorSettings,
        /// `None`: what the data directory has; none for a new one.
        disks: Option<String>,
        #[serde(flatten)]
        depot: Box<DepotSettings>,
        /// Where it takes packets of gateways, if it does.
        spiral_listen: Option<SocketAddr>,
    },
    Manager {
        /// In seconds.
        grace: u64,
    },
    Gateway {
        #[serde(flatten)]
        door: DoorSettings,
        #[serde(flatten)]
        http: Box<HttpSettings>,
        #[serde(flatten)]
        iscsi: IscsiSettings,
        /// Where virtual addresses are; nowhere without.
        virtual_interface: Option<String>,
        /// By which packets leave for clients, if nodes may send to them.
        spiral_device: Option<String>,
        /// Whether it sends to clients of other gateways.
        spiral_lend: Switch,
        /// What it is called; without, as the machine is.
        gateway_name: Option<String>,
    },
}

impl NodeFlags {
    /// With what that file says only.
    pub(super) fn of_file(path: PathBuf) -> Self {
        Self {
            config: Some(path),
            ..Self::default()
        }
    }

    /// Reads the file, if one is named, and fills in defaults.
    pub(crate) fn settle(self) -> anyhow::Result<MemberSettings> {
        let mut file = File::read(self.config.as_deref())?;
        let ensemble = file.complete(self.ensemble)?;
        let number = file.complete(self.number)?;
        let store = file.complete(self.store)?;
        let door = file.complete(self.door)?;
        let disks = file.complete(self.disks)?.of_one()?;
        let depot = file.complete(self.depot)?;
        let spiral_listen = file.complete(self.filling)?.spiral_listen;
        let link = file.complete(self.link)?;
        let transport = file.complete(self.transport)?;
        let lbone = file.complete(self.lbone)?.settle(Door::Off)?;
        let process = file.complete(self.process)?;
        file.finish()?;
        let number = number.number;
        let number = number.ok_or_else(|| missing("number", "which of the nodes this is"))?;
        let store = store.settle(None)?;
        let door = door.settle(Door::Off)?;
        let depot = Box::new(depot.settle(Door::Off)?);
        Ok(MemberSettings {
            ensemble: ensemble.settle()?,
            listen: link.settle()?,
            transport: transport.settle(AuthorityFlags::default())?,
            part: Part::Node {
                number,
                store,
                door,
                disks,
                depot,
                spiral_listen,
            },
            lbone,
            process: process.settle()?,
        })
    }
}

impl ManagerFlags {
    /// With what that file says only.
    pub(super) fn of_file(path: PathBuf) -> Self {
        Self {
            config: Some(path),
            ..Self::default()
        }
    }

    /// Reads the file, if one is named, and fills in defaults.
    pub(crate) fn settle(self) -> anyhow::Result<MemberSettings> {
        let mut file = File::read(self.config.as_deref())?;
        let ensemble = file.complete(self.ensemble)?;
        let link = file.complete(self.link)?;
        let transport = file.complete(self.transport)?;
        let authority = file.complete(self.authority)?;
        let locks = file.complete(self.locks)?;
        let lbone = file.complete(self.lbone)?.settle(Door::Off)?;
        let process = file.complete(self.process)?;
        file.finish()?;
        let grace = locks.settle()?;
        Ok(MemberSettings {
            ensemble: ensemble.settle()?,
            listen: link.settle()?,
            transport: transport.settle(authority)?,
            part: Part::Manager { grace },
            lbone,
            process: process.settle()?,
        })
    }
}

impl GatewayFlags {
    /// With what that file says only.
    pub(super) fn of_file(path: PathBuf) -> Self {
        Self {
            config: Some(path),
            ..Self::default()
        }
    }

    /// Reads the file, if one is named, and fills in defaults.
    pub(crate) fn settle(self) -> anyhow::Result<MemberSettings> {
        let mut file = File::read(self.config.as_deref())?;
        let ensemble = file.complete(self.ensemble)?;
        let link = file.complete(self.link)?;
        let transport = file.complete(self.transport)?;
        let door = file.complete(self.door)?;
        let http = file.complete(self.http)?.settle(Door::Off)?;
        let iscsi = file.complete(self.iscsi)?.settle(Door::Off);
        let addresses = file.complete(self.addresses)?;
        let catching = file.complete(self.catching)?;
        let name = file.complete(self.name)?.gateway_name;
        let lbone = file.complete(self.lbone)?.settle(Door::Off)?;
        let process = file.complete(self.process)?;
        file.finish()?;
        Ok(MemberSettings {
            ensemble: ensemble.settle()?,
            listen: link.settle()?,
            transport: transport.settle(AuthorityFlags::default())?,
            part: gateway((door.settle()?, http, iscsi), addresses, catching, name)?,
            lbone,
            process: process.settle()?,
        })
    }
}

/// # Errors
/// It is no name.
pub(crate) fn check_gateway_name(name: Option<&str>) -> anyhow::Result<()> {
    if let Some(name) = name.filter(|name| !is_name(name)) {
        return Err(usage(format!(
            "--gateway-name {name:?} is no name: it has 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`"
        )));
    }
    Ok(())
}

fn gateway(
    (door, http, iscsi): (DoorSettings, HttpSettings, IscsiSettings),
    VirtualFlags { virtual_interface }: VirtualFlags,
    CatchFlags {
        spiral_device,
        spiral_lend,
    }: CatchFlags,
    gateway_name: Option<String>,
) -> anyhow::Result<Part> {
    check_gateway_name(gateway_name.as_deref())?;
    let mut doors = door.nfs.addresses().iter();
    if virtual_interface.is_some() {
        if door.nfs.addresses().is_empty() {
            let what = "--virtual-interface is of no use with --nfs off";
            return Err(usage(what.to_owned()));
        }
        if let Some(all) = doors.find(|address| address.ip().is_unspecified()) {
            return Err(usage(format!(
                "--nfs {all} and --virtual-interface: name the gateway's own address; it also listens at the virtual addresses that it has"
            )));
        }
    }
    Ok(Part::Gateway {
        door,
        http: Box::new(http),
        iscsi,
        virtual_interface,
        spiral_device,
        spiral_lend: spiral_lend.unwrap_or(Switch::On),
        gateway_name,
    })
}

impl EnsembleFlags {
    /// Where it is, and its name, have to be there.
    pub(crate) fn settle(self) -> anyhow::Result<EnsembleSettings> {
        let etcd = self.etcd.unwrap_or_default();
        if etcd.is_empty() {
            return Err(missing(
                "etcd",
                "where etcd answers, like http://10.0.0.1:2379",
            ));
        }
        let name = self
            .name
            .ok_or_else(|| missing("name", "the ensemble's name"))?;
        if !is_name(&name) {
            return Err(usage(format!(
                "{name:?} is no name of an ensemble: it has 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`"
            )));
        }
        let etcd_own = match (self.etcd_cert, self.etcd_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(missing("etcd-key", "the key of --etcd-cert")),
            (None, Some(_)) => {
                return Err(missing("etcd-cert", "the certificate of --etcd-key"));
            }
        };
        if etcd_own.is_some() && self.etcd_ca.is_none() {
            return Err(missing("etcd-ca", "the certificate of etcd's authority"));
        }
        Ok(EnsembleSettings {
            etcd,
            name,
            etcd_ca: self.etcd_ca,
            etcd_own,
        })
    }
}

impl LinkFlags {
    fn settle(self) -> anyhow::Result<SocketAddr> {
        let why = "where the ensemble's other processes reach this one, like 10.0.0.5:7071";
        let listen = self.listen.ok_or_else(|| missing("listen", why))?;
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        if listen.ip() == unspecified || listen.ip().is_unspecified() {
            return Err(usage(format!(
                "--listen {listen} is no address that others can connect to: name {why}"
            )));
        }
        Ok(listen)
    }
}
