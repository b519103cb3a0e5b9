//! Orders of the admin API about gateways.

use crossdock_admin::{Answer, GatewayStatus, Refusal};
use crossdock_host::{GatewayError, GatewayOrder, GatewayTicket};
use crossdock_net::now;
use tokio::sync::oneshot;
use tracing::warn;

use super::{Shell, wall_time};
use crate::report;

impl Shell {
    pub(super) fn list_gateways(&self) -> Answer {
        let names = self.host.gateways().keys();
        let gateways: Vec<_> = names.map(|name| self.gateway_status(name)).collect();
        report::json(&gateways)
    }

    /// Begins to revoke a gateway, or to let it in again; whoever asked waits for the
    /// registry.
    pub(super) fn order_gateway(
        &mut self,
        name: String,
        revoke: bool,
        reply: oneshot::Sender<Answer>,
    ) {
        let order = GatewayOrder { name, revoke };
        let begun = self.host.order_gateway(now(), wall_time(), order);
        let begun = begun.map_err(|error| refusal(&error));
        self.gateway_replies.keep(begun, (), reply);
    }

    pub(super) fn take_gateway_changed(
        &mut self,
        ticket: GatewayTicket,
        result: Result<GatewayOrder, GatewayError>,
    ) {
        let answer = match result {
            Ok(GatewayOrder { name, revoke }) => {
                let done = if revoke { "revoked" } else { "restored" };
                warn!(gateway = %name, "gateway {done} by an administrator");
                report::json(&self.gateway_status(&name))
            }
            Err(error) => Err(refusal(&error)),
        };
        self.gateway_replies.end(&ticket, |()| answer);
    }

    fn gateway_status(&self, name: &str) -> GatewayStatus {
        let known = self.host.gateways().get(name);
        let hosts = self.host.hosts();
        let hosts = hosts.filter(|(_, record, _)| record.is_gateway && record.name == name);
        let (hosts, machines) = hosts
            .map(|(host, record, _)| (host.to_string(), record.machine.clone()))
            .unzip();
        GatewayStatus {
            name: name.to_owned(),
            revoked: known.is_some_and(|known| known.is_revoked),
            hosts,
            machines,
        }
    }
}

fn refusal(error: &GatewayError) -> Refusal {
    let what = error.to_string();
    match error {
        GatewayError::NoEnsemble => Refusal::Invalid(what),
        GatewayError::Unknown(_) => Refusal::Unknown(what),
        GatewayError::Busy | GatewayError::Unanswered => Refusal::Conflict(what),
    }
}
