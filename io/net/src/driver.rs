//! The loop as its caller has it.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use crossdock_disk::{DiskFile, DiskRequest};
use crossdock_ring::{Ring, RingError};
use crossdock_types::{Fill, Time};
use socket2::SockRef;

use crate::at_hand::receive_at_hand;
use crate::connection::Expected;
use crate::epoll::EpollKernel;
use crate::kernel::Kernel;
use crate::ring::RingKernel;
use crate::system::{bind_datagram, listen, now, ready_connection};
use crate::table::Table;
use crate::wake::Waker;
use crate::{
    CloseReason, ConnectionId, DiskId, Event, KernelChoice, ListenerId, NetError, Options,
    SendError, SocketId, TcpInfo, Unsent, WatchId,
};

/// The event loop of the thread that made it.
///
/// Commands return at once and take effect with the next [`wait`](Self::wait);
/// those on a connection that is gone do nothing. Each connection ends with
/// exactly one [`Event::Closed`], whoever closed it.
pub struct Driver {
    table: Table,
    kernel: Box<dyn Kernel>,
    waker: Waker,
}

/// Without zero copy bulk bytes lie so far beside the place where a disk would take them.
const BESIDE_BYTES: usize = 8;

/// A loop, and how it came.
pub struct Started {
    /// The loop.
    pub driver: Driver,
    /// Why it does without io_uring, if [`KernelChoice::Best`] was asked for
    /// and there is none: to be logged as a warning.
    pub fallback: Option<RingError>,
}

impl Driver {
    /// Makes the loop of the calling thread.
    ///
    /// # Errors
    /// [`NetError::Ring`] if a ring was demanded, [`NetError::System`] if the
    /// system has no descriptors left.
    pub fn start(options: Options) -> Result<Started, NetError> {
        let (ring, fallback) = match options.kernel {
            KernelChoice::Epoll => (None, None),
            KernelChoice::Ring => (Some(Ring::new(options.ring_entries)?), None),
            KernelChoice::Best => match Ring::new(options.ring_entries) {
                Ok(ring) => (Some(ring), None),
                Err(reason) => (None, Some(reason)),
            },
        };
        let waker = Waker::new(ring.is_none()).map_err(NetError::system("make a wake-up"))?;
        let kernel: Box<dyn Kernel> = match ring {
            Some(ring) => {
                ring.set_idle_poll(options.idle_poll);
                Box::new(RingKernel::new(ring, waker.clone()))
            }
            None => Box::new(EpollKernel::new(waker.clone(), options.disk_threads)?),
        };
        let driver = Self {
            table: Table::new(options),
            kernel,
            waker,
        };
        Ok(Started { driver, fallback })
    }

    /// Hands over what was commanded and waits until something happens, at
    /// most until `until`. Returns at once while events are waiting. May
    /// return without an event.
    ///
    /// # Errors
    /// The kernel's way of waiting has failed; the loop is of no more use.
    pub fn wait(&mut self, until: Option<Time>) -> Result<(), NetError> {
        let patience = match until {
            _ if !self.table.events.is_empty() => Some(Duration::ZERO),
            Some(until) => Some(until - now()),
            None => None,
        };
        self.table.turns += 1;
        self.kernel.wait(&mut self.table, patience)?;
        if until.is_some_and(|until| now() >= until) {
            self.table.events.push_back(Event::Timeout);
        }
        Ok(())
    }

    /// The next of the events that the last waits have brought.
    pub fn next_event(&mut self) -> Option<Event> {
        let event = self.table.events.pop_front();
        if let Some(Event::Received { connection, .. }) = &event
            && let Some(found) = self.table.get_mut(*connection)
        {
            found.heard();
        }
        event
    }

    /// What other threads need to end a wait.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// System calls made so far to wait and to hand over work.
    #[must_use]
    pub fn enters(&self) -> u64 {
        self.kernel.enters()
    }
}

/// TCP.
impl Driver {
    /// Listens at `address`; port 0 picks a free one. Tells the address it got.
    ///
    /// # Errors
    /// [`NetError::Listen`].
    pub fn listen(&mut self, address: SocketAddr) -> Result<(ListenerId, SocketAddr), NetError> {
        let (socket, address) = listen(address, self.kernel.nonblocking())?;
        Ok((self.kernel.add_listener(socket)?, address))
    }

