//! The admin API: what `crossdock status`, `scrub`, `defrag`, `node`, `export`, `address`,
//! `gateway`, `policy`, `lun`, `quota`, `lock`, `token` and `sign` talk to.
//!
//! An HTTP server on a control thread of its own (tokio). Each request becomes a
//! [`Command`] to the data thread, which answers with JSON, or a question for its
//! [`Snapshot`]. All it keeps itself is a bounded past to look at ([`Watch`]).
//!
//! | request | does |
//! |---|---|
//! | `GET /` | the console |
//! | `GET /health` | [`Health`]: 200, or 503 if something has failed or the data thread does not answer |
//! | `GET /metrics` | all figures for Prometheus (docs/metrics.md) |
//! | `GET /v1/figures` | [`Snapshot`]: the same as JSON |
//! | `GET /v1/history?after=` | the last ten minutes, second by second: a list of [`Point`] |
//! | `GET /v1/events?after=` | the last log events: a list of [`Event`] |
//! | `GET /v1/slow` | the last slow requests: a list of [`SlowRequest`] |
//! | `GET /v1/status` | [`Status`] |
//! | `POST /v1/nodes/{number}/stop`, `…/start` | takes a node down, brings it back |
//! | `GET /v1/nodes` | the nodes of an ensemble: a list of [`PlaceStatus`] |
//! | `POST /v1/nodes` | makes a place for one more: → [`PlaceStatus`] |
//! | `POST /v1/nodes/{number}/drain`, `…/undrain`, `…/replace` | moves what belongs to it: → [`PlaceStatus`] |
//! | `DELETE /v1/nodes/{number}` | ends its place: → [`PlaceStatus`] |
//! | `DELETE /v1/managers/{host}` | has a manager end, in order: → [`RetiringStatus`] |
//! | `POST /v1/scrub` | starts a scrub of all nodes |
//! | `GET /v1/scrub` | [`ScrubStatus`] |
//! | `POST /v1/defrag` | has what lies apart put together, now or every day: [`DefragOrder`] → [`DefragStatus`] |
//! | `GET /v1/defrag` | [`DefragStatus`] |
//! | `POST /v1/fsck`, `/v1/fsck/repair` | starts a check of names, files and objects, and mends what it finds |
//! | `GET /v1/fsck` | [`FsckStatus`] |
//! | `GET /v1/exports` | a list of [`ExportStatus`] |
//! | `POST /v1/exports` | exports a directory: [`ExportAddition`] → [`ExportAnswer`] |
//! | `PATCH /v1/exports/{id}` | changes an export's rules: [`ExportChange`] → [`ExportAnswer`] |
//! | `DELETE /v1/exports/{id}` | exports it no more: → [`ExportAnswer`] |
//! | `GET /v1/addresses` | a list of [`AddressStatus`] |
//! | `POST /v1/addresses` | the gateways have one more: [`AddressAddition`] → [`AddressStatus`] |
//! | `DELETE /v1/addresses/{address}` | they have it no more: → [`AddressStatus`] |
//! | `GET /v1/gateways` | a list of [`GatewayStatus`] |
//! | `POST /v1/gateways/{name}/revoke`, `…/restore` | nodes and managers refuse it, let it in again: → [`GatewayStatus`] |
//! | `POST /v1/gateways/{name}/scope` | it reaches what lies in some exports only: [`GatewayScope`] → [`GatewayStatus`] |
//! | `GET /v1/policy` | a list of [`PolicyStatus`], the newest last |
//! | `POST /v1/policy` | gives a file or directory a rule: [`PolicySetting`] → [`PolicyStatus`] |
//! | `DELETE /v1/policy/{id}` | takes it away: → [`PolicyStatus`] |
//! | `GET /v1/luns` | a list of [`LunStatus`] |
//! | `POST /v1/luns` | makes a LUN: [`LunCreation`] → [`LunStatus`] |
//! | `PATCH /v1/luns/{name}` | makes it longer, or says who may use it: [`LunChange`] → [`LunStatus`] |
//! | `DELETE /v1/luns/{name}` | removes it: → [`LunStatus`] |
//! | `GET /v1/disks` | the disk sets of nodes, as a list |
//! | `POST /v1/disks` | takes a disk out, puts one in its place, holds rebuilds: [`DiskOrder`] → the same list |
//! | `GET /v1/quotas` | a list of [`QuotaStatus`] |
//! | `POST /v1/quotas` | gives a directory a quota, or its quota other limits: [`QuotaSetting`] → [`QuotaAnswer`] |
//! | `DELETE /v1/quotas/{id}` | takes it away: → [`QuotaAnswer`] |
//! | `GET /v1/delivery/decisions` | the last decisions of the delivery engine, each with what it saw; `cargo xtask sim replay` makes them again |
//! | `GET /v1/locks` | [`LockList`] |
//! | `POST /v1/locks/release` | gives up all locks of a client: [`LockRelease`] → [`LockReleased`] |
//! | `GET /v1/tokens` | a list of [`TokenStatus`] |
//! | `POST /v1/tokens` | makes a bearer token: [`TokenAddition`] → [`TokenCreated`] |
//! | `DELETE /v1/tokens/{id}` | makes it of no use: → [`TokenStatus`] |
//! | `POST /v1/sign` | signs a URL: [`Signing`] → [`Signed`] |
//! | `POST /v1/sign/pieces` | signs URLs of a file's pieces at nodes: [`PieceSigning`] → [`SignedPieces`] |
//! | `POST /v1/exnode` | has depots give a file's bytes to IBP clients: [`FileSharing`] → [`SharedFile`] |
//! | `POST /v1/exnode/import` | begins to fetch a file from depots into the volume: [`FileImport`] → [`ImportStatus`] |
//! | `GET /v1/exnode/import/{id}` | [`ImportStatus`]; one that nobody asks about for a minute is given up |
//!
//! Bodies are JSON, and only with `Content-Type: application/json`: a page in an
//! administrator's browser cannot send that to another origin unasked. Requests
//! under names that are not known here, and changes that a page elsewhere asks
//! for, are refused.

