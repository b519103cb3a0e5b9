//! Watches the disks: before a stable reply leaves, everything that it promises
//! has been flushed on every replica (invariant 1).
//!
//! What is promised is recognised by its bytes: content and names carry marks,
//! and a mark is durable on a node once a durable write with it completed, or a
//! write, and then a flush of the same disk that was submitted afterwards.

use std::collections::BTreeMap;

use crossdock_disk::{DiskOperation, DiskRequest, DiskToken};
use crossdock_store::StoreDisk;

/// Bytes of a mark: [`MAGIC`], then 8 bytes of a number.
pub(super) const MARK_BYTES: usize = 12;

/// Begins a mark. Never in anything else that is written here.
const MAGIC: [u8; 4] = [0xd7, 0x9b, 0xf3, 0xc5];

/// A mark's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark(pub(super) u64);

/// Counts what the disks are told; later is larger.
pub(super) type Moment = u64;

/// The bytes of a mark.
pub(super) fn bytes_of(mark: Mark) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    // Without zeros and slashes: names carry marks too.
    for (index, target) in bytes[4..].iter_mut().enumerate() {
        let nibbles = (mark.0 >> (index * 6)) & 0x3f;
        *target = 0x80 | u8::try_from(nibbles).unwrap_or(0);
    }
    bytes
}

fn mark_of(bytes: &[u8]) -> Mark {
    let number = bytes[4..]
        .iter()
        .enumerate()
        .map(|(index, &byte)| u64::from(byte & 0x3f) << (index * 6))
        .sum();
    Mark(number)
}

type Place = (u32, StoreDisk);

/// On its way to a disk.
enum Flying {
    Write {
        marks: Vec<(Mark, Moment)>,
        is_durable: bool,
    },
    /// Covers what had landed by then.
    Flush(Moment),
}

/// A mark in a write that has completed.
struct Landed {
    at: Moment,
    mark: Mark,
    submitted: Moment,
}

/// What is durable where.
#[derive(Default)]
pub(super) struct Watch {
    now: Moment,
    flying: BTreeMap<(Place, DiskToken), Flying>,
    landed: BTreeMap<Place, Vec<Landed>>,
    /// When the newest durable write with the mark was submitted, by node.
    durable: BTreeMap<(Mark, u32), Moment>,
}

impl Watch {
    /// For later comparison.
    pub(super) const fn now(&self) -> Moment {
        self.now
    }

    pub(super) fn submitted(&mut self, number: u32, disk: StoreDisk, request: &DiskRequest) {
        self.now += 1;
        let now = self.now;
        let flying = match &request.operation {
            DiskOperation::Write {
                pieces, is_durable, ..
            } => {
                let marks = match pieces.as_slice() {
                    [only] => marks_in(only),
                    pieces => marks_in(&pieces.concat()),
                };
                Flying::Write {
                    marks: marks.into_iter().map(|mark| (mark, now)).collect(),
                    is_durable: *is_durable,
                }
            }
            DiskOperation::Flush => Flying::Flush(now),
            DiskOperation::Read { .. }
            | DiskOperation::ReadOther { .. }
            | DiskOperation::Grow { .. } => return,
        };
        let place = (number, disk);
        self.flying.insert((place, request.token), flying);
    }

    pub(super) fn completed(&mut self, number: u32, disk: StoreDisk, token: DiskToken) {
        self.now += 1;
        let at = self.now;
        let place = (number, disk);
        let landed = self.landed.entry(place).or_default();
        match self.flying.remove(&(place, token)) {
            None => {}
            Some(Flying::Write {
                marks,
                is_durable: true,
            }) => {
                for (mark, submitted) in marks {
                    let newest = self.durable.entry((mark, number)).or_default();
                    *newest = submitted.max(*newest);
                }
            }
            Some(Flying::Write { marks, .. }) => {
                landed.extend(marks.into_iter().map(|(mark, submitted)| Landed {
                    at,
                    mark,
                    submitted,
                }));
            }
            Some(Flying::Flush(covers)) => {
                for Landed {
                    mark, submitted, ..
                } in landed.extract_if(.., |landed| landed.at < covers)
                {
                    let newest = self.durable.entry((mark, number)).or_default();
                    *newest = submitted.max(*newest);
                }
            }
        }
    }

    /// On how many nodes a write with `mark` that was submitted after `since` is
    /// durable.
    pub(super) fn copies(&self, mark: Mark, since: Moment) -> usize {
        self.durable
            .range((mark, 0)..=(mark, u32::MAX))
            .filter(|&(_, &moment)| moment > since)
            .count()
    }
}

fn marks_in(bytes: &[u8]) -> Vec<Mark> {
    let mut marks = Vec::new();
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|&byte| byte == MAGIC[0]) {
        at += found;
        match bytes.get(at..at + MARK_BYTES) {
            Some(candidate) if candidate.starts_with(&MAGIC) => {
                marks.push(mark_of(candidate));
                at += MARK_BYTES;
            }
            _ => at += 1,
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: marks are found wherever they lie, and name their number.
    #[test]
    fn marks_are_found() {
        let mut bytes = vec![MAGIC[0]; 7];
        for number in [0, 1, 0x7fff_1234_5678] {
            bytes.extend(bytes_of(Mark(number)));
            bytes.push(3);
        }
        let expected = [Mark(0), Mark(1), Mark(0x7fff_1234_5678)];
        assert_eq!(marks_in(&bytes), expected);
    }
}
