//! Nodes that have their data on sets of disks: carries requests and completions between
//! the node, its [`DiskSets`] and the disks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use crossdock_admin::snapshot::DiskSetFigures;
use crossdock_admin::{Answer, DiskOrder, Refusal};
use crossdock_disk::{DiskCompletion, DiskRequest};
use crossdock_net::{DiskId, now};
use crossdock_sets::spec::NodeDisksSpec;
use crossdock_sets::{DiskNumber, DiskSets, Options, SetsError, SetsEvent, SetsStatus};
use crossdock_store::StoreDisk;
use crossdock_types::Time;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::nodes::DataDisk;
use super::set_changes::Retiring;
use super::waiting::tell;
use super::{DiskRole, Shell, wall_time};
use crate::report;
use crate::sets::{self, OpenSets};

/// The sets of a node.
pub(super) struct NodeSets {
    pub(super) machine: DiskSets,
    pub(super) members: BTreeMap<DiskNumber, DiskId>,
    /// How much of them is to be used at most.
    pub(super) limit_bytes: u64,
}

/// The disks of one node, for the admin API.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct NodeDisks {
    /// Which node.
    pub(crate) node: u32,
    #[serde(flatten)]
    pub(crate) status: SetsStatus,
    /// How far a set is that is being retired, if there is one.
    pub(crate) retiring: Option<Retiring>,
}

/// Nodes, and which changes of their labels all disks are to tell of.
pub(super) type Labelling = Vec<(u32, u64)>;

/// Orders that wait for labels.
const LABEL_WAITING_MAX: usize = 16;

impl NodeSets {
    pub(super) fn submit(&mut self, request: DiskRequest) {
        self.machine.submit(now(), request);
    }
}

impl Shell {
    /// Serves the sets of a node.
    pub(super) fn add_sets(&mut self, number: u32, open: OpenSets) -> anyhow::Result<NodeSets> {
        let OpenSets {
            assembled,
            limit_bytes,
            files,
        } = open;
        let mut members = BTreeMap::new();
        for (member, file) in files {
            let disk = self.driver.add_disk(file).context("cannot serve a disk")?;
            self.disks.insert(disk, DiskRole::Member(number, member));
            members.insert(member, disk);
        }
        let options = Options {
            rebuild_bytes_per_second: self.set_rebuild_rate,
        };
        let machine = DiskSets::new(now(), assembled, options);
        Ok(NodeSets {
            machine,
            members,
            limit_bytes,
        })
    }

    /// A disk of a set has answered.
    pub(super) fn take_member(
        &mut self,
        number: u32,
        member: DiskNumber,
        completion: DiskCompletion,
    ) {
        if let Some(sets) = self.sets_of(number) {
            sets.machine.disk_completed(now(), member, completion);
        }
        self.carry_sets(number);
        if !self.label_waiting.is_empty() {
            self.answer_labelled();
        }
    }

    /// Hands over what the sets of a node want, and have done.
    pub(super) fn carry_sets(&mut self, number: u32) {
        loop {
            let Some(sets) = self.sets_of(number) else {
                return;
            };
            if let Some((member, request)) = sets.machine.poll_request() {
                if let Some(&disk) = sets.members.get(&member) {
                    self.driver.submit_disk(disk, request);
                }
            } else if let Some(completion) = sets.machine.poll() {
                self.take_store_disk(number, StoreDisk::Data, completion);
            } else if let Some(event) = sets.machine.poll_event() {
                self.take_sets_event(number, event);
            } else {
                return;
            }
        }
    }

    /// When a rebuild goes on.
    pub(super) fn sets_due(&self) -> Option<Time> {
        let sets = self.nodes.values().filter_map(|node| match &node.data {
            DataDisk::Sets(sets) => sets.machine.poll_timeout(),
            DataDisk::File(_) => None,
        });
        sets.min()
    }

