//! The gateway: sends replies with dummy bytes, and tells nodes of what is caught.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use crossdock_bpf::{CatchDevice, Caught, ConnectionId, Dummy, Redirector};
use crossdock_names::NodeId;
use crossdock_net::TcpInfo;
use crossdock_peer::PinId;
use crossdock_redirector::{Pinned, Stream, headers_at};
use crossdock_tunnel::{Envelope, Packet, Parts, Seal, TunnelKey};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::model::{Piece, Shape, pieces};

/// How often a connection looks at what is acknowledged while it may send no more.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What all threads of the gateway know.
pub(crate) struct Gateway {
    redirector: Mutex<Redirector>,
    streams: Mutex<HashMap<ConnectionId, Arc<Mutex<Stream>>>>,
    dummy: Dummy,
    key: TunnelKey,
    boot: u64,
    nodes: Vec<SocketAddr>,
    /// Bytes that stood for extents.
    pub(crate) eligible_bytes: AtomicU64,
    /// Caught packets of which nobody knew what they were.
    pub(crate) unsent: AtomicU64,
    pub(crate) is_over: AtomicBool,
    /// As if the process stood still: nothing is told to nodes.
    pub(crate) is_deaf: AtomicBool,
}

/// Whoever has panicked meanwhile has said so.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gateway {
    /// Puts the program before everything that leaves by `way_out`.
    pub(crate) fn new(
        way_out: &str,
        nodes: &[SocketAddr],
        key: &TunnelKey,
        boot: u64,
    ) -> Result<Self> {
        let redirector = Redirector::attach(CatchDevice::make(way_out)?)?;
        Ok(Self {
            redirector: Mutex::new(redirector),
            streams: Mutex::default(),
            dummy: Dummy::new()?,
            key: key.clone(),
            boot,
            nodes: nodes.to_vec(),
            eligible_bytes: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_deaf: AtomicBool::new(false),
        })
    }

    pub(crate) fn figures(&self) -> Result<crossdock_bpf::Figures> {
        Ok(lock(&self.redirector).figures()?)
    }

    /// How many connections have something on its way.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.streams).len()
    }

    /// Takes connections: each says by a seed what it wants.
    pub(crate) fn listen(self: &Arc<Self>, listener: &TcpListener, shape: Shape) -> Result<()> {
        listener.set_nonblocking(true)?;
        while !self.is_over.load(Relaxed) {
            if !is_readable(listener, 50)? {
                continue;
            }
            let (socket, _) = listener.accept()?;
            socket.set_nonblocking(false)?;
            let gateway = Arc::clone(self);
            thread::spawn(move || {
                // A client that goes is part of some cases; that bytes are wrong it sees itself.
                let _ = gateway.reply(&socket, shape);
            });
        }
        Ok(())
    }

    fn reply(&self, mut socket: &TcpStream, shape: Shape) -> Result<()> {
        let mut seed = [0; 8];
        socket.read_exact(&mut seed)?;
        let id = lock(&self.redirector).add(socket.as_fd())?;
        let stream = Arc::new(Mutex::new(Stream::default()));
        lock(&self.streams).insert(id, Arc::clone(&stream));
        let sent = self.send(socket, id, &stream, u64::from_le_bytes(seed), shape);
        if sent.is_ok() {
            // The client closes when it has all.
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read(&mut seed);
        } else {
            // Nothing of it may be repeated once nobody knows what it was.
            socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
        }
        lock(&self.streams).remove(&id);
        lock(&self.redirector).remove(id);
        sent
    }

    fn send(
        &self,
        mut socket: &TcpStream,
        id: ConnectionId,
        stream: &Mutex<Stream>,
        seed: u64,
        shape: Shape,
    ) -> Result<()> {
        for piece in pieces(seed, shape) {
            self.announce(socket, id, stream, &piece)?;
            match piece {
                Piece::Literal(bytes) => socket.write_all(&bytes)?,
                Piece::Extent { range, .. } => {
                    let mut left = usize::try_from(range.end - range.start)?;
                    self.eligible_bytes.fetch_add(left as u64, Relaxed);
                    while left > 0 {
                        left -= self.dummy.send(socket.as_fd(), left)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Before anything of the piece enters the socket.
    fn announce(
        &self,
        socket: &TcpStream,
        id: ConnectionId,
        stream: &Mutex<Stream>,
        piece: &Piece,
    ) -> Result<()> {
        loop {
            if self.is_over.load(Relaxed) {
                bail!("the case is over");
            }
            let mut stream = lock(stream);
            let pushed = match piece {
                Piece::Literal(bytes) => stream.push_literal(Bytes::copy_from_slice(bytes)),
                Piece::Extent { node, pin, range } => stream.push_extent(Pinned {
                    node: NodeId(*node),
                    pin: PinId(*pin),
                    offset_bytes: range.start,
                    length_bytes: range.end - range.start,
                }),
            };
            if pushed.is_err() {
                let info = TcpInfo::of(socket.as_fd()).context("no socket of TCP")?;
                stream.acknowledged(info.acked_bytes);
            }
            lock(&self.redirector).catch_from(id, stream.caught_from());
            drop(stream);
            if pushed.is_ok() {
                return Ok(());
            }
            pause(LOOK_AGAIN);
        }
    }

    /// Tells nodes of caught packets until the case is over.
    pub(crate) fn redirect(&self) -> Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let mut tunnel = Tunnel {
            gateway: self,
            socket,
            seals: self.nodes.iter().map(|_| None).collect(),
            sequence: 0,
        };
        // The program writes while this waits; the descriptor is that of its memory.
        let events = lock(&self.redirector).as_fd().try_clone_to_owned()?;
        while !self.is_over.load(Relaxed) {
            if !is_readable(&events, 50)? {
                continue;
            }
            if self.is_deaf.load(Relaxed) {
                pause(LOOK_AGAIN);
                continue;
            }
            loop {
                let caught = lock(&self.redirector).next_caught();
                let Some(caught) = caught else { break };
                tunnel.take(&caught)?;
            }
            tunnel.flush()?;
        }
        Ok(())
    }
}

/// What goes to nodes.
struct Tunnel<'gateway> {
    gateway: &'gateway Gateway,
    socket: UdpSocket,
    seals: Vec<Option<Seal<'gateway>>>,
    sequence: u64,
}

impl Tunnel<'_> {
    fn take(&mut self, caught: &Caught) -> Result<()> {
        let stream = lock(&self.gateway.streams).get(&caught.connection).cloned();
        let Some(stream) = stream else {
            self.gateway.unsent.fetch_add(1, Relaxed);
            return Ok(());
        };
        let mut stream = lock(&stream);
        stream.acknowledged(caught.acknowledged);
        lock(&self.gateway.redirector).catch_from(caught.connection, stream.caught_from());
        let Ok(sections) = stream.cut(caught.offset, caught.payload_bytes) else {
            self.gateway.unsent.fetch_add(1, Relaxed);
            return Ok(());
        };
        let count = sections.len();
        for (number, section) in sections.iter().enumerate() {
            let at_bytes = u32::try_from(section.at_bytes)?;
            let headers = headers_at(&caught.headers, at_bytes, number + 1 == count);
            let headers = headers.context("caught headers")?;
            let Some(NodeId(node)) = section.node else {
                self.gateway.unsent.fetch_add(1, Relaxed);
                continue;
            };
            let packet = Packet {
                headers: &headers,
                segment_bytes: caught.segment_bytes,
                parts: Parts::Given(&section.parts),
            };
            self.push(usize::try_from(node)?, &packet)?;
        }
        Ok(())
    }

    fn push(&mut self, node: usize, packet: &Packet<'_>) -> Result<()> {
        for _ in 0..2 {
            if self.seals[node].is_none() {
                self.sequence += 1;
                let envelope = Envelope {
                    sender: 1,
                    sender_boot: self.gateway.boot,
                    receiver_boot: 1,
                    sequence: self.sequence,
                };
                self.seals[node] = Some(Seal::new(&envelope, &self.gateway.key));
            }
            let seal = self.seals[node].as_mut().context("no datagram")?;
            if seal.push(packet)? {
                return Ok(());
            }
            self.flush_one(node)?;
        }
        bail!("a packet does not fit into a datagram")
    }

    fn flush_one(&mut self, node: usize) -> Result<()> {
        if let Some(seal) = self.seals[node].take() {
            // A queue that is full loses it, and TCP repeats.
            let _ = self
                .socket
                .send_to(&seal.finish(), self.gateway.nodes[node]);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        (0..self.seals.len()).try_for_each(|node| self.flush_one(node))
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
