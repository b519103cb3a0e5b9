//! Heads of responses (RFC 9112 sections 4, 6 and 9).

use bytes::Bytes;
use crossdock_types::WallTime;

use crate::{HttpVersion, Status, Validators, http_date};

/// What a client that sent `Expect: 100-continue` waits for, if its content is
/// wanted. A final response takes its place otherwise.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Most clients understand each other's dates only from 1970 on.
const EPOCH: WallTime = WallTime(0);

/// What most fields fit in.
const FIELDS_BYTES: usize = 192;
/// What most of the lines fit in that every head has.
const LINES_BYTES: usize = 192;

/// Builds the head of a response.
///
/// It says 1.1 also to a client of 1.0 (RFC 9110 section 2.5), but takes into account
/// what that understands.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    client: HttpVersion,
    status: Status,
    keep_alive: bool,
    content_length: Option<u64>,
    modified: Option<WallTime>,
    fields: Vec<u8>,
}

impl ResponseHead {
    /// A response to a client of this version; the connection stays open after it.
    #[must_use]
    pub fn new(client: HttpVersion, status: Status) -> Self {
        Self {
            client,
            status,
            keep_alive: true,
            content_length: None,
            modified: None,
            fields: Vec::with_capacity(FIELDS_BYTES),
        }
    }

    /// Adds a field. Control characters in the value become spaces (RFC 9110
    /// section 5.5): a name of a file cannot end the head.
    ///
    /// Not for Date, Connection, Content-Length, Transfer-Encoding and
    /// Last-Modified, which are written here.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        let clean = |&byte: &u8| match byte {
            b'\t' => byte,
            byte if byte.is_ascii_control() => b' ',
            byte => byte,
        };
        self.fields.extend_from_slice(name.as_bytes());
        self.fields.extend_from_slice(b": ");
        self.fields.extend(value.as_ref().iter().map(clean));
        self.fields.extend_from_slice(b"\r\n");
        self
    }

    /// Adds ETag and Last-Modified.
    #[must_use]
    pub fn validators(mut self, validators: &Validators) -> Self {
        self.modified = validators.modified;
        self.header("ETag", validators.etag.to_bytes())
    }

    /// How many bytes follow; for HEAD and 304 how many would (RFC 9110 section 8.6).
    #[must_use]
    pub const fn content_length(mut self, bytes: u64) -> Self {
        self.content_length = Some(bytes);
        self
    }

    /// Whether the connection stays open; yes unless set. It does not if only its end
    /// tells where the content ends: see [`keeps_alive`](Self::keeps_alive).
    #[must_use]
    pub const fn keep_alive(mut self, keep_alive: bool) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// What it says.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Whether another response may follow on the connection; else close it behind
    /// the content. Without a length that is where content ends (RFC 9112 section
    /// 6.3, rule 8).
    #[must_use]
    pub const fn keeps_alive(&self) -> bool {
        let is_delimited = self.content_length.is_some() || self.status.is_without_content();
        self.keep_alive && is_delimited
    }

    /// The bytes of the head, up to where the content begins.
    #[must_use]
    pub fn encode(&self, now: WallTime) -> Bytes {
        let mut head = Vec::with_capacity(LINES_BYTES + self.fields.len());
        let (number, reason) = (self.status.number(), self.status.reason());
        let mut add = |parts: &[&str]| {
            for part in parts {
                head.extend_from_slice(part.as_bytes());
            }
        };
        add(&["HTTP/1.1 ", &number.to_string(), " ", reason, "\r\n"]);
        let mut line = |name, value: &str| add(&[name, ": ", value, "\r\n"]);
        // RFC 9110 section 6.6.1.
        if let Some(date) = http_date(now.max(EPOCH)) {
            line("Date", &date);
        }
        // RFC 9110 section 8.8.2.1: never later than the response.
        let modified = self.modified.map(|modified| modified.min(now));
        if let Some(date) = modified.and_then(http_date) {
            line("Last-Modified", &date);
        }
        // RFC 9112 section 9.3; to a client of 1.0 staying open is what has to be said.
        match (self.keeps_alive(), self.client) {
            (false, _) => line("Connection", "close"),
            (true, HttpVersion::Http10) => line("Connection", "keep-alive"),
            (true, HttpVersion::Http11) => {}
        }
        // RFC 9110 section 8.6: not in 1xx and 204.
        if let Some(bytes) = self.content_length
            && !matches!(self.status, Status::Continue | Status::NoContent)
        {
            line("Content-Length", &bytes.to_string());
        }
        head.extend_from_slice(&self.fields);
        head.extend_from_slice(b"\r\n");
        head.into()
    }
}
