//! POSIX permission checks with AUTH_SYS credentials.

use crossdock_peer::{Caller, SiteError};

use crate::cell::Cell;

/// What a caller wants to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Read its content, list a directory.
    Read,
    /// Change its content, or a directory's entries (with search).
    Write,
    /// Execute it, search a directory.
    Execute,
}

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;

const SET_USER: u32 = 0o4000;
pub(crate) const SET_GROUP: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// ACCESS3 bits (RFC 1813 section 3.3.4).
mod access {
    pub(super) const READ: u32 = 0x01;
    pub(super) const LOOKUP: u32 = 0x02;
    pub(super) const MODIFY: u32 = 0x04;
    pub(super) const EXTEND: u32 = 0x08;
    pub(super) const DELETE: u32 = 0x10;
    pub(super) const EXECUTE: u32 = 0x20;
}

impl Cell {
    /// Checks the permission bits.
    ///
    /// # Errors
    /// [`SiteError::AccessDenied`].
    pub fn check(&self, caller: &Caller, wanted: Wanted) -> Result<(), SiteError> {
        let bits = match wanted {
            Wanted::Read => READ,
            Wanted::Write if self.is_directory() => WRITE | EXECUTE,
            Wanted::Write => WRITE,
            Wanted::Execute => EXECUTE,
        };
        if self.grants(caller, bits) {
            Ok(())
        } else {
            Err(SiteError::AccessDenied)
        }
    }

    /// Checks whether content may be read or written through a handle.
    ///
    /// NFS has no open: a client that opened a file and then lost the
    /// permission, or made it without one, must still get through. So the
    /// owner always may, and who may execute may read (RFC 1813 section 4.4).
    ///
    /// # Errors
    /// [`SiteError::AccessDenied`]; [`SiteError::IsDirectory`] or
    /// [`SiteError::Invalid`] if it is no regular file.
    pub fn check_io(&self, caller: &Caller, wanted: Wanted) -> Result<(), SiteError> {
        if self.is_directory() {
            return Err(SiteError::IsDirectory);
        }
        if !self.is_regular() {
            return Err(SiteError::Invalid);
        }
        if self.is_owner(caller) {
            return Ok(());
        }
        self.check(caller, wanted).or_else(|refusal| match wanted {
            Wanted::Read => self.check(caller, Wanted::Execute),
            Wanted::Write | Wanted::Execute => Err(refusal),
        })
    }

    /// The ACCESS3 bits out of `wanted` that the caller has.
    #[must_use]
    pub fn access(&self, caller: &Caller, wanted: u32) -> u32 {
        let mut granted = 0;
        let mut grant = |bits, flags| {
            if self.grants(caller, bits) {
                granted |= flags;
            }
        };
        grant(READ, access::READ);
        if self.is_directory() {
            grant(EXECUTE, access::LOOKUP);
            grant(
                WRITE | EXECUTE,
                access::MODIFY | access::EXTEND | access::DELETE,
            );
        } else {
            grant(WRITE, access::MODIFY | access::EXTEND);
            grant(EXECUTE, access::EXECUTE);
        }
        granted & wanted
    }

    /// Whether the caller is the owner, or root.
    #[must_use]
    pub const fn is_owner(&self, caller: &Caller) -> bool {
        caller.uid == 0 || caller.uid == self.uid
    }

    /// Whether `caller` may take the entry of `child` out of this directory:
    /// in a sticky one only the owner of either.
    pub(crate) const fn check_sticky(
        &self,
        caller: &Caller,
        child: &Self,
    ) -> Result<(), SiteError> {
        if self.mode() & STICKY == 0 || self.is_owner(caller) || child.is_owner(caller) {
            Ok(())
        } else {
            Err(SiteError::NotOwner)
        }
    }

    /// Takes the set-user and set-group bits away: content or owner changed.
    pub(crate) const fn clear_set_ids(&mut self) {
        let mut cleared = SET_USER;
        // Without group execution the bit means mandatory locking.
        if self.mode() & 0o010 != 0 {
            cleared |= SET_GROUP;
        }
        self.set_mode(self.mode() & !cleared);
    }

    fn grants(&self, caller: &Caller, wanted: u32) -> bool {
        if caller.uid == 0 {
            let executable = self.is_directory() || self.mode() & 0o111 != 0;
            return wanted & EXECUTE == 0 || executable;
        }
        let shift = if caller.uid == self.uid {
            6
        } else if is_member(caller, self.gid) {
            3
        } else {
            0
        };
        (self.mode() >> shift) & wanted == wanted
    }
}

/// Whether the caller is in that group.
pub(crate) fn is_member(caller: &Caller, gid: u32) -> bool {
    caller.gid == gid || caller.groups.contains(&gid)
}
