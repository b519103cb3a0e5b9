//! Exports of a running host: an administrator adds, changes and removes them,
//! the registry keeps them, and the door judges every later call by them.
//!
//! A path is walked once, when it is exported; from then on the export is that
//! directory, wherever it is moved.

use bytes::Bytes;
use crossdock_limits::{EXPORT_NETWORKS_MAX, EXPORT_PATH_BYTES_MAX, EXPORTS_MAX, NAME_BYTES_MAX};
use crossdock_members::{Change, Conflict, ExportRecord, OpenError, State};
use crossdock_names::{ExportId, FileRef};
use crossdock_nfs::{Export, NfsInput};
use crossdock_peer::{
    Call, CallId, Caller, ExportRules, FileKind, SiteAnswer, SiteError, SiteOperation, SiteReply,
    SiteRequest,
};
use crossdock_router::RouterInput;
use crossdock_types::{Time, WallTime};
use thiserror::Error;

use crate::host::{Host, HostEffect};
use crate::message::Message;
use crate::sites::PATIENCE;

/// Calls of walks have this bit, those of the door never.
const WALK_BIT: u64 = 1 << 63;

/// Paths that are walked at a time.
const WALKS_MAX: usize = 16;

/// Which [`Host::add_export`] an effect answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportTicket(u64);

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

/// A path on its way to its directory.
pub(crate) struct Walk {
    path: String,
    rules: ExportRules,
    rest: Vec<Bytes>, // Names still to look up, the next one last.
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
        let names = names_of(path)?;
        let path = format!("/{}", names.join("/"));
        check_rules(&rules)?;
        self.check_addition(&path)?;
        if self.walks.len() >= WALKS_MAX {
            return Err(ExportError::Busy);
        }
        self.walks_total += 1;
        let ticket = ExportTicket(self.walks_total);
        let names = names.iter().rev();
        let rest = names.map(|name| Bytes::copy_from_slice(name.as_bytes()));
        let walk = Walk {
            path,
            rules,
            rest: rest.collect(),
        };
        self.step_walk(now, ticket, walk, volume_root());
        self.pump(now, wall);
        Ok(ticket)
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

    /// Whether the answer to `id` is for a walk.
    pub(crate) const fn is_of_walk(id: CallId) -> bool {
        id.0 & WALK_BIT != 0
    }

    /// Goes on with a walk after an answer.
    pub(crate) fn take_walk(&mut self, now: Time, reply: SiteReply) {
        let ticket = ExportTicket(reply.id.0 & !WALK_BIT);
        let Some(walk) = self.walks.remove(&ticket) else {
            return;
        };
        let path = || walk.path.clone();
        let error = match reply.outcome {
            Ok(SiteAnswer::Found { attributes, .. }) => {
                if attributes.kind == FileKind::Directory {
                    return self.step_walk(now, ticket, walk, attributes.file);
                }
                ExportError::NotDirectory { path: path() }
            }
            Ok(_) => ExportError::Volume(SiteError::Io), // No answer to a look-up.
            Err(SiteError::NotFound | SiteError::Stale) => ExportError::NotFound { path: path() },
            Err(SiteError::NotDirectory) => ExportError::NotDirectory { path: path() },
            Err(error) => ExportError::Volume(error),
        };
        self.end_walk(ticket, Err(error));
    }

    fn step_walk(&mut self, now: Time, ticket: ExportTicket, mut walk: Walk, here: FileRef) {
        let Some(name) = walk.rest.pop() else {
            let result = self.finish_walk(walk, here);
            return self.end_walk(ticket, result);
        };
        self.walks.insert(ticket, walk);
        let call = Call {
            id: CallId(ticket.0 | WALK_BIT),
            deadline: now + PATIENCE,
            request: SiteRequest {
                caller: Caller::root(),
                duplicate: None,
                operation: SiteOperation::Lookup {
                    directory: here,
                    name,
                },
            },
        };
        let input = RouterInput::Request(call);
        self.queue.push_back(Message::Router(input));
    }

    fn finish_walk(&mut self, walk: Walk, root: FileRef) -> Result<ExportRecord, ExportError> {
        let Walk { path, rules, .. } = walk;
        self.check_addition(&path)?;
        self.change_exports(Change::AddExport {
            path: path.clone(),
            root: root.into(),
            rules,
        })?;
        let added = self.exports().iter().find(|export| export.path == path);
        added.cloned().ok_or(ExportError::NotFound { path })
    }

    fn end_walk(&mut self, ticket: ExportTicket, result: Result<ExportRecord, ExportError>) {
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

fn volume_root() -> FileRef {
    crossdock_members::DirectoryRecord::default().into()
}

fn check_rules(rules: &ExportRules) -> Result<(), ExportError> {
    match rules.networks.len() {
        1..=EXPORT_NETWORKS_MAX => Ok(()),
        count => Err(ExportError::Networks(count)),
    }
}

/// The names of a path from the volume's root on.
fn names_of(path: &str) -> Result<Vec<&str>, ExportError> {
    let refused = |why| ExportError::Path {
        path: path.chars().take(EXPORT_PATH_BYTES_MAX).collect(),
        why,
    };
    let Some(below) = path.strip_prefix('/') else {
        return Err(refused(
            "it has to begin with /, which is the volume's root; files of this machine are not exported",
        ));
    };
    if path.len() > EXPORT_PATH_BYTES_MAX {
        return Err(refused("it is longer than 1024 bytes"));
    }
    let names = below.split('/').filter(|name| !matches!(*name, "" | "."));
    let names: Vec<&str> = names.collect();
    if names.contains(&"..") {
        return Err(refused("it contains `..`"));
    }
    if names.iter().any(|name| name.contains('\0')) {
        return Err(refused("it contains a NUL"));
    }
    if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
        return Err(refused("one of its names is longer than 255 bytes"));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a path is brought into one form, and what can be none is refused
    /// with the reason.
    #[test]
    fn paths_are_checked() {
        assert_eq!(names_of("/"), Ok(vec![]));
        assert_eq!(names_of("//a/./b/"), Ok(vec!["a", "b"]));
        let long = format!("/{}", "x".repeat(256));
        let longer = "/x".repeat(600);
        let cases = [
            ("", "begin"),
            ("srv/data", "begin"),
            ("/a/../b", ".."),
            ("/a\0", "NUL"),
            (&long, "255"),
            (&longer, "1024"),
        ];
        for (path, word) in cases {
            let error = names_of(path).expect_err("no path").to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
