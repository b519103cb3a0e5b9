//! Bearer tokens of the HTTP door: who may do what is kept here, never by what secret.

use crossdock_limits::WEB_TOKENS_MAX;
use crossdock_web::TokenRecord;

use crate::state::{Conflict, State};

impl State {
    /// Those that have ended when a new one is made are forgotten.
    pub(crate) fn add_web_token(&mut self, record: TokenRecord) -> Result<(), Conflict> {
        let tokens = &mut self.web_tokens;
        tokens.retain(|known| known.expires > record.created);
        if tokens.contains(&record) {
            return Ok(()); // The answer was lost.
        }
        if let Some(known) = tokens.iter().find(|known| known.name == record.name) {
            let name = known.name.clone();
            return Err(Conflict::TokenName { name });
        }
        if tokens.iter().any(|known| known.id == record.id) {
            let what = format!("token {:08x}", record.id);
            return Err(Conflict::Exists { what });
        }
        if tokens.len() >= WEB_TOKENS_MAX {
            let what = format!("{WEB_TOKENS_MAX} tokens");
            return Err(Conflict::Full { what });
        }
        tokens.push(record);
        Ok(())
    }

    pub(crate) fn remove_web_token(&mut self, id: u32) -> Result<(), Conflict> {
        let at = self.web_tokens.iter().position(|known| known.id == id);
        let at = at.ok_or_else(|| Conflict::Unknown {
            what: format!("token {id:08x}"),
        })?;
        self.web_tokens.remove(at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    fn record(id: u32, created: u64) -> TokenRecord {
        TokenRecord {
            id,
            name: format!("t{id}"),
            digest: [1; 32],
            reads: true,
            writes: false,
            path: "/dir".parse().expect("a path"),
            uid: 0,
            gid: 0,
            created,
            expires: created + 10,
        }
    }

    fn add(state: &mut State, record: TokenRecord) -> Result<(), Conflict> {
        state.apply(Change::AddWebToken { record })
    }

    /// Goal: a token is added once, under a name and a number of its own; it is forgotten
    /// when it is revoked or has ended; there is a bound; routing does not hang on it.
    #[test]
    fn tokens_come_and_go() {
        let mut state = State::fresh(1, 2, &[10], 1, 1);
        let epoch = state.table_epoch;
        assert_eq!(add(&mut state, record(7, 0)), Ok(()));
        assert_eq!(add(&mut state, record(7, 0)), Ok(()), "the answer was lost");
        let mut same_name = record(8, 1);
        same_name.name = "t7".to_owned();
        let refused = add(&mut state, same_name.clone());
        assert!(matches!(refused, Err(Conflict::TokenName { name }) if name == "t7"));
        let mut same_id = record(7, 1);
        same_id.name = "other".to_owned();
        assert!(matches!(
            add(&mut state, same_id),
            Err(Conflict::Exists { .. })
        ));
        let remove = Change::RemoveWebToken { id: 7 };
        assert_eq!(state.apply(remove.clone()), Ok(()));
        let again = state.apply(remove);
        assert!(again.is_err_and(|error| error.to_string().contains("token 00000007")));
        assert_eq!(add(&mut state, same_name), Ok(()), "the name is free again");
        for id in 1..256 {
            assert_eq!(add(&mut state, record(100 + id, 5)), Ok(()));
        }
        assert!(matches!(
            add(&mut state, record(2000, 5)),
            Err(Conflict::Full { .. })
        ));
        assert_eq!(
            add(&mut state, record(2000, 15)),
            Ok(()),
            "the others have ended"
        );
        assert_eq!((state.web_tokens.len(), state.table_epoch), (1, epoch));
    }

    /// Goal: a state of an earlier version is read, and one without tokens is written as
    /// that version wrote it; changes come back from a log.
    #[test]
    fn older_states_are_read() {
        let mut state = State::fresh(1, 2, &[10], 1, 1);
        let old = serde_json::to_string(&state).expect("JSON");
        assert!(!old.contains("web_tokens"));
        assert_eq!(serde_json::from_str::<State>(&old).expect("a state"), state);
        let change = Change::AddWebToken {
            record: record(7, 0),
        };
        let logged = serde_json::to_string(&change).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Change>(&logged).expect("a change"),
            change
        );
        state.apply(change).expect("is new");
        let new = serde_json::to_string(&state).expect("JSON");
        assert_eq!(serde_json::from_str::<State>(&new).expect("a state"), state);
    }
}
