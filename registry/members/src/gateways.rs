//! Gateways by name: an administrator revokes one, whatever number it has at the
//! moment, and whether it runs or not (docs/decisions/0024).

use crossdock_limits::GATEWAYS_MAX;
use crossdock_names::HostId;
use serde::{Deserialize, Serialize};

use crate::hosts::HostRecord;
use crate::state::{Conflict, State};

/// What is known of a gateway, beyond the processes that have its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayRecord {
    /// Whether nodes and managers refuse it.
    pub is_revoked: bool,
}

impl State {
    /// Whether a process is a gateway that has been revoked.
    #[must_use]
    pub fn is_revoked(&self, host: HostId) -> bool {
        let record = self.hosts.get(&host.0);
        record.is_some_and(|record| self.revokes(record))
    }

    /// Whether such a process would be one.
    pub(crate) fn revokes(&self, record: &HostRecord) -> bool {
        let known = self.gateways.get(&record.name);
        record.is_gateway && known.is_some_and(|known| known.is_revoked)
    }

    /// A gateway has joined: its name is remembered, so that it can be revoked when it
    /// has stopped. Of too many names, one that says nothing is forgotten.
    pub(crate) fn note_gateway(&mut self, record: &HostRecord) {
        if !record.is_gateway || self.gateways.contains_key(&record.name) {
            return;
        }
        if self.gateways.len() >= GATEWAYS_MAX {
            let is_live = |name: &String| self.hosts.values().any(|host| host.name == *name);
            let mut idle = self.gateways.iter();
            let idle = idle.find(|(name, known)| !known.is_revoked && !is_live(name));
            let Some(idle) = idle.map(|(name, _)| name.clone()) else {
                return;
            };
            self.gateways.remove(&idle);
        }
        let name = record.name.clone();
        self.gateways.insert(name, GatewayRecord::default());
    }

    /// Its virtual addresses go to other gateways in the same change.
    pub(crate) fn revoke_gateway(&mut self, name: &str, is_revoked: bool) -> Result<(), Conflict> {
        let known = self.gateways.get_mut(name);
        let known = known.ok_or_else(|| Conflict::Unknown {
            what: format!("gateway {name}"),
        })?;
        known.is_revoked = is_revoked;
        self.assign_addresses();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    fn gateway(name: &str) -> HostRecord {
        HostRecord {
            is_gateway: true,
            takes_addresses: true,
            name: name.to_owned(),
            ..HostRecord::default()
        }
    }

    fn join(state: &mut State, host: u64, record: HostRecord) {
        state.apply(Change::Join { host, record }).expect("joins");
    }

    fn revoke(state: &mut State, name: &str) -> Result<(), Conflict> {
        let name = name.to_owned();
        state.apply(Change::RevokeGateway { name })
    }

    /// Goal: revoking is by name, for the process that runs and for those to come, and
    /// the table's epoch tells of it.
    #[test]
    fn a_revoked_gateway_stays_revoked_when_it_starts_again() {
        let mut state = State::fresh(1, 2, &[11], 1, 1, [0; 32]);
        join(&mut state, 7, gateway("one"));
        join(&mut state, 8, gateway("two"));
        let epoch = state.table_epoch;
        assert_eq!(revoke(&mut state, "one"), Ok(()));
        assert!(state.table_epoch > epoch);
        let revoked = |state: &State, host| state.is_revoked(HostId(host));
        assert!(revoked(&state, 7) && !revoked(&state, 8));
        state.apply(Change::Leave { host: 7 }).expect("leaves");
        join(&mut state, 9, gateway("one"));
        assert!(revoked(&state, 9));
        let name = "one".to_owned();
        assert_eq!(state.apply(Change::RestoreGateway { name }), Ok(()));
        assert!(!revoked(&state, 9));
        let unknown = revoke(&mut state, "three");
        assert!(unknown.is_err_and(|error| error.to_string().contains("gateway three")));
    }

    /// Goal: a manager of that name is not meant.
    #[test]
    fn only_gateways_are_revoked() {
        let mut state = State::fresh(1, 2, &[11], 1, 1, [0; 32]);
        join(&mut state, 7, gateway("one"));
        let mut manager = gateway("one");
        (manager.is_gateway, manager.is_manager) = (false, true);
        join(&mut state, 8, manager);
        assert_eq!(revoke(&mut state, "one"), Ok(()));
        assert!(!state.is_revoked(HostId(8)));
    }

    /// Goal: the addresses of a revoked gateway are at another one in the same state,
    /// and it gets none until it is let in again.
    #[test]
    fn the_addresses_of_a_revoked_gateway_go_to_others() {
        let mut state = State::fresh(1, 2, &[11], 1, 1, [0; 32]);
        let address = "10.0.0.1/24".parse().expect("an address");
        let added = state.apply(Change::AddAddress { address });
        added.expect("is new");
        join(&mut state, 7, gateway("one"));
        join(&mut state, 8, gateway("two"));
        assert_eq!(state.addresses[0].owner, Some(7));
        revoke(&mut state, "one").expect("is known");
        assert_eq!(state.addresses[0].owner, Some(8));
        revoke(&mut state, "two").expect("is known");
        assert_eq!(state.addresses[0].owner, None);
        let name = "one".to_owned();
        let restored = state.apply(Change::RestoreGateway { name });
        restored.expect("is known");
        assert_eq!(state.addresses[0].owner, Some(7));
    }

    /// Goal: names are bounded, and a revoked one is never forgotten.
    #[test]
    fn names_are_bounded() {
        let mut state = State::fresh(1, 2, &[11], 1, 1, [0; 32]);
        join(&mut state, 1, gateway("a"));
        revoke(&mut state, "a").expect("is known");
        for number in 0..GATEWAYS_MAX as u64 + 5 {
            join(&mut state, 100 + number, gateway(&format!("b{number}")));
            let host = 100 + number;
            state.apply(Change::Leave { host }).expect("leaves");
        }
        assert_eq!(state.gateways.len(), GATEWAYS_MAX);
        assert!(state.gateways["a"].is_revoked);
    }
}
