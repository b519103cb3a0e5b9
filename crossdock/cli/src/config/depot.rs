//! Configuration of depots: where they listen, and what they grant.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use clap::Args;
use crossdock_depot::DepotPolicy;
use crossdock_host::Host;
use crossdock_ibp::{Key, Word};
use crossdock_limits::{IBP_CONNECTIONS_MAX, IBP_PROCESS_CONNECTIONS_MAX};
use crossdock_members::DepotDoor;
use crossdock_peer::Network;
use serde::{Deserialize, Serialize};

use super::values::{Door, Networks, Secret, Size, Span};
use super::{Group, usage};
use crate::data;

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct DepotFlags {
    /// IBP door: each node is a depot, node i of up at the port + i (port 0: each its own); an
    /// IPv4 and an IPv6 address at most. Who reaches it may allocate space
    /// [default: 127.0.0.1:6714 of up, else off].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_IBP")]
    pub(crate) ibp: Option<Door>,
    /// Space of all allocations of a depot, like 20G [default: half of the node's].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_IBP_SPACE")]
    pub(crate) ibp_space: Option<Size>,
    /// The part of it that stable allocations may have; volatile ones go for them
    /// [default: all of it].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_IBP_STABLE")]
    pub(crate) ibp_stable: Option<Size>,
    /// Largest allocation [default: what there is room for].
    #[arg(long, value_name = "BYTES", env = "CROSSDOCK_IBP_SIZE")]
    pub(crate) ibp_size: Option<Size>,
    /// Longest duration of an allocation, like 12h or 10d [default: 30d].
    #[arg(long, value_name = "TIME", env = "CROSSDOCK_IBP_DURATION")]
    pub(crate) ibp_duration: Option<Span>,
    /// Connections of one depot at a time; a further one is told to come again
    /// [default: 512].
    #[arg(long, value_name = "N", env = "CROSSDOCK_IBP_CONNECTIONS")]
    pub(crate) ibp_connections: Option<usize>,
    /// Requests per second of one IBP client; ten times as many may come at once
    /// [default: as many as come].
    #[arg(long, value_name = "N", env = "CROSSDOCK_IBP_RATE")]
    pub(crate) ibp_rate: Option<u32>,
    /// Password by which IBP clients may change space and duration until the next start
    /// [default: `ibp` on this machine, none from elsewhere].
    #[arg(long, value_name = "TEXT", env = "CROSSDOCK_IBP_PASSWORD")]
    pub(crate) ibp_password: Option<Secret>,
    /// Who may make allocations, like 10.0.0.0/8,fd00::/8; capabilities are for whoever has them
    /// [default: everybody, if a depot listens beyond loopback, else this machine].
    #[arg(long, value_name = "NETWORK,…|everybody", env = "CROSSDOCK_IBP_ALLOW")]
    pub(crate) ibp_allow: Option<Networks>,
    /// To which depots copies may go: the host connects nowhere else for a client
    /// [default: everywhere, if a depot listens beyond loopback, else this machine].
    #[arg(
        long,
        value_name = "NETWORK,…|everybody",
        env = "CROSSDOCK_IBP_COPY_TO"
    )]
    pub(crate) ibp_copy_to: Option<Networks>,
    /// The name or address that capabilities call the depots by
    /// [default: the address at which the client has reached it].
    #[arg(long, value_name = "HOST", env = "CROSSDOCK_IBP_HOST")]
    pub(crate) ibp_host: Option<String>,
}

impl Group for DepotFlags {
    fn over(self, file: Self) -> Self {
        Self {
            ibp: self.ibp.or(file.ibp),
            ibp_space: self.ibp_space.or(file.ibp_space),
            ibp_stable: self.ibp_stable.or(file.ibp_stable),
            ibp_size: self.ibp_size.or(file.ibp_size),
            ibp_duration: self.ibp_duration.or(file.ibp_duration),
            ibp_connections: self.ibp_connections.or(file.ibp_connections),
            ibp_rate: self.ibp_rate.or(file.ibp_rate),
            ibp_password: self.ibp_password.or(file.ibp_password),
            ibp_allow: self.ibp_allow.or(file.ibp_allow),
            ibp_copy_to: self.ibp_copy_to.or(file.ibp_copy_to),
            ibp_host: self.ibp_host.or(file.ibp_host),
        }
    }
}