    pub(super) fn mind_sets(&mut self, time: Time) {
        if self.sets_due().is_none_or(|due| due > time) {
            return;
        }
        let numbers: Vec<u32> = self.nodes.keys().copied().collect();
        for number in numbers {
            if let Some(sets) = self.sets_of(number) {
                sets.machine.handle_timeout(time);
                self.carry_sets(number);
            }
        }
    }

    fn take_sets_event(&mut self, number: u32, event: SetsEvent) {
        match event {
            SetsEvent::Retired { set, names, disks } => self.let_go(number, set, &names, &disks),
            SetsEvent::Compared { differing } => {
                if differing > 0 {
                    warn!(
                        node = number,
                        blocks = differing,
                        "copies or parity of disks differ"
                    );
                }
                self.host
                    .scrub_compared(now(), wall_time(), number, differing);
            }
            SetsEvent::Agreed { blocks } => {
                info!(node = number, blocks, "the disks of all sets agree");
                self.host.scrub_agreed(number, blocks);
            }
            event => log_event(number, event),
        }
    }

    pub(super) fn sets_of(&mut self, number: u32) -> Option<&mut NodeSets> {
        match &mut self.nodes.get_mut(&number)?.data {
            DataDisk::Sets(sets) => Some(sets),
            DataDisk::File(_) => None,
        }
    }

    /// The sets of a node, for its metrics.
    pub(super) fn set_figures(&self, number: u32) -> Vec<DiskSetFigures> {
        let Some(DataDisk::Sets(sets)) = self.nodes.get(&number).map(|node| &node.data) else {
            return Vec::new();
        };
        let sets = sets.machine.status().sets.into_iter();
        sets.map(|set| {
            let rebuild = set.rebuild;
            DiskSetFigures {
                number: set.number as u64,
                lacking: set.lacking as u64,
                read_errors: set.members.iter().map(|member| member.read_errors).sum(),
                rebuild_bytes: rebuild.map_or(0, |it| it.total_bytes - it.done_bytes),
                unreadable_stripes: rebuild.map_or(0, |it| it.unreadable_stripes),
                differing_blocks: set.differing_blocks,
                agreed_blocks: set.agreed_blocks,
                kind: set.kind,
            }
        })
        .collect()
    }

    pub(super) fn list_disks(&self) -> Answer {
        let nodes = self.nodes.iter();
        let disks = nodes.filter_map(|(&node, shell)| match &shell.data {
            DataDisk::Sets(sets) => Some(NodeDisks {
                node,
                status: sets.machine.status(),
                retiring: (sets.machine.retiring()).map(|set| self.retiring(node, set)),
            }),
            DataDisk::File(_) => None,
        });
        report::json(&disks.collect::<Vec<_>>())
    }

    /// Starts a scrub: the disks of sets are compared, all blocks are checked, and then what
    /// differs on the disks becomes like what was checked.
    pub(super) fn begin_scrub(&mut self) -> Result<(), Refusal> {
        let numbers: Vec<u32> = self.nodes.keys().copied().collect();
        let is_running = self.host.scrub_progress().running;
        let mut comparing = BTreeSet::new();
        for number in numbers.into_iter().filter(|_| !is_running) {
            let sets = self.sets_of(number);
            if sets.is_some_and(|sets| sets.machine.begin_comparing(now()).is_ok()) {
                comparing.insert(number);
            }
        }
        let started = self.host.start_scrub(now(), wall_time(), comparing.clone());
        started.map_err(Refusal::Conflict)?;
        comparing
            .into_iter()
            .for_each(|number| self.carry_sets(number));
        Ok(())
    }

    /// What the node read is right: the copies and the parity that differ follow it.
    pub(super) fn make_agree(&mut self, number: u32) {
        if let Some(sets) = self.sets_of(number) {
            sets.machine.agree(now());
            self.carry_sets(number);
        }
    }

