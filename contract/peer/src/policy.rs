//! Which way the bytes of long replies go to clients (SPIRAL section 2): rules that an
//! administrator gives exports, directories and files, as the registry keeps them and the
//! doors of gateways apply them.
//!
//! All ways give a client the same bytes. A rule says which one is tried; what it takes may
//! not be there, and the gateway sends then.

use std::fmt;
use std::net::IpAddr;

use crossdock_limits::{INJECTED_HTTP_BYTES_MIN, INJECTED_NFS_BYTES_MIN, INJECTED_UDP_BYTES_MIN};
use crossdock_names::FileRef;
use serde::{Deserialize, Serialize};

use crate::Network;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferMode {
    /// The gateway gets the bytes, and sends them.
    Relay,
    /// The client is sent to the node that has them (HTTP 307); where there is not one that
    /// has all of them, as [`TransferMode::Inject`].
    Redirect,
    /// The node sends them inside the client's connection.
    Inject,
}

/// A client protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkDoor {
    /// NFS, over TCP or UDP.
    Nfs,
    /// HTTP.
    Http,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkRequest {
    /// READ of NFS.
    Read,
    /// GET of a whole file.
    Get,
    /// GET of ranges.
    Range,
}

/// When a rule counts: everything that is said has to be so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConditions {
    /// Of this door.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub door: Option<BulkDoor>,
    /// Of this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<BulkRequest>,
    /// Replies of at least so many bytes of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_bytes: Option<u64>,
    /// Replies of fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below_bytes: Option<u64>,
    /// Clients of this network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Network>,
    /// Files that are read again and again, or those that are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot: Option<bool>,
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRule {
    /// Which way.
    pub mode: TransferMode,
    /// When.
    #[serde(default)]
    pub when: PolicyConditions,
}

/// A reply that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkReply {
    /// Through which door.
    pub door: BulkDoor,
    /// To what.
    pub request: BulkRequest,
    /// How many bytes of the file.
    pub length_bytes: u64,
    /// To whom.
    pub client: IpAddr,
    /// Whether the file is read again and again.
    pub is_hot: bool,
    /// Whether it is one datagram.
    pub is_datagram: bool,
}

/// What the policy says of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which way.
    pub mode: TransferMode,
    /// Whether a rule says so, and not only the reply's length.
    pub is_by_rule: bool,
}

/// Bytes of files that a door has had relayed in connections in which nodes may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayedBytes {
    /// In short replies.
    pub short_bytes: u64,
    /// Of files that are read again and again.
    pub hot_bytes: u64,
    /// As rules have it.
    pub by_rule_bytes: u64,
}

/// What the doors of a gateway go by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// All rules, each with the file or directory that it is of, in the order in which they
    /// were made.
    pub rules: Vec<(FileRef, PolicyRule)>,
    /// Longest file that the gateway keeps when it is read again and again, in bytes; 0: it
    /// keeps nothing.
    pub hot_file_bytes_max: u64,
}

impl RelayedBytes {
    /// So many bytes of a reply are relayed, as the policy has chosen.
    pub const fn note(&mut self, choice: Choice, is_hot: bool, bytes: u64) {
        match (choice.is_by_rule, is_hot) {
            (true, _) => self.by_rule_bytes += bytes,
            (false, true) => self.hot_bytes += bytes,
            (false, false) => self.short_bytes += bytes,
        }
    }
}

impl PolicyConditions {
    /// Whether all that is said is so.
    #[must_use]
    pub fn hold(&self, reply: &BulkReply) -> bool {
        self.door.is_none_or(|door| door == reply.door)
            && self.request.is_none_or(|request| request == reply.request)
            && self
                .from_bytes
                .is_none_or(|from| from <= reply.length_bytes)
            && self
                .below_bytes
                .is_none_or(|below| reply.length_bytes < below)
            && self
                .clients
                .is_none_or(|clients| clients.contains(reply.client))
            && self.hot.is_none_or(|hot| hot == reply.is_hot)
    }

    /// How many things are said.
    #[must_use]
    pub fn count(&self) -> usize {
        [
            self.door.is_some(),
            self.request.is_some(),
            self.from_bytes.is_some(),
            self.below_bytes.is_some(),
            self.clients.is_some(),
            self.hot.is_some(),
        ]
        .into_iter()
        .filter(|is_said| *is_said)
        .count()
    }
}

impl Policy {
    /// Whether there are no rules.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Which way a reply goes. `places` are the file, and what it lies in, from the inside
    /// out.
    ///
    /// The rules of the innermost place that has one that counts say it; among these the one
    /// with the most conditions, then the newest. Without one: nodes send what is long
    /// enough to be worth it, and the gateway what is read again and again.
    pub fn choose(&self, places: impl IntoIterator<Item = FileRef>, reply: &BulkReply) -> Choice {
        let by_length = Choice {
            mode: mode_by_length(reply),
            is_by_rule: false,
        };
        if self.is_empty() {
            return by_length;
        }
        for place in places {
            let here = self.rules.iter().filter(|(of, _)| *of == place);
            let rules = here.map(|(_, rule)| rule);
            let counting = rules.filter(|rule| rule.when.hold(reply));
            // Of equal ones the last.
            if let Some(rule) = counting.max_by_key(|rule| rule.when.count()) {
                return Choice {
                    mode: rule.mode,
                    is_by_rule: true,
                };
            }
        }
        by_length
    }
}

