//! LOAD, and the reading side of copies: what is read for whom, and when, as the delivery
//! engine says; and what comes of it.

use std::iter;
use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Duration;

use crossdock_delivery::{Decision, End, StreamClass, StreamId};
use crossdock_http1::{Content, Segment};
use crossdock_ibp::{Access, Command, ErrorCode, StorageType, answer};
use crossdock_limits::OBJECT_IO_BYTES_MAX;
use crossdock_names::ObjectId;
use crossdock_peer::{CallId, NodeAnswer, NodeError, NodeRequest, ReadVersion};
use crossdock_types::{Payload, Time};

use crate::connection::Doing;
use crate::copying::Target;
use crate::depot::Depot;
use crate::ledger::{Allocation, object};
use crate::message::{ConnId, DepotEffect};
use crate::node::{After, Purpose, code_of};
use crate::sharing::Shared;

/// What is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// An allocation, by its number.
    Allocation(u64),
    /// Bytes of the volume.
    Shared(Shared),
}

impl Source {
    /// The allocation's number, if it is one.
    pub(crate) const fn allocation(&self) -> Option<u64> {
        match self {
            Self::Allocation(number) => Some(*number),
            Self::Shared(_) => None,
        }
    }

    const fn object(&self) -> ObjectId {
        match self {
            Self::Allocation(number) => object(*number),
            Self::Shared(shared) => shared.object,
        }
    }

    const fn version(&self) -> ReadVersion {
        match self {
            Self::Allocation(_) => ReadVersion::Current,
            Self::Shared(shared) => ReadVersion::NotAfter(shared.version),
        }
    }
}

/// A load, or a copy to another depot.
#[derive(Debug)]
pub(crate) struct Loading {
    pub(crate) source: Source,
    offset_bytes: u64,
    /// How many; `None`: all that there are behind the offset.
    size_bytes: Option<NonZeroU64>,
    /// Until when it waits: for bytes, for others, for another depot.
    pub(crate) deadline: Time,
    pub(crate) stage: LoadStage,
    /// Of a copy.
    pub(crate) target: Option<Box<Target>>,
    /// Where bytes go.
    pub(crate) to: ConnId,
    /// So many, once that is known.
    pub(crate) bytes: u64,
    content: Content<CallId>,
    /// Under which the delivery engine says when.
    pub(crate) stream: Option<StreamId>,
    /// What goes before the bytes.
    response: Option<String>,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadStage {
    /// For bytes, or for others.
    Waiting,
    /// To the other depot.
    Connecting,
    /// The other depot has not said that it takes them.
    AwaitsGo,
    /// Bytes are read and sent.
    Reading,
    /// The other depot has not said that it has them.
    AwaitsStored,
    /// What was sent is to be taken out.
    Taking,
    /// The record says so.
    Recording,
}

impl Loading {
    /// How many bytes it may have now; `None`: it waits. An error: it never can, or its time
    /// is over.
    fn may_begin(&self, now: Time, allocation: &Allocation) -> Result<Option<u64>, ErrorCode> {
        let record = &allocation.record;
        let is_queue = record.is_queue();
        let offset = if is_queue { 0 } else { self.offset_bytes };
        let most = record.size_bytes.checked_sub(offset);
        let most = most.filter(|&most| most > 0);
        let most = most.ok_or(ErrorCode::INVALID_PARAMETER)?;
        let here = record.length_bytes.saturating_sub(offset);
        let wanted = match self.size_bytes {
            Some(size) => size.get().min(most),
            None => here.max(1),
        };
        let is_late = now >= self.deadline;
        let is_free = record.storage == StorageType::ByteArray || allocation.is_free();
        let given = here.min(wanted);
        match (is_free, given == wanted) {
            (true, true) => Ok(Some(given)),
            (true, false) if is_late && given > 0 => Ok(Some(given)),
            (true, false) if is_late && is_queue => Err(ErrorCode::GENERIC),
            _ if is_late => Err(ErrorCode::SERVER_TIMEOUT),
            _ => Ok(None),
        }
    }
}

impl Depot {
    pub(crate) fn begin_load(
        &mut self,
        now: Time,
        id: ConnId,
        command: Command,
    ) -> Result<(), ErrorCode> {
        let (key, attribute_key, offset_bytes, size_bytes, time_limit, target) = match command {
            Command::Load {
                key,
                attribute_key,
                offset_bytes,
                size_bytes,
                time_limit,
            } => (
                key,
                attribute_key,
                offset_bytes,
                size_bytes,
                time_limit,
                None,
            ),
            Command::Send {
                key,
                target,
                attribute_key,
                offset_bytes,
                size_bytes,
                time_limit,
                target_time_limit,
                target_patience,
            } => {
                let target = Target::new(target, target_time_limit, target_patience)?;
                let target = Some(Box::new(target));
                (
                    key,
                    attribute_key,
                    offset_bytes,
                    size_bytes,
                    time_limit,
                    target,
                )
            }
            _ => return Err(ErrorCode::INTERNAL),
        };
        let source = match self.shared(now, &key, &attribute_key)? {
            Some(shared) => Source::Shared(shared),
            None => {
                let (number, _) = self.find(&key, &attribute_key, Some(Access::Read))?;
                Source::Allocation(number)
            }
        };
        let loading = Loading {
            source,
            offset_bytes,
            size_bytes,
            deadline: self.deadline(now, time_limit),
            stage: LoadStage::Waiting,
            target,
            to: id,
            bytes: 0,
            content: Content::new([]),
            stream: None,
            response: None,
        };
        self.set_doing(id, Doing::Load(Box::new(loading)));
        Ok(())
    }

