//! The queues before the node's two disks: what the store asks for waits here
//! until the disk has room, the urgent first.
//!
//! Each disk has a queue of its own, so a journal write never waits behind
//! data: at most one is under way, and it goes to the disk in the same turn. So
//! does everything else while the disk has room.
//!
//! The order among requests that wait is free: the store asks for what needs
//! another request's end only after that end, a flush only after the completion
//! of the writes that it is to cover, and never for two requests together whose
//! ranges meet.

use std::time::Duration;

use crossdock_disk::{DiskCompletion, DiskError, DiskRequest, DiskToken};
use crossdock_disks::{DiskClass, DiskFigures, DiskQueue, Full, QueuedRequest};
use crossdock_peer::CallId;
use crossdock_store::{DiskPurpose, StoreDisk};
use crossdock_types::Time;

/// From then on a read for a client goes before all that is younger, unless it is wanted
/// later (T_n of TPF section 3.2). Clients notice.
const READ_PATIENCE: Duration = Duration::from_millis(20);

/// The same for data writes, which mostly nobody waits for yet.
const WRITE_PATIENCE: Duration = Duration::from_millis(100);

/// The same for upkeep: it must go on, or the journal fills up.
const UPKEEP_PATIENCE: Duration = Duration::from_millis(500);

/// The disks of one start of a node.
#[derive(Debug)]
pub(crate) struct NodeDisks {
    journal: DiskQueue,
    data: DiskQueue,
    relief: Relief,
}

/// What the data disk was spared, or did not have to do at once, since it was asked
/// last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Relief {
    /// Requests that were taken out.
    pub(crate) withdrawn: u64,
    /// Their bytes.
    pub(crate) withdrawn_bytes: u64,
    /// Requests that were moved behind.
    pub(crate) postponed: u64,
}

impl NodeDisks {
    /// Disks that get at most `depth` requests at a time.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            journal: DiskQueue::new(depth),
            data: DiskQueue::new(depth),
            relief: Relief::default(),
        }
    }

    /// The disks get at most `depth` requests at a time from now on.
    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.journal.set_depth(depth);
        self.data.set_depth(depth);
    }

    /// Takes a request of the store. `patience` tells of a call by when it wants the
    /// bytes, or `None` if nobody waits for them.
    ///
    /// Returns how it ended if there is no room for it.
    pub(crate) fn push(
        &mut self,
        now: Time,
        (disk, purpose, request): (StoreDisk, DiskPurpose, DiskRequest),
        patience: impl Fn(CallId) -> Option<Duration>,
    ) -> Option<DiskCompletion> {
        let upkeep = (DiskClass::Background, UPKEEP_PATIENCE);
        let (class, patience) = match purpose {
            DiskPurpose::Journal => (DiskClass::Journal, Duration::ZERO),
            DiskPurpose::Read(call) => patience(call).map_or(upkeep, |patience| {
                (DiskClass::Foreground, patience.max(READ_PATIENCE))
            }),
            DiskPurpose::Write => (DiskClass::Write, WRITE_PATIENCE),
            DiskPurpose::Upkeep => upkeep,
        };
        let token = request.token;
        let queued = QueuedRequest {
            request,
            class,
            since: now,
            deadline: now + patience,
        };
        match self.queue(disk).push(queued) {
            Ok(()) => None,
            Err(Full(_)) => Some(not_begun(token)),
        }
    }

    /// A client waits for a read of the data disk that was asked for as upkeep, or
    /// postponed, or by somebody who wants it later.
    pub(crate) fn hurry(&mut self, now: Time, token: DiskToken) {
        let deadline = now + READ_PATIENCE;
        self.data.resume(token);
        self.data.promote(token, DiskClass::Foreground, deadline);
    }

    /// The next request that a disk has room for.
    pub(crate) fn next(&mut self, now: Time) -> Option<(StoreDisk, DiskRequest)> {
        let journal = self.journal.next(now);
        if let Some(request) = journal {
            return Some((StoreDisk::Journal, request));
        }
        let request = self.data.next(now)?;
        Some((StoreDisk::Data, request))
    }

    /// A disk has completed a request. False if it is none of this start of the
    /// node.
    pub(crate) fn completed(
        &mut self,
        now: Time,
        disk: StoreDisk,
        completion: &DiskCompletion,
    ) -> bool {
        let is_well = completion.result.is_ok();
        self.queue(disk).completed(now, completion.token, is_well)
    }

    /// What was counted of journal and data.
    pub(crate) fn figures(&self) -> [DiskFigures; 2] {
        [self.journal.figures(), self.data.figures()]
    }

    /// Nobody waits for a read of the data disk any more: if it is still here it is
    /// taken out, and returned how it ended.
    pub(crate) fn withdraw(&mut self, token: DiskToken) -> Option<DiskCompletion> {
        let bytes = self.data.cancel(token)?;
        self.relief.withdrawn += 1;
        self.relief.withdrawn_bytes += bytes;
        Some(not_begun(token))
    }

    /// Nobody needs a read of the data disk before `until`.
    pub(crate) fn postpone(&mut self, token: DiskToken, until: Time) {
        self.relief.postponed += u64::from(self.data.postpone(token, until));
    }

    /// Somebody waits for it as before.
    pub(crate) fn resume(&mut self, token: DiskToken) {
        self.data.resume(token);
    }

    /// What was withdrawn and postponed since this was asked last.
    pub(crate) fn take_relief(&mut self) -> Relief {
        std::mem::take(&mut self.relief)
    }

    const fn queue(&mut self, disk: StoreDisk) -> &mut DiskQueue {
        match disk {
            StoreDisk::Journal => &mut self.journal,
            StoreDisk::Data => &mut self.data,
        }
    }
}

