//! `crossdock node run`, `manager run` and `gateway run`: a process of an ensemble.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use crossdock_delivery::Switches;
use crossdock_etcd::Notice;
use crossdock_host::{GROWTH_BYTES, Host, HostConfig, LOG_PIECE_BYTES, NodeSettings};
use crossdock_http::HttpConfig;
use crossdock_iscsi::IscsiConfig;
use crossdock_limits::NFS_REQUEST_BYTES_MIN;
use crossdock_link::{LinkConfig, Role};
use crossdock_members::{HostRecord, NodeRecord, Registry, Shared, State};
use crossdock_names::{Epoch, HostId, MintingKey};
use crossdock_net::{Interface, ListenerId, Receiver};
use crossdock_secure::is_name;
use crossdock_sets::spec;
use rustix::thread::CapabilitySet;
use tracing::info;

use crate::config::{EnsembleSettings, MemberSettings, Part, REBUILD_RATE_DEFAULT, Switch};
use crate::data;
use crate::identity::{self, Holder, Prepared, read};
use crate::log;
use crate::memory;
use crate::patience;
use crate::privileges::{self, Account};
use crate::reload::{Origin, Reloader};
use crate::report::Surroundings;
use crate::sets::{self, OpenSets};
use crate::shell::{Addresses, Ensemble, Inflating, Injector, Links, Parts, Security, Shell};
use crate::start::{Doors, follow_signals, host_name, raise_descriptor_limit};

/// After how long without a sign of life a host is replaced: the least that etcd
/// knows with its own settings. With the leases between hosts (docs/decisions/0019)
/// and the reading of a site's log a take-over then ends within 5 s.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// News of the registry that wait for the data thread.
const NOTICES_MAX: usize = 64;

/// Which registry an ensemble has, for the process of that number.
///
/// # Errors
/// A certificate for etcd cannot be read.
pub(crate) fn registry(
    settings: &EnsembleSettings,
    host: HostId,
) -> anyhow::Result<crossdock_etcd::Config> {
    let own = settings.etcd_own.as_ref();
    let own = match own {
        Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
        None => None,
    };
    let authority = settings.etcd_ca.as_deref().map(read).transpose()?;
    let tls = authority.map(|authority| crossdock_etcd::Tls { authority, own });
    Ok(crossdock_etcd::Config {
        endpoints: settings.etcd.clone(),
        tls,
        prefix: format!("/crossdock/{}", settings.name),
        host,
        ttl: TTL,
    })
}

