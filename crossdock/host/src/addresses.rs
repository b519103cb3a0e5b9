//! Which virtual addresses this host has on its interface, and who is connected to it
//! there.
//!
//! The registry says whose an address is. A gateway has its own for as long as nobody
//! can have taken its place: while the registry's lease lasts that others judge it by,
//! or, where the registry is away, under leases of all other gateways
//! (docs/decisions/0022-virtual-addresses.md). Without either it gives them up by
//! itself; if its process stands still or ends, the kernel does that for it, as what it
//! was told to have ends unless it is told again.
//!
//! Gateways tell each other who is connected to them at virtual addresses: whoever
//! takes an address over can wake its clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crossdock_limits::VIRTUAL_CLIENTS_MAX;
use crossdock_link::Frame;
use crossdock_members::{Change, VirtualAddress};
use crossdock_names::HostId;
use crossdock_types::Time;

use crate::host::{Host, HostEffect};
use crate::nodes::Drain;

/// How long an address that the shell is told of is to stay unless it is told again:
/// about as long as it takes until this host is replaced. (Kernels count in seconds.)
pub const ADDRESS_LIFETIME: Duration = Duration::from_secs(2);

/// How often the shell is told again what this host has.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// How long changes of clients are gathered before others are told.
const GATHERED: Duration = Duration::from_millis(20);

/// The virtual addresses of this host.
#[derive(Default)]
pub(crate) struct Addresses {
    /// What the shell was told last.
    held: BTreeSet<VirtualAddress>,
    again_due: Option<Time>,
    /// Until then the registry lets nobody take this host's place.
    heard_until: Time,
    is_retired: bool,
    /// Who is connected here, by the address where.
    clients: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    /// When others are to be told about them.
    tell_due: Option<Time>,
    /// Who was connected at an address elsewhere, as far as was heard.
    elsewhere: BTreeMap<IpAddr, (SocketAddr, Vec<SocketAddr>)>,
}

impl Host {
    /// When something is to be done about addresses.
    pub(crate) fn address_due(&self) -> Option<Time> {
        let addresses = &self.addresses;
        let ends = (!addresses.held.is_empty()).then(|| self.addresses_until());
        let due = addresses.again_due.into_iter().chain(addresses.tell_due);
        due.chain(ends).min()
    }

    /// Until when nobody can have what this host has.
    fn addresses_until(&self) -> Time {
        let leases = self.other_takers().map(|host| self.leases.until(host));
        // Where there are no others, some may have come since.
        let leases = leases.min().unwrap_or_default();
        leases.max(self.addresses.heard_until)
    }

    /// The registry has heard of this host: nobody takes its place before `until`.
    pub(crate) fn take_heard(&mut self, now: Time, until: Time) {
        self.addresses.heard_until = until.max(self.addresses.heard_until);
        self.follow_addresses(now);
    }

    /// Somebody has connected to a virtual address, or is gone.
    pub(crate) fn take_client(&mut self, now: Time, at: SocketAddr, client: SocketAddr, is: bool) {
        if !self.holds(at.ip()) {
            return; // It is somebody else's by now, and so is telling of its clients.
        }
        let addresses = &mut self.addresses;
        let there = addresses.clients.entry(at).or_default();
        match is {
            true => there.insert(client),
            false => there.remove(&client),
        };
        addresses.tell_due.get_or_insert(now + GATHERED);
    }

