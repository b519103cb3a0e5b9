//! Virtual addresses as the admin API tells and takes them.

use serde::{Deserialize, Serialize};

/// An address that gateways have in turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressStatus {
    /// The address and the bits of its network, like `10.0.0.50/24`.
    pub address: String,
    /// The gateway that has it, or gets it now.
    pub gateway: Option<String>,
    /// What that one's machine is called.
    pub machine: Option<String>,
}

/// An address that gateways are to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressAddition {
    /// As [`AddressStatus::address`].
    pub address: String,
}
