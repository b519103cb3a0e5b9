//! `crossdock fsck` of the simulated volume: while clients work and things break it finds
//! nothing wrong, and in the end it proves that nothing is.

use std::time::Duration;

use super::driver::Driver;
use super::network::Place;

/// How long a check may take when nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_mins(2);

/// Between two looks at how far it is.
const PAUSE: Duration = Duration::from_millis(100);

impl Driver {
    /// Some manager checks the volume from now on.
    pub(super) fn begin_fsck(&mut self) {
        let managers = self.world.managers();
        if let Some(&place) = self.random.pick(&managers) {
            self.note(|| format!("process {place} checks the volume"));
            self.world.begin_fsck(place, false);
        }
    }

    /// What checks have found while clients worked is wrong in any case.
    pub(super) fn look_at_checks(&self) -> Result<(), String> {
        let mut managers = self.world.managers().into_iter();
        managers.try_for_each(|place| self.found_by(place))
    }

    fn found_by(&self, place: Place) -> Result<(), String> {
        let checked = self.world.fsck_progress(place);
        match checked.and_then(|checked| checked.findings.first()) {
            Some(finding) => Err(format!("process {place} checks the volume: {finding}")),
            None => Ok(()),
        }
    }

    /// A whole check, of everything, finds nothing.
    pub(super) fn prove(&mut self) -> Result<(), String> {
        let managers = self.world.managers();
        let Some(&place) = self.random.pick(&managers) else {
            return Err("no manager runs that could check the volume".to_owned());
        };
        // One that began before may have seen what was going on then.
        self.await_check(place)?;
        self.world.begin_fsck(place, false);
        self.await_check(place)?;
        self.found_by(place)?;
        let Some(checked) = self.world.fsck_progress(place) else {
            return Err(format!("process {place} ended while it checked the volume"));
        };
        let is_whole = checked.error.is_none()
            && checked.unsettled == 0
            && checked.nodes_away.is_empty()
            && checked.seen.files >= self.directories() as u64;
        match is_whole {
            true => Ok(()),
            false => Err(format!("the volume was not checked: {checked:?}")),
        }
    }

    fn await_check(&mut self, place: Place) -> Result<(), String> {
        let deadline = self.world.now + PATIENCE;
        let is_running = |driver: &Self| {
            let checked = driver.world.fsck_progress(place);
            checked.is_some_and(|checked| checked.running)
        };
        while is_running(self) {
            if self.world.now > deadline {
                return Err(format!("a check does not end within {PATIENCE:?}"));
            }
            self.settle(PAUSE)?;
        }
        Ok(())
    }
}
