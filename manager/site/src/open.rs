//! Opening a site: everything before the first answer (CONSISTENCY 2).
//!
//! 1. List the log objects and checkpoints on every member.
//! 2. Seal all log objects, and the next one, on every member: whoever held
//!    the site before can append no more.
//! 3. Load the newest valid checkpoint.
//! 4. From where it says make the members equal (what one has more of the log
//!    is appended to the others), and replay.
//! 5. Go on in a new log object: every epoch begins its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossdock_directory::DamagedPiece;
use crossdock_limits::OBJECT_IO_BYTES_MAX;
use crossdock_names::{NodeId, ObjectClass, ObjectId};
use crossdock_peer::{Caller, NodeAnswer, NodeError, NodeRequest, ReadVersion};
use crossdock_smallfile::{RecordError, Sequence};
use crossdock_types::{Payload, Time, WallTime};
use thiserror::Error;

use crate::calls::{Answered, Target};
use crate::commit::Draft;
use crate::log::SiteLog;
use crate::replay::{Loading, Replaying, Verifying};
use crate::site::{Phase, Purpose, Site};
use crate::state::State;

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Whether the site was empty.
    pub fresh: bool,
    /// Number of the checkpoint that was loaded.
    pub checkpoint: Option<u32>,
    /// Records that were replayed.
    pub records: u64,
    /// Log bytes that were appended to members that had less.
    pub repaired_bytes: u64,
    /// Changes of small files whose bytes had not arrived, and which nobody
    /// was promised.
    pub voided: usize,
    /// Intentions that are driven on.
    pub intentions: usize,
    /// Files that there are.
    pub files: usize,
}

/// Why a site cannot be opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    /// A node did not do what opening needs.
    #[error("node {node} failed for {object}: {error}")]
    Node {
        /// Which.
        node: NodeId,
        /// About which object.
        object: ObjectId,
        /// What it said.
        error: NodeError,
    },
    /// The volume is not new, but there is no log.
    #[error("the site's log is gone: no log object and no checkpoint on any member")]
    NoLog,
    /// A part of the log is missing or damaged before its end.
    #[error(
        "the site's log is damaged: log object {segment} ends in what is no record on any member, or does not go on from the one before"
    )]
    Damaged {
        /// The log object.
        segment: u32,
    },
    /// There are checkpoints, none of them valid, and the log does not go back
    /// to the beginning.
    #[error("no valid checkpoint, and log object {segment} is missing")]
    NoCheckpoint {
        /// The log object that would be needed.
        segment: u32,
    },
    /// A checkpoint was written by another version.
    #[error("checkpoint {number} of the site is of the unknown format {format}")]
    UnknownCheckpoint {
        /// Number of the checkpoint.
        number: u32,
        /// The format that it says.
        format: u8,
    },
    /// A record of the log is not of a known format.
    #[error("record {sequence} of the site's log is of an unknown format")]
    UnknownRecord {
        /// The frame's number.
        sequence: u64,
    },
    /// The small-file part of the log is not what this site wrote.
    #[error(transparent)]
    SmallFiles(#[from] RecordError),
    /// Names and attributes in a checkpoint are not what this site wrote.
    #[error(transparent)]
    Names(#[from] DamagedPiece),
    /// Somebody with a higher epoch has taken the site over meanwhile.
    #[error("the site has been taken over by another manager")]
    Replaced,
}

/// Log objects at which opening begins a checkpoint, however short they are:
/// every restart adds one.
const SEGMENTS_MAX: usize = 16;

/// How far opening has got.
#[derive(Debug)]
pub(crate) struct Opening {
    attempt: u32,
    outstanding: usize,
    /// End of each log object on each member, once sealed.
    pub(crate) segments: BTreeMap<u32, BTreeMap<NodeId, u64>>,
    pub(crate) checkpoints: BTreeSet<u32>,
    copies: VecDeque<Copy>,
    pub(crate) loading: Option<Loading>,
    pub(crate) replaying: Option<Replaying>,
    pub(crate) verifying: Option<Verifying>,
    pub(crate) report: OpenReport,
}

/// Log bytes that some members lack.
#[derive(Debug)]
struct Copy {
    segment: u32,
    from: NodeId,
    to: NodeId,
    at: u64,
    end: u64,
}

/// Which call of opening was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenStep {
    List(ObjectClass),
    Seal(u32),
    CopyRead,
    CopyAppend,
    Checkpoint,
    Log,
    Verify(Sequence, usize),
}

