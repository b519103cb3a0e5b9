//! The head of a request: request line and fields (RFC 9112 sections 2, 3 and 5).

use std::mem::MaybeUninit;

use bytes::Bytes;
use crossdock_limits::{HTTP_FIELDS_MAX, HTTP_HEAD_BYTES_MAX, HTTP_TARGET_BYTES_MAX};
use memchr::{memchr, memchr2};

use crate::{Framing, HeadError, Target, framing, target};

/// What a head may take. Beyond it, it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the head, with empty lines before it and the one that ends it.
    pub head_bytes_max: usize,
    /// Field lines. More than 256 are never taken.
    pub headers_max: usize,
    /// Bytes of the target as it was sent.
    pub target_bytes_max: usize,
}

impl Default for HeadLimits {
    /// 16 KiB, 64 lines, 8 KiB.
    fn default() -> Self {
        Self {
            head_bytes_max: HTTP_HEAD_BYTES_MAX,
            headers_max: HTTP_FIELDS_MAX,
            target_bytes_max: HTTP_TARGET_BYTES_MAX,
        }
    }
}

/// What a client wants done (RFC 9110 section 9); case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Send the representation.
    Get,
    /// The same without content.
    Head,
    /// Replace the representation by the content.
    Put,
    /// Remove the representation.
    Delete,
    /// What may be asked.
    Options,
    /// Do with the content what the resource does (not done by any door).
    Post,
    /// Change the representation (RFC 5789; not done by any door).
    Patch,
    /// Send the request back (not done by any door).
    Trace,
    /// One that nobody here knows (RFC 9110 section 9.1: 501). CONNECT is refused before.
    Unknown,
}

/// The version that a client speaks (RFC 9110 section 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HttpVersion {
    /// One request for each connection unless both ask for more; no codings.
    Http10,
    /// Connections stay open unless somebody says close.
    Http11,
}

/// A complete and acceptable head.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// What to do.
    pub method: Method,
    /// What to do it to.
    pub target: Target,
    /// What the client understands.
    pub version: HttpVersion,
    /// Where the content ends that follows the head.
    pub framing: Framing,
    /// Whether the client expects the connection to stay open (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Whether the client waits with its content for a [`CONTINUE`](crate::CONTINUE)
    /// or a final answer (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
    /// The authority that the client meant, with its port: of the target if that has
    /// one, else of the Host field. Empty if the target has no authority.
    pub host: Option<Bytes>,
    pub(crate) fields: Fields,
}

impl RequestHead {
    /// The value of a field, in any case of letters, without white space around it.
    /// Several lines of one name are joined by `, ` in their order (RFC 9110
    /// section 5.3): a field that is no list does not parse then.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.fields.get(name)
    }

    /// All fields, each name once.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields
            .0
            .iter()
            .map(|field| (&field.name[..], &field.value[..]))
    }

    /// The client's credentials (RFC 9110 section 11.6.2).
    #[must_use]
    pub fn authorization(&self) -> Option<&[u8]> {
        self.header("authorization")
    }

    /// The token of `Authorization: Bearer TOKEN` (RFC 6750 section 2.1); `None`
    /// for other credentials, and for several.
    #[must_use]
    pub fn bearer_token(&self) -> Option<&[u8]> {
        let (scheme, rest) = self.authorization()?.split_at_checked(b"bearer ".len())?;
        let token = rest.trim_ascii_start();
        let is_token = !token.is_empty() && !token.iter().any(|byte| b" \t,".contains(byte));
        (is_token && scheme.eq_ignore_ascii_case(b"bearer ")).then_some(token)
    }
}