    /// Accepts no more there. Connections stay.
    pub fn close_listener(&mut self, listener: ListenerId) {
        self.kernel.remove_listener(listener);
    }

    /// Makes a connection of the loop of a socket that is connected already.
    ///
    /// # Errors
    /// [`NetError::System`] if it is broken.
    pub fn adopt(&mut self, stream: TcpStream) -> Result<ConnectionId, NetError> {
        let socket = OwnedFd::from(stream);
        ready_connection(&socket, self.kernel.nonblocking())
            .map_err(NetError::system("use the connection"))?;
        Ok(self.table.insert(socket))
    }

    /// Sends all pieces, one after the other. They are held, not copied, until
    /// the kernel has taken them.
    ///
    /// # Errors
    /// [`Unsent`], with the pieces: the connection is closed, or its queue
    /// holds [`Options::send_queue_bytes_max`] already. A queue below that
    /// limit takes whatever comes, so one reply can exceed it.
    pub fn send(&mut self, connection: ConnectionId, pieces: Vec<Bytes>) -> Result<(), Unsent> {
        let Options {
            send_queue_bytes_max: bytes_max,
            zero_copy,
            ..
        } = self.table.options;
        if self.table.get(connection).is_none() {
            let why = SendError::Closed;
            return Err(Unsent { why, pieces });
        }
        let pieces = match zero_copy {
            true => pieces,
            false => vec![pieces.concat().into()],
        };
        let sent = self
            .table
            .change(connection, |found, _| found.send(pieces, bytes_max));
        sent.unwrap_or(Ok(()))
    }

    /// Bytes that were sent and that the kernel has not taken yet.
    #[must_use]
    pub fn queued_bytes(&self, connection: ConnectionId) -> usize {
        self.table
            .get(connection)
            .map_or(0, |found| found.queued_bytes())
    }

    /// [`Event::Writable`] comes when the queue sinks to `bytes` or below, after
    /// it was above. Half of the queue's limit to begin with.
    pub fn set_low_water(&mut self, connection: ConnectionId, bytes: usize) {
        self.table
            .change(connection, |found, _| found.set_low_water(bytes));
    }

    /// From now on the kernel goes on with each send by itself, as acknowledgements make
    /// room, and the loop hears of it when all is taken: one completion for up to 1 MiB,
    /// however small the socket's buffer is. A peer that is slow is tried again at ticks
    /// instead, together with others. Until then nothing is seen of how far it has
    /// come. Without a ring nothing changes.
    pub fn send_whole(&mut self, connection: ConnectionId) {
        self.table
            .change(connection, |found, _| found.sends_whole = true);
    }

    /// Reads no more; [`Event::Closed`] comes when everything that was sent is
    /// in the kernel's hands. A peer that does not read can delay that for
    /// ever: then [`abort`](Self::abort).
    pub fn close(&mut self, connection: ConnectionId) {
        self.table.change(connection, |found, _| found.close());
    }

    /// Ends the connection at once, with a reset. What is queued is dropped.
    pub fn abort(&mut self, connection: ConnectionId) {
        self.table.change(connection, |found, _| {
            // Without it the kernel would still send what it has taken.
            let _ = SockRef::from(&*found.socket).set_linger(Some(Duration::ZERO));
            found.die(CloseReason::Local);
        });
    }

    /// No more [`Event::Received`] of it until it is
    /// [resumed](Self::resume_receive); the peer's sending stalls by TCP's own
    /// means. What lies in the event queue already still comes.
    pub fn pause_receive(&mut self, connection: ConnectionId) {
        self.table.change(connection, |found, _| found.pause());
    }

    /// Goes on reading.
    pub fn resume_receive(&mut self, connection: ConnectionId) {
        self.table
            .change(connection, |found, events| found.resume(events));
    }

