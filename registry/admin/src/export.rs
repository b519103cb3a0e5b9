//! Exports as the admin API tells and takes them.

use crossdock_peer::{ExportRules, Network, Squash};
use serde::{Deserialize, Serialize};

/// An export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// Its number, never used for another one.
    pub id: u32,
    /// What clients mount.
    pub path: String,
    /// Who may do what.
    #[serde(flatten)]
    pub rules: ExportRules,
}

/// A directory that is to be exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportAddition {
    /// The directory, from the volume's root on.
    pub path: String,
    /// What differs from [`ExportRules::local`].
    #[serde(default)]
    pub rules: ExportChange,
}

/// What is to be different in an export's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExportChange {
    /// Which clients are let in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networks: Option<Vec<Network>>,
    /// Whether nothing may be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Who is somebody else here than at home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub squash: Option<Squash>,
    /// Whether calls from unprivileged ports are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged_ports_only: Option<bool>,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportAnswer {
    /// The export as it is now, or was before it was removed.
    pub export: ExportStatus,
    /// What the administrator should know about it.
    pub notes: Vec<String>,
}

impl ExportChange {
    /// `rules` with what is to be different.
    #[must_use]
    pub fn apply(self, rules: ExportRules) -> ExportRules {
        let Self {
            networks,
            read_only,
            squash,
            privileged_ports_only,
        } = self;
        ExportRules {
            networks: networks.unwrap_or(rules.networks),
            read_only: read_only.unwrap_or(rules.read_only),
            squash: squash.unwrap_or(rules.squash),
            privileged_ports_only: privileged_ports_only.unwrap_or(rules.privileged_ports_only),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a change says only what is different, and a misspelt key is refused
    /// instead of leaving an export more open than it was meant.
    #[test]
    fn changes_say_what_is_different() {
        let text = r#"{"path": "/a", "rules": {"networks": ["10.0.0.0/8"], "read_only": true}}"#;
        let addition: ExportAddition = serde_json::from_str(text).expect("an addition");
        let rules = addition.rules.apply(ExportRules::local());
        let expected = ExportRules {
            networks: vec!["10.0.0.0/8".parse().expect("a network")],
            read_only: true,
            ..ExportRules::local()
        };
        assert_eq!(rules, expected);
        for wrong in [
            r#"{"path": "/a", "rules": {"readonly": true}}"#,
            r#"{"path": "/a", "read_only": true}"#,
            r#"{"path": "/a", "rules": {"networks": ["0.0.0.0/0"]}}"#,
        ] {
            assert!(serde_json::from_str::<ExportAddition>(wrong).is_err());
        }
    }
}
