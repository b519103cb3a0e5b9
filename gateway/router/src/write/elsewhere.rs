//! A write to a block that was placed ahead, at a node that has become full meanwhile: the
//! block gets another place (docs/decisions/0029).
//!
//! Behind the end of the file there is nothing, so blocks there may lose their places; a
//! truncate does that. So the file is cut where it ends: that changes no byte, raises the
//! generation by which nodes refuse whoever knows of the old places, and is refused itself
//! (RFC 1813, sattrguard3) if anything was written since the end was told. The site then
//! places the blocks anew, by the room that nodes have now.
//!
//! A block that begins before the end may have bytes, of this client or another one, and
//! stays where it is.

use crossdock_peer::{AttributeChanges, NodeError, SiteError, SiteOperation};

use super::{Phase, WriteWork};
use crate::part::Outcome;
use crate::soft::Soft;
use crate::work::{Step, site_replies};

/// How often a write asks for other places before there is no room.
const PLACINGS_MAX: u32 = 4;

impl WriteWork {
    /// Where the first block begins whose node has no room for it, if it may get another
    /// place.
    pub(super) fn first_full(&self, outcomes: &[Outcome]) -> Option<u64> {
        let (layout, _) = self.opened.as_ref()?;
        let block_bytes = layout.class.map_block_bytes()?;
        let is_tried = self.placings == PLACINGS_MAX;
        let from_nodes = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Node(answer) => Some(answer),
            Outcome::Site(_) => None,
        });
        let mut pieces = self.pieces.iter().zip(from_nodes);
        let full = pieces.find(|(_, answer)| **answer == Err(NodeError::NoSpace));
        let (piece, _) =
            full.filter(|_| !is_tried && !self.content.is_hole() && !self.content.is_copy())?;
        Some(piece.file_offset - piece.file_offset % block_bytes)
    }

    pub(super) fn measure(&mut self, full_from: u64) -> Step {
        self.placings += 1;
        self.phase = Phase::Measuring { full_from };
        let file = self.file;
        Step::Parts(vec![self.site(SiteOperation::GetAttributes { file })])
    }

    pub(super) fn after_measure(&mut self, full_from: u64, outcomes: Vec<Outcome>) -> Step {
        let reply = site_replies(outcomes).next();
        let attributes = reply.and_then(|reply| reply.subject.after);
        let Some(attributes) = attributes.filter(|file| file.size_bytes <= full_from) else {
            return self.fail(SiteError::NoSpace);
        };
        self.phase = Phase::Cutting { full_from };
        let changes = AttributeChanges {
            size_bytes: Some(attributes.size_bytes),
            ..AttributeChanges::default()
        };
        Step::Parts(vec![self.site(SiteOperation::SetAttributes {
            file: self.file,
            changes,
            guard: Some(attributes.changed),
        })])
    }

    pub(super) fn after_cut(
        &mut self,
        full_from: u64,
        outcomes: Vec<Outcome>,
        soft: &mut Soft,
    ) -> Step {
        let reply = site_replies(outcomes).next();
        match reply.map(|reply| reply.outcome) {
            Some(Ok(_)) => {
                soft.leases.give_back(self.file);
                self.begin_anew();
                self.open(soft)
            }
            // Somebody has written since.
            Some(Err(SiteError::NotSync)) if self.placings < PLACINGS_MAX => {
                self.measure(full_from)
            }
            _ => self.fail(SiteError::NoSpace),
        }
    }
}
