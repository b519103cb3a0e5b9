//! All connections of a loop, the events that wait for the caller, and the
//! list of connections that the kernel side must look at.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use socket2::SockRef;

use crate::buffers::BufferPool;
use crate::connection::Connection;
use crate::system::peer_of;
use crate::{CloseReason, ConnectionId, Event, ListenerId, Options};

/// More connections than this each get little memory for what they receive.
const UNCROWDED_MAX: usize = 128;
/// What the sockets of a crowd may hold together, and one of them at least.
const CROWD_BYTES: usize = 256 << 20;
const RECEIVE_BYTES_MIN: usize = 32 << 10;

pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    dirty: Vec<u32>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) pool: BufferPool,
    pub(crate) options: Options,
    /// How often the loop has waited.
    pub(crate) turns: u64,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

impl Table {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            events: VecDeque::new(),
            pool: BufferPool::default(),
            options,
            turns: 0,
        }
    }

    /// Whether one more connection may be accepted.
    pub(crate) const fn has_room(&self) -> bool {
        self.count() < self.options.connections_max
    }

    const fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are so many that each gets little memory.
    pub(crate) const fn is_crowded(&self) -> bool {
        self.count() > UNCROWDED_MAX
    }

    pub(crate) fn insert(&mut self, socket: OwnedFd) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("bounded by connections_max")
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let generation = slot.generation;
        let id = ConnectionId { generation, index };
        let low_water_bytes = self.options.send_queue_bytes_max / 2;
        slot.connection = Some(Connection::new(id, socket, low_water_bytes));
        self.mark(index);
        id
    }

    /// A connection was accepted. One that is broken already is not told of.
    pub(crate) fn admit(&mut self, listener: ListenerId, socket: OwnedFd) {
        if let Ok(peer) = peer_of(&socket) {
            if self.is_crowded() {
                // What the kernel holds for a peer that we do not read from.
                let share_bytes = CROWD_BYTES / self.count();
                let _ =
                    SockRef::from(&socket).set_recv_buffer_size(share_bytes.max(RECEIVE_BYTES_MIN));
            }
            let connection = self.insert(socket);
            self.events.push_back(Event::Accepted {
                listener,
                connection,
                peer,
            });
        }
    }

    /// Takes the connection out and tells the caller that it is gone.
    pub(crate) fn remove(&mut self, index: u32, why: CloseReason) -> Option<Connection> {
        let connection = self.slots.get_mut(index as usize)?.connection.take()?;
        self.free.push(index);
        self.events.push_back(Event::Closed {
            connection: connection.id,
            why,
        });
        Some(connection)
    }

    /// The connection of that name, if it still is.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        let slot = self.slots.get(id.index as usize)?;
        slot.connection.as_ref().filter(|found| found.id == id)
    }

    /// The same, to be changed in what the kernel side does not look at.
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.connection.as_mut().filter(|found| found.id == id)
    }

    /// The connection in that slot, and what it may speak to.
    pub(crate) fn at(&mut self, index: u32) -> Option<(&mut Connection, &mut VecDeque<Event>)> {
        let connection = self.slots.get_mut(index as usize)?.connection.as_mut()?;
        Some((connection, &mut self.events))
    }

    /// Lets the caller's command change a connection, and has the kernel side
    /// look at it. Does nothing for one that is gone.
    pub(crate) fn change<T>(
        &mut self,
        id: ConnectionId,
        change: impl FnOnce(&mut Connection, &mut VecDeque<Event>) -> T,
    ) -> Option<T> {
        self.get(id)?;
        let (connection, events) = self.at(id.index)?;
        let result = change(connection, events);
        self.mark(id.index);
        Some(result)
    }

    /// Has the kernel side look at this connection before it waits.
    pub(crate) fn mark(&mut self, index: u32) {
        if let Some((connection, _)) = self.at(index)
            && !connection.kernel.dirty
        {
            connection.kernel.dirty = true;
            self.dirty.push(index);
        }
    }

    /// The next connection to look at.
    pub(crate) fn next_marked(&mut self) -> Option<u32> {
        let index = self.dirty.pop()?;
        if let Some((connection, _)) = self.at(index) {
            connection.kernel.dirty = false;
        }
        Some(index)
    }
}
