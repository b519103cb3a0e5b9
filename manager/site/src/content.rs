//! Bulk content: the right and the layout to reach the columns, what I/O there
//! did to the attributes, and the driving of intentions.

use std::ops::Range;

use crossdock_directory::{Cell, Mutation, SEGMENTS_MAX, Wanted};
use crossdock_names::{
    FileId, FileRef, HostId, Incarnation, MAP_COLUMNS_MAX, MapFragment, SEGMENT_BYTES,
};
use crossdock_peer::{
    Call, FileLayout, NodeAnswer, NodeError, OpenFor, SiteAnswer, SiteError, SiteOperation,
    SiteRequest, Stability,
};
use crossdock_types::{Time, WallTime};

use crate::calls::{Answered, Target};
use crate::commit::{After, Draft};
use crate::config::Fault;
use crate::intentions::{Intention, Kind};
use crate::site::{Purpose, Site};

impl Site {
    /// The site's epoch as what loses unstable bytes and attributes.
    pub(crate) const fn incarnation(&self) -> Incarnation {
        Incarnation(self.config.epoch.0)
    }

    pub(crate) fn open_content(
        &mut self,
        now: Time,
        wall: WallTime,
        call: &Call<SiteRequest>,
        (file, purpose, holder): (FileRef, OpenFor, Option<HostId>),
    ) {
        let shape = self.shape(&call.request.operation, None, false);
        let checked = self.check_open(call, file, purpose);
        let (cell, make) = match checked {
            Ok(checked) => checked,
            Err(error) => {
                return self.reply_content(call, &shape, Err(error), After::default());
            }
        };
        if purpose.is_write() && self.is_untidy(file) {
            return self.tidy(now, wall, file, call.clone());
        }
        // Where columns have to be made first, it may fail yet: the next one gets it.
        let holder = holder.filter(|_| make.is_none());
        let lease = holder.and_then(|holder| self.give_lease(now, wall, &cell, purpose, holder));
        // The columns are in the log before they are on the nodes: whoever
        // removes the file later knows of them.
        let id = make.as_ref().map(|make| make.id);
        let mut mutations = self.place_blocks(&cell, purpose);
        mutations.extend(make.is_some().then(|| Mutation::PutCell(cell.clone())));
        let mut after = After::default();
        if !mutations.is_empty() {
            let draft = Draft {
                mutations,
                declare: make.into_iter().collect(),
                ..Draft::default()
            };
            after = self.commit(now, wall, draft);
        }
        let opened = Ok(SiteAnswer::Opened {
            layout: self.layout_for(&cell, file, purpose),
            incarnation: self.incarnation(),
            lease,
        });
        let Some(id) = id else {
            return self.reply_content(call, &shape, opened, after);
        };
        let reply = shape.reply_with(call.id, &self.state.directory, opened);
        if let Some(reply) = self.state.intentions.wait(id, reply) {
            self.reply(reply, after);
        }
    }

    pub(crate) fn push_attributes(&mut self, now: Time, wall: WallTime, call: &Call<SiteRequest>) {
        let SiteOperation::PushAttributes {
            file,
            size_at_least_bytes,
            wrote,
            read,
            truncate_generation,
            stability,
            written,
            lease,
        } = call.request.operation
        else {
            return;
        };
        let mut shape = self.shape(&call.request.operation, None, wrote);
        let old = match self.state.directory.cell(file) {
            Ok(cell) => cell,
            Err(error) => {
                shape.subject_before = None;
                self.use_lease(file, lease);
                return self.reply_content(call, &shape, Err(error), After::default());
            }
        };
        let mut new = None;
        // What was written before a truncate says nothing about the size now, and
        // may be cut in part: the writer learns it by the layout of now.
        let current = truncate_generation >= old.rare().truncate_generation;
        let answer = if wrote && !current {
            SiteAnswer::Opened {
                layout: layout_of(old, file),
                incarnation: self.incarnation(),
                lease: None,
            }
        } else {
            SiteAnswer::Done
        };
        if wrote || size_at_least_bytes > 0 {
            let end = if current { size_at_least_bytes } else { 0 };
            let cell = old.written(&call.request.caller, end, written.unwrap_or(wall));
            // A lease says when it was written until it is back, and what was logged with a
            // FILE_SYNC reply once more: a time that moved by that would go back in a crash.
            let is_told = written.is_some_and(|at| at <= old.changed);
            let has_more = cell.size_bytes > old.size_bytes || cell.mode() != old.mode();
            new = Some(cell).filter(|_| !is_told || has_more);
        }
        if read {
            new = new.as_ref().unwrap_or(old).read(wall).or(new);
        }
        let serial = file.id.serial();
        if let Some(cell) = new {
            self.change_volatile(now, cell);
        }
        let mut after = After::default();
        if stability == Stability::Stable {
            after = self.log_cell(now, wall, serial);
        }
        self.use_lease(file, lease);
        self.reply_content(call, &shape, Ok(answer), after);
    }

