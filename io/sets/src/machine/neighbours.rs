//! Requests that are neighbours on a disk go to it as one, whoever they are of: a disk with an arm
//! takes time for each command beside that for its bytes, and sets share a row of the space, so
//! that what one reader asks for in sequence comes to each disk in small pieces.
//!
//! A request that goes on where another one ends waits while the disk has two commands of that
//! sequence: it would wait there, too. When one of them has ended it goes, together with those of
//! its kind behind it that have come meanwhile, up to 1 MiB. Nothing else is held up: no durable
//! write, no write of a parity set, no flush, and nothing that is long already.
//!
//! If such a command fails its requests are asked for again one by one, and each has the answer
//! that is its own.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crossdock_disk::{DiskCompletion, DiskOperation, DiskOutput, DiskRequest, DiskToken};
use crossdock_types::{AlignedBuffer, Scatter};

use super::DiskSets;
use crate::assemble::DiskNumber;
use crate::geometry::Kind;

/// Bytes of a command that is made of several requests.
const MERGED_BYTES_MAX: u64 = 1 << 20;

/// Parts in memory of such a command: the kernel takes 1,024.
const MERGED_PARTS_MAX: usize = 256;

/// A request of so many bytes is worth a command.
const LONG_BYTES: u64 = MERGED_BYTES_MAX / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Read,
    Write,
}

/// What a request is about on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    direction: Direction,
    start: u64,
    end: u64,
}

impl Extent {
    /// Of requests that may be part of a sequence.
    fn of(operation: &DiskOperation) -> Option<Self> {
        let (direction, start, bytes) = match operation {
            DiskOperation::Read {
                offset_bytes,
                buffer,
            } => (Direction::Read, *offset_bytes, buffer.len()),
            DiskOperation::Write {
                offset_bytes,
                pieces,
                is_durable: false,
            } => {
                let bytes = pieces.iter().map(Bytes::len).sum();
                (Direction::Write, *offset_bytes, bytes)
            }
            _ => return None,
        };
        Some(Self {
            direction,
            start,
            end: start + bytes as u64,
        })
    }

    const fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// A request that waits for its neighbours.
#[derive(Debug)]
struct Held {
    token: u64,
    end: u64,
    operation: DiskOperation,
}

impl Held {
    fn parts(&self) -> usize {
        match &self.operation {
            DiskOperation::Read { buffer, .. } => buffer.parts().count(),
            DiskOperation::Write { pieces, .. } => pieces.len(),
            _ => 0,
        }
    }
}

/// The sequences of one disk.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// Commands in flight, by the tokens that the disk has.
    flying: BTreeMap<u64, Extent>,
    /// Where these begin, by where they end.
    ends: BTreeMap<(Direction, u64), u64>,
    /// By where they begin.
    held: BTreeMap<(Direction, u64), Held>,
    /// Where these end.
    held_ends: BTreeSet<(Direction, u64)>,
}

impl Sequences {
    /// Whether the disk has two commands before this one, or others wait for them already.
    fn has_to_wait(&self, extent: Extent) -> bool {
        let direction = extent.direction;
        let before = self.ends.get(&(direction, extent.start));
        let has_two = before.is_some_and(|start| self.ends.contains_key(&(direction, *start)));
        has_two || self.held_ends.contains(&(direction, extent.start))
    }

    /// Whether a request is held back; otherwise it is given back.
    fn hold(&mut self, token: u64, operation: DiskOperation) -> Result<(), DiskOperation> {
        let extent = Extent::of(&operation).filter(|extent| extent.bytes() < LONG_BYTES);
        let Some(extent) = extent.filter(|extent| self.has_to_wait(*extent)) else {
            return Err(operation);
        };
        let key = (extent.direction, extent.start);
        let end = (extent.direction, extent.end);
        // Two may read the same.
        if self.held.contains_key(&key) || self.held_ends.contains(&end) {
            return Err(operation);
        }
        let held = Held {
            token,
            end: extent.end,
            operation,
        };
        self.held.insert(key, held);
        self.held_ends.insert(end);
        Ok(())
    }

    fn issued(&mut self, token: u64, operation: &DiskOperation) {
        if let Some(extent) = Extent::of(operation) {
            self.flying.insert(token, extent);
            self.ends
                .insert((extent.direction, extent.end), extent.start);
        }
    }

    fn ended(&mut self, token: u64) {
        if let Some(extent) = self.flying.remove(&token) {
            self.ends.remove(&(extent.direction, extent.end));
        }
    }

    /// The next requests that go as one.
    fn next_group(&mut self) -> Option<Vec<Held>> {
        let may_go = |&(&(direction, start), held): &(&(Direction, u64), &Held)| {
            !self.has_to_wait(Extent {
                direction,
                start,
                end: held.end,
            })
        };
        let (&(direction, mut at), _) = self.held.iter().find(may_go)?;
        let (mut group, mut bytes, mut parts) = (Vec::new(), 0, 0);
        while let Some(held) = self.held.get(&(direction, at)) {
            bytes += held.end - at;
            parts += held.parts();
            let is_full = bytes > MERGED_BYTES_MAX || parts > MERGED_PARTS_MAX;
            if is_full && !group.is_empty() {
                break;
            }
            let key = (direction, at);
            at = held.end;
            self.held_ends.remove(&(direction, at));
            group.extend(self.held.remove(&key));
        }
        Some(group)
    }
}

