//! How what the door may hold is shared among its connections (docs/overload.md).
//!
//! A connection is read from while it has room, and while the door has. The last
//! part of the door is kept for connections that hold little, so that a few that
//! hold much never keep the others from being served. Whoever finds no room
//! waits in line: the small in one, the large in another, and those in a third of
//! whose call only a part is here.

use std::time::Duration;

use crossdock_limits::RPC_RECORD_BYTES_MAX;
use crossdock_types::Time;

use crate::connection::STUCK_PATIENCE;
use crate::door::NfsDoor;
use crate::message::{ConnId, DoorLimits, NfsEffect};

/// A connection that holds no more, the call that it begins included, is small.
pub(crate) const SMALL_BYTES: usize = 64 << 10;

/// One part in so many of the door is for the small.
const RESERVE_PARTS: usize = 8;

/// Calls that a connection may begin before the others have had their turn.
pub(crate) const TURN_CALLS: u32 = 32;

/// A beginning of this length may become a record of any.
pub(crate) const fn part_bytes(gathered_bytes: usize) -> usize {
    match gathered_bytes > SMALL_BYTES {
        true => RPC_RECORD_BYTES_MAX,
        false => gathered_bytes,
    }
}

/// Where connections wait for room in the door.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    /// Those who want little.
    Small,
    /// The others.
    Large,
    /// Those who have begun a record.
    Part,
}

impl Line {
    pub(crate) const COUNT: usize = 3;
}

/// What may be held in all before somebody who holds `bytes` has to wait.
struct Bound {
    calls: usize,
    bytes: usize,
}

impl Bound {
    const fn of(limits: &DoorLimits, bytes: usize) -> Self {
        let (calls, all) = (limits.calls_max, limits.bytes_max);
        if bytes <= SMALL_BYTES {
            return Self { calls, bytes: all };
        }
        Self {
            calls: calls - calls / RESERVE_PARTS,
            bytes: all - all / RESERVE_PARTS,
        }
    }
}

impl NfsDoor {
    /// Whether somebody who holds `held_bytes` may hold `more_bytes` on top; nobody may
    /// while the door cannot tell true handles from others. To send clients away would
    /// not do: what they ask may have been done for them by another gateway.
    pub(crate) fn has_room(&self, held_bytes: usize, more_bytes: usize) -> bool {
        if self.config.keys.is_none() && !self.is_scoped {
            return false;
        }
        let bound = Bound::of(&self.config.limits, held_bytes + more_bytes);
        self.calls.len() < bound.calls && self.bytes + more_bytes <= bound.bytes
    }

    /// Whether beginnings of records may grow: they leave half of the door to calls.
    pub(crate) const fn has_room_for_parts(&self) -> bool {
        self.arrived_bytes <= self.config.limits.bytes_max / 2
    }

    /// The line of those who want to hold `bytes`.
    const fn line_of(bytes: usize) -> Line {
        match bytes <= SMALL_BYTES {
            true => Line::Small,
            false => Line::Large,
        }
    }

    /// The door is full for this connection, which wants to hold `more_bytes`: it
    /// is read from again in its turn.
    pub(crate) fn line_up(&mut self, now: Time, id: ConnId, more_bytes: usize) {
        if let Some(connection) = self.connections.get(&id) {
            let line = Self::line_of(connection.held_bytes() + more_bytes);
            self.stand_in(now, id, line);
        }
    }

    /// The same for what is no call yet.
    pub(crate) fn line_up_part(&mut self, now: Time, id: ConnId) {
        self.stand_in(now, id, Line::Part);
    }

    fn stand_in(&mut self, now: Time, id: ConnId, line: Line) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.is_waiting
        {
            connection.is_waiting = true;
            self.lines[line as usize].push_back(id);
        }
        let pressed = now + STUCK_PATIENCE;
        self.wake = self.wake.into_iter().chain([pressed]).min();
        self.pause(now, id);
    }

    /// A connection that is no more waits for nothing.
    pub(crate) fn leave_lines(&mut self, id: ConnId) {
        for line in &mut self.lines {
            line.retain(|waiting| *waiting != id);
        }
    }

    pub(crate) fn pause(&mut self, now: Time, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.is_paused
        {
            connection.is_paused = true;
            connection.paused_since = now;
            self.figures.pauses_total += 1;
            self.effects.push_back(NfsEffect::Pause(id));
        }
    }

    /// Whether somebody waits because the door is full.
    pub(crate) fn is_pressed(&self) -> bool {
        self.lines.iter().any(|line| !line.is_empty())
    }

    /// Lets those go on that wait for room, in the order in which they began to
    /// wait; `id` has just made some.
    pub(crate) fn after_room(&mut self, now: Time, id: ConnId) {
        if let Some(connection) = self.connections.get(&id)
            && connection.is_paused
            && !connection.is_waiting
        {
            match self.is_pressed() {
                true => self.line_up(now, id, 0),
                false => self.resume(now, id),
            }
        }
        self.wake_waiting(now);
    }

    pub(crate) fn wake_waiting(&mut self, now: Time) {
        for line in [Line::Small, Line::Large, Line::Part] {
            while self.has_room_for(line)
                && let Some(id) = self.lines[line as usize].pop_front()
            {
                let is_first_again = !self.wake(now, id) && self.keeps_place(line, id);
                if is_first_again {
                    break;
                }
            }
        }
    }

    fn has_room_for(&self, line: Line) -> bool {
        match line {
            Line::Small => self.has_room(0, 0),
            Line::Large => self.has_room(SMALL_BYTES + 1, 0),
            Line::Part => self.has_room(0, 0) && self.has_room_for_parts(),
        }
    }

    /// The first in line, woken, may want more than there is as yet: then it has
    /// gone to the end, and comes to the front again.
    fn keeps_place(&mut self, line: Line, id: ConnId) -> bool {
        let line = &mut self.lines[line as usize];
        let is_back = line.back() == Some(&id);
        if is_back {
            line.rotate_right(1);
        }
        is_back
    }

    /// Serves a connection that was not read from; its calls tell how long.
    fn resume(&mut self, now: Time, id: ConnId) {
        let connection = self.connections.get(&id);
        let paused = connection.filter(|connection| connection.is_paused);
        self.queued = paused.map_or(Duration::ZERO, |paused| now.since(paused.paused_since));
        self.pump(now, id);
        self.queued = Duration::ZERO;
    }

    /// Lets one go on; whether it could begin a call.
    fn wake(&mut self, now: Time, id: ConnId) -> bool {
        let calls_before = self.calls_total;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_waiting = false;
            self.resume(now, id);
        }
        self.calls_total > calls_before
    }

    /// A connection has begun as many calls as it may: the others come first.
    pub(crate) fn await_turn(&mut self, now: Time, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.awaits_turn
        {
            connection.awaits_turn = true;
            self.turns.push_back(id);
            self.next_turn = Some(now);
            self.pause(now, id);
        }
    }

    /// The others have had their turn.
    pub(crate) fn take_turns(&mut self, now: Time) {
        self.next_turn = None;
        for id in std::mem::take(&mut self.turns) {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.awaits_turn = false;
                connection.turn_calls = 0;
                if !connection.is_waiting {
                    self.resume(now, id);
                }
            }
        }
    }
}
