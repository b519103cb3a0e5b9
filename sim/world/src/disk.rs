//! The faulty twin of a disk: everything that a real one may do to us, on a
//! seed.
//!
//! Requests complete in any order after any delay up to a bound; a crash keeps,
//! loses or tears what was not flushed (a durable write makes itself stable
//! when it completes, and nothing else); on wish reads and writes fail, space
//! runs out, bits flip at rest, writes land elsewhere or nowhere. The same seed
//! with the same requests at the same times gives the same run, to be checked
//! by [`SimDisk::trace_hash`].

use std::time::Duration;

use bytes::Bytes;
use crossdock_disk::{
    Disk, DiskCompletion, DiskError, DiskOperation, DiskOutput, DiskRequest, DiskToken,
};
use crossdock_types::{BLOCK_BYTES, Time};

use crate::random::Random;

mod blocking;
mod image;
#[cfg(test)]
mod tests;

pub use blocking::SimBlockingDisk;
use image::Image;

/// EIO.
const ERRNO_IO: i32 = 5;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// What can go wrong with a simulated disk. The default is a disk without
/// faults, whose requests still complete out of order.
///
/// A field `x_one_in` is how rare `x` is: 0 never, 1 always, n once in n.
#[derive(Clone, Copy, Debug)]
pub struct SimDiskOptions {
    /// A request takes any time up to this.
    pub delay_max: Duration,
    /// A read fails with EIO; the next one of the same range may succeed.
    pub read_error_one_in: u32,
    /// A write fails with EIO, and any of its sectors may have landed.
    pub write_error_one_in: u32,
    /// A flush fails with EIO, and some of what it covered will never be
    /// stable although reads show it.
    pub flush_error_one_in: u32,
    /// A grow fails with [`DiskError::NoSpace`].
    pub no_space_one_in: u32,
    /// No grow goes beyond this length.
    pub capacity_bytes: u64,
    /// A write is accompanied by the flip of one bit somewhere in stable
    /// content.
    pub bit_flip_one_in: u32,
    /// A write is acknowledged, but landed at another place of the disk.
    pub misdirected_write_one_in: u32,
    /// A write is acknowledged, but never landed.
    pub lost_write_one_in: u32,
}

impl Default for SimDiskOptions {
    fn default() -> Self {
        Self {
            delay_max: Duration::from_micros(200),
            read_error_one_in: 0,
            write_error_one_in: 0,
            flush_error_one_in: 0,
            no_space_one_in: 0,
            capacity_bytes: u64::MAX,
            bit_flip_one_in: 0,
            misdirected_write_one_in: 0,
            lost_write_one_in: 0,
        }
    }
}

impl SimDiskOptions {
    fn refuses_growth(&self, length_bytes: u64, random: &mut Random) -> bool {
        length_bytes > self.capacity_bytes || random.one_in(self.no_space_one_in)
    }
}

/// How often each fault has struck: a test that needs one checks that it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Flushes that failed.
    pub flush_errors: u64,
    /// Grows that were refused.
    pub no_space: u64,
    /// Bits flipped at rest.
    pub bit_flips: u64,
    /// Writes that landed elsewhere.
    pub misdirected_writes: u64,
    /// Writes that landed nowhere.
    pub lost_writes: u64,
}

impl FaultCounts {
    /// Faults that leave something wrong on the disk without saying so.
    #[must_use]
    pub const fn silent(&self) -> u64 {
        self.bit_flips + self.misdirected_writes + self.lost_writes
    }

    /// Changes that failed.
    #[must_use]
    pub const fn failed_changes(&self) -> u64 {
        self.write_errors + self.flush_errors
    }
}

