//! The loop over io_uring: everything that is wanted is in flight, and one
//! system call per turn hands over the new and takes the done.

use std::collections::BTreeSet;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_disk::uring::UringDisk;
use crossdock_disk::{Disk, DiskFile};
use crossdock_ring::{Completion, Done, Errno, Gather, Key, Mailbox, Operation, Ring, SendWait};
use crossdock_types::Time;
use socket2::SockRef;

use crate::buffers::BufferSize;
use crate::connection::{Connection, Expected};
use crate::kernel::{Kernel, STALL, is_exhausted, rest_left, shorter};
use crate::system::{held_by, now};
use crate::table::Table;
use crate::wake::Waker;
use crate::{DiskId, Event, ListenerId, NetError, SendError, SocketId, WatchId};

/// One send takes no more than about this, so that the queue is seen to sink.
const SEND_BYTES_MAX: usize = 1 << 20;
/// Receives in flight per datagram socket: what can arrive between two turns
/// without a stop at the socket's own buffer.
const DATAGRAM_RECEIVES: usize = 8;

pub(crate) struct RingKernel {
    ring: Ring,
    mailbox: Mailbox,
    waker: Waker,
    wake_armed: bool,
    listeners: Vec<Listener>,
    sockets: Vec<DatagramSocket>,
    /// Descriptors that are only waited for, and whether they are.
    watches: Vec<(Rc<OwnedFd>, bool)>,
    /// By number; those that were removed leave a gap.
    disks: Vec<Option<UringDisk>>,
    /// Connections that are sent to later, and when.
    resting: BTreeSet<(Time, u32)>,
}

struct Listener {
    /// Absent when closed.
    socket: Option<Rc<OwnedFd>>,
    accepting: Option<Key>,
    rests_until: Option<Time>,
}

struct DatagramSocket {
    /// Absent when closed.
    socket: Option<Rc<OwnedFd>>,
    receiving: [Option<Key>; DATAGRAM_RECEIVES],
    sending: usize,
}

/// What an operation was for; travels in its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Wake,
    Accept,
    Receive,
    /// For [`crate::Driver::fill`].
    ReceiveExpected,
    Send,
    DatagramIn,
    DatagramOut,
    Watch,
}

impl RingKernel {
    pub(crate) fn new(ring: Ring, waker: Waker) -> Self {
        Self {
            mailbox: ring.open_mailbox(),
            ring,
            waker,
            wake_armed: false,
            listeners: Vec::new(),
            sockets: Vec::new(),
            watches: Vec::new(),
            disks: Vec::new(),
            resting: BTreeSet::new(),
        }
    }

