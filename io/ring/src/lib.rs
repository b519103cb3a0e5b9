//! One io_uring per data thread, shared by its disks and its sockets.
//!
//! The interface is safe because an [`Operation`] owns all that the kernel may
//! touch: buffers, the description of pieces and addresses, and the file. The
//! ring keeps it until the kernel's final completion, whatever happens to
//! those who asked. A cancelled operation too comes back only by its own
//! completion.
//!
//! Each user of the ring has a [`Mailbox`]; whoever runs the loop calls
//! [`Ring::turn`], which submits everything that was started since and waits,
//! with one system call.

#![allow(unsafe_code)] // Submission entries hold raw pointers; slot.rs says why they hold.

mod dummy;
mod gather;
mod idle;
mod operation;
mod ring;
mod slot;

pub use dummy::dummy;
pub use gather::{GATHER_PIECES_MAX, Gather};
pub use operation::{Completion, Done, Errno, Operation, SendWait};
pub use ring::{Key, Mailbox, Ring, RingError};
