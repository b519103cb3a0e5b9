//! What a process without a certificate asks, and what it is answered. Both travel inside
//! TLS, whose server has shown a certificate of the authority that the token names.
//!
//! Request, of one length:
//!
//! | offset | bytes | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | "XDJQ" |
//! | 4 | 1 | format | 2 |
//! | 5 | 1 | role | number of a [`Role`] |
//! | 6 | 2 | – | zero |
//! | 8 | 4 | token | its id, big-endian |
//! | 12 | 16 | secret | of the token |
//! | 28 | 65 | public key | P-256, uncompressed |
//! | 93 | 64 | name | of a gateway, ASCII, padded with zeros; of others zeros |
//!
//! Answer:
//!
//! | offset | bytes | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | "XDJA" |
//! | 4 | 1 | outcome | 0 certificate, 1 not here or not yet, 2 refused |
//! | 5 | 1 | – | zero |
//! | 6 | 2 | length | of what follows, big-endian |
//! | 8 | length | text | UTF-8: the certificate as PEM, or why not |

use crossdock_link::Role;
use thiserror::Error;

use crate::names::{GATEWAY_NAME_BYTES_MAX, is_name};

/// Bytes of an uncompressed point of P-256 (SEC 1, 2.3.3).
pub const PUBLIC_KEY_BYTES: usize = 65;

/// The longest text of an answer: a certificate takes some 700 bytes.
pub const JOIN_ANSWER_BYTES_MAX: usize = 4096;

const REQUEST_MAGIC: [u8; 4] = *b"XDJQ";
const ANSWER_MAGIC: [u8; 4] = *b"XDJA";
const FORMAT: u8 = 2;
const UNCOMPRESSED: u8 = 4;

const NAME_AT: usize = 28 + PUBLIC_KEY_BYTES;

/// A process wants a certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinRequest {
    /// What it is to be.
    pub role: Role,
    /// Which token it has.
    pub token: u32,
    /// The token's secret.
    pub secret: [u8; 16],
    /// The key that it has made.
    pub public_key: [u8; PUBLIC_KEY_BYTES],
    /// What a gateway is called, and nobody else.
    pub gateway: Option<String>,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinAnswer {
    /// A certificate, as PEM.
    Certificate(String),
    /// Not by this manager, or not yet: for people.
    NotHere(String),
    /// Another reason, for people.
    Refused(String),
}

/// Bytes that are no request, or no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    /// Not the first bytes of one.
    #[error("it begins otherwise")]
    Magic,
    /// Another version's.
    #[error("its format is {0}, this build has {FORMAT}")]
    Format(u8),
    /// No host has it.
    #[error("role {0} is unknown")]
    Role(u8),
    /// It is none that Crossdock makes.
    #[error("its public key is not of P-256")]
    Key,
    /// Gateways have one of letters, digits, `-`, `_` and `.`; others have none.
    #[error("gateways have a name, and nobody else")]
    Name,
    /// Longer than may be.
    #[error("a text of {0} bytes, at most {JOIN_ANSWER_BYTES_MAX} are taken")]
    TooLong(usize),
    /// Neither a certificate nor a reason.
    #[error("outcome {0} is unknown")]
    Outcome(u8),
    /// The text is none.
    #[error("its text is not UTF-8")]
    Text,
}

impl JoinRequest {
    /// Bytes of every request.
    pub const BYTES: usize = NAME_AT + GATEWAY_NAME_BYTES_MAX;

    /// As it travels.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC);
        bytes[4] = FORMAT;
        bytes[5] = self.role as u8;
        bytes[8..12].copy_from_slice(&self.token.to_be_bytes());
        bytes[12..28].copy_from_slice(&self.secret);
        bytes[28..NAME_AT].copy_from_slice(&self.public_key);
        let name = self.gateway.as_deref().unwrap_or_default().as_bytes();
        for (to, from) in bytes[NAME_AT..].iter_mut().zip(name) {
            *to = *from;
        }
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`JoinError`]: it is none.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, JoinError> {
        if bytes[..4] != REQUEST_MAGIC || bytes[6..8] != [0; 2] {
            return Err(JoinError::Magic);
        }
        if bytes[4] != FORMAT {
            return Err(JoinError::Format(bytes[4]));
        }
        let mut request = Self {
            role: Role::from_number(bytes[5]).ok_or(JoinError::Role(bytes[5]))?,
            token: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            secret: [0; 16],
            public_key: [0; PUBLIC_KEY_BYTES],
            gateway: name_in(&bytes[NAME_AT..])?,
        };
        request.secret.copy_from_slice(&bytes[12..28]);
        request.public_key.copy_from_slice(&bytes[28..NAME_AT]);
        if (request.role == Role::Gateway) != request.gateway.is_some() {
            return Err(JoinError::Name);
        }
        if request.public_key[0] != UNCOMPRESSED {
            return Err(JoinError::Key);
        }
        Ok(request)
    }
}

