//! Orders of an administrator about virtual addresses: a change of the registry that
//! others share, and its answer once it is there.

use std::net::IpAddr;

use crossdock_limits::VIRTUAL_ADDRESSES_MAX;
use crossdock_members::{AddressRecord, Change, VirtualAddress};
use crossdock_types::{Time, WallTime};
use thiserror::Error;

use crate::exports::REGISTRY_PATIENCE;
use crate::host::{Host, HostEffect};
use crate::walks::WALKS_MAX;

/// Which order about addresses an effect answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressTicket(u64);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressOrder {
    /// The gateways have one more.
    Add(VirtualAddress),
    /// They have it no more.
    Remove(IpAddr),
}

/// Why it was not done; nothing was.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AddressError {
    /// This process has no others.
    #[error("virtual addresses are for ensembles of many hosts: crossdock gateway run")]
    NoEnsemble,
    /// It is there.
    #[error("{0} is a virtual address already; crossdock address list shows all")]
    Exists(VirtualAddress),
    /// It is not there.
    #[error("{0} is no virtual address; crossdock address list shows all")]
    Unknown(IpAddr),
    /// There are as many as there may be.
    #[error("there are {VIRTUAL_ADDRESSES_MAX} virtual addresses already")]
    TooMany,
    /// Too many at once.
    #[error("{WALKS_MAX} addresses are being added or removed at this moment; try again")]
    Busy,
    /// A shared registry says nothing.
    #[error(
        "etcd does not answer: the change was not confirmed within {} s, and may still be carried out; crossdock address list shows what came of it",
        REGISTRY_PATIENCE.as_secs()
    )]
    Unanswered,
}

/// An order on its way to the registry.
pub(crate) struct AddressChange {
    ticket: AddressTicket,
    order: AddressOrder,
    /// The address as it was or is to be.
    record: AddressRecord,
    /// When it is given up.
    pub(crate) due: Time,
}

impl Host {
    /// The virtual addresses of the ensemble, and which gateway has each.
    #[must_use]
    pub fn addresses(&self) -> &[AddressRecord] {
        &self.registry.state().addresses
    }

    /// Begins to carry an order out; [`HostEffect::AddressChanged`] tells what came of it.
    ///
    /// # Errors
    /// Why not, as far as it can be seen at once.
    pub fn order_address(
        &mut self,
        now: Time,
        wall: WallTime,
        order: AddressOrder,
    ) -> Result<AddressTicket, AddressError> {
        if !self.registry.is_shared() {
            return Err(AddressError::NoEnsemble);
        }
        if self.address_changes.len() >= WALKS_MAX {
            return Err(AddressError::Busy);
        }
        let record = self.check_order(order)?;
        let change = match order {
            AddressOrder::Add(address) => Change::AddAddress { address },
            AddressOrder::Remove(address) => Change::RemoveAddress { address },
        };
        self.propose(change);
        self.walks_total += 1;
        let ticket = AddressTicket(self.walks_total);
        self.address_changes.push(AddressChange {
            ticket,
            order,
            record,
            due: now + REGISTRY_PATIENCE,
        });
        self.pump(now, wall);
        Ok(ticket)
    }

    fn check_order(&self, order: AddressOrder) -> Result<AddressRecord, AddressError> {
        let find = |ip: IpAddr| self.addresses().iter().find(|it| it.address.address == ip);
        match order {
            AddressOrder::Remove(ip) => find(ip).copied().ok_or(AddressError::Unknown(ip)),
            AddressOrder::Add(address) if find(address.address).is_some() => {
                Err(AddressError::Exists(address))
            }
            AddressOrder::Add(_) if self.addresses().len() >= VIRTUAL_ADDRESSES_MAX => {
                Err(AddressError::TooMany)
            }
            AddressOrder::Add(address) => Ok(AddressRecord {
                address,
                owner: None,
                next: None,
                iscsi_port: 0, // The registry gives it one.
            }),
        }
    }

    /// Answers those whose change is in the registry, or cannot come there any more.
    pub(crate) fn settle_addresses(&mut self, now: Time) {
        for change in std::mem::take(&mut self.address_changes) {
            let known = self.addresses().iter();
            let mut known = known.filter(|it| it.address.address == change.record.address.address);
            let outcome = match (change.order, known.next()) {
                (AddressOrder::Add(address), Some(found)) if found.address != address => {
                    Some(Err(AddressError::Exists(address)))
                }
                (AddressOrder::Add(_), Some(found)) => Some(Ok(*found)),
                (AddressOrder::Remove(_), None) => Some(Ok(change.record)),
                _ => (change.due <= now).then_some(Err(AddressError::Unanswered)),
            };
            let ticket = change.ticket;
            match outcome {
                Some(result) => self
                    .effects
                    .push_back(HostEffect::AddressChanged { ticket, result }),
                None => self.address_changes.push(change),
            }
        }
    }
}
