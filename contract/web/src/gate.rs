//! What a request may do, and as whom: by a token, by a signature, or as anybody.

use std::sync::Arc;

use crossdock_peer::{Caller, NOBODY};
use crossdock_types::WallTime;
use thiserror::Error;

use crate::signed::{SignedMethod, SignedUrl, SigningKeys};
use crate::token::{TokenRecord, Tokens};
use crate::{PathError, UrlPath};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET and HEAD.
    Get,
    /// PUT, of a file or a directory.
    Put,
    /// DELETE.
    Delete,
}

/// Who may read without a token or a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadPolicy {
    /// Everybody, what everybody may read: as the anonymous user.
    #[default]
    Open,
    /// Nobody.
    Token,
}

/// What a request shows.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What it does.
    pub method: Method,
    /// With what.
    pub path: &'a UrlPath,
    /// What follows the `?` of its target.
    pub query: Option<&'a [u8]>,
    /// Its `Authorization` field; a request with two of them is malformed.
    pub authorization: Option<&'a [u8]>,
}

/// As whom a request acts: the permissions of the files decide the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Denial {
    /// It shows nothing, and has to.
    #[error("this takes a bearer token or a signed URL")]
    Missing,
    /// Its token is none, was revoked or has ended.
    #[error("the token does not hold: it is unknown, was revoked or has ended")]
    Token,
    /// The token does not let do that.
    #[error("the token does not allow this method")]
    Rights,
    /// The token is for another part of the tree.
    #[error("the token does not hold for this path")]
    Path,
    /// A signature that is not written as one.
    #[error("the query of a signed URL has what it was signed with, once each, and nothing else")]
    Query,
    /// It was not signed, or another method, path or time was.
    #[error("the URL was not signed for this")]
    Signature,
    /// Its time is over.
    #[error("the signed URL has ended")]
    Ended,
    /// Token and signature at once (RFC 6750, section 2).
    #[error("a request shows a token or a signature, not both")]
    Both,
    /// This gateway cannot tell: it is scoped, or has not been told the key yet.
    #[error("this gateway does not know what URLs are signed with")]
    NoKey,
    /// The path is none.
    #[error("{0}")]
    Malformed(#[from] PathError),
}

impl Denial {
    /// The status code to answer with.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Query | Self::Both | Self::Malformed(_) => 400,
            Self::Missing | Self::Token => 401,
            Self::Rights | Self::Path | Self::Signature | Self::Ended => 403,
            Self::NoKey => 503,
        }
    }

    /// The `WWW-Authenticate` field to answer with, if there is to be one (RFC 6750,
    /// section 3).
    #[must_use]
    pub const fn challenge(self) -> Option<&'static str> {
        match self {
            Self::Missing => Some("Bearer realm=\"crossdock\""),
            Self::Token => Some("Bearer realm=\"crossdock\", error=\"invalid_token\""),
            Self::Rights | Self::Path => {
                Some("Bearer realm=\"crossdock\", error=\"insufficient_scope\"")
            }
            _ => None,
        }
    }
}

impl Method {
    /// What a URL is signed for that lets do it.
    pub(crate) const fn signed(self) -> Option<SignedMethod> {
        match self {
            Self::Get => Some(SignedMethod::Get),
            Self::Put => Some(SignedMethod::Put),
            Self::Delete => None,
        }
    }
}

impl Grant {
    /// Who has shown nothing.
    pub const ANONYMOUS: Self = Self {
        uid: NOBODY,
        gid: NOBODY,
    };

    /// As sites know it.
    #[must_use]
    pub fn caller(self) -> Caller {
        let Self { uid, gid } = self;
        let groups = [].into();
        Caller { uid, gid, groups }
    }
}

/// All that a door judges requests by.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Who may read without showing anything.
    pub policy: ReadPolicy,
    /// The tokens of this moment.
    pub tokens: Arc<Tokens>,
    /// What URLs are signed with, if this gateway may know.
    pub keys: Option<SigningKeys>,
}