/// Where depots listen, and what they grant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DepotSettings {
    pub(crate) ibp: Door,
    ibp_space: Option<u64>,
    ibp_stable: Option<u64>,
    ibp_size: Option<u64>,
    ibp_duration: Option<Span>,
    ibp_connections: usize,
    ibp_rate: Option<u32>,
    ibp_password: Option<Secret>,
    ibp_allow: Networks,
    ibp_copy_to: Networks,
    ibp_host: Option<String>,
}

impl DepotFlags {
    pub(super) fn settle(self, door_default: Door) -> anyhow::Result<DepotSettings> {
        let connections = self.ibp_connections.unwrap_or(IBP_CONNECTIONS_MAX);
        if connections == 0 || connections > IBP_PROCESS_CONNECTIONS_MAX {
            return Err(usage(format!(
                "ibp_connections must be 1 to {IBP_PROCESS_CONNECTIONS_MAX}, not {connections}"
            )));
        }
        if self.ibp_rate == Some(0) {
            return Err(usage("ibp_rate must be at least 1".to_owned()));
        }
        let bytes = |size: Option<Size>| size.map(|size| size.0);
        if let (Some(space), Some(stable)) = (bytes(self.ibp_space), bytes(self.ibp_stable))
            && stable > space
        {
            return Err(usage(
                "ibp_stable is a part of ibp_space, and cannot be more".to_owned(),
            ));
        }
        let password = self.ibp_password.as_ref();
        if password.is_some_and(|secret| Word::new(&secret.0).is_err()) {
            return Err(usage(
                "ibp_password has to be visible ASCII without blanks".to_owned(),
            ));
        }
        if let Some(host) = &self.ibp_host
            && Key::new(host).is_err()
        {
            return Err(usage(format!("ibp_host: {host:?} is no name of a host")));
        }
        let ibp = self.ibp.unwrap_or(door_default);
        let is_exposed = ibp.addresses().iter().any(|at| !at.ip().is_loopback());
        let usual = Networks(match is_exposed {
            true => vec![Network::EVERYBODY],
            false => Network::loopback(),
        });
        Ok(DepotSettings {
            ibp,
            ibp_space: bytes(self.ibp_space),
            ibp_stable: bytes(self.ibp_stable),
            ibp_size: bytes(self.ibp_size),
            ibp_duration: self.ibp_duration,
            ibp_connections: connections,
            ibp_rate: self.ibp_rate,
            ibp_password: self.ibp_password,
            ibp_allow: self.ibp_allow.unwrap_or_else(|| usual.clone()),
            ibp_copy_to: self.ibp_copy_to.unwrap_or(usual),
            ibp_host: self.ibp_host,
        })
    }
}

impl DepotSettings {
    /// Gives the nodes of a host depots, unless they are off.
    pub(crate) fn apply(&self, host: &mut Host) -> anyhow::Result<()> {
        if self.ibp != Door::Off {
            host.have_depots(self.policy(), data::random_bytes()?);
        }
        Ok(())
    }

    /// What others are told of depots at these addresses, where `location` says. One that
    /// listens at all addresses of its machine goes by `reached`, if that is known.
    pub(crate) fn doors(
        &self,
        bound: &BTreeMap<u32, SocketAddr>,
        location: &str,
        reached: Option<IpAddr>,
    ) -> BTreeMap<u32, DepotDoor> {
        let door = |(&number, &address): (&u32, &SocketAddr)| {
            let ip = match address.ip().is_unspecified() {
                true => reached.filter(|ip| !ip.is_unspecified()),
                false => Some(address.ip()),
            };
            let host = match (&self.ibp_host, ip) {
                (Some(host), _) => host.clone(),
                (None, Some(IpAddr::V4(ip))) => ip.to_string(),
                (None, Some(IpAddr::V6(ip))) => format!("[{ip}]"),
                (None, None) => return None,
            };
            let door = DepotDoor {
                host,
                port: address.port(),
                location: location.to_owned(),
            };
            Some((number, door))
        };
        bound.iter().filter_map(door).collect()
    }

