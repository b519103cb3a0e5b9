//! Exports of a running host: an administrator adds, changes and removes them,
//! the registry keeps them, and the door judges every later call by them.
//!
//! A path is walked once, when it is exported; from then on the export is that
//! directory, wherever it is moved.

use std::time::Duration;

use crossdock_limits::{EXPORT_NETWORKS_MAX, EXPORTS_MAX};
use crossdock_members::{Change, Conflict, DirectoryRecord, ExportRecord, OpenError, State};
use crossdock_names::{ExportId, FileRef};
use crossdock_nfs::Export;
use crossdock_peer::{ExportRules, SiteError};
use crossdock_types::{Time, WallTime};
use thiserror::Error;

use crate::host::{Host, HostEffect};
use crate::walks::{Goal, WALKS_MAX, Walk, WalkError, names_of, volume_root};

/// How long a shared registry may take until a change is in it.
pub(crate) const REGISTRY_PATIENCE: Duration = Duration::from_secs(5);

/// Which order about exports an effect answers.
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
    /// Somebody else has changed it at the same moment.
    #[error(
        "{path} was changed by somebody else meanwhile; look at crossdock export list, and try again"
    )]
    Changed {
        /// The path.
        path: String,
    },
    /// Too many at once.
    #[error("{WALKS_MAX} exports are being added or changed at this moment; try again")]
    Busy,
    /// This process is no part of the ensemble yet.
    #[error("this process has not joined the ensemble; crossdock status may show why; try again")]
    NotJoined,
    /// A shared registry says nothing.
    #[error(
        "etcd does not answer: the change was not confirmed within {} s, and may still be carried out; crossdock export list shows what came of it",
        REGISTRY_PATIENCE.as_secs()
    )]
    Unanswered,
    /// The registry cannot be written.
    #[error("cannot write the registry: {0}")]
    Registry(String),
}

/// A change of exports on its way to the registry.
pub(crate) struct ExportChange {
    ticket: ExportTicket,
    /// What is asked for; for a removal the export that there was.
    wanted: Wanted,
    /// When it is given up.
    pub(crate) due: Time,
}

enum Wanted {
    Added {
        path: String,
        root: DirectoryRecord,
        rules: ExportRules,
    },
    Set {
        id: u32,
        expected: ExportRules,
        rules: ExportRules,
    },
    Removed(ExportRecord),
}

impl Wanted {
    fn change(&self) -> Change {
        match self {
            Self::Added { path, root, rules } => Change::AddExport {
                path: path.clone(),
                root: *root,
                rules: rules.clone(),
            },
            Self::Set {
                id,
                expected,
                rules,
            } => Change::SetExport {
                id: *id,
                expected: Some(expected.clone()),
                rules: rules.clone(),
            },
            Self::Removed(export) => Change::RemoveExport { id: export.id },
        }
    }

    /// What has come of it, as `exports` show; nothing if that is still open.
    fn outcome(&self, exports: &[ExportRecord]) -> Option<Result<ExportRecord, ExportError>> {
        let of_id = |id: u32| exports.iter().find(|export| export.id == id);
        match self {
            Self::Added { path, root, rules } => {
                let found = exports.iter().find(|export| export.path == *path)?;
                Some(match found.root == *root && found.rules == *rules {
                    true => Ok(found.clone()),
                    false => Err(ExportError::Exported { path: path.clone() }),
                })
            }
            Self::Set {
                id,
                expected,
                rules,
            } => match of_id(*id) {
                None => Some(Err(ExportError::Unknown(*id))),
                Some(found) if found.rules == *rules => Some(Ok(found.clone())),
                Some(found) if found.rules == *expected => None,
                Some(found) => {
                    let path = found.path.clone();
                    Some(Err(ExportError::Changed { path }))
                }
            },
            Self::Removed(export) => of_id(export.id).is_none().then(|| Ok(export.clone())),
        }
    }
}

impl Host {
    /// The exports there are.
    #[must_use]
    pub fn exports(&self) -> &[ExportRecord] {
        &self.registry.state().exports
    }

    /// Begins to export the directory `path` of the volume;
    /// [`HostEffect::ExportChanged`] tells what came of it.
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

    /// Begins to give export `id` other rules, from the next call of a client on;
    /// [`HostEffect::ExportChanged`] tells what came of it.
    ///
    /// # Errors
    /// Why not, as far as it can be seen at once.
    pub fn set_export(
        &mut self,
        now: Time,
        wall: WallTime,
        id: u32,
        rules: ExportRules,
    ) -> Result<ExportTicket, ExportError> {
        check_rules(&rules)?;
        let expected = self.export(id)?.rules.clone();
        let wanted = Wanted::Set {
            id,
            expected,
            rules,
        };
        self.order_exports(now, wall, wanted)
    }

