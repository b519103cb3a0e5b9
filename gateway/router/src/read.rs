//! READ of any range (Slice 3.1): the site's part first, because most files end
//! there; then permission, layout and size from the site, and the columns.

mod head;

use std::ops::Range;

use crossdock_limits::INJECTED_PIECE_BYTES_MIN;
use crossdock_names::{FileRef, SMALL_FILE_THRESHOLD_BYTES, Version};
use crossdock_peer::{
    Attributes, Caller, FileLayout, Flow, LeaseId, NodeAnswer, NodeError, OpenFor, SiteAnswer,
    SiteError, SiteOperation, SiteReply, SiteRequest, Stability, Transport, WeakCache,
};
use crossdock_types::{Payload, Time, WallTime};

use head::Located;

use crate::elsewhere::Elsewhere;
use crate::leases::{Known, Opening};
use crate::part::{FileState, Outcome, PartRequest, site_error};
use crate::pieces::{self, ObjectPiece};
use crate::soft::Soft;
use crate::work::{Answer, Step, boundary, site_replies};

/// How often a file is opened again because what its site gave is outdated.
pub(crate) const REOPENS_MAX: u32 = 16;

/// What becomes of the bytes of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bulk {
    /// They pass through the gateway.
    Relayed,
    /// And are kept, as more is read of the file.
    Kept,
    /// Nodes may send them in this connection.
    For(Flow),
}

/// A READ in progress.
#[derive(Debug)]
pub(crate) struct ReadWork {
    caller: Caller,
    pub(crate) file: FileRef,
    start: u64,
    end: u64, // As asked; in the columns at most the file's end.
    patience_ms: u32,
    bulk: Bulk,
    payload: Payload, // What has been read, from `start` on.
    /// Under which lease the head is read, and since when the file is as that says.
    head_under: Option<(LeaseId, WallTime)>,
    reopened: u32, // How often what is known of the file was outdated.
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The site reads below the threshold, or tells where that lies.
    Head,
    /// What lies there is read, as the site told it.
    Located(Located),
    /// The site gives layout and size.
    Opening { asked_at: Time },
    /// The columns read.
    Columns {
        pieces: Vec<ObjectPiece>,
        opened: Opened,
    },
    /// The site notes the time of access.
    Touching(Opened),
}

/// What the site told.
#[derive(Debug)]
struct Opened {
    lease: Option<LeaseId>,
    /// Whether the site has told it to this request, or to one before.
    is_fresh: bool,
    size_bytes: u64,
    truncate_generation: u64,
    subject: WeakCache,
}

impl Opened {
    fn as_told(
        is_fresh: bool,
        lease: Option<LeaseId>,
        (layout, attributes): (&FileLayout, &Attributes),
    ) -> Self {
        Self {
            lease,
            is_fresh,
            size_bytes: attributes.size_bytes,
            truncate_generation: layout.truncate_generation,
            subject: WeakCache {
                before: None,
                after: Some(attributes.clone()),
            },
        }
    }
}

impl ReadWork {
    pub(crate) fn begin(
        caller: Caller,
        file: FileRef,
        range: Range<u64>,
        (patience_ms, bulk): (u32, Bulk),
        soft: &mut Soft,
    ) -> (Self, Step) {
        let (offset, end) = (range.start, range.end);
        let boundary = boundary(offset, end);
        let mut work = Self {
            caller,
            file,
            start: offset,
            end,
            patience_ms,
            bulk,
            payload: Payload::new(),
            head_under: None,
            reopened: 0,
            phase: Phase::Head,
        };
        // An empty read at the threshold or below is the site's, too.
        let is_of_site = end <= SMALL_FILE_THRESHOLD_BYTES || offset < boundary;
        // What is kept of the head is given out under a lease, as the rest is.
        let step = match is_of_site && (bulk != Bulk::Kept || offset >= boundary) {
            true => work.head(),
            false => work.open(soft),
        };
        (work, step)
    }

