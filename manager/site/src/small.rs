//! Reads, writes and commits below the threshold: carries out the plans of
//! the small-file role on the site's log and its backing objects.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crossdock_directory::{Mutation, Wanted};
use crossdock_names::{ObjectId, SMALL_FILE_THRESHOLD_BYTES, Version};
use crossdock_peer::{
    BackingExtent, Call, CallId, DuplicateKey, NodeAnswer, NodeError, NodeRequest, Order,
    ReadVersion, SiteAnswer, SiteError, SiteOperation, SiteRequest, Stability,
};
use crossdock_smallfile::{
    BackingRead, BackingWrite, Fetched, Plan, ReadPiece, ReadPlan, ReadTicket, Sequence,
    SmallFileError, Write,
};
use crossdock_types::{Payload, Time, WallTime};

use crate::calls::{Answered, Target};
use crate::commit::{After, Draft};
use crate::replies::Shape;
use crate::site::{Purpose, Site};
use crate::small_space::Returning;

/// Node I/O of small files that is under way.
#[derive(Debug, Default)]
pub(crate) struct SmallWork {
    reads: BTreeMap<u64, ReadTask>,
    next_read: u64,
    /// Backing objects that were created in this incarnation.
    made: BTreeSet<ObjectId>,
    making: BTreeMap<ObjectId, Making>,
    writes: BTreeMap<Sequence, Writing>,
    pub(crate) flushing: bool,
    /// Since when a mark would let freed space be reused.
    pub(crate) mark_since: Option<Time>,
    /// Since when there is free space that could go back to the nodes, and what
    /// is on its way.
    pub(crate) return_since: Option<Time>,
    pub(crate) returning: Option<Returning>,
}

/// Reads of backing objects, and what they are for.
#[derive(Debug)]
struct ReadTask {
    job: Job,
    reads: Vec<BackingRead>,
    ticket: Option<ReadTicket>,
    payloads: Vec<Payload>,
    outstanding: usize,
    replica: usize,
    failed: Option<SiteError>,
}

#[derive(Debug)]
pub(crate) enum Job {
    Read(Call<SiteRequest>, ReadPlan, bool),
    Change(Call<SiteRequest>, Fetched),
    Flush(Fetched),
}

#[derive(Debug)]
struct Making {
    outstanding: usize,
    failed: Option<SiteError>,
    queued: Vec<(Sequence, BackingWrite)>,
}

#[derive(Debug)]
struct Writing {
    /// Backing writes that wait for their object, and calls under way. The
    /// members may change between the two.
    outstanding: usize,
    failed: Option<SiteError>,
    undo: Undo,
}

/// What is to be done if a change becomes void, as replay drops its record.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    /// Serials of the cells in the record, which are logged again.
    pub(crate) cells: Vec<u64>,
    /// What the record remembers as done.
    pub(crate) duplicate: Option<DuplicateKey>,
}

impl SmallWork {
    /// Whether bytes are on their way to backing objects.
    pub(crate) fn is_writing(&self) -> bool {
        !self.writes.is_empty()
    }

    /// The first of the versions of what waits until its object is made.
    pub(crate) fn first_waiting(&self) -> Option<Version> {
        let queued = self.making.values().flat_map(|making| &making.queued);
        queued.map(|(_, write)| write.version).min()
    }

    /// Forgets all reads of backing objects; the calls that waited for them.
    pub(crate) fn take_readers(&mut self) -> Vec<CallId> {
        let tasks = std::mem::take(&mut self.reads).into_values();
        let calls = tasks.filter_map(|task| match task.job {
            Job::Read(call, ..) | Job::Change(call, _) => Some(call.id),
            Job::Flush(_) => None,
        });
        calls.collect()
    }
}

impl Site {
    pub(crate) fn read_small(&mut self, now: Time, wall: WallTime, call: Call<SiteRequest>) {
        match self.plan_read(&call) {
            Err(error) => {
                let shape = self.shape(&call.request.operation, None, false);
                self.reply_content(&call, &shape, Err(error), After::default());
            }
            Ok((plan, end_of_file)) => {
                let ticket = plan.ticket;
                if let Some(extents) = located(&call.request.operation, &plan) {
                    let located = SiteAnswer::Located {
                        extents,
                        end_of_file,
                    };
                    self.answer_read(now, wall, &call, &plan, Ok(located));
                    // Whoever reads there looks at the version: the space may be used again.
                    return ticket
                        .into_iter()
                        .for_each(|it| self.state.small.read_done(it));
                }
                let reads: Vec<_> = plan.reads().cloned().collect();
                self.start_reads(now, wall, Job::Read(call, plan, end_of_file), reads, ticket);
            }
        }
    }