    /// Begins to export `id` no more: from the next call of a client on, its handles
    /// are stale. [`HostEffect::ExportChanged`] tells what came of it.
    ///
    /// # Errors
    /// Why not, as far as it can be seen at once.
    pub fn remove_export(
        &mut self,
        now: Time,
        wall: WallTime,
        id: u32,
    ) -> Result<ExportTicket, ExportError> {
        let wanted = Wanted::Removed(self.export(id)?.clone());
        self.order_exports(now, wall, wanted)
    }

    /// The directory of an export is found.
    pub(crate) fn finish_export(
        &mut self,
        now: Time,
        ticket: ExportTicket,
        path: String,
        rules: ExportRules,
        root: FileRef,
    ) {
        let root = root.into();
        let wanted = Wanted::Added {
            path: path.clone(),
            root,
            rules,
        };
        let checked = self.check_addition(&path);
        if let Err(error) = checked.and_then(|()| self.change_exports(now, ticket, wanted)) {
            self.end_export(ticket, Err(error));
        }
    }

    /// The directory of an export is not found.
    pub(crate) fn fail_export(&mut self, ticket: ExportTicket, path: String, error: WalkError) {
        let error = match error {
            WalkError::NotFound => ExportError::NotFound { path },
            WalkError::NotDirectory => ExportError::NotDirectory { path },
            WalkError::Volume(error) => ExportError::Volume(error),
        };
        self.end_export(ticket, Err(error));
    }

    /// Answers those whose change is in the registry, or cannot come there any more.
    pub(crate) fn settle_exports(&mut self, now: Time) {
        for change in std::mem::take(&mut self.export_changes) {
            let outcome = change.wanted.outcome(self.exports());
            let late = (change.due <= now).then_some(Err(ExportError::Unanswered));
            match outcome.or(late) {
                Some(result) => self.end_export(change.ticket, result),
                None => self.export_changes.push(change),
            }
        }
    }

    fn end_export(&mut self, ticket: ExportTicket, result: Result<ExportRecord, ExportError>) {
        self.effects
            .push_back(HostEffect::ExportChanged { ticket, result });
    }

    fn export(&self, id: u32) -> Result<&ExportRecord, ExportError> {
        let export = self.exports().iter().find(|export| export.id == id);
        export.ok_or(ExportError::Unknown(id))
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

    fn order_exports(
        &mut self,
        now: Time,
        wall: WallTime,
        wanted: Wanted,
    ) -> Result<ExportTicket, ExportError> {
        self.walks_total += 1;
        let ticket = ExportTicket(self.walks_total);
        self.change_exports(now, ticket, wanted)?;
        self.pump(now, wall);
        Ok(ticket)
    }

    /// Makes a change durable, then tells the door; or sends it to the registry that
    /// others share, from where it comes back with the next state.
    fn change_exports(
        &mut self,
        now: Time,
        ticket: ExportTicket,
        wanted: Wanted,
    ) -> Result<(), ExportError> {
        if self.registry.is_shared() && !self.following.has_joined {
            return Err(ExportError::NotJoined);
        }
        if self.export_changes.len() >= WALKS_MAX {
            return Err(ExportError::Busy);
        }
        let changed = self.registry.change(wanted.change());
        changed.map_err(|error| match error {
            OpenError::Conflict(Conflict::Exported { path }) => ExportError::Exported { path },
            error => ExportError::Registry(error.to_string()),
        })?;
        self.tell_exports();
        self.export_changes.push(ExportChange {
            ticket,
            wanted,
            due: now + REGISTRY_PATIENCE,
        });
        self.settle_exports(now);
        Ok(())
    }
}

/// What the door is told about exports.
pub(crate) fn exports(state: &State) -> Vec<Export> {
    let exports = state.exports.iter().map(|record| Export {
        id: ExportId(record.id),
        path: record.path.clone().into_bytes(),
        root: record.root.into(),
        above: above(state, &record.path),
        rules: record.rules.clone(),
    });
    exports.collect()
}

/// What `path` lies in, from the inside out, as far as the policy has rules of it.
fn above(state: &State, path: &str) -> Vec<FileRef> {
    let names: Vec<&str> = names_of(path).unwrap_or_default();
    let lies_in = |outer: &Vec<&str>| outer.len() < names.len() && names.starts_with(outer);
    let outer = state.policy.iter().filter_map(|rule| {
        let outer = names_of(&rule.path).ok().filter(lies_in)?;
        Some((outer.len(), rule.place.into()))
    });
    let mut outer: Vec<(usize, FileRef)> = outer.collect();
    outer.sort_by_key(|&(depth, _)| std::cmp::Reverse(depth));
    outer.dedup();
    outer.into_iter().map(|(_, place)| place).collect()
}

fn check_rules(rules: &ExportRules) -> Result<(), ExportError> {
    match rules.networks.len() {
        1..=EXPORT_NETWORKS_MAX => Ok(()),
        count => Err(ExportError::Networks(count)),
    }
}
