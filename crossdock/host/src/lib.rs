//! All roles of one host wired together, without I/O.
//!
//! [`Host`] owns the registry, the nodes, the sites, the router and the NFS
//! door, and carries messages between them in one queue: what one machine wants
//! done becomes another's input, until only effects for the shell are left
//! (disks, index threads, sockets). The binary drives it on a data thread, the
//! simulation under its own clock.

mod access;
mod address_orders;
mod addresses;
mod clocks;
mod columns;
mod defrag;
mod defrag_orders;
mod defrag_words;
mod depots;
mod equalize;
mod evacuation;
mod exports;
mod figures;
mod file_leases;
mod fsck;
mod gateway_orders;
mod handover;
mod held;
mod host;
mod http;
mod iscsi;
mod keys;
mod leases;
mod lending;
mod locks;
mod luns;
mod members;
mod message;
mod mutation;
mod nodes;
mod objects;
mod peers;
mod placing;
mod policy;
mod profiles;
mod quotas;
mod ranges;
mod refill;
mod replicas;
mod scope;
mod sites;
mod space;
mod sweep;
mod transfer;
mod walks;
mod watch;
mod web;

pub use address_orders::{AddressError, AddressOrder, AddressTicket};
pub use addresses::ADDRESS_LIFETIME;
pub use columns::{
    ColumnsError, ColumnsOrder, ColumnsTicket, NodePiece, OBJECT_URL_SECONDS_MAX,
    SIGNED_PIECES_BYTES_MAX, Share, ShareOrder, SharedFile, SharedPiece, SignedColumns,
    SignedPiece,
};
pub use crossdock_locks::Holdings;
pub use defrag::DefragProgress;
pub use defrag_words::{NodePass, PassStage};
pub use evacuation::{DataRoom, EvacuationProgress};
pub use exports::{ExportError, ExportTicket};
pub use figures::{HostFigures, PlacedSite};
pub use fsck::{Counts, Finding, FsckProgress, NamedFinding};
pub use gateway_orders::{GatewayError, GatewayOrder, GatewayTicket, GatewayVerb};
pub use host::{Host, HostConfig, HostEffect, HostInput};
pub use locks::{LockKind, LockList, PlacedLock, ReleaseError, ReleaseTicket};
pub use luns::{LunError, LunTicket, LunWish};
pub use mutation::Mutation;
pub use nodes::{Boot, GROWTH_BYTES, NodeSettings, NodeState, Tuning};
pub use placing::NodePlace;
pub use policy::{PolicyError, PolicyTicket};
pub use profiles::DiskProfile;
pub use quotas::{PlacedQuota, QuotaError, QuotaTicket};
pub use ranges::LOG_PIECE_BYTES;
pub use transfer::{TransferFigures, TunnelEnd, Window};
pub use watch::{HostStatus, NodeFigures, ScrubProgress};
pub use web::{SignError, TokenError, TokenTicket};
