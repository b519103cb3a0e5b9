//! Delivery: what is read next, for which connection, and when.
//!
//! The engine of the TPF paper ("TCP Plugged File System", Lim and Park, 2007) as one
//! sans-io machine, [`Delivery`]. A door opens a stream for each response, tells what
//! comes from the disks and what goes to the socket, and shows the connection
//! ([`TcpSample`]) at each completed send; it gets [`Decision`]s: what to request, what
//! to withdraw, what to move behind.
//!
//! Doors whose clients ask for each piece (NFS) are guests of the door that has the engine:
//! they tell it by messages ([`Guest`]) what their clients ask for, get [`Advice`], and what
//! is read ahead waits at the nodes.
//!
//! Decisions themselves are pure functions over a [`Snapshot`] ([`decide`],
//! [`horizon`]); snapshots can be kept ([`Delivery::record`]) and decided again
//! ([`replay`]).

mod config;
mod connection;
mod decide;
mod delivery;
mod figures;
mod guest;
mod line;
mod number;
mod rate;
mod record;
mod snapshot;
mod stream;

pub use config::{DeliveryConfig, DiskProfile, Mutation, Policy, Switches};
pub use connection::{Congestion, Decision, End, StreamClass, StreamId, TcpSample};
pub use decide::{Horizon, decide, horizon};
pub use delivery::{Delivery, SENDING_BYTES_MAX};
pub use figures::{DeliveryFigures, Residence};
pub use guest::{Advice, Guest};
pub use rate::Pace;
pub use record::{Differs, Record, replay};
pub use snapshot::{Disks, Look, Pool, Snapshot, Verdict};
