//! What the loop tells, and what it is told by numbers.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use crossdock_disk::DiskCompletion;

/// A listening TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub(crate) u32);

/// A TCP connection. Never used for another one again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(crate) generation: u32,
    pub(crate) index: u32,
}

/// A bound UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub(crate) u32);

/// A descriptor that is only waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub(crate) u32);

/// A disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub(crate) u32);

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A client has connected.
    Accepted {
        /// Where.
        listener: ListenerId,
        /// Its name from now on.
        connection: ConnectionId,
        /// From where.
        peer: SocketAddr,
    },
    /// The next bytes of a connection, as many as there were.
    Received {
        /// Of which connection.
        connection: ConnectionId,
        /// At least one byte.
        bytes: Bytes,
    },
    /// What [`fill`](crate::Driver::fill) asked for is complete.
    Filled {
        /// Of which connection.
        connection: ConnectionId,
        /// The head and the bytes that were missing.
        bytes: Bytes,
    },
    /// The peer will send no more, but can still read; the connection stays
    /// open until it is closed here. Part of what was expected is dropped.
    PeerDone {
        /// Of which connection.
        connection: ConnectionId,
    },
    /// The send queue had been above the low-water mark and is no more.
    Writable {
        /// Of which connection.
        connection: ConnectionId,
        /// What is still queued.
        queued_bytes: usize,
    },
    /// The connection is gone: the last event of each, whoever ended it.
    Closed {
        /// Which connection.
        connection: ConnectionId,
        /// How it came.
        why: CloseReason,
    },
    /// A datagram has come.
    Datagram {
        /// To which socket.
        socket: SocketId,
        /// From whom.
        from: SocketAddr,
        /// The whole of it.
        bytes: Bytes,
    },
    /// A request of a disk has completed.
    Disk(DiskId, DiskCompletion),
    /// There is something to read where [`watch`](crate::Driver::watch) waits; told again
    /// with each wait until it has been read.
    Readable(WatchId),
    /// Another thread has called [`Waker::wake`](crate::Waker::wake). May also
    /// come without a reason.
    Woken,
    /// The time of [`wait`](crate::Driver::wait) was up.
    Timeout,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// By [`close`](crate::Driver::close), after everything was handed to the
    /// kernel, or by [`abort`](crate::Driver::abort).
    Local,
    /// The peer has reset it, or does not listen any more.
    Reset,
    /// The system's error number.
    Failed(i32),
}

/// Why bytes were not taken for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection or socket is closed, or about to be.
    #[error("the connection is closed")]
    Closed,
    /// The queue is at its limit: wait for [`Event::Writable`]. A datagram is
    /// dropped.
    #[error("the send queue is full")]
    Full,
}

/// Pieces that a connection did not take, none of them.
#[derive(Debug, thiserror::Error)]
#[error("not sent: {why}")]
pub struct Unsent {
    /// Why.
    pub why: SendError,
    /// What was to be sent.
    pub pieces: Vec<Bytes>,
}

/// Why the loop, or a socket of it, cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The ring was demanded and is not there, or has failed.
    #[error(transparent)]
    Ring(#[from] crossdock_ring::RingError),
    /// A socket cannot listen at its address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// Another call of the system failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

/// Which of the kernel's ways to wait is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelChoice {
    /// io_uring, or else epoll.
    #[default]
    Best,
    /// io_uring or nothing.
    Ring,
    /// epoll, with a thread pool for the disks.
    Epoll,
}

/// The bounds of one loop.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which of the kernel's ways to wait is used.
    pub kernel: KernelChoice,
    /// Operations that can be started per turn without an extra system call.
    pub ring_entries: u32,
    /// Connections at once; more wait in the listen queue.
    pub connections_max: usize,
    /// A connection's send queue takes no more when it holds so many bytes.
    pub send_queue_bytes_max: usize,
    /// Datagrams of one socket on their way out; more are dropped.
    pub datagrams_max: usize,
    /// How long the loop looks for events before it sleeps, where there is a ring; see
    /// [`crossdock_ring::Ring::set_idle_poll`].
    pub idle_poll: Duration,
    /// Threads that serve the disks where there is no ring.
    pub disk_threads: usize,
    /// Whether bulk bytes go from socket to disk and back as they lie in memory. Without,
    /// which is for comparison, what is [filled](crate::Driver::fill) lies where a disk cannot
    /// take it, and has to be copied; and what is sent is copied before.
    pub zero_copy: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kernel: KernelChoice::Best,
            ring_entries: 1024,
            connections_max: 4096,
            send_queue_bytes_max: 20 << 20,
            datagrams_max: 256,
            idle_poll: Duration::ZERO,
            disk_threads: 8,
            zero_copy: true,
        }
    }
}

impl ConnectionId {
    /// The name as a number, for machines that know connections by number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The inverse of [`Self::as_u64`]. A number that never was a name gives
    /// the name of a connection that is gone.
    #[must_use]
    pub const fn from_u64(number: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the low half")]
        let index = number as u32;
        let generation = (number >> 32) as u32;
        Self { generation, index }
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "ConnectionId({}.{})",
            self.index, self.generation
        )
    }
}

impl NetError {
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a name survives being a number.
    #[test]
    fn connections_can_be_numbers() {
        let id = ConnectionId {
            generation: 7,
            index: u32::MAX,
        };
        assert_eq!(ConnectionId::from_u64(id.as_u64()), id);
    }
}
