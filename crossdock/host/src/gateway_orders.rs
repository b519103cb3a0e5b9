//! Orders of an administrator about gateways: a change of the registry that others
//! share, and its answer once it is there (docs/decisions/0024, 0028).

use std::collections::{BTreeMap, BTreeSet};

use crossdock_members::{Change, GatewayRecord, NO_SCOPES};
use crossdock_types::{Time, WallTime};
use thiserror::Error;

use crate::exports::REGISTRY_PATIENCE;
use crate::host::{Host, HostEffect};
use crate::walks::WALKS_MAX;

/// Which order about gateways an effect answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayTicket(u64);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayOrder {
    /// With which gateway.
    pub name: String,
    /// What.
    pub what: GatewayVerb,
}

/// What can be done with a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayVerb {
    /// Nodes and managers are to refuse it.
    Revoke,
    /// They are to let it in again.
    Restore,
    /// It is to reach what lies in the exports of these paths only; `None`: everything.
    Scope(Option<Vec<String>>),
}

/// Why it was not done; nothing was, unless stated otherwise.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GatewayError {
    /// This process has no others.
    #[error("gateways are processes of ensembles of many hosts: crossdock gateway run")]
    NoEnsemble,
    /// No such gateway has ever joined.
    #[error("there is no gateway {0}; crossdock gateway list shows all")]
    Unknown(String),
    /// Its name is what it says itself.
    #[error("{NO_SCOPES}")]
    Clear,
    /// No such path is exported.
    #[error("{0} is not exported; crossdock export list shows all exports")]
    UnknownExport(String),
    /// To reach nothing is something else.
    #[error("name at least one export; crossdock gateway revoke keeps a gateway from all")]
    NoExports,
    /// Too many at once.
    #[error("{WALKS_MAX} gateways are being revoked, restored or scoped at this moment; try again")]
    Busy,
    /// A shared registry says nothing: it may still be done.
    #[error(
        "etcd does not answer: the change was not confirmed within {} s, and may still be carried out; crossdock gateway list shows what came of it",
        REGISTRY_PATIENCE.as_secs()
    )]
    Unanswered,
}

/// An order on its way to the registry.
pub(crate) struct GatewayChange {
    ticket: GatewayTicket,
    order: GatewayOrder,
    /// The numbers of the exports, of a scope.
    exports: Option<BTreeSet<u32>>,
    /// When it is given up.
    pub(crate) due: Time,
}

impl Host {
    /// The gateways of the ensemble by name, those that have stopped too.
    #[must_use]
    pub fn gateways(&self) -> &BTreeMap<String, GatewayRecord> {
        &self.registry.state().gateways
    }

    /// Begins to carry an order out; [`HostEffect::GatewayChanged`] tells what came of it.
    ///
    /// # Errors
    /// Why not, as far as it can be seen at once.
    pub fn order_gateway(
        &mut self,
        now: Time,
        wall: WallTime,
        order: GatewayOrder,
    ) -> Result<GatewayTicket, GatewayError> {
        if !self.registry.is_shared() {
            return Err(GatewayError::NoEnsemble);
        }
        if self.gateway_changes.len() >= WALKS_MAX {
            return Err(GatewayError::Busy);
        }
        if !self.gateways().contains_key(&order.name) {
            return Err(GatewayError::Unknown(order.name));
        }
        let name = order.name.clone();
        let exports = self.exports_named(&order.what)?;
        self.propose(match order.what {
            GatewayVerb::Revoke => Change::RevokeGateway { name },
            GatewayVerb::Restore => Change::RestoreGateway { name },
            GatewayVerb::Scope(_) => {
                let exports = exports.clone();
                Change::ScopeGateway { name, exports }
            }
        });
        self.walks_total += 1;
        let ticket = GatewayTicket(self.walks_total);
        self.gateway_changes.push(GatewayChange {
            ticket,
            order,
            exports,
            due: now + REGISTRY_PATIENCE,
        });
        self.settle_gateways(now);
        self.pump(now, wall);
        Ok(ticket)
    }

    /// The numbers of the exports that a scope names.
    fn exports_named(&self, what: &GatewayVerb) -> Result<Option<BTreeSet<u32>>, GatewayError> {
        let GatewayVerb::Scope(Some(paths)) = what else {
            return Ok(None);
        };
        if self.registry.state().trust.is_none() {
            return Err(GatewayError::Clear);
        }
        if paths.is_empty() {
            return Err(GatewayError::NoExports);
        }
        let numbers = self.registry.state().export_numbers(paths);
        let unknown = |path: &str| GatewayError::UnknownExport(path.to_owned());
        numbers.map(Some).map_err(unknown)
    }

    /// Answers those whose change is in the registry, or cannot come there any more.
    pub(crate) fn settle_gateways(&mut self, now: Time) {
        for change in std::mem::take(&mut self.gateway_changes) {
            let known = self.gateways().get(&change.order.name);
            let is_there = known.is_some_and(|known| match change.order.what {
                GatewayVerb::Revoke => known.is_revoked,
                GatewayVerb::Restore => !known.is_revoked,
                GatewayVerb::Scope(_) => known.scope == change.exports,
            });
            if !is_there && now < change.due {
                self.gateway_changes.push(change);
                continue;
            }
            let result = is_there.then_some(()).ok_or(GatewayError::Unanswered);
            let GatewayChange { ticket, order, .. } = change;
            let result = result.map(|()| order);
            self.effects
                .push_back(HostEffect::GatewayChanged { ticket, result });
        }
    }
}