impl Opening {
    pub(crate) fn new(attempt: u32) -> Self {
        Self {
            attempt,
            outstanding: 0,
            segments: BTreeMap::new(),
            checkpoints: BTreeSet::new(),
            copies: VecDeque::new(),
            loading: None,
            replaying: None,
            verifying: None,
            report: OpenReport::default(),
        }
    }

    pub(crate) const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The member that has most of a log object, and how much.
    pub(crate) fn longest(&self, segment: u32) -> Option<(NodeId, u64)> {
        let ends = self.segments.get(&segment)?;
        let longest = ends.iter().max_by_key(|&(&node, &end)| (end, node))?;
        Some((*longest.0, *longest.1))
    }
}

impl Site {
    /// Begins from the start, with the members of now.
    pub(crate) fn begin_opening(&mut self, now: Time, attempt: u32) {
        self.phase = Phase::Opening(Box::new(Opening::new(attempt)));
        self.state = State::new(&self.config);
        for member in self.members.clone() {
            for class in [ObjectClass::SiteLog, ObjectClass::Checkpoint] {
                self.list(now, member, class, None);
            }
        }
    }

    pub(crate) fn opening_answered(
        &mut self,
        now: Time,
        wall: WallTime,
        attempt: u32,
        step: OpenStep,
        answered: Answered<Purpose>,
    ) {
        let Phase::Opening(opening) = &mut self.phase else {
            return;
        };
        if opening.attempt != attempt {
            return; // Asked before the members changed.
        }
        opening.outstanding -= 1;
        match step {
            OpenStep::List(class) => self.listed(now, class, answered),
            OpenStep::Seal(segment) => self.sealed(now, wall, segment, answered),
            OpenStep::CopyRead => self.copy_read(now, answered),
            OpenStep::CopyAppend => self.copy_appended(now, wall, answered),
            OpenStep::Checkpoint => self.checkpoint_read(now, wall, answered),
            OpenStep::Log => self.log_read(now, wall, answered),
            OpenStep::Verify(sequence, index) => {
                self.verify_read(now, wall, sequence, index, answered);
            }
        }
    }

    /// Asks something that opening waits for.
    pub(crate) fn ask(&mut self, now: Time, target: Target, request: NodeRequest, step: OpenStep) {
        let Phase::Opening(opening) = &mut self.phase else {
            return;
        };
        opening.outstanding += 1;
        let purpose = Purpose::Opening(opening.attempt, step);
        self.send(now, target, request, purpose);
    }

    pub(crate) fn opening_mut(&mut self) -> Option<&mut Opening> {
        match &mut self.phase {
            Phase::Opening(opening) => Some(opening),
            _ => None,
        }
    }

    pub(crate) fn log_object(&self, segment: u32) -> ObjectId {
        ObjectId::of_site(ObjectClass::SiteLog, self.config.site, segment)
    }

    fn list(&mut self, now: Time, node: NodeId, class: ObjectClass, after: Option<ObjectId>) {
        let request = NodeRequest::List {
            class,
            placement: Some(self.config.site.0.into()),
            after,
            limit: 1024,
        };
        self.ask(now, Target::Node(node), request, OpenStep::List(class));
    }

    fn listed(&mut self, now: Time, class: ObjectClass, answered: Answered<Purpose>) {
        let Ok(NodeAnswer::List { objects, more }) = answered.outcome else {
            return self.node_failed(class, 0, answered);
        };
        let Some(opening) = self.opening_mut() else {
            return;
        };
        for object in &objects {
            match class {
                ObjectClass::SiteLog => {
                    opening.segments.entry(object.segment).or_default();
                }
                _ => {
                    opening.checkpoints.insert(object.segment);
                }
            }
        }
        let left = opening.outstanding;
        if let Some(&last) = objects.last().filter(|_| more) {
            self.list(now, answered.node, class, Some(last));
        } else if left == 0 {
            self.seal_all(now);
        }
    }

