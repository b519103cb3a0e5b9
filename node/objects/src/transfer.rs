//! One request: what it may read, and how far that has come.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use crossdock_delivery::StreamId;
use crossdock_http1::{
    Condition, Content, ETag, HttpVersion, Method, Ranges, RequestHead, ResponseHead, Segment,
    Status, Validators, content_range, content_range_unsatisfied, evaluate, ranges,
};
use crossdock_limits::OBJECT_IO_BYTES_MAX;
use crossdock_names::{NodeId, Version};
use crossdock_peer::{CallId, NodeError, NodeRequest, ReadVersion};
use crossdock_types::{Payload, Time};
use crossdock_web::ObjectUrl;

/// A request that was let in.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) head: RequestHead,
    url: ObjectUrl,
    /// Nothing in what is sent is newer; none yet before the object was looked at.
    version: Option<Version>,
    /// The head of the response, which goes with the first bytes.
    pub(crate) response: Option<ResponseHead>,
    /// The call that looks at the object, until it is answered.
    stat: Option<CallId>,
    /// What is read, counted as ranges are that clients ask for.
    content: Content<CallId>,
    /// Under which the delivery engine says when.
    pub(crate) stream: Option<StreamId>,
    /// When the node, which was busy, is to be asked again.
    pub(crate) retry: Option<Time>,
    /// How often the node has been busy, one time after the other.
    busy: u32,
    /// How often it was begun anew because the object changed.
    restarts: u32,
    pub(crate) keep_alive: bool,
}

/// What comes of an answer.
#[derive(Debug)]
pub(crate) enum Next {
    /// A response that is complete.
    Answer(ResponseHead),
    /// So many bytes are to be read and sent behind the head.
    Open(u64),
    /// So many bytes have come.
    Arrived(u64),
    /// Wait before it is asked again.
    Wait(Duration),
    /// Begin anew: the object has changed since it was looked at.
    Restart,
    /// No response, with this hint.
    Refuse(Status, String),
    /// The response cannot be completed.
    Abort,
}

/// How often a response that has not begun is begun anew.
const RESTARTS_MAX: u32 = 8;

/// How often a busy node is asked again.
const BUSY_MAX: u32 = 64;

impl Transfer {
    pub(crate) fn new(head: RequestHead, url: ObjectUrl) -> Self {
        let keep_alive = head.keep_alive;
        Self {
            head,
            url,
            version: None,
            response: None,
            stat: None,
            content: Content::new([]),
            stream: None,
            retry: None,
            busy: 0,
            restarts: 0,
            keep_alive,
        }
    }

    /// Whose object it is.
    pub(crate) const fn node(&self) -> NodeId {
        self.url.node
    }

    pub(crate) const fn client(&self) -> HttpVersion {
        self.head.version
    }

