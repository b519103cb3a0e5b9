//! Who calls: from credentials to callers.

use crossdock_names::ExportId;
use crossdock_peer::Caller;
use crossdock_rpc::{AuthStatus, Credential, FLAVOR_SHORT, Groups};

use crate::export::Export;

/// User and group of callers without credentials.
const NOBODY: u32 = 65534;

/// What a credential says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    uid: u32,
    gid: u32,
    groups: Groups,
}

impl Identity {
    /// Who `credential` says the caller is.
    ///
    /// # Errors
    /// What to answer to flavours that are not believed here.
    pub(crate) fn of(credential: &Credential<'_>) -> Result<Self, AuthStatus> {
        match credential {
            Credential::None => Ok(Self {
                uid: NOBODY,
                gid: NOBODY,
                groups: Groups::default(),
            }),
            Credential::Sys(sys) => Ok(Self {
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
    last: Option<(ExportId, Identity, Caller)>,
}

impl CallerCache {
    /// The caller of `identity` after the squashing of `export`.
    pub(crate) fn caller(&mut self, export: &Export, identity: &Identity) -> Caller {
        if let Some((id, known, caller)) = &self.last
            && *id == export.id
            && known == identity
        {
            return caller.clone();
        }
        let groups = identity.groups.as_slice();
        let caller = export.squash.caller(identity.uid, identity.gid, groups);
        self.last = Some((export.id, *identity, caller.clone()));
        caller
    }
}
