//! Orders of an administrator about gateways: a change of the registry that others
//! share, and its answer once it is there (docs/decisions/0024).

use std::collections::BTreeMap;

use crossdock_members::{Change, GatewayRecord};
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
    /// Whether nodes and managers are to refuse it.
    pub revoke: bool,
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
    /// Too many at once.
    #[error("{WALKS_MAX} gateways are being revoked or restored at this moment; try again")]
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
        self.propose(match order.revoke {
            true => Change::RevokeGateway { name },
            false => Change::RestoreGateway { name },
        });
        self.walks_total += 1;
        let ticket = GatewayTicket(self.walks_total);
        self.gateway_changes.push(GatewayChange {
            ticket,
            order,
            due: now + REGISTRY_PATIENCE,
        });
        self.settle_gateways(now);
        self.pump(now, wall);
        Ok(ticket)
    }

    /// Answers those whose change is in the registry, or cannot come there any more.
    pub(crate) fn settle_gateways(&mut self, now: Time) {
        for change in std::mem::take(&mut self.gateway_changes) {
            let known = self.gateways().get(&change.order.name);
            let result = match known {
                Some(known) if known.is_revoked == change.order.revoke => Ok(()),
                _ if change.due <= now => Err(GatewayError::Unanswered),
                _ => {
                    self.gateway_changes.push(change);
                    continue;
                }
            };
            let GatewayChange { ticket, order, .. } = change;
            let result = result.map(|()| order);
            self.effects
                .push_back(HostEffect::GatewayChanged { ticket, result });
        }
    }
}
