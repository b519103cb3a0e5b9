//! A whole ensemble: gateways, managers and storage nodes as processes of their
//! own, over a network and a registry, all of which fail; clients that move from
//! gateway to gateway; and the model of what they were told.
//!
//! Processes are killed at any message, and start again; connections break with
//! what is on its way; nothing moves in one direction for a while; processes
//! are cut off from the registry for long enough to be replaced while they live,
//! also a gateway together with a manager or a node, so that none of them knows.
//! Held against it: every reply is as the model says, also that of a request
//! which is sent again through another gateway; after all that, what was
//! acknowledged is there.

mod apart;
mod datagrams;
mod driver;
mod faults;
mod fsck;
mod homes;
mod linear;
pub mod luns;
mod network;
mod races;
mod service;
mod times;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use crossdock_host::Mutation;
use crossdock_link::Role;
use crossdock_members::{Change, HostRecord, State, TrustRecord, VirtualAddress};
use crossdock_names::{LayoutClass, Spread};
use crossdock_sim::random::Random;

use super::model::Model;
use crate::store_crash::Outcome;
use driver::Driver;
use world::World;

/// Data sets that a node is the first home of: more than one, and no more than the few
/// files of a run use.
const SETS_PER_NODE: u32 = 3;

/// Of files with maps: small ones, for the few files of a run are.
const SMALL_BLOCKS: LayoutClass = LayoutClass(16);

/// How many of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Storage nodes.
    pub nodes: u32,
    /// Copies of data and of site logs.
    pub replicas: u32,
    /// Managers.
    pub managers: u32,
    /// Gateways.
    pub gateways: u32,
    /// Over how many sites directories lie.
    pub sites: u16,
    /// Whether names are hashed over these, and not directories switched.
    pub is_hashed: bool,
    /// Whether large files have block maps.
    pub has_maps: bool,
    /// Virtual addresses of its gateways.
    pub addresses: u8,
    /// Whether its gateways are scoped to the export of the root.
    pub is_scoped: bool,
    /// Whether clients race for the same names.
    pub races: RacesOf,
    /// What goes wrong.
    pub faults: Faults,
}

/// How many of the clients' requests are about names that others ask for, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RacesOf {
    /// None.
    None,
    /// Some.
    Some,
    /// All.
    Only,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Nothing.
    None,
    /// Processes are killed.
    Kills,
    /// So are connections, and processes are cut off.
    All,
}

impl Shape {
    /// A shape for `seed`, so that a range of seeds has all of them.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        let (nodes, replicas, managers, gateways) = match seed % 4 {
            0 => (3, 2, 2, 2),
            1 => (2, 2, 1, 1),
            2 => (2, 1, 2, 2),
            _ => (4, 2, 3, 2),
        };
        Self {
            nodes,
            replicas,
            managers,
            gateways,
            sites: if seed.is_multiple_of(3) { 3 } else { 1 },
            is_hashed: seed.is_multiple_of(3) && seed / 12 % 2 == 1,
            has_maps: seed % 5 < 2,
            addresses: 3,
            is_scoped: seed % 7 < 2,
            races: match seed % 11 {
                0 | 5 => RacesOf::Only,
                1..=3 => RacesOf::None,
                _ => RacesOf::Some,
            },
            faults: match seed / 4 % 5 {
                0 => Faults::None,
                1 | 2 => Faults::Kills,
                _ => Faults::All,
            },
        }
    }
}

impl Shape {
    /// The same where all clients race for the same names.
    #[must_use]
    pub const fn of_races(seed: u64) -> Self {
        Self {
            races: RacesOf::Only,
            ..Self::of_seed(seed)
        }
    }
}

impl Shape {
    /// The same with initiators: gateways that are scoped to exports have no LUNs.
    #[must_use]
    pub const fn of_luns(seed: u64) -> Self {
        let of_seed = Self::of_seed(seed);
        let gateways = if of_seed.gateways < 2 {
            2
        } else {
            of_seed.gateways
        };
        Self {
            gateways,
            is_scoped: false,
            ..of_seed
        }
    }
}

