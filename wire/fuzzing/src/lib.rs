//! Fuzz targets of the codecs as plain functions.
//!
//! Each [`Target`] takes any bytes and panics only if a codec has a fault.
//! `fuzz/` wraps them for libFuzzer; `tests/corpus.rs` replays the corpus of all
//! of them on a stable compiler; `cargo run -p crossdock-fuzzing --example
//! seed_corpus` writes the corpus that the [`samples`] seed.
//!
//! Only tests and fuzzing use this crate.

pub mod link;
pub mod samples;

mod dice;
mod exnode;
mod http;
mod ibp;
mod iscsi;
mod join;
mod lbone;
mod locking;
mod scsi;
mod targets;
mod tunnel;

pub use dice::Dice;
pub use exnode::exnode;
pub use http::http_request;
pub use ibp::ibp;
pub use iscsi::{iscsi_stream, iscsi_text};
pub use join::join;
pub use lbone::lbone;
pub use link::link_frame;
pub use locking::{nlm_call, nlm_reply, nsm, portmap};
pub use scsi::{scsi_cdb, scsi_lists};
pub use targets::{
    TARGETS, Target, mount_call, mount_reply, nfs3_call, nfs3_reply, record_reader, rpc_call,
    rpc_reply, xdr,
};
pub use tunnel::tunnel;