    fn seal_all(&mut self, now: Time) {
        let Some(opening) = self.opening_mut() else {
            return;
        };
        let next = opening.segments.keys().last().map_or(0, |last| last + 1);
        opening.segments.insert(next, BTreeMap::new());
        let segments: Vec<u32> = opening.segments.keys().copied().collect();
        for member in self.members.clone() {
            for &segment in &segments {
                let request = NodeRequest::Seal {
                    object: self.log_object(segment),
                    fence: self.config.epoch,
                };
                self.ask(now, Target::Node(member), request, OpenStep::Seal(segment));
            }
        }
    }

    fn sealed(&mut self, now: Time, wall: WallTime, segment: u32, answered: Answered<Purpose>) {
        let Ok(NodeAnswer::End { size_bytes }) = answered.outcome else {
            return self.node_failed(ObjectClass::SiteLog, segment, answered);
        };
        let Some(opening) = self.opening_mut() else {
            return;
        };
        let ends = opening.segments.entry(segment).or_default();
        ends.insert(answered.node, size_bytes);
        if opening.outstanding > 0 {
            return;
        }
        self.load_checkpoint(now, wall);
    }

    /// Gives every member what it lacks of the log from `first_segment` on.
    pub(crate) fn make_equal(&mut self, now: Time, wall: WallTime, first_segment: u32) {
        let Some(opening) = self.opening_mut() else {
            return;
        };
        let mut copies = VecDeque::new();
        for (&segment, ends) in opening.segments.range(first_segment..) {
            let Some((from, end)) = opening.longest(segment) else {
                continue;
            };
            let shorter = ends.iter().filter(|&(_, &at)| at < end);
            copies.extend(shorter.map(|(&to, &at)| Copy {
                segment,
                from,
                to,
                at,
                end,
            }));
        }
        opening.copies = copies;
        self.copy_next(now, wall);
    }

    fn copy_next(&mut self, now: Time, wall: WallTime) {
        let Some(opening) = self.opening_mut() else {
            return;
        };
        let Some(copy) = opening.copies.front() else {
            return self.read_log(now, wall);
        };
        let (segment, from, at) = (copy.segment, copy.from, copy.at);
        let length_bytes = (copy.end - at).min(OBJECT_IO_BYTES_MAX as u64);
        let request = NodeRequest::Read {
            object: self.log_object(segment),
            offset_bytes: at,
            length_bytes,
            version: ReadVersion::Current,
            patience_ms: 0,
        };
        self.ask(now, Target::Node(from), request, OpenStep::CopyRead);
    }

    fn copy_read(&mut self, now: Time, answered: Answered<Purpose>) {
        let Some(opening) = self.opening_mut() else {
            return;
        };
        let Some(copy) = opening.copies.front() else {
            return;
        };
        let (segment, to, at) = (copy.segment, copy.to, copy.at);
        let payload = match answered.outcome {
            Ok(NodeAnswer::Read { ref payload, .. }) if !payload.is_empty() => payload.clone(),
            _ => return self.node_failed(ObjectClass::SiteLog, segment, answered),
        };
        let request = NodeRequest::Append {
            object: self.log_object(segment),
            offset_bytes: at,
            payload,
            fence: self.config.epoch,
        };
        self.ask(now, Target::Node(to), request, OpenStep::CopyAppend);
    }

    fn copy_appended(&mut self, now: Time, wall: WallTime, answered: Answered<Purpose>) {
        let size = match answered.outcome {
            Ok(NodeAnswer::End { size_bytes }) => size_bytes,
            // An earlier sending has arrived: sealing again tells when, and
            // how much of it, is durable.
            Err(NodeError::WrongEnd { .. }) => {
                let Some(&object) = answered.request.object() else {
                    return;
                };
                let fence = self.config.epoch;
                let request = NodeRequest::Seal { object, fence };
                let target = Target::Node(answered.node);
                return self.ask(now, target, request, OpenStep::CopyAppend);
            }
            _ => return self.node_failed(ObjectClass::SiteLog, 0, answered),
        };
        let Some(opening) = self.opening_mut() else {
            return;
        };
        if let Some(copy) = opening.copies.front_mut() {
            opening.report.repaired_bytes += size.saturating_sub(copy.at);
            copy.at = size;
            let ends = opening.segments.entry(copy.segment).or_default();
            ends.insert(copy.to, size);
            if copy.at >= copy.end {
                opening.copies.pop_front();
            }
        }
        self.copy_next(now, wall);
    }

