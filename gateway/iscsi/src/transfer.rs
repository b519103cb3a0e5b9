//! Reading and writing the LUN's file for a task, in pieces of at most 1 MiB, some of them at
//! a time; and what commands do that read first and write then.

use std::collections::{BTreeMap, VecDeque};
use std::iter::once;
use std::ops::Range;

use bytes::Bytes;
use crossdock_limits::{COPY_BYTES_MAX, MAPPED_BYTES_MAX};
use crossdock_names::FileRef;
use crossdock_peer::{CallId, MappedRanges, SiteAnswer, SiteError, SiteOperation, Stability};
use crossdock_router::RoutedReply;
use crossdock_scsi::{AdditionalSense, ByteCheck, Sense, SenseKey, Status, lba_status};
use crossdock_types::{Payload, Time};

use crate::door::{CallOf, IscsiDoor};
use crate::exchange::Exchange;
use crate::message::IscsiEffect;
use crate::plan::Plan;
use crate::refuse::{Access, outcome_of};
use crate::respond::Outcome;
use crate::status::statuses;
use crate::task::{Stage, TaskId};

/// Bytes of one piece, and where in the file pieces end: stripes are cut so, too.
const PIECE_BYTES: u64 = 1 << 20;

/// The same of what moves no bytes.
const HOLE_BYTES: u64 = MAPPED_BYTES_MAX;

/// Pieces of one task at a time.
const PIECES_MAX: usize = 4;

/// Bytes of the file whose checksum is one: which of them are bad is found out in steps of
/// these.
const CHECKED_BYTES: u64 = 4096;

/// Bytes of a pattern that are made at a time.
const PATTERN_BYTES: usize = 64 << 10;

/// What a task has the router do.
#[derive(Debug)]
pub(crate) struct Transfer {
    step: Step,
    /// What the command brought.
    data: Payload,
    /// What is read or written still.
    rest: VecDeque<Range<u64>>,
    calls: BTreeMap<CallId, Range<u64>>,
    /// What was read, by its place in the file.
    read: BTreeMap<u64, Payload>,
    /// What has space.
    mapped: MappedRanges,
    /// The first that failed.
    failed: Option<(SiteError, u64)>,
    /// Of what is copied some cannot be read.
    is_unreadable: bool,
    /// How often bytes were read in vain, as others wrote there.
    tries: u32,
}

#[derive(Debug)]
enum Step {
    Reading,
    Writing(Content),
    /// Bytes are exchanged, if they are what is expected.
    Exchanging(Exchange),
    /// Nodes copy bytes of a file: the first of them that is written lies there in it.
    Copying {
        source: FileRef,
        from: u64,
        first: u64,
        frees_zeros: bool,
    },
    /// Space is given back.
    Freeing,
    /// It is asked which blocks have space.
    Asking,
    /// A read failed: which of its blocks is it?
    Locating(Range<u64>),
}

/// What is written.
#[derive(Clone, Debug)]
enum Content {
    /// These bytes, the first one at that place.
    Bytes(Payload, u64),
    Zeros,
    /// The same block again and again.
    Pattern(Bytes),
}

impl Transfer {
    fn new(step: Step, data: Payload, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let ranges = ranges.into_iter().filter(|range| !range.is_empty());
        Self {
            step,
            data,
            rest: ranges.collect(),
            calls: BTreeMap::new(),
            read: BTreeMap::new(),
            mapped: MappedRanges::default(),
            failed: None,
            is_unreadable: false,
            tries: 0,
        }
    }

    /// Reads bytes.
    pub(crate) fn reading(range: Range<u64>) -> Self {
        Self::new(Step::Reading, Payload::new(), [range])
    }

    /// Writes these bytes.
    pub(crate) fn writing(data: Payload, range: Range<u64>) -> Self {
        let content = Content::Bytes(data, range.start);
        Self::new(Step::Writing(content), Payload::new(), [range])
    }

    /// Has nodes copy bytes to `range`, from there on in another file, or in this one.
    pub(crate) fn copying(
        (source, from): (FileRef, u64),
        range: Range<u64>,
        frees_zeros: bool,
    ) -> Self {
        let step = Step::Copying {
            source,
            from,
            first: range.start,
            frees_zeros,
        };
        Self::new(step, Payload::new(), [range])
    }

