//! The store machine.

use std::collections::VecDeque;

use crossdock_types::Time;

use crate::interface::{StoreConfig, StoreEffect, StoreInput, StoreStatus};

/// The object store of one node.
pub struct Store {
    config: StoreConfig,
    effects: VecDeque<StoreEffect>,
}

impl Store {
    /// A store that begins to open; [`StoreEffect::Opened`] tells the outcome.
    #[must_use]
    pub const fn new(config: StoreConfig) -> Self {
        Self {
            config,
            effects: VecDeque::new(),
        }
    }

    /// Takes one input at the time `now`.
    pub fn handle(&mut self, _now: Time, _input: StoreInput) {}

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<StoreEffect> {
        self.effects.pop_front()
    }

    /// When [`StoreInput::Timeout`] is wanted.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Numbers for `status` and metrics.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        StoreStatus {
            capacity_bytes: self.config.capacity_bytes,
            ..StoreStatus::default()
        }
    }
}
