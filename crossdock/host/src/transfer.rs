//! Third-party transfer between hosts (SPIRAL section 2): what a gateway's clients are to get
//! stays in the memory of the host that has read it, which fills the gateway's packets with it.
//!
//! A gateway asks for a read in the name of a client's connection. The host with the node
//! reads as always – through cache, queue and, where its disk fails, another member – and
//! answers with a pin instead of bytes: they are in memory then, and stay there until the
//! gateway gives the pin back, is replaced, or lets it grow old. A host that cannot hold
//! them, or cannot send as the gateway, answers with the bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crossdock_checksum::keyed_hash;
use crossdock_inflator::{Ends, Filled, GatewayPin, Inflator, Rights};
use crossdock_limits::{OBJECT_IO_BYTES_MAX, PINS_RELEASED_MAX};
use crossdock_link::{Frame, Role};
use crossdock_names::HostId;
use crossdock_peer::{
    Call, Choice, Flow, NodeAnswer, SiteRequest, Transfer, Transport, TunnelSecret,
};
use crossdock_router::RouterInput;
use crossdock_tunnel::TunnelKey;
use crossdock_types::{Extent, Payload, Released, Time};

use crate::held::Holds;
use crate::host::{Host, HostEffect};
use crate::refill::{Promised, Source};

mod holding;

/// Pins wait so long for others, and so many go at once.
const RELEASE_PAUSE: Duration = Duration::from_millis(20);
const RELEASED_AT_ONCE: usize = 256;
/// The number of the only key of two starts of processes.
const KEY_ID: u8 = 1;

/// How this host sends bytes for gateways.
#[derive(Clone, Copy, Debug)]
pub struct TunnelEnd {
    /// Where it takes packets to finish.
    pub address: SocketAddr,
    /// Whether it sends over IPv6, too.
    pub has_ipv6: bool,
    /// A random secret of this process: what it has in common with each gateway is made
    /// of it.
    pub secret: [u8; 32],
}

/// What was held and sent for gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferFigures {
    /// Bytes that are held.
    pub held_bytes: u64,
    /// Pins that are out.
    pub pins: u64,
    /// Reads that were answered with bytes because there was no room.
    pub full: u64,
    /// Of the inflator, since the start.
    pub inflator: crossdock_inflator::Figures,
}

/// The congestion window of a client's connection, as far as it says what nodes may send in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// Whatever they should.
    #[default]
    Wide,
    /// So much is lost that their sending saves nothing: what a rule says that they send.
    Short,
    /// Nothing at all.
    Small,
}

/// Both sides of it.
#[derive(Default)]
pub(crate) struct Transfers {
    /// Pins that nobody here needs any more: of a gateway.
    pub(crate) released: Released,
    /// Those that have not been given back, and until when others may join them.
    releasing: Vec<(u64, u64)>,
    release_due: Option<Time>,
    /// Which hosts have been asked for bytes of a connection: of a gateway.
    asked: BTreeMap<Flow, BTreeSet<HostId>>,
    /// Connections in which nodes are asked less for now.
    windows: BTreeMap<Flow, Window>,
    /// Of a host with nodes that can send as gateways, or of a gateway that can as itself.
    sending: Option<Sending>,
}

impl Transfers {
    /// What this host holds for gateways, if it does that.
    pub(crate) fn holds(&mut self) -> Option<&mut Holds> {
        Some(&mut self.sending.as_mut()?.holds)
    }
}

/// A host that sends for gateways.
struct Sending {
    end: TunnelEnd,
    /// It is a gateway, and sends to its own clients what no node can.
    is_own: bool,
    /// And to clients of others what it keeps.
    lends: bool,
    inflator: Inflator,
    told: BTreeSet<HostId>,
    /// Those whose connections and numbers of datagrams are known: a link between hosts may
    /// come and go meanwhile.
    admitted: BTreeSet<HostId>,
    holds: Holds,
}

