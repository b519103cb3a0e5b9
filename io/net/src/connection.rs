//! The state of a TCP connection, without the kernel: what it may do next and
//! what the caller hears of it. Ring and epoll move the bytes.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use crossdock_ring::Gather;
use crossdock_types::AlignedBuffer;

use crate::buffers::{BufferPool, BufferSize};
use crate::pace::Pace;
use crate::{CloseReason, ConnectionId, Event, SendError, Unsent};

/// One connection.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) socket: Rc<OwnedFd>,
    phase: Phase,

    // Receiving.
    paused: bool,
    /// The peer has ended its side.
    ended: bool,
    /// ... and the caller has heard of it.
    end_told: bool,
    /// Where the next bytes go, if the caller has said so.
    expected: Option<Expected>,
    /// Where in its buffer that piece begins.
    expected_start: usize,
    /// Arrived, but not told: while paused.
    held: Bytes,
    /// The last receive filled its buffer.
    hungry: bool,

    // Sending.
    pub(crate) queue: Gather,
    /// Of the queue, in the kernel's hands.
    pub(crate) sending_bytes: usize,
    low_water_bytes: usize,
    above_low_water: bool,

    /// The kernel goes on with a send by itself until all of it is taken, or is tried
    /// again in time.
    pub(crate) sends_whole: bool,

    /// What the kernel side keeps here.
    pub(crate) kernel: KernelState,
}

/// Kept by ring.rs and epoll.rs.
#[derive(Default)]
pub(crate) struct KernelState {
    /// Waits for its turn to be looked at.
    pub(crate) dirty: bool,
    /// A receive is in flight (ring).
    pub(crate) receiving: bool,
    /// A send is in flight (ring).
    pub(crate) sending: bool,
    /// What is left of one that goes on later (ring).
    pub(crate) unsent: Option<Gather>,
    /// When that is (ring).
    pub(crate) pace: Pace,
    /// Both directions were shut to end what is in flight (ring).
    pub(crate) shut: bool,
    /// What is watched for, readable and writable, once it is (epoll).
    pub(crate) watched: Option<(bool, bool)>,
}

