//! How connections end: their client is done, or has had its time.

use std::time::Duration;

use crossdock_limits::NFS_CONNECTION_YIELDS_SECONDS_MIN;
use crossdock_nfs3::Procedure;
use crossdock_types::Time;

use crate::connection::{Connection, STUCK_PATIENCE};
use crate::door::{NfsDoor, Origin, Then};
use crate::message::{ConnId, NfsEffect};
use crate::request::Expected;

/// Connections that give way at a time, so that not every new one looks through
/// all of them.
const IDLEST_ENDED: usize = 64;

impl NfsDoor {
    /// Something has happened to a connection: when is it to be looked at?
    pub(crate) fn watch(&mut self, now: Time, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.note(now);
            let deadline = connection.deadline(&self.config.limits);
            self.wake = self.wake.into_iter().chain(deadline).min();
        }
    }

    /// Ends connections whose clients have had their time. Everything else has
    /// gone on since its deadline was noted: the next one is looked for.
    pub(crate) fn end_stalled(&mut self, now: Time) {
        if self.wake.is_none_or(|wake| now < wake) {
            return;
        }
        let limits = self.config.limits;
        let is_late = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let mut late = self.those(|connection| is_late(connection.deadline(&limits)));
        if self.is_pressed() {
            late.extend(self.those(|connection| is_late(connection.pressed_deadline(&limits))));
            if late.is_empty() {
                // They all wait for each other.
                let patience = limits.pressed_patience;
                late.extend(self.those(|connection| {
                    is_late(connection.clogs_since().map(|since| since + patience))
                }));
            }
            late.sort_unstable();
            late.dedup();
        }
        for id in late {
            // What is sent to one that does not read would never be gone. Room
            // that one leaves may let another go on, and end, meanwhile.
            match self.connections.get(&id).map(|late| late.unsent_bytes) {
                Some(0) => self.close(now, id),
                Some(_) => self.abort(now, id),
                None => {}
            }
        }
        let is_held =
            |_: &ConnId, since: &mut Time| is_late(Some(*since + limits.stalled_patience));
        for (id, _) in self.closing.extract_if(.., is_held) {
            self.effects.push_back(NfsEffect::Abort(id));
        }
        let open = self.connections.values();
        let open = open.filter_map(|connection| connection.deadline(&limits));
        let closing = self.closing.values();
        let closing = closing.map(|&since| since + limits.stalled_patience);
        let pressed = self.is_pressed().then(|| now + STUCK_PATIENCE);
        self.wake = open.chain(closing).chain(pressed).min();
    }

    fn those(&self, which: impl Fn(&Connection) -> bool) -> Vec<ConnId> {
        let all = self.connections.iter();
        all.filter(|(_, connection)| which(connection))
            .map(|(&id, _)| id)
            .collect()
    }

    /// Ends some of the connections that have been without a call for longest, to
    /// make room for others; whether there were any.
    pub(crate) fn end_idlest(&mut self, now: Time) -> bool {
        let patience = Duration::from_secs(NFS_CONNECTION_YIELDS_SECONDS_MIN);
        let idle = self.connections.iter().filter_map(|(&id, connection)| {
            let since = connection.idle_since()?;
            (since + patience <= now).then_some((since, id))
        });
        let mut idle: Vec<(Time, ConnId)> = idle.collect();
        idle.sort_unstable();
        idle.truncate(IDLEST_ENDED);
        for &(_, id) in &idle {
            self.close(now, id);
        }
        !idle.is_empty()
    }

    /// Ends a connection whose client has sent its last call, once every call
    /// has its reply.
    pub(crate) fn close_if_done(&mut self, now: Time, id: ConnId) {
        let is_done = |connection: &Connection| {
            connection.is_peer_done && connection.calls == 0 && !connection.is_paused
        };
        if self.connections.get(&id).is_some_and(is_done) {
            self.close(now, id);
        }
    }

    /// Ends a connection; replies still go out.
    pub(crate) fn close(&mut self, now: Time, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.outbox.is_empty()
        {
            let replies = std::mem::take(&mut connection.outbox);
            self.effects.push_back(NfsEffect::Send(id, replies));
        }
        self.effects.push_back(NfsEffect::Close(id));
        self.closing.insert(id, now);
        let deadline = now + self.config.limits.stalled_patience;
        self.wake = self.wake.into_iter().chain([deadline]).min();
        self.forget(now, id);
    }

    /// Ends a connection whose client takes no replies.
    fn abort(&mut self, now: Time, id: ConnId) {
        self.effects.push_back(NfsEffect::Abort(id));
        self.forget(now, id);
    }

    pub(crate) fn forget(&mut self, now: Time, id: ConnId) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        self.bytes -= connection.unsent_bytes + connection.filling_bytes + connection.arrived_bytes;
        self.arrived_bytes -= connection.arrived_bytes;
        if connection.is_waiting {
            self.leave_lines(id);
        }
        for (call, pending) in &self.calls {
            let is_its = matches!(pending.origin, Origin::Stream(of, _) if of == id);
            if is_its && matches!(pending.then, Then::Nfs(Expected::Plain(Procedure::Read))) {
                self.effects.push_back(NfsEffect::Withdraw(*call));
            }
        }
        self.readers.lost(id, self.config.delivery);
        self.wake_waiting(now);
    }
}
