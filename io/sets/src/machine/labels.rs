//! Writing the labels of all disks when something of the pool has changed.

use crossdock_disk::DiskOperation;
use crossdock_types::AlignedBuffer;

use super::{DiskSets, Purpose};
use crate::label::Label;

/// How far the labels are.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// Changes so far.
    requested: u64,
    /// The changes that all disks tell of.
    pub(super) done: u64,
    /// The changes that the labels being written tell of.
    writing: Option<u64>,
    outstanding: usize,
    /// Acknowledgements wait until this change is told of.
    hold_until: u64,
}

impl Labels {
    pub(super) const fn hold(&self) -> bool {
        self.done < self.hold_until
    }

    pub(super) fn hold_until(&mut self, ticket: u64) {
        self.hold_until = self.hold_until.max(ticket);
    }
}

impl DiskSets {
    /// The pool has changed. Tells which change it is: it is stable on all disks once
    /// `labels.done` is as large.
    pub(super) fn request_labels(&mut self) -> u64 {
        self.labels.requested += 1;
        let ticket = self.labels.requested;
        self.write_labels();
        ticket
    }

    fn write_labels(&mut self) {
        if self.labels.writing.is_some() || self.labels.done == self.labels.requested {
            return;
        }
        self.labels.writing = Some(self.labels.requested);
        self.pool.generation += 1;
        let mut writes = Vec::new();
        for (&number, disk) in &self.disks {
            if disk.is_out || !self.pool.has(disk.id) {
                continue;
            }
            let label = Label {
                disk: disk.id,
                pool: self.pool.clone(),
            };
            let write = DiskOperation::Write {
                offset_bytes: label.offset_bytes(),
                pieces: vec![AlignedBuffer::padded_from(&label.encode()).freeze()],
                is_durable: true,
            };
            writes.push((number, write));
        }
        self.labels.outstanding = writes.len();
        for (number, write) in writes {
            self.send(number, Purpose::Label, write);
        }
        if self.labels.outstanding == 0 {
            self.labels_written();
        }
    }

    pub(super) fn label_answered(&mut self) {
        self.labels.outstanding -= 1;
        if self.labels.outstanding == 0 {
            self.labels_written();
        }
    }

    fn labels_written(&mut self) {
        if let Some(done) = self.labels.writing.take() {
            self.labels.done = done;
        }
        self.write_labels();
        if !self.labels.hold() {
            self.completions.extend(self.held.drain(..));
        }
        self.opening_labelled();
        self.grow_labelled();
        self.mind_rebuilds();
    }
}