    /// Replay is over: the log goes on in a new object.
    pub(crate) fn replayed(&mut self, now: Time, wall: WallTime) {
        let Phase::Opening(opening) = &mut self.phase else {
            return;
        };
        let Some(replaying) = opening.replaying.take() else {
            return;
        };
        let segments: Vec<u32> = opening.segments.keys().copied().collect();
        let checkpoints: Vec<u32> = opening.checkpoints.iter().copied().collect();
        let voided = opening
            .verifying
            .take()
            .map_or_else(Vec::new, |all| all.void);
        let mut report = opening.report.clone();
        self.log = Some(SiteLog::new(
            (self.config.site, self.config.volume),
            self.config.epoch,
            replaying.reader.position(),
            segments.last().copied().unwrap_or(0),
            self.config.limits.segment_bytes_max,
        ));
        self.log_mut().bytes_since_checkpoint = replaying.log_bytes;
        report.records = replaying.records;
        report.voided = voided.len();
        report.fresh = replaying.records == 0 && report.checkpoint.is_none();
        if report.fresh && !self.config.new_volume {
            return self.opening_failed(OpenError::NoLog);
        }
        // What is old stays until the next checkpoint: the one that was loaded
        // may be whole on one member only.
        self.first_segment = segments.first().copied().unwrap_or(0);
        self.next_checkpoint = checkpoints.last().map_or(0, |last| last + 1);
        let is_cluttered = segments.len() > SEGMENTS_MAX || checkpoints.len() > 1;
        if self.first_segment < replaying.start.segment || is_cluttered {
            let due = self.config.limits.checkpoint_log_bytes_max;
            self.log_mut().bytes_since_checkpoint = due;
        }
        self.checkpoints = checkpoints;
        self.first_records(now, wall, report.fresh, &voided);
        report.intentions = self.state.intentions.len();
        report.files = self.state.directory.memory_use().cells;
        self.phase = Phase::Settling(Box::new(report.clone()));
        if self.log_mut().is_idle() {
            self.settle_in(now);
            let durable = self.log_mut().durable();
            for id in self.state.intentions.begin(durable) {
                self.drive(now, wall, id);
            }
        }
    }

    /// What opening itself has to log before anything is answered.
    fn first_records(&mut self, now: Time, wall: WallTime, fresh: bool, voided: &[Sequence]) {
        if !voided.is_empty() {
            let change = self.state.small.plan_void(voided);
            let draft = Draft {
                small: Some(change),
                ..Draft::default()
            };
            self.commit(now, wall, draft);
        }
        if fresh {
            let mode = self.config.root_mode;
            let directory = &self.state.directory;
            let mutations = directory.make_root(&Caller::root(), mode, wall);
            // Also an empty site writes a record: from now on it has a log.
            let draft = Draft {
                mutations,
                ..Draft::default()
            };
            self.commit(now, wall, draft);
        }
    }

    pub(crate) fn node_failed(
        &mut self,
        class: ObjectClass,
        number: u32,
        answered: Answered<Purpose>,
    ) {
        let object = ObjectId::of_site(class, self.config.site, number);
        let error = match answered.outcome {
            Err(error) => error,
            Ok(_) => NodeError::Invalid("an answer to another question".into()),
        };
        self.opening_failed(OpenError::Node {
            node: answered.node,
            object,
            error,
        });
    }

    /// Reads a piece of an object from the `replica`th member.
    pub(crate) fn ask_read(
        &mut self,
        now: Time,
        object: ObjectId,
        offset_bytes: u64,
        replica: usize,
        step: OpenStep,
    ) {
        let request = NodeRequest::Read {
            object,
            offset_bytes,
            length_bytes: OBJECT_IO_BYTES_MAX as u64,
            version: ReadVersion::Current,
            patience_ms: 0,
        };
        let count = self.members.len().max(1);
        let node = self
            .members
            .get(replica % count)
            .copied()
            .unwrap_or_default();
        self.ask(now, Target::Node(node), request, step);
    }
}

/// The bytes that a read brought.
pub(crate) fn payload_of(outcome: &Result<NodeAnswer, NodeError>) -> Option<&Payload> {
    match outcome {
        Ok(NodeAnswer::Read { payload, .. }) => Some(payload),
        _ => None,
    }
}