/// A range of a buffer that the next bytes fill.
pub(crate) struct Expected {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) filled: usize,
    pub(crate) end: usize,
    /// Where the buffer belongs.
    pub(crate) pool: BufferPool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The caller has closed it; the queue goes out first.
    Draining,
    /// Nothing more is sent or received.
    Dead(CloseReason),
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, socket: OwnedFd, low_water_bytes: usize) -> Self {
        Self {
            id,
            socket: Rc::new(socket),
            phase: Phase::Open,
            paused: false,
            ended: false,
            end_told: false,
            expected: None,
            expected_start: 0,
            held: Bytes::new(),
            hungry: false,
            queue: Gather::default(),
            sending_bytes: 0,
            low_water_bytes,
            above_low_water: false,
            sends_whole: false,
            kernel: KernelState::default(),
        }
    }

    pub(crate) const fn queued_bytes(&self) -> usize {
        self.queue.len() + self.sending_bytes
    }

    pub(crate) const fn set_low_water(&mut self, bytes: usize) {
        self.low_water_bytes = bytes;
        self.above_low_water = self.queued_bytes() > bytes;
    }

    /// Takes pieces for sending, all or none.
    pub(crate) fn send(&mut self, pieces: Vec<Bytes>, bytes_max: usize) -> Result<(), Unsent> {
        if self.phase != Phase::Open {
            let why = SendError::Closed;
            return Err(Unsent { why, pieces });
        }
        if self.queued_bytes() >= bytes_max {
            let why = SendError::Full;
            return Err(Unsent { why, pieces });
        }
        for piece in pieces {
            self.queue.push(piece);
        }
        self.above_low_water |= self.queued_bytes() > self.low_water_bytes;
        Ok(())
    }

    /// Takes note that the kernel has taken bytes; the queue is up to date.
    pub(crate) fn sent(&mut self, events: &mut VecDeque<Event>) {
        if self.above_low_water && self.queued_bytes() <= self.low_water_bytes {
            self.above_low_water = false;
            if self.phase == Phase::Open {
                events.push_back(Event::Writable {
                    connection: self.id,
                    queued_bytes: self.queued_bytes(),
                });
            }
        }
    }

    /// No more is read; what is queued is sent, then the connection ends.
    pub(crate) fn close(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
            self.drop_received();
        }
    }

    /// Nothing more is sent or read.
    pub(crate) fn die(&mut self, why: CloseReason) {
        if !matches!(self.phase, Phase::Dead(_)) {
            self.phase = Phase::Dead(why);
            self.drop_received();
            self.queue = Gather::default();
        }
    }

    pub(crate) fn fail(&mut self, errno: i32) {
        self.die(match errno {
            libc::ECONNRESET | libc::EPIPE => CloseReason::Reset,
            errno => CloseReason::Failed(errno),
        });
    }

    fn drop_received(&mut self) {
        self.expected = None;
        self.held = Bytes::new();
    }

    /// Whether the connection is to end now, and why.
    pub(crate) const fn ending(&self) -> Option<CloseReason> {
        match self.phase {
            Phase::Open => None,
            Phase::Draining if self.queued_bytes() == 0 => Some(CloseReason::Local),
            Phase::Draining => None,
            Phase::Dead(why) => Some(why),
        }
    }

    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    pub(crate) fn resume(&mut self, events: &mut VecDeque<Event>) {
        self.paused = false;
        self.tell(events);
    }

    pub(crate) fn expect(
        &mut self,
        expected: Expected,
        start: usize,
        events: &mut VecDeque<Event>,
    ) {
        assert!(self.expected.is_none(), "expected twice: {:?}", self.id);
        if self.phase == Phase::Open {
            self.expected = Some(expected);
            self.expected_start = start;
            self.tell(events);
        }
    }

    /// Whether the kernel should read now.
    pub(crate) fn wants_bytes(&self) -> bool {
        self.phase == Phase::Open && !self.paused && !self.ended && self.held.is_empty()
    }

    /// Where the kernel should read to, if the caller has said so. It is to be
    /// given back by [`Self::received_expected`].
    pub(crate) const fn take_expected(&mut self) -> Option<Expected> {
        self.expected.take()
    }

    /// How large a buffer should be where nothing is expected. In a crowd it is
    /// small: each connection keeps one while it waits.
    pub(crate) const fn buffer_size(&self, is_crowded: bool) -> BufferSize {
        if self.hungry && !is_crowded {
            BufferSize::Large
        } else {
            BufferSize::Small
        }
    }

    /// Bytes have come into a buffer of ours.
    pub(crate) fn received(&mut self, bytes: Bytes, room: usize, events: &mut VecDeque<Event>) {
        self.hungry =
            bytes.len() == room || (self.hungry && bytes.len() > BufferSize::Small.bytes());
        if self.phase == Phase::Open {
            self.held = bytes;
            self.tell(events);
        }
    }

    /// So many more bytes have come into the expected range.
    pub(crate) fn received_expected(
        &mut self,
        mut expected: Expected,
        bytes: usize,
        events: &mut VecDeque<Event>,
    ) {
        assert!(self.expected.is_none(), "expected twice: {:?}", self.id);
        expected.filled += bytes;
        // What follows a bulk is short, or the beginning of the next bulk.
        self.hungry = false;
        if self.phase == Phase::Open {
            self.expected = Some(expected);
            self.tell(events);
        }
    }

    pub(crate) fn peer_ended(&mut self, events: &mut VecDeque<Event>) {
        self.ended = true;
        self.tell(events);
    }

    /// Tells the caller all that it may hear by now.
    fn tell(&mut self, events: &mut VecDeque<Event>) {
        if self.paused || self.phase != Phase::Open {
            return;
        }
        if let Some(mut expected) = self.expected.take() {
            expected.fill_from(&mut self.held);
            if expected.filled < expected.end {
                self.expected = Some(expected);
            } else {
                events.push_back(expected.into_event(self.id, self.expected_start));
            }
        }
        let connection = self.id;
        if !self.held.is_empty() {
            let bytes = std::mem::take(&mut self.held);
            events.push_back(Event::Received { connection, bytes });
        }
        if self.ended && !self.end_told {
            self.end_told = true;
            events.push_back(Event::PeerDone { connection });
        }
    }
}

impl Expected {
    fn fill_from(&mut self, source: &mut Bytes) {
        let step = source.len().min(self.end - self.filled);
        let piece = source.split_to(step);
        self.buffer[self.filled..self.filled + step].copy_from_slice(&piece);
        self.filled += step;
    }

    fn into_event(self, connection: ConnectionId, start: usize) -> Event {
        let bytes = self.pool.share(self.buffer, self.end).slice(start..);
        Event::Filled { connection, bytes }
    }
}
