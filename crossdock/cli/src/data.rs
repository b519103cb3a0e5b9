//! The data directory of the all-in-one, or of an ensemble's node: what is in it, making and opening it.
//!
//! ```text
//! DIR/registry          the embedded registry; locked while in use
//! DIR/node-N/journal    ring of 64 MiB, written through when made
//! DIR/node-N/data       runs, grows as needed; or
//! DIR/node-N/disks      the disks on which the runs are instead
//! DIR/node-N/index      the index of objects and runs
//! ```
//!
//! A node of an ensemble has the files of a node, and nothing else.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use crossdock_disk::{DiskFile, FileBlockingDisk, OpenOptions};
use crossdock_members::{Embedded, OpenError, State};
use crossdock_names::{LayoutClass, SITES, Spread};

use crate::config::{NODES_DEFAULT, Names, StoreSettings, UpSettings};
use crate::format;
use crate::leftover::when_free;
use crate::sets::{self, OpenSets};

/// Bytes of a node's journal.
pub(crate) const JOURNAL_BYTES: u64 = 64 << 20;

/// Part of the file system that nodes may fill when no size is given, in percent.
const FILE_SYSTEM_SHARE_PERCENT: u64 = 80;

/// Room that a new node needs at least, in bytes: journal, index, some data.
const NODE_BYTES_MIN: u64 = JOURNAL_BYTES + (64 << 20);

/// How long the kernel may take to end the requests of a killed process.
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(10);

/// An opened data directory.
pub(crate) struct DataDirectory {
    pub(crate) registry: Embedded,
    pub(crate) node_directories: Vec<PathBuf>,
    /// Bytes of data that each node may hold; those with sets hold what these have.
    pub(crate) node_capacity_bytes: u64,
    /// The disks of nodes that have their data on sets.
    pub(crate) sets: BTreeMap<u32, OpenSets>,
    /// Whether the nodes lie on more than one device.
    pub(crate) has_several_devices: bool,
}

/// Opens the data directory, or makes a new one.
///
/// # Errors
/// What is wrong and what to do: used by another process, no permission, no
/// space, made for other settings.
pub(crate) fn open(settings: &UpSettings) -> anyhow::Result<DataDirectory> {
    let directory = &settings.store.data;
    make_directory(directory)?;
    let path = directory.join("registry");
    let disk =
        FileBlockingDisk::open_or_create(&path).map_err(|error| explain(error, directory))?;
    let registry = match Embedded::open(Box::new(disk)) {
        Ok(registry) => {
            check_against(settings, registry.state())?;
            registry
        }
        Err(OpenError::Empty) => {
            refuse_if_nodes_exist(directory)?;
            check_room(settings)?;
            let state = fresh_state(settings)?;
            let disk = FileBlockingDisk::open_or_create(&path)
                .map_err(|error| explain(error, directory))?;
            Embedded::create(Box::new(disk), state).context("cannot write the registry")?
        }
        Err(error) => {
            return Err(error)
                .with_context(|| format!("the registry {} cannot be read", path.display()));
        }
    };
    let count = u64::try_from(registry.state().nodes.len())?;
    let node_directories = node_directories(directory, count)?;
    let has_several_devices = several_devices(&node_directories)?;
    let said = settings.node_disks();
    let limit_bytes = settings.store.size.map(|size| size / count);
    let mut sets = BTreeMap::new();
    for (number, directory) in (0..).zip(&node_directories) {
        if let Some(open) = sets::open(directory, said.get(&number), limit_bytes)? {
            sets.insert(number, open);
        }
    }
    let node_capacity_bytes = capacity_bytes(&settings.store)? / count;
    Ok(DataDirectory {
        registry,
        node_directories,
        node_capacity_bytes,
        sets,
        has_several_devices,
    })
}

/// Bytes that all nodes of this process may hold: as configured, or most of the
/// file system.
fn capacity_bytes(settings: &StoreSettings) -> anyhow::Result<u64> {
    Ok(match settings.size {
        Some(size) => size,
        None => file_system(&settings.data)?.total_bytes / 100 * FILE_SYSTEM_SHARE_PERCENT,
    })
}

