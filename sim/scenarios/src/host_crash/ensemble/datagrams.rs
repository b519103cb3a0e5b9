//! Datagrams between clients and gateways, each on a way of its own: some are lost, some
//! come twice, some come so late that others have long overtaken them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use crossdock_sim::random::Random;
use crossdock_types::Time;

use super::super::shell::nanos;
use super::network::Place;

/// Most take up to this.
const DELAY_MAX: Duration = Duration::from_micros(500);

/// One in [`LATE_ONE_IN`] takes up to this, when its sender may long have had an answer.
const LATE_MAX: Duration = Duration::from_millis(900);
const LATE_ONE_IN: u32 = 5;

/// How many of them are lost, and how many come twice.
const LOST_ONE_IN: u64 = 6;
const TWICE_ONE_IN: u64 = 6;

/// Where one goes.
#[derive(Clone, Debug)]
pub(super) enum Datagram {
    /// From a client to a gateway.
    Call(Place, SocketAddr, Bytes),
    /// To a client.
    Reply(Bytes),
}

/// Those on their way.
#[derive(Default)]
pub(super) struct Datagrams {
    under_way: BTreeMap<(Time, u64), Datagram>,
    sent_total: u64,
}

impl Datagrams {
    /// One leaves now.
    pub(super) fn send(&mut self, now: Time, datagram: Datagram, random: &mut Random) {
        let copies = match random.below(LOST_ONE_IN * TWICE_ONE_IN) {
            drawn if drawn % LOST_ONE_IN == 0 => 0,
            drawn if drawn / LOST_ONE_IN == 0 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let longest = match random.one_in(LATE_ONE_IN) {
                true => LATE_MAX,
                false => DELAY_MAX,
            };
            let due = now + Duration::from_nanos(random.below(nanos(longest)));
            self.sent_total += 1;
            let key = (due, self.sent_total);
            self.under_way.insert(key, datagram.clone());
        }
    }

    /// When the next one arrives.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.under_way.first_key_value().map(|((due, _), _)| *due)
    }

    /// The next one that has arrived by now.
    pub(super) fn next(&mut self, now: Time) -> Option<Datagram> {
        let entry = self.under_way.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        Some(entry.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a simulation has all that a network may do to datagrams: some never come,
    /// some come twice, some are overtaken.
    #[test]
    fn datagrams_are_lost_doubled_and_overtaken() {
        let mut random = Random::new(1);
        let mut datagrams = Datagrams::default();
        for number in 0..100_u8 {
            let datagram = Datagram::Reply(Bytes::from(vec![number]));
            let now = Time::default() + Duration::from_millis(u64::from(number));
            datagrams.send(now, datagram, &mut random);
        }
        let mut arrived = [0; 100];
        let (mut newest, mut overtaken) = (0, 0);
        while let Some(due) = datagrams.next_at() {
            if let Some(Datagram::Reply(bytes)) = datagrams.next(due) {
                arrived[usize::from(bytes[0])] += 1;
                overtaken += u64::from(bytes[0] < newest);
                newest = newest.max(bytes[0]);
            }
        }
        for times in 0..3 {
            assert!(arrived.contains(&times), "{times}: {arrived:?}");
        }
        assert!(overtaken > 10, "{overtaken}");
    }
}
