//! Virtual addresses: each is at one live gateway, and goes to another one in the
//! same change by which that one leaves.
//!
//! An address that goes from one live gateway to another one is given up by the first
//! one itself: `next` tells that it shall, [`Change::ReleaseAddress`](crate::Change)
//! that it has. So no two have it at a time, but for one that has been replaced
//! without knowing (it takes its addresses away by itself, see `crossdock-host`).

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crossdock_limits::VIRTUAL_ADDRESSES_MAX;
use serde::{Deserialize, Serialize};

use crate::state::{Conflict, State};

/// An address that gateways have in turn, as it is put on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VirtualAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub prefix_bits: u8,
}

impl fmt::Display for VirtualAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_bits)
    }
}

impl FromStr for VirtualAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |why: &str| format!("{text:?} is no virtual address ({why}): 10.0.0.50/24");
        let (address, bits) = text
            .split_once('/')
            .ok_or_else(|| wrong("how many bits its network has comes behind a /"))?;
        let address: IpAddr = address.parse().map_err(|_| wrong("no address"))?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = bits
            .parse()
            .ok()
            .filter(|bits| (1..=bits_max).contains(bits));
        if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
            return Err(wrong("clients cannot connect to it"));
        }
        Ok(Self {
            address,
            prefix_bits: prefix_bits.ok_or_else(|| wrong("no number of bits"))?,
        })
    }
}

/// A virtual address, and who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRecord {
    /// Which.
    #[serde(flatten)]
    pub address: VirtualAddress,
    /// The gateway that may have it on its interface.
    pub owner: Option<u64>,
    /// The gateway that gets it once the owner has given it up.
    pub next: Option<u64>,
    /// Number of the target port that it is for initiators of iSCSI; 0 if it was added by an earlier
    /// version.
    #[serde(default)]
    pub iscsi_port: u16,
}

impl AddressRecord {
    /// Where it will be.
    const fn goal(&self) -> Option<u64> {
        match self.next {
            None => self.owner,
            next => next,
        }
    }
}

impl State {
    pub(crate) fn add_address(&mut self, address: VirtualAddress) -> Result<(), Conflict> {
        let mut known = self.addresses.iter();
        if known.any(|record| record.address.address == address.address) {
            let what = format!("the address {}", address.address);
            return Err(Conflict::Exists { what });
        }
        if self.addresses.len() >= VIRTUAL_ADDRESSES_MAX {
            return Err(Conflict::Full {
                what: format!("{VIRTUAL_ADDRESSES_MAX} virtual addresses"),
            });
        }
        self.addresses.push(AddressRecord {
            address,
            owner: None,
            next: None,
            iscsi_port: self.free_iscsi_port(),
        });
        self.assign_addresses();
        Ok(())
    }

    pub(crate) fn remove_address(&mut self, address: IpAddr) -> Result<(), Conflict> {
        let is_it = |record: &AddressRecord| record.address.address == address;
        let at = self.addresses.iter().position(is_it);
        let what = || format!("address {address}");
        self.addresses
            .remove(at.ok_or_else(|| Conflict::Unknown { what: what() })?);
        self.assign_addresses();
        Ok(())
    }

    /// `host` has taken the address from its interface.
    pub(crate) fn release_address(&mut self, address: IpAddr, host: u64) -> Result<(), Conflict> {
        let is_it = |record: &&mut AddressRecord| {
            record.address.address == address && record.owner == Some(host)
        };
        let Some(record) = self.addresses.iter_mut().find(is_it) else {
            let what = format!("address {address} of host {host:016x}");
            return Err(Conflict::Unknown { what });
        };
        record.owner = record.next.take();
        self.assign_addresses();
        Ok(())
    }

    /// `host` has taken all its addresses from its interface, and takes no more.
    pub(crate) fn retire_gateway(&mut self, host: u64) -> Result<(), Conflict> {
        let record = self.hosts.get_mut(&host);
        record.ok_or(Conflict::Replaced { host })?.takes_addresses = false;
        self.assign_addresses();
        Ok(())
    }

    /// Whether gateways differ in the exports that they are scoped to: then addresses go
    /// only to those that are not scoped. Names that are revoked do not count.
    #[must_use]
    pub fn has_mixed_scopes(&self) -> bool {
        let known = self.gateways.values();
        let mut scopes = known.filter(|it| !it.is_revoked).map(|it| &it.scope);
        let first = scopes.next();
        scopes.any(|scope| Some(scope) != first)
    }

    /// Gives every address to one gateway that takes them, evenly. What has a gateway
    /// moves only where another one has two less. Clients' handles work at gateways of
    /// the same scope: no other ones take over from each other.
    pub(crate) fn assign_addresses(&mut self) {
        let is_mixed = self.has_mixed_scopes();
        let takers = self.hosts.iter().filter(|(_, record)| {
            let is_apart = is_mixed && self.scope(&record.name).is_some();
            record.takes_addresses && !self.revokes(record) && !is_apart
        });
        let mut load: BTreeMap<u64, usize> = takers.map(|(&host, _)| (host, 0)).collect();
        for record in &mut self.addresses {
            let is_there = |host: &u64| load.contains_key(host);
            record.next = record.next.filter(is_there);
            record.owner = record.owner.filter(is_there).or_else(|| record.next.take());
            if let Some(count) = record.goal().and_then(|goal| load.get_mut(&goal)) {
                *count += 1;
            }
        }
        let records = self.addresses.iter_mut();
        for record in records.filter(|record| record.owner.is_none()) {
            let Some((&host, count)) = load
                .iter_mut()
                .min_by_key(|(host, count)| (**count, **host))
            else {
                return;
            };
            *count += 1;
            record.owner = Some(host);
        }
        while let Some((least, most)) = uneven(&load) {
            let mut records = self.addresses.iter_mut();
            let Some(record) = records.find(|record| record.goal() == Some(most)) else {
                return;
            };
            record.next = (record.owner != Some(least)).then_some(least);
            *load.entry(most).or_default() -= 1;
            *load.entry(least).or_default() += 1;
        }
    }
}

