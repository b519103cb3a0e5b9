//! Bearer tokens (RFC 6750): whoever shows one may do what its record says.
//!
//! | part | digits | meaning |
//! |---|---|---|
//! | `crossdockweb1-` | – | format |
//! | id | 8 hexadecimal | which token |
//! | secret | 64 hexadecimal | what is proved |
//!
//! with `-` between them. The registry knows a hash of the secret only. The secret has
//! 256 random bits: a plain hash of it cannot be searched through.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crossdock_limits::WEB_TOKEN_NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digits::{from_hex, hex};
use crate::{Denial, UrlPath};

const FORMAT: &[u8] = b"crossdockweb1";

const CONTEXT: &str = "crossdock 2026 secret of a bearer token of the HTTP door";

/// What the registry holds of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Its number, part of the token's text.
    pub id: u32,
    /// What administrators call it.
    pub name: String,
    /// A hash of its secret.
    pub digest: [u8; 32],
    /// Whether it lets read.
    pub reads: bool,
    /// Whether it lets write: make, replace and remove.
    pub writes: bool,
    /// The path at and below which it holds, whatever lies there at the moment.
    pub path: UrlPath,
    /// As which user its requests act.
    pub uid: u32,
    /// As which group.
    pub gid: u32,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
}

/// A token, with its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenSecret {
    /// Which one.
    pub id: u32,
    /// What is proved.
    pub secret: [u8; 32],
}

/// A text that is no token. It does not repeat the text: that may be secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "this is no token: it must be what `crossdock token create` has printed, crossdockweb1-ID-SECRET"
)]
pub struct TokenTextError;

/// Why a token cannot be called so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenNameError {
    /// Empty, too long, or with other letters.
    #[error("a token's name has 1 to {WEB_TOKEN_NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`")]
    Letters,
    /// It would be taken for a number.
    #[error("eight hexadecimal digits are a token's number, not its name")]
    Number,
}

impl TokenSecret {
    /// The token of an `Authorization` field's value (RFC 6750, section 2.1).
    ///
    /// # Errors
    /// [`TokenTextError`]: of another scheme, or of no format of ours.
    pub fn from_authorization(value: &[u8]) -> Result<Self, TokenTextError> {
        let space = value.iter().position(|&byte| byte == b' ');
        let (scheme, rest) = value.split_at(space.ok_or(TokenTextError)?);
        if !scheme.eq_ignore_ascii_case(b"Bearer") {
            return Err(TokenTextError);
        }
        Self::parse(rest.trim_ascii())
    }

    fn parse(text: &[u8]) -> Result<Self, TokenTextError> {
        let mut parts = text.split(|&byte| byte == b'-');
        let mut next = || parts.next().ok_or(TokenTextError);
        if next()? != FORMAT {
            return Err(TokenTextError);
        }
        let id = from_hex(next()?).ok_or(TokenTextError)?;
        let secret = from_hex(next()?).ok_or(TokenTextError)?;
        let id = u32::from_be_bytes(id);
        let token = Self { id, secret };
        parts.next().map_or(Ok(token), |_| Err(TokenTextError))
    }

    /// The text that an administrator passes on: the only way to the secret.
    #[must_use]
    pub fn reveal(&self) -> String {
        let format = String::from_utf8_lossy(FORMAT);
        format!("{format}-{:08x}-{}", self.id, hex(&self.secret))
    }

    /// What the registry keeps of the secret.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        blake3::derive_key(CONTEXT, &self.secret)
    }

    /// Whether the record is this token's; takes the same time for any secret.
    #[must_use]
    pub fn proves(&self, record: &TokenRecord) -> bool {
        // Hashes of that crate compare in constant time.
        let (ours, known) = (self.digest(), record.digest);
        record.id == self.id && blake3::Hash::from_bytes(ours) == blake3::Hash::from_bytes(known)
    }
}

impl fmt::Debug for TokenSecret {
    /// Never shows the secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TokenSecret({:08x})", self.id)
    }
}

impl FromStr for TokenSecret {
    type Err = TokenTextError;

    fn from_str(text: &str) -> Result<Self, TokenTextError> {
        Self::parse(text.as_bytes().trim_ascii())
    }
}

/// Whether a token can be called so.
///
/// # Errors
/// [`TokenNameError`].
pub fn check_token_name(name: &str) -> Result<(), TokenNameError> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if !(1..=WEB_TOKEN_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_fine) {
        return Err(TokenNameError::Letters);
    }
    match from_hex::<4>(name.as_bytes()) {
        Some(_) => Err(TokenNameError::Number),
        None => Ok(()),
    }
}

/// The tokens that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(BTreeMap<u32, TokenRecord>);

impl Tokens {
    /// Those of the registry.
    #[must_use]
    pub fn new(records: &[TokenRecord]) -> Self {
        let records = records.iter().cloned();
        Self(records.map(|record| (record.id, record)).collect())
    }

