//! The admin API: what `crossdock status`, `scrub` and `node` talk to.
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

mod serve;
mod status;

pub use serve::{Answer, Command, Control, Refusal, serve};
pub use status::{DoorStatus, NodeStatus, ScrubStatus, Status};