    /// A write, an exchange or a commit, with what was fetched for it so far.
    pub(crate) fn change_small(
        &mut self,
        now: Time,
        wall: WallTime,
        call: Call<SiteRequest>,
        fetched: &Fetched,
    ) {
        if let SiteOperation::Exchange { .. } = call.request.operation {
            return self.exchange_small(now, wall, call, fetched);
        }
        // An earlier sending may have been carried out since this one came.
        if self.answer_duplicate(wall, &call) {
            return;
        }
        let shape = self.shape(&call.request.operation, None, true);
        let planned = self.plan_change(&call, fetched);
        let plan = match planned {
            Ok(plan) => plan,
            Err(error) => {
                if error == SiteError::Busy {
                    self.mark_small(now, wall); // Freed space may be all it takes.
                }
                let shape = self.shape(&call.request.operation, None, false);
                return self.reply_content(&call, &shape, Err(error), After::default());
            }
        };
        let after = match plan {
            Plan::Fetch { reads, ticket } => {
                let job = Job::Change(call, fetched.clone());
                return self.start_reads(now, wall, job, reads, Some(ticket));
            }
            Plan::Wait(sequence) => return self.park(sequence, call),
            Plan::Done { after } => self
                .log_change(now, wall, &call, (&shape, None))
                .and_sequence(after),
            Plan::Change(change) => self.log_change(now, wall, &call, (&shape, Some(change))),
        };
        let answer = match call.request.operation {
            SiteOperation::Commit { .. } => SiteAnswer::Committed,
            _ => SiteAnswer::Written {
                incarnation: self.incarnation(),
            },
        };
        self.reply_content(&call, &shape, Ok(answer), after);
    }

    /// Sends the backing writes of a change to every member.
    pub(crate) fn write_backing(
        &mut self,
        now: Time,
        sequence: Sequence,
        writes: Vec<BackingWrite>,
        undo: Undo,
    ) {
        if writes.is_empty() {
            return;
        }
        let writing = Writing {
            outstanding: writes.len(),
            failed: None,
            undo,
        };
        self.small.writes.insert(sequence, writing);
        for write in writes {
            let object = write.object;
            if self.small.made.contains(&object) {
                self.send_write(now, sequence, &write);
            } else if let Some(making) = self.small.making.get_mut(&object) {
                making.queued.push((sequence, write));
            } else {
                let making = Making {
                    outstanding: self.members.len(),
                    failed: None,
                    queued: vec![(sequence, write)],
                };
                self.small.making.insert(object, making);
                self.make_backing(now, object);
            }
        }
    }

    pub(crate) fn backing_made(
        &mut self,
        now: Time,
        wall: WallTime,
        object: ObjectId,
        answered: Answered<Purpose>,
    ) {
        let Some(making) = self.small.making.get_mut(&object) else {
            return;
        };
        making.outstanding -= 1;
        if let Err(error) = &answered.outcome {
            making.failed = Some(site_error(error));
        }
        if making.outstanding > 0 {
            return;
        }
        let Some(making) = self.small.making.remove(&object) else {
            return;
        };
        if making.failed.is_none() {
            self.small.made.insert(object);
        }
        for (sequence, write) in making.queued {
            match making.failed {
                Some(error) => self.write_answered(now, wall, sequence, Some(error)),
                None => self.send_write(now, sequence, &write),
            }
        }
    }

    pub(crate) fn backing_written(
        &mut self,
        now: Time,
        wall: WallTime,
        sequence: Sequence,
        error: Option<NodeError>,
    ) {
        let error = error.map(|error| site_error(&error));
        self.write_answered(now, wall, sequence, error);
    }

