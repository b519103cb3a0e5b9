//! Quotas of directory trees: what a tree may hold, and what it holds.

use crossdock_names::FileRef;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a tree may hold; `None` = as much as there is room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaLimits {
    /// Bytes, as files report them (RFC 1813 `used`).
    pub bytes: Option<u64>,
    /// Files, directories, links and special files, the tree's root among them.
    pub files: Option<u64>,
}

/// What is to be different in a tree's limits: outside `None` = as it is,
/// inside `None` = no limit any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaChange {
    /// Bytes.
    #[serde(deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Option<u64>>,
    /// Files.
    #[serde(deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    pub files: Option<Option<u64>>,
}

/// A tree with a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The tree's number at its site, never used for another one.
    pub tree: u32,
    /// The directory where it begins.
    pub root: FileRef,
    /// What it may hold.
    pub limits: QuotaLimits,
    /// Bytes that it holds.
    pub used_bytes: u64,
    /// Files that it holds.
    pub used_files: u64,
}

impl QuotaChange {
    /// `limits` with what is to be different.
    #[must_use]
    pub fn apply(&self, limits: QuotaLimits) -> QuotaLimits {
        QuotaLimits {
            bytes: self.bytes.unwrap_or(limits.bytes),
            files: self.files.unwrap_or(limits.files),
        }
    }
}

impl QuotaLimits {
    /// Whether anything is limited.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.bytes.is_some() || self.files.is_some()
    }
}

/// Takes a number or null that is there: a missing one is `None`.
fn said<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A change in a format whose fields have no names: each is there, said or not.
pub(crate) mod in_place {
    use super::{Deserialize, Deserializer, QuotaChange, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(change: &QuotaChange, to: S) -> Result<S::Ok, S::Error> {
        (change.bytes, change.files).serialize(to)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<QuotaChange, D::Error> {
        let (bytes, files) = Deserialize::deserialize(from)?;
        Ok(QuotaChange { bytes, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is not said stays, null takes a limit away, and a misspelt key
    /// is refused instead of leaving a tree without its limit.
    #[test]
    fn changes_say_what_is_different() {
        let limits = QuotaLimits {
            bytes: Some(5),
            files: Some(6),
        };
        let changed = |text| {
            let change: Result<QuotaChange, _> = serde_json::from_str(text);
            change.map(|change| change.apply(limits))
        };
        assert_eq!(changed("{}").expect("nothing"), limits);
        let bytes = changed(r#"{"bytes": 7}"#).expect("bytes");
        assert_eq!((bytes.bytes, bytes.files), (Some(7), Some(6)));
        let files = changed(r#"{"files": null}"#).expect("files");
        assert_eq!((files.bytes, files.files), (Some(5), None));
        assert!(changed(r#"{"size": 7}"#).is_err() && changed(r#"{"bytes": -1}"#).is_err());
        let text = serde_json::to_string(&QuotaChange {
            bytes: Some(None),
            files: None,
        });
        assert_eq!(text.expect("text"), r#"{"bytes":null}"#);
    }
}