/// A simulated disk behind [`Disk`].
///
/// Time stands still between calls of [`advance`](Self::advance). A request
/// takes effect when [`Disk::poll`] hands out its completion, not before: until
/// then a crash decides alone how much of it happened.
#[derive(Debug)]
pub struct SimDisk {
    image: Image,
    options: SimDiskOptions,
    random: Random,
    now: Time,
    /// In no order; the next to complete is the least [`InFlight::rank`].
    in_flight: Vec<InFlight>,
    /// Tells apart what is due at the same nanosecond.
    submitted: u64,
    faults: FaultCounts,
    trace_hash: u64,
}

#[derive(Debug)]
struct InFlight {
    due: Time,
    /// Random, then the number of the request: requests that are due together
    /// complete in any order.
    tie: (u64, u64),
    /// What had landed when the request was made; a flush covers that much.
    covers: u64,
    request: DiskRequest,
}

impl SimDisk {
    /// An empty disk of zeros.
    #[must_use]
    pub fn new(seed: u64, length_bytes: u64, options: SimDiskOptions) -> Self {
        Self {
            image: Image::new(length_bytes),
            options,
            random: Random::new(seed),
            now: Time::default(),
            in_flight: Vec::new(),
            submitted: 0,
            faults: FaultCounts::default(),
            trace_hash: 0,
        }
    }

    /// Lets time pass until `now`; what is due by then can be polled.
    pub fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// When the next request completes, if one is in flight.
    #[must_use]
    pub fn next_completion_at(&self) -> Option<Time> {
        self.in_flight.iter().map(|flying| flying.due).min()
    }

    /// Advances to the next completion, if one is in flight, and polls it: for
    /// tests that have no clock of their own.
    pub fn step(&mut self) -> Option<DiskCompletion> {
        self.advance(self.next_completion_at()?);
        self.poll()
    }

    /// Requests that have not completed.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Loses power. Requests in flight never complete; each write that was not
    /// made stable by a flush is kept, lost, or torn between sectors of 512
    /// bytes. The disk can be used again at once.
    pub fn crash(&mut self, random: &mut Random) {
        *self = self.crashed(random);
    }

    /// The same disk as it would be after a crash now, so that several
    /// outcomes of one moment can be tried.
    #[must_use]
    pub fn crashed(&self, random: &mut Random) -> Self {
        let mut image = self.image.clone();
        let mut flying: Vec<&InFlight> = self.in_flight.iter().collect();
        random.shuffle(&mut flying);
        for flying in flying {
            let operation = &flying.request.operation;
            if operation.check(image.length_bytes()).is_err() {
                continue;
            }
            match operation {
                DiskOperation::Write {
                    offset_bytes,
                    pieces,
                    ..
                } => write_pieces(&mut image, *offset_bytes, pieces),
                DiskOperation::Grow { length_bytes } if *length_bytes > image.length_bytes() => {
                    image.set_length(*length_bytes);
                }
                _ => {}
            }
        }
        image.crash(random);
        Self {
            image,
            options: self.options,
            random: random.fork(),
            now: self.now,
            in_flight: Vec::new(),
            submitted: self.submitted,
            faults: self.faults,
            trace_hash: self.trace_hash,
        }
    }

    /// The same disk as it would be after the death of the process that uses it:
    /// a request in flight happened or did not, and nothing else is lost as long
    /// as there is power.
    #[must_use]
    pub fn abandoned(&self, random: &mut Random) -> Self {
        let mut image = self.image.clone();
        for flying in &self.in_flight {
            let operation = &flying.request.operation;
            if operation.check(image.length_bytes()).is_err() || random.coin() {
                continue;
            }
            if let DiskOperation::Write {
                offset_bytes,
                pieces,
                ..
            } = operation
            {
                write_pieces(&mut image, *offset_bytes, pieces);
            }
        }
        Self {
            image,
            in_flight: Vec::new(),
            random: random.fork(),
            ..*self
        }
    }

    /// What can go wrong now.
    #[must_use]
    pub const fn options(&self) -> SimDiskOptions {
        self.options
    }

    /// Changes what can go wrong from now on.
    pub const fn set_options(&mut self, options: SimDiskOptions) {
        self.options = options;
    }

