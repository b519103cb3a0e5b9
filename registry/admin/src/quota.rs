//! Quotas as the admin API tells and takes them.

use crossdock_peer::QuotaChange;
use serde::{Deserialize, Serialize};

/// A tree with a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaStatus {
    /// File id of the directory where it begins: the quota's number.
    pub id: u64,
    /// Where that lies now, from the volume's root on.
    pub path: String,
    /// Bytes that it may hold; null: as many as there is room for.
    pub bytes: Option<u64>,
    /// Bytes that it holds.
    pub used_bytes: u64,
    /// How many of 100 that is.
    pub percent_bytes: Option<u64>,
    /// Files that it may hold, directories and links among them.
    pub files: Option<u64>,
    /// Files that it holds.
    pub used_files: u64,
    /// How many of 100 that is.
    pub percent_files: Option<u64>,
}

/// A quota that is to be set; what is not named stays, null takes a limit away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaSetting {
    /// The directory, from the volume's root on.
    pub path: String,
    /// What is to be different; of a new quota, from no limits.
    #[serde(default)]
    pub limits: QuotaChange,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaAnswer {
    /// The quota as it is now, or was before it was removed.
    pub quota: QuotaStatus,
    /// What the administrator should know about it.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a misspelt key is refused instead of leaving a tree without limit.
    #[test]
    fn settings_are_read() {
        let text = r#"{"path": "/a", "limits": {"bytes": 5, "files": null}}"#;
        let setting: QuotaSetting = serde_json::from_str(text).expect("a setting");
        let limits = QuotaChange {
            bytes: Some(Some(5)),
            files: Some(None),
        };
        assert_eq!(setting.limits, limits);
        for wrong in [
            r#"{"path": "/a", "bytes": 5}"#,
            r#"{"path": "/a", "limits": {"byte": 5}}"#,
            r#"{"limits": {"bytes": 5}}"#,
        ] {
            assert!(serde_json::from_str::<QuotaSetting>(wrong).is_err());
        }
    }
}
