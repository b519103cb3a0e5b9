//! Reservations: who may do what to a unit that somebody has for himself (SPC-4 section 5.13),
//! and RESERVE and RELEASE of older initiators.
//!
//! Persistent ones lie in the registry, where all gateways see them: each change is made
//! there first, from what was seen, and tried anew if somebody was faster.

use crossdock_limits::LUN_REGISTRANTS_MAX;
use crossdock_peer::{Nexus, Registrant, Reservation, Reservations, ReserveCause};
use crossdock_scsi::{
    AdditionalSense, Command, RegistrantStatus, ReserveIn, ReserveOut, ReserveOutAction,
    ReserveType, Sense, SenseKey, Status, full_status, parse_reserve_out, read_keys,
    read_reservation, report_capabilities,
};
use crossdock_types::Time;

use crate::door::IscsiDoor;
use crate::message::{IscsiEffect, ReserveOrder};
use crate::plan::Plan;
use crate::respond::Outcome;
use crate::session::{Session, SessionId};
use crate::task::{Task, TaskId};
use crate::unit::Unit;

/// How often a change is tried anew.
const TRIES_MAX: u32 = 16;

/// A change on its way to the registry.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) task: TaskId,
    asked: ReserveOut,
    action: ReserveOutAction,
    scope: u8,
    kind: u8,
    tries: u32,
}

/// What a command does, as far as reservations are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nobody minds.
    Nothing,
    Reading,
    Writing,
}

fn needs(command: &Command) -> Needs {
    match command {
        Command::Inquiry { .. }
        | Command::ReportLuns { .. }
        | Command::RequestSense { .. }
        | Command::TestUnitReady
        | Command::ReadCapacity10
        | Command::ReadCapacity16 { .. }
        | Command::ReserveIn { .. }
        | Command::ReserveOut { .. }
        | Command::ReportOpcodes { .. }
        | Command::ReportTaskManagement { .. }
        | Command::ReportPortGroups { .. }
        | Command::TokenInformation { .. }
        | Command::AbortCopy { .. }
        | Command::PreventRemoval {
            is_prevented: false,
        } => Needs::Nothing,
        Command::Read(..)
        | Command::Verify(..)
        | Command::PreFetch { .. }
        | Command::GetLbaStatus { .. }
        | Command::PopulateToken { .. }
        | Command::ModeSense { .. }
        | Command::ReadDefectData { .. } => Needs::Reading,
        _ => Needs::Writing,
    }
}

impl IscsiDoor {
    /// Whether somebody else's reservation is in the way of a command.
    pub(crate) fn is_reserved_against(&self, session: SessionId, command: &Command) -> bool {
        let unit = self.unit_of(session);
        unit.is_some_and(|unit| self.is_kept_from(session, unit, command))
    }

    /// The same of any unit.
    pub(crate) fn is_kept_from(&self, session: SessionId, unit: &Unit, command: &Command) -> bool {
        let Some(known) = self.sessions.get(&session) else {
            return false;
        };
        let is_others = unit.reserved_by.is_some_and(|holder| holder != session);
        // What an older reservation keeps from others is all but these (SPC-2 table 10).
        let is_old_conflict = is_others
            && !matches!(
                command,
                Command::Inquiry { .. }
                    | Command::ReportLuns { .. }
                    | Command::RequestSense { .. }
                    | Command::Release
            );
        let is_mixed = matches!(command, Command::Reserve | Command::Release)
            && !unit.lun.reservations.registrants.is_empty();
        let is_kept = match needs(command) {
            Needs::Nothing => false,
            Needs::Reading => self.is_kept_by_reservation(known, unit, false),
            Needs::Writing => self.is_kept_by_reservation(known, unit, true),
        };
        is_old_conflict || is_mixed || is_kept
    }