    /// What has gone wrong so far.
    #[must_use]
    pub const fn faults(&self) -> FaultCounts {
        self.faults
    }

    /// Flips one bit of stable content; says in which block, if there is any.
    pub fn flip_bit(&mut self) -> Option<u64> {
        let block = self.image.flip_bit(&mut self.random)?;
        self.faults.bit_flips += 1;
        Some(block)
    }

    /// Other bytes are in a block from now on, whatever becomes of what is on its way to
    /// it: as if the disk below it had gone.
    pub fn scribble(&mut self, block: u64) {
        self.image.scribble(block, &mut self.random);
    }

    /// What a read would give now, without time or faults: for models and
    /// checkers beside the run. Beyond the end there are zeros.
    pub fn peek(&self, offset_bytes: u64, target: &mut [u8]) {
        self.image.read(offset_bytes, target);
    }

    /// A number that two runs share if they completed the same requests in the
    /// same order at the same times with the same results.
    #[must_use]
    pub const fn trace_hash(&self) -> u64 {
        self.trace_hash
    }

    fn carry_out(&mut self, flying: InFlight) -> Result<DiskOutput, DiskError> {
        match flying.request.operation {
            DiskOperation::Read {
                offset_bytes,
                mut buffer,
            } => {
                if self.random.one_in(self.options.read_error_one_in) {
                    self.faults.read_errors += 1;
                    return Err(io_error("read", offset_bytes));
                }
                let mut at = offset_bytes;
                for part in buffer.unfilled(0) {
                    self.image.read(at, part);
                    at += part.len() as u64;
                }
                Ok(DiskOutput::Read(buffer))
            }
            DiskOperation::Write {
                offset_bytes,
                pieces,
                is_durable,
            } => {
                let landed = self.image.landed();
                self.carry_out_write(offset_bytes, &pieces)?;
                if is_durable {
                    self.make_stable(landed, offset_bytes)?;
                }
                Ok(DiskOutput::Done)
            }
            DiskOperation::ReadOther { .. } => Err(DiskError::NoOther),
            DiskOperation::Flush => {
                if self.random.one_in(self.options.flush_error_one_in) {
                    self.faults.flush_errors += 1;
                    self.image.forsake(flying.covers, &mut self.random);
                    return Err(io_error("flush", 0));
                }
                self.image.sync(flying.covers);
                Ok(DiskOutput::Done)
            }
            DiskOperation::Grow { length_bytes } => {
                if length_bytes <= self.image.length_bytes() {
                    return Ok(DiskOutput::Done);
                }
                if self.options.refuses_growth(length_bytes, &mut self.random) {
                    self.faults.no_space += 1;
                    return Err(DiskError::NoSpace);
                }
                self.image.set_length(length_bytes);
                Ok(DiskOutput::Done)
            }
        }
    }

    fn carry_out_write(&mut self, offset_bytes: u64, pieces: &[Bytes]) -> Result<(), DiskError> {
        let options = self.options;
        if self.random.one_in(options.write_error_one_in) {
            self.faults.write_errors += 1;
            let mut at = offset_bytes;
            for piece in pieces {
                self.image.write_torn(at, piece, &mut self.random);
                at += piece.len() as u64;
            }
            return Err(io_error("write", offset_bytes));
        }
        if self.random.one_in(options.lost_write_one_in) {
            self.faults.lost_writes += 1;
        } else if self.random.one_in(options.misdirected_write_one_in) {
            self.faults.misdirected_writes += 1;
            let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
            let target = self.wrong_place(bytes);
            write_pieces(&mut self.image, target, pieces);
        } else {
            write_pieces(&mut self.image, offset_bytes, pieces);
        }
        if self.random.one_in(options.bit_flip_one_in) {
            self.flip_bit();
        }
        Ok(())
    }