/// A request within a command: what it takes to ask for it again.
#[derive(Debug)]
pub(super) struct Member {
    token: u64,
    offset_bytes: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Bytes of each part of its buffer.
    Read(Vec<usize>),
    Write(Vec<Bytes>),
}

impl Member {
    fn of(token: u64, operation: &DiskOperation) -> Option<Self> {
        let (offset_bytes, what) = match operation {
            DiskOperation::Read {
                offset_bytes,
                buffer,
            } => (
                *offset_bytes,
                What::Read(buffer.parts().map(<[u8]>::len).collect()),
            ),
            DiskOperation::Write {
                offset_bytes,
                pieces,
                ..
            } => (*offset_bytes, What::Write(pieces.clone())),
            _ => return None,
        };
        Some(Self {
            token,
            offset_bytes,
            what,
        })
    }

    /// The same request, by itself.
    fn again(self) -> (u64, DiskOperation) {
        let operation = match self.what {
            What::Read(sizes) => {
                let parts = sizes.into_iter().map(AlignedBuffer::zeroed);
                DiskOperation::Read {
                    offset_bytes: self.offset_bytes,
                    buffer: Scatter::of(parts.collect()),
                }
            }
            What::Write(pieces) => DiskOperation::Write {
                offset_bytes: self.offset_bytes,
                pieces,
                is_durable: false,
            },
        };
        (self.token, operation)
    }
}

/// One command of several requests.
fn merged(group: Vec<Held>) -> Option<(DiskOperation, Vec<Member>)> {
    let members: Option<Vec<Member>> = group
        .iter()
        .map(|held| Member::of(held.token, &held.operation))
        .collect();
    let members = members?;
    let offset_bytes = members.first()?.offset_bytes;
    let (mut buffers, mut all) = (Vec::new(), Vec::new());
    for held in group {
        match held.operation {
            DiskOperation::Read { buffer, .. } => buffers.extend(buffer.into_parts()),
            DiskOperation::Write { pieces, .. } => all.extend(pieces),
            _ => return None,
        }
    }
    let operation = match all.is_empty() {
        true => DiskOperation::Read {
            offset_bytes,
            buffer: Scatter::of(buffers),
        },
        false => DiskOperation::Write {
            offset_bytes,
            pieces: all,
            is_durable: false,
        },
    };
    Some((operation, members))
}

impl DiskSets {
    /// Sends a request to a disk, or lets it wait for its neighbours.
    pub(super) fn queue(&mut self, disk: DiskNumber, token: u64, operation: DiskOperation) {
        let is_read = matches!(operation, DiskOperation::Read { .. });
        if !is_read && self.is_of_parity(disk) {
            return self.issue(disk, token, operation);
        }
        let Some(attached) = self.disks.get_mut(&disk) else {
            return self.issue(disk, token, operation);
        };
        if let Err(operation) = attached.sequences.hold(token, operation) {
            self.issue(disk, token, operation);
        }
    }

    /// Whether a disk is a parity set's. Its writes do not wait: each comes behind a durable one of
    /// its stripe, so that those of a request come one by one, and others' notes would come between.
    fn is_of_parity(&self, disk: DiskNumber) -> bool {
        let id = self.disks.get(&disk).map(|attached| attached.id);
        let place = id.and_then(|id| self.pool.place_of(id));
        place.is_some_and(|(set, _)| self.pool.sets[set].kind == Kind::Parity)
    }

    fn issue(&mut self, disk: DiskNumber, token: u64, operation: DiskOperation) {
        if let Some(attached) = self.disks.get_mut(&disk) {
            attached.sequences.issued(token, &operation);
        }
        let token = DiskToken(token);
        self.out.push_back((disk, DiskRequest { token, operation }));
    }

    /// A command of a disk has ended: its requests, each with its answer. Those of one that has
    /// failed are asked for again, and have none yet.
    pub(super) fn landed(
        &mut self,
        disk: DiskNumber,
        completion: DiskCompletion,
    ) -> Vec<DiskCompletion> {
        let token = completion.token.0;
        if let Some(attached) = self.disks.get_mut(&disk) {
            attached.sequences.ended(token);
        }
        let answers = match (self.merged.remove(&token), completion.result) {
            (None, result) => {
                let token = completion.token;
                vec![DiskCompletion { token, result }]
            }
            (Some(members), Ok(output)) => answers_of(members, output),
            (Some(members), Err(_)) => {
                for (token, operation) in members.into_iter().map(Member::again) {
                    self.issue(disk, token, operation);
                }
                Vec::new()
            }
        };
        self.issue_held(disk);
        answers
    }

