//! Values of flags and keys, and how they are written.

use std::net::SocketAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Where a door listens, or that it does not.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Door {
    Off,
    /// At one address of each kind at most: what a client is answered through
    /// follows from its own address.
    At(Vec<SocketAddr>),
}

/// A number of bytes, written with or without K, M, G, T (powers of 1,024).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Size(pub(crate) u64);

/// How disks and sockets are driven.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Io {
    /// io_uring, or threads where the kernel has or allows none.
    Auto,
    /// io_uring or an error.
    Uring,
    /// A thread pool.
    Threads,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// A door at a port of this machine only.
pub(super) fn loopback(port: u16) -> Door {
    Door::At(vec![SocketAddr::from(([127, 0, 0, 1], port))])
}

impl Door {
    /// Where it is to listen.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        match self {
            Self::Off => &[],
            Self::At(addresses) => addresses,
        }
    }
}

impl std::str::FromStr for Door {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for word in text.split(',') {
            let address = word.trim().parse().map_err(|_| {
                format!(
                    "{text:?} is neither `off` nor an address like 127.0.0.1:2049 or [::1]:2049"
                )
            })?;
            addresses.push(address);
        }
        if let [first, second, rest @ ..] = &addresses[..]
            && (first.is_ipv6() == second.is_ipv6() || !rest.is_empty())
        {
            return Err(format!(
                "{text:?} has more than one IPv4 and one IPv6 address; 0.0.0.0 and [::] stand for all of a kind"
            ));
        }
        Ok(Self::At(addresses))
    }
}

impl TryFrom<String> for Door {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Door> for String {
    fn from(door: Door) -> Self {
        match door {
            Door::Off => "off".to_owned(),
            Door::At(addresses) => {
                let texts: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
                texts.join(",")
            }
        }
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            _ => return Err(format!("{text:?} is no size; write like 500M, 20G or 1T")),
        };
        digits
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(1 << shift))
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no size; write like 500M, 20G or 1T"))
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sizes are powers of 1,024.
    #[test]
    fn sizes_and_doors_parse() {
        assert_eq!("20G".parse(), Ok(Size(20 << 30)));
        assert_eq!("512".parse(), Ok(Size(512)));
        assert!("12Q".parse::<Size>().is_err() && "".parse::<Size>().is_err());
        assert_eq!("off".parse(), Ok(Door::Off));
        let both = "127.0.0.1:1, [::1]:2".parse::<Door>().expect("two kinds");
        assert_eq!(String::from(both), "127.0.0.1:1,[::1]:2");
        for wrong in [
            "::1:2049",
            "127.0.0.1:1,127.0.0.2:1",
            "[::1]:1,[::2]:1",
            "1.2.3.4:1,",
        ] {
            assert!(wrong.parse::<Door>().is_err(), "{wrong}");
        }
    }
}