    /// Makes what has landed after `landed` stable, but nothing before it.
    fn make_stable(&mut self, landed: u64, offset_bytes: u64) -> Result<(), DiskError> {
        if self.random.one_in(self.options.flush_error_one_in) {
            self.faults.flush_errors += 1;
            self.image.forsake_after(landed, &mut self.random);
            return Err(io_error("write", offset_bytes));
        }
        self.image.sync_after(landed);
        Ok(())
    }

    /// Where a misdirected write of `bytes` lands: half of the time upon
    /// something that is stored, where it hurts.
    fn wrong_place(&mut self, bytes: u64) -> u64 {
        let last = (self.image.length_bytes() - bytes) / BLOCK;
        let stored = self.image.any_durable_block(&mut self.random);
        match stored.filter(|_| self.random.coin()) {
            Some(block) => block.min(last) * BLOCK,
            None => self.random.between(0, last) * BLOCK,
        }
    }

    fn trace(&mut self, completion: &DiskCompletion) {
        let outcome = match &completion.result {
            Ok(DiskOutput::Read(buffer)) => buffer
                .parts()
                .flat_map(|part| part.as_chunks().0)
                .fold(1, |hash, word| mix(hash, u64::from_le_bytes(*word))),
            Ok(DiskOutput::Done) => 2,
            Err(_) => 3,
        };
        for word in [completion.token.0, self.now.0, outcome] {
            self.trace_hash = mix(self.trace_hash, word);
        }
    }
}

impl Disk for SimDisk {
    fn length_bytes(&self) -> u64 {
        self.image.length_bytes()
    }

    fn submit(&mut self, request: DiskRequest) {
        debug_assert!(
            !self.writes_where_a_write_flies(&request),
            "two writes in flight meet: {request:?}"
        );
        self.submitted += 1;
        let delay_max = u64::try_from(self.options.delay_max.as_nanos()).unwrap_or(u64::MAX);
        let delay = Duration::from_nanos(self.random.between(0, delay_max));
        self.in_flight.push(InFlight {
            due: self.now + delay,
            tie: (self.random.next_u64(), self.submitted),
            covers: self.image.landed(),
            request,
        });
    }

    fn poll(&mut self) -> Option<DiskCompletion> {
        let (index, next) = self
            .in_flight
            .iter()
            .enumerate()
            .min_by_key(|(_, flying)| flying.rank())?;
        if next.due > self.now {
            return None;
        }
        let flying = self.in_flight.swap_remove(index);
        let token: DiskToken = flying.request.token;
        let refused = flying.request.operation.check(self.length_bytes());
        let result = refused.and_then(|()| self.carry_out(flying));
        let completion = DiskCompletion { token, result };
        self.trace(&completion);
        Some(completion)
    }
}

impl SimDisk {
    fn writes_where_a_write_flies(&self, request: &DiskRequest) -> bool {
        let Some((start, end)) = write_range(&request.operation) else {
            return false;
        };
        self.in_flight
            .iter()
            .filter_map(|flying| write_range(&flying.request.operation))
            .any(|(other_start, other_end)| start < other_end && other_start < end)
    }
}

impl InFlight {
    const fn rank(&self) -> (Time, (u64, u64)) {
        (self.due, self.tie)
    }
}

fn write_range(operation: &DiskOperation) -> Option<(u64, u64)> {
    match operation {
        DiskOperation::Write {
            offset_bytes,
            pieces,
            ..
        } => {
            let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
            Some((*offset_bytes, offset_bytes.saturating_add(bytes)))
        }
        _ => None,
    }
}

fn write_pieces(image: &mut Image, offset_bytes: u64, pieces: &[Bytes]) {
    // One change per write, so that a crash treats it as one.
    match pieces {
        [only] => image.write(offset_bytes, only),
        pieces => image.write(offset_bytes, &pieces.concat()),
    }
}

fn io_error(operation: &'static str, offset_bytes: u64) -> DiskError {
    DiskError::Io {
        operation,
        errno: ERRNO_IO,
        message: format!("simulated error at byte {offset_bytes}"),
    }
}

/// One step of FNV-1a over a whole word.
const fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3)
}