    pub(crate) fn next(&mut self, outcomes: Vec<Outcome>, soft: &mut Soft) -> Step {
        let phase = std::mem::replace(&mut self.phase, Phase::Head);
        match phase {
            Phase::Columns { pieces, opened } => {
                self.after_columns(&pieces, opened, outcomes, soft)
            }
            Phase::Head => match site_replies(outcomes).next() {
                Some(reply) => self.after_head(reply, soft),
                None => io_error(),
            },
            Phase::Located(located) => self.after_located(located, outcomes, soft),
            Phase::Opening { asked_at } => match site_replies(outcomes).next() {
                Some(reply) => self.after_open(reply, asked_at, soft),
                None => io_error(),
            },
            Phase::Touching(mut opened) => {
                // A time of access that could not be noted fails no read.
                if let Some(after) = site_replies(outcomes).next().and_then(|r| r.subject.after) {
                    opened.subject.after = Some(after);
                }
                self.reply(opened)
            }
        }
    }

    fn site(&self, operation: SiteOperation) -> Step {
        Step::Parts(vec![PartRequest::Site(SiteRequest {
            caller: self.caller.clone(),
            duplicate: None,
            operation,
        })])
    }

    fn open(&mut self, soft: &mut Soft) -> Step {
        let known = soft
            .leases
            .known(soft.now, self.file, &self.caller, self.purpose());
        if let Some(known) = known
            && let Some(step) = self.columns_under(&known, soft)
        {
            return step;
        }
        self.phase = Phase::Opening { asked_at: soft.now };
        self.site(SiteOperation::Open {
            file: self.file,
            purpose: self.purpose(),
            holder: soft.holder(),
        })
    }

    fn purpose(&self) -> OpenFor {
        OpenFor::Read {
            offset_bytes: boundary(self.start, self.end),
            end_bytes: self.end,
        }
    }

    /// Reads by what is known under a lease, if that is enough.
    fn columns_under(&mut self, known: &Known, soft: &mut Soft) -> Option<Step> {
        if let Some(step) = self.hot_rest(known, soft) {
            return Some(step);
        }
        if self.lacks_head() {
            return Some(self.head_under(Some(known)));
        }
        let column_of = soft.maps.columns_of(self.file, known);
        let told = (&known.layout, &known.attributes);
        self.columns(false, Some(known), told, &soft.elsewhere, column_of)
    }

    fn after_open(&mut self, reply: SiteReply, asked_at: Time, soft: &mut Soft) -> Step {
        let opening = Opening {
            file: self.file,
            caller: &self.caller,
            purpose: self.purpose(),
            asked_at,
        };
        let Some((layout, attributes, known)) = soft.take_opened_to_read(&opening, &reply) else {
            return Step::Reply(refused(reply));
        };
        if let Some(known) = &known
            && let Some(step) = self.hot_rest(known, soft)
        {
            return step;
        }
        if self.lacks_head() {
            return self.head_under(known.as_ref());
        }
        let column_of = |block| layout.map.column_of(block);
        let step = match &known {
            Some(known) => {
                let told = (&known.layout, &known.attributes);
                self.columns(true, Some(known), told, &soft.elsewhere, column_of)
            }
            None => self.columns(true, None, (layout, attributes), &soft.elsewhere, column_of),
        };
        step.unwrap_or_else(io_error)
    }

    /// Reads what is not the site's; `None` if it is not known where all of it lies.
    fn columns(
        &mut self,
        is_fresh: bool,
        known: Option<&Known>,
        (layout, attributes): (&FileLayout, &Attributes),
        elsewhere: &Elsewhere,
        column_of: impl FnMut(u64) -> Option<u8>,
    ) -> Option<Step> {
        let lease = known.map(|known| known.lease);
        let opened = Opened::as_told(is_fresh, lease, (layout, attributes));
        let start = boundary(self.start, self.end);
        let end = self.end.min(opened.size_bytes);
        let pieces = pieces::split_for_read(layout, column_of, start, end)?;
        self.end = end;
        if pieces.is_empty() {
            self.push_zeros_to(end);
            return Some(Step::Reply(self.answer(opened)));
        }
        let version = pieces::version_to_read(layout);
        let lasting = known.filter(|known| !known.is_exclusive);
        let changed = lasting.map(|known| known.attributes.changed);
        let keeper = changed.and_then(|changed| elsewhere.keeper(self.file, changed));
        let parts = pieces.iter().map(|piece| PartRequest::Read {
            object: piece.object,
            offset_bytes: piece.object_offset,
            length_bytes: piece.length_bytes,
            version,
            patience_ms: self.patience_ms,
            capability: layout.capability,
            flow: self.flow_of(piece, pieces.len()),
            state: changed.map(|changed| FileState {
                file: self.file,
                changed,
                offset_bytes: piece.file_offset,
                keeper,
            }),
        });
        let parts = parts.collect();
        self.phase = Phase::Columns { pieces, opened };
        Some(Step::Parts(parts))
    }