    /// Writes zeros.
    pub(crate) fn zeroing(range: Range<u64>) -> Self {
        Self::new(Step::Writing(Content::Zeros), Payload::new(), [range])
    }

    /// Asks which bytes have space.
    pub(crate) fn asking(range: Range<u64>) -> Self {
        Self::new(Step::Asking, Payload::new(), [range])
    }

    /// Makes bytes zeros that need no space.
    pub(crate) fn freeing(range: Range<u64>) -> Self {
        Self::new(Step::Freeing, Payload::new(), [range])
    }

    /// The next piece, unless there are as many as may be.
    pub(crate) fn next_piece(&mut self) -> Option<Range<u64>> {
        if self.calls.len() >= PIECES_MAX || self.failed.is_some() {
            return None;
        }
        let piece_bytes = match self.step {
            Step::Freeing | Step::Asking => HOLE_BYTES,
            Step::Exchanging(ref exchange) => exchange.piece_bytes(),
            Step::Copying { .. } => COPY_BYTES_MAX,
            Step::Reading | Step::Writing(_) | Step::Locating(_) => PIECE_BYTES,
        };
        let range = self.rest.front_mut()?;
        let boundary = (range.start / piece_bytes + 1).saturating_mul(piece_bytes);
        let piece = range.start..range.end.min(boundary);
        range.start = piece.end;
        if range.is_empty() {
            self.rest.pop_front();
        }
        Some(piece)
    }

    /// What the router is asked for a piece; writes are durable if they are forced.
    pub(crate) fn operation(
        &self,
        file: FileRef,
        piece: &Range<u64>,
        is_forced: bool,
    ) -> SiteOperation {
        let (offset_bytes, length_bytes) = (piece.start, piece.end - piece.start);
        match &self.step {
            Step::Writing(content) => SiteOperation::Write {
                file,
                offset_bytes,
                payload: content.piece(piece),
                stability: stability(is_forced),
            },
            Step::Exchanging(exchange) => SiteOperation::Exchange {
                file,
                offset_bytes,
                payload: exchange.piece(piece),
            },
            Step::Copying {
                source,
                from,
                first,
                frees_zeros,
            } => SiteOperation::Copy {
                file,
                offset_bytes,
                source: *source,
                source_offset_bytes: from + (piece.start - first),
                length_bytes,
                stability: stability(is_forced),
                frees_zeros: *frees_zeros,
            },
            Step::Freeing => SiteOperation::Zero {
                file,
                offset_bytes,
                length_bytes,
            },
            Step::Asking => SiteOperation::Mapped {
                file,
                offset_bytes,
                length_bytes,
            },
            Step::Reading | Step::Locating(_) => SiteOperation::Read {
                file,
                offset_bytes,
                length_bytes,
                patience_ms: 0,
            },
        }
    }

    /// A piece was asked for by that call.
    pub(crate) fn asked(&mut self, call: CallId, piece: Range<u64>) {
        self.calls.insert(call, piece);
    }

    /// Takes what has come of a call; whether bytes were written that a crash may take.
    pub(crate) fn take(&mut self, call: CallId, outcome: Result<SiteAnswer, SiteError>) -> bool {
        let Some(piece) = self.calls.remove(&call) else {
            return false;
        };
        match outcome {
            Ok(SiteAnswer::Read { mut payload, .. }) => {
                let length = usize::try_from(piece.end - piece.start).unwrap_or_default();
                // Where the file ends early the unit has zeros.
                payload.truncate(length);
                let missing = length - payload.len();
                payload.push_zeros(missing);
                self.read.insert(piece.start, payload);
            }
            Ok(SiteAnswer::Mapped(mapped)) => self.mapped = mapped,
            Ok(answer @ (SiteAnswer::Done | SiteAnswer::Differs { .. }))
                if let Step::Exchanging(exchange) = &mut self.step =>
            {
                if let SiteAnswer::Differs { at_bytes } = answer {
                    exchange.differs(piece.start, at_bytes);
                }
            }
            Ok(SiteAnswer::Unreadable) => {
                self.is_unreadable = true;
                self.fail(SiteError::Io, &piece);
            }
            // Holes are durable.
            Ok(SiteAnswer::Written { .. }) => return !matches!(self.step, Step::Freeing),
            Ok(_) => self.fail(SiteError::Io, &piece),
            Err(error) => self.fail(error, &piece),
        }
        false
    }