    /// Who is connected to another gateway.
    pub(crate) fn take_clients(&mut self, at: SocketAddr, clients: Vec<SocketAddr>) {
        let mut records = self.registry.state().addresses.iter();
        let is_known = records.any(|record| record.address.address == at.ip());
        if is_known && !self.holds(at.ip()) {
            self.addresses.elsewhere.insert(at.ip(), (at, clients));
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        let mut held = self.addresses.held.iter();
        held.any(|one| one.address == address)
    }

    /// A host has come: it knows nobody's clients.
    pub(crate) fn tell_clients_soon(&mut self) {
        if !self.addresses.clients.is_empty() {
            self.addresses
                .tell_due
                .get_or_insert(self.leases.now + GATHERED);
        }
    }

    /// Whose leases keep this host's addresses here while the registry is away.
    pub(crate) fn other_takers(&self) -> impl Iterator<Item = HostId> {
        let state = self.registry.state();
        let takes = self.role.takes_addresses && !state.addresses.is_empty();
        let hosts = state.hosts.iter().filter(move |_| takes);
        let others =
            hosts.filter(|(host, record)| record.takes_addresses && **host != self.instance());
        others.map(|(&host, _)| HostId(host))
    }

    /// Takes and gives up what the state, the leases and the time say.
    pub(crate) fn follow_addresses(&mut self, now: Time) {
        if !self.role.takes_addresses {
            return;
        }
        if self.addresses.tell_due.take_if(|due| *due <= now).is_some() {
            self.tell_clients();
        }
        let due = self.addresses.again_due;
        let wanted = self.wanted_addresses(now);
        let is_due = due.is_none_or(|due| due <= now);
        if wanted != self.addresses.held || is_due {
            let all = wanted.iter().copied().collect();
            self.effects.push_back(HostEffect::Addresses(all));
            self.addresses.again_due = Some(now + AGAIN_AFTER);
            let before = std::mem::replace(&mut self.addresses.held, wanted);
            self.wake_clients(&before);
            self.give_up();
        }
    }

    fn wanted_addresses(&self, now: Time) -> BTreeSet<VirtualAddress> {
        let state = self.registry.state();
        let own = Some(self.instance());
        let is_here =
            |owner, next: Option<u64>| owner == own && next.is_none_or(|next| Some(next) == own);
        let records = state.addresses.iter();
        let records = records.filter(|record| is_here(record.owner, record.next));
        let is_ours = self.following.has_joined
            && state.hosts.contains_key(&self.instance())
            && self.drain == Drain::Serving
            && now < self.addresses_until();
        let wanted = records.filter(|_| is_ours);
        wanted.map(|record| record.address).collect()
    }

    /// Tells the clients of addresses that are new here that they have to connect anew,
    /// and forgets those of addresses that are not here any more.
    fn wake_clients(&mut self, before: &BTreeSet<VirtualAddress>) {
        let addresses = &mut self.addresses;
        let held = &addresses.held;
        for address in held.difference(before) {
            if let Some((at, clients)) = addresses.elsewhere.remove(&address.address) {
                let wake = HostEffect::WakeClients { at, clients };
                self.effects.push_back(wake);
            }
        }
        let is_held = |at: &SocketAddr| held.iter().any(|one| one.address == at.ip());
        addresses.clients.retain(|at, _| is_held(at));
        let state = self.registry.state();
        let is_known = |at: &IpAddr| state.addresses.iter().any(|one| one.address.address == *at);
        addresses.elsewhere.retain(|at, _| is_known(at));
    }

    /// Lets others have what this host has no more; said again until they have.
    fn give_up(&mut self) {
        let host = self.instance();
        if self.drain != Drain::Serving {
            let is_known = self.registry.state().hosts.contains_key(&host);
            if is_known && !std::mem::replace(&mut self.addresses.is_retired, true) {
                self.propose(Change::RetireGateway { host });
            }
            return;
        }
        let records = self.registry.state().addresses.iter();
        let moving = records.filter(|record| {
            record.owner == Some(host) && record.next.is_some_and(|next| next != host)
        });
        let moving: Vec<IpAddr> = moving.map(|record| record.address.address).collect();
        for address in moving {
            self.propose(Change::ReleaseAddress { address, host });
        }
    }

    fn tell_clients(&mut self) {
        let others: Vec<HostId> = self.other_takers().collect();
        let mut frames = Vec::new();
        for (&at, clients) in &self.addresses.clients {
            let clients: Vec<SocketAddr> =
                clients.iter().copied().take(VIRTUAL_CLIENTS_MAX).collect();
            for &host in &others {
                let clients = clients.clone();
                frames.push((host, Frame::Clients { at, clients }));
            }
        }
        for (host, frame) in frames {
            self.send_frame(host, frame);
        }
    }
}
