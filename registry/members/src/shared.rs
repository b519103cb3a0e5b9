//! The registry as one process of many sees it: a copy of the state, which may be
//! old, and changes on their way.
//!
//! A change is carried out where the registry is, on the state of that moment.
//! Whoever proposed it learns what became of it from the next state: a set whose
//! epoch is not the expected one any more has been changed, by this process or
//! by another. So a change may be proposed again without harm.

use std::collections::VecDeque;

use crate::embedded::{Embedded, OpenError};
use crate::state::{Change, State};

/// A copy of a registry that is somewhere else.
#[derive(Debug)]
pub struct Shared {
    state: State,
    revision: u64,
    proposed: VecDeque<Change>,
}

impl Shared {
    /// A copy of `revision`.
    #[must_use]
    pub const fn new(revision: u64, state: State) -> Self {
        Self {
            state,
            revision,
            proposed: VecDeque::new(),
        }
    }
}

/// Either kind of registry.
pub enum Registry {
    /// This process's own: a change is durable when it returns.
    Own(Embedded),
    /// One that others have in common with this process.
    Shared(Shared),
}

impl Registry {
    /// What the registry holds, as far as this process knows.
    #[must_use]
    pub const fn state(&self) -> &State {
        match self {
            Self::Own(embedded) => embedded.state(),
            Self::Shared(shared) => &shared.state,
        }
    }

    /// Whether other processes change it, too.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Makes a change, or sends it on its way.
    ///
    /// # Errors
    /// [`OpenError::Conflict`] and [`OpenError::Disk`], with an own registry;
    /// nothing was changed.
    pub fn change(&mut self, change: Change) -> Result<(), OpenError> {
        match self {
            Self::Own(embedded) => embedded.change(change),
            Self::Shared(shared) => {
                // Said already, and not carried out yet.
                if !shared.proposed.contains(&change) {
                    shared.proposed.push_back(change);
                }
                Ok(())
            }
        }
    }

    /// Takes the state of a later revision; whether it is later.
    pub fn take(&mut self, revision: u64, state: State) -> bool {
        match self {
            Self::Shared(shared) if revision > shared.revision => {
                shared.revision = revision;
                shared.state = state;
                true
            }
            _ => false,
        }
    }

    /// The next change to be carried out elsewhere.
    pub fn next_proposal(&mut self) -> Option<Change> {
        match self {
            Self::Own(_) => None,
            Self::Shared(shared) => shared.proposed.pop_front(),
        }
    }
}
