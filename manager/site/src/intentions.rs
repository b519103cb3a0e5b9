//! Intentions: work on several nodes that is promised in the log before it
//! begins, and re-driven until it is done (Slice 3.3.2, CONSISTENCY 7).
//!
//! The intentions of one file are carried out one after the other, in the
//! order in which they were declared: columns that are still being made cannot
//! outlive the removal that follows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use crossdock_log::{Position, get_byte, put_varint};
use crossdock_names::{FileId, FileRef, LayoutClass, ObjectId};
use crossdock_peer::{NodeRequest, Order, SiteReply, TransactionId, WriteContext};

use crate::coordinator::Decision;
use crate::record::get_number;

/// What is to be done to the columns of some segments of a file, or at other sites.
///
/// Encoded: number, file id, generation, first segment, end segment, columns,
/// kind (1 byte: 1 remove, 2 truncate, 3 make, 4 finish, 5 truncate of a file that is not
/// striped); a truncate is followed by size and truncate generation, 5 by the layout class
/// too, finish by the [`Decision`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Intention {
    pub(crate) id: u64,
    /// Placement and generation in the columns' names; a decision's new directory.
    pub(crate) file: FileRef,
    pub(crate) first_segment: u32,
    pub(crate) end_segment: u32,
    pub(crate) columns: u16,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Remove,
    Truncate {
        size_bytes: u64,
        truncate_generation: u64,
        layout: LayoutClass,
    },
    Make,
    /// Other sites finish what is decided.
    Finish(Box<Decision>),
}

impl Intention {
    /// Whether the reply, and whoever wants the file's content, waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        match &self.kind {
            Kind::Remove => false,
            Kind::Truncate { .. } | Kind::Make => true,
            Kind::Finish(decision) => decision.adopts,
        }
    }

    /// The number of the new directory that another site takes over, if it is that.
    fn adopts(&self) -> Option<u64> {
        let adopts = matches!(&self.kind, Kind::Finish(decision) if decision.adopts);
        adopts.then(|| self.file.id.number())
    }

    /// Whether it is what was decided of that operation.
    pub(crate) fn decides(&self, id: TransactionId) -> bool {
        matches!(&self.kind, Kind::Finish(decision) if decision.id == id)
    }

    /// Whether the last part has to wait for all others.
    fn has_order(&self) -> bool {
        matches!(&self.kind, Kind::Finish(decision) if decision.moves)
    }

    fn parts(&self) -> u64 {
        if let Kind::Finish(decision) = &self.kind {
            return decision.edits.len() as u64;
        }
        u64::from(self.end_segment.saturating_sub(self.first_segment)) * u64::from(self.columns)
    }

    /// What one column's node is asked; nothing if it is about other sites.
    #[expect(clippy::cast_possible_truncation, reason = "below segments × columns")]
    pub(crate) fn request(&self, part: u64, context: WriteContext) -> Option<NodeRequest> {
        if let Kind::Finish(_) = self.kind {
            return None;
        }
        let columns = u64::from(self.columns);
        let segment = self.first_segment + (part / columns) as u32;
        let column = (part % columns) as u16;
        let object = ObjectId::column(self.file.id, self.file.generation, segment, column);
        let order = Order::Primary;
        Some(match self.kind {
            Kind::Remove => NodeRequest::Remove {
                object,
                context,
                order,
            },
            Kind::Truncate {
                size_bytes,
                truncate_generation,
                layout,
            } => NodeRequest::Truncate {
                object,
                size_bytes: layout.column_end(size_bytes, segment, column, self.columns),
                context: context.with_truncate_generation(truncate_generation),
                order,
            },
            Kind::Make => NodeRequest::Create {
                object,
                reservation_bytes: 0,
                attributes: Bytes::new(),
                context,
                order,
            },
            Kind::Finish(_) => return None,
        })
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        for number in [
            self.id,
            self.file.id.0,
            self.file.generation.into(),
            self.first_segment.into(),
            self.end_segment.into(),
            self.columns.into(),
        ] {
            put_varint(bytes, number);
        }
        match &self.kind {
            Kind::Remove => bytes.push(1),
            Kind::Truncate {
                size_bytes,
                truncate_generation,
                layout,
            } => {
                let is_striped = *layout == LayoutClass::STRIPED;
                bytes.push(if is_striped { 2 } else { 5 });
                put_varint(bytes, *size_bytes);
                put_varint(bytes, *truncate_generation);
                bytes.extend((!is_striped).then_some(layout.0));
            }
            Kind::Make => bytes.push(3),
            Kind::Finish(decision) => {
                bytes.push(4);
                decision.encode(bytes);
            }
        }
    }

    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            id: get_number(bytes)?,
            file: FileRef {
                id: FileId(get_number(bytes)?),
                generation: get_number(bytes)?,
            },
            first_segment: get_number(bytes)?,
            end_segment: get_number(bytes)?,
            columns: get_number(bytes)?,
            kind: match get_byte(bytes)? {
                1 => Kind::Remove,
                tag @ (2 | 5) => Kind::Truncate {
                    size_bytes: get_number(bytes)?,
                    truncate_generation: get_number(bytes)?,
                    layout: match tag {
                        5 => LayoutClass(get_byte(bytes)?),
                        _ => LayoutClass::STRIPED,
                    },
                },
                3 => Kind::Make,
                4 => Kind::Finish(Box::new(Decision::decode(bytes)?)),
                _ => return None,
            },
        })
    }
}