    pub(crate) fn go_on_loading(&mut self, now: Time, id: ConnId) -> bool {
        let Some(Doing::Load(load)) = self.doing(id) else {
            return false;
        };
        match load.stage {
            LoadStage::Waiting => self.try_load(now, id),
            LoadStage::Taking => self.try_take(now, id),
            LoadStage::Connecting | LoadStage::AwaitsGo | LoadStage::AwaitsStored => {
                if load.deadline <= now {
                    self.end_command_with(now, id, ErrorCode::CONNECTION);
                }
            }
            LoadStage::Reading | LoadStage::Recording => {}
        }
        false
    }

    fn try_load(&mut self, now: Time, id: ConnId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let Doing::Load(load) = &mut connection.doing else {
            return;
        };
        let number = match load.source {
            Source::Allocation(number) => number,
            Source::Shared(shared) => return self.load_shared(now, id, &shared),
        };
        let Some(allocation) = self.ledger.get_mut(number) else {
            return self.end_command_with(now, id, ErrorCode::CAP_NOT_FOUND);
        };
        match load.may_begin(now, allocation) {
            Ok(Some(bytes)) => {
                allocation.readers += 1;
                let record = &allocation.record;
                let from = match record.is_queue() {
                    true => record.start,
                    false => record.start + load.offset_bytes,
                };
                let ranges = record.ranges(from, bytes);
                self.begin_reading(now, id, ranges, bytes);
            }
            Ok(None) => allocation.wait(id),
            Err(code) => self.end_command_with(now, id, code),
        }
    }

    /// The volume's bytes are all there: there is nothing to wait for.
    fn load_shared(&mut self, now: Time, id: ConnId, shared: &Shared) {
        let Some(Doing::Load(load)) = self.doing(id) else {
            return;
        };
        let most = shared.length_bytes.saturating_sub(load.offset_bytes);
        let bytes = load.size_bytes.map_or(most, |size| size.get().min(most));
        if bytes == 0 {
            return self.end_command_with(now, id, ErrorCode::INVALID_PARAMETER);
        }
        let first = shared.offset_bytes + load.offset_bytes;
        self.begin_reading(now, id, iter::once(first..first + bytes), bytes);
    }

