//! Initiators that reserve a LUN for all who are registered, and push each other out.

use bytes::Bytes;
use crossdock_iscsi_pdu::Done;

use super::register::{Answer, Operation};
use super::{Asked, BUSY, CONFLICT, Driver, GOOD, INITIATORS};

/// Write exclusive, registrants only.
const KIND: u8 = 5;

/// What an initiator orders (PERSISTENT RESERVE OUT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Register,
    Reserve,
    /// That one is pushed out, and fenced off.
    Preempt(usize),
}

/// How an initiator stands, as far as all is known that was ordered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fencing {
    standing: Standing,
    /// It stood so when the last command was begun.
    pub(super) was_out: bool,
    /// Nobody knows what has become of one of its registrations: it may still come.
    is_loose: bool,
    /// When it was told last that it is registered.
    registered: u64,
    /// When it ordered something last.
    ordered: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Unknown,
    /// Registered, unless somebody has pushed it out whom nobody has answered yet.
    In,
    /// Pushed out.
    Out,
}

impl Fencing {
    pub(super) fn is_out(&self) -> bool {
        self.standing == Standing::Out && !self.is_loose
    }

    pub(super) fn is_in(&self) -> bool {
        self.standing == Standing::In && !self.is_loose
    }
}

const fn key_of(number: usize) -> u64 {
    number as u64 + 1
}

impl Driver {
    pub(super) fn draw_order(&mut self, number: usize) -> Option<Order> {
        if let Some(order) = self.draw_push(number) {
            return Some(order);
        }
        let drawn = self.random.below(16);
        match self.clients[number].fencing.standing {
            Standing::Unknown if drawn < 12 => Some(Order::Register),
            Standing::Out if drawn < 4 => Some(Order::Register),
            Standing::In if !self.is_held && drawn < 4 => Some(Order::Reserve),
            Standing::In if drawn == 1 => {
                let other = self.random.index(INITIATORS - 1);
                Some(Order::Preempt((number + 1 + other) % INITIATORS))
            }
            _ => None,
        }
    }

    pub(super) fn order(&mut self, number: usize, order: Order) {
        self.note(|| format!("initiator {number}: {order:?}"));
        self.calls += 1;
        let own = key_of(number);
        let (action, key, other) = match order {
            Order::Register => (6, 0, own),
            Order::Reserve => (1, own, 0),
            Order::Preempt(victim) => (5, own, key_of(victim)),
        };
        let mut list = [0; 24];
        list[..8].copy_from_slice(&key.to_be_bytes());
        list[8..16].copy_from_slice(&other.to_be_bytes());
        let cdb = [0x5f, action, KIND, 0, 0, 0, 0, 0, 24, 0];
        let now = self.tick();
        let client = &mut self.clients[number];
        client.asked = Some(Asked::Fencing(order));
        client.fencing.ordered = now;
        client.since = self.world.now;
        let data = Bytes::copy_from_slice(&list);
        let bytes = client.initiator.command(&cdb, 0, data);
        if let Some(name) = client.connection {
            self.world.send_to_target(name, bytes);
        }
    }

    /// Nobody hears what becomes of an order.
    pub(super) fn lose_order(&mut self, number: usize, order: Order) {
        match order {
            Order::Register => self.clients[number].fencing.is_loose = true,
            Order::Reserve => {}
            Order::Preempt(victim) => {
                self.miss_push(number);
                let fencing = &mut self.clients[victim].fencing;
                if fencing.standing == Standing::In {
                    fencing.standing = Standing::Unknown;
                }
            }
        }
    }

    pub(super) fn take_ordered(
        &mut self,
        number: usize,
        order: Order,
        done: &Done,
    ) -> Result<(), String> {
        self.note(|| format!("initiator {number}: {order:?}: {done:02x?}"));
        match (order, done.status) {
            (_, BUSY) => self.lose_order(number, order),
            (Order::Reserve, GOOD) => self.is_held = true,
            (Order::Register, GOOD) => {
                let now = self.tick();
                let fencing = &mut self.clients[number].fencing;
                (fencing.standing, fencing.registered) = (Standing::In, now);
            }
            (Order::Preempt(victim), GOOD) => {
                self.take_push(victim);
                self.fence(victim, self.clients[number].fencing.ordered);
            }
            // It was pushed out, or he whom it was to push out.
            (_, CONFLICT) => self.clients[number].fencing.standing = Standing::Unknown,
            _ => {}
        }
        if done.status != GOOD {
            self.miss_push(number);
        }
        Ok(())
    }

    /// Somebody who has ordered it then was told that `victim` is pushed out.
    fn fence(&mut self, victim: usize, ordered: u64) {
        self.fenced_total += 1;
        let now = self.tick();
        let client = &mut self.clients[victim];
        // It may have come in again before that was answered.
        let registers = client.asked == Some(Asked::Fencing(Order::Register))
            || client.fencing.registered > ordered;
        client.fencing.standing = match registers {
            true => Standing::Unknown,
            false => Standing::Out,
        };
        if !client.fencing.is_loose && !registers && self.is_held {
            for register in &mut self.registers {
                register.fence(victim, now);
            }
        }
    }

    /// Who was pushed out before he began changes nothing, as long as the LUN is reserved.
    pub(super) fn judge_fenced(
        &mut self,
        number: usize,
        operation: Operation,
        answer: Answer,
        status: u8,
    ) -> Result<(), String> {
        let fencing = &mut self.clients[number].fencing;
        let is_change = operation != Operation::Read;
        if status == CONFLICT && !fencing.is_out() {
            fencing.standing = Standing::Unknown;
        }
        let is_let = matches!(answer, Answer::Done | Answer::Differs);
        if fencing.was_out && is_change && is_let && self.is_held {
            return Err(format!(
                "initiator {number} was pushed out, and {operation:?} is answered {answer:?}"
            ));
        }
        Ok(())
    }
}
