//! The gateway: sends replies with dummy bytes, and tells nodes of what is caught.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use crossdock_bpf::{BpfError, CatchDevice, Catcher, Dummy, Room};
use crossdock_names::HostId;
use crossdock_net::TcpInfo;
use crossdock_redirector::{AnnounceError, Redirector};
use crossdock_tunnel::ConnectionId;
use crossdock_types::{Extent, Released};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::model::{Piece, Shape, pieces};
use crate::node::{Ends, Nodes, Transport, host_of, node_of};

/// How often a connection looks at what is acknowledged while it may send no more.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The number of every gateway here; each case is a boot of its own.
pub(crate) const GATEWAY: u64 = 1;

/// What all threads of the gateway know.
pub(crate) struct Gateway<'nodes> {
    catching: Mutex<Catching>,
    dummy: Dummy,
    nodes: &'nodes Nodes,
    /// Bytes that stood for extents.
    pub(crate) eligible_bytes: AtomicU64,
    /// Bytes of connections for which the program had no room.
    pub(crate) relayed_bytes: AtomicU64,
    pub(crate) is_over: AtomicBool,
    /// As if the process stood still: nothing is told to nodes.
    pub(crate) is_deaf: AtomicBool,
    /// And connections get nothing new.
    is_dumb: AtomicBool,
}

/// The kernel's part and ours, which know of each other's connections.
struct Catching {
    catcher: Catcher,
    redirector: Redirector,
    led: BTreeSet<ConnectionId>,
}