    /// So many bytes of these ranges of the object go to the client, or to another depot.
    fn begin_reading(
        &mut self,
        now: Time,
        id: ConnId,
        ranges: impl IntoIterator<Item = Range<u64>>,
        bytes: u64,
    ) {
        let Some(Doing::Load(load)) = self.doing(id) else {
            return;
        };
        load.bytes = bytes;
        load.content = Content::new(ranges.into_iter().map(Segment::Range));
        load.stage = LoadStage::Connecting;
        match load.target.is_some() {
            true => self.connect(now, id),
            false => {
                load.response = Some(answer::follows(bytes));
                self.open_stream(now, id);
            }
        }
    }

    /// From here on the engine says when bytes are read.
    pub(crate) fn open_stream(&mut self, now: Time, id: ConnId) {
        self.streams_total += 1;
        let stream = StreamId(self.streams_total);
        let Some(Doing::Load(load)) = self.doing(id) else {
            return;
        };
        load.stage = LoadStage::Reading;
        load.stream = Some(stream);
        let (source, bytes, to) = (load.source, load.bytes, load.to);
        // Who reads a file through a gateway is read ahead of as that one wants it.
        if self.delivery.config().switches.tdap && source.allocation().is_some() {
            // The node does not read ahead by itself.
            let request = NodeRequest::Ahead {
                object: source.object(),
                offset_bytes: 0,
                length_bytes: 0,
                is_wanted: true,
            };
            self.ask(now, Purpose::Nobody, request);
        }
        self.streams.insert(stream, id);
        self.delivery
            .open(now, stream, bytes, StreamClass::Foreground);
        let pace = self.connections.get_mut(&to).and_then(|it| it.pace.take());
        if let Some(pace) = pace {
            self.delivery.resume(now, stream, *pace);
        }
    }

    /// Does what the engine has decided.
    pub(crate) fn carry_decisions(&mut self, now: Time) {
        while let Some(decision) = self.delivery.poll_decision() {
            let Some(&id) = self.streams.get(&decision.stream()) else {
                continue; // What a stream has asked for is taken back when it ends.
            };
            match decision {
                Decision::Request { bytes, .. } => self.read_on(now, id, bytes),
                Decision::Postpone { bytes, by, .. } => self.postpone(id, bytes, by),
                Decision::Resume { .. } => {
                    for (call, _) in self.reads_of(id) {
                        self.effects.push_back(DepotEffect::Hurry(call));
                    }
                }
                Decision::Look { .. } => {
                    if let Some(Doing::Load(load)) = self.doing(id) {
                        let to = load.to;
                        self.effects.push_back(DepotEffect::Sample(to));
                    }
                }
                Decision::Withdraw { .. } => {}
            }
        }
    }

    /// Asks for the next `bytes`, which are wanted within T_n.
    fn read_on(&mut self, now: Time, id: ConnId, bytes: u64) {
        let Some(Doing::Load(load)) = self.connections.get(&id).map(|it| &it.doing) else {
            return;
        };
        let (source, stream) = (load.source, load.stream);
        let patience_ms = stream.map_or(0, |stream| self.delivery.patience_ms(stream, bytes));
        let mut left = bytes;
        while left > 0 {
            let Some(Doing::Load(load)) = self.doing(id) else {
                return;
            };
            let most = left.min(OBJECT_IO_BYTES_MAX as u64);
            let Some(range) = load.content.next_range(most) else {
                return;
            };
            left -= range.end - range.start;
            let request = NodeRequest::Read {
                object: source.object(),
                offset_bytes: range.start,
                length_bytes: range.end - range.start,
                version: source.version(),
                patience_ms,
            };
            let call = self.ask(now, Purpose::Read(id), request);
            if let Some(Doing::Load(load)) = self.doing(id) {
                load.content.asked(call, range);
            }
        }
    }

