//! The loop over epoll, level-triggered, with the disks in a thread pool: for
//! kernels and policies without io_uring.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossdock_disk::pool::{Pool, PoolDisk};
use crossdock_disk::{Disk, DiskFile};
use crossdock_types::Time;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, accept_with, recv, recvfrom, sendmsg,
    sendmsg_addr, sockopt,
};
use rustix::time::Timespec;

use crate::buffers::BufferSize;
use crate::kernel::{Kernel, STALL, is_exhausted, rest_left, shorter};
use crate::system::now;
use crate::table::Table;
use crate::wake::Waker;
use crate::{DiskId, Event, ListenerId, NetError, SendError, SocketId, WatchId};

/// What one wait reports at most; the rest comes with the next.
const READY_MAX: usize = 256;
/// Connections and datagrams taken from one socket per turn.
const ACCEPTS_MAX: usize = 32;
const DATAGRAMS_MAX: usize = 32;

pub(crate) struct EpollKernel {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
    waker: Waker,
    listeners: Vec<Listener>,
    /// Absent when closed.
    sockets: Vec<Option<OwnedFd>>,
    /// Waited for, as long as the loop is there.
    watches: Vec<OwnedFd>,
    disk_threads: usize,
    /// Started with the first disk.
    pool: Option<Pool>,
    /// By number; those that were removed leave a gap.
    disks: Vec<Option<PoolDisk>>,
    enters: u64,
}

struct Listener {
    /// Absent when closed.
    socket: Option<OwnedFd>,
    watched: bool,
    rests_until: Option<Time>,
}

#[derive(Clone, Copy)]
enum Source {
    Wake,
    Listener,
    Connection,
    Datagram,
    Watch,
}

impl EpollKernel {
    pub(crate) fn new(waker: Waker, disk_threads: usize) -> Result<Self, NetError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("make an epoll instance"))?;
        let kernel = Self {
            epoll,
            ready: Vec::with_capacity(READY_MAX),
            waker,
            listeners: Vec::new(),
            sockets: Vec::new(),
            watches: Vec::new(),
            disk_threads,
            pool: None,
            disks: Vec::new(),
            enters: 0,
        };
        kernel
            .watch(kernel.waker.counter(), Source::Wake, 0)
            .map_err(failed("watch for wake-ups"))?;
        Ok(kernel)
    }

    fn watch(&self, fd: impl AsFd, source: Source, index: usize) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, source.data(index), EventFlags::IN)
    }

    /// Listens where there is room, and nowhere else: a connection that cannot
    /// be taken would end every wait.
    fn watch_listeners(&mut self, has_room: bool, now: Time) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let wanted = has_room && rest_left(listener.rests_until, now).is_none();
            let Some(socket) = &listener.socket else {
                continue;
            };
            if wanted != listener.watched {
                let flags = if wanted {
                    EventFlags::IN
                } else {
                    EventFlags::empty()
                };
                let data = Source::Listener.data(index);
                if epoll::modify(&self.epoll, socket, data, flags).is_ok() {
                    listener.watched = wanted;
                }
            }
        }
    }

    fn rest(&self, now: Time) -> Option<Duration> {
        let rests = self.listeners.iter().map(|listener| listener.rests_until);
        rests.filter_map(|until| rest_left(until, now)).min()
    }

    /// Sends what a connection has queued and watches for what it wants, or
    /// ends it.
    fn look_at(&self, table: &mut Table, index: u32) {
        let Some((connection, events)) = table.at(index) else {
            return;
        };
        if connection.ending().is_none() && !connection.queue.is_empty() {
            match flush(&connection.socket, &mut connection.queue) {
                Ok(()) => connection.sent(events),
                Err(errno) => connection.fail(errno.raw_os_error()),
            }
        }
        let wanted = (connection.wants_bytes(), !connection.queue.is_empty());
        if connection.ending().is_none() && connection.kernel.watched != Some(wanted) {
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, wanted.0);
            flags.set(EventFlags::OUT, wanted.1);
            let data = Source::Connection.data(index as usize);
            let socket = &*connection.socket;
            let watched = match connection.kernel.watched {
                None => epoll::add(&self.epoll, socket, data, flags),
                Some(_) => epoll::modify(&self.epoll, socket, data, flags),
            };
            match watched {
                Ok(()) => connection.kernel.watched = Some(wanted),
                Err(errno) => connection.fail(errno.raw_os_error()),
            }
        }
        if let Some(why) = connection.ending() {
            // Its socket goes with it, and with the socket the watch.
            drop(table.remove(index, why));
        }
    }

    fn take(&mut self, table: &mut Table, event: epoll::Event) {
        let (source, index) = Source::of(event.data);
        match source {
            Source::Wake => {
                let mut count = [0; 8];
                let _ = rustix::io::read(&**self.waker.counter(), &mut count);
                self.waker.heard();
                table.events.push_back(Event::Woken);
            }
            Source::Listener => self.accept(table, index),
            Source::Datagram => self.receive_datagrams(table, index),
            Source::Watch => {
                let id = WatchId(u32::try_from(index).expect("few descriptors"));
                table.events.push_back(Event::Readable(id));
            }
            Source::Connection => {
                let index = u32::try_from(index).expect("an index of a connection");
                let flags = event.flags;
                let troubled = flags.intersects(EventFlags::ERR | EventFlags::HUP);
                if troubled || flags.contains(EventFlags::IN) {
                    receive(table, index, troubled);
                }
                if flags.contains(EventFlags::OUT) {
                    self.look_at(table, index);
                } else {
                    table.mark(index);
                }
            }
        }
    }

    fn accept(&mut self, table: &mut Table, index: usize) {
        let id = ListenerId(u32::try_from(index).expect("few listeners"));
        let listener = &mut self.listeners[index];
        for _ in 0..ACCEPTS_MAX {
            let Some(socket) = &listener.socket else {
                return;
            };
            if !table.has_room() {
                return;
            }
            match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(accepted) => table.admit(id, accepted),
                Err(Errno::AGAIN) => return,
                Err(errno) if is_exhausted(errno.raw_os_error()) => {
                    listener.rests_until = Some(now() + STALL);
                    return;
                }
                // The peer went before it was accepted.
                Err(_) => {}
            }
        }
    }

    fn receive_datagrams(&self, table: &mut Table, index: usize) {
        let Some(socket) = &self.sockets[index] else {
            return;
        };
        let id = SocketId(u32::try_from(index).expect("few sockets"));
        for _ in 0..DATAGRAMS_MAX {
            let mut buffer = table.pool.take(BufferSize::Datagram);
            match recvfrom(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((bytes, _, from)) => {
                    let bytes = table.pool.share_received(buffer, bytes);
                    if let Some(Ok(from)) = from.map(SocketAddr::try_from) {
                        let socket = id;
                        table.events.push_back(Event::Datagram {
                            socket,
                            from,
                            bytes,
                        });
                    }
                }
                Err(_) => {
                    table.pool.give_back(buffer);
                    return;
                }
            }
        }
    }
}

