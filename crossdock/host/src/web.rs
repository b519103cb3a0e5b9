//! What requests over HTTP are judged by: bearer tokens, which an administrator makes and
//! revokes and the registry keeps, and the keys of signed URLs, which follow from those of
//! handles.

use std::sync::Arc;

use crossdock_limits::{WEB_TOKEN_PATH_BYTES_MAX, WEB_TOKENS_MAX};
use crossdock_members::{Change, Conflict, OpenError};
use crossdock_names::HandleKey;
use crossdock_types::{Time, WallTime};
use crossdock_web::{
    SignedUrl, SigningKey, SigningKeys, TokenNameError, TokenRecord, Tokens, check_token_name,
};
use thiserror::Error;

use crate::exports::REGISTRY_PATIENCE;
use crate::host::{Host, HostEffect};
use crate::walks::WALKS_MAX;

/// Which order about tokens an effect answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenTicket(u64);

/// Why a token was not made or revoked; nothing was done, unless stated otherwise.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TokenError {
    /// It cannot be called so.
    #[error("{name:?} is no name: {why}")]
    Name {
        /// As it was said.
        name: String,
        /// What is wrong.
        why: TokenNameError,
    },
    /// Another one is called so.
    #[error(
        "there is a token {name} already; revoke it with crossdock token revoke {name}, or choose another name"
    )]
    Named {
        /// The name.
        name: String,
    },
    /// It would allow nothing.
    #[error("a token lets read, write, or both")]
    NoRights,
    /// The path is too long to be kept.
    #[error("a token's path has at most {WEB_TOKEN_PATH_BYTES_MAX} bytes")]
    Path,
    /// It would have ended already.
    #[error("a token ends later than it begins")]
    Ended,
    /// There are as many as there may be.
    #[error("there are {WEB_TOKENS_MAX} tokens already; revoke one with crossdock token revoke")]
    TooMany,
    /// There is no such token.
    #[error("there is no token {0:08x}; crossdock token list shows all")]
    Unknown(u32),
    /// Another one has the number, which is random.
    #[error("another token has the same random number; try again")]
    Number,
    /// Too many at once.
    #[error("{WALKS_MAX} tokens are being made or revoked at this moment; try again")]
    Busy,
    /// This process is no part of the ensemble yet.
    #[error("this process has not joined the ensemble; crossdock status may show why; try again")]
    NotJoined,
    /// A shared registry says nothing: it may still be done.
    #[error(
        "etcd does not answer: the change was not confirmed within {} s, and may still be carried out; crossdock token list shows what came of it",
        REGISTRY_PATIENCE.as_secs()
    )]
    Unanswered,
    /// The registry cannot be written.
    #[error("cannot write the registry: {0}")]
    Registry(String),
}

/// Why this process signs no URL.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SignError {
    /// It is no gateway.
    #[error("gateways sign URLs; ask one's admin port with --admin (crossdock status lists them)")]
    NoGateway,
    /// It is scoped to exports, so it does not know the key.
    #[error(
        "this gateway is scoped to exports and does not know what URLs are signed with; ask one without a scope (crossdock gateway list shows them)"
    )]
    Scoped,
    /// It is revoked.
    #[error(
        "this gateway is revoked; ask another one, or let it in again with crossdock gateway restore"
    )]
    Revoked,
    /// Nobody has told it the key yet.
    #[error(
        "this process does not know yet what URLs are signed with: no manager of the root directory has told it; try again"
    )]
    NoKey,
}

/// What the door is told.
#[derive(Default)]
pub(crate) struct Web {
    tokens: Arc<Tokens>,
    keys: Option<SigningKeys>,
}

/// A change of tokens on its way to the registry.
pub(crate) struct TokenChange {
    ticket: TokenTicket,
    wanted: Wanted,
    /// When it is given up.
    pub(crate) due: Time,
}

enum Wanted {
    Added(TokenRecord),
    Removed(TokenRecord),
}

impl Wanted {
    fn change(&self) -> Change {
        match self {
            Self::Added(record) => Change::AddWebToken {
                record: record.clone(),
            },
            Self::Removed(record) => Change::RemoveWebToken { id: record.id },
        }
    }

    /// What has come of it, as `tokens` show; nothing if that is still open.
    fn outcome(&self, tokens: &[TokenRecord]) -> Option<Result<TokenRecord, TokenError>> {
        match self {
            Self::Added(record) if tokens.contains(record) => Some(Ok(record.clone())),
            Self::Added(record) => check_free(tokens, record).err().map(Err),
            Self::Removed(record) => {
                let is_there = tokens.iter().any(|known| known.id == record.id);
                (!is_there).then(|| Ok(record.clone()))
            }
        }
    }
}

impl Host {
    /// The bearer tokens there are, those that have ended too.
    #[must_use]
    pub fn token_records(&self) -> &[TokenRecord] {
        &self.registry.state().web_tokens
    }

    /// The same as requests are judged by them.
    #[must_use]
    pub const fn web_tokens(&self) -> &Arc<Tokens> {
        &self.web.tokens
    }

    /// What URLs are signed with, and signed ones are judged by.
    ///
    /// # Errors
    /// Why this process does not know, or may not use it.
    pub fn signing_keys(&self) -> Result<&SigningKeys, SignError> {
        if self.registry.is_shared() && !self.role.is_gateway {
            return Err(SignError::NoGateway);
        }
        if self.is_revoked() {
            return Err(SignError::Revoked);
        }
        if self.own_scope().is_some() {
            return Err(SignError::Scoped);
        }
        self.web.keys.as_ref().ok_or(SignError::NoKey)
    }

