//! Which bytes of a file have space: the site tells where its columns are, their primaries what
//! of them has some.
//!
//! What the site has below the threshold counts as having space, and so does nothing else that
//! no node was asked about.

use std::ops::Range;

use crossdock_limits::MAPPED_BYTES_MAX;
use crossdock_names::FileRef;
use crossdock_peer::{
    Attributes, Caller, FileLayout, MappedRanges, NodeAnswer, NodeError, OpenFor, SiteAnswer,
    SiteError, SiteOperation, SiteReply, SiteRequest, WeakCache,
};
use crossdock_types::Time;

use crate::leases::Opening;
use crate::part::{Outcome, PartRequest, site_error};
use crate::pieces::{self, ObjectPiece};
use crate::read::{REOPENS_MAX, refused};
use crate::soft::Soft;
use crate::work::{Answer, Step, boundary, site_replies};

/// A question about space in progress.
#[derive(Debug)]
pub(crate) struct MappedWork {
    caller: Caller,
    pub(crate) file: FileRef,
    range: Range<u64>,
    /// Where bytes lie, in the order of the file, and what nodes are asked about.
    pieces: Vec<ObjectPiece>,
    stretches: Vec<ObjectPiece>,
    subject: WeakCache,
    reopened: u32,
    /// When the site was asked; `None`: nodes are.
    opening: Option<Time>,
}

impl MappedWork {
    pub(crate) fn begin(
        caller: Caller,
        file: FileRef,
        range: Range<u64>,
        soft: &mut Soft,
    ) -> Result<(Self, Step), SiteError> {
        if range.is_empty() || range.end - range.start > MAPPED_BYTES_MAX {
            return Err(SiteError::Invalid);
        }
        let mut work = Self {
            caller,
            file,
            range,
            pieces: Vec::new(),
            stretches: Vec::new(),
            subject: WeakCache::default(),
            reopened: 0,
            opening: None,
        };
        let step = work.open(soft);
        Ok((work, step))
    }

    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>, soft: &mut Soft) -> Step {
        match self.opening.take() {
            Some(asked_at) => match site_replies(outcomes).next() {
                Some(reply) => self.after_open(reply, asked_at, soft),
                None => Step::Reply(Answer::failure(SiteError::Io)),
            },
            None => self.after_nodes(outcomes, soft),
        }
    }

    fn purpose(&self) -> OpenFor {
        OpenFor::Read {
            offset_bytes: self.boundary(),
            end_bytes: self.range.end,
        }
    }

    fn boundary(&self) -> u64 {
        boundary(self.range.start, self.range.end)
    }

    fn open(&mut self, soft: &mut Soft) -> Step {
        let purpose = self.purpose();
        let known = soft
            .leases
            .known(soft.now, self.file, &self.caller, purpose);
        if let Some(known) = known {
            let column_of = soft.maps.columns_of(self.file, &known);
            if let Some(step) = self.ask(&known.layout, &known.attributes, column_of) {
                return step;
            }
        }
        self.opening = Some(soft.now);
        Step::Parts(vec![PartRequest::Site(SiteRequest {
            caller: self.caller.clone(),
            duplicate: None,
            operation: SiteOperation::Open {
                file: self.file,
                purpose,
                holder: soft.holder(),
            },
        })])
    }

    fn after_open(&mut self, reply: SiteReply, asked_at: Time, soft: &mut Soft) -> Step {
        let opening = Opening {
            file: self.file,
            caller: &self.caller,
            purpose: self.purpose(),
            asked_at,
        };
        let Some((layout, attributes, _)) = soft.take_opened_to_read(&opening, &reply) else {
            return Step::Reply(refused(reply));
        };
        let column_of = |block| layout.map.column_of(block);
        let step = self.ask(layout, attributes, column_of);
        step.unwrap_or_else(|| Step::Reply(Answer::failure(SiteError::Io)))
    }

    /// Asks nodes; `None` if it is not known where all of the range lies.
    fn ask(
        &mut self,
        layout: &FileLayout,
        attributes: &Attributes,
        column_of: impl FnMut(u64) -> Option<u8>,
    ) -> Option<Step> {
        self.pieces = match layout.columns {
            0 => Vec::new(),
            _ => pieces::split(layout, column_of, self.boundary(), self.range.end)?,
        };
        self.stretches = pieces::stretches(&self.pieces);
        self.subject.after = Some(attributes.clone());
        let part = |stretch: &ObjectPiece| PartRequest::Mapped {
            object: stretch.object,
            offset_bytes: stretch.object_offset,
            length_bytes: stretch.length_bytes,
            truncate_generation: layout.truncate_generation,
            capability: layout.capability,
        };
        Some(Step::Parts(self.stretches.iter().map(part).collect()))
    }

    fn after_nodes(&mut self, outcomes: Vec<Outcome>, soft: &mut Soft) -> Step {
        let is_outdated = |outcome: &Outcome| {
            let is_cut = matches!(
                outcome,
                Outcome::Node(Err(NodeError::StaleGeneration { .. }))
            );
            is_cut || outcome.is_outdated()
        };
        if self.reopened < REOPENS_MAX && outcomes.iter().any(is_outdated) {
            self.reopened += 1;
            soft.leases.give_back(self.file);
            return self.open(soft);
        }
        let mut told = Vec::new();
        for (stretch, outcome) in self.stretches.iter().zip(outcomes) {
            told.push(match outcome {
                Outcome::Node(Ok(NodeAnswer::Mapped(mapped))) => mapped,
                // Nothing was ever written to this column.
                Outcome::Node(Err(NodeError::NoObject)) => MappedRanges {
                    runs: Vec::new(),
                    end_bytes: stretch.object_offset + stretch.length_bytes,
                },
                Outcome::Node(Err(error)) => {
                    return Step::Reply(Answer::failure(site_error(&error)));
                }
                _ => return Step::Reply(Answer::failure(SiteError::Io)),
            });
        }
        let answer = SiteAnswer::Mapped(self.of_file(&told));
        let subject = std::mem::take(&mut self.subject);
        Step::Reply(Answer::new(Ok(answer), subject))
    }

    /// What nodes have told of their stretches, in the order of the file, up to where one of
    /// them has told no more.
    fn of_file(&self, told: &[MappedRanges]) -> MappedRanges {
        let mut mapped = MappedRanges {
            runs: Vec::new(),
            end_bytes: self.range.end,
        };
        mapped.add(self.range.start..self.boundary());
        for piece in &self.pieces {
            let end = piece.object_offset + piece.length_bytes;
            let is_in = |stretch: &ObjectPiece| {
                stretch.object == piece.object
                    && stretch.object_offset <= piece.object_offset
                    && end <= stretch.object_offset + stretch.length_bytes
            };
            let place = self.stretches.iter().position(is_in);
            let Some(own) = place.and_then(|place| told.get(place)) else {
                continue;
            };
            let first = own
                .runs
                .partition_point(|run| run.end <= piece.object_offset);
            let runs = own.runs.get(first..).unwrap_or_default();
            for run in runs.iter().take_while(|run| run.start < end) {
                let place = |at: u64| {
                    let at = at.clamp(piece.object_offset, end);
                    piece.file_offset + at - piece.object_offset
                };
                mapped.add(place(run.start)..place(run.end));
            }
            if own.end_bytes < end {
                let known = own.end_bytes.saturating_sub(piece.object_offset);
                mapped.end_bytes = piece.file_offset + known;
                break;
            }
        }
        mapped
    }
}
