//! LUNs: which files of the volume initiators have as disks, and who has reserved them.

use crossdock_limits::LUNS_MAX;
use crossdock_names::HostId;
use crossdock_peer::{Lun, Reservations};

use crate::state::{Conflict, DirectoryRecord, State};

impl State {
    /// One more; `directory` is where the files of all lie.
    pub(crate) fn add_lun(
        &mut self,
        record: Lun,
        directory: DirectoryRecord,
    ) -> Result<(), Conflict> {
        if self.luns.contains(&record) {
            return Ok(()); // The answer was lost.
        }
        let is_taken = |known: &Lun| known.name == record.name || known.id == record.id;
        if self.luns.iter().any(is_taken) {
            let what = format!("LUN {}", record.name);
            return Err(Conflict::Exists { what });
        }
        if self.luns.len() >= LUNS_MAX {
            let what = format!("{LUNS_MAX} LUNs");
            return Err(Conflict::Full { what });
        }
        self.lun_directory = Some(directory);
        self.luns.push(record);
        Ok(())
    }

    /// It is as it is wanted, if it is as it was seen; reservations are not looked at.
    pub(crate) fn set_lun(&mut self, expected: &Lun, wanted: Lun) -> Result<(), Conflict> {
        let known = self.lun_mut(wanted.id)?;
        let as_it_is = |lun: &Lun| Lun {
            reservations: Reservations::default(),
            ..lun.clone()
        };
        let (is, was, will) = (as_it_is(known), as_it_is(expected), as_it_is(&wanted));
        if is == will {
            return Ok(()); // The answer was lost.
        }
        if is != was {
            return Err(changed(known));
        }
        *known = Lun {
            reservations: std::mem::take(&mut known.reservations),
            ..wanted
        };
        Ok(())
    }

    pub(crate) fn remove_lun(&mut self, id: u64) -> Result<(), Conflict> {
        let at = self.luns.iter().position(|known| known.id == id);
        self.luns.remove(at.ok_or_else(|| unknown(id))?);
        Ok(())
    }

    /// Others have reserved it, if nobody has changed that since it was seen.
    pub(crate) fn set_reservations(
        &mut self,
        id: u64,
        expected: &Reservations,
        wanted: Reservations,
    ) -> Result<(), Conflict> {
        let known = self.lun_mut(id)?;
        if known.reservations == wanted {
            return Ok(()); // The answer was lost.
        }
        if known.reservations != *expected {
            return Err(changed(known));
        }
        known.reservations = wanted;
        self.reservation_changes += 1;
        Ok(())
    }

    pub(crate) fn obey_reservations(&mut self, host: u64, changes: u64) -> Result<(), Conflict> {
        let record = self.hosts.get_mut(&host);
        let record = record.ok_or(Conflict::Replaced { host })?;
        record.reservations_obeyed = record.reservations_obeyed.max(changes);
        Ok(())
    }

    /// Gateways that may let initiators write, or read, against reservations as they are after so
    /// many changes: those that have not said that they obey them.
    pub fn gateways_behind(&self, changes: u64) -> impl Iterator<Item = HostId> {
        let gateways = self.hosts.iter().filter(|(_, record)| record.is_gateway);
        let behind = gateways.filter(move |(_, record)| record.reservations_obeyed < changes);
        behind.map(|(&host, _)| HostId(host))
    }

    /// All processes were down: what was not to outlast that is gone.
    pub(crate) fn forget_reservations(&mut self) {
        let luns = self.luns.iter_mut();
        for lun in luns.filter(|lun| !lun.reservations.is_lasting) {
            lun.reservations = Reservations::default();
        }
    }

    fn lun_mut(&mut self, id: u64) -> Result<&mut Lun, Conflict> {
        let mut luns = self.luns.iter_mut();
        luns.find(|known| known.id == id).ok_or_else(|| unknown(id))
    }
}

fn unknown(id: u64) -> Conflict {
    Conflict::Unknown {
        what: format!("LUN {id:016x}"),
    }
}

fn changed(lun: &Lun) -> Conflict {
    Conflict::Refused {
        why: format!("the LUN {} has been changed meanwhile", lun.name),
    }
}

