//! What an export allows, and to whom: as the registry keeps it, the admin API
//! tells it and the door applies it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{Network, Squash};

/// Ports below this can only be bound by the super user of a client.
const PRIVILEGED_PORT_END: u16 = 1024;

/// The rules of one export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportRules {
    /// Which clients are let in.
    pub networks: Vec<Network>,
    /// Whether nothing may be changed through it.
    pub read_only: bool,
    /// Who is somebody else here than at home.
    pub squash: Squash,
    /// Whether calls from ports that any user of a client can bind are refused.
    #[serde(default)]
    pub privileged_ports_only: bool,
}

impl ExportRules {
    /// For this machine only, readable and writable, without squash.
    #[must_use]
    pub fn local() -> Self {
        Self {
            networks: Network::loopback(),
            read_only: false,
            squash: Squash::None,
            privileged_ports_only: false,
        }
    }

    /// Whether `client` may use the export.
    #[must_use]
    pub fn admits(&self, client: SocketAddr) -> bool {
        let address = client.ip();
        let is_in = |network: &Network| network.contains(address);
        self.networks.iter().any(is_in)
            && (!self.privileged_ports_only || client.port() < PRIVILEGED_PORT_END)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: address and port both have to be allowed.
    #[test]
    fn admission_is_by_address_and_port() {
        let mut rules = ExportRules::local();
        let admits = |rules: &ExportRules, client: &str| rules.admits(client.parse().expect("one"));
        assert!(admits(&rules, "127.0.0.1:5000") && admits(&rules, "[::1]:5000"));
        assert!(!admits(&rules, "10.0.0.1:700"));
        rules.privileged_ports_only = true;
        assert!(admits(&rules, "[::1]:1023") && !admits(&rules, "[::1]:1024"));
        rules.networks.clear();
        assert!(!admits(&rules, "127.0.0.1:1"));
    }
}
