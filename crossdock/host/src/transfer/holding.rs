//! What stays here of what gateways ask for: under which pin, and what they are told of it.

use crossdock_names::{HostId, NodeId, ObjectClass, ObjectId, Scope, Version};
use crossdock_peer::{Flow, NodeAnswer, NodeError, NodeRequest, Promise};
use crossdock_types::{Extent, Payload};

use crate::held::{Named, PIN_PATIENCE, Place};
use crate::host::Host;

impl Host {
    /// A gateway has this host's node keep what another host holds for it: under which pin, if
    /// that can be.
    pub(crate) fn begin_keep(&mut self, gateway: HostId, request: &mut NodeRequest) -> Option<u64> {
        let NodeRequest::Pin {
            object,
            offset_bytes,
            length_bytes,
            version: Some(version),
            lease_ms,
        } = request
        else {
            return None;
        };
        let longest = u32::try_from(PIN_PATIENCE.as_millis()).unwrap_or(u32::MAX);
        *lease_ms = longest.min(*lease_ms);
        let place = Place {
            object: *object,
            range: *offset_bytes..offset_bytes.saturating_add(*length_bytes),
        };
        let now = self.leases.now;
        let holds = self.transfers.holds()?;
        holds.begin(now, gateway, Some(place), *version)
    }

    /// A gateway asks for bytes of a connection: under which pin they can stay here, if they
    /// can.
    pub(crate) fn begin_hold(
        &mut self,
        gateway: HostId,
        node: NodeId,
        flow: Flow,
        request: &NodeRequest,
    ) -> Option<u64> {
        let now = self.leases.now;
        let NodeRequest::Read {
            object,
            offset_bytes,
            length_bytes,
            ..
        } = *request
        else {
            return None;
        };
        let seen = self.newest_of(node, &object);
        let sending = self.transfers.sending.as_mut()?;
        let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
        let place = Place { object, range };
        let is_announced = sending.announce(gateway, flow);
        is_announced.then(|| sending.holds.begin(now, gateway, Some(place), seen))?
    }

    /// The newest change of a column that a node of this host has, as far as it is in memory. Of
    /// other objects a site orders the changes.
    fn newest_of(&self, node: NodeId, object: &ObjectId) -> Version {
        let node = self.nodes.get(&node).and_then(|slot| slot.node.as_ref());
        let node = node.filter(|_| object.class == ObjectClass::Column);
        node.map_or(Version::NONE, |node| node.store().newest_of(object))
    }

    /// What a gateway is answered whose bytes may stay at `node` under `pin`.
    pub(crate) fn hold_for(
        &mut self,
        node: NodeId,
        (gateway, pin): (HostId, u64),
        minter: Option<HostId>,
        outcome: Result<NodeAnswer, NodeError>,
    ) -> Result<NodeAnswer, NodeError> {
        let Some(holds) = self.transfers.holds() else {
            return outcome;
        };
        let (place, named, length_bytes) = match outcome {
            Ok(NodeAnswer::Read { payload, version }) => {
                let length_bytes = payload.len() as u64;
                let place = holds.place_of(pin).cloned();
                match (holds.fill(pin, payload, version), place) {
                    (Ok(named), Some(place)) => (place, named, length_bytes),
                    (Ok(_), None) => return Err(NodeError::UnknownPin),
                    (Err(payload), _) => return Ok(NodeAnswer::Read { payload, version }),
                }
            }
            Ok(NodeAnswer::Pinned {
                pin: kept, version, ..
            }) => {
                let Some((place, named)) = holds.keep(pin, (node, kept), version) else {
                    self.end_spares();
                    return Err(NodeError::UnknownPin);
                };
                let length_bytes = place.range.end - place.range.start;
                (place, named, length_bytes)
            }
            outcome => {
                self.drop_hold(pin);
                return outcome;
            }
        };
        self.end_spares();
        let Named { version, as_of } = named;
        let scope = Scope::Range {
            object: place.object,
            offset_bytes: place.range.start,
            length_bytes,
            version: as_of,
        };
        let right = minter.and_then(|minter| self.promise_right(gateway, minter, scope));
        Ok(NodeAnswer::Held {
            pin,
            length_bytes,
            version,
            promise: Box::new(Promise { as_of, right }),
        })
    }

    /// Nobody waits for what was to be held any more.
    pub(crate) fn drop_hold(&mut self, pin: u64) {
        if let Some(holds) = self.transfers.holds() {
            holds.drop(pin);
        }
        self.end_spares();
    }

    /// This gateway holds bytes of a connection itself, as nobody else sends them; none if it
    /// cannot.
    pub(crate) fn hold_own(
        &mut self,
        flow: Flow,
        payload: Payload,
        version: Version,
    ) -> Option<Extent> {
        let (own, now, length_bytes) = (self.host_id(), self.leases.now, payload.len());
        let sending = self.transfers.sending.as_mut()?;
        if !sending.announce(own, flow) {
            return None;
        }
        let pin = sending.holds.begin(now, own, None, Version::NONE)?;
        sending.holds.fill(pin, payload, version).ok()?;
        self.note_asked(flow, own);
        let released = &self.transfers.released;
        Some(Extent::new(own.0, pin, length_bytes, released))
    }

    /// This gateway holds bytes that it keeps for a client of another one: under which pin, if it
    /// sends in that connection and has room.
    pub(crate) fn hold_kept(
        &mut self,
        gateway: HostId,
        flow: Flow,
        payload: Payload,
        version: Version,
    ) -> Option<u64> {
        let now = self.leases.now;
        let sending = self.transfers.sending.as_mut().filter(|it| it.lends)?;
        if !sending.told.contains(&gateway) || !sending.announce(gateway, flow) {
            return None;
        }
        let pin = sending.holds.begin(now, gateway, None, version)?;
        sending.holds.fill(pin, payload, version).ok()?;
        Some(pin)
    }
}
