//! Operations on names and attributes.

use crossdock_directory::{Abroad, Answer, Cell, Plan};
use crossdock_names::{FileId, FileRef};
use crossdock_peer::{Call, SiteAnswer, SiteError, SiteOperation, SiteRequest};
use crossdock_smallfile::{Change as SmallChange, Plan as SmallPlan, Sequence};
use crossdock_types::{Time, WallTime};

use crate::commit::{After, Draft};
use crate::coordinator::Crossing;
use crate::intentions::{Intention, Kind};
use crate::replies::{Shape, found};
use crate::site::Site;

/// How a small file is cut.
pub(crate) enum Cut {
    /// By this change, if it takes one.
    Change(Option<SmallChange>),
    /// Not before this one has settled.
    Wait(Sequence),
}

/// Whether a request that changes nothing has to be remembered all the same: sent again
/// after others have changed the names, it might (CONSISTENCY 8). So are renames between
/// two names of one file, and creations that find their file.
pub(crate) const fn is_remembered(call: &Call<SiteRequest>, plan: &Plan) -> bool {
    let changes_names = matches!(
        call.request.operation,
        SiteOperation::Rename { .. } | SiteOperation::Create { .. }
    );
    let is_here = matches!(plan.answer, Answer::Done | Answer::Found(_));
    call.request.duplicate.is_some() && changes_names && is_here
}

impl Site {
    /// Plans, logs, applies, answers.
    pub(crate) fn names(&mut self, now: Time, wall: WallTime, call: Call<SiteRequest>) {
        let request = &call.request;
        let planned = self.state.directory.plan(
            &request.caller,
            &request.operation,
            wall,
            &Abroad::default(),
        );
        match planned {
            Err(SiteError::Moved) => self.begin_crossing(now, wall, call, 0),
            Err(error) => self.refuse_operation(wall, &call, error),
            Ok(plan) => match self.leased_by_plan(now, &plan) {
                Some(file) => self.block(file, call),
                None if plan.mutations.is_empty() && !is_remembered(&call, &plan) => {
                    self.answer_unchanged(&call, plan.answer);
                }
                None => self.answer_changed(now, wall, call, plan, None),
            },
        }
    }

    /// Answers an operation that cannot be carried out.
    pub(crate) fn refuse_operation(
        &mut self,
        wall: WallTime,
        call: &Call<SiteRequest>,
        error: SiteError,
    ) {
        let operation = &call.request.operation;
        let shape = self.shape(operation, None, false);
        let reply = shape.reply_with(call.id, &self.state.directory, Err(error));
        if let Some(key) = call.request.duplicate {
            self.refusals.note(wall, key, &reply);
        }
        // What it saw, and therefore refused, may not be durable yet.
        let after = if only_looks(operation) {
            self.waits.of(shape.subject.id.serial())
        } else {
            After::position(self.log_mut().newest())
        };
        self.reply(reply, after);
    }

    pub(crate) fn answer_unchanged(&mut self, call: &Call<SiteRequest>, answer: Answer) {
        let operation = &call.request.operation;
        let mut shown = vec![operation.subject().id.serial()];
        shown.extend(second_of(operation).map(|file| file.id.serial()));
        let directory = &self.state.directory;
        let outcome = match answer {
            Answer::Done => Ok(SiteAnswer::Done),
            Answer::Part(changes) => {
                let cell = directory.cell(*operation.subject());
                cell.map(|cell| SiteAnswer::Part {
                    attributes: cell.attributes(directory.site()),
                    changes,
                })
            }
            Answer::Found(file) => {
                shown.push(file.id.serial());
                found(directory, file)
            }
            Answer::Elsewhere(file) => Ok(SiteAnswer::Elsewhere(file)),
            Answer::Above(parent, directory) => Ok(SiteAnswer::Above { parent, directory }),
            Answer::Access(granted) => Ok(SiteAnswer::Access { granted }),
            Answer::Link(target) => Ok(SiteAnswer::Link { target }),
            Answer::Directory { mut entries, end } => {
                self.leave_out_leased(&mut entries);
                shown.extend(entries.iter().map(|entry| entry.file.serial()));
                Ok(SiteAnswer::Directory {
                    entries,
                    end,
                    verifier: [0; 8], // Cookies never become invalid.
                })
            }
        };
        let shape = self.shape(operation, None, false);
        let reply = shape.reply_with(call.id, directory, outcome);
        let after = self.after_of(shown);
        self.reply(reply, after);
    }

