//! Orders of the admin API about exports, and what an administrator should know
//! about them.

use crossdock_admin::{Answer, ExportAddition, ExportAnswer, ExportChange, ExportStatus, Refusal};
use crossdock_host::{ExportError, ExportTicket, Host};
use crossdock_members::ExportRecord;
use crossdock_net::now;
use crossdock_peer::{ExportRules, Network};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{Shell, wall_time};
use crate::report::{self, Surroundings};

/// What the log says of an export that was removed.
const REMOVED: &str = "exported no more";

impl Shell {
    pub(super) fn list_exports(&self) -> Answer {
        let exports: Vec<_> = self.host.exports().iter().map(status).collect();
        report::json(&exports)
    }

    /// Begins to export a directory; whoever asked waits for its walk, and for the
    /// registry.
    pub(super) fn add_export(&mut self, addition: ExportAddition, reply: oneshot::Sender<Answer>) {
        let rules = addition.rules.apply(ExportRules::local());
        let begun = self
            .host
            .add_export(now(), wall_time(), &addition.path, rules);
        self.await_export(begun, "exported", reply);
    }

    /// Begins to change an export; as above.
    pub(super) fn set_export(
        &mut self,
        id: u32,
        change: ExportChange,
        reply: oneshot::Sender<Answer>,
    ) {
        let export = self.host.exports().iter().find(|export| export.id == id);
        let begun = match export {
            Some(export) => {
                let rules = change.apply(export.rules.clone());
                self.host.set_export(now(), wall_time(), id, rules)
            }
            None => Err(ExportError::Unknown(id)),
        };
        self.await_export(begun, "export changed", reply);
    }

    /// Begins to remove an export; as above.
    pub(super) fn remove_export(&mut self, id: u32, reply: oneshot::Sender<Answer>) {
        let begun = self.host.remove_export(now(), wall_time(), id);
        self.await_export(begun, REMOVED, reply);
    }

    pub(super) fn take_export_changed(
        &mut self,
        ticket: ExportTicket,
        result: Result<ExportRecord, ExportError>,
    ) {
        let (host, surroundings) = (&self.host, &self.surroundings);
        self.export_replies
            .end(&ticket, |done| answer(host, surroundings, result, done));
    }

    fn await_export(
        &mut self,
        begun: Result<ExportTicket, ExportError>,
        done: &'static str,
        reply: oneshot::Sender<Answer>,
    ) {
        let begun = begun.map_err(|error| refusal(&error));
        self.export_replies.keep(begun, done, reply);
    }

    /// What an administrator should know at the start.
    pub(crate) fn tell_exports(&self) {
        for warning in report::export_warnings(&self.host, &self.surroundings) {
            warn!("{warning}");
        }
    }
}

fn answer(
    host: &Host,
    surroundings: &Surroundings,
    result: Result<ExportRecord, ExportError>,
    done: &str,
) -> Answer {
    let export = result.map_err(|error| refusal(&error))?;
    let networks: Vec<String> = export
        .rules
        .networks
        .iter()
        .map(Network::to_string)
        .collect();
    info!(
        path = %export.path,
        export = export.id,
        networks = %networks.join(","),
        read_only = export.rules.read_only,
        squash = ?export.rules.squash,
        "{done}"
    );
    let notes = match done {
        REMOVED => Vec::new(),
        _ => report::export_notes(&export, host.exports(), surroundings),
    };
    report::json(&ExportAnswer {
        export: status(&export),
        notes,
    })
}

fn status(record: &ExportRecord) -> ExportStatus {
    ExportStatus {
        id: record.id,
        path: record.path.clone(),
        rules: record.rules.clone(),
    }
}

fn refusal(error: &ExportError) -> Refusal {
    let what = error.to_string();
    match error {
        ExportError::Path { .. } | ExportError::Networks(_) | ExportError::NotDirectory { .. } => {
            Refusal::Invalid(what)
        }
        ExportError::Unknown(_) | ExportError::NotFound { .. } => Refusal::Unknown(what),
        ExportError::TooMany
        | ExportError::Exported { .. }
        | ExportError::Volume(_)
        | ExportError::Changed { .. }
        | ExportError::Busy
        | ExportError::NotJoined
        | ExportError::Unanswered
        | ExportError::Registry(_) => Refusal::Conflict(what),
    }
}