    /// What an administrator wants of disks. That a set goes, or stays, is answered when it
    /// outlasts a loss of power.
    pub(super) fn order_disk(&mut self, order: &DiskOrder, reply: oneshot::Sender<Answer>) {
        let waits = matches!(order, DiskOrder::Retire { .. } | DiskOrder::Keep { .. });
        if waits && self.label_waiting.len() >= LABEL_WAITING_MAX {
            let what = "disks are slow to keep what was ordered before; try again".to_owned();
            return tell(reply, Err(Refusal::Conflict(what)));
        }
        let changed = match self.change_disks(order) {
            Ok(changed) => changed,
            Err(refusal) => return tell(reply, Err(refusal)),
        };
        if waits {
            self.label_waiting.push((changed, reply));
            return self.answer_labelled();
        }
        tell(reply, self.list_disks());
    }

    /// Carries out an order at the nodes that it is for: which, and the last changes of their
    /// labels.
    fn change_disks(&mut self, order: &DiskOrder) -> Result<Labelling, Refusal> {
        let numbers: Vec<u32> = self.nodes.keys().copied().collect();
        let (mut changed, mut refused) = (Labelling::new(), None);
        for number in numbers {
            let is_other = order.node().is_some_and(|node| node != number);
            if is_other || self.sets_of(number).is_none() {
                continue;
            }
            let result = match order {
                DiskOrder::Fail { disk } => self.fail_disk(number, disk),
                DiskOrder::Replace { disk, with } => self.replace_disk(number, disk, with),
                DiskOrder::Add { spec, .. } => self.add_to(number, spec),
                DiskOrder::Retire { set, .. } => self.retire_set(number, *set),
                DiskOrder::Keep { set, .. } => self.keep_set(number, *set),
                DiskOrder::Pause => self.pause(number, true),
                DiskOrder::Resume => self.pause(number, false),
            };
            let change = self.sets_of(number).map(|sets| sets.machine.label_change());
            self.carry_sets(number);
            match result {
                Ok(()) => changed.extend(change.map(|change| (number, change))),
                // That another node does not know the disk says less.
                Err(error) if matches!(refused, None | Some(Refusal::Unknown(_))) => {
                    refused = Some(error);
                }
                Err(_) => {}
            }
        }
        match changed.is_empty() {
            true => Err(refused.unwrap_or_else(no_sets)),
            false => Ok(changed),
        }
    }

    /// Answers those whose change all disks tell of.
    fn answer_labelled(&mut self) {
        for (changed, reply) in std::mem::take(&mut self.label_waiting) {
            let mut labelled = changed.iter().map(|&(number, change)| {
                let sets = self.sets_of(number);
                sets.map(|sets| sets.machine.is_labelled(change))
            });
            // Of a node that was stopped meanwhile nobody knows.
            match labelled.try_fold(true, |all, is_labelled| Some(all & is_labelled?)) {
                Some(true) => tell(reply, self.list_disks()),
                Some(false) => self.label_waiting.push((changed, reply)),
                None => tell(reply, Err(Refusal::Stopping)),
            }
        }
    }

    fn fail_disk(&mut self, number: u32, disk: &str) -> Result<(), Refusal> {
        let sets = self.sets_of(number).ok_or_else(no_sets)?;
        sets.machine
            .fail_disk(now(), disk)
            .map_err(|error| refusal(&error))
    }

