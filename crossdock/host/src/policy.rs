//! The policy of third-party transfer on a running host: an administrator gives files and
//! directories rules, the registry keeps them, and the doors judge every later reply by them.
//!
//! A path is walked once; from then on the rule is of what was there, wherever it is moved.

use std::sync::Arc;

use crossdock_http::HttpInput;
use crossdock_limits::{GATEWAY_HOT_FILE_BYTES_MAX, POLICY_RULES_MAX};
use crossdock_members::{Change, Conflict, OpenError, PolicyRecord};
use crossdock_names::FileRef;
use crossdock_nfs::NfsInput;
use crossdock_peer::{Policy, PolicyRule, SiteError};
use crossdock_types::{Time, WallTime};
use thiserror::Error;

use crate::exports::REGISTRY_PATIENCE;
use crate::host::{Host, HostEffect};
use crate::message::Message;
use crate::walks::{Goal, WALKS_MAX, Walk, WalkError, names_of, volume_root};

/// Which order about the policy an effect answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyTicket(pub(crate) u64);

/// Why a rule was not set or removed; nothing was done, unless stated otherwise.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PolicyError {
    /// The path cannot be one.
    #[error("{path:?} is no path of the volume: {why}")]
    Path {
        /// As it was said.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The path leads nowhere.
    #[error("the volume has no {path}; make it, then say how its bytes are sent")]
    NotFound {
        /// The path.
        path: String,
    },
    /// No reply can be so.
    #[error(
        "no reply has at least {from_bytes} bytes and fewer than {below_bytes}: --from is the lower bound, --below the upper one"
    )]
    Lengths {
        /// The lower bound.
        from_bytes: u64,
        /// The upper one.
        below_bytes: u64,
    },
    /// There are as many as there may be.
    #[error("there are {POLICY_RULES_MAX} rules already; remove one with crossdock policy remove")]
    TooMany,
    /// There is no such rule.
    #[error("there is no rule {0:08x}; crossdock policy show lists all")]
    Unknown(u32),
    /// The volume does not answer now.
    #[error("the volume did not answer ({0}); crossdock status may show why; try again")]
    Volume(SiteError),
    /// Too many at once.
    #[error("{WALKS_MAX} rules are being set or removed at this moment; try again")]
    Busy,
    /// This process is no part of the ensemble yet.
    #[error("this process has not joined the ensemble; crossdock status may show why; try again")]
    NotJoined,
    /// A shared registry says nothing: it may still be done.
    #[error(
        "etcd does not answer: the change was not confirmed within {} s, and may still be carried out; crossdock policy show tells what came of it",
        REGISTRY_PATIENCE.as_secs()
    )]
    Unanswered,
    /// The registry cannot be written.
    #[error("cannot write the registry: {0}")]
    Registry(String),
}

/// A change of the policy on its way to the registry.
pub(crate) struct PolicyChange {
    ticket: PolicyTicket,
    wanted: Wanted,
    /// When it is given up.
    pub(crate) due: Time,
}

enum Wanted {
    Set(PolicyRecord),
    Removed(PolicyRecord),
}

impl Wanted {
    fn change(&self) -> Change {
        match self {
            Self::Set(record) => Change::SetPolicy {
                record: record.clone(),
            },
            Self::Removed(record) => Change::RemovePolicy { id: record.id },
        }
    }

    /// What has come of it, as `rules` show; nothing if that is still open.
    fn outcome(&self, rules: &[PolicyRecord]) -> Option<Result<PolicyRecord, PolicyError>> {
        let is_done = match self {
            Self::Set(record) => rules.contains(record),
            Self::Removed(record) => rules.iter().all(|known| known.id != record.id),
        };
        let (Self::Set(record) | Self::Removed(record)) = self;
        is_done.then(|| Ok(record.clone()))
    }
}

impl Host {
    /// The rules there are, the newest last.
    #[must_use]
    pub fn policy_records(&self) -> &[PolicyRecord] {
        &self.registry.state().policy
    }

    /// Begins to give what lies at `path` a rule, in place of one with the same conditions;
    /// `id` is a random number. [`HostEffect::PolicyChanged`] tells what came of it.
    ///
    /// # Errors
    /// What is wrong with path or rule, as far as it can be seen at once.
    pub fn set_policy(
        &mut self,
        now: Time,
        wall: WallTime,
        path: &str,
        (id, rule): (u32, PolicyRule),
    ) -> Result<PolicyTicket, PolicyError> {
        let names = names_of(path).map_err(|(path, why)| PolicyError::Path { path, why })?;
        if let (Some(from_bytes), Some(below_bytes)) = (rule.when.from_bytes, rule.when.below_bytes)
            && from_bytes >= below_bytes
        {
            return Err(PolicyError::Lengths {
                from_bytes,
                below_bytes,
            });
        }
        if self.walks.len() >= WALKS_MAX {
            return Err(PolicyError::Busy);
        }
        let walk = Walk::new(&names, Goal::Policy(id, rule));
        let number = self.begin_walk(now, walk, volume_root());
        self.pump(now, wall);
        Ok(PolicyTicket(number))
    }

