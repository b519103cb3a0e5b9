//! Orders of the admin API about virtual addresses.

use std::net::IpAddr;

use crossdock_admin::{AddressAddition, AddressStatus, Answer, Refusal};
use crossdock_host::{AddressError, AddressOrder, AddressTicket};
use crossdock_members::AddressRecord;
use crossdock_names::HostId;
use crossdock_net::now;
use tokio::sync::oneshot;
use tracing::info;

use super::waiting::tell;
use super::{Shell, wall_time};
use crate::report;

impl Shell {
    pub(super) fn list_addresses(&self) -> Answer {
        let addresses = self.host.addresses().iter();
        let addresses: Vec<AddressStatus> = addresses.map(|it| self.address_status(it)).collect();
        report::json(&addresses)
    }

    /// Begins to add an address; whoever asked waits for the registry.
    pub(super) fn add_address(
        &mut self,
        addition: &AddressAddition,
        reply: oneshot::Sender<Answer>,
    ) {
        match addition.address.parse() {
            Ok(address) => self.order_address(AddressOrder::Add(address), reply),
            Err(what) => tell(reply, Err(Refusal::Invalid(what))),
        }
    }

    /// Begins to remove an address; as above.
    pub(super) fn remove_address(&mut self, address: IpAddr, reply: oneshot::Sender<Answer>) {
        self.order_address(AddressOrder::Remove(address), reply);
    }

    pub(super) fn take_address_changed(
        &mut self,
        ticket: AddressTicket,
        result: Result<AddressRecord, AddressError>,
    ) {
        let answer = match result {
            Ok(record) => {
                info!(address = %record.address, "the virtual addresses have been changed");
                report::json(&self.address_status(&record))
            }
            Err(error) => Err(refusal(&error)),
        };
        self.address_replies.end(&ticket, |()| answer);
    }

    fn order_address(&mut self, order: AddressOrder, reply: oneshot::Sender<Answer>) {
        let begun = self.host.order_address(now(), wall_time(), order);
        let begun = begun.map_err(|error| refusal(&error));
        self.address_replies.keep(begun, (), reply);
    }

    fn address_status(&self, record: &AddressRecord) -> AddressStatus {
        let mut hosts = self.host.hosts();
        let owner = record.owner.map(HostId);
        let machine = hosts.find(|(host, ..)| Some(*host) == owner);
        AddressStatus {
            address: record.address.to_string(),
            gateway: owner.map(|host| host.to_string()),
            machine: machine.map(|(_, host, _)| host.machine.clone()),
        }
    }
}

fn refusal(error: &AddressError) -> Refusal {
    let what = error.to_string();
    match error {
        AddressError::NoEnsemble => Refusal::Invalid(what),
        AddressError::Unknown(_) => Refusal::Unknown(what),
        AddressError::Exists(_)
        | AddressError::TooMany
        | AddressError::Busy
        | AddressError::Unanswered => Refusal::Conflict(what),
    }
}
