//! Directory role of a site: name entries and attribute cells, in memory.
//!
//! [`Directory`] is pure state. [`Directory::plan`] computes what an operation
//! answers and which [`Mutation`]s it makes, without making them; the site logs
//! them and then applies them with [`Directory::apply`], which is also what a
//! replay does. No I/O, no clock, no log here. Source: Slice, sections 3.2 and 4.3.
//!
//! A name entry (directory, name → file) and an attribute cell are separate
//! records, and may lie at different sites. An operation that needs what others
//! have is planned once these have told it ([`Abroad`]).

mod abroad;
mod adopted;
mod attributes;
mod cell;
mod census;
mod create;
mod index;
mod maps;
mod mutation;
mod names;
mod order;
mod parts;
mod paths;
mod permission;
mod piece;
mod plan;
mod quota;
mod readdir;
mod remove;
mod rename;
mod repair;
mod scan;
mod slab;
mod state;

pub use abroad::{Abroad, decode_edits, encode_edits};
pub use attributes::SEGMENTS_MAX;
pub use cell::{Cell, Rare};
pub use mutation::Mutation;
pub use permission::Wanted;
pub use piece::{DamagedPiece, PieceWriter};
pub use plan::{Answer, Plan};
pub use quota::{NewTree, QuotaPlan};
pub use scan::Scan;
pub use state::{Directory, MemoryUse};
