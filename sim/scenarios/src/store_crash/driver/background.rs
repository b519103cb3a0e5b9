//! What the store does beside requests: scrubs, moves, and lists of changes.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_names::{FileId, ObjectId, Version};
use crossdock_peer::{NodeAnswer, NodeError, NodeRequest};
use crossdock_store::{DefragReport, DefragStep, ScrubReport};

use super::super::model::{Presence, without};
use super::{Driver, Outcome, violation};

/// Far more steps than a scrub of everything needs.
const SCRUB_STEPS_MAX: usize = 1000;

/// Steps that put everything together; fewer are enough where there is room.
const DEFRAG_STEPS_MAX: usize = 100;

impl Driver<'_> {
    /// One step, if none is under way; nobody waits for it.
    pub(super) fn scrub(&mut self) {
        if self.is_scrubbing {
            return;
        }
        self.is_scrubbing = true;
        let blocks_max = self.memory.random.between(1, 64);
        let line = || format!("scrub {blocks_max} blocks");
        self.memory.history.note(self.rig.now, line);
        self.rig.scrub(blocks_max);
    }

    pub(super) fn take_scrubbed(&mut self, report: ScrubReport) -> Outcome<()> {
        if !std::mem::take(&mut self.is_scrubbing) {
            return violation(format!("nobody asked for {report:?}"));
        }
        let line = || format!("  {report:?}");
        self.memory.history.note(self.rig.now, line);
        if let Some(finding) = report.findings.first()
            && !self.may_be_unreadable()
        {
            return violation(format!("a scrub of sound disks found {finding:?}"));
        }
        self.scrubbed = Some(report);
        Ok(())
    }

    /// Scrubs everything; gives the objects that nothing was found in.
    pub(super) fn scrub_all(&mut self) -> Outcome<BTreeSet<ObjectId>> {
        let mut sound: BTreeSet<ObjectId> = self.plan.objects.iter().copied().collect();
        // The first pass may have begun long ago.
        let mut passes = 0;
        for _ in 0..SCRUB_STEPS_MAX {
            self.scrubbed = None;
            self.scrub();
            let report = loop {
                self.step(None)?;
                if let Some(report) = self.scrubbed.take() {
                    break report;
                }
            };
            for finding in report.findings {
                sound.remove(&finding.object);
            }
            passes += usize::from(report.is_complete);
            if passes == 2 {
                return Ok(sound);
            }
        }
        violation("a scrub does not come to an end".to_owned())
    }

    /// One step, if none is under way; nobody waits for it.
    pub(super) fn defrag(&mut self) {
        if self.is_moving {
            return;
        }
        let random = &mut self.memory.random;
        let of_one = random.one_in(6).then(|| random.pick(&self.plan.objects));
        let step = DefragStep {
            placement: of_one.flatten().map(|id| id.placement),
            moves: !random.one_in(8),
            is_first: random.one_in(4),
            blocks_max: random.between(1, 64),
        };
        self.begin_defrag(step);
    }

    fn begin_defrag(&mut self, step: DefragStep) {
        self.is_moving = true;
        self.memory
            .history
            .note(self.rig.now, || format!("{step:?}"));
        self.rig.defrag(step);
    }

    pub(super) fn take_defragged(
        &mut self,
        outcome: Result<DefragReport, NodeError>,
    ) -> Outcome<()> {
        if !std::mem::take(&mut self.is_moving) {
            return violation(format!("nobody asked for {outcome:?}"));
        }
        let line = || format!("  {outcome:?}");
        self.memory.history.note(self.rig.now, line);
        match outcome {
            Ok(report) if report.moves.unreadable_blocks > 0 && !self.may_be_unreadable() => {
                violation(format!("blocks of sound disks cannot be moved: {report:?}"))
            }
            Ok(report) => {
                self.moved = Some(report);
                Ok(())
            }
            Err(_) if self.rig.status().has_failed => Ok(()),
            Err(error) => violation(format!("a step of the mover gave {error}")),
        }
    }

    /// Puts everything together, as far as there is room; then all is looked at.
    pub(super) fn defrag_all(&mut self) -> Outcome<()> {
        for moves in [true, false] {
            let mut is_first = true;
            for _ in 0..DEFRAG_STEPS_MAX {
                self.moved = None;
                self.begin_defrag(DefragStep {
                    placement: None,
                    moves,
                    is_first,
                    blocks_max: 64,
                });
                is_first = false;
                let report = loop {
                    self.step(None)?;
                    if let Some(report) = self.moved.take() {
                        break report;
                    }
                };
                if !moves && report.moves.moved_blocks > 0 {
                    return violation(format!("a look has moved something: {report:?}"));
                }
                if report.is_complete {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Lists what was changed since some version; all that must be in it is.
    pub(super) fn list_changes(&mut self) -> Outcome<()> {
        let since = match self.memory.random.below(4) {
            0 => Version::NONE,
            1 => Version::first_of(self.version.epoch()),
            _ => Version(self.version.0 - self.memory.random.below(20).min(self.version.0)),
        };
        let line = || format!("list changes since {since}");
        self.memory.history.note(self.rig.now, line);
        // What is about to go may be listed or not.
        let expected: Vec<_> = (self.memory.model.iter())
            .filter(|(_, object)| object.presence == Presence::Present)
            .map(|(id, object)| (*id, object.changes(since)))
            .collect();
        let mut listed: BTreeMap<ObjectId, Vec<(u64, u64)>> = BTreeMap::new();
        let mut after = None;
        loop {
            let any = ObjectId::column(FileId(0), 0, 0, 0); // It is about none.
            let page = match self.call(any, NodeRequest::Changes { since, after })? {
                Ok(NodeAnswer::Changes(page)) => page,
                other => return violation(format!("{other:?} instead of changes")),
            };
            for change in page.changes {
                let range = (
                    change.offset_bytes,
                    change.offset_bytes + change.length_bytes,
                );
                if change.version >= since {
                    listed.entry(change.object).or_default().push(range);
                }
            }
            after = page.more_after;
            if after.is_none() {
                break;
            }
        }
        for (id, ranges) in expected {
            let known = listed.remove(&id).unwrap_or_default();
            let left = known.iter().fold(ranges, |left, &(from, to)| {
                let cut = |part: &(u64, u64)| without(*part, from, to).collect::<Vec<_>>();
                left.iter().flat_map(cut).collect()
            });
            if let Some(missing) = left.first() {
                return violation(format!(
                    "{id}: {missing:?} is not among the changes since {since}: {known:?}"
                ));
            }
        }
        Ok(())
    }
}
