//! The disks of a node that has its data on sets: which they are, opening them, finding out
//! what is on them.
//!
//! `DIR/node-N/disks` holds what was said of them, as a SPEC, with the spares that were given
//! later; so the next start finds them without being told.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use crossdock_disk::{DiskFile, OpenError};
use crossdock_sets::spec::{self, NodeDisksSpec};
use crossdock_sets::{Assembled, DiskNumber, Found, Geometry, SetWish, Wish, assemble};
use crossdock_types::AlignedBuffer;
use tracing::{info, warn};

use crate::data;

/// Where the SPEC of a node is.
const SAVED: &str = "disks";

/// Bytes of zeros that a new disk's speed is measured with, and how often.
const MEASURED_BYTES: u64 = 4 << 20;
const MEASUREMENTS: usize = 3;

/// The opened sets of a node.
pub(crate) struct OpenSets {
    pub(crate) assembled: Assembled,
    pub(crate) files: BTreeMap<DiskNumber, DiskFile>,
}

impl OpenSets {
    /// Bytes that they can hold.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.assembled.capacity_bytes()
    }
}

/// A disk that was named.
struct Named {
    path: PathBuf,
    file: Option<DiskFile>,
    found: Found,
}

/// Opens the sets of the node in `directory`, if it has some or is to have some.
///
/// # Errors
/// What is wrong with which disk, and what to do.
pub(crate) fn open(
    directory: &Path,
    said: Option<&NodeDisksSpec>,
) -> anyhow::Result<Option<OpenSets>> {
    let saved = saved(directory)?;
    let spec = match (said, &saved) {
        (None, None) => return Ok(None),
        (None, Some(saved)) => saved.clone(),
        (Some(said), saved) => with_spares(said.clone(), saved.as_ref()),
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
    save(directory, &spec)?;
    let mut files = BTreeMap::new();
    let used: Vec<DiskNumber> = assembled.disks().collect();
    for (number, disk) in (0..).map(DiskNumber).zip(disks) {
        if used.contains(&number)
            && let Some(file) = disk.file
        {
            files.insert(number, file);
        }
    }
    Ok(Some(OpenSets { assembled, files }))
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

/// What was said before, with spares that were given since.
fn with_spares(mut said: NodeDisksSpec, saved: Option<&NodeDisksSpec>) -> NodeDisksSpec {
    for spare in saved.map_or(&[][..], |saved| &saved.spares) {
        if !said.disks().any(|disk| disk == spare) {
            said.spares.push(spare.clone());
        }
    }
    said
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

fn saved(directory: &Path) -> anyhow::Result<Option<NodeDisksSpec>> {
    let path = directory.join(SAVED);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let nodes = spec::parse(text.trim()).with_context(|| format!("in {}", path.display()))?;
    Ok(nodes.into_values().next())
}

/// Notes a disk that was given while the node runs.
pub(crate) fn note_spare(directory: &Path, path: &Path) -> anyhow::Result<()> {
    let Some(mut spec) = saved(directory)? else {
        return Ok(());
    };
    if !spec.disks().any(|disk| disk == path) {
        spec.spares.push(path.to_owned());
        save(directory, &spec)?;
    }
    Ok(())
}

fn save(directory: &Path, spec: &NodeDisksSpec) -> anyhow::Result<()> {
    let list = |disks: &[PathBuf]| {
        let disks = disks.iter().map(|disk| disk.display().to_string());
        disks.collect::<Vec<_>>().join(",")
    };
    let sets = spec.sets.iter();
    let mut parts: Vec<String> = sets
        .map(|set| format!("{}:{}", set.kind, list(&set.disks)))
        .collect();
    if !spec.spares.is_empty() {
        parts.push(format!("spare:{}", list(&spec.spares)));
    }
    let (path, new) = (directory.join(SAVED), directory.join("disks.new"));
    let write = || {
        let mut file = File::create(&new)?;
        writeln!(file, "{}", parts.join(";"))?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
