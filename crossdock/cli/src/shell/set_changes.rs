//! Sets that are added to nodes, and retired, while they serve.

use crossdock_admin::Refusal;
use crossdock_disk::DiskFile;
use crossdock_host::{DataRoom, NodeState};
use crossdock_net::now;
use crossdock_sets::spec::{self, NodeDisksSpec};
use crossdock_sets::{DiskNumber, NewDisk, NewSet, Places};
use crossdock_store::ClosedBlocks;
use crossdock_types::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::sets::{no_sets, refusal};
use super::{DiskRole, Shell, wall_time};
use crate::{data, format, sets};

/// How far a set is with being retired.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Retiring {
    /// Which one.
    pub(crate) set: usize,
    /// Bytes that lie elsewhere now, since the start of the process.
    pub(crate) moved_bytes: u64,
    /// Bytes that were left on it at the end of the last pass; absent before the first.
    pub(crate) left_bytes: Option<u64>,
    /// Of these, as far as known: what is pinned now.
    pub(crate) pinned_bytes: u64,
    /// What cannot be read.
    pub(crate) unreadable_bytes: u64,
    /// What has no room elsewhere.
    pub(crate) homeless_bytes: u64,
    /// Why it does not go on.
    pub(crate) error: Option<String>,
}

impl Shell {
    /// Tells the node what of its sets may be used.
    pub(super) fn tell_data_room(&mut self, number: u32) {
        let Some(sets) = self.sets_of(number) else {
            return;
        };
        let room = DataRoom {
            capacity_bytes: sets.machine.capacity_bytes().min(sets.limit_bytes),
            closed: sets.machine.closed().iter().map(closed_blocks).collect(),
        };
        self.host.set_data_room(now(), wall_time(), number, room);
    }

    /// How far the set of a node is that is being retired.
    pub(super) fn retiring(&self, number: u32, set: usize) -> Retiring {
        let progress = self.host.evacuation_progress(number);
        let progress = progress.cloned().unwrap_or_default();
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        Retiring {
            set,
            moved_bytes: bytes(progress.moved_blocks),
            left_bytes: progress.left_blocks.map(bytes),
            pinned_bytes: bytes(progress.pinned_blocks),
            unreadable_bytes: bytes(progress.unreadable_blocks),
            homeless_bytes: bytes(progress.homeless_blocks),
            error: progress.error,
        }
    }