/// Runs until SIGINT, SIGTERM, or until others have replaced this process.
pub(crate) fn run(settings: &MemberSettings, origin: Origin) -> anyhow::Result<()> {
    let process = &settings.process;
    let (events, filter) = log::start(process)?;
    raise_descriptor_limit();
    let account = process.user.as_deref().map(Account::find).transpose()?;
    if let Some(account) = account {
        if let Part::Node { store, .. } = &settings.part {
            account.prepare(&store.data, "index")?;
        }
        if let Some(identity) = &settings.transport.identity {
            account.prepare(identity, "key.pem")?;
        }
    }
    let mut doors = Doors::start(process)?;
    let (listener, link) = doors.bind_link(settings.listen)?;
    let host = HostId(data::random_u64()?);
    let (mut interface, mut injector) = (None, Injector::default());
    let mut inflating = None;
    let mut kept = CapabilitySet::empty();
    if let Part::Gateway {
        door,
        http,
        iscsi,
        virtual_interface,
        spiral_device,
        spiral_lend,
        ..
    } = &settings.part
    {
        doors.bind_nfs(door)?;
        doors.bind_http(http)?;
        doors.bind_iscsi(iscsi)?;
        if let Some(name) = virtual_interface {
            let opened = Interface::open(name);
            interface = Some(opened.with_context(|| format!("--virtual-interface {name}"))?);
            kept = CapabilitySet::NET_ADMIN;
        }
        if let Some(device) = spiral_device {
            let driver = &mut doors.driver;
            injector = Injector::open(driver, device, link.ip(), host)?;
            inflating = Inflating::own(driver, link.ip(), *spiral_lend == Switch::On);
            // Each client's socket is marked and shown to the program.
            kept |= CapabilitySet::NET_ADMIN | CapabilitySet::BPF;
        }
    }
    if let Part::Node {
        spiral_listen: Some(address),
        ..
    } = &settings.part
    {
        inflating = Some(Inflating::open(&mut doors.driver, *address)?);
    }
    let mut depots = BTreeMap::new();
    if let Part::Node { number, depot, .. } = &settings.part {
        let bound = doors.bind_depots(depot, [*number].into_iter())?;
        let location = settings.lbone.location();
        depots = depot.doors(&bound, location, Some(link.ip()));
    }
    doors.bind_lbone(&settings.lbone)?;
    let admin = doors.bind_admin(process)?;
    let node_door = match &settings.part {
        Part::Node { door, .. } => doors.bind_node_http(door)?,
        _ => None,
    };
    // From here on there are other threads, which are to have no more rights.
    privileges::drop_all_but(kept, account)?;
    // As the account that reads them again when they change.
    let (https, node_https) = match &settings.part {
        Part::Gateway { http, .. } => (http.https()?, None),
        Part::Node { door, .. } => (None, door.https()?),
        Part::Manager { .. } => (None, None),
    };
    let (orders, received) = doors.orders();
    let depot = match &settings.part {
        Part::Node { depot, .. } => Some(&**depot),
        Part::Gateway { .. } | Part::Manager { .. } => None,
    };
    let reloader = Reloader::new(origin, settings, depot, filter, 1)?;
    follow_signals(orders.clone(), reloader)?;

    let config = registry(&settings.ensemble, host)?;
    let Some((revision, state)) = patience::read(&config, &received, &orders)? else {
        return Ok(());
    };
    let (name, role) = (&settings.ensemble.name, role(&settings.part));
    let holder = Holder {
        role,
        gateway: gateway_name(&settings.part),
    };
    let prepared = identity::prepare(&settings.transport, name, &holder, &config, &state)?;
    let certified = prepared.as_ref().and_then(Prepared::gateway);
    check_name(&settings.part, certified.as_deref())?;
    let place = Place::find(settings, &state)?;
    let mut record = record(&settings.part, &place, link, admin);
    record.set_node_door(node_door);
    record.depots = depots;
    record.iscsi = std::mem::take(&mut doors.portals);
    record.name = certified.or(holder.gateway).unwrap_or_default();
    let mut background = doors.take_background();
    background.depots = settings.lbone.others()?;
    let (registry, notices) = follow(config, revision, &state, &doors)?;
    let ensemble = Ensemble {
        part: settings.part.clone(),
        links: links(&state, host, role, listener, &doors, prepared)?,
        addresses: interface.map(Addresses::new),
        registry,
        notices,
    };
    info!(%host, ensemble = %settings.ensemble.name, %link, io = doors.io, "starting");
    let shared = Shared::new(revision, state);
    let mut shell = Shell::start(Parts {
        host: machines(settings, &place, shared, record, host)?,
        driver: doors.driver,
        node_directories: place.directories,
        node_sets: place.sets,
        set_rebuild_rate: place.rebuild_rate,
        nfs: doors.nfs,
        http: doors.http,
        iscsi: doors.iscsi,
        node_http: doors.node_http,
        depots: doors.depots,
        delivery: match &settings.part {
            Part::Gateway { http, .. } => http.switches(),
            _ => Switches::default(), // Nobody is served over HTTP.
        },
        import_from: match &settings.part {
            Part::Gateway { http, .. } => http.import_from.0.clone(),
            _ => Vec::new(), // They write no files.
        },
        injector,
        inflating,
        https,
        node_https,
        ensemble: Some(ensemble),
        orders: received,
        surroundings: Surroundings {
            io: doors.io,
            doors: doors.bound,
            has_several_devices: true,
            role: role.word(),
        },
    })?;
    shell.tell_services(doors.services);
    background.run(shell, process, events, orders)
}

/// What a node has that other processes have not.
#[derive(Default)]
struct Place {
    node: Option<NodeRecord>,
    directories: BTreeMap<u32, PathBuf>,
    capacity_bytes: u64,
    sets: BTreeMap<u32, OpenSets>,
    rebuild_rate: u64,
}

impl Place {
    /// # Errors
    /// There is no such node, or its data is not where it should be.
    fn find(settings: &MemberSettings, state: &State) -> anyhow::Result<Self> {
        let Part::Node {
            number,
            store,
            disks,
            ..
        } = &settings.part
        else {
            return Ok(Self::default());
        };
        let node = state.nodes.iter().find(|node| node.number == *number);
        let Some(node) = node else {
            bail!(
                "the ensemble {} has no node {number}: it has {} nodes, numbered from 0",
                settings.ensemble.name,
                state.nodes.len()
            );
        };
        let capacity_bytes = data::prepare_node(store, node.is_used)?;
        let said = disks.as_deref().map(spec::parse_node).transpose()?;
        let sets = sets::open(&store.data, said.as_ref(), store.size)?;
        Ok(Self {
            node: Some(node.clone()),
            directories: [(*number, store.data.clone())].into(),
            capacity_bytes,
            sets: sets.map(|sets| (*number, sets)).into_iter().collect(),
            rebuild_rate: store.rebuild_rate,
        })
    }
}

/// A name that is given has to be that of the certificate.
fn check_name(part: &Part, certified: Option<&str>) -> anyhow::Result<()> {
    let Part::Gateway { gateway_name, .. } = part else {
        return Ok(());
    };
    match (gateway_name.as_deref(), certified) {
        (Some(name), Some(certified)) if name != certified => bail!(
            "the certificate in --identity is for the gateway {certified}, this is {name}: leave --gateway-name away, or get another certificate with `crossdock cluster join --role gateway --gateway-name {name}`"
        ),
        _ => Ok(()),
    }
}