    /// Whether all bytes were asked for, have come and went to the connection.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_reading() && self.content.is_sent()
    }

    /// What the node is asked first, with this call: whether the object is there, and its
    /// version.
    pub(crate) const fn stat(&mut self, call: CallId) -> NodeRequest {
        self.stat = Some(call);
        let object = self.url.object;
        NodeRequest::Stat { object }
    }

    /// Whether bytes are read already, rather than the object looked at.
    pub(crate) const fn is_reading(&self) -> bool {
        self.version.is_some()
    }

    /// Calls that are not answered, and how many bytes they ask for.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (CallId, u64)> {
        self.stat
            .map(|call| (call, 0))
            .into_iter()
            .chain(self.content.calls())
    }

    /// What is to be read next, of `bytes` that may be.
    pub(crate) fn next_range(&mut self, bytes: u64) -> Option<Range<u64>> {
        self.content
            .next_range(bytes.min(OBJECT_IO_BYTES_MAX as u64))
    }

    /// What has to be asked for again.
    pub(crate) fn lacking(&self) -> Option<Range<u64>> {
        self.content.lacking()
    }

    /// The node is asked for that range, which is wanted within `patience_ms`.
    pub(crate) fn read(
        &mut self,
        call: CallId,
        range: Range<u64>,
        patience_ms: u32,
    ) -> NodeRequest {
        self.content.asked(call, range.clone());
        NodeRequest::Read {
            object: self.url.object,
            // The URL was checked for overflow when it was verified.
            offset_bytes: self.url.offset_bytes + (range.start - self.here().0.start),
            length_bytes: range.end - range.start,
            version: ReadVersion::NotAfter(self.version.unwrap_or(Version::NONE)),
            patience_ms,
        }
    }

    /// From here on the engine says how far is read ahead, and the node does not by itself.
    pub(crate) const fn ahead(&self) -> NodeRequest {
        NodeRequest::Ahead {
            object: self.url.object,
            offset_bytes: self.url.offset_bytes,
            length_bytes: 0,
            is_wanted: true,
        }
    }

    /// What is here of all that there is under the URL, and how many bytes that is.
    const fn here(&self) -> (Range<u64>, u64) {
        match self.url.place {
            // It was checked for overflow, too.
            Some(place) => {
                let end = place.offset_bytes + self.url.length_bytes;
                (place.offset_bytes..end, place.size_bytes)
            }
            None => (0..self.url.length_bytes, self.url.length_bytes),
        }
    }

    /// The object is there, and this is its newest change.
    pub(crate) fn found(&mut self, newest: Version) -> Next {
        let wanted = self.url.version;
        let is_any = wanted == Version::NONE;
        let version = if is_any { newest } else { wanted };
        (self.stat, self.busy) = (None, 0);
        self.version = Some(version);
        let validators = Validators {
            etag: self.etag(version),
            modified: None,
        };
        let answer = |status| ResponseHead::new(self.client(), status).validators(&validators);
        match evaluate(&self.head, Some(&validators)) {
            Condition::Proceed => {}
            Condition::NotModified => return Next::Answer(answer(Status::NotModified)),
            Condition::Failed => {
                let head = answer(Status::PreconditionFailed).content_length(0);
                return Next::Answer(head);
            }
        }
        let (here, size) = self.here();
        let (head, range) = match ranges(&self.head, size, &validators, 1) {
            Ranges::One(range) => {
                let part = content_range(&range, size);
                let head = answer(Status::PartialContent).header("Content-Range", part);
                (head, range)
            }
            Ranges::Unsatisfiable => {
                let none = content_range_unsatisfied(size);
                let head = answer(Status::RangeNotSatisfiable).header("Content-Range", none);
                return Next::Answer(head.content_length(0));
            }
            // More than one were not parsed: all of it is sent.
            Ranges::Whole | Ranges::Many(_) => (answer(Status::Ok), 0..size),
        };
        if range.start < here.start || here.end < range.end {
            let (first, last) = (here.start, here.end - 1);
            let hint = format!(
                "of this file bytes {first} to {last} are here: say Range: bytes={first}-{last}"
            );
            return Next::Refuse(Status::RangeNotSatisfiable, hint);
        }
        let bytes = range.end - range.start;
        let head = head
            .header("Accept-Ranges", "bytes")
            .header("Content-Type", "application/octet-stream")
            .content_length(bytes);
        if self.head.method == Method::Head || bytes == 0 {
            return Next::Answer(head);
        }
        self.content = Content::new([Segment::Range(range)]);
        self.response = Some(head);
        Next::Open(bytes)
    }

    /// Bytes have come; fewer only at the object's end, behind which there are zeros.
    pub(crate) fn arrived(&mut self, call: CallId, mut payload: Payload) -> Next {
        self.busy = 0;
        let range = self.content.range_of(call).unwrap_or_default();
        let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        payload.truncate(wanted);
        payload.push_zeros(wanted - payload.len());
        Next::Arrived(self.content.arrived(call, payload).unwrap_or(0))
    }

    /// What has come and is to be sent next, at most about so many bytes.
    pub(crate) fn sendable(&mut self, bytes_max: usize) -> (Vec<Bytes>, u64) {
        let (payload, bytes) = self.content.sendable(true, bytes_max);
        (payload.into_pieces(), bytes)
    }

    /// The node has not done what this call asked for.
    pub(crate) fn failed(&mut self, call: CallId, error: &NodeError) -> Next {
        if self.stat == Some(call) {
            self.stat = None;
        }
        self.content.failed(call);
        if let NodeError::Busy { retry_after_ms } = error
            && self.busy < BUSY_MAX
        {
            self.busy += 1;
            return Next::Wait(Duration::from_millis(u64::from(*retry_after_ms).max(1)));
        }
        if self.is_reading() && self.response.is_none() {
            return Next::Abort;
        }
        match error {
            NodeError::NoObject => {
                let hint = "this node has no such object any more".to_owned();
                Next::Refuse(Status::NotFound, hint)
            }
            NodeError::VersionGone if self.url.version != Version::NONE => {
                let hint = "the object has changed since the URL was signed".to_owned();
                Next::Refuse(Status::Gone, hint)
            }
            NodeError::VersionGone if self.restarts < RESTARTS_MAX => {
                self.restarts += 1;
                self.version = None;
                Next::Restart
            }
            NodeError::Media { .. } => {
                let hint = "the bytes cannot be read from this node's disk".to_owned();
                Next::Refuse(Status::InternalServerError, hint)
            }
            error => Next::Refuse(Status::ServiceUnavailable, error.to_string()),
        }
    }

    /// What was asked for, or has come, is of no use.
    pub(crate) fn forget_content(&mut self) {
        (self.content, self.response, self.stat) = (Content::new([]), None, None);
    }

    /// Strong: no two states of an object have one version.
    fn etag(&self, version: Version) -> ETag {
        let url = &self.url;
        let text = [
            &url.object.encode()[..],
            &version.0.to_be_bytes(),
            &url.offset_bytes.to_be_bytes(),
            &url.length_bytes.to_be_bytes(),
            &self.here().0.start.to_be_bytes(),
        ];
        ETag::of_bytes(&text.concat())
    }
}
