//! Exports: which part of the volume which clients may use, and as whom.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crossdock_names::{ExportId, FileRef};
use crossdock_peer::Squash;
use thiserror::Error;

/// Ports below this can only be bound by the super user of a client.
const PRIVILEGED_PORT_END: u16 = 1024;

/// A part of the volume that clients may mount.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its number, which handles carry.
    pub id: ExportId,
    /// What clients mount: `/`, or names behind slashes.
    pub path: Vec<u8>,
    /// The directory that is mounted.
    pub root: FileRef,
    /// Which clients are let in.
    pub networks: Vec<Network>,
    /// Whether nothing may be changed.
    pub read_only: bool,
    /// Who is somebody else here than at home.
    pub squash: Squash,
    /// Whether calls from ports that any user of the client can bind are refused.
    pub privileged_ports_only: bool,
}

impl Export {
    /// An export for this machine only, readable and writable, without squash.
    #[must_use]
    pub fn local(id: ExportId, path: &[u8], root: FileRef) -> Self {
        Self {
            id,
            path: path.to_vec(),
            root,
            networks: Network::loopback(),
            read_only: false,
            squash: Squash::None,
            privileged_ports_only: false,
        }
    }

    /// Whether `client` may use it.
    #[must_use]
    pub fn admits(&self, client: SocketAddr) -> bool {
        let address = client.ip();
        self.networks
            .iter()
            .any(|network| network.contains(address))
            && (!self.privileged_ports_only || client.port() < PRIVILEGED_PORT_END)
    }

    /// The names that lead from its root to `path`, if `path` lies in it.
    pub(crate) fn below<'a>(&self, path: &'a [u8]) -> Option<impl Iterator<Item = &'a [u8]>> {
        let mut rest = names(path);
        let is_prefix = names(&self.path).all(|name| rest.next() == Some(name));
        is_prefix.then_some(rest)
    }
}

/// The names of a path; empty ones and `.` lead nowhere.
pub(crate) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
}

/// Addresses that begin with the same bits, written `10.1.0.0/16` or `::1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// Why a text is no [`Network`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NetworkError {
    /// The part before the slash.
    #[error("{0:?} is no IP address")]
    Address(String),
    /// The part after the slash.
    #[error("{0:?} is no prefix length of that kind of address")]
    Prefix(String),
}

impl Network {
    /// The addresses whose first `prefix_bits` are those of `address`; `None`
    /// if it does not have that many.
    #[must_use]
    pub fn new(address: IpAddr, prefix_bits: u8) -> Option<Self> {
        (prefix_bits <= bits_of(address)).then_some(Self {
            address,
            prefix_bits,
        })
    }

    /// The addresses of this machine only.
    #[must_use]
    pub fn loopback() -> Vec<Self> {
        vec![
            Self {
                address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)),
                prefix_bits: 8,
            },
            Self {
                address: IpAddr::V6(Ipv6Addr::LOCALHOST),
                prefix_bits: 128,
            },
        ]
    }

    /// Whether `address` is one of them. An IPv4 address that comes through an
    /// IPv6 socket is an IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = u32::from(self.prefix_bits);
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differing = ours.to_bits() ^ theirs.to_bits();
                differing.checked_shr(32 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differing = ours.to_bits() ^ theirs.to_bits();
                differing.checked_shr(128 - bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

const fn bits_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let no_address = |_| NetworkError::Address(address.to_owned());
        let address: IpAddr = address.parse().map_err(no_address)?;
        let Some(prefix) = prefix else {
            return Ok(Self {
                address,
                prefix_bits: bits_of(address),
            });
        };
        let bits = prefix.parse().ok();
        bits.and_then(|bits| Self::new(address, bits))
            .ok_or_else(|| NetworkError::Prefix(prefix.to_owned()))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;

    use super::*;

    /// Goal: a network holds exactly the addresses with its prefix, also those
    /// that are wrapped in IPv6; nonsense is refused with its reason.
    #[test]
    fn networks_hold_their_prefix() {
        let cases = [
            ("127.0.0.0/8", "127.9.9.9", true),
            ("127.0.0.0/8", "128.0.0.1", false),
            ("127.0.0.0/8", "::ffff:127.0.0.1", true),
            ("0.0.0.0/0", "9.9.9.9", true),
            ("0.0.0.0/0", "::1", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("::1", "::1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
        ];
        for (network, address, is_in) in cases {
            let network: Network = network.parse().expect("a network");
            let address = address.parse().expect("an address");
            assert_eq!(network.contains(address), is_in, "{network} {address}");
        }
        let error = |text: &str| text.parse::<Network>().expect_err("nonsense");
        assert_eq!(error("x/8"), NetworkError::Address(String::from("x")));
        assert_eq!(
            error("1.2.3.4/33"),
            NetworkError::Prefix(String::from("33"))
        );
    }

    /// Goal: a path belongs to an export by whole names.
    #[test]
    fn paths_match_by_names() {
        let root = FileRef {
            id: FileId(1),
            generation: 1,
        };
        let export = Export::local(ExportId(1), b"/data/a", root);
        let below = |path| export.below(path).map(|names| names.collect::<Vec<_>>());
        assert_eq!(below(b"/data/a"), Some(vec![]));
        assert_eq!(below(b"//data/./a/b/c/"), Some(vec![&b"b"[..], b"c"]));
        assert_eq!(below(b"/data/ab"), None);
        assert_eq!(below(b"/"), None);
    }
}
