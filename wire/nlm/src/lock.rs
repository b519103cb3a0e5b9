//! The network lock manager (Open Group C702 chapter 14).
//!
//! Versions differ in nothing but the [`Width`] of offsets, and in what their
//! statuses can say: [`Status::of_width`] knows.

mod codec;

use crossdock_xdr::xdr_enum;

pub(crate) use codec::string;

/// RPC program number.
pub const PROGRAM: u32 = 100_021;

/// The versions that exist, beside 2, which never did.
pub const VERSIONS: [u32; 3] = [1, 3, 4];

/// How wide offsets and lengths are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 32 bits: versions 1 and 3.
    Narrow,
    /// 64 bits: version 4.
    Wide,
}

impl Width {
    /// That of a version.
    #[must_use]
    pub const fn of_version(version: u32) -> Option<Self> {
        match version {
            1 | 3 => Some(Self::Narrow),
            4 => Some(Self::Wide),
            _ => None,
        }
    }
}

xdr_enum! {
    /// A procedure, by its number.
    pub enum Procedure as "NLM procedure" {
        /// Does nothing.
        Null = 0,
        /// Asks whether a lock could be had.
        Test = 1,
        /// Takes a lock.
        Lock = 2,
        /// Takes a blocked request back.
        Cancel = 3,
        /// Gives up a range.
        Unlock = 4,
        /// Server to client: a blocked request has its lock now.
        Granted = 5,
        /// TEST, answered by a call.
        TestMessage = 6,
        /// LOCK, answered by a call.
        LockMessage = 7,
        /// CANCEL, answered by a call.
        CancelMessage = 8,
        /// UNLOCK, answered by a call.
        UnlockMessage = 9,
        /// GRANTED, answered by a call.
        GrantedMessage = 10,
        /// The call that answers TEST_MSG.
        TestResult = 11,
        /// The call that answers LOCK_MSG.
        LockResult = 12,
        /// The call that answers CANCEL_MSG.
        CancelResult = 13,
        /// The call that answers UNLOCK_MSG.
        UnlockResult = 14,
        /// The call that answers GRANTED_MSG.
        GrantedResult = 15,
        /// From the status monitor of the same machine: a host has restarted.
        StatusChanged = 16,
        /// Takes a DOS share reservation.
        Share = 20,
        /// Gives it up.
        Unshare = 21,
        /// Takes a lock of a client whose state is not monitored.
        UnmonitoredLock = 22,
        /// The client has restarted: gives up all that it has.
        FreeAll = 23,
    }
}

impl Procedure {
    /// Whether `version` has it.
    #[must_use]
    pub const fn is_of_version(self, version: u32) -> bool {
        version >= 3 || self.number() <= Self::StatusChanged.number()
    }
}

xdr_enum! {
    /// What came of a request (`nlm4_stats`).
    pub enum Status as "nlm4_stats" {
        /// It was done.
        Granted = 0,
        /// Somebody else has a lock in the way.
        Denied = 1,
        /// There is no room for more locks.
        NoLocks = 2,
        /// It waits; GRANTED will be called.
        Blocked = 3,
        /// The server has just restarted: only reclaims are taken.
        GracePeriod = 4,
        /// To wait would be for ever.
        Deadlock = 5,
        /// The file system is read-only.
        ReadOnly = 6,
        /// The file is gone.
        Stale = 7,
        /// The range is beyond what a file can have.
        TooBig = 8,
        /// Something else.
        Failed = 9,
    }
}

impl Status {
    /// What an earlier version than 4 says instead.
    #[must_use]
    pub const fn of_width(self, width: Width) -> Self {
        match (width, self) {
            (Width::Narrow, Self::Deadlock) => Self::Denied,
            (Width::Narrow, Self::ReadOnly | Self::Stale | Self::TooBig | Self::Failed) => {
                Self::NoLocks
            }
            (_, status) => status,
        }
    }
}

xdr_enum! {
    /// What a share reservation keeps others from (`fsh4_mode`).
    pub enum ShareMode as "fsh4_mode" {
        /// Nothing.
        DenyNone = 0,
        /// Reading.
        DenyRead = 1,
        /// Writing.
        DenyWrite = 2,
        /// Both.
        DenyBoth = 3,
    }
}

xdr_enum! {
    /// What the owner of a share reservation does itself (`fsh4_access`).
    pub enum ShareAccess as "fsh4_access" {
        /// Nothing.
        None = 0,
        /// Reads.
        Read = 1,
        /// Writes.
        Write = 2,
        /// Both.
        Both = 3,
    }
}

/// A lock (`nlm4_lock`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock<'a> {
    /// Name of the client's machine.
    pub caller: &'a [u8],
    /// Handle of the file.
    pub file: &'a [u8],
    /// The owner within the client, opaque.
    pub owner: &'a [u8],
    /// The process within the client.
    pub process: u32,
    /// First byte.
    pub offset: u64,
    /// How many; 0 to the end of the file, wherever it will be.
    pub length: u64,
}

