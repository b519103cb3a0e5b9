//! Orders of the admin API about gateways.

use crossdock_admin::{Answer, GatewayStatus, Refusal};
use crossdock_host::{GatewayError, GatewayOrder, GatewayTicket, GatewayVerb};
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

    /// Begins to revoke a gateway, to let it in again, or to scope it; whoever asked waits
    /// for the registry.
    pub(super) fn order_gateway(
        &mut self,
        name: String,
        what: GatewayVerb,
        reply: oneshot::Sender<Answer>,
    ) {
        let order = GatewayOrder { name, what };
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
            Ok(GatewayOrder { name, what }) => {
                let done = match what {
                    GatewayVerb::Revoke => "revoked",
                    GatewayVerb::Restore => "restored",
                    GatewayVerb::Scope(Some(_)) => "scoped to exports",
                    GatewayVerb::Scope(None) => "scoped to all exports",
                };
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
            exports: known.and_then(|known| known.scope.as_ref()).map(|scope| {
                let paths = scope.iter().map(|id| self.export_path(*id));
                paths.collect()
            }),
            hosts,
            machines,
        }
    }

    fn export_path(&self, id: u32) -> String {
        let mut exports = self.host.exports().iter();
        let found = exports.find(|export| export.id == id);
        found.map_or_else(|| format!("{id} (gone)"), |export| export.path.clone())
    }
}

fn refusal(error: &GatewayError) -> Refusal {
    let what = error.to_string();
    match error {
        GatewayError::NoEnsemble | GatewayError::Clear | GatewayError::NoExports => {
            Refusal::Invalid(what)
        }
        GatewayError::Unknown(_) | GatewayError::UnknownExport(_) => Refusal::Unknown(what),
        GatewayError::Busy | GatewayError::Unanswered => Refusal::Conflict(what),
    }
}
