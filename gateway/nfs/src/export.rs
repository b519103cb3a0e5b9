//! Exports: which directories of the volume are mounted under which paths.

use crossdock_names::{ExportId, FileRef};
use crossdock_peer::ExportRules;

/// A directory of the volume that clients may mount.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its number, which handles carry. A number is never used for another export.
    pub id: ExportId,
    /// What clients mount: `/`, or names behind slashes.
    pub path: Vec<u8>,
    /// The directory that is mounted.
    pub root: FileRef,
    /// What it lies in, from the inside out, as far as a policy has rules of it.
    pub above: Vec<FileRef>,
    /// Who may do what.
    pub rules: ExportRules,
}

impl Export {
    /// An export for this machine only, readable and writable, without squash.
    #[must_use]
    pub fn local(id: ExportId, path: &[u8], root: FileRef) -> Self {
        Self {
            id,
            path: path.to_vec(),
            root,
            above: Vec::new(),
            rules: ExportRules::local(),
        }
    }

    /// The names that lead from its root to `path`, if `path` lies in it.
    pub(crate) fn below<'a>(&self, path: &'a [u8]) -> Option<impl Iterator<Item = &'a [u8]>> {
        let mut rest = names(path);
        let is_prefix = names(&self.path).all(|name| rest.next() == Some(name));
        is_prefix.then_some(rest)
    }
}

/// The names of a path; empty ones and `.` lead nowhere.
pub(crate) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;

    use super::*;

    /// Goal: a path belongs to an export by whole names.
    #[test]
    fn paths_match_by_names() {
        let root = FileRef {
            id: FileId(1),
            generation: 1,
        };
        let export = Export::local(ExportId(1), b"/data/a", root);
        let below = |path| export.below(path).map(|names| names.collect::<Vec<_>>());
        assert_eq!(below(b"/data/a"), Some(vec![]));
        assert_eq!(below(b"//data/./a/b/c/"), Some(vec![&b"b"[..], b"c"]));
        assert_eq!(below(b"/data/ab"), None);
        assert_eq!(below(b"/"), None);
    }
}
