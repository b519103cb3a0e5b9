//! The machine: requests of the space in, requests of disks out.
//!
//! A request becomes *works*, each within one set; a work goes through phases, and in each
//! it waits for requests of disks. Works that change a stripe of a parity set, or make a
//! lost cell of it, go one after the other. What is being rebuilt is fenced: works that
//! would change it wait.

pub(crate) mod adding;
mod compare;
mod flush;
mod grow;
mod labels;
mod members;
mod mirror;
mod neighbours;
mod opening;
mod parity_write;
mod read;
mod rebuild;
mod recover;
mod ring;
pub(crate) mod status;
mod work;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crossdock_disk::{
    DiskCompletion, DiskError, DiskOperation, DiskOutput, DiskRequest, DiskToken,
};
use crossdock_types::{AlignedBuffer, Scatter, Time};

use crate::assemble::{Assembled, DiskNumber, FoundDisk};
use crate::geometry::to_usize;
use crate::label::{DiskId, Pool};
use crate::spec::DISKS_MAX;

use compare::Comparing;
use flush::Flush;
use grow::Growing;
use labels::Labels;
use mirror::Intent;
use neighbours::Sequences;
use opening::Recovering;
use parity_write::DirtyRow;
use rebuild::Rebuild;
use ring::Ring;
use work::{Owner, Work};

/// How the machine is to behave.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes per second that a rebuild writes at most.
    pub rebuild_bytes_per_second: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rebuild_bytes_per_second: 100 << 20,
        }
    }
}

/// What people should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetsEvent {
    /// A disk is out.
    Failed {
        /// Its path.
        name: String,
        /// Its set.
        set: usize,
        /// What it did.
        why: String,
    },
    /// A rebuild has begun.
    RebuildBegun {
        /// The disk that takes the place.
        name: String,
        /// Its set.
        set: usize,
    },
    /// A set has all its disks again.
    Rebuilt {
        /// The disk that has taken the place.
        name: String,
        /// Its set.
        set: usize,
        /// Stripes whose other disks could not be read: what they held there is lost.
        unreadable: u64,
    },
    /// A disk could not read, and got what it should have from the others.
    Healed {
        /// Its path.
        name: String,
        /// Where on it.
        offset_bytes: u64,
    },
    /// What a disk gave was not what it should be, as its reader has found by himself; he asks
    /// for what the others have.
    Doubted {
        /// Where in the space.
        offset_bytes: u64,
    },
    /// The members of all sets have been compared.
    Compared {
        /// Blocks of them in which they differ.
        differing: u64,
    },
    /// Members that differed are the same.
    Agreed {
        /// Blocks that were written for that.
        blocks: u64,
    },
    /// Nothing is on a set any more, and its disks are not used any more.
    Retired {
        /// Which one.
        set: usize,
        /// The paths of its disks.
        names: Vec<String>,
        /// Their numbers.
        disks: Vec<DiskNumber>,
    },
    /// A spare is out.
    SpareFailed {
        /// Its path.
        name: String,
        /// What it did.
        why: String,
    },
}

/// Why an order about disks was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetsError {
    /// There is no such disk.
    #[error("no set has the disk {0}")]
    Unknown(String),
    /// Without it the set loses what is on it.
    #[error("set {0} cannot do without that disk: others of it are missing or being rebuilt")]
    Needed(usize),
    /// It is out already.
    #[error("{0} is out already")]
    IsOut(String),
    /// Too short for the sets that it may be needed in.
    #[error("{name} has {length_bytes} bytes, {wanted_bytes} are needed")]
    TooSmall {
        /// Which disk.
        name: String,
        /// Its length.
        length_bytes: u64,
        /// What it would have to have.
        wanted_bytes: u64,
    },
    /// Nothing is being rebuilt.
    #[error("no set is being rebuilt")]
    NotRebuilding,
    /// One after the other.
    #[error("the disks are being compared already")]
    Comparing,
    /// What a loss of power has left comes first.
    #[error("the sets are being put in order after a start; try again")]
    Opening,
    /// A disk cannot be in two places.
    #[error("{0} is in use already")]
    Known(String),
    /// More than a label tells of.
    #[error("a node has {DISKS_MAX} disks at most, these would be {0}")]
    TooMany(usize),
    /// There are, or were, more sets than the labels can tell of.
    #[error("the disks' labels have no room for that many sets; add fewer or larger ones")]
    LabelFull,
    /// There is no such set, or not any more.
    #[error("there is no set {0}; crossdock disk list shows them")]
    NoSet(usize),
    /// What it has could go nowhere.
    #[error("set {0} is the only one; add another one first (crossdock disk add)")]
    Only(usize),
    /// One after the other.
    #[error("set {0} is being retired; the next one has to wait for that")]
    Retiring(usize),
    /// There is nothing to be called off.
    #[error("set {0} is not being retired")]
    NotRetiring(usize),
}

