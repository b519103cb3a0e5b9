//! Brings the index up to date with the journal, and lets the journal's tail
//! advance; drops from memory what the index has.
//!
//! A batch is collected right when a frame has been handed out: memory is then
//! exactly what the records up to that frame make it. It goes to the index when
//! that frame is durable, so the index is never ahead of the journal.

use crossdock_log::Position;
use crossdock_peer::NodeError;
use crossdock_types::Time;

use crate::commit::WrittenBack;
use crate::index::{Batch, IndexCall, Meta, RingPoint};
use crate::interface::{Mutation, StoreEffect};
use crate::runs::run_key;
use crate::store::{Phase, Store};

/// Changes of heads and runs in memory that make a batch worth while, as a
/// share of the entries that may be kept: one in this many.
const DIRTY_SHARE: usize = 4;

/// Changes of space that make a batch worth while.
const DELTAS_MAX: usize = 1 << 16;

/// Entries above the bound that requests under way may keep, beside as many
/// again as the bound.
const PARKED_SLACK: usize = 1024;

/// State of batches.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    /// A durable one is needed.
    pub(crate) is_wanted: bool,
    pub(crate) last_durable: Time,
    pub(crate) last_writeback: Time,
    /// Memory is short: unstable bytes go to the disk now.
    pub(crate) must_write_back: bool,
    pub(crate) is_draining: bool,
    /// Unstable bytes go to the disk, and have up to there.
    pub(crate) written_back: Option<WrittenBack>,
    is_quiet: bool,
    /// Serials that died or are reaped since the last batch.
    pub(crate) dead: Vec<(u64, bool)>,
    /// Number of the last batch that was collected.
    collected: u64,
    /// Number of the last batch that the index has.
    applied: u64,
    flying: Option<Flying>,
    /// Bytes of the journal that the last trim left.
    used_at_trim: u64,
    /// What replay begins with, as of the last durable commit.
    pub(crate) saved: u64,
}

/// The one batch that is on its way.
#[derive(Debug)]
struct Flying {
    position: Position,
    tail: RingPoint,
    is_durable: bool,
    /// `None`: it was sent.
    batch: Option<Box<Batch>>,
}

impl Checkpoint {
    pub(crate) const fn is_busy(&self) -> bool {
        self.flying.is_some() || self.is_wanted
    }

    /// Everything was written back, as far as it can be.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Number of the last batch that the index has.
    pub(crate) const fn applied(&self) -> u64 {
        self.applied
    }
}

impl Store {
    /// Whether the index's last durable commit lacks something.
    pub(crate) fn has_unsaved_changes(&self) -> bool {
        self.journal.last().0 > self.checkpoint.saved
    }

    /// Decides whether a batch is due.
    pub(crate) fn advance_checkpoint(&mut self) {
        let is_old = self.now >= self.checkpoint.last_durable + self.config.checkpoint_interval;
        // What is dead by now is trimmed before settling would look at it.
        let used = self.journal.used_bytes();
        let grown = used.saturating_sub(self.checkpoint.used_at_trim);
        let is_grown = grown > self.journal.ring_bytes() / 8;
        let is_free = self.checkpoint.flying.is_none() && !self.is_settling();
        if (is_old || is_grown) && is_free && self.has_unsaved_changes() {
            self.checkpoint.is_wanted = true;
        }
        self.drain();
        // Without a frame to wait for, what is durable is what memory has.
        if self.journal.is_idle() {
            self.collect_batch();
            self.send_batch(self.journal.durable());
        }
    }

    fn is_batch_due(&self) -> bool {
        self.checkpoint.is_wanted
            || self.totals.dirty_entries > self.config.map_entries_max / DIRTY_SHARE
            || self.space.deltas() > DELTAS_MAX
    }

    /// Nothing may have been recorded since the last frame was handed out.
    pub(crate) fn collect_batch(&mut self) {
        if self.checkpoint.flying.is_some() || !self.is_batch_due() {
            return;
        }
        self.checkpoint.collected += 1;
        let number = self.checkpoint.collected;
        let end = self.journal.end();
        let position = Position(end.chain.next_sequence - 1);
        let low = self.overlay_low();
        let tail = if low <= position {
            self.journal.point_of(low)
        } else {
            end
        };
        let is_durable = std::mem::take(&mut self.checkpoint.is_wanted);
        let mut batch = Box::new(Batch {
            number,
            space: self.space.take_deltas(),
            dead: std::mem::take(&mut self.checkpoint.dead),
            meta: self.meta(tail, position),
            is_durable,
            ..Batch::default()
        });
        self.collect_entries(&mut batch);
        let batch = Some(batch);
        self.checkpoint.flying = Some(Flying {
            position,
            tail,
            is_durable,
            batch,
        });
        if self.config.has(Mutation::IndexAheadOfJournal) {
            self.send_batch(position);
        }
    }

    fn collect_entries(&mut self, batch: &mut Batch) {
        for (id, entry) in &mut self.objects {
            if std::mem::take(&mut entry.is_dirty) {
                entry.batch = batch.number;
                let head = entry.object.as_ref().map(|object| object.head.encode());
                batch.objects.push((*id, head));
            }
        }
        for ((serial, _), window) in &mut self.windows {
            if window.is_dirty() {
                window.batch = batch.number;
                window.take_changes(|first, run| {
                    let run = run.map(crate::runs::Run::encode);
                    batch.runs.push((run_key(*serial, first), run));
                });
            }
        }
        self.totals.dirty_entries = 0;
    }