/// Reads what is there, once: the others shall have their turn too.
fn receive(table: &mut Table, index: u32, troubled: bool) {
    let (pool, is_crowded) = (table.pool.clone(), table.is_crowded());
    let Some((connection, events)) = table.at(index) else {
        return;
    };
    if !connection.wants_bytes() {
        // Readiness from before a pause, or trouble, which ends the connection
        // also where nobody reads.
        if troubled {
            let pending = sockopt::socket_error(&*connection.socket);
            let errno = pending.and_then(|pending| pending).err();
            connection.fail(errno.unwrap_or(Errno::CONNRESET).raw_os_error());
        }
        return;
    }
    let outcome = if let Some(mut expected) = connection.take_expected() {
        let target = &mut expected.buffer[expected.filled..expected.end];
        let outcome = recv(&*connection.socket, target, RecvFlags::DONTWAIT);
        let bytes = outcome.map_or(0, |(bytes, _)| bytes);
        connection.received_expected(expected, bytes, events);
        outcome
    } else {
        let (size, room) = connection.room(is_crowded);
        let mut buffer = pool.take(size);
        let outcome = recv(
            &*connection.socket,
            &mut buffer[..room],
            RecvFlags::DONTWAIT,
        );
        match outcome {
            Ok((bytes, _)) if bytes > 0 => {
                connection.received(pool.share_received(buffer, bytes), room, events);
            }
            _ => pool.give_back(buffer),
        }
        outcome
    };
    match outcome {
        Ok((0, _)) => connection.peer_ended(events),
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
        Err(errno) => connection.fail(errno.raw_os_error()),
    }
}

