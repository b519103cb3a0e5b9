//! Directories that other sites have numbered: each is taken over once, however
//! late and often its adoption comes.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_names::{FileId, SiteId};

/// What must not come (back) any more.
#[derive(Debug, Default)]
pub(crate) struct Adopted {
    /// Per site: all that it numbered below this has been here.
    settled: BTreeMap<SiteId, u64>,
    /// Beyond that: what has been here and is gone.
    removed: BTreeSet<(SiteId, u64)>,
}

impl Adopted {
    /// Whether a directory that is not there is still to come.
    pub(crate) fn is_expected(&self, file: FileId) -> bool {
        let (origin, number) = (file.origin(), file.number());
        number >= self.settled_below(origin) && !self.removed.contains(&(origin, number))
    }

    pub(crate) fn settled_below(&self, origin: SiteId) -> u64 {
        self.settled.get(&origin).copied().unwrap_or_default()
    }

    pub(crate) fn settle(&mut self, origin: SiteId, below: u64) {
        let settled = self.settled.entry(origin).or_default();
        *settled = below.max(*settled);
        let settled = *settled;
        let own = self.removed.range((origin, 0)..(origin, settled));
        for removed in own.copied().collect::<Vec<_>>() {
            self.removed.remove(&removed);
        }
    }

    pub(crate) fn remove(&mut self, file: FileId) {
        if file.origin() != file.site() && self.is_expected(file) {
            self.removed.insert((file.origin(), file.number()));
        }
    }

    /// From that site on: the first that has settled something.
    pub(crate) fn next_settled(&self, from: SiteId) -> Option<(SiteId, u64)> {
        let next = self.settled.range(from..).next();
        next.map(|(&origin, &below)| (origin, below))
    }

    /// The first that is gone behind `after`, as a file of `site`.
    pub(crate) fn next_removed(&self, site: SiteId, after: Option<FileId>) -> Option<FileId> {
        let begin = after.map_or((SiteId(0), 0), |file| (file.origin(), file.number() + 1));
        let &(origin, number) = self.removed.range(begin..).next()?;
        Some(FileId::numbered_by(origin, site, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an adoption that comes late is told from one that is still to come,
    /// and what is remembered for it goes when its origin says so.
    #[test]
    fn late_adoptions_are_known() {
        let here = SiteId(3);
        let file = |number| FileId::numbered_by(SiteId(9), here, number);
        let mut adopted = Adopted::default();
        assert!(adopted.is_expected(file(5)));
        adopted.remove(file(5));
        assert!(!adopted.is_expected(file(5)) && adopted.is_expected(file(4)));
        assert_eq!(adopted.next_removed(here, None), Some(file(5)));
        assert_eq!(adopted.next_removed(here, Some(file(5))), None);
        adopted.settle(SiteId(9), 6);
        assert!(!adopted.is_expected(file(4)) && adopted.is_expected(file(6)));
        assert_eq!(adopted.next_removed(here, None), None);
        adopted.settle(SiteId(9), 2);
        assert_eq!(adopted.next_settled(SiteId(0)), Some((SiteId(9), 6)));
        let own = FileId::numbered_by(here, here, 7);
        adopted.remove(own);
        assert_eq!(adopted.next_removed(here, None), None);
    }
}