    fn meta(&self, tail: RingPoint, position: Position) -> Meta {
        Meta {
            store: self.store,
            tail,
            complete: position.0,
            next_serial: self.totals.next_serial,
            next_stamp: self.totals.next_stamp,
            objects: self.totals.objects,
            committed: self.space.committed(),
            reserved: self.totals.reserved,
            grown: self.space.grown(),
        }
    }

    /// The batch goes to the index once the journal has what it contains.
    pub(crate) fn send_batch(&mut self, durable: Position) {
        if let Some(flying) = &mut self.checkpoint.flying
            && flying.position <= durable
            && let Some(batch) = flying.batch.take()
        {
            self.space.deltas_sent();
            self.ask_index(IndexCall::Apply(batch));
        }
    }

    pub(crate) fn batch_applied(&mut self, number: u64) {
        if matches!(self.phase, Phase::Opening(_)) {
            self.index_made();
            return;
        }
        self.checkpoint.applied = number;
        let Some(flying) = self.checkpoint.flying.take() else {
            return;
        };
        if flying.is_durable {
            self.counters.checkpoints += 1;
            self.checkpoint.saved = flying.position.0;
            self.checkpoint.last_durable = self.now;
            self.journal.trim(&flying.tail);
            self.checkpoint.used_at_trim = self.journal.used_bytes();
        }
    }

    /// The index cannot be trusted any more: what it was asked for never comes.
    pub(crate) fn fail_index(&mut self, what: &str) {
        let what = format!("index: {what}");
        self.index_failure.get_or_insert_with(|| what.clone());
        self.fail(&what);
        let error = self.media(what);
        for id in self.waiting.take_all() {
            self.refuse(id, error.clone());
        }
        self.fail_lists(&error);
        self.fail_scrub(&error);
    }

    /// Why the index cannot be asked any more, if it has failed.
    pub(crate) fn index_error(&self) -> Option<NodeError> {
        let what = self.index_failure.as_ref()?;
        Some(self.media(what.clone()))
    }

    /// Nothing more can be saved: a stop need not wait.
    pub(crate) fn rest_failed(&mut self) {
        if self.checkpoint.is_draining && !self.checkpoint.is_quiet {
            self.checkpoint.is_quiet = true;
            self.effects.push_back(StoreEffect::Quiet);
        }
    }

    /// Everything written back, settled, reaped and in the index?
    fn drain(&mut self) {
        if !self.checkpoint.is_draining || self.checkpoint.is_quiet {
            return;
        }
        // On a full disk the journal keeps what it has.
        let is_kept = self.settling.is_starved && self.totals.volatile_bytes == 0;
        let is_clean = self.flights.is_empty()
            && (self.overlaid.is_empty() || is_kept)
            && self.dead.is_empty()
            && self.journal.is_idle()
            && self.checkpoint.flying.is_none();
        if is_clean && self.has_unsaved_changes() {
            self.checkpoint.is_wanted = true;
        } else if is_clean {
            debug_assert_eq!(self.space.unrecorded(), 0, "blocks have leaked");
            self.checkpoint.is_quiet = true;
            self.effects.push_back(StoreEffect::Quiet);
        }
    }

    /// Keeps heads and windows in memory within their bound: the least recently
    /// used go, if the index has them and nothing is under way with them.
    pub(crate) fn evict_maps(&mut self) {
        let entries = self.objects.len() + self.windows.len();
        let max = self.config.map_entries_max;
        // What was just loaded for a request must not go before it is served.
        if entries <= max || (self.waiting.has_parked() && entries <= 2 * max + PARKED_SLACK) {
            return;
        }
        let applied = self.checkpoint.applied;
        let mut uses = Vec::new();
        for entry in self.objects.values() {
            let is_busy = entry
                .object
                .as_deref()
                .is_some_and(crate::object::Object::is_busy);
            if !entry.is_dirty && entry.batch <= applied && !is_busy {
                uses.push(entry.used);
            }
        }
        let busy_serials: std::collections::BTreeSet<u64> = (self.objects.values())
            .filter_map(|entry| entry.object.as_deref())
            .filter(|object| object.is_busy())
            .map(|object| object.head.serial)
            .collect();
        for ((serial, _), window) in &self.windows {
            if !window.is_dirty() && window.batch <= applied && !busy_serials.contains(serial) {
                uses.push(window.used);
            }
        }
        if uses.is_empty() {
            // If something is dirty the index has to take it first. If all are
            // in use, as many as there are have to stay.
            let is_dirty = self.objects.values().any(|entry| entry.is_dirty)
                || self.windows.values().any(crate::runs::Window::is_dirty);
            if is_dirty {
                self.totals.dirty_entries = usize::MAX / 2;
            }
            return;
        }
        // Down to three quarters at once, so that the search is rare.
        let surplus = (entries - self.config.map_entries_max / 4 * 3).min(uses.len());
        let (_, bound, _) = uses.select_nth_unstable(surplus - 1);
        let bound = *bound;
        self.objects.retain(|_, entry| {
            let is_busy = entry
                .object
                .as_deref()
                .is_some_and(crate::object::Object::is_busy);
            entry.used > bound || entry.is_dirty || entry.batch > applied || is_busy
        });
        self.windows.retain(|(serial, _), window| {
            window.used > bound
                || window.is_dirty()
                || window.batch > applied
                || busy_serials.contains(serial)
        });
    }
}