/// The sets of one node.
#[derive(Debug)]
pub struct DiskSets {
    now: Time,
    options: Options,
    pool: Pool,
    disks: BTreeMap<DiskNumber, Attached>,
    sets: Vec<SetState>,
    /// Until it is open: what may differ after a loss of power.
    recovering: Option<Recovering>,
    early: VecDeque<DiskRequest>,
    requests: BTreeMap<u64, Request>,
    works: BTreeMap<u64, Work>,
    sent: BTreeMap<u64, Sent>,
    /// Requests that disks have as one command, by its number.
    merged: BTreeMap<u64, Vec<neighbours::Member>>,
    flushes: BTreeMap<u64, Flush>,
    growing: Option<Growing>,
    grows: VecDeque<(DiskToken, u64)>,
    /// The next number of whatever has one.
    next: u64,
    out: VecDeque<(DiskNumber, DiskRequest)>,
    completions: VecDeque<DiskCompletion>,
    /// Changes that are done, but not before the labels say which disks lack them.
    held: Vec<DiskCompletion>,
    labels: Labels,
    is_paused: bool,
    comparing: Comparing,
    /// A set that was retired, and the change of the labels that says so.
    leaving: Option<(usize, u64)>,
    events: VecDeque<SetsEvent>,
    /// The next number of a disk that is given later.
    next_disk: u16,
}

/// A disk that is there.
#[derive(Debug)]
struct Attached {
    id: DiskId,
    name: String,
    length_bytes: u64,
    in_flight: usize,
    read_errors: u64,
    /// It has failed: nothing is asked of it any more.
    is_out: bool,
    /// It has a label. Those that have none yet get it after all others.
    is_labelled: bool,
    sequences: Sequences,
}

impl Attached {
    fn new(found: FoundDisk) -> Self {
        Self {
            id: found.id,
            name: found.name,
            length_bytes: found.length_bytes,
            in_flight: 0,
            read_errors: 0,
            is_out: false,
            is_labelled: found.is_labelled,
            sequences: Sequences::default(),
        }
    }
}

/// A set, beyond what the labels say.
#[derive(Debug, Default)]
struct SetState {
    /// Stripes that a rebuild is copying.
    fence: Option<Range<u64>>,
    /// Works that wait for the fence to move on.
    fenced: VecDeque<u64>,
    /// Stripes of a parity set that a work holds, and who waits for them.
    busy: BTreeMap<u64, VecDeque<u64>>,
    /// Works that the next fence has to wait for.
    active: BTreeSet<u64>,
    /// Of each member of a parity set.
    rings: Vec<Ring>,
    /// Blocks that were changed since the last flush, by stripe.
    dirty: BTreeMap<u64, Vec<DirtyRow>>,
    intent: Intent,
    /// Flushes that were begun.
    flush_started: u64,
    /// The latest of them that has ended well.
    flushed: u64,
    /// Whether a flush that nobody asked for is under way.
    is_flushing: bool,
    /// Works that wait for such a flush.
    flush_waiting: VecDeque<u64>,
    rebuild: Option<Rebuild>,
    /// Blocks in which members were found to differ, and that were written to be the same.
    differing_blocks: u64,
    agreed_blocks: u64,
}

/// A request of the space.
#[derive(Debug)]
struct Request {
    token: DiskToken,
    kind: RequestKind,
    outstanding: usize,
    error: Option<DiskError>,
}

#[derive(Debug)]
enum RequestKind {
    /// The parts, in order, as far as they have come.
    Read(Vec<Option<AlignedBuffer>>),
    Change,
}

/// A request of a disk.
#[derive(Debug)]
struct Sent {
    disk: DiskNumber,
    purpose: Purpose,
    is_read: bool,
}

/// Who wants it.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Work { work: u64, slot: usize },
    Flush(u64),
    Label,
    Intent(usize),
    Format,
}