mod address;
mod defrag;
mod disk;
mod events;
mod exnode;
mod export;
mod families;
mod gateway;
mod guard;
mod health;
mod history;
mod lock;
mod lun;
mod page;
mod place;
mod policy;
mod process;
mod quota;
#[cfg(test)]
mod sample;
mod serve;
pub mod snapshot;
mod status;
mod text;
mod token;
mod top;
mod watch;

pub use address::{AddressAddition, AddressStatus};
pub use defrag::{
    DefragOrder, DefragStatus, FreeSpaceStatus, LayoutStatus, NodePassStatus, PassState,
};
pub use disk::DiskOrder;
pub use events::{EVENTS_MAX, Event, Events};
pub use exnode::{FileImport, FileSharing, ImportStatus, SharedFile, SharedPiece};
pub use export::{ExportAddition, ExportAnswer, ExportChange, ExportStatus};
pub use gateway::{GatewayScope, GatewayStatus};
pub use health::{Check, Condition, Health};
pub use history::{HISTORY_MAX, Point, point};
pub use lock::{LockKind, LockList, LockRelease, LockReleased, LockStatus};
pub use lun::{InitiatorStatus, LunChange, LunCreation, LunStatus};
pub use place::{PlaceStatus, Placing, RetiringStatus};
pub use policy::{PolicySetting, PolicyStatus};
pub use quota::{QuotaAnswer, QuotaSetting, QuotaStatus};
pub use serve::{Answer, Command, Control, Refusal, serve};
pub use snapshot::{SlowRequest, SlowWaits, Snapshot};
pub use status::{
    DoorStatus, FsckFinding, FsckStatus, HostStatus, NodeStatus, ScrubStatus, SiteStatus, Status,
};
pub use token::{
    PieceSigning, Signed, SignedPiece, SignedPieces, Signing, SigningMethod, TokenAddition,
    TokenCreated, TokenStatus,
};
pub use top::{ClientRate, NodeRate, ProcedureRate, Top};
pub use watch::Watch;
