//! What the rest of Crossdock sees.

use std::time::{Duration, Instant};

use crossdock_members::{Change, Conflict, State};
use crossdock_names::HostId;
use thiserror::Error;

use crate::shell::{Follower, Target};

/// Which registry, and who asks.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses of the etcd cluster's members, as `http://HOST:PORT`, or `https:` with
    /// [`tls`](Self::tls).
    pub endpoints: Vec<String>,
    /// How etcd's members and this process know each other, unless they talk in the clear.
    pub tls: Option<Tls>,
    /// What the ensemble's keys begin with, e.g. `/crossdock/NAME`.
    pub prefix: String,
    /// This process.
    pub host: HostId,
    /// After how long without a sign of life a host counts as gone. etcd itself
    /// allows no less than 2 s with its default election time-out.
    pub ttl: Duration,
}

/// What TLS to etcd takes, as PEM.
#[derive(Clone)]
pub struct Tls {
    /// The certificate of the authority of etcd's members.
    pub authority: String,
    /// This process's own certificate and key, if etcd asks for one.
    pub own: Option<(String, String)>,
}

impl std::fmt::Debug for Tls {
    /// Never shows the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let own = self.own.is_some();
        write!(formatter, "Tls(own certificate: {own})")
    }
}

/// Why there is no registry.
#[derive(Debug, Error)]
pub enum Error {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Config(String),
    /// The ensemble is there already.
    #[error("there is an ensemble {prefix} in this etcd already; choose another name")]
    Exists {
        /// Where.
        prefix: String,
    },
    /// No ensemble of that name.
    #[error("there is no ensemble {prefix} in this etcd; make it with `crossdock cluster init`")]
    Missing {
        /// Where.
        prefix: String,
    },
    /// The change makes no sense with what the state is.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// No endpoint answers; each with its error.
    #[error("etcd does not answer: {0}")]
    Away(String),
    /// The key holds something that this version does not understand.
    #[error("the ensemble {prefix} was written by another version of Crossdock: {reason}")]
    Unreadable {
        /// Where.
        prefix: String,
        /// What the decoder said.
        reason: String,
    },
    /// The system gives no thread or no event loop.
    #[error("cannot start the registry's thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// What a host learns from the registry.
#[derive(Debug)]
pub enum Notice {
    /// The state of a later revision.
    State {
        /// Grows with every change.
        revision: u64,
        /// All of it.
        state: Box<State>,
    },
    /// A host that the state knows has not been heard of for at least the TTL.
    /// Repeated while that is so.
    Expired(HostId),
    /// The registry has heard of this host: it was asked to prolong the lease at that
    /// moment, and has. Nobody takes its place before the TTL has passed since then.
    Heard(Instant),
    /// No endpoint answers, for this reason. Proposals wait.
    Away(String),
    /// The registry answers again.
    Back,
}

/// Makes an ensemble: the key that holds `state` must not exist. Blocks for at most a
/// second per endpoint, and must not be called by a task of a runtime.
///
/// # Errors
/// [`Error::Exists`], [`Error::Config`], and [`Error::Away`], after which it may or may not
/// have been made.
pub fn create(config: &Config, state: &State) -> Result<(), Error> {
    Target::new(config.clone())?.create(state)
}

/// The ensemble's state and its revision. Blocks as [`create`] does.
///
/// # Errors
/// [`Error::Missing`], [`Error::Unreadable`], [`Error::Away`], [`Error::Config`].
pub fn read(config: &Config) -> Result<(u64, State), Error> {
    Target::new(config.clone())?.read()
}

/// Has an administrator's change carried out; gives the state with it. Blocks as
/// [`create`] does, longer if others change the state at the same time.
///
/// # Errors
/// [`Error::Conflict`], and those of [`read`]. After [`Error::Away`] it may have been
/// carried out.
pub fn change(config: &Config, change: &Change) -> Result<State, Error> {
    Target::new(config.clone())?.change(change)
}

/// Follows the registry from `revision` on, until the handle is dropped.
///
/// `notices` is called on the registry's own thread, in order. It must not block: while
/// it does, the lease is not prolonged.
///
/// # Errors
/// [`Error::Config`] and [`Error::Thread`]. A cluster that is away is none: it is
/// reported by [`Notice::Away`].
pub fn start(
    config: Config,
    revision: u64,
    state: State,
    notices: impl FnMut(Notice) + Send + 'static,
) -> Result<Handle, Error> {
    let follower = Target::new(config)?.start(revision, state, notices)?;
    Ok(Handle { follower })
}

/// The registry's thread. Dropping it is [`Handle::leave`].
#[derive(Debug)]
pub struct Handle {
    follower: Follower,
}

impl Handle {
    /// Has a change carried out, once etcd answers. What became of it, the next
    /// state tells; a change that finds something newer than it had seen is dropped.
    pub fn propose(&self, change: Change) {
        self.follower.propose(change);
    }

    /// Gives up this host's lease, so that others learn at once that it is gone, and
    /// ends the thread. Waits for that for two seconds at most.
    pub fn leave(self) {
        drop(self);
    }
}