    /// Logs what a plan changes, and decides what others change with it.
    pub(crate) fn answer_changed(
        &mut self,
        now: Time,
        wall: WallTime,
        call: Call<SiteRequest>,
        plan: Plan,
        crossing: Option<&Crossing>,
    ) {
        let mut draft = Draft::default();
        if let Some(cell) = &plan.resized {
            let file = cell.file(self.config.site);
            if self.state.intentions.is_busy(file.id) {
                self.block(file.id, call);
                return;
            }
            let grows = self
                .state
                .directory
                .cell(file)
                .is_ok_and(|old| cell.size_bytes > old.size_bytes);
            if grows && self.is_untidy(file) {
                return self.tidy(now, wall, file, call);
            }
            let kind = Kind::Truncate {
                size_bytes: cell.size_bytes,
                truncate_generation: cell.rare().truncate_generation,
                layout: cell.rare().layout,
            };
            draft.declare.extend(self.intention_for(cell, kind));
        }
        if let Some(cell) = &plan.freed {
            draft.declare.extend(self.intention_for(cell, Kind::Remove));
        }
        let cut = plan.resized.as_ref().map(|cell| (cell, cell.size_bytes));
        let gone = plan.freed.as_ref().map(|cell| (cell, 0));
        if let Some((cell, size)) = cut.or(gone).filter(|(cell, _)| cell.is_regular()) {
            match self.cut_small(cell, size) {
                Cut::Change(change) => draft.small = change,
                Cut::Wait(sequence) => {
                    if let Some(crossing) = crossing {
                        self.release_participants(now, crossing);
                    }
                    return self.park(sequence, call);
                }
            }
        }
        let found = match plan.answer {
            Answer::Found(file) | Answer::Elsewhere(file) => Some(file),
            _ => None,
        };
        let decision = self.decision(&plan, crossing);
        if let Some(decision) = decision.clone() {
            self.counted.decision();
            let next = self.state.intentions.next_id() + draft.declare.len() as u64;
            draft.declare.push(Intention {
                id: next,
                file: found.unwrap_or_else(|| *call.request.operation.subject()),
                first_segment: 0,
                end_segment: 0,
                columns: 0,
                kind: Kind::Finish(Box::new(decision)),
            });
        }
        let mut shape = self.shape(&call.request.operation, found, true);
        if let (Some(crossing), Some(second)) = (crossing, shape.second) {
            shape.second_before = shape.second_before.or_else(|| crossing.before(second));
        }
        draft.duplicate = call.request.duplicate.map(|key| (key, shape));
        draft.mutations = plan.mutations;
        let cut = plan.resized.as_ref();
        let cut = cut.and_then(|cell| cell.cut_map(cell.size_bytes));
        draft.mutations.extend(cut);
        let awaited = draft
            .declare
            .iter()
            .find(|intention| intention.is_awaited())
            .map(|intention| intention.id);
        let after = self.commit(now, wall, draft);
        let reply = shape.reply(call.id, &self.state.directory, decision.as_ref());
        match awaited {
            None => self.reply(reply, after),
            Some(id) => {
                if let Some(reply) = self.state.intentions.wait(id, reply) {
                    self.reply(reply, after);
                }
            }
        }
    }

    /// What becomes of a file's bytes below the threshold when it is cut.
    pub(crate) fn cut_small(&mut self, cell: &Cell, size_bytes: u64) -> Cut {
        let file = FileId::new(self.config.site, cell.serial);
        match self.state.small.plan_truncate(file, size_bytes) {
            SmallPlan::Change(change) => Cut::Change(Some(change)),
            SmallPlan::Done { .. } => Cut::Change(None),
            SmallPlan::Wait(sequence) => Cut::Wait(sequence),
            SmallPlan::Fetch { ticket, .. } => {
                self.state.small.read_done(ticket);
                Cut::Change(None)
            }
        }
    }

    /// What is to be done to the columns of a file, if it has any.
    pub(crate) fn intention_for(&self, cell: &Cell, kind: Kind) -> Option<Intention> {
        let rare = cell.rare();
        (rare.columns > 0 && rare.segments > 0).then(|| Intention {
            id: self.state.intentions.next_id(),
            file: cell.file(self.config.site),
            first_segment: 0,
            end_segment: rare.segments,
            columns: rare.columns,
            kind,
        })
    }

    /// What a reply to `operation` shows; with the attributes of now as those
    /// before, if the operation changes something.
    pub(crate) fn shape(
        &self,
        operation: &SiteOperation,
        found: Option<FileRef>,
        changes: bool,
    ) -> Shape {
        let before = |file: FileRef| {
            let cell = self.state.directory.cell(file).ok();
            cell.filter(|_| changes).map(Cell::before)
        };
        let subject = *operation.subject();
        // Of a directory whose names are hashed nothing is shown but where it is asked for.
        let is_hashed = self.config.spread.is_hashed;
        let is_shown = !matches!(operation, SiteOperation::Rename { .. }) || !is_hashed;
        let second = second_of(operation).filter(|_| is_shown);
        Shape {
            subject,
            subject_before: before(subject),
            second,
            second_before: second.and_then(before),
            found,
        }
    }

    /// How much room there is where a file lies.
    pub(crate) fn tell_space(&mut self, call: &Call<SiteRequest>, file: FileRef) {
        let shape = self.shape(&call.request.operation, None, false);
        // A volume without room is not what a client is to see of one that begins.
        let space = self.space.ok_or(SiteError::Busy);
        let outcome = space.and_then(|space| self.state.directory.space_at(file, space));
        let outcome = outcome.map(SiteAnswer::Space);
        self.reply_content(call, &shape, outcome, After::default());
    }

    /// Answers about content, with the attributes of the file.
    pub(crate) fn reply_content(
        &mut self,
        call: &Call<SiteRequest>,
        shape: &Shape,
        outcome: Result<SiteAnswer, SiteError>,
        after: After,
    ) {
        let reply = shape.reply_with(call.id, &self.state.directory, outcome);
        let after = after.and(self.waits.of(shape.subject.id.serial()));
        self.reply(reply, after);
    }
}

/// The second file that a reply shows.
const fn second_of(operation: &SiteOperation) -> Option<FileRef> {
    match operation {
        SiteOperation::Rename { to_directory, .. } => Some(*to_directory),
        SiteOperation::Link { file, .. } => Some(*file),
        _ => None,
    }
}

/// Whether an operation sees nothing but its subject and what is in it: every
/// change of a directory's entries touches the directory.
const fn only_looks(operation: &SiteOperation) -> bool {
    matches!(
        operation,
        SiteOperation::GetAttributes { .. }
            | SiteOperation::Lookup { .. }
            | SiteOperation::Within { .. }
            | SiteOperation::Access { .. }
            | SiteOperation::ReadLink { .. }
            | SiteOperation::ReadDirectory { .. }
    )
}