    pub(crate) fn backing_read(
        &mut self,
        now: Time,
        wall: WallTime,
        task: u64,
        index: usize,
        answered: Answered<Purpose>,
    ) {
        let Some(reading) = self.small.reads.get_mut(&task) else {
            return;
        };
        reading.outstanding -= 1;
        match answered.outcome {
            Ok(NodeAnswer::Read { payload, .. })
                if reading.reads[index].verify(&payload).is_ok() =>
            {
                reading.payloads[index] = payload;
            }
            Err(NodeError::Unavailable { .. }) => reading.failed = Some(SiteError::Busy),
            // Absent, unreadable, or not what the map record says (invariant 7).
            _ => reading.failed = Some(SiteError::Io),
        }
        if reading.outstanding > 0 {
            return;
        }
        if reading.failed.is_some() && reading.replica + 1 < self.members.len() {
            reading.replica += 1;
            reading.failed = None;
            self.send_reads(now, task);
        } else if let Some(reading) = self.small.reads.remove(&task) {
            self.reads_done(now, wall, reading);
        }
    }

    fn plan_read(&mut self, call: &Call<SiteRequest>) -> Result<(ReadPlan, bool), SiteError> {
        let (SiteOperation::Read {
            file,
            offset_bytes,
            length_bytes,
            ..
        }
        | SiteOperation::Locate {
            file,
            offset_bytes,
            length_bytes,
            ..
        }) = call.request.operation
        else {
            return Err(SiteError::Invalid);
        };
        let cell = self.state.directory.cell(file)?;
        cell.check_io(&call.request.caller, Wanted::Read)?;
        let end = offset_bytes.saturating_add(length_bytes);
        if end > SMALL_FILE_THRESHOLD_BYTES {
            return Err(SiteError::Invalid);
        }
        let end_of_file = end >= cell.size_bytes;
        let length = end.min(cell.size_bytes).saturating_sub(offset_bytes);
        if length == 0 {
            let nothing = ReadPlan {
                pieces: Vec::new(),
                after: None,
                ticket: None,
            };
            return Ok((nothing, end_of_file));
        }
        let plan = self.state.small.plan_read(file.id, offset_bytes, length);
        Ok((plan.map_err(|error| refusal(&error))?, end_of_file))
    }

    fn plan_change(
        &mut self,
        call: &Call<SiteRequest>,
        fetched: &Fetched,
    ) -> Result<Plan, SiteError> {
        let version = self.next_version();
        let planned = match &call.request.operation {
            SiteOperation::Write {
                file,
                offset_bytes,
                payload,
                stability,
            } => {
                let cell = self.state.directory.cell(*file)?;
                cell.check_io(&call.request.caller, Wanted::Write)?;
                if payload.is_empty() {
                    return Ok(Plan::Done { after: None });
                }
                let end = offset_bytes + payload.len() as u64;
                self.state.directory.check_growth(cell, end)?;
                let write = Write {
                    file: file.id,
                    offset_bytes: *offset_bytes,
                    payload: payload.clone(),
                    stability: *stability,
                    version,
                };
                self.state.small.plan_write(&write, fetched)
            }
            SiteOperation::Commit { file, incarnation } => {
                self.state.directory.cell(*file)?;
                let current = self.incarnation();
                if *incarnation != current {
                    return Err(SiteError::Lost { current });
                }
                self.state.small.plan_commit(file.id, version, fetched)
            }
            _ => return Err(SiteError::Invalid),
        };
        planned.map_err(|error| refusal(&error))
    }

    /// Logs what a write or commit changes: the small-file record and the cell
    /// in one record, which remembers the reply if that is wanted. An unstable write changes the
    /// cell in memory only.
    fn log_change(
        &mut self,
        now: Time,
        wall: WallTime,
        call: &Call<SiteRequest>,
        (shape, small): (&Shape, Option<crossdock_smallfile::Change>),
    ) -> After {
        let operation = &call.request.operation;
        let serial = operation.subject().id.serial();
        let mut stable = true;
        if let SiteOperation::Write {
            file,
            offset_bytes,
            payload,
            stability,
        } = operation
        {
            stable = *stability == Stability::Stable;
            let end = offset_bytes + payload.len() as u64;
            if let Ok(cell) = self.state.directory.cell(*file)
                && !payload.is_empty()
            {
                let cell = cell.written(&call.request.caller, end, wall);
                self.change_volatile(now, cell);
            }
        }
        if small.is_none() {
            return if stable {
                self.log_cell(now, wall, serial)
            } else {
                After::default()
            };
        }
        let cell = self.state.directory.cell_of(serial).cloned();
        let draft = Draft {
            mutations: cell.map(Mutation::PutCell).into_iter().collect(),
            small,
            duplicate: call.request.duplicate.map(|key| (key, *shape)),
            ..Draft::default()
        };
        self.commit(now, wall, draft)
    }