    /// Whether a persistent reservation keeps a session from reading blocks, or from changing
    /// them.
    pub(crate) fn is_kept_by_reservation(
        &self,
        session: &Session,
        unit: &Unit,
        is_change: bool,
    ) -> bool {
        let known = &unit.lun.reservations;
        let Some(held) = &known.held else {
            return false;
        };
        ReserveType::from_number(held.kind).is_some_and(|kind| {
            let is_registered = known.key_of(&session.nexus).is_some();
            let is_free =
                held.holder == session.nexus || (is_registered && kind.admits_registrants());
            !is_free && (is_change || kind.is_exclusive_access())
        })
    }

    /// Whether a task that was admitted may not begin, as its unit was reserved meanwhile.
    pub(crate) fn is_too_late(&self, task: &Task) -> bool {
        let is_of_blocks = !matches!(
            task.planned.plan,
            Plan::ModeSelect(_)
                | Plan::ReserveOut { .. }
                | Plan::ExtendedCopy
                | Plan::WriteUsingToken { .. }
        );
        let session = self.sessions.get(&task.asked.session);
        let (Some(session), Some(unit)) = (session, self.units.get(&task.unit)) else {
            return false;
        };
        is_of_blocks && self.is_kept_by_reservation(session, unit, task.planned.is_change())
    }

    /// RESERVE (6).
    pub(crate) fn reserve(&mut self, session: SessionId) -> Outcome {
        if let Some(unit) = self.unit_of_mut(session) {
            unit.reserved_by = Some(session);
        }
        Outcome::Good
    }

    /// RELEASE (6); of who has not reserved it, it changes nothing.
    pub(crate) fn release(&mut self, session: SessionId) -> Outcome {
        if let Some(unit) = self.unit_of_mut(session) {
            unit.reserved_by.take_if(|holder| *holder == session);
        }
        Outcome::Good
    }

    /// PERSISTENT RESERVE IN.
    pub(crate) fn reserve_in(
        &self,
        session: SessionId,
        action: ReserveIn,
        allocation: u32,
    ) -> Outcome {
        let Some(unit) = self.unit_of(session) else {
            return Sense::illegal(AdditionalSense::NO_UNIT).into();
        };
        let known = &unit.lun.reservations;
        let held = known.held.as_ref();
        let kind = held.and_then(|held| ReserveType::from_number(held.kind));
        let data = match action {
            ReserveIn::ReadKeys => {
                let keys = known.registrants.iter().map(|registrant| registrant.key);
                read_keys(known.generation, keys)
            }
            ReserveIn::ReadReservation => {
                let told = held.zip(kind).map(|(held, kind)| {
                    let key = known.key_of(&held.holder).unwrap_or_default();
                    (if kind.is_held_by_all() { 0 } else { key }, kind)
                });
                read_reservation(known.generation, told)
            }
            ReserveIn::ReportCapabilities => report_capabilities(known.is_lasting),
            ReserveIn::ReadFullStatus => {
                let status = known.registrants.iter().map(|registrant| RegistrantStatus {
                    key: registrant.key,
                    holds: kind.filter(|kind| {
                        let is_holder = held.is_some_and(|held| held.holder == registrant.nexus);
                        kind.is_held_by_all() || is_holder
                    }),
                    port: registrant.nexus.port,
                    initiator: &registrant.nexus.initiator,
                    isid: registrant.nexus.isid,
                });
                full_status(known.generation, status)
            }
        };
        Outcome::parameters(data, allocation)
    }

    /// PERSISTENT RESERVE OUT: begins the change.
    pub(crate) fn reserve_out(
        &mut self,
        now: Time,
        task: TaskId,
        action: ReserveOutAction,
        (scope, kind): (u8, u8),
        list: &[u8],
    ) {
        match parse_reserve_out(list) {
            // Registering with ports that others serve is none of the capabilities (ATP_C).
            Ok(asked) if asked.is_all_ports && self.config.is_shared => {
                let refused = Sense::invalid_parameter(20, Some(2));
                self.complete(now, task, refused.into());
            }
            Ok(asked) => {
                let change = Change {
                    task,
                    asked,
                    action,
                    scope,
                    kind,
                    tries: 0,
                };
                self.try_change(now, change);
            }
            Err(sense) => self.complete(now, task, sense.into()),
        }
    }

