//! Who waits for an order of the admin API that takes longer than a turn of the loop.

use std::collections::BTreeMap;

use crossdock_admin::{Answer, Refusal};
use tokio::sync::oneshot;

/// Those who wait for orders of one kind, by ticket; with each a note for its answer.
/// The host bounds how many there are: it refuses more.
pub(super) struct Waiting<Ticket, Note = ()> {
    asked: BTreeMap<Ticket, (Note, oneshot::Sender<Answer>)>,
}

impl<Ticket: Ord, Note> Waiting<Ticket, Note> {
    pub(super) const fn new() -> Self {
        Self {
            asked: BTreeMap::new(),
        }
    }

    /// Keeps whoever asked until the order [ends](Self::end), or tells at once why it
    /// was not begun.
    pub(super) fn keep(
        &mut self,
        begun: Result<Ticket, Refusal>,
        note: Note,
        reply: oneshot::Sender<Answer>,
    ) {
        match begun {
            Ok(ticket) => {
                self.asked.insert(ticket, (note, reply));
            }
            Err(refusal) => tell(reply, Err(refusal)),
        }
    }

    /// The order has ended; `answer` says how, if anybody has asked.
    pub(super) fn end(&mut self, ticket: &Ticket, answer: impl FnOnce(Note) -> Answer) {
        if let Some((note, reply)) = self.asked.remove(ticket) {
            tell(reply, answer(note));
        }
    }
}

/// Answers; the asker may have gone away meanwhile.
pub(super) fn tell(reply: oneshot::Sender<Answer>, answer: Answer) {
    let _ = reply.send(answer);
}
