//! Values of flags and keys, and how they are written.

use std::net::SocketAddr;

use clap::ValueEnum;
use crossdock_names::LayoutClass;
use crossdock_peer::Network;
use crossdock_web::ReadPolicy;
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

/// How the hosts of an ensemble talk to each other.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transport {
    /// Each proves by a certificate who it is, and nobody else reads along.
    Tls,
    /// In the clear: who reaches a host is believed.
    Plain,
}

/// Who may read over HTTP without a token or a signed URL.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HttpRead {
    /// Everybody, what everybody may read by its permissions.
    Open,
    /// Nobody.
    Token,
}

/// How a volume's names lie over its sites, and so over the managers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Names {
    /// A directory's names lie together; new directories go to other sites as --spread says.
    Switched,
    /// Every directory's names lie over eight sites, for directories that are very large.
    Hashed,
}

/// How the bytes of files beyond 64 KiB lie over the nodes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Placement {
    /// In turn: a rule says where each stripe lies.
    Striped,
    /// Where there is room and little to do: each file has a map of its blocks.
    Mapped,
}

impl From<HttpRead> for ReadPolicy {
    fn from(read: HttpRead) -> Self {
        match read {
            HttpRead::Open => Self::Open,
            HttpRead::Token => Self::Token,
        }
    }
}

impl From<Placement> for LayoutClass {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Striped => Self::STRIPED,
            Placement::Mapped => Self::MAPPED,
        }
    }
}

/// Networks, written with commas between them, or `everybody`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Networks(pub(crate) Vec<Network>);

/// A text that is shown to nobody: not in logs, not by `config check`.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub(crate) struct Secret(pub(crate) String);

/// How long something holds, written like 30m, 1h or 7d; in seconds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Span(pub(crate) u64);

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

impl std::str::FromStr for Networks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let networks = text.split(',').map(|word| word.trim().parse::<Network>());
        let networks: Result<Vec<Network>, _> = networks.collect();
        networks.map(Self).map_err(|error| error.to_string())
    }
}

impl TryFrom<String> for Networks {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Networks> for String {
    fn from(networks: Networks) -> Self {
        let words = networks.0.iter().map(Network::to_string);
        words.collect::<Vec<_>>().join(",")
    }
}

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    /// Whether it makes sense is seen later: an error of the command line shows the text.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("(secret)")
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(secret)")
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no time; write like 30m, 1h or 7d");
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let seconds = match &text[digits.len()..] {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 24 * 3600,
            _ => return Err(wrong()),
        };
        let number = digits.parse::<u64>().ok().filter(|number| *number > 0);
        let total = number.and_then(|number| number.checked_mul(seconds));
        total.map(Self).ok_or_else(wrong)
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        format!("{}s", span.0)
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

    /// Goal: what is secret is shown in no form that is logged or printed.
    #[test]
    fn secrets_are_not_shown() {
        let secret: Secret = "crossdock1-x".parse().expect("any text");
        let shown = format!("{secret:?} {}", serde_json::json!(secret));
        assert!(secret.0 == "crossdock1-x" && !shown.contains("crossdock1"));
    }

    /// Goal: networks are read, and told as they are written; everybody is said in words.
    #[test]
    fn networks_parse() {
        let read = |text: &str| text.parse::<Networks>().map(String::from);
        assert_eq!(read("10.1.2.3/8, ::1"), Ok("10.0.0.0/8,::1/128".to_owned()));
        assert_eq!(read("everybody"), Ok("everybody".to_owned()));
        for wrong in ["", "10.0.0.0/8,", "0.0.0.0/0", "depot.example"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Goal: sizes are powers of 1,024.
    #[test]
    fn sizes_and_doors_parse() {
        assert_eq!("20G".parse(), Ok(Size(20 << 30)));
        assert_eq!("512".parse(), Ok(Size(512)));
        assert!("12Q".parse::<Size>().is_err() && "".parse::<Size>().is_err());
        assert_eq!("off".parse(), Ok(Door::Off));
        let both = "127.0.0.1:1, [::1]:2".parse::<Door>().expect("two kinds");
        assert_eq!(String::from(both), "127.0.0.1:1,[::1]:2");
        assert_eq!("90m".parse(), Ok(Span(5400)));
        for wrong in ["", "1", "0h", "h", "1w", "99999999999999999999s", "-1h"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
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
