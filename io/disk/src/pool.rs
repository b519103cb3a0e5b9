//! Disks served by a pool of threads, for kernels without io_uring.
//!
//! One [`Pool`] serves all disks of a data thread. Its threads call
//! preadv, pwritev, fdatasync and fallocate; a completed request is put into
//! the disk's own list, and the pool's *notify* wakes the event loop.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crossdock_ring::{GATHER_PIECES_MAX, Gather};
use crossdock_types::Scatter;
use rustix::fs::fdatasync;
use rustix::io::{Errno, preadv, pwritev};

use crate::file::{allocate, disk_error};
use crate::{Disk, DiskCompletion, DiskError, DiskFile, DiskOperation, DiskOutput, DiskRequest};

/// Called by a pool thread after it has put a completion into its list.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// The threads. They end when the pool is dropped, after the requests that
/// were submitted before.
pub struct Pool {
    shared: Arc<Shared>,
    notify: Notify,
    threads: Vec<JoinHandle<()>>,
}

/// A disk served by a [`Pool`].
pub struct PoolDisk {
    pool: Arc<Shared>,
    notify: Notify,
    file: Arc<OwnedFd>,
    length_bytes: u64,
    grows: bool,
    completed: Arc<Completed>,
}

type Completed = Mutex<VecDeque<(DiskCompletion, Grown)>>;
/// The length that the disk has from this completion on, if it changed.
type Grown = Option<u64>;

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

struct Job {
    file: Arc<OwnedFd>,
    /// At the time of submission.
    length_bytes: u64,
    request: DiskRequest,
    completed: Arc<Completed>,
    notify: Notify,
}

impl Pool {
    /// Starts `threads` threads. That many requests are at the devices at
    /// once; the rest waits in order.
    ///
    /// # Errors
    /// The system's, if it refuses a thread.
    pub fn start(threads: usize, notify: Notify) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut pool = Self {
            shared: Arc::clone(&shared),
            notify,
            threads: Vec::with_capacity(threads),
        };
        for index in 0..threads {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name(format!("disk-{index}"))
                .spawn(move || work(&shared))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Serves `file` as a disk.
    #[must_use]
    pub fn disk(&self, file: DiskFile) -> PoolDisk {
        PoolDisk {
            pool: Arc::clone(&self.shared),
            notify: Arc::clone(&self.notify),
            file: Arc::new(file.fd),
            length_bytes: file.length_bytes,
            grows: file.grows,
            completed: Arc::default(),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl Disk for PoolDisk {
    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn submit(&mut self, request: DiskRequest) {
        if let Some(result) = answer_at_once(&request.operation, self.length_bytes, self.grows) {
            let token = request.token;
            let completion = DiskCompletion { token, result };
            lock(&self.completed).push_back((completion, None));
            (self.notify)();
            return;
        }
        let job = Job {
            file: Arc::clone(&self.file),
            length_bytes: self.length_bytes,
            request,
            completed: Arc::clone(&self.completed),
            notify: Arc::clone(&self.notify),
        };
        lock(&self.pool.queue).jobs.push_back(job);
        self.pool.arrived.notify_one();
    }

    fn poll(&mut self) -> Option<DiskCompletion> {
        let (completion, grown) = lock(&self.completed).pop_front()?;
        self.length_bytes = self.length_bytes.max(grown.unwrap_or(0));
        Some(completion)
    }
}

/// What needs no system call: refusals, and growth that is there already.
pub(crate) fn answer_at_once(
    operation: &DiskOperation,
    length_bytes: u64,
    grows: bool,
) -> Option<Result<DiskOutput, DiskError>> {
    if let Err(refusal) = operation.check(length_bytes) {
        return Some(Err(refusal));
    }
    match operation {
        DiskOperation::Grow {
            length_bytes: wanted,
        } if *wanted <= length_bytes => Some(Ok(DiskOutput::Done)),
        DiskOperation::Grow { .. } if !grows => Some(Err(DiskError::NoSpace)),
        DiskOperation::ReadOther { .. } => Some(Err(DiskError::NoOther)),
        DiskOperation::Write { pieces, .. } if pieces.iter().all(bytes::Bytes::is_empty) => {
            Some(Ok(DiskOutput::Done))
        }
        _ => None,
    }
}

fn work(shared: &Shared) {
    while let Some(job) = next_job(shared) {
        let Job {
            file,
            length_bytes,
            request,
            completed,
            notify,
        } = job;
        let (result, grown) = carry_out(&file, length_bytes, request.operation);
        // Before the completion: who has it may close the disk and open it again.
        drop(file);
        let token = request.token;
        lock(&completed).push_back((DiskCompletion { token, result }, grown));
        notify();
    }
}

fn next_job(shared: &Shared) -> Option<Job> {
    let mut queue = lock(&shared.queue);
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            return Some(job);
        }
        if queue.closed {
            return None;
        }
        queue = shared
            .arrived
            .wait(queue)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

fn carry_out(
    file: &OwnedFd,
    length_bytes: u64,
    operation: DiskOperation,
) -> (Result<DiskOutput, DiskError>, Grown) {
    let name = operation.name();
    let done = |result: rustix::io::Result<()>, offset_bytes| {
        result
            .map(|()| DiskOutput::Done)
            .map_err(|errno| disk_error(name, errno, offset_bytes))
    };
    match operation {
        DiskOperation::Read {
            offset_bytes,
            mut buffer,
        } => {
            let result = read_whole(file, offset_bytes, &mut buffer)
                .map(|()| DiskOutput::Read(buffer))
                .map_err(|errno| disk_error(name, errno, offset_bytes));
            (result, None)
        }
        DiskOperation::Write {
            offset_bytes,
            pieces,
            is_durable,
        } => {
            let written = write_whole(file, offset_bytes, pieces.into_iter().collect());
            let result = match is_durable {
                true => written.and_then(|()| again(|| fdatasync(file))),
                false => written,
            };
            (done(result, offset_bytes), None)
        }
        // Answered before.
        DiskOperation::ReadOther { .. } => (Err(DiskError::NoOther), None),
        DiskOperation::Flush => (done(again(|| fdatasync(file)), 0), None),
        DiskOperation::Grow {
            length_bytes: wanted,
        } => {
            let result = done(again(|| allocate(file, length_bytes, wanted)), length_bytes);
            let grown = result.is_ok().then_some(wanted);
            (result, grown)
        }
    }
}

fn read_whole(file: &OwnedFd, offset_bytes: u64, target: &mut Scatter) -> rustix::io::Result<()> {
    let mut filled = 0;
    while filled < target.len() {
        let parts = target.unfilled(filled).take(GATHER_PIECES_MAX);
        let mut slices: Vec<_> = parts.map(IoSliceMut::new).collect();
        match again(|| preadv(file, &mut slices, offset_bytes + filled as u64))? {
            0 => return Err(Errno::IO), // The file was cut behind our back.
            bytes => filled += bytes,
        }
    }
    Ok(())
}

fn write_whole(file: &OwnedFd, mut offset_bytes: u64, mut left: Gather) -> rustix::io::Result<()> {
    while !left.is_empty() {
        let slices: Vec<_> = left.io_slices().collect();
        let bytes = again(|| pwritev(file, &slices, offset_bytes))?;
        if bytes == 0 {
            return Err(Errno::IO);
        }
        offset_bytes += bytes as u64;
        left.advance(bytes);
    }
    Ok(())
}

fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