    /// The next bytes of which no event was taken yet come in one piece, as many as are
    /// missing, right behind the head, by [`Event::Filled`]. For the bulk of a large
    /// record; the caller has checked the length against its limit.
    ///
    /// # Panics
    /// If the last one is not filled yet.
    pub fn fill(&mut self, connection: ConnectionId, fill: &Fill) {
        let lead_bytes = match self.table.options.zero_copy {
            true => fill.lead_bytes,
            false => fill.lead_bytes + BESIDE_BYTES,
        };
        let filled = lead_bytes + fill.head.len();
        let end = filled + fill.missing_bytes;
        let mut buffer = self.table.pool.take_at_least(end);
        buffer[lead_bytes..filled].copy_from_slice(&fill.head);
        let expected = Expected {
            buffer,
            filled,
            end,
            pool: self.table.pool.clone(),
        };
        let (turn, pool) = (self.table.turns, self.table.pool.clone());
        self.table.change(connection, |found, events| {
            found.expect(expected, lead_bytes, events);
            receive_at_hand(found, (turn, &pool), events);
        });
    }

    /// How the connection is doing, as the kernel sees it.
    #[must_use]
    pub fn tcp_info(&self, connection: ConnectionId) -> Option<TcpInfo> {
        TcpInfo::of(self.socket(connection)?)
    }

    /// The connection's socket, for questions to the kernel (TCP_INFO) and
    /// options. Reading, writing and closing it are the loop's.
    #[must_use]
    pub fn socket(&self, connection: ConnectionId) -> Option<BorrowedFd<'_>> {
        self.table.get(connection).map(|found| found.socket.as_fd())
    }
}

/// UDP.
impl Driver {
    /// Receives datagrams at `address`; port 0 picks a free one. Tells the
    /// address it got.
    ///
    /// # Errors
    /// [`NetError::Listen`].
    pub fn bind_datagram(
        &mut self,
        address: SocketAddr,
    ) -> Result<(SocketId, SocketAddr), NetError> {
        let (socket, address) = bind_datagram(address, self.kernel.nonblocking())?;
        Ok((self.kernel.add_socket(socket)?, address))
    }

    /// Receives no more there.
    pub fn close_datagram(&mut self, socket: SocketId) {
        self.kernel.remove_socket(socket);
    }

    /// Sends one datagram of all pieces.
    ///
    /// # Errors
    /// [`SendError`]: it is dropped, as the network itself might have done.
    pub fn send_datagram(
        &mut self,
        socket: SocketId,
        target: SocketAddr,
        pieces: Vec<Bytes>,
    ) -> Result<(), SendError> {
        let datagrams_max = self.table.options.datagrams_max;
        self.kernel
            .send_datagram(socket, target, pieces, datagrams_max)
    }
}

/// Others.
impl Driver {
    /// Tells by [`Event::Readable`] when a descriptor has something to read, which the
    /// caller does himself: a ring of the kernel, a device.
    ///
    /// # Errors
    /// [`NetError::System`] if it cannot be waited for.
    pub fn watch(&mut self, descriptor: OwnedFd) -> Result<WatchId, NetError> {
        self.kernel.add_watch(descriptor)
    }
}

/// Disks.
impl Driver {
    /// Serves a disk. Its completions come as [`Event::Disk`].
    ///
    /// # Errors
    /// [`NetError::System`] if the system refuses the threads.
    pub fn add_disk(&mut self, file: DiskFile) -> Result<DiskId, NetError> {
        self.kernel.add_disk(file)
    }

    /// Lets go of a disk, all of whose requests have completed.
    ///
    /// # Panics
    /// If the disk is of another loop.
    pub fn remove_disk(&mut self, disk: DiskId) {
        self.kernel.remove_disk(disk);
    }

    /// Starts a request of a disk.
    ///
    /// # Panics
    /// If the disk is of another loop, or was removed.
    pub fn submit_disk(&mut self, disk: DiskId, request: DiskRequest) {
        self.kernel.disk(disk).submit(request);
    }

    /// The disk's present length.
    ///
    /// # Panics
    /// If the disk is of another loop, or was removed.
    #[must_use]
    pub fn disk_length_bytes(&mut self, disk: DiskId) -> u64 {
        self.kernel.disk(disk).length_bytes()
    }
}
