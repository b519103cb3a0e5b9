//! One operation becomes one log record; replies wait until everything that
//! they show is durable (CONSISTENCY 2, `seen-then-gone`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossdock_directory::{Cell, Mutation};
use crossdock_locks::LockChange;
use crossdock_log::Position;
use crossdock_peer::{DuplicateKey, SiteError, SiteReply};
use crossdock_smallfile::{Change as SmallChange, Sequence, Standing};
use crossdock_types::{Time, WallTime};

use crate::intentions::Intention;
use crate::promises::Promise;
use crate::record::{Change, Record};
use crate::replies::Shape;
use crate::site::{Site, SiteEffect};
use crate::small::Undo;

/// What one operation changes.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) mutations: Vec<Mutation>,
    pub(crate) declare: Vec<Intention>,
    pub(crate) done: Option<u64>,
    pub(crate) small: Option<SmallChange>,
    pub(crate) locks: Vec<LockChange>,
    pub(crate) promises: Vec<Promise>,
    /// One of the ensemble's.
    pub(crate) key: Option<Change>,
    pub(crate) duplicate: Option<(DuplicateKey, Shape)>,
}

/// What a reply waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct After {
    pub(crate) position: Position,
    pub(crate) sequence: Option<Sequence>,
}

impl After {
    pub(crate) fn position(position: Position) -> Self {
        Self {
            position,
            sequence: None,
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            position: self.position.max(other.position),
            sequence: self.sequence.max(other.sequence),
        }
    }

    pub(crate) fn and_sequence(self, sequence: Option<Sequence>) -> Self {
        self.and(Self {
            position: Position(0),
            sequence,
        })
    }
}

/// What is in memory but not durable, and the replies that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// By serial: the newest record that touched the file.
    unsettled: BTreeMap<u64, After>,
    unsettled_order: VecDeque<(Position, u64)>,
    /// Serials whose record is durable, but not the bytes beside it.
    unsettled_bytes: BTreeSet<u64>,
    /// The numbers of small-file changes in records, in order.
    small_changes: VecDeque<(Position, Sequence)>,
    held: BTreeMap<(Position, u64), (Box<SiteReply>, Option<Sequence>)>,
    held_for_bytes: BTreeMap<(Sequence, u64), Box<SiteReply>>,
    next_held: u64,
}

impl Waits {
    pub(crate) fn held(&self) -> usize {
        self.held.len() + self.held_for_bytes.len()
    }

    /// What a reply that shows the file has to wait for.
    pub(crate) fn of(&self, serial: u64) -> After {
        self.unsettled.get(&serial).copied().unwrap_or_default()
    }

    pub(crate) fn touch(&mut self, serial: u64, after: After) {
        let known = self.unsettled.entry(serial).or_default();
        *known = known.and(after);
        self.unsettled_order.push_back((after.position, serial));
    }

    /// Drops all replies; the calls that they answered.
    pub(crate) fn take_ids(&mut self) -> Vec<crossdock_peer::CallId> {
        let held = std::mem::take(&mut self.held);
        let for_bytes = std::mem::take(&mut self.held_for_bytes);
        held.into_values()
            .map(|(reply, _)| reply.id)
            .chain(for_bytes.into_values().map(|reply| reply.id))
            .collect()
    }

    /// Takes the replies that show a change whose bytes did not arrive.
    pub(crate) fn take_voided(&mut self, sequence: Sequence) -> Vec<SiteReply> {
        let by_bytes: Vec<_> = self
            .held_for_bytes
            .range((sequence, 0)..=(sequence, u64::MAX))
            .map(|(&key, _)| key)
            .collect();
        let by_position: Vec<_> = self
            .held
            .iter()
            .filter(|(_, (_, awaited))| *awaited == Some(sequence))
            .map(|(&key, _)| key)
            .collect();
        let mut taken: Vec<_> = by_bytes
            .iter()
            .filter_map(|key| self.held_for_bytes.remove(key).map(|reply| *reply))
            .collect();
        taken.extend(
            by_position
                .iter()
                .filter_map(|key| self.held.remove(key).map(|(reply, _)| *reply)),
        );
        taken
    }
}

