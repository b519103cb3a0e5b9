//! Exports of a running host: an administrator adds, changes and removes them,
//! the registry keeps them, and the door judges every later call by them.
//!
//! A path is walked once, when it is exported; from then on the export is that
//! directory, wherever it is moved.

use crossdock_limits::{EXPORT_NETWORKS_MAX, EXPORTS_MAX};
use crossdock_members::{Change, Conflict, ExportRecord, OpenError, State};
use crossdock_names::{ExportId, FileRef};
use crossdock_nfs::{Export, NfsInput};
use crossdock_peer::{ExportRules, SiteError};
use crossdock_types::{Time, WallTime};
use thiserror::Error;

use crate::host::{Host, HostEffect};
use crate::message::Message;
use crate::walks::{Goal, WALKS_MAX, Walk, WalkError, names_of, volume_root};

/// Which [`Host::add_export`] an effect answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportTicket(pub(crate) u64);

/// Why an export was not added, changed or removed; nothing was.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ExportError {
    /// The path cannot be one.
    #[error("{path:?} cannot be exported: {why}")]
    Path {
        /// As it was said.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
    /// No network, or too many.
    #[error(
        "an export needs 1 to {EXPORT_NETWORKS_MAX} networks that may use it, not {0}; to export to nobody, remove the export"
    )]
    Networks(usize),
    /// There are as many as there may be.
    #[error(
        "there are {EXPORTS_MAX} exports already; remove one with crossdock export remove PATH"
    )]
    TooMany,
    /// The path is exported already.
    #[error("{path} is exported already; change it with crossdock export set {path}")]
    Exported {
        /// The path.
        path: String,
    },
    /// There is no such export.
    #[error("there is no export {0}; crossdock export list shows all")]
    Unknown(u32),
    /// The path leads nowhere.
    #[error("the volume has no directory {path}; mount / and make it, then export it")]
    NotFound {
        /// The path.
        path: String,
    },
    /// The path leads to something else.
    #[error("{path} is no directory; only directories can be exported")]
    NotDirectory {
        /// The path.
        path: String,
    },
    /// The volume does not answer now.
    #[error("the volume did not answer ({0}); crossdock status may show why; try again")]
    Volume(SiteError),
    /// Too many at once.
    #[error("{WALKS_MAX} exports are being added at this moment; try again")]
    Busy,
    /// The registry cannot be written.
    #[error("cannot write the registry: {0}")]
    Registry(String),
}

impl Host {
    /// The exports there are.
    #[must_use]
    pub fn exports(&self) -> &[ExportRecord] {
        &self.registry.state().exports
    }

    /// Begins to export the directory `path` of the volume;
    /// [`HostEffect::ExportAdded`] tells what came of it.
    ///
    /// # Errors
    /// What is wrong with path or rules, as far as it can be seen at once.
    pub fn add_export(
        &mut self,
        now: Time,
        wall: WallTime,
        path: &str,
        rules: ExportRules,
    ) -> Result<ExportTicket, ExportError> {
        let names = names_of(path).map_err(|(path, why)| ExportError::Path { path, why })?;
        check_rules(&rules)?;
        let walk = Walk::new(&names, Goal::Export(rules));
        self.check_addition(&walk.path)?;
        if self.walks.len() >= WALKS_MAX {
            return Err(ExportError::Busy);
        }
        let number = self.begin_walk(now, walk, volume_root());
        self.pump(now, wall);
        Ok(ExportTicket(number))
    }

    /// Gives export `id` other rules, from the next call of a client on.
    ///
    /// # Errors
    /// Why not.
    pub fn set_export(
        &mut self,
        now: Time,
        wall: WallTime,
        id: u32,
        rules: ExportRules,
    ) -> Result<ExportRecord, ExportError> {
        check_rules(&rules)?;
        self.change_exports(Change::SetExport { id, rules })?;
        self.pump(now, wall);
        let changed = self.exports().iter().find(|export| export.id == id);
        changed.cloned().ok_or(ExportError::Unknown(id))
    }

    /// Exports `id` no more: from the next call of a client on, its handles are
    /// stale.
    ///
    /// # Errors
    /// Why not.
    pub fn remove_export(
        &mut self,
        now: Time,
        wall: WallTime,
        id: u32,
    ) -> Result<ExportRecord, ExportError> {
        let export = self.exports().iter().find(|export| export.id == id);
        let removed = export.cloned().ok_or(ExportError::Unknown(id))?;
        self.change_exports(Change::RemoveExport { id })?;
        self.pump(now, wall);
        Ok(removed)
    }

    /// The directory of an export is found.
    pub(crate) fn finish_export(
        &mut self,
        path: String,
        rules: ExportRules,
        root: FileRef,
    ) -> Result<ExportRecord, ExportError> {
        self.check_addition(&path)?;
        self.change_exports(Change::AddExport {
            path: path.clone(),
            root: root.into(),
            rules,
        })?;
        let added = self.exports().iter().find(|export| export.path == path);
        added.cloned().ok_or(ExportError::NotFound { path })
    }

    /// Tells what came of an addition; the path with what was wrong with it.
    pub(crate) fn end_export(
        &mut self,
        ticket: ExportTicket,
        result: Result<Result<ExportRecord, ExportError>, (String, WalkError)>,
    ) {
        let result = result.unwrap_or_else(|(path, error)| {
            Err(match error {
                WalkError::NotFound => ExportError::NotFound { path },
                WalkError::NotDirectory => ExportError::NotDirectory { path },
                WalkError::Volume(error) => ExportError::Volume(error),
            })
        });
        self.effects
            .push_back(HostEffect::ExportAdded { ticket, result });
    }

    fn check_addition(&self, path: &str) -> Result<(), ExportError> {
        let exports = self.exports();
        if exports.iter().any(|export| export.path == path) {
            let path = path.to_owned();
            return Err(ExportError::Exported { path });
        }
        if exports.len() >= EXPORTS_MAX {
            return Err(ExportError::TooMany);
        }
        Ok(())
    }

    /// Makes a change durable, then tells the door.
    fn change_exports(&mut self, change: Change) -> Result<(), ExportError> {
        self.registry.change(change).map_err(|error| match error {
            OpenError::Conflict(Conflict::Exported { path }) => ExportError::Exported { path },
            error => ExportError::Registry(error.to_string()),
        })?;
        let input = NfsInput::Exports(exports(self.registry.state()));
        self.queue.push_back(Message::Door(input));
        Ok(())
    }
}

/// What the door is told about exports.
pub(crate) fn exports(state: &State) -> Vec<Export> {
    let exports = state.exports.iter().map(|record| Export {
        id: ExportId(record.id),
        path: record.path.clone().into_bytes(),
        root: record.root.into(),
        rules: record.rules.clone(),
    });
    exports.collect()
}

fn check_rules(rules: &ExportRules) -> Result<(), ExportError> {
    match rules.networks.len() {
        1..=EXPORT_NETWORKS_MAX => Ok(()),
        count => Err(ExportError::Networks(count)),
    }
}
