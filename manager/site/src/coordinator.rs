//! Operations on names that other sites have a part in: asks these for what the
//! plan needs, plans with it, and decides by one log record (CONSISTENCY 7).
//!
//! Nobody waits while others keep something for him: who meets what is kept for
//! another operation lets go of everything, and begins anew after a pause. So no
//! two wait for each other. The client's request stays here meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use crossdock_directory::{Abroad, Cell, Mutation, Plan, decode_edits, encode_edits};
use crossdock_log::{get_byte, put_varint};
use crossdock_names::{FileId, FileRef, SiteId};
use crossdock_peer::{
    Attributes, BeforeAttributes, Call, Part, SiteAnswer, SiteError, SiteOperation, SiteRequest,
    TransactionId, TransactionStep,
};
use crossdock_types::{Time, WallTime};

use crate::commit::After;
use crate::intentions::{Intention, Kind};
use crate::names::is_remembered;
use crate::promises::{MOVES, get_transaction, put_transaction};
use crate::record::{get_bytes, get_number, put_bytes};
use crate::site::Site;
use crate::site_calls::{Asked, SiteAnswered, SiteCalls};

/// An operation that is not decided yet.
#[derive(Debug)]
pub(crate) struct Crossing {
    pub(crate) call: Call<SiteRequest>,
    id: TransactionId,
    /// How often it was begun before.
    attempts: u32,
    abroad: Abroad,
    /// Who has not answered, and what he was asked for.
    asked: BTreeMap<SiteId, Vec<Part>>,
    /// Who keeps something for it, maybe.
    participants: BTreeSet<SiteId>,
    failed: Option<SiteError>,
}

/// What is decided, and who has to be told.
///
/// Encoded: transaction, flags (1 byte: 1 adopts, 2 moves), how many sites, then
/// each with its changes; none are an empty string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) id: TransactionId,
    /// A new directory is taken over: nobody keeps anything for it, and whoever
    /// meets its name waits.
    pub(crate) adopts: bool,
    /// It holds the right to move directories: that is given back last.
    pub(crate) moves: bool,
    pub(crate) edits: Vec<(SiteId, Bytes)>,
}

/// First pause before an operation is begun again; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

impl Crossing {
    /// What a file of another site was before.
    pub(crate) fn before(&self, file: FileRef) -> Option<BeforeAttributes> {
        self.abroad.cell(file).map(Cell::before)
    }
}

impl Decision {
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        put_transaction(bytes, self.id);
        bytes.push(u8::from(self.adopts) | u8::from(self.moves) << 1);
        put_varint(bytes, self.edits.len() as u64);
        for (site, edits) in &self.edits {
            put_varint(bytes, site.0.into());
            put_bytes(bytes, edits);
        }
    }

    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let id = get_transaction(bytes)?;
        let flags = get_byte(bytes)?;
        let count: usize = get_number(bytes)?;
        let mut edits = Vec::with_capacity(count.min(bytes.len()));
        for _ in 0..count {
            edits.push((SiteId(get_number(bytes)?), get_bytes(bytes)?));
        }
        Some(Self {
            id,
            adopts: flags & 1 != 0,
            moves: flags & 2 != 0,
            edits,
        })
    }

    /// The attributes that a file of another site has by it.
    pub(crate) fn attributes_of(&self, file: FileRef) -> Option<Attributes> {
        let site = file.id.site();
        let (_, edits) = self.edits.iter().find(|(of, _)| *of == site)?;
        let edits = decode_edits(edits)?;
        edits.iter().find_map(|edit| match edit {
            Mutation::PutCell(cell) if cell.file(site) == file => Some(cell.attributes(site)),
            _ => None,
        })
    }

    /// What the participant of that place in the list is told.
    fn step(&self, part: usize, settled_below: u64) -> Option<(SiteId, TransactionStep)> {
        let (site, edits) = self.edits.get(part)?;
        let edits = edits.clone();
        let step = match self.adopts {
            true => TransactionStep::Adopt {
                edits,
                settled_below,
            },
            false => TransactionStep::Finish(Some(edits).filter(|edits| !edits.is_empty())),
        };
        Some((*site, step))
    }
}

