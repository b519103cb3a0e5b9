//! The policy of third-party transfer as the admin API tells and takes it.

use crossdock_peer::{PolicyConditions, PolicyRule, TransferMode};
use serde::{Deserialize, Serialize};

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// Its number, in eight hexadecimal digits.
    pub id: String,
    /// The file or directory that it is of, as it was called when the rule was made.
    pub path: String,
    /// Which way, and when.
    #[serde(flatten)]
    pub rule: PolicyRule,
}

/// A rule that is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySetting {
    /// The file or directory, from the volume's root on.
    pub path: String,
    /// Which way.
    pub mode: TransferMode,
    /// When.
    #[serde(default)]
    pub when: PolicyConditions,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a rule says what is said, and a misspelt condition is refused instead of
    /// holding always.
    #[test]
    fn settings_are_read() {
        let text = r#"{"path": "/a", "mode": "redirect", "when": {"door": "http"}}"#;
        let setting: PolicySetting = serde_json::from_str(text).expect("a setting");
        assert_eq!(setting.mode, TransferMode::Redirect);
        assert_eq!(setting.when.count(), 1);
        for wrong in [
            r#"{"path": "/a", "mode": "send"}"#,
            r#"{"path": "/a"}"#,
            r#"{"path": "/a", "mode": "inject", "when": {"from": 4096}}"#,
            r#"{"path": "/a", "mode": "inject", "door": "http"}"#,
        ] {
            assert!(
                serde_json::from_str::<PolicySetting>(wrong).is_err(),
                "{wrong}"
            );
        }
    }
}
