//! Gateways by name: an administrator revokes one, whatever number it has at the
//! moment, and whether it runs or not (docs/decisions/0024), and says to which exports
//! it is scoped (0028).

use std::collections::BTreeSet;

use crossdock_limits::GATEWAYS_MAX;
use crossdock_names::HostId;
use serde::{Deserialize, Serialize};

use crate::hosts::HostRecord;
use crate::state::{Conflict, State};

/// Why no gateway of an ensemble without TLS is scoped.
pub const NO_SCOPES: &str = "the ensemble talks in the clear, where a gateway can say any name: only over TLS can it be scoped to exports";

/// What is known of a gateway, beyond the processes that have its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayRecord {
    /// Whether nodes and managers refuse it.
    pub is_revoked: bool,
    /// To which exports it is scoped, by number; `None`: to all, without proofs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<BTreeSet<u32>>,
    /// Numbers of the target ports that gateways of that name have had; several, where several had
    /// it at a time.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub iscsi_ports: BTreeSet<u16>,
}

impl GatewayRecord {
    /// Whether nothing is lost with it that an administrator has said.
    const fn says_nothing(&self) -> bool {
        !self.is_revoked && self.scope.is_none()
    }
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

    /// To which exports the gateway of that name is scoped, if it is.
    #[must_use]
    pub fn scope(&self, name: &str) -> Option<&BTreeSet<u32>> {
        self.gateways.get(name)?.scope.as_ref()
    }

    /// The exports of these paths, by number.
    ///
    /// # Errors
    /// The first path that is not exported.
    pub fn export_numbers<'paths>(
        &self,
        paths: &'paths [String],
    ) -> Result<BTreeSet<u32>, &'paths str> {
        let number = |path: &'paths String| {
            let found = self.exports.iter().find(|export| export.path == *path);
            found.map(|export| export.id).ok_or(path.as_str())
        };
        paths.iter().map(number).collect()
    }

    /// A gateway has joined: its name is remembered, so that it can be revoked when it
    /// has stopped.
    pub(crate) fn note_gateway(&mut self, record: &HostRecord) {
        if record.is_gateway {
            self.remember_gateway(&record.name);
        }
    }

    /// What is known of the gateway of that name. Of too many names, one that says
    /// nothing is forgotten; `None` if there is none.
    fn remember_gateway(&mut self, name: &str) -> Option<&mut GatewayRecord> {
        if !self.gateways.contains_key(name) && self.gateways.len() >= GATEWAYS_MAX {
            let is_live = |name: &String| self.hosts.values().any(|host| host.name == *name);
            let mut idle = self.gateways.iter();
            let idle = idle.find(|(name, known)| known.says_nothing() && !is_live(name));
            let idle = idle.map(|(name, _)| name.clone())?;
            self.gateways.remove(&idle);
        }
        Some(self.gateways.entry(name.to_owned()).or_default())
    }

    /// Scopes the gateway of that name to exports, or to all; it may be that none has
    /// joined under it yet. In the clear a name is what a process says.
    pub(crate) fn scope_gateway(
        &mut self,
        name: &str,
        exports: Option<BTreeSet<u32>>,
    ) -> Result<(), Conflict> {
        if self.trust.is_none() && exports.is_some() {
            let why = NO_SCOPES.to_owned();
            return Err(Conflict::Refused { why });
        }
        let known = self.remember_gateway(name);
        let known = known.ok_or_else(|| Conflict::Full {
            what: format!("{GATEWAYS_MAX} gateways"),
        })?;
        known.scope = exports;
        self.assign_addresses();
        Ok(())
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
        let mut state = State::fresh(1, 2, &[11], 1, 1);
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
        let mut state = State::fresh(1, 2, &[11], 1, 1);
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
        let mut state = State::fresh(1, 2, &[11], 1, 1);
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
        let mut state = State::fresh(1, 2, &[11], 1, 1);
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

    fn over_tls() -> State {
        let mut state = State::fresh(1, 2, &[11], 1, 1);
        state.trust = Some(crate::TrustRecord {
            authority: String::new(),
            tokens: std::collections::BTreeMap::new(),
        });
        state
    }

    fn scope(state: &mut State, name: &str, exports: Option<&[u32]>) -> Result<(), Conflict> {
        let name = name.to_owned();
        let exports = exports.map(|exports| exports.iter().copied().collect());
        state.apply(Change::ScopeGateway { name, exports })
    }

    /// Goal: a scope is a name's, whether it has joined yet or not, for all processes that
    /// have it; there is none where names are not certified; and it is never forgotten.
    #[test]
    fn a_gateway_is_scoped_by_its_name() {
        let mut state = State::fresh(1, 2, &[11], 1, 1);
        let clear = scope(&mut state, "one", Some(&[1]));
        assert!(clear.is_err_and(|error| error.to_string().contains("in the clear")));
        assert_eq!(state.gateways.len(), 0);
        let mut state = over_tls();
        let epoch = state.table_epoch;
        assert_eq!(scope(&mut state, "one", Some(&[1, 3])), Ok(()));
        assert!(state.table_epoch > epoch);
        join(&mut state, 7, gateway("one"));
        assert_eq!(state.scope("one"), Some(&BTreeSet::from([1, 3])));
        assert_eq!(state.scope("two"), None);
        state.apply(Change::Leave { host: 7 }).expect("leaves");
        for host in 0..GATEWAYS_MAX as u64 + 5 {
            let host = 100 + host;
            join(&mut state, host, gateway(&format!("b{host}")));
            state.apply(Change::Leave { host }).expect("leaves");
        }
        assert_eq!(state.scope("one"), Some(&BTreeSet::from([1, 3])));
        assert_eq!(scope(&mut state, "one", None), Ok(()));
        assert_eq!(state.scope("one"), None);
    }

    /// Goal: handles work at gateways of one scope, so addresses are not given from one to
    /// another of another scope; a name that is revoked does not count.
    #[test]
    fn addresses_stay_among_gateways_of_one_scope() {
        let mut state = over_tls();
        let address = "10.0.0.1/24".parse().expect("an address");
        let added = state.apply(Change::AddAddress { address });
        added.expect("is new");
        join(&mut state, 7, gateway("one"));
        join(&mut state, 8, gateway("two"));
        assert_eq!(state.addresses[0].owner, Some(7));
        scope(&mut state, "one", Some(&[1])).expect("over TLS");
        assert!(state.has_mixed_scopes());
        assert_eq!(state.addresses[0].owner, Some(8));
        scope(&mut state, "two", Some(&[1])).expect("over TLS");
        assert!(!state.has_mixed_scopes());
        assert_eq!(state.addresses[0].owner, Some(8));
        state.apply(Change::Leave { host: 8 }).expect("leaves");
        assert_eq!(state.addresses[0].owner, Some(7));
        scope(&mut state, "two", Some(&[2])).expect("over TLS");
        assert_eq!(state.addresses[0].owner, None, "two may come back");
        revoke(&mut state, "two").expect("is known");
        assert_eq!(state.addresses[0].owner, Some(7));
    }

    /// Goal: what an earlier version wrote about gateways is understood, and what says
    /// nothing of scopes is written as it was.
    #[test]
    fn older_records_are_read() {
        let old = r#"{"is_revoked":true}"#;
        let record: GatewayRecord = serde_json::from_str(old).expect("a record");
        assert_eq!((record.is_revoked, &record.scope), (true, &None));
        assert_eq!(serde_json::to_string(&record).expect("JSON"), old);
    }
}
