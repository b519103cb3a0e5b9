//! Procedures of the door's programs, and how their calls can end.

use crossdock_nfs3::{self as nfs3, Reply, mount};
use crossdock_nlm::{lock, status};
use crossdock_rpc::CallHeader;

const NFS: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];
const MOUNT: [&str; 6] = ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"];
/// 17 to 19 do not exist.
const LOCK: [&str; 24] = [
    "NULL",
    "TEST",
    "LOCK",
    "CANCEL",
    "UNLOCK",
    "GRANTED",
    "TEST_MSG",
    "LOCK_MSG",
    "CANCEL_MSG",
    "UNLOCK_MSG",
    "GRANTED_MSG",
    "TEST_RES",
    "LOCK_RES",
    "CANCEL_RES",
    "UNLOCK_RES",
    "GRANTED_RES",
    "SM_NOTIFY",
    "",
    "",
    "",
    "SHARE",
    "UNSHARE",
    "NM_LOCK",
    "FREE_ALL",
];
const STATUS: [&str; 7] = [
    "NULL",
    "STAT",
    "MON",
    "UNMON",
    "UNMON_ALL",
    "SIMU_CRASH",
    "NOTIFY",
];

/// Number and name of each program, and the names of its procedures.
const PROGRAMS: [(u32, &str, &[&str]); 4] = [
    (nfs3::PROGRAM, "nfs3", &NFS),
    (mount::PROGRAM, "mount3", &MOUNT),
    (lock::PROGRAM, "nlm", &LOCK),
    (status::PROGRAM, "nsm", &STATUS),
];

/// A procedure, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(pub(super) usize);

/// A reply, as far as it is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    /// 0 or the number of the status.
    pub(super) status: u32,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
}

impl Kind {
    /// How many there are.
    pub(super) const COUNT: usize = NFS.len() + MOUNT.len() + LOCK.len() + STATUS.len();

    /// The procedure of a call. One that there is not is rejected, and counts
    /// nowhere: it may pass for NULL.
    pub(crate) fn of(header: &CallHeader<'_>) -> Self {
        let procedure = usize::try_from(header.procedure).unwrap_or(usize::MAX);
        let mut first = 0;
        for (program, _, names) in PROGRAMS {
            if header.program == program && procedure < names.len() {
                return Self(first + procedure);
            }
            first += names.len();
        }
        Self(0)
    }

    /// Number of its program, and their names.
    fn place(self) -> (u32, &'static str, &'static str) {
        let mut index = self.0;
        for (number, program, names) in PROGRAMS {
            match names.get(index) {
                Some(name) => return (number, program, name),
                None => index -= names.len(),
            }
        }
        (nfs3::PROGRAM, "nfs3", NFS[0])
    }

    pub(super) fn names(self) -> (&'static str, &'static str) {
        let (_, program, name) = self.place();
        (program, name)
    }

    pub(super) fn status(self, number: u32) -> String {
        let name = match self.place().0 {
            nfs3::PROGRAM => nfs3::Status::from_number(number).map(|status| format!("{status:?}")),
            mount::PROGRAM => {
                mount::Status::from_number(number).map(|status| format!("{status:?}"))
            }
            _ => lock::Status::from_number(number).map(|status| format!("{status:?}")),
        };
        match number {
            0 => "ok".to_owned(),
            _ => name.unwrap_or_default().to_lowercase(),
        }
    }
}

impl Answered {
    /// Of the lock manager, and of what the status monitor does to locks.
    pub(crate) fn lock(status: lock::Status) -> Self {
        Self {
            status: status.number(),
            ..Self::default()
        }
    }

    pub(crate) fn nfs(reply: &Reply) -> Self {
        let (read, written) = match reply {
            Reply::Read(Ok(read)) => (read.data.len() as u64, 0),
            Reply::Write(Ok(written)) => (0, u64::from(written.count_bytes)),
            _ => (0, 0),
        };
        Self {
            status: reply.status().map_or(0, nfs3::Status::number),
            read_bytes: read,
            written_bytes: written,
        }
    }

    pub(crate) fn mount(reply: &mount::Reply) -> Self {
        let status = match reply {
            mount::Reply::Mnt(Err(status)) => status.number(),
            _ => 0,
        };
        Self {
            status,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use crossdock_rpc::{Credential, Verifier};

    use super::*;

    /// Goal: every procedure of every program has a place of its own under its
    /// name, and what there is not has none.
    #[test]
    fn procedures_have_places_of_their_own() {
        let kind = |program, procedure| {
            let header = CallHeader {
                xid: 1,
                program,
                version: 4,
                procedure,
                credential: Credential::None,
                verifier: Verifier::NONE,
            };
            Kind::of(&header)
        };
        let mut seen = Vec::new();
        for (number, program, names) in PROGRAMS {
            for (procedure, name) in (0..).zip(names) {
                let kind = kind(number, procedure);
                assert_eq!(kind.names(), (program, *name));
                assert!(kind.0 < Kind::COUNT && !seen.contains(&kind.0));
                seen.push(kind.0);
            }
        }
        assert_eq!(seen.len(), Kind::COUNT);
        assert_eq!(kind(lock::PROGRAM, 24), Kind(0));
        assert_eq!(kind(status::PROGRAM, 6).names(), ("nsm", "NOTIFY"));
        let blocked = kind(lock::PROGRAM, 2).status(lock::Status::Blocked.number());
        assert_eq!(blocked, "blocked");
        assert_eq!(kind(nfs3::PROGRAM, 3).status(2), "noent");
    }
}
