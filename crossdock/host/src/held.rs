//! What this host holds in memory for gateways, and how that outlives it.
//!
//! The other members of a set have the same bytes on their disks, in the same version, until
//! somebody changes them. So nothing is done for held bytes as long as nobody does. A change of
//! them goes to the other members behind a pin of what it is about to replace
//! ([`NodeRequest::Pin`]): when this host dies a gateway gets what it was promised from any of
//! them. A gateway whose set gets another primary has that one pin what a host that may know
//! nothing of later changes holds (docs/decisions/0044).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use crossdock_names::{HostId, NodeId, ObjectId, Version};
use crossdock_peer::{Call, CallId, NodeAnswer, NodeReply, NodeRequest, PinId, Port};
use crossdock_types::{Payload, Time};

use crate::host::Host;
use crate::message::Message;

/// Bytes that a host holds for gateways; beyond them it answers with bytes.
pub(crate) const HELD_BYTES_MAX: usize = 256 << 20;
/// Pins of all gateways.
const PINS_MAX: usize = 65_536;
/// Pins at other members; beyond them changes go without.
const SPARES_MAX: usize = 4096;
/// What a gateway has not given back by then it has forgotten: its clients have to take
/// something of a response within less.
pub(crate) const PIN_PATIENCE: Duration = Duration::from_secs(1800);
/// How long another member may take to pin.
const SPARE_PATIENCE: Duration = Duration::from_secs(20);
/// As far from what is changed as a store may put written bytes together: they have one version
/// then, and what was there before is known no more unless it is pinned.
const NEAR_BYTES: u64 = 1 << 20;
/// Calls about pins at other members have this bit, others of this host never.
pub(crate) const SPARE_BIT: u64 = 1 << 59;

/// What is read, or was, for gateways.
#[derive(Default)]
pub(crate) struct Holds {
    /// By pin.
    held: BTreeMap<u64, Held>,
    by_object: BTreeSet<(ObjectId, u64)>,
    held_bytes: usize,
    pins_total: u64,
    pub(crate) full: u64,
    /// Pins at other members that are asked for or there, of all.
    spares: usize,
    spares_total: u64,
    spare_calls: BTreeMap<CallId, (u64, NodeId)>,
    /// Pins at other members that nobody needs any more.
    spent: Vec<(NodeId, PinId)>,
}

struct Held {
    gateway: HostId,
    until: Time,
    /// Of an object that others change.
    place: Option<Place>,
    /// The newest change of the object before it was read.
    seen: Version,
    /// None as long as it is being read.
    named: Option<Named>,
    /// None of what this host's own node keeps on its disk.
    payload: Option<Payload>,
    /// Who else holds on to it, on its disk.
    spares: BTreeMap<NodeId, Spare>,
}

/// Which bytes they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The newest version in the range.
    pub(crate) version: Version,
    /// A version of the object as of which they are.
    pub(crate) as_of: Version,
}

/// What is read of which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) object: ObjectId,
    pub(crate) range: Range<u64>,
}

#[derive(Clone, Copy)]
enum Spare {
    /// Whether it was known then as of which version.
    Asked(bool),
    Pinned(PinId, Version),
}

