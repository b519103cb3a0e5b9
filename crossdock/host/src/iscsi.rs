//! The iSCSI door within the host: its messages, and what it is told of LUNs.

use std::sync::Arc;

use crossdock_http::{HttpDoor, HttpInput};
use crossdock_iscsi::{IscsiEffect, IscsiFigures, IscsiInput, LunTable, ReserveOrder};
use crossdock_members::{Change, OpenError};
use crossdock_names::{FileRef, SiteId};
use crossdock_nfs::NfsInput;
use crossdock_peer::{CallId, Lun, Reservations, SiteError, SiteOperation, SiteReply};
use crossdock_router::{RoutedReply, RouterInput, Waited, WriteVerifier};
use crossdock_types::Time;

use crate::exports::REGISTRY_PATIENCE;
use crate::host::{Host, HostEffect};
use crate::message::Message;

/// The directory of the volume's root in which the files of LUNs are.
pub(crate) const LUN_DIRECTORY: &[u8] = b".luns";

/// A change of reservations on its way to a shared registry.
pub(crate) struct ReserveChange {
    ticket: u64,
    lun: u64,
    expected: Reservations,
    wanted: Reservations,
    /// When it is given up.
    pub(crate) due: Time,
}

impl Host {
    /// Gives the iSCSI door what has happened, and takes what it wants done.
    pub(crate) fn run_iscsi(&mut self, now: Time, input: IscsiInput) {
        self.iscsi.handle(now, input);
        while let Some(effect) = self.iscsi.poll_effect() {
            match effect {
                // Its file is kept from all other doors.
                IscsiEffect::Router(call) => {
                    self.requests += 1;
                    let input = RouterInput::Request(call);
                    self.queue.push_back(Message::Router(input));
                }
                IscsiEffect::Withdraw(id) => {
                    let input = RouterInput::Withdraw(id);
                    self.queue.push_back(Message::Router(input));
                }
                IscsiEffect::Reserve(order) => self.change_reservations(now, *order),
                effect => self.effects.push_back(HostEffect::Iscsi(effect)),
            }
        }
    }

    fn change_reservations(&mut self, now: Time, order: ReserveOrder) {
        let ReserveOrder {
            ticket,
            lun,
            expected,
            wanted,
        } = order;
        let change = Change::SetReservations {
            id: lun,
            expected: expected.clone(),
            wanted: wanted.clone(),
        };
        if let Err(error) = self.registry.change(change) {
            if !matches!(error, OpenError::Conflict(_)) {
                let what = format!("the reservations of a LUN cannot be written: {error}");
                self.effects.push_back(HostEffect::Warning(what));
            }
            return self.end_reservations(ticket, false);
        }
        self.reserve_changes.push(ReserveChange {
            ticket,
            lun,
            expected,
            wanted,
            due: now + REGISTRY_PATIENCE,
        });
        self.tell_luns();
        self.settle_reservations(now);
    }

    /// Answers those whose change is in the registry, or cannot come there any more.
    pub(crate) fn settle_reservations(&mut self, now: Time) {
        for change in std::mem::take(&mut self.reserve_changes) {
            let known = self.lun(change.lun);
            let known = known.map(|lun| &lun.reservations);
            let is_there = known == Some(&change.wanted);
            let is_late = change.due <= now;
            if is_there || known != Some(&change.expected) || is_late {
                self.end_reservations(change.ticket, is_there);
            } else {
                self.reserve_changes.push(change);
            }
        }
    }

    fn end_reservations(&mut self, ticket: u64, is_done: bool) {
        let input = IscsiInput::Reserved(ticket, is_done);
        self.queue.push_back(Message::Iscsi(input));
    }

    /// The registry may hold other LUNs than before.
    pub(crate) fn tell_luns(&mut self) {
        let luns = self.registry.state().luns.iter();
        let luns: LunTable = luns.map(|lun| (lun.id, lun.clone())).collect();
        if luns != *self.luns {
            self.luns = Arc::new(luns);
            let input = IscsiInput::Luns(Arc::clone(&self.luns));
            self.queue.push_back(Message::Iscsi(input));
        }
    }

    /// Whether an operation of another door would change the file of a LUN, or its name:
    /// their content is the initiators'.
    pub(crate) fn guards(&self, operation: &SiteOperation) -> bool {
        let state = self.registry.state();
        let root = FileRef::root_of(SiteId(0));
        let directory = state.lun_directory.map(FileRef::from);
        let is_lun = |file: &FileRef| self.luns.values().any(|lun| lun.file == *file);
        let is_there = |place: &FileRef| directory == Some(*place);
        let is_it = |place: &FileRef, name: &[u8]| {
            is_there(place) || (*place == root && name == LUN_DIRECTORY)
        };
        match operation {
            SiteOperation::SetAttributes { file, .. } => is_lun(file) || is_there(file),
            SiteOperation::Write { file, .. }
            | SiteOperation::Zero { file, .. }
            | SiteOperation::Exchange { file, .. } => is_lun(file),
            SiteOperation::Create {
                directory, name, ..
            }
            | SiteOperation::MakeDirectory {
                directory, name, ..
            }
            | SiteOperation::MakeSymlink {
                directory, name, ..
            }
            | SiteOperation::MakeNode {
                directory, name, ..
            }
            | SiteOperation::RemoveDirectory { directory, name } => is_it(directory, name),
            // What a crash has left of an order can be removed by root, as it is no LUN.
            SiteOperation::Remove { directory, name } => {
                let is_called = |lun: &Lun| lun.name.as_bytes() == &name[..];
                is_there(directory) && self.luns.values().any(is_called)
            }
            SiteOperation::Link {
                file,
                directory,
                name,
            } => is_lun(file) || is_it(directory, name),
            SiteOperation::Rename {
                from_directory,
                from_name,
                to_directory,
                to_name,
            } => is_it(from_directory, from_name) || is_it(to_directory, to_name),
            _ => false,
        }
    }

    /// Answers a door that would change what is a LUN's.
    pub(crate) fn refuse_guarded(&mut self, id: CallId) {
        let routed = RoutedReply {
            reply: SiteReply::refusal(id, SiteError::AccessDenied),
            verifier: WriteVerifier::default(),
            waited: Waited::default(),
        };
        let routed = Box::new(routed);
        self.queue.push_back(match HttpDoor::owns(id) {
            true => Message::Http(HttpInput::Reply(routed)),
            false => Message::Door(NfsInput::Reply(routed)),
        });
    }

    /// What the iSCSI door has counted.
    #[must_use]
    pub fn iscsi_figures(&self) -> IscsiFigures {
        self.iscsi.figures()
    }
}
