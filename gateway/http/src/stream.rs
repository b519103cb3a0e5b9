//! Sending a file: what the response is, and the bytes of the file as the delivery
//! engine has them read.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::{Decision, End, Guest, SENDING_BYTES_MAX, StreamClass, StreamId};
use crossdock_http1::{
    Condition, Content, ETag, Multipart, Ranges, ResponseHead, Segment, Status, Validators,
    content_range, content_range_unsatisfied, evaluate, media_type, ranges,
};
use crossdock_names::{FileRef, SMALL_FILE_THRESHOLD_BYTES};
use crossdock_peer::{
    Attributes, CallId, SiteAnswer, SiteError, SiteOperation, SiteReply, TransferMode,
};
use crossdock_router::ReadAhead;
use crossdock_types::{Payload, Time, WallTime};

use crate::door::{HttpDoor, Pending, What};
use crate::exchange::{Exchange, Stage};
use crate::message::{ConnId, HttpEffect};
use crate::refuse::{is_passing, status_of};
use crate::way::Way;

/// ACCESS3_READ (RFC 1813 section 3.3.4).
pub(crate) const ACCESS_READ: u32 = 1;

/// How often a response that has not begun is begun anew because the file has changed.
const RESTARTS_MAX: u32 = 8;

/// What is asked for at once where the engine has no say.
const SMALL_BYTES: u64 = SMALL_FILE_THRESHOLD_BYTES;

/// A file on its way to a client.
#[derive(Debug)]
pub(crate) struct Stream {
    file: FileRef,
    /// The change that the entity tag names: nothing newer may be in the response.
    version: WallTime,
    /// The response's head, until its first bytes are there.
    head: Option<Bytes>,
    content: Content<CallId>,
    /// Which way the file's bytes go.
    pub(crate) way: Way,
    /// Under which the delivery engine says when to read, if it does.
    number: Option<StreamId>,
    check: Check,
    /// When a read that did not come is asked again, and until when that makes sense.
    again: Option<Time>,
    give_up: Option<Time>,
}

/// Whether the file is still what it was when all of it had been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// One answer has both the bytes and the attributes.
    OfAnswer,
    Open,
    Asked(CallId),
    Done,
}

/// The entity tag of a file: which file, and the time of its last change, which no two
/// changes share.
pub(crate) fn validators(attributes: &Attributes) -> Validators {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&attributes.file.id.0.to_be_bytes());
    bytes[8..12].copy_from_slice(&attributes.file.generation.to_be_bytes());
    bytes[12..].copy_from_slice(&attributes.changed.0.to_be_bytes());
    Validators {
        etag: ETag::of_bytes(&bytes),
        modified: Some(attributes.modified),
    }
}

/// What is to be sent of a file, before any of it was read.
enum Planned {
    /// A response without content.
    Answer(ResponseHead),
    Content(ResponseHead, Content<CallId>, u64),
}

impl HttpDoor {
    /// The path leads to a file: sends it, or what its conditions and ranges say.
    pub(crate) fn begin_file(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        attributes: &Attributes,
        name: &[u8],
    ) {
        let boundary = self.boundary();
        let ranges_max = self.config.limits.ranges_max;
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let (head, content, bytes) =
            match plan(exchange, attributes, media_type(name), ranges_max, boundary) {
                Planned::Answer(head) => return self.answer(now, wall, id, head, Bytes::new()),
                Planned::Content(head, content, bytes) => (head, content, bytes),
            };
        let status = head.status();
        let is_head = exchange.is_head();
        let way = match is_head {
            true => Way::default(),
            false => self.way(now, id, attributes, (status, bytes)),
        };
        if way.choice.mode == TransferMode::Redirect
            && let Some(range) = self.redirectable(id, &content)
        {
            return self.locate(id, attributes, name, range);
        }
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let is_small = bytes <= SMALL_BYTES;
        let is_one_answer =
            is_small && attributes.size_bytes <= SMALL_BYTES && !is_multipart(&content);
        let head = head.keep_alive(exchange.keep_alive);
        let stream = Box::new(Stream {
            file: attributes.file,
            version: attributes.changed,
            head: Some(head.encode(wall)),
            content,
            way,
            number: None,
            check: if is_one_answer {
                Check::OfAnswer
            } else {
                Check::Open
            },
            again: None,
            give_up: None,
        });
        if is_head || bytes == 0 {
            // Nothing is read: whether the caller may is asked.
            let file = stream.file;
            exchange.stage = Stage::Access(stream);
            let wanted = ACCESS_READ;
            self.ask(now, id, What::Step, SiteOperation::Access { file, wanted });
            return;
        }
        exchange.stage = Stage::Stream(stream);
        self.figures.response(status);
        if is_small {
            return self.ask_pieces(now, id, bytes, SMALL_BYTES, 0);
        }
        self.streams_total += 1;
        let number = StreamId(self.streams_total);
        if let Some(stream) = self.stream(id) {
            stream.number = Some(number);
        }
        self.streams.insert(number, id);
        self.delivery
            .open(now, number, bytes, StreamClass::Foreground);
        self.tell_place(now, id);
        let connection = self.connections.get_mut(&id);
        if let Some(pace) = connection.and_then(|connection| connection.pace.take()) {
            self.delivery.resume(now, number, *pace);
        }
        self.carry_decisions(now);
    }

