//! Copies from file to file (docs/decisions/0051): a write whose bytes lie in another place. The
//! source is opened as for reading, the destination as for writing; each piece that lies in one
//! column here and there is an order to the primary of the one that is written.

use std::collections::BTreeSet;

use crossdock_limits::COPY_BYTES_MAX;
use crossdock_names::{FileCapability, FileRef, ObjectId, SMALL_FILE_THRESHOLD_BYTES};
use crossdock_peer::{
    Attributes, CopySource, FileLayout, NodeError, OpenFor, ReadVersion, SiteAnswer, SiteError,
    SiteOperation, SiteReply, SourceError, Stability,
};
use crossdock_types::{Payload, Time};

use super::{Content, Phase, RESTARTS_MAX, WriteWork};
use crate::leases::Opening;
use crate::part::{Outcome, PartRequest};
use crate::pieces::{self, ObjectPiece};
use crate::read::refused;
use crate::soft::Soft;
use crate::work::{Answer, Step};

/// What is copied.
#[derive(Debug)]
pub(crate) struct Copied {
    source: FileRef,
    start: u64,
    length: u64,
    stability: Stability,
    frees_zeros: bool,
    /// Where it lies.
    told: Option<Told>,
    /// Columns that are not there: nothing was ever written to them.
    absent: BTreeSet<ObjectId>,
    /// Which columns are read for the orders that were sent, in their order.
    asked: Vec<Option<ObjectId>>,
}

/// What is known of the source.
#[derive(Debug)]
struct Told {
    /// In the order of the file; what lies between them is zeros.
    pieces: Vec<ObjectPiece>,
    version: ReadVersion,
    capability: Option<FileCapability>,
    /// Whether its site has told it to this copy, or to a request before.
    is_fresh: bool,
}

/// Bytes that lie in one column here and there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// From the beginning of the piece that is written.
    at: u64,
    length: u64,
    /// Where they are read; zeros lie nowhere.
    source: Option<(ObjectId, u64)>,
}

/// What the sources of orders have said.
pub(super) enum Sources {
    /// Nothing that is in the way.
    Fine,
    /// They are to be looked for anew.
    Moved,
    /// Some cannot be read.
    Unreadable,
}

