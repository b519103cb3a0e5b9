//! STORE and WRITE.
//!
//! Bytes go to the node as they come, where nothing is that anybody can load; the answer is
//! sent when they are durable and so is the record that makes them the allocation's. A store
//! that breaks off leaves nothing behind. (A WRITE over what is there may have overwritten a
//! part of it.)

use crossdock_ibp::{Access, Command, ErrorCode, StorageType, answer};
use crossdock_limits::IBP_STORE_WINDOW_BYTES;
use crossdock_names::Incarnation;
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, Order, Stability, WriteContext};
use crossdock_types::Time;

use crate::connection::Doing;
use crate::depot::Depot;
use crate::ledger::{Allocation, object};
use crate::message::ConnId;
use crate::node::{After, Purpose, code_of};
use crate::record::Record;

/// What is given to the node at once.
pub(crate) const PIECE_BYTES_MAX: usize = 256 << 10;

/// A store that is not longer goes into the node's journal: one durable write.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// A store, or a write.
#[derive(Debug)]
pub(crate) struct Storing {
    pub(crate) number: u64,
    /// Where; `None`: behind what is there.
    offset: Option<u64>,
    size_bytes: u64,
    /// Until when it waits for others, and for room.
    pub(crate) deadline: Time,
    pub(crate) stage: StoreStage,
}

/// How far it has come.
#[derive(Debug)]
pub(crate) enum StoreStage {
    /// For others, or for room.
    Waiting,
    /// Bytes come, and go to the node.
    Receiving(Receiving),
    /// They are being made durable.
    Committing,
    /// They are.
    Durable,
    /// The record is.
    Recording,
}

/// Bytes on their way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving {
    /// Position of the first one.
    place: u64,
    /// So many were given to the node.
    given_bytes: u64,
    /// Calls that it has not answered, and their bytes.
    pub(crate) in_flight: usize,
    in_flight_bytes: usize,
}

impl Storing {
    pub(crate) const fn is_receiving(&self) -> bool {
        matches!(self.stage, StoreStage::Receiving(_))
    }

    /// Whether more bytes are to come than have.
    pub(crate) const fn lacks(&self, here: usize) -> bool {
        match &self.stage {
            StoreStage::Waiting => true,
            StoreStage::Receiving(it) => it.given_bytes + (here as u64) < self.size_bytes,
            StoreStage::Committing | StoreStage::Durable | StoreStage::Recording => false,
        }
    }

    const fn is_small(&self) -> bool {
        self.size_bytes <= SMALL_BYTES_MAX
    }

    /// Whether it can begin; why not, if that is for long.
    fn may_begin(&self, allocation: &Allocation) -> Result<bool, ErrorCode> {
        let record = &allocation.record;
        let free = record.size_bytes - record.length_bytes;
        let is_array = record.storage == StorageType::ByteArray;
        let room = match (record.storage, self.offset) {
            (StorageType::ByteArray, Some(offset)) => record.size_bytes.saturating_sub(offset),
            (_, Some(_)) => return Err(ErrorCode::TYPE_NOT_SUPPORTED),
            (StorageType::ByteArray, None) => free,
            (_, None) => record.size_bytes,
        };
        if self.size_bytes > room {
            return Err(ErrorCode::WOULD_EXCEED_LIMIT);
        }
        let has_room = record.storage != StorageType::Fifo || self.size_bytes <= free;
        let is_free = match is_array {
            true => !allocation.has_writer,
            false => allocation.is_free(),
        };
        Ok(has_room && is_free)
    }
}

impl Depot {
    pub(crate) fn begin_store(
        &mut self,
        now: Time,
        id: ConnId,
        command: Command,
    ) -> Result<(), ErrorCode> {
        let (key, attribute_key, offset, size_bytes, time_limit) = match command {
            Command::Store {
                key,
                attribute_key,
                size_bytes,
                time_limit,
            } => (key, attribute_key, None, size_bytes, time_limit),
            Command::Write {
                key,
                attribute_key,
                offset_bytes,
                size_bytes,
                time_limit,
            } => (
                key,
                attribute_key,
                Some(offset_bytes),
                size_bytes,
                time_limit,
            ),
            _ => return Err(ErrorCode::INTERNAL),
        };
        let (number, _) = self.find(&key, &attribute_key, Some(Access::Write))?;
        let storing = Storing {
            number,
            offset,
            size_bytes,
            deadline: self.deadline(now, time_limit),
            stage: StoreStage::Waiting,
        };
        self.set_doing(id, Doing::Store(Box::new(storing)));
        Ok(())
    }

