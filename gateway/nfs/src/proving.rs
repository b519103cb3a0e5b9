//! Calls whose handles a manager has to check before anything is done for them.

use crossdock_names::{FileRef, Proof};
use crossdock_peer::{SiteOperation, SiteReply, SiteRequest};
use crossdock_types::Time;

use crate::door::{NfsDoor, Pending};

/// What waits for the answer.
#[derive(Debug)]
pub(crate) struct Unproven {
    /// What handles of the call say; the last one is being asked about.
    shown: Vec<Proof>,
    request: SiteRequest,
}

impl NfsDoor {
    /// Whether anything is known of how files were reached.
    #[must_use]
    pub fn has_proofs(&self) -> bool {
        !self.proofs.is_empty()
    }

    /// What is known of how a file was reached: it goes with calls to managers.
    pub fn proofs_of(&mut self, file: FileRef) -> &[Proof] {
        self.proofs.of(file)
    }

    /// What a manager's answer proves.
    pub fn learn(&mut self, proofs: impl IntoIterator<Item = Proof>) {
        for proof in proofs {
            self.proofs.learn(proof);
        }
    }

    /// Hands a request to the router, behind the questions whether these handles are true.
    pub(crate) fn prove(
        &mut self,
        now: Time,
        mut pending: Pending,
        shown: Vec<Proof>,
        request: SiteRequest,
    ) {
        let Some(&proof) = shown.last() else {
            return self.ask(now, pending, request);
        };
        let asked = SiteRequest {
            // The client may have sent the same call to a gateway that is no more, and it
            // may have been carried out: what is asked first is as patient as a change.
            duplicate: request.duplicate,
            ..SiteRequest::as_root(SiteOperation::Prove { proof })
        };
        pending.unproven = Some(Box::new(Unproven { shown, request }));
        self.ask(now, pending, asked);
    }

    /// An answer has come: if it is that a handle is true, the call goes on. Else it is
    /// what the client gets.
    pub(crate) fn take_proved(
        &mut self,
        now: Time,
        mut pending: Pending,
        reply: &SiteReply,
    ) -> Option<Pending> {
        let Some(unproven) = pending.unproven.take() else {
            return Some(pending);
        };
        if reply.outcome.is_err() {
            return Some(pending);
        }
        let Unproven { mut shown, request } = *unproven;
        self.learn(shown.pop());
        self.prove(now, pending, shown, request);
        None
    }
}
