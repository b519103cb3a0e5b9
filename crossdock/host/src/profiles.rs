//! How fast the disks of nodes are, and how much they have to do: nodes tell it the
//! gateways, whose delivery plans by it what to read when (TPF section 3.2: the round
//! time in which every stream can be served once).

use std::time::Duration;

use crossdock_link::Frame;
use crossdock_names::{HostId, NodeId};
use crossdock_server::DiskFigures;

use crate::host::Host;

/// What reading from a node's disk costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskProfile {
    /// What it takes to begin to read elsewhere (t_pos).
    pub positioning: Duration,
    /// Bytes that it reads in a second once it is there (B_seq); at least 1.
    pub sequential_bytes_per_second: u64,
    /// How many requests the node's disks had to do lately on average, in hundredths:
    /// those that waited for them, too.
    pub load_percent: u32,
}

impl DiskProfile {
    /// Of a node of this host. (The journal's disk is hardly ever read.)
    pub(crate) fn of([_, data]: &[DiskFigures; 2], load_percent: u32) -> Self {
        Self {
            positioning: data.pace.positioning,
            sequential_bytes_per_second: data.pace.sequential_bytes_per_second,
            load_percent,
        }
    }
}

impl Host {
    /// What reading costs at each node that runs, of this host and of others, as it was
    /// told last: once a second.
    pub fn disk_profiles(&self) -> impl Iterator<Item = (NodeId, DiskProfile)> {
        self.profiles
            .iter()
            .map(|(&node, &profile)| (node, profile))
    }

    /// Notes what this host's nodes are like, and tells gateways elsewhere.
    pub(crate) fn tell_disk_profiles(&mut self, own: &[(NodeId, DiskProfile)]) {
        for id in self.nodes.keys() {
            self.profiles.remove(id);
        }
        self.profiles.extend(own.iter().copied());
        let state = self.registry.state();
        self.profiles.retain(|id, _| state.has_node(id.0));
        let here = self.host_id();
        let gateways = self.table.hosts.gateways.iter().copied();
        let others: Vec<HostId> = gateways.filter(|&host| host != here).collect();
        for host in others {
            for (node, profile) in own {
                let nanos = profile.positioning.as_nanos();
                let frame = Frame::DiskProfile {
                    node: *node,
                    positioning_nanos: u64::try_from(nanos).unwrap_or(u64::MAX),
                    sequential_bytes_per_second: profile.sequential_bytes_per_second,
                    load_percent: profile.load_percent,
                };
                self.send_frame(host, frame);
            }
        }
    }

    /// A node of another host has such a disk. What was heard last counts while the
    /// node is away: it is there again soon, with the same disk.
    pub(crate) fn take_disk_profile(&mut self, node: NodeId, profile: DiskProfile) {
        if self.registry.state().has_node(node.0) {
            let rate = profile.sequential_bytes_per_second.max(1);
            let profile = DiskProfile {
                sequential_bytes_per_second: rate,
                ..profile
            };
            self.profiles.insert(node, profile);
        }
    }
}
