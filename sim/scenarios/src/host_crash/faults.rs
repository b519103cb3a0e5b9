//! Disks that fail while clients work.

use crossdock_nfs3::Status;
use crossdock_sim::disk::SimDiskOptions;

use super::driver::{Driver, Stop};

/// A disk that fails for good is known to have failed long before: nobody may
/// be told to try again any more.
const JUKEBOX_PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// What a node's disks do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Nothing.
    None,
    /// Reads of one node's data fail now and then, where another node has them,
    /// too: clients notice nothing.
    Reads,
    /// A write of one node's journal or data fails, and then the node takes none.
    /// There is one copy: clients see errors, as if nobody had answered.
    Writes,
}

impl Faults {
    /// Those of a seed with so many copies. Where nodes are stopped there may be
    /// one copy only of what cannot be read.
    pub(super) const fn of_seed(seed: u64, replicas: u32, stops_nodes: bool) -> Self {
        match (seed / 5 % 3, replicas, stops_nodes) {
            (1, 1, _) => Self::Writes,
            (1, _, false) => Self::Reads,
            _ => Self::None,
        }
    }

    /// Journal's and data's.
    const fn options(self, sound: SimDiskOptions) -> [SimDiskOptions; 2] {
        let (mut journal, mut data) = (sound, sound);
        match self {
            Self::None => {}
            Self::Reads => data.read_error_one_in = 6,
            Self::Writes => {
                journal.write_error_one_in = 60;
                data.write_error_one_in = 120;
            }
        }
        [journal, data]
    }
}

impl Driver<'_> {
    /// Works on disks that fail as the shape says.
    pub(super) fn work_on_bad_disks(&mut self, actions: u64) -> Result<(), Stop> {
        let sound = SimDiskOptions::default();
        let victim = self.memory.random.below(u64::from(self.shape.nodes));
        let victim = usize::try_from(victim).unwrap_or_default();
        self.rig
            .set_disk_options(victim, self.shape.faults.options(sound));
        let worked = self.work(actions);
        self.rig.set_disk_options(victim, [sound, sound]);
        worked?;
        // It has nothing that a graceful stop could write.
        match self.rig.failed_at {
            Some(_) => Err(Stop::Crash),
            None => Ok(()),
        }
    }

    /// Whether a reply says no more than that a disk has failed: its request was
    /// done or not, as if nobody had answered.
    pub(super) fn is_of_failed_disk(&self, status: Option<Status>) -> Result<bool, Stop> {
        let Some(since) = self.rig.failed_at else {
            return Ok(false);
        };
        let late = self.rig.now.since(since) >= JUKEBOX_PATIENCE;
        if late && status == Some(Status::Jukebox) {
            let what = "who waits for a disk that failed is told to try again";
            return Err(Stop::Violation(what.to_owned()));
        }
        Ok(status == Some(Status::Io))
    }
}