    /// Whether the caller may read is known: the head, and no content.
    pub(crate) fn after_access(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        stream: Stream,
        reply: &SiteReply,
    ) {
        match (&reply.outcome, stream.head) {
            (Ok(SiteAnswer::Access { granted }), Some(head)) if granted & ACCESS_READ != 0 => {
                self.push(id, [head]);
                self.finish(now, id);
            }
            (Err(SiteError::Stale), _) => self.begin_anew(now, wall, id),
            (Err(error), _) => self.refuse(now, wall, id, *error),
            _ => self.refuse(now, wall, id, SiteError::AccessDenied),
        }
    }

    /// Asks for the next `bytes` of the file, in pieces of at most so many bytes: each range
    /// ends one. They are wanted within `patience_ms`.
    fn ask_pieces(
        &mut self,
        now: Time,
        id: ConnId,
        bytes: u64,
        piece_bytes_max: u64,
        patience_ms: u32,
    ) {
        let mut left = bytes;
        while left > 0 {
            let Some(stream) = self.stream(id) else {
                return;
            };
            let Some(range) = stream.content.next_range(left.min(piece_bytes_max)) else {
                break;
            };
            let file = stream.file;
            let length_bytes = range.end - range.start;
            left -= length_bytes;
            let read = SiteOperation::Read {
                file,
                offset_bytes: range.start,
                length_bytes,
                patience_ms,
            };
            let Some(call) = self.ask(now, id, What::Piece, read) else {
                return;
            };
            if let Some(stream) = self.stream(id) {
                stream.content.asked(call, range);
            }
        }
        if let Some(stream) = self.stream(id)
            && stream.content.unasked_bytes() == 0
        {
            stream.content.settle_literals();
        }
        self.send_ready(now, id);
    }

    /// Where in the file the engine goes on: behind a range the next one's beginning.
    fn tell_place(&mut self, now: Time, id: ConnId) {
        if let Some(stream) = self.stream(id)
            && let (Some(number), Some(place)) = (stream.number, stream.content.next_place())
        {
            self.delivery.set_place(now, number, place);
        }
    }