    /// Puts in flight what shall always be in flight.
    fn arm(&mut self, table: &Table, now: Time) {
        if !self.wake_armed {
            self.wake_armed = true;
            let counter = Arc::clone(self.waker.counter());
            self.mailbox
                .start(Purpose::Wake.tag(0), Operation::Wake { counter });
        }
        for (index, (descriptor, is_watched)) in self.watches.iter_mut().enumerate() {
            if !std::mem::replace(is_watched, true) {
                let descriptor = Rc::clone(descriptor);
                let operation = Operation::Watch { descriptor };
                self.mailbox.start(Purpose::Watch.tag(index), operation);
            }
        }
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            if listener.accepting.is_none()
                && table.has_room()
                && rest_left(listener.rests_until, now).is_none()
                && let Some(socket) = &listener.socket
            {
                let listener_socket = Rc::clone(socket);
                let operation = Operation::Accept {
                    listener: listener_socket,
                };
                listener.accepting =
                    Some(self.mailbox.start(Purpose::Accept.tag(index), operation));
            }
        }
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            let Some(fd) = &socket.socket else { continue };
            for (place, receiving) in socket.receiving.iter_mut().enumerate() {
                receiving.get_or_insert_with(|| {
                    let operation = Operation::ReceiveFrom {
                        socket: Rc::clone(fd),
                        buffer: table.pool.take(BufferSize::Datagram),
                    };
                    let tag = Purpose::DatagramIn.tag(index * DATAGRAM_RECEIVES + place);
                    self.mailbox.start(tag, operation)
                });
            }
        }
    }

    fn rest(&self, now: Time) -> Option<Duration> {
        let listeners = self.listeners.iter().map(|listener| listener.rests_until);
        let connection = self.resting.first().map(|&(until, _)| until);
        let rests = listeners.chain([connection]);
        rests.filter_map(|until| rest_left(until, now)).min()
    }

    /// Has the connections looked at whose rest is over.
    fn end_rests(&mut self, table: &mut Table, now: Time) {
        while let Some(&(until, index)) = self.resting.first()
            && until <= now
        {
            self.resting.pop_first();
            table.mark(index);
        }
    }

    /// Starts what a connection wants, or ends it.
    fn look_at(&mut self, table: &mut Table, index: u32, now: Time) {
        let (pool, is_crowded) = (table.pool.clone(), table.is_crowded());
        let Some((connection, _)) = table.at(index) else {
            return;
        };
        if let Some(why) = connection.ending() {
            let kernel = &mut connection.kernel;
            if !(kernel.receiving || kernel.sending) {
                drop(table.remove(index, why));
            } else if !kernel.shut {
                // What is in flight holds the socket open: end it. Its
                // completion brings us here again.
                kernel.shut = true;
                let _ = SockRef::from(&*connection.socket).shutdown(Shutdown::Both);
            }
            return;
        }
        if connection.wants_bytes() && !connection.kernel.receiving {
            connection.kernel.receiving = true;
            let (purpose, operation) = match connection.take_expected() {
                Some(expected) => {
                    let operation = expected.into_operation(&connection.socket);
                    (Purpose::ReceiveExpected, operation)
                }
                None => {
                    let (size, end) = connection.room(is_crowded);
                    let operation = Operation::Receive {
                        socket: Rc::clone(&connection.socket),
                        filled: 0,
                        end,
                        buffer: pool.take(size),
                        whole: false,
                    };
                    (Purpose::Receive, operation)
                }
            };
            self.mailbox.start(purpose.tag(index as usize), operation);
        }
        if connection.queued_bytes() == 0 || connection.kernel.sending {
            return;
        }
        if let Some(until) = connection.kernel.pace.rests_until(now) {
            self.resting.insert((until, index));
            return;
        }
        let operation = start_send(connection, now);
        let tag = Purpose::Send.tag(index as usize);
        self.mailbox.start(tag, operation);
    }

    fn complete(&mut self, table: &mut Table, completion: Completion) {
        let Completion {
            tag,
            operation,
            result,
        } = completion;
        let (purpose, index) = Purpose::of(tag);
        match operation {
            Operation::Wake { .. } => {
                self.wake_armed = false;
                self.waker.heard();
                table.events.push_back(Event::Woken);
            }
            Operation::Watch { .. } => {
                self.watches[index].1 = false;
                let id = WatchId(u32::try_from(index).expect("few descriptors"));
                table.events.push_back(Event::Readable(id));
            }
            Operation::Accept { .. } => self.accepted(table, index, result),
            Operation::Receive {
                buffer,
                filled,
                end,
                ..
            } => {
                let expected = Expected {
                    buffer,
                    filled,
                    end,
                    pool: table.pool.clone(),
                };
                received(table, purpose, index, expected, result);
            }
            Operation::Send { pieces, .. } => sent(table, index, pieces, result),
            Operation::ReceiveFrom { buffer, .. } => {
                let (socket, place) = (index / DATAGRAM_RECEIVES, index % DATAGRAM_RECEIVES);
                self.sockets[socket].receiving[place] = None;
                let open = self.sockets[socket].socket.is_some();
                match result {
                    Ok(Done::Datagram {
                        from,
                        bytes,
                        truncated: false,
                    }) if open => {
                        let bytes = table.pool.share_received(buffer, bytes);
                        let socket = SocketId(u32::try_from(socket).expect("few sockets"));
                        table.events.push_back(Event::Datagram {
                            socket,
                            from,
                            bytes,
                        });
                    }
                    _ => table.pool.give_back(buffer),
                }
            }
            // Whether it arrives is not known here in any case.
            Operation::SendTo { .. } => self.sockets[index].sending -= 1,
            // The disks have mailboxes of their own.
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Flush { .. }
            | Operation::Allocate { .. } => {}
        }
    }

    fn accepted(&mut self, table: &mut Table, index: usize, result: Result<Done, Errno>) {
        let listener = &mut self.listeners[index];
        listener.accepting = None;
        match result {
            Ok(Done::Accepted(socket)) if listener.socket.is_some() => {
                let id = ListenerId(u32::try_from(index).expect("few listeners"));
                table.admit(id, socket);
            }
            Err(errno) if is_exhausted(errno.0) => listener.rests_until = Some(now() + STALL),
            // Closed meanwhile, or the peer went before it was accepted.
            _ => {}
        }
    }
}