impl Site {
    /// Logs a record and applies it. Everybody who is shown something of it
    /// waits for the position that is returned.
    pub(crate) fn commit(&mut self, now: Time, wall: WallTime, draft: Draft) -> After {
        let Draft {
            mutations,
            declare,
            done,
            small,
            locks,
            promises,
            key,
            duplicate,
        } = draft;
        let mut changes: Vec<Change> = Vec::with_capacity(mutations.len() + 2);
        changes.extend(mutations.into_iter().map(Change::Directory));
        changes.extend(declare.into_iter().map(Change::Declare));
        changes.extend(done.map(Change::Done));
        changes.extend(locks.into_iter().map(Change::Lock));
        changes.extend(promises.into_iter().map(Change::Promise));
        changes.extend(key);
        if let Some(small) = &small {
            changes.push(Change::Small(small.record.clone().into()));
        }
        let record = Record {
            wall,
            duplicate,
            changes,
        };
        let position = self.log_mut().append(&record.encode());
        let after = After {
            position,
            sequence: small.as_ref().map(|small| small.sequence),
        };
        for change in &record.changes {
            if let Change::Directory(mutation) = change {
                self.touched(mutation, after);
            }
        }
        self.state.apply(&record, position);
        if let Some(small) = small {
            let undo = Undo {
                cells: cells_in(&record),
                duplicate: record.duplicate.as_ref().map(|(key, _)| *key),
            };
            self.accept_small(now, position, small, undo);
        }
        after
    }

    /// Keeps a reply until what it waits for is durable.
    pub(crate) fn reply(&mut self, reply: SiteReply, after: After) {
        if self.is_read_only() {
            return self.reply_read_only(reply, after);
        }
        let reply = Box::new(reply);
        let durable = self.log.as_ref().map(crate::log::SiteLog::durable);
        let logged = durable.is_some_and(|durable| after.position <= durable);
        match after
            .sequence
            .filter(|&sequence| !self.has_settled(sequence))
        {
            None if logged => self.effects.push_back(SiteEffect::Reply(reply)),
            unsettled => {
                let number = self.waits.next_held;
                self.waits.next_held += 1;
                let held = (reply, unsettled);
                self.waits.held.insert((after.position, number), held);
                if logged {
                    self.release(after.position);
                }
            }
        }
    }

    /// The log is durable up to `durable`.
    pub(crate) fn release(&mut self, durable: Position) {
        while let Some(&(position, sequence)) = self.waits.small_changes.front() {
            if position > durable {
                break;
            }
            self.waits.small_changes.pop_front();
            self.state.small.durable(sequence);
        }
        while let Some(entry) = self.waits.held.first_entry() {
            if entry.key().0 > durable {
                break;
            }
            let ((_, number), (reply, sequence)) = entry.remove_entry();
            match sequence {
                Some(sequence) => {
                    self.waits.held_for_bytes.insert((sequence, number), reply);
                }
                None => self.effects.push_back(SiteEffect::Reply(reply)),
            }
        }
        while let Some(&(position, serial)) = self.waits.unsettled_order.front() {
            if position > durable {
                break;
            }
            self.waits.unsettled_order.pop_front();
            let known = self.waits.unsettled.get(&serial);
            if known.is_some_and(|after| after.position <= durable) {
                self.waits.unsettled_bytes.insert(serial);
            }
        }
        self.release_settled();
    }