/// Who has least and most, if that is uneven.
fn uneven(load: &BTreeMap<u64, usize>) -> Option<(u64, u64)> {
    let least = load.iter().min_by_key(|(_, count)| **count)?;
    let most = load.iter().max_by_key(|(_, count)| **count)?;
    (most.1 - least.1 > 1).then_some((*least.0, *most.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::HostRecord;
    use crate::state::Change;

    fn ensemble(count: u8) -> State {
        let mut state = State::fresh(1, 2, &[11], 1, 1);
        for number in 1..=count {
            let address = format!("10.0.0.{number}/24").parse().expect("an address");
            let added = state.apply(Change::AddAddress { address });
            added.expect("is new");
        }
        state
    }

    fn join(state: &mut State, host: u64) {
        let record = HostRecord {
            is_gateway: true,
            takes_addresses: true,
            ..HostRecord::default()
        };
        state.apply(Change::Join { host, record }).expect("joins");
    }

    fn owners(state: &State) -> Vec<Option<u64>> {
        state.addresses.iter().map(|record| record.owner).collect()
    }

    /// Goal: a gateway that leaves has its addresses no more in the state in which it
    /// is gone, and those of others stay where they are.
    #[test]
    fn the_addresses_of_a_dead_gateway_are_at_another_one() {
        let mut state = ensemble(4);
        assert_eq!(owners(&state), [None; 4]);
        join(&mut state, 7);
        join(&mut state, 8);
        release_all(&mut state);
        let before = owners(&state);
        let at = |owners: &[Option<u64>], host| owners.iter().filter(|o| **o == Some(host)).count();
        assert_eq!((at(&before, 7), at(&before, 8)), (2, 2));
        state.apply(Change::Leave { host: 7 }).expect("leaves");
        assert_eq!(owners(&state), [Some(8); 4]);
        state.apply(Change::Leave { host: 8 }).expect("leaves");
        assert_eq!(owners(&state), [None; 4]);
    }

    /// Goal: a gateway that lives keeps an address until it says that it has given it
    /// up; if it dies instead, the next one has it.
    #[test]
    fn an_address_leaves_a_live_gateway_by_its_own_doing() {
        let mut state = ensemble(2);
        join(&mut state, 7);
        join(&mut state, 8);
        assert_eq!(owners(&state), [Some(7), Some(7)]);
        let moving = state.addresses[0];
        assert_eq!(moving.next, Some(8));
        let address = moving.address.address;
        let mut died = state.clone();
        died.apply(Change::Leave { host: 7 }).expect("leaves");
        assert_eq!(owners(&died), [Some(8), Some(8)]);
        let release = Change::ReleaseAddress { address, host: 7 };
        state.apply(release.clone()).expect("has it");
        assert_eq!(owners(&state), [Some(8), Some(7)]);
        assert!(state.addresses.iter().all(|record| record.next.is_none()));
        assert!(matches!(
            state.apply(release),
            Err(Conflict::Unknown { .. })
        ));
        state
            .apply(Change::RetireGateway { host: 8 })
            .expect("is there");
        assert_eq!(owners(&state), [Some(7), Some(7)]);
    }

    /// Goal: an address is there once, one that was removed is nobody's, and what is
    /// none is not understood.
    #[test]
    fn addresses_are_checked() {
        let mut state = ensemble(1);
        join(&mut state, 7);
        let epoch = state.table_epoch;
        let address = state.addresses[0].address;
        let again = state.apply(Change::AddAddress { address });
        assert!(matches!(again, Err(Conflict::Exists { .. })));
        let address = address.address;
        assert_eq!(state.apply(Change::RemoveAddress { address }), Ok(()));
        let again = state.apply(Change::RemoveAddress { address });
        assert!(matches!(again, Err(Conflict::Unknown { .. })));
        assert_eq!(state.table_epoch, epoch, "routing does not depend on it");
        for wrong in [
            "10.0.0.1",
            "10.0.0.1/33",
            "10.0.0.1/0",
            "0.0.0.0/8",
            "::1/128",
            "x/8",
        ] {
            assert!(wrong.parse::<VirtualAddress>().is_err(), "{wrong}");
        }
        let six: VirtualAddress = "fd00::5/64".parse().expect("an address");
        assert_eq!(six.to_string(), "fd00::5/64");
    }

    fn release_all(state: &mut State) {
        for record in state.addresses.clone() {
            if let (Some(host), Some(_)) = (record.owner, record.next) {
                let address = record.address.address;
                let released = state.apply(Change::ReleaseAddress { address, host });
                released.expect("has it");
            }
        }
    }
}
