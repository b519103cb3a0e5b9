//! Gateways as the admin API tells them.

use serde::{Deserialize, Serialize};

/// A gateway of an ensemble, whatever process has its name at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// What it is called: `gateway run --gateway-name`.
    pub name: String,
    /// Whether nodes and managers refuse it.
    pub revoked: bool,
    /// The processes that have that name, hexadecimal; none if it has stopped.
    pub hosts: Vec<String>,
    /// What the machines are called that they run on.
    pub machines: Vec<String>,
}