    /// Works out what is to be, from what there is, and has the registry keep it.
    fn try_change(&mut self, now: Time, mut change: Change) {
        let Some(task) = self.tasks.get(&change.task) else {
            return;
        };
        let (number, session) = (task.unit, task.asked.session);
        let (Some(unit), Some(known)) = (self.units.get(&number), self.sessions.get(&session))
        else {
            return;
        };
        let (scope, kind) = (change.scope, change.kind);
        let expected = unit.lun.reservations.clone();
        let wanted = changed(
            &expected,
            &known.nexus,
            change.action,
            &change.asked,
            (scope, kind),
        );
        // Others may do as if it were not so, until they have heard of it: also where it is so
        // already.
        let is_obeyed_first = matches!(
            change.action,
            ReserveOutAction::Reserve
                | ReserveOutAction::Preempt
                | ReserveOutAction::PreemptAndAbort
                | ReserveOutAction::Clear
        );
        let wanted = match wanted {
            Ok(wanted) if wanted == expected && !is_obeyed_first => {
                return self.complete(now, change.task, Outcome::Good);
            }
            Ok(wanted) => wanted,
            Err(outcome) => return self.complete(now, change.task, *outcome),
        };
        change.tries += 1;
        if change.tries > TRIES_MAX {
            return self.complete(now, change.task, Outcome::Status(Status::Busy));
        }
        self.changes_total += 1;
        let ticket = self.changes_total;
        self.changes.insert(ticket, change);
        self.effects
            .push_back(IscsiEffect::Reserve(Box::new(ReserveOrder {
                ticket,
                lun: number,
                expected,
                wanted,
                is_obeyed_first,
            })));
    }

    /// The registry has it, or had something else.
    pub(crate) fn take_reserved(&mut self, now: Time, ticket: u64, is_done: bool) {
        let Some(change) = self.changes.remove(&ticket) else {
            return self.take_reset(now, ticket, is_done);
        };
        if !is_done {
            return self.try_change(now, change);
        }
        match change.action {
            ReserveOutAction::PreemptAndAbort => self.abort_preempted(now, change.task),
            _ => self.complete(now, change.task, Outcome::Good),
        }
    }

    /// Who shares a unit is told what somebody else has done to its reservations.
    pub(crate) fn tell_reserved(&mut self, number: u64, before: &Reservations) {
        let Some(unit) = self.units.get(&number) else {
            return;
        };
        let after = unit.lun.reservations.clone();
        let Some((by, cause)) = after.last.clone().filter(|_| after != *before) else {
            return;
        };
        let kind = before.held.as_ref().map(|held| held.kind);
        let kind = kind.and_then(ReserveType::from_number);
        for session in self.sessions_of(number) {
            let Some(known) = self.sessions.get(&session) else {
                continue;
            };
            if known.nexus == by {
                continue;
            }
            let was_registered = before.key_of(&known.nexus).is_some();
            let is_registered = after.key_of(&known.nexus).is_some();
            let what = match cause {
                ReserveCause::Cleared if was_registered => AdditionalSense::RESERVATIONS_PREEMPTED,
                ReserveCause::Preempted if was_registered && !is_registered => {
                    AdditionalSense::REGISTRATIONS_PREEMPTED
                }
                ReserveCause::Preempted if is_registered && before.held != after.held => {
                    AdditionalSense::RESERVATIONS_RELEASED
                }
                ReserveCause::Released
                    if is_registered
                        && before.held != after.held
                        && kind.is_some_and(ReserveType::admits_registrants) =>
                {
                    AdditionalSense::RESERVATIONS_RELEASED
                }
                _ => continue,
            };
            self.attend(session, what);
        }
    }
}

