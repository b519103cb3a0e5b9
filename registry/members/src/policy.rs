//! The policy of third-party transfer: which way the bytes of which files go to clients.

use crossdock_limits::POLICY_RULES_MAX;
use crossdock_peer::PolicyRule;
use serde::{Deserialize, Serialize};

use crate::state::{Conflict, DirectoryRecord, State};

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// Its number: random, so that two who make rules at once need not agree.
    pub id: u32,
    /// Where its file or directory was when it was made.
    pub path: String,
    /// That file or directory, wherever it is now.
    pub place: DirectoryRecord,
    /// What counts there, and below.
    pub rule: PolicyRule,
}

impl PolicyRecord {
    /// Whether both are about the same, and only one can count.
    #[must_use]
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        self.place == other.place && self.rule.when == other.rule.when
    }
}

impl State {
    /// The newest is the last.
    pub(crate) fn set_policy(&mut self, record: PolicyRecord) -> Result<(), Conflict> {
        let rules = &mut self.policy;
        if rules.contains(&record) {
            return Ok(()); // The answer was lost.
        }
        let others = rules
            .iter()
            .filter(|known| !known.is_about_the_same(&record));
        if others.clone().any(|known| known.id == record.id) {
            let what = format!("rule {:08x}", record.id);
            return Err(Conflict::Exists { what });
        }
        if others.count() >= POLICY_RULES_MAX {
            let what = format!("{POLICY_RULES_MAX} rules");
            return Err(Conflict::Full { what });
        }
        rules.retain(|known| !known.is_about_the_same(&record));
        rules.push(record);
        Ok(())
    }

    pub(crate) fn remove_policy(&mut self, id: u32) -> Result<(), Conflict> {
        let at = self.policy.iter().position(|known| known.id == id);
        let at = at.ok_or_else(|| Conflict::Unknown {
            what: format!("rule {id:08x}"),
        })?;
        self.policy.remove(at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crossdock_peer::{PolicyConditions, TransferMode};

    use super::*;
    use crate::Change;

    fn record(id: u32, file: u64, mode: TransferMode, from_bytes: Option<u64>) -> PolicyRecord {
        PolicyRecord {
            id,
            path: format!("/{file}"),
            place: DirectoryRecord {
                file,
                generation: 1,
            },
            rule: PolicyRule {
                mode,
                when: PolicyConditions {
                    from_bytes,
                    ..PolicyConditions::default()
                },
            },
        }
    }

    fn set(state: &mut State, record: PolicyRecord) -> Result<(), Conflict> {
        state.apply(Change::SetPolicy { record })
    }

    /// Goal: a rule takes the place of the one that said something else of the same; numbers
    /// are nobody else's; there is a bound; routing does not hang on it.
    #[test]
    fn rules_come_and_go() {
        let mut state = State::fresh(1, 2, &[10], 1, 1);
        let epoch = state.table_epoch;
        let relay = record(7, 1, TransferMode::Relay, None);
        let inject = record(8, 1, TransferMode::Inject, None);
        let long = record(9, 1, TransferMode::Inject, Some(4096));
        assert_eq!(set(&mut state, relay.clone()), Ok(()));
        assert_eq!(set(&mut state, relay), Ok(()), "the answer was lost");
        assert_eq!(set(&mut state, long.clone()), Ok(()));
        assert_eq!(set(&mut state, inject.clone()), Ok(()));
        assert_eq!(state.policy, [long, inject]);
        let same_number = record(9, 2, TransferMode::Relay, None);
        assert!(matches!(
            set(&mut state, same_number),
            Err(Conflict::Exists { .. })
        ));
        assert_eq!(state.apply(Change::RemovePolicy { id: 9 }), Ok(()));
        let again = state.apply(Change::RemovePolicy { id: 9 });
        assert!(again.is_err_and(|error| error.to_string().contains("rule 00000009")));
        for id in 1..256 {
            let more = record(100 + id, 3, TransferMode::Relay, Some(id.into()));
            assert_eq!(set(&mut state, more), Ok(()));
        }
        let full = record(2000, 4, TransferMode::Relay, None);
        assert!(matches!(set(&mut state, full), Err(Conflict::Full { .. })));
        let other = record(2000, 1, TransferMode::Relay, None);
        assert_eq!(set(&mut state, other), Ok(()), "in place of another");
        assert_eq!((state.policy.len(), state.table_epoch), (256, epoch));
    }

    /// Goal: a state of an earlier version is read, and one without rules is written as
    /// that version wrote it; changes come back from a log.
    #[test]
    fn older_states_are_read() {
        let mut state = State::fresh(1, 2, &[10], 1, 1);
        let old = serde_json::to_string(&state).expect("JSON");
        assert!(!old.contains("policy"));
        assert_eq!(serde_json::from_str::<State>(&old).expect("a state"), state);
        let change = Change::SetPolicy {
            record: record(7, 1, TransferMode::Redirect, Some(1)),
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
