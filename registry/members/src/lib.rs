//! The registry: the only consensus in the system. It holds kilobytes (who is a
//! member, who holds which slot, which epoch a site is at, exports, policy, tokens),
//! never names or data.
//!
//! [`Embedded`] keeps it in one local file; [`Shared`] is a process's copy of one
//! that many have in common, behind the same [`Change`]s and [`State`]. Every
//! change is a compare-and-swap: it names the epoch that it has seen, and fails
//! if that is no longer the current one.

mod addresses;
mod daily;
mod defrag;
mod embedded;
mod gateways;
mod homes;
mod hosts;
mod luns;
mod policy;
mod ports;
mod shared;
mod state;
mod trust;
mod web_tokens;

pub use addresses::{AddressRecord, VirtualAddress};
pub use daily::{DailyWindow, DailyWindowError};
pub use defrag::{DefragOrderRecord, DefragResult};
pub use embedded::{Embedded, OpenError, REGISTRY_FILE_BYTES};
pub use gateways::{GatewayRecord, NO_SCOPES};
pub use homes::Placement;
pub use hosts::{DepotDoor, HostRecord, NodeDoor, SiteLoad};
pub use policy::PolicyRecord;
pub use ports::IscsiPortal;
pub use shared::{Registry, Shared};
pub use state::{
    Change, Conflict, DirectoryRecord, ExportRecord, NodeRecord, SITE_SETS, SetRecord, State,
};
pub use trust::{TOKENS_MAX, TokenRecord, TrustRecord};