    /// Whether the columns may hold bytes beyond the file's end: what an earlier
    /// epoch's writers had sent, and had not been told to be there, when the site
    /// or they died. The first truncate generation of an epoch lies above all of
    /// earlier ones, so the generation tells who has been tidied.
    pub(crate) fn is_untidy(&self, file: FileRef) -> bool {
        let cell = self.state.directory.cell(file);
        cell.is_ok_and(|cell| {
            let rare = cell.rare();
            rare.segments > 0 && rare.truncate_generation < self.generation_base()
        })
    }

    /// Cuts the columns at the file's end before anything can extend it
    /// (CONSISTENCY 5, history `resurrected-bytes`); then takes up `call` again.
    /// Late writes of the earlier epoch are refused from then on.
    pub(crate) fn tidy(
        &mut self,
        now: Time,
        wall: WallTime,
        file: FileRef,
        call: Call<SiteRequest>,
    ) {
        let Ok(cell) = self.state.directory.cell(file) else {
            return;
        };
        let mut cell = cell.clone();
        let truncate_generation = self.generation_base();
        cell.change_rare(|rare| rare.truncate_generation = truncate_generation);
        let kind = Kind::Truncate {
            size_bytes: cell.size_bytes,
            truncate_generation,
            layout: cell.rare().layout,
        };
        let draft = Draft {
            declare: self.intention_for(&cell, kind).into_iter().collect(),
            mutations: vec![Mutation::PutCell(cell)],
            ..Draft::default()
        };
        self.commit(now, wall, draft);
        self.block(file.id, call);
    }

    /// The lowest truncate generation that this epoch gives.
    pub(crate) const fn generation_base(&self) -> u64 {
        self.config.epoch.0 << 32
    }

    /// Logs a cell whose changes are in memory only, if they are.
    pub(crate) fn log_cell(&mut self, now: Time, wall: WallTime, serial: u64) -> After {
        let volatile = self.volatile.contains(&serial);
        match self.state.directory.cell_of(serial).cloned() {
            Some(cell) if volatile => self.commit(
                now,
                wall,
                Draft {
                    mutations: vec![Mutation::PutCell(cell)],
                    ..Draft::default()
                },
            ),
            _ => self.waits.of(serial),
        }
    }

    /// Sends the next parts of an intention.
    pub(crate) fn drive(&mut self, now: Time, wall: WallTime, id: u64) {
        let context = self.context();
        let parts = self.state.intentions.next_parts(id);
        let Some(intention) = self.state.intentions.get(id).cloned() else {
            return;
        };
        self.drive_decision(now, &parts, &intention);
        let is_decision = matches!(&intention.kind, Kind::Finish(decision) if !decision.adopts);
        if is_decision && self.config.has(Fault::ForgetDecision) {
            return self.finish(now, wall, id);
        }
        for &part in &parts {
            if let Some(request) = intention.request(part, context) {
                let purpose = Purpose::Part {
                    intention: id,
                    part,
                };
                self.send(now, Target::Primary, request, purpose);
            }
        }
        if parts.is_empty() && self.state.intentions.is_finished(id) {
            self.finish(now, wall, id);
        }
    }

    /// A column's node has answered.
    pub(crate) fn part_answered(
        &mut self,
        now: Time,
        wall: WallTime,
        id: u64,
        answered: Answered<Purpose>,
    ) {
        match &answered.outcome {
            // Done; or done before, by us or by what came later.
            Ok(NodeAnswer::Done { .. })
            | Err(NodeError::NoObject | NodeError::StaleGeneration { .. }) => {}
            Err(NodeError::NoSpace) if self.is_making(id) => {
                self.state.intentions.stop(id);
                self.failed_makes.insert(id);
                self.fail_waiting(id, SiteError::NoSpace);
            }
            // It has to be done some day: who waits is told, the work goes on.
            outcome => {
                let is_broken = matches!(outcome, Err(NodeError::Media { .. }));
                self.fail_waiting(id, SiteError::Io);
                if is_broken {
                    self.fail_blocked(id, SiteError::Io);
                }
                self.calls.send_again(now, Target::Primary, answered);
                return;
            }
        }
        if self.state.intentions.part_done(id) {
            self.finish(now, wall, id);
        } else {
            self.drive(now, wall, id);
        }
    }

    /// All parts are answered: logs the end, and lets go who waited.
    pub(crate) fn finish(&mut self, now: Time, wall: WallTime, id: u64) {
        let Some(intention) = self.state.intentions.get(id).cloned() else {
            return;
        };
        let replies = self.state.intentions.take_waiting(id);
        let file = intention.file.id;
        let mut draft = Draft {
            done: Some(id),
            ..Draft::default()
        };
        if self.failed_makes.remove(&id) {
            self.undo_make(&intention, &mut draft);
        }
        let after = self.commit(now, wall, draft);
        if matches!(intention.kind, Kind::Truncate { .. }) {
            // Were the end not durable, a restart would truncate again: nobody
            // may write under the new generation before it is.
            self.waits.touch(file.serial(), after);
        }
        for reply in replies {
            self.reply(reply, After::default());
        }
        if let Kind::Finish(decision) = &intention.kind
            && self.moving == Some(decision.id)
        {
            self.end_moving();
        }
        if let Some(next) = self.state.intentions.next_of(file) {
            self.drive(now, wall, next);
        }
        if !self.state.intentions.is_busy(file) {
            self.redo
                .extend(self.blocked.remove(&file).unwrap_or_default());
        }
    }