    fn fail(&mut self, error: SiteError, piece: &Range<u64>) {
        let failed = self.failed.get_or_insert((error, piece.start));
        if piece.start < failed.1 {
            *failed = (error, piece.start);
        }
    }

    /// Whether nothing is asked for that is not answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether all is answered that is asked for at all.
    pub(crate) fn is_over(&self) -> bool {
        self.is_idle() && (self.rest.is_empty() || self.failed.is_some())
    }

    /// The first error, and where the piece begins.
    pub(crate) const fn take_failed(&mut self) -> Option<(SiteError, u64)> {
        self.failed.take()
    }

    /// Whether it is what was to be read that failed.
    pub(crate) const fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// What was told of space.
    pub(crate) fn take_mapped(&mut self) -> MappedRanges {
        std::mem::take(&mut self.mapped)
    }

    /// Nothing more is asked for.
    pub(crate) fn ask_no_more(&mut self) {
        self.rest.clear();
    }

    /// Nothing is wanted any more, nor what was asked for.
    pub(crate) fn give_up(&mut self) -> Vec<CallId> {
        self.ask_no_more();
        std::mem::take(&mut self.calls).into_keys().collect()
    }

    const fn is_writing(&self) -> bool {
        matches!(
            self.step,
            Step::Writing(_) | Step::Exchanging(_) | Step::Copying { .. } | Step::Freeing
        )
    }

    /// What of an exchange was not as expected.
    const fn exchanged(&self) -> Option<&Exchange> {
        match &self.step {
            Step::Exchanging(exchange) => Some(exchange),
            _ => None,
        }
    }

    /// What was read, in the order of the file.
    pub(crate) fn take_read(&mut self) -> Payload {
        let mut whole = Payload::new();
        for (_, piece) in std::mem::take(&mut self.read) {
            whole.append(piece);
        }
        whole
    }
}

/// How durable a write is before it is answered.
const fn stability(is_forced: bool) -> Stability {
    match is_forced {
        // A unit has the size of its file.
        true => Stability::Data,
        false => Stability::Unstable,
    }
}

impl Content {
    fn piece(&self, range: &Range<u64>) -> Payload {
        let length = usize::try_from(range.end - range.start).unwrap_or_default();
        match self {
            Self::Bytes(payload, first) => {
                let at = usize::try_from(range.start - first).unwrap_or_default();
                payload.slice(at, at + length)
            }
            Self::Zeros => {
                let mut zeros = Payload::new();
                zeros.push_zeros(length);
                zeros
            }
            Self::Pattern(pattern) => {
                let mut payload = Payload::new();
                while payload.len() < length {
                    let missing = length - payload.len();
                    payload.push(pattern.slice(..pattern.len().min(missing)));
                }
                payload
            }
        }
    }
}

impl IscsiDoor {
    /// The task's turn has come: its data is there, and nobody is in its way.
    pub(crate) fn run(&mut self, now: Time, id: TaskId) {
        if self
            .tasks
            .get(&id)
            .is_some_and(|task| self.is_too_late(task))
        {
            let conflict = Outcome::Status(Status::ReservationConflict);
            return self.complete(now, id, conflict);
        }
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        if matches!(task.stage, Stage::Copying(_)) {
            return self.next_stretch(now, id);
        }
        let data = task.gather.finish();
        let range = task.planned.range.clone();
        let transfer = match &task.planned.plan {
            Plan::Write | Plan::WriteVerify(_) => {
                // Less than was said may have come (SPC-4 and RFC 7143 section 11.4.5.2): what
                // came is written.
                let range = range.start..range.start + data.len() as u64;
                let content = Content::Bytes(data.clone(), range.start);
                Transfer::new(Step::Writing(content), data, [range])
            }
            Plan::CompareAndWrite => {
                let step = Step::Exchanging(Exchange::of_command(range.start, &data));
                Transfer::new(step, data, [range])
            }
            Plan::WriteSame { is_unmap: true } if data.is_zeros() => {
                Transfer::new(Step::Freeing, data, [range])
            }
            Plan::WriteSame { .. } => {
                let pattern = Content::Pattern(pattern_of(&data));
                Transfer::new(Step::Writing(pattern), data, [range])
            }
            Plan::Zero => Transfer::new(Step::Writing(Content::Zeros), data, [range]),
            Plan::Free(ranges) => Transfer::new(Step::Freeing, data, ranges.clone()),
            Plan::LbaStatus { .. } => Transfer::new(Step::Asking, data, [range]),
            _ => Transfer::new(Step::Reading, data, [range]),
        };
        task.stage = Stage::Running(Box::new(transfer));
        self.go_on(now, id);
    }

