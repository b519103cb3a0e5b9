//! Targets of requests (RFC 9112 section 3.2), and paths in them (RFC 3986).

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::head::Fields;
use crate::{HeadError, HttpVersion, Method};

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Names from the root down, percent-decoded: any bytes but `/` and NUL. No
    /// empty ones, no `.` and no `..`: those were resolved (RFC 3986 section 5.2.4),
    /// never above the root.
    pub path: Vec<Bytes>,
    /// Whether the path ended in a slash (or in `.` or `..`): what it names is
    /// meant to be a directory.
    pub is_directory: bool,
    /// `name=value` pairs behind the question mark, percent-decoded, in order. A
    /// name without `=` has an empty value; a plus sign is a plus sign.
    pub query: Vec<(Bytes, Bytes)>,
    /// Whether the target was `*`: the server rather than anything on it. The path
    /// is empty then.
    pub is_server: bool,
    /// As it was sent.
    pub raw: Bytes,
}

impl Target {
    /// The value of the first pair of this name.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<&[u8]> {
        let mut all = self.query.iter();
        let (_, value) = all.find(|(found, _)| found == name.as_bytes())?;
        Some(value)
    }
}

/// The absolute path of these names, for links and Location: whatever is not
/// unreserved (RFC 3986 section 2.3) is percent-encoded, so it needs no more
/// quoting in HTML or JSON. No slash at the end, unless it is the root.
pub fn encode_path<'a>(components: impl Iterator<Item = &'a [u8]>) -> String {
    const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    let mut path = String::new();
    for component in components {
        path.push('/');
        path.extend(percent_encode(component, ENCODED));
    }
    if path.is_empty() {
        path.push('/');
    }
    path
}

/// The target, and its authority if it has one.
pub(crate) fn parse(method: Method, raw: Bytes) -> Result<(Target, Option<Bytes>), HeadError> {
    if !raw.iter().copied().all(is_allowed) {
        return Err(HeadError::Target);
    }
    if &raw[..] == b"*" {
        return Ok((server(method, raw)?, None)); // Section 3.2.4: asterisk-form.
    }
    if raw.starts_with(b"/") {
        return Ok((of_path(raw.clone(), raw)?, None)); // Section 3.2.1: origin-form.
    }
    // Section 3.2.2: absolute-form. Anything else is none of the forms.
    let rest = strip_scheme(&raw).ok_or(HeadError::Target)?;
    let end = rest
        .iter()
        .position(|byte| b"/?".contains(byte))
        .unwrap_or(rest.len());
    let (authority, path) = (rest.slice(..end), rest.slice(end..));
    // RFC 9110 sections 4.2.1 and 4.2.4: an empty host is invalid, and user names
    // are refused: `@` is in no host.
    if authority.is_empty() || authority.starts_with(b":") || !is_authority(&authority) {
        return Err(HeadError::Target);
    }
    let target = match (method, path.is_empty()) {
        // Section 3.2.4: this is how `*` reaches a proxy, which may be us.
        (Method::Options, true) => server(method, raw)?,
        _ => of_path(path, raw)?,
    };
    Ok((target, Some(authority)))
}

/// RFC 9112 section 3.2: a 1.1 request has one Host field; and one that is a host.
pub(crate) fn host_field(
    version: HttpVersion,
    fields: &Fields,
) -> Result<Option<Bytes>, HeadError> {
    match fields.get("host") {
        // Several were joined by a comma and a space, which is in no host.
        Some(value) if is_authority(value) => Ok(Some(Bytes::copy_from_slice(value))),
        None if version == HttpVersion::Http10 => Ok(None),
        _ => Err(HeadError::Host),
    }
}

/// Characters of RFC 3986, and those that browsers leave as they are although they
/// should not. No fragment is ever sent (RFC 9110 section 7.1), and a backslash is a
/// slash to some.
const fn is_allowed(byte: u8) -> bool {
    let is_of_rfc3986 = byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.' | b'_' | b'~' | b'%' | b'/' | b'?' | b':' | b'@'
        )
        || is_sub_delim(byte);
    is_of_rfc3986 || matches!(byte, b'[' | b']' | b'|' | b'^' | b'{' | b'}' | b'`')
}

const fn is_sub_delim(byte: u8) -> bool {
    matches!(
        byte,
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
    )
}

