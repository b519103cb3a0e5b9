//! `crossdock up`: everything in one process.

use std::time::Duration;

use anyhow::Context;
use crossdock_host::{GROWTH_BYTES, Host, HostConfig, LOG_PIECE_BYTES, NodeSettings};
use crossdock_iscsi::IscsiConfig;
use crossdock_members::{HostRecord, Registry};
use crossdock_names::MintingKey;
use rustix::thread::CapabilitySet;
use tracing::info;

use crate::config::{UpFlags, UpSettings};
use crate::data::{self, DataDirectory};
use crate::log;
use crate::memory;
use crate::privileges::{self, Account};
use crate::reload::{Origin, Reloader};
use crate::report::Surroundings;
use crate::shell::{Injector, Parts, Shell};
use crate::start::{Doors, follow_signals, raise_descriptor_limit};

/// Runs until SIGINT or SIGTERM.
pub(crate) fn run(flags: UpFlags) -> anyhow::Result<()> {
    let origin = Origin::Up(Box::new(flags.clone()));
    let settings = flags.settle()?;
    let process = &settings.process;
    let (events, filter) = log::start(process)?;
    raise_descriptor_limit();
    let account = process.user.as_deref().map(Account::find).transpose()?;
    let mut directory = None;
    match account {
        Some(account) => account.prepare(&settings.store.data, "registry")?,
        None => directory = Some(data::open(&settings)?),
    }
    let mut doors = Doors::start(process)?;
    doors.bind_nfs(&settings.door)?;
    doors.bind_http(&settings.http)?;
    doors.bind_iscsi(&settings.iscsi)?;
    doors.bind_admin(process)?;
    let node_door = doors.bind_node_http(&settings.node_door)?;
    // From here on there are other threads, which are to have no more rights.
    privileges::drop_all_but(CapabilitySet::empty(), account)?;
    let mut directory = match directory {
        Some(directory) => directory,
        // What the account makes is the account's.
        None => data::open(&settings)?,
    };
    let depots = doors.bind_depots(
        &settings.depot,
        (0..).take(directory.node_directories.len()),
    )?;
    let depots = settings
        .depot
        .doors(&depots, settings.lbone.location(), None);
    doors.bind_lbone(&settings.lbone)?;
    // As the account that reads them again when they change.
    let https = settings.http.https()?;
    let node_https = settings.node_door.https()?;
    let (orders, received) = doors.orders();
    let nodes = directory.node_directories.len();
    let reloader = Reloader::new(origin, &settings, Some(&settings.depot), filter, nodes)?;
    follow_signals(orders.clone(), reloader)?;
    let mut background = doors.take_background();
    background.depots = settings.lbone.others()?;
    let surroundings = Surroundings {
        io: doors.io,
        doors: doors.bound,
        has_several_devices: directory.has_several_devices,
        role: "all",
    };
    let node_directories = (0..).zip(directory.node_directories.clone()).collect();
    let node_sets = std::mem::take(&mut directory.sets);
    let mut role = HostRecord {
        depots,
        iscsi: doors.portals,
        ..HostRecord::default()
    };
    role.set_node_door(node_door);
    let mut shell = Shell::start(Parts {
        host: host(&settings, directory, role)?,
        driver: doors.driver,
        node_directories,
        node_sets,
        set_rebuild_rate: settings.store.rebuild_rate,
        nfs: doors.nfs,
        http: doors.http,
        iscsi: doors.iscsi,
        node_http: doors.node_http,
        depots: doors.depots,
        delivery: settings.http.switches(),
        import_from: settings.http.import_from.0.clone(),
        injector: Injector::default(),
        inflating: None,
        https,
        node_https,
        ensemble: None,
        orders: received,
        surroundings,
    })?;
    shell.tell_services(doors.services);
    info!(data = %settings.store.data.display(), io = doors.io, "starting");
    background.run(shell, process, events, orders)
}

fn host(settings: &UpSettings, directory: DataDirectory, role: HostRecord) -> anyhow::Result<Host> {
    let count = directory.node_directories.len();
    let mut host = Host::new(HostConfig {
        registry: Registry::Own(directory.registry),
        role,
        nodes: NodeSettings {
            capacity_bytes: directory.node_capacity_bytes,
            journal_bytes: data::JOURNAL_BYTES,
            cache_bytes: memory::cache_bytes(&settings.store)? / count,
            disk_depth: settings.store.disk_depth,
            rebuild_bytes_per_second: settings.store.rebuild_rate,
            log_piece_bytes: LOG_PIECE_BYTES,
            growth_bytes: GROWTH_BYTES,
        },
        request_bytes: memory::request_bytes(&settings.door)?,
        http: settings
            .http
            .config(memory::delivery_bytes(), data::random_u64()?),
        iscsi: IscsiConfig {
            seed: data::random_bytes()?,
            ..IscsiConfig::default()
        },
        instance: data::random_u64()?,
        minting: MintingKey(data::random_bytes()?),
        proving: data::random_bytes()?,
        handling: data::random_bytes()?,
        grace: Duration::from_secs(settings.grace),
    })
    .context("cannot write the registry")?;
    host.set_slow_after(settings.process.slow_after());
    settings.depot.apply(&mut host)?;
    Ok(host)
}