    /// Begins to have a rule no more; [`HostEffect::PolicyChanged`] tells what came of it.
    ///
    /// # Errors
    /// Why not, as far as it can be seen at once.
    pub fn remove_policy(
        &mut self,
        now: Time,
        wall: WallTime,
        id: u32,
    ) -> Result<PolicyTicket, PolicyError> {
        let known = self.policy_records().iter().find(|known| known.id == id);
        let wanted = Wanted::Removed(known.ok_or(PolicyError::Unknown(id))?.clone());
        self.walks_total += 1;
        let ticket = PolicyTicket(self.walks_total);
        self.change_policy(now, ticket, wanted)?;
        self.pump(now, wall);
        Ok(ticket)
    }

    /// What a rule is of is found.
    pub(crate) fn finish_policy(
        &mut self,
        now: Time,
        ticket: PolicyTicket,
        path: String,
        (id, rule): (u32, PolicyRule),
        place: FileRef,
    ) {
        let record = PolicyRecord {
            id,
            path,
            place: place.into(),
            rule,
        };
        if let Err(error) = self.change_policy(now, ticket, Wanted::Set(record)) {
            self.end_policy(ticket, Err(error));
        }
    }

    /// It is not found.
    pub(crate) fn fail_policy(&mut self, ticket: PolicyTicket, path: String, error: WalkError) {
        let error = match error {
            WalkError::NotFound | WalkError::NotDirectory => PolicyError::NotFound { path },
            WalkError::Volume(error) => PolicyError::Volume(error),
        };
        self.end_policy(ticket, Err(error));
    }

    fn end_policy(&mut self, ticket: PolicyTicket, result: Result<PolicyRecord, PolicyError>) {
        self.effects
            .push_back(HostEffect::PolicyChanged { ticket, result });
    }

    /// Makes a change durable, then tells the doors; or sends it to the registry that
    /// others share, from where it comes back with the next state.
    fn change_policy(
        &mut self,
        now: Time,
        ticket: PolicyTicket,
        wanted: Wanted,
    ) -> Result<(), PolicyError> {
        if self.registry.is_shared() && !self.following.has_joined {
            return Err(PolicyError::NotJoined);
        }
        if self.policy_changes.len() >= WALKS_MAX {
            return Err(PolicyError::Busy);
        }
        let changed = self.registry.change(wanted.change());
        changed.map_err(|error| match error {
            OpenError::Conflict(Conflict::Full { .. }) => PolicyError::TooMany,
            error => PolicyError::Registry(error.to_string()),
        })?;
        self.policy_changes.push(PolicyChange {
            ticket,
            wanted,
            due: now + REGISTRY_PATIENCE,
        });
        self.tell_policy();
        self.tell_exports(); // They say what they lie in.
        self.settle_policy(now);
        Ok(())
    }

    /// Answers those whose change is in the registry, or cannot come there any more.
    pub(crate) fn settle_policy(&mut self, now: Time) {
        for change in std::mem::take(&mut self.policy_changes) {
            let outcome = change.wanted.outcome(self.policy_records());
            let late = (change.due <= now).then_some(Err(PolicyError::Unanswered));
            match outcome.or(late) {
                Some(result) => self.end_policy(change.ticket, result),
                None => self.policy_changes.push(change),
            }
        }
    }

    /// From now on this gateway, whose nodes send to clients, keeps what is read again and
    /// again: it would never see it otherwise.
    pub fn keep_hot(&mut self) {
        self.keeps_hot = true;
        self.tell_policy();
    }

    /// The registry may hold other rules than before.
    pub(crate) fn tell_policy(&mut self) {
        let rules = self.policy_records().iter();
        let rules = rules.map(|record| (record.place.into(), record.rule));
        let policy = Policy {
            rules: rules.collect(),
            hot_file_bytes_max: match self.keeps_hot {
                true => GATEWAY_HOT_FILE_BYTES_MAX,
                false => 0,
            },
        };
        if policy != *self.policy {
            self.policy = Arc::new(policy);
            let (nfs, http) = (Arc::clone(&self.policy), Arc::clone(&self.policy));
            self.queue.push_back(Message::Door(NfsInput::Policy(nfs)));
            self.queue.push_back(Message::Http(HttpInput::Policy(http)));
        }
    }
}
