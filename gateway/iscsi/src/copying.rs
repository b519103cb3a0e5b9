//! EXTENDED COPY: blocks go from unit to unit by the segments of a list, one after the other.
//!
//! A copy has its turn at its own unit like any other command. While it runs it has turns of
//! its own for each stretch: for the blocks at the source, or for those at the destination, never
//! for both. So it waits for nobody who waits for it, and others use the blocks between its
//! stretches.
//!
//! Nodes give each other the bytes (docs/decisions/0051), and blocks of the source without space
//! become some without space at a thin destination. Through the gateway goes what lies below the
//! small-file threshold here or there, and what is copied over itself: read, then written, the bytes
//! of one stretch at a time.

use crossdock_names::FileRef;
use crossdock_peer::{CallId, MappedRanges, SiteError};
use crossdock_router::RoutedReply;
use crossdock_scsi::{
    Access as CacheAccess, AdditionalSense, BlockRange, COPY_MANAGER_UNIT, Command, CopyList,
    CopySegment, CopyState, Forwarded, Sense, SenseKey, Status, copy_list, unit_naa,
};
use crossdock_types::Time;

use crate::connection::Connection;
use crate::door::{CallOf, IscsiDoor};
use crate::medium::NO_MEDIUM;
use crate::message::IscsiEffect;
use crate::plan::{in_range, write_protected};
use crate::refuse::{Access, outcome_of};
use crate::respond::Outcome;
use crate::task::{Asked, Attribute, Stage, TaskId};
use crate::transfer::Transfer;
use crate::unit::{Claim, Unit};

mod background;
mod progress;
mod stretch;

pub(crate) use progress::{CopyProgress, Told};
pub(crate) use stretch::STRETCH_BYTES;
use stretch::{Span, Step, Stretch};

/// A copy in progress.
#[derive(Debug)]
pub(crate) struct Copying {
    list: CopyList,
    /// Who is told of it, by which number.
    told: Told,
    /// The segment that is under way.
    segment: usize,
    /// Bytes of it that are at the destination.
    done_bytes: u64,
    /// Which bytes of the segment's source have space, as far as that is known.
    mapped: MappedRanges,
    step: Step,
    /// The unit at which the step has its turn, or waits for it.
    place: Option<u64>,
    /// Its file.
    file: FileRef,
    transfer: Transfer,
    /// Writes are answered when they are durable.
    is_forced: bool,
    /// Its command is answered as soon as it has begun.
    is_immediate: bool,
    /// It was aborted; its writes are not answered yet.
    is_dying: bool,
    /// Its command is answered all the same.
    is_told_of_end: bool,
}

impl Copying {
    pub(crate) fn new(list: CopyList, file: FileRef, told: Told) -> Self {
        Self {
            list,
            told,
            segment: 0,
            done_bytes: 0,
            mapped: MappedRanges::default(),
            step: Step::Reading,
            place: None,
            file,
            transfer: Transfer::reading(0..0),
            is_forced: true,
            is_immediate: false,
            is_dying: false,
            is_told_of_end: false,
        }
    }

    /// Its command is to be answered as soon as it has begun.
    pub(crate) const fn answered_early(mut self, is_immediate: bool) -> Self {
        self.is_immediate = is_immediate;
        self
    }

    /// The unit at which a step has its turn, or waits for it.
    pub(crate) const fn place(&self) -> Option<u64> {
        self.place
    }

    /// Whether bytes of that unit may change by what is under way.
    pub(crate) fn is_writing_to(&self, unit: u64) -> bool {
        self.place == Some(unit) && self.step.is_change() && !self.transfer.is_idle()
    }

    /// Nobody waits for it any more. The reads that are of no use, and whether it is over.
    pub(crate) fn stop(&mut self) -> (Vec<CallId>, bool) {
        self.is_told_of_end = false;
        if !self.step.is_change() {
            return (self.transfer.give_up(), true);
        }
        self.is_dying = true;
        self.transfer.ask_no_more();
        (Vec::new(), self.transfer.is_idle())
    }
}

