//! A copy whose gateway is killed while a node is slow to read what is copied:
//! whoever has asked for it is pushed out, and the block is looked at right behind that. Nothing may
//! be copied there any more.

use std::time::Duration;

use crossdock_types::Time;

use super::super::network::Place;
use super::fencing::Order;
use super::{Driver, OF_SITE};

/// Longer than it takes until a process that was killed is taken for gone.
const SLOWEST_MILLIS: (u64, u64) = (3000, 6000);

/// Who was pushed out does nothing for so long.
pub(super) const SILENCE: Duration = Duration::from_secs(9);

/// By then all is over, or nothing came of it.
const PATIENCE: Duration = Duration::from_secs(12);

/// A copy that its initiator hears nothing of any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stranded {
    pub(super) victim: usize,
    block: usize,
    /// When which gateway is killed.
    kill: Option<(Time, Place)>,
    /// Who pushes its initiator out, …
    by: Option<usize>,
    /// … and has.
    is_out: bool,
    until: Time,
}

impl Driver {
    /// A copy of that initiator's to that block strands, if nodes make it and he may be pushed out.
    pub(super) fn is_to_strand(&self, number: usize, block: usize) -> bool {
        let is_free = self.is_stranding && self.stranded.is_none();
        is_free && block >= OF_SITE && self.is_held && self.clients[number].fencing.is_in()
    }

    /// A copy is asked for that is not to be answered.
    pub(super) fn strand(&mut self, victim: usize, block: usize, gateway: Place) {
        let (least, most) = SLOWEST_MILLIS;
        let latency = Duration::from_millis(self.random.between(least, most));
        self.note(|| format!("nodes read {latency:?} for what is copied"));
        self.world.slow_copies(Some(latency));
        let after = Duration::from_micros(self.random.between(2000, 20_000));
        self.is_stranding = false;
        self.stranded = Some(Stranded {
            victim,
            block,
            kill: Some((self.world.now + after, gateway)),
            by: None,
            is_out: false,
            until: self.world.now + PATIENCE,
        });
    }

    /// Its gateway is killed when it is time, and what came of nothing is left.
    pub(super) fn pass_stranded(&mut self) {
        let now = self.world.now;
        let Some(stranded) = &mut self.stranded else {
            return;
        };
        if let Some((_, gateway)) = stranded.kill.take_if(|(at, _)| *at <= now) {
            self.world.slow_copies(None);
            self.kill(gateway);
        } else if stranded.until <= now {
            self.leave_stranded();
        }
    }

    /// When there is something to be done about it.
    pub(super) fn stranded_at(&self) -> Option<Time> {
        let stranded = self.stranded.as_ref()?;
        Some(stranded.kill.map_or(stranded.until, |(at, _)| at))
    }

    /// Copies are as fast as ever, but for what is on its way.
    pub(super) fn leave_stranded(&mut self) {
        self.stranded = None;
        self.world.slow_copies(None);
    }

    /// Whether that initiator is the one who sees to it.
    pub(super) fn sees_to_stranded(&self, number: usize) -> bool {
        let is_his = |stranded: &Stranded| {
            let is_pusher = stranded.by.is_none_or(|by| by == number);
            is_pusher && stranded.kill.is_none() && stranded.victim != number
        };
        self.stranded.as_ref().is_some_and(is_his) && self.clients[number].fencing.is_in()
    }

    /// Pushes out who has asked for the copy.
    pub(super) fn draw_push(&mut self, number: usize) -> Option<Order> {
        let is_his = self.sees_to_stranded(number);
        let stranded = self.stranded.as_mut().filter(|_| is_his)?;
        let is_first = stranded.by.replace(number).is_none();
        is_first.then_some(Order::Preempt(stranded.victim))
    }

    /// Somebody was told that he is out.
    pub(super) fn take_push(&mut self, victim: usize) {
        if let Some(stranded) = &mut self.stranded {
            stranded.is_out |= stranded.victim == victim && stranded.by.is_some();
        }
    }

    /// An order of that initiator has come to nothing: if it was this one, it is given again.
    pub(super) fn miss_push(&mut self, number: usize) {
        if let Some(stranded) = &mut self.stranded
            && !stranded.is_out
        {
            stranded.by.take_if(|by| *by == number);
        }
    }

    /// The block that is to be looked at by who has pushed him out.
    pub(super) fn draw_look(&mut self, number: usize) -> Option<usize> {
        let is_his = |stranded: &mut Stranded| stranded.is_out && stranded.by == Some(number);
        let block = self.stranded.take_if(is_his)?.block;
        self.note(|| format!("initiator {number} looks at block {block}"));
        Some(block)
    }
}
