//! NLM: calls become operations of sites, answers become results.

use std::net::IpAddr;

use bytes::Bytes;
use crossdock_names::FileRef;
use crossdock_nlm::lock::{
    Arguments, Holder, Lock, LockArguments, Outcome, Procedure, Results, ShareArguments,
    ShareOutcome, Status, TestOutcome, Versioned, Width,
};
use crossdock_peer::{
    ForgetWhat, LockClient, LockOperation, LockOwner, LockRange, LockRefusal, LockTerms,
    LockWanted, ShareTerms, SiteAnswer, SiteError, SiteOperation, SiteReply,
};
use crossdock_rpc::AcceptStatus;
use crossdock_xdr::Decoder;

use crate::calls::ClientCall;
use crate::{Encoded, ROOT, Start};

/// What a handle in a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The file.
    pub file: FileRef,
    /// Whether the export lets nobody write.
    pub is_read_only: bool,
}

/// What the answer of a site is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockThen {
    kind: Kind,
    width: Width,
    cookie: Bytes,
    /// The call is a message: the result goes to this client by a call of
    /// ours, in this version.
    message: Option<(IpAddr, u32)>,
    /// What came of it already, whatever the site says.
    failed: Option<Status>,
}

/// The end of a call.
#[derive(Debug)]
pub struct Finished {
    /// The results for the caller.
    pub results: Encoded,
    /// What they, or those of the call to make, say.
    pub status: Status,
    /// For a message: the call to make.
    pub call: Option<ClientCall>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Test,
    Lock,
    Cancel,
    Unlock,
    Share,
    Unshare,
    /// FREE_ALL, and NOTIFY of NSM.
    Forget,
}

/// One call that is being read.
struct Call<'a> {
    version: u32,
    width: Width,
    client: IpAddr,
    open: &'a dyn Fn(&[u8]) -> Result<Opened, Status>,
}

/// Reads a call of NLM from `client`; `open` checks a handle.
pub fn begin_lock(
    (version, procedure): (u32, u32),
    client: IpAddr,
    decoder: &mut Decoder<'_>,
    open: &dyn Fn(&[u8]) -> Result<Opened, Status>,
) -> Start {
    let Some(width) = Width::of_version(version) else {
        return Start::Refuse(AcceptStatus::ProgramMismatch { low: 1, high: 4 });
    };
    let procedure = Procedure::from_number(procedure).filter(|p| p.is_of_version(version));
    let Some(procedure) = procedure else {
        return Start::Refuse(AcceptStatus::ProcedureUnavailable);
    };
    let Ok(arguments) = Arguments::decode(procedure, width, decoder) else {
        return Start::Refuse(AcceptStatus::GarbageArguments);
    };
    let call = Call {
        version,
        width,
        client,
        open,
    };
    call.begin(procedure, &arguments)
}