/// Makes the directory of an ensemble's node ready, and tells how many bytes it
/// may hold. `is_used`: the node has been in the ensemble before.
///
/// # Errors
/// What is wrong and what to do: no permission, no space, and that the node has
/// lost what it held. To go on without it would read as empty what nobody else has.
pub(crate) fn prepare_node(settings: &StoreSettings, is_used: bool) -> anyhow::Result<u64> {
    let directory = &settings.data;
    let data = match directory.join("disks").exists() {
        true => "disks",
        false => "data",
    };
    let lost = ["journal", data, "index"].map(|name| directory.join(name));
    let lost = lost.into_iter().find(|path| !path.exists());
    if let Some(path) = lost.filter(|_| is_used) {
        bail!(
            "this node has been in the ensemble before, and its data is not in {}: {} is missing. Name the directory that it had with --data, or restore it from a copy; what this node alone held is nowhere else",
            directory.display(),
            path.display()
        );
    }
    make_directory(directory)?;
    if !directory.join("index").exists() {
        check_room_for(1, directory)?;
    }
    capacity_bytes(settings)
}

/// Opens or makes the journal of the node in `directory`.
pub(crate) fn open_journal(directory: &Path) -> anyhow::Result<DiskFile> {
    let options = OpenOptions {
        length_bytes: JOURNAL_BYTES,
        prewrite: true,
    };
    open_when_free(&directory.join("journal"), options).map_err(|error| explain(error, directory))
}

/// Opens or makes the data file of the node in `directory`.
pub(crate) fn open_data(directory: &Path) -> anyhow::Result<DiskFile> {
    let options = OpenOptions {
        length_bytes: 0,
        prewrite: false,
    };
    open_when_free(&directory.join("data"), options).map_err(|error| explain(error, directory))
}

/// Opens a disk once nothing of a killed process holds it.
fn open_when_free(
    path: &Path,
    options: OpenOptions,
) -> Result<DiskFile, crossdock_disk::OpenError> {
    let is_taken = |error: &_| matches!(error, crossdock_disk::OpenError::InUse(_));
    when_free(LEFTOVER_PATIENCE, is_taken, || {
        DiskFile::open_or_create(path, options)
    })
}

/// Opens or makes the index file of the node in `directory`.
pub(crate) fn open_index(directory: &Path) -> anyhow::Result<FileBlockingDisk> {
    FileBlockingDisk::open_or_create(&directory.join("index"))
        .map_err(|error| explain(error, directory))
}

/// A random number from the system.
pub(crate) fn random_u64() -> anyhow::Result<u64> {
    Ok(u64::from_le_bytes(random_bytes()?))
}

pub(crate) fn random_bytes<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read random numbers from /dev/urandom")?;
    Ok(bytes)
}

fn fresh_state(settings: &UpSettings) -> anyhow::Result<State> {
    let nodes = settings.nodes.unwrap_or(NODES_DEFAULT);
    let replicas = settings.replicas.unwrap_or(1);
    let ids = (0..nodes)
        .map(|_| random_u64())
        .collect::<anyhow::Result<Vec<u64>>>()?;
    let directories = node_directories(&settings.store.data, u64::from(nodes))?;
    let site_replicas = if several_devices(&directories)? {
        replicas.max(2)
    } else {
        replicas
    };
    let (ensemble, volume) = (random_u64()?, random_u64()?);
    let mut state = State::fresh(ensemble, volume, &ids, replicas, site_replicas);
    state.spread = spread_of(settings.names, settings.spread);
    state.layout = settings.placement.map(Into::into).unwrap_or_default();
    Ok(state)
}

/// Sites over which names are hashed: each directory has a part at all of them, so
/// that every MKDIR, RMDIR and list takes as many messages. They lie on as many managers.
const HASHED_SITES: u16 = 8;

/// What was said about names; 0 without a probability.
pub(crate) fn spread_of(names: Option<Names>, probability: Option<f64>) -> Spread {
    match names {
        Some(Names::Hashed) => Spread::hashed(HASHED_SITES),
        _ => Spread::new(
            probability.unwrap_or(0.0),
            u16::try_from(SITES).unwrap_or(u16::MAX),
        ),
    }
}