impl Site {
    /// Begins an operation that needs other sites, for the first time or again.
    pub(crate) fn begin_crossing(
        &mut self,
        now: Time,
        wall: WallTime,
        call: Call<SiteRequest>,
        attempts: u32,
    ) {
        if self.queued() >= self.config.limits.waiting_max {
            return self.refuse(call.id, SiteError::Busy);
        }
        let id = self.next_transaction();
        let crossing = Crossing {
            call,
            id,
            attempts,
            abroad: Abroad::default(),
            asked: BTreeMap::new(),
            participants: BTreeSet::new(),
            failed: None,
        };
        self.advance_crossing(now, wall, crossing);
    }

    pub(crate) fn next_transaction(&mut self) -> TransactionId {
        self.transactions += 1;
        TransactionId {
            site: self.config.site,
            epoch: self.config.epoch,
            number: self.transactions,
        }
    }

    /// Asks for what is missing, or decides.
    fn advance_crossing(&mut self, now: Time, wall: WallTime, mut crossing: Crossing) {
        // An earlier sending of the request may have been decided meanwhile.
        if self.answer_duplicate(wall, &crossing.call) {
            return self.release_participants(now, &crossing);
        }
        let operation = &crossing.call.request.operation;
        if self.keeper_of(operation, Some(crossing.id)).is_some() {
            return self.postpone(now, crossing);
        }
        let mut missing = match self.state.directory.missing(operation, &crossing.abroad) {
            Ok(missing) => missing,
            Err(error) => return self.give_up(now, wall, &crossing, error),
        };
        // The right to move directories is this site's own to give, maybe.
        if missing.remove(&self.config.site).is_some() {
            if self.moving.is_some() || self.state.promises.holder(MOVES).is_some() {
                return self.postpone(now, crossing);
            }
            self.moving = Some(crossing.id);
            crossing.abroad.has_moves = true;
            return self.advance_crossing(now, wall, crossing);
        }
        if missing.is_empty() {
            return self.decide(now, wall, crossing);
        }
        let (number, until) = (crossing.id.number, crossing.call.deadline);
        let oldest = self.crossings.keys().next();
        let oldest = oldest.map_or(number, |&oldest| oldest.min(number));
        for (site, parts) in missing {
            let step = TransactionStep::Prepare {
                parts: parts.clone(),
                oldest,
            };
            crossing.participants.insert(site);
            crossing.asked.insert(site, parts);
            let asked = Asked::Prepare { number, until };
            self.site_calls.send(now, site, crossing.id, step, asked);
        }
        self.crossings.insert(number, crossing);
    }

    fn decide(&mut self, now: Time, wall: WallTime, crossing: Crossing) {
        let request = &crossing.call.request;
        let (caller, operation) = (&request.caller, &request.operation);
        let directory = &self.state.directory;
        match directory.plan(caller, operation, wall, &crossing.abroad) {
            Err(SiteError::Moved) => self.postpone(now, crossing),
            Err(error) => self.give_up(now, wall, &crossing, error),
            Ok(plan) if self.leased_by_plan(now, &plan).is_some() => self.postpone(now, crossing),
            Ok(plan) if plan.mutations.is_empty() && !is_remembered(&crossing.call, &plan) => {
                self.release_participants(now, &crossing);
                self.answer_unchanged(&crossing.call, plan.answer);
            }
            // What another site's directory names may be a file of this one.
            Ok(plan) if self.changes_promised(&plan) => self.postpone(now, crossing),
            Ok(plan) => {
                let call = crossing.call.clone();
                self.answer_changed(now, wall, call, plan, Some(&crossing));
            }
        }
    }

    /// Whether a plan changes something here that is kept for another operation.
    fn changes_promised(&self, plan: &Plan) -> bool {
        let changed = plan.mutations.iter().filter_map(Mutation::serial);
        let mut files = changed.map(|serial| FileId::new(self.config.site, serial));
        files.any(|file| self.state.promises.holder(file).is_some())
    }

