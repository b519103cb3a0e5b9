//! What a host says of itself, and how patient it is.

use std::time::Duration;

use crossdock_limits::{LINK_QUEUE_BYTES_MAX, LINK_UNSENT_BYTES_MAX, LINK_WINDOW_BYTES};
use crossdock_names::{Epoch, HostId};

use crate::{PROTOCOL_VERSION, Role};

/// One end of a connection between hosts.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Which ensemble the host is part of.
    pub ensemble: u64,
    /// Who it is.
    pub host: HostId,
    /// What it does.
    pub role: Role,
    /// The highest epoch of the routing table that it has seen.
    pub table_epoch: Epoch,
    /// The versions of the protocol that it speaks, oldest and newest.
    pub versions: (u16, u16),
    /// Number of this connection between the two hosts: above all earlier ones.
    /// Only the host that connects has it.
    pub connection: u64,
    /// Who must answer, if that is known. Only the host that connects has it.
    pub expected: Option<HostId>,
    /// Whether the other host has to show a certificate that says what it says
    /// ([`LinkInput::Certified`](crate::LinkInput::Certified)).
    pub wants_certificate: bool,
    /// Whether a peer that has said hello waits for
    /// [`LinkInput::Admit`](crate::LinkInput::Admit).
    pub asks: bool,
    /// Whether the rest of a large payload is received by the shell, right where
    /// it is to lie ([`LinkEffect::Fill`](crate::LinkEffect::Fill)).
    pub fills: bool,
    /// After so long without a byte the peer is asked whether it is there.
    pub quiet: Duration,
    /// After so long without a byte it is not there.
    pub patience: Duration,
    /// Bytes of calls that are taken before they are handed on, and of replies.
    pub window_bytes: usize,
    /// Bytes of calls that wait to be sent, and of replies.
    pub queue_bytes_max: usize,
    /// Bytes that lie at the socket before more wait here.
    pub unsent_bytes_max: usize,
}

impl LinkConfig {
    /// With the usual patience and bounds.
    #[must_use]
    pub const fn new(ensemble: u64, host: HostId, role: Role) -> Self {
        Self {
            ensemble,
            host,
            role,
            table_epoch: Epoch(0),
            versions: (PROTOCOL_VERSION, PROTOCOL_VERSION),
            connection: 1,
            expected: None,
            wants_certificate: false,
            asks: false,
            fills: false,
            quiet: Duration::from_secs(1),
            patience: Duration::from_secs(3),
            window_bytes: LINK_WINDOW_BYTES,
            queue_bytes_max: LINK_QUEUE_BYTES_MAX,
            unsent_bytes_max: LINK_UNSENT_BYTES_MAX,
        }
    }
}
