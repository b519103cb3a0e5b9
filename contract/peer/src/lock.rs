//! Gateway to site: byte-range locks, share reservations, and the clients that
//! hold them; site to gateway: whom to call back.

use std::net::IpAddr;

use bytes::Bytes;
use crossdock_names::SiteId;
use serde::{Deserialize, Serialize};

/// Who holds a lock: a process of a client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockOwner {
    /// The machine.
    pub client: LockClient,
    /// The process within the client.
    pub process: u32,
    /// The owner within the client, opaque.
    pub handle: Bytes,
}

/// A machine. Its address is part of it: many are called "localhost".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockClient {
    /// Name of the machine, as it says itself.
    pub name: Bytes,
    /// From where it calls, in the canonical form.
    pub address: IpAddr,
}

/// Bytes `first..=last` of a file; a range to the end of the file, wherever it
/// will be, ends at `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockRange {
    /// First byte.
    pub first: u64,
    /// Last byte.
    pub last: u64,
}

impl LockRange {
    /// The range at `offset` with `length` bytes, 0 for all that follow; `None`
    /// if it reaches beyond the largest offset of POSIX, 2⁶³ − 1.
    #[must_use]
    pub const fn new(offset: u64, length: u64) -> Option<Self> {
        const LAST_MAX: u64 = i64::MAX.cast_unsigned();
        if offset > LAST_MAX {
            return None;
        }
        let last = match length {
            0 => u64::MAX,
            _ => match offset.checked_add(length - 1) {
                // A client that means "to the end" may say it by number.
                Some(LAST_MAX) => u64::MAX,
                Some(last) if last < LAST_MAX => last,
                _ => return None,
            },
        };
        Some(Self {
            first: offset,
            last,
        })
    }

    /// How many bytes; 0 for all that follow.
    #[must_use]
    pub const fn length(&self) -> u64 {
        match self.last {
            u64::MAX => 0,
            last => last - self.first + 1,
        }
    }

    /// Whether they have a byte in common.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// A lock that is asked for, or looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWanted {
    /// Who wants it.
    pub owner: LockOwner,
    /// Of which bytes.
    pub range: LockRange,
    /// Exclusive or shared.
    pub is_exclusive: bool,
}

/// How a lock is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockTerms {
    /// Whether to wait for it.
    pub may_block: bool,
    /// Whether the client had it before the site restarted.
    pub is_reclaim: bool,
    /// Whether the client is to be told when the site restarts.
    pub is_monitored: bool,
    /// State number of the client's status monitor.
    pub state: u32,
    /// For calling back: the file's handle as the client has it.
    pub handle: Bytes,
    /// For calling back: in which version of the protocol.
    pub version: u32,
}

/// A share reservation: what its owner does, and what it keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareTerms {
    /// 1 reads, 2 writes, 3 both.
    pub access: u8,
    /// 1 keeps others from reading, 2 from writing, 3 from both.
    pub deny: u8,
}

/// Which of a client's locks go when it has restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForgetWhat {
    /// Those that were taken under another state number than this.
    BeforeState(u32),
    /// All.
    Everything,
}

/// A grant whose client has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GrantId(pub u64);

impl GrantId {
    /// That one of a site (below 2^48).
    #[must_use]
    pub const fn new(site: SiteId, number: u64) -> Self {
        Self((site.0 as u64) << 48 | number)
    }

    /// Whose it is.
    #[must_use]
    pub const fn site(self) -> SiteId {
        SiteId((self.0 >> 48) as u16)
    }
}

/// What can be asked about locks. The file of the request is that of the lock;
/// where it is about clients, the root of the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockOperation {
    /// Whether the lock could be had.
    Test(LockWanted),
    /// Takes it.
    Lock(LockWanted, LockTerms),
    /// Takes a waiting request back.
    Cancel(LockWanted),
    /// Gives a range up.
    Unlock(LockOwner, LockRange),
    /// Takes a share reservation.
    Share(LockOwner, ShareTerms, LockTerms),
    /// Gives it up.
    Unshare(LockOwner),
    /// A client has restarted.
    Forget(LockClient, ForgetWhat),
    /// A client has been told that the site has restarted.
    Told(LockClient),
    /// A client has answered a grant: whether it wants the lock.
    GrantAnswered(GrantId, bool),
    /// All locks, for an administrator.
    List,
    /// An administrator gives up what clients of that name, or at that address
    /// in text, hold.
    Release(Bytes),
}

impl LockOperation {
    /// Whether it is about clients, wherever they have locks.
    #[must_use]
    pub const fn is_about_clients(&self) -> bool {
        matches!(
            self,
            Self::Forget(..) | Self::Told(_) | Self::List | Self::Release(_)
        )
    }
}

/// Why a lock was not given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockRefusal {
    /// Somebody else has one in the way.
    Held(LockWanted),
    /// Somebody else's share reservation is in the way.
    Shared,
    /// There is no such request to be taken back.
    NotWaiting,
    /// It waits; the client will be called.
    Blocked,
    /// The site has just restarted: only reclaims are taken.
    GracePeriod,
    /// A bound is reached.
    Full,
    /// To wait would be for ever.
    Deadlock,
}

/// A lock for a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedLock {
    /// Serial of the file.
    pub file: u64,
    /// Owner, range and kind.
    pub lock: LockWanted,
    /// Whether it waits.
    pub is_waiting: bool,
}

/// What a site has a door tell clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockNotice {
    /// The site serves: with this state number, after a restart to be told to
    /// these clients.
    Restarted {
        /// Odd, and another one than before.
        state: u32,
        /// Who had locks.
        clients: Vec<LockClient>,
    },
    /// A request that waited has its lock.
    Granted(Box<GrantedLock>),
    /// The client knows already, or needs no more to know.
    GrantSettled(GrantId),
}

/// What a client is told of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedLock {
    /// Comes back with its answer.
    pub id: GrantId,
    /// The lock.
    pub lock: LockWanted,
    /// The file's handle as the client has it.
    pub handle: Bytes,
    /// In which version of the protocol it asked.
    pub version: u32,
}