    /// Path and query of a URL, signed.
    ///
    /// # Errors
    /// As [`signing_keys`](Self::signing_keys).
    pub fn sign(&self, url: &SignedUrl) -> Result<String, SignError> {
        self.signing_keys().map(|keys| url.sign(keys))
    }

    /// Begins to have one more token, from the next request of a client on;
    /// [`HostEffect::TokenChanged`] tells what came of it.
    ///
    /// # Errors
    /// What is wrong with it, as far as it can be seen at once.
    pub fn add_token(
        &mut self,
        now: Time,
        wall: WallTime,
        record: TokenRecord,
    ) -> Result<TokenTicket, TokenError> {
        check_record(&record)?;
        check_free(self.token_records(), &record)?;
        if left_beside(self.token_records(), &record).count() >= WEB_TOKENS_MAX {
            return Err(TokenError::TooMany);
        }
        self.order_tokens(now, wall, Wanted::Added(record))
    }

    /// Begins to revoke a token, from the next request of a client on;
    /// [`HostEffect::TokenChanged`] tells what came of it.
    ///
    /// # Errors
    /// Why not, as far as it can be seen at once.
    pub fn remove_token(
        &mut self,
        now: Time,
        wall: WallTime,
        id: u32,
    ) -> Result<TokenTicket, TokenError> {
        let known = self.token_records().iter().find(|known| known.id == id);
        let wanted = Wanted::Removed(known.ok_or(TokenError::Unknown(id))?.clone());
        self.order_tokens(now, wall, wanted)
    }

    /// Makes a change durable, then tells the door; or sends it to the registry that
    /// others share, from where it comes back with the next state.
    fn order_tokens(
        &mut self,
        now: Time,
        wall: WallTime,
        wanted: Wanted,
    ) -> Result<TokenTicket, TokenError> {
        if self.registry.is_shared() && !self.following.has_joined {
            return Err(TokenError::NotJoined);
        }
        if self.token_changes.len() >= WALKS_MAX {
            return Err(TokenError::Busy);
        }
        let changed = self.registry.change(wanted.change());
        changed.map_err(|error| match error {
            OpenError::Conflict(Conflict::TokenName { name }) => TokenError::Named { name },
            error => TokenError::Registry(error.to_string()),
        })?;
        self.walks_total += 1;
        let ticket = TokenTicket(self.walks_total);
        self.token_changes.push(TokenChange {
            ticket,
            wanted,
            due: now + REGISTRY_PATIENCE,
        });
        self.tell_tokens();
        self.settle_tokens(now);
        self.pump(now, wall);
        Ok(ticket)
    }

    /// Answers those whose change is in the registry, or cannot come there any more.
    pub(crate) fn settle_tokens(&mut self, now: Time) {
        for change in std::mem::take(&mut self.token_changes) {
            let outcome = change.wanted.outcome(self.token_records());
            let late = (change.due <= now).then_some(Err(TokenError::Unanswered));
            match outcome.or(late) {
                Some(result) => self.effects.push_back(HostEffect::TokenChanged {
                    ticket: change.ticket,
                    result,
                }),
                None => self.token_changes.push(change),
            }
        }
    }

    /// The registry may hold other tokens than before.
    pub(crate) fn tell_tokens(&mut self) {
        let tokens = Tokens::new(self.token_records());
        if tokens != *self.web.tokens {
            self.web.tokens = Arc::new(tokens);
            self.tell_gate();
        }
    }

    /// Handles are made with that key from now on, and URLs signed with what follows
    /// from it.
    pub(crate) fn learn_signing_key(&mut self, handles: &HandleKey) {
        let key = SigningKey::derive(handles);
        match &mut self.web.keys {
            Some(keys) => keys.add(key),
            none => *none = Some(SigningKeys::new(key)),
        }
        self.tell_gate();
    }
}

fn check_record(record: &TokenRecord) -> Result<(), TokenError> {
    let name = &record.name;
    check_token_name(name).map_err(|why| TokenError::Name {
        name: name.chars().take(WEB_TOKEN_PATH_BYTES_MAX).collect(),
        why,
    })?;
    let length: usize = record.path.names().iter().map(|name| name.len() + 1).sum();
    if length > WEB_TOKEN_PATH_BYTES_MAX {
        return Err(TokenError::Path);
    }
    if !record.reads && !record.writes {
        return Err(TokenError::NoRights);
    }
    if record.expires <= record.created {
        return Err(TokenError::Ended);
    }
    Ok(())
}

/// The registry forgets the others when it takes this one.
fn left_beside<'a>(
    tokens: &'a [TokenRecord],
    record: &TokenRecord,
) -> impl Iterator<Item = &'a TokenRecord> {
    let created = record.created;
    tokens.iter().filter(move |known| known.expires > created)
}

/// Whether name and number are nobody else's.
fn check_free(tokens: &[TokenRecord], record: &TokenRecord) -> Result<(), TokenError> {
    if left_beside(tokens, record).any(|known| known.name == record.name) {
        let name = record.name.clone();
        return Err(TokenError::Named { name });
    }
    match left_beside(tokens, record).any(|known| known.id == record.id) {
        true => Err(TokenError::Number),
        false => Ok(()),
    }
}