impl DiskSets {
    /// Begins to serve. Requests wait until what a loss of power has left is in order.
    #[must_use]
    pub fn new(now: Time, assembled: Assembled, options: Options) -> Self {
        let Assembled {
            pool,
            attached,
            is_changed,
            recovery,
            ..
        } = assembled;
        let last = attached.keys().map(|number| number.0).max();
        let disks = attached.into_iter();
        let disks = disks.map(|(number, found)| (number, Attached::new(found)));
        let mut machine = Self {
            now,
            options,
            disks: disks.collect(),
            sets: Vec::new(),
            recovering: None,
            early: VecDeque::new(),
            requests: BTreeMap::new(),
            works: BTreeMap::new(),
            sent: BTreeMap::new(),
            merged: BTreeMap::new(),
            flushes: BTreeMap::new(),
            growing: None,
            grows: VecDeque::new(),
            next: 0,
            out: VecDeque::new(),
            completions: VecDeque::new(),
            held: Vec::new(),
            labels: Labels::default(),
            is_paused: false,
            comparing: Comparing::default(),
            leaving: None,
            events: VecDeque::new(),
            next_disk: last.map_or(0, |last| last + 1),
            pool,
        };
        machine.open(recovery, is_changed);
        machine
    }

    /// How far the space has grown, in bytes.
    #[must_use]
    pub const fn length_bytes(&self) -> u64 {
        self.pool.length_bytes
    }

