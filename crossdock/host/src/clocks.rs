//! How much the clocks of the ensemble's hosts disagree on the time of day. Nothing
//! but the times of files depends on it: what orders events are versions and epochs
//! (CONSISTENCY 2). Administrators are told.
//!
//! A host asks the others now and then what time it is there. The answer was given
//! half of the way there and back ago, give or take that half.

use std::collections::BTreeMap;
use std::time::Duration;

use crossdock_link::Frame;
use crossdock_names::HostId;
use crossdock_types::{Time, WallTime};

use crate::host::Host;

/// How often the others are asked.
const INTERVAL: Duration = Duration::from_secs(5);

/// An answer that took longer says too little.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);

/// What is known of others' clocks.
#[derive(Default)]
pub(crate) struct Clocks {
    due: Time,
    /// Nanoseconds by which a host's clock is ahead of this one's.
    ahead: BTreeMap<HostId, i64>,
}

impl Host {
    /// When the others are to be asked again.
    pub(crate) fn clock_due(&self) -> Option<Time> {
        let asks = self.registry.is_shared() && self.following.has_joined;
        asks.then_some(self.clocks.due)
    }

    /// Asks everybody for the time of day.
    pub(crate) fn ask_clocks(&mut self, now: Time) {
        self.clocks.due = now + INTERVAL;
        let hosts = self.hosts();
        let others =
            hosts.filter(|(host, _, is_connected)| *is_connected && *host != self.host_id());
        let others: Vec<HostId> = others.map(|(host, ..)| host).collect();
        self.clocks.ahead.retain(|host, _| others.contains(host));
        for host in others {
            self.send_frame(host, Frame::AskClock { at: now.0 });
        }
    }

    /// `peer` asks for the time of day.
    pub(crate) fn tell_clock(&mut self, peer: HostId, at: u64) {
        let wall = self.access.wall;
        self.send_frame(peer, Frame::Clock { at, wall });
    }

    /// `peer` has answered what was asked at `asked_at`.
    pub(crate) fn take_clock(&mut self, peer: HostId, asked_at: Time, told: WallTime) {
        if let Some(ahead) = ahead_by(asked_at, self.leases.now, self.access.wall, told) {
            self.clocks.ahead.insert(peer, ahead);
        }
    }

    /// By how many nanoseconds the clock of `host` is ahead of this host's; nothing if
    /// it is not known.
    #[must_use]
    pub fn clock_ahead(&self, host: HostId) -> Option<i64> {
        let ahead = self.clocks.ahead.get(&host).copied();
        ahead.filter(|_| self.peers.is_connected(host))
    }
}

/// By how much a clock that told `told` was ahead of the one that says `wall` now,
/// in nanoseconds; nothing if its answer took too long.
fn ahead_by(asked_at: Time, now: Time, wall: WallTime, told: WallTime) -> Option<i64> {
    let round_trip = Duration::from_nanos(now.0.checked_sub(asked_at.0)?);
    let half = i64::try_from(round_trip.as_nanos() / 2).ok()?;
    let then = wall.0.checked_sub(half)?;
    let is_soon = round_trip <= ROUND_TRIP_MAX;
    is_soon.then(|| told.0.checked_sub(then)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: half of the way there and back is taken off; late answers, and times that
    /// cannot be, say nothing.
    #[test]
    fn a_clock_is_ahead_by_what_it_said_then() {
        let (asked, now) = (Time::from_secs(9), Time(9_000_400_000));
        let wall = WallTime(1_000_000_000);
        let ahead = |told| ahead_by(asked, now, wall, WallTime(told));
        assert_eq!(ahead(1_000_000_000 - 200_000), Some(0));
        assert_eq!(ahead(6_000_000_000), Some(5_000_200_000));
        assert_eq!(ahead(-4_000_000_000), Some(-4_999_800_000));
        assert_eq!(ahead(i64::MIN), None);
        assert_eq!(
            ahead_by(asked, asked + ROUND_TRIP_MAX, wall, wall),
            Some(250_000_000)
        );
        assert_eq!(ahead_by(asked, Time::from_secs(10), wall, wall), None);
        assert_eq!(ahead_by(now, asked, wall, wall), None);
    }
}
