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

/// Received behind a bulk: most heads are shorter.
const SIP_BYTES: usize = 512;

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
    /// Events of received bytes that the caller has not taken.
    unheard: usize,
    /// How much is received at a time where nothing is expected.
    appetite: Appetite,

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
    /// Bytes that were received without one, and in which turn.
    pub(crate) at_hand: (u64, usize),
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

/// How much is received at a time where nothing is expected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Appetite {
    /// What follows a bulk is short, or the beginning of the next bulk, of which little is
    /// to be here: that is copied in front of the rest.
    Sip,
    Small,
    /// The last receive has filled its buffer.
    Large,
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
            unheard: 0,
            appetite: Appetite::Small,
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
            self.fill_from_unheard(events);
            self.tell(events);
        }
    }

    /// The caller has taken an event of received bytes.
    pub(crate) const fn heard(&mut self) {
        self.unheard -= 1;
    }

    /// Bytes of events that the caller has not taken belong to what is expected: it hears
    /// of them by the one that says that all is there, at the place of those.
    fn fill_from_unheard(&mut self, events: &mut VecDeque<Event>) {
        let id = self.id;
        let is_own = |event: &Event| matches!(event, Event::Received { connection, .. } if *connection == id);
        while self.unheard > 0
            && let Some(at) = events.iter().position(is_own)
            && let Some(mut expected) = self.expected.take()
            && let Some(Event::Received {
                connection,
                mut bytes,
            }) = events.remove(at)
        {
            self.unheard -= 1;
            expected.fill_from(&mut bytes);
            if expected.filled < expected.end {
                self.expected = Some(expected);
                continue;
            }
            if !bytes.is_empty() {
                self.unheard += 1;
                events.insert(at, Event::Received { connection, bytes });
            }
            events.insert(at, expected.into_event(id, self.expected_start));
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

    /// How large a buffer should be where nothing is expected, and how much of it is
    /// used. In a crowd it is small: each connection keeps one while it waits.
    pub(crate) const fn room(&self, is_crowded: bool) -> (BufferSize, usize) {
        match self.appetite {
            Appetite::Sip => (BufferSize::Small, SIP_BYTES),
            Appetite::Large if !is_crowded => (BufferSize::Large, BufferSize::Large.bytes()),
            Appetite::Small | Appetite::Large => (BufferSize::Small, BufferSize::Small.bytes()),
        }
    }

    /// Bytes have come into a buffer of ours.
    pub(crate) fn received(&mut self, bytes: Bytes, room: usize, events: &mut VecDeque<Event>) {
        let is_full = bytes.len() == room;
        self.appetite = match self.appetite {
            Appetite::Small if is_full => Appetite::Large,
            Appetite::Large if is_full || bytes.len() > BufferSize::Small.bytes() => {
                Appetite::Large
            }
            Appetite::Sip | Appetite::Small | Appetite::Large => Appetite::Small,
        };
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
        self.appetite = Appetite::Sip;
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
            self.unheard += 1;
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
