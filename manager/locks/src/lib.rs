//! The locks of a site: who has which bytes of which file (NLM, Open Group C702).
//!
//! [`Locks`] is a sub-machine of the site. It plans: each operation becomes a
//! [`Decision`] with the [`LockChange`]s that the site logs; and it changes only
//! by [`Locks::apply`], live and on replay. What is not logged is lost with the
//! process and made again by clients: requests that wait, and grants that
//! clients were not told of yet.
//!
//! Every change is an absolute value: for each byte, file and owner the last one
//! decides. So a replay may begin anywhere before a checkpoint's end.
//!
//! No I/O and no clock here.

mod change;
mod deadlock;
mod file;
mod grace;
mod machine;
mod waiting;

pub use change::LockChange;
pub use machine::{Decision, Holdings, Limits, Locks};
