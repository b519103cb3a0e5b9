//! What lets a process into an ensemble, once it has no certificate yet.
//!
//! | part | digits | meaning |
//! |---|---|---|
//! | `crossdock1-` | – | format |
//! | id | 8 hexadecimal | which token |
//! | secret | 32 hexadecimal | what is proved |
//! | fingerprint | 64 hexadecimal | BLAKE3 of the authority's certificate |
//!
//! with `-` between them. The registry knows a hash of the secret; the fingerprint tells
//! the joining side whom to believe, before it sends anything.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

use crate::credentials::CredentialsError;

const FORMAT: &str = "crossdock1";

/// The secret has 128 random bits: a plain hash of it cannot be searched through.
const CONTEXT: &str = "crossdock 2026 secret of a token";

/// A hash of an authority's certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// That of the first certificate of a PEM text.
    ///
    /// # Errors
    /// [`CredentialsError::NoCertificate`].
    pub fn of_pem(pem: &str) -> Result<Self, CredentialsError> {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes());
        let certificate = certificate.map_err(|_| CredentialsError::NoCertificate)?;
        Ok(Self(*blake3::hash(&certificate).as_bytes()))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex(&self.0))
    }
}

/// A token, with its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Which one.
    pub id: u32,
    /// What is proved.
    pub secret: [u8; 16],
    /// Whom to prove it to.
    pub authority: Fingerprint,
}

/// A text that is no token. It does not repeat the text: that may be secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "this is no token: it must be what `crossdock cluster token create` has printed, crossdock1-ID-SECRET-FINGERPRINT"
)]
pub struct TokenError;

impl Token {
    /// The text that an administrator passes on: the only way to the secret.
    #[must_use]
    pub fn reveal(&self) -> String {
        let (secret, authority) = (hex(&self.secret), hex(&self.authority.0));
        format!("{FORMAT}-{:08x}-{secret}-{authority}", self.id)
    }

    /// What the registry keeps of the secret.
    #[must_use]
    pub fn digest(secret: &[u8; 16]) -> [u8; 32] {
        blake3::derive_key(CONTEXT, secret)
    }

    /// Whether `secret` is the one of which the registry has `digest`; takes the same
    /// time for any.
    #[must_use]
    pub fn is_proved(secret: &[u8; 16], digest: &[u8; 32]) -> bool {
        // Hashes of that crate compare in constant time.
        blake3::Hash::from_bytes(Self::digest(secret)) == blake3::Hash::from_bytes(*digest)
    }
}

impl fmt::Debug for Token {
    /// Never shows the secret: settings are logged.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Token({:08x})", self.id)
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let mut parts = text.trim().split('-');
        let mut next = || parts.next().ok_or(TokenError);
        if next()? != FORMAT {
            return Err(TokenError);
        }
        let id = u32::from_be_bytes(bytes(next()?)?);
        let (secret, authority) = (bytes(next()?)?, Fingerprint(bytes(next()?)?));
        match parts.next() {
            None => Ok(Self {
                id,
                secret,
                authority,
            }),
            Some(_) => Err(TokenError),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exactly `N` bytes of hexadecimal digits.
fn bytes<const N: usize>(digits: &str) -> Result<[u8; N], TokenError> {
    if digits.len() != 2 * N || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(TokenError);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| TokenError)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| TokenError)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a token is read as it was written, nothing else is taken for one, and
    /// neither an error nor a log line shows a secret.
    #[test]
    fn tokens_are_read_back_and_kept_secret() {
        let token = Token {
            id: 0x0a0b_0c0d,
            secret: [0x5e; 16],
            authority: Fingerprint([0xfa; 32]),
        };
        let text = token.reveal();
        assert_eq!(text.parse(), Ok(token.clone()));
        assert_eq!(format!(" {text}\n").parse(), Ok(token.clone()));
        let secret = "5e".repeat(16);
        assert!(text.contains(&secret) && !format!("{token:?}").contains(&secret));
        for wrong in [
            String::new(),
            "crossdock1".to_owned(),
            text.replace("crossdock1", "crossdock2"),
            text[..text.len() - 1].to_owned(),
            format!("{text}-"),
            format!("{text}0"),
            text.replace("5e5e", "5e+e"),
            text.replace("5e5e", "5e\u{e4}"),
        ] {
            let error = wrong.parse::<Token>().expect_err(&wrong).to_string();
            assert!(
                error.contains("token create") && !error.contains("5e5e"),
                "{error}"
            );
        }
    }

    /// Goal: only the secret itself proves a token.
    #[test]
    fn a_digest_is_proved_by_its_secret_only() {
        let digest = Token::digest(&[7; 16]);
        assert!(Token::is_proved(&[7; 16], &digest));
        assert!(!Token::is_proved(&[8; 16], &digest));
        assert!(!Token::is_proved(&[7; 16], &[7; 32]));
    }
}
