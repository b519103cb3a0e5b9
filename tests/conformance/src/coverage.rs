//! Which status every procedure has answered in the run, against what RFC 1813
//! section 3.3 lists for it.
//!
//! What this volume cannot produce from outside, and why:
//!
//! | status | reason |
//! |---|---|
//! | NFS3ERR_IO | a disk has to fail: `sim` does that, a client cannot |
//! | NFS3ERR_NXIO | only devices have it, and READ of a device is NFS3ERR_INVAL |
//! | NFS3ERR_SERVERFAULT | a bug of the server, by definition |
//! | NFS3ERR_NOTSUPP | every procedure is supported |
//! | NFS3ERR_DQUOT of RENAME, LINK | neither takes anything of a quota |
//! | NFS3ERR_MLINK | after 2^31 links |
//! | NFS3ERR_ACCES of READLINK | a link's text is anybody's who has its handle, as on Linux |
//! | NFS3ERR_EXIST of RENAME | a full directory in the way is NFS3ERR_NOTEMPTY here |
//! | NFS3ERR_NOSPC of RENAME, LINK, MKNOD, SETATTR | they take no bytes outside of the log, which has room of its own |
//! | MNT3ERR_IO, _SERVERFAULT, _NOTSUPP | as above |
//! | MNT3ERR_PERM | a client that may not is MNT3ERR_ACCES |
//!
//! JUKEBOX is not in the lists of most procedures: a client may get it at any
//! time, and none of these checks provokes it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use crossdock_nfs3::Status::{
    Acces, BadCookie, BadHandle, BadType, DQuot, Exist, FBig, Inval, IsDir, NameTooLong, NoEnt,
    NoSpc, NotDir, NotEmpty, NotSync, Perm, Rofs, Stale, TooSmall, XDev,
};
use crossdock_nfs3::{Procedure, Status, mount};

use crate::runner::{Check, Stage};

/// All statuses that can be produced were; `None` is success.
pub(crate) const CHECK: &Check = &Check {
    name: "every procedure has answered every status of RFC 1813 that this volume can produce",
    run: complete,
    has_servers: false,
};

/// What is expected of each procedure besides success.
///
/// ISDIR of SETATTR, READ, WRITE, REMOVE and LINK, ROFS of COMMIT, and PERM of
/// several are not in the RFC's lists; Linux and Ganesha answer the same.
const EXPECTED: &[(Procedure, &[Status])] = &[
    (Procedure::Getattr, &[Stale, BadHandle]),
    (
        Procedure::Setattr,
        &[
            Perm, Acces, Inval, FBig, IsDir, NotSync, Stale, BadHandle, Rofs, DQuot,
        ],
    ),
    (
        Procedure::Lookup,
        &[NoEnt, Acces, NotDir, Inval, NameTooLong, Stale, BadHandle],
    ),
    (Procedure::Access, &[Stale, BadHandle]),
    (Procedure::Readlink, &[Inval, Stale, BadHandle]),
    (Procedure::Read, &[Acces, Inval, IsDir, Stale, BadHandle]),
    (
        Procedure::Write,
        &[
            Acces, FBig, NoSpc, Inval, IsDir, Stale, BadHandle, Rofs, DQuot,
        ],
    ),
    (
        Procedure::Create,
        &[
            Acces,
            Exist,
            NotDir,
            Inval,
            NameTooLong,
            FBig,
            Stale,
            BadHandle,
            Rofs,
            DQuot,
        ],
    ),
    (
        Procedure::Mkdir,
        &[
            Acces,
            Exist,
            NotDir,
            Inval,
            NameTooLong,
            Stale,
            BadHandle,
            Rofs,
            DQuot,
        ],
    ),
    (
        Procedure::Symlink,
        &[
            Acces,
            Exist,
            NotDir,
            Inval,
            NameTooLong,
            Stale,
            BadHandle,
            Rofs,
            DQuot,
        ],
    ),
    (
        Procedure::Mknod,
        &[
            Perm,
            Acces,
            Exist,
            NotDir,
            Inval,
            NameTooLong,
            BadType,
            Stale,
            BadHandle,
            Rofs,
            DQuot,
        ],
    ),
    (
        Procedure::Remove,
        &[
            NoEnt,
            Acces,
            Perm,
            NotDir,
            IsDir,
            Inval,
            NameTooLong,
            Stale,
            BadHandle,
            Rofs,
        ],
    ),
    (
        Procedure::Rmdir,
        &[
            NoEnt,
            Acces,
            Perm,
            Inval,
            Exist,
            NotDir,
            NameTooLong,
            NotEmpty,
            Stale,
            BadHandle,
            Rofs,
        ],
    ),
    (
        Procedure::Rename,
        &[
            NoEnt,
            Acces,
            Perm,
            NotDir,
            IsDir,
            Inval,
            NameTooLong,
            NotEmpty,
            Stale,
            BadHandle,
            Rofs,
            XDev,
        ],
    ),
    (
        Procedure::Link,
        &[
            Acces,
            Exist,
            NotDir,
            IsDir,
            Inval,
            NameTooLong,
            Stale,
            BadHandle,
            Rofs,
            XDev,
        ],
    ),
    (
        Procedure::Readdir,
        &[Acces, NotDir, BadCookie, TooSmall, Stale, BadHandle],
    ),
    (
        Procedure::Readdirplus,
        &[Acces, NotDir, BadCookie, TooSmall, Stale, BadHandle],
    ),
    (Procedure::Fsstat, &[Stale, BadHandle]),
    (Procedure::Fsinfo, &[Stale, BadHandle]),
    (Procedure::Pathconf, &[Stale, BadHandle]),
    (Procedure::Commit, &[Stale, BadHandle, Inval, Rofs]),
];