    /// The record of the token that a request shows.
    ///
    /// # Errors
    /// [`Denial::Token`] if it is no token, was revoked or has ended.
    pub fn find(&self, authorization: &[u8], now_seconds: u64) -> Result<&TokenRecord, Denial> {
        let shown = TokenSecret::from_authorization(authorization).map_err(|_| Denial::Token)?;
        let record = self.0.get(&shown.id).filter(|record| shown.proves(record));
        let record = record.filter(|record| now_seconds < record.expires);
        record.ok_or(Denial::Token)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn secret(id: u32) -> TokenSecret {
        let secret = [0x5e; 32];
        TokenSecret { id, secret }
    }

    pub(crate) fn record(id: u32, path: &str) -> TokenRecord {
        TokenRecord {
            id,
            name: format!("t{id}"),
            digest: secret(id).digest(),
            reads: true,
            writes: true,
            path: path.parse().expect("a path"),
            uid: 7,
            gid: 8,
            created: 100,
            expires: 200,
        }
    }

    /// Goal: a token is read as it was written, nothing else is taken for one, and
    /// neither an error nor a log line shows a secret.
    #[test]
    fn tokens_are_read_back_and_kept_secret() {
        let token = secret(0x0a0b_0c0d);
        let text = token.reveal();
        let digits = "5e".repeat(32);
        assert_eq!(text, format!("crossdockweb1-0a0b0c0d-{digits}"));
        assert_eq!(format!(" {text}\n").parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains("5e5e"));
        for wrong in [
            String::new(),
            "crossdockweb1".to_owned(),
            text.replace("web1", "web2"),
            text.replace("crossdockweb1", "crossdock1"),
            text[..text.len() - 1].to_owned(),
            format!("{text}-"),
            format!("{text}0"),
            text.replace("5e5e", "5e+e"),
        ] {
            let error = wrong.parse::<TokenSecret>().expect_err(&wrong).to_string();
            assert!(error.contains("token create") && !error.contains("5e5e"));
        }
    }

    /// Goal: the scheme is in any case (RFC 9110, section 11.1), and there is one.
    #[test]
    fn tokens_are_found_in_fields() {
        let text = secret(1).reveal();
        for right in ["Bearer", "bearer", "BEARER", "Bearer  "] {
            let value = format!("{right} {text}");
            let found = TokenSecret::from_authorization(value.as_bytes());
            assert_eq!(found, Ok(secret(1)), "{right}");
        }
        for wrong in [
            &text,
            &format!("Basic {text}"),
            &format!("Bearer{text}"),
            "Bearer",
            "",
        ] {
            assert!(
                TokenSecret::from_authorization(wrong.as_bytes()).is_err(),
                "{wrong}"
            );
        }
    }

    /// Goal: only the secret itself finds a record, and only until it ends.
    #[test]
    fn a_record_is_found_by_its_secret_only() {
        let tokens = Tokens::new(&[record(1, "/"), record(2, "/")]);
        let find = |token: &TokenSecret, now| {
            let value = format!("Bearer {}", token.reveal());
            tokens.find(value.as_bytes(), now).map(|record| record.id)
        };
        assert_eq!(find(&secret(1), 199), Ok(1));
        assert_eq!(find(&secret(1), 200), Err(Denial::Token));
        assert_eq!(find(&secret(3), 199), Err(Denial::Token), "revoked");
        for bit in 0..256 {
            let mut forged = secret(1);
            forged.secret[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(find(&forged, 199), Err(Denial::Token), "bit {bit}");
        }
        let secret = record(1, "/").digest;
        let digest = TokenSecret { id: 1, secret };
        assert_eq!(
            find(&digest, 199),
            Err(Denial::Token),
            "the hash is no secret"
        );
    }

    /// Goal: a name is one on a command line, and no number.
    #[test]
    fn names_are_checked() {
        for right in ["ci", "a.b_c-1", "12345", "0123456789", "0a0b0c0g"] {
            assert_eq!(check_token_name(right), Ok(()), "{right}");
        }
        for wrong in ["", "a b", "a/b", "\u{e4}", &"x".repeat(65)] {
            assert_eq!(
                check_token_name(wrong),
                Err(TokenNameError::Letters),
                "{wrong}"
            );
        }
        assert_eq!(check_token_name("0A0b0c0d"), Err(TokenNameError::Number));
    }

    /// Goal: records are read back, and hold no secret.
    #[test]
    fn records_hold_no_secret() {
        let record = record(5, "/a%20b");
        let text = serde_json::to_string(&record).expect("JSON");
        assert_eq!(
            serde_json::from_str::<TokenRecord>(&text).expect("a record"),
            record
        );
        assert!(
            text.contains(r#""path":"/a%20b""#) && !text.contains("94,94,94"),
            "{text}"
        );
    }
}