fn received(
    table: &mut Table,
    purpose: Purpose,
    index: usize,
    target: Expected,
    result: Result<Done, Errno>,
) {
    let index = u32::try_from(index).expect("an index of a connection");
    let plain = purpose == Purpose::Receive;
    let room = target.end - target.filled;
    let pool = table.pool.clone();
    let Some((connection, events)) = table.at(index) else {
        return;
    };
    connection.kernel.receiving = false;
    match result {
        Ok(Done::Bytes(0)) => connection.peer_ended(events),
        Ok(Done::Bytes(bytes)) if plain => {
            connection.received(pool.share_received(target.buffer, bytes), room, events);
        }
        Ok(Done::Bytes(bytes)) => connection.received_expected(target, bytes, events),
        Ok(_) => {}
        Err(Errno(libc::EINTR | libc::EAGAIN)) if plain => pool.give_back(target.buffer),
        Err(Errno(libc::EINTR | libc::EAGAIN)) => {
            connection.received_expected(target, 0, events);
        }
        Err(errno) => connection.fail(errno.0),
    }
    table.mark(index);
}

/// The next send of a connection that has something to send.
fn start_send(connection: &mut Connection, now: Time) -> Operation {
    let kernel = &mut connection.kernel;
    kernel.sending = true;
    let pieces = kernel.unsent.take().unwrap_or_else(|| {
        let mut pieces = Gather::default();
        pieces.refill(&mut connection.queue, SEND_BYTES_MAX);
        connection.sending_bytes = pieces.len();
        pieces
    });
    Operation::Send {
        socket: Rc::clone(&connection.socket),
        pieces,
        wait: match connection.sends_whole {
            true => kernel.pace.begin(now),
            false => SendWait::Room,
        },
    }
}

fn sent(table: &mut Table, index: usize, mut pieces: Gather, result: Result<Done, Errno>) {
    let index = u32::try_from(index).expect("an index of a connection");
    let Some((connection, events)) = table.at(index) else {
        return;
    };
    connection.kernel.sending = false;
    let bytes = match result {
        Ok(Done::Bytes(bytes)) => bytes,
        Ok(_) | Err(Errno(libc::EINTR | libc::EAGAIN)) => 0,
        Err(errno) => {
            connection.fail(errno.0);
            0
        }
    };
    pieces.advance(bytes);
    if connection.sends_whole {
        let socket = &connection.socket;
        let pace = &mut connection.kernel.pace;
        pace.end(now(), bytes, pieces.is_empty(), || held_by(socket));
    }
    if connection.sends_whole && !pieces.is_empty() {
        // As if it were still in flight: the caller hears of it when all is taken.
        connection.kernel.unsent = Some(pieces);
    } else {
        connection.sending_bytes = 0;
        connection.queue.put_back(pieces);
        connection.sent(events);
    }
    table.mark(index);
}

impl Kernel for RingKernel {
    fn nonblocking(&self) -> bool {
        false // The ring waits for sockets itself.
    }

    fn wait(&mut self, table: &mut Table, patience: Option<Duration>) -> Result<(), NetError> {
        let now = now();
        self.arm(table, now);
        self.end_rests(table, now);
        while let Some(index) = table.next_marked() {
            self.look_at(table, index, now);
        }
        let answered = self.disks.iter().flatten().any(UringDisk::has_answered);
        let patience = if answered || !table.events.is_empty() {
            Some(Duration::ZERO)
        } else {
            shorter(patience, self.rest(now))
        };
        self.ring.turn(patience)?;
        while let Some(completion) = self.mailbox.take() {
            self.complete(table, completion);
        }
        let disks = (0..).zip(&mut self.disks);
        for (index, disk) in disks.filter_map(|(index, disk)| Some((index, disk.as_mut()?))) {
            while let Some(completion) = disk.poll() {
                table
                    .events
                    .push_back(Event::Disk(DiskId(index), completion));
            }
        }
        Ok(())
    }

