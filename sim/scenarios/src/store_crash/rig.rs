//! One start of a store: the machine, its index and its disks, in simulated time.

use std::collections::VecDeque;
use std::time::Duration;

use crossdock_disk::{BlockingDisk, Disk, DiskError};
use crossdock_peer::{Call, CallId, NodeError, NodeReply, NodeRequest};
use crossdock_sim::disk::{SimBlockingDisk, SimDisk, SimDiskOptions};
use crossdock_sim::random::Random;
use crossdock_store::{
    ClosedBlocks, DefragReport, DefragStep, EvacuationReport, Index, IndexRequest, OpenError,
    OpenReport, ScrubReport, Store, StoreConfig, StoreDisk, StoreEffect, StoreInput, StoreStatus,
    fsck,
};
use crossdock_types::Time;

/// The index thread takes up to this for a request.
const INDEX_DELAY_MAX: Duration = Duration::from_micros(500);

/// What outlives a start.
pub(super) struct Disks {
    pub(super) journal: SimDisk,
    pub(super) data: SimDisk,
    pub(super) index: SimBlockingDisk,
}

impl Disks {
    /// Faults of the data disk that may have left something wrong on it.
    pub(super) const fn silent_faults(&self) -> u64 {
        self.data.faults().silent()
    }

    /// The data disk has nothing below these blocks.
    pub(super) fn lose(&mut self, zones: &[ClosedBlocks]) {
        for zone in zones {
            for row in 0..zone.rows {
                let begin = zone.first + row * zone.row_blocks;
                (begin..begin + zone.blocks).for_each(|block| self.data.scribble(block));
            }
        }
    }

    /// The offline check of the disks as they are.
    pub(super) fn check(&self, verifies_blocks: bool) -> Result<(), String> {
        let (journal, data) = (Image(&self.journal), Image(&self.data));
        // It opens the database for itself.
        let index = Box::new(self.index.crashed(&mut Random::new(0)));
        let report = fsck(&journal, &data, index, verifies_blocks)
            .map_err(|error| format!("the offline check fails: {error}"))?;
        match report.findings.first() {
            Some(finding) => Err(format!("the offline check: {finding}")),
            None => Ok(()),
        }
    }
}

/// A disk that nobody uses, to be read.
struct Image<'a>(&'a SimDisk);

impl BlockingDisk for Image<'_> {
    fn length_bytes(&self) -> Result<u64, DiskError> {
        Ok(self.0.length_bytes())
    }

    fn read_at(&self, target: &mut [u8], offset_bytes: u64) -> Result<(), DiskError> {
        self.0.peek(offset_bytes, target);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<(), DiskError> {
        Err(DiskError::NoSpace)
    }

    fn flush(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn set_length(&self, _: u64) -> Result<(), DiskError> {
        Err(DiskError::NoSpace)
    }
}

/// What came out of the store.
#[derive(Debug)]
pub(super) enum Output {
    Opened(Result<OpenReport, OpenError>),
    Reply(NodeReply),
    Scrubbed(Result<ScrubReport, NodeError>),
    Defragged(Result<DefragReport, NodeError>),
    Evacuated(Result<EvacuationReport, NodeError>),
    Quiet,
}

/// How far a step got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something happened.
    Done,
    /// Nothing is due before the given time, which has come.
    Woken,
    /// Nothing will ever happen.
    Idle,
}

pub(super) struct Rig {
    store: Store,
    index: Index,
    disks: Disks,
    index_queue: VecDeque<(Time, IndexRequest)>,
    capacity_bytes: u64,
    pub(super) now: Time,
    random: Random,
    pub(super) outputs: VecDeque<Output>,
    /// When the timer last fired.
    fired: Option<Time>,
}

impl Rig {
    pub(super) fn start(
        mut disks: Disks,
        config: StoreConfig,
        now: Time,
        random: Random,
    ) -> Result<Self, String> {
        disks.journal.advance(now);
        disks.data.advance(now);
        // Opening finds disks that work.
        disks.journal.set_options(SimDiskOptions::default());
        disks.data.set_options(SimDiskOptions::default());
        let index = Index::open(Box::new(disks.index.clone()))
            .map_err(|error| format!("the index does not open: {error}"))?;
        Ok(Self {
            capacity_bytes: config.capacity_bytes,
            store: Store::new(config),
            index,
            disks,
            index_queue: VecDeque::new(),
            now,
            random,
            outputs: VecDeque::new(),
            fired: None,
        })
    }

    pub(super) fn request(&mut self, id: CallId, request: NodeRequest) {
        let call = Call {
            id,
            deadline: self.now + Duration::from_secs(3600),
            request,
        };
        self.store.handle(self.now, StoreInput::Request(call));
    }

    pub(super) fn cancel(&mut self, id: CallId) {
        self.store.handle(self.now, StoreInput::Cancel(id));
    }

    pub(super) fn scrub(&mut self, blocks_max: u64) {
        self.store
            .handle(self.now, StoreInput::Scrub { blocks_max });
    }

    pub(super) fn defrag(&mut self, step: DefragStep) {
        self.store.handle(self.now, StoreInput::Defrag(step));
    }

