//! Conditional requests (RFC 9110 section 13).

use crossdock_types::WallTime;

use crate::date::seconds;
use crate::{ETag, ETagList, Method, RequestHead, parse_http_date};

/// What tells one state of a representation from another (RFC 9110 section 8.8).
#[derive(Clone, Debug)]
pub struct Validators {
    /// Changes whenever a byte does.
    pub etag: ETag,
    /// When it was last changed, if it is known. Clients see whole seconds.
    pub modified: Option<WallTime>,
}

/// What the conditions of a request say about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Do it.
    Proceed,
    /// The client has it: 304.
    NotModified,
    /// It is not to be done: 412.
    Failed,
}

/// Compares the conditions of a request with what is there now, `None` if nothing
/// is: If-Match, else If-Unmodified-Since; then If-None-Match, else
/// If-Modified-Since (RFC 9110 section 13.2.2). If-Range belongs to
/// [`ranges`](crate::ranges).
///
/// A list of tags that is malformed matches nothing, except that a PUT or DELETE
/// under a malformed If-None-Match fails: it was meant to prevent something.
#[must_use]
pub fn evaluate(head: &RequestHead, current: Option<&Validators>) -> Condition {
    // Section 13.2.1: conditions are about methods that select or change a
    // representation, and about what would otherwise succeed: what is not there
    // gives a 404, whatever the conditions.
    match (head.method, current) {
        (Method::Put, _) | (Method::Get | Method::Head | Method::Delete, Some(_)) => {}
        _ => return Condition::Proceed,
    }
    if !may_begin(head, current) {
        return Condition::Failed; // Steps 1 and 2.
    }
    let is_reading = matches!(head.method, Method::Get | Method::Head);
    match (is_news(head, current), is_reading) {
        (true, _) => Condition::Proceed, // Step 6.
        (false, true) => Condition::NotModified,
        (false, false) => Condition::Failed,
    }
}

/// Steps 1 and 2: the representation is still the one that the client knows.
fn may_begin(head: &RequestHead, current: Option<&Validators>) -> bool {
    if let Some(value) = head.header("if-match") {
        // Section 13.1.1: strong comparison.
        return match (ETagList::parse(value), current) {
            (Some(list), Some(current)) => list.has_strong(&current.etag),
            _ => false,
        };
    }
    // Section 13.1.4: ignored if it is no date, or there is none to compare with.
    let since = head.header("if-unmodified-since").and_then(parse_http_date);
    let modified = current.and_then(|current| current.modified);
    match (since, modified) {
        (Some(since), Some(modified)) => seconds(modified) <= since,
        _ => true,
    }
}

/// Steps 3 and 4: the representation is not one that the client has.
fn is_news(head: &RequestHead, current: Option<&Validators>) -> bool {
    let is_reading = matches!(head.method, Method::Get | Method::Head);
    if let Some(value) = head.header("if-none-match") {
        // Section 13.1.2: weak comparison.
        return match (ETagList::parse(value), current) {
            (Some(list), Some(current)) => !list.has_weak(&current.etag),
            (Some(_), None) => true,
            (None, _) => is_reading,
        };
    }
    // Section 13.1.3: ignored for other methods, if it is no date, or there is
    // none to compare with.
    if !is_reading {
        return true;
    }
    let since = head.header("if-modified-since").and_then(parse_http_date);
    let modified = current.and_then(|current| current.modified);
    match (since, modified) {
        (Some(since), Some(modified)) => seconds(modified) > since,
        _ => true,
    }
}
