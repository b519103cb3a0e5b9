//! Gateways as the admin API tells them.

use serde::{Deserialize, Serialize};

/// A gateway of an ensemble, whatever process has its name at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// What it is called: `gateway run --gateway-name`.
    pub name: String,
    /// Whether nodes and managers refuse it.
    pub revoked: bool,
    /// The paths of the exports that it is scoped to, those that are gone as their numbers;
    /// `None`: it reaches everything.
    pub exports: Option<Vec<String>>,
    /// The processes that have that name, hexadecimal; none if it has stopped.
    pub hosts: Vec<String>,
    /// What the machines are called that they run on.
    pub machines: Vec<String>,
}

/// To which exports a gateway is to be scoped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayScope {
    /// Their paths; `None`: to all.
    pub exports: Option<Vec<String>>,
}
