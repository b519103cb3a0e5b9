//! Orders of the admin API about locks.

use crossdock_admin::{Answer, LockKind, LockList, LockRelease, LockReleased, LockStatus, Refusal};
use crossdock_host::{Holdings, LockKind as Kind, PlacedLock, ReleaseError, ReleaseTicket};
use crossdock_net::now;
use tokio::sync::oneshot;
use tracing::warn;

use super::{Shell, wall_time};
use crate::report;

impl Shell {
    pub(super) fn list_locks(&self) -> Answer {
        let list = self.host.locks();
        report::json(&LockList {
            locks: list.locks.iter().map(status).collect(),
            count: list.count as u64,
            grace_period: list.is_grace,
        })
    }

    /// Begins to give up a client's locks; whoever asked waits for the site.
    pub(super) fn release_locks(&mut self, order: LockRelease, reply: oneshot::Sender<Answer>) {
        let begun = (self.host).release_locks(now(), wall_time(), &order.client);
        let begun = begun.map_err(|error| refusal(&error));
        self.release_replies.keep(begun, order.client, reply);
    }

    pub(super) fn take_locks_released(
        &mut self,
        ticket: ReleaseTicket,
        result: Result<Holdings, ReleaseError>,
    ) {
        (self.release_replies).end(&ticket, |client| answer(client, result));
    }
}

fn answer(client: String, result: Result<Holdings, ReleaseError>) -> Answer {
    let had = result.map_err(|error| refusal(&error))?;
    warn!(%client, released = had.held, cancelled = had.waiting, "locks released by an administrator");
    let mut notes = Vec::new();
    if had.clients > 1 {
        notes.push(format!(
            "{} clients of that name had locks; by address each can be named alone",
            had.clients
        ));
    }
    report::json(&LockReleased {
        client,
        clients: had.clients as u64,
        released: had.held as u64,
        cancelled: had.waiting as u64,
        notes,
    })
}

fn status(lock: &PlacedLock) -> LockStatus {
    let (kind, first, last, is_waiting) = match lock.what {
        Kind::Range {
            range,
            is_exclusive,
            is_waiting,
        } => {
            let kind = if is_exclusive {
                LockKind::Exclusive
            } else {
                LockKind::Shared
            };
            let last = Some(range.last).filter(|last| *last != u64::MAX);
            (kind, range.first, last, is_waiting)
        }
        Kind::Reservation(terms) => {
            let kind = match terms.deny {
                0 => LockKind::DenyNone,
                1 => LockKind::DenyRead,
                2 => LockKind::DenyWrite,
                _ => LockKind::DenyBoth,
            };
            (kind, 0, None, false)
        }
    };
    LockStatus {
        path: lock.path.clone(),
        file: lock.file,
        kind,
        first,
        last,
        is_waiting,
        client: String::from_utf8_lossy(&lock.owner.client.name).into_owned(),
        address: lock.owner.client.address.to_string(),
        process: lock.owner.process,
    }
}

fn refusal(error: &ReleaseError) -> Refusal {
    let what = error.to_string();
    match error {
        ReleaseError::Unknown(_) => Refusal::Unknown(what),
        ReleaseError::Volume(_) | ReleaseError::Busy => Refusal::Conflict(what),
    }
}
