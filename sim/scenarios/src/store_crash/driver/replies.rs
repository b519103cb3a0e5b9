//! What the store answers, and what the model makes of it.

use crossdock_names::ObjectId;
use crossdock_peer::{CallId, NodeAnswer, NodeError, NodeReply};

use super::super::history::brief_outcome;
use super::super::model::{Certainty, Presence};
use super::{Driver, Outcome, Pending, PendingKind, Pin, Stop, violation};

type Answer = Result<NodeAnswer, NodeError>;

impl Driver<'_> {
    pub(super) fn take_reply(&mut self, pending: Pending, reply: NodeReply) -> Outcome<()> {
        let Pending { object, kind } = pending;
        let NodeReply { id, outcome } = reply;
        let line = || format!("  #{} {}", id.0, brief_outcome(&outcome));
        self.memory.history.note(self.rig.now, line);
        if kind.is_change() && self.is_failure(&outcome) {
            return Ok(()); // Whether it happened is not known before the next start.
        }
        match kind {
            PendingKind::Create { is_fresh } => self.made(object, is_fresh, outcome),
            PendingKind::Remove => self.removed(object, outcome),
            PendingKind::Pin {
                offset,
                length,
                lease,
            } => {
                let until = self.rig.now + lease;
                self.pinned(object, (offset, length), until, outcome)
            }
            PendingKind::Seal { fence, is_fresh } => {
                if outcome.is_ok() {
                    self.object(object).fence = fence;
                }
                self.made(object, is_fresh, outcome)
            }
            PendingKind::FirstAppend => {
                self.made(object, true, outcome.clone())?;
                self.changed(object, id, true, 0, outcome)
            }
            PendingKind::Change { stable, generation } => {
                self.changed(object, id, stable, generation, outcome)
            }
            PendingKind::Commit { covers } => self.committed(object, &covers, outcome),
            PendingKind::Read {
                offset,
                length,
                certain,
                must_be_gone,
                may_be_gone,
            } => match outcome {
                Err(NodeError::VersionGone) if may_be_gone => Ok(()),
                Ok(answer) if must_be_gone => violation(format!(
                    "#{} got {} although there is something newer",
                    id.0,
                    brief_outcome(&Ok(answer))
                )),
                Ok(NodeAnswer::Read { payload, .. }) => {
                    let bytes = payload.to_bytes();
                    let checked = self
                        .object(object)
                        .check_read(offset, length, &bytes, &certain);
                    checked.map_err(|what| Stop::Violation(format!("#{} {object}: {what}", id.0)))
                }
                other => self.refused(object, other),
            },
            PendingKind::PinnedRead(pin) => self.read_pinned(object, pin, outcome),
            PendingKind::Stat { certain } => match outcome {
                Ok(NodeAnswer::Stat(stat)) => {
                    let checked = self.object(object).check_stat(&stat, &certain);
                    checked.map_err(|what| Stop::Violation(format!("#{} {object}: {what}", id.0)))
                }
                other => self.refused(object, other),
            },
            PendingKind::Unpin => match outcome {
                Ok(NodeAnswer::Unpinned) => Ok(()),
                other => self.refused(object, other),
            },
            PendingKind::Late => match outcome {
                Err(NodeError::StaleGeneration { .. } | NodeError::Fenced { .. }) => Ok(()),
                Ok(answer) => violation(format!("#{} is late and got {answer:?}", id.0)),
                other => self.refused(object, other),
            },
            PendingKind::Direct => Ok(()),
        }?;
        self.fold(object);
        Ok(())
    }

    fn made(&mut self, object: ObjectId, is_fresh: bool, outcome: Answer) -> Outcome<()> {
        let was_refused = outcome.is_err();
        if is_fresh {
            self.object(object).presence = match was_refused {
                true => Presence::Absent,
                false => Presence::Present,
            };
        }
        match outcome {
            Ok(_) => Ok(()),
            other => self.refused(object, other),
        }
    }

    fn removed(&mut self, object: ObjectId, outcome: Answer) -> Outcome<()> {
        match outcome {
            Ok(NodeAnswer::Done { .. }) => {
                self.object(object).reset(Presence::Absent);
                Ok(())
            }
            other => {
                self.object(object).presence = Presence::Present;
                self.refused(object, other)
            }
        }
    }

    fn changed(
        &mut self,
        object: ObjectId,
        id: CallId,
        stable: bool,
        generation: u64,
        outcome: Answer,
    ) -> Outcome<()> {
        match outcome {
            Ok(answer) => {
                if self.object(object).is_orphan(id) {
                    return violation(format!("#{} was appended behind a gap", id.0));
                }
                if let NodeAnswer::Written { incarnation, .. } = answer
                    && incarnation != self.boot
                {
                    return violation(format!("#{} was taken by {incarnation}", id.0));
                }
                let certainty = match stable {
                    true => Certainty::Durable,
                    false => Certainty::Seen,
                };
                self.object(object).set_certainty(id, certainty);
                Ok(())
            }
            Err(error) => {
                let sent = self.object(object).generation_sent;
                let is_stale = matches!(error, NodeError::StaleGeneration { .. });
                let is_orphan = self.object(object).is_orphan(id);
                let is_behind = is_orphan && matches!(error, NodeError::WrongEnd { .. });
                if !(is_stale && generation < sent || is_behind) {
                    self.refused(object, Err(error))?;
                }
                // Nothing was changed.
                if !self.object(object).is_damaged {
                    self.object(object).forget(id);
                }
                Ok(())
            }
        }
    }

    fn committed(&mut self, object: ObjectId, covers: &[CallId], outcome: Answer) -> Outcome<()> {
        match outcome {
            Ok(NodeAnswer::Committed) => {
                for &call in covers {
                    self.object(object).set_certainty(call, Certainty::Durable);
                }
                Ok(())
            }
            other => self.refused(object, other),
        }
    }

    fn pinned(
        &mut self,
        object: ObjectId,
        range: (u64, u64),
        until: crossdock_types::Time,
        outcome: Answer,
    ) -> Outcome<()> {
        let Ok(NodeAnswer::Pinned { pin, boot, .. }) = outcome else {
            return self.refused(object, outcome);
        };
        if boot != self.boot {
            return violation(format!("a pin of boot {boot}"));
        }
        let content = self.object(object).newest();
        let within = |offset: u64| usize::try_from(offset).map_or(0, |at| at.min(content.len()));
        let expected = content[within(range.0)..within(range.0 + range.1)].to_vec();
        self.pins.push(Pin {
            id: pin,
            object,
            expected,
            offset: range.0,
            until,
        });
        Ok(())
    }

    fn read_pinned(
        &mut self,
        object: ObjectId,
        id: crossdock_peer::PinId,
        outcome: Answer,
    ) -> Outcome<()> {
        let now = self.rig.now;
        let is_gone = self.object(object).presence != Presence::Present;
        let Some(pin) = self.pins.iter().find(|pin| pin.id == id) else {
            // Given back meanwhile.
            return Ok(());
        };
        match outcome {
            Ok(NodeAnswer::Read { payload, .. }) if payload.to_bytes() == pin.expected => Ok(()),
            Ok(NodeAnswer::Read { payload, .. }) => violation(format!(
                "{id:?} of {object} at {}: {} bytes that are not those that were pinned ({})",
                pin.offset,
                payload.len(),
                pin.expected.len()
            )),
            Err(NodeError::UnknownPin) if now >= pin.until => Ok(()),
            Err(NodeError::UnknownPin | NodeError::NoObject) if is_gone => Ok(()),
            other => self.refused(object, other),
        }
    }

    /// Accepts what may always be answered.
    fn refused(&mut self, object: ObjectId, outcome: Answer) -> Outcome<()> {
        match outcome {
            Err(error) => self.excuse(object, &error),
            Ok(answer) => violation(format!("{answer:?} is no answer to that")),
        }
    }

    fn is_failure(&self, outcome: &Answer) -> bool {
        matches!(outcome, Err(NodeError::Media { .. })) && self.rig.status().has_failed
    }

    /// Whether blocks may be bad, as far as the disks know.
    pub(super) fn may_be_unreadable(&mut self) -> bool {
        self.rig.disks().silent_faults() > 0 || self.rig.disks().data.faults().read_errors > 0
    }

    /// Accepts an error that the node may give at any time.
    pub(super) fn excuse(&mut self, object: ObjectId, error: &NodeError) -> Outcome<()> {
        let are_reads_failing = self.rig.disks().data.options().read_error_one_in > 0;
        match error {
            NodeError::Busy { .. } | NodeError::NoSpace => Ok(()),
            NodeError::Media { .. } if self.rig.disks().silent_faults() > 0 => {
                self.object(object).is_damaged = true;
                Ok(())
            }
            NodeError::Media { .. } if are_reads_failing => Ok(()),
            // A block that could not be read again and again is given up.
            NodeError::Media { .. } if self.rig.disks().data.faults().read_errors >= 3 => Ok(()),
            error => violation(format!("{object}: {error}")),
        }
    }

    /// Merges what is certain, unless a read on its way may not show it yet.
    fn fold(&mut self, object: ObjectId) {
        let is_reading = |pending: &Pending| {
            pending.object == object
                && matches!(
                    pending.kind,
                    PendingKind::Read { .. } | PendingKind::Stat { .. }
                )
        };
        if !self.pending.values().any(is_reading) {
            self.object(object).fold();
        }
    }
}
