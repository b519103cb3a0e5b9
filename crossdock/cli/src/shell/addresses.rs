//! Virtual addresses on this machine's interface, and the doors there. Which ones, the
//! host says, again and again: the kernel takes away by itself what it is not told of.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use crossdock_host::ADDRESS_LIFETIME;
use crossdock_members::VirtualAddress;
use crossdock_net::Interface;
use tracing::{info, warn};

use super::Shell;

/// How often the network is told that an address is here: a frame can be lost, and a
/// switch may just be learning.
const ANNOUNCED_TIMES: u8 = 5;

/// How often clients of an address are told: their machines answer to one such segment
/// in half a second.
const WOKEN_TIMES: u8 = 3;

/// The interface, and what is on it.
pub(crate) struct Addresses {
    interface: Interface,
    /// How often each is still to be announced.
    held: BTreeMap<VirtualAddress, u8>,
    /// Who is still to be told, and how often.
    to_wake: VecDeque<(SocketAddr, Vec<SocketAddr>, u8)>,
}

impl Addresses {
    /// None to begin with.
    pub(crate) const fn new(interface: Interface) -> Self {
        Self {
            interface,
            held: BTreeMap::new(),
            to_wake: VecDeque::new(),
        }
    }

    /// Puts `address` on the interface, or says again that it is to stay.
    fn have(&mut self, address: VirtualAddress) -> bool {
        let VirtualAddress {
            address: ip,
            prefix_bits,
        } = address;
        if let Err(error) = self.interface.set(ip, prefix_bits, ADDRESS_LIFETIME) {
            let interface = self.interface.name();
            warn!(%address, interface, %error, "cannot have a virtual address");
            return false;
        }
        let left = self.held.entry(address).or_insert_with(|| {
            info!(%address, "has a virtual address");
            ANNOUNCED_TIMES
        });
        if *left > 0 {
            *left -= 1;
            if let Err(error) = self.interface.announce(ip) {
                warn!(%address, %error, "cannot announce a virtual address");
            }
        }
        true
    }

    fn remove(&mut self, address: VirtualAddress) {
        self.held.remove(&address);
        self.to_wake.retain(|(at, ..)| at.ip() != address.address);
        match self.interface.remove(address.address, address.prefix_bits) {
            Ok(()) => info!(%address, "has given up a virtual address"),
            Err(error) => warn!(%address, %error, "cannot remove a virtual address"),
        }
    }

    /// Tells some of those that are to be told.
    fn wake(&mut self) {
        for _ in 0..self.to_wake.len() {
            let Some((at, clients, times)) = self.to_wake.pop_front() else {
                return;
            };
            for part in clients.iter() {
                if let Err(error) = self.interface.tickle(at, *part) {
                    warn!(%at, client = %part, %error, "cannot wake a client");
                    break;
                }
            }
            if times > 1 {
                self.to_wake.push_back((at, clients, times - 1));
            }
        }
    }
}

impl Drop for Addresses {
    /// At once, and not only when the kernel finds that nobody says more.
    fn drop(&mut self) {
        let held: Vec<VirtualAddress> = self.held.keys().copied().collect();
        for address in held {
            self.remove(address);
        }
    }
}

impl Shell {
    /// Has exactly these addresses.
    pub(super) fn have_addresses(&mut self, wanted: &[VirtualAddress]) {
        let Some(addresses) = self.ensemble.as_mut().and_then(|it| it.addresses.as_mut()) else {
            return;
        };
        let held = addresses.held.keys().copied();
        let lost: Vec<VirtualAddress> = held.filter(|one| !wanted.contains(one)).collect();
        for &address in &lost {
            addresses.remove(address);
        }
        let had = wanted.iter().filter(|address| addresses.have(**address));
        let had: Vec<IpAddr> = had.map(|address| address.address).collect();
        addresses.wake();
        for address in lost {
            self.doors.shut(&mut self.driver, address.address);
        }
        if self.stop_by.is_none() {
            for address in had {
                self.open_door(address);
            }
        }
    }

    /// These were connected to `at` elsewhere.
    pub(super) fn wake_clients(&mut self, at: SocketAddr, clients: Vec<SocketAddr>) {
        if let Some(addresses) = self.ensemble.as_mut().and_then(|it| it.addresses.as_mut()) {
            info!(%at, clients = clients.len(), "wakes the clients of a virtual address");
            addresses.to_wake.push_back((at, clients, WOKEN_TIMES));
            addresses.wake();
        }
    }

    fn open_door(&mut self, address: IpAddr) {
        if self.doors.is_open(address) {
            return;
        }
        let Some(port) = self.doors.port(address.is_ipv6()) else {
            return;
        };
        let at = SocketAddr::new(address, port);
        if let Err(error) = self.doors.open(&mut self.driver, at) {
            warn!(%error, "cannot serve at a virtual address");
        }
    }
}
