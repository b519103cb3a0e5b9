//! The admin API: what `crossdock status`, `scrub`, `node`, `export` and `quota` talk to.
//!
//! An HTTP server on a control thread of its own (tokio). It holds no state: each
//! request becomes a [`Command`] to the data thread, which answers with JSON.
//!
//! | request | does |
//! |---|---|
//! | `GET /health` | 200 once every door answers |
//! | `GET /v1/status` | [`Status`] |
//! | `POST /v1/nodes/{number}/stop`, `…/start` | takes a node down, brings it back |
//! | `POST /v1/scrub` | starts a scrub of all nodes |
//! | `GET /v1/scrub` | [`ScrubStatus`] |
//! | `GET /v1/exports` | a list of [`ExportStatus`] |
//! | `POST /v1/exports` | exports a directory: [`ExportAddition`] → [`ExportAnswer`] |
//! | `PATCH /v1/exports/{id}` | changes an export's rules: [`ExportChange`] → [`ExportAnswer`] |
//! | `DELETE /v1/exports/{id}` | exports it no more: → [`ExportAnswer`] |
//! | `GET /v1/quotas` | a list of [`QuotaStatus`] |
//! | `POST /v1/quotas` | gives a directory a quota, or its quota other limits: [`QuotaSetting`] → [`QuotaAnswer`] |
//! | `DELETE /v1/quotas/{id}` | takes it away: → [`QuotaAnswer`] |
//!
//! Bodies are JSON, and only with `Content-Type: application/json`: a page in an
//! administrator's browser cannot send that to another origin unasked.

mod export;
mod quota;
mod serve;
mod status;

pub use export::{ExportAddition, ExportAnswer, ExportChange, ExportStatus};
pub use quota::{QuotaAnswer, QuotaSetting, QuotaStatus};
pub use serve::{Answer, Command, Control, Refusal, serve};
pub use status::{DoorStatus, NodeStatus, ScrubStatus, Status};
