//! How connections begin, and end when their clients have had their time.

use std::net::SocketAddr;

use crossdock_http1::Status;
use crossdock_types::{Time, WallTime};

use crate::connection::{Connection, Late};
use crate::door::HttpDoor;
use crate::message::{ConnId, HttpEffect};

impl HttpDoor {
    /// A client has connected. If there are too many the idlest gives way.
    pub(crate) fn open(&mut self, now: Time, wall: WallTime, id: ConnId, peer: SocketAddr) {
        let is_full = self.connections.len() >= self.config.limits.connections_max;
        let gives_way = is_full.then(|| self.idlest()).flatten();
        self.connections.insert(id, Connection::new(now, peer));
        match gives_way {
            Some(idlest) => self.shut(idlest),
            None if is_full => {
                let hint = "too many connections; try again in a second";
                self.answer_unread(wall, id, Status::ServiceUnavailable, hint);
            }
            None => {}
        }
        self.watch(now, id);
    }

    /// Ends all connections: those that change a name behind their answer, the others at
    /// once, as a download could take for ever.
    pub(crate) fn stop(&mut self, now: Time) {
        let all: Vec<ConnId> = self.connections.keys().copied().collect();
        for id in all {
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            match connection.exchange.as_deref_mut() {
                Some(exchange) if exchange.is_changing() => exchange.keep_alive = false,
                Some(_) => self.abort(now, id),
                None => self.shut(id),
            }
        }
    }

    /// The connection that has been without a request for longest.
    fn idlest(&self) -> Option<ConnId> {
        let idle = self.connections.iter();
        let idle = idle.filter(|(_, connection)| connection.is_idle() && !connection.is_closing);
        idle.min_by_key(|(_, connection)| connection.active)
            .map(|(&id, _)| id)
    }

    /// Something has happened to a connection: when is it to be looked at?
    pub(crate) fn watch(&mut self, now: Time, id: ConnId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        debug_assert!(connection.active <= now, "time goes on");
        let due = connection.deadline(&self.config.limits);
        self.wake = self.wake.into_iter().chain(due.map(|(due, _)| due)).min();
    }

    /// The time has come for something.
    pub(crate) fn take_timeout(&mut self, now: Time, wall: WallTime) {
        while let Some(&(when, id)) = self.retries.first()
            && when <= now
        {
            self.retries.pop_first();
            self.retry_stream(now, id);
        }
        if self.delivery.poll_timeout().is_some_and(|due| due <= now) {
            self.delivery.timeout(now);
            self.carry_decisions(now);
        }
        if self.wake.is_some_and(|wake| wake <= now) {
            self.end_late(now, wall);
        }
    }

    /// Ends connections whose clients have had their time. Others have gone on since their
    /// deadlines were noted: the next one is looked for.
    fn end_late(&mut self, now: Time, wall: WallTime) {
        let limits = self.config.limits;
        let mut late = Vec::new();
        let mut next = None;
        for (&id, connection) in &self.connections {
            match connection.deadline(&limits) {
                Some((due, why)) if due <= now => late.push((id, why)),
                Some((due, _)) => next = Some(next.map_or(due, |next: Time| next.min(due))),
                None => {}
            }
        }
        self.wake = next;
        for (id, why) in late {
            match why {
                Late::Idle => self.end_idle(id),
                Late::Head => {
                    self.figures.late_total += 1;
                    let hint = "the request was not complete in time";
                    self.answer_unread(wall, id, Status::RequestTimeout, hint);
                    self.touch(now, id);
                }
                Late::Body => {
                    self.figures.late_total += 1;
                    self.clean_up(now, id);
                    let hint = "the content did not go on in time";
                    self.answer_unread(wall, id, Status::RequestTimeout, hint);
                    self.touch(now, id);
                }
                Late::Reader => {
                    self.figures.late_total += 1;
                    self.abort(now, id);
                }
            }
        }
    }

    /// It has been told why it ends, and has its time to read that.
    fn touch(&mut self, now: Time, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.active = now;
        }
        self.watch(now, id);
    }

    fn end_idle(&mut self, id: ConnId) {
        let is_closing = self
            .connections
            .get(&id)
            .is_some_and(|connection| connection.is_closing);
        match is_closing {
            // It was to end long ago, and its client does not let it.
            true => self.effects.push_back(HttpEffect::Abort(id)),
            false => self.shut(id),
        }
    }
}
