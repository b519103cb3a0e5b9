//! How much room there is, and how much the disks have to do: nodes tell it the managers,
//! whose sites answer FSSTAT and choose where new blocks of files with maps go.

use std::sync::Arc;
use std::time::Duration;

use crossdock_link::Frame;
use crossdock_names::NodeId;
use crossdock_peer::SpaceUsage;
use crossdock_server::DiskFigures;
use crossdock_site::{NodeRoom, Rooms, SiteInput};
use crossdock_types::Time;

use crate::host::Host;
use crate::message::Message;
use crate::profiles::DiskProfile;

/// How often everybody is told about free space.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// A manager that has not heard of the room of all nodes that are there tells nothing
/// for so long, counted in intervals: what it knows by then has to do.
pub(crate) const PATIENCE: u32 = 5;

/// Files that a byte of capacity lets hope for: df -i shows capacity / 4 KiB.
const BYTES_PER_FILE: u64 = 4096;

/// Most files of a site: serials have 48 bits.
const FILES_MAX: u64 = 1 << 48;

/// What a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeSpace {
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
    /// How many requests its disks had to do lately on average, in hundredths.
    pub(crate) load_percent: u32,
}

/// What a node's disks have had to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    since: Time,
    /// The time that all requests so far have taken, waiting included, in microseconds.
    spent_micros: u64,
    percent: u32,
}

/// Shorter ones tell nothing.
const LOAD_INTERVAL: Duration = Duration::from_millis(500);

impl Load {
    /// With what has been counted by now: by Little's law the time that requests took is
    /// how many there were at a time.
    fn follow(&mut self, now: Time, disks: &[DiskFigures]) {
        let elapsed = now.since(self.since);
        if elapsed < LOAD_INTERVAL {
            return;
        }
        let operations = disks.iter().flat_map(|disk| &disk.operations);
        let classes = disks.iter().flat_map(|disk| &disk.classes);
        let worked: u64 = operations.map(|one| one.latency.sum()).sum();
        let waited: u64 = classes.map(|one| one.wait.sum()).sum();
        let spent_micros = worked + waited;
        let spent = spent_micros.saturating_sub(self.spent_micros);
        let percent = u128::from(spent) * 100 / elapsed.as_micros().max(1);
        *self = Self {
            since: now,
            spent_micros,
            percent: u32::try_from(percent).unwrap_or(u32::MAX),
        };
    }
}

impl Host {
    /// Whether somebody is to be told how much room there is.
    pub(crate) const fn tells_space(&self) -> bool {
        self.is_ready || self.following.has_joined
    }

    /// Tells the sites how much room there is, and managers elsewhere what the nodes
    /// of this host have of it.
    pub(crate) fn tell_space(&mut self, now: Time) {
        self.space_due = now + SPACE_INTERVAL;
        let mut own: Vec<(NodeId, NodeSpace)> = Vec::new();
        let mut profiles: Vec<(NodeId, DiskProfile)> = Vec::new();
        for (&id, slot) in &self.nodes {
            let Some(node) = &slot.node else {
                self.loads.remove(&id);
                continue;
            };
            let load = self.loads.entry(id).or_default();
            let disks = node.counts().disks;
            load.follow(now, &disks);
            profiles.push((id, DiskProfile::of(&disks, load.percent)));
            let status = node.store().status();
            let space = NodeSpace {
                total_bytes: status.capacity_bytes,
                free_bytes: status.free_bytes,
                load_percent: load.percent,
            };
            own.push((id, space));
        }
        self.tell_disk_profiles(&profiles);
        // A node of this process that is stopped has no room, as it takes nothing.
        for id in self.nodes.keys() {
            self.spaces.remove(id);
        }
        self.spaces.extend(own.iter().copied());
        let state = self.registry.state();
        self.spaces.retain(|id, _| state.has_node(id.0));
        for (node, space) in own {
            self.tell_managers(node, space);
        }
        self.space_patience = match self.knows_space() {
            true => PATIENCE,
            false => self.space_patience.saturating_sub(1),
        };
        self.tell_sites();
        self.tell_disks();
    }

    /// Whether all nodes that are there have told how much room they have.
    fn knows_space(&self) -> bool {
        let mut nodes = self.table.hosts.nodes.keys();
        nodes.all(|node| self.spaces.contains_key(node) || self.nodes.contains_key(node))
    }

    /// A node of another host has so much room. What was heard last counts while the
    /// node is away: it is there again soon, with what it holds.
    pub(crate) fn take_space(&mut self, node: NodeId, space: NodeSpace) {
        if self.registry.state().has_node(node.0) && self.spaces.insert(node, space).is_none() {
            self.tell_sites(); // Somebody may wait for it.
        }
    }

    fn tell_managers(&mut self, node: NodeId, space: NodeSpace) {
        let NodeSpace {
            total_bytes,
            free_bytes,
            load_percent,
        } = space;
        for host in self.other_managers() {
            let frame = Frame::Space {
                node,
                total_bytes,
                free_bytes,
                load_percent,
            };
            self.send_frame(host, frame);
        }
    }

    pub(crate) fn tell_sites(&mut self) {
        if self.spaces.is_empty() || self.space_patience > 0 && !self.knows_space() {
            return;
        }
        let copies = u64::from(self.registry.state().replicas.max(1));
        let spaces = self.spaces.values();
        // What others say is not believed to add up.
        let (total, free) = spaces.fold((0u64, 0u64), |(total, free), space| {
            (
                total.saturating_add(space.total_bytes),
                free.saturating_add(space.free_bytes),
            )
        });
        let (free_bytes, free_files) = (free / copies, (free / BYTES_PER_FILE).min(FILES_MAX));
        let usage = SpaceUsage {
            total_bytes: total / copies,
            free_bytes,
            available_bytes: free_bytes,
            total_files: (total / BYTES_PER_FILE).min(FILES_MAX),
            free_files,
            available_files: free_files,
        };
        let room = |space: &NodeSpace| NodeRoom {
            free_bytes: space.free_bytes,
            load_percent: space.load_percent,
        };
        let rooms = self.spaces.iter().map(|(&id, space)| (id, room(space)));
        let rooms = Arc::new(rooms.collect::<Rooms>());
        for &id in self.sites.keys() {
            for input in [
                SiteInput::Space(usage),
                SiteInput::Rooms(Arc::clone(&rooms)),
            ] {
                self.queue.push_back(Message::Site(id, input));
            }
        }
    }
}