const fn not_begun(token: DiskToken) -> DiskCompletion {
    DiskCompletion {
        token,
        result: Err(DiskError::NotBegun),
    }
}

#[cfg(test)]
mod tests {
    use crossdock_disk::{DiskOperation, DiskOutput};
    use crossdock_types::{BLOCK_BYTES, Scatter};

    use super::*;

    fn read(token: u64, purpose: DiskPurpose) -> (StoreDisk, DiskPurpose, DiskRequest) {
        let operation = DiskOperation::Read {
            offset_bytes: token * BLOCK_BYTES as u64,
            buffer: Scatter::zeroed(BLOCK_BYTES),
        };
        let token = DiskToken(token);
        (StoreDisk::Data, purpose, DiskRequest { token, operation })
    }

    fn completed(disks: &mut NodeDisks, token: u64) -> bool {
        let result = Ok(DiskOutput::Done);
        let token = DiskToken(token);
        let completion = DiskCompletion { token, result };
        disks.completed(Time::default(), StoreDisk::Data, &completion)
    }

    fn issued(disks: &mut NodeDisks, now: Time) -> Vec<u64> {
        std::iter::from_fn(|| disks.next(now))
            .map(|(_, request)| request.token.0)
            .collect()
    }

    /// A call that wants its bytes as soon as may be.
    const fn at_once(_: CallId) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    /// Goal: what a stream wants in a while (T_n) lets those go first who have nothing yet,
    /// for no longer than that; who comes for the same and has nothing does not wait for it.
    #[test]
    fn what_is_wanted_later_goes_later() {
        let begun = Time::default();
        let seconds = |call: CallId| Some(Duration::from_secs(call.0));
        let refills = || {
            let mut disks = NodeDisks::new(1);
            disks.push(begun, read(9, DiskPurpose::Write), at_once);
            assert_eq!(issued(&mut disks, begun), [9], "the disk was idle");
            for token in [3, 2] {
                let read = read(token, DiskPurpose::Read(CallId(token)));
                disks.push(begun, read, seconds);
            }
            disks
        };
        let newcomer = || read(7, DiskPurpose::Read(CallId(7)));
        let soon = begun + Duration::from_millis(1500);

        let mut disks = refills();
        disks.push(soon, newcomer(), at_once);
        completed(&mut disks, 9);
        assert_eq!(issued(&mut disks, soon), [7]);

        let mut disks = refills();
        let late = begun + Duration::from_secs(2);
        disks.push(late, newcomer(), at_once);
        completed(&mut disks, 9);
        assert_eq!(issued(&mut disks, late), [2], "its time has come");

        let mut disks = refills();
        disks.hurry(begun, DiskToken(3));
        completed(&mut disks, 9);
        assert_eq!(issued(&mut disks, begun), [3]);
    }