    /// The decision that makes a plan's changes at other sites, if there are any.
    pub(crate) fn decision(
        &mut self,
        plan: &Plan,
        crossing: Option<&Crossing>,
    ) -> Option<Decision> {
        let elsewhere = |site: &SiteId| {
            let edits = plan.elsewhere.get(site);
            edits.map_or_else(Bytes::new, |edits| encode_edits(edits))
        };
        let Some(crossing) = crossing else {
            if plan.elsewhere.is_empty() {
                return None;
            }
            let sites = plan.elsewhere.keys();
            return Some(Decision {
                id: self.next_transaction(),
                adopts: true,
                moves: false,
                edits: sites.map(|site| (*site, elsewhere(site))).collect(),
            });
        };
        let mut participants: Vec<SiteId> = crossing.participants.iter().copied().collect();
        // Whoever gave the right to move directories gets it back last.
        participants.sort_by_key(|&site| crossing.abroad.has_moves && site == SiteId(0));
        Some(Decision {
            id: crossing.id,
            adopts: false,
            moves: crossing.abroad.has_moves,
            edits: participants
                .into_iter()
                .map(|site| (site, elsewhere(&site)))
                .collect(),
        })
    }

    /// A participant has prepared, or will not.
    fn take_prepared(&mut self, now: Time, wall: WallTime, number: u64, answered: SiteAnswered) {
        let Some(mut crossing) = self.crossings.remove(&number) else {
            return;
        };
        let Some(parts) = crossing.asked.remove(&answered.site) else {
            self.crossings.insert(number, crossing);
            return;
        };
        let failed = match answered.outcome {
            Ok(SiteAnswer::Prepared(told)) => match crossing.abroad.take(&parts, &told) {
                Some(()) => None,
                None => Some(SiteError::Io),
            },
            Ok(_) => Some(SiteError::Io), // No answer to that question.
            Err(SiteError::Stale) if !self.still_names(&crossing, answered.site, &parts) => {
                Some(SiteError::Busy)
            }
            Err(error) => Some(error),
        };
        crossing.failed = crossing.failed.or(failed);
        if !crossing.asked.is_empty() {
            self.crossings.insert(number, crossing);
            return;
        }
        match crossing.failed {
            None => self.advance_crossing(now, wall, crossing),
            Some(SiteError::Busy) => self.postpone(now, crossing),
            Some(error) => self.give_up(now, wall, &crossing, error),
        }
    }

    /// Whether an operation still needs these parts of a site. If not, its name was taken
    /// away or names another file by now; or another operation has decided that, and the
    /// name, which is kept for it, is about to change.
    fn still_names(&self, crossing: &Crossing, site: SiteId, parts: &[Part]) -> bool {
        let operation = &crossing.call.request.operation;
        let missing = self.state.directory.missing(operation, &crossing.abroad);
        let missing = missing.ok().and_then(|mut missing| missing.remove(&site));
        let is_needed = missing.is_some_and(|it| parts.iter().all(|part| it.contains(part)));
        is_needed && self.keeper_of(operation, Some(crossing.id)).is_none()
    }

    /// Lets go of everything, and tries again later.
    pub(crate) fn postpone(&mut self, now: Time, crossing: Crossing) {
        self.release_participants(now, &crossing);
        let pause = PAUSE_MIN * 2u32.saturating_pow(crossing.attempts.min(8));
        // Two that met do not meet again.
        let apart = Duration::from_micros(crossing.id.number % 16 * 300);
        let again = now + pause.min(PAUSE_MAX) + apart;
        if again > crossing.call.deadline {
            return self.refuse(crossing.call.id, SiteError::Busy);
        }
        let later = (crossing.call, crossing.attempts + 1);
        self.later.insert((again, crossing.id.number), later);
    }

    fn give_up(&mut self, now: Time, wall: WallTime, crossing: &Crossing, error: SiteError) {
        self.release_participants(now, crossing);
        self.refuse_operation(wall, &crossing.call, error);
    }

    pub(crate) fn release_participants(&mut self, now: Time, crossing: &Crossing) {
        self.site_calls.withdraw(crossing.id.number);
        for &site in &crossing.participants {
            let step = TransactionStep::Finish(None);
            self.site_calls
                .send(now, site, crossing.id, step, Asked::GiveUp);
        }
        if self.moving == Some(crossing.id) {
            self.end_moving();
        }
    }