    fn replace_disk(&mut self, number: u32, disk: &str, with: &Path) -> Result<(), Refusal> {
        let status = match self.sets_of(number) {
            Some(sets) => sets.machine.status(),
            None => return Err(no_sets()),
        };
        let members = status.sets.iter().flat_map(|set| &set.members);
        let known = members.chain(&status.failed).chain(&status.spares);
        let is_known = known
            .clone()
            .any(|known| known.name.as_deref() == Some(disk));
        let lacks = known.clone().any(|known| known.name.is_none());
        if !is_known && !lacks {
            return Err(refusal(&SetsError::Unknown(disk.to_owned())));
        }
        let file =
            sets::open_spare(with).map_err(|error| Refusal::Invalid(format!("{error:#}")))?;
        let id = crate::data::random_u64();
        let id = id.map_err(|error| Refusal::Conflict(format!("{error:#}")))?;
        if is_known {
            let sets = self.sets_of(number).ok_or_else(no_sets)?;
            match sets.machine.fail_disk(now(), disk) {
                Ok(()) | Err(SetsError::IsOut(_)) => {}
                Err(error) => return Err(refusal(&error)),
            }
        }
        let length_bytes = file.length_bytes();
        let sets = self.sets_of(number).ok_or_else(no_sets)?;
        let name = with.display().to_string();
        let member = sets.machine.add_spare(now(), &name, length_bytes, id);
        let member = member.map_err(|error| refusal(&error))?;
        self.serve_member(number, member, file)?;
        let directory = self.nodes.get(&number).map(|node| node.directory.clone());
        let spare = NodeDisksSpec {
            sets: Vec::new(),
            spares: vec![with.to_owned()],
        };
        let noted = directory.map(|directory| sets::note_added(&directory, &spare));
        if let Some(Err(error)) = noted {
            warn!(node = number, disk = %name, "{error:#}; name it in --disks at the next start");
        }
        info!(node = number, disk = %name, "a disk was given");
        Ok(())
    }

    fn pause(&mut self, number: u32, is_paused: bool) -> Result<(), Refusal> {
        let sets = self.sets_of(number).ok_or_else(no_sets)?;
        sets.machine
            .pause_rebuild(now(), is_paused)
            .map_err(|error| refusal(&error))
    }
}

pub(super) fn no_sets() -> Refusal {
    Refusal::Conflict("no such node of this process has its data on disk sets (--disks)".to_owned())
}

pub(super) fn refusal(error: &SetsError) -> Refusal {
    let what = error.to_string();
    match error {
        SetsError::Unknown(_) | SetsError::NoSet(_) => Refusal::Unknown(what),
        SetsError::TooSmall { .. } | SetsError::TooMany(_) => Refusal::Invalid(what),
        SetsError::Needed(_)
        | SetsError::IsOut(_)
        | SetsError::NotRebuilding
        | SetsError::Opening
        | SetsError::Comparing
        | SetsError::Known(_)
        | SetsError::LabelFull
        | SetsError::Only(_)
        | SetsError::Retiring(_)
        | SetsError::NotRetiring(_) => Refusal::Conflict(what),
    }
}

fn log_event(node: u32, event: SetsEvent) {
    match event {
        SetsEvent::Failed { name, set, why } => {
            error!(node, set, disk = %name, %why, "a disk is out; its set goes on without it");
        }
        SetsEvent::RebuildBegun { name, set } => {
            info!(node, set, disk = %name, "a disk is being rebuilt");
        }
        SetsEvent::Rebuilt {
            name,
            set,
            unreadable: 0,
        } => info!(node, set, disk = %name, "a disk is rebuilt"),
        SetsEvent::Rebuilt {
            name,
            set,
            unreadable,
        } => {
            error!(node, set, disk = %name, unreadable, "a disk is rebuilt, but for stripes whose other disks could not be read");
        }
        SetsEvent::Healed { name, offset_bytes } => {
            warn!(node, disk = %name, offset_bytes, "what a disk could not read was written anew");
        }
        SetsEvent::Doubted { offset_bytes } => {
            warn!(
                node,
                offset_bytes,
                "a block is not what was written, and is read on the other disks of its set"
            );
        }
        // The shell has something to do then.
        SetsEvent::Retired { .. } | SetsEvent::Compared { .. } | SetsEvent::Agreed { .. } => {}
        SetsEvent::SpareFailed { name, why } => {
            error!(node, disk = %name, %why, "a spare disk is out");
        }
    }
}
