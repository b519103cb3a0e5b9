//! Resets of a unit that several gateways serve (SAM-5 section 6.3.3), and clearings of its task set:
//! each of them aborts what has come through it, and tells its sessions, or ends them. It is counted
//! in the LUN's record, and answered when all gateways obey that, as a reservation is
//! (docs/decisions/0049).

use crossdock_peer::{Nexus, Reservations, ReserveCause};
use crossdock_types::Time;

use crate::door::IscsiDoor;
use crate::message::{IscsiEffect, ReserveOrder};
use crate::session::SessionId;

/// How often it is tried anew, as somebody else has changed the record.
const TRIES_MAX: u32 = 16;

/// What all gateways do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetKind {
    /// CLEAR TASK SET: all commands are aborted.
    TaskSet,
    /// LOGICAL UNIT RESET, and TARGET WARM RESET: what was set of the unit is as at the start, too.
    Unit,
    /// TARGET COLD RESET: all sessions end, too.
    Cold,
}

impl ResetKind {
    /// How often that was done.
    const fn count(self, known: &Reservations) -> u64 {
        match self {
            Self::TaskSet => known.clears,
            Self::Unit => known.resets,
            Self::Cold => known.cold_resets,
        }
    }

    /// Once more.
    const fn add_to(self, known: &mut Reservations) {
        match self {
            Self::TaskSet => known.clears += 1,
            Self::Unit => known.resets += 1,
            Self::Cold => {
                known.resets += 1;
                known.cold_resets += 1;
            }
        }
    }
}

/// A reset on its way to the registry, and to other gateways.
#[derive(Debug)]
pub(crate) struct Reset {
    unit: u64,
    kind: ResetKind,
    by: Nexus,
    /// The record as it is to be.
    wanted: Reservations,
    tries: u32,
}

impl IscsiDoor {
    /// Has other gateways reset the unit, too; the ticket of that, if there may be any.
    pub(crate) fn tell_reset(&mut self, session: SessionId, kind: ResetKind) -> Option<u64> {
        let known = self.sessions.get(&session)?;
        let reset = Reset {
            unit: known.unit?,
            kind,
            by: known.nexus.clone(),
            wanted: Reservations::default(),
            tries: 0,
        };
        self.config.is_shared.then(|| self.try_reset(reset))?
    }

    fn try_reset(&mut self, mut reset: Reset) -> Option<u64> {
        let expected = self.units.get(&reset.unit)?.lun.reservations.clone();
        reset.tries += 1;
        if reset.tries > TRIES_MAX {
            return None;
        }
        let mut wanted = expected.clone();
        reset.kind.add_to(&mut wanted);
        wanted.last = Some((reset.by.clone(), ReserveCause::Reset));
        reset.wanted = wanted.clone();
        self.changes_total += 1;
        let ticket = self.changes_total;
        let lun = reset.unit;
        self.resets.insert(ticket, reset);
        self.effects
            .push_back(IscsiEffect::Reserve(Box::new(ReserveOrder {
                ticket,
                lun,
                expected,
                wanted,
                is_obeyed_first: true,
            })));
        Some(ticket)
    }

    /// All gateways have carried it out; or the record was another one.
    pub(crate) fn take_reset(&mut self, now: Time, ticket: u64, is_done: bool) {
        let Some(reset) = self.resets.remove(&ticket) else {
            return;
        };
        let next = match is_done {
            true => Ok(()),
            false => Err(self.try_reset(reset)),
        };
        self.settle_reset(now, ticket, next);
    }

    /// Takes what a LUN's record says of resets: those of other gateways are carried out here.
    pub(crate) fn follow_resets(&mut self, now: Time, number: u64, before: &Reservations) {
        // Each one does what those behind it do.
        let kinds = [ResetKind::Cold, ResetKind::Unit, ResetKind::TaskSet];
        let mut kinds = kinds.into_iter();
        if let Some(kind) = kinds.find(|kind| self.is_reset_elsewhere(number, *kind, before)) {
            self.carry_out(now, number, kind);
        }
    }

    fn is_reset_elsewhere(&self, number: u64, kind: ResetKind, before: &Reservations) -> bool {
        let Some(unit) = self.units.get(&number) else {
            return false;
        };
        let after = &unit.lun.reservations;
        let is_own = |reset: &Reset| {
            let is_last = matches!(
                &after.last,
                Some((by, ReserveCause::Reset)) if *by == reset.by
            );
            let is_counted = kind.count(after) == kind.count(&reset.wanted);
            is_last && is_counted && reset.unit == number
        };
        let own = u64::from(self.resets.values().any(is_own));
        kind.count(after).saturating_sub(kind.count(before)) > own
    }

    /// Does here what another gateway was asked for.
    fn carry_out(&mut self, now: Time, number: u64, kind: ResetKind) {
        let tasks = match kind {
            ResetKind::TaskSet => {
                self.tell_cleared(number, None);
                self.task_set(number)
            }
            ResetKind::Unit | ResetKind::Cold => {
                self.reset(number);
                self.tasks_of(number)
            }
        };
        for task in tasks {
            if !self.abort_task(now, task) {
                self.reset_tasks.push((number, task));
            }
        }
        if kind == ResetKind::Cold {
            self.end_sessions_of(now, number);
        }
        self.settle_managements(now);
        self.pump(now);
    }
}