    pub(crate) fn start_reads(
        &mut self,
        now: Time,
        wall: WallTime,
        job: Job,
        reads: Vec<BackingRead>,
        ticket: Option<ReadTicket>,
    ) {
        let task = self.small.next_read;
        self.small.next_read += 1;
        let reading = ReadTask {
            job,
            payloads: vec![Payload::new(); reads.len()],
            reads,
            ticket,
            outstanding: 0,
            replica: 0,
            failed: None,
        };
        if reading.reads.is_empty() {
            return self.reads_done(now, wall, reading);
        }
        self.small.reads.insert(task, reading);
        self.send_reads(now, task);
    }

    fn send_reads(&mut self, now: Time, task: u64) {
        let Some(reading) = self.small.reads.get_mut(&task) else {
            return;
        };
        reading.outstanding = reading.reads.len();
        let member = self
            .members
            .get(reading.replica)
            .copied()
            .unwrap_or_default();
        let requests: Vec<_> = reading
            .reads
            .iter()
            .map(|read| NodeRequest::Read {
                object: read.object,
                offset_bytes: read.offset_bytes,
                length_bytes: read.length_bytes.into(),
                version: ReadVersion::Current,
                patience_ms: 0,
            })
            .collect();
        for (index, request) in requests.into_iter().enumerate() {
            let purpose = Purpose::BackingRead { task, index };
            self.send(now, Target::Replica(member), request, purpose);
        }
    }

    fn reads_done(&mut self, now: Time, wall: WallTime, task: ReadTask) {
        let ticket = task.ticket;
        match task.job {
            Job::Change(call, _) if self.is_read_only() => self.refuse(call.id, SiteError::Io),
            Job::Flush(_) if self.is_read_only() => {}
            Job::Read(call, plan, end_of_file) => {
                let outcome = match task.failed {
                    Some(error) => Err(error),
                    None => plan.assemble(task.payloads).map_err(|_| SiteError::Io),
                };
                let outcome = outcome.map(|payload| SiteAnswer::Read {
                    payload,
                    end_of_file,
                });
                self.answer_read(now, wall, &call, &plan, outcome);
            }
            Job::Change(call, mut fetched) => match task.failed {
                None if let Some(file) = self.keeper_of(&call.request.operation, None) => {
                    self.block(file, call); // It has been promised meanwhile.
                }
                None => {
                    add_fetched(&mut fetched, &task.reads, &task.payloads);
                    self.change_small(now, wall, call, &fetched);
                }
                Some(error) => {
                    let shape = self.shape(&call.request.operation, None, false);
                    self.reply_content(&call, &shape, Err(error), After::default());
                }
            },
            Job::Flush(mut fetched) => {
                self.small.flushing = false;
                if task.failed.is_none() {
                    add_fetched(&mut fetched, &task.reads, &task.payloads);
                    self.plan_flush(now, wall, &fetched);
                }
            }
        }
        if let Some(ticket) = ticket {
            self.state.small.read_done(ticket);
        }
    }

    fn answer_read(
        &mut self,
        now: Time,
        wall: WallTime,
        call: &Call<SiteRequest>,
        plan: &ReadPlan,
        outcome: Result<SiteAnswer, SiteError>,
    ) {
        let file = call.request.operation.subject();
        let read = self.state.directory.cell(*file).ok();
        if let Some(cell) = read.and_then(|cell| cell.read(wall)) {
            self.change_volatile(now, cell);
        }
        let shape = self.shape(&call.request.operation, None, false);
        let after = After::default().and_sequence(plan.after);
        self.reply_content(call, &shape, outcome, after);
    }

    fn make_backing(&mut self, now: Time, object: ObjectId) {
        for member in self.members.clone() {
            let request = NodeRequest::Create {
                object,
                reservation_bytes: 0,
                attributes: Bytes::new(),
                context: self.context(),
                order: Order::Given(self.next_version()),
            };
            self.send(
                now,
                Target::Node(member),
                request,
                Purpose::BackingMade(object),
            );
        }
    }