fn name_in(padded: &[u8]) -> Result<Option<String>, JoinError> {
    let end = padded.iter().rposition(|byte| *byte != 0);
    let Some(name) = end.map(|end| &padded[..=end]) else {
        return Ok(None);
    };
    let name = std::str::from_utf8(name).map_err(|_| JoinError::Name)?;
    let name = Some(name).filter(|name| is_name(name));
    name.map(|name| Some(name.to_owned()))
        .ok_or(JoinError::Name)
}

impl JoinAnswer {
    /// As it travels; a text that is too long is cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (outcome, text) = match self {
            Self::Certificate(text) => (0, text),
            Self::NotHere(text) => (1, text),
            Self::Refused(text) => (2, text),
        };
        let text = &text[..text.floor_char_boundary(JOIN_ANSWER_BYTES_MAX)];
        let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
        let mut bytes = ANSWER_MAGIC.to_vec();
        bytes.extend([outcome, 0]);
        bytes.extend(length.to_be_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }

    /// Reads one from the first bytes of a stream; `None` while it is not complete.
    ///
    /// # Errors
    /// [`JoinError`]: it is none.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, JoinError> {
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else {
            return Ok(None);
        };
        if head[..4] != ANSWER_MAGIC || head[5] != 0 {
            return Err(JoinError::Magic);
        }
        let length = usize::from(u16::from_be_bytes([head[6], head[7]]));
        if length > JOIN_ANSWER_BYTES_MAX {
            return Err(JoinError::TooLong(length));
        }
        let Some(text) = rest.get(..length) else {
            return Ok(None);
        };
        let text = std::str::from_utf8(text).map_err(|_| JoinError::Text)?;
        let text = text.to_owned();
        Ok(Some(match head[4] {
            0 => Self::Certificate(text),
            1 => Self::NotHere(text),
            2 => Self::Refused(text),
            outcome => return Err(JoinError::Outcome(outcome)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> JoinRequest {
        let mut public_key = [9; PUBLIC_KEY_BYTES];
        public_key[0] = UNCOMPRESSED;
        JoinRequest {
            role: Role::Gateway,
            token: 0x0102_0304,
            secret: [7; 16],
            public_key,
            gateway: Some("gateway-a".to_owned()),
        }
    }

    /// Goal: a request is read as it was written; one with another magic, format, role
    /// or kind of key is refused for that reason.
    #[test]
    fn requests_are_read_back_or_refused() {
        let bytes = request().encode();
        assert!(JoinRequest::decode(&bytes) == Ok(request()));
        for (at, byte, error) in [
            (0, b'Y', JoinError::Magic),
            (7, 1, JoinError::Magic),
            (4, 1, JoinError::Format(1)),
            (5, 9, JoinError::Role(9)),
            (28, 2, JoinError::Key),
            (93, b' ', JoinError::Name),
            (93, 0, JoinError::Name),
            (5, Role::Node as u8, JoinError::Name),
        ] {
            let mut wrong = bytes;
            wrong[at] = byte;
            assert!(JoinRequest::decode(&wrong) == Err(error), "byte {at}");
        }
    }

    /// Goal: an answer is read as it was written however it is cut, and nothing of a
    /// stream is believed that goes beyond the limit.
    #[test]
    fn answers_are_read_back_in_pieces() {
        for answer in [
            JoinAnswer::Certificate("-----BEGIN".to_owned()),
            JoinAnswer::NotHere(String::new()),
            JoinAnswer::Refused("\u{fc}nknown".to_owned()),
        ] {
            let bytes = answer.encode();
            for end in 0..bytes.len() {
                assert_eq!(JoinAnswer::decode(&bytes[..end]), Ok(None), "{end}");
            }
            assert_eq!(JoinAnswer::decode(&bytes), Ok(Some(answer)));
        }
        let long = JoinAnswer::Refused("\u{fc}".repeat(JOIN_ANSWER_BYTES_MAX)).encode();
        assert!(matches!(
            JoinAnswer::decode(&long),
            Ok(Some(JoinAnswer::Refused(text))) if text.len() == JOIN_ANSWER_BYTES_MAX
        ));
        let mut wrong = JoinAnswer::Refused(String::new()).encode();
        wrong[6] = 0xff;
        assert_eq!(JoinAnswer::decode(&wrong), Err(JoinError::TooLong(0xff00)));
        wrong[6..].fill(0);
        wrong[4] = 3;
        assert_eq!(JoinAnswer::decode(&wrong), Err(JoinError::Outcome(3)));
    }
}
