//! WRITE of any range (Slice 3.1 and 4.1): permission and layout first, then
//! the site's part and the columns at once, then size and time are pushed to
//! the site, stable before a stable reply.

use crossdock_limits::{EXCHANGE_BYTES_MAX, FILE_BYTES_MAX, MAPPED_BYTES_MAX};
use crossdock_names::{FileRef, HostId, Incarnation};
use crossdock_peer::{
    BeforeAttributes, Caller, DuplicateKey, FileLayout, LeaseId, LeaseUse, NodeAnswer, NodeError,
    OpenFor, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest, Stability, WeakCache,
};
use crossdock_types::{Payload, Time};

use crate::commit::CommitSet;
use crate::leases::{Known, Opening, Written};
use crate::part::{Outcome, PartRequest, Place, site_error};
use crate::pieces::{self, ObjectPiece};
use crate::read::refused;
use crate::soft::{Numbers, Soft};
use crate::work::{Answer, Step, boundary, site_replies};

mod copy;
mod elsewhere;

pub(crate) use copy::Copied;

/// How often a write begins again because the file was truncated under it, or the
/// nodes wanted to see another capability.
const RESTARTS_MAX: u32 = 16;

/// What bytes become.
#[derive(Debug)]
pub(crate) enum Content {
    /// These, so durable before the answer.
    Bytes(Payload, Stability),
    /// So many zeros, durably, which take no space where they fill blocks.
    Hole(u64),
    /// The second half, durably, in the place of the first one, if that is there.
    Exchange(Payload),
    /// What lies elsewhere.
    Copy(Box<Copied>),
}

impl Content {
    fn length(&self) -> u64 {
        match self {
            Self::Bytes(payload, _) => payload.len() as u64,
            Self::Hole(length) => *length,
            Self::Exchange(payload) => payload.len() as u64 / 2,
            Self::Copy(copied) => copied.length(),
        }
    }

    /// How durable the time of change has to be before the answer, and with it the size.
    fn stability(&self) -> Stability {
        match self {
            Self::Copy(copied) if copied.stability() == Stability::Stable => Stability::Stable,
            Self::Bytes(_, Stability::Stable) => Stability::Stable,
            Self::Bytes(_, Stability::Unstable | Stability::Data)
            | Self::Hole(_)
            | Self::Exchange(_)
            | Self::Copy(_) => Stability::Unstable,
        }
    }

    /// Whether nothing of it is lost in a crash.
    fn is_durable(&self) -> bool {
        let stability = match self {
            Self::Bytes(_, stability) => *stability,
            Self::Copy(copied) => copied.stability(),
            Self::Hole(_) | Self::Exchange(_) => Stability::Stable,
        };
        stability != Stability::Unstable
    }

    const fn is_hole(&self) -> bool {
        matches!(self, Self::Hole(_))
    }

    const fn is_copy(&self) -> bool {
        matches!(self, Self::Copy(_))
    }

    const fn is_exchange(&self) -> bool {
        matches!(self, Self::Exchange(_))
    }

    /// Whether it is carried out once, and whoever asked is told if it is not known whether it was:
    /// so it is with disks, whose initiators have the order of their writes in their hands. Others
    /// send their requests again themselves.
    const fn is_once(&self) -> bool {
        match self {
            Self::Bytes(_, stability) => matches!(stability, Stability::Data),
            Self::Hole(_) | Self::Exchange(_) | Self::Copy(_) => true,
        }
    }

    /// Whether it may be there: an exchange lies at the site or beyond.
    fn fits(&self, file: FileRef, offset: u64, end: u64) -> bool {
        let length = self.length();
        match self {
            Self::Bytes(..) => true,
            Self::Copy(copied) => copied.fits(file, offset),
            Self::Hole(_) => length <= MAPPED_BYTES_MAX,
            Self::Exchange(payload) => {
                let is_in_one = boundary(offset, end) == offset || boundary(offset, end) == end;
                let is_whole = payload.len().is_multiple_of(2) && length > 0;
                is_whole && is_in_one && length <= EXCHANGE_BYTES_MAX.into()
            }
        }
    }
}

