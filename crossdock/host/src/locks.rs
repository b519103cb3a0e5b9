//! Locks as an administrator sees them: all of them, and those of clients that
//! will never come back given up.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bytes::Bytes;
use crossdock_locks::{Holdings, Locks};
use crossdock_peer::{
    LockOperation, LockOwner, LockRange, ShareTerms, SiteAnswer, SiteError, SiteOperation,
};
use crossdock_site::Site;
use crossdock_types::{Time, WallTime};
use thiserror::Error;

use crate::host::{Host, HostEffect};
use crate::walks::{Goal, WALKS_MAX, Walk, volume_root};

/// Locks that are listed at most.
const LISTED_MAX: usize = 65_536;

/// Which [`Host::release_locks`] an effect answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReleaseTicket(pub(crate) u64);

/// All locks there are.
#[derive(Clone, Debug, Default)]
pub struct LockList {
    /// The locks, by file, as many as are listed at most.
    pub locks: Vec<PlacedLock>,
    /// How many there are: ranges, reservations and requests that wait.
    pub count: usize,
    /// Whether only clients that had locks before the restart get any.
    pub is_grace: bool,
}

/// A lock, and where its file lies now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedLock {
    /// Serial of the file.
    pub file: u64,
    /// One of its paths from the volume's root on.
    pub path: Option<String>,
    /// Who has it or waits for it.
    pub owner: LockOwner,
    /// What it is.
    pub what: LockKind,
}

/// What somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// A range, or the wish for one.
    Range {
        /// Of which bytes.
        range: LockRange,
        /// Exclusive or shared.
        is_exclusive: bool,
        /// Whether it waits.
        is_waiting: bool,
    },
    /// A share reservation.
    Reservation(ShareTerms),
}

/// Why no lock was given up.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReleaseError {
    /// Nobody of that name has any.
    #[error("no client {0} has locks or waits for one; crossdock lock list shows who does")]
    Unknown(String),
    /// The volume does not answer now.
    #[error("the volume did not answer ({0}); crossdock status may show why; try again")]
    Volume(SiteError),
    /// Too many at once.
    #[error("{WALKS_MAX} orders are being carried out at this moment; try again")]
    Busy,
}

impl Host {
    /// The locks there are.
    #[must_use]
    pub fn locks(&self) -> LockList {
        let mut list = LockList::default();
        for site in self.sites.values() {
            let table = site.lock_table();
            list.is_grace |= table.is_grace();
            list.count += table.len() + table.waiting();
            list.locks.extend(locks_of(site, table));
        }
        list.locks.truncate(LISTED_MAX);
        list
    }

    /// Begins to give up all that the clients of that name, or at that address,
    /// have and wait for; [`HostEffect::LocksReleased`] tells what came of it.
    ///
    /// # Errors
    /// [`ReleaseError::Unknown`], [`ReleaseError::Busy`].
    pub fn release_locks(
        &mut self,
        now: Time,
        wall: WallTime,
        client: &str,
    ) -> Result<ReleaseTicket, ReleaseError> {
        let name = match client.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().to_string(),
            Err(_) => client.to_owned(),
        };
        let file = volume_root();
        let tables = self.sites.values().map(|site| site.lock_table());
        let mut has = Holdings::default();
        for table in tables {
            let here = table.holdings(name.as_bytes());
            has.clients = has.clients.max(here.clients);
            has.held += here.held;
            has.waiting += here.waiting;
        }
        if has.clients == 0 {
            return Err(ReleaseError::Unknown(client.to_owned()));
        }
        if self.walks.len() >= WALKS_MAX {
            return Err(ReleaseError::Busy);
        }
        let walk = Walk::new(&[], Goal::AskedRelease(has));
        self.walks_total += 1;
        let number = self.walks_total;
        let operation = LockOperation::Release(Bytes::from(name));
        self.ask_for_walk(now, number, walk, SiteOperation::Locks { file, operation });
        self.pump(now, wall);
        Ok(ReleaseTicket(number))
    }

    /// A site has given locks up, or why not.
    pub(crate) fn take_release(
        &mut self,
        number: u64,
        had: Holdings,
        outcome: Result<SiteAnswer, SiteError>,
    ) {
        let result = match outcome {
            Ok(SiteAnswer::Done) => Ok(had),
            Ok(_) => Err(ReleaseError::Volume(SiteError::Io)), // No answer to that.
            Err(error) => Err(ReleaseError::Volume(error)),
        };
        let ticket = ReleaseTicket(number);
        self.effects
            .push_back(HostEffect::LocksReleased { ticket, result });
    }
}

fn locks_of(site: &Site, table: &Locks) -> Vec<PlacedLock> {
    let ranges = table.list(LISTED_MAX);
    let reservations = table.reservations(LISTED_MAX.saturating_sub(ranges.len()));
    let ranges = ranges.into_iter().map(|listed| PlacedLock {
        file: listed.file,
        path: None,
        owner: listed.lock.owner,
        what: LockKind::Range {
            range: listed.lock.range,
            is_exclusive: listed.lock.is_exclusive,
            is_waiting: listed.is_waiting,
        },
    });
    let reservations = reservations
        .into_iter()
        .map(|(file, owner, terms)| PlacedLock {
            file,
            path: None,
            owner,
            what: LockKind::Reservation(terms),
        });
    let mut all: Vec<PlacedLock> = ranges.chain(reservations).collect();
    all.sort_by_key(|lock| lock.file); // Stable: those of a file stay in order.
    let files: BTreeSet<u64> = all.iter().map(|lock| lock.file).collect();
    let paths = site.directory().paths_of_files(&files);
    for lock in &mut all {
        lock.path = paths.get(&lock.file).cloned();
    }
    all
}