    /// The engine decides how far a file is read on from here: nodes are not to do so by
    /// themselves. (The answer has brought what tells which nodes.)
    fn tell_nodes(&mut self, id: ConnId, file: FileRef, range: Range<u64>) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let caller = exchange.caller.clone();
        if self.stream_of(id).is_some() && self.delivery.config().switches.tdap {
            self.effects
                .push_back(HttpEffect::Ahead(Box::new(ReadAhead {
                    caller,
                    file,
                    offset_bytes: range.start,
                    end_bytes: range.end + 1, // Where the next read begins counts, too.
                    is_wanted: true,
                    is_read: true,
                })));
        }
    }

    /// Does what the delivery engine has decided.
    pub(crate) fn carry_decisions(&mut self, now: Time) {
        while let Some(decision) = self.delivery.poll_decision() {
            let number = decision.stream();
            if Guest::owns(number) {
                let advice = Guest::advice(decision, &self.delivery);
                self.effects.extend(advice.map(HttpEffect::Advise));
                continue;
            }
            if let Decision::Withdraw { .. } = decision {
                self.withdraw_dead(number);
                continue;
            }
            let Some(&id) = self.streams.get(&number) else {
                continue;
            };
            match decision {
                Decision::Request { bytes, .. } => {
                    let patience_ms = self.delivery.patience_ms(number, bytes);
                    self.ask_pieces(now, id, bytes, bytes, patience_ms);
                    self.tell_place(now, id);
                }
                Decision::Postpone { bytes, by, .. } => self.postpone(id, bytes, by),
                Decision::Resume { .. } => {
                    for (call, _) in self.calls_of(id) {
                        self.effects.push_back(HttpEffect::Hurry(call));
                    }
                }
                Decision::Look { .. } => self.effects.push_back(HttpEffect::Sample(id)),
                Decision::Withdraw { .. } => {} // See above.
            }
        }
    }

    /// Its last reads can wait, so many bytes of them.
    fn postpone(&mut self, id: ConnId, bytes: u64, by: Duration) {
        let mut left = bytes;
        for (call, of_call) in self.calls_of(id).into_iter().rev() {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(of_call);
            self.figures.postponed_total += 1;
            self.effects.push_back(HttpEffect::Postpone(call, by));
        }
    }

    fn calls_of(&mut self, id: ConnId) -> Vec<(CallId, u64)> {
        let stream = self.stream(id);
        stream.map_or_else(Vec::new, |stream| stream.content.calls().collect())
    }

    /// A piece has come, or has not.
    pub(crate) fn after_piece(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        call: CallId,
        reply: SiteReply,
    ) {
        let patience = self.config.patience;
        let Some(stream) = self.stream(id) else {
            return;
        };
        let number = stream.number;
        let after = reply.subject.after.as_ref();
        let is_changed = after.is_some_and(|after| after.changed != stream.version);
        match reply.outcome {
            Ok(SiteAnswer::Read { .. }) if is_changed => return self.changed(now, wall, id),
            // The file ends earlier than it did.
            Ok(SiteAnswer::Read { payload, .. }) if payload.is_empty() => {
                return self.changed(now, wall, id);
            }
            Ok(SiteAnswer::Read { payload, .. }) => {
                stream.give_up = None;
                if stream.check == Check::OfAnswer {
                    stream.check = if after.is_some() {
                        Check::Done
                    } else {
                        Check::Open
                    };
                }
                let (file, range) = (stream.file, stream.content.range_of(call));
                let Some(bytes) = stream.content.arrived(call, payload) else {
                    return;
                };
                if let (Some(number), Some(range)) = (number, range) {
                    self.delivery.delivered(now, number, bytes);
                    self.tell_nodes(id, file, range);
                }
            }
            Err(error) if is_passing(error) => {
                let give_up = *stream.give_up.get_or_insert(now + patience);
                if now >= give_up {
                    return self.fail_stream(now, wall, id, error);
                }
                stream.content.failed(call);
            }
            // It was removed: another one may have its name by now.
            Err(SiteError::Stale) => return self.changed(now, wall, id),
            Err(error) => return self.fail_stream(now, wall, id, error),
            Ok(_) => return self.fail_stream(now, wall, id, SiteError::Io),
        }
        self.ask_lacking(now, id);
        self.send_ready(now, id);
        self.carry_decisions(now);
    }

    /// Asks again for what has not come: at once for the rest of a short answer, a little
    /// later where somebody was busy.
    fn ask_lacking(&mut self, now: Time, id: ConnId) {
        let pause = self.busy_pause();
        let Some(stream) = self.stream(id) else {
            return;
        };
        if stream.give_up.is_some() {
            if stream.again.is_none() && stream.content.lacking().is_some() {
                stream.again = Some(now + pause);
                self.retries.insert((now + pause, id));
            }
            return;
        }
        while let Some(stream) = self.stream(id)
            && let Some(range) = stream.content.lacking()
        {
            let read = SiteOperation::Read {
                file: stream.file,
                offset_bytes: range.start,
                length_bytes: range.end - range.start,
                patience_ms: 0,
            };
            let Some(call) = self.ask(now, id, What::Piece, read) else {
                return;
            };
            if let Some(stream) = self.stream(id) {
                stream.content.asked(call, range);
            }
        }
    }

    /// The time has come to ask again.
    pub(crate) fn retry_stream(&mut self, now: Time, id: ConnId) {
        let Some(stream) = self.stream(id) else {
            return;
        };
        if stream.again.is_none_or(|again| now < again) {
            return;
        }
        stream.again = None;
        let give_up = stream.give_up.take();
        self.ask_lacking(now, id);
        // Until something comes the clock runs on.
        if let Some(stream) = self.stream(id) {
            stream.give_up = give_up;
        }
    }

    /// Sends what can be sent; the last piece when the file is known not to have changed.
    pub(crate) fn send_ready(&mut self, now: Time, id: ConnId) {
        let Some(stream) = self.stream(id) else {
            return;
        };
        if stream.check == Check::Open && stream.content.is_complete() {
            let file = stream.file;
            let call = self.ask(now, id, What::Check, SiteOperation::GetAttributes { file });
            if let (Some(stream), Some(call)) = (self.stream(id), call) {
                stream.check = Check::Asked(call);
            }
        }
        let number = self.stream_of(id);
        let at_socket = number.map_or(SENDING_BYTES_MAX, |number| {
            self.delivery.sending_bytes_max(number)
        });
        let room = at_socket.saturating_sub(self.unsent_bytes(id));
        let Some(stream) = self.stream(id).filter(|_| room > 0) else {
            return; // The rest when some of it has gone.
        };
        let (ready, read_bytes) = stream.content.sendable(stream.check == Check::Done, room);
        if ready.is_empty() {
            return;
        }
        let mut payload = Payload::new();
        payload.push(stream.head.take().unwrap_or_default());
        payload.append(ready);
        let (number, is_sent) = (stream.number, stream.content.is_sent());
        self.figures.sent_bytes += read_bytes;
        match number {
            Some(number) => self.push_of(id, number, payload, read_bytes, is_sent),
            None => self.push_payload(id, payload),
        }
        if is_sent {
            self.finish(now, id);
        }
    }

    /// All has been read: is the file still the same?
    pub(crate) fn after_check(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        call: CallId,
        reply: &SiteReply,
    ) {
        let Some(stream) = self.stream(id) else {
            return;
        };
        if stream.check != Check::Asked(call) {
            return;
        }
        match (&reply.outcome, &reply.subject.after) {
            (Ok(_), Some(after)) if after.changed == stream.version => {
                stream.check = Check::Done;
                self.send_ready(now, id);
            }
            (Err(error), _) if is_passing(*error) => {
                let error = *error;
                self.fail_stream(now, wall, id, error);
            }
            _ => self.changed(now, wall, id),
        }
    }

    /// The file is another one by now: the response begins anew if nothing of it is gone.
    fn changed(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let Some(stream) = self.stream(id) else {
            return;
        };
        if stream.head.is_none() {
            self.figures.changed_total += 1;
            return self.abort(now, id);
        }
        self.drop_stream(now, id, End::Done);
        self.begin_anew(now, wall, id);
    }

    /// What the path led to is not there any more, and nothing of a response is gone.
    fn begin_anew(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        exchange.restarts += 1;
        if exchange.restarts > RESTARTS_MAX {
            return self.refuse(now, wall, id, SiteError::Busy);
        }
        self.begin_walk(now, wall, id);
    }

    fn fail_stream(&mut self, now: Time, wall: WallTime, id: ConnId, error: SiteError) {
        let Some(stream) = self.stream(id) else {
            return;
        };
        let has_begun = stream.head.is_none();
        self.drop_stream(now, id, End::Done);
        match has_begun {
            true => self.abort(now, id),
            false => self.refuse(now, wall, id, error),
        }
    }

    /// What the stream has read, or is reading, is of no use.
    pub(crate) fn drop_stream(&mut self, now: Time, id: ConnId, end: End) {
        let Some(stream) = self.stream(id) else {
            return;
        };
        let number = stream.number.take();
        let calls = self.calls_of(id);
        if let Some(exchange) = self.exchange(id) {
            exchange.stage = Stage::Ended;
        }
        match number {
            Some(number) => {
                for (call, bytes) in calls {
                    self.calls.insert(call, Pending::dead(number, bytes));
                }
                self.streams.remove(&number);
                self.delivery.close(now, number, end);
                self.carry_decisions(now);
            }
            None => calls.into_iter().for_each(|(call, _)| self.withdraw(call)),
        }
    }

    /// Nobody waits for what a dead stream was to read.
    fn withdraw_dead(&mut self, number: StreamId) {
        let is_of_it = |(_, pending): &(&CallId, &Pending)| pending.is_of(number);
        let calls: Vec<CallId> = self
            .calls
            .iter()
            .filter(is_of_it)
            .map(|(&call, _)| call)
            .collect();
        for call in calls {
            self.withdraw(call);
        }
    }

    /// Nobody waits for the answer to a read.
    pub(crate) fn withdraw(&mut self, call: CallId) {
        self.calls.remove(&call);
        self.figures.withdrawn_total += 1;
        self.effects.push_back(HttpEffect::Withdraw(call));
    }

    /// The stream of a connection, if it has one.
    pub(crate) fn stream(&mut self, id: ConnId) -> Option<&mut Stream> {
        match &mut self.exchange(id)?.stage {
            Stage::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// Refuses a request whose response has not begun.
    pub(crate) fn refuse(&mut self, now: Time, wall: WallTime, id: ConnId, error: SiteError) {
        let is_anonymous = self
            .exchange(id)
            .is_none_or(|exchange| exchange.scope.is_anonymous);
        self.answer_error(
            now,
            wall,
            id,
            status_of(error, is_anonymous),
            &error.to_string(),
        );
    }
}

impl Stream {
    pub(crate) const fn number(&self) -> Option<StreamId> {
        self.number
    }
}

fn is_multipart(content: &Content<CallId>) -> bool {
    content.segments() > 1
}

/// Conditions and ranges (RFC 9110 sections 13 and 14).
fn plan(
    exchange: &Exchange,
    attributes: &Attributes,
    media: &'static str,
    ranges_max: usize,
    boundary: impl Fn() -> String,
) -> Planned {
    let (head, version) = (&exchange.head, exchange.version());
    let validators = validators(attributes);
    let size = attributes.size_bytes;
    let response = |status| ResponseHead::new(version, status).validators(&validators);
    match evaluate(head, Some(&validators)) {
        Condition::Failed => {
            let refused = ResponseHead::new(version, Status::PreconditionFailed);
            return Planned::Answer(refused.content_length(0));
        }
        Condition::NotModified => return Planned::Answer(response(Status::NotModified)),
        Condition::Proceed => {}
    }
    match ranges(head, size, &validators, ranges_max) {
        Ranges::Whole => {
            let response = response(Status::Ok)
                .header("Content-Type", media)
                .header("Accept-Ranges", "bytes")
                .content_length(size);
            let content = Content::new([Segment::Range(0..size)]);
            Planned::Content(response, content, size)
        }
        Ranges::One(range) => {
            let bytes = range.end - range.start;
            let response = response(Status::PartialContent)
                .header("Content-Type", media)
                .header("Content-Range", content_range(&range, size))
                .content_length(bytes);
            Planned::Content(response, Content::new([Segment::Range(range)]), bytes)
        }
        Ranges::Many(ranges) => many(
            &ranges,
            size,
            media,
            &boundary(),
            response(Status::PartialContent),
        ),
        Ranges::Unsatisfiable => {
            let response = ResponseHead::new(version, Status::RangeNotSatisfiable)
                .header("Content-Range", content_range_unsatisfied(size))
                .content_length(0);
            Planned::Answer(response)
        }
    }
}

/// Several ranges, each with a head of its own (RFC 9110 section 14.6).
fn many(
    ranges: &[Range<u64>],
    size: u64,
    media: &'static str,
    boundary: &str,
    response: ResponseHead,
) -> Planned {
    let Some(parts) = Multipart::new(boundary) else {
        return Planned::Answer(response.content_length(0)); // Not reached: it is letters and digits.
    };
    let length = parts.content_length(ranges, size, media);
    let response = response
        .header("Content-Type", parts.content_type())
        .content_length(length);
    let heads = ranges.iter().flat_map(|range| {
        let head = Segment::Literal(parts.part_head(range, size, media));
        [head, Segment::Range(range.clone())]
    });
    let all = heads.chain([Segment::Literal(parts.closing())]);
    let bytes = ranges.iter().map(|range| range.end - range.start).sum();
    Planned::Content(response, Content::new(all), bytes)
}
