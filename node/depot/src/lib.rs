//! The IBP depot of a storage node (Network Storage Stack 2.1, docs/ibp.md): time-limited
//! byte arrays behind capabilities.
//!
//! An allocation is an object of the node's own store, of class
//! [`Allocation`](crossdock_names::ObjectClass::Allocation): its bytes are checked and
//! crash-safe as everything there is, and take of the same room. What else there is to know of
//! it is in the object's attributes (`record`), so that a depot knows after a restart what it
//! had. It is all in memory as well: no request waits for the disk to learn what it may do.
//!
//! Loads are paced by a [`Delivery`](crossdock_delivery::Delivery) of the depot's own. Copies
//! to other depots are loads whose bytes go to a connection that the depot opens.
//!
//! [`Depot`] is sans-io: the shell feeds [`DepotInput`]s with the current time, carries out
//! [`DepotEffect`]s in order, and calls back at [`Depot::poll_timeout`].

mod changing;
mod clock;
mod connection;
mod copying;
mod depot;
mod figures;
mod keys;
mod ledger;
mod loading;
mod message;
mod node;
mod opening;
mod policy;
mod record;
mod sharing;
mod storing;

pub use depot::Depot;
pub use figures::{COMMANDS, DepotFigures, GONE};
pub use message::{ConnId, DepotEffect, DepotInput};
pub use policy::{DepotConfig, DepotPolicy};