/// What reservations are behind a command of `nexus`; nothing here but rules.
///
/// # Errors
/// What it is answered with: nothing is changed.
fn changed(
    known: &Reservations,
    nexus: &Nexus,
    action: ReserveOutAction,
    asked: &ReserveOut,
    (scope, kind): (u8, u8),
) -> Result<Reservations, Box<Outcome>> {
    let conflict = || Box::new(Outcome::Status(Status::ReservationConflict));
    let invalid = |byte, bit| Box::new(Outcome::Sense(Sense::invalid_field(byte, bit)));
    let own_key = known.key_of(nexus);
    match action {
        ReserveOutAction::Register => match own_key {
            Some(key) if key != asked.key => return Err(conflict()),
            None if asked.key != 0 => return Err(conflict()),
            _ => {}
        },
        ReserveOutAction::RegisterAndIgnore => {}
        _ if own_key != Some(asked.key) => return Err(conflict()),
        _ => {}
    }
    let mut next = known.clone();
    let is_of_a_kind = matches!(
        action,
        ReserveOutAction::Reserve
            | ReserveOutAction::Release
            | ReserveOutAction::Preempt
            | ReserveOutAction::PreemptAndAbort
    );
    let kind = match ReserveType::from_number(kind) {
        kind if !is_of_a_kind => kind,
        _ if scope != 0 => return Err(invalid(2, Some(7))),
        None => return Err(invalid(2, Some(3))),
        kind => kind,
    };
    match (action, kind) {
        (ReserveOutAction::Register | ReserveOutAction::RegisterAndIgnore, _) => {
            register(&mut next, nexus, asked)?;
        }
        (ReserveOutAction::Reserve, Some(kind)) => reserve(&mut next, nexus, kind)?,
        (ReserveOutAction::Release, Some(kind)) => release(&mut next, nexus, kind)?,
        (ReserveOutAction::Clear, _) => {
            next.registrants.clear();
            next.held = None;
            next.generation = next.generation.wrapping_add(1);
            next.last = Some((nexus.clone(), ReserveCause::Cleared));
        }
        (_, Some(kind)) => preempt(&mut next, nexus, asked.action_key, kind)?,
        (_, None) => return Err(invalid(2, Some(3))),
    }
    Ok(next)
}

fn register(
    next: &mut Reservations,
    nexus: &Nexus,
    asked: &ReserveOut,
) -> Result<(), Box<Outcome>> {
    let place = next.registrants.iter().position(|it| it.nexus == *nexus);
    let mut cause = ReserveCause::Registered;
    match (place, asked.action_key) {
        (None, 0) => return Ok(()), // Nobody registers nothing.
        (Some(place), 0) => {
            next.registrants.remove(place);
            if release_of(next, nexus) {
                cause = ReserveCause::Released;
            }
        }
        (Some(place), key) => next.registrants[place].key = key,
        (None, _) if next.registrants.len() >= LUN_REGISTRANTS_MAX => {
            let full = AdditionalSense::NO_REGISTRATION_ROOM;
            return Err(Box::new(Outcome::Sense(Sense::illegal(full))));
        }
        (None, key) => next.registrants.push(Registrant {
            nexus: nexus.clone(),
            key,
        }),
    }
    next.is_lasting = asked.is_lasting;
    next.generation = next.generation.wrapping_add(1);
    next.last = Some((nexus.clone(), cause));
    Ok(())
}

/// Who held the reservation is not registered any more. Whether that ends it: one that all
/// registrants hold ends with the last of them.
fn release_of(next: &mut Reservations, nexus: &Nexus) -> bool {
    let Some(held) = &mut next.held else {
        return false;
    };
    let is_held_by_all =
        ReserveType::from_number(held.kind).is_some_and(ReserveType::is_held_by_all);
    match next.registrants.first() {
        Some(other) if is_held_by_all => {
            held.holder = other.nexus.clone();
            false
        }
        _ if is_held_by_all || held.holder == *nexus => {
            next.held = None;
            true
        }
        _ => false,
    }
}

fn reserve(next: &mut Reservations, nexus: &Nexus, kind: ReserveType) -> Result<(), Box<Outcome>> {
    let conflict = || Box::new(Outcome::Status(Status::ReservationConflict));
    match &next.held {
        None => {
            next.held = Some(Reservation {
                holder: nexus.clone(),
                kind: kind as u8,
            });
            next.last = Some((nexus.clone(), ReserveCause::Registered));
            Ok(())
        }
        // Again the same, by who holds it.
        Some(held)
            if held.kind == kind as u8 && (held.holder == *nexus || kind.is_held_by_all()) =>
        {
            Ok(())
        }
        Some(_) => Err(conflict()),
    }
}

