//! The ring itself: submission, waiting, and sorting completions into
//! mailboxes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode};

use crate::dummy::region;
use crate::idle::IdlePoll;
use crate::slot::{Entries, Half, Slot};
use crate::{Completion, Operation};

/// Marks the completions of cancel requests, which say nothing.
const CANCEL: u64 = u64::MAX;
/// Marks the completions of the first of two entries.
const FIRST_HALF: u64 = 1 << 31;
/// How often a dying ring asks the kernel for what it still holds.
const LAST_TURNS: u32 = 40;
const LAST_TURN_PATIENCE: Duration = Duration::from_millis(50);

/// Why there is no ring, or no more.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel has none, or a policy (seccomp, sysctl) forbids it.
    #[error("io_uring is not available: {0}")]
    Unavailable(#[source] io::Error),
    /// The kernel is too old.
    #[error("io_uring lacks {0}")]
    Lacking(&'static str),
    /// Waiting failed.
    #[error("io_uring failed: {0}")]
    Enter(#[source] io::Error),
}

/// A handle on the ring of this thread. Clones are handles on the same ring.
#[derive(Clone)]
pub struct Ring {
    core: Rc<RefCell<Core>>,
}

/// Where the completions of one user of the ring arrive. Operations that are
/// in flight when it is dropped go on, and nobody hears of their end.
pub struct Mailbox {
    ring: Ring,
    index: usize,
}

/// Names an operation in flight, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    index: u32,
    generation: u32,
}

struct Core {
    uring: IoUring,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Whether the first of two entries completes only if it fails.
    skips_success: bool,
    /// Whether dummy bytes are registered; not known before there are some.
    has_dummy: Option<bool>,
    /// By index; absent when closed. Never reused.
    mailboxes: Vec<Option<VecDeque<Completion>>>,
    /// Completions that lie in mailboxes.
    waiting: usize,
    enters: u64,
    idle_poll: IdlePoll,
}

impl Ring {
    /// Makes the ring of the calling thread, which alone may use it.
    /// `entries` is how many operations can be started between two turns
    /// without an extra system call.
    ///
    /// # Errors
    /// [`RingError::Unavailable`] and [`RingError::Lacking`].
    pub fn new(entries: u32) -> Result<Self, RingError> {
        let uring = build(entries).map_err(RingError::Unavailable)?;
        check_abilities(&uring)?;
        let skips_success = uring.params().is_feature_skip_cqe_on_success();
        Ok(Self {
            core: Rc::new(RefCell::new(Core {
                uring,
                skips_success,
                has_dummy: None,
                slots: Vec::new(),
                free: Vec::new(),
                mailboxes: Vec::new(),
                waiting: 0,
                enters: 0,
                idle_poll: IdlePoll::default(),
            })),
        })
    }

    /// Before a turn sleeps it looks for completions for up to `most`, if they have come so
    /// soon the last time; other threads of the processor go on meanwhile. It costs processor
    /// time, and saves the time that waking up takes. Zero, as at first: never.
    pub fn set_idle_poll(&self, most: Duration) {
        self.core.borrow_mut().idle_poll = IdlePoll::new(most);
    }

    /// A mailbox for one more user of the ring.
    #[must_use]
    pub fn open_mailbox(&self) -> Mailbox {
        let mut core = self.core.borrow_mut();
        core.mailboxes.push(Some(VecDeque::new()));
        Mailbox {
            ring: self.clone(),
            index: core.mailboxes.len() - 1,
        }
    }

    /// Submits what was started and waits until something completes, at most
    /// for `patience` (`None`: without end). Does not wait while completions
    /// lie in a mailbox. Signals end the wait early.
    ///
    /// # Errors
    /// [`RingError::Enter`]: nothing can be done with the ring any more.
    pub fn turn(&self, patience: Option<Duration>) -> Result<(), RingError> {
        self.core.borrow_mut().turn(patience)
    }

    /// System calls made so far.
    #[must_use]
    pub fn enters(&self) -> u64 {
        self.core.borrow().enters
    }
}

impl Mailbox {
    /// Starts an operation at the next turn. `tag` comes back with it.
    pub fn start(&self, tag: u64, operation: Operation) -> Key {
        self.ring
            .core
            .borrow_mut()
            .start(self.index, tag, operation)
    }

    /// Asks the kernel to give the operation up. Its completion comes in any
    /// case, and may be a success. Does nothing if it has come already.
    pub fn cancel(&self, key: Key) {
        self.ring.core.borrow_mut().cancel(key);
    }

    /// The next completion, if there is one by now.
    #[must_use]
    pub fn take(&self) -> Option<Completion> {
        let mut core = self.ring.core.borrow_mut();
        let completion = core.mailboxes.get_mut(self.index)?.as_mut()?.pop_front()?;
        core.waiting -= 1;
        Some(completion)
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let mut core = self.ring.core.borrow_mut();
        if let Some(unread) = core.mailboxes.get_mut(self.index).and_then(Option::take) {
            core.waiting -= unread.len();
        }
    }
}

impl Core {
    fn start(&mut self, mailbox: usize, tag: u64, operation: Operation) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer operations than memory")
        });
        let is_dummy = matches!(&operation, Operation::Send { pieces, .. } if pieces.is_dummy());
        let has_dummy = is_dummy && self.has_dummy();
        let slot = &mut self.slots[index as usize];
        let Entries { only, first } = slot.start(mailbox, tag, operation, has_dummy);
        let key = Key {
            index,
            generation: slot.generation,
        };
        if let Some(first) = first {
            let first = match self.skips_success {
                true => first.flags(Flags::IO_LINK | Flags::SKIP_SUCCESS),
                false => first.flags(Flags::IO_LINK),
            };
            // Handed over in two parts they would not be linked.
            self.make_room_for(2);
            self.push(&first.user_data(key.pack() | FIRST_HALF));
        }
        self.push(&only.user_data(key.pack()));
        key
    }

    /// Registers dummy bytes, if the kernel sends by reference; else they are copied.
    fn has_dummy(&mut self) -> bool {
        let submitter = self.uring.submitter();
        *self.has_dummy.get_or_insert_with(|| {
            let mut probe = Probe::new();
            let is_known = submitter.register_probe(&mut probe).is_ok()
                && probe.is_supported(opcode::SendZc::CODE);
            let region = libc::iovec {
                iov_base: region().as_ptr().cast_mut().cast(),
                iov_len: region().len(),
            };
            // SAFETY: the region is never freed, and the kernel only reads it.
            is_known && unsafe { submitter.register_buffers(&[region]) }.is_ok()
        })
    }

    fn cancel(&mut self, key: Key) {
        let flying = self
            .slots
            .get(key.index as usize)
            .is_some_and(|slot| slot.is_flying() && slot.generation == key.generation);
        if flying {
            let entry = opcode::AsyncCancel::new(key.pack()).build();
            self.push(&entry.user_data(CANCEL));
        }
    }

    fn push(&mut self, entry: &Entry) {
        loop {
            // SAFETY: the entry's pointers lead into a slot, where they hold
            // until its completion (slot.rs); a cancel has none.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                return;
            }
            self.hand_over();
        }
    }

    fn make_room_for(&mut self, entries: usize) {
        loop {
            let queue = self.uring.submission();
            if queue.capacity() - queue.len() >= entries {
                return;
            }
            drop(queue);
            self.hand_over();
        }
    }

    /// The queue is full: submits it without waiting.
    fn hand_over(&mut self) {
        self.enters += 1;
        let submitted = self.uring.submit();
        self.reap();
        if let Err(error) = submitted {
            assert!(passes(&error), "io_uring takes nothing more: {error}");
        }
    }

    fn turn(&mut self, patience: Option<Duration>) -> Result<(), RingError> {
        let patience = if self.waiting > 0 {
            Some(Duration::ZERO)
        } else {
            patience
        };
        let time = self.idle_poll.time();
        let may_poll = patience.is_none_or(|patience| patience > time);
        if !(self.idle_poll.is_on() && may_poll) {
            return self.enter(patience);
        }
        let begun = Instant::now();
        let has_come = time > Duration::ZERO && self.poll(begun, time)?;
        if !has_come {
            self.enter(patience)?;
            self.idle_poll.waited(begun.elapsed());
        }
        Ok(())
    }

    /// Submits what was started, and looks for completions without sleeping; whether there are
    /// some now.
    fn poll(&mut self, begun: Instant, time: Duration) -> Result<bool, RingError> {
        self.enter(Some(Duration::ZERO))?;
        while self.waiting == 0 && begun.elapsed() < time {
            let has_work = self.uring.submission().taskrun();
            if has_work || !self.uring.completion().is_empty() {
                self.enter(Some(Duration::ZERO))?;
            } else {
                std::thread::yield_now();
            }
        }
        Ok(self.waiting > 0)
    }

    fn enter(&mut self, patience: Option<Duration>) -> Result<(), RingError> {
        self.enters += 1;
        let entered = match patience {
            None => self.uring.submit_and_wait(1),
            Some(patience) => {
                let timespec = Timespec::from(patience);
                let args = SubmitArgs::new().timespec(&timespec);
                self.uring.submitter().submit_with_args(1, &args)
            }
        };
        self.reap();
        match entered {
            Err(error) if !passes(&error) => Err(RingError::Enter(error)),
            _ => Ok(()),
        }
    }

    fn reap(&mut self) {
        for entry in self.uring.completion() {
            // What dummy bytes are is not used again: nobody waits for the kernel to be done.
            if cqueue::notif(entry.flags()) {
                continue;
            }
            let Some((key, half)) = Key::unpack(entry.user_data()) else {
                continue;
            };
            let slot = &mut self.slots[key.index as usize];
            debug_assert_eq!(slot.generation, key.generation, "completed twice");
            if half == Half::First && !self.skips_success {
                slot.written(entry.result());
                continue;
            }
            let Some((mailbox, completion)) = slot.finish(half, entry.result()) else {
                continue;
            };
            self.free.push(key.index);
            if let Some(mailbox) = &mut self.mailboxes[mailbox] {
                mailbox.push_back(completion);
                self.waiting += 1;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Drop for Core {
    /// Takes everything back from the kernel. What it does not give back in
    /// time is leaked: freed memory under its pen would be worse.
    fn drop(&mut self) {
        self.mailboxes
            .iter_mut()
            .for_each(|mailbox| *mailbox = None);
        self.waiting = 0;
        for index in 0..self.slots.len() {
            let generation = self.slots[index].generation;
            self.cancel(Key {
                index: u32::try_from(index).expect("an index of a slot"),
                generation,
            });
        }
        for _ in 0..LAST_TURNS {
            if self.in_flight() == 0 || self.turn(Some(LAST_TURN_PATIENCE)).is_err() {
                break;
            }
        }
        for slot in self.slots.drain(..).filter(Slot::is_flying) {
            std::mem::forget(slot);
        }
    }
}

impl Key {
    const fn pack(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    fn unpack(data: u64) -> Option<(Self, Half)> {
        let half = match data & FIRST_HALF {
            0 => Half::Last,
            _ => Half::First,
        };
        #[expect(clippy::cast_possible_truncation, reason = "the low half")]
        let index = (data & !FIRST_HALF) as u32;
        let generation = (data >> 32) as u32;
        (data != CANCEL).then_some((Self { index, generation }, half))
    }
}

/// Whether the next turn goes on: time was up, a signal came, or the kernel
/// wants its completions taken first.
fn passes(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
    )
}

/// The best kind of ring that the kernel gives: completions are worked off by
/// this thread when it waits (6.1), or at least where it enters anyway (5.19).
fn build(entries: u32) -> io::Result<IoUring> {
    let completions = entries.saturating_mul(8);
    IoUring::builder()
        .setup_cqsize(completions)
        .setup_clamp()
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries)
        .or_else(|_| {
            IoUring::builder()
                .setup_cqsize(completions)
                .setup_clamp()
                .build(entries)
        })
}

fn check_abilities(uring: &IoUring) -> Result<(), RingError> {
    let params = uring.params();
    if !(params.is_feature_nodrop() && params.is_feature_fast_poll()) {
        return Err(RingError::Lacking("completions that are never dropped"));
    }
    if !params.is_feature_ext_arg() {
        return Err(RingError::Lacking("waiting with a time limit"));
    }
    let mut probe = Probe::new();
    uring
        .submitter()
        .register_probe(&mut probe)
        .map_err(RingError::Unavailable)?;
    let needed = [
        (opcode::Read::CODE, "read"),
        (opcode::Readv::CODE, "readv"),
        (opcode::Writev::CODE, "writev"),
        (opcode::Fsync::CODE, "fsync"),
        (opcode::Fallocate::CODE, "fallocate"),
        (opcode::Accept::CODE, "accept"),
        (opcode::Recv::CODE, "recv"),
        (opcode::RecvMsg::CODE, "recvmsg"),
        (opcode::SendMsg::CODE, "sendmsg"),
        (opcode::PollAdd::CODE, "poll"),
        (opcode::AsyncCancel::CODE, "cancel"),
    ];
    match needed.iter().find(|(code, _)| !probe.is_supported(*code)) {
        Some((_, name)) => Err(RingError::Lacking(name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use bytes::Bytes;
    use crossdock_types::AlignedBuffer;

    use super::*;
    use crate::{Done, Errno, Gather, SendWait};

    const SECOND: Option<Duration> = Some(Duration::from_secs(1));

    fn wait(ring: &Ring, mailbox: &Mailbox) -> Completion {
        loop {
            if let Some(completion) = mailbox.take() {
                return completion;
            }
            ring.turn(SECOND).expect("to turn");
        }
    }

    fn pair() -> (Rc<OwnedFd>, Rc<OwnedFd>) {
        let (left, right) = UnixStream::pair().expect("a pair of sockets");
        (Rc::new(left.into()), Rc::new(right.into()))
    }

    fn receive(socket: &Rc<OwnedFd>, end: usize) -> Operation {
        Operation::Receive {
            socket: Rc::clone(socket),
            buffer: AlignedBuffer::zeroed(end),
            filled: 0,
            end,
            whole: true,
        }
    }

    /// Goal: bytes pass between two users of one ring, each hearing only of
    /// its own operations.
    #[test]
    fn completions_arrive_in_the_mailbox_that_started_them() {
        let ring = Ring::new(8).expect("a ring");
        let (left, right) = pair();
        let (sender, receiver) = (ring.open_mailbox(), ring.open_mailbox());
        receiver.start(1, receive(&right, 6));
        let pieces: Gather = ["cross", "dock"].map(Bytes::from).into_iter().collect();
        let socket = Rc::clone(&left);
        sender.start(
            2,
            Operation::Send {
                socket,
                pieces,
                wait: SendWait::Room,
            },
        );
        let received = wait(&ring, &receiver);
        assert_eq!(received.tag, 1);
        assert!(matches!(received.result, Ok(Done::Bytes(6))));
        let Operation::Receive { buffer, .. } = received.operation else {
            panic!("another operation came back");
        };
        assert_eq!(&buffer[..6], b"crossd");
        let sent = wait(&ring, &sender);
        assert!(matches!(sent.result, Ok(Done::Bytes(9))));
        assert!(receiver.take().is_none() && sender.take().is_none());
    }

    /// Goal: a cancelled operation comes back by its own completion, and a
    /// cancel that is late does not hit the slot's next user.
    #[test]
    fn a_cancel_hits_only_its_own_operation() {
        let ring = Ring::new(8).expect("a ring");
        let (_left, right) = pair();
        let mailbox = ring.open_mailbox();
        let key = mailbox.start(1, receive(&right, 1));
        ring.turn(Some(Duration::ZERO)).expect("to turn");
        mailbox.cancel(key);
        let first = wait(&ring, &mailbox);
        assert_eq!(first.result.expect_err("cancelled"), Errno(libc::ECANCELED));
        let next = mailbox.start(2, receive(&right, 1));
        assert_eq!(key.index, next.index, "the slot is used again");
        mailbox.cancel(key);
        ring.turn(Some(Duration::from_millis(20))).expect("to turn");
        assert!(mailbox.take().is_none(), "the late cancel hit the next");
    }

    /// Goal: more operations than the queue has entries, and a ring dropped
    /// with operations in flight, are no trouble.
    #[test]
    fn full_queues_and_a_dropped_ring_are_survived() {
        let ring = Ring::new(4).expect("a ring");
        let pairs: Vec<_> = (0..100).map(|_| pair()).collect();
        let mailbox = ring.open_mailbox();
        for (tag, (left, right)) in pairs.iter().enumerate() {
            mailbox.start(tag as u64, receive(right, 3));
            if tag % 2 == 0 {
                let pieces = [Bytes::from_static(b"abc")].into_iter().collect();
                let socket = Rc::clone(left);
                mailbox.start(
                    1000,
                    Operation::Send {
                        socket,
                        pieces,
                        wait: SendWait::Room,
                    },
                );
            }
        }
        for _ in 0..100 {
            assert!(wait(&ring, &mailbox).result.is_ok());
        }
        assert!(mailbox.take().is_none());
        drop(mailbox);
        drop(ring);
    }

    /// Goal: a durable write comes back once, whole or with the write's error,
    /// whether or not the kernel tells of its first half.
    #[test]
    fn a_durable_write_comes_back_once() {
        let path = std::env::temp_dir().join(format!("crossdock-ring-{}", std::process::id()));
        let writable = std::fs::File::create(&path).expect("a file");
        let readable = std::fs::File::open(&path).expect("the file");
        std::fs::remove_file(&path).expect("to remove it");
        let (writable, readable) = (Rc::new(writable.into()), Rc::new(readable.into()));
        for skips_success in [true, false] {
            let ring = Ring::new(8).expect("a ring");
            ring.core.borrow_mut().skips_success &= skips_success;
            let mailbox = ring.open_mailbox();
            let write = |tag, file: &Rc<OwnedFd>| {
                let pieces = ["cross", "dock"].map(Bytes::from).into_iter().collect();
                let operation = Operation::Write {
                    file: Rc::clone(file),
                    offset_bytes: 0,
                    pieces,
                    is_durable: true,
                };
                mailbox.start(tag, operation);
            };
            // An odd number, so that a pair meets the end of the queue.
            mailbox.start(7, receive(&pair().1, 1));
            (0..20).for_each(|_| write(1, &writable));
            for _ in 0..21 {
                let completion = wait(&ring, &mailbox);
                let bytes = if completion.tag == 1 { 9 } else { 0 };
                assert!(matches!(completion.result, Ok(Done::Bytes(n)) if n == bytes));
            }
            write(2, &readable);
            let failed = wait(&ring, &mailbox).result;
            assert_eq!(failed.expect_err("not writable"), Errno(libc::EBADF));
            ring.turn(Some(Duration::from_millis(20))).expect("to turn");
            assert!(mailbox.take().is_none(), "it came back twice");
            assert_eq!(ring.core.borrow().in_flight(), 0);
        }
    }

    /// Goal: who looks before it sleeps finds what comes meanwhile, waits as long as it is told
    /// when nothing does, and does not look again then.
    #[test]
    fn looking_comes_before_sleep() {
        let ring = Ring::new(8).expect("a ring");
        ring.set_idle_poll(Duration::from_millis(900));
        let mailbox = ring.open_mailbox();
        let (left, right) = pair();
        let exchange = |tag| {
            mailbox.start(tag, receive(&right, 3));
            ring.turn(Some(Duration::ZERO)).expect("to turn");
            let left = left.try_clone().expect("a socket");
            let writer = std::thread::spawn(move || {
                std::io::Write::write_all(&mut UnixStream::from(left), b"abc")
            });
            assert!(matches!(wait(&ring, &mailbox).result, Ok(Done::Bytes(3))));
            writer.join().expect("a thread").expect("to write");
        };
        exchange(1);
        assert!(ring.core.borrow().idle_poll.time() > Duration::ZERO);
        (2..200).for_each(exchange); // Some come before it looks, others later.
        ring.set_idle_poll(Duration::from_millis(10));
        ring.turn(Some(Duration::from_millis(1))).expect("to turn");
        let begun = Instant::now();
        ring.turn(Some(Duration::from_millis(30))).expect("to turn");
        assert!(begun.elapsed() >= Duration::from_millis(29));
        assert_eq!(ring.core.borrow().idle_poll.time(), Duration::ZERO);
    }

    /// Goal: a turn with nothing to do ends when its time is up.
    #[test]
    fn a_turn_ends_when_its_patience_does() {
        let ring = Ring::new(4).expect("a ring");
        let before = std::time::Instant::now();
        ring.turn(Some(Duration::from_millis(30))).expect("to turn");
        assert!(before.elapsed() >= Duration::from_millis(29));
        assert_eq!(ring.enters(), 1);
    }
}
