//! What the ring can be asked to do.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use crossdock_types::{AlignedBuffer, Scatter};

use crate::Gather;

/// One thing to do, with everything that the kernel may touch while it does
/// it. Comes back whole in the [`Completion`].
///
/// Sockets and event counters must be in blocking mode: the ring itself waits
/// for them, and would report "try again" for others.
#[derive(Debug)]
pub enum Operation {
    /// Reads into `buffer[filled..]` from `offset_bytes + filled`.
    Read {
        /// The file.
        file: Rc<OwnedFd>,
        /// Where in the file the buffer's first byte belongs.
        offset_bytes: u64,
        /// Where to.
        buffer: Scatter,
        /// Bytes that are there already.
        filled: usize,
    },
    /// Writes `pieces` at `offset_bytes`.
    Write {
        /// The file.
        file: Rc<OwnedFd>,
        /// Where in the file the first byte left in `pieces` belongs.
        offset_bytes: u64,
        /// What to write.
        pieces: Gather,
        /// Whether it completes only when the bytes are stable, unless fewer
        /// were written than asked for.
        is_durable: bool,
    },
    /// Makes the file's data, and what is needed to find it, stable.
    Flush {
        /// The file.
        file: Rc<OwnedFd>,
    },
    /// Gives the range space of its own, and the file the length to hold it.
    Allocate {
        /// The file.
        file: Rc<OwnedFd>,
        /// Where the range begins.
        offset_bytes: u64,
        /// How long it is.
        length_bytes: u64,
    },
    /// Accepts one connection.
    Accept {
        /// The listening socket.
        listener: Rc<OwnedFd>,
    },
    /// Receives into `buffer[filled..end]`.
    Receive {
        /// A connected socket.
        socket: Rc<OwnedFd>,
        /// Where to.
        buffer: AlignedBuffer,
        /// Bytes that are there already.
        filled: usize,
        /// Where to stop; at most the buffer's length.
        end: usize,
        /// Whether to complete only when all is filled (or the peer ends).
        whole: bool,
    },
    /// Sends from the front of `pieces`.
    Send {
        /// A connected socket.
        socket: Rc<OwnedFd>,
        /// What to send.
        pieces: Gather,
        /// For what it waits.
        wait: SendWait,
    },
    /// Receives one datagram.
    ReceiveFrom {
        /// A bound socket.
        socket: Rc<OwnedFd>,
        /// Where to.
        buffer: AlignedBuffer,
    },
    /// Sends one datagram.
    SendTo {
        /// A bound socket.
        socket: Rc<OwnedFd>,
        /// To whom.
        target: SocketAddr,
        /// All of it, in order.
        pieces: Gather,
    },
    /// Waits until the event counter is not zero, and zeroes it.
    Wake {
        /// The counter.
        counter: Arc<OwnedFd>,
    },
    /// Waits until there is something to read, and reads nothing.
    Watch {
        /// Whatever can be polled.
        descriptor: Rc<OwnedFd>,
    },
}

/// For what a send waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendWait {
    /// For nothing: it takes what there is room for, or is told to try again.
    Nothing,
    /// For some room.
    Room,
    /// Until all is sent, or the connection ends: the kernel goes on by itself each time
    /// that acknowledgements have made room.
    All,
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// What the caller gave with the operation.
    pub tag: u64,
    /// The operation, as it was started: progress is in `result` only.
    pub operation: Operation,
    /// What came of it.
    pub result: Result<Done, Errno>,
}

/// What an operation that succeeded did.
#[derive(Debug)]
pub enum Done {
    /// So many bytes were moved; less than asked for is no error.
    Bytes(usize),
    /// A connection came.
    Accepted(OwnedFd),
    /// A datagram came.
    Datagram {
        /// From whom.
        from: SocketAddr,
        /// Its length, or how much of it found room.
        bytes: usize,
        /// Whether it was longer than the buffer.
        truncated: bool,
    },
}

/// The system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}