impl Copied {
    pub(crate) const fn new(
        (source, start): (FileRef, u64),
        length: u64,
        stability: Stability,
        frees_zeros: bool,
    ) -> Self {
        Self {
            source,
            start,
            length,
            stability,
            frees_zeros,
            told: None,
            absent: BTreeSet::new(),
            asked: Vec::new(),
        }
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    pub(super) const fn stability(&self) -> Stability {
        self.stability
    }

    /// Whether it may go to `start` of `file`.
    pub(super) fn fits(&self, file: FileRef, start: u64) -> bool {
        let is_some = self.length > 0 && self.length <= COPY_BYTES_MAX;
        let first = self.start.min(start);
        let overlaps = self.source == file && self.start.abs_diff(start) < self.length;
        is_some && first >= SMALL_FILE_THRESHOLD_BYTES && !overlaps
    }

    pub(super) const fn operation(&self, file: FileRef, offset_bytes: u64) -> SiteOperation {
        SiteOperation::Copy {
            file,
            offset_bytes,
            source: self.source,
            source_offset_bytes: self.start,
            length_bytes: self.length,
            stability: self.stability,
            frees_zeros: self.frees_zeros,
        }
    }

    const fn purpose(&self) -> OpenFor {
        OpenFor::Read {
            offset_bytes: self.start,
            end_bytes: self.start.saturating_add(self.length),
        }
    }

    /// Notes where the source lies; false if that is not known of all of it.
    fn locate(
        &mut self,
        is_fresh: bool,
        (layout, attributes): (&FileLayout, &Attributes),
        column_of: impl FnMut(u64) -> Option<u8>,
    ) -> bool {
        let end = self.start.saturating_add(self.length);
        let end = end.min(attributes.size_bytes);
        let pieces = pieces::split_for_read(layout, column_of, self.start, end);
        self.told = pieces.map(|pieces| Told {
            pieces,
            version: pieces::version_to_read(layout),
            capability: layout.capability,
            is_fresh,
        });
        self.told.is_some()
    }

    /// The orders for a piece of what is written from `start` on.
    pub(super) fn orders(
        &self,
        piece: &ObjectPiece,
        start: u64,
        layout: &FileLayout,
    ) -> Vec<PartRequest> {
        let Some(told) = &self.told else {
            return Vec::new();
        };
        let (truncate_generation, capability) = (layout.truncate_generation, layout.capability);
        let from = self.start + piece.file_offset - start;
        let order = |segment: Segment| {
            let place = segment.source.filter(|(it, _)| !self.absent.contains(it));
            let (object, offset_bytes) = (piece.object, piece.object_offset + segment.at);
            match place {
                Some((source, source_offset)) => PartRequest::Copy {
                    object,
                    offset_bytes,
                    source: CopySource {
                        object: source,
                        offset_bytes: source_offset,
                        length_bytes: segment.length,
                        version: told.version,
                        capability: told.capability,
                    },
                    stability: self.stability.of_bytes(),
                    frees_zeros: self.frees_zeros,
                    truncate_generation,
                    capability,
                    number: 0,
                },
                None if self.frees_zeros => PartRequest::Zero {
                    object,
                    offset_bytes,
                    length_bytes: segment.length,
                    truncate_generation,
                    capability,
                    number: 0,
                },
                None => PartRequest::Write {
                    object,
                    offset_bytes,
                    payload: zeros(segment.length),
                    stability: self.stability.of_bytes(),
                    truncate_generation,
                    capability,
                    number: 0,
                },
            }
        };
        let segments = cut(piece.length_bytes, from, &told.pieces).into_iter();
        segments.map(order).collect()
    }

    /// Notes which columns are read for these orders.
    pub(super) fn note_asked(&mut self, orders: &[PartRequest]) {
        let asked = orders.iter().map(|order| match order {
            PartRequest::Copy { source, .. } => Some(source.object),
            _ => None,
        });
        self.asked = asked.collect();
    }

    /// Looks at what has come of orders.
    pub(super) fn judge(&mut self, outcomes: &[Outcome]) -> Sources {
        let is_fresh = self.told.as_ref().is_some_and(|told| told.is_fresh);
        let mut sources = Sources::Fine;
        for (asked, outcome) in self.asked.iter().zip(outcomes) {
            let Outcome::Node(Err(NodeError::Source(error))) = outcome else {
                continue;
            };
            match error {
                SourceError::NoObject => {
                    // It may have been removed since the lease was given.
                    self.absent.extend(asked.filter(|_| is_fresh));
                    sources = Sources::Moved;
                }
                SourceError::StaleGeneration { .. } => sources = Sources::Moved,
                SourceError::Media { .. } | SourceError::Other(_) => return Sources::Unreadable,
            }
        }
        sources
    }
}

impl WriteWork {
    /// Opens the source of a copy, if that has to be done; else the file that is written.
    pub(super) fn open_all(&mut self, soft: &mut Soft) -> Step {
        match self.open_source(soft) {
            Some(step) => step,
            None => self.open(soft),
        }
    }

    fn open_source(&mut self, soft: &mut Soft) -> Option<Step> {
        let Content::Copy(copied) = &mut self.content else {
            return None;
        };
        if copied.told.is_some() {
            return None;
        }
        let (source, purpose) = (copied.source, copied.purpose());
        let known = soft.leases.known(soft.now, source, &self.caller, purpose);
        if let Some(known) = known {
            let column_of = soft.maps.columns_of(source, &known);
            if copied.locate(false, (&known.layout, &known.attributes), column_of) {
                return None;
            }
        }
        self.phase = Phase::OpeningSource { asked_at: soft.now };
        let open = SiteOperation::Open {
            file: source,
            purpose,
            holder: soft.holder(),
        };
        Some(Step::Parts(vec![self.site(open)]))
    }

    pub(super) fn after_open_source(
        &mut self,
        reply: SiteReply,
        asked_at: Time,
        soft: &mut Soft,
    ) -> Step {
        let Content::Copy(copied) = &mut self.content else {
            return self.fail(SiteError::Io);
        };
        let opening = Opening {
            file: copied.source,
            caller: &self.caller,
            purpose: copied.purpose(),
            asked_at,
        };
        let Some((layout, attributes, _)) = soft.take_opened_to_read(&opening, &reply) else {
            return Step::Reply(refused(reply));
        };
        let column_of = |block| layout.map.column_of(block);
        match copied.locate(true, (layout, attributes), column_of) {
            true => self.open(soft),
            false => self.fail(SiteError::Io),
        }
    }

