//! What a depot has when its node starts: its own state, and all allocations.

use std::collections::VecDeque;

use crossdock_names::{ObjectClass, ObjectId, Version};
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, Order, WriteContext};
use crossdock_types::{Time, WallTime};

use crate::clock::{Clock, Millis, State};
use crate::depot::{Depot, EXPIRED};
use crate::keys::Keyring;
use crate::ledger::{Allocation, DEPOT, object};
use crate::message::DepotEffect;
use crate::node::Purpose;
use crate::record::Record;

/// Ids in one list.
const LIST_MAX: usize = 4096;

/// Allocations that are looked at at the same time.
const LOOKS_MAX: usize = 64;

/// How far the opening has come.
#[derive(Debug)]
pub(crate) enum Opening {
    /// The node's store is not open.
    Closed,
    /// Its state is being read, or made.
    State,
    /// Its allocations are looked at: those listed, how many are being looked at, and whether
    /// there are more after the last one.
    Looking {
        listed: VecDeque<ObjectId>,
        looks: usize,
        more_after: Option<ObjectId>,
    },
    /// It serves.
    Done,
    /// It cannot.
    Failed,
}

impl Depot {
    pub(crate) fn begin_opening(&mut self, now: Time) {
        self.opening = Opening::State;
        let object = object(DEPOT);
        self.ask(now, Purpose::State, NodeRequest::Stat { object });
    }

    /// The request that writes the depot's state.
    pub(crate) fn save(&mut self, state: &State) -> NodeRequest {
        self.own_version = self.own_version.next();
        NodeRequest::SetAttributes {
            object: object(DEPOT),
            reservation_bytes: 0,
            attributes: state.encode(),
            context: WriteContext::default(),
            order: Order::Given(self.own_version),
        }
    }

    pub(crate) fn take_state(
        &mut self,
        now: Time,
        wall: WallTime,
        outcome: Result<NodeAnswer, NodeError>,
    ) {
        match outcome {
            Ok(NodeAnswer::Stat(stat)) => match State::decode(&stat.attributes) {
                Some(state) => {
                    self.own_version = stat.version;
                    self.ring = Some(Keyring::new(state.key));
                    self.clock = Some(Clock::resume(now, wall, &state));
                    self.list(now, None);
                }
                None => self.fail("its state has a format that is not known here"),
            },
            // It has just been made.
            Ok(_) => {
                let object = object(DEPOT);
                self.ask(now, Purpose::State, NodeRequest::Stat { object });
            }
            Err(NodeError::NoObject) => {
                let mut state = State {
                    time: Millis(0),
                    ahead: 0,
                    key: self.draw(),
                };
                state.time = Clock::resume(now, wall, &state).read(now);
                self.own_version = self.own_version.next();
                let request = NodeRequest::Create {
                    object: object(DEPOT),
                    reservation_bytes: 0,
                    attributes: state.encode(),
                    context: WriteContext::default(),
                    order: Order::Given(self.own_version),
                };
                self.ask(now, Purpose::State, request);
            }
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn list(&mut self, now: Time, after: Option<ObjectId>) {
        let request = NodeRequest::List {
            class: ObjectClass::Allocation,
            placement: None,
            after,
            limit: LIST_MAX,
        };
        self.ask(now, Purpose::List, request);
    }

    pub(crate) fn take_list(&mut self, now: Time, outcome: Result<NodeAnswer, NodeError>) {
        match outcome {
            Ok(NodeAnswer::List { objects, more }) => {
                self.opening = Opening::Looking {
                    more_after: objects.last().copied().filter(|_| more),
                    listed: objects.into(),
                    looks: 0,
                };
                self.look_on(now);
            }
            Ok(_) => self.fail("the node does not list its objects"),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn look_on(&mut self, now: Time) {
        while let Opening::Looking { listed, looks, .. } = &mut self.opening
            && *looks < LOOKS_MAX
            && let Some(object) = listed.pop_front()
        {
            if object.placement != DEPOT {
                *looks += 1;
                let purpose = Purpose::Found(object.placement);
                self.ask(now, purpose, NodeRequest::Stat { object });
            }
        }
        let Opening::Looking {
            listed,
            looks: 0,
            more_after,
        } = &self.opening
        else {
            return;
        };
        match *more_after {
            None if listed.is_empty() => self.opening = Opening::Done,
            after => self.list(now, after),
        }
    }

    pub(crate) fn take_found(
        &mut self,
        now: Time,
        number: u64,
        outcome: Result<NodeAnswer, NodeError>,
    ) {
        if let Opening::Looking { looks, .. } = &mut self.opening {
            *looks -= 1;
        }
        match outcome {
            Ok(NodeAnswer::Stat(stat)) => match Record::decode(&stat.attributes) {
                Some(record) => {
                    self.take_over(now, number, record, (stat.version, stat.size_bytes))
                }
                None => self.warn_of(
                    number,
                    "its attributes have a format that is not known here",
                ),
            },
            Ok(_) | Err(NodeError::NoObject) => {}
            Err(error) => self.warn_of(number, &error.to_string()),
        }
        self.look_on(now);
    }

    fn take_over(
        &mut self,
        now: Time,
        number: u64,
        record: Record,
        (version, size_bytes): (Version, u64),
    ) {
        self.ledger.insert(number, Allocation::new(record, version));
        let clock = self.clock.as_ref();
        if clock.is_some_and(|clock| record.end <= clock.read(now)) {
            self.remove(now, number, EXPIRED, None);
        } else if !record.is_queue() && size_bytes > record.tail() {
            // The end of a store that was not acknowledged.
            self.truncate(now, number, record.tail(), Purpose::Nobody);
        }
    }

    fn warn_of(&mut self, number: u64, what: &str) {
        let what = format!("allocation {number:016x} is left alone: {what}");
        self.effects.push_back(DepotEffect::Warning(what));
    }

    fn fail(&mut self, what: &str) {
        self.opening = Opening::Failed;
        let what = format!("the depot does not serve: {what}");
        self.effects.push_back(DepotEffect::Warning(what));
    }
}
