//! TLS under the links: a [`Stream`] for each connection, the certificate by which
//! this host talks, and certificates for those that join.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use crossdock_link::{Identity as Shown, LinkId, Role};
use crossdock_members::{State, TokenRecord};
use crossdock_secure::{
    Authority, Credentials, Failure, JoinAnswer, JoinRequest, Purpose, Stream, StreamEffect, Token,
};
use tracing::{info, warn};

use crate::identity::{Identity, Prepared, Stamp, seconds, time};

/// What the links of a process have that talks over TLS.
pub(crate) struct Security {
    ensemble: u64,
    identity: Identity,
    credentials: Credentials,
    stamp: Option<Stamp>,
    authority: Option<Authority>,
    tokens: BTreeMap<u32, TokenRecord>,
    /// Gateways that get no certificate.
    revoked: BTreeSet<String>,
    streams: BTreeMap<LinkId, Sealed>,
}

/// A connection.
struct Sealed {
    stream: Stream,
    remote: SocketAddr,
    /// What a process that joins has said so far.
    joining: Option<Vec<u8>>,
    effects: VecDeque<SealedEffect>,
}

/// What a connection wants done.
pub(super) enum SealedEffect {
    Transmit(Bytes),
    /// The link can begin; what the other host has shown, if anything.
    Opened(Option<Shown>),
    Received(Bytes),
    /// It is not a link, and all is said.
    Done,
}

impl Security {
    pub(crate) fn new(ensemble: u64, prepared: Prepared) -> Self {
        Self {
            ensemble,
            stamp: prepared.identity.stamp().ok(),
            identity: prepared.identity,
            credentials: prepared.credentials,
            authority: prepared.authority,
            tokens: BTreeMap::new(),
            revoked: BTreeSet::new(),
            streams: BTreeMap::new(),
        }
    }

    /// Follows the registry.
    pub(super) fn follow(&mut self, state: &State) {
        let trust = state.trust.as_ref();
        self.tokens = trust.map(|it| it.tokens.clone()).unwrap_or_default();
        let revoked = state.gateways.iter().filter(|(_, known)| known.is_revoked);
        self.revoked = revoked.map(|(name, _)| name.clone()).collect();
    }

    /// When this host's certificate ends, in seconds since 1970.
    pub(super) const fn certificate_ends(&self) -> u64 {
        self.credentials.ends()
    }

    /// Somebody has connected.
    pub(super) fn accept(&mut self, link: LinkId, remote: SocketAddr) {
        self.reload();
        let stream = Stream::accept(&self.credentials);
        self.add(link, remote, stream);
    }

    /// This host has connected.
    pub(super) fn connect(&mut self, link: LinkId, remote: SocketAddr) {
        self.reload();
        let stream = Stream::connect(&self.credentials);
        self.add(link, remote, stream);
    }

    fn add(&mut self, link: LinkId, remote: SocketAddr, stream: Result<Stream, Failure>) {
        let stream = match stream {
            Ok(stream) => stream,
            Err(failure) => return warn!(%remote, "cannot begin: {failure}"),
        };
        let mut sealed = Sealed {
            stream,
            remote,
            joining: None,
            effects: VecDeque::new(),
        };
        sealed.carry();
        self.streams.insert(link, sealed);
    }

    /// Reads the files again if they have changed; keeps what it has if they are of no use.
    fn reload(&mut self) {
        let Ok(stamp) = self.identity.stamp() else {
            return; // Being replaced: what was read holds on.
        };
        if self.stamp.as_ref() == Some(&stamp) {
            return;
        }
        match self.identity.read(self.ensemble) {
            Ok(credentials) => {
                let days_left = credentials.ends().saturating_sub(seconds()) / (24 * 3600);
                info!(days_left, "took a new certificate");
                self.credentials = credentials;
                self.stamp = Some(stamp);
            }
            Err(error) => warn!("goes on with the certificate that it has: {error:#}"),
        }
    }

    /// Bytes of the network. [`poll`](Self::poll) them also if they were refused: the
    /// other side is told.
    pub(super) fn receive(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), Failure> {
        let Some(sealed) = self.streams.get_mut(&link) else {
            return Ok(());
        };
        let outcome = sealed.receive(bytes);
        if outcome.is_ok() && sealed.joining.is_some() {
            self.answer(link);
        }
        outcome.inspect_err(|failure| self.tell(link, failure))
    }

    /// Bytes of the link.
    pub(super) fn send(&mut self, link: LinkId, pieces: &[Bytes]) -> Result<(), Failure> {
        let Some(sealed) = self.streams.get_mut(&link) else {
            return Ok(());
        };
        let outcome = sealed.stream.send(pieces);
        sealed.carry();
        outcome.inspect_err(|failure| self.tell(link, failure))
    }

    pub(super) fn poll(&mut self, link: LinkId) -> Option<SealedEffect> {
        self.streams.get_mut(&link)?.effects.pop_front()
    }

