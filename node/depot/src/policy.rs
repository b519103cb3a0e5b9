//! What a depot grants, and how it is set up.

use std::time::Duration;

use crossdock_delivery::DeliveryConfig;
use crossdock_ibp::Word;
use crossdock_limits::{
    IBP_ALLOCATIONS_MAX, IBP_CONNECTIONS_MAX, IBP_READ_BYTES_MAX, IBP_STORE_BYTES_MAX,
};
use crossdock_peer::Network;

/// What a depot grants (Network Storage Stack 2.1: storage owners put their storage into the
/// network, within bounds of their own). It may change while the depot runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepotPolicy {
    /// Largest allocation, in bytes; `None`: what there is room for.
    pub size_bytes_max: Option<u64>,
    /// Longest duration, in seconds; `None`: for ever.
    pub duration_seconds_max: Option<u64>,
    /// Space of all allocations, in bytes; `None`: half of what the node may hold.
    pub total_bytes: Option<u64>,
    /// The part of it that stable ones may have; `None`: all of it.
    pub stable_bytes: Option<u64>,
    /// Connections at a time, those that the depot has opened included; a further one is
    /// told to come again.
    pub connections_max: usize,
    /// Requests per second of one client; `None`: as many as it can make.
    pub requests_per_second: Option<u32>,
    /// What lets a client change the first limits; without one only clients on the same
    /// machine may, with `ibp`.
    pub password: Option<Word>,
    /// Who may make allocations; whoever has a capability may use it.
    pub allocators: Vec<Network>,
    /// Where copies may go: the depot connects nowhere else.
    pub copy_targets: Vec<Network>,
    /// What capabilities call the depot's host, if not by the address at which the client has
    /// reached it.
    pub host: Option<String>,
}

impl Default for DepotPolicy {
    fn default() -> Self {
        Self {
            size_bytes_max: None,
            duration_seconds_max: Some(30 * 24 * 3600),
            total_bytes: None,
            stable_bytes: None,
            connections_max: IBP_CONNECTIONS_MAX,
            requests_per_second: None,
            password: None,
            allocators: Network::loopback(),
            copy_targets: Network::loopback(),
            host: None,
        }
    }
}

/// How a depot is set up.
#[derive(Clone, Debug)]
pub struct DepotConfig {
    /// What it grants to begin with.
    pub policy: DepotPolicy,
    /// A fresh random number: secrets of allocations are made of it.
    pub seed: [u8; 32],
    /// Most allocations: each has some hundred bytes in memory.
    pub allocations_max: usize,
    /// How the delivery engine is set up. Its memory is for what is read and not taken by
    /// the kernel, of all connections.
    pub delivery: DeliveryConfig,
    /// Memory for what has come to be stored and is not on the node yet.
    pub store_bytes_max: usize,
    /// How long the node may take for one call.
    pub patience: Duration,
    /// A request line has to be complete this long after its first byte.
    pub line_patience: Duration,
    /// A client has to send something of what it stores, or take something of what it loads,
    /// within this time; so has another depot.
    pub data_patience: Duration,
    /// A connection without a request ends after this time.
    pub idle_patience: Duration,
    /// How long a command waits for others if it does not say.
    pub wait_max: Duration,
}

impl DepotConfig {
    /// The usual bounds.
    #[must_use]
    pub fn new(policy: DepotPolicy, seed: [u8; 32]) -> Self {
        Self {
            policy,
            seed,
            allocations_max: IBP_ALLOCATIONS_MAX,
            delivery: DeliveryConfig {
                memory_bytes: IBP_READ_BYTES_MAX,
                ..DeliveryConfig::default()
            },
            store_bytes_max: IBP_STORE_BYTES_MAX,
            patience: Duration::from_secs(30),
            line_patience: Duration::from_secs(15),
            data_patience: Duration::from_secs(60),
            idle_patience: Duration::from_secs(60),
            wait_max: Duration::from_secs(3600),
        }
    }
}