    /// Bytes of small files have become durable: sends what waited for them.
    pub(crate) fn release_settled(&mut self) {
        let mut next = self.waits.held_for_bytes.keys().next().copied();
        while let Some((sequence, _)) = next {
            let all = (sequence, 0)..=(sequence, u64::MAX);
            if self.has_settled(sequence) {
                let keys: Vec<_> = self
                    .waits
                    .held_for_bytes
                    .range(all)
                    .map(|(k, _)| *k)
                    .collect();
                for key in keys {
                    if let Some(reply) = self.waits.held_for_bytes.remove(&key) {
                        self.effects.push_back(SiteEffect::Reply(reply));
                    }
                }
            }
            let rest = (sequence, u64::MAX)..;
            next = self
                .waits
                .held_for_bytes
                .range(rest)
                .next()
                .map(|(k, _)| *k);
        }
        let durable = self.log_mut().durable();
        let settled: Vec<u64> = self
            .waits
            .unsettled_bytes
            .iter()
            .copied()
            .filter(|&serial| {
                let after = self.waits.of(serial);
                let bytes = after.sequence.is_none_or(|own| self.has_settled(own));
                after.position <= durable && bytes
            })
            .collect();
        for serial in settled {
            self.waits.unsettled_bytes.remove(&serial);
            self.waits.unsettled.remove(&serial);
        }
    }

    /// What a reply about these files has to wait for.
    pub(crate) fn after_of(&self, serials: impl IntoIterator<Item = u64>) -> After {
        serials
            .into_iter()
            .map(|serial| self.waits.of(serial))
            .fold(After::default(), After::and)
    }

    /// Changes a cell in memory only; it is logged with the next record of the
    /// file, by a commit, or after a while.
    pub(crate) fn change_volatile(&mut self, now: Time, cell: Cell) {
        if self.volatile.is_empty() {
            self.volatile_since = Some(now);
        }
        self.volatile.insert(cell.serial);
        self.state.directory.apply(&Mutation::PutCell(cell));
    }

    /// Logs the attribute changes that are in memory only.
    pub(crate) fn log_volatile(&mut self, now: Time, wall: WallTime) {
        let serials = std::mem::take(&mut self.volatile);
        self.volatile_since = None;
        let cells = serials
            .into_iter()
            .filter_map(|serial| self.state.directory.cell_of(serial).cloned());
        let mutations: Vec<_> = cells.map(Mutation::PutCell).collect();
        if !mutations.is_empty() {
            self.commit(
                now,
                wall,
                Draft {
                    mutations,
                    ..Draft::default()
                },
            );
        }
    }

    /// Answers a request that could not be carried out.
    pub(crate) fn refuse(&mut self, id: crossdock_peer::CallId, error: SiteError) {
        let reply = SiteReply::refusal(id, error);
        self.effects.push_back(SiteEffect::Reply(Box::new(reply)));
    }

    pub(crate) fn has_settled(&self, sequence: Sequence) -> bool {
        // What was taken back is not shown any more; who waited was told.
        self.state.small.standing(sequence) != Standing::Pending
    }

    fn touched(&mut self, mutation: &Mutation, after: After) {
        let Some(serial) = mutation.serial() else {
            return;
        };
        self.waits.touch(serial, after);
        if matches!(mutation, Mutation::PutCell(_) | Mutation::RemoveCell { .. }) {
            self.volatile.remove(&serial);
        }
        if matches!(mutation, Mutation::RemoveCell { .. }) {
            self.leases.settled(serial);
        }
    }

    fn accept_small(&mut self, now: Time, position: Position, change: SmallChange, undo: Undo) {
        self.waits
            .small_changes
            .push_back((position, change.sequence));
        self.state.small.accept(&change);
        self.write_backing(now, change.sequence, change.writes, undo);
    }
}

/// Serials of the cells that a record sets.
fn cells_in(record: &Record) -> Vec<u64> {
    let cell = |change: &Change| match change {
        Change::Directory(Mutation::PutCell(cell)) => Some(cell.serial),
        _ => None,
    };
    record.changes.iter().filter_map(cell).collect()
}