/// A WRITE in progress, or a hole in the making.
#[derive(Debug)]
pub(crate) struct WriteWork {
    caller: Caller,
    pub(crate) file: FileRef,
    start: u64,
    content: Content,
    opened: Option<(FileLayout, Incarnation)>,
    pieces: Vec<ObjectPiece>,
    /// Numbers of what was asked of columns, while nothing is known to be in the way of the same
    /// being asked again; and that of the site's part.
    numbered: Vec<(Place, u64)>,
    head_number: Option<u64>,
    first_number: Option<u64>, // Of all that it has been given.
    lease: Option<LeaseId>,    // Under which the columns are written.
    head: WeakCache,           // What the site said to its part.
    restarts: u32,
    placings: u32, // How often blocks were to get another place: theirs was full.
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The site of a copy's source gives permission and layout.
    OpeningSource { asked_at: Time },
    /// The site gives permission and layout, and makes columns.
    Opening { asked_at: Time },
    /// Site and columns write.
    Writing,
    /// The site learns the size.
    Pushing,
    /// Blocks from there on are to get other places (see `elsewhere`): the site tells
    /// where the file ends …
    Measuring { full_from: u64 },
    /// … and has the blocks behind that lie nowhere.
    Cutting { full_from: u64 },
    /// Too much is unstable: the oldest file is committed; then this answer.
    Evicting(CommitSet, Box<Answer>),
}

