//! Which callers of an export become somebody else: the one type for it, from the
//! registry's records to the door.

use serde::{Deserialize, Serialize};

use crate::Caller;

/// User and group of who has none.
pub const NOBODY: u32 = 65534;

/// Whose rights are replaced. The first letters are large in registries of
/// earlier versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Squash {
    /// Nobody's.
    #[serde(alias = "None")]
    None,
    /// User and group 0 become these.
    #[serde(alias = "Root")]
    Root {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Everybody becomes these, without further groups.
    #[serde(alias = "All")]
    All {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
    },
}

impl Squash {
    /// Who a caller without a credential is.
    #[must_use]
    pub fn anonymous(&self) -> Caller {
        let (uid, gid) = match *self {
            Self::None => (NOBODY, NOBODY),
            Self::Root { uid, gid } | Self::All { uid, gid } => (uid, gid),
        };
        Caller {
            uid,
            gid,
            groups: [].into(),
        }
    }

    /// The caller who says that he is this.
    #[must_use]
    pub fn caller(&self, uid: u32, gid: u32, groups: &[u32]) -> Caller {
        let or = |id: u32, other: u32| if id == 0 { other } else { id };
        match *self {
            Self::None => Caller {
                uid,
                gid,
                groups: groups.into(),
            },
            Self::Root {
                uid: nobody,
                gid: nogroup,
            } => Caller {
                uid: or(uid, nobody),
                gid: or(gid, nogroup),
                groups: groups.iter().map(|group| or(*group, nogroup)).collect(),
            },
            Self::All { uid, gid } => Caller {
                uid,
                gid,
                groups: [].into(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: squashing replaces the super user, or everybody, and their groups.
    #[test]
    fn squash_replaces_rights() {
        let (uid, gid) = (65534, 65534);
        let root = Squash::Root { uid, gid }.caller(0, 5, &[0, 7]);
        assert_eq!(
            (root.uid, root.gid, &root.groups[..]),
            (uid, 5, &[gid, 7][..])
        );
        let all = Squash::All { uid, gid }.caller(1, 5, &[0, 7]);
        assert_eq!((all.uid, all.gid, &all.groups[..]), (uid, gid, &[][..]));
        assert_eq!(Squash::None.caller(0, 0, &[]), Caller::root());
    }

    /// Goal: who says nothing of himself is the export's anonymous user.
    #[test]
    fn callers_without_credentials_are_anonymous() {
        let of = |squash: Squash| (squash.anonymous().uid, squash.anonymous().gid);
        assert_eq!(of(Squash::None), (NOBODY, NOBODY));
        assert_eq!(of(Squash::Root { uid: 7, gid: 8 }), (7, 8));
        assert_eq!(of(Squash::All { uid: 7, gid: 8 }), (7, 8));
    }
}