    /// What lets clients change what is granted, which is in no list of keys.
    pub(crate) fn password(&self) -> Option<&str> {
        self.ibp_password.as_ref().map(|secret| secret.0.as_str())
    }

    /// What a depot grants.
    pub(crate) fn policy(&self) -> DepotPolicy {
        let default = DepotPolicy::default();
        let duration = self.ibp_duration.map(|span| span.0);
        let password = self.ibp_password.as_ref();
        DepotPolicy {
            size_bytes_max: self.ibp_size,
            duration_seconds_max: duration.or(default.duration_seconds_max),
            total_bytes: self.ibp_space,
            stable_bytes: self.ibp_stable,
            connections_max: self.ibp_connections,
            requests_per_second: self.ibp_rate,
            password: password.and_then(|secret| Word::new(&secret.0).ok()),
            allocators: self.ibp_allow.0.clone(),
            copy_targets: self.ibp_copy_to.0.clone(),
            host: self.ibp_host.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what makes no sense is refused, and what is said is granted.
    #[test]
    fn policies_are_checked() {
        let settle = |flags: DepotFlags| flags.settle(Door::Off);
        let size = |bytes| Some(Size(bytes));
        let good = DepotFlags {
            ibp_space: size(10),
            ibp_stable: size(10),
            ibp_duration: Some(Span(60)),
            ibp_password: Some(Secret("word".to_owned())),
            ..DepotFlags::default()
        };
        let policy = settle(good).expect("good").policy();
        assert_eq!(policy.duration_seconds_max, Some(60));
        assert_eq!(policy.password.expect("one").as_str(), "word");
        let lets_in = |flags: DepotFlags, address: &str| {
            let policy = settle(flags).expect("good").policy();
            let address = address.parse().expect("an address");
            let has = |networks: &[Network]| networks.iter().any(|it| it.contains(address));
            (has(&policy.allocators), has(&policy.copy_targets))
        };
        let at = |door: &str| DepotFlags {
            ibp: Some(door.parse().expect("a door")),
            ..DepotFlags::default()
        };
        assert_eq!(
            lets_in(at("127.0.0.1:1,[::1]:1"), "10.0.0.1"),
            (false, false)
        );
        assert_eq!(lets_in(at("127.0.0.1:1"), "127.0.0.1"), (true, true));
        assert_eq!(lets_in(at("127.0.0.1:1,[::]:1"), "10.0.0.1"), (true, true));
        let bound = DepotFlags {
            ibp_copy_to: Some("10.0.0.0/8".parse().expect("a network")),
            ..at("0.0.0.0:1")
        };
        assert_eq!(lets_in(bound.clone(), "10.0.0.1"), (true, true));
        assert_eq!(lets_in(bound, "127.0.0.1"), (true, false));
        for wrong in [
            DepotFlags {
                ibp_space: size(10),
                ibp_stable: size(11),
                ..DepotFlags::default()
            },
            DepotFlags {
                ibp_connections: Some(0),
                ..DepotFlags::default()
            },
            DepotFlags {
                ibp_rate: Some(0),
                ..DepotFlags::default()
            },
            DepotFlags {
                ibp_password: Some(Secret("two words".to_owned())),
                ..DepotFlags::default()
            },
            DepotFlags {
                ibp_host: Some("a/b".to_owned()),
                ..DepotFlags::default()
            },
        ] {
            assert!(settle(wrong).is_err());
        }
    }
}
