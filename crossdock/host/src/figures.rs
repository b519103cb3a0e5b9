//! What the machines of a host have counted, for whoever watches it.

use std::time::Duration;

use crossdock_metrics::Histogram;
use crossdock_names::{HostId, SiteId};
use crossdock_nfs::{DoorFigures, SlowCall};
use crossdock_server::NodeCounts;
use crossdock_site::SiteFigures;
use crossdock_types::Time;

use crate::host::Host;

/// Everything that was counted since the start, and what is held now.
#[derive(Clone, Debug)]
pub struct HostFigures {
    /// The NFS door.
    pub door: DoorFigures,
    /// Requests that the router works on.
    pub routed: usize,
    /// Leases of files that the router holds.
    pub file_leases: usize,
    /// Windows of files' block maps that it knows.
    pub map_windows: usize,
    /// The nodes that run, by number, with the records of their journals' frames.
    pub nodes: Vec<(u32, NodeCounts, Histogram)>,
    /// The sites that are open.
    pub sites: Vec<(SiteId, SiteFigures)>,
}

/// A site that has been opened, and where its names are served.
#[derive(Clone, Copy, Debug)]
pub struct PlacedSite {
    /// Which.
    pub site: SiteId,
    /// Its manager; nothing where all is one process, or while nobody has it.
    pub manager: Option<HostId>,
    /// Files and directories, and operations that are not finished, if it is
    /// served here.
    pub held: Option<(usize, usize)>,
}

impl Host {
    /// The sites that there are, as far as this host knows.
    #[must_use]
    pub fn placed_sites(&self) -> Vec<PlacedSite> {
        let state = self.registry.state();
        let opened = state.opened_sites.iter().map(|&site| SiteId(site));
        let placed = opened.map(|site| PlacedSite {
            site,
            manager: self.table.hosts.sites.get(&site).copied(),
            held: self.sites.get(&site).map(|own| {
                let files = own.directory().memory_use().cells;
                (files, own.open_intentions())
            }),
        });
        placed.collect()
    }

    /// Everything that was counted.
    #[must_use]
    pub fn figures(&self, now: Time) -> HostFigures {
        let nodes = self.nodes.values().filter_map(|slot| {
            let node = slot.node.as_ref()?;
            let records = node.store().frame_records().clone();
            Some((slot.number, node.counts(), records))
        });
        let sites = self.sites.iter();
        HostFigures {
            door: self.door.figures(now),
            routed: self.router.requests(),
            file_leases: self.router.leases(),
            map_windows: self.router.map_windows(),
            nodes: nodes.collect(),
            sites: sites.map(|(&id, site)| (id, site.figures(now))).collect(),
        }
    }

    /// The replies that were among the effects are at the socket now: their
    /// calls are counted with the time that they took. What is not told is
    /// counted at the next [`handle`](Self::handle).
    pub fn replies_sent(&mut self, now: Time) {
        self.door.replies_sent(now);
    }

    /// Whether there are such replies.
    #[must_use]
    pub const fn has_noted(&self) -> bool {
        self.door.has_noted()
    }

    /// From which time on a call is slow.
    pub const fn set_slow_after(&mut self, slow_after: Duration) {
        self.door.set_slow_after(slow_after);
    }

    /// The next slow call that was not told yet.
    pub fn next_slow(&mut self) -> Option<SlowCall> {
        self.door.next_slow()
    }
}