    fn add_watch(&mut self, descriptor: OwnedFd) -> Result<WatchId, NetError> {
        self.watches.push((Rc::new(descriptor), false));
        Ok(WatchId(last_index(&self.watches)))
    }

    fn add_listener(&mut self, socket: OwnedFd) -> Result<ListenerId, NetError> {
        self.listeners.push(Listener {
            socket: Some(Rc::new(socket)),
            accepting: None,
            rests_until: None,
        });
        Ok(ListenerId(last_index(&self.listeners)))
    }

    fn remove_listener(&mut self, id: ListenerId) {
        let listener = &mut self.listeners[id.0 as usize];
        listener.socket = None;
        if let Some(key) = listener.accepting {
            self.mailbox.cancel(key);
        }
    }

    fn add_socket(&mut self, socket: OwnedFd) -> Result<SocketId, NetError> {
        self.sockets.push(DatagramSocket {
            socket: Some(Rc::new(socket)),
            receiving: [None; DATAGRAM_RECEIVES],
            sending: 0,
        });
        Ok(SocketId(last_index(&self.sockets)))
    }

    fn remove_socket(&mut self, id: SocketId) {
        let socket = &mut self.sockets[id.0 as usize];
        socket.socket = None;
        for key in socket.receiving.into_iter().flatten() {
            self.mailbox.cancel(key);
        }
    }

    fn send_datagram(
        &mut self,
        id: SocketId,
        target: SocketAddr,
        pieces: Vec<Bytes>,
        datagrams_max: usize,
    ) -> Result<(), SendError> {
        let index = id.0 as usize;
        let socket = &mut self.sockets[index];
        let fd = socket.socket.as_ref().ok_or(SendError::Closed)?;
        if socket.sending >= datagrams_max {
            return Err(SendError::Full);
        }
        socket.sending += 1;
        let operation = Operation::SendTo {
            socket: Rc::clone(fd),
            target,
            pieces: pieces.into_iter().collect(),
        };
        self.mailbox
            .start(Purpose::DatagramOut.tag(index), operation);
        Ok(())
    }

    fn add_disk(&mut self, file: DiskFile) -> Result<DiskId, NetError> {
        self.disks.push(Some(UringDisk::new(&self.ring, file)));
        Ok(DiskId(last_index(&self.disks)))
    }

    fn remove_disk(&mut self, id: DiskId) {
        self.disks[id.0 as usize] = None;
    }

    fn disk(&mut self, id: DiskId) -> &mut dyn Disk {
        let disk = self.disks[id.0 as usize].as_mut();
        disk.expect("who has removed a disk asks nothing of it")
    }

    fn enters(&self) -> u64 {
        self.ring.enters()
    }
}

impl Expected {
    fn into_operation(self, socket: &Rc<OwnedFd>) -> Operation {
        Operation::Receive {
            socket: Rc::clone(socket),
            buffer: self.buffer,
            filled: self.filled,
            end: self.end,
            whole: true,
        }
    }
}

impl Purpose {
    const ALL: [Self; 8] = [
        Self::Wake,
        Self::Accept,
        Self::Receive,
        Self::ReceiveExpected,
        Self::Send,
        Self::DatagramIn,
        Self::DatagramOut,
        Self::Watch,
    ];

    const fn tag(self, index: usize) -> u64 {
        (self as u64) << 56 | index as u64
    }

    /// The inverse of [`Self::tag`].
    fn of(tag: u64) -> (Self, usize) {
        let purpose = usize::from(tag.to_be_bytes()[0]);
        let index = usize::try_from(tag & (u64::MAX >> 8)).expect("made from a usize");
        (Self::ALL[purpose], index)
    }
}

fn last_index<T>(list: &[T]) -> u32 {
    u32::try_from(list.len() - 1).expect("few listeners, sockets and disks")
}