const EXPECTED_OF_MNT: &[mount::Status] = &[
    mount::Status::NoEnt,
    mount::Status::NotDir,
    mount::Status::Inval,
    mount::Status::NameTooLong,
    mount::Status::Acces,
];

static SEEN: Mutex<BTreeSet<(Procedure, Option<Status>)>> = Mutex::new(BTreeSet::new());
static SEEN_OF_MNT: Mutex<BTreeSet<Option<mount::Status>>> = Mutex::new(BTreeSet::new());

/// A procedure of NFS has answered.
pub(crate) fn note(procedure: Procedure, status: Option<Status>) {
    lock(&SEEN).insert((procedure, status));
}

/// MNT has answered.
pub(crate) fn note_mount(status: Option<mount::Status>) {
    lock(&SEEN_OF_MNT).insert(status);
}

fn complete(_: &Stage<'_>) -> Result<()> {
    let mut missing = Vec::new();
    let seen = lock(&SEEN);
    // NULL has no results; it is asked by hand.
    for procedure in Procedure::ALL.iter().skip(1) {
        if !seen.contains(&(*procedure, None)) {
            missing.push(format!("{procedure:?} never succeeded"));
        }
    }
    for (procedure, statuses) in EXPECTED {
        for status in *statuses {
            if !seen.contains(&(*procedure, Some(*status))) {
                missing.push(format!("{procedure:?} never answered {status:?}"));
            }
        }
    }
    let unexpected = seen.iter().filter(|(procedure, status)| {
        let mut expected = EXPECTED.iter().filter(|(of, _)| of == procedure);
        status.is_some_and(|status| !expected.any(|(_, all)| all.contains(&status)))
    });
    for (procedure, status) in unexpected {
        missing.push(format!(
            "{procedure:?} answered {status:?}, not in the table"
        ));
    }
    let seen = lock(&SEEN_OF_MNT);
    for status in EXPECTED_OF_MNT {
        if !seen.contains(&Some(*status)) {
            missing.push(format!("MNT never answered {status:?}"));
        }
    }
    ensure!(missing.is_empty(), "{}", missing.join("; "));
    Ok(())
}

/// A check that panicked while it noted something has left a set all the same.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