impl Sending {
    fn new(boot: u64, end: TunnelEnd, is_own: bool) -> Self {
        Self {
            end,
            is_own,
            lends: false,
            inflator: Inflator::new(boot),
            told: BTreeSet::new(),
            admitted: BTreeSet::new(),
            holds: Holds::default(),
        }
    }

    /// Whether this host sends in a connection.
    fn announce(&mut self, gateway: HostId, flow: Flow) -> bool {
        let has_way = self.end.has_ipv6 || !flow.destination.is_ipv6();
        has_way && self.inflator.announce(gateway.0, ends(flow))
    }

    /// Gives up what was for one datagram, which is sent now.
    fn release_spent(&mut self) {
        while let Some(GatewayPin { gateway, pin }) = self.inflator.poll_spent() {
            self.holds.release(HostId(gateway), &[pin]);
        }
    }

    /// What this host and a gateway have in common.
    fn key_of(&self, gateway: HostId) -> TunnelKey {
        TunnelKey {
            id: KEY_ID,
            key: keyed_hash(&self.end.secret, &gateway.0.to_be_bytes()),
        }
    }

    /// From now on packets of this gateway count, with these addresses as their source.
    fn admit(&mut self, gateway: HostId, addresses: Vec<IpAddr>) {
        if self.admitted.insert(gateway) {
            let rights = Rights {
                boot: gateway.0,
                key: self.key_of(gateway),
                addresses,
            };
            self.inflator.admit(gateway.0, rights);
        } else {
            self.inflator.set_addresses(gateway.0, addresses);
        }
    }

    /// Fills what can be filled; pins of gateways that others have to fill.
    fn fill(&mut self) -> BTreeMap<HostId, Vec<u64>> {
        while let Some(read) = self.inflator.poll_read() {
            let end = read.offset_bytes.saturating_add(read.length_bytes as u64);
            let range = read.offset_bytes..end;
            let bytes = self.holds.bytes(HostId(read.gateway), read.pin, range);
            self.inflator.on_read(&read, bytes);
        }
        let mut unfilled: BTreeMap<HostId, Vec<u64>> = BTreeMap::new();
        while let Some(GatewayPin { gateway, pin }) = self.inflator.poll_unfilled() {
            unfilled.entry(HostId(gateway)).or_default().push(pin);
        }
        unfilled
    }
}

/// As the inflator has it.
const fn ends(flow: Flow) -> Ends {
    Ends {
        transport: match flow.transport {
            Transport::Tcp => crossdock_inflator::Transport::Tcp,
            Transport::Udp => crossdock_inflator::Transport::Udp,
        },
        source: flow.source,
        destination: flow.destination,
    }
}

impl Host {
    /// From now on this host's nodes can send as gateways. The shell gives what comes to the
    /// tunnel's end to [`take_datagram`](Self::take_datagram).
    pub fn open_tunnel(&mut self, end: TunnelEnd) {
        let HostId(boot) = self.host_id();
        self.transfers.sending = Some(Sending::new(boot, end, false));
        self.follow_gateways();
    }

    /// From now on this gateway can send to its own clients what no node can any more
    /// (docs/decisions/0044). For its redirector it is one more host that fills packets; other
    /// gateways hear of it if this one `lends` to their clients what it keeps
    /// (docs/decisions/0052).
    pub fn open_filler(&mut self, end: TunnelEnd, lends: bool) {
        let own = self.host_id();
        let mut sending = Sending::new(own.0, end, true);
        sending.lends = lends;
        let opened = HostEffect::TunnelOpened {
            holder: own,
            address: end.address,
            key: sending.key_of(own),
            is_node: false,
        };
        self.effects.push_back(opened);
        self.transfers.sending = Some(sending);
        self.follow_gateways();
    }

    /// What has come to the tunnel's end, from whomever.
    pub fn take_datagram(&mut self, now: Time, datagram: &[u8]) {
        if let Some(sending) = &mut self.transfers.sending {
            sending.inflator.take(now, datagram);
        }
    }

