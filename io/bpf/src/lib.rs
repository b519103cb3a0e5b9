//! What third-party transfer asks of the kernel (SPIRAL sections 2 and 3).
//!
//! A gateway has a [`CatchDevice`], which only the packets of marked sockets are routed to
//! and which sends nothing by itself, and on it the [`Catcher`], a program that forwards
//! what may go as it is and tells of all else. A node has a [`SendDevice`], which takes
//! packets with a gateway's address as their source; a gateway has one for what no node sends.
//!
//! Linux only, and all but [`Dummy`] with the privileges to administer the network
//! (CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON).

mod catch_device;
mod catcher;
mod dummy;
mod rule;
mod send_device;
mod slots;

pub use catch_device::CatchDevice;
pub use catcher::{Catcher, Figures, Room};
pub use dummy::Dummy;
pub use send_device::{SendDevice, Speaker};

use thiserror::Error;

/// Why the kernel does not do its part. Everything can be relayed instead.
#[derive(Debug, Error)]
pub enum BpfError {
    /// A command of iproute2 failed.
    #[error("`{program} {words}` failed: {said}; are iproute2 and CAP_NET_ADMIN there?")]
    Tool {
        /// Its program.
        program: &'static str,
        /// Its words.
        words: String,
        /// Its complaint.
        said: String,
    },
    /// The kernel does not take the program or one of its maps.
    #[error("the redirector's program: {0}; it needs Linux 6.1, CAP_BPF and CAP_NET_ADMIN")]
    Program(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's word.
        error: std::io::Error,
    },
    /// As many connections as the program knows are there.
    #[error("{0} connections can be served by nodes at a time, and all of them are")]
    Full(usize),
}

impl BpfError {
    fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System {
            what,
            error: errno.into(),
        }
    }
}