/// Looks for a complete head at the front of `bytes`: the head and its length, or
/// `None` if there is no end yet. Call again with more behind the same bytes: what
/// is refused is refused as soon as it can be seen, and stays refused.
///
/// Syntax is strict: lines end in CRLF, nothing is folded, no white space before a
/// colon (RFC 9112 sections 2.2, 5.1 and 5.2). Empty lines before the request line
/// are skipped (section 2.2).
///
/// # Errors
/// See [`HeadError`]: answer its status and close the connection.
pub fn parse_head(
    bytes: &[u8],
    limits: &HeadLimits,
) -> Result<Option<(RequestHead, usize)>, HeadError> {
    let window = &bytes[..bytes.len().min(limits.head_bytes_max)];
    let mut start = 0;
    while window[start..].starts_with(b"\r\n") {
        start += 2;
    }
    let (until, stop) = match look(window, start, limits) {
        Look::Complete(end) => {
            let text = Bytes::copy_from_slice(&window[start..end]);
            let head = Lines::parse(&text, limits)?.interpret()?;
            return Ok(Some((head, end)));
        }
        Look::Incomplete(until) => (until, None),
        Look::Stop(at, error) => (at, Some(error)),
    };
    // What is wrong further ahead in the bytes comes first, so that the same is
    // said however much has arrived.
    let mut lines = LINES_UNREAD;
    read_lines(&window[start..until], lines_of(&mut lines, limits))?;
    stop.map_or(Ok(None), Err)
}

/// What the line endings and limits tell about a head.
enum Look {
    Complete(usize),        // Where it ends.
    Incomplete(usize),      // How far it can be judged.
    Stop(usize, HeadError), // The byte there is one that must not be.
}

fn look(window: &[u8], start: usize, limits: &HeadLimits) -> Look {
    if let Some(at) = target_overflow(&window[start..], limits.target_bytes_max) {
        return Look::Stop(start + at, HeadError::TargetTooLong);
    }
    let mut line = start;
    let mut until = window.len();
    while let Some(length) = memchr2(b'\r', b'\n', &window[line..]) {
        let at = line + length;
        // RFC 9112 section 2.2: a bare LF may be taken for a line ending, a bare CR
        // must not; what takes one where others do not is open to smuggling.
        match (window[at], window.get(at + 1)) {
            (b'\r', Some(b'\n')) => {}
            (b'\r', None) => {
                until = at; // The next byte tells what it is.
                break;
            }
            _ => return Look::Stop(at, HeadError::LineEnding),
        }
        if length == 0 {
            return Look::Complete(at + 2);
        }
        line = at + 2;
    }
    match window.len() == limits.head_bytes_max {
        true => Look::Stop(until, HeadError::HeadTooLarge),
        false => Look::Incomplete(until),
    }
}

/// Where the target of the request line at the front of `bytes` is longer than
/// `bytes_max`.
fn target_overflow(bytes: &[u8], bytes_max: usize) -> Option<usize> {
    let line = &bytes[..memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len())];
    let target = memchr(b' ', line)? + 1;
    let length = memchr(b' ', &line[target..]).unwrap_or(line.len() - target);
    (length > bytes_max).then(|| target + bytes_max)
}

/// Most field lines that any limit allows: they are read on the stack.
const FIELD_LINES_MAX: usize = 256;

type FieldLines<'a> = [MaybeUninit<httparse::Header<'a>>; FIELD_LINES_MAX];
const LINES_UNREAD: FieldLines<'static> = [const { MaybeUninit::uninit() }; FIELD_LINES_MAX];

fn lines_of<'l, 'a>(
    lines: &'l mut FieldLines<'a>,
    limits: &HeadLimits,
) -> &'l mut [MaybeUninit<httparse::Header<'a>>] {
    &mut lines[..limits.headers_max.min(FIELD_LINES_MAX)]
}

/// Reads the lines of a head; `None` if `text` ends too early.
fn read_lines<'l, 'a>(
    text: &'a [u8],
    lines: &'l mut [MaybeUninit<httparse::Header<'a>>],
) -> Result<Option<httparse::Request<'l, 'a>>, HeadError> {
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(text, lines) {
        Ok(httparse::Status::Complete(_)) => Ok(Some(request)),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(error) => Err(of_syntax(error, text)),
    }
}

