//! How fast the store's mover may go: when its next step may begin, and how large it is.
//!
//! Before the disk its requests stand behind all others. But one that the disk works on is
//! in the way of whoever comes just then. So few may meet one that a 99th percentile does
//! not show it:
//!
//! - In pauses of the clients steps follow each other, as long as of the calls that have
//!   come no more than one in [`CALLS_PER_MEETING`] came while a step was under way.
//! - Otherwise a step waits for [`BUSY_SHARE`] times as long as the last one took. So the
//!   mover comes to its end whatever the load.

use std::time::Duration;

use crossdock_types::Time;

use crate::node::Node;

/// Blocks that are moved in one step while nobody is there: 1 MiB.
const IDLE_STEP_BLOCKS: u64 = 256;

/// The same while clients are at work, in their pauses, too: 256 KiB. What is left of a step
/// when they come back is in their way.
const STEP_BLOCKS: u64 = 64;

/// Nobody has wanted anything of a node for so long: it is a pause. Also how often that is
/// looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// Nobody has wanted anything for so long: there is no load to keep out of the way of.
const IDLE: Duration = Duration::from_secs(5);

/// One call in so many may come while a step is under way.
const CALLS_PER_MEETING: i64 = 400;

/// Meetings for which calls have been seen, at most: a long load allows no long nuisance.
const MEETINGS_AHEAD_MAX: i64 = 4;

/// While clients are at work: so many times as long as a step took.
const BUSY_SHARE: u32 = 400;

/// It never rests for longer, however long a step took.
const BUSY_REST_MAX: Duration = Duration::from_secs(20);

/// The pace of one node's mover.
#[derive(Debug, Default)]
pub struct MoverPace {
    /// Calls of clients that the node had taken when it was looked last.
    calls_seen: Option<u64>,
    /// Calls that have come, less [`CALLS_PER_MEETING`] for each that came during a step.
    credit: i64,
    /// While clients are at work it does not go on before.
    busy_until: Time,
}

/// What the mover may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoverTurn {
    /// A step that moves at most so many blocks.
    Step {
        /// How many.
        blocks_max: u64,
        /// It would be larger, and others would follow, without clients.
        is_yielding: bool,
    },
    /// Nothing yet: clients are at work. It is asked again at this time.
    Wait(Time),
}

impl MoverPace {
    /// Whether a step may begin now.
    pub fn turn(&mut self, now: Time, node: &Node) -> MoverTurn {
        self.count_calls(node.client_calls(), false);
        let quiet_for = node.quiet_for(now);
        let is_idle = quiet_for >= IDLE;
        let is_pause = is_idle || (quiet_for >= PAUSE && self.credit >= 0);
        if !is_pause && now < self.busy_until {
            return MoverTurn::Wait(self.busy_until.min(now + PAUSE));
        }
        let blocks_max = match is_idle {
            true => IDLE_STEP_BLOCKS,
            false => STEP_BLOCKS,
        };
        MoverTurn::Step {
            blocks_max,
            is_yielding: !is_pause,
        }
    }

    /// The step that was begun then has ended.
    pub fn step_ended(&mut self, now: Time, begun: Time, node: &Node) {
        self.count_calls(node.client_calls(), true);
        let rest = now.since(begun).saturating_mul(BUSY_SHARE);
        self.busy_until = now + rest.min(BUSY_REST_MAX);
    }

    /// The node has taken so many calls of clients by now; during a step, if `in_step`.
    fn count_calls(&mut self, calls: u64, in_step: bool) {
        let seen = self.calls_seen.replace(calls).unwrap_or(calls);
        let more = i64::try_from(calls.saturating_sub(seen)).unwrap_or(i64::MAX);
        let met = if in_step { more } else { 0 };
        let change = more.saturating_sub(met.saturating_mul(CALLS_PER_MEETING));
        let most = CALLS_PER_MEETING * MEETINGS_AHEAD_MAX;
        self.credit = self.credit.saturating_add(change).clamp(-most, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: calls that come during steps use up what many others have allowed, and no load,
    /// however long, allows many at once.
    #[test]
    fn few_calls_meet_a_step() {
        let mut pace = MoverPace::default();
        pace.count_calls(1_000_000, false);
        assert_eq!(pace.credit, 0, "those before do not count");
        pace.count_calls(1_000_000, true);
        assert_eq!(pace.credit, 0, "a step that nobody met");
        pace.count_calls(1_000_001, true);
        assert_eq!(pace.credit, 1 - CALLS_PER_MEETING);
        pace.count_calls(1_000_400, false);
        assert_eq!(pace.credit, 0);
        pace.count_calls(2_000_000, false);
        assert_eq!(pace.credit, CALLS_PER_MEETING * MEETINGS_AHEAD_MAX);
        pace.count_calls(3_000_000, true);
        assert_eq!(pace.credit, -CALLS_PER_MEETING * MEETINGS_AHEAD_MAX);
    }
}
