//! A node with one disk: the queue before it, the arm, and what is put off.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crossdock_delivery::{DiskProfile, StreamId};
use crossdock_disk::{DiskOperation, DiskRequest, DiskToken};
use crossdock_disks::{DiskClass, DiskQueue, QueuedRequest};
use crossdock_sim::random::Random;
use crossdock_types::{Scatter, Time};

/// What a disk is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arm {
    /// The mean time to get elsewhere.
    pub(super) positioning: Duration,
    pub(super) bytes_per_second: u64,
    /// Requests that it has at a time.
    pub(super) depth: usize,
    pub(super) fails_one_in: u32,
}

/// Streams lie so far apart.
const STREAM_SPACING_BYTES: u64 = 1 << 30;

/// The disk is as long as so many streams.
const PLACES: u64 = 512;

/// One block wanted of the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) stream: StreamId,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    deadline: Time,
}

#[derive(Debug)]
pub(super) struct Node {
    arm: Arm,
    queue: DiskQueue,
    reads: BTreeMap<DiskToken, Read>,
    waiting: BTreeSet<(StreamId, DiskToken)>,
    put_off: BTreeMap<DiskToken, Time>,
    on_disk: Vec<DiskToken>,
    busy: Option<DiskToken>,
    head: u64,
    tokens: u64,
    busy_time: Duration,
    positionings: (u32, Duration),
    random: Random,
}

impl Node {
    pub(super) fn new(arm: Arm, random: Random) -> Self {
        Self {
            arm,
            queue: DiskQueue::new(arm.depth),
            reads: BTreeMap::new(),
            waiting: BTreeSet::new(),
            put_off: BTreeMap::new(),
            on_disk: Vec::new(),
            busy: None,
            head: 0,
            tokens: 0,
            busy_time: Duration::ZERO,
            positionings: (0, Duration::ZERO),
            random,
        }
    }

    pub(super) fn read(
        &mut self,
        now: Time,
        stream: StreamId,
        offset: u64,
        bytes: u64,
        deadline: Time,
    ) -> Result<(), String> {
        self.tokens += 1;
        let token = DiskToken(self.tokens);
        let read = Read {
            stream,
            offset,
            bytes,
            deadline,
        };
        self.reads.insert(token, read);
        self.push(now, token)
    }

    fn push(&mut self, now: Time, token: DiskToken) -> Result<(), String> {
        let Some(read) = self.reads.get(&token) else {
            return Ok(());
        };
        self.waiting.insert((read.stream, token));
        // One block stands for all: the queue orders by where requests begin.
        let operation = DiskOperation::Read {
            offset_bytes: place(read) & !4095,
            buffer: Scatter::zeroed(4096),
        };
        let queued = QueuedRequest {
            request: DiskRequest { token, operation },
            class: DiskClass::Foreground,
            since: now,
            deadline: read.deadline,
        };
        let pushed = self.queue.push(queued);
        pushed.map_err(|_| "too many requests wait for the disk".to_owned())
    }

    /// What the queue gives to the disk now; each is issued at this moment.
    pub(super) fn issue(&mut self, now: Time) -> Vec<Read> {
        let mut issued = Vec::new();
        while let Some(request) = self.queue.next(now) {
            if let Some(&read) = self.reads.get(&request.token) {
                self.waiting.remove(&(read.stream, request.token));
                self.on_disk.push(request.token);
                issued.push(read);
            }
        }
        issued
    }

    /// The arm turns to the next request, upwards; how long it takes.
    pub(super) fn start(&mut self) -> Option<(DiskToken, Duration)> {
        if self.busy.is_some() {
            return None;
        }
        let key = |token: &DiskToken| self.reads.get(token).map_or(0, place);
        let upwards = self.on_disk.iter().filter(|token| key(token) >= self.head);
        let next = upwards.min_by_key(|token| key(token));
        let next = next.or_else(|| self.on_disk.iter().min_by_key(|token| key(token)));
        let token = *next?;
        self.on_disk.retain(|&other| other != token);
        let read = self.reads.get(&token)?;
        let moves = self.moves(place(read).abs_diff(self.head));
        if moves > Duration::ZERO {
            self.positionings.0 += 1;
            self.positionings.1 += moves;
        }
        self.head = place(read) + read.bytes;
        let transfer = read.bytes as f64 / self.arm.bytes_per_second as f64;
        let time = moves + Duration::from_secs_f64(transfer);
        self.busy = Some(token);
        self.busy_time += time;
        Some((token, time))
    }