    /// Sends what need not wait any more.
    fn issue_held(&mut self, disk: DiskNumber) {
        while let Some(group) = self
            .disks
            .get_mut(&disk)
            .and_then(|attached| attached.sequences.next_group())
        {
            if group.len() == 1 {
                for held in group {
                    self.issue(disk, held.token, held.operation);
                }
            } else if let Some((operation, members)) = merged(group) {
                let token = self.number();
                self.merged.insert(token, members);
                self.issue(disk, token, operation);
            }
        }
    }
}

/// Shares out what a command has brought.
fn answers_of(members: Vec<Member>, output: DiskOutput) -> Vec<DiskCompletion> {
    let mut parts = match output {
        DiskOutput::Read(buffer) => buffer.into_parts(),
        DiskOutput::Done => Vec::new(),
    }
    .into_iter();
    let answer = |member: Member| {
        let result = match &member.what {
            What::Write(_) => Ok(DiskOutput::Done),
            What::Read(sizes) => {
                let own: Vec<AlignedBuffer> = parts.by_ref().take(sizes.len()).collect();
                Ok(DiskOutput::Read(Scatter::of(own)))
            }
        };
        let token = DiskToken(member.token);
        DiskCompletion { token, result }
    };
    members.into_iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn read(block: u64, blocks: usize) -> DiskOperation {
        DiskOperation::Read {
            offset_bytes: block * BLOCK as u64,
            buffer: Scatter::zeroed(blocks * BLOCK),
        }
    }

    fn write(block: u64, is_durable: bool) -> DiskOperation {
        DiskOperation::Write {
            offset_bytes: block * BLOCK as u64,
            pieces: vec![AlignedBuffer::zeroed(BLOCK).freeze()],
            is_durable,
        }
    }

    /// Whether it waits.
    fn offer(sequences: &mut Sequences, token: u64, operation: DiskOperation) -> bool {
        match sequences.hold(token, operation) {
            Ok(()) => true,
            Err(operation) => {
                sequences.issued(token, &operation);
                false
            }
        }
    }

    /// The tokens of each command that goes now.
    fn going(sequences: &mut Sequences) -> Vec<Vec<u64>> {
        let mut all = Vec::new();
        while let Some(group) = sequences.next_group() {
            all.push(group.iter().map(|held| held.token).collect());
            let token = group[0].token;
            let operation = match group.len() {
                1 => group.into_iter().next().map(|held| held.operation),
                _ => merged(group).map(|(operation, _)| operation),
            };
            sequences.issued(token, &operation.expect("a command"));
        }
        all
    }

    /// Goal: a disk has two commands of a sequence; what comes behind them waits, and goes as one;
    /// others, those of another kind and durable ones do not wait.
    #[test]
    fn sequences_go_together() {
        let mut sequences = Sequences::default();
        for (token, block) in [(1, 0), (2, 1)] {
            assert!(!offer(&mut sequences, token, read(block, 1)));
        }
        for (token, block) in [(3, 2), (4, 3), (5, 4)] {
            assert!(offer(&mut sequences, token, read(block, 1)));
        }
        assert!(!offer(&mut sequences, 6, read(90, 1)), "another place");
        assert!(!offer(&mut sequences, 7, write(2, false)), "another kind");
        assert!(!offer(&mut sequences, 8, read(2, 128)), "long enough");
        assert!(!offer(&mut sequences, 9, read(4, 1)), "the same again");
        assert_eq!(going(&mut sequences), Vec::<Vec<u64>>::new());
        sequences.ended(6);
        assert_eq!(going(&mut sequences), Vec::<Vec<u64>>::new());
        sequences.ended(1);
        assert_eq!(going(&mut sequences), [[3, 4, 5]]);
        assert!(offer(&mut sequences, 10, read(5, 1)));
        sequences.ended(2);
        assert_eq!(going(&mut sequences), [[10]]);
        for (token, block) in [(11, 10), (12, 11)] {
            assert!(!offer(&mut sequences, token, write(block, false)));
        }
        assert!(!offer(&mut sequences, 13, write(12, true)), "durable");
        assert!(offer(&mut sequences, 14, write(12, false)));
    }

    /// Goal: a command has 1 MiB at most, in 256 parts at most, and what is left over follows.
    #[test]
    fn commands_are_bounded() {
        let mut sequences = Sequences::default();
        for (token, block) in [(1, 0), (2, 1)] {
            assert!(!offer(&mut sequences, token, read(block, 1)));
        }
        for number in 0..5 {
            assert!(offer(
                &mut sequences,
                10 + number,
                read(2 + number * 100, 100)
            ));
        }
        sequences.ended(1);
        assert_eq!(going(&mut sequences), [[10, 11]]);
        sequences.ended(2);
        assert_eq!(going(&mut sequences), [[12, 13]]);
        sequences.ended(10);
        assert_eq!(going(&mut sequences), [[14]]);
    }
}
