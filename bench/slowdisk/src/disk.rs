//! The disk: requests that wait for the model, and the thread that answers them in time.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossdock_slowdisk::model::{Arm, Done, Geometry, Request};
use crossdock_slowdisk::record::{HEAD_BYTES, Kind, Record};
use fuser::{Errno, ReplyData, ReplyWrite};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// More is not logged, and the status says so: 1 GiB.
const RECORDS_MAX: u64 = 1 << 24;
/// Where the platter is at each request is the same in every run.
const SEED: u64 = 0x5eed;

/// A disk with one arm and its content.
pub(crate) struct Disk {
    geometry: Geometry,
    backing: File,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    arm: Arm,
    waiting: HashMap<u64, Answer>,
    next_id: u64,
    /// Whether requests take their time.
    is_paced: bool,
    /// Whether they fail.
    has_failed: bool,
    /// Whether they are not answered, and those that wait for that to end.
    is_hung: bool,
    held: Vec<(u64, u32, Answer)>,
    log: File,
    records: u64,
}

/// How a request is answered; what is written is in the backing file already.
pub(crate) enum Answer {
    Read(ReplyData),
    Write(ReplyWrite, [u8; HEAD_BYTES]),
}

impl Answer {
    fn fail(self) {
        match self {
            Self::Read(reply) => reply.error(Errno::EIO),
            Self::Write(reply, _) => reply.error(Errno::EIO),
        }
    }
}

impl Disk {
    pub(crate) fn new(geometry: Geometry, backing: File, log: File) -> Self {
        let state = State {
            arm: Arm::new(geometry, SEED),
            waiting: HashMap::new(),
            next_id: 0,
            is_paced: false,
            has_failed: false,
            is_hung: false,
            held: Vec::new(),
            log,
            records: 0,
        };
        Self {
            geometry,
            backing,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.geometry.size_bytes
    }

    /// Puts bytes into the backing file: they are read from there at once, but nobody
    /// is told before [`submit`](Self::submit) has taken its time.
    pub(crate) fn store(&self, offset: u64, data: &[u8]) -> std::io::Result<[u8; HEAD_BYTES]> {
        if self.lock().has_failed {
            return Err(std::io::Error::other("the disk has failed"));
        }
        self.backing.write_all_at(data, offset)?;
        let mut head = [0; HEAD_BYTES];
        let known = data.len().min(HEAD_BYTES);
        head[..known].copy_from_slice(&data[..known]);
        Ok(head)
    }

    /// Takes a request, which is answered when the arm has served it.
    pub(crate) fn submit(&self, offset: u64, length: u32, answer: Answer) {
        let now = now();
        let mut state = self.lock();
        if state.has_failed {
            drop(state);
            return answer.fail();
        }
        if state.is_hung {
            return state.held.push((offset, length, answer));
        }
        let id = state.next_id;
        state.next_id += 1;
        let request = Request { id, offset, length };
        if !state.is_paced {
            drop(state);
            let done = Done {
                request,
                queued: now,
                started: now,
                done: now,
            };
            self.answer(done, answer);
            return;
        }
        state.waiting.insert(id, answer);
        state.arm.submit(now, request);
        drop(state);
        self.changed.notify_one();
    }

    /// Answers requests when they are done, for ever.
    pub(crate) fn turn(&self) {
        let mut state = self.lock();
        loop {
            let now = now();
            if let Some(done) = state.arm.poll_done(now) {
                if let Some(answer) = state.waiting.remove(&done.request.id) {
                    drop(state);
                    self.answer(done, answer);
                    state = self.lock();
                }
                continue;
            }
            state = match state.arm.poll_timeout() {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let (state, _) = self
                        .changed
                        .wait_timeout(state, due.saturating_sub(now))
                        .unwrap_or_else(PoisonError::into_inner);
                    state
                }
            };
        }
    }

    /// Whether requests take their time from now on; those that wait do.
    pub(crate) fn pace(&self, is_paced: bool) {
        self.lock().is_paced = is_paced;
    }

    /// Whether all requests fail from now on.
    pub(crate) fn fail(&self, has_failed: bool) {
        self.lock().has_failed = has_failed;
    }

    /// Whether requests are held from now on; those that were are served when they are not.
    pub(crate) fn hang(&self, is_hung: bool) {
        let mut state = self.lock();
        state.is_hung = is_hung;
        let held = match is_hung {
            true => Vec::new(),
            false => std::mem::take(&mut state.held),
        };
        drop(state);
        for (offset, length, answer) in held {
            self.submit(offset, length, answer);
        }
    }

    /// Flips a bit of each 4 KiB of a range, as a disk does that says nothing of it.
    ///
    /// # Errors
    /// The range is not on the disk, or its content cannot be read or written.
    pub(crate) fn corrupt(&self, offset: u64, length: u64) -> std::io::Result<()> {
        const STEP: usize = 4096;
        let end = offset.checked_add(length);
        let end = end.filter(|&end| end <= self.geometry.size_bytes);
        let end = end.ok_or_else(|| std::io::Error::other("beyond the end of the disk"))?;
        for at in (offset..end).step_by(STEP) {
            let mut byte = [0];
            self.backing.read_exact_at(&mut byte, at)?;
            self.backing.write_all_at(&[byte[0] ^ 0x10], at)?;
        }
        Ok(())
    }

    /// What it is, and how it stands.
    pub(crate) fn status(&self) -> Value {
        let state = self.lock();
        json!({
            "size_bytes": self.geometry.size_bytes,
            "rate": self.geometry.rate,
            "positioning_ms": self.geometry.positioning.as_secs_f64() * 1e3,
            "depth": self.geometry.depth,
            "is_paced": state.is_paced,
            "has_failed": state.has_failed,
            "is_hung": state.is_hung,
            "waiting": state.arm.len() + state.held.len(),
            "records": state.records,
            "log_is_full": state.records >= RECORDS_MAX,
        })
    }

    fn answer(&self, done: Done, answer: Answer) {
        let (kind, head) = match answer {
            Answer::Write(reply, head) => {
                reply.written(done.request.length);
                (Kind::Write, head)
            }
            Answer::Read(reply) => {
                let mut data = vec![0; done.request.length as usize];
                let mut head = [0; HEAD_BYTES];
                match self.backing.read_exact_at(&mut data, done.request.offset) {
                    Ok(()) => reply.data(&data),
                    Err(_) => reply.error(Errno::EIO),
                }
                let known = data.len().min(HEAD_BYTES);
                head[..known].copy_from_slice(&data[..known]);
                (Kind::Read, head)
            }
        };
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let record = Record {
            queued_ns: nanoseconds(done.queued),
            started_ns: nanoseconds(done.started),
            done_ns: nanoseconds(done.done),
            offset: done.request.offset,
            length: done.request.length,
            kind,
            head,
        };
        let mut state = self.lock();
        if state.records < RECORDS_MAX {
            // Whoever reads the log sees by the number of records that one is missing.
            if state.log.write_all(&record.encode()).is_ok() {
                state.records += 1;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `CLOCK_MONOTONIC`, which all processes of a machine have in common.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}