impl Holds {
    /// Something is read that is to stay here: its pin, if there is room for that. `seen` is the
    /// version of a change of its object that has been made already.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        gateway: HostId,
        place: Option<Place>,
        seen: Version,
    ) -> Option<u64> {
        self.expire(now);
        if self.held.len() >= PINS_MAX {
            self.full += 1;
            return None;
        }
        self.pins_total += 1;
        let pin = self.pins_total;
        if let Some(place) = &place {
            self.by_object.insert((place.object, pin));
        }
        let held = Held {
            gateway,
            until: now + PIN_PATIENCE,
            place,
            seen,
            named: None,
            payload: None,
            spares: BTreeMap::new(),
        };
        self.held.insert(pin, held);
        Some(pin)
    }

    /// This host's own node keeps it on its disk.
    pub(crate) fn keep(
        &mut self,
        pin: u64,
        (node, kept): (NodeId, PinId),
        version: Version,
    ) -> Option<(Place, Named)> {
        let Some(held) = self.held.get_mut(&pin) else {
            self.spent.push((node, kept));
            return None;
        };
        let as_of = held.seen;
        let named = Named { version, as_of };
        held.named = Some(named);
        held.spares.insert(node, Spare::Pinned(kept, version));
        self.spares += 1;
        held.place.clone().map(|place| (place, named))
    }

    /// It has been read: which bytes they are, if there is room for them.
    pub(crate) fn fill(
        &mut self,
        pin: u64,
        payload: Payload,
        version: Version,
    ) -> Result<Named, Payload> {
        let room_bytes = HELD_BYTES_MAX.saturating_sub(self.held_bytes);
        let has_room = payload.len() <= room_bytes;
        let Some(held) = self.held.get_mut(&pin).filter(|_| has_room) else {
            self.full += 1;
            self.drop(pin);
            return Err(payload);
        };
        self.held_bytes += payload.len();
        held.payload = Some(payload);
        // What changed the bytes while they were read is in their own version; nothing else is
        // between that and the newest change before.
        let as_of = version.max(held.seen);
        let named = Named { version, as_of };
        held.named = Some(named);
        let stays = |spare: &Spare| match *spare {
            Spare::Asked(_) => true,
            Spare::Pinned(_, pinned) => pinned == version,
        };
        let others = held.spares.extract_if(.., |_, spare| !stays(spare));
        for (node, spare) in others {
            self.spares -= 1;
            if let Spare::Pinned(pin, _) = spare {
                self.spent.push((node, pin));
            }
        }
        Ok(named)
    }

    /// What a pin is of.
    pub(crate) fn place_of(&self, pin: u64) -> Option<&Place> {
        self.held.get(&pin)?.place.as_ref()
    }

    /// What a pin of a gateway holds.
    pub(crate) fn bytes(&self, gateway: HostId, pin: u64, range: Range<u64>) -> Option<Payload> {
        let held = self.held.get(&pin).filter(|held| held.gateway == gateway);
        let payload = held?.payload.as_ref()?;
        let start = usize::try_from(range.start).ok()?;
        let end = usize::try_from(range.end).ok()?;
        (start <= end && end <= payload.len()).then(|| payload.slice(start, end))
    }

    /// Gives a gateway's pins up.
    pub(crate) fn release(&mut self, gateway: HostId, pins: &[u64]) {
        for &pin in pins {
            if self.held.get(&pin).map(|held| held.gateway) == Some(gateway) {
                self.drop(pin);
            }
        }
    }

    /// Gives up what gateways have had for too long: the oldest pins have the least numbers.
    fn expire(&mut self, now: Time) {
        while let Some((&pin, oldest)) = self.held.first_key_value()
            && oldest.until <= now
        {
            self.drop(pin);
        }
    }

    /// Gives up what gateways have that are gone.
    pub(crate) fn give_up(&mut self, is_gone: impl Fn(HostId) -> bool) {
        let gone = self.held.iter().filter(|(_, held)| is_gone(held.gateway));
        let gone: Vec<u64> = gone.map(|(&pin, _)| pin).collect();
        for pin in gone {
            self.drop(pin);
        }
    }

    pub(crate) fn drop(&mut self, pin: u64) {
        let Some(held) = self.held.remove(&pin) else {
            return;
        };
        if let Some(place) = held.place {
            self.by_object.remove(&(place.object, pin));
        }
        self.held_bytes -= held.payload.map_or(0, |payload| payload.len());
        self.spares -= held.spares.len();
        for (node, spare) in held.spares {
            if let Spare::Pinned(pin, _) = spare {
                self.spent.push((node, pin));
            }
        }
    }

    /// Bytes that are held, and pins of them.
    pub(crate) fn figures(&self) -> (usize, usize) {
        let pins = self.held.values().filter(|held| held.payload.is_some());
        (self.held_bytes, pins.count())
    }

    /// A change of these bytes is about to go to another member: what that has to pin before.
    fn overtaken(&mut self, to: NodeId, change: &Place) -> Vec<(CallId, Place, Option<Version>)> {
        let first = (change.object, 0);
        let of_object = self.by_object.range(first..=(change.object, u64::MAX));
        let mut pins = Vec::new();
        for &(_, pin) in of_object {
            let Some(held) = self.held.get_mut(&pin) else {
                continue;
            };
            let Some(place) = held.place.clone() else {
                continue;
            };
            let is_near = place.range.start < change.range.end.saturating_add(NEAR_BYTES)
                && change.range.start < place.range.end.saturating_add(NEAR_BYTES);
            if !is_near || held.spares.contains_key(&to) || self.spares >= SPARES_MAX {
                continue;
            }
            held.spares.insert(to, Spare::Asked(held.named.is_some()));
            self.spares += 1;
            self.spares_total += 1;
            let id = CallId(SPARE_BIT | self.spares_total);
            self.spare_calls.insert(id, (pin, to));
            pins.push((id, place, held.named.map(|named| named.as_of)));
        }
        pins
    }

    /// What came of a pin at another member.
    fn take_spare(&mut self, reply: NodeReply) {
        let Some((pin, node)) = self.spare_calls.remove(&reply.id) else {
            return; // To the end of one.
        };
        let pinned = match reply.outcome {
            Ok(NodeAnswer::Pinned { pin, version, .. }) => Some((pin, version)),
            _ => None,
        };
        let held = self.held.get_mut(&pin);
        let asked = held.as_ref().and_then(|held| {
            let is_named = matches!(held.spares.get(&node)?, Spare::Asked(true));
            Some((held.named, is_named))
        });
        let is_it = |version: Version| match asked {
            None => false,
            Some((None, _)) => true,
            // That member has had all changes before the one that follows the pin.
            Some((Some(named), true)) => version <= named.as_of,
            Some((Some(named), false)) => version == named.version,
        };
        match (pinned.filter(|&(_, version)| is_it(version)), held) {
            (Some((pin, version)), Some(held)) => {
                held.spares.insert(node, Spare::Pinned(pin, version));
            }
            (_, held) => {
                self.spent.extend(pinned.map(|(pin, _)| (node, pin)));
                if held.is_some_and(|held| held.spares.remove(&node).is_some()) {
                    self.spares -= 1;
                }
            }
        }
    }
}

