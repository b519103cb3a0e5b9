//! The key for proofs (docs/decisions/0028): the root's site keeps it in its log, which no
//! gateway reads, so that it survives managers. It is made when a gateway is scoped for
//! the first time, and never changes.

use crossdock_names::ProofKey;
use crossdock_types::{Time, WallTime};

use crate::commit::Draft;
use crate::site::Site;

impl Site {
    /// What proofs are made with, once the log has it for good: a proof must not be given
    /// out before.
    #[must_use]
    pub fn proof_key(&self) -> Option<&ProofKey> {
        let (key, position) = self.state.proof_key.as_ref()?;
        let durable = self.log.as_ref()?.durable();
        (*position <= durable).then_some(key)
    }

    /// Whether it has one, or will have it.
    #[must_use]
    pub const fn has_proof_key(&self) -> bool {
        self.state.proof_key.is_some()
    }

    pub(crate) fn keep_proof_key(&mut self, now: Time, wall: WallTime, key: ProofKey) {
        if self.is_serving() && self.state.proof_key.is_none() {
            let draft = Draft {
                proof_key: Some(key),
                ..Draft::default()
            };
            self.commit(now, wall, draft);
        }
    }
}
