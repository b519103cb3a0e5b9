//! The keys of an ensemble.
//!
//! | key | value | lease |
//! |---|---|---|
//! | `PREFIX/state` | the whole [`State`](crossdock_members::State) as JSON | none |
//! | `PREFIX/hosts/` + 16 hexadecimal digits of the host's id | nothing, or `leaves` | the host's |

use crossdock_names::HostId;

/// The value of the key of a host that ends, until its lease does.
pub(crate) const LEAVES: &[u8] = b"leaves";

/// Where an ensemble's keys are.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

/// What a key is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    State,
    Host(HostId),
}

impl Keys {
    /// Keys below `prefix`, with or without a slash at its end.
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.trim_end_matches('/').to_owned(),
        }
    }

    pub(crate) fn state(&self) -> Vec<u8> {
        format!("{}/state", self.prefix).into_bytes()
    }

    pub(crate) fn host(&self, host: HostId) -> Vec<u8> {
        format!("{}/hosts/{host}", self.prefix).into_bytes()
    }

    /// First key of all hosts, and the first one behind them: `0` follows `/`.
    pub(crate) fn hosts(&self) -> (Vec<u8>, Vec<u8>) {
        let first = format!("{}/hosts/", self.prefix).into_bytes();
        let end = format!("{}/hosts0", self.prefix).into_bytes();
        (first, end)
    }

    /// The same of all keys of the ensemble.
    pub(crate) fn all(&self) -> (Vec<u8>, Vec<u8>) {
        let first = format!("{}/", self.prefix).into_bytes();
        (first, format!("{}0", self.prefix).into_bytes())
    }

    /// What `key` is about; nothing of ours if `None`.
    pub(crate) fn parse(&self, key: &[u8]) -> Option<Subject> {
        let key = std::str::from_utf8(key).ok()?;
        let name = key.strip_prefix(&self.prefix)?.strip_prefix('/')?;
        if name == "state" {
            return Some(Subject::State);
        }
        let digits = name.strip_prefix("hosts/")?;
        let host = HostId(u64::from_str_radix(digits, 16).ok()?);
        (host.to_string() == digits).then_some(Subject::Host(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every key that we write lies in the range that is watched and is read
    /// back; those of an ensemble whose name begins alike, and foreign ones, are not ours.
    #[test]
    fn keys_are_found_again_and_foreign_ones_are_not() {
        let keys = Keys::new("/crossdock/a/");
        let (first, end) = keys.all();
        let (hosts, hosts_end) = keys.hosts();
        let host = keys.host(HostId(0xab));
        assert_eq!(host, b"/crossdock/a/hosts/00000000000000ab");
        assert!(hosts <= host && host < hosts_end && first <= hosts && hosts_end < end);
        assert!(first <= keys.state() && keys.state() < end);
        assert_eq!(keys.parse(&host), Some(Subject::Host(HostId(0xab))));
        assert_eq!(keys.parse(&keys.state()), Some(Subject::State));
        for foreign in [
            "/crossdock/a/hosts/ab",
            "/crossdock/a/hosts/00000000000000AB",
            "/crossdock/a/hosts/+0000000000000ab",
            "/crossdock/a/hosts/",
            "/crossdock/a/other",
            "/crossdock/a2/state",
        ] {
            assert_eq!(keys.parse(foreign.as_bytes()), None, "{foreign}");
        }
        let longer = Keys::new("/crossdock/a2").state();
        assert!(!(first <= longer && longer < end));
    }
}