/// From which length on nodes are worth it was measured (docs/performance.md).
const fn mode_by_length(reply: &BulkReply) -> TransferMode {
    let least = match reply.door {
        BulkDoor::Nfs if reply.is_datagram => INJECTED_UDP_BYTES_MIN,
        BulkDoor::Nfs => INJECTED_NFS_BYTES_MIN,
        BulkDoor::Http => INJECTED_HTTP_BYTES_MIN,
    };
    if reply.length_bytes >= least && !reply.is_hot {
        TransferMode::Inject
    } else {
        TransferMode::Relay
    }
}

impl fmt::Display for TransferMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relay => "relay",
            Self::Redirect => "redirect",
            Self::Inject => "inject",
        })
    }
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;

    use super::*;

    const REPLY: BulkReply = BulkReply {
        door: BulkDoor::Http,
        request: BulkRequest::Get,
        length_bytes: 1 << 20,
        client: IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 7)),
        is_hot: false,
        is_datagram: false,
    };

    fn place(number: u64) -> FileRef {
        FileRef {
            id: FileId(number),
            generation: 1,
        }
    }

    fn rule(mode: TransferMode, when: &str) -> PolicyRule {
        let when = serde_json::from_str(when).expect("conditions");
        PolicyRule { mode, when }
    }

    /// Goal: without rules a reply's length says which way it goes.
    #[test]
    fn long_replies_are_injected() {
        let policy = Policy::default();
        for (door, is_datagram, least) in [
            (BulkDoor::Http, false, INJECTED_HTTP_BYTES_MIN),
            (BulkDoor::Nfs, false, INJECTED_NFS_BYTES_MIN),
            (BulkDoor::Nfs, true, INJECTED_UDP_BYTES_MIN),
        ] {
            let of = |length_bytes| {
                let reply = BulkReply {
                    door,
                    is_datagram,
                    length_bytes,
                    ..REPLY
                };
                policy.choose([place(1)], &reply).mode
            };
            assert_eq!(of(least), TransferMode::Inject);
            assert_eq!(of(least - 1), TransferMode::Relay);
            let hot = BulkReply {
                door,
                is_hot: true,
                ..REPLY
            };
            assert_eq!(policy.choose([], &hot).mode, TransferMode::Relay);
        }
    }

    /// Goal: each condition is looked at, and all have to hold.
    #[test]
    fn every_condition_counts() {
        for (when, holds) in [
            (r#"{}"#, true),
            (r#"{"door": "http"}"#, true),
            (r#"{"door": "nfs"}"#, false),
            (r#"{"request": "get"}"#, true),
            (r#"{"request": "range"}"#, false),
            (r#"{"from_bytes": 1048576}"#, true),
            (r#"{"from_bytes": 1048577}"#, false),
            (r#"{"below_bytes": 1048577}"#, true),
            (r#"{"below_bytes": 1048576}"#, false),
            (r#"{"clients": "198.18.0.0/15"}"#, true),
            (r#"{"clients": "10.0.0.0/8"}"#, false),
            (r#"{"hot": false}"#, true),
            (r#"{"hot": true}"#, false),
            (r#"{"door": "http", "hot": true}"#, false),
        ] {
            let rule = rule(TransferMode::Relay, when);
            assert_eq!(rule.when.hold(&REPLY), holds, "{when}");
            let said = when.matches(':').count();
            assert_eq!(rule.when.count(), said, "{when}");
        }
        assert!(serde_json::from_str::<PolicyConditions>(r#"{"doors": "nfs"}"#).is_err());
    }

    /// Goal: the innermost place decides, there the rule that says most, of equal ones the
    /// newest; rules that do not count leave it to the next place.
    #[test]
    fn the_nearest_rule_decides() {
        let (file, directory, root) = (place(3), place(2), place(1));
        let rules = vec![
            (root, rule(TransferMode::Relay, "{}")),
            (directory, rule(TransferMode::Inject, r#"{"door": "http"}"#)),
            (
                directory,
                rule(
                    TransferMode::Redirect,
                    r#"{"door": "http", "request": "range"}"#,
                ),
            ),
            (file, rule(TransferMode::Relay, r#"{"hot": true}"#)),
            (file, rule(TransferMode::Inject, r#"{"hot": true}"#)),
        ];
        let policy = Policy {
            rules,
            ..Policy::default()
        };
        let mode = |reply: BulkReply| policy.choose([file, directory, root], &reply).mode;
        assert_eq!(mode(REPLY), TransferMode::Inject);
        let range = BulkReply {
            request: BulkRequest::Range,
            ..REPLY
        };
        assert_eq!(mode(range), TransferMode::Redirect);
        let read = BulkReply {
            door: BulkDoor::Nfs,
            request: BulkRequest::Read,
            ..REPLY
        };
        assert_eq!(mode(read), TransferMode::Relay, "the root's");
        let hot = BulkReply {
            is_hot: true,
            ..read
        };
        assert_eq!(mode(hot), TransferMode::Inject, "the file's newest");
        let elsewhere = policy.choose([], &REPLY);
        assert_eq!(elsewhere.mode, TransferMode::Inject);
        assert!(!elsewhere.is_by_rule && policy.choose([root], &REPLY).is_by_rule);
    }
}
