//! The iSCSI door within the host: its messages, and what it is told of LUNs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossdock_http::{HttpDoor, HttpInput};
use crossdock_iscsi::{IscsiEffect, IscsiFigures, IscsiInput, LunTable, Portals, ReserveOrder};
use crossdock_link::Frame;
use crossdock_members::{Change, HostRecord, OpenError};
use crossdock_names::{FileRef, HostId, SiteId};
use crossdock_nfs::NfsInput;
use crossdock_peer::{CallId, Lun, Reservations, SiteError, SiteOperation, SiteReply};
use crossdock_router::{RoutedReply, RouterInput, Waited, WriteVerifier};
use crossdock_types::Time;

use crate::exports::REGISTRY_PATIENCE;
use crate::host::{Host, HostEffect};
use crate::message::Message;
use crate::mutation::Mutation;

/// The directory of the volume's root in which the files of LUNs are.
pub(crate) const LUN_DIRECTORY: &[u8] = b".luns";

/// A change of reservations on its way to a shared registry.
pub(crate) struct ReserveChange {
    ticket: u64,
    lun: u64,
    expected: Reservations,
    wanted: Reservations,
    is_obeyed_first: bool,
    /// It is there, and not obeyed by all gateways yet.
    made: Option<Made>,
    /// When it is given up, or somebody is asked.
    pub(crate) due: Time,
}

/// A change of reservations that is in the registry.
struct Made {
    /// How often reservations had been changed by then.
    changes: u64,
    /// All gateways obey it, or are gone: who has answered what was asked since then has heard
    /// of that, and takes nothing of those that are gone.
    confirmed_from: Option<Time>,
}

/// How far this host's door obeys reservations.
#[derive(Default)]
pub(crate) struct Obedience {
    /// So many changes it was told of.
    told: u64,
    /// So many it obeys.
    obeyed: u64,
    /// So many the registry was told of last, and when it is told again.
    proposed: u64,
    again_at: Time,
}

/// How often those are asked again who have not answered, and the registry is told again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);