    /// Sends one of a change's backing writes to all members of now.
    fn send_write(&mut self, now: Time, sequence: Sequence, write: &BackingWrite) {
        if let Some(writing) = self.small.writes.get_mut(&sequence) {
            writing.outstanding += self.members.len();
            writing.outstanding -= 1; // It waits no longer to be sent.
        }
        for member in self.members.clone() {
            let request = NodeRequest::Write {
                object: write.object,
                offset_bytes: write.offset_bytes,
                payload: write.payload.clone(),
                stability: Stability::Stable,
                context: self.context(),
                order: Order::Given(write.version),
            };
            let purpose = Purpose::BackingWritten(sequence);
            self.send(now, Target::Node(member), request, purpose);
        }
    }

    fn write_answered(
        &mut self,
        now: Time,
        wall: WallTime,
        sequence: Sequence,
        error: Option<SiteError>,
    ) {
        let Some(writing) = self.small.writes.get_mut(&sequence) else {
            return;
        };
        writing.outstanding = writing.outstanding.saturating_sub(1);
        writing.failed = writing.failed.or(error);
        if writing.outstanding > 0 {
            return;
        }
        let Some(writing) = self.small.writes.remove(&sequence) else {
            return;
        };
        match writing.failed {
            None => {
                self.state.small.written(sequence);
                self.release_settled();
            }
            Some(error) => self.void_small(now, wall, sequence, &writing.undo, error),
        }
        let parked = self.parked.remove(&sequence).unwrap_or_default();
        self.redo.extend(parked);
    }

    /// Bytes of a change did not reach every member: takes the change back, and
    /// tells who waited for it.
    ///
    /// The attributes stay as they are in memory: others may have seen them, or
    /// added to them since (a size that grew shows zeros). Replay drops the
    /// change's record with the cells in it, so they are logged here again.
    fn void_small(
        &mut self,
        now: Time,
        wall: WallTime,
        sequence: Sequence,
        undo: &Undo,
        error: SiteError,
    ) {
        let replies = self.waits.take_voided(sequence);
        let change = self.state.small.plan_void(&[sequence]);
        if let Some(key) = &undo.duplicate {
            self.state.duplicates.forget(key);
        }
        let cells = undo
            .cells
            .iter()
            .filter_map(|&serial| self.state.directory.cell_of(serial).cloned());
        let draft = Draft {
            mutations: cells.map(Mutation::PutCell).collect(),
            small: Some(change),
            ..Draft::default()
        };
        let position = self.commit(now, wall, draft).position;
        for mut reply in replies {
            reply.outcome = Err(error);
            self.reply(reply, After::position(position));
        }
    }
}

/// Where all that was asked for lies, if that may be the answer.
fn located(operation: &SiteOperation, plan: &ReadPlan) -> Option<Vec<BackingExtent>> {
    let may_be = matches!(operation, SiteOperation::Locate { .. }) && !plan.pieces.is_empty();
    let extent = |piece: &ReadPiece| match piece {
        ReadPiece::Backing(read) => Some(BackingExtent {
            object: read.object,
            offset_bytes: read.offset_bytes,
            length_bytes: read.length_bytes,
            version: read.version,
            capability: None,
        }),
        ReadPiece::Memory(_) | ReadPiece::Zeros(_) => None,
    };
    let extents = plan.pieces.iter().map(extent);
    extents.collect::<Option<Vec<_>>>().filter(|_| may_be)
}

fn add_fetched(fetched: &mut Fetched, reads: &[BackingRead], payloads: &[Payload]) {
    for (read, payload) in reads.iter().zip(payloads) {
        // Verified when it arrived; what does not match is fetched again.
        let _ = fetched.add(read, payload);
    }
}

pub(crate) const fn refusal(error: &SmallFileError) -> SiteError {
    match error {
        SmallFileError::BeyondThreshold => SiteError::Invalid,
        SmallFileError::NoSpace => SiteError::NoSpace,
        SmallFileError::Busy => SiteError::Busy,
    }
}

const fn site_error(error: &NodeError) -> SiteError {
    match error {
        NodeError::NoSpace => SiteError::NoSpace,
        _ => SiteError::Io,
    }
}