/// The lines of a head, not interpreted yet.
struct Lines {
    method: Bytes,
    target: Bytes,
    version: HttpVersion,
    fields: Fields,
}

impl Lines {
    /// Of a complete head.
    fn parse(text: &Bytes, limits: &HeadLimits) -> Result<Self, HeadError> {
        let mut lines = LINES_UNREAD;
        let request = read_lines(text, lines_of(&mut lines, limits))?;
        let request = request.ok_or(HeadError::RequestLine)?;
        let part = |part: Option<&str>| part.map(|part| text.slice_ref(part.as_bytes()));
        let mut fields = Fields::default();
        for line in &*request.headers {
            let name = text.slice_ref(line.name.as_bytes());
            fields.add(name, text.slice_ref(line.value.trim_ascii()));
        }
        Ok(Self {
            method: part(request.method).unwrap_or_default(),
            target: part(request.path).unwrap_or_default(),
            version: match request.version {
                Some(0) => HttpVersion::Http10,
                _ => HttpVersion::Http11, // There are no others: those are an error.
            },
            fields,
        })
    }

    fn interpret(self) -> Result<RequestHead, HeadError> {
        let Self {
            version, fields, ..
        } = self;
        let method = match &self.method[..] {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"POST" => Method::Post,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            b"CONNECT" => return Err(HeadError::Connect),
            _ => Method::Unknown,
        };
        let framing = framing::of(version, &fields)?;
        let host = target::host_field(version, &fields)?;
        let (target, authority) = target::parse(method, self.target)?;
        Ok(RequestHead {
            expects_continue: framing::expects_continue(version, framing, &fields)?,
            keep_alive: framing::keep_alive(version, &fields),
            method,
            target,
            version,
            framing,
            // RFC 9112 section 3.2.2: the target's counts, whatever the field says.
            host: authority.or(host),
            fields,
        })
    }
}

fn of_syntax(error: httparse::Error, text: &[u8]) -> HeadError {
    match error {
        httparse::Error::HeaderName => HeadError::FieldName,
        httparse::Error::HeaderValue => HeadError::FieldValue,
        httparse::Error::TooManyHeaders => HeadError::TooManyFields,
        httparse::Error::Version if is_other_version(text) => HeadError::Version,
        _ => HeadError::RequestLine,
    }
}

/// Whether the request line names another version of HTTP, rather than something
/// else: `HTTP/` and a digit other than 1, or `HTTP/1.` and a digit.
fn is_other_version(text: &[u8]) -> bool {
    let Some(version) = text.split(|&byte| byte == b' ').nth(2) else {
        return false;
    };
    match version.strip_prefix(b"HTTP/") {
        Some([b'1', b'.', minor, ..]) => minor.is_ascii_digit(),
        Some([b'1', ..]) => false,
        Some([major, ..]) => major.is_ascii_digit(),
        _ => false,
    }
}

/// Fields in the order in which their names came first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<Field>);

#[derive(Clone, Debug)]
struct Field {
    name: Bytes,
    value: Bytes,
}

impl Fields {
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        let mut all = self.0.iter();
        let field = all.find(|field| field.name.eq_ignore_ascii_case(name.as_bytes()))?;
        Some(&field.value)
    }

    /// RFC 9110 section 5.3: lines of the same name are one list.
    fn add(&mut self, name: Bytes, value: Bytes) {
        let mut all = self.0.iter_mut();
        match all.find(|field| field.name.eq_ignore_ascii_case(&name)) {
            Some(field) => field.value = [&field.value, &b", "[..], &value].concat().into(),
            None => self.0.push(Field { name, value }),
        }
    }
}

/// The elements of a comma-separated list of tokens (RFC 9110 section 5.6.1).
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let all = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    all.filter(|element| !element.is_empty())
}
