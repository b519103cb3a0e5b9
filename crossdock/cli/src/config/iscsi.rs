//! Configuration of the iSCSI door.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::Group;
use super::values::Door;

#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct IscsiFlags {
    /// iSCSI door: an IPv4 and an IPv6 address at most [default: 127.0.0.1:3260 of up, else off].
    #[arg(long, value_name = "ADDR,…|off", env = "CROSSDOCK_ISCSI")]
    pub(crate) iscsi: Option<Door>,
}

impl Group for IscsiFlags {
    fn over(self, file: Self) -> Self {
        Self {
            iscsi: self.iscsi.or(file.iscsi),
        }
    }
}

/// Where initiators are served.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct IscsiSettings {
    pub(crate) iscsi: Door,
}

impl IscsiFlags {
    pub(super) fn settle(self, door_default: Door) -> IscsiSettings {
        IscsiSettings {
            iscsi: self.iscsi.unwrap_or(door_default),
        }
    }
}