    /// In what the node may send a piece itself. A datagram is one node's as a whole: a read
    /// of several pieces, or of what the site has, goes through the gateway.
    fn flow_of(&self, piece: &ObjectPiece, pieces: usize) -> Option<Flow> {
        let Bulk::For(flow) = self.bulk else {
            return None;
        };
        let is_all = pieces == 1 && piece.file_offset == self.start;
        let is_long = piece.length_bytes >= INJECTED_PIECE_BYTES_MIN;
        (is_long && (flow.transport == Transport::Tcp || is_all)).then_some(flow)
    }

    /// Whether bytes stay with a node that were to be a whole datagram, and there are zeros
    /// beside them, as its column ends early.
    fn is_mixed_datagram(&self) -> bool {
        let is_datagram = match self.bulk {
            Bulk::For(flow) => flow.transport == Transport::Udp,
            Bulk::Kept | Bulk::Relayed => false,
        };
        let held = self.payload.extents().iter();
        let held_bytes: usize = held.map(|(_, extent)| extent.length_bytes).sum();
        is_datagram && held_bytes > 0 && held_bytes < self.payload.len()
    }

    /// What has not been read yet, if it is kept here, under a lease that says that it is as
    /// it was.
    fn hot_rest(&mut self, known: &Known, soft: &mut Soft) -> Option<Step> {
        let start = self.start + self.payload.len() as u64;
        let end = self.end.min(known.attributes.size_bytes);
        if end <= start {
            return None;
        }
        let changed = known.attributes.changed;
        let payload = soft.hot.get(self.file, changed, start..end)?;
        self.payload.append(payload);
        self.end = end;
        let told = (&known.layout, &known.attributes);
        let opened = Opened::as_told(false, Some(known.lease), told);
        Some(self.note_access(opened, soft))
    }

    /// Keeps what was read of a file that is read again and again, if its lease still says that
    /// it is as it was. Which version it is is known of `versions`, by where they begin in the
    /// file and how long they are.
    fn keep(&self, opened: &Opened, versions: &[(u64, u64, Version)], soft: &mut Soft) {
        let (Bulk::Kept, Some(lease), Some(told)) =
            (self.bulk, opened.lease, &opened.subject.after)
        else {
            return;
        };
        let (now, changed) = (soft.now, told.changed);
        if !soft.leases.is_unchanged(now, self.file, lease, changed) {
            return;
        }
        let read_to = self.start + self.payload.len() as u64;
        let place = |at: u64| usize::try_from(at - self.start).unwrap_or(usize::MAX);
        let mut at = boundary(self.start, self.end);
        let mut put = |from: u64, to: u64, version| {
            let kept = self.payload.slice(place(from), place(to));
            soft.hot.put(self.file, changed, from, (kept, version));
        };
        for &(from, length_bytes, version) in versions {
            if at < from {
                put(at, from, None);
            }
            at = from + length_bytes;
            put(from, at, Some(version));
        }
        if at < read_to {
            put(at, read_to, None);
        }
        let of_columns = SMALL_FILE_THRESHOLD_BYTES..told.size_bytes;
        soft.hot.note_whole(self.file, &of_columns);
    }

