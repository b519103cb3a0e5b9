//! One request: what it may read, and how far that has come.

use std::ops::Range;
use std::time::Duration;

use crossdock_http1::{
    Condition, ETag, HttpVersion, Method, Ranges, RequestHead, ResponseHead, Status, Validators,
    content_range, content_range_unsatisfied, evaluate, ranges,
};
use crossdock_names::{NodeId, Version};
use crossdock_peer::{CallId, NodeError, NodeRequest, ReadVersion};
use crossdock_types::{Payload, Time};
use crossdock_web::ObjectUrl;

/// A request that was let in.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) head: RequestHead,
    url: ObjectUrl,
    /// What is not asked for yet, counted from the beginning of the URL's range.
    rest: Range<u64>,
    /// Nothing in what is sent is newer; none yet before the object was looked at.
    version: Option<Version>,
    /// The head of the response, which goes with the first bytes.
    pub(crate) response: Option<ResponseHead>,
    /// The call that is not answered: one at a time, so what comes is in order.
    pub(crate) call: Option<CallId>,
    /// What it asks for, or has to be asked for again.
    asked: Range<u64>,
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
    /// Ask for what is next.
    Ask,
    /// Send these; the head comes with the first.
    Send(Option<ResponseHead>, Payload),
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
    pub(crate) const fn new(head: RequestHead, url: ObjectUrl) -> Self {
        let keep_alive = head.keep_alive;
        Self {
            head,
            url,
            rest: 0..0,
            version: None,
            response: None,
            call: None,
            asked: 0..0,
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

    /// Bytes that are asked for.
    pub(crate) const fn asked_bytes(&self) -> u64 {
        self.asked.end - self.asked.start
    }

    /// Whether all bytes were asked for and have come.
    pub(crate) fn is_read(&self) -> bool {
        self.rest.is_empty() && self.asked.is_empty()
    }

    /// What the node is asked first: whether the object is there, and its version.
    pub(crate) const fn stat(&self) -> NodeRequest {
        let object = self.url.object;
        NodeRequest::Stat { object }
    }

    /// Whether bytes are read already, rather than the object looked at.
    pub(crate) const fn is_reading(&self) -> bool {
        self.version.is_some()
    }

    /// What is read next, at most so many bytes.
    pub(crate) fn read(&mut self, bytes_max: u64) -> NodeRequest {
        if self.asked.is_empty() {
            let end = self.rest.end.min(self.rest.start.saturating_add(bytes_max));
            self.asked = self.rest.start..end;
            self.rest.start = end;
        }
        NodeRequest::Read {
            object: self.url.object,
            // The URL was checked for overflow when it was verified.
            offset_bytes: self.url.offset_bytes + self.asked.start,
            length_bytes: self.asked_bytes(),
            version: ReadVersion::NotAfter(self.version.unwrap_or(Version::NONE)),
            patience_ms: 0,
        }
    }

    /// The object is there, and this is its newest change.
    pub(crate) fn found(&mut self, newest: Version) -> Next {
        let wanted = self.url.version;
        let is_any = wanted == Version::NONE;
        let version = if is_any { newest } else { wanted };
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
        let size = self.url.length_bytes;
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
        let head = head
            .header("Accept-Ranges", "bytes")
            .header("Content-Type", "application/octet-stream")
            .content_length(range.end - range.start);
        if self.head.method == Method::Head {
            return Next::Answer(head);
        }
        self.rest = range;
        self.response = Some(head);
        Next::Ask
    }

    /// Bytes have come; fewer only at the object's end, behind which there are zeros.
    pub(crate) fn arrived(&mut self, mut payload: Payload) -> Next {
        let wanted = usize::try_from(self.asked_bytes()).unwrap_or(usize::MAX);
        payload.truncate(wanted);
        payload.push_zeros(wanted - payload.len());
        self.asked = 0..0;
        self.busy = 0;
        Next::Send(self.response.take(), payload)
    }

    /// The node has none.
    pub(crate) fn failed(&mut self, error: &NodeError) -> Next {
        if let NodeError::Busy { retry_after_ms } = error
            && self.busy < BUSY_MAX
        {
            self.busy += 1;
            return Next::Wait(Duration::from_millis(u64::from(*retry_after_ms).max(1)));
        }
        self.asked = 0..0;
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
                (self.rest, self.response) = (0..0, None);
                Next::Restart
            }
            NodeError::Media { .. } => {
                let hint = "the bytes cannot be read from this node's disk".to_owned();
                Next::Refuse(Status::InternalServerError, hint)
            }
            error => Next::Refuse(Status::ServiceUnavailable, error.to_string()),
        }
    }

    /// Strong: no two states of an object have one version.
    fn etag(&self, version: Version) -> ETag {
        let url = &self.url;
        let text = [
            &url.object.encode()[..],
            &version.0.to_be_bytes(),
            &url.offset_bytes.to_be_bytes(),
            &url.length_bytes.to_be_bytes(),
        ];
        ETag::of_bytes(&text.concat())
    }
}
