//! Who within a host.

use crossdock_names::{NodeId, SiteId};
use serde::{Deserialize, Serialize};

/// A part of a host that calls others, and gets their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Port {
    /// The gateway's router.
    Router,
    /// A site that the host has.
    Site(SiteId),
    /// A node that the host has.
    Node(NodeId),
    /// The host itself: its tools, and its upkeep.
    Host,
    /// The depot of the node that is called (IBP).
    Depot,
    /// A node that the host has, which copies what it reads: it reads as a router does.
    Copy(NodeId),
}

impl Port {
    /// Whether it asks for what clients are shown: that is what all members of a set have.
    #[must_use]
    pub const fn is_client(self) -> bool {
        matches!(self, Self::Router | Self::Copy(_))
    }
}
