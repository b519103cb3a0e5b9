//! What other threads ask of the data thread.

use std::sync::Arc;

use crossdock_admin::{Answer, Command, Control, DefragOrder, Refusal, Snapshot};
use crossdock_host::{GatewayVerb, Tuning};
use crossdock_members::DailyWindow;
use crossdock_net::{Sender, now};
use tokio::sync::oneshot;
use tracing::warn;

use super::waiting::tell;
use super::{Shell, wall_time};
use crate::report;

/// What other threads ask of the data thread.
pub(crate) enum Order {
    /// SIGINT or SIGTERM.
    Stop,
    /// The configuration was read again; this is all of it that may change.
    Tune(Tuning),
    /// The admin API.
    Admin(Command, oneshot::Sender<Answer>),
    /// Whoever watches.
    Snapshot(oneshot::Sender<Snapshot>),
}

/// The control thread's end.
pub(crate) struct RemoteControl {
    orders: Arc<Sender<Order>>,
}

impl RemoteControl {
    pub(crate) const fn new(orders: Arc<Sender<Order>>) -> Self {
        Self { orders }
    }
}

impl Control for RemoteControl {
    fn ask(&self, command: Command, reply: oneshot::Sender<Answer>) {
        // A refused order drops its reply, which the API reports as stopping.
        let _ = self.orders.try_send(Order::Admin(command, reply));
    }

    fn snapshot(&self, reply: oneshot::Sender<Snapshot>) {
        let _ = self.orders.try_send(Order::Snapshot(reply)); // As above.
    }
}

impl Shell {
    pub(super) fn take_orders(&mut self) {
        while let Some(order) = self.orders.try_receive() {
            match order {
                Order::Stop => self.stop(),
                Order::Tune(tuning) => self.host.tune(&tuning),
                Order::Admin(command, reply) => self.take_command(command, reply),
                Order::Snapshot(reply) => {
                    let snapshot = self.snapshot().filter(|_| self.stop_by.is_none());
                    if let Some(snapshot) = snapshot {
                        // The asker may have gone away meanwhile.
                        let _ = reply.send(snapshot);
                    }
                }
            }
        }
    }

    fn take_command(&mut self, command: Command, reply: oneshot::Sender<Answer>) {
        let allowed = match self.stop_by {
            Some(_) => Err(Refusal::Stopping),
            None => self.check_place(&command),
        };
        if let Err(refusal) = allowed {
            return tell(reply, Err(refusal));
        }
        let answer = match command {
            Command::ExportAdd(addition) => return self.add_export(addition, reply),
            Command::ExportSet(id, change) => return self.set_export(id, change, reply),
            Command::ExportRemove(id) => return self.remove_export(id, reply),
            Command::AddressAdd(addition) => return self.add_address(&addition, reply),
            Command::AddressRemove(address) => return self.remove_address(address, reply),
            Command::GatewayRevoke(name) => {
                return self.order_gateway(name, GatewayVerb::Revoke, reply);
            }
            Command::GatewayRestore(name) => {
                return self.order_gateway(name, GatewayVerb::Restore, reply);
            }
            Command::GatewayScope(name, scope) => {
                return self.order_gateway(name, GatewayVerb::Scope(scope.exports), reply);
            }
            Command::PolicySet(setting) => return self.set_policy(setting, reply),
            Command::PolicyRemove(id) => return self.remove_policy(id, reply),
            Command::PolicyList => self.list_policy(),
            Command::LunCreate(creation) => return self.create_lun(creation, reply),
            Command::LunSet(name, change) => return self.set_lun(&name, &change, reply),
            Command::LunRemove(name) => return self.remove_lun(&name, reply),
            Command::LunList => self.list_luns(),
            Command::DiskList => self.list_disks(),
            Command::DiskOrder(order) => return self.order_disk(&order, reply),
            Command::QuotaSet(setting) => return self.set_quota(&setting, reply),
            Command::QuotaRemove(id) => return self.remove_quota(id, reply),
            Command::Place(placing) => return self.place(placing, reply),
            Command::TokenAdd(addition) => return self.add_token(addition, reply),
            Command::TokenRemove(id) => return self.remove_token(id, reply),
            Command::TokenList => self.list_tokens(),
            Command::Sign(signing) => self.sign(signing),
            Command::SignPieces(signing) => return self.sign_pieces(signing, reply),
            Command::ShareFile(sharing) => return self.share_file(sharing, reply),
            Command::ImportFile(import) => self.import_file(import),
            Command::ImportStatus(id) => self.imports.status(id),
            Command::PlaceList => self.list_places(),
            Command::LockRelease(order) => return self.release_locks(order, reply),
            Command::LockList => self.list_locks(),
            Command::DeliveryDecisions => {
                report::json(&self.host.delivery_decisions().collect::<Vec<_>>())
            }
            Command::QuotaList => self.list_quotas(),
            Command::AddressList => self.list_addresses(),
            Command::GatewayList => self.list_gateways(),
            Command::ExportList => self.list_exports(),
            Command::Status => self.status(),
            Command::ScrubStatus => report::scrub(&self.host),
            Command::ScrubStart => self.start_scrub(),
            Command::DefragStatus => report::defrag(&self.host),
            Command::DefragOrder(order) => self.order_defrag(order),
            Command::FsckStatus => report::fsck(&self.host),
            Command::FsckStart(repairs) => self.start_fsck(repairs),
            Command::NodeStop(number) => self.stop_node(number),
            Command::NodeStart(number) => self.order_start(number),
        };
        tell(reply, answer);
    }

    pub(super) fn status(&self) -> Answer {
        let uptime = now().since(self.started);
        let ensemble = self.ensemble.as_ref();
        let ends = ensemble.and_then(|ensemble| ensemble.links.certificate_ends());
        let connections = self.doors.count();
        report::status(&self.host, &self.surroundings, uptime, connections, ends)
    }

    fn start_fsck(&mut self, repairs: bool) -> Answer {
        if repairs {
            warn!("an administrator has the volume checked and repaired");
        }
        self.host.begin_fsck(now(), repairs);
        report::fsck(&self.host)
    }

    fn order_defrag(&mut self, order: DefragOrder) -> Answer {
        let (now, wall) = (now(), wall_time());
        let done = match order {
            DefragOrder::Now => self.host.start_defrag(now, wall, None),
            DefragOrder::Stop => self.host.stop_defrag(now),
            DefragOrder::File { path } => self.host.start_defrag(now, wall, Some(&path)),
            DefragOrder::Schedule { window } => {
                let window = window.map(|text| text.parse::<DailyWindow>()).transpose();
                let window = window.map_err(|error| Refusal::Invalid(error.to_string()))?;
                self.host.set_defrag_schedule(now, wall, window)
            }
        };
        done.map_err(Refusal::Conflict)?;
        report::defrag(&self.host)
    }

    fn start_scrub(&mut self) -> Answer {
        self.begin_scrub()?;
        report::scrub(&self.host)
    }
}