    /// Goal: while the disk is busy clients go before data, data before upkeep
    /// and before reads that only the host wants; nobody waits for ever.
    #[test]
    fn clients_go_first_and_upkeep_goes_on() {
        let mut disks = NodeDisks::new(1);
        let start = Time::default();
        let of_host = |call| (call != CallId(7)).then_some(Duration::ZERO);
        let purposes = [
            DiskPurpose::Write,
            DiskPurpose::Upkeep,
            DiskPurpose::Read(CallId(7)),
            DiskPurpose::Write,
            DiskPurpose::Read(CallId(1)),
        ];
        for (token, purpose) in (1..).zip(purposes) {
            assert!(disks.push(start, read(token, purpose), of_host).is_none());
            if token == 1 {
                assert_eq!(issued(&mut disks, start), [1], "the disk was idle");
            }
        }
        let mut order = Vec::new();
        for _ in 0..4 {
            let done = order.last().map_or(1, |&token| token);
            assert!(completed(&mut disks, done));
            order.extend(issued(&mut disks, start));
        }
        assert_eq!(order, [5, 4, 2, 3]);
        let late = start + UPKEEP_PATIENCE;
        disks.push(start, read(8, DiskPurpose::Upkeep), of_host);
        disks.push(late, read(9, DiskPurpose::Read(CallId(2))), of_host);
        assert!(completed(&mut disks, 3));
        assert!(!completed(&mut disks, 3), "once");
        assert_eq!(issued(&mut disks, late), [8], "overdue");
    }

    /// Goal: a journal write goes to its disk however busy the data disk is.
    #[test]
    fn the_journal_does_not_wait_for_data() {
        let mut disks = NodeDisks::new(1);
        let now = Time::default();
        for token in 1..5 {
            disks.push(now, read(token, DiskPurpose::Write), at_once);
        }
        assert_eq!(issued(&mut disks, now), [1]);
        let operation = DiskOperation::Flush;
        let token = DiskToken(9);
        let request = DiskRequest { token, operation };
        let pushed = (StoreDisk::Journal, DiskPurpose::Journal, request);
        disks.push(now, pushed, at_once);
        assert!(matches!(disks.next(now), Some((StoreDisk::Journal, _))));
    }

    /// Goal: what nobody waits for is not begun, and told so once; what is at the disk
    /// completes by itself. It is told what that has spared the disk, once.
    #[test]
    fn a_withdrawn_read_is_not_begun() {
        let mut disks = NodeDisks::new(1);
        let now = Time::default();
        for token in 1..=4 {
            let read = read(token, DiskPurpose::Read(CallId(token)));
            disks.push(now, read, at_once);
        }
        assert_eq!(issued(&mut disks, now), [1]);
        assert!(disks.withdraw(DiskToken(1)).is_none(), "at the disk");
        let ended = disks.withdraw(DiskToken(3)).expect("it waits");
        assert_eq!(ended.token, DiskToken(3));
        assert!(matches!(ended.result, Err(DiskError::NotBegun)));
        assert!(disks.withdraw(DiskToken(3)).is_none(), "once");
        disks.postpone(DiskToken(2), now + WRITE_PATIENCE);
        disks.postpone(DiskToken(1), now + WRITE_PATIENCE); // Too late.
        let relief = Relief {
            withdrawn: 1,
            withdrawn_bytes: BLOCK_BYTES as u64,
            postponed: 1,
        };
        assert_eq!(disks.take_relief(), relief);
        assert_eq!(disks.take_relief(), Relief::default());
        for (done, next) in [(1, 4), (4, 2)] {
            completed(&mut disks, done);
            assert_eq!(issued(&mut disks, now), [next]);
        }
    }

    /// Goal: who comes for what was postponed does not wait longer for it than for
    /// anything else.
    #[test]
    fn somebody_who_waits_brings_a_postponed_read_back() {
        let mut disks = NodeDisks::new(1);
        let now = Time::default();
        for token in 1..=3 {
            let read = read(token, DiskPurpose::Read(CallId(token)));
            disks.push(now, read, at_once);
        }
        assert_eq!(issued(&mut disks, now), [1]);
        disks.postpone(DiskToken(2), now + UPKEEP_PATIENCE);
        disks.hurry(now, DiskToken(2));
        completed(&mut disks, 1);
        assert_eq!(issued(&mut disks, now), [2]);
    }

    /// Goal: reads for clients are refused when too many wait.
    #[test]
    fn a_full_queue_refuses_reads_of_clients() {
        let mut disks = NodeDisks::new(1);
        let now = Time::default();
        let refused = (0..).find(|&token| {
            let request = read(token, DiskPurpose::Read(CallId(token)));
            disks.push(now, request, at_once).is_some()
        });
        let max = crossdock_limits::DISK_QUEUE_REQUESTS_MAX as u64;
        assert_eq!(refused, Some(max));
        assert!(
            disks
                .push(now, read(max, DiskPurpose::Write), at_once)
                .is_none()
        );
    }
}
