//! Reading a checkpoint and replaying the log, the second half of opening.

use std::collections::VecDeque;

use bytes::BytesMut;
use crossdock_log::{ChainPosition, FRAME_HEADER_BYTES, Frame, FrameReader};
use crossdock_names::{NodeId, ObjectClass, ObjectId};
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest, ReadVersion};
use crossdock_smallfile::{BackingRead, ReplayTail, Sequence};
use crossdock_types::{Time, WallTime};

use crate::calls::{Answered, Target};
use crate::chunks::{Chunk, ChunkReader};
use crate::log::{LogPoint, log_id};
use crate::open::{OpenError, OpenStep, Opening, payload_of};
use crate::record::{Change, Record};
use crate::site::{Purpose, Site};
use crate::state::State;

/// A checkpoint that is being read.
#[derive(Debug)]
pub(crate) struct Loading {
    /// Those that are left to try, newest last, with the replica to read.
    candidates: Vec<(u32, usize)>,
    number: u32,
    replica: usize,
    offset_bytes: u64,
    reader: ChunkReader,
}

/// A log that is being replayed.
#[derive(Debug)]
pub(crate) struct Replaying {
    pub(crate) start: LogPoint,
    pub(crate) reader: FrameReader,
    pub(crate) records: u64,
    pub(crate) log_bytes: u64,
    segment: u32,
    /// Bytes of the segment that are in the buffer or behind it.
    offset_bytes: u64,
    buffer: BytesMut,
    /// Of the members, whose bytes are read …
    replica: usize,
    /// … and how many have had nothing that follows on the last frame.
    tried: usize,
    /// Whether a frame of this segment has been taken.
    advanced: bool,
    /// The log object, if any, whose last bytes were no frame of the chain.
    cut: Option<u32>,
    /// One after which the chain did not go on.
    damaged: Option<u32>,
    tail: ReplayTail<Record>,
}

/// Backing bytes of the last records that are being compared.
#[derive(Debug, Default)]
pub(crate) struct Verifying {
    outstanding: usize,
    checks: Vec<(Sequence, Vec<BackingRead>)>,
    /// Changes whose bytes some member has not got.
    pub(crate) void: Vec<Sequence>,
}

impl Opening {
    /// Goes to the next log object; whether there is one.
    fn next_segment(&mut self) -> bool {
        let Some(replaying) = &mut self.replaying else {
            return false;
        };
        replaying.leave_segment();
        let next = self.segments.range(replaying.segment + 1..).next();
        let Some((&segment, _)) = next else {
            return false;
        };
        replaying.segment = segment;
        replaying.offset_bytes = 0;
        replaying.buffer.clear();
        replaying.advanced = false;
        true
    }
}

impl Replaying {
    /// A log object may end in what is no frame of the chain, if the next one
    /// goes on from before that. If it does not, something is missing.
    fn leave_segment(&mut self) {
        let rest = !self.buffer.is_empty();
        if self.advanced {
            self.cut = rest.then_some(self.segment);
        } else if rest {
            self.damaged = self.damaged.or(self.cut);
            self.cut = Some(self.segment);
        }
    }

    /// Whether what is left of a log object is not even the tail of another owner: nodes
    /// have a frame, or they have not. So there was one that somebody may have been
    /// answered for.
    fn ends_in_damage(&self) -> bool {
        !self.buffer.is_empty() && !self.reader.is_frame(&self.buffer)
    }

    /// Goes on behind the last frame with the bytes of another member; whether there is
    /// one that was not tried there.
    fn turn_to_another(&mut self, replicas: usize) -> bool {
        self.offset_bytes -= self.buffer.len() as u64;
        self.buffer.clear();
        self.replica += 1;
        self.tried += 1;
        self.tried < replicas
    }

    /// The next whole frame in the buffer. One that does not follow is the tail of
    /// an owner that died; the next owner's log object goes on from before it.
    fn next_frame(&mut self) -> Option<Frame> {
        if self.buffer.len() < FRAME_HEADER_BYTES {
            return None;
        }
        let length = self.reader.length_of(&self.buffer)?;
        if self.buffer.len() < length {
            return None;
        }
        let bytes = self.buffer.split_to(length).freeze();
        let Ok(frame) = self.reader.read(&bytes) else {
            self.buffer = [bytes.as_ref(), &self.buffer].concat().as_slice().into();
            return None;
        };
        self.advanced = true;
        self.tried = 0;
        self.log_bytes += length as u64;
        Some(frame)
    }
}

impl Site {
    pub(crate) fn load_checkpoint(&mut self, now: Time, wall: WallTime) {
        let replicas = self.members.len();
        let Some(opening) = self.opening_mut() else {
            return;
        };
        let numbers = opening.checkpoints.iter();
        let candidates: Vec<_> = numbers
            .flat_map(|&number| (0..replicas).rev().map(move |replica| (number, replica)))
            .collect();
        self.try_next_checkpoint(now, wall, candidates);
    }

