//! How connections end: their client is done, or has had its time.

use crossdock_nfs3::Procedure;
use crossdock_types::Time;

use crate::connection::Connection;
use crate::door::{NfsDoor, Origin, Then};
use crate::message::{ConnId, NfsEffect};
use crate::request::Expected;

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
        let late: Vec<ConnId> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_late(connection.deadline(&limits)))
            .map(|(&id, _)| id)
            .collect();
        for id in late {
            // What is sent to one that does not read would never be gone.
            match self.connections[&id].unsent_bytes {
                0 => self.close(now, id),
                _ => self.abort(now, id),
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
        self.wake = open.chain(closing).min();
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
        self.bytes -= connection.unsent_bytes + connection.filling_bytes;
        if connection.is_waiting {
            self.waiting.retain(|waiting| *waiting != id);
        }
        for (call, pending) in &self.calls {
            let is_its = matches!(pending.origin, Origin::Stream(of, _) if of == id);
            if is_its && matches!(pending.then, Then::Nfs(Expected::Plain(Procedure::Read))) {
                self.effects.push_back(NfsEffect::Withdraw(*call));
            }
        }
        self.wake_waiting(now);
    }
}
