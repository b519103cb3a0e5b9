//! The ensemble's keys for handles and for proofs (docs/decisions/0028): the root's site
//! keeps them in its log, which no gateway reads, so that they survive managers. That for
//! handles is made when the volume is new, that for proofs when a gateway is scoped for
//! the first time; neither ever changes.

use crossdock_log::Position;
use crossdock_names::{HandleKey, ProofKey};
use crossdock_types::{Time, WallTime};

use crate::commit::Draft;
use crate::record::Change;
use crate::site::Site;

/// Each with where the log has it.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    handles: Option<(HandleKey, Position)>,
    proofs: Option<(ProofKey, Position)>,
}

impl Keys {
    pub(crate) fn keep_handle_key(&mut self, key: &HandleKey, position: Position) {
        self.handles = Some((key.clone(), position));
    }

    pub(crate) fn keep_proof_key(&mut self, key: &ProofKey, position: Position) {
        self.proofs = Some((key.clone(), position));
    }

    /// What a checkpoint has of them.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> {
        let handles = self.handles.as_ref();
        let handles = handles.map(|(key, _)| Change::HandleKey(key.clone()));
        let proofs = self.proofs.as_ref();
        let proofs = proofs.map(|(key, _)| Change::ProofKey(key.clone()));
        handles.into_iter().chain(proofs)
    }
}

impl Site {
    /// What handles are made with, once the log has it for good: a handle must not be
    /// given out before.
    #[must_use]
    pub fn handle_key(&self) -> Option<&HandleKey> {
        let (key, position) = self.state.keys.handles.as_ref()?;
        self.is_durable(*position).then_some(key)
    }

    /// Whether it has one, or will have it.
    #[must_use]
    pub const fn has_handle_key(&self) -> bool {
        self.state.keys.handles.is_some()
    }

    /// What proofs are made with; the same holds for these.
    #[must_use]
    pub fn proof_key(&self) -> Option<&ProofKey> {
        let (key, position) = self.state.keys.proofs.as_ref()?;
        self.is_durable(*position).then_some(key)
    }

    /// Whether it has one, or will have it.
    #[must_use]
    pub const fn has_proof_key(&self) -> bool {
        self.state.keys.proofs.is_some()
    }

    fn is_durable(&self, position: Position) -> bool {
        let log = self.log.as_ref();
        log.is_some_and(|log| position <= log.durable())
    }

    pub(crate) fn keep_handle_key(&mut self, now: Time, wall: WallTime, key: HandleKey) {
        if !self.has_handle_key() {
            self.keep_key(now, wall, Change::HandleKey(key));
        }
    }

    pub(crate) fn keep_proof_key(&mut self, now: Time, wall: WallTime, key: ProofKey) {
        if !self.has_proof_key() {
            self.keep_key(now, wall, Change::ProofKey(key));
        }
    }

    fn keep_key(&mut self, now: Time, wall: WallTime, key: Change) {
        if self.is_serving() {
            let draft = Draft {
                key: Some(key),
                ..Draft::default()
            };
            self.commit(now, wall, draft);
        }
    }
}