    fn try_next_checkpoint(
        &mut self,
        now: Time,
        wall: WallTime,
        mut candidates: Vec<(u32, usize)>,
    ) {
        self.state = State::new(&self.config);
        let Some((number, replica)) = candidates.pop() else {
            let start = LogPoint {
                segment: 0,
                offset_bytes: 0,
                chain: ChainPosition::start(),
            };
            return self.begin_replay(now, wall, start);
        };
        let Some(opening) = self.opening_mut() else {
            return;
        };
        opening.loading = Some(Loading {
            candidates,
            number,
            replica,
            offset_bytes: 0,
            reader: ChunkReader::default(),
        });
        let object = ObjectId::of_site(ObjectClass::Checkpoint, self.config.site, number);
        self.ask_read(now, object, 0, replica, OpenStep::Checkpoint);
    }

    pub(crate) fn checkpoint_read(
        &mut self,
        now: Time,
        wall: WallTime,
        answered: Answered<Purpose>,
    ) {
        let Some(mut loading) = self
            .opening_mut()
            .and_then(|opening| opening.loading.take())
        else {
            return;
        };
        // Absent, cut off or unreadable: it was never finished, or is damaged.
        let payload = payload_of(&answered.outcome).filter(|payload| !payload.is_empty());
        let Some(payload) = payload else {
            return self.try_next_checkpoint(now, wall, loading.candidates);
        };
        loading.offset_bytes += payload.len() as u64;
        loading.reader.push(payload);
        loop {
            match loading.reader.next() {
                Chunk::Unfinished => break,
                Chunk::Changes(changes) => {
                    let record = Record {
                        wall: WallTime(0),
                        duplicate: None,
                        changes,
                    };
                    if self.state.replay(&record).is_err() {
                        return self.try_next_checkpoint(now, wall, loading.candidates);
                    }
                }
                Chunk::Trailer(start) => {
                    if let Some(opening) = self.opening_mut() {
                        opening.report.checkpoint = Some(loading.number);
                    }
                    return self.begin_replay(now, wall, start);
                }
                Chunk::Unknown(format) => {
                    let number = loading.number;
                    return self.opening_failed(OpenError::UnknownCheckpoint { number, format });
                }
                Chunk::Damaged => return self.try_next_checkpoint(now, wall, loading.candidates),
            }
        }
        let (number, offset, replica) = (loading.number, loading.offset_bytes, loading.replica);
        if let Some(opening) = self.opening_mut() {
            opening.loading = Some(loading);
        }
        let object = ObjectId::of_site(ObjectClass::Checkpoint, self.config.site, number);
        self.ask_read(now, object, offset, replica, OpenStep::Checkpoint);
    }

    fn begin_replay(&mut self, now: Time, wall: WallTime, start: LogPoint) {
        let id = log_id(self.config.site, self.config.volume);
        let Some(opening) = self.opening_mut() else {
            return;
        };
        if !opening.segments.contains_key(&start.segment) {
            return self.opening_failed(OpenError::NoCheckpoint {
                segment: start.segment,
            });
        }
        opening.replaying = Some(Replaying {
            start,
            reader: FrameReader::new(id, start.chain),
            records: 0,
            log_bytes: 0,
            segment: start.segment,
            offset_bytes: start.offset_bytes,
            buffer: BytesMut::new(),
            replica: 0,
            // What lies before the start has been taken by the checkpoint.
            advanced: start.offset_bytes > 0,
            cut: None,
            damaged: None,
            tail: ReplayTail::new(),
            tried: 0,
        });
        self.make_equal(now, wall, start.segment);
    }

    /// Reads on, or goes to the next segment, or ends.
    pub(crate) fn read_log(&mut self, now: Time, wall: WallTime) {
        let replicas = self.members.len();
        let Some(opening) = self.opening_mut() else {
            return;
        };
        loop {
            let Some(replaying) = &opening.replaying else {
                return;
            };
            let (segment, offset) = (replaying.segment, replaying.offset_bytes);
            let end = opening.longest(segment).map_or(0, |(_, end)| end);
            if offset < end {
                let replica = replaying.replica;
                let object = self.log_object(segment);
                return self.ask_read(now, object, offset, replica, OpenStep::Log);
            }
            let replaying = opening.replaying.as_mut();
            if let Some(damaged) = replaying.filter(|replaying| replaying.ends_in_damage()) {
                if damaged.turn_to_another(replicas) {
                    continue;
                }
                return self.opening_failed(OpenError::Damaged { segment });
            }
            if !opening.next_segment() {
                break;
            }
        }
        let damaged = opening.replaying.as_ref().and_then(|all| all.damaged);
        match damaged {
            Some(segment) => self.opening_failed(OpenError::Damaged { segment }),
            None => self.verify_tail(now, wall),
        }
    }

