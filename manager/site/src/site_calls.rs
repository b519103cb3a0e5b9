//! Calls to other sites: sent again until they are answered.
//!
//! Every step may be repeated without harm, so a site that is away, or that has
//! moved meanwhile, is asked again, with growing pauses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crossdock_names::{Epoch, FileRef, SiteId};
use crossdock_peer::{
    Call, CallId, SiteAnswer, SiteError, SiteOperation, SiteReply, SiteRequest, TransactionId,
    TransactionStep,
};
use crossdock_types::Time;

/// What another site was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To prepare, for an operation that goes on no longer than this.
    Prepare { number: u64, until: Time },
    /// To finish what is decided.
    Finish { intention: u64, part: u64 },
    /// To finish what was given up.
    GiveUp,
    /// What has become of it.
    Inquire,
}

/// An answer, with what it was asked for.
#[derive(Debug)]
pub(crate) struct SiteAnswered {
    pub(crate) asked: Asked,
    pub(crate) site: SiteId,
    pub(crate) id: TransactionId,
    pub(crate) outcome: Result<SiteAnswer, SiteError>,
}

#[derive(Debug)]
pub(crate) struct SiteCalls {
    next_id: u64,
    pending: BTreeMap<CallId, Pending>,
    /// When each of them is looked at again.
    wakes: BTreeSet<(Time, CallId)>,
    pub(crate) effects: VecDeque<(SiteId, Call<SiteRequest>)>,
}

#[derive(Debug)]
struct Pending {
    site: SiteId,
    id: TransactionId,
    step: TransactionStep,
    asked: Asked,
    attempts: u32,
    /// Whether it is on its way, or else waits to be sent again.
    is_sent: bool,
    wake: Time,
}

/// When a site that has not answered at all is asked again.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

impl SiteCalls {
    /// The calls of one opening: an answer to an earlier one's is to none of them.
    pub(crate) const fn of_epoch(epoch: Epoch) -> Self {
        Self {
            next_id: epoch.0.wrapping_shl(32) | 1,
            pending: BTreeMap::new(),
            wakes: BTreeSet::new(),
            effects: VecDeque::new(),
        }
    }

    pub(crate) fn send(
        &mut self,
        now: Time,
        site: SiteId,
        id: TransactionId,
        step: TransactionStep,
        asked: Asked,
    ) {
        let call = CallId(self.next_id);
        self.next_id += 1;
        let pending = Pending {
            site,
            id,
            step,
            asked,
            attempts: 0,
            is_sent: false,
            wake: now,
        };
        self.pending.insert(call, pending);
        self.transmit(now, call);
    }

    /// Takes a reply; `None` if it is not the end of the call.
    pub(crate) fn answered(&mut self, now: Time, reply: SiteReply) -> Option<SiteAnswered> {
        let pending = self.pending.get_mut(&reply.id)?;
        let is_final = match (&reply.outcome, pending.asked) {
            (Err(SiteError::Moved | SiteError::Unanswered), _) => false,
            // Whoever prepares or asks begins anew, after a pause of its own.
            (Err(SiteError::Busy), asked) => {
                matches!(asked, Asked::Prepare { .. } | Asked::Inquire)
            }
            // It has to be done some day.
            (Err(_), Asked::Finish { .. } | Asked::GiveUp) => false,
            _ => true,
        };
        if !is_final {
            self.retry_later(now, reply.id);
            return None;
        }
        self.wakes.remove(&(pending.wake, reply.id));
        let pending = self.pending.remove(&reply.id)?;
        Some(pending.answered(reply.outcome))
    }

    /// Asks again who is due; what is given up.
    pub(crate) fn timeout(&mut self, now: Time) -> Vec<SiteAnswered> {
        let mut given_up = Vec::new();
        while let Some(&(wake, call)) = self.wakes.first()
            && wake <= now
        {
            self.wakes.pop_first();
            let asked = self.pending.get(&call).map(|pending| pending.asked);
            match asked {
                Some(Asked::Prepare { until, .. }) if until <= now => {
                    let pending = self.pending.remove(&call);
                    given_up.extend(pending.map(|call| call.answered(Err(SiteError::Busy))));
                }
                Some(_) => self.transmit(now, call),
                None => {}
            }
        }
        given_up
    }

    /// Takes back what was asked for an operation that has ended.
    pub(crate) fn withdraw(&mut self, number: u64) {
        let is_its = |pending: &Pending| matches!(pending.asked, Asked::Prepare { number: own, .. } if own == number);
        let gone = self.pending.extract_if(.., |_, call| is_its(call));
        for (call, pending) in gone {
            self.wakes.remove(&(pending.wake, call));
        }
    }

    /// Asks at once again who could not answer: the table has changed.
    pub(crate) fn retry_now(&mut self, now: Time) {
        let waiting = self.pending.iter().filter(|(_, call)| !call.is_sent);
        let waiting: Vec<CallId> = waiting.map(|(&call, _)| call).collect();
        for call in waiting {
            self.transmit(now, call);
        }
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        self.wakes.first().map(|&(wake, _)| wake)
    }

    fn transmit(&mut self, now: Time, call: CallId) {
        let Some(pending) = self.pending.get_mut(&call) else {
            return;
        };
        self.wakes.remove(&(pending.wake, call));
        pending.is_sent = true;
        pending.wake = now + ANSWER_PATIENCE;
        self.wakes.insert((pending.wake, call));
        let file = FileRef::root_of(pending.site);
        let operation = SiteOperation::Transaction {
            file,
            id: pending.id,
            step: pending.step.clone(),
        };
        let request = SiteRequest::as_root(operation);
        let deadline = now + ANSWER_PATIENCE;
        let call = Call {
            id: call,
            deadline,
            request,
        };
        self.effects.push_back((pending.site, call));
    }

    fn retry_later(&mut self, now: Time, call: CallId) {
        if let Some(pending) = self.pending.get_mut(&call) {
            let pause = PAUSE_MIN * 2u32.saturating_pow(pending.attempts.min(10));
            pending.attempts += 1;
            self.wakes.remove(&(pending.wake, call));
            pending.is_sent = false;
            pending.wake = now + pause.min(PAUSE_MAX);
            self.wakes.insert((pending.wake, call));
        }
    }
}

impl Pending {
    fn answered(self, outcome: Result<SiteAnswer, SiteError>) -> SiteAnswered {
        SiteAnswered {
            asked: self.asked,
            site: self.site,
            id: self.id,
            outcome,
        }
    }
}
