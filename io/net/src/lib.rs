//! The event loop of a data thread: TCP and UDP sockets, disks, wake-ups and
//! time, over one io_uring, or over epoll and a thread pool where the kernel
//! or a policy has no ring for us.
//!
//! The loop holds no policy. It moves bytes, in batches: whatever is commanded
//! between two calls of [`Driver::wait`] goes to the kernel with that call, by
//! one system call where there is a ring.
//!
//! ```text
//! loop {
//!     driver.wait(machine.poll_timeout())?;
//!     let now = now();                       // once per turn
//!     while let Some(event) = driver.next_event() {
//!         machine.handle(now, event);        // commands the driver
//!     }
//! }
//! ```

mod at_hand;
mod buffers;
mod connection;
mod driver;
mod epoll;
mod event;
mod interface;
mod kernel;
mod pace;
mod packets;
mod ring;
mod system;
mod table;
mod tcp_info;
mod wake;

pub use crossdock_ring::dummy;
pub use driver::{Driver, Started};
pub use event::{
    CloseReason, ConnectionId, DiskId, Event, KernelChoice, ListenerId, NetError, Options,
    SendError, SocketId, Unsent, WatchId,
};
pub use interface::Interface;
pub use system::{allow_cpus, allowed_cpus, give_way, listener, now, pin_thread};
pub use tcp_info::TcpInfo;
pub use wake::{Receiver, Refused, Sender, Waker, channel};
