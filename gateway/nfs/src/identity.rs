//! Who calls: from credentials to callers.

use crossdock_peer::{Caller, Squash};
use crossdock_rpc::{AuthStatus, Credential, FLAVOR_SHORT, Groups};

/// What a credential says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Nothing.
    Anonymous,
    Sys {
        uid: u32,
        gid: u32,
        groups: Groups,
    },
}

impl Identity {
    /// Who `credential` says the caller is.
    ///
    /// # Errors
    /// What to answer to flavours that are not believed here.
    pub(crate) fn of(credential: &Credential<'_>) -> Result<Self, AuthStatus> {
        match credential {
            Credential::None => Ok(Self::Anonymous),
            Credential::Sys(sys) => Ok(Self::Sys {
                uid: sys.uid,
                gid: sys.gid,
                groups: sys.groups,
            }),
            Credential::Other {
                flavor: FLAVOR_SHORT,
                ..
            } => Err(AuthStatus::RejectedCredential),
            Credential::Other { .. } => Err(AuthStatus::TooWeak),
        }
    }
}

/// The last caller of a connection: most calls come from the same one, and its
/// list of groups is then shared instead of made anew.
#[derive(Debug, Default)]
pub(crate) struct CallerCache {
    last: Option<(Squash, Identity, Caller)>,
}

impl CallerCache {
    /// The caller of `identity` after squashing.
    pub(crate) fn caller(&mut self, squash: &Squash, identity: &Identity) -> Caller {
        if let Some((same, known, caller)) = &self.last
            && same == squash
            && known == identity
        {
            return caller.clone();
        }
        let caller = match identity {
            Identity::Anonymous => squash.anonymous(),
            Identity::Sys { uid, gid, groups } => squash.caller(*uid, *gid, groups.as_slice()),
        };
        self.last = Some((*squash, *identity, caller.clone()));
        caller
    }
}
