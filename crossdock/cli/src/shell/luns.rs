//! Orders of the admin API about LUNs.

use crossdock_admin::{Answer, LunChange, LunCreation, LunStatus, Refusal};
use crossdock_host::{LunError, LunTicket, LunWish};
use crossdock_net::now;
use crossdock_peer::Lun;
use tokio::sync::oneshot;
use tracing::info;

use super::waiting::tell;
use super::{Shell, wall_time};
use crate::{data, report};

/// What the log says of a LUN.
const CREATED: &str = "LUN created";
const CHANGED: &str = "LUN changed";
const REMOVED: &str = "LUN removed";

impl Shell {
    pub(super) fn list_luns(&self) -> Answer {
        let luns = self.host.lun_records().iter();
        let luns: Vec<_> = luns.map(LunStatus::from).collect();
        report::json(&luns)
    }

    /// Begins to make a LUN; whoever asked waits for its file, and for the registry.
    pub(super) fn create_lun(&mut self, creation: LunCreation, reply: oneshot::Sender<Answer>) {
        let id = match data::random_u64() {
            Ok(id) => id,
            Err(error) => return tell(reply, Err(Refusal::Conflict(format!("{error:#}")))),
        };
        let wish = LunWish {
            id,
            name: creation.name,
            size_bytes: creation.size_bytes,
            block_bytes: creation.block_bytes,
            is_thin: creation.thin,
            is_removable: creation.removable,
            has_write_cache: creation.write_cache,
            from: creation.from,
            access: creation.access,
        };
        let begun = self.host.create_lun(now(), wall_time(), wish);
        let begun = begun.map_err(|error| refusal(&error));
        self.lun_replies.keep(begun, CREATED, reply);
    }

    /// Begins to change a LUN: its size, or who may use it.
    pub(super) fn set_lun(
        &mut self,
        name: &str,
        change: &LunChange,
        reply: oneshot::Sender<Answer>,
    ) {
        let begun = match change.size_bytes {
            Some(size_bytes) => self.host.resize_lun(now(), wall_time(), name, size_bytes),
            None => {
                let known = self.host.lun_records().iter().find(|lun| lun.name == name);
                match known.map(|lun| change.apply(&lun.access)) {
                    Some(access) => self.host.set_lun_access(now(), wall_time(), name, access),
                    None => Err(LunError::Unknown(name.to_owned())),
                }
            }
        };
        let begun = begun.map_err(|error| refusal(&error));
        self.lun_replies.keep(begun, CHANGED, reply);
    }

    /// Begins to remove a LUN.
    pub(super) fn remove_lun(&mut self, name: &str, reply: oneshot::Sender<Answer>) {
        let begun = self.host.remove_lun(now(), wall_time(), name);
        let begun = begun.map_err(|error| refusal(&error));
        self.lun_replies.keep(begun, REMOVED, reply);
    }

    pub(super) fn take_lun_changed(&mut self, ticket: LunTicket, result: Result<Lun, LunError>) {
        self.lun_replies.end(&ticket, |done| {
            let lun = result.map_err(|error| refusal(&error))?;
            let status = LunStatus::from(&lun);
            info!(lun = %status.name, size_bytes = status.size_bytes, "{done}");
            report::json(&status)
        });
    }
}

fn refusal(error: &LunError) -> Refusal {
    let what = error.to_string();
    match error {
        LunError::Name(_)
        | LunError::Size { .. }
        | LunError::Block(_)
        | LunError::Shrinks { .. }
        | LunError::Cached
        | LunError::Removable
        | LunError::Access(_)
        | LunError::Path { .. }
        | LunError::SourceTooLong { .. } => Refusal::Invalid(what),
        LunError::Unknown(_) | LunError::NoSource(_) => Refusal::Unknown(what),
        LunError::Exists(_)
        | LunError::TooMany
        | LunError::Changed(_)
        | LunError::NoSpace
        | LunError::Volume(_)
        | LunError::Busy
        | LunError::NotJoined
        | LunError::Unanswered
        | LunError::Registry(_) => Refusal::Conflict(what),
    }
}
