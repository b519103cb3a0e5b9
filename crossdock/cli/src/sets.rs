//! The disks of a node that has its data on sets: which they are, opening them, finding out
//! what is on them.
//!
//! `DIR/node-N/disks` holds what was said of them, as a SPEC, with what was given later; so the
//! next start finds them without being told. Each further line is the path of a disk whose set
//! was retired: who still names it does not mean a new one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use crossdock_disk::{DiskFile, OpenError};
use crossdock_sets::spec::{self, NodeDisksSpec, SetSpec};
use crossdock_sets::{Assembled, DiskNumber, Found, Geometry, SetWish, Wish, assemble};
use crossdock_types::AlignedBuffer;
use tracing::{info, warn};

use crate::data;

/// Where the SPEC of a node is.
const SAVED: &str = "disks";

/// Bytes of zeros that a new disk's speed is measured with, and how often.
const MEASURED_BYTES: u64 = 4 << 20;
const MEASUREMENTS: usize = 3;

/// What a node remembers of its disks.
#[derive(Clone, Default)]
struct Saved {
    spec: NodeDisksSpec,
    retired: Vec<PathBuf>,
}

/// The opened sets of a node.
pub(crate) struct OpenSets {
    pub(crate) assembled: Assembled,
    /// How much of them is to be used at most.
    pub(crate) limit_bytes: u64,
    pub(crate) files: BTreeMap<DiskNumber, DiskFile>,
}

/// A disk that was named.
struct Named {
    path: PathBuf,
    file: Option<DiskFile>,
    found: Found,
}

/// Opens the sets of the node in `directory`, if it has some or is to have some; it may use
/// `limit_bytes` of them at most.
///
/// # Errors
/// What is wrong with which disk, and what to do.
pub(crate) fn open(
    directory: &Path,
    said: Option<&NodeDisksSpec>,
    limit_bytes: Option<u64>,
) -> anyhow::Result<Option<OpenSets>> {
    let saved = saved(directory)?;
    let mut spec = match (said, &saved) {
        (None, None) => return Ok(None),
        (None, Some(saved)) => saved.spec.clone(),
        (Some(said), None) => said.clone(),
        (Some(said), Some(saved)) => {
            let mut said = said.clone();
            said.sets.retain(|set| !is_retired(set, &saved.retired));
            saved.spec.continued(&said)
        }
    };
    if saved.is_none() && directory.join("data").exists() {
        bail!(
            "the node in {} keeps its data in a file; --disks is for new data directories",
            directory.display()
        );
    }
    let disks = spec.disks().map(|path| look(path));
    let disks = disks.collect::<anyhow::Result<Vec<Named>>>()?;
    let mut wish = wish(&spec, &disks);
    let mut assembled = try_assemble(&wish, directory)?;
    if assembled.is_new() {
        if directory.join("index").exists() {
            bail!(
                "the node in {} has data, and all its disks are blank; give back the disks that it had",
                directory.display()
            );
        }
        measure(&mut wish, &disks)?;
        assembled = try_assemble(&wish, directory)?;
    }
    for note in &assembled.notes {
        warn!(directory = %directory.display(), "{note}");
    }
    let mut number = 0..;
    spec.sets.retain(|_| {
        let number = number.next();
        number.is_some_and(|number| !assembled.retired.contains(&number))
    });
    let retired = saved.map(|saved| saved.retired).unwrap_or_default();
    save(directory, &Saved { spec, retired })?;
    let mut files = BTreeMap::new();
    let used: Vec<DiskNumber> = assembled.disks().collect();
    for (number, disk) in (0..).map(DiskNumber).zip(disks) {
        if used.contains(&number)
            && let Some(file) = disk.file
        {
            files.insert(number, file);
        }
    }
    Ok(Some(OpenSets {
        assembled,
        limit_bytes: limit_bytes.unwrap_or(u64::MAX),
        files,
    }))
}

fn try_assemble(wish: &Wish, directory: &Path) -> anyhow::Result<Assembled> {
    // Of the disks' names only: nobody has to guess them.
    let mut random = data::random_u64()?;
    let fresh = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        random
    };
    assemble(wish, fresh)
        .with_context(|| format!("the disks of the node in {}", directory.display()))
}

/// Whether a set that is named was retired, and is not meant.
fn is_retired(set: &SetSpec, retired: &[PathBuf]) -> bool {
    let is_so = set.disks.iter().all(|disk| retired.contains(disk));
    if is_so {
        let disks: Vec<String> = set
            .disks
            .iter()
            .map(|disk| disk.display().to_string())
            .collect();
        warn!(kind = %set.kind, disks = %disks.join(","), "this set was retired, and is not used; crossdock disk add makes one of these disks anew");
    }
    is_so
}

