//! What the nodes of this process have outside of their machines: disks, and an
//! index on a thread of its own.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use anyhow::Context;
use crossdock_admin::{Answer, Refusal};
use crossdock_disk::{DiskCompletion, DiskRequest};
use crossdock_host::{Boot, HostInput};
use crossdock_net::{DiskId, now};
use crossdock_store::{Index, IndexRequest, StoreDisk, StoreInput};
use tracing::{info, warn};

use super::sets::NodeSets;
use super::{DiskRole, Shell, wall_time};
use crate::data;
use crate::sets::OpenSets;

/// What a node has outside its machine. Its disks stay open while it is
/// stopped, so that nobody else takes them.
pub(super) struct NodeShell {
    pub(super) directory: PathBuf,
    journal: DiskId,
    pub(super) data: DataDisk,
    boot: Boot,
    index: Option<mpsc::Sender<IndexRequest>>,
    index_thread: Option<thread::JoinHandle<()>>,
    /// Requests that its disks have not answered yet.
    in_flight: usize,
    /// Whether it starts as soon as nothing is in flight.
    starts: bool,
}

/// Where its data lies.
pub(super) enum DataDisk {
    /// In one file.
    File(DiskId),
    /// On sets of disks.
    Sets(Box<NodeSets>),
}

impl Shell {
    /// Opens a node's files.
    pub(super) fn add_node(
        &mut self,
        number: u32,
        directory: &Path,
        sets: Option<OpenSets>,
    ) -> anyhow::Result<()> {
        let journal = data::open_journal(directory)?;
        if !journal.is_direct() {
            warn!(
                directory = %directory.display(),
                "this file system has no direct I/O: disks work through the page cache, which costs memory and speed"
            );
        }
        let journal = self
            .driver
            .add_disk(journal)
            .context("cannot serve the journal")?;
        self.disks
            .insert(journal, DiskRole::Store(number, StoreDisk::Journal));
        let data = match sets {
            Some(sets) => DataDisk::Sets(Box::new(self.add_sets(number, sets)?)),
            None => {
                let file = data::open_data(directory)?;
                let data = self.driver.add_disk(file);
                let data = data.context("cannot serve the data file")?;
                self.disks
                    .insert(data, DiskRole::Store(number, StoreDisk::Data));
                DataDisk::File(data)
            }
        };
        let node = NodeShell {
            directory: directory.to_owned(),
            journal,
            data,
            boot: Boot(0),
            index: None,
            index_thread: None,
            in_flight: 0,
            starts: false,
        };
        self.nodes.insert(number, node);
        self.carry_sets(number);
        self.tell_data_room(number);
        let sets = self.sets_of(number);
        if sets.is_some_and(|sets| sets.machine.retiring().is_some()) {
            self.host.begin_evacuation(now(), number);
        }
        Ok(())
    }

    /// Starts the nodes that wait for it, once their disks are idle: nothing of
    /// an earlier boot may land later.
    pub(super) fn start_nodes(&mut self) -> anyhow::Result<()> {
        let ready: Vec<u32> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.starts && node.in_flight == 0)
            .map(|(&number, _)| number)
            .collect();
        ready
            .into_iter()
            .try_for_each(|number| self.start_node(number))
    }

    pub(super) fn start_node(&mut self, number: u32) -> anyhow::Result<()> {
        self.boots_total += 1;
        let boot = Boot(self.boots_total);
        let node = self.nodes.get_mut(&number);
        let node = node.with_context(|| format!("there is no node {number}"))?;
        node.starts = false;
        if let Some(thread) = node.index_thread.take() {
            let _ = thread.join(); // It ends when its sender is gone.
        }
        let disk = data::open_index(&node.directory)?;
        let (index, thread) = self.start_index(number, boot, disk)?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.boot = boot;
            node.index = Some(index);
            node.index_thread = Some(thread);
        }
        let incarnation = data::random_u64()?;
        self.host
            .start_node(now(), wall_time(), number, boot, incarnation)
            .map_err(anyhow::Error::msg)
    }

    /// The index of a node on a thread of its own: redb is never on the path of
    /// a client's request.
    fn start_index(
        &self,
        number: u32,
        boot: Boot,
        disk: crossdock_disk::FileBlockingDisk,
    ) -> anyhow::Result<(mpsc::Sender<IndexRequest>, thread::JoinHandle<()>)> {
        let mut index =
            Index::open(Box::new(disk)).with_context(|| format!("the index of node {number}"))?;
        let (requests, received) = mpsc::channel();
        let replies = self.index_sender.clone();
        let cpus = self.other_cpus.clone();
        let thread = thread::Builder::new()
            .name(format!("index-{number}"))
            .spawn(move || {
                if !cpus.is_empty() {
                    // Without it the index shares our CPU: slower, not wrong.
                    let _ = crossdock_net::allow_cpus(&cpus);
                }
                while let Ok(request) = received.recv() {
                    if replies.send((number, boot, index.handle(request))).is_err() {
                        return;
                    }
                }
            })?;
        Ok((requests, thread))
    }

    /// A disk has answered.
    pub(super) fn take_disk(&mut self, disk: DiskId, completion: DiskCompletion) {
        match self.disks.get(&disk) {
            Some(&DiskRole::Store(number, disk)) => self.take_store_disk(number, disk, completion),
            Some(&DiskRole::Member(number, member)) => self.take_member(number, member, completion),
            None => {}
        }
    }

    /// A disk of a node's store has answered.
    pub(super) fn take_store_disk(
        &mut self,
        number: u32,
        disk: StoreDisk,
        completion: DiskCompletion,
    ) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.in_flight -= 1;
            // Of an earlier boot: nobody waits for it any more.
            if node.index.is_some() {
                let boot = node.boot;
                let input = StoreInput::Disk(disk, completion);
                self.give(HostInput::Store {
                    number,
                    boot,
                    input,
                });
            }
        }
    }

    pub(super) fn submit(&mut self, number: u32, disk: StoreDisk, request: DiskRequest) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.in_flight += 1;
            match (disk, &mut node.data) {
                (StoreDisk::Journal, _) => self.driver.submit_disk(node.journal, request),
                (StoreDisk::Data, DataDisk::File(data)) => self.driver.submit_disk(*data, request),
                (StoreDisk::Data, DataDisk::Sets(sets)) => {
                    sets.submit(request);
                    self.carry_sets(number);
                }
            }
        }
    }

    pub(super) fn ask_index(&self, number: u32, request: IndexRequest) {
        let node = self.nodes.get(&number);
        if let Some(index) = node.and_then(|node| node.index.as_ref()) {
            // The thread ends only after its sender is gone from here.
            let _ = index.send(request);
        }
    }

    pub(super) fn describe_failure(&self, number: u32, reason: &str) -> String {
        let node = self.nodes.get(&number);
        let directory = node.map(|node| node.directory.display().to_string());
        let directory = directory.unwrap_or_default();
        format!("node {number} in {directory} cannot be opened: {reason}")
    }

    pub(super) fn stop_node(&mut self, number: u32) -> Answer {
        let stopped = self.host.stop_node(now(), wall_time(), number);
        stopped.map_err(Refusal::Conflict)?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.index = None;
            info!(node = number, "node stopped");
        }
        Ok(serde_json::json!({"node": number, "state": "stopped"}))
    }

    pub(super) fn order_start(&mut self, number: u32) -> Answer {
        self.host.can_start(number).map_err(Refusal::Conflict)?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.starts = true;
        }
        Ok(serde_json::json!({"node": number, "state": "opening"}))
    }
}