/// The open intentions of a site.
#[derive(Debug, Default)]
pub(crate) struct Intentions {
    open: BTreeMap<u64, Progress>,
    by_file: BTreeSet<(FileId, u64)>,
    /// Declared, but the log may not be durable so far.
    undriven: VecDeque<(Position, u64)>,
    next_id: u64,
    /// Numbers of the new directories that other sites take over.
    adopting: BTreeSet<u64>,
}

#[derive(Debug)]
struct Progress {
    intention: Intention,
    driven: bool,
    next_part: u64,
    outstanding: usize,
    waiting: Vec<SiteReply>,
}

/// Parts of one intention that are under way at once.
const WINDOW: usize = 16;

impl Intentions {
    /// The number for the next intention.
    pub(crate) const fn next_id(&self) -> u64 {
        self.next_id
    }

    pub(crate) fn reserve_ids(&mut self, next_id: u64) {
        self.next_id = self.next_id.max(next_id);
    }

    /// Opens an intention whose record has `position`.
    pub(crate) fn declare(&mut self, intention: Intention, position: Position) {
        self.reserve_ids(intention.id + 1);
        self.close(intention.id); // Replay of what a checkpoint has already.
        self.adopting.extend(intention.adopts());
        self.by_file.insert((intention.file.id, intention.id));
        self.undriven.push_back((position, intention.id));
        let progress = Progress {
            intention,
            driven: false,
            next_part: 0,
            outstanding: 0,
            waiting: Vec::new(),
        };
        self.open.insert(progress.intention.id, progress);
    }