fn release(next: &mut Reservations, nexus: &Nexus, kind: ReserveType) -> Result<(), Box<Outcome>> {
    let Some(held) = &next.held else {
        return Ok(());
    };
    let is_held_by_all =
        ReserveType::from_number(held.kind).is_some_and(ReserveType::is_held_by_all);
    if held.holder != *nexus && !is_held_by_all {
        return Ok(()); // It is registered, and holds nothing.
    }
    if held.kind != kind as u8 {
        let wrong = Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_RELEASE);
        return Err(Box::new(Outcome::Sense(wrong)));
    }
    next.held = None;
    next.last = Some((nexus.clone(), ReserveCause::Released));
    Ok(())
}

/// SPC-4 section 5.13.11.4.
fn preempt(
    next: &mut Reservations,
    nexus: &Nexus,
    victim: u64,
    kind: ReserveType,
) -> Result<(), Box<Outcome>> {
    let held = next.held.clone();
    let held_kind = held
        .as_ref()
        .and_then(|held| ReserveType::from_number(held.kind));
    let is_held_by_all = held_kind.is_some_and(ReserveType::is_held_by_all);
    let holder_key = held.as_ref().and_then(|held| next.key_of(&held.holder));
    let takes_over = match (is_held_by_all, victim) {
        (true, 0) => true,
        (true, _) => false,
        (false, victim) => holder_key == Some(victim),
    };
    if victim == 0 && !takes_over {
        let wrong = Sense::invalid_parameter(8, None);
        return Err(Box::new(Outcome::Sense(wrong)));
    }
    let is_victim = |it: &Registrant| match (is_held_by_all, victim) {
        (true, 0) => it.nexus != *nexus,
        (_, victim) => it.key == victim && (it.nexus != *nexus || !takes_over),
    };
    let before = next.registrants.len();
    next.registrants.retain(|it| !is_victim(it));
    if !takes_over && before == next.registrants.len() {
        // Nobody has that key.
        return Err(Box::new(Outcome::Status(Status::ReservationConflict)));
    }
    if takes_over {
        next.held = Some(Reservation {
            holder: nexus.clone(),
            kind: kind as u8,
        });
    }
    // All holders may be gone but one.
    if is_held_by_all && !takes_over {
        release_of(next, nexus);
    }
    next.generation = next.generation.wrapping_add(1);
    next.last = Some((nexus.clone(), ReserveCause::Preempted));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nexus(number: u8) -> Nexus {
        Nexus {
            initiator: format!("iqn.{number}"),
            isid: [0, 0, 0, 0, 0, number],
            port: 1,
        }
    }

    struct Rules(Reservations);

    impl Rules {
        fn out(
            &mut self,
            number: u8,
            action: ReserveOutAction,
            (key, action_key): (u64, u64),
            kind: u8,
        ) -> Result<(), Outcome> {
            let asked = ReserveOut {
                key,
                action_key,
                is_lasting: true,
                is_all_ports: false,
            };
            let next = changed(&self.0, &nexus(number), action, &asked, (0, kind));
            self.0 = next.map_err(|outcome| *outcome)?;
            Ok(())
        }

        fn holder(&self) -> Option<(u8, u8)> {
            let held = self.0.held.as_ref()?;
            Some((held.holder.isid[5], held.kind))
        }

        fn registered(&self) -> Vec<(u8, u64)> {
            let all = self.0.registrants.iter();
            all.map(|it| (it.nexus.isid[5], it.key)).collect()
        }
    }

    const CONFLICT: Result<(), Outcome> = Err(Outcome::Status(Status::ReservationConflict));

    fn three() -> Rules {
        let mut rules = Rules(Reservations::default());
        for number in 1..=3 {
            let key = (0, u64::from(number) * 10);
            assert_eq!(
                rules.out(number, ReserveOutAction::Register, key, 0),
                Ok(())
            );
        }
        rules
    }

    /// Goal: who registers shows the key that he has; a key of 0 ends it; who is not registered
    /// can do nothing.
    #[test]
    fn keys_are_shown() {
        use ReserveOutAction::{Clear, Register, RegisterAndIgnore, Reserve};
        let mut rules = three();
        assert_eq!(rules.registered(), [(1, 10), (2, 20), (3, 30)]);
        assert_eq!(rules.0.generation, 3);
        assert_eq!(rules.out(1, Register, (11, 12), 0), CONFLICT);
        assert_eq!(rules.out(1, Register, (10, 12), 0), Ok(()));
        assert_eq!(rules.out(2, RegisterAndIgnore, (99, 21), 0), Ok(()));
        assert_eq!(rules.out(3, Register, (30, 0), 0), Ok(()));
        assert_eq!(rules.registered(), [(1, 12), (2, 21)]);
        assert_eq!(rules.out(3, Reserve, (30, 0), 1), CONFLICT);
        assert_eq!(rules.out(4, Clear, (0, 0), 0), CONFLICT);
        assert_eq!(rules.out(2, Clear, (21, 0), 0), Ok(()));
        assert_eq!((rules.registered(), rules.holder()), (vec![], None));
    }

    /// Goal: one holds a reservation, gives it up by its own type, and it ends with the
    /// registration; one of all ends with the last of them.
    #[test]
    fn reservations_are_held_and_given_up() {
        use ReserveOutAction::{Register, Release, Reserve};
        let mut rules = three();
        assert_eq!(rules.out(1, Reserve, (10, 0), 1), Ok(()));
        assert_eq!(rules.out(1, Reserve, (10, 0), 1), Ok(()), "again");
        assert_eq!(rules.out(1, Reserve, (10, 0), 3), CONFLICT);
        assert_eq!(rules.out(2, Reserve, (20, 0), 1), CONFLICT);
        assert_eq!(rules.out(2, Release, (20, 0), 1), Ok(()), "not his");
        assert!(rules.out(1, Release, (10, 0), 3).is_err());
        assert_eq!(rules.holder(), Some((1, 1)));
        assert_eq!(rules.out(1, Register, (10, 0), 0), Ok(()));
        assert_eq!(rules.holder(), None);
        assert_eq!(rules.out(2, Reserve, (20, 0), 7), Ok(()));
        assert_eq!(rules.out(3, Reserve, (30, 0), 7), Ok(()));
        assert_eq!(rules.out(2, Register, (20, 0), 0), Ok(()));
        assert_eq!(rules.holder(), Some((3, 7)));
        assert_eq!(rules.out(3, Release, (30, 0), 7), Ok(()));
        assert_eq!(rules.holder(), None);
    }

    /// Goal: preempting takes the reservation of its holder, and only registrations of others.
    #[test]
    fn others_are_preempted() {
        use ReserveOutAction::{Preempt, Reserve};
        let mut rules = three();
        assert_eq!(rules.out(1, Reserve, (10, 0), 1), Ok(()));
        assert_eq!(rules.out(2, Preempt, (20, 30), 3), Ok(()));
        assert_eq!(
            (rules.registered().len(), rules.holder()),
            (2, Some((1, 1)))
        );
        assert_eq!(
            rules.out(2, Preempt, (20, 30), 3),
            CONFLICT,
            "nobody has it"
        );
        assert_eq!(rules.out(2, Preempt, (20, 10), 3), Ok(()));
        assert_eq!(
            (rules.registered(), rules.holder()),
            (vec![(2, 20)], Some((2, 3)))
        );
        assert!(rules.out(2, Preempt, (20, 0), 3).is_err());
        let mut rules = three();
        assert_eq!(rules.out(1, Reserve, (10, 0), 8), Ok(()));
        assert_eq!(rules.out(3, Preempt, (30, 0), 5), Ok(()));
        assert_eq!(
            (rules.registered(), rules.holder()),
            (vec![(3, 30)], Some((3, 5)))
        );
    }
}
