//! What has arrived on a connection: cut into records and served while there is room,
//! and while it is the connection's turn.

use crossdock_types::Time;

use crate::door::{NfsDoor, Origin, Unserved};
use crate::message::{ConnId, NfsEffect};
use crate::room::TURN_CALLS;

impl NfsDoor {
    /// Something has arrived on a connection.
    pub(crate) fn go_on(&mut self, now: Time, id: ConnId) {
        match self.connections.get(&id) {
            Some(connection) if connection.is_paused || connection.awaits_turn => self.recount(id),
            _ => self.pump(now, id),
        }
    }

    /// Serves what has arrived while there is room, and it is its turn.
    pub(crate) fn pump(&mut self, now: Time, id: ConnId) {
        self.serve_arrived(now, id);
        self.recount(id);
        self.watch(now, id);
        self.close_if_done(now, id);
    }

    fn serve_arrived(&mut self, now: Time, id: ConnId) {
        self.recount(id);
        loop {
            let Some(connection) = self.connections.get(&id) else {
                return;
            };
            if connection.awaits_turn {
                return;
            }
            if !self.has_room(connection.held_bytes(), 0) {
                return self.line_up(now, id, 0);
            }
            if !connection.has_room(&self.config.limits) {
                return self.pause(now, id);
            }
            if connection.turn_calls >= TURN_CALLS && connection.has_arrived() {
                return self.await_turn(now, id);
            }
            let Some(connection) = self.connections.get_mut(&id) else {
                return;
            };
            let origin = Origin::Stream(id, connection.peer);
            let is_portmap = connection.is_portmap;
            let served = match connection.next_record() {
                Ok(Some(record)) => {
                    connection.turn_calls += 1;
                    self.recount(id);
                    if is_portmap {
                        self.map_record(origin, &record)
                    } else {
                        self.serve(now, origin, record)
                    }
                }
                Ok(None) => break,
                Err(_) => Err(Unserved::NotACall),
            };
            match served {
                Ok(()) => {}
                Err(Unserved::NoRoom(record, bytes)) => {
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.park(record);
                    }
                    return self.line_up(now, id, bytes);
                }
                Err(Unserved::NotACall) => return self.close(now, id),
            }
        }
        self.read_on(now, id);
    }

    /// All that has arrived is served: what is missing may come.
    fn read_on(&mut self, now: Time, id: ConnId) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let (held_bytes, rest_bytes) = (connection.held_bytes(), connection.fill_bytes());
        if rest_bytes > 0 && !self.has_room(held_bytes, rest_bytes) {
            return self.line_up(now, id, rest_bytes);
        }
        if connection.arrived_bytes > 0 && !self.has_room_for_parts() {
            return self.line_up_part(now, id);
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.calls == 0 {
            connection.turn_calls = 0;
        }
        if let Some(fill) = connection.begin_fill() {
            self.bytes += connection.filling_bytes;
            self.effects.push_back(NfsEffect::Fill(id, fill));
        }
        if connection.is_paused {
            connection.is_paused = false;
            self.effects.push_back(NfsEffect::Resume(id));
        }
    }

    /// Counts what a connection has sent that is no call yet.
    fn recount(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let arrived_bytes = connection.count_arrived();
            self.bytes = self.bytes + arrived_bytes - connection.arrived_bytes;
            self.arrived_bytes = self.arrived_bytes + arrived_bytes - connection.arrived_bytes;
            connection.arrived_bytes = arrived_bytes;
        }
    }
}