    /// An arm's seeks grow with the square root of the distance; two random places are
    /// 8/15 of the whole root apart on average. A third of the time is rotation.
    fn moves(&self, distance: u64) -> Duration {
        if distance == 0 {
            return Duration::ZERO;
        }
        let part = distance as f64 / (PLACES * STREAM_SPACING_BYTES) as f64;
        let mean = self.arm.positioning.as_secs_f64();
        let seek = mean * 2.0 / 3.0 * part.min(1.0).sqrt() * 15.0 / 8.0;
        Duration::from_secs_f64(mean / 3.0 + seek)
    }

    /// The disk has done it; whether well.
    pub(super) fn completed(&mut self, now: Time, token: DiskToken) -> Option<(Read, bool)> {
        self.busy = None;
        let is_well = !self.random.one_in(self.arm.fails_one_in);
        self.queue.completed(now, token, is_well);
        self.reads.remove(&token).map(|read| (read, is_well))
    }

    /// Everything of the stream that waits is taken out.
    pub(super) fn withdraw(&mut self, stream: StreamId) {
        for token in self.waiting_of(stream) {
            self.queue.cancel(token);
            self.waiting.remove(&(stream, token));
            self.reads.remove(&token);
        }
        let reads = &mut self.reads;
        self.put_off.retain(|token, _| {
            let is_of = reads.get(token).is_some_and(|read| read.stream == stream);
            if is_of {
                reads.remove(token);
            }
            !is_of
        });
    }

    /// The last `bytes` of the stream that wait are put off until `until`.
    pub(super) fn postpone(&mut self, stream: StreamId, mut bytes: u64, until: Time) {
        for token in self.waiting_of(stream).into_iter().rev() {
            let length = self.reads.get(&token).map_or(0, |read| read.bytes);
            if length > bytes {
                break;
            }
            bytes -= length;
            self.queue.cancel(token);
            self.waiting.remove(&(stream, token));
            self.put_off.insert(token, until);
        }
    }

    pub(super) fn resume(&mut self, now: Time, stream: StreamId) -> Result<(), String> {
        let reads = &self.reads;
        let is_of = |token: &DiskToken| reads.get(token).is_some_and(|read| read.stream == stream);
        let of: Vec<_> = self.put_off.keys().copied().filter(is_of).collect();
        self.return_to_queue(now, of)
    }

    /// What was put off until now returns.
    pub(super) fn expire(&mut self, now: Time) -> Result<(), String> {
        let due = self.put_off.iter().filter(|(_, until)| **until <= now);
        let due = due.map(|(&token, _)| token).collect();
        self.return_to_queue(now, due)
    }

    fn return_to_queue(&mut self, now: Time, tokens: Vec<DiskToken>) -> Result<(), String> {
        for token in tokens {
            self.put_off.remove(&token);
            self.push(now, token)?;
        }
        Ok(())
    }

    fn waiting_of(&self, stream: StreamId) -> Vec<DiskToken> {
        let all = (stream, DiskToken(0))..=(stream, DiskToken(u64::MAX));
        self.waiting.range(all).map(|&(_, token)| token).collect()
    }

    /// What the node tells of its disk after `elapsed`.
    pub(super) fn report(&mut self, elapsed: Duration) -> DiskProfile {
        let busy = self.busy_time.as_micros() * 100 / elapsed.as_micros();
        // Those that wait count, too: how many do now stands for how many did.
        let load = busy.min(100) + 100 * self.waiting.len() as u128;
        self.busy_time = Duration::ZERO;
        let (count, time) = std::mem::take(&mut self.positionings);
        DiskProfile {
            positioning: time.checked_div(count).unwrap_or(self.arm.positioning),
            sequential_bytes_per_second: self.arm.bytes_per_second,
            load_percent: u32::try_from(load).unwrap_or(u32::MAX),
        }
    }
}

/// Streams lie anywhere, each in one piece.
const fn place(read: &Read) -> u64 {
    let slot = read.stream.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) % PLACES;
    slot * STREAM_SPACING_BYTES + read.offset
}