/// Whoever has panicked meanwhile has said so.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'nodes> Gateway<'nodes> {
    /// Puts the program before everything that leaves by `way_out`.
    pub(crate) fn new(way_out: &str, nodes: &'nodes Nodes, boot: u64, room: Room) -> Result<Self> {
        let catcher = Catcher::attach(CatchDevice::make(way_out)?, room)?;
        let mut redirector = Redirector::new(GATEWAY, boot);
        for (node, &address) in (0..).zip(&nodes.addresses) {
            redirector.connect(host_of(node), address, nodes.key.clone(), true);
        }
        Ok(Self {
            catching: Mutex::new(Catching {
                catcher,
                redirector,
                led: BTreeSet::new(),
            }),
            dummy: Dummy::new()?,
            nodes,
            eligible_bytes: AtomicU64::new(0),
            relayed_bytes: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_deaf: AtomicBool::new(false),
            is_dumb: AtomicBool::new(false),
        })
    }

    /// What the kernel's part has done, and ours.
    pub(crate) fn figures(
        &self,
    ) -> Result<(crossdock_bpf::Figures, crossdock_redirector::Figures)> {
        let catching = lock(&self.catching);
        Ok((catching.catcher.figures()?, catching.redirector.figures()))
    }

    /// How many connections have something on its way.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.catching).redirector.connections()
    }

    /// Takes connections: each says by a seed what it wants.
    pub(crate) fn listen<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        listener: &TcpListener,
        shape: Shape,
    ) -> Result<()> {
        listener.set_nonblocking(true)?;
        while !self.is_over.load(Relaxed) {
            if !is_readable(listener, 50)? {
                continue;
            }
            let (socket, _) = listener.accept()?;
            socket.set_nonblocking(false)?;
            scope.spawn(move || {
                // A client that goes is part of some cases; that bytes are wrong it sees itself.
                let _ = self.reply(&socket, shape);
            });
        }
        Ok(())
    }

    fn reply(&self, mut socket: &TcpStream, shape: Shape) -> Result<()> {
        let mut seed = [0; 8];
        socket.read_exact(&mut seed)?;
        // So that whoever waits for a window sees the end of the case.
        socket.set_write_timeout(Some(Duration::from_millis(100)))?;
        let ends = Ends {
            transport: Transport::Tcp,
            source: socket.local_addr()?,
            destination: socket.peer_addr()?,
        };
        let id = match lock(&self.catching).catcher.open() {
            Err(BpfError::Full(_)) => return self.relay(socket, u64::from_le_bytes(seed), shape),
            opened => opened?,
        };
        self.nodes.announce(ends);
        {
            let mut catching = lock(&self.catching);
            catching.catcher.lead(id, socket.as_fd(), true)?;
            catching.redirector.open(id);
            catching.led.insert(id);
        }
        let sent = self.send(socket, id, u64::from_le_bytes(seed), shape);
        if sent.is_ok() {
            // The client closes when it has all.
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read(&mut seed);
        } else {
            // Nothing of it may be repeated once nobody knows what it was.
            socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
        }
        let mut catching = lock(&self.catching);
        catching.redirector.end(id);
        catching.led.remove(&id);
        catching.catcher.remove(id);
        self.nodes.withdraw(ends);
        sent
    }

    /// Sends everything itself.
    fn relay(&self, mut socket: &TcpStream, seed: u64, shape: Shape) -> Result<()> {
        let mut bytes = Vec::new();
        for piece in pieces(seed, shape) {
            bytes.clear();
            piece.expanded(&mut bytes);
            self.whole(bytes.len(), |at| socket.write(&bytes[at..]))?;
            self.relayed_bytes.fetch_add(bytes.len() as u64, Relaxed);
        }
        socket.shutdown(std::net::Shutdown::Write)?;
        let _ = socket.read(&mut [0]);
        Ok(())
    }

    /// The program does not know its connections any more, and the gateway stands still.
    pub(crate) fn forget(&self) {
        self.is_deaf.store(true, Relaxed);
        self.is_dumb.store(true, Relaxed);
        let mut catching = lock(&self.catching);
        let Catching { catcher, led, .. } = &mut *catching;
        led.iter().for_each(|&id| catcher.remove(id));
    }

    fn send(&self, socket: &TcpStream, id: ConnectionId, seed: u64, shape: Shape) -> Result<()> {
        for piece in pieces(seed, shape) {
            self.announce(socket, id, &piece)?;
            match piece {
                Piece::Literal(bytes) => self.whole(bytes.len(), |at| {
                    let mut socket = socket;
                    socket.write(&bytes[at..])
                })?,
                Piece::Extent { range, .. } => {
                    let length = usize::try_from(range.end - range.start)?;
                    self.eligible_bytes.fetch_add(length as u64, Relaxed);
                    self.whole(length, |at| self.dummy.send(socket.as_fd(), length - at))?;
                }
            }
        }
        Ok(())
    }

    /// Sends until all is in the socket, or the case is over.
    fn whole(
        &self,
        length: usize,
        mut send: impl FnMut(usize) -> std::io::Result<usize>,
    ) -> Result<()> {
        let mut at = 0;
        while at < length {
            match send(at) {
                Ok(sent) => at += sent,
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => {
                    return Err(error.into());
                }
                Err(_) if self.is_over.load(Relaxed) => bail!("the case is over"),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Before anything of the piece enters the socket.
    fn announce(&self, socket: &TcpStream, id: ConnectionId, piece: &Piece) -> Result<()> {
        while !self.is_over.load(Relaxed) {
            let mut catching = lock(&self.catching);
            if self.is_dumb.load(Relaxed) {
                drop(catching);
                pause(LOOK_AGAIN);
                continue;
            }
            let Catching {
                catcher,
                redirector,
                ..
            } = &mut *catching;
            let announced = match piece {
                Piece::Literal(bytes) => {
                    redirector.announce_literal(id, Bytes::copy_from_slice(bytes))
                }
                Piece::Extent { node, pin, range } => {
                    let HostId(holder) = host_of(*node);
                    let length = usize::try_from(range.end - range.start)?;
                    let mut extent = Extent::new(holder, *pin, length, &Released::default());
                    extent.offset_bytes = range.start;
                    redirector.announce_extent(id, extent)
                }
            };
            match announced {
                Ok(catch_from) => {
                    catcher.catch_from(id, catch_from);
                    return Ok(());
                }
                Err(AnnounceError::Full(_)) => {
                    let info = TcpInfo::of(socket.as_fd()).context("no socket of TCP")?;
                    catcher.catch_from(id, redirector.acknowledged(id, info.acked_bytes));
                }
                Err(error) => return Err(error.into()),
            }
            drop(catching);
            pause(LOOK_AGAIN);
        }
        bail!("the case is over")
    }

    /// Tells nodes of caught packets until the case is over.
    pub(crate) fn redirect(&self) -> Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        // The program writes while this waits; the descriptor is that of its memory.
        let events = lock(&self.catching).catcher.as_fd().try_clone_to_owned()?;
        while !self.is_over.load(Relaxed) {
            if !is_readable(&events, 50)? {
                continue;
            }
            if self.is_deaf.load(Relaxed) {
                pause(LOOK_AGAIN);
                continue;
            }
            let mut datagrams: BTreeMap<HostId, Vec<Vec<u8>>> = BTreeMap::new();
            let mut catching = lock(&self.catching);
            let Catching {
                catcher,
                redirector,
                ..
            } = &mut *catching;
            while let Some(caught) = catcher.next_caught() {
                catcher.catch_from(caught.connection, redirector.caught(&caught));
            }
            while let Some((holder, datagram)) = redirector.poll_datagram() {
                datagrams.entry(holder).or_default().push(datagram);
            }
            drop(catching);
            for (holder, datagrams) in datagrams {
                let to = self.nodes.addresses[node_of(holder)?];
                for datagram in datagrams {
                    // A queue that is full loses it, and TCP repeats.
                    let _ = socket.send_to(&datagram, to);
                }
            }
        }
        Ok(())
    }
}

/// Whether something can be read before `patience_millis` are over.
fn is_readable(descriptor: &impl AsFd, patience_millis: i64) -> Result<bool> {
    let mut ready = [PollFd::new(descriptor, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: 0,
        tv_nsec: patience_millis * 1_000_000,
    };
    match poll(&mut ready, Some(&patience)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a real kernel acknowledges in its own time"
)]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}