impl Gate {
    /// What a request may do, and below which path a token lets it. A token or a signature
    /// that does not hold is worse than none; a token that holds, but not for this, leaves
    /// what anybody may do.
    ///
    /// # Errors
    /// [`Denial`], with the answer's status.
    pub fn check(
        &self,
        request: &Request<'_>,
        now: WallTime,
    ) -> Result<(Grant, Option<&UrlPath>), Denial> {
        let now_seconds = u64::try_from(now.parts().0).unwrap_or(0);
        let signed = request.query.filter(|query| SignedUrl::is_one(query));
        let &Request { method, path, .. } = request;
        let anywhere = |grant: Grant| (grant, None);
        match (request.authorization, signed) {
            (Some(_), Some(_)) => Err(Denial::Both),
            (Some(authorization), None) => {
                let record = self.tokens.find(authorization, now_seconds)?;
                match by_token(record, method, path) {
                    Ok(grant) => Ok((grant, Some(&record.path))),
                    Err(why) => self.anonymous(method).map(anywhere).ok_or(why),
                }
            }
            (None, Some(query)) => {
                let keys = self.keys.as_ref().ok_or(Denial::NoKey)?;
                SignedUrl::verify(keys, method, path, query, now_seconds).map(anywhere)
            }
            (None, None) => self.anonymous(method).map(anywhere).ok_or(Denial::Missing),
        }
    }

    /// As whom anybody does it, if anybody may.
    fn anonymous(&self, method: Method) -> Option<Grant> {
        let is_open = method == Method::Get && self.policy == ReadPolicy::Open;
        is_open.then_some(Grant::ANONYMOUS)
    }
}

/// What the token of a record lets do.
fn by_token(record: &TokenRecord, method: Method, path: &UrlPath) -> Result<Grant, Denial> {
    if !record.path.covers(path) {
        return Err(Denial::Path);
    }
    let allows = match method {
        Method::Get => record.reads,
        Method::Put | Method::Delete => record.writes,
    };
    let (uid, gid) = (record.uid, record.gid);
    allows.then_some(Grant { uid, gid }).ok_or(Denial::Rights)
}

#[cfg(test)]
mod tests {
    use crossdock_names::HandleKey;

    use super::*;
    use crate::SigningKey;
    use crate::token::tests::{record, secret};

    /// The middle of a token's time.
    const NOW: u64 = 150;

    fn gate(policy: ReadPolicy) -> Gate {
        let reader = TokenRecord {
            writes: false,
            ..record(2, "/")
        };
        let writer = TokenRecord {
            reads: false,
            ..record(3, "/in")
        };
        let key = [5; 32];
        let key = SigningKey::derive(&HandleKey { id: 1, key });
        Gate {
            policy,
            tokens: Arc::new(Tokens::new(&[record(1, "/dir"), reader, writer])),
            keys: Some(SigningKeys::new(key)),
        }
    }