/// What administrators call it.
fn gateway_name(part: &Part) -> Option<String> {
    match part {
        Part::Gateway { gateway_name, .. } => {
            Some(gateway_name.clone().unwrap_or_else(default_gateway_name))
        }
        _ => None,
    }
}

/// The machine's name, which may have letters that names do not.
pub(crate) fn default_gateway_name() -> String {
    let machine = String::from_utf8_lossy(&host_name()).into_owned();
    match is_name(&machine) {
        true => machine,
        false => "gateway".to_owned(),
    }
}

fn record(part: &Part, place: &Place, link: SocketAddr, admin: Option<SocketAddr>) -> HostRecord {
    let machine = String::from_utf8_lossy(&host_name()).into_owned();
    HostRecord {
        nodes: place.node.iter().map(|node| node.id).collect(),
        is_manager: matches!(part, Part::Manager { .. }),
        is_gateway: matches!(part, Part::Gateway { .. }),
        is_retiring: false,
        takes_addresses: matches!(
            part,
            Part::Gateway {
                virtual_interface: Some(_),
                ..
            }
        ),
        link: Some(link),
        admin,
        node_http: None,
        is_node_http_secure: false,
        depots: BTreeMap::new(),
        machine,
        name: String::new(),
        reservations_obeyed: 0,
        iscsi: Vec::new(),
        iscsi_port: 0,
    }
}

const fn role(part: &Part) -> Role {
    match part {
        Part::Node { .. } => Role::Node,
        Part::Manager { .. } => Role::Manager,
        Part::Gateway { .. } => Role::Gateway,
    }
}

fn links(
    state: &State,
    host: HostId,
    role: Role,
    listener: ListenerId,
    doors: &Doors,
    prepared: Option<Prepared>,
) -> anyhow::Result<Links> {
    let mut config = LinkConfig::new(state.ensemble, host, role);
    config.table_epoch = Epoch(state.table_epoch);
    config.wants_certificate = prepared.is_some();
    // What comes through TLS is in memory already.
    config.fills = prepared.is_none();
    Ok(Links::new(
        config,
        data::random_u64()?,
        listener,
        &doors.driver,
        prepared.map(|prepared| Security::new(state.ensemble, prepared)),
    ))
}

/// The machines of this process.
fn machines(
    settings: &MemberSettings,
    place: &Place,
    shared: Shared,
    record: HostRecord,
    host: HostId,
) -> anyhow::Result<Host> {
    let mut nodes = NodeSettings {
        capacity_bytes: place.capacity_bytes,
        journal_bytes: data::JOURNAL_BYTES,
        cache_bytes: 0,
        disk_depth: 1,
        rebuild_bytes_per_second: REBUILD_RATE_DEFAULT,
        log_piece_bytes: LOG_PIECE_BYTES,
        growth_bytes: GROWTH_BYTES,
    };
    let (mut request_bytes, mut grace) = (NFS_REQUEST_BYTES_MIN, 0);
    let mut web = HttpConfig::default();
    match &settings.part {
        Part::Node { store, .. } => {
            nodes.cache_bytes = memory::cache_bytes(store)?;
            nodes.disk_depth = store.disk_depth;
            nodes.rebuild_bytes_per_second = store.rebuild_rate;
        }
        Part::Manager { grace: seconds } => grace = *seconds,
        Part::Gateway { door, http, .. } => {
            request_bytes = memory::request_bytes(door)?;
            web = http.config(memory::delivery_bytes(), data::random_u64()?);
        }
    }
    let mut machines = Host::new(HostConfig {
        registry: Registry::Shared(shared),
        role: record,
        nodes,
        request_bytes,
        http: web,
        iscsi: IscsiConfig {
            is_shared: true,
            seed: data::random_bytes()?,
            ..IscsiConfig::default()
        },
        instance: host.0,
        minting: MintingKey(data::random_bytes()?),
        proving: data::random_bytes()?,
        handling: data::random_bytes()?,
        grace: Duration::from_secs(grace),
    })
    .context("cannot begin with the registry's state")?;
    machines.set_slow_after(settings.process.slow_after());
    if let Part::Node { depot, .. } = &settings.part {
        depot.apply(&mut machines)?;
    }
    Ok(machines)
}

/// Follows the registry from `revision` on.
fn follow(
    config: crossdock_etcd::Config,
    revision: u64,
    state: &State,
    doors: &Doors,
) -> anyhow::Result<(crossdock_etcd::Handle, Receiver<Notice>)> {
    let (sender, notices) = crossdock_net::channel(NOTICES_MAX, doors.driver.waker());
    let handle = crossdock_etcd::start(config, revision, state.clone(), move |notice| {
        // If the data thread is gone, nobody wants to know.
        let _ = sender.send(notice);
    })?;
    Ok((handle, notices))
}
