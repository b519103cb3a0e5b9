//! Networks: which addresses an export lets in.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What stands for every address there is.
const EVERYBODY: &str = "everybody";

/// Bits that an IPv4 address has before it when it is wrapped in IPv6.
const MAPPED_BITS: u8 = 96;

/// Addresses that begin with the same bits, written `10.1.0.0/16` or `::1`, or
/// all there are, written `everybody`: whoever lets everybody in has said so in
/// words, and not by a prefix of no bits (invariant 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    /// `None`: everybody.
    prefix: Option<Prefix>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    address: IpAddr,
    bits: u8, // At least 1.
}

/// Why a text is no [`Network`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NetworkError {
    /// The part before the slash.
    #[error("{0:?} is no IP address; write like 10.1.0.0/16, fd00::/8 or 192.168.1.7")]
    Address(String),
    /// The part after the slash.
    #[error(
        "{0:?} is no prefix length of that kind of address; an IPv4 one has 1 to 32, an IPv6 one 1 to 128"
    )]
    Prefix(String),
    /// No bits at all.
    #[error("{0} lets in everybody; if that is meant, write `everybody`")]
    NotInWords(String),
}

impl Network {
    /// Every address, of both kinds.
    pub const EVERYBODY: Self = Self { prefix: None };

    /// The addresses of this machine only.
    #[must_use]
    pub fn loopback() -> Vec<Self> {
        let prefix = |address, bits| Self {
            prefix: Some(Prefix { address, bits }),
        };
        vec![
            prefix(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
            prefix(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
        ]
    }

    /// Whether `address` is one of them. An IPv4 address that comes through an
    /// IPv6 socket is an IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let Some(Prefix {
            address: ours,
            bits,
        }) = self.prefix
        else {
            return true;
        };
        let bits = u32::from(bits);
        match (ours, address.to_canonical()) {
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

    /// Whether it holds addresses of other machines.
    #[must_use]
    pub const fn is_beyond_loopback(&self) -> bool {
        match self.prefix {
            None => true,
            Some(Prefix {
                address: IpAddr::V4(address),
                bits,
            }) => !address.is_loopback() || bits < 8,
            Some(Prefix {
                address: IpAddr::V6(address),
                bits,
            }) => !address.is_loopback() || bits < 128,
        }
    }
}

impl Prefix {
    /// The prefix of `bits` bits of `address`, without the bits behind it; an
    /// IPv4 network that is wrapped in IPv6 is an IPv4 network.
    fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let (address, bits) = match address.to_canonical() {
            plain @ IpAddr::V4(_) if address.is_ipv6() && bits >= MAPPED_BITS => {
                (plain, bits - MAPPED_BITS)
            }
            _ => (address, bits),
        };
        let behind = bits_of(address).checked_sub(bits)?;
        let address = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(behind.into()).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(behind.into()).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Some(Self { address, bits })
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
        if text == EVERYBODY {
            return Ok(Self::EVERYBODY);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        // People who are used to addresses with ports write brackets.
        let plain = address
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let no_address = |_| NetworkError::Address(address.to_owned());
        let parsed: IpAddr = plain.unwrap_or(address).parse().map_err(no_address)?;
        let prefix = match bits {
            None => Prefix::new(parsed, bits_of(parsed)),
            Some(bits) => bits.parse().ok().and_then(|bits| Prefix::new(parsed, bits)),
        };
        match prefix {
            None => Err(NetworkError::Prefix(bits.unwrap_or_default().to_owned())),
            Some(Prefix { bits: 0, .. }) => Err(NetworkError::NotInWords(text.to_owned())),
            prefix => Ok(Self { prefix }),
        }
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Self, NetworkError> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix {
            None => formatter.write_str(EVERYBODY),
            Some(Prefix { address, bits }) => write!(formatter, "{address}/{bits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect("a network")
    }

    /// Goal: a network holds exactly the addresses with its prefix, also those
    /// that are wrapped in IPv6.
    #[test]
    fn networks_hold_their_prefix() {
        let cases = [
            ("127.0.0.0/8", "127.9.9.9", true),
            ("127.0.0.0/8", "128.0.0.1", false),
            ("127.0.0.0/8", "::ffff:127.0.0.1", true),
            ("everybody", "9.9.9.9", true),
            ("everybody", "2001:db8::1", true),
            ("0.0.0.0/1", "::1", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("10.1.2.3/16", "10.1.9.9", true),
            ("::1", "::1", true),
            ("[::1]", "::1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
        ];
        for (text, address, is_in) in cases {
            let address = address.parse().expect("an address");
            assert_eq!(network(text).contains(address), is_in, "{text} {address}");
        }
    }

    /// Goal: nonsense is refused with its reason, and so is everybody unless it
    /// is said in words.
    #[test]
    fn everybody_has_to_be_said_in_words() {
        let error = |text: &str| text.parse::<Network>().expect_err("nonsense");
        assert_eq!(error("x/8"), NetworkError::Address(String::from("x")));
        for (text, bits) in [("1.2.3.4/33", "33"), ("::1/129", "129"), ("::1/", "")] {
            assert_eq!(error(text), NetworkError::Prefix(String::from(bits)));
        }
        for text in ["0.0.0.0/0", "::/0", "10.0.0.0/0", "::ffff:1.2.3.4/96"] {
            assert_eq!(error(text), NetworkError::NotInWords(String::from(text)));
        }
    }

    /// Goal: a network is shown in its shortest form, and that form is read back.
    #[test]
    fn networks_are_shown_as_they_are_read() {
        let cases = [
            ("10.1.2.3/16", "10.1.0.0/16"),
            ("fd00::1/8", "fd00::/8"),
            ("192.168.1.7", "192.168.1.7/32"),
            ("everybody", "everybody"),
        ];
        for (text, shown) in cases {
            assert_eq!(network(text).to_string(), shown);
            assert_eq!(network(shown), network(text));
        }
    }

    /// Goal: it is known which networks reach beyond this machine.
    #[test]
    fn loopback_is_told_from_the_rest() {
        assert!(!Network::loopback().iter().any(Network::is_beyond_loopback));
        for text in [
            "everybody",
            "126.0.0.0/7",
            "10.0.0.0/8",
            "::/127",
            "fd00::/8",
        ] {
            assert!(network(text).is_beyond_loopback(), "{text}");
        }
    }
}
