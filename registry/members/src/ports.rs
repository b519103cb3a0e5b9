//! Ports of iSCSI targets: each gateway that serves LUNs is one, and so is each virtual address, as
//! it is at several gateways in turn. Their numbers stay when a gateway starts again: initiators
//! remember them (the target portal group tag of RFC 7143), and reservations know initiators by
//! them, too.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::hosts::HostRecord;
use crate::state::State;

/// Where initiators of iSCSI connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IscsiPortal {
    /// The process that has it at the moment.
    pub host: u64,
    /// Its address.
    pub address: SocketAddr,
    /// Number of the target port that it belongs to.
    pub port: u16,
    /// Whether other gateways may have it later.
    pub is_virtual: bool,
}

impl State {
    /// The portals of all live gateways through which LUNs can be used. Of one that listens at all
    /// addresses of its machine it is known where other hosts reach it, and its virtual addresses.
    #[must_use]
    pub fn iscsi_portals(&self) -> Vec<IscsiPortal> {
        let serves = |record: &HostRecord| {
            record.is_gateway && !self.revokes(record) && self.scope(&record.name).is_none()
        };
        let mut portals = Vec::new();
        for (&host, record) in self.hosts.iter().filter(|(_, record)| serves(record)) {
            for &listener in &record.iscsi {
                let mut add = |address, port, is_virtual| {
                    portals.push(IscsiPortal {
                        host,
                        address,
                        port,
                        is_virtual,
                    });
                };
                if !listener.ip().is_unspecified() {
                    add(listener, record.iscsi_port, false);
                    continue;
                }
                let is_there = |address: &SocketAddr| {
                    !address.ip().is_unspecified() && (listener.is_ipv6() || address.is_ipv4())
                };
                let at = |ip| SocketAddr::new(ip, listener.port());
                let link = record.link.map(|link| at(link.ip())).filter(is_there);
                if let Some(address) = link {
                    add(address, record.iscsi_port, false);
                }
                let owned = self.addresses.iter().filter(|it| it.owner == Some(host));
                for known in owned {
                    let address = at(known.address.address);
                    if is_there(&address) && known.iscsi_port > 0 {
                        add(address, known.iscsi_port, true);
                    }
                }
            }
        }
        portals
    }

    /// Number of the port of a gateway that joins: one that a gateway of this name had before, if
    /// none has it now.
    pub(crate) fn assign_iscsi_port(&mut self, record: &mut HostRecord) {
        if !record.is_gateway || record.iscsi.is_empty() {
            return;
        }
        let live: BTreeSet<u16> = self.hosts.values().map(|it| it.iscsi_port).collect();
        let known = self.gateways.get(&record.name);
        let had = known.and_then(|known| known.iscsi_ports.difference(&live).next().copied());
        let port = had.unwrap_or_else(|| self.free_iscsi_port());
        record.iscsi_port = port;
        if let Some(known) = self.gateways.get_mut(&record.name) {
            known.iscsi_ports.insert(port);
        }
    }