    /// Fills the packets of the datagrams that came together: what is to be sent.
    pub fn fill_packets(&mut self, now: Time) -> (Vec<Filled>, Vec<(SocketAddr, Vec<u8>)>) {
        let Some(sending) = &mut self.transfers.sending else {
            return (Vec::new(), Vec::new());
        };
        sending.inflator.handle_timeout(now);
        let unfilled = sending.fill();
        let filled = std::iter::from_fn(|| sending.inflator.poll_filled()).collect();
        sending.release_spent();
        let turns = std::iter::from_fn(|| sending.inflator.poll_turn()).collect();
        for (gateway, pins) in unfilled {
            self.tell_unfilled(gateway, pins);
        }
        self.end_spares();
        (filled, turns)
    }

    /// A gateway has somebody else send what is under these pins.
    fn tell_unfilled(&mut self, gateway: HostId, pins: Vec<u64>) {
        let holder = self.host_id();
        if gateway == holder {
            return self
                .effects
                .push_back(HostEffect::Unfilled { holder, pins });
        }
        for some in pins.chunks(PINS_RELEASED_MAX) {
            let unfilled = Transfer::Unfilled(some.to_vec());
            self.send_frame(gateway, Frame::Transfer(unfilled));
        }
    }

    /// When [`fill_packets`](Self::fill_packets) has something to do again.
    #[must_use]
    pub fn tunnel_due(&self) -> Option<Time> {
        self.transfers.sending.as_ref()?.inflator.poll_timeout()
    }

    /// What was held and sent for gateways; nothing if this host does not.
    #[must_use]
    pub fn transfer_figures(&self) -> Option<TransferFigures> {
        let sending = self.transfers.sending.as_ref()?;
        let (held_bytes, pins) = sending.holds.figures();
        Some(TransferFigures {
            held_bytes: held_bytes as u64,
            pins: pins as u64,
            full: sending.holds.full,
            inflator: sending.inflator.figures(),
        })
    }

    /// What the congestion window of a client's connection is now.
    pub fn note_window(&mut self, flow: Flow, window: Window) {
        match window {
            Window::Wide => self.transfers.windows.remove(&flow),
            Window::Short | Window::Small => self.transfers.windows.insert(flow, window),
        };
    }

    fn window(&self, flow: Flow) -> Window {
        let windows = &self.transfers.windows;
        windows.get(&flow).copied().unwrap_or_default()
    }

    /// A door asks for bytes that may stay at a node, as the policy has it.
    pub(crate) fn read_for(&mut self, flow: Flow, choice: Choice, call: Box<Call<SiteRequest>>) {
        let is_worth_it = choice.is_by_rule || self.window(flow) == Window::Wide;
        self.ask_router(match is_worth_it {
            true => RouterInput::ReadFor(flow, call),
            false => RouterInput::Request(call),
        });
    }

    /// The connection for which bytes of a read may stay at a node, if they may now.
    pub(crate) fn flow_for(&self, flow: Flow) -> Option<Flow> {
        (self.window(flow) != Window::Small).then_some(flow)
    }

    /// A connection of a client is over: nobody fills packets of it any more.
    pub fn end_flow(&mut self, flow: Flow) {
        self.transfers.windows.remove(&flow);
        self.end_refills(flow);
        let own = self.host_id();
        let asked = self.transfers.asked.remove(&flow);
        for host in asked.into_iter().flatten() {
            match &mut self.transfers.sending {
                Some(sending) if host == own => sending.inflator.withdraw(own.0, ends(flow)),
                _ => self.send_frame(host, Frame::Transfer(Transfer::End(flow))),
            }
        }
    }

    /// Whether hosts with nodes let themselves be told to speak as `address`.
    #[must_use]
    pub fn speaks_as(&self, address: IpAddr) -> bool {
        self.addresses_of(self.host_id()).contains(&address)
    }

    /// As whom others may speak for a gateway: where it is reached by other hosts, and its
    /// virtual addresses.
    fn addresses_of(&self, gateway: HostId) -> Vec<IpAddr> {
        let state = self.registry.state();
        let record = state.hosts.get(&gateway.0);
        let link = record.and_then(|record| record.link);
        let owned = state.addresses.iter();
        let owned = owned.filter(|address| address.owner == Some(gateway.0));
        let owned = owned.map(|address| address.address.address);
        let own = link.map(|link| link.ip());
        own.into_iter().chain(owned).collect()
    }

