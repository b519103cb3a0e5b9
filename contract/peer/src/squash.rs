//! Which callers of an export become somebody else.

use serde::{Deserialize, Serialize};

use crate::Caller;

/// Whose rights are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Squash {
    /// Nobody's.
    None,
    /// User and group 0 become these.
    Root {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Everybody becomes these, without further groups.
    All {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
    },
}

impl Squash {
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
}