impl Call<'_> {
    fn begin(&self, procedure: Procedure, arguments: &Arguments<'_>) -> Start {
        use Procedure as P;
        let is_message = matches!(
            procedure,
            P::TestMessage | P::LockMessage | P::CancelMessage | P::UnlockMessage
        );
        let then = |kind, cookie: &[u8]| LockThen {
            kind,
            width: self.width,
            cookie: Bytes::copy_from_slice(cookie),
            message: is_message.then_some((self.client, self.version)),
            failed: None,
        };
        let (then, asked) = match *arguments {
            // We lock nothing at anybody: a grant is a mistake.
            Arguments::Test(test) if matches!(procedure, P::Granted | P::GrantedMessage) => {
                return self.no_client(procedure, test.cookie);
            }
            Arguments::Test(test) => {
                let wanted = self.wanted(&test.lock, test.is_exclusive);
                let asked = wanted.map(|(file, wanted)| (file, LockOperation::Test(wanted)));
                (then(Kind::Test, test.cookie), asked)
            }
            Arguments::Lock(lock) => {
                let is_monitored = procedure != P::UnmonitoredLock;
                (
                    then(Kind::Lock, lock.cookie),
                    self.lock(&lock, is_monitored),
                )
            }
            Arguments::Cancel(cancel) => {
                let wanted = self.wanted(&cancel.lock, cancel.is_exclusive);
                let asked = wanted.map(|(file, wanted)| (file, LockOperation::Cancel(wanted)));
                (then(Kind::Cancel, cancel.cookie), asked)
            }
            Arguments::Unlock(unlock) => {
                let wanted = self.wanted(&unlock.lock, false);
                let asked = wanted.map(|(file, wanted)| {
                    (file, LockOperation::Unlock(wanted.owner, wanted.range))
                });
                (then(Kind::Unlock, unlock.cookie), asked)
            }
            Arguments::Share(share) => {
                let is_share = procedure == P::Share;
                let kind = if is_share { Kind::Share } else { Kind::Unshare };
                (then(kind, share.cookie), self.share(&share, is_share))
            }
            Arguments::FreeAll(free) => {
                let client = self.client_named(free.caller);
                return forget(client, ForgetWhat::Everything);
            }
            // Nothing of ours waits for a result, and no monitor of another
            // machine has to tell us anything this way.
            Arguments::Nothing
            | Arguments::TestResult(_)
            | Arguments::Result(_)
            | Arguments::StatusChanged(_) => {
                return Start::Reply(Encoded::default(), Status::Granted);
            }
        };
        match asked {
            Ok((file, operation)) => {
                Start::Ask(Box::new(SiteOperation::Locks { file, operation }), then)
            }
            // A message is answered by a call, and somebody has to make it.
            Err(status) if is_message => {
                let failed = Some(status);
                Start::Ask(Box::new(nothing()), LockThen { failed, ..then })
            }
            Err(status) => Start::Reply(then.results(status), status),
        }
    }

    fn no_client(&self, procedure: Procedure, cookie: &[u8]) -> Start {
        let status = Status::Denied;
        let results = match procedure {
            Procedure::Granted => Results::Done(Outcome { cookie, status }),
            _ => Results::Nothing,
        };
        Start::Reply(Encoded::of(&Versioned(self.width, results)), status)
    }

    fn lock(
        &self,
        lock: &LockArguments<'_>,
        is_monitored: bool,
    ) -> Result<(FileRef, LockOperation), Status> {
        let (file, wanted) = self.wanted(&lock.lock, lock.is_exclusive)?;
        if lock.is_exclusive && (self.open)(lock.lock.file)?.is_read_only {
            return Err(Status::ReadOnly);
        }
        let terms = LockTerms {
            may_block: lock.may_block,
            is_reclaim: lock.is_reclaim,
            is_monitored,
            state: lock.state,
            handle: Bytes::copy_from_slice(lock.lock.file),
            version: self.version,
        };
        Ok((file, LockOperation::Lock(wanted, terms)))
    }

    fn share(
        &self,
        share: &ShareArguments<'_>,
        is_share: bool,
    ) -> Result<(FileRef, LockOperation), Status> {
        let file = (self.open)(share.file)?.file;
        let owner = LockOwner {
            client: self.client_named(share.caller),
            process: 0,
            handle: Bytes::copy_from_slice(share.owner),
        };
        if !is_share {
            return Ok((file, LockOperation::Unshare(owner)));
        }
        let low_bits = |number: u32| number.to_be_bytes()[3];
        let reservation = ShareTerms {
            access: low_bits(share.access.number()),
            deny: low_bits(share.mode.number()),
        };
        let terms = LockTerms {
            may_block: false,
            is_reclaim: share.is_reclaim,
            // SHARE is of DOS clients, which are not monitored (C702 chapter 13):
            // they say themselves when they have restarted, by FREE_ALL.
            is_monitored: false,
            state: 0,
            handle: Bytes::new(),
            version: self.version,
        };
        Ok((file, LockOperation::Share(owner, reservation, terms)))
    }

    fn wanted(&self, lock: &Lock<'_>, is_exclusive: bool) -> Result<(FileRef, LockWanted), Status> {
        let file = (self.open)(lock.file)?.file;
        let range = match self.width {
            Width::Wide => LockRange::new(lock.offset, lock.length),
            // What reaches the end of 32 bits means the end of the file.
            Width::Narrow if lock.offset + lock.length > u64::from(u32::MAX) => {
                LockRange::new(lock.offset, 0)
            }
            Width::Narrow => LockRange::new(lock.offset, lock.length),
        };
        let wanted = LockWanted {
            owner: LockOwner {
                client: self.client_named(lock.caller),
                process: lock.process,
                handle: Bytes::copy_from_slice(lock.owner),
            },
            range: range.ok_or(Status::TooBig)?,
            is_exclusive,
        };
        Ok((file, wanted))
    }

    fn client_named(&self, name: &[u8]) -> LockClient {
        LockClient {
            name: Bytes::copy_from_slice(name),
            address: self.client,
        }
    }
}