    /// Asks for the next pieces; if none is left, goes to what is next.
    fn go_on(&mut self, now: Time, id: TaskId) {
        while let Some((file, unit, is_forced, transfer)) = self.running(id) {
            let Some(piece) = transfer.next_piece() else {
                break;
            };
            let operation = transfer.operation(file, &piece, is_forced);
            let call = self.ask(now, CallOf::Task(id, unit), operation);
            if let Some((.., transfer)) = self.running(id) {
                transfer.asked(call, piece);
            }
        }
        if let Some((.., transfer)) = self.running(id)
            && transfer.is_over()
        {
            self.end_step(now, id);
        }
    }

    /// The router has answered a task's call.
    pub(crate) fn take_piece(&mut self, now: Time, id: TaskId, unit: u64, routed: RoutedReply) {
        let RoutedReply {
            reply, verifier, ..
        } = routed;
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let is_forced = task.planned.is_forced;
        let (Stage::Running(transfer) | Stage::Dying(transfer)) = &mut task.stage else {
            return;
        };
        let is_cached = transfer.take(reply.id, reply.outcome) && !is_forced;
        if is_cached && let Some(unit) = self.units.get_mut(&unit) {
            unit.cache.wrote(verifier);
        }
        match task.stage {
            Stage::Dying(ref transfer) if transfer.is_idle() => self.bury(now, id),
            Stage::Dying(_) => {}
            _ => self.go_on(now, id),
        }
    }

    /// All that the step asked for is answered.
    fn end_step(&mut self, now: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let Stage::Running(transfer) = &mut task.stage else {
            return;
        };
        let block_bytes = self
            .units
            .get(&task.unit)
            .map_or(512, |unit| u64::from(unit.lun.block_bytes));
        if let Some((error, place)) = transfer.take_failed() {
            let access = match transfer.is_writing() {
                true => Access::Write,
                false => Access::Read,
            };
            let is_read = matches!(transfer.step, Step::Reading | Step::Locating(_));
            if error == SiteError::Io && is_read {
                return self.locate(now, id, place);
            }
            if error == SiteError::Invalid && transfer.exchanged().is_some() {
                // Its blocks lie in two pieces.
                let outcome = Outcome::Sense(Sense::invalid_field(2, None));
                return self.complete(now, id, outcome);
            }
            let outcome = outcome_of(error, access, place / block_bytes);
            return self.complete(now, id, outcome);
        }
        if let Step::Locating(range) = &transfer.step {
            // This half was read: it is in the other one.
            let range = range.clone();
            return self.locate_within(now, id, middle_of(&range)..range.end);
        }
        let read = match transfer.is_writing() {
            true => None,
            false => Some(transfer.take_read()),
        };
        self.after_step(now, id, read, block_bytes);
    }

