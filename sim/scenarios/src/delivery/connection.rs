//! A connection in simple terms: a socket's queue, a link, the buffer of a client that
//! reads at its own rate.

use std::collections::VecDeque;
use std::time::Duration;

use crossdock_delivery::{Congestion, TcpSample};
use crossdock_sim::random::Random;
use crossdock_types::Time;

/// Where the bytes go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Bytes per second on the wire.
    pub(super) link_rate: u64,
    /// Bytes per second that the client reads.
    pub(super) client_rate: u64,
    pub(super) round_trip: Duration,
    /// What the client's buffer holds.
    pub(super) window_bytes: u64,
    /// What the socket takes.
    pub(super) socket_bytes: u64,
}

impl Path {
    pub(super) fn draw(random: &mut Random) -> Self {
        let client_rate = match random.below(4) {
            0 => random.between(2_000, 50_000),
            1 | 2 => random.between(25_000, 1_000_000),
            _ => random.between(1_000_000, 50_000_000),
        };
        Self {
            link_rate: random.between(1 << 20, 100 << 20),
            client_rate,
            round_trip: Duration::from_micros(random.between(100, 200_000)),
            window_bytes: random.between(16 << 10, 512 << 10),
            socket_bytes: random.between(16 << 10, 512 << 10),
        }
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    path: Path,
    now: Time,
    /// In the socket, unsent: places in the stream and lengths.
    queue: VecDeque<(u64, u64)>,
    unsent_bytes: u64,
    /// Sent, to be acknowledged when.
    in_flight: VecDeque<(Time, u64)>,
    acked_bytes: u64,
    busy: Duration,
    /// What the client holds and has not read.
    held_bytes: u64,
    /// Where in the stream the client is.
    received_bytes: u64,
    /// What is acknowledged beyond it was not limited by us.
    limited_until_bytes: u64,
    pub(super) is_stalled: bool,
    pub(super) is_congested: bool,
    congested_since: Time,
    marks: u64,
}

impl Connection {
    pub(super) fn new(path: Path, now: Time) -> Self {
        Self {
            path,
            now,
            queue: VecDeque::new(),
            unsent_bytes: 0,
            in_flight: VecDeque::new(),
            acked_bytes: 0,
            busy: Duration::ZERO,
            held_bytes: 0,
            received_bytes: 0,
            limited_until_bytes: 0,
            is_stalled: false,
            is_congested: false,
            congested_since: Time::default(),
            marks: 0,
        }
    }

    pub(super) const fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    pub(super) const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Room in the socket.
    pub(super) const fn room(&self) -> u64 {
        self.path.socket_bytes.saturating_sub(self.unsent_bytes)
    }

    /// Whether something moves without us.
    pub(super) fn is_moving(&self) -> bool {
        self.unsent_bytes > 0 || !self.in_flight.is_empty()
    }

    /// When it is worth looking again.
    pub(super) fn step(&self) -> Duration {
        let rate = self.path.link_rate.min(self.path.client_rate).max(1);
        let step = Duration::from_secs_f64((16 << 10) as f64 / rate as f64);
        step.clamp(Duration::from_millis(5), Duration::from_millis(100))
    }

    pub(super) fn congest(&mut self, now: Time, is_congested: bool) {
        self.is_congested = is_congested;
        self.congested_since = now;
        self.marks += u64::from(is_congested);
    }

    /// Bytes of the stream from `offset` go into the socket.
    pub(super) fn push(&mut self, offset: u64, bytes: u64) {
        if self.unsent_bytes == 0 {
            let in_flight: u64 = self.in_flight.iter().map(|(_, bytes)| bytes).sum();
            self.limited_until_bytes = self.acked_bytes + in_flight + bytes;
        }
        self.queue.push_back((offset, bytes));
        self.unsent_bytes += bytes;
    }

    /// Lets time pass; fails if the client gets other bytes than the next ones.
    pub(super) fn pass(&mut self, now: Time) -> Result<(), String> {
        let nanos = now.since(self.now).as_nanos();
        if self.is_moving() {
            self.busy += now.since(self.now);
        }
        self.now = now;
        let amount = |rate: u64| {
            let bytes = u128::from(rate) * nanos / 1_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        let reads = if self.is_stalled {
            0
        } else {
            amount(self.path.client_rate)
        };
        self.held_bytes = self.held_bytes.saturating_sub(reads);
        let link = self.path.link_rate >> u32::from(self.is_congested);
        // What the client reads meanwhile leaves room as well.
        let room = (self.path.window_bytes - self.held_bytes.min(self.path.window_bytes)).max(1);
        let sent = self.unsent_bytes.min(amount(link)).min(room);
        let sent = if self.is_stalled && self.held_bytes >= self.path.window_bytes {
            0
        } else {
            sent
        };
        self.unsent_bytes -= sent;
        self.held_bytes += sent;
        if sent > 0 {
            self.in_flight.push_back((now + self.path.round_trip, sent));
        }
        self.receive(sent)?;
        while let Some(&(_, bytes)) = self.in_flight.front().filter(|(when, _)| *when <= now) {
            self.acked_bytes += bytes;
            self.in_flight.pop_front();
        }
        Ok(())
    }

    fn receive(&mut self, mut bytes: u64) -> Result<(), String> {
        while bytes > 0 {
            let Some((offset, length)) = self.queue.front_mut() else {
                return Err("the socket sends what it does not have".to_owned());
            };
            if *offset != self.received_bytes {
                return Err(format!(
                    "byte {offset} is sent where {} is next",
                    self.received_bytes
                ));
            }
            let part = bytes.min(*length);
            *offset += part;
            *length -= part;
            self.received_bytes += part;
            bytes -= part;
            if *length == 0 {
                self.queue.pop_front();
            }
        }
        Ok(())
    }

    pub(super) fn sample(&self) -> TcpSample {
        let is_recovering =
            self.is_congested && self.now.since(self.congested_since) <= self.path.round_trip * 4;
        TcpSample {
            unsent_bytes: self.unsent_bytes,
            // That of a burst, which is what the kernel tells of a client with a buffer.
            delivery_rate: match self.acked_bytes {
                0 => 0,
                _ => self.path.link_rate >> u32::from(self.is_congested),
            },
            is_app_limited: self.acked_bytes < self.limited_until_bytes,
            acked_bytes: self.acked_bytes,
            busy: self.busy,
            congestion: match is_recovering {
                true => Congestion::Recovery,
                false => Congestion::Open,
            },
            delivered_ce: self.marks,
            is_window_zero: self.held_bytes >= self.path.window_bytes,
            rtt: self.path.round_trip,
        }
    }
}
