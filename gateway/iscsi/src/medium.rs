//! START STOP UNIT and PREVENT ALLOW MEDIUM REMOVAL: of units whose medium can be taken out, what
//! is there and what is not (SBC-3).
//!
//! Nothing happens to the bytes of a medium that was taken out. That it is out holds at this
//! gateway, until it is loaded again or the gateway begins anew; where other gateways serve the
//! unit, too, it is refused, and so is stopping it.

use crossdock_scsi::{AdditionalSense, Command, Sense, SenseKey};

use crate::door::IscsiDoor;
use crate::respond::Outcome;
use crate::session::SessionId;

/// What a unit says whose medium is out.
pub(crate) const NO_MEDIUM: Sense = Sense::new(SenseKey::NotReady, AdditionalSense::NO_MEDIUM);

/// Whether a command is about the medium, and not about the unit.
pub(crate) const fn needs_medium(command: &Command) -> bool {
    !matches!(
        command,
        Command::Inquiry { .. }
            | Command::ReportLuns { .. }
            | Command::RequestSense { .. }
            | Command::ModeSense { .. }
            | Command::ModeSelect { .. }
            | Command::StartStop { .. }
            | Command::PreventRemoval { .. }
            | Command::Reserve
            | Command::Release
            | Command::ReserveIn { .. }
            | Command::ReserveOut { .. }
            | Command::ExtendedCopy { .. }
            | Command::CopyResults { .. }
            | Command::TokenInformation { .. }
            | Command::AbortCopy { .. }
            | Command::ReportPortGroups { .. }
            | Command::ReportOpcodes { .. }
            | Command::ReportTaskManagement { .. }
    )
}

impl IscsiDoor {
    /// START STOP UNIT.
    pub(crate) fn start_or_stop(
        &mut self,
        session: SessionId,
        (is_start, is_load, power): (bool, bool, u8),
    ) -> Outcome {
        let is_shared = self.config.is_shared;
        let Some(unit) = self.unit_of_mut(session) else {
            return Outcome::Good;
        };
        match (power, is_load) {
            (0, true) if is_shared && !is_start => Sense::invalid_field(4, Some(1)).into(),
            (0, false) if is_shared && !is_start => Sense::invalid_field(4, Some(0)).into(),
            (0, true) if !unit.lun.is_removable => Sense::invalid_field(4, Some(1)).into(),
            (0, true) => self.load_or_eject(session, is_start),
            (0, false) => {
                unit.is_stopped = !is_start;
                Outcome::Good
            }
            _ => Outcome::Good, // It has one power condition only.
        }
    }

    /// Takes the medium out, or puts it in: the others are told that it may be another one.
    fn load_or_eject(&mut self, own: SessionId, is_load: bool) -> Outcome {
        let number = self.sessions.get(&own).and_then(|session| session.unit);
        let sessions = number.map(|number| self.sessions_of(number));
        let sessions = sessions.unwrap_or_default();
        let mut known = sessions.iter().filter_map(|it| self.sessions.get(it));
        if known.any(|session| session.is_preventing) {
            return Sense::illegal(AdditionalSense::REMOVAL_PREVENTED).into();
        }
        let Some(unit) = self.unit_of_mut(own) else {
            return Outcome::Good;
        };
        let was_ejected = std::mem::replace(&mut unit.is_ejected, !is_load);
        if is_load {
            unit.is_stopped = false;
        } else {
            unit.cache.want(None);
        }
        if was_ejected && is_load {
            for other in sessions.into_iter().filter(|other| *other != own) {
                self.attend(other, AdditionalSense::MEDIUM_CHANGED);
            }
        }
        Outcome::Good
    }

    /// PREVENT ALLOW MEDIUM REMOVAL: as long as one session wants it to stay, it stays.
    pub(crate) fn prevent_removal(&mut self, session: SessionId, is_prevented: bool) -> Outcome {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.is_preventing = is_prevented;
        }
        Outcome::Good
    }
}
