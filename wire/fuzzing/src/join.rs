//! What joining processes and managers say to each other: target and seeds.

use crossdock_link::Role;
use crossdock_secure::{
    Fingerprint, JOIN_ANSWER_BYTES_MAX, JoinAnswer, JoinRequest, PUBLIC_KEY_BYTES, Token,
};

use crate::Dice;

/// Reads a request, an answer and a token; what is one is written as it was read.
///
/// # Panics
/// If it is not, or an answer is beyond its limit.
pub fn join(input: &[u8]) {
    if let Ok(bytes) = input.try_into()
        && let Ok(request) = JoinRequest::decode(bytes)
    {
        assert!(request.encode()[..] == *input, "a request changed");
    }
    if let Ok(Some(answer)) = JoinAnswer::decode(input) {
        let bytes = answer.encode();
        assert!(bytes.len() <= 8 + JOIN_ANSWER_BYTES_MAX && input.starts_with(&bytes));
    }
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(token) = text.parse::<Token>()
    {
        assert!(token.reveal() == text.trim().to_ascii_lowercase());
    }
}

pub(crate) fn join_seeds() -> Vec<Vec<u8>> {
    let mut dice = Dice::new(1);
    let mut public_key = [dice.u64().to_le_bytes()[0]; PUBLIC_KEY_BYTES];
    public_key[0] = 4;
    let request = JoinRequest {
        role: Role::Gateway,
        token: 7,
        secret: [9; 16],
        public_key,
        gateway: Some("gateway-a".to_owned()),
    };
    let token = Token {
        id: 7,
        secret: [9; 16],
        authority: Fingerprint([8; 32]),
    };
    let answers = [
        JoinAnswer::Certificate("-----BEGIN CERTIFICATE-----\n".to_owned()),
        JoinAnswer::NotHere("not yet".to_owned()),
        JoinAnswer::Refused("no".to_owned()),
    ];
    let mut seeds = vec![request.encode().to_vec(), token.reveal().into_bytes()];
    seeds.extend(answers.iter().map(JoinAnswer::encode));
    seeds
}