impl IscsiDoor {
    /// The list is there: the copy waits for its turn.
    pub(crate) fn queue_copy(&mut self, now: Time, id: TaskId, list: &[u8]) {
        if list.is_empty() {
            return self.complete(now, id, Outcome::Good); // It asks for nothing.
        }
        let list = match copy_list(list) {
            Ok(list) => list,
            Err(sense) => return self.complete(now, id, sense.into()),
        };
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        let Some(unit) = self.units.get(&task.unit) else {
            let sense = Sense::illegal(AdditionalSense::NO_UNIT);
            return self.complete(now, id, sense.into());
        };
        if let Some(list_id) = list.list_id
            && let Some(session) = self.sessions.get_mut(&task.asked.session)
        {
            let known = session.copies.get(&list_id);
            if known.is_some_and(|known| known.state == CopyState::InProgress) {
                let sense = Sense::illegal(AdditionalSense::IN_PROGRESS);
                return self.complete(now, id, sense.into());
            }
            session.copies.insert(list_id, CopyProgress::default());
        }
        let told = list.list_id.map_or(Told::Nobody, Told::List);
        let copying = Copying::new(list, unit.lun.file, told);
        self.begin_copy(now, id, copying);
    }

    /// A task's copy waits for its turn.
    pub(crate) fn begin_copy(&mut self, now: Time, id: TaskId, copying: Copying) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let claim = Claim {
            range: 0..0,
            is_change: false,
            attribute: task.asked.attribute,
        };
        task.stage = Stage::Copying(Box::new(copying));
        if let Some(unit) = self.units.get_mut(&task.unit) {
            unit.queue(id, claim);
        }
        self.pump(now);
    }

    /// Goes on with a copy that has no step under way: to the next stretch, or to its end.
    pub(crate) fn next_stretch(&mut self, now: Time, id: TaskId) {
        let stretch = self.stretch(id);
        if matches!(stretch, Ok(Some(_))) {
            self.answer_begun(id);
        }
        match stretch {
            Ok(Some(stretch)) if stretch.first == Step::Asking => {
                self.ask_for_space(now, id, &stretch)
            }
            Ok(Some(stretch)) => self.claim_step(now, id, stretch.first, &stretch),
            Ok(None) => {
                self.note_copy(id, |progress| progress.state = CopyState::Done);
                self.complete(now, id, Outcome::Good);
            }
            Err(sense) => self.fail_copy(now, id, sense),
        }
    }

    /// What is to be copied now; `None`: all is.
    fn stretch(&mut self, id: TaskId) -> Result<Option<Stretch>, Sense> {
        loop {
            let Some(task) = self.tasks.get(&id) else {
                return Ok(None);
            };
            let Stage::Copying(copying) = &task.stage else {
                return Ok(None);
            };
            let Some(segment) = copying.list.segments.get(copying.segment) else {
                return Ok(None);
            };
            let (whole, is_sparse) = self.resolve(&task.asked, task.unit, copying, segment)?;
            if copying.done_bytes < whole.bytes {
                let mapped = is_sparse.then_some(&copying.mapped);
                return Ok(Some(whole.next(copying.done_bytes, mapped)));
            }
            let segments = u16::try_from(copying.segment + 1).unwrap_or(u16::MAX);
            self.note_copy(id, |progress| progress.segments = segments);
            if let Some(copying) = self.copying(id) {
                copying.segment += 1;
                copying.done_bytes = 0;
                copying.mapped = MappedRanges::default();
            }
        }
    }

    /// Where a segment's blocks are, if the copy may have them, and where they go, if it may
    /// change those; and whether blocks may have no space here and there.
    fn resolve(
        &self,
        asked: &Asked,
        home: u64,
        copying: &Copying,
        segment: &CopySegment,
    ) -> Result<(Stretch, bool), Sense> {
        let destination = self.place_of(asked, home, copying, segment.destination)?;
        let is_by_token = matches!(copying.told, Told::Token(_));
        let is_zeros = is_by_token && segment.source == CopySegment::ZEROS;
        let source = match is_zeros {
            true => destination,
            false => self.place_of(asked, home, copying, segment.source)?,
        };
        let counted = match segment.counts_destination {
            true => destination,
            false => source,
        };
        let bytes = u64::from(segment.blocks) * u64::from(counted.lun.block_bytes);
        let span = |unit: &Unit, lba: u64, is_source: bool| {
            let block_bytes = u64::from(unit.lun.block_bytes);
            if bytes % block_bytes != 0 {
                return Err(aborted(AdditionalSense::INEXACT_SEGMENT));
            }
            let blocks = BlockRange {
                lba,
                blocks: u32::try_from(bytes / block_bytes).unwrap_or(u32::MAX),
            };
            self.check_place(asked, home, unit, is_source)?;
            let range = in_range(&unit.lun, blocks);
            let range = range.map_err(|sense| forward(is_source, &sense))?;
            Ok(Span {
                unit: unit.lun.id,
                start: range.start,
            })
        };
        let is_thin = destination.lun.is_thin;
        let from = match is_zeros {
            true => None,
            false => Some(span(source, segment.source_lba, true)?),
        };
        let to = span(destination, segment.destination_lba, false)?;
        let stretch = Stretch {
            source: from.unwrap_or(to),
            destination: to,
            bytes,
            first: Step::Reading,
            is_thin,
            is_zeros,
        };
        Ok((stretch, is_thin && source.lun.is_thin))
    }

    /// The unit that an index of a segment means, if the initiator may open it.
    fn place_of(
        &self,
        asked: &Asked,
        home: u64,
        copying: &Copying,
        index: u16,
    ) -> Result<&Unit, Sense> {
        let unreachable = || aborted(AdditionalSense::TARGET_NOT_REACHABLE);
        if index == COPY_MANAGER_UNIT {
            return self.units.get(&home).ok_or_else(unreachable);
        }
        let target = copying.list.targets.get(usize::from(index));
        let target = target.ok_or_else(|| aborted(AdditionalSense::UNREACHABLE_TARGET))?;
        let name = target.naa().ok_or_else(unreachable)?;
        let units = self.units.values();
        let mut named = units.filter(|unit| unit_naa(unit.lun.id) == name);
        // A name that two have is the name of neither.
        let (Some(unit), None) = (named.next(), named.next()) else {
            return Err(unreachable());
        };
        let is_shown = matches!(copying.told, Told::Token(_));
        if unit.lun.id != home && !is_shown && self.rule_of(asked, unit).is_none() {
            return Err(unreachable());
        }
        match target.block_bytes == unit.lun.block_bytes {
            true => Ok(unit),
            false => Err(aborted(AdditionalSense::TARGET_TYPE)),
        }
    }

    /// Whether the initiator may use another unit than its session's, and whether for reading
    /// only: it has proven no more than its session wanted.
    fn rule_of(&self, asked: &Asked, unit: &Unit) -> Option<bool> {
        let session = self.sessions.get(&asked.session)?;
        let from = self.connections.get(&asked.connection);
        let from = from.map(Connection::from)?;
        let rule = unit.lun.access.rule(&session.nexus.initiator, from)?;
        let is_proven = rule.chap.is_none() || rule.chap == session.rule.chap;
        is_proven.then_some(rule.is_read_only)
    }

    /// Whether a unit takes part, as it is and as it is reserved.
    fn check_place(
        &self,
        asked: &Asked,
        home: u64,
        unit: &Unit,
        is_source: bool,
    ) -> Result<(), Sense> {
        if unit.is_ejected {
            return Err(forward(is_source, &NO_MEDIUM));
        }
        if unit.is_stopped {
            let stopped = Sense::new(SenseKey::NotReady, AdditionalSense::STOPPED);
            return Err(forward(is_source, &stopped));
        }
        let (blocks, access) = (BlockRange::default(), CacheAccess::default());
        let command = match is_source {
            true => Command::Read(blocks, access),
            false => Command::Write(blocks, access),
        };
        if self.is_kept_from(asked.session, unit, &command) {
            let mut sense = aborted(AdditionalSense::NONE);
            let status = Status::ReservationConflict;
            sense.forwarded = Some(Forwarded::status(is_source, status));
            return Err(sense);
        }
        if is_source {
            return Ok(());
        }
        let session = self.sessions.get(&asked.session);
        let is_read_only = match unit.lun.id == home {
            true => session.is_some_and(|session| session.rule.is_read_only),
            false => self.rule_of(asked, unit).unwrap_or(true),
        };
        match (is_read_only, unit.pages.is_software_protected) {
            (true, _) => Err(forward(false, &write_protected(false))),
            (_, true) => Err(forward(false, &write_protected(true))),
            _ => Ok(()),
        }
    }

    /// Waits for the turn of the next step at its unit.
    fn claim_step(&mut self, now: Time, id: TaskId, step: Step, stretch: &Stretch) {
        let span = match step.is_change() {
            false => stretch.source,
            true => stretch.destination,
        };
        let Some(copying) = self.copying(id) else {
            return;
        };
        copying.step = step;
        copying.place = Some(span.unit);
        if let Some(unit) = self.units.get_mut(&span.unit) {
            let claim = Claim {
                range: span.start..span.start + stretch.bytes,
                is_change: step.is_change(),
                attribute: Attribute::Simple,
            };
            unit.queue_step(id, claim);
        }
        self.pump(now);
    }

    /// The turn of a copy's step has come.
    pub(crate) fn take_step(&mut self, now: Time, id: TaskId) {
        // Much may have happened while it waited.
        let stretch = match self.stretch(id) {
            Ok(Some(stretch)) => stretch,
            Ok(None) => return,
            Err(sense) => return self.fail_copy(now, id, sense),
        };
        let Some(copying) = self.copying(id) else {
            return;
        };
        let (step, place) = (copying.step, copying.place);
        let data = copying.transfer.take_read();
        let span = match step.is_change() {
            false => stretch.source,
            true => stretch.destination,
        };
        let source = self.units.get(&stretch.source.unit);
        let source = source.map(|unit| (unit.lun.file, stretch.source.start));
        let unit = self.units.get(&span.unit);
        let Some(unit) = unit.filter(|_| place == Some(span.unit)) else {
            let gone = aborted(AdditionalSense::TARGET_NOT_REACHABLE);
            return self.fail_copy(now, id, gone);
        };
        let range = span.start..span.start + stretch.bytes;
        let (file, is_forced) = (unit.lun.file, !unit.pages.is_write_cached);
        let transfer = match (step, source) {
            (Step::Copying, Some(source)) => Transfer::copying(source, range, stretch.is_thin),
            (Step::Freeing, _) => Transfer::freeing(range),
            (Step::Zeroing, _) => Transfer::zeroing(range),
            // Zeros need no space.
            (Step::Writing, _) if stretch.is_thin && data.is_zeros() => Transfer::freeing(range),
            (Step::Writing, _) => Transfer::writing(data, range),
            _ => Transfer::reading(range),
        };
        if let Some(copying) = self.copying(id) {
            (copying.file, copying.is_forced) = (file, is_forced);
            copying.transfer = transfer;
        }
        self.go_on_copying(now, id);
    }

    /// Asks which of the source's bytes have space; that waits for nobody's turn.
    fn ask_for_space(&mut self, now: Time, id: TaskId, stretch: &Stretch) {
        let unit = self.units.get(&stretch.source.unit);
        let file = unit.map(|unit| unit.lun.file);
        let (Some(copying), Some(file)) = (self.copying(id), file) else {
            return;
        };
        let start = stretch.source.start;
        let end = start + stretch.bytes;
        (copying.step, copying.file) = (Step::Asking, file);
        copying.transfer = Transfer::asking(start..end);
        self.go_on_copying(now, id);
    }

    /// Asks for the next pieces of a step; behind the last one, ends it.
    fn go_on_copying(&mut self, now: Time, id: TaskId) {
        while let Some(copying) = self.copying(id)
            && let Some(piece) = copying.transfer.next_piece()
        {
            let (file, is_forced) = (copying.file, copying.is_forced);
            let operation = copying.transfer.operation(file, &piece, is_forced);
            let call = self.ask(now, CallOf::Copy(id), operation);
            if let Some(copying) = self.copying(id) {
                copying.transfer.asked(call, piece);
            }
        }
        if self
            .copying(id)
            .is_some_and(|copying| copying.transfer.is_over())
        {
            self.end_copy_step(now, id);
        }
    }

    /// The router has answered a copy's call.
    pub(crate) fn take_copied(&mut self, now: Time, id: TaskId, routed: RoutedReply) {
        let Some(copying) = self.copying(id) else {
            return;
        };
        let (call, outcome) = (routed.reply.id, routed.reply.outcome);
        let is_cached = copying.transfer.take(call, outcome) && !copying.is_forced;
        let (place, is_dying) = (copying.place, copying.is_dying);
        let is_idle = copying.transfer.is_idle();
        if is_cached && let Some(unit) = place.and_then(|place| self.units.get_mut(&place)) {
            unit.cache.wrote(routed.verifier);
        }
        match is_dying {
            true if is_idle => self.bury_copy(now, id),
            true => {}
            false => self.go_on_copying(now, id),
        }
    }

    /// All that a step asked for is answered.
    fn end_copy_step(&mut self, now: Time, id: TaskId) {
        let Some(copying) = self.copying(id) else {
            return;
        };
        let (step, place) = (copying.step, copying.place.take());
        let is_source = !step.is_change() || copying.transfer.is_unreadable();
        let failed = copying.transfer.take_failed();
        if step == Step::Asking {
            copying.mapped = copying.transfer.take_mapped();
        }
        let unit = place.and_then(|place| self.units.get_mut(&place));
        let block_bytes = unit.map_or(512, |unit| {
            unit.end_step(id);
            u64::from(unit.lun.block_bytes)
        });
        if let Some((error, place)) = failed {
            let sense = failure(is_source, error, place / block_bytes);
            return self.fail_copy(now, id, sense);
        }
        match (step, self.stretch(id)) {
            (_, Err(sense)) => self.fail_copy(now, id, sense),
            (_, Ok(None)) => {}
            (Step::Asking, Ok(Some(stretch))) => {
                // Nothing was told: it counts as having space.
                if stretch.first == Step::Asking
                    && let Some(copying) = self.copying(id)
                {
                    copying.mapped = stretch.as_mapped();
                }
                self.next_stretch(now, id);
            }
            (Step::Reading, Ok(Some(stretch))) => {
                self.claim_step(now, id, Step::Writing, &stretch);
            }
            (Step::Writing | Step::Copying | Step::Freeing | Step::Zeroing, Ok(Some(stretch))) => {
                if let Some(copying) = self.copying(id) {
                    copying.done_bytes += stretch.bytes;
                }
                let [by_nodes, through_here] = &mut self.figures.copied_bytes;
                match step {
                    Step::Copying => *by_nodes += stretch.bytes,
                    Step::Writing => *through_here += stretch.bytes,
                    _ => {}
                }
                self.note_copy(id, |progress| progress.bytes += stretch.bytes);
                self.next_stretch(now, id);
            }
        }
    }

    /// Ends a copy before all is copied: which segment it was is told (SPC-4, errors detected
    /// while segment descriptors are processed).
    fn fail_copy(&mut self, now: Time, id: TaskId, sense: Sense) {
        let segment = self.copying(id).map_or(0, |copying| copying.segment);
        let sense = sense.at(u64::try_from(segment).unwrap_or_default());
        self.note_copy(id, |progress| progress.fail(sense));
        self.complete(now, id, sense.into());
    }

    /// A copy is stopped by others: see [`Copying::stop`]. Whether it is over.
    pub(crate) fn stop_copy(&mut self, id: TaskId) -> bool {
        if self.copying(id).is_some_and(|copying| !copying.is_dying) {
            self.note_copy(id, |progress| progress.state = CopyState::Failed);
        }
        let Some(copying) = self.copying(id) else {
            return true;
        };
        let (withdrawn, is_over) = copying.stop();
        for call in withdrawn {
            self.calls.remove(&call);
            self.effects.push_back(IscsiEffect::Withdraw(call));
            self.figures.withdrawn_total += 1;
        }
        is_over
    }

    /// Changes what its initiator is told of a copy.
    fn note_copy(&mut self, id: TaskId, change: impl FnOnce(&mut CopyProgress)) {
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        let Stage::Copying(copying) = &task.stage else {
            return;
        };
        let session = self.sessions.get_mut(&task.asked.session);
        let progress = session.and_then(|session| match copying.told {
            Told::Nobody => None,
            Told::List(number) => session.copies.get_mut(&number),
            Told::Token(number) => {
                let operation = session.tokens.get_mut(&number);
                operation.map(|operation| &mut operation.progress)
            }
        });
        if let Some(progress) = progress {
            change(progress);
        }
    }

    fn copying(&mut self, id: TaskId) -> Option<&mut Copying> {
        match &mut self.tasks.get_mut(&id)?.stage {
            Stage::Copying(copying) => Some(copying),
            _ => None,
        }
    }
}

const fn aborted(additional: AdditionalSense) -> Sense {
    Sense::new(SenseKey::CopyAborted, additional)
}

/// What one of the places would have answered.
const fn forward(is_source: bool, sense: &Sense) -> Sense {
    let mut told = aborted(AdditionalSense::NONE);
    told.forwarded = Some(Forwarded::sense(is_source, sense));
    told
}

/// The source or the destination failed in the piece that begins with that block.
fn failure(is_source: bool, error: SiteError, lba: u64) -> Sense {
    let access = match is_source {
        true => Access::Read,
        false => Access::Write,
    };
    match outcome_of(error, access, lba) {
        Outcome::Sense(mut sense) => {
            // Which block of the piece cannot be read is not known.
            sense.information = sense.information.filter(|_| !is_source);
            forward(is_source, &sense)
        }
        Outcome::Status(status) => {
            let mut sense = aborted(AdditionalSense::NONE);
            sense.forwarded = Some(Forwarded::status(is_source, status));
            sense
        }
        Outcome::Good | Outcome::Data(_) => aborted(AdditionalSense::NONE),
    }
}
