//! The lease by which others hear of this host, and the key under it.
//!
//! It protects nothing (CONSISTENCY 3 and 4 do): it may end while the host lives,
//! and then the host asks for another one, until the state is without it.

use std::time::Duration;

use crossdock_types::Time;

use super::{Request, Session};

/// A lease is prolonged so many times within its length, so that it outlives one
/// request that gets no answer.
const PROLONGED_PER_TTL: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    /// What to ask for.
    ttl: Duration,
    id: Option<i64>,
    /// At which revision the host's key was written under it.
    announced: Option<i64>,
    /// Since when an answer about it is missing.
    asked_at: Option<Time>,
    /// When to prolong it.
    prolong_due: Option<Time>,
    /// How long it lasts.
    length: Duration,
}

impl Lease {
    pub(super) const fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            id: None,
            announced: None,
            asked_at: None,
            prolong_due: None,
            length: ttl,
        }
    }

    pub(super) const fn id(&self) -> Option<i64> {
        self.id
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.prolong_due.filter(|_| self.asked_at.is_none())
    }

    pub(super) const fn asked_at(&self) -> Option<Time> {
        self.asked_at
    }

    pub(super) const fn is_announced(&self) -> bool {
        self.announced.is_some()
    }

    /// Whether the key was written, and before `revision`.
    pub(super) fn is_announced_before(&self, revision: i64) -> bool {
        self.announced.is_some_and(|at| at < revision)
    }

    pub(super) fn grant(&mut self, now: Time, id: i64, ttl_seconds: i64) {
        self.asked_at = None;
        self.id = Some(id);
        self.length = Duration::from_secs(ttl_seconds.unsigned_abs());
        self.prolong_due = Some(now + self.length / PROLONGED_PER_TTL);
    }

    pub(super) const fn announce(&mut self, revision: i64) {
        self.asked_at = None;
        self.announced = Some(revision);
    }

    pub(super) fn prolong(&mut self, now: Time) {
        self.asked_at = None;
        self.prolong_due = Some(now + self.length / PROLONGED_PER_TTL);
    }

    /// The key is not there: it is written again, under the same lease if that
    /// still is. A late request that was given up cannot tie the key to another.
    pub(super) const fn forget_announcement(&mut self) {
        self.announced = None;
    }

    pub(super) const fn forget_asked(&mut self) {
        self.asked_at = None;
    }

    /// Has it prolonged at once: there was time without a connection.
    pub(super) fn check(&mut self) {
        if self.prolong_due.is_some() {
            self.prolong_due = Some(Time(0));
        }
    }

    fn next(&self, now: Time) -> Option<Request> {
        let Some(lease) = self.id else {
            let whole = self.ttl.as_secs() + u64::from(self.ttl.subsec_nanos() > 0);
            let ttl_seconds = i64::try_from(whole).unwrap_or(i64::MAX);
            return Some(Request::Grant { ttl_seconds });
        };
        if self.prolong_due.is_some_and(|due| due <= now) {
            return Some(Request::KeepAlive { lease });
        }
        (!self.is_announced()).then_some(Request::Announce { lease })
    }
}

impl Session {
    /// Asks for what the lease lacks: one request at a time.
    pub(super) fn keep_lease(&mut self, now: Time) {
        if self.lease.asked_at.is_some() || self.is_replaced() {
            return;
        }
        if let Some(request) = self.lease.next(now) {
            self.lease.asked_at = Some(now);
            self.ask(now, request);
        }
    }

    /// Others may take this host for dead already: it reads what they have made of
    /// it, and asks for another lease if it is still one of them.
    pub(super) fn lose_lease(&mut self, now: Time) {
        self.lease = Lease::new(self.lease.ttl);
        self.read(now);
    }

    /// Whether others hear of this host, or need not.
    pub(super) fn is_heard_of(&self) -> bool {
        self.lease.is_announced() || self.is_replaced()
    }
}