impl Host {
    /// Gives the iSCSI door what has happened, and takes what it wants done.
    pub(crate) fn run_iscsi(&mut self, now: Time, input: IscsiInput) {
        self.iscsi.set_wall(self.access.wall);
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
                IscsiEffect::Obeyed(changes) => {
                    self.obedience.obeyed = changes.max(self.obedience.obeyed);
                    self.tell_obeyed(now);
                    self.settle_reservations(now);
                }
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
            is_obeyed_first,
        } = order;
        let change = Change::SetReservations {
            id: lun,
            expected: Box::new(expected.clone()),
            wanted: Box::new(wanted.clone()),
        };
        if expected == wanted {
            // It is so already, and maybe not everywhere.
        } else if let Err(error) = self.registry.change(change) {
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
            is_obeyed_first,
            made: None,
            due: now + REGISTRY_PATIENCE,
        });
        self.tell_luns();
        self.settle_reservations(now);
    }

    /// Answers those whose change is in the registry, and obeyed by all if it has to be, or cannot
    /// come there any more.
    pub(crate) fn settle_reservations(&mut self, now: Time) {
        for mut change in std::mem::take(&mut self.reserve_changes) {
            let known = self.lun(change.lun);
            let known = known.map(|lun| &lun.reservations);
            let is_there = known == Some(&change.wanted);
            if change.made.is_none() && is_there {
                change.made = Some(Made {
                    changes: self.registry.state().reservation_changes,
                    confirmed_from: None,
                });
                change.due = now;
            }
            let is_over = match &mut change.made {
                Some(_) if !change.is_obeyed_first => true,
                Some(made) => self.is_obeyed(now, made, &mut change.due),
                None => known != Some(&change.expected) || change.due <= now,
            };
            match is_over {
                true => self.end_reservations(change.ticket, change.made.is_some()),
                false => self.reserve_changes.push(change),
            }
        }
    }

    /// Whether nothing happens any more against reservations as they are now: all gateways obey
    /// them, and of those that are gone nobody takes anything. (What a host is sent it takes
    /// after the sender's table, in which these are gone.)
    fn is_obeyed(&mut self, now: Time, made: &mut Made, due: &mut Time) -> bool {
        if self.has(Mutation::ReserveAtOnce) {
            return true;
        }
        let next = now + ASK_AGAIN_AFTER;
        if self.obedience.obeyed < made.changes {
            *due = next;
            return false;
        }
        if !self.registry.is_shared() {
            return true;
        }
        let (own, state) = (self.host_id(), self.registry.state());
        if state
            .gateways_behind(made.changes)
            .any(|gateway| gateway != own)
        {
            *due = next;
            return false;
        }
        // Later than all that was asked before that was known.
        let from = *made.confirmed_from.get_or_insert_with(|| {
            *due = now; // They are asked at once.
            Time(now.0 + 1)
        });
        let takes_calls = |record: &HostRecord| record.is_manager || !record.nodes.is_empty();
        let others = state.hosts.iter().filter(|(_, record)| takes_calls(record));
        let others = others.map(|(&host, _)| HostId(host));
        let is_missing = |host: &HostId| *host != own && self.leases.asked_at(*host) < from;
        let missing: Vec<HostId> = others.filter(is_missing).collect();
        if !missing.is_empty() && *due <= now {
            *due = next;
            for host in missing.iter().copied() {
                if self.peers.is_connected(host) {
                    let at = from.max(now).0;
                    self.send_frame(host, Frame::Renew { at });
                }
            }
        }
        missing.is_empty()
    }

    /// Tells the registry which reservations this gateway obeys.
    pub(crate) fn tell_obeyed(&mut self, now: Time) {
        let obedience = &self.obedience;
        let is_told = obedience.proposed == obedience.obeyed;
        if !self.is_behind() || (is_told && now < obedience.again_at) {
            return;
        }
        self.obedience.proposed = self.obedience.obeyed;
        self.obedience.again_at = now + ASK_AGAIN_AFTER;
        let change = Change::ObeyReservations {
            host: self.instance(),
            changes: self.obedience.obeyed,
        };
        // A shared registry takes it, and answers by its state.
        let _ = self.registry.change(change);
    }

    /// Whether the registry knows of fewer changes that are obeyed here than there are.
    fn is_behind(&self) -> bool {
        let own = self.registry.state().hosts.get(&self.instance());
        let obeyed = self.obedience.obeyed;
        let is_behind = |own: &HostRecord| own.is_gateway && own.reservations_obeyed < obeyed;
        self.registry.is_shared() && own.is_some_and(is_behind)
    }

    /// When the registry is to be told again.
    pub(crate) fn obedience_due(&self) -> Option<Time> {
        self.is_behind().then_some(self.obedience.again_at)
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
        let changes = self.registry.state().reservation_changes;
        if changes > self.obedience.told {
            self.obedience.told = changes;
            let input = IscsiInput::Reservations(changes);
            self.queue.push_back(Message::Iscsi(input));
        }
    }

    /// Tells the iSCSI door where initiators connect, here and at other gateways.
    pub(crate) fn tell_portals(&mut self) {
        let own = self.role.iscsi.clone();
        let portals = match self.registry.is_shared() {
            true => self.shared_portals(own),
            false => Portals {
                own,
                port: 1,
                ..Portals::default()
            },
        };
        if portals != self.portals {
            self.portals = portals.clone();
            let input = IscsiInput::Portals(portals);
            self.queue.push_back(Message::Iscsi(input));
        }
    }

    fn shared_portals(&self, own: Vec<SocketAddr>) -> Portals {
        let (state, instance) = (self.registry.state(), self.instance());
        let record = state.hosts.get(&instance);
        let mut portals = Portals {
            own,
            port: record.map_or(0, |record| record.iscsi_port),
            ..Portals::default()
        };
        for portal in state.iscsi_portals() {
            let told = (portal.address, portal.port);
            if portal.is_virtual {
                portals.virtual_ones.push(told);
            } else if portal.host != instance {
                portals.others.push(told);
            }
        }
        portals
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
            | SiteOperation::Exchange { file, .. }
            | SiteOperation::Copy { file, .. } => is_lun(file),
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