#[cfg(test)]
mod tests {
    use crossdock_names::{FileRef, SiteId};
    use crossdock_peer::LunAccess;

    use super::*;
    use crate::Change;

    fn lun(id: u64, name: &str) -> Lun {
        Lun {
            id,
            name: name.to_owned(),
            file: FileRef::root_of(SiteId(1)),
            size_bytes: 1 << 20,
            block_bytes: 512,
            is_thin: true,
            is_removable: false,
            has_write_cache: false,
            access: LunAccess::local(),
            reservations: Reservations::default(),
        }
    }

    fn add(state: &mut State, record: Lun) -> Result<(), Conflict> {
        let directory = DirectoryRecord::default();
        state.apply(Change::AddLun { record, directory })
    }

    /// Goal: names and numbers are nobody else's; a change is made to what was seen only, and
    /// leaves reservations; routing does not hang on it.
    #[test]
    fn luns_come_and_go() {
        let mut state = State::fresh(1, 2, &[10], 1, 1);
        let epoch = state.table_epoch;
        assert_eq!(add(&mut state, lun(1, "a")), Ok(()));
        assert_eq!(add(&mut state, lun(1, "a")), Ok(()), "the answer was lost");
        for wrong in [lun(2, "a"), lun(1, "b")] {
            assert!(matches!(
                add(&mut state, wrong),
                Err(Conflict::Exists { .. })
            ));
        }
        let reserved = Reservations {
            generation: 1,
            is_lasting: true,
            ..Reservations::default()
        };
        let reserve = |expected: &Reservations, wanted: &Reservations| Change::SetReservations {
            id: 1,
            expected: Box::new(expected.clone()),
            wanted: Box::new(wanted.clone()),
        };
        let none = Reservations::default();
        assert_eq!(state.apply(reserve(&none, &reserved)), Ok(()));
        let later = Reservations {
            generation: 2,
            ..none.clone()
        };
        assert!(state.apply(reserve(&none, &later)).is_err());
        let larger = Lun {
            size_bytes: 2 << 20,
            ..lun(1, "a")
        };
        let grow = Change::SetLun {
            expected: Box::new(lun(1, "a")),
            wanted: Box::new(larger.clone()),
        };
        assert_eq!(state.apply(grow.clone()), Ok(()));
        assert_eq!(state.apply(grow), Ok(()), "the answer was lost");
        assert_eq!(state.luns[0].size_bytes, 2 << 20);
        assert_eq!(state.luns[0].reservations, reserved);
        let stale = Change::SetLun {
            expected: Box::new(lun(1, "a")),
            wanted: Box::new(Lun {
                is_thin: false,
                ..lun(1, "a")
            }),
        };
        assert!(state.apply(stale).is_err());
        assert_eq!(state.apply(Change::RemoveLun { id: 1 }), Ok(()));
        assert!(state.apply(Change::RemoveLun { id: 1 }).is_err());
        assert_eq!(state.table_epoch, epoch);
    }

    /// Goal: a restart of everything ends reservations that were not to outlast it.
    #[test]
    fn reservations_outlast_a_restart_if_they_are_to() {
        let mut state = State::fresh(1, 2, &[10], 1, 1);
        for (id, name, is_lasting) in [(1, "a", true), (2, "b", false)] {
            let mut record = lun(id, name);
            record.reservations.generation = 7;
            record.reservations.is_lasting = is_lasting;
            add(&mut state, record).expect("is new");
        }
        state.apply(Change::RaiseAll).expect("always");
        let generations = state.luns.iter().map(|lun| lun.reservations.generation);
        assert_eq!(generations.collect::<Vec<_>>(), [7, 0]);
    }

    /// Goal: a state of an earlier version is read, and one without LUNs is written as that
    /// version wrote it.
    #[test]
    fn older_states_are_read() {
        let mut state = State::fresh(1, 2, &[10], 1, 1);
        let old = serde_json::to_string(&state).expect("JSON");
        assert!(!old.contains("lun"));
        assert_eq!(serde_json::from_str::<State>(&old).expect("a state"), state);
        add(&mut state, lun(1, "a")).expect("is new");
        let new = serde_json::to_string(&state).expect("JSON");
        assert_eq!(serde_json::from_str::<State>(&new).expect("a state"), state);
    }
}
