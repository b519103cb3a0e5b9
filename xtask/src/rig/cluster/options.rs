//! What a cluster rig is made of.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;

use crate::Usage;

/// What a host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Etcd,
    Gateway,
    Manager,
    Node,
    Client,
}

const ROLES: [Role; 5] = [
    Role::Etcd,
    Role::Gateway,
    Role::Manager,
    Role::Node,
    Role::Client,
];
/// Hosts of one role: they share the last byte of an address.
const HOSTS_MAX: u8 = 64;

impl Role {
    /// As people and JSON write it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Gateway => "gateway",
            Self::Manager => "manager",
            Self::Node => "node",
            Self::Client => "client",
        }
    }

    /// Of the host with that number, in 198.18.0.0/15 (RFC 2544).
    pub(crate) fn address(self, number: u8) -> Result<Ipv4Addr> {
        let place = ROLES.iter().position(|&role| role == self);
        let third = u8::try_from(place.unwrap_or(0) + 1)?;
        Ok(Ipv4Addr::new(198, 18, third, number + 1))
    }
}

/// What a host or a virtual address is called over IPv6: the benchmarking range of RFC 5180, with the
/// last two bytes of the IPv4 address.
pub(crate) fn ipv6(address: Ipv4Addr) -> Ipv6Addr {
    let [_, _, third, last] = address.octets().map(u16::from);
    Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, third, last)
}

/// How many of each, and how they are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) gateways: u8,
    pub(crate) managers: u8,
    pub(crate) nodes: u8,
    pub(crate) clients: u8,
    pub(crate) replicas: u8,
    /// Addresses that the gateways have in turn.
    pub(crate) addresses: u8,
    /// Space of each node, as `--size` takes it.
    pub(crate) size: String,
    /// Read cache of each node, as `--cache` takes it.
    pub(crate) cache: String,
    /// How many of the clients have a gateway on their own host, on its loopback only:
    /// the paper's client-based proxy (Slice 4.1).
    pub(crate) client_gateways: u8,
    /// Size of the file system that each node has for itself; absent, they share the
    /// machine's.
    pub(crate) node_disk: Option<String>,
    /// Seconds by which the wall clocks of processes are wrong, in turn; empty: none is.
    pub(crate) clocks: Vec<i32>,
    /// Whether nodes send long replies themselves, in the connections of gateways' clients.
    pub(crate) is_spiral: bool,
    /// Whether nodes take no packets of gateways all the same: what catches packets is in
    /// place, and nothing is for it.
    pub(crate) is_deaf: bool,
    /// How many of the gateways, the last ones, relay everything nevertheless.
    pub(crate) relays: u8,
    /// The first ones do instead.
    pub(crate) is_relay_first: bool,
    /// Further words of `cluster init`.
    pub(crate) init: Vec<String>,
    /// Megabits per second of the links of each role, both ways; 0: as they are.
    rates: [u32; ROLES.len()],
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gateways: 2,
            managers: 3,
            nodes: 6,
            clients: 2,
            replicas: 2,
            addresses: 2,
            size: "2G".to_owned(),
            cache: "64M".to_owned(),
            client_gateways: 0,
            node_disk: None,
            clocks: Vec::new(),
            is_spiral: false,
            is_deaf: false,
            relays: 0,
            is_relay_first: false,
            init: Vec::new(),
            rates: [0; ROLES.len()],
        }
    }
}

impl Options {
    /// Those of `cargo xtask rig spiral`: nodes send to clients.
    pub(crate) fn spiral() -> Self {
        Self {
            managers: 1,
            nodes: 5,
            is_spiral: true,
            ..Self::default()
        }
    }

