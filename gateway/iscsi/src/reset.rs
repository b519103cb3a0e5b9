//! Resets of a unit that several gateways serve (SAM-5 section 6.3.3): each of them aborts what has
//! come through it, and tells its sessions. The reset is counted in the LUN's record, and answered
//! when all gateways obey that, as a reservation is (docs/decisions/0049).

use crossdock_peer::{Nexus, Reservations, ReserveCause};
use crossdock_types::Time;

use crate::door::IscsiDoor;
use crate::message::{IscsiEffect, ReserveOrder};
use crate::session::SessionId;
use crate::task::TaskId;

/// How often it is tried anew, as somebody else has changed the record.
const TRIES_MAX: u32 = 16;

/// A reset on its way to the registry, and to other gateways.
#[derive(Debug)]
pub(crate) struct Reset {
    unit: u64,
    by: Nexus,
    /// The unit will have been reset so often.
    count: u64,
    tries: u32,
}

impl IscsiDoor {
    /// Has other gateways reset the unit, too; the ticket of that, if there may be any.
    pub(crate) fn tell_reset(&mut self, session: SessionId) -> Option<u64> {
        let known = self.sessions.get(&session)?;
        let reset = Reset {
            unit: known.unit?,
            by: known.nexus.clone(),
            count: 0,
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
        reset.count = expected.resets + 1;
        let wanted = Reservations {
            resets: reset.count,
            last: Some((reset.by.clone(), ReserveCause::Reset)),
            ..expected.clone()
        };
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
        let Some(unit) = self.units.get(&number) else {
            return;
        };
        let after = &unit.lun.reservations;
        let is_own = |reset: &Reset| {
            let is_last = matches!(
                &after.last,
                Some((by, ReserveCause::Reset)) if *by == reset.by
            );
            is_last && (reset.unit, reset.count) == (number, after.resets)
        };
        let own = u64::from(self.resets.values().any(is_own));
        if after.resets.saturating_sub(before.resets) <= own {
            return;
        }
        self.reset(number);
        let tasks = self.tasks.iter().filter(|(_, task)| task.unit == number);
        let tasks: Vec<TaskId> = tasks.map(|(&id, _)| id).collect();
        for task in tasks {
            if !self.abort_task(now, task) {
                self.reset_tasks.push((number, task));
            }
        }
        self.settle_managements(now);
        self.pump(now);
    }
}