    /// How long it can become.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.pool.capacity_bytes()
    }

    /// Takes a request of the space, under the rules of every [`Disk`](crossdock_disk::Disk).
    pub fn submit(&mut self, now: Time, request: DiskRequest) {
        self.now = now;
        if self.recovering.is_some() {
            self.early.push_back(request);
        } else {
            self.begin(request);
        }
    }

    /// A disk has answered.
    pub fn disk_completed(&mut self, now: Time, disk: DiskNumber, completion: DiskCompletion) {
        self.now = now;
        for answer in self.landed(disk, completion) {
            self.take_answer(disk, answer);
        }
        self.mind_rebuilds();
        self.mind_comparing();
        self.see_off();
    }

    /// A request to a disk has its answer.
    fn take_answer(&mut self, disk: DiskNumber, completion: DiskCompletion) {
        let Some(sent) = self.sent.remove(&completion.token.0) else {
            return; // Not ours.
        };
        if let Some(attached) = self.disks.get_mut(&disk) {
            attached.in_flight = attached.in_flight.saturating_sub(1);
        }
        if let Err(error) = &completion.result {
            self.judge(&sent, error);
        }
        match sent.purpose {
            Purpose::Work { work, slot } => {
                self.work_answered(work, slot, disk, completion.result);
            }
            Purpose::Flush(flush) => self.flush_answered(flush, disk, completion.result.err()),
            Purpose::Label => self.label_answered(),
            Purpose::Intent(set) => self.intent_answered(set),
            Purpose::Format => self.format_answered(disk, completion.result.err()),
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.mind_rebuilds();
        self.mind_comparing();
    }

    /// When time matters next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let dues = self.rebuild_due().into_iter();
        dues.chain(self.comparing_due()).min()
    }

    /// The next request for a disk.
    pub fn poll_request(&mut self) -> Option<(DiskNumber, DiskRequest)> {
        self.out.pop_front()
    }

    /// The next completion of a request of the space.
    pub fn poll(&mut self) -> Option<DiskCompletion> {
        self.completions.pop_front()
    }

    /// The next thing that people should hear of.
    pub fn poll_event(&mut self) -> Option<SetsEvent> {
        self.events.pop_front()
    }

    fn begin(&mut self, request: DiskRequest) {
        let DiskRequest { token, operation } = request;
        if let Err(error) = operation.check(self.pool.length_bytes) {
            let result = Err(error);
            self.completions.push_back(DiskCompletion { token, result });
            return;
        }
        match operation {
            DiskOperation::Read {
                offset_bytes,
                buffer,
            } => self.begin_read(token, offset_bytes, buffer.len()),
            DiskOperation::ReadOther {
                offset_bytes,
                buffer,
                attempt,
            } => self.begin_read_other(token, offset_bytes, buffer.len(), attempt),
            DiskOperation::Write {
                offset_bytes,
                pieces,
                is_durable,
            } => self.begin_write(token, offset_bytes, pieces, is_durable),
            DiskOperation::Flush => self.begin_flush(token),
            DiskOperation::Grow { length_bytes } => self.begin_grow(token, length_bytes),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn open_request(&mut self, token: DiskToken, kind: RequestKind) -> u64 {
        let number = self.number();
        let request = Request {
            token,
            kind,
            // Until all its works are there.
            outstanding: 1,
            error: None,
        };
        self.requests.insert(number, request);
        number
    }

    /// One thing that a request waited for has ended.
    fn part_ended(&mut self, number: u64, error: Option<DiskError>) {
        let Some(request) = self.requests.get_mut(&number) else {
            return;
        };
        request.outstanding -= 1;
        if let Some(error) = error {
            request.error.get_or_insert(error);
        }
        if request.outstanding > 0 {
            return;
        }
        let Some(request) = self.requests.remove(&number) else {
            return;
        };
        let token = request.token;
        match (request.kind, request.error) {
            (RequestKind::Read(_), Some(error)) => {
                let result = Err(error);
                self.completions.push_back(DiskCompletion { token, result });
            }
            (RequestKind::Read(parts), None) => {
                let parts = parts.into_iter().flatten().collect();
                let result = Ok(DiskOutput::Read(Scatter::of(parts)));
                self.completions.push_back(DiskCompletion { token, result });
            }
            (RequestKind::Change, error) => self.change_ended(token, error),
        }
    }

    /// A change is done; who asked hears of it when the labels say which disks lack it.
    fn change_ended(&mut self, token: DiskToken, error: Option<DiskError>) {
        let result = error.map_or(Ok(DiskOutput::Done), Err);
        let completion = DiskCompletion { token, result };
        if self.labels.hold() {
            self.held.push(completion);
        } else {
            self.completions.push_back(completion);
        }
    }

    fn send(&mut self, disk: DiskNumber, purpose: Purpose, operation: DiskOperation) {
        let token = self.number();
        let is_read = matches!(operation, DiskOperation::Read { .. });
        let sent = Sent {
            disk,
            purpose,
            is_read,
        };
        self.sent.insert(token, sent);
        if let Some(attached) = self.disks.get_mut(&disk) {
            attached.in_flight += 1;
        }
        self.queue(disk, token, operation);
    }

    /// Where a stripe begins on every member of its set.
    fn disk_offset(&self, stripe: u64) -> u64 {
        self.pool.geometry.data_offset() + stripe * self.pool.geometry.chunk()
    }

    /// Cuts a range of the space into what lies in one cell each, in order.
    fn pieces(&self, offset_bytes: u64, bytes: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut at, end) = (offset_bytes, offset_bytes + bytes as u64);
        let mut begin = 0;
        for segment in &self.pool.segments {
            let row_bytes = self.pool.row_bytes(segment);
            let segment_end = begin + segment.rows * row_bytes;
            while at < end.min(segment_end) {
                let row = (at - begin) / row_bytes;
                let mut rest = (at - begin) % row_bytes;
                for share in &segment.shares {
                    let set = usize::from(share.set);
                    let stripe_bytes = self.pool.stripe_bytes(set);
                    let share_bytes = u64::from(share.weight) * stripe_bytes;
                    if rest >= share_bytes {
                        rest -= share_bytes;
                        continue;
                    }
                    let stripe =
                        share.first_stripe + row * u64::from(share.weight) + rest / stripe_bytes;
                    let within = rest % stripe_bytes;
                    let chunk = self.pool.geometry.chunk();
                    let (cell, offset) = (within / chunk, within % chunk);
                    let length = (chunk - offset).min(end - at);
                    pieces.push(Piece {
                        set,
                        stripe,
                        cell: to_usize(cell),
                        offset,
                        bytes: to_usize(length),
                        index: pieces.len(),
                    });
                    at += length;
                    break;
                }
            }
            begin = segment_end;
        }
        pieces
    }
}

/// A part of one cell.
#[derive(Clone, Copy, Debug)]
struct Piece {
    set: usize,
    stripe: u64,
    /// Data cell of the stripe.
    cell: usize,
    /// Where in the cell.
    offset: u64,
    bytes: usize,
    /// Its place among the pieces of its request.
    index: usize,
}

/// How long something of that many bytes takes at a rate.
fn time_of(bytes: u64, bytes_per_second: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl Owner {
    const fn request(&self) -> Option<u64> {
        match self {
            Self::Request(number) => Some(*number),
            Self::Rebuild | Self::Recovery | Self::Comparison => None,
        }
    }
}