    /// Reads `--nodes 8 --rate node=100 …`.
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        Self::default().with(words)
    }

    /// The same over what is there already.
    pub(crate) fn with(mut self, words: &[&str]) -> Result<Self> {
        let options = &mut self;
        let mut words = words.iter();
        while let Some(&flag) = words.next() {
            let wrong = |why: &str| Usage(format!("{flag}: {why}"));
            let value = *words.next().ok_or_else(|| wrong("how much?"))?;
            let count = || match value.parse() {
                Ok(count) if (1..=HOSTS_MAX).contains(&count) => Ok(count),
                _ => Err(wrong(&format!("1 to {HOSTS_MAX}, not {value}"))),
            };
            match flag {
                "--gateways" => options.gateways = count()?,
                "--managers" => options.managers = count()?,
                "--nodes" => options.nodes = count()?,
                "--clients" => options.clients = count()?,
                "--replicas" => options.replicas = count()?,
                "--relays" => options.relays = count()?,
                "--virtual" => options.addresses = count()?,
                "--size" => options.size = value.to_owned(),
                "--cache" => options.cache = value.to_owned(),
                "--client-gateways" => options.client_gateways = count()?,
                "--node-disk" => options.node_disk = Some(value.to_owned()),
                "--clocks" => {
                    let seconds: Result<Vec<i32>, _> = value.split(',').map(str::parse).collect();
                    options.clocks = seconds.map_err(|_| wrong("seconds with commas"))?;
                }
                "--init" => options.init = words_of(value),
                "--rate" => options.set_rate(value).ok_or_else(|| {
                    wrong(&format!("ROLE=MEGABITS or MEGABITS for all, not {value}"))
                })?,
                _ => return Err(wrong("no such option").into()),
            }
        }
        if options.client_gateways > options.clients {
            let clients = options.clients;
            let why = format!("--client-gateways: there are {clients} clients");
            return Err(Usage(why).into());
        }
        Ok(self)
    }

    /// The virtual addresses, in 198.18.0.0/15 (RFC 2544).
    pub(crate) fn virtual_addresses(&self) -> Vec<Ipv4Addr> {
        let numbers = 1..=self.addresses;
        numbers
            .map(|number| Ipv4Addr::new(198, 18, 100, number))
            .collect()
    }

    fn set_rate(&mut self, value: &str) -> Option<()> {
        let (role, mbit) = match value.split_once('=') {
            Some((role, mbit)) => (Some(role), mbit),
            None => (None, value),
        };
        let mbit: u32 = mbit.parse().ok().filter(|&mbit| mbit > 0)?;
        let Some(role) = role else {
            self.rates = [mbit; ROLES.len()];
            return Some(());
        };
        let place = ROLES.iter().position(|known| known.word() == role)?;
        self.rates[place] = mbit;
        Some(())
    }

    /// Of the links of hosts of that role.
    pub(crate) fn rate_mbit(&self, role: Role) -> Option<u32> {
        let place = ROLES.iter().position(|&known| known == role)?;
        Some(self.rates[place]).filter(|&mbit| mbit > 0)
    }

    /// Every host: its number among those of its role, and the role.
    pub(crate) fn hosts(&self) -> Vec<(u8, Role)> {
        let count = |role| match role {
            Role::Etcd => 3,
            Role::Gateway => self.gateways,
            Role::Manager => self.managers,
            Role::Node => self.nodes,
            Role::Client => self.clients,
        };
        let all = ROLES.iter();
        all.flat_map(|&role| (0..count(role)).map(move |number| (number, role)))
            .collect()
    }
}

/// The words that a value of several holds.
pub(crate) fn words_of(value: &str) -> Vec<String> {
    value.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is not said is as the issue asks for it; what is said counts, and
    /// every host has an address of its own.
    #[test]
    fn options_are_read() {
        let options = Options::parse(&[]).expect("nothing");
        assert_eq!(options.hosts().len(), 3 + 2 + 3 + 6 + 2);
        assert_eq!(options.virtual_addresses().len(), 2);
        assert_eq!(options.rate_mbit(Role::Node), None);
        let words = ["--nodes", "8", "--rate", "100", "--rate", "client=50"];
        let options = Options::parse(&words).expect("options");
        assert_eq!(options.rate_mbit(Role::Node), Some(100));
        assert_eq!(options.rate_mbit(Role::Client), Some(50));
        let hosts = options.hosts();
        let addresses = hosts.iter().map(|&(number, role)| role.address(number));
        let mut addresses: Vec<_> = addresses.map(Result::unwrap).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 3 + 2 + 3 + 8 + 2);
        let words = [
            "--client-gateways",
            "2",
            "--init",
            "--a 1 --b",
            "--clocks",
            "5,-5",
        ];
        let options = Options::parse(&words);
        let options = options.expect("options");
        assert_eq!(options.client_gateways, 2);
        assert_eq!(options.clocks, [5, -5]);
        assert_eq!(options.init, ["--a", "1", "--b"]);
    }

    /// Goal: what cannot be meant is wrong usage.
    #[test]
    fn other_options_are_refused() {
        for words in [
            &["--nodes"][..],
            &["--nodes", "0"],
            &["--nodes", "65"],
            &["--rate", "disk=5"],
            &["--rate", "node=0"],
            &["--colour", "5"],
            &["--clients", "1", "--client-gateways", "2"],
            &["--clocks", "5,late"],
        ] {
            let error = Options::parse(words).expect_err("no such option");
            assert!(error.is::<Usage>(), "{words:?}");
        }
    }
}
