//! Where files lie, for reports.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_names::FileRef;

use crate::state::Directory;

impl Directory {
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