    pub(super) fn forget(&mut self, link: LinkId) {
        self.streams.remove(&link);
    }

    fn tell(&self, link: LinkId, failure: &Failure) {
        let remote = self.streams.get(&link).map(|sealed| sealed.remote);
        let remote = remote.map(|it| it.to_string()).unwrap_or_default();
        warn!(remote, "no connection: {failure}");
    }

    /// Answers a process that joins, once all of its request is here.
    fn answer(&mut self, link: LinkId) {
        let Some(sealed) = self.streams.get(&link) else {
            return;
        };
        let said = sealed.joining.as_deref().unwrap_or_default();
        if said.len() < JoinRequest::BYTES {
            return;
        }
        let answer = match said.try_into().map(JoinRequest::decode) {
            Ok(Ok(request)) => self.judge(&request, sealed.remote),
            Ok(Err(error)) => JoinAnswer::Refused(format!("no request to join: {error}")),
            Err(_) => JoinAnswer::Refused("no request to join: it is too long".to_owned()),
        };
        if let JoinAnswer::NotHere(reason) | JoinAnswer::Refused(reason) = &answer {
            warn!(remote = %sealed.remote, %reason, "no certificate was given");
        }
        let answer = Bytes::from(answer.encode());
        // It may be gone: then nobody wants to know.
        let _ = self.send(link, &[answer]);
        if let Some(sealed) = self.streams.get_mut(&link) {
            sealed.joining = None;
            sealed.effects.push_back(SealedEffect::Done);
        }
    }

    fn judge(&self, request: &JoinRequest, remote: SocketAddr) -> JoinAnswer {
        let (id, role) = (request.token, request.role.word());
        let Some(authority) = &self.authority else {
            return JoinAnswer::NotHere(
                "this manager gives no certificates: start one with --ca DIR".to_owned(),
            );
        };
        let known = self.tokens.get(&id);
        let record = known.filter(|it| Token::is_proved(&request.secret, &it.digest));
        let Some(record) = record else {
            let reason = format!(
                "the token {id:08x} is not known: it has been revoked, has ended, or was mistyped; make a new one with `crossdock cluster token create --role {role}`"
            );
            return JoinAnswer::NotHere(reason);
        };
        let now = seconds();
        if record.ends <= now {
            return JoinAnswer::Refused(format!(
                "the token {id:08x} has ended; make a new one with `crossdock cluster token create --role {role}`"
            ));
        }
        let allowed = record.role.and_then(Role::from_number);
        if allowed.is_some_and(|allowed| allowed != request.role) || request.role == Role::All {
            let for_whom = allowed.map_or("one process of an ensemble", Role::word);
            return JoinAnswer::Refused(format!(
                "the token {id:08x} is for a {for_whom}, a {role} has asked; make one with `crossdock cluster token create --role {role}`"
            ));
        }
        let name = request.gateway.as_deref();
        if let Some(own) = record.gateway.as_deref().filter(|own| name != Some(*own)) {
            return JoinAnswer::Refused(format!(
                "the token {id:08x} is for the gateway {own}: join with --gateway-name {own}"
            ));
        }
        if let Some(name) = name.filter(|name| self.revoked.contains(*name)) {
            return JoinAnswer::Refused(format!(
                "the gateway {name} has been revoked: `crossdock gateway restore {name}` lets it in again"
            ));
        }
        let issued = time(now).and_then(|now| {
            let issued = authority.issue(request.role, name, &request.public_key, now);
            issued.map_err(anyhow::Error::new)
        });
        match issued {
            Ok(certificate) => {
                info!(token = format!("{id:08x}"), role, name, %remote, "gave a certificate");
                JoinAnswer::Certificate(certificate)
            }
            Err(error) => JoinAnswer::Refused(format!("no certificate can be made: {error:#}")),
        }
    }
}

impl Sealed {
    fn receive(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let outcome = self.stream.receive(bytes);
        self.carry();
        outcome
    }

    /// Tells links from processes that join.
    fn carry(&mut self) {
        while let Some(effect) = self.stream.poll_effect() {
            let effect = match (effect, &mut self.joining) {
                (StreamEffect::Transmit(bytes), _) => SealedEffect::Transmit(bytes),
                (
                    StreamEffect::Opened {
                        purpose: Purpose::Link,
                        identity,
                    },
                    _,
                ) => SealedEffect::Opened(identity),
                (StreamEffect::Opened { .. }, joining) => {
                    *joining = Some(Vec::new());
                    continue;
                }
                (StreamEffect::Received(bytes), Some(said)) => {
                    // One byte more than a request has is enough to see that it is none.
                    let room = (JoinRequest::BYTES + 1).saturating_sub(said.len());
                    said.extend(bytes.iter().take(room));
                    continue;
                }
                (StreamEffect::Received(bytes), None) => SealedEffect::Received(bytes),
            };
            self.effects.push_back(effect);
        }
    }
}