    /// Its last reads can wait, so many bytes of them.
    fn postpone(&mut self, id: ConnId, bytes: u64, by: Duration) {
        let mut left = bytes;
        for (call, of_call) in self.reads_of(id).into_iter().rev() {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(of_call);
            self.figures.postponed_total += 1;
            self.effects.push_back(DepotEffect::Postpone(call, by));
        }
    }

    fn reads_of(&mut self, id: ConnId) -> Vec<(CallId, u64)> {
        match self.doing(id) {
            Some(Doing::Load(load)) => load.content.calls().collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn take_read(
        &mut self,
        now: Time,
        id: ConnId,
        call: CallId,
        outcome: Result<NodeAnswer, NodeError>,
    ) {
        let Some(Doing::Load(load)) = self.doing(id) else {
            return;
        };
        match outcome {
            Ok(NodeAnswer::Read { mut payload, .. }) => {
                // Fewer only at the object's end, behind which there are zeros.
                let range = load.content.range_of(call).unwrap_or_default();
                let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                if payload.len() < wanted && load.source.allocation().is_none() {
                    // The file was cut: what was there is not there any more.
                    return self.end_command_with(now, id, ErrorCode::CAP_NOT_FOUND);
                }
                payload.truncate(wanted);
                payload.push_zeros(wanted - payload.len());
                let bytes = load.content.arrived(call, payload).unwrap_or(0);
                if let Some(stream) = load.stream {
                    self.delivery.delivered(now, stream, bytes);
                }
                self.send_ready(id);
            }
            Ok(_) => self.end_command_with(now, id, ErrorCode::INTERNAL),
            Err(error) => self.end_command_with(now, id, code_of(&error)),
        }
    }

    /// Sends what has come, as far as it is wanted at the socket; the answer goes before.
    fn send_ready(&mut self, id: ConnId) {
        let Some(Doing::Load(load)) = self.connections.get(&id).map(|it| &it.doing) else {
            return;
        };
        let (Some(stream), to) = (load.stream, load.to) else {
            return;
        };
        let unsent = self.connections.get(&to).map_or(0, |it| it.unsent_bytes);
        let unsent = usize::try_from(unsent).unwrap_or(usize::MAX);
        let room = self.delivery.sending_bytes_max(stream);
        let room = room.saturating_sub(unsent);
        let Some(Doing::Load(load)) = self.doing(id) else {
            return;
        };
        let (payload, bytes): (Payload, u64) = load.content.sendable(true, room);
        if bytes == 0 {
            return; // The rest when some of it has gone, or has come.
        }
        if let Some(response) = load.response.take() {
            self.answer(to, response);
        }
        self.figures.sent_bytes += bytes;
        if let Some(connection) = self.connections.get_mut(&to) {
            connection.unsent_bytes += bytes;
        }
        self.push(to, payload.into_pieces());
    }

    /// The kernel has taken bytes of a connection.
    pub(crate) fn take_sent(&mut self, now: Time, to: ConnId, bytes: usize) {
        let Some(connection) = self.connections.get_mut(&to) else {
            return;
        };
        connection.active = now;
        let of_allocation = connection.sent(bytes as u64);
        let is_gone = connection.unsent_bytes == 0;
        let id = self.owner_of(to);
        if let Some(Doing::Load(load)) = self.doing(id)
            && load.to == to
            && let Some(stream) = load.stream
        {
            let is_sent = load.content.is_sent();
            self.delivery.handed(now, stream, of_allocation);
            if is_gone && is_sent {
                self.end_stream(now, id, End::Done);
                self.all_sent(id);
            } else if self.delivery.wants_sample(now, stream) {
                self.effects.push_back(DepotEffect::Sample(to));
            }
        }
        self.send_ready(id);
        self.ready.push_back(to);
    }

    /// Every byte is with the kernel.
    fn all_sent(&mut self, id: ConnId) {
        let Some(Doing::Load(load)) = self.doing(id) else {
            return;
        };
        match load.target {
            Some(_) => load.stage = LoadStage::AwaitsStored,
            None => self.end_load(id),
        }
    }

    /// The bytes are where they are to be. Queues do not have them any more.
    pub(crate) fn end_load(&mut self, id: ConnId) {
        let Some(Doing::Load(load)) = self.doing(id) else {
            return;
        };
        load.stage = LoadStage::Taking;
        self.ready.push_back(id);
    }

    fn try_take(&mut self, now: Time, id: ConnId) {
        let Some(Doing::Load(load)) = self.doing(id) else {
            return;
        };
        let (source, bytes) = (load.source, load.bytes);
        let number = source.allocation();
        let allocation = number.and_then(|number| self.ledger.get_mut(number));
        let (Some(number), Some(allocation)) = (number, allocation) else {
            return self.took(now, Some(id), Ok(()));
        };
        if !allocation.record.is_queue() {
            self.end_reading(number);
            return self.took(now, Some(id), Ok(()));
        }
        if allocation.is_changing {
            return allocation.wait(id);
        }
        let (record, freed) = allocation.record.taken(bytes);
        if let Some(Doing::Load(load)) = self.doing(id) {
            load.stage = LoadStage::Recording;
        }
        self.record(now, number, record, After::Taken { freed }, Some(id));
    }

    /// What was loaded is taken out, where it is.
    pub(crate) fn took(&mut self, now: Time, by: Option<ConnId>, outcome: Result<(), ErrorCode>) {
        let Some(id) = by else { return };
        let Some(Doing::Load(load)) = self.doing(id) else {
            return; // Its client is gone.
        };
        let (is_copy, bytes, to) = (load.target.is_some(), load.bytes, load.to);
        if is_copy {
            self.shut(to);
        }
        match (outcome, is_copy) {
            (Ok(()), true) => self.answer(id, answer::stored(bytes)),
            (Ok(()), false) => {}
            (Err(code), true) => self.refuse(id, code),
            // The bytes are sent: all there is to say is that there are no more.
            (Err(_), false) => self.shut(id),
        }
        self.finish(now, id);
    }

    /// One reads less.
    pub(crate) fn end_reading(&mut self, number: u64) {
        if let Some(allocation) = self.ledger.get_mut(number) {
            allocation.readers = allocation.readers.saturating_sub(1);
        }
        self.wake_waiters(number);
    }

    /// The engine has nothing more to do for a load.
    fn end_stream(&mut self, now: Time, id: ConnId, end: End) {
        let Some(Doing::Load(load)) = self.doing(id) else {
            return;
        };
        let (stream, to) = (load.stream.take(), load.to);
        self.close_stream(now, stream, to, end);
    }

    fn close_stream(&mut self, now: Time, stream: Option<StreamId>, to: ConnId, end: End) {
        let Some(stream) = stream else { return };
        self.streams.remove(&stream);
        let pace = self.delivery.close(now, stream, end).map(Box::new);
        if let Some(connection) = self.connections.get_mut(&to) {
            connection.pace = pace;
        }
    }

    /// A load goes no further: what it has asked the node for is taken back. Whether its
    /// client has got a part of it already.
    pub(crate) fn break_load(&mut self, now: Time, id: ConnId, load: Loading, end: End) -> bool {
        self.close_stream(now, load.stream, load.to, end);
        for (call, _) in load.content.calls() {
            self.figures.withdrawn_total += 1;
            self.forget_call(call);
        }
        match load.stage {
            LoadStage::Waiting => return false,
            // When the record is written, that ends the reading.
            LoadStage::Recording => {}
            _ => _ = load.source.allocation().map(|it| self.end_reading(it)),
        }
        if load.to != id {
            // An append that is not complete must not look so.
            if self.connections.remove(&load.to).is_some() {
                self.effects.push_back(DepotEffect::Abort(load.to));
            }
            return false;
        }
        let is_broken = load.stage == LoadStage::Reading && load.response.is_none();
        self.figures.broken_total += u64::from(is_broken);
        is_broken
    }
}
