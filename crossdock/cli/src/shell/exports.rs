//! Orders of the admin API about exports, and what an administrator should know
//! about them.

use crossdock_admin::{Answer, ExportAddition, ExportAnswer, ExportChange, ExportStatus, Refusal};
use crossdock_host::{ExportError, ExportTicket};
use crossdock_members::ExportRecord;
use crossdock_net::now;
use crossdock_peer::{ExportRules, Network};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{Shell, wall_time};
use crate::report;

impl Shell {
    pub(super) fn list_exports(&self) -> Answer {
        let exports: Vec<_> = self.host.exports().iter().map(status).collect();
        report::json(&exports)
    }

    /// Begins to export a directory; whoever asked waits for its walk.
    pub(super) fn add_export(&mut self, addition: ExportAddition, reply: oneshot::Sender<Answer>) {
        let rules = addition.rules.apply(ExportRules::local());
        let begun = self
            .host
            .add_export(now(), wall_time(), &addition.path, rules);
        match begun {
            Ok(ticket) => {
                self.export_replies.insert(ticket, reply);
            }
            Err(error) => {
                // The asker may have gone away meanwhile.
                let _ = reply.send(Err(refusal(&error)));
            }
        }
    }

    pub(super) fn take_export_added(
        &mut self,
        ticket: ExportTicket,
        result: Result<ExportRecord, ExportError>,
    ) {
        let answer = self.answer_export(result, "exported");
        if let Some(reply) = self.export_replies.remove(&ticket) {
            let _ = reply.send(answer); // As above.
        }
    }

    pub(super) fn set_export(&mut self, id: u32, change: ExportChange) -> Answer {
        let export = self.host.exports().iter().find(|export| export.id == id);
        let result = match export {
            Some(export) => {
                let rules = change.apply(export.rules.clone());
                self.host.set_export(now(), wall_time(), id, rules)
            }
            None => Err(ExportError::Unknown(id)),
        };
        self.answer_export(result, "export changed")
    }

    pub(super) fn remove_export(&mut self, id: u32) -> Answer {
        let removed = self.host.remove_export(now(), wall_time(), id);
        let export = removed.map_err(|error| refusal(&error))?;
        info!(path = %export.path, export = export.id, "exported no more");
        report::json(&ExportAnswer {
            export: status(&export),
            notes: Vec::new(),
        })
    }

    /// What an administrator should know at the start.
    pub(crate) fn tell_exports(&self) {
        for warning in report::export_warnings(&self.host, &self.surroundings) {
            warn!("{warning}");
        }
    }

    fn answer_export(&self, result: Result<ExportRecord, ExportError>, done: &str) -> Answer {
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
        let notes = report::export_notes(&export, self.host.exports(), &self.surroundings);
        report::json(&ExportAnswer {
            export: status(&export),
            notes,
        })
    }
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
        | ExportError::Busy
        | ExportError::Registry(_) => Refusal::Conflict(what),
    }
}