    pub(super) fn evacuate(&mut self, is_first: bool, blocks_max: u64) {
        let input = StoreInput::Evacuate {
            is_first,
            blocks_max,
        };
        self.store.handle(self.now, input);
    }

    pub(super) fn set_closed(&mut self, closed: Vec<ClosedBlocks>) {
        let input = StoreInput::Space {
            capacity_bytes: self.capacity_bytes,
            closed,
        };
        self.store.handle(self.now, input);
    }

    pub(super) fn drain(&mut self) {
        self.store.handle(self.now, StoreInput::Drain);
    }

    pub(super) fn status(&self) -> StoreStatus {
        self.store.status()
    }

    /// Writes and flushes that the disks have failed.
    pub(super) const fn failed_changes(&self) -> u64 {
        let Disks { journal, data, .. } = &self.disks;
        journal.faults().failed_changes() + data.faults().failed_changes()
    }

    pub(super) const fn disks(&mut self) -> &mut Disks {
        &mut self.disks
    }

    /// Carries out effects, then lets the one next thing happen that is due
    /// before `wake`, unless there are outputs to be looked at.
    pub(super) fn step(&mut self, wake: Option<Time>) -> Step {
        self.carry_out();
        if !self.outputs.is_empty() {
            return Step::Done; // Answered at once: no time passes.
        }
        let index = self.index_queue.front().map(|&(due, _)| due);
        let journal = self.disks.journal.next_completion_at();
        let data = self.disks.data.next_completion_at();
        // A timer that stays due is served once at a time.
        let fired = self.fired;
        let timer = self.store.poll_timeout().map(|due| due.max(self.now));
        let timer = timer.filter(|&due| fired != Some(due));
        let Some(next) = [index, journal, data, timer, wake]
            .into_iter()
            .flatten()
            .min()
        else {
            return Step::Idle;
        };
        self.now = self.now.max(next);
        self.disks.journal.advance(self.now);
        self.disks.data.advance(self.now);
        let now = self.now;
        let is_due = |due: Option<Time>| due.is_some_and(|due| due <= now);
        let input = if is_due(journal) {
            let completion = self.disks.journal.poll();
            completion.map(|completion| StoreInput::Disk(StoreDisk::Journal, completion))
        } else if is_due(data) {
            let completion = self.disks.data.poll();
            completion.map(|completion| StoreInput::Disk(StoreDisk::Data, completion))
        } else if is_due(index) {
            let request = self.index_queue.pop_front();
            request.map(|(_, request)| StoreInput::Index(self.index.handle(request)))
        } else if is_due(timer) {
            self.fired = Some(now);
            Some(StoreInput::Timeout)
        } else {
            return Step::Woken;
        };
        if let Some(input) = input {
            self.store.handle(self.now, input);
        }
        self.carry_out();
        Step::Done
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.store.poll_effect() {
            match effect {
                StoreEffect::Disk(StoreDisk::Journal, _, request) => {
                    self.disks.journal.submit(request);
                }
                StoreEffect::Disk(StoreDisk::Data, _, request) => self.disks.data.submit(request),
                StoreEffect::Index(request) => {
                    let delay_max = u64::try_from(INDEX_DELAY_MAX.as_nanos()).unwrap_or(u64::MAX);
                    let delay = Duration::from_nanos(self.random.between(0, delay_max));
                    let before = self.index_queue.back().map_or(self.now, |&(due, _)| due);
                    self.index_queue
                        .push_back(((self.now + delay).max(before), request));
                }
                StoreEffect::Opened(outcome) => self.outputs.push_back(Output::Opened(outcome)),
                StoreEffect::Reply(reply) => self.outputs.push_back(Output::Reply(reply)),
                StoreEffect::Quiet => self.outputs.push_back(Output::Quiet),
                // Nothing waits before these disks.
                StoreEffect::Urgent(_)
                | StoreEffect::Withdraw(_)
                | StoreEffect::Postpone(..)
                | StoreEffect::Resume(_) => {}
                StoreEffect::Failed(_) => {} // Its figures say so, too.
                StoreEffect::Scrubbed(report) => self.outputs.push_back(Output::Scrubbed(report)),
                StoreEffect::Defragged(report) => {
                    self.outputs.push_back(Output::Defragged(report));
                }
                StoreEffect::Evacuated(report) => {
                    self.outputs.push_back(Output::Evacuated(report));
                }
            }
        }
    }

    /// Power fails now. The old index may still write while it is dropped, but
    /// to a disk that nobody sees any more.
    pub(super) fn crash(mut self) -> Disks {
        let random = &mut self.random;
        Disks {
            journal: self.disks.journal.crashed(random),
            data: self.disks.data.crashed(random),
            index: self.disks.index.crashed(random),
        }
    }

    /// The process dies now; the disks go on.
    pub(super) fn kill(mut self) -> Disks {
        let random = &mut self.random;
        Disks {
            journal: self.disks.journal.abandoned(random),
            data: self.disks.data.abandoned(random),
            index: self.disks.index.abandoned(),
        }
    }

    /// An orderly end, after a drain: the index closes its file.
    pub(super) fn close(self) -> Disks {
        drop(self.index);
        self.disks
    }
}