    fn check(
        gate: &Gate,
        method: Method,
        target: &str,
        token: Option<u32>,
    ) -> Result<Grant, Denial> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (target, None),
        };
        let path = UrlPath::decode(path.as_bytes())?;
        let authorization = token.map(|id| format!("Bearer {}", secret(id).reveal()));
        let request = Request {
            method,
            path: &path,
            query,
            authorization: authorization.as_deref().map(str::as_bytes),
        };
        let checked = gate.check(&request, WallTime::from_parts(NOW.cast_signed(), 5));
        checked.map(|(grant, _)| grant)
    }

    const USER: Grant = Grant { uid: 7, gid: 8 };

    /// Goal: without a token everybody reads as nobody, or nobody reads; nobody writes.
    #[test]
    fn anonymous_requests_read_at_most() {
        let (open, closed) = (gate(ReadPolicy::Open), gate(ReadPolicy::Token));
        assert_eq!(
            check(&open, Method::Get, "/a?list", None),
            Ok(Grant::ANONYMOUS)
        );
        assert_eq!(Grant::ANONYMOUS.caller().uid, 65534);
        assert_eq!(
            check(&closed, Method::Get, "/a", None),
            Err(Denial::Missing)
        );
        for method in [Method::Put, Method::Delete] {
            assert_eq!(check(&open, method, "/a", None), Err(Denial::Missing));
        }
    }

    /// Goal: a token holds at its path and below, by names; nothing climbs out of it.
    #[test]
    fn tokens_hold_below_their_path() {
        let gate = gate(ReadPolicy::Token);
        for path in ["/dir", "/dir/", "/dir/a", "//dir//a/b", "/%64ir/a"] {
            for method in [Method::Get, Method::Put, Method::Delete] {
                assert_eq!(check(&gate, method, path, Some(1)), Ok(USER), "{path}");
            }
        }
        for path in ["/", "/dir2", "/dir2/a", "/di", "/a/dir", "/dir%20", "/DIR"] {
            assert_eq!(
                check(&gate, Method::Put, path, Some(1)),
                Err(Denial::Path),
                "{path}"
            );
        }
        for path in ["/dir/../a", "/dir/%2e%2e/a", "/dir/..%2fa", "/dir%2fa"] {
            let denied = check(&gate, Method::Put, path, Some(1)).expect_err(path);
            assert_eq!(denied.status(), 400, "{path}");
        }
    }

    /// Goal: rights are the token's; a token that does not hold is worse than none.
    #[test]
    fn tokens_allow_what_they_say() {
        let mut gate = gate(ReadPolicy::Token);
        assert_eq!(check(&gate, Method::Get, "/a", Some(2)), Ok(USER));
        assert_eq!(
            check(&gate, Method::Put, "/a", Some(2)),
            Err(Denial::Rights)
        );
        assert_eq!(check(&gate, Method::Delete, "/in/a", Some(3)), Ok(USER));
        assert_eq!(
            check(&gate, Method::Get, "/in/a", Some(3)),
            Err(Denial::Rights)
        );
        assert_eq!(check(&gate, Method::Get, "/a", Some(9)), Err(Denial::Token));
        assert_eq!(Denial::Token.status(), 401);
        gate.policy = ReadPolicy::Open;
        let anybody = Ok(Grant::ANONYMOUS);
        assert_eq!(check(&gate, Method::Get, "/in/a", Some(3)), anybody);
        assert_eq!(check(&gate, Method::Get, "/dir2", Some(1)), anybody);
        assert_eq!(
            check(&gate, Method::Put, "/a", Some(2)),
            Err(Denial::Rights)
        );
        assert_eq!(check(&gate, Method::Get, "/a", Some(9)), Err(Denial::Token));
        assert!(
            Denial::Rights
                .challenge()
                .is_some_and(|it| it.contains("insufficient_scope"))
        );
    }

    /// Goal: a signature counts alone, where reading is closed too, and never beside a token
    /// or without a key.
    #[test]
    fn signatures_count_alone() {
        let mut gate = gate(ReadPolicy::Token);
        let url = SignedUrl {
            method: SignedMethod::Get,
            path: "/secret".parse().expect("a path"),
            expires: NOW + 1,
            uid: 0,
            gid: 0,
        };
        let sign = |url: &SignedUrl, gate: &Gate| url.sign(gate.keys.as_ref().expect("a key"));
        let target = sign(&url, &gate);
        let root = Grant { uid: 0, gid: 0 };
        assert_eq!(check(&gate, Method::Get, &target, None), Ok(root));
        assert_eq!(
            check(&gate, Method::Put, &target, None),
            Err(Denial::Signature)
        );
        assert_eq!(
            check(&gate, Method::Get, &target, Some(2)),
            Err(Denial::Both)
        );
        let ended = sign(
            &SignedUrl {
                expires: NOW,
                ..url
            },
            &gate,
        );
        assert_eq!(check(&gate, Method::Get, &ended, None), Err(Denial::Ended));
        gate.policy = ReadPolicy::Open;
        let forged = "/secret?signature=";
        assert_eq!(check(&gate, Method::Get, forged, None), Err(Denial::Query));
        gate.keys = None;
        assert_eq!(check(&gate, Method::Get, &target, None), Err(Denial::NoKey));
    }
}
