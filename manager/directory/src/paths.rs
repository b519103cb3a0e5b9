//! Where files lie, for reports.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_names::FileRef;

use crate::state::Directory;

impl Directory {
    /// The topmost directory of this site on the way from `directory` up, and its
    /// parent, which is another site's; nothing if that is the volume's root.
    #[must_use]
    pub fn border_above(&self, directory: FileRef) -> Option<(FileRef, FileRef)> {
        let above = self.ancestors(directory);
        let parent = *above
            .last()
            .filter(|parent| parent.id.site() != self.site())?;
        let below = above.len().checked_sub(2).map(|at| above[at]);
        Some((below.unwrap_or(directory), parent))
    }

    /// The name of `child` in a directory of this site. Names that are no UTF-8 are
    /// shown as well as they can be.
    #[must_use]
    pub fn name_of(&self, directory: FileRef, child: FileRef) -> Option<String> {
        let listing = self.listing(directory.id.serial())?;
        let mut entries = listing
            .entries
            .values()
            .map(|index| self.entries.get(index));
        let entry = entries.find(|entry| entry.child() == child)?;
        Some(String::from_utf8_lossy(entry.name.as_bytes()).into_owned())
    }

    /// A path of each of these files, by serial: of several names that one which
    /// was stored first. What has no name has no path. All names are looked at
    /// once, however many files are asked for.
    #[must_use]
    pub fn paths_of_files(&self, serials: &BTreeSet<u64>) -> BTreeMap<u64, String> {
        let mut found: BTreeMap<u64, (FileRef, String)> = BTreeMap::new();
        let mut next = 0;
        while found.len() < serials.len()
            && let Some((index, entry)) = self.entries.next_from(next)
        {
            next = index + 1;
            let serial = entry.child().id.serial();
            if entry.child().id.site() == self.site
                && serials.contains(&serial)
                && let Some(parent) = self.cell_of(entry.parent())
            {
                let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
                let parent = parent.file(self.site);
                found.entry(serial).or_insert((parent, name));
            }
        }
        let parents: Vec<FileRef> = found.values().map(|(parent, _)| *parent).collect();
        let paths = self.paths_of(&parents);
        let placed = found.into_iter().zip(paths);
        placed
            .filter_map(|((serial, (_, name)), parent)| {
                let parent = parent?;
                let parent = parent.trim_end_matches('/');
                Some((serial, format!("{parent}/{name}")))
            })
            .collect()
    }
}