    /// What comes behind reading, or writing.
    fn after_step(&mut self, now: Time, id: TaskId, read: Option<Payload>, block_bytes: u64) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let Stage::Running(transfer) = &mut task.stage else {
            return;
        };
        let range = task.planned.range.clone();
        let data = transfer.data.clone();
        let outcome = match (&task.planned.plan, read) {
            (Plan::Read, Some(read)) => Outcome::Data(read),
            (&Plan::LbaStatus { allocation }, _) => {
                let runs = statuses(&transfer.mapped, range, block_bytes);
                Outcome::parameters(lba_status(&runs), allocation)
            }
            (Plan::Verify(check), Some(read)) => verify(*check, &read, &data, block_bytes),
            (Plan::WriteVerify(_), None) => {
                let end = range.start + data.len() as u64;
                let step = Step::Reading;
                let transfer = Transfer::new(step, data, once(range.start..end));
                task.stage = Stage::Running(Box::new(transfer));
                return self.go_on(now, id);
            }
            (Plan::WriteVerify(check), Some(read)) => verify(*check, &read, &data, block_bytes),
            (Plan::OrWrite, Some(read)) => {
                let exchange = Exchange::of_read(range.start, read, &data, transfer.tries);
                let step = Step::Exchanging(exchange);
                let transfer = Transfer::new(step, data, [range]);
                task.stage = Stage::Running(Box::new(transfer));
                return self.go_on(now, id);
            }
            (Plan::OrWrite, None) => match transfer.exchanged().and_then(Exchange::next_try) {
                None => Outcome::Good,
                Some(None) => Outcome::Status(Status::Busy),
                // Somebody has written in between: once more.
                Some(Some(tries)) => {
                    let mut transfer = Transfer::new(Step::Reading, data, [range]);
                    transfer.tries = tries;
                    task.stage = Stage::Running(Box::new(transfer));
                    return self.go_on(now, id);
                }
            },
            // SBC-3 section 5.2: where in the data that was sent it is.
            (Plan::CompareAndWrite, _) => {
                let place = transfer.exchanged().and_then(Exchange::first_difference);
                place.map_or(Outcome::Good, miscompare)
            }
            _ => Outcome::Good,
        };
        self.complete(now, id, outcome);
    }

    /// A read failed somewhere in the piece that begins there.
    fn locate(&mut self, now: Time, id: TaskId, place: u64) {
        let Some((.., transfer)) = self.running(id) else {
            return;
        };
        let range = match &transfer.step {
            Step::Locating(range) => range.start..middle_of(range),
            _ => {
                let end = (place / PIECE_BYTES + 1) * PIECE_BYTES;
                let Some(task) = self.tasks.get(&id) else {
                    return;
                };
                place..end.min(task.planned.range.end)
            }
        };
        self.locate_within(now, id, range);
    }

    fn locate_within(&mut self, now: Time, id: TaskId, range: Range<u64>) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        if range.end - range.start > CHECKED_BYTES {
            let half = range.start..middle_of(&range);
            let step = Step::Locating(range);
            let transfer = Transfer::new(step, Payload::new(), once(half));
            task.stage = Stage::Running(Box::new(transfer));
            return self.go_on(now, id);
        }
        let unit = self.units.get(&task.unit);
        let block_bytes = unit.map_or(512, |unit| u64::from(unit.lun.block_bytes));
        let outcome = outcome_of(SiteError::Io, Access::Read, range.start / block_bytes);
        self.complete(now, id, outcome);
    }

    /// Nobody waits for the task any more: reads are withdrawn, writes end as they will.
    /// Whether it is over at once.
    pub(crate) fn stop_transfer(&mut self, id: TaskId) -> bool {
        let Some(task) = self.tasks.get_mut(&id) else {
            return true;
        };
        match std::mem::replace(&mut task.stage, Stage::Gathering) {
            Stage::Running(mut transfer) if transfer.is_writing() => {
                transfer.ask_no_more();
                let is_over = transfer.is_idle();
                task.stage = Stage::Dying(transfer);
                is_over
            }
            Stage::Running(mut transfer) => {
                for call in transfer.give_up() {
                    self.calls.remove(&call);
                    self.effects.push_back(IscsiEffect::Withdraw(call));
                    self.figures.withdrawn_total += 1;
                }
                true
            }
            dying @ Stage::Dying(_) => {
                task.stage = dying;
                false
            }
            copying @ Stage::Copying(_) => {
                task.stage = copying;
                self.stop_copy(id)
            }
            Stage::Gathering | Stage::Waiting | Stage::Settling => true,
        }
    }

    fn running(&mut self, id: TaskId) -> Option<(FileRef, u64, bool, &mut Transfer)> {
        let task = self.tasks.get_mut(&id)?;
        let file = self.units.get(&task.unit)?.lun.file;
        let (unit, is_forced) = (task.unit, task.planned.is_forced);
        match &mut task.stage {
            Stage::Running(transfer) => Some((file, unit, is_forced, transfer)),
            _ => None,
        }
    }
}