    /// The table or the connections have changed: gateways learn where this host takes
    /// packets, and what those have that are gone is given up.
    pub(crate) fn follow_gateways(&mut self) {
        let own = self.host_id();
        let (gateways, addresses) = (self.table.hosts.gateways.clone(), self.addresses_of(own));
        let Some(sending) = &mut self.transfers.sending else {
            return;
        };
        if sending.is_own {
            sending.admit(own, addresses);
        }
        let is_gone = |gateway: &HostId| *gateway != own && !gateways.contains(gateway);
        sending.told.retain(|gateway| !is_gone(gateway));
        for gateway in sending.admitted.extract_if(.., |gateway| is_gone(gateway)) {
            sending.inflator.dismiss(gateway.0);
        }
        sending.holds.give_up(|gateway| is_gone(&gateway));
        let is_own = sending.is_own;
        let others = gateways.into_iter().filter(|&gateway| gateway != own);
        let is_for_others = !is_own || self.lends();
        for gateway in others.filter(|_| is_for_others) {
            self.tell_tunnel(gateway);
        }
        self.end_spares();
    }

    /// A connection is new: who is at its other end may be so, too.
    pub(crate) fn forget_tunnel(&mut self, peer: HostId) {
        self.forget_asked(peer);
        // Whatever it was: the table may know it no more.
        if self.role.is_gateway {
            self.effects.push_back(HostEffect::TunnelClosed(peer));
        }
        if let Some(sending) = &mut self.transfers.sending {
            sending.told.remove(&peer);
        }
    }

    fn tell_tunnel(&mut self, gateway: HostId) {
        // Before others know this host by the table they would not believe it.
        let is_known = self.table.hosts.live.contains(&self.host_id());
        let is_there = is_known && self.peers.role(gateway) == Some(Role::Gateway);
        let addresses = self.addresses_of(gateway);
        let lends = self.lends();
        let is_there = is_there && (!lends || self.is_peer_gateway(gateway));
        let Some(sending) = self.transfers.sending.as_mut().filter(|_| is_there) else {
            return;
        };
        sending.admit(gateway, addresses);
        if !sending.told.insert(gateway) {
            return;
        }
        let TunnelKey { key, .. } = sending.key_of(gateway);
        let transfer = Transfer::Tunnel {
            address: sending.end.address,
            secret: TunnelSecret(key),
        };
        self.send_frame(gateway, Frame::Transfer(transfer));
        if lends {
            self.tell_all_kept(gateway);
        }
    }

    /// A word of another host.
    pub(crate) fn take_transfer(&mut self, peer: HostId, transfer: Transfer) {
        match transfer {
            Transfer::Tunnel { address, secret } => {
                let TunnelSecret(key) = secret;
                self.effects.push_back(HostEffect::TunnelOpened {
                    holder: peer,
                    address,
                    key: TunnelKey { id: KEY_ID, key },
                    is_node: self.peers.role(peer) == Some(Role::Node),
                });
            }
            Transfer::End(flow) => {
                if let Some(sending) = &mut self.transfers.sending {
                    sending.inflator.withdraw(peer.0, ends(flow));
                }
            }
            Transfer::Release(pins) => {
                if let Some(holds) = self.transfers.holds() {
                    holds.release(peer, &pins);
                }
                self.end_spares();
            }
            Transfer::Unfilled(pins) => {
                let unfilled = HostEffect::Unfilled { holder: peer, pins };
                self.effects.push_back(unfilled);
            }
            Transfer::Keeps(files) => self.take_keeps(peer, files),
            Transfer::Ask(ask) => self.take_ask(peer, &ask),
            Transfer::Lent { id, pin } => self.take_lent(peer, id, pin),
        }
    }

