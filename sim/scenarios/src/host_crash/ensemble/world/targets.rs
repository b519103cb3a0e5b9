//! iSCSI between initiators and the doors of gateways, and orders about LUNs.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use crossdock_host::{HostInput, LunError, LunWish};
use crossdock_iscsi::{ConnId, IscsiEffect, IscsiInput};
use crossdock_peer::Lun;
use crossdock_types::{Filler, Time};

use super::super::super::shell::{self, WIRE_DELAY_MAX, mix};
use super::super::network::Place;
use super::World;

/// An initiator's connection to a gateway. What is on its way arrives in order.
struct Cable {
    place: Place,
    to_target: VecDeque<(Time, Bytes)>,
    to_initiator: VecDeque<(Time, Bytes)>,
}

/// All of them, and what has come of orders about LUNs.
#[derive(Default)]
pub(crate) struct Targets {
    cables: BTreeMap<ConnId, Cable>,
    filling: BTreeMap<ConnId, Filler>,
    /// What has arrived at initiators.
    pub(crate) arrived: VecDeque<(ConnId, Bytes)>,
    /// Connections that have ended.
    pub(crate) ended: VecDeque<ConnId>,
    /// What became of orders.
    pub(crate) orders: VecDeque<Result<Lun, LunError>>,
}

/// Where bytes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Target,
    Initiator,
}

impl Targets {
    /// What arrives next at either end of each connection: when, and at which process it is.
    pub(super) fn due(&self) -> impl Iterator<Item = (Time, ConnId, End, Place)> {
        self.cables.iter().flat_map(|(&name, cable)| {
            let to_target = cable.to_target.front();
            let to_target = to_target.map(|(due, _)| (*due, name, End::Target, cable.place));
            let to_initiator = cable.to_initiator.front();
            let to_initiator =
                to_initiator.map(|(due, _)| (*due, name, End::Initiator, cable.place));
            to_target.into_iter().chain(to_initiator)
        })
    }

    /// A process ends, and with it all connections to it.
    pub(super) fn end_at(&mut self, place: Place) {
        let gone = self.cables.extract_if(.., |_, cable| cable.place == place);
        let gone: Vec<ConnId> = gone.map(|(name, _)| name).collect();
        self.ended.extend(gone);
    }
}

impl World {
    /// An initiator connects.
    pub(crate) fn plug(&mut self, name: ConnId, place: Place) {
        let cable = Cable {
            place,
            to_target: VecDeque::new(),
            to_initiator: VecDeque::new(),
        };
        self.targets.cables.insert(name, cable);
        let from = ([127, 0, 0, 1], 999).into();
        let to = ([127, 0, 0, 1], 3260).into();
        let opened = IscsiInput::Opened(name, from, Some(to));
        self.give(place, HostInput::Iscsi(opened));
    }

    /// An initiator gives its connection up: what it has sent still arrives.
    pub(crate) fn unplug(&mut self, name: ConnId) {
        if let Some(cable) = self.targets.cables.get_mut(&name) {
            cable.to_initiator.clear();
            let last = cable.to_target.back().map_or(self.now, |last| last.0);
            cable.to_target.push_back((last, Bytes::new()));
        }
    }

    /// An initiator sends bytes.
    pub(crate) fn send_to_target(&mut self, name: ConnId, bytes: Bytes) {
        let due = self.now + shell::delay(&mut self.random, WIRE_DELAY_MAX);
        if let Some(cable) = self.targets.cables.get_mut(&name) {
            put(&mut cable.to_target, due, bytes);
        }
    }

    /// To which process a connection leads, if it is there still.
    pub(crate) fn target_of(&self, name: ConnId) -> Option<Place> {
        self.targets.cables.get(&name).map(|cable| cable.place)
    }

    /// A process is ordered to make a LUN.
    pub(crate) fn create_lun(&mut self, place: Place, wish: LunWish) -> Result<(), String> {
        let (now, wall) = (self.now, self.wall(place));
        let process = self.machines[place].process.as_mut();
        let process = process.ok_or("the process does not run")?;
        let begun = process.host.create_lun(now, wall, wish);
        begun.map_err(|error| error.to_string())?;
        self.carry_out(place);
        Ok(())
    }

    pub(super) fn take_bytes(&mut self, name: ConnId, end: End) {
        let Some(cable) = self.targets.cables.get_mut(&name) else {
            return;
        };
        let place = cable.place;
        match end {
            End::Target => {
                let Some((_, mut bytes)) = cable.to_target.pop_front() else {
                    return;
                };
                if bytes.is_empty() {
                    self.targets.cables.remove(&name);
                    return self.give(place, HostInput::Iscsi(IscsiInput::Closed(name)));
                }
                while let Some(chunk) = Filler::next_of(&mut self.targets.filling, name, &mut bytes)
                {
                    let received = IscsiInput::Received(name, chunk);
                    self.give(place, HostInput::Iscsi(received));
                }
            }
            End::Initiator => {
                let Some((_, bytes)) = cable.to_initiator.pop_front() else {
                    return;
                };
                let words = bytes.iter().map(|&byte| u64::from(byte));
                self.trace_hash = words.fold(self.trace_hash, mix);
                let sent = IscsiInput::Sent(name, bytes.len());
                self.targets.arrived.push_back((name, bytes));
                self.give(place, HostInput::Iscsi(sent));
            }
        }
    }

    pub(super) fn carry_out_iscsi(&mut self, place: Place, effect: IscsiEffect) {
        match effect {
            IscsiEffect::Send(name, payload) => {
                let due = self.now + shell::delay(&mut self.random, WIRE_DELAY_MAX);
                if let Some(cable) = self.targets.cables.get_mut(&name) {
                    put(&mut cable.to_initiator, due, payload.to_bytes());
                }
            }
            IscsiEffect::Fill(name, fill) => {
                self.targets.filling.insert(name, fill.into());
            }
            IscsiEffect::Close(name) | IscsiEffect::Abort(name) => {
                if self.targets.cables.remove(&name).is_some() {
                    self.targets.ended.push_back(name);
                    self.give(place, HostInput::Iscsi(IscsiInput::Closed(name)));
                }
            }
            // Initiators here take all that they are sent; the rest the host does itself.
            IscsiEffect::Pause(_)
            | IscsiEffect::Resume(_)
            | IscsiEffect::Router(_)
            | IscsiEffect::Withdraw(_)
            | IscsiEffect::Reserve(_)
            | IscsiEffect::Obeyed(_) => {}
        }
    }
}

fn put(queue: &mut VecDeque<(Time, Bytes)>, due: Time, bytes: Bytes) {
    let due = queue.back().map_or(due, |last| last.0.max(due));
    queue.push_back((due, bytes));
}