    /// Closes an intention; one that is not open is no error.
    pub(crate) fn close(&mut self, id: u64) {
        if let Some(progress) = self.open.remove(&id) {
            if let Some(number) = progress.intention.adopts() {
                self.adopting.remove(&number);
            }
            self.by_file.remove(&(progress.intention.file.id, id));
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Intention> {
        self.open.get(&id).map(|progress| &progress.intention)
    }

    /// Whether the content of a file must not be touched now.
    pub(crate) fn is_busy(&self, file: FileId) -> bool {
        self.of_file(file).any(Intention::is_awaited)
    }

    /// Open ones from this number on.
    pub(crate) fn iter_from(&self, id: u64) -> impl Iterator<Item = &Intention> {
        self.open
            .range(id..)
            .map(|(_, progress)| &progress.intention)
    }

    /// Whether other sites are still to take over parts of a new directory.
    pub(crate) fn is_adopting(&self, file: FileId) -> bool {
        self.of_file(file).any(|own| own.adopts().is_some())
    }

    /// The least number of a new directory that another site is still to take over.
    pub(crate) fn least_adopting(&self) -> Option<u64> {
        self.adopting.first().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Has `reply` wait for the end of an open intention; gives it back if the
    /// intention is not open.
    pub(crate) fn wait(&mut self, id: u64, reply: SiteReply) -> Option<SiteReply> {
        match self.open.get_mut(&id) {
            Some(progress) => {
                progress.waiting.push(reply);
                None
            }
            None => Some(reply),
        }
    }

    pub(crate) fn take_waiting(&mut self, id: u64) -> Vec<SiteReply> {
        self.open
            .get_mut(&id)
            .map(|progress| std::mem::take(&mut progress.waiting))
            .unwrap_or_default()
    }

    /// Takes all replies that wait.
    pub(crate) fn take_all_waiting(&mut self) -> Vec<SiteReply> {
        let waiting = self.open.values_mut();
        waiting
            .flat_map(|progress| std::mem::take(&mut progress.waiting))
            .collect()
    }

    /// Which intentions may begin now that the log is durable up to there.
    pub(crate) fn begin(&mut self, durable: Position) -> Vec<u64> {
        let mut begun = Vec::new();
        while let Some(&(position, id)) = self.undriven.front() {
            if position > durable {
                break;
            }
            self.undriven.pop_front();
            if let Some(progress) = self.open.get_mut(&id) {
                progress.driven = true;
                let file = progress.intention.file.id;
                if self.is_first_of(file, id) {
                    begun.push(id);
                }
            }
        }
        begun
    }

    /// The intention of `file` that may go on now that one before it is closed.
    pub(crate) fn next_of(&self, file: FileId) -> Option<u64> {
        let first = self.of_file(file).next()?;
        self.open.get(&first.id)?.driven.then_some(first.id)
    }

    /// The parts of an intention that are to be done now.
    pub(crate) fn next_parts(&mut self, id: u64) -> Vec<u64> {
        let Some(progress) = self.open.get_mut(&id) else {
            return Vec::new();
        };
        let count = progress.intention.parts();
        let has_order = progress.intention.has_order();
        let mut parts = Vec::new();
        while progress.outstanding < WINDOW && progress.next_part < count {
            let is_last = progress.next_part + 1 == count;
            if has_order && is_last && progress.outstanding > 0 {
                break;
            }
            parts.push(progress.next_part);
            progress.next_part += 1;
            progress.outstanding += 1;
        }
        parts
    }

    /// A part is done; whether the intention is.
    pub(crate) fn part_done(&mut self, id: u64) -> bool {
        let Some(progress) = self.open.get_mut(&id) else {
            return false;
        };
        progress.outstanding -= 1;
        self.is_finished(id)
    }

    /// Whether every part has been sent and answered.
    pub(crate) fn is_finished(&self, id: u64) -> bool {
        self.open.get(&id).is_some_and(|progress| {
            progress.outstanding == 0 && progress.next_part == progress.intention.parts()
        })
    }

    /// Sends no more parts; it ends when those under way have been answered.
    pub(crate) fn stop(&mut self, id: u64) {
        if let Some(progress) = self.open.get_mut(&id) {
            progress.next_part = progress.intention.parts();
        }
    }

    fn of_file(&self, file: FileId) -> impl Iterator<Item = &Intention> {
        self.by_file
            .range((file, 0)..=(file, u64::MAX))
            .filter_map(|(_, id)| self.get(*id))
    }

    fn is_first_of(&self, file: FileId, id: u64) -> bool {
        self.of_file(file)
            .next()
            .is_some_and(|first| first.id == id)
    }
}