    /// Adds what a SPEC says to a node.
    pub(super) fn add_to(&mut self, number: u32, spec: &str) -> Result<(), Refusal> {
        let invalid = |error: anyhow::Error| Refusal::Invalid(format!("{error:#}"));
        let spec = spec::parse_node(spec).map_err(|error| invalid(error.into()))?;
        self.sets_of(number).ok_or_else(no_sets)?;
        let open = |path: &std::path::PathBuf| sets::open_spare(path).map_err(invalid);
        let disks = spec.disks().map(open);
        let files = disks.collect::<Result<Vec<DiskFile>, Refusal>>()?;
        let new = new_sets(&spec, &files);
        let sets = self.sets_of(number).ok_or_else(no_sets)?;
        let spares = files
            .iter()
            .zip(spec.disks())
            .skip(files.len() - spec.spares.len());
        let check = sets.machine.check_sets(&new);
        let check = check.and_then(|()| {
            let mut spares = spares.into_iter();
            spares.try_for_each(|(file, path)| {
                let name = path.display().to_string();
                sets.machine.check_spare(&name, file.length_bytes())
            })
        });
        check.map_err(|error| refusal(&error))?;
        // First it is kept, then the disks learn it: what is half made is found again.
        let failed = |error: anyhow::Error| Refusal::Conflict(format!("{error:#}"));
        let directory = self.nodes.get(&number).map(|node| node.directory.clone());
        if let Some(directory) = directory {
            sets::note_added(&directory, &spec).map_err(failed)?;
        }
        let mut random = data::random_u64().map_err(failed)?;
        // Of the disks' names only: nobody has to guess them.
        let mut fresh = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            random
        };
        let sets = self.sets_of(number).ok_or_else(no_sets)?;
        let added = sets.machine.add_sets(now(), &new, &mut fresh);
        let mut members = added.map_err(|error| refusal(&error))?;
        for (path, file) in spec.spares.iter().zip(&files[members.len()..]) {
            let (name, length) = (path.display().to_string(), file.length_bytes());
            let spare = sets.machine.add_spare(now(), &name, length, fresh());
            members.push(spare.map_err(|error| refusal(&error))?);
        }
        for (member, file) in members.into_iter().zip(files) {
            self.serve_member(number, member, file)?;
        }
        self.carry_sets(number);
        self.tell_data_room(number);
        info!(node = number, disks = %spec, "disks were added");
        Ok(())
    }

    /// Requests of a disk go to that file.
    pub(super) fn serve_member(
        &mut self,
        number: u32,
        member: DiskNumber,
        file: DiskFile,
    ) -> Result<(), Refusal> {
        let served = self.driver.add_disk(file);
        let served = served.map_err(|error| Refusal::Conflict(error.to_string()))?;
        let sets = self.sets_of(number).ok_or_else(no_sets)?;
        sets.members.insert(member, served);
        self.disks.insert(served, DiskRole::Member(number, member));
        Ok(())
    }

    /// Begins to move away what is on a set.
    pub(super) fn retire_set(&mut self, number: u32, set: usize) -> Result<(), Refusal> {
        let nodes = self.host.status().nodes;
        let store = nodes.into_iter().find(|node| node.number == number);
        let sets = self.sets_of(number).ok_or_else(no_sets)?;
        let wanted = sets.machine.set_bytes(set);
        sets.machine
            .check_retire(set)
            .map_err(|error| refusal(&error))?;
        let Some(store) = store.filter(|node| node.state == NodeState::Running) else {
            return Err(Refusal::Conflict(format!(
                "node {number} does not run; start it first, for what is on the set has to be moved"
            )));
        };
        let free = store.store.free_bytes;
        if free < wanted {
            return Err(Refusal::Conflict(format!(
                "node {number} has {} free, and set {set} is {} of it and of what is used: the others have no room for what would have to move; add a set first (crossdock disk add), or remove files",
                format::bytes(free),
                format::bytes(wanted)
            )));
        }
        let retired = sets.machine.retire_set(now(), set);
        retired.map_err(|error| refusal(&error))?;
        self.tell_data_room(number);
        self.host.begin_evacuation(now(), number);
        info!(node = number, set, "a set is being retired");
        Ok(())
    }

    /// A set that is being retired stays.
    pub(super) fn keep_set(&mut self, number: u32, set: usize) -> Result<(), Refusal> {
        let sets = self.sets_of(number).ok_or_else(no_sets)?;
        let kept = sets.machine.keep_set(now(), set);
        kept.map_err(|error| refusal(&error))?;
        self.host.call_off_evacuation(number);
        self.tell_data_room(number);
        info!(node = number, set, "a set is not retired after all");
        Ok(())
    }

    /// Nothing is left where nothing is to lie.
    pub(super) fn take_evacuated(&mut self, number: u32) {
        if let Some(sets) = self.sets_of(number) {
            sets.machine.set_emptied(now());
            self.carry_sets(number);
        }
    }

    /// A set is no more; its disks may go.
    pub(super) fn let_go(
        &mut self,
        number: u32,
        set: usize,
        names: &[String],
        disks: &[DiskNumber],
    ) {
        let Some(sets) = self.sets_of(number) else {
            return;
        };
        let status = sets.machine.status();
        let place = status
            .sets
            .iter()
            .filter(|other| other.number < set)
            .count();
        let served: Vec<_> = disks
            .iter()
            .filter_map(|disk| sets.members.remove(disk))
            .collect();
        for disk in served {
            self.disks.remove(&disk);
            self.driver.remove_disk(disk);
        }
        let directory = self.nodes.get(&number).map(|node| node.directory.clone());
        let noted = directory.map(|directory| sets::note_retired(&directory, place, names));
        if let Some(Err(error)) = noted {
            warn!(
                node = number,
                set, "{error:#}; take the set out of its file disks before the next start"
            );
        }
        info!(node = number, set, disks = %names.join(","), "a set was retired; its disks may be taken away");
    }
}

fn closed_blocks(places: &Places) -> ClosedBlocks {
    let blocks = |bytes: u64| bytes / BLOCK_BYTES as u64;
    ClosedBlocks {
        first: blocks(places.offset_bytes),
        blocks: blocks(places.bytes),
        row_blocks: blocks(places.row_bytes),
        rows: places.rows,
    }
}

/// The sets of a SPEC, whose opened disks come in its order.
fn new_sets(spec: &NodeDisksSpec, files: &[DiskFile]) -> Vec<NewSet> {
    let mut lengths = files.iter().map(DiskFile::length_bytes);
    let sets = spec.sets.iter().map(|set| NewSet {
        kind: set.kind,
        disks: (set.disks.iter().zip(&mut lengths))
            .map(|(path, length_bytes)| NewDisk {
                name: path.display().to_string(),
                length_bytes,
            })
            .collect(),
    });
    sets.collect()
}