fn check_against(settings: &UpSettings, state: &State) -> anyhow::Result<()> {
    let nodes = u32::try_from(state.nodes.len())?;
    for (name, wanted, is) in [
        ("nodes", settings.nodes, nodes),
        ("replicas", settings.replicas, state.replicas),
    ] {
        if let Some(wanted) = wanted
            && wanted != is
        {
            bail!(
                "the data directory {} was made with {name} = {is}, not {wanted}; leave --{name} away, or choose another directory with --data",
                settings.store.data.display()
            );
        }
    }
    let is_hashed = state.spread.is_hashed;
    let name_of = |is_hashed| if is_hashed { "hashed" } else { "switched" };
    if let Some(wanted) = settings.names.map(|names| names == Names::Hashed)
        && wanted != is_hashed
    {
        bail!(
            "the data directory {} was made with names = {}, not {}; leave --names away, or choose another directory with --data",
            settings.store.data.display(),
            name_of(is_hashed),
            name_of(wanted)
        );
    }
    if let Some(wanted) = settings.spread.map(|spread| spread_of(None, Some(spread)))
        && (is_hashed || wanted.per_million != state.spread.per_million)
    {
        bail!(
            "the data directory {} was made with spread = {}, not {}; leave --spread away, or choose another directory with --data",
            settings.store.data.display(),
            state.spread.probability(),
            wanted.probability()
        );
    }
    if let Some(wanted) = settings.placement.map(LayoutClass::from)
        && wanted != state.layout
    {
        let name_of = |layout: LayoutClass| match layout.map_block_bytes() {
            Some(_) => "mapped",
            None => "striped",
        };
        bail!(
            "the data directory {} was made with placement = {}, not {}; leave --placement away, or choose another directory with --data",
            settings.store.data.display(),
            name_of(state.layout),
            name_of(wanted)
        );
    }
    Ok(())
}

/// A registry that was lost must not be replaced by a new one: the nodes' data
/// would be unreachable for ever.
fn refuse_if_nodes_exist(directory: &Path) -> anyhow::Result<()> {
    if directory.join("node-0").join("index").exists() {
        bail!(
            "{0} holds storage nodes but no valid registry; restore {0}/registry from a copy, or move the directory away to begin anew",
            directory.display()
        );
    }
    Ok(())
}

fn check_room(settings: &UpSettings) -> anyhow::Result<()> {
    check_room_for(
        settings.nodes.unwrap_or(NODES_DEFAULT),
        &settings.store.data,
    )
}

fn check_room_for(nodes: u32, directory: &Path) -> anyhow::Result<()> {
    let needed = u64::from(nodes) * NODE_BYTES_MIN;
    let available = file_system(directory)?.available_bytes;
    if available < needed {
        bail!(
            "the file system of {} has {} free, {nodes} nodes need at least {}; free some space, use fewer --nodes, or choose another directory with --data",
            directory.display(),
            format::bytes(available),
            format::bytes(needed)
        );
    }
    Ok(())
}

fn make_directory(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| {
        format!(
            "cannot make the data directory {}; choose another one with --data, or give this user the right to write there",
            directory.display()
        )
    })
}

fn node_directories(directory: &Path, count: u64) -> anyhow::Result<Vec<PathBuf>> {
    (0..count)
        .map(|number| {
            let path = directory.join(format!("node-{number}"));
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot make the node's directory {}", path.display()))?;
            Ok(path)
        })
        .collect()
}

fn several_devices(directories: &[PathBuf]) -> anyhow::Result<bool> {
    let mut devices = Vec::new();
    for directory in directories {
        devices.push(fs::metadata(directory)?.dev());
    }
    devices.sort_unstable();
    devices.dedup();
    Ok(devices.len() > 1)
}

struct FileSystem {
    total_bytes: u64,
    available_bytes: u64,
}

fn file_system(directory: &Path) -> anyhow::Result<FileSystem> {
    let stat = rustix::fs::statvfs(directory).with_context(|| {
        format!(
            "cannot ask the file system of {} for its size",
            directory.display()
        )
    })?;
    Ok(FileSystem {
        total_bytes: stat.f_blocks * stat.f_frsize,
        available_bytes: stat.f_bavail * stat.f_frsize,
    })
}

fn explain(error: crossdock_disk::OpenError, directory: &Path) -> anyhow::Error {
    let advice = match &error {
        crossdock_disk::OpenError::InUse(_) => format!(
            "another crossdock serves {}; stop it first (SIGTERM), or choose another directory with --data",
            directory.display()
        ),
        crossdock_disk::OpenError::Io { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "run as a user who owns the data directory, or choose another one with --data"
                .to_owned()
        }
        crossdock_disk::OpenError::Io { source, .. }
            if source.kind() == std::io::ErrorKind::StorageFull =>
        {
            "free some space on the file system, or choose another directory with --data".to_owned()
        }
        _ => "the data directory is not usable as it is".to_owned(),
    };
    // Its text has the cause in it already.
    anyhow::anyhow!("{error}").context(advice)
}
