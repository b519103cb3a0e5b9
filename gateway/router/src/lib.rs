//! The router: sends each request of a client to the right site or node
//! (the paper's µproxy; Slice 2.1, 3.1 and 4.1).
//!
//! Doors give it the same messages that sites take, with READ, WRITE and COMMIT
//! of any range. Name and attribute operations go on as they are. Bytes below
//! the threshold belong to the file's site; the bytes beyond are striped over
//! column objects, which the router reads and writes itself after the site has
//! given permission, layout and size. What bulk I/O changed is pushed to the
//! site before any reply that promises stability.
//!
//! Everything in here is soft state: requests in progress, and which holders
//! took unstable bytes (CONSISTENCY 6). A router that dies takes nothing along
//! but its write verifier, which tells clients to resend.
//!
//! No I/O and no clock: the shell feeds [`RouterInput`]s with the current time,
//! carries out [`RouterEffect`]s in order, and calls back at
//! [`Router::poll_timeout`].

mod ahead;
mod commit;
mod elsewhere;
mod find;
mod heat;
mod hot;
mod leases;
mod list;
mod machine;
mod mapped;
mod maps;
mod merge;
mod message;
mod part;
mod pieces;
mod read;
mod return_lease;
mod soft;
mod speeds;
mod unstable;
mod warm;
mod work;
mod write;

pub use heat::Heat;
pub use machine::Router;
pub use message::{
    KeptRead, ReadAhead, RoutedReply, RouterConfig, RouterEffect, RouterInput, Waited,
    WriteVerifier,
};