    pub(crate) fn go_on_storing(&mut self, now: Time, id: ConnId) -> bool {
        let connection = self.connections.get(&id);
        let Some(Doing::Store(store)) = connection.map(|connection| &connection.doing) else {
            return false;
        };
        match &store.stage {
            StoreStage::Waiting => self.try_store(now, id),
            StoreStage::Receiving(_) => {
                while self.give_piece(now, id) {}
                self.complete(now, id)
            }
            StoreStage::Durable => {
                self.try_record_store(now, id);
                false
            }
            StoreStage::Committing | StoreStage::Recording => false,
        }
    }

    fn try_store(&mut self, now: Time, id: ConnId) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let Doing::Store(store) = &mut connection.doing else {
            return false;
        };
        let allocation = self.ledger.get_mut(store.number);
        let may_begin = match &allocation {
            Some(allocation) => store.may_begin(allocation),
            None => Err(ErrorCode::CAP_NOT_FOUND),
        };
        match (may_begin, allocation) {
            (Ok(true), Some(allocation)) => {
                allocation.has_writer = true;
                let place =
                    (store.offset).unwrap_or_else(|| allocation.record.place(store.size_bytes));
                store.stage = StoreStage::Receiving(Receiving {
                    place,
                    given_bytes: 0,
                    in_flight: 0,
                    in_flight_bytes: 0,
                });
                connection.active = now;
                self.answer(id, answer::done());
                true
            }
            (Ok(_), Some(allocation)) if now < store.deadline => {
                allocation.wait(id);
                false
            }
            (Ok(_), Some(allocation)) => {
                // Of a FIFO it is room that has not come.
                let code = match allocation.is_free() {
                    true => ErrorCode::WOULD_EXCEED_LIMIT,
                    false => ErrorCode::SERVER_TIMEOUT,
                };
                self.end_command_with(now, id, code);
                false
            }
            (outcome, _) => {
                let code = outcome.err().unwrap_or(ErrorCode::CAP_NOT_FOUND);
                self.end_command_with(now, id, code);
                false
            }
        }
    }

    /// Gives the node the next piece, if it is here and there is room for it on the way.
    fn give_piece(&mut self, now: Time, id: ConnId) -> bool {
        let is_scarce = self.storing_bytes >= self.config.store_bytes_max;
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let Doing::Store(store) = &mut connection.doing else {
            return false;
        };
        let (number, is_small) = (store.number, store.is_small());
        let left = |receiving: &Receiving| store.size_bytes - receiving.given_bytes;
        let StoreStage::Receiving(receiving) = &mut store.stage else {
            return false;
        };
        let Some(allocation) = self.ledger.get_mut(number) else {
            return false;
        };
        let (place, left) = (receiving.place + receiving.given_bytes, left(receiving));
        let Some(range) = allocation.record.ranges(place, left).into_iter().next() else {
            return false;
        };
        let piece = PIECE_BYTES_MAX as u64;
        let until = (range.start + 1).next_multiple_of(piece).min(range.end);
        let bytes = usize::try_from(until - range.start).unwrap_or(usize::MAX);
        let is_full = receiving.in_flight_bytes >= IBP_STORE_WINDOW_BYTES;
        if connection.received.len() < bytes || receiving.in_flight > 0 && (is_full || is_scarce) {
            return false;
        }
        receiving.given_bytes += bytes as u64;
        receiving.in_flight += 1;
        receiving.in_flight_bytes += bytes;
        self.storing_bytes += bytes;
        allocation.writes += 1;
        let request = NodeRequest::Write {
            object: object(number),
            offset_bytes: range.start,
            payload: connection.take_bytes(bytes),
            stability: match is_small {
                true => Stability::Stable,
                false => Stability::Unstable,
            },
            context: WriteContext::default(),
            order: Order::Given(allocation.next_version()),
        };
        self.ask(now, Purpose::Write(id, number, bytes), request);
        true
    }

    /// All bytes are with the node: goes on to make them the allocation's.
    fn complete(&mut self, now: Time, id: ConnId) -> bool {
        let Some(Doing::Store(store)) = self.doing(id) else {
            return false;
        };
        let StoreStage::Receiving(receiving) = store.stage else {
            return false;
        };
        if receiving.in_flight > 0 || receiving.given_bytes < store.size_bytes {
            return false;
        }
        let number = store.number;
        if store.is_small() {
            store.stage = StoreStage::Durable;
            self.try_record_store(now, id);
            return false;
        }
        store.stage = StoreStage::Committing;
        let request = NodeRequest::Commit {
            object: object(number),
            // The node of this depot: it is the same as long as there is a depot.
            incarnation: Incarnation::default(),
        };
        self.ask(now, Purpose::Commit(id), request);
        false
    }

    pub(crate) fn committed(
        &mut self,
        now: Time,
        id: ConnId,
        outcome: Result<NodeAnswer, NodeError>,
    ) {
        let Some(Doing::Store(store)) = self.doing(id) else {
            return; // It has broken off.
        };
        store.stage = StoreStage::Durable;
        match outcome {
            Ok(_) => self.try_record_store(now, id),
            Err(error) => self.end_command_with(now, id, code_of(&error)),
        }
    }

    /// Writes the record of a store whose bytes are durable. Nobody else changes the record of
    /// what is stored into, but for its counts and its limits.
    fn try_record_store(&mut self, now: Time, id: ConnId) {
        let Some(Doing::Store(store)) = self.doing(id) else {
            return;
        };
        let (number, offset, bytes) = (store.number, store.offset, store.size_bytes);
        let Some(allocation) = self.ledger.get_mut(number) else {
            return;
        };
        if allocation.is_changing {
            allocation.wait(id);
            return;
        }
        let before = allocation.record;
        let (record, freed) = match offset {
            Some(offset) => (before.written(offset, bytes), 0..0),
            None => before.stored(bytes),
        };
        if let Some(Doing::Store(store)) = self.doing(id) {
            store.stage = StoreStage::Recording;
        }
        let after = After::Stored { bytes, freed };
        match record == before {
            // Within what is there already: there is nothing to say.
            true => {
                self.end_writing(number);
                self.stored(now, Some(id), Ok(bytes));
            }
            false => self.record(now, number, record, after, Some(id)),
        }
    }

    /// What was stored is the allocation's.
    pub(crate) fn stored(
        &mut self,
        now: Time,
        by: Option<ConnId>,
        outcome: Result<u64, ErrorCode>,
    ) {
        let Some(id) = by else { return };
        if !matches!(self.doing(id), Some(Doing::Store(_))) {
            return; // Its client is gone.
        }
        match outcome {
            Ok(bytes) => {
                self.figures.stored_bytes += bytes;
                self.answer(id, answer::stored(bytes));
                self.finish(now, id);
            }
            Err(code) => {
                self.refuse(id, code);
                self.finish(now, id);
            }
        }
    }

    pub(crate) fn wrote(
        &mut self,
        now: Time,
        id: ConnId,
        number: u64,
        (bytes, outcome): (usize, Result<NodeAnswer, NodeError>),
    ) {
        self.storing_bytes -= bytes;
        if let Some(allocation) = self.ledger.get_mut(number) {
            allocation.writes -= 1;
        }
        self.try_clean(now, number);
        let Some(Doing::Store(store)) = self.doing(id) else {
            return; // It has broken off.
        };
        let StoreStage::Receiving(receiving) = &mut store.stage else {
            return;
        };
        receiving.in_flight -= 1;
        receiving.in_flight_bytes -= bytes;
        match outcome {
            Ok(_) => self.ready.push_back(id),
            Err(error) => self.end_command_with(now, id, code_of(&error)),
        }
    }

    /// A store goes no further: what it has left is removed when the node has answered.
    pub(crate) fn break_store(&mut self, now: Time, store: Storing) {
        let Some(allocation) = self.ledger.get_mut(store.number) else {
            return;
        };
        match store.stage {
            // It has done nothing; or is done, but for its answer.
            StoreStage::Waiting | StoreStage::Recording => return,
            StoreStage::Receiving(receiving) => {
                let from = receiving.place;
                allocation.broken = Some(from..from + receiving.given_bytes);
            }
            StoreStage::Committing | StoreStage::Durable => {
                let from =
                    (store.offset).unwrap_or_else(|| allocation.record.place(store.size_bytes));
                allocation.broken = Some(from..from + store.size_bytes);
            }
        }
        self.try_clean(now, store.number);
    }

    fn try_clean(&mut self, now: Time, number: u64) {
        let Some(allocation) = self.ledger.get_mut(number) else {
            return;
        };
        if allocation.writes > 0 {
            return;
        }
        let Some(broken) = allocation.broken.take() else {
            return;
        };
        let record: Record = allocation.record;
        if broken.is_empty() {
            self.end_writing(number);
        } else if record.storage == StorageType::ByteArray {
            // What a WRITE has overwritten stays.
            self.truncate(now, number, record.tail(), Purpose::Clean(number));
        } else {
            self.zero(now, number, &broken, Purpose::Clean(number));
        }
    }

    pub(crate) fn cleaned(&mut self, number: u64) {
        self.end_writing(number);
    }

    /// Others may store.
    pub(crate) fn end_writing(&mut self, number: u64) {
        if let Some(allocation) = self.ledger.get_mut(number) {
            allocation.has_writer = false;
        }
        self.wake_waiters(number);
    }
}
