//! What the process may do beyond its own files: nothing, once its doors are
//! bound. As root it keeps its user unless `--user` names another one, but no
//! capability.
//!
//! Called while there is one thread only: those that come later inherit from it.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid, getgid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_gid,
    set_thread_groups, set_thread_uid,
};
use tracing::info;

use crate::config::usage;

/// Capability numbers that a kernel may know.
const CAPABILITIES: u32 = 64;

/// Whom to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// A name of /etc/passwd, `UID` or `UID:GID`.
    ///
    /// # Errors
    /// There is no such user, or this process may not become it.
    pub(crate) fn find(name: &str) -> anyhow::Result<Self> {
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let Some(account) = parse(name, &users) else {
            return Err(usage(format!(
                "there is no user {name:?} in /etc/passwd; make one (useradd --system {name}), or name it by number as UID:GID"
            )));
        };
        let is_own = getuid().as_raw() == account.uid && getgid().as_raw() == account.gid;
        if !is_own && !geteuid().is_root() {
            return Err(usage(format!(
                "only root can become the user {name:?}: start crossdock as root, or as that user without --user"
            )));
        }
        Ok(account)
    }

    /// Gives the account a data directory if there is none yet. One that exists
    /// stays as it is; whose it is, is seen at its file `first`.
    ///
    /// # Errors
    /// It cannot be made, or it is not the account's.
    pub(crate) fn prepare(self, directory: &Path, first: &str) -> anyhow::Result<()> {
        if !directory.exists() {
            fs::create_dir_all(directory)
                .and_then(|()| chown(directory, Some(self.uid), Some(self.gid)))
                .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        }
        let first = directory.join(first);
        let first = if first.exists() { &first } else { directory };
        let owner = fs::metadata(first)
            .with_context(|| format!("cannot look at {}", first.display()))?
            .uid();
        if owner != self.uid {
            bail!(
                "{} belongs to user {owner}, not to {}; give it to the user with `chown -R {}:{} {}`, or leave --user away",
                first.display(),
                self.uid,
                self.uid,
                self.gid,
                directory.display()
            );
        }
        Ok(())
    }
}

fn parse(name: &str, users: &str) -> Option<Account> {
    let number = |text: &str| {
        text.parse::<u32>()
            .ok()
            .filter(|number| *number != u32::MAX)
    };
    for line in users.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [user, _, uid, gid, ..] = fields[..]
            && user == name
        {
            return Some(Account {
                uid: number(uid)?,
                gid: number(gid)?,
            });
        }
    }
    let (uid, gid) = name.split_once(':').unwrap_or((name, name));
    Some(Account {
        uid: number(uid)?,
        gid: number(gid)?,
    })
}

/// Becomes `account`, if one is given, and gives up all capabilities but `kept`,
/// those of features that need them later, too. What is started from here gets
/// no more, either.
///
/// # Errors
/// The system's. Without success the process must not go on.
pub(crate) fn drop_all_but(kept: CapabilitySet, account: Option<Account>) -> anyhow::Result<()> {
    for number in 0..CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            // Unknown to the kernel, or there is nothing that one could take.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(errno) => {
                return Err(errno).context("cannot drop a capability from the bounding set");
            }
        }
    }
    if let Some(Account { uid, gid }) = account {
        let gid = Gid::from_raw(gid);
        // An account that we are already needs no right to become it.
        if geteuid().is_root() {
            set_thread_groups(&[gid]).context("cannot give up the groups")?;
            set_thread_gid(gid).context("cannot change the group")?;
            rustix::thread::set_keep_capabilities(!kept.is_empty())
                .context("cannot keep capabilities")?;
            set_thread_uid(Uid::from_raw(uid)).context("cannot change the user")?;
        }
    }
    clear_ambient_capability_set().context("cannot clear the ambient capabilities")?;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).context("cannot drop capabilities")?;
    set_no_new_privs(true).context("cannot forbid new privileges")?;
    info!(uid = geteuid().as_raw(), kept = ?kept, "privileges dropped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names and numbers are understood, and a name that is none is not
    /// taken for root.
    #[test]
    fn accounts_are_found_by_name_and_number() {
        let users = "root:x:0:0::/:/bin/sh\ndock:x:107:113::/:/bin/false\nbad:x:y:1\n";
        let account = |uid, gid| Some(Account { uid, gid });
        assert_eq!(parse("dock", users), account(107, 113));
        assert_eq!(parse("12", users), account(12, 12));
        assert_eq!(parse("12:13", users), account(12, 13));
        for wrong in ["", "do", "bad", "dock:", "-1", "4294967295", "1:x"] {
            assert_eq!(parse(wrong, users), None, "{wrong}");
        }
    }
}