/// The bytes that a change of an object replaces.
const fn changed(request: &NodeRequest) -> Option<Place> {
    let (object, range) = match request {
        NodeRequest::Write {
            object,
            offset_bytes,
            payload,
            ..
        } => (
            *object,
            *offset_bytes..offset_bytes.saturating_add(payload.len() as u64),
        ),
        NodeRequest::Zero {
            object,
            offset_bytes,
            length_bytes,
            ..
        } => (
            *object,
            *offset_bytes..offset_bytes.saturating_add(*length_bytes),
        ),
        NodeRequest::Truncate {
            object, size_bytes, ..
        } => (*object, *size_bytes..u64::MAX),
        NodeRequest::Remove { object, .. } => (*object, 0..u64::MAX),
        _ => return None,
    };
    Some(Place { object, range })
}

impl Host {
    /// A node of this host sends a change on to another member of its set: that pins first what
    /// gateways were promised of what is replaced.
    pub(crate) fn spare_held(&mut self, to: NodeId, request: &NodeRequest) {
        let Some(holds) = self.transfers.holds() else {
            return;
        };
        let Some(change) = changed(request) else {
            return;
        };
        let deadline = self.leases.now + SPARE_PATIENCE;
        for (id, place, version) in holds.overtaken(to, &change) {
            let request = NodeRequest::Pin {
                object: place.object,
                offset_bytes: place.range.start,
                length_bytes: place.range.end - place.range.start,
                version,
                lease_ms: u32::try_from(PIN_PATIENCE.as_millis()).unwrap_or(u32::MAX),
            };
            let call = Call {
                id,
                deadline,
                request,
            };
            let message = Message::call(to, Port::Host, call);
            self.queue.push_back(message);
        }
    }

    /// Another member has pinned what is held here, or not, or has given it up.
    pub(crate) fn take_spare(&mut self, reply: NodeReply) {
        if let Some(holds) = self.transfers.holds() {
            holds.take_spare(reply);
        }
        self.end_spares();
    }

    /// Gives back the pins at other members that nobody needs any more.
    pub(crate) fn end_spares(&mut self) {
        let Some(holds) = self.transfers.holds() else {
            return;
        };
        for (node, pin) in std::mem::take(&mut holds.spent) {
            self.end_spare(node, pin);
        }
    }