fn look(path: &Path) -> anyhow::Result<Named> {
    let name = path.display().to_string();
    let absent = |why: String| Named {
        path: path.to_owned(),
        file: None,
        found: Found {
            name: name.clone(),
            length_bytes: 0,
            head: Err(why),
        },
    };
    let file = match DiskFile::open(path) {
        Ok(file) => file,
        Err(OpenError::Io { source, .. }) if source.kind() != ErrorKind::PermissionDenied => {
            return Ok(absent(source.to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    let head_bytes = usize::try_from(Geometry::default().data_offset())?;
    let mut head = AlignedBuffer::zeroed(head_bytes);
    if let Err(error) = file.read_before(&mut head, 0) {
        return Ok(absent(error.to_string()));
    }
    let found = Found {
        name,
        length_bytes: file.length_bytes(),
        head: Ok(head.to_vec()),
    };
    Ok(Named {
        path: path.to_owned(),
        file: Some(file),
        found,
    })
}

/// Opens a blank disk that is given while the node runs: with its length.
pub(crate) fn open_spare(path: &Path) -> anyhow::Result<DiskFile> {
    let named = look(path)?;
    match (named.file, named.found.head) {
        (Some(file), Ok(head)) if head.iter().all(|&byte| byte == 0) => Ok(file),
        (_, Err(why)) => bail!("{} cannot be read: {why}", path.display()),
        _ => bail!(
            "{} is not blank; name another disk, or wipe its beginning if nobody needs what is on it",
            path.display()
        ),
    }
}

fn wish(spec: &NodeDisksSpec, disks: &[Named]) -> Wish {
    let place = |path: &PathBuf| disks.iter().position(|disk| disk.path == *path);
    let sets = spec.sets.iter().map(|set| SetWish {
        kind: set.kind,
        disks: set.disks.iter().filter_map(place).collect(),
        speed: None,
    });
    Wish {
        sets: sets.collect(),
        spares: spec.spares.iter().filter_map(place).collect(),
        disks: disks.iter().map(|disk| disk.found.clone()).collect(),
        geometry: Geometry::default(),
    }
}

/// Finds out how fast new disks are: sets that are twice as fast get twice as much of the
/// rows that they share.
fn measure(wish: &mut Wish, disks: &[Named]) -> anyhow::Result<()> {
    if wish.sets.len() < 2 {
        return Ok(()); // It has all of each row.
    }
    let mut rates = Vec::new();
    for set in &wish.sets {
        let mut slowest = u64::MAX;
        for &place in &set.disks {
            if let Some(file) = &disks[place].file {
                slowest = slowest.min(rate_of(file)?);
            }
        }
        rates.push(slowest.saturating_mul(set.disks.len() as u64));
    }
    let least = rates.iter().copied().min().unwrap_or(1).max(1);
    for (number, (set, rate)) in wish.sets.iter_mut().zip(&rates).enumerate() {
        // Less than twice as fast may be chance.
        let factor = rate / least;
        set.speed = Some(factor << 20);
        info!(
            set = number,
            megabytes_per_second = rate / 1_000_000,
            factor,
            "measured"
        );
    }
    Ok(())
}

/// Bytes per second that a disk writes, the best of a few tries.
fn rate_of(file: &DiskFile) -> anyhow::Result<u64> {
    let offset = Geometry::default().data_offset();
    let bytes = MEASURED_BYTES.min(file.length_bytes().saturating_sub(offset));
    let mut best = 1;
    for _ in 0..MEASUREMENTS {
        let begun = Instant::now();
        file.zero_before(offset, bytes)?;
        let micros = u64::try_from(begun.elapsed().as_micros())?.max(1);
        best = best.max(bytes.saturating_mul(1_000_000) / micros);
    }
    Ok(best)
}

fn saved(directory: &Path) -> anyhow::Result<Option<Saved>> {
    let path = directory.join(SAVED);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let mut lines = text.lines();
    let spec = spec::parse_node(lines.next().unwrap_or(""));
    let spec = spec.with_context(|| format!("in {}", path.display()))?;
    let retired = lines.map(PathBuf::from).collect();
    Ok(Some(Saved { spec, retired }))
}

/// Notes what was given while the node runs.
pub(crate) fn note_added(directory: &Path, added: &NodeDisksSpec) -> anyhow::Result<()> {
    let Some(mut saved) = saved(directory)? else {
        return Ok(());
    };
    let spec = &mut saved.spec;
    spec.sets.extend(added.sets.iter().cloned());
    for spare in &added.spares {
        if !spec.disks().any(|disk| disk == spare) {
            spec.spares.push(spare.clone());
        }
    }
    let is_used = |disk: &PathBuf| added.disks().any(|added| added == disk);
    saved.retired.retain(|disk| !is_used(disk));
    save(directory, &saved)
}

/// Notes that the set in that place was retired, whose disks were called so.
pub(crate) fn note_retired(directory: &Path, place: usize, names: &[String]) -> anyhow::Result<()> {
    let Some(mut saved) = saved(directory)? else {
        return Ok(());
    };
    let (spec, retired) = (&mut saved.spec, &mut saved.retired);
    if place < spec.sets.len() {
        retired.extend(spec.sets.remove(place).disks);
    }
    let is_gone = |disk: &PathBuf| names.iter().any(|name| Path::new(name) == disk);
    let gone = spec.spares.extract_if(.., |disk| is_gone(disk));
    retired.extend(gone);
    retired.sort_unstable();
    retired.dedup();
    save(directory, &saved)
}

fn save(directory: &Path, saved: &Saved) -> anyhow::Result<()> {
    let (path, new) = (directory.join(SAVED), directory.join("disks.new"));
    let write = || {
        let mut file = File::create(&new)?;
        writeln!(file, "{}", saved.spec)?;
        for disk in &saved.retired {
            writeln!(file, "{}", disk.display())?;
        }
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
