//! Orders of the admin API about the policy of third-party transfer.

use crossdock_admin::{Answer, PolicySetting, PolicyStatus, Refusal};
use crossdock_host::{PolicyError, PolicyTicket};
use crossdock_members::PolicyRecord;
use crossdock_net::now;
use crossdock_peer::PolicyRule;
use tokio::sync::oneshot;
use tracing::info;

use super::waiting::tell;
use super::{Shell, wall_time};
use crate::{data, report};

/// What the log says of a rule that was set, and of one that was removed.
const SET: &str = "rule set";
const REMOVED: &str = "rule removed";

impl Shell {
    pub(super) fn list_policy(&self) -> Answer {
        let rules: Vec<_> = self.host.policy_records().iter().map(status).collect();
        report::json(&rules)
    }

    /// Begins to set a rule; whoever asked waits for its walk, and for the registry.
    pub(super) fn set_policy(&mut self, setting: PolicySetting, reply: oneshot::Sender<Answer>) {
        let id = match data::random_bytes() {
            Ok(bytes) => u32::from_le_bytes(bytes),
            Err(error) => return tell(reply, Err(Refusal::Conflict(format!("{error:#}")))),
        };
        let PolicySetting { path, mode, when } = setting;
        let rule = PolicyRule { mode, when };
        let begun = self.host.set_policy(now(), wall_time(), &path, (id, rule));
        let begun = begun.map_err(|error| refusal(&error));
        self.policy_replies.keep(begun, SET, reply);
    }

    /// Begins to remove a rule; whoever asked waits for the registry.
    pub(super) fn remove_policy(&mut self, id: u32, reply: oneshot::Sender<Answer>) {
        let begun = self.host.remove_policy(now(), wall_time(), id);
        let begun = begun.map_err(|error| refusal(&error));
        self.policy_replies.keep(begun, REMOVED, reply);
    }

    pub(super) fn take_policy_changed(
        &mut self,
        ticket: PolicyTicket,
        result: Result<PolicyRecord, PolicyError>,
    ) {
        self.policy_replies.end(&ticket, |done| {
            let record = result.map_err(|error| refusal(&error))?;
            let (status, mode) = (status(&record), record.rule.mode);
            info!(path = %record.path, rule = %status.id, %mode, when = ?record.rule.when, "{done}");
            report::json(&status)
        });
    }
}

fn status(record: &PolicyRecord) -> PolicyStatus {
    PolicyStatus {
        id: format!("{:08x}", record.id),
        path: record.path.clone(),
        rule: record.rule,
    }
}

fn refusal(error: &PolicyError) -> Refusal {
    let what = error.to_string();
    match error {
        PolicyError::Path { .. } | PolicyError::Lengths { .. } => Refusal::Invalid(what),
        PolicyError::NotFound { .. } | PolicyError::Unknown(_) => Refusal::Unknown(what),
        PolicyError::TooMany
        | PolicyError::Volume(_)
        | PolicyError::Busy
        | PolicyError::NotJoined
        | PolicyError::Unanswered
        | PolicyError::Registry(_) => Refusal::Conflict(what),
    }
}