    pub(crate) fn log_read(&mut self, now: Time, wall: WallTime, answered: Answered<Purpose>) {
        let replicas = self.members.len();
        let Some(opening) = self.opening_mut() else {
            return;
        };
        let Some(mut replaying) = opening.replaying.take() else {
            return;
        };
        let payload = payload_of(&answered.outcome).filter(|payload| !payload.is_empty());
        let Some(payload) = payload else {
            if !replaying.turn_to_another(replicas) {
                let segment = replaying.segment;
                return self.node_failed(ObjectClass::SiteLog, segment, answered);
            }
            opening.replaying = Some(replaying);
            return self.read_log(now, wall);
        };
        for piece in payload.pieces() {
            replaying.buffer.extend_from_slice(piece);
        }
        replaying.offset_bytes += payload.len() as u64;
        while let Some(frame) = replaying.next_frame() {
            if let Err(error) = self.replay_frame(&mut replaying, &frame) {
                return self.opening_failed(error);
            }
        }
        if let Some(opening) = self.opening_mut() {
            opening.replaying = Some(replaying);
        }
        self.read_log(now, wall);
    }

    fn replay_frame(&mut self, replaying: &mut Replaying, frame: &Frame) -> Result<(), OpenError> {
        for bytes in frame.records() {
            let record = Record::decode(&bytes).ok_or(OpenError::UnknownRecord {
                sequence: frame.sequence,
            })?;
            replaying.records += 1;
            let small = record.changes.iter().find_map(|change| match change {
                Change::Small(small) => Some(self.state.small.summary(small)),
                _ => None,
            });
            replaying.tail.push(record, small.transpose()?);
            while let Some(record) = replaying.tail.pop() {
                self.state.replay(&record)?;
            }
        }
        Ok(())
    }

    /// The log is read: have the bytes of its last small-file changes arrived
    /// on every member?
    ///
    /// Replay may begin before the record that the small files' checkpoint
    /// covers last: it begins at a frame, and what was being gathered for that
    /// frame is in the checkpoint already. Such a record is not verified: the
    /// trailer was written only after its bytes had arrived on every member
    /// (a checkpoint during which one became void is given up), and since then
    /// its fragments may have been freed and written again. Its small-file part
    /// is left out, the rest of it is absolute values and is set again.
    fn verify_tail(&mut self, now: Time, wall: WallTime) {
        let Some(opening) = self.opening_mut() else {
            return;
        };
        let Some(replaying) = &opening.replaying else {
            return;
        };
        let checks: Vec<_> = replaying
            .tail
            .unverified()
            .map(|(sequence, reads)| (sequence, reads.to_vec()))
            .collect();
        let mut requests = VecDeque::new();
        for (sequence, reads) in &checks {
            for (index, read) in reads.iter().enumerate() {
                let request = NodeRequest::Read {
                    object: read.object,
                    offset_bytes: read.offset_bytes,
                    length_bytes: read.length_bytes.into(),
                    version: ReadVersion::Current,
                    patience_ms: 0,
                };
                requests.push_back((OpenStep::Verify(*sequence, index), request));
            }
        }
        let members: Vec<NodeId> = self.members.clone();
        if let Some(opening) = self.opening_mut() {
            opening.verifying = Some(Verifying {
                outstanding: requests.len() * members.len(),
                checks,
                void: Vec::new(),
            });
        }
        if requests.is_empty() {
            return self.finish_replay(now, wall);
        }
        for (step, request) in requests {
            for &member in &members {
                self.ask(now, Target::Node(member), request.clone(), step);
            }
        }
    }

    pub(crate) fn verify_read(
        &mut self,
        now: Time,
        wall: WallTime,
        sequence: Sequence,
        index: usize,
        answered: Answered<Purpose>,
    ) {
        let Some(opening) = self.opening_mut() else {
            return;
        };
        let Some(verifying) = &mut opening.verifying else {
            return;
        };
        verifying.outstanding -= 1;
        let check = verifying.checks.iter().find(|(own, _)| *own == sequence);
        let read = check.and_then(|(_, reads)| reads.get(index));
        let proves_void = read.is_some_and(|read| lacks(read, &answered.outcome));
        if proves_void && !verifying.void.contains(&sequence) {
            verifying.void.push(sequence);
        }
        if verifying.outstanding == 0 {
            self.finish_replay(now, wall);
        }
    }

    fn finish_replay(&mut self, now: Time, wall: WallTime) {
        let Some(opening) = self.opening_mut() else {
            return;
        };
        let (Some(replaying), Some(verifying)) = (&mut opening.replaying, &opening.verifying)
        else {
            return;
        };
        let mut rest = Vec::new();
        for (sequence, _) in &verifying.checks {
            if verifying.void.contains(sequence) {
                replaying.tail.void(*sequence);
            } else {
                replaying.tail.verified(*sequence);
            }
        }
        while let Some(record) = replaying.tail.pop() {
            rest.push(record);
        }
        for record in rest {
            if let Err(error) = self.state.replay(&record) {
                return self.opening_failed(error);
            }
        }
        self.replayed(now, wall);
    }
}

/// Whether a member proves that a change was never acknowledged: it *has* other
/// bytes, fewer, or no object. A member whose medium fails proves nothing: it
/// may have acknowledged what it cannot read now, and another one has it.
fn lacks(read: &BackingRead, outcome: &Result<NodeAnswer, NodeError>) -> bool {
    match outcome {
        Ok(NodeAnswer::Read { payload, .. }) => read.verify(payload).is_err(),
        Err(NodeError::NoObject) => true,
        _ => false,
    }
}