    fn after_columns(
        &mut self,
        pieces: &[ObjectPiece],
        opened: Opened,
        outcomes: Vec<Outcome>,
        soft: &mut Soft,
    ) -> Step {
        // What is not there may have been removed since the lease was given.
        let is_gone = |outcome: &Outcome| {
            !opened.is_fresh && matches!(outcome, Outcome::Node(Err(NodeError::NoObject)))
        };
        let is_moved = |outcome: &Outcome| {
            matches!(
                outcome,
                Outcome::Node(Err(NodeError::StaleGeneration { .. }))
            )
        };
        let is_outdated =
            |outcome: &Outcome| outcome.is_outdated() || is_gone(outcome) || is_moved(outcome);
        if self.reopened < REOPENS_MAX && outcomes.iter().any(is_outdated) {
            self.reopened += 1;
            soft.leases.give_back(self.file);
            return self.open(soft);
        }
        let mut versions = Vec::new();
        for (piece, outcome) in pieces.iter().zip(outcomes) {
            let read = match outcome {
                Outcome::Node(Ok(NodeAnswer::Read { payload, version })) => {
                    if payload.len() as u64 == piece.length_bytes {
                        versions.push((piece.file_offset, piece.length_bytes, version));
                    }
                    payload
                }
                // Nothing was ever written to this column: a hole.
                Outcome::Node(Err(NodeError::NoObject)) => Payload::new(),
                Outcome::Node(Err(error)) => {
                    return Step::Reply(Answer::new(Err(site_error(&error)), opened.subject));
                }
                _ => return io_error(),
            };
            self.push_zeros_to(piece.file_offset); // Blocks that lie nowhere.
            self.append(read, piece.length_bytes);
        }
        self.push_zeros_to(self.end);
        if self.is_mixed_datagram() {
            (self.bulk, self.payload) = (Bulk::Relayed, Payload::new());
            return self.open(soft);
        }
        self.keep(&opened, &versions, soft);
        self.note_access(opened, soft)
    }

    /// All is read: its file's time of access may have to be told.
    fn note_access(&mut self, mut opened: Opened, soft: &mut Soft) -> Step {
        let told = opened.subject.after.as_ref();
        if told.is_some_and(|told| soft.leases.is_access_due(soft.now, told)) {
            let lease = opened.lease;
            let read = lease.and_then(|lease| soft.leases.was_read(soft.now, self.file, lease));
            if let Some(attributes) = read {
                opened.subject.after = Some(attributes.clone());
                return self.reply(opened);
            }
            let operation = SiteOperation::PushAttributes {
                file: self.file,
                size_at_least_bytes: 0,
                wrote: false,
                read: true,
                truncate_generation: opened.truncate_generation,
                stability: Stability::Unstable,
                written: None,
                lease: None,
            };
            self.phase = Phase::Touching(opened);
            return self.site(operation);
        }
        self.reply(opened)
    }

    /// Bytes between a column's end and the file's are zeros.
    fn append(&mut self, mut read: Payload, length_bytes: u64) {
        let length = usize::try_from(length_bytes).unwrap_or(usize::MAX);
        read.truncate(length);
        let missing = length_bytes - read.len() as u64;
        self.payload.append(read);
        self.push_zeros(missing);
    }

    /// Zeros up to there in the file.
    fn push_zeros_to(&mut self, end: u64) {
        let at = self.start + self.payload.len() as u64;
        self.push_zeros(end.saturating_sub(at));
    }

    fn push_zeros(&mut self, length_bytes: u64) {
        // At most what the client asked for, which the door has bounded.
        self.payload
            .push_zeros(usize::try_from(length_bytes).unwrap_or(usize::MAX));
    }

    fn reply(&mut self, opened: Opened) -> Step {
        Step::Reply(self.answer(opened))
    }

    fn answer(&mut self, opened: Opened) -> Answer {
        let payload = std::mem::take(&mut self.payload);
        let end_of_file = self.start.saturating_add(payload.len() as u64) >= opened.size_bytes;
        let read = SiteAnswer::Read {
            payload,
            end_of_file,
        };
        Answer::new(Ok(read), opened.subject)
    }
}

fn io_error() -> Step {
    Step::Reply(Answer::failure(SiteError::Io))
}

/// The answer to an open that did not open.
pub(crate) fn refused(reply: SiteReply) -> Answer {
    let error = match reply.outcome {
        Err(error) => error,
        Ok(_) => SiteError::Io,
    };
    Answer::new(Err(error), reply.subject)
}
