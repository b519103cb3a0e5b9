//! Writing the labels of all disks when something of the pool has changed.

use crossdock_disk::DiskOperation;
use crossdock_types::AlignedBuffer;

use super::{DiskSets, Purpose};
use crate::assemble::DiskNumber;
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
    /// Those of them that are for disks without any: they come when all others are there.
    late: Vec<(DiskNumber, DiskOperation)>,
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
    /// The last change that the labels of the disks are to tell of, like that of
    /// [`retire_set`](Self::retire_set).
    #[must_use]
    pub const fn label_change(&self) -> u64 {
        self.labels.requested
    }

    /// Whether that change outlasts a loss of power: the labels of all disks tell of it.
    #[must_use]
    pub const fn is_labelled(&self, change: u64) -> bool {
        self.labels.done >= change
    }

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
        let has_old = self.disks.values().any(|disk| disk.is_labelled);
        let (mut writes, mut late) = (Vec::new(), Vec::new());
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
            match disk.is_labelled || !has_old {
                true => writes.push((number, write)),
                false => late.push((number, write)),
            }
        }
        self.labels.late = late;
        self.send_labels(writes);
    }

    fn send_labels(&mut self, writes: Vec<(DiskNumber, DiskOperation)>) {
        self.labels.outstanding = writes.len();
        for (number, write) in writes {
            if let Some(disk) = self.disks.get_mut(&number) {
                disk.is_labelled = true;
            }
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
        let mut late = std::mem::take(&mut self.labels.late);
        late.retain(|(number, _)| !self.is_out(*number));
        if !late.is_empty() {
            return self.send_labels(late);
        }
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
        self.see_off();
    }
}
