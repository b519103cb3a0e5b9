//! Orders of the admin API about quotas.

use crossdock_admin::{Answer, QuotaAnswer, QuotaSetting, QuotaStatus, Refusal};
use crossdock_host::{PlacedQuota, QuotaError, QuotaTicket};
use crossdock_net::now;
use tokio::sync::oneshot;
use tracing::info;

use super::{Shell, wall_time};
use crate::report;

/// What the log says of a quota that was set, and of one that was removed.
const SET: &str = "quota set";
const REMOVED: &str = "quota removed";

impl Shell {
    pub(super) fn list_quotas(&self) -> Answer {
        let quotas: Vec<_> = self.host.quotas().iter().map(status).collect();
        report::json(&quotas)
    }

    /// Begins to set a quota; whoever asked waits for the site.
    pub(super) fn set_quota(&mut self, setting: &QuotaSetting, reply: oneshot::Sender<Answer>) {
        let (path, change) = (&setting.path, setting.limits);
        let begun = self.host.set_quota(now(), wall_time(), path, change);
        self.await_quota(begun, SET, reply);
    }

    /// Begins to remove a quota; as above.
    pub(super) fn remove_quota(&mut self, id: u64, reply: oneshot::Sender<Answer>) {
        let begun = self.host.remove_quota(now(), wall_time(), id);
        self.await_quota(begun, REMOVED, reply);
    }

    pub(super) fn take_quota_changed(
        &mut self,
        ticket: QuotaTicket,
        result: Result<PlacedQuota, QuotaError>,
    ) {
        self.quota_replies.end(&ticket, |done| answer(result, done));
    }

    fn await_quota(
        &mut self,
        begun: Result<QuotaTicket, QuotaError>,
        done: &'static str,
        reply: oneshot::Sender<Answer>,
    ) {
        let begun = begun.map_err(|error| refusal(&error));
        self.quota_replies.keep(begun, done, reply);
    }
}

fn answer(result: Result<PlacedQuota, QuotaError>, done: &str) -> Answer {
    let placed = result.map_err(|error| refusal(&error))?;
    let quota = status(&placed);
    info!(
        path = %quota.path,
        bytes = quota.bytes,
        files = quota.files,
        used_bytes = quota.used_bytes,
        used_files = quota.used_files,
        "{done}"
    );
    let is_above = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used > limit);
    let mut notes = Vec::new();
    let is_full =
        is_above(quota.used_bytes, quota.bytes) || is_above(quota.used_files, quota.files);
    if done == SET && is_full {
        notes.push(format!(
            "{} holds more than that already: nothing in it can grow until enough is removed",
            quota.path
        ));
    }
    report::json(&QuotaAnswer { quota, notes })
}

fn status(placed: &PlacedQuota) -> QuotaStatus {
    let quota = &placed.quota;
    QuotaStatus {
        id: quota.root.id.0,
        path: placed.path.clone(),
        bytes: quota.limits.bytes,
        used_bytes: quota.used_bytes,
        percent_bytes: percent(quota.used_bytes, quota.limits.bytes),
        files: quota.limits.files,
        used_files: quota.used_files,
        percent_files: percent(quota.used_files, quota.limits.files),
    }
}

/// How many of 100; what nothing is allowed of is used up.
fn percent(used: u64, limit: Option<u64>) -> Option<u64> {
    let limit = u128::from(limit?);
    let percent = (u128::from(used) * 100).checked_div(limit);
    Some(percent.map_or(100, |percent| u64::try_from(percent).unwrap_or(u64::MAX)))
}

fn refusal(error: &QuotaError) -> Refusal {
    let what = error.to_string();
    match error {
        QuotaError::Path { .. } | QuotaError::NoLimit { .. } | QuotaError::NotDirectory { .. } => {
            Refusal::Invalid(what)
        }
        QuotaError::Unknown(_) | QuotaError::NotFound { .. } => Refusal::Unknown(what),
        QuotaError::TooMany
        | QuotaError::InTheWay { .. }
        | QuotaError::Scattered { .. }
        | QuotaError::Volume(_)
        | QuotaError::Busy => Refusal::Conflict(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: percentages are rounded down, go beyond 100, and need a limit.
    #[test]
    fn percentages_are_of_the_limit() {
        assert_eq!(percent(5, None), None);
        assert_eq!(percent(999, Some(1000)), Some(99));
        assert_eq!(percent(3, Some(2)), Some(150));
        assert_eq!(percent(0, Some(0)), Some(100));
        assert_eq!(percent(u64::MAX, Some(1)), Some(u64::MAX));
    }
}
