//! Messages between parts: gateway to site, gateway and site to node, node to node.
//!
//! The same messages are plain calls on one thread, cross a bounded ring between
//! threads, and a connection between hosts. A [`Call`] carries its id, so that
//! it can be answered out of order and cancelled, and its deadline.

mod access;
mod call;
mod carried;
mod census;
mod defrag;
mod export;
mod file;
mod lease;
mod lock;
mod lun;
mod mapped;
mod network;
mod node;
mod parts;
mod policy;
mod port;
mod quota;
mod site;
mod squash;
mod transaction;
mod transfer;

pub use access::AccessError;
pub use call::{Call, CallId, Sending, Stability, WriteContext, WriterId};
pub use carried::Carries;
pub use census::{CensusClass, CensusPage, CensusPlace, CensusRow, NamePlace, Repair, Rights};
pub use defrag::{DefragWord, LayoutWord};
pub use export::ExportRules;
pub use file::{
    AttributeChanges, Attributes, BackingExtent, BeforeAttributes, CreateMode, Device,
    DirectoryEntry, FileKind, FileLayout, OpenFor, SpaceUsage, TimeChange, WeakCache,
    allocated_bytes, is_access_due,
};
pub use lease::{FileLease, LeaseId, LeaseUse, Recall};
pub use lock::{
    ForgetWhat, GrantId, GrantedLock, ListedLock, LockClient, LockNotice, LockOperation, LockOwner,
    LockRange, LockRefusal, LockTerms, LockWanted, ShareTerms,
};
pub use lun::{
    ChapSecret, ChapUser, InitiatorRule, Lun, LunAccess, Nexus, Registrant, Reservation,
    Reservations, ReserveCause, TARGET_PREFIX,
};
pub use mapped::MappedRanges;
pub use network::{Network, NetworkError};
pub use node::{
    ChangedRange, ChangesPage, CopySource, NodeAnswer, NodeError, NodeReply, NodeRequest,
    ObjectStat, Order, PinId, Promise, ReadVersion, SourceError,
};
pub use parts::{COOKIE_COUNTER_BITS, site_of_cookie};
pub use policy::{
    BulkDoor, BulkReply, BulkRequest, Choice, Policy, PolicyConditions, PolicyRule, RelayedBytes,
    TransferMode,
};
pub use port::Port;
pub use quota::{Quota, QuotaChange, QuotaLimits};
pub use site::{
    Caller, DuplicateKey, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest,
};
pub use squash::{NOBODY, Squash};
pub use transaction::{Part, TransactionId, TransactionStep};
pub use transfer::{Flow, KeptAsk, KeptPin, Transfer, Transport, TunnelSecret};
