//! Paths of what a check has found, for people: a look knows which name leads to a
//! file, and which to the directory above; sites are asked for these names when the
//! looks are over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use bytes::Bytes;
use crossdock_limits::PATH_BYTES_MAX;
use crossdock_names::{FileRef, SiteId};
use crossdock_peer::{NamePlace, SiteOperation};

use super::finding::Finding;

/// Names from a file up to the volume's root, which has none itself.
pub(super) type Way = Vec<NamePlace>;

/// What lies deeper has no path here: it may be a circle.
pub(super) const WAY_NAMES_MAX: usize = 128;

/// Names that a site is asked for at a time.
const NAMES_MAX: usize = 256;

/// The names that are still to be asked for, and those that are known.
pub(super) struct Paths {
    ways: BTreeMap<Finding, Way>,
    left: VecDeque<(SiteId, Vec<NamePlace>)>,
    names: BTreeMap<NamePlace, String>,
}

impl Paths {
    pub(super) fn new(ways: BTreeMap<Finding, Way>) -> Self {
        // Many findings lie in the same directories.
        let places: BTreeSet<NamePlace> = ways.values().flatten().copied().collect();
        let mut of_sites: BTreeMap<SiteId, Vec<NamePlace>> = BTreeMap::new();
        for place in places {
            let of_site = of_sites.entry(place.directory.id.site()).or_default();
            of_site.push(place);
        }
        let pieces = of_sites.iter().flat_map(|(&site, places)| {
            let pieces = places.chunks(NAMES_MAX);
            pieces.map(move |piece| (site, piece.to_vec()))
        });
        Self {
            left: pieces.collect(),
            ways,
            names: BTreeMap::new(),
        }
    }

    /// What is to be asked first, or again; nothing at the end.
    pub(super) fn step(&self) -> Option<SiteOperation> {
        let (site, places) = self.left.front()?;
        Some(SiteOperation::Names {
            file: FileRef::root_of(*site),
            places: places.clone(),
        })
    }

    /// The names that were asked for; whatever is not among them is not known.
    pub(super) fn take(&mut self, names: &[Option<Bytes>]) {
        let (_, places) = self.left.pop_front().unwrap_or_default();
        for (place, name) in places.into_iter().zip(names) {
            if let Some(name) = name {
                self.names.insert(place, shown(name));
            }
        }
    }

    /// From the volume's root, if there is one and all of it is known.
    pub(super) fn path_of(&self, finding: &Finding) -> Option<String> {
        let way = self.ways.get(finding)?;
        if way.is_empty() {
            return Some("/".to_owned());
        }
        let names = way.iter().rev().map(|place| self.names.get(place));
        let mut path = String::new();
        for name in names {
            path.push('/');
            path += name?;
        }
        (path.len() <= PATH_BYTES_MAX).then_some(path)
    }
}

/// A name as a terminal may be shown it, whatever its bytes are: `\xNN` for those that
/// are no UTF-8, and Rust's escapes for what cannot be seen.
fn shown(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\'' | '"' => shown.push(letter),
                _ => shown.extend(letter.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            // Nothing fails that writes to memory.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use crossdock_names::FileId;

    use super::*;

    fn place(site: u16, directory: u64, cookie: u64) -> NamePlace {
        NamePlace {
            directory: FileRef {
                id: FileId::new(SiteId(site), directory),
                generation: 1,
            },
            cookie,
        }
    }

    const fn nowhere(serial: u64) -> Finding {
        Finding::Nowhere {
            directory: FileId::new(SiteId(1), serial),
        }
    }

    /// Goal: sites are asked once for each name, and names become paths; what a site
    /// does not know has none.
    #[test]
    fn names_become_paths() {
        let (top, deep, lost) = (place(0, 1, 3), place(2, 9, 4), place(2, 9, 5));
        let ways = [
            (nowhere(1), vec![]),
            (nowhere(2), vec![top]),
            (nowhere(3), vec![deep, top]),
            (nowhere(4), vec![lost, top]),
        ];
        let mut paths = Paths::new(ways.into());
        let names = |site, places| {
            let file = FileRef::root_of(SiteId(site));
            Some(SiteOperation::Names { file, places })
        };
        assert_eq!(paths.step(), names(0, vec![top]));
        paths.take(&[Some(Bytes::from_static(b"top"))]);
        assert_eq!(paths.step(), names(2, vec![deep, lost]));
        paths.take(&[Some(Bytes::from_static(b"de\xffep")), None]);
        assert_eq!(paths.step(), None);
        let path_of = |serial| paths.path_of(&nowhere(serial));
        assert_eq!(path_of(1).as_deref(), Some("/"));
        assert_eq!(path_of(2).as_deref(), Some("/top"));
        assert_eq!(path_of(3).as_deref(), Some("/top/de\\xffep"));
        assert_eq!((path_of(4), path_of(5)), (None, None));
    }

    /// Goal: no name does anything to a terminal, or looks like another one.
    #[test]
    fn odd_names_are_escaped() {
        assert_eq!(shown("größe \"1\"".as_bytes()), "größe \"1\"");
        assert_eq!(shown(b"a\nb\x1b[2J\\\xff"), "a\\nb\\u{1b}[2J\\\\\\xff");
        assert_eq!(shown("a\u{202e}b".as_bytes()), "a\\u{202e}b");
    }
}