/// A client has restarted.
pub(crate) fn forget(client: LockClient, what: ForgetWhat) -> Start {
    let operation = SiteOperation::Locks {
        file: ROOT,
        operation: LockOperation::Forget(client, what),
    };
    let then = LockThen {
        kind: Kind::Forget,
        width: Width::Wide,
        cookie: Bytes::new(),
        message: None,
        failed: None,
    };
    Start::Ask(Box::new(operation), then)
}

/// A request that asks for nothing.
const fn nothing() -> SiteOperation {
    SiteOperation::GetAttributes { file: ROOT }
}

impl LockThen {
    /// Whether a call that is sent again must be recognised.
    #[must_use]
    pub const fn is_once(&self) -> bool {
        !matches!(self.kind, Kind::Test | Kind::Forget)
    }

    /// Whether it is about a client, not about a file.
    #[must_use]
    pub const fn is_of_client(&self) -> bool {
        matches!(self.kind, Kind::Forget)
    }

    /// What came of it.
    #[must_use]
    pub fn finish(&self, reply: &SiteReply) -> Finished {
        let holder = match &reply.outcome {
            Ok(SiteAnswer::NotLocked(LockRefusal::Held(held))) => Some(held),
            _ => None,
        };
        let status = self.status(reply);
        let results = match holder.filter(|_| self.kind == Kind::Test) {
            Some(held) => self.held(held),
            None => self.results(status),
        };
        match self.message {
            None => Finished {
                results,
                status,
                call: None,
            },
            Some((client, version)) => {
                let procedure = match self.kind {
                    Kind::Test => Procedure::TestResult,
                    Kind::Cancel => Procedure::CancelResult,
                    Kind::Unlock => Procedure::UnlockResult,
                    _ => Procedure::LockResult,
                };
                let call = ClientCall::Result {
                    client,
                    version,
                    procedure,
                    body: results,
                };
                Finished {
                    results: Encoded::default(),
                    status,
                    call: Some(call),
                }
            }
        }
    }

    fn status(&self, reply: &SiteReply) -> Status {
        if let Some(status) = self.failed {
            return status;
        }
        match &reply.outcome {
            Ok(SiteAnswer::NotLocked(refusal)) => match refusal {
                LockRefusal::Held(_) | LockRefusal::Shared | LockRefusal::NotWaiting => {
                    Status::Denied
                }
                LockRefusal::Blocked => Status::Blocked,
                LockRefusal::GracePeriod => Status::GracePeriod,
                LockRefusal::Full => Status::NoLocks,
                LockRefusal::Deadlock => Status::Deadlock,
            },
            Ok(_) => Status::Granted,
            Err(SiteError::Stale) => match self.kind {
                // With the file all its locks have gone.
                Kind::Unlock | Kind::Unshare | Kind::Cancel => Status::Granted,
                _ => Status::Stale,
            },
            Err(SiteError::NotProven) => Status::Stale,
            // Both mean "try again later"; there is no other way to say it.
            Err(
                SiteError::Busy | SiteError::Moved | SiteError::Unanswered | SiteError::Refused,
            ) => Status::GracePeriod,
            Err(_) => Status::Failed,
        }
    }

    fn results(&self, status: Status) -> Encoded {
        let cookie = &self.cookie[..];
        let results = match self.kind {
            Kind::Test => Results::Test(TestOutcome {
                cookie,
                result: Ok(status),
            }),
            Kind::Share | Kind::Unshare => Results::Share(ShareOutcome {
                cookie,
                status,
                sequence: 0,
            }),
            Kind::Forget => Results::Nothing,
            Kind::Lock | Kind::Cancel | Kind::Unlock => Results::Done(Outcome { cookie, status }),
        };
        Encoded::of(&Versioned(self.width, results))
    }

    fn held(&self, held: &LockWanted) -> Encoded {
        let holder = Holder {
            is_exclusive: held.is_exclusive,
            process: held.owner.process,
            owner: &held.owner.handle,
            offset: held.range.first,
            length: held.range.length(),
        };
        let results = Results::Test(TestOutcome {
            cookie: &self.cookie,
            result: Err(holder),
        });
        Encoded::of(&Versioned(self.width, results))
    }
}
