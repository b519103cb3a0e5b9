//! Disks on the data thread's ring.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use crossdock_ring::{Completion, Done, Mailbox, Operation, Ring};
use rustix::fs::ftruncate;
use rustix::io::Errno;

use crate::file::{disk_error, lacks_fallocate};
use crate::pool::answer_at_once;
use crate::{
    Disk, DiskCompletion, DiskError, DiskFile, DiskOperation, DiskOutput, DiskRequest, DiskToken,
};

/// A disk whose requests go through a [`Ring`], which the loop turns. Requests
/// that are in flight when it is dropped go on.
pub struct UringDisk {
    mailbox: Mailbox,
    file: Rc<OwnedFd>,
    length_bytes: u64,
    grows: bool,
    /// Answered without the kernel.
    answered: VecDeque<DiskCompletion>,
}

/// What becomes of an operation that the kernel has completed.
enum Step {
    Finished(Result<DiskOutput, DiskError>),
    Continued(Operation),
}

impl UringDisk {
    /// Serves `file` by `ring`.
    #[must_use]
    pub fn new(ring: &Ring, file: DiskFile) -> Self {
        Self {
            mailbox: ring.open_mailbox(),
            file: Rc::new(file.fd),
            length_bytes: file.length_bytes,
            grows: file.grows,
            answered: VecDeque::new(),
        }
    }

    /// Whether a completion can be polled that no turn of the ring announces.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        !self.answered.is_empty()
    }

    fn operation(&self, operation: DiskOperation) -> Operation {
        let file = Rc::clone(&self.file);
        match operation {
            DiskOperation::Read {
                offset_bytes,
                buffer,
            }
            // Answered before.
            | DiskOperation::ReadOther {
                offset_bytes,
                buffer,
                ..
            } => Operation::Read {
                file,
                offset_bytes,
                buffer,
                filled: 0,
            },
            DiskOperation::Write {
                offset_bytes,
                pieces,
                is_durable,
            } => Operation::Write {
                file,
                offset_bytes,
                pieces: pieces.into_iter().collect(),
                is_durable,
            },
            DiskOperation::Flush => Operation::Flush { file },
            DiskOperation::Grow { length_bytes } => Operation::Allocate {
                file,
                offset_bytes: self.length_bytes,
                length_bytes: length_bytes - self.length_bytes,
            },
        }
    }

    fn settle(&mut self, completion: Completion) -> Option<DiskCompletion> {
        let step = match completion.result {
            Ok(done) => {
                let bytes = match done {
                    Done::Bytes(bytes) => bytes,
                    Done::Accepted(_) | Done::Datagram { .. } => 0,
                };
                self.step(completion.operation, bytes)
            }
            Err(errno) => {
                let errno = Errno::from_raw_os_error(errno.0);
                self.step_after_error(completion.operation, errno)
            }
        };
        match step {
            Step::Continued(operation) => {
                self.mailbox.start(completion.tag, operation);
                None
            }
            Step::Finished(result) => Some(DiskCompletion {
                token: DiskToken(completion.tag),
                result,
            }),
        }
    }

    fn step(&mut self, operation: Operation, bytes: usize) -> Step {
        match operation {
            Operation::Read {
                file,
                offset_bytes,
                buffer,
                filled,
            } => {
                let filled = filled + bytes;
                if filled == buffer.len() {
                    return Step::Finished(Ok(DiskOutput::Read(buffer)));
                }
                if bytes == 0 {
                    // The file was cut behind our back.
                    return Step::Finished(Err(disk_error("read", Errno::IO, offset_bytes)));
                }
                Step::Continued(Operation::Read {
                    file,
                    offset_bytes,
                    buffer,
                    filled,
                })
            }
            Operation::Write {
                file,
                offset_bytes,
                mut pieces,
                is_durable,
            } => {
                pieces.advance(bytes);
                if pieces.is_empty() {
                    return Step::Finished(Ok(DiskOutput::Done));
                }
                if bytes == 0 {
                    return Step::Finished(Err(disk_error("write", Errno::IO, offset_bytes)));
                }
                Step::Continued(Operation::Write {
                    file,
                    offset_bytes: offset_bytes + bytes as u64,
                    pieces,
                    is_durable,
                })
            }
            Operation::Allocate {
                offset_bytes,
                length_bytes,
                ..
            } => {
                self.length_bytes = self.length_bytes.max(offset_bytes + length_bytes);
                Step::Finished(Ok(DiskOutput::Done))
            }
            _ => Step::Finished(Ok(DiskOutput::Done)),
        }
    }

    fn step_after_error(&mut self, operation: Operation, errno: Errno) -> Step {
        if errno == Errno::INTR || errno == Errno::AGAIN {
            return Step::Continued(operation);
        }
        let (name, offset_bytes) = match &operation {
            Operation::Read { offset_bytes, .. } => ("read", *offset_bytes),
            Operation::Write { offset_bytes, .. } => ("write", *offset_bytes),
            Operation::Allocate {
                offset_bytes,
                length_bytes,
                ..
            } => {
                if lacks_fallocate(errno)
                    && ftruncate(&*self.file, offset_bytes + length_bytes).is_ok()
                {
                    return self.step(operation, 0);
                }
                ("grow", *offset_bytes)
            }
            _ => ("flush", 0),
        };
        Step::Finished(Err(disk_error(name, errno, offset_bytes)))
    }
}

impl Disk for UringDisk {
    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn submit(&mut self, request: DiskRequest) {
        let DiskRequest { token, operation } = request;
        match answer_at_once(&operation, self.length_bytes, self.grows) {
            Some(result) => self.answered.push_back(DiskCompletion { token, result }),
            None => {
                let operation = self.operation(operation);
                self.mailbox.start(token.0, operation);
            }
        }
    }

    fn poll(&mut self) -> Option<DiskCompletion> {
        if let Some(answered) = self.answered.pop_front() {
            return Some(answered);
        }
        loop {
            let completion = self.mailbox.take()?;
            if let Some(completion) = self.settle(completion) {
                return Some(completion);
            }
        }
    }
}