    pub(crate) fn end_moving(&mut self) {
        self.moving = None;
        self.unblock(&[MOVES]);
    }

    /// The site serves: a move that was decided has its right until it is done.
    pub(crate) fn take_up_moving(&mut self) {
        let decided = self.state.intentions.iter_from(0);
        let moving = decided.filter_map(|intention| match &intention.kind {
            Kind::Finish(decision) if decision.moves => Some(decision.id),
            _ => None,
        });
        self.moving = moving.last().filter(|_| self.config.site == SiteId(0));
    }

    /// Nothing is begun or asked here any more.
    pub(crate) fn end_crossings(&mut self) {
        self.site_calls = SiteCalls::of_epoch(self.config.epoch);
        self.inquiries.clear();
        self.moving = None;
    }

    /// Begins again what has paused long enough.
    pub(crate) fn begin_again(&mut self, now: Time, wall: WallTime) {
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now
        {
            let (call, attempts) = entry.remove();
            self.begin_crossing(now, wall, call, attempts);
        }
    }

    /// Another site has answered.
    pub(crate) fn site_answered(&mut self, now: Time, wall: WallTime, answered: SiteAnswered) {
        match answered.asked {
            Asked::Prepare { number, .. } => self.take_prepared(now, wall, number, answered),
            Asked::Finish { intention, .. } => {
                if self.state.intentions.part_done(intention) {
                    self.finish(now, wall, intention);
                } else {
                    self.drive(now, wall, intention);
                }
            }
            Asked::GiveUp => {}
            Asked::Inquire => self.take_inquiry(now, wall, answered.id, &answered.outcome),
        }
    }

    /// Has the participants of a decision finish.
    pub(crate) fn drive_decision(&mut self, now: Time, parts: &[u64], intention: &Intention) {
        let Kind::Finish(decision) = &intention.kind else {
            return;
        };
        // All directories that this site has numbered below this are where they
        // belong; the one that it is about is open itself.
        let settled_below = self.state.intentions.least_adopting();
        let settled_below = settled_below.unwrap_or_default();
        for &part in parts {
            let place = usize::try_from(part).unwrap_or(usize::MAX);
            if let Some((site, step)) = decision.step(place, settled_below) {
                let intention = intention.id;
                let asked = Asked::Finish { intention, part };
                self.site_calls.send(now, site, decision.id, step, asked);
            }
        }
    }

    /// What a participant is told who asks what has become of an operation.
    pub(crate) fn tell_outcome(&self, id: TransactionId) -> Result<(SiteAnswer, After), SiteError> {
        if id.epoch > self.config.epoch {
            return Err(SiteError::Moved);
        }
        let is_open = id.epoch == self.config.epoch && self.crossings.contains_key(&id.number);
        let mut decided = self.state.intentions.iter_from(0);
        if is_open || decided.any(|intention| intention.decides(id)) {
            return Err(SiteError::Busy);
        }
        Ok((SiteAnswer::Done, After::default()))
    }

    /// The file for which an operation has to wait: it is kept for one of another
    /// site, or a directory that is not where it belongs yet.
    pub(crate) fn keeper_of(
        &self,
        operation: &SiteOperation,
        own: Option<TransactionId>,
    ) -> Option<FileId> {
        let is_moving = self.moving.is_some() && self.moving != own;
        let is_quiet = self.state.promises.is_empty() && !is_moving;
        if is_quiet && self.state.intentions.least_adopting().is_none() {
            return None;
        }
        let here = self.config.site;
        if let SiteOperation::Rename {
            from_directory,
            to_directory,
            ..
        } = operation
            && here == SiteId(0)
            && from_directory != to_directory
            && (is_moving || self.state.promises.holder(MOVES).is_some())
        {
            return Some(MOVES);
        }
        let mut touched = self.state.directory.touched(operation).into_iter();
        touched.find(|&file| match file.site() == here {
            true => {
                let is_kept = self.state.promises.holder(file).is_some();
                is_kept || self.state.intentions.is_adopting(file)
            }
            false => self.state.intentions.is_busy(file),
        })
    }
}
