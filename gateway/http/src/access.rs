//! As whom a request is done: what it shows, and what that allows.

use bytes::Bytes;
use crossdock_http1::{Method, RequestHead};
use crossdock_peer::Caller;
use crossdock_types::WallTime;
use crossdock_web::{Denial, Gate, Grant, Method as Wanted, Request, UrlPath};

/// To which paths a request is bound by what it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The path begins with these names.
    within: UrlPath,
    /// Nothing was shown.
    pub(crate) is_anonymous: bool,
}

impl Scope {
    /// Whether it reaches there. The path as it is written was looked at before: this one
    /// is without links, which lead nobody out.
    pub(crate) fn reaches<'a>(&self, names: impl Iterator<Item = &'a Bytes>) -> bool {
        let mut names = names;
        let within = self.within.names().iter();
        let mut within = within.map(|name| &name[..]);
        within.all(|name| names.next().is_some_and(|other| other == name))
    }
}

/// What a request is allowed, by what it shows.
///
/// # Errors
/// What it shows does not do.
pub(crate) fn admit(
    gate: &Gate,
    head: &RequestHead,
    wall: WallTime,
) -> Result<(Caller, Scope), Denial> {
    let method = match head.method {
        Method::Get | Method::Head => Wanted::Get,
        Method::Put => Wanted::Put,
        Method::Delete => Wanted::Delete,
        // What is answered shows nothing of the volume.
        _ => return Ok((Grant::ANONYMOUS.caller(), Scope::default())),
    };
    let target = &head.target;
    let path = UrlPath::of_names(
        target.path.iter().map(|name| &name[..]),
        target.is_directory,
    )?;
    let query = target.raw.iter().position(|&byte| byte == b'?');
    let request = Request {
        method,
        path: &path,
        query: query.map(|at| &target.raw[at + 1..]),
        authorization: head.authorization(),
    };
    // A signed URL names one path, and whoever signed it knew where that leads.
    let (grant, within) = gate.check(&request, wall)?;
    let scope = Scope {
        within: within.cloned().unwrap_or_else(UrlPath::root),
        is_anonymous: grant == Grant::ANONYMOUS && request.authorization.is_none(),
    };
    Ok((grant.caller(), scope))
}
