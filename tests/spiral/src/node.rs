//! Nodes: what comes through the tunnel goes out as the gateway's packets.

use std::io::{ErrorKind, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use crossdock_bpf::{SendDevice, Speaker};
pub(crate) use crossdock_inflator::{Ends, Transport};
use crossdock_inflator::{Figures, Filled, Inflator, Rights};
use crossdock_names::HostId;
use crossdock_sim::random::Random;
use crossdock_tunnel::TunnelKey;
use crossdock_types::Time;

use crate::gateway::{GATEWAY, lock};
use crate::model::held;

/// The process of a node.
pub(crate) const fn host_of(node: u64) -> HostId {
    HostId(100 + node)
}

/// The node of a process.
pub(crate) fn node_of(HostId(host): HostId) -> Result<usize> {
    Ok(usize::try_from(host - 100)?)
}

/// What nodes do to packets, in thousandths.
#[derive(Debug, Default)]
pub(crate) struct Mischief {
    pub(crate) lost: AtomicU64,
    /// Go out behind the next one.
    pub(crate) swapped: AtomicU64,
}

/// The nodes of a run.
pub(crate) struct Nodes {
    /// Of their tunnels.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) inflators: Vec<Mutex<Inflator>>,
    pub(crate) mischief: Mischief,
    pub(crate) key: TunnelKey,
    pub(crate) is_over: AtomicBool,
    began: Instant,
    /// By how much their clocks have jumped, in seconds.
    pub(crate) ahead: AtomicU64,
}

impl Nodes {
    fn now(&self) -> Time {
        Time(0) + self.began.elapsed() + Duration::from_secs(self.ahead.load(Relaxed))
    }

    pub(crate) fn new(addresses: Vec<SocketAddr>) -> Self {
        let inflator = |node| Mutex::new(Inflator::new(host_of(node).0));
        Self {
            inflators: (0..).map(inflator).take(addresses.len()).collect(),
            addresses,
            mischief: Mischief::default(),
            key: TunnelKey {
                id: 1,
                key: [7; 32],
            },
            is_over: AtomicBool::new(false),
            began: Instant::now(),
            ahead: AtomicU64::new(0),
        }
    }

    /// A gateway begins, which speaks from this address.
    pub(crate) fn admit(&self, boot: u64, gateway: SocketAddr) {
        for inflator in &self.inflators {
            let rights = Rights {
                boot,
                key: self.key.clone(),
                addresses: vec![gateway.ip()],
            };
            lock(inflator).admit(GATEWAY, rights);
        }
    }

    pub(crate) fn announce(&self, ends: Ends) {
        for inflator in &self.inflators {
            lock(inflator).announce(GATEWAY, ends);
        }
    }

    pub(crate) fn withdraw(&self, ends: Ends) {
        for inflator in &self.inflators {
            lock(inflator).withdraw(GATEWAY, ends);
        }
    }

    /// Of all together.
    pub(crate) fn figures(&self) -> Figures {
        let mut sum = Figures::default();
        for inflator in &self.inflators {
            let one = lock(inflator).figures();
            sum.sent += one.sent;
            sum.merged += one.merged;
            sum.injected_bytes += one.injected_bytes;
            sum.forged += one.forged;
            sum.stale += one.stale;
            sum.refused += one.refused;
            sum.overflowed += one.overflowed;
            sum.untold += one.untold;
            sum.unfilled += one.unfilled;
        }
        sum
    }

    /// Serves as one of them until told to stop.
    pub(crate) fn serve(&self, number: usize) -> Result<()> {
        let socket = UdpSocket::bind(self.addresses[number])?;
        socket.set_read_timeout(Some(Duration::from_millis(10)))?;
        socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER)?;
        let device = SendDevice::make(Speaker::Node)?;
        let mut sender = Sender {
            device,
            mischief: &self.mischief,
            random: Random::new(number as u64),
            behind: None,
        };
        let mut buffer = vec![0; 2048];
        while !self.is_over.load(Relaxed) {
            match socket.recv(&mut buffer) {
                Ok(length) => {
                    lock(&self.inflators[number]).take(self.now(), &buffer[..length]);
                }
                Err(error) if is_idle(error.kind()) => sender.send_behind(),
                Err(error) => return Err(error.into()),
            }
            // What came meanwhile may go along.
            socket.set_nonblocking(true)?;
            for _ in 1..DATAGRAMS_AT_ONCE {
                let Ok(length) = socket.recv(&mut buffer) else {
                    break;
                };
                lock(&self.inflators[number]).take(self.now(), &buffer[..length]);
            }
            socket.set_nonblocking(false)?;
            self.fill(number, &mut sender, &socket);
        }
        Ok(())
    }

    fn fill(&self, number: usize, sender: &mut Sender<'_>, socket: &UdpSocket) {
        let mut inflator = lock(&self.inflators[number]);
        inflator.handle_timeout(self.now());
        while let Some(read) = inflator.poll_read() {
            let mut bytes = Vec::with_capacity(read.length_bytes + 16);
            let range = read.offset_bytes..read.offset_bytes + read.length_bytes as u64;
            held(read.pin, range, &mut bytes);
            inflator.on_read(&read, Some(Bytes::from(bytes).into()));
        }
        while let Some(filled) = inflator.poll_filled() {
            sender.send(&filled);
        }
        while let Some((to, turn)) = inflator.poll_turn() {
            // One that is lost costs a moment.
            let _ = socket.send_to(&turn, to);
        }
    }
}

/// Of the tunnel's socket, in bytes.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Datagrams that are taken before packets are sent.
const DATAGRAMS_AT_ONCE: usize = 16;

/// The way to clients, and what befalls packets there.
struct Sender<'nodes> {
    device: SendDevice,
    mischief: &'nodes Mischief,
    random: Random,
    behind: Option<Filled>,
}

impl Sender<'_> {
    fn send(&mut self, filled: &Filled) {
        if self.random.below(1000) < self.mischief.lost.load(Relaxed) {
            return;
        }
        let swapped = self.mischief.swapped.load(Relaxed);
        if self.behind.is_none() && self.random.below(1000) < swapped {
            self.behind = Some(filled.clone());
            return;
        }
        self.send_now(filled);
        self.send_behind();
    }

    fn send_behind(&mut self) {
        if let Some(filled) = self.behind.take() {
            self.send_now(&filled);
        }
    }

    fn send_now(&self, filled: &Filled) {
        let front = [&filled.frame.offload[..], &filled.frame.headers];
        let payload = filled.payload.iter().map(|bytes| &bytes[..]);
        let pieces = front.into_iter().chain(payload).map(IoSlice::new);
        // A device whose queue is full loses it, as a network would.
        let _ = self.device.send(&pieces.collect::<Vec<_>>());
    }
}

fn is_idle(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
