//! How the processes of an ensemble know each other, where they talk over TLS: the
//! authority's certificate, and the tokens for those that have none of their own yet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::{Conflict, State};

/// Tokens that hold at a time: more are a mistake.
pub const TOKENS_MAX: usize = 1024;

/// Whom the processes of an ensemble believe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustRecord {
    /// The authority's certificate, as PEM. Its key is not here.
    pub authority: String,
    /// Tokens by id.
    #[serde(default)]
    pub tokens: BTreeMap<u32, TokenRecord>,
}

/// What lets processes in for some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// A hash of its secret.
    pub digest: [u8; 32],
    /// What who has it may become: the number of a role; `None`: anything.
    pub role: Option<u8>,
    /// The gateway that it is for, if for one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// When it ends, in seconds since 1970.
    pub ends: u64,
}

impl State {
    /// Those that have ended when a new one is made are forgotten.
    pub(crate) fn add_token(&mut self, id: u32, record: TokenRecord) -> Result<(), Conflict> {
        let tokens = &mut self.trust.as_mut().ok_or(Conflict::NoTrust)?.tokens;
        tokens.retain(|_, known| known.ends > record.made);
        match tokens.get(&id) {
            Some(known) if *known == record => Ok(()),
            Some(_) => Err(Conflict::Tokens),
            None if tokens.len() >= TOKENS_MAX => Err(Conflict::Tokens),
            None => {
                tokens.insert(id, record);
                Ok(())
            }
        }
    }

    pub(crate) fn remove_token(&mut self, id: u32) -> Result<(), Conflict> {
        let tokens = &mut self.trust.as_mut().ok_or(Conflict::NoTrust)?.tokens;
        tokens
            .remove(&id)
            .map(|_| ())
            .ok_or_else(|| Conflict::Unknown {
                what: format!("token {id:08x}"),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    fn token(made: u64) -> TokenRecord {
        TokenRecord {
            digest: [1; 32],
            role: None,
            gateway: None,
            made,
            ends: made + 10,
        }
    }

    /// Goal: a token is added once, is forgotten when it is revoked or has ended, there
    /// is a bound, and routing does not hang on any of it.
    #[test]
    fn tokens_come_and_go() {
        let mut state = State::fresh(1, 2, &[10], 1, 1);
        let add = |id, made| Change::AddToken {
            id,
            record: token(made),
        };
        assert_eq!(state.apply(add(7, 0)), Err(Conflict::NoTrust));
        state.trust = Some(TrustRecord {
            authority: String::new(),
            tokens: BTreeMap::new(),
        });
        let epoch = state.table_epoch;
        assert_eq!(state.apply(add(7, 0)), Ok(()));
        assert_eq!(state.apply(add(7, 0)), Ok(()), "the answer was lost");
        assert_eq!(state.apply(add(7, 1)), Err(Conflict::Tokens));
        assert_eq!(state.apply(Change::RemoveToken { id: 7 }), Ok(()));
        let again = state.apply(Change::RemoveToken { id: 7 });
        assert!(again.is_err_and(|error| error.to_string().contains("token 00000007")));
        for id in 0..1024 {
            assert_eq!(state.apply(add(id, 5)), Ok(()));
        }
        assert_eq!(state.apply(add(2000, 5)), Err(Conflict::Tokens));
        assert_eq!(state.apply(add(2000, 15)), Ok(()));
        let known = state.trust.as_ref().map(|trust| trust.tokens.len());
        assert_eq!((known, state.table_epoch), (Some(1), epoch));
    }
}