    /// A number that nobody has or has had, as long as it is remembered; 0 if there is none.
    pub(crate) fn free_iscsi_port(&self) -> u16 {
        let gateways = self.gateways.values().flat_map(|it| &it.iscsi_ports);
        let addresses = self.addresses.iter().map(|it| &it.iscsi_port);
        let live = self.hosts.values().map(|it| &it.iscsi_port);
        let taken: BTreeSet<u16> = gateways.chain(addresses).chain(live).copied().collect();
        let mut free = (1..=u16::MAX).filter(|port| !taken.contains(port));
        free.next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    fn gateway(name: &str, link: &str, iscsi: &[&str]) -> HostRecord {
        let address = |text: &&str| text.parse().expect("an address");
        HostRecord {
            is_gateway: true,
            takes_addresses: true,
            name: name.to_owned(),
            link: link.parse().ok(),
            iscsi: iscsi.iter().map(address).collect(),
            ..HostRecord::default()
        }
    }

    fn join(state: &mut State, host: u64, record: HostRecord) -> u16 {
        state.apply(Change::Join { host, record }).expect("joins");
        state.hosts[&host].iscsi_port
    }

    fn told(state: &State) -> Vec<String> {
        let portals = state.iscsi_portals();
        let portals = portals.iter();
        let told = portals.map(|it| format!("{},{}", it.address, it.port));
        told.collect()
    }

    /// Goal: each gateway has a number of its own, also of two of one name, and has it again when
    /// it starts anew; who has gone is told no more, and its number is not given to another name.
    #[test]
    fn gateways_keep_their_ports() {
        let mut state = State::fresh(1, 2, &[11], 1, 1);
        let a = gateway("a", "10.0.0.1:700", &["10.0.0.1:3260"]);
        let b = gateway("b", "10.0.0.2:700", &["10.0.0.2:3260"]);
        let again = gateway("a", "10.0.0.3:700", &["10.0.0.3:3260"]);
        assert_eq!(join(&mut state, 1, a.clone()), 1);
        assert_eq!(join(&mut state, 2, b), 2);
        assert_eq!(join(&mut state, 3, again), 3, "another one of that name");
        assert_eq!(join(&mut state, 4, gateway("c", "10.0.0.4:700", &[])), 0);
        assert_eq!(
            told(&state),
            ["10.0.0.1:3260,1", "10.0.0.2:3260,2", "10.0.0.3:3260,3"]
        );
        state.apply(Change::Leave { host: 1 }).expect("leaves");
        assert_eq!(told(&state), ["10.0.0.2:3260,2", "10.0.0.3:3260,3"]);
        let d = gateway("d", "10.0.0.5:700", &["10.0.0.5:3260"]);
        assert_eq!(join(&mut state, 5, d), 4, "1 is a's");
        assert_eq!(join(&mut state, 6, a.clone()), 1);
        // The process that had it is replaced by the one at its address.
        assert_eq!(join(&mut state, 7, a), 1);
        let text = serde_json::to_string(&state).expect("JSON");
        assert_eq!(
            serde_json::from_str::<State>(&text).expect("a state"),
            state
        );
    }

    /// Goal: through gateways that are revoked or scoped to exports there are no LUNs.
    #[test]
    fn gateways_that_serve_no_luns_are_not_told() {
        let mut state = State::fresh(1, 2, &[11], 1, 1);
        state.trust = Some(crate::TrustRecord {
            authority: String::new(),
            tokens: std::collections::BTreeMap::new(),
        });
        join(
            &mut state,
            1,
            gateway("a", "10.0.0.1:700", &["10.0.0.1:3260"]),
        );
        join(
            &mut state,
            2,
            gateway("b", "10.0.0.2:700", &["10.0.0.2:3260"]),
        );
        let name = || "a".to_owned();
        state
            .apply(Change::RevokeGateway { name: name() })
            .expect("known");
        assert_eq!(told(&state), ["10.0.0.2:3260,2"]);
        state
            .apply(Change::RestoreGateway { name: name() })
            .expect("known");
        let exports = Some([1].into());
        let scope = Change::ScopeGateway {
            name: name(),
            exports,
        };
        state.apply(scope).expect("over TLS");
        assert_eq!(told(&state), ["10.0.0.2:3260,2"]);
    }

    /// Goal: a virtual address keeps its number when it goes to another gateway; it is told where a
    /// gateway listens at all addresses, of its kind.
    #[test]
    fn virtual_addresses_are_ports_of_their_own() {
        let mut state = State::fresh(1, 2, &[11], 1, 1);
        let address = "10.0.0.50/24".parse().expect("an address");
        state.apply(Change::AddAddress { address }).expect("is new");
        let port = state.addresses[0].iscsi_port;
        join(
            &mut state,
            1,
            gateway("a", "10.0.0.1:700", &["0.0.0.0:3260"]),
        );
        join(&mut state, 2, gateway("b", "10.0.0.2:700", &["[::]:3261"]));
        assert_eq!(port, 1);
        assert_eq!(
            told(&state),
            ["10.0.0.1:3260,2", "10.0.0.50:3260,1", "10.0.0.2:3261,3"]
        );
        state.apply(Change::Leave { host: 1 }).expect("leaves");
        assert_eq!(told(&state), ["10.0.0.2:3261,3", "10.0.0.50:3261,1"]);
    }
}
