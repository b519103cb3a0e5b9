//! Making the space longer: what is added is written with zeros on all members, so that it
//! reads as zeros, has room of its own, and all members of a set agree.

use std::collections::VecDeque;

use bytes::Bytes;
use crossdock_disk::{DiskError, DiskOperation, DiskToken};
use crossdock_types::AlignedBuffer;

use super::flush::FlushOwner;
use super::{DiskSets, Purpose};
use crate::assemble::DiskNumber;
use crate::geometry::to_usize;

/// Bytes of one write of zeros.
const ZEROS_BYTES: u64 = 256 << 10;

/// Such writes that are under way at a time.
const WRITES_MAX: usize = 16;

/// A growth that is under way.
#[derive(Debug)]
pub(super) struct Growing {
    token: DiskToken,
    length_bytes: u64,
    /// Stripes of each set that will be formatted.
    formatted: Vec<u64>,
    /// What is still to be written: disk, offset, bytes.
    zeros: VecDeque<(DiskNumber, u64, u64)>,
    content: Bytes,
    outstanding: usize,
    phase: Phase,
    error: Option<DiskError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Writing,
    Flushing,
    Labelling(u64),
}

impl DiskSets {
    pub(super) fn begin_grow(&mut self, token: DiskToken, length_bytes: u64) {
        if self.growing.is_some() {
            self.grows.push_back((token, length_bytes));
            return;
        }
        if length_bytes <= self.pool.length_bytes {
            return self.change_ended(token, None);
        }
        if length_bytes > self.pool.capacity_bytes() {
            return self.change_ended(token, Some(DiskError::NoSpace));
        }
        let formatted = self.formatted_at(length_bytes);
        let mut zeros = VecDeque::new();
        for (set, &end) in formatted.iter().enumerate() {
            let from = self.disk_offset(self.pool.sets[set].formatted);
            for place in 0..self.pool.sets[set].members.len() {
                let Some(disk) = self.member_disk(set, place) else {
                    continue;
                };
                let to = self.disk_offset(end);
                let mut at = from;
                while at < to {
                    let bytes = ZEROS_BYTES.min(to - at);
                    zeros.push_back((disk, at, bytes));
                    at += bytes;
                }
            }
        }
        self.growing = Some(Growing {
            token,
            length_bytes,
            formatted,
            zeros,
            content: AlignedBuffer::zeroed(to_usize(ZEROS_BYTES)).freeze(),
            outstanding: 0,
            phase: Phase::Writing,
            error: None,
        });
        self.write_zeros();
    }

    /// How many stripes of each set a space of that length reaches into.
    fn formatted_at(&self, length_bytes: u64) -> Vec<u64> {
        let sets = self.pool.sets.iter();
        let mut formatted: Vec<u64> = sets.map(|set| set.formatted).collect();
        let mut begin = 0;
        for segment in &self.pool.segments {
            if begin >= length_bytes {
                break;
            }
            let row_bytes = self.pool.row_bytes(segment);
            let rows = (length_bytes - begin).div_ceil(row_bytes).min(segment.rows);
            for share in &segment.shares {
                let end = share.first_stripe + rows * u64::from(share.weight);
                let known = &mut formatted[usize::from(share.set)];
                *known = end.max(*known);
            }
            begin += segment.rows * row_bytes;
        }
        formatted
    }

    fn write_zeros(&mut self) {
        loop {
            let Some(growing) = &mut self.growing else {
                return;
            };
            if growing.phase != Phase::Writing || growing.outstanding >= WRITES_MAX {
                return;
            }
            if growing.error.is_some() {
                growing.zeros.clear();
            }
            let Some((disk, offset_bytes, bytes)) = growing.zeros.pop_front() else {
                break;
            };
            let write = DiskOperation::Write {
                offset_bytes,
                pieces: vec![growing.content.slice(..to_usize(bytes))],
                is_durable: false,
            };
            if self.is_out(disk) {
                continue;
            }
            if let Some(growing) = &mut self.growing {
                growing.outstanding += 1;
            }
            self.send(disk, Purpose::Format, write);
        }
        let Some(growing) = &mut self.growing else {
            return;
        };
        if growing.outstanding > 0 {
            return;
        }
        if growing.error.is_some() {
            return self.grow_ended();
        }
        growing.phase = Phase::Flushing;
        growing.outstanding = self.sets.len();
        for set in 0..self.sets.len() {
            self.flush_set(set, FlushOwner::Grow);
        }
    }

    pub(super) fn format_answered(&mut self, disk: DiskNumber, error: Option<DiskError>) {
        let is_out = self.is_out(disk);
        if let Some(growing) = &mut self.growing {
            growing.outstanding -= 1;
            if let Some(error) = error.filter(|_| !is_out) {
                growing.error.get_or_insert(error);
            }
            self.write_zeros();
        }
    }

    pub(super) fn grow_flushed(&mut self, error: Option<DiskError>) {
        let Some(growing) = &mut self.growing else {
            return;
        };
        growing.outstanding -= 1;
        if let Some(error) = error {
            growing.error.get_or_insert(error);
        }
        if growing.outstanding > 0 {
            return;
        }
        if growing.error.is_some() {
            return self.grow_ended();
        }
        for (set, &formatted) in self.pool.sets.iter_mut().zip(&growing.formatted) {
            set.formatted = formatted;
        }
        self.pool.length_bytes = growing.length_bytes;
        // Known before the labels can be done.
        growing.phase = Phase::Labelling(u64::MAX);
        let ticket = self.request_labels();
        if let Some(growing) = &mut self.growing {
            growing.phase = Phase::Labelling(ticket);
        }
        self.grow_labelled();
    }

    pub(super) fn grow_labelled(&mut self) {
        let phase = self.growing.as_ref().map(|growing| growing.phase);
        if let Some(Phase::Labelling(ticket)) = phase
            && ticket <= self.labels.done
        {
            self.grow_ended();
        }
    }

    fn grow_ended(&mut self) {
        if let Some(growing) = self.growing.take() {
            self.change_ended(growing.token, growing.error);
        }
        if let Some((token, length_bytes)) = self.grows.pop_front() {
            self.begin_grow(token, length_bytes);
        }
    }
}