    /// Columns that could not be made for lack of space: the file is as before,
    /// and those that were made go.
    fn undo_make(&self, intention: &Intention, draft: &mut Draft) {
        if let Ok(cell) = self.state.directory.cell(intention.file)
            && cell.rare().segments == intention.end_segment
        {
            let mut cell = cell.clone();
            cell.change_rare(|rare| {
                rare.segments = intention.first_segment;
                if rare.segments == 0 {
                    rare.columns = 0;
                }
            });
            let made = u64::from(intention.first_segment) * SEGMENT_BYTES;
            draft.mutations.extend(cell.cut_map(made));
            draft.mutations.push(Mutation::PutCell(cell));
        }
        draft.declare.push(Intention {
            id: self.state.intentions.next_id(),
            kind: Kind::Remove,
            ..intention.clone()
        });
    }

    /// What a router is to know for that purpose.
    fn layout_for(&self, cell: &Cell, file: FileRef, purpose: OpenFor) -> FileLayout {
        let mut layout = layout_of(cell, file);
        if let Some(block_bytes) = layout.class.map_block_bytes() {
            let Range { start, end } = purpose.range();
            let blocks = (start / block_bytes, end.div_ceil(block_bytes));
            layout.map = self.state.directory.map_of(cell.serial, blocks);
        }
        layout
    }

    fn is_making(&self, id: u64) -> bool {
        let intention = self.state.intentions.get(id);
        intention.is_some_and(|intention| intention.kind == Kind::Make)
    }

    fn fail_waiting(&mut self, id: u64, error: SiteError) {
        for mut reply in self.state.intentions.take_waiting(id) {
            reply.outcome = Err(error);
            self.reply(reply, After::default());
        }
    }

    /// Who waits until the intention's file may be touched is told, too: a broken disk
    /// may never do what comes first.
    fn fail_blocked(&mut self, id: u64, error: SiteError) {
        let intention = self.state.intentions.get(id);
        let blocked = intention.and_then(|intention| self.blocked.remove(&intention.file.id));
        for call in blocked.into_iter().flatten() {
            self.refuse(call.id, error);
        }
    }

    /// The cell as it is to be, and the columns that have to be made.
    fn check_open(
        &self,
        call: &Call<SiteRequest>,
        file: FileRef,
        purpose: OpenFor,
    ) -> Result<(Cell, Option<Intention>), SiteError> {
        let mut cell = self.state.directory.cell(file)?.clone();
        let caller = &call.request.caller;
        let end_bytes = match purpose {
            OpenFor::Read { .. } => {
                cell.check_io(caller, Wanted::Read)?;
                return Ok((cell, None));
            }
            OpenFor::Free { .. } => {
                cell.check_io(caller, Wanted::Write)?;
                return Ok((cell, None));
            }
            OpenFor::Write { end_bytes, .. } => end_bytes,
        };
        cell.check_io(caller, Wanted::Write)?;
        let segments = end_bytes.div_ceil(SEGMENT_BYTES).max(1);
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        if segments > SEGMENTS_MAX {
            return Err(SiteError::FileTooBig);
        }
        self.state.directory.check_growth(&cell, end_bytes)?;
        let mut rare = cell.rare().clone();
        if segments <= rare.segments {
            return Ok((cell, None));
        }
        if rare.columns == 0 {
            rare.layout = self.table.layout;
            rare.columns = self.table.columns_for(file.id.0, 0).max(1);
            if rare.has_map() {
                rare.columns = rare.columns.min(MAP_COLUMNS_MAX);
            }
            rare.truncate_generation = rare.truncate_generation.max(self.generation_base());
        }
        let make = Intention {
            id: self.state.intentions.next_id(),
            file,
            first_segment: rare.segments,
            end_segment: segments,
            columns: rare.columns,
            kind: Kind::Make,
        };
        rare.segments = segments;
        cell.change_rare(|own| *own = rare);
        Ok((cell, Some(make)))
    }
}

fn layout_of(cell: &Cell, file: FileRef) -> FileLayout {
    let rare = cell.rare();
    FileLayout {
        class: rare.layout,
        class_epoch: rare.layout_epoch,
        placement: FileId(file.id.0),
        generation: cell.generation,
        columns: rare.columns,
        truncate_generation: rare.truncate_generation,
        map: MapFragment::default(),
        capability: None,
    }
}