impl WriteWork {
    pub(crate) fn begin(
        caller: Caller,
        file: FileRef,
        offset: u64,
        content: Content,
        soft: &mut Soft,
    ) -> Result<(Self, Step), SiteError> {
        let length = content.length();
        let end = offset.checked_add(length);
        let Some(end) = end.filter(|end| *end <= FILE_BYTES_MAX) else {
            return Err(SiteError::FileTooBig);
        };
        if !content.fits(file, offset, end) {
            return Err(SiteError::Invalid);
        }
        let mut work = Self {
            caller,
            file,
            // A write of nothing asks for permission only: the site's, anywhere.
            start: if length == 0 { 0 } else { offset },
            content,
            opened: None,
            pieces: Vec::new(),
            numbered: Vec::new(),
            head_number: None,
            first_number: None,
            lease: None,
            head: WeakCache::default(),
            restarts: 0,
            placings: 0,
            phase: Phase::Writing,
        };
        let step = if work.has_tail() {
            work.open_all(soft)
        } else {
            work.write(soft)
        };
        Ok((work, step))
    }

    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>, soft: &mut Soft) -> Step {
        match std::mem::replace(&mut self.phase, Phase::Writing) {
            Phase::Writing => self.after_write(outcomes, soft),
            Phase::Opening { asked_at } => match site_replies(outcomes).next() {
                Some(reply) => self.after_open(reply, asked_at, soft),
                None => Step::Reply(Answer::failure(SiteError::Io)),
            },
            Phase::OpeningSource { asked_at } => match site_replies(outcomes).next() {
                Some(reply) => self.after_open_source(reply, asked_at, soft),
                None => Step::Reply(Answer::failure(SiteError::Io)),
            },
            Phase::Pushing => match site_replies(outcomes).next() {
                Some(reply) => self.after_push(reply, soft),
                None => Step::Reply(Answer::failure(SiteError::Io)),
            },
            Phase::Measuring { full_from } => self.after_measure(full_from, outcomes),
            Phase::Cutting { full_from } => self.after_cut(full_from, outcomes, soft),
            Phase::Evicting(set, answer) => {
                if set.settle(&outcomes, &mut soft.unstable).is_err() {
                    // Not durable and yet to be forgotten: the client must resend.
                    soft.unstable.lose();
                }
                Step::Reply(*answer)
            }
        }
    }

    /// The site's incarnation when it opened the file.
    pub(crate) fn opened_by(&self) -> Option<Incarnation> {
        self.opened.as_ref().map(|(_, incarnation)| *incarnation)
    }

    fn end(&self) -> u64 {
        self.start + self.content.length()
    }

    fn boundary(&self) -> u64 {
        boundary(self.start, self.end())
    }

    fn has_tail(&self) -> bool {
        self.boundary() < self.end()
    }

    fn site(&self, operation: SiteOperation) -> PartRequest {
        PartRequest::Site(SiteRequest {
            caller: self.caller.clone(),
            duplicate: None,
            operation,
        })
    }

    fn open(&mut self, soft: &mut Soft) -> Step {
        let purpose = self.purpose();
        let known = soft
            .leases
            .known(soft.now, self.file, &self.caller, purpose)
            .filter(|_| !self.has_head());
        if let Some(known) = known {
            let column_of = soft.maps.columns_of(self.file, &known);
            if self.place(&known.layout, column_of) {
                return self.write_under(known, soft);
            }
        }
        self.phase = Phase::Opening { asked_at: soft.now };
        Step::Parts(vec![self.site(SiteOperation::Open {
            file: self.file,
            purpose,
            // The site writes its part: it would have to take the lease back at once.
            holder: soft.holder().filter(|_| !self.has_head()),
        })])
    }

    fn purpose(&self) -> OpenFor {
        let (offset_bytes, end_bytes) = (self.boundary(), self.end());
        match self.content {
            Content::Bytes(..) | Content::Exchange(_) | Content::Copy(_) => OpenFor::Write {
                offset_bytes,
                end_bytes,
            },
            Content::Hole(_) => OpenFor::Free {
                offset_bytes,
                end_bytes,
            },
        }
    }

    fn has_head(&self) -> bool {
        self.start < self.boundary()
    }

    /// Cuts the write into pieces; false if it is not known where all of it lies. What lies
    /// nowhere is a hole already.
    fn place(&mut self, layout: &FileLayout, column_of: impl FnMut(u64) -> Option<u8>) -> bool {
        let (start, end) = (self.boundary(), self.end());
        self.pieces.clear();
        if layout.columns == 0 {
            return self.content.is_hole();
        }
        let Some(pieces) = pieces::split(layout, column_of, start, end) else {
            return false;
        };
        if self.content.is_hole() {
            self.pieces = pieces::stretches(&pieces);
            return true;
        }
        let placed: u64 = pieces.iter().map(|piece| piece.length_bytes).sum();
        self.pieces = pieces;
        placed == end - start && (!self.content.is_exchange() || self.pieces.len() == 1)
    }

    fn write_under(&mut self, known: Known, soft: &mut Soft) -> Step {
        self.lease = Some(known.lease);
        self.opened = Some((known.layout, known.incarnation));
        self.write(soft)
    }

    fn after_open(&mut self, reply: SiteReply, asked_at: Time, soft: &mut Soft) -> Step {
        let Ok(SiteAnswer::Opened {
            layout,
            incarnation,
            lease,
        }) = &reply.outcome
        else {
            return Step::Reply(refused(reply));
        };
        let opening = Opening {
            file: self.file,
            caller: &self.caller,
            purpose: self.purpose(),
            asked_at,
        };
        let told = (layout, *incarnation, *lease);
        let after = reply.subject.after.as_ref();
        let known = soft.take_opened(&opening, told, after);
        let column_of = |block| layout.map.column_of(block);
        if !self.place(layout, column_of) {
            let error = match self.content.is_exchange() {
                true => SiteError::Invalid, // It lies in several pieces.
                false => SiteError::Io,
            };
            return Step::Reply(Answer::new(Err(error), reply.subject));
        }
        if let Some(known) = known.filter(|_| !self.has_head()) {
            return self.write_under(known, soft);
        }
        self.lease = None;
        self.opened = Some((layout.clone(), *incarnation));
        self.write(soft)
    }

    /// All parts of the write, the site's first.
    fn write(&mut self, soft: &mut Soft) -> Step {
        self.phase = Phase::Writing;
        let mut parts = Vec::new();
        let boundary = self.boundary();
        if self.start < boundary || self.content.length() == 0 {
            let mut head = self.site(self.head(boundary));
            if let PartRequest::Site(request) = &mut head
                && self.content.is_once()
            {
                request.duplicate = Some(self.head_key(soft));
            }
            parts.push(head);
        }
        if let Some((layout, _)) = &self.opened {
            parts.extend(self.columns(layout));
            self.number(&mut parts, &mut soft.numbers);
        }
        if let Content::Copy(copied) = &mut self.content {
            copied.note_asked(&parts);
        }
        Step::Parts(parts)
    }

    /// By what the site knows its part if that is sent again.
    fn head_key(&mut self, soft: &mut Soft) -> DuplicateKey {
        let (numbers, first) = (&mut soft.numbers, &mut self.first_number);
        let number = self.head_number.get_or_insert_with(|| numbers.give(first));
        sending_key(soft.host, *number)
    }

    /// Gives what is asked of columns its numbers: those from before, where the same was asked for
    /// before, so that what was done then is not done again.
    fn number(&mut self, parts: &mut [PartRequest], numbers: &mut Numbers) {
        let before = std::mem::take(&mut self.numbered);
        for part in parts {
            let Some((place, number)) = part.changed() else {
                continue;
            };
            let known = before.iter().find(|(asked, _)| *asked == place);
            *number = match known {
                Some((_, number)) => *number,
                None => numbers.give(&mut self.first_number),
            };
            self.numbered.push((place, *number));
        }
    }

    /// What was done may have been undone since: all is asked for as if it were the first time.
    fn begin_anew(&mut self) {
        self.numbered.clear();
        self.head_number = None;
    }

    /// It is answered.
    pub(crate) fn close(&self, numbers: &mut Numbers) {
        if let Some(first) = self.first_number {
            numbers.close(first);
        }
    }

    /// The site's part.
    fn head(&self, boundary: u64) -> SiteOperation {
        let (file, offset_bytes) = (self.file, self.start);
        match &self.content {
            Content::Bytes(payload, stability) => SiteOperation::Write {
                file,
                offset_bytes,
                payload: self.slice(payload, self.start, boundary),
                stability: stability.of_bytes(),
            },
            Content::Hole(_) => SiteOperation::Zero {
                file,
                offset_bytes,
                length_bytes: boundary - self.start,
            },
            Content::Exchange(payload) => SiteOperation::Exchange {
                file,
                offset_bytes,
                payload: payload.clone(),
            },
            Content::Copy(copied) => copied.operation(file, offset_bytes),
        }
    }

    /// The columns' parts.
    fn columns(&self, layout: &FileLayout) -> Vec<PartRequest> {
        let (truncate_generation, capability) = (layout.truncate_generation, layout.capability);
        let pieces = self.pieces.iter();
        match &self.content {
            Content::Bytes(payload, stability) => {
                let part = |piece: &ObjectPiece| {
                    let end = piece.file_offset + piece.length_bytes;
                    PartRequest::Write {
                        object: piece.object,
                        offset_bytes: piece.object_offset,
                        payload: self.slice(payload, piece.file_offset, end),
                        stability: stability.of_bytes(),
                        truncate_generation,
                        capability,
                        number: 0,
                    }
                };
                pieces.map(part).collect()
            }
            Content::Hole(_) => {
                let part = |piece: &ObjectPiece| PartRequest::Zero {
                    object: piece.object,
                    offset_bytes: piece.object_offset,
                    length_bytes: piece.length_bytes,
                    truncate_generation,
                    capability,
                    number: 0,
                };
                pieces.map(part).collect()
            }
            Content::Exchange(payload) => {
                let part = |piece: &ObjectPiece| PartRequest::Exchange {
                    object: piece.object,
                    offset_bytes: piece.object_offset,
                    payload: payload.clone(),
                    truncate_generation,
                    capability,
                    number: 0,
                };
                pieces.map(part).collect()
            }
            Content::Copy(copied) => {
                let orders = |piece| copied.orders(piece, self.start, layout);
                pieces.flat_map(orders).collect()
            }
        }
    }

    /// The bytes of `start..end` of the file.
    fn slice(&self, payload: &Payload, start: u64, end: u64) -> Payload {
        let at = |offset: u64| usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        payload.slice(at(start), at(end))
    }

    fn after_write(&mut self, outcomes: Vec<Outcome>, soft: &mut Soft) -> Step {
        if let Some(full_from) = self.first_full(&outcomes) {
            return self.measure(full_from);
        }
        if let Some(step) = self.after_sources(&outcomes, soft) {
            return step;
        }
        let (is_hole, is_copy) = (self.content.is_hole(), self.content.is_copy());
        let mut again = None;
        for outcome in outcomes {
            match outcome {
                Outcome::Site(reply) if reply.outcome.is_ok() && self.opened.is_none() => {
                    return self.finish((*reply).into(), soft);
                }
                Outcome::Site(reply) if reply.outcome.is_ok() => self.head = reply.subject,
                Outcome::Site(reply) => return Step::Reply((*reply).into()),
                Outcome::Node(Ok(NodeAnswer::Written { .. })) => {}
                Outcome::Node(Ok(NodeAnswer::Done { .. })) if is_copy => {}
                Outcome::Node(Ok(NodeAnswer::Differs { at_bytes })) => {
                    let differs = Ok(SiteAnswer::Differs { at_bytes });
                    return Step::Reply(Answer::new(differs, self.head.clone()));
                }
                Outcome::Node(Ok(NodeAnswer::Done { .. }) | Err(NodeError::NoObject))
                    if is_hole =>
                {
                    // A segment that nothing was ever written to has no columns. Were the file
                    // not there any more, its site would say so.
                }
                Outcome::Node(Err(
                    error @ (NodeError::StaleGeneration { .. } | NodeError::NoObject),
                )) => {
                    // A disk's file keeps its size: nothing of what was done is cut.
                    if !self.content.is_once() {
                        self.begin_anew();
                    }
                    again = Some(error);
                }
                // Who asked would do no better than ask again.
                Outcome::Node(Err(error @ NodeError::Unclear)) if !self.content.is_once() => {
                    self.begin_anew();
                    again = Some(error);
                }
                Outcome::Node(Err(error @ NodeError::Refused(refused)))
                    if refused.is_outdated() =>
                {
                    again = Some(error);
                }
                Outcome::Node(Err(error)) => {
                    return self.fail(site_error(&error));
                }
                Outcome::Node(Ok(_)) => return self.fail(SiteError::Io),
            }
        }
        match again {
            None => self.tell(soft),
            // The truncate may have cut what the other parts wrote: all of the
            // write is done again after it, so that no part of it is missing. Where a node
            // wants to see another capability the others know what they have done.
            Some(_) if self.restarts < RESTARTS_MAX => {
                self.restarts += 1;
                soft.leases.give_back(self.file);
                self.forget_source(soft);
                self.open_all(soft)
            }
            Some(error) => self.fail(site_error(&error)),
        }
    }

    /// The columns failed; the site's part may have been written.
    fn fail(&self, error: SiteError) -> Step {
        Step::Reply(Answer::new(Err(error), self.head.clone()))
    }

    /// Under a lease the site learns of an unstable write later.
    fn tell(&mut self, soft: &mut Soft) -> Step {
        let (now, file, end) = (soft.now, self.file, self.size_at_least());
        let Some((lease, (_, incarnation))) = self.lease.zip(self.opened.as_ref()) else {
            return self.push(None);
        };
        let incarnation = *incarnation;
        let Some(subject) = soft.leases.wrote(now, file, lease, end) else {
            return self.push(None);
        };
        if self.content.stability() == Stability::Stable {
            // With all that the site has not been told: the answer shows it.
            return self.push(soft.leases.written(file, lease));
        }
        let written = match self.content.is_exchange() {
            true => SiteAnswer::Done,
            false => SiteAnswer::Written { incarnation },
        };
        self.finish(Answer::new(Ok(written), subject), soft)
    }

    /// Where the file ends at least behind it.
    fn size_at_least(&self) -> u64 {
        match self.content {
            Content::Bytes(..) | Content::Exchange(_) | Content::Copy(_) => self.end(),
            Content::Hole(_) => 0,
        }
    }

    /// Tells the site, under the lease if that still lasts.
    fn push(&mut self, under: Option<Written>) -> Step {
        self.phase = Phase::Pushing;
        let lease = self.lease.filter(|_| under.is_some());
        let end = under.map_or_else(|| self.size_at_least(), |written| written.end_bytes);
        let generation = |(layout, _): &(FileLayout, Incarnation)| layout.truncate_generation;
        Step::Parts(vec![self.site(SiteOperation::PushAttributes {
            file: self.file,
            size_at_least_bytes: end,
            wrote: true,
            read: false,
            truncate_generation: self.opened.as_ref().map_or(0, generation),
            stability: self.content.stability(),
            written: under.map(|written| written.at),
            lease: lease.map(LeaseUse::Keep),
        })])
    }

    fn after_push(&mut self, reply: SiteReply, soft: &mut Soft) -> Step {
        // It is done, and cannot be done again; when that was the site may miss.
        if self.content.is_exchange() {
            let answer = Answer::new(Ok(SiteAnswer::Done), reply.subject);
            return self.finish(answer, soft);
        }
        // The file was truncated between two parts of the write, and the one that
        // came first is cut: all of it is done again. (A disk's file is not cut: its
        // site has been taken over.)
        if let Ok(SiteAnswer::Opened { .. }) = &reply.outcome
            && !self.content.is_once()
        {
            if self.restarts == RESTARTS_MAX {
                return self.fail(SiteError::Busy);
            }
            self.restarts += 1;
            self.begin_anew();
            soft.leases.give_back(self.file);
            return self.open(soft);
        }
        if let (Some(lease), Some(after)) = (self.lease, &reply.subject.after) {
            soft.leases.pushed(soft.now, self.file, lease, after);
        }
        let (Ok(_), Some(incarnation)) = (&reply.outcome, self.opened_by()) else {
            return Step::Reply(refused(reply));
        };
        let subject = WeakCache {
            before: self.before(&reply.subject),
            after: reply.subject.after,
        };
        let written = SiteAnswer::Written { incarnation };
        self.finish(Answer::new(Ok(written), subject), soft)
    }

    /// Attributes before both of the site's steps, if nothing came in between.
    fn before(&self, pushed: &WeakCache) -> Option<BeforeAttributes> {
        match &self.head.after {
            None => pushed.before,
            Some(between) if pushed.before == Some(between.before()) => self.head.before,
            Some(_) => None,
        }
    }

    /// Answers, after making room for the holders of this write if need be.
    fn finish(&mut self, answer: Answer, soft: &Soft) -> Step {
        let unstable = &soft.unstable;
        if self.content.is_durable() || unstable.len() <= soft.unstable_holders_max {
            return Step::Reply(answer);
        }
        let Some(oldest) = unstable.oldest() else {
            return Step::Reply(answer);
        };
        let set = CommitSet::new(oldest, unstable);
        let parts = set.parts(&Caller::root());
        self.phase = Phase::Evicting(set, Box::new(answer));
        Step::Parts(parts)
    }
}

/// What a site knows a change by that is sent again.
fn sending_key(router: HostId, number: u64) -> DuplicateKey {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&router.0.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    DuplicateKey(key)
}