/// The probability that a new directory goes to any of the sites.
const SWITCHED: f64 = 0.7;

/// Runs one seed; `history` keeps its lines.
#[must_use]
pub fn run(seed: u64, shape: Shape, mutation: Option<Mutation>, history: bool) -> Outcome {
    let mut random = Random::new(seed);
    let world = world_of(shape, mutation, &mut random);
    let mut driver = Driver::new(shape, world, Model::default(), random, history);
    let violation = driver.run().err();
    driver.outcome(violation)
}

/// The processes of an ensemble, nodes before managers before gateways.
fn world_of(shape: Shape, mutation: Option<Mutation>, random: &mut Random) -> World {
    let nodes: Vec<u64> = (0..shape.nodes).map(|_| random.next_u64()).collect();
    let (ensemble, volume) = (random.next_u64(), random.next_u64());
    let copies = shape.replicas;
    let fresh = State::fresh(ensemble, volume, &nodes, copies, copies);
    let mut state = fresh.with_many_sets(SETS_PER_NODE);
    for number in 1..=shape.addresses {
        let address = VirtualAddress {
            address: [192, 0, 2, number].into(),
            prefix_bits: 24,
        };
        // They are different, and few.
        let _ = state.apply(Change::AddAddress { address });
    }
    state.spread = match shape.is_hashed {
        true => Spread::hashed(shape.sites),
        false => Spread::new(SWITCHED, shape.sites),
    };
    if shape.has_maps {
        state.layout = SMALL_BLOCKS;
    }
    let nodes = nodes.into_iter().map(|node| HostRecord {
        nodes: vec![node],
        node_http: Some(([198, 18, 0, 1], 8081).into()),
        ..HostRecord::default()
    });
    let managers = (0..shape.managers).map(|_| HostRecord {
        is_manager: true,
        ..HostRecord::default()
    });
    let gateways = (0..shape.gateways).map(|number| HostRecord {
        is_gateway: true,
        takes_addresses: shape.addresses > 0,
        name: format!("gateway-{number}"),
        iscsi: vec![([198, 18, 1, 1], 3260).into()],
        ..HostRecord::default()
    });
    let records: Vec<HostRecord> = nodes.chain(managers).chain(gateways).collect();
    if shape.is_scoped {
        let authority = String::new();
        let tokens = BTreeMap::new();
        state.trust = Some(TrustRecord { authority, tokens });
        for record in records.iter().filter(|record| record.is_gateway) {
            let name = record.name.clone();
            let exports = Some(BTreeSet::from([ROOT_EXPORT]));
            // It talks over TLS, and they are few.
            let _ = state.apply(Change::ScopeGateway { name, exports });
        }
    }
    World::new(state, records, random.fork(), mutation)
}

/// The number of the export of the volume's root.
const ROOT_EXPORT: u32 = 1;

/// What every process offers as a key for proofs, so that tests can make some.
const PROVING: [u8; 32] = [9; 32];

const fn role_of(record: &HostRecord) -> Role {
    match record {
        HostRecord {
            is_manager: true, ..
        } => Role::Manager,
        HostRecord {
            is_gateway: true, ..
        } => Role::Gateway,
        _ => Role::Node,
    }
}

/// A secret of a process; simulated ones need no better.
fn secret_of(instance: u64, purpose: u8) -> [u8; 32] {
    let mut key = [purpose; 32];
    key[..8].copy_from_slice(&instance.to_le_bytes());
    key
}

#[cfg(test)]
mod ahead;
#[cfg(test)]
mod clocks;
#[cfg(test)]
mod columns;
#[cfg(test)]
mod costs;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod damaged_directories;
#[cfg(test)]
mod defrag;
#[cfg(test)]
mod full;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod late_messages;
#[cfg(test)]
mod listing;
#[cfg(test)]
mod pauses;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod scoped;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod take_overs;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unused;
#[cfg(test)]
mod web;
#[cfg(test)]
mod withdrawals;
