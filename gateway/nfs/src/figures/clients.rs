//! The clients that have figures of their own: as many as there may be, whoever
//! calls.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crossdock_types::Time;

use super::{Answered, CLIENTS_MAX, ClientFigures, Traffic};

/// A client that has called within this time keeps its place among them.
const CLIENT_PATIENCE: Duration = Duration::from_secs(60);

/// Where a client is counted, as its connection remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientPlace {
    slot: usize,
    /// Of the slot; 0 was never given.
    generation: u32,
}

/// The clients that have figures of their own. The one that called least
/// recently makes room, once it is idle; its sums go to the others'.
#[derive(Debug)]
pub(super) struct Clients {
    /// The first stands for all others.
    slots: Vec<Slot>,
    by_address: BTreeMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Slot {
    address: IpAddr,
    generation: u32,
    seen: Time,
    traffic: Traffic,
}

const OTHERS: ClientPlace = ClientPlace {
    slot: 0,
    generation: 1,
};

impl Default for Clients {
    fn default() -> Self {
        let others = Slot {
            address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            generation: OTHERS.generation,
            seen: Time::default(),
            traffic: Traffic::default(),
        };
        Self {
            slots: vec![others],
            by_address: BTreeMap::new(),
        }
    }
}

impl Clients {
    pub(super) fn place(&mut self, now: Time, address: IpAddr, known: &mut ClientPlace) -> usize {
        if self.slots[known.slot].generation != known.generation {
            *known = self.find(now, address);
        }
        known.slot
    }

    fn find(&mut self, now: Time, address: IpAddr) -> ClientPlace {
        let slot = match self.by_address.get(&address) {
            Some(&slot) => slot,
            None => {
                let Some(slot) = self.make_room(now) else {
                    return OTHERS;
                };
                let place = &mut self.slots[slot];
                (place.address, place.seen) = (address, now);
                self.by_address.insert(address, slot);
                slot
            }
        };
        ClientPlace {
            slot,
            generation: self.slots[slot].generation,
        }
    }

    /// A slot without a client, if there is one or somebody has been idle.
    fn make_room(&mut self, now: Time) -> Option<usize> {
        if self.slots.len() <= CLIENTS_MAX {
            self.slots.push(Slot {
                address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                generation: 1,
                seen: now,
                traffic: Traffic::default(),
            });
            return Some(self.slots.len() - 1);
        }
        let slots = self.slots.iter().enumerate().skip(OTHERS.slot + 1);
        let (oldest, slot) = slots.min_by_key(|(_, slot)| slot.seen)?;
        if now.since(slot.seen) < CLIENT_PATIENCE {
            return None;
        }
        let (address, traffic) = (slot.address, slot.traffic);
        self.by_address.remove(&address);
        self.slots[OTHERS.slot].traffic.add(&traffic);
        let slot = &mut self.slots[oldest];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.traffic = Traffic::default();
        Some(oldest)
    }

    pub(super) fn count(&mut self, now: Time, slot: usize, answered: &Answered) {
        let slot = &mut self.slots[slot];
        slot.seen = now;
        slot.traffic.count(answered);
    }

    pub(super) fn others(&self) -> Traffic {
        self.slots[OTHERS.slot].traffic
    }

    pub(super) fn figures(
        &self,
        now: Time,
        places: impl Iterator<Item = (SocketAddr, ClientPlace)>,
    ) -> Vec<ClientFigures> {
        let mut connections = vec![0; self.slots.len()];
        for (client, place) in places {
            let is_its = self.slots[place.slot].generation == place.generation;
            let slot = is_its.then_some(place.slot);
            // One that has not called yet may still have figures.
            let slot = slot.or_else(|| self.by_address.get(&client.ip().to_canonical()).copied());
            connections[slot.unwrap_or(OTHERS.slot)] += 1;
        }
        let slots = self.slots.iter().zip(connections).skip(OTHERS.slot + 1);
        slots
            .map(|(slot, connections)| ClientFigures {
                address: slot.address,
                connections,
                idle: now.since(slot.seen),
                traffic: slot.traffic,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    fn call(clients: &mut Clients, now: Time, number: u32, known: &mut ClientPlace) -> usize {
        let slot = clients.place(now, address(number), known);
        let answered = Answered {
            read_bytes: 10,
            ..Answered::default()
        };
        clients.count(now, slot, &answered);
        slot
    }

    /// Goal: however many clients call, the number of figures is bounded, an
    /// active client keeps its own, and not one call is lost from the sums.
    #[test]
    fn clients_are_bounded_and_sums_are_complete() {
        let mut clients = Clients::default();
        let many = u32::try_from(CLIENTS_MAX).expect("small") + 50;
        let mut known = vec![ClientPlace::default(); many as usize];
        let start = Time::from_secs(100);
        for (number, known) in (0..).zip(&mut known) {
            call(&mut clients, start, number, known);
        }
        let figures = clients.figures(start, std::iter::empty());
        assert_eq!(figures.len(), CLIENTS_MAX);
        assert_eq!(clients.others().requests, 50);
        // All but the first have been idle: new ones take their places.
        let later = start + CLIENT_PATIENCE;
        let slot = call(&mut clients, later, 0, &mut known[0]);
        let mut newcomer = ClientPlace::default();
        assert_ne!(call(&mut clients, later, 9999, &mut newcomer), slot);
        let figures = clients.figures(later, std::iter::empty());
        assert_eq!(figures.len(), CLIENTS_MAX);
        assert!(figures.iter().any(|client| client.address == address(9999)));
        let of_first = figures.iter().find(|client| client.address == address(0));
        assert_eq!(of_first.expect("it was active").traffic.requests, 2);
        let sum: u64 = figures.iter().map(|client| client.traffic.requests).sum();
        assert_eq!(sum + clients.others().requests, u64::from(many) + 2);
        // Who lost his place is counted with the others, or found a new one.
        let lost = known.iter_mut().zip(0..).skip(1);
        for (known, number) in lost {
            call(&mut clients, later, number, known);
        }
        let figures = clients.figures(later, std::iter::empty());
        let sum: u64 = figures.iter().map(|client| client.traffic.read_bytes).sum();
        let all = (u64::from(many) * 2 + 1) * 10;
        assert_eq!(sum + clients.others().read_bytes, all);
    }
}
