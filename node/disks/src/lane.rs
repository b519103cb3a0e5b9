//! The waiting requests of one class: by deadline, and in sweeps over the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crossdock_types::Time;

/// Requests whose deadlines lie no farther apart than this are put in the order
/// of their places; beyond it, the earlier deadline counts.
pub(crate) const SWEEP_WINDOW: Duration = Duration::from_millis(5);

/// Number of a request within its queue, in order of arrival.
pub(crate) type Arrival = u64;

/// What a lane has to know of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) deadline: Time,
    pub(crate) place_bytes: u64,
    pub(crate) arrival: Arrival,
}

/// The waiting requests of one class.
///
/// When a sweep begins, it takes all requests whose deadline lies within
/// [`SWEEP_WINDOW`] of the earliest; what arrives later with such a deadline
/// joins it. They are issued upwards from where the disk is, then from the
/// lowest place. So nobody's turn comes later than after those whose deadline
/// is at most a window after his.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    by_deadline: BTreeMap<(Time, Arrival), u64>,
    sweep: BTreeSet<(u64, Arrival)>,
    sweep_until: Time,
}

impl Lane {
    pub(crate) fn len(&self) -> usize {
        self.by_deadline.len()
    }

    pub(crate) fn push(&mut self, ticket: Ticket) {
        let Ticket {
            deadline,
            place_bytes,
            arrival,
        } = ticket;
        self.by_deadline.insert((deadline, arrival), place_bytes);
        if !self.sweep.is_empty() && deadline <= self.sweep_until {
            self.sweep.insert((place_bytes, arrival));
        }
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) {
        let place = self.by_deadline.remove(&(ticket.deadline, ticket.arrival));
        debug_assert!(place.is_some(), "{ticket:?} is not in its lane");
        self.sweep.remove(&(ticket.place_bytes, ticket.arrival));
    }

    /// The request with the earliest deadline.
    pub(crate) fn earliest(&self) -> Option<(Time, Arrival)> {
        self.by_deadline.first_key_value().map(|(&key, _)| key)
    }

    /// The request whose turn it is when the disk is at `head_bytes`.
    pub(crate) fn next_in_sweep(&mut self, head_bytes: u64) -> Option<Arrival> {
        if self.sweep.is_empty() {
            let (earliest, _) = self.earliest()?;
            self.sweep_until = earliest + SWEEP_WINDOW;
            let joining = self.by_deadline.range(..=(self.sweep_until, Arrival::MAX));
            self.sweep
                .extend(joining.map(|(&(_, arrival), &place)| (place, arrival)));
        }
        let upwards = self.sweep.range((head_bytes, 0)..).next();
        let turn = upwards.or_else(|| self.sweep.first());
        turn.map(|&(_, arrival)| arrival)
    }
}