    /// Begins a copy anew whose source is not where it was thought to be, or whose outcomes say
    /// otherwise that it is over; `None`: they say nothing of the source.
    pub(super) fn after_sources(&mut self, outcomes: &[Outcome], soft: &mut Soft) -> Option<Step> {
        let Content::Copy(copied) = &mut self.content else {
            return None;
        };
        match copied.judge(outcomes) {
            Sources::Fine => None,
            Sources::Unreadable => {
                let answer = Answer::new(Ok(SiteAnswer::Unreadable), self.head.clone());
                Some(Step::Reply(answer))
            }
            Sources::Moved if self.restarts < RESTARTS_MAX => {
                self.restarts += 1;
                self.forget_source(soft);
                Some(self.open_all(soft))
            }
            Sources::Moved => Some(self.fail(SiteError::Busy)),
        }
    }

    /// What is known of the source of a copy may be outdated.
    pub(super) fn forget_source(&mut self, soft: &mut Soft) {
        if let Content::Copy(copied) = &mut self.content {
            copied.told = None;
            soft.leases.give_back(copied.source);
        }
    }
}

/// Cuts `length` bytes that are written where the source's pieces end; its first byte is `from` of
/// the source's file.
fn cut(length: u64, from: u64, pieces: &[ObjectPiece]) -> Vec<Segment> {
    let end = from + length;
    let mut segments = Vec::new();
    let mut add = |start: u64, stop: u64, source| {
        if start < stop {
            segments.push(Segment {
                at: start - from,
                length: stop - start,
                source,
            });
        }
    };
    let mut at = from;
    let first = pieces.partition_point(|piece| piece.file_offset + piece.length_bytes <= from);
    let pieces = pieces.get(first..).unwrap_or_default().iter();
    for piece in pieces.take_while(|piece| piece.file_offset < end) {
        let start = piece.file_offset.max(at);
        let stop = (piece.file_offset + piece.length_bytes).min(end);
        add(at, start, None);
        let offset = piece.object_offset + start - piece.file_offset;
        add(start, stop, Some((piece.object, offset)));
        at = stop;
    }
    add(at, end, None);
    segments
}

fn zeros(length: u64) -> Payload {
    let mut zeros = Payload::new();
    zeros.push_zeros(usize::try_from(length).unwrap_or_default());
    zeros
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_names::FileId;

    fn piece(column: u16, object_offset: u64, file_offset: u64, length_bytes: u64) -> ObjectPiece {
        ObjectPiece {
            object: ObjectId::column(FileId(1), 1, 0, column),
            object_offset,
            file_offset,
            length_bytes,
        }
    }

    /// Goal: what is written is cut where the source is, wherever either begins; what lies in no
    /// column, between them or behind the last, is zeros.
    #[test]
    fn what_is_written_is_cut_where_the_source_is() {
        let source = [
            piece(0, 500, 100, 50),
            piece(1, 0, 150, 50),
            piece(0, 550, 300, 10),
        ];
        let object = |column| source[usize::from(column == 1)].object;
        let segment = |at, length, source| Segment { at, length, source };
        assert_eq!(
            cut(300, 90, &source),
            [
                segment(0, 10, None),
                segment(10, 50, Some((object(0), 500))),
                segment(60, 50, Some((object(1), 0))),
                segment(110, 100, None),
                segment(210, 10, Some((object(0), 550))),
                segment(220, 80, None),
            ]
        );
        assert_eq!(
            cut(20, 140, &source),
            [
                segment(0, 10, Some((object(0), 540))),
                segment(10, 10, Some((object(1), 0))),
            ]
        );
        assert_eq!(cut(7, 155, &source), [segment(0, 7, Some((object(1), 5)))]);
        assert_eq!(cut(7, 200, &source), [segment(0, 7, None)]);
        assert_eq!(cut(7, 400, &[]), [segment(0, 7, None)]);
        assert_eq!(cut(0, 150, &source), []);
    }
}