    /// Whether this is a gateway that sends what it keeps to clients of others.
    pub(crate) fn lends(&self) -> bool {
        let sending = self.transfers.sending.as_ref();
        sending.is_some_and(|it| it.lends) && self.own_scope().is_none()
    }

    /// This gateway asks a host for bytes of a connection.
    pub(crate) fn note_asked(&mut self, flow: Flow, host: HostId) {
        self.transfers.asked.entry(flow).or_default().insert(host);
    }

    /// An answer that names bytes, as the router takes it: they are in the payload as an
    /// extent, which gives the pin back when nobody has it any more.
    pub(crate) fn name_held(
        &mut self,
        peer: HostId,
        source: Option<Source>,
        answer: NodeAnswer,
    ) -> NodeAnswer {
        let NodeAnswer::Held {
            pin,
            length_bytes,
            version,
            promise,
        } = answer
        else {
            return answer;
        };
        let length_bytes = usize::try_from(length_bytes).unwrap_or(usize::MAX);
        let length_bytes = length_bytes.min(OBJECT_IO_BYTES_MAX);
        if let Some(source) = source {
            let members = self.members_up(&source.object);
            let promised = Promised {
                source,
                length_bytes,
                version,
                promise: *promise,
                members,
                kept: None,
            };
            self.refills.note(peer, pin, promised);
        }
        let mut payload = Payload::new();
        let released = &self.transfers.released;
        payload.push_extent(Extent::new(peer.0, pin, length_bytes, released));
        NodeAnswer::Read { payload, version }
    }

    /// When pins are to be given back.
    pub(crate) const fn release_due(&self) -> Option<Time> {
        self.transfers.release_due
    }

    /// Gives back the pins that nobody needs any more, many at a time.
    pub(crate) fn release_pins(&mut self, now: Time) {
        let transfers = &mut self.transfers;
        transfers.releasing.extend(transfers.released.take());
        if transfers.releasing.is_empty() {
            return;
        }
        let due = *transfers.release_due.get_or_insert(now + RELEASE_PAUSE);
        if due > now && transfers.releasing.len() < RELEASED_AT_ONCE {
            return;
        }
        transfers.release_due = None;
        let mut by_holder: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (holder, pin) in std::mem::take(&mut transfers.releasing) {
            self.refills.forget(HostId(holder), pin);
            by_holder.entry(holder).or_default().push(pin);
        }
        let own = self.host_id();
        for (holder, pins) in by_holder {
            if let Some(holds) = self.transfers.holds()
                && HostId(holder) == own
            {
                holds.release(own, &pins);
                continue;
            }
            for some in pins.chunks(PINS_RELEASED_MAX) {
                let release = Transfer::Release(some.to_vec());
                self.send_frame(HostId(holder), Frame::Transfer(release));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending() -> Sending {
        let end = TunnelEnd {
            address: "198.18.4.1:7072".parse().expect("an address"),
            has_ipv6: false,
            secret: [5; 32],
        };
        Sending::new(1, end, false)
    }

    /// Goal: a host whose system does not pass packets of IPv6 on answers with bytes there: its
    /// packets would not come to anybody.
    #[test]
    fn ipv6_takes_a_way() {
        let gateway = HostId(10);
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let flow = |source, destination| Flow {
            transport: Transport::Tcp,
            source: address(source),
            destination: address(destination),
        };
        let flows = [
            flow("198.18.2.1:80", "198.18.5.1:999"),
            flow("[2001:2::1]:80", "[2001:2::2]:999"),
        ];
        for has_ipv6 in [false, true] {
            let mut sending = sending();
            sending.end.has_ipv6 = has_ipv6;
            let addresses = flows.iter().map(|flow| flow.source.ip());
            sending.admit(gateway, addresses.collect());
            let sends = flows.map(|flow| sending.announce(gateway, flow));
            assert_eq!(sends, [true, has_ipv6]);
        }
    }

    /// Goal: no two gateways, and no two starts of one, have the same secret.
    #[test]
    fn secrets_are_of_one_start() {
        let sending = sending();
        assert_ne!(sending.key_of(HostId(1)), sending.key_of(HostId(2)));
    }
}
