//! Orders of the admin API about bearer tokens and signed URLs.

use crossdock_admin::{
    Answer, PieceSigning, Refusal, Signed, SignedPiece, SignedPieces, Signing, TokenAddition,
    TokenCreated, TokenStatus,
};
use crossdock_host::{
    ColumnsError, ColumnsOrder, ColumnsTicket, SignError, SignedColumns, TokenError, TokenTicket,
};
use crossdock_limits::SIGNED_URL_SECONDS_MAX;
use crossdock_net::now;
use crossdock_web::{SignedUrl, TokenRecord, TokenSecret, UrlPath};
use tokio::sync::oneshot;
use tracing::info;

use super::waiting::tell;
use super::{Shell, wall_time};
use crate::{data, report};

impl Shell {
    pub(super) fn list_tokens(&self) -> Answer {
        let tokens = self.host.token_records().iter();
        let tokens: Vec<_> = tokens.map(TokenStatus::from).collect();
        report::json(&tokens)
    }

    /// Begins to make a token; whoever asked waits for the registry, and then is the only
    /// one who is told its secret.
    pub(super) fn add_token(&mut self, addition: TokenAddition, reply: oneshot::Sender<Answer>) {
        let secret = match draw_secret() {
            Ok(secret) => secret,
            Err(error) => return tell(reply, Err(Refusal::Conflict(format!("{error:#}")))),
        };
        let created = seconds_now();
        let id = secret.id;
        let record = TokenRecord {
            id,
            name: addition.name.unwrap_or_else(|| format!("token-{id:08x}")),
            digest: secret.digest(),
            reads: addition.read,
            writes: addition.write,
            path: addition.path.unwrap_or_else(UrlPath::root).without_slash(),
            uid: addition.uid,
            gid: addition.gid,
            created,
            expires: created.saturating_add(addition.seconds),
        };
        let begun = self.host.add_token(now(), wall_time(), record);
        let begun = begun.map_err(|error| refusal(&error));
        self.token_replies.keep(begun, Some(secret), reply);
    }

    /// Begins to revoke a token; whoever asked waits for the registry.
    pub(super) fn remove_token(&mut self, id: u32, reply: oneshot::Sender<Answer>) {
        let begun = self.host.remove_token(now(), wall_time(), id);
        let begun = begun.map_err(|error| refusal(&error));
        self.token_replies.keep(begun, None, reply);
    }

    pub(super) fn take_token_changed(
        &mut self,
        ticket: TokenTicket,
        result: Result<TokenRecord, TokenError>,
    ) {
        self.token_replies.end(&ticket, |secret| {
            let record = result.map_err(|error| refusal(&error))?;
            let status = TokenStatus::from(&record);
            let (token, name, path) = (&status.id, &status.name, record.path.encode());
            match secret {
                Some(secret) => {
                    info!(%token, %name, %path, read = record.reads, write = record.writes, "bearer token made");
                    let token = secret.reveal();
                    report::json(&TokenCreated { token, status })
                }
                None => {
                    info!(%token, %name, %path, "bearer token revoked");
                    report::json(&status)
                }
            }
        });
    }

    /// Signs a URL with what this gateway knows.
    pub(super) fn sign(&self, signing: Signing) -> Answer {
        let seconds = signing.seconds;
        if !(1..=SIGNED_URL_SECONDS_MAX).contains(&seconds) {
            return Err(Refusal::Invalid(format!(
                "a signed URL holds for 1 s to {} days, not {seconds} s: it cannot be taken back; for longer, make a token (crossdock token create)",
                SIGNED_URL_SECONDS_MAX / (24 * 3600)
            )));
        }
        let expires = seconds_now().saturating_add(seconds);
        let url = SignedUrl {
            method: signing.method.into(),
            path: signing.path,
            expires,
            uid: signing.uid,
            gid: signing.gid,
        };
        let target = self.signed_target(&url)?;
        info!(path = %url.path.encode(), method = ?url.method, expires, "URL signed");
        report::json(&Signed { target, expires })
    }

    /// Path and query of a signed URL.
    pub(super) fn signed_target(&self, url: &SignedUrl) -> Result<String, Refusal> {
        self.host.sign(url).map_err(|error| match error {
            SignError::NoGateway | SignError::Scoped | SignError::Revoked | SignError::NoKey => {
                Refusal::Conflict(error.to_string())
            }
        })
    }

    /// Begins to sign URLs of a file's pieces at nodes; whoever asked waits for its site and
    /// for the nodes.
    pub(super) fn sign_pieces(&mut self, signing: PieceSigning, reply: oneshot::Sender<Answer>) {
        let path = signing.path.clone();
        let order = ColumnsOrder {
            path: signing.path,
            offset_bytes: signing.offset_bytes,
            length_bytes: signing.length_bytes,
            seconds: signing.seconds,
            uid: signing.uid,
            gid: signing.gid,
            is_of_file: false,
        };
        let begun = self.host.sign_columns(now(), wall_time(), order);
        let begun = begun.map_err(|error| columns_refusal(&error));
        self.column_replies.keep(begun, path, reply);
    }

    pub(super) fn take_columns_signed(
        &mut self,
        ticket: ColumnsTicket,
        result: Result<SignedColumns, ColumnsError>,
    ) {
        self.column_replies.end(&ticket, |path| {
            let signed = result.map_err(|error| columns_refusal(&error))?;
            let (pieces, expires) = (signed.pieces.len(), signed.expires);
            info!(path = %path.encode(), pieces, expires, "URLs at nodes signed");
            report::json(&SignedPieces {
                size_bytes: signed.size_bytes,
                expires,
                target: signed.target,
                pieces: signed.pieces.into_iter().map(piece).collect(),
            })
        });
    }
}

fn piece(signed: crossdock_host::SignedPiece) -> SignedPiece {
    let at_node = signed.at_node.as_ref();
    SignedPiece {
        offset_bytes: signed.offset_bytes,
        length_bytes: signed.length_bytes,
        node: at_node.map(|at| at.number),
        url: at_node.map(|at| format!("{}{}", at.door, at.target)),
    }
}

pub(super) fn columns_refusal(error: &ColumnsError) -> Refusal {
    let what = error.to_string();
    match error {
        ColumnsError::Seconds(_) | ColumnsError::TooLong(_) | ColumnsError::NotFile(_) => {
            Refusal::Invalid(what)
        }
        ColumnsError::NotFound(_) => Refusal::Unknown(what),
        ColumnsError::Sign(_)
        | ColumnsError::Denied(_)
        | ColumnsError::Depot(_)
        | ColumnsError::Volume(_)
        | ColumnsError::Busy => Refusal::Conflict(what),
    }
}

fn draw_secret() -> anyhow::Result<TokenSecret> {
    let id = u32::from_le_bytes(data::random_bytes()?);
    let secret = data::random_bytes()?;
    Ok(TokenSecret { id, secret })
}

pub(super) fn seconds_now() -> u64 {
    u64::try_from(wall_time().parts().0).unwrap_or(0)
}

fn refusal(error: &TokenError) -> Refusal {
    let what = error.to_string();
    match error {
        TokenError::Name { .. } | TokenError::NoRights | TokenError::Path | TokenError::Ended => {
            Refusal::Invalid(what)
        }
        TokenError::Unknown(_) => Refusal::Unknown(what),
        TokenError::Named { .. }
        | TokenError::TooMany
        | TokenError::Number
        | TokenError::Busy
        | TokenError::NotJoined
        | TokenError::Unanswered
        | TokenError::Registry(_) => Refusal::Conflict(what),
    }
}
