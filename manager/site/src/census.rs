//! What the site has, for a check of the volume: its files and names, and what it
//! has decided that is not done everywhere.

#[cfg(feature = "mutations")]
use crossdock_directory::Directory;
use crossdock_directory::{Mutation, decode_edits};
use crossdock_names::{FileId, SiteId};
use crossdock_peer::{
    Call, CensusClass, CensusPage, CensusPlace, CensusRow, Repair, SiteAnswer, SiteOperation,
    SiteRequest,
};
use crossdock_types::{Time, WallTime};

use crate::commit::{After, Draft};
use crate::intentions::{Intention, Kind};
use crate::site::Site;

/// Rows in one answer.
const ROWS_MAX: usize = 2048;

impl Site {
    pub(crate) fn tell_census(
        &mut self,
        call: &Call<SiteRequest>,
        class: CensusClass,
        from: CensusPlace,
    ) {
        let mut rows = Vec::new();
        let begins = from == CensusPlace::default();
        if begins {
            let open = self.state.intentions.iter_from(0);
            rows.extend(open.flat_map(unsettled_by).map(CensusRow::Unsettled));
        }
        // There are few open intentions; all must be known before what they touch.
        let rows_max = rows.len() + ROWS_MAX;
        let next = (self.state.directory).census(class, from, &mut rows, rows_max);
        let page = CensusPage {
            incarnation: self.incarnation(),
            rows,
            next,
        };
        let shape = self.shape(&call.request.operation, None, false);
        // What a crash could undo is not told.
        let after = After::position(self.log_mut().newest());
        self.reply_content(call, &shape, Ok(SiteAnswer::Census(page)), after);
    }

    pub(crate) fn tell_names(&mut self, call: &Call<SiteRequest>) {
        let SiteOperation::Names { places, .. } = &call.request.operation else {
            return;
        };
        let directory = &self.state.directory;
        let names = places.iter().map(|place| directory.name_at(*place));
        let names = SiteAnswer::Names(names.collect());
        let shape = self.shape(&call.request.operation, None, false);
        let after = After::position(self.log_mut().newest());
        self.reply_content(call, &shape, Ok(names), after);
    }

    /// Makes changes that no operation makes, for tests of what mends them.
    #[cfg(feature = "mutations")]
    pub fn damage(
        &mut self,
        now: Time,
        wall: WallTime,
        changes: impl FnOnce(&Directory) -> Vec<Mutation>,
    ) {
        let draft = Draft {
            mutations: changes(&self.state.directory),
            ..Draft::default()
        };
        self.commit(now, wall, draft);
    }

    /// Mends what a check has found.
    pub(crate) fn repair(&mut self, now: Time, wall: WallTime, call: &Call<SiteRequest>) {
        let SiteOperation::Repair { file, repair } = &call.request.operation else {
            return;
        };
        let directory = &self.state.directory;
        let cell = directory.cell(*file).ok();
        let makes = cell.filter(|_| *repair == Repair::MakeObjects);
        let declare = makes.and_then(|cell| self.intention_for(cell, Kind::Make));
        let (after, outcome) = match directory.plan_repair(*file, repair, wall) {
            Ok(mutations) => {
                let draft = Draft {
                    mutations,
                    declare: declare.into_iter().collect(),
                    ..Draft::default()
                };
                (self.commit(now, wall, draft), Ok(SiteAnswer::Done))
            }
            Err(error) => (After::default(), Err(error)),
        };
        let shape = self.shape(&call.request.operation, None, false);
        self.reply_content(call, &shape, outcome, after);
    }
}

/// The files that an intention is still to change.
fn unsettled_by(intention: &Intention) -> Vec<FileId> {
    let mut files = vec![intention.file.id];
    if let Kind::Finish(decision) = &intention.kind {
        for (site, edits) in &decision.edits {
            let edits = decode_edits(edits).unwrap_or_default();
            files.extend(edits.iter().flat_map(|edit| changed_by(*site, edit)));
        }
    }
    files
}

/// The files of which something is different after a change.
fn changed_by(site: SiteId, edit: &Mutation) -> Vec<FileId> {
    let here = |serial: u64| FileId::new(site, serial);
    match edit {
        Mutation::PutCell(cell) => vec![here(cell.serial)],
        Mutation::RemoveCell { serial } | Mutation::PutDirectory { serial, .. } => {
            vec![here(*serial)]
        }
        Mutation::PutEntry { parent, child, .. } => vec![here(*parent), child.id],
        Mutation::RemoveEntry { parent, .. } => vec![here(*parent)],
        _ => Vec::new(),
    }
}
