//! What initiators are told of copies.

use crossdock_scsi::{
    CopyResults, CopyState, Sense, Status, copy_parameters, copy_status, failed_segment_details,
};

use crate::door::IscsiDoor;
use crate::respond::Outcome;
use crate::session::SessionId;

/// By which command an initiator asks how far a copy is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// By none.
    Nobody,
    /// RECEIVE COPY RESULTS.
    List(u8),
    /// RECEIVE ROD TOKEN INFORMATION: who has the token may read what it stands for.
    Token(u32),
}

/// How far a copy is, or how it has ended: for these.
#[derive(Clone, Debug, Default)]
pub(crate) struct CopyProgress {
    pub(super) state: CopyState,
    pub(super) segments: u16,
    pub(super) bytes: u64,
    failure: Option<Sense>,
}

impl CopyProgress {
    pub(crate) fn is_in_progress(&self) -> bool {
        self.state == CopyState::InProgress
    }

    pub(crate) fn end(&mut self, bytes: u64) {
        (self.state, self.bytes) = (CopyState::Done, bytes);
    }

    pub(crate) fn fail(&mut self, sense: Sense) {
        (self.state, self.failure) = (CopyState::Failed, Some(sense));
    }

    /// How far it is, how many bytes are written, and why it has failed.
    pub(crate) const fn told(&self) -> (CopyState, u64, Option<Sense>) {
        (self.state, self.bytes, self.failure)
    }
}

impl IscsiDoor {
    /// RECEIVE COPY RESULTS.
    pub(crate) fn copy_results(
        &mut self,
        session: SessionId,
        results: CopyResults,
        (list_id, allocation): (u8, u32),
    ) -> Outcome {
        if results == CopyResults::OperatingParameters {
            return Outcome::parameters(copy_parameters(), allocation);
        }
        let unit = self.unit_of(session);
        let is_descriptor = unit.is_some_and(|unit| unit.pages.is_descriptor_sense);
        let session = self.sessions.get_mut(&session);
        let known = session.and_then(|session| session.copies.get_mut(&list_id));
        let Some(known) = known else {
            return Sense::invalid_field(2, None).into();
        };
        let data = match results {
            CopyResults::FailedSegmentDetails => {
                let failure = known.failure.map(|sense| sense.encode(is_descriptor));
                let failure = failure.as_deref();
                failed_segment_details(failure.map(|sense| (Status::CheckCondition, sense)))
            }
            _ => copy_status(known.state, known.segments, known.bytes),
        };
        Outcome::parameters(data, allocation)
    }
}