    /// Gives back a pin of a node.
    pub(crate) fn end_spare(&mut self, node: NodeId, pin: PinId) {
        let call = Call {
            id: CallId(SPARE_BIT),
            deadline: self.leases.now + SPARE_PATIENCE,
            request: NodeRequest::Unpin { pin },
        };
        self.queue.push_back(Message::call(node, Port::Host, call));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use crossdock_names::{FileId, Incarnation};

    use super::*;

    const GATEWAY: HostId = HostId(10);
    const OTHER: NodeId = NodeId(2);
    const OBJECT: ObjectId = ObjectId::column(FileId(7), 1, 0, 0);
    const VERSION: Version = Version(40);

    fn bytes(length: usize) -> Payload {
        Payload::from(Bytes::from(vec![1; length]))
    }

    fn place(range: Range<u64>) -> Place {
        let object = OBJECT;
        Place { object, range }
    }

    fn hold(holds: &mut Holds, gateway: HostId, length: usize) -> Result<u64, Payload> {
        let place = place(0..length as u64);
        let pin = holds.begin(Time(0), gateway, Some(place), Version::NONE);
        let pin = pin.expect("room");
        holds.fill(pin, bytes(length), VERSION).map(|_| pin)
    }

    fn pinned(id: CallId, pin: u64, version: Version) -> NodeReply {
        let boot = Incarnation(1);
        let pin = PinId(pin);
        NodeReply {
            id,
            outcome: Ok(NodeAnswer::Pinned { pin, boot, version }),
        }
    }

    /// Goal: a gateway gives back its own pins and nobody else's, once; what is held longer
    /// than gateways may keep a client waiting is given up.
    #[test]
    fn pins_are_their_gateways() {
        let mut holds = Holds::default();
        let other = HostId(11);
        let first = hold(&mut holds, GATEWAY, 100).expect("room");
        let second = hold(&mut holds, other, 50).expect("room");
        assert_ne!(first, second);
        holds.release(other, &[first, 99]);
        assert_eq!(holds.figures(), (150, 2));
        assert!(holds.bytes(other, first, 0..10).is_none());
        assert_eq!(holds.bytes(GATEWAY, first, 0..10), Some(bytes(10)));
        assert!(holds.bytes(GATEWAY, first, 95..101).is_none());
        holds.release(GATEWAY, &[first, first]);
        assert_eq!(holds.figures(), (50, 1));
        holds.expire(Time(0) + PIN_PATIENCE);
        assert_eq!(holds.figures(), (0, 0));
    }

    /// Goal: there is a bound to what is held; beyond it the bytes go as ever.
    #[test]
    fn what_is_held_is_bounded() {
        let mut holds = Holds::default();
        assert!(hold(&mut holds, GATEWAY, HELD_BYTES_MAX - 10).is_ok());
        let refused = hold(&mut holds, GATEWAY, 11);
        assert_eq!(refused.expect_err("no room").len(), 11);
        assert!(hold(&mut holds, GATEWAY, 10).is_ok());
        assert_eq!(holds.full, 1);
    }

    /// Goal: a change has the other member pin what it replaces of what is held or being read,
    /// once for all changes that follow; what it does not touch costs nothing. The pin goes
    /// back with what is held.
    #[test]
    fn what_is_replaced_is_pinned_elsewhere() {
        let mut holds = Holds::default();
        let held = hold(&mut holds, GATEWAY, 100).expect("room");
        let behind = place(100..200);
        let far = place(100 + NEAR_BYTES..200 + NEAR_BYTES);
        assert_eq!(holds.overtaken(OTHER, &far), []);
        let read = holds.begin(Time(0), GATEWAY, Some(behind.clone()), Version::NONE);
        let read = read.expect("room");
        let change = place(50..150);
        let asked = holds.overtaken(OTHER, &change);
        let [(first, of_held, Some(VERSION)), (second, of_read, None)] = &asked[..] else {
            panic!("{asked:?}")
        };
        assert_eq!((of_held, of_read), (&place(0..100), &behind));
        assert_eq!(holds.overtaken(OTHER, &change), [], "it is asked already");
        assert_eq!(holds.overtaken(NodeId(3), &change).len(), 2);
        holds.take_spare(pinned(*first, 5, VERSION));
        holds.take_spare(pinned(*second, 6, VERSION));
        assert!(holds.fill(read, bytes(100), VERSION).is_ok());
        assert_eq!(holds.spent, []);
        holds.release(GATEWAY, &[held, read]);
        assert_eq!(holds.spent, [(OTHER, PinId(5)), (OTHER, PinId(6))]);
        assert_eq!(holds.spares, 0);
        assert!(holds.by_object.is_empty());
    }

    /// Goal: a pin of another version is none, whether it or the bytes come first; nor is one
    /// that comes when nothing is held any more. All of them go back.
    #[test]
    fn a_pin_of_another_version_is_none() {
        let newer = Version(41);
        let change = place(0..1);
        let mut holds = Holds::default();
        let held = hold(&mut holds, GATEWAY, 100).expect("room");
        let asked = holds.overtaken(OTHER, &change);
        holds.take_spare(pinned(asked[0].0, 5, newer));
        assert_eq!(std::mem::take(&mut holds.spent), [(OTHER, PinId(5))]);
        let asked = holds.overtaken(NodeId(3), &change);
        holds.release(GATEWAY, &[held]);
        holds.take_spare(pinned(asked[0].0, 6, VERSION));
        assert_eq!(std::mem::take(&mut holds.spent), [(NodeId(3), PinId(6))]);
        let read = holds.begin(Time(0), GATEWAY, Some(place(0..100)), Version::NONE);
        let asked = holds.overtaken(OTHER, &change);
        holds.take_spare(pinned(asked[0].0, 7, newer));
        let filled = holds.fill(read.expect("room"), bytes(100), VERSION);
        assert!(filled.is_ok());
        assert_eq!(holds.spent, [(OTHER, PinId(7))]);
        assert_eq!(holds.spares, 0);
    }

    /// Goal: held bytes have a name by which a member finds them that has put other blocks
    /// together: a change of the object that was there before they were read, or one of their
    /// own. A member's pin counts that is not newer than that name; but one that was asked for
    /// when there was no name yet has to be of the very version.
    #[test]
    fn held_bytes_are_as_of_the_newest_change_before() {
        let change = place(0..1);
        for (seen, as_of) in [(39, 40), (45, 45)] {
            let mut holds = Holds::default();
            let read = holds.begin(Time(0), GATEWAY, Some(place(0..100)), Version(seen));
            let read = read.expect("room");
            let early = holds.overtaken(NodeId(3), &change);
            let named = holds.fill(read, bytes(100), VERSION).expect("room");
            let (version, as_of) = (VERSION, Version(as_of));
            assert_eq!(named, Named { version, as_of });
            let asked = holds.overtaken(OTHER, &change);
            assert_eq!(asked[0].2, Some(as_of));
            holds.take_spare(pinned(asked[0].0, 5, Version(38)));
            assert_eq!(holds.spent, []);
            holds.take_spare(pinned(early[0].0, 6, Version(38)));
            assert_eq!(holds.spent, [(NodeId(3), PinId(6))]);
        }
    }

    /// Goal: what the own node keeps takes no memory here, is no gateway's that has given it
    /// back, and goes with the pin; a change of it has other members pin it, too.
    #[test]
    fn what_is_kept_on_disk_is_pinned_elsewhere_as_well() {
        let own = NodeId(1);
        let mut holds = Holds::default();
        let kept = holds.begin(Time(0), GATEWAY, Some(place(0..100)), Version(45));
        let kept = kept.expect("room");
        let (of, named) = holds.keep(kept, (own, PinId(5)), VERSION).expect("there");
        let as_of = Version(45);
        assert_eq!((of, named.as_of), (place(0..100), as_of));
        assert_eq!(holds.figures(), (0, 0));
        assert!(holds.bytes(GATEWAY, kept, 0..1).is_none());
        assert_eq!(holds.overtaken(OTHER, &place(0..1))[0].2, Some(as_of));
        holds.release(GATEWAY, &[kept]);
        assert_eq!(holds.spent, [(own, PinId(5))]);
        assert_eq!(holds.spares, 0);
        assert!(holds.keep(kept, (own, PinId(6)), VERSION).is_none());
        assert_eq!(holds.spent, [(own, PinId(5)), (own, PinId(6))]);
    }

    /// Goal: each change of an object is one of bytes that gateways may have been promised.
    #[test]
    fn changes_have_ranges() {
        let context = crossdock_peer::WriteContext::default();
        let order = crossdock_peer::Order::Primary;
        let zero = NodeRequest::Zero {
            object: OBJECT,
            offset_bytes: 10,
            length_bytes: 5,
            context,
            order,
        };
        assert_eq!(changed(&zero), Some(place(10..15)));
        let truncate = NodeRequest::Truncate {
            object: OBJECT,
            size_bytes: 10,
            context,
            order,
        };
        assert_eq!(changed(&truncate), Some(place(10..u64::MAX)));
        let remove = NodeRequest::Remove {
            object: OBJECT,
            context,
            order,
        };
        assert_eq!(changed(&remove), Some(place(0..u64::MAX)));
        assert_eq!(changed(&NodeRequest::Stat { object: OBJECT }), None);
    }
}