/// Where a range is cut in two, on a boundary of what has a checksum.
fn middle_of(range: &Range<u64>) -> u64 {
    let middle = range.start + (range.end - range.start) / 2;
    let aligned = middle.next_multiple_of(CHECKED_BYTES);
    if aligned < range.end { aligned } else { middle }
}

/// Several blocks behind each other, so that a payload has few pieces.
fn pattern_of(block: &Payload) -> Bytes {
    let block = block.to_bytes();
    let times = (PATTERN_BYTES / block.len().max(1)).max(1);
    block.repeat(times).into()
}

fn verify(check: ByteCheck, read: &Payload, data: &Payload, block_bytes: u64) -> Outcome {
    let found = match check {
        ByteCheck::Medium => None,
        ByteCheck::Blocks => first_difference(read, data),
        ByteCheck::OneBlock => {
            let step = usize::try_from(block_bytes).unwrap_or(512);
            let places = (0..read.len()).step_by(step);
            places.into_iter().find_map(|place| {
                let block = read.slice(place, (place + step).min(read.len()));
                let at = first_difference(&block, data)?;
                Some(place + at)
            })
        }
    };
    found.map_or(Outcome::Good, miscompare)
}

fn miscompare(place: usize) -> Outcome {
    let sense = Sense::new(SenseKey::Miscompare, AdditionalSense::MISCOMPARE);
    Outcome::Sense(sense.at(place as u64))
}

/// Where two payloads differ first; the shorter one's end is no difference.
fn first_difference(left: &Payload, right: &Payload) -> Option<usize> {
    if left == right {
        return None;
    }
    let bytes = |payload: &Payload| payload.to_bytes();
    let (left, right) = (bytes(left), bytes(right));
    let mut pairs = left.iter().zip(right.iter());
    pairs.position(|(left, right)| left != right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: pieces end at multiples of their length, so many at a time.
    #[test]
    fn pieces_end_at_boundaries() {
        let mib = PIECE_BYTES;
        let mut transfer =
            Transfer::new(Step::Reading, Payload::new(), [mib - 10..3 * mib + 1, 9..9]);
        let mut next = |number| {
            let piece = transfer.next_piece();
            transfer
                .calls
                .extend(piece.clone().map(|piece| (CallId(number), piece)));
            piece
        };
        assert_eq!(next(1), Some(mib - 10..mib));
        assert_eq!(next(2), Some(mib..2 * mib));
        assert_eq!(next(3), Some(2 * mib..3 * mib));
        assert_eq!(next(4), Some(3 * mib..3 * mib + 1));
        assert_eq!(next(5), None);
        assert!(transfer.rest.is_empty());
    }

    /// Goal: patterns go on from piece to piece, as each is a whole number of blocks.
    #[test]
    fn patterns_are_repeated() {
        let block: Payload = Bytes::from(vec![3; 512]).into();
        let content = Content::Pattern(pattern_of(&block));
        let piece = content.piece(&(512..200 * 1024));
        assert_eq!(piece.len(), 200 * 1024 - 512);
        assert!(piece.pieces().len() < 5);
        assert!(
            piece
                .pieces()
                .iter()
                .all(|piece| piece.iter().all(|byte| *byte == 3))
        );
    }

    /// Goal: the first byte that differs is found, in one block or in each.
    #[test]
    fn differences_are_found() {
        let read: Payload = Bytes::from_static(b"aabbaacc").into();
        let one: Payload = Bytes::from_static(b"aa").into();
        let outcome = verify(ByteCheck::OneBlock, &read, &one, 2);
        assert_eq!(outcome, miscompare(2));
        assert_eq!(
            verify(ByteCheck::Blocks, &read, &read.clone(), 2),
            Outcome::Good
        );
        assert_eq!(verify(ByteCheck::Medium, &read, &one, 2), Outcome::Good);
    }
}