/// Sends from the queue until it is empty or the kernel takes no more.
fn flush(socket: &OwnedFd, queue: &mut crossdock_ring::Gather) -> rustix::io::Result<()> {
    while !queue.is_empty() {
        let slices: Vec<IoSlice<'_>> = queue.io_slices().collect();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(socket, &slices, &mut SendAncillaryBuffer::default(), flags) {
            Ok(bytes) => queue.advance(bytes),
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl Kernel for EpollKernel {
    fn nonblocking(&self) -> bool {
        true
    }

    fn wait(&mut self, table: &mut Table, patience: Option<Duration>) -> Result<(), NetError> {
        let now = now();
        self.watch_listeners(table.has_room(), now);
        while let Some(index) = table.next_marked() {
            self.look_at(table, index);
        }
        let patience = if table.events.is_empty() {
            shorter(patience, self.rest(now))
        } else {
            Some(Duration::ZERO)
        };
        let timeout = patience.map(timespec);
        self.ready.clear();
        self.enters += 1;
        match epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.ready),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("wait for events")(errno)),
        }
        let ready = std::mem::take(&mut self.ready);
        for event in &ready {
            self.take(table, *event);
        }
        self.ready = ready;
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
        let index = self.watches.len();
        self.watch(&descriptor, Source::Watch, index)
            .map_err(failed("watch a descriptor"))?;
        self.watches.push(descriptor);
        Ok(WatchId(u32::try_from(index).expect("few descriptors")))
    }

    fn add_listener(&mut self, socket: OwnedFd) -> Result<ListenerId, NetError> {
        let index = self.listeners.len();
        self.watch(&socket, Source::Listener, index)
            .map_err(failed("watch a listener"))?;
        self.listeners.push(Listener {
            socket: Some(socket),
            watched: true,
            rests_until: None,
        });
        Ok(ListenerId(u32::try_from(index).expect("few listeners")))
    }

    fn remove_listener(&mut self, id: ListenerId) {
        self.listeners[id.0 as usize].socket = None;
    }

    fn add_socket(&mut self, socket: OwnedFd) -> Result<SocketId, NetError> {
        let index = self.sockets.len();
        self.watch(&socket, Source::Datagram, index)
            .map_err(failed("watch a socket"))?;
        self.sockets.push(Some(socket));
        Ok(SocketId(u32::try_from(index).expect("few sockets")))
    }

    fn remove_socket(&mut self, id: SocketId) {
        self.sockets[id.0 as usize] = None;
    }

    fn send_datagram(
        &mut self,
        id: SocketId,
        target: SocketAddr,
        pieces: Vec<Bytes>,
        _datagrams_max: usize, // The socket's own buffer is the bound.
    ) -> Result<(), SendError> {
        let socket = self.sockets[id.0 as usize]
            .as_ref()
            .ok_or(SendError::Closed)?;
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut control = SendAncillaryBuffer::default();
        match sendmsg_addr(socket, &target, &slices, &mut control, flags) {
            Err(Errno::AGAIN | Errno::NOBUFS) => Err(SendError::Full),
            // Whether it arrives is not known here in any case.
            _ => Ok(()),
        }
    }

    fn add_disk(&mut self, file: DiskFile) -> Result<DiskId, NetError> {
        let pool = match &self.pool {
            Some(pool) => pool,
            None => {
                let waker = self.waker.clone();
                let started = Pool::start(self.disk_threads, Arc::new(move || waker.wake()))
                    .map_err(NetError::system("start the disk threads"))?;
                self.pool.insert(started)
            }
        };
        self.disks.push(Some(pool.disk(file)));
        let index = u32::try_from(self.disks.len() - 1).expect("few disks");
        Ok(DiskId(index))
    }

    fn remove_disk(&mut self, id: DiskId) {
        self.disks[id.0 as usize] = None;
    }

    fn disk(&mut self, id: DiskId) -> &mut dyn Disk {
        let disk = self.disks[id.0 as usize].as_mut();
        disk.expect("who has removed a disk asks nothing of it")
    }

    fn enters(&self) -> u64 {
        self.enters
    }
}

impl Source {
    const ALL: [Self; 5] = [
        Self::Wake,
        Self::Listener,
        Self::Connection,
        Self::Datagram,
        Self::Watch,
    ];

    const fn data(self, index: usize) -> EventData {
        EventData::new_u64((self as u64) << 56 | index as u64)
    }

    /// The inverse of [`Self::data`].
    fn of(data: EventData) -> (Self, usize) {
        let data = data.u64();
        let source = usize::from(data.to_be_bytes()[0]);
        let index = usize::try_from(data & (u64::MAX >> 8)).expect("made from a usize");
        (Self::ALL[source], index)
    }
}

/// Whole milliseconds, rounded up: the call that is allowed everywhere knows
/// no less, and rounding down would spin.
fn timespec(patience: Duration) -> Timespec {
    let millis = patience.as_nanos().div_ceil(1_000_000);
    let millis = i64::try_from(millis)
        .unwrap_or(i64::MAX)
        .min(i64::from(i32::MAX));
    Timespec {
        tv_sec: millis / 1000,
        tv_nsec: millis % 1000 * 1_000_000,
    }
}

fn failed(action: &'static str) -> impl FnOnce(Errno) -> NetError {
    move |errno| NetError::system(action)(errno.into())
}
