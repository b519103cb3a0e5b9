//! How the sets are, for people and programs.

use serde::{Deserialize, Serialize};

use super::DiskSets;
use crate::label::MemberState;

/// All sets of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetsStatus {
    /// Bytes that the sets hold, without the one that is being retired.
    pub capacity_bytes: u64,
    /// Bytes that it has by now.
    pub length_bytes: u64,
    /// Whether what a loss of power has left is in order.
    pub is_open: bool,
    /// Whether rebuilds are held.
    pub is_paused: bool,
    /// The sets.
    pub sets: Vec<SetStatus>,
    /// Disks that wait to take a place.
    pub spares: Vec<DiskStatus>,
    /// Disks that have failed.
    pub failed: Vec<DiskStatus>,
}

/// One set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetStatus {
    /// The number that it has as long as it is there.
    pub number: usize,
    /// `stripe`, `mirror` or `parity`.
    pub kind: String,
    /// What is on it goes elsewhere, and then it goes.
    pub is_retiring: bool,
    /// Bytes of data that it can hold.
    pub capacity_bytes: u64,
    /// Members that lack something.
    pub lacking: usize,
    /// Its members, by place.
    pub members: Vec<DiskStatus>,
    /// Blocks in which members were found to differ since the start.
    pub differing_blocks: u64,
    /// Blocks that were written such that they do not.
    pub agreed_blocks: u64,
    /// How far the rebuild is.
    pub rebuild: Option<RebuildStatus>,
}

/// One disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// Its path; nothing of one that is not there.
    pub name: Option<String>,
    /// What it does.
    pub state: DiskState,
    /// Reads that it has failed since the start.
    pub read_errors: u64,
}

/// What a disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskState {
    /// It has all that it should have.
    Active,
    /// It is being filled.
    Rebuilding,
    /// It waits to take a place.
    Spare,
    /// It is out.
    Failed,
}

/// A rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildStatus {
    /// Bytes of the member that are there.
    pub done_bytes: u64,
    /// Bytes that there will be.
    pub total_bytes: u64,
    /// Stripes that could not be made, as other members could not be read.
    pub unreadable_stripes: u64,
}

impl DiskSets {
    /// How the sets are now.
    #[must_use]
    pub fn status(&self) -> SetsStatus {
        let used = (0..self.sets.len()).filter(|&set| !self.pool.sets[set].is_retired());
        let kept = used.clone().filter(|&set| self.retiring() != Some(set));
        let named = |state| {
            move |disk: &super::Attached| DiskStatus {
                name: Some(disk.name.clone()),
                state,
                read_errors: disk.read_errors,
            }
        };
        let spares = self.disks.values().filter(|disk| {
            let is_spare = self.pool.spares.contains(&disk.id);
            is_spare && !disk.is_out
        });
        let failed = self.disks.values().filter(|disk| disk.is_out);
        SetsStatus {
            capacity_bytes: kept.map(|set| self.pool.set_bytes(set)).sum(),
            length_bytes: self.pool.length_bytes,
            is_open: self.recovering.is_none(),
            is_paused: self.is_paused,
            sets: used.map(|set| self.set_status(set)).collect(),
            spares: spares.map(named(DiskState::Spare)).collect(),
            failed: failed.map(named(DiskState::Failed)).collect(),
        }
    }

    fn set_status(&self, number: usize) -> SetStatus {
        let set = &self.pool.sets[number];
        let members = set.members.iter().enumerate().map(|(place, member)| {
            let disk = self.member_disk(number, place);
            let disk = disk.and_then(|number| self.disks.get(&number));
            DiskStatus {
                name: disk.map(|disk| disk.name.clone()),
                state: match member.state {
                    MemberState::Active => DiskState::Active,
                    MemberState::Failed => DiskState::Failed,
                    MemberState::Rebuilding { .. } => DiskState::Rebuilding,
                },
                read_errors: disk.map_or(0, |disk| disk.read_errors),
            }
        });
        let chunk = self.pool.geometry.chunk();
        let rebuild = self.sets[number].rebuild.as_ref();
        let rebuild = rebuild.map(|rebuild| {
            let done = match set.members[rebuild.place].state {
                MemberState::Rebuilding { stripes } => stripes,
                _ => 0,
            };
            RebuildStatus {
                done_bytes: done * chunk,
                total_bytes: set.formatted * chunk,
                unreadable_stripes: rebuild.unreadable,
            }
        });
        SetStatus {
            number,
            kind: set.kind.to_string(),
            is_retiring: self.retiring() == Some(number),
            capacity_bytes: self.pool.set_bytes(number),
            lacking: set.lacking(),
            members: members.collect(),
            differing_blocks: self.sets[number].differing_blocks,
            agreed_blocks: self.sets[number].agreed_blocks,
            rebuild,
        }
    }
}