/// Who has a lock in the way (`nlm4_holder`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// Whether it is exclusive.
    pub is_exclusive: bool,
    /// The process.
    pub process: u32,
    /// The owner.
    pub owner: &'a [u8],
    /// First byte.
    pub offset: u64,
    /// How many; 0 to the end of the file.
    pub length: u64,
}

/// Arguments of TEST and GRANTED (`nlm4_testargs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestArguments<'a> {
    /// Comes back with the result.
    pub cookie: &'a [u8],
    /// Whether the lock is exclusive.
    pub is_exclusive: bool,
    /// The lock.
    pub lock: Lock<'a>,
}

/// Arguments of LOCK and NM_LOCK (`nlm4_lockargs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockArguments<'a> {
    /// Comes back with the result.
    pub cookie: &'a [u8],
    /// Whether to wait for it.
    pub may_block: bool,
    /// Whether the lock is exclusive.
    pub is_exclusive: bool,
    /// The lock.
    pub lock: Lock<'a>,
    /// Whether the client had it before the server restarted.
    pub is_reclaim: bool,
    /// State number of the client's status monitor.
    pub state: u32,
}

/// Arguments of CANCEL (`nlm4_cancargs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelArguments<'a> {
    /// Comes back with the result.
    pub cookie: &'a [u8],
    /// As the request had it.
    pub may_block: bool,
    /// As the request had it.
    pub is_exclusive: bool,
    /// The lock.
    pub lock: Lock<'a>,
}

/// Arguments of UNLOCK (`nlm4_unlockargs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnlockArguments<'a> {
    /// Comes back with the result.
    pub cookie: &'a [u8],
    /// The range.
    pub lock: Lock<'a>,
}

/// Arguments of SHARE and UNSHARE (`nlm4_shareargs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareArguments<'a> {
    /// Comes back with the result.
    pub cookie: &'a [u8],
    /// Name of the client's machine.
    pub caller: &'a [u8],
    /// Handle of the file.
    pub file: &'a [u8],
    /// The owner within the client.
    pub owner: &'a [u8],
    /// What it keeps others from.
    pub mode: ShareMode,
    /// What it does itself.
    pub access: ShareAccess,
    /// Whether the client had it before the server restarted.
    pub is_reclaim: bool,
}

/// Result of all but TEST and SHARE (`nlm4_res`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// That of the request.
    pub cookie: &'a [u8],
    /// What came of it.
    pub status: Status,
}

/// Result of TEST (`nlm4_testres`); the holder comes with [`Status::Denied`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestOutcome<'a> {
    /// That of the request.
    pub cookie: &'a [u8],
    /// What came of it: nothing is in the way, something is, or why neither.
    pub result: Result<Status, Holder<'a>>,
}

/// Result of SHARE and UNSHARE (`nlm4_shareres`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareOutcome<'a> {
    /// That of the request.
    pub cookie: &'a [u8],
    /// What came of it.
    pub status: Status,
    /// Meant for detecting duplicates; nobody uses it.
    pub sequence: u32,
}

/// Arguments of FREE_ALL (`nlm4_notify`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeAllArguments<'a> {
    /// Name of the client's machine.
    pub caller: &'a [u8],
    /// State number of its status monitor.
    pub state: u32,
}

/// Arguments of procedure 16, a status monitor's call-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusChange<'a> {
    /// Which host has restarted.
    pub host: &'a [u8],
    /// Its new state number.
    pub state: u32,
    /// What the monitor was told to say.
    pub private: [u8; 16],
}

/// What a procedure is called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments<'a> {
    /// Of NULL.
    Nothing,
    /// Of TEST, GRANTED and their messages.
    Test(TestArguments<'a>),
    /// Of LOCK, LOCK_MSG and NM_LOCK.
    Lock(LockArguments<'a>),
    /// Of CANCEL and CANCEL_MSG.
    Cancel(CancelArguments<'a>),
    /// Of UNLOCK and UNLOCK_MSG.
    Unlock(UnlockArguments<'a>),
    /// Of TEST_RES.
    TestResult(TestOutcome<'a>),
    /// Of the other results.
    Result(Outcome<'a>),
    /// Of SHARE and UNSHARE.
    Share(ShareArguments<'a>),
    /// Of FREE_ALL.
    FreeAll(FreeAllArguments<'a>),
    /// Of procedure 16.
    StatusChanged(StatusChange<'a>),
}

/// What a procedure answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    /// NULL, messages and their results, FREE_ALL.
    Nothing,
    /// TEST.
    Test(TestOutcome<'a>),
    /// LOCK, CANCEL, UNLOCK, GRANTED, NM_LOCK.
    Done(Outcome<'a>),
    /// SHARE and UNSHARE.
    Share(ShareOutcome<'a>),
}

/// Something of a version, for encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versioned<T>(pub Width, pub T);