fn server(method: Method, raw: Bytes) -> Result<Target, HeadError> {
    match method {
        Method::Options => Ok(Target {
            path: Vec::new(),
            is_directory: false,
            query: Vec::new(),
            is_server: true,
            raw,
        }),
        _ => Err(HeadError::Target),
    }
}

fn strip_scheme(raw: &Bytes) -> Option<Bytes> {
    [&b"http://"[..], b"https://"]
        .into_iter()
        .find_map(|scheme| {
            let start = raw.get(..scheme.len())?;
            start
                .eq_ignore_ascii_case(scheme)
                .then(|| raw.slice(scheme.len()..))
        })
}

/// uri-host [ ":" port ] (RFC 3986 sections 3.2.2 and 3.2.3). Also nothing at all,
/// which is what the Host field of a target without an authority has.
fn is_authority(value: &[u8]) -> bool {
    let end = match value.first() {
        Some(b'[') => match value.iter().position(|&byte| byte == b']') {
            Some(end) => end + 1,
            None => return false,
        },
        _ => value
            .iter()
            .position(|&byte| byte == b':')
            .unwrap_or(value.len()),
    };
    let (host, port) = value.split_at(end);
    let is_host = match host {
        [b'[', address @ .., b']'] => {
            let is_of_address = |&byte: &u8| byte.is_ascii_alphanumeric() || b":.".contains(&byte);
            !address.is_empty() && address.iter().all(is_of_address)
        }
        name => name.iter().all(|&byte| {
            byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte) || is_sub_delim(byte)
        }),
    };
    is_host
        && match port {
            [] => true,
            [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
            _ => false,
        }
}

/// `path` begins with a slash, or is empty, or begins with a question mark.
fn of_path(path: Bytes, raw: Bytes) -> Result<Target, HeadError> {
    let end = path
        .iter()
        .position(|&byte| byte == b'?')
        .unwrap_or(path.len());
    let (path, query) = (path.slice(..end), path.slice(path.len().min(end + 1)..));
    let (path, is_directory) = resolve(&path)?;
    Ok(Target {
        path,
        is_directory,
        query: pairs(&query)?,
        is_server: false,
        raw,
    })
}

/// RFC 3986 section 5.2.4, on decoded names: `%2e` is the same as `.` (section
/// 6.2.2.2). Empty ones count while dots are resolved, and go then.
fn resolve(path: &Bytes) -> Result<(Vec<Bytes>, bool), HeadError> {
    let mut names = Vec::new();
    let mut is_directory = true;
    for part in path.split(|&byte| byte == b'/').skip(1) {
        let name = decode(&path.slice_ref(part))?;
        // Section 2.2: an encoded slash is part of a name, and no name has one.
        if name.iter().any(|byte| b"/\0".contains(byte)) {
            return Err(HeadError::Target);
        }
        is_directory = matches!(&name[..], b"" | b"." | b"..");
        match &name[..] {
            b"." => {}
            b".." => drop(names.pop()),
            _ => names.push(name),
        }
    }
    names.retain(|name| !name.is_empty());
    Ok((names, is_directory))
}

fn pairs(query: &Bytes) -> Result<Vec<(Bytes, Bytes)>, HeadError> {
    let parts = query
        .split(|&byte| byte == b'&')
        .filter(|part| !part.is_empty());
    let pair = |part: &[u8]| {
        let end = part
            .iter()
            .position(|&byte| byte == b'=')
            .unwrap_or(part.len());
        let (name, value) = (&part[..end], &part[part.len().min(end + 1)..]);
        Ok((
            decode(&query.slice_ref(name))?,
            decode(&query.slice_ref(value))?,
        ))
    };
    parts.map(pair).collect()
}

/// RFC 3986 section 2.1: a percent sign has two hexadecimal digits behind it.
fn decode(text: &Bytes) -> Result<Bytes, HeadError> {
    if !text.contains(&b'%') {
        return Ok(text.clone());
    }
    let is_digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_hexdigit);
    let mut signs = (0..text.len()).filter(|&at| text[at] == b'%');
    match signs.all(|at| is_digit(at + 1) && is_digit(at + 2)) {
        true => Ok(percent_encoding::percent_decode(text).collect()),
        false => Err(HeadError::Target),
    }
}
