//! What one look through the volume finds: rows of all sites and objects of all nodes
//! held against each other. Pure: who asks for them is the [check](super).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crossdock_names::{FileId, FileRef, NodeId, ObjectId, SiteId, Spread};
use crossdock_peer::{CensusClass, CensusRow, FileKind, NamePlace, Rights};
use crossdock_types::WallTime;

use super::finding::Finding;
use super::paths::{WAY_NAMES_MAX, Way};

/// What has been seen of the files of one class, and of all directories.
pub(super) struct Look {
    spread: Spread,
    class: CensusClass,
    files: HashMap<FileId, Seen>,
    names: Vec<SeenName>,
    columns: Vec<(NodeId, ObjectId)>,
    unsettled: HashSet<FileId>,
    /// Of all classes: link count and ctime of each directory or part, and how many
    /// directories have their names in it.
    directories: HashMap<FileId, Directory>,
    /// Parts of directories whose homes are not there.
    alone: Vec<Alone>,
    /// A name of each directory, and of each file of which something is found.
    places: HashMap<FileId, NamePlace>,
    pub(super) findings: BTreeSet<Finding>,
    pub(super) counts: Counts,
}

/// How much a look has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files, directories and links.
    pub files: u64,
    /// Names of them.
    pub names: u64,
    /// Objects of large files, on all nodes.
    pub objects: u64,
}

struct Seen {
    generation: u32,
    kind: FileKind,
    links: u32,
    changed: WallTime,
    columns: u16,
    segments: u32,
    parent: Option<FileId>,
    rights: Rights,
    named: u32,
    named_in: Option<NamePlace>,
}

struct SeenName {
    place: NamePlace,
    child: FileRef,
}

#[derive(Clone, Copy, Default)]
struct Directory {
    /// `None`: it has names in it and was not seen itself.
    cell: Option<(u32, u32, WallTime)>,
    names: u64,
    subdirectories: u32,
}

struct Alone {
    part: FileRef,
    changed: WallTime,
    rights: Rights,
}

/// The links of an empty directory: its name and `.`.
const LINKS_OF_EMPTY: u32 = 2;

impl Look {
    pub(super) fn new(spread: Spread, class: CensusClass) -> Self {
        Self {
            spread,
            class,
            files: HashMap::new(),
            names: Vec::new(),
            columns: Vec::new(),
            unsettled: HashSet::new(),
            directories: HashMap::new(),
            alone: Vec::new(),
            places: HashMap::new(),
            findings: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    pub(super) const fn class(&self) -> CensusClass {
        self.class
    }

    /// How much of this class is held.
    pub(super) fn held(&self) -> usize {
        self.files.len() + self.names.len() + self.columns.len()
    }

    pub(super) fn take_rows(&mut self, rows: &[CensusRow]) {
        for row in rows {
            match *row {
                CensusRow::Unsettled(file) => {
                    self.unsettled.insert(file);
                    // Whatever of a directory is unsettled, its parts differ.
                    let whole = self.whole(file);
                    self.unsettled.insert(whole);
                }
                CensusRow::File {
                    file,
                    kind,
                    links,
                    changed,
                    columns,
                    segments,
                } => {
                    self.counts.files += 1;
                    let seen = Seen {
                        generation: file.generation,
                        kind,
                        links,
                        changed,
                        columns,
                        segments,
                        parent: None,
                        rights: Rights::default(),
                        named: 0,
                        named_in: None,
                    };
                    self.files.insert(file.id, seen);
                    if kind == FileKind::Directory {
                        let directory = self.directories.entry(file.id).or_default();
                        directory.cell = Some((file.generation, links, changed));
                    }
                }
                CensusRow::Parent { directory, parent } => {
                    if let Some(seen) = self.files.get_mut(&directory) {
                        seen.parent = Some(parent.id);
                    }
                }
                CensusRow::Rights { directory, rights } => {
                    if let Some(seen) = self.files.get_mut(&directory) {
                        seen.rights = rights;
                    }
                }
                CensusRow::Name {
                    directory,
                    cookie,
                    child,
                } => {
                    self.counts.names += 1;
                    let place = NamePlace { directory, cookie };
                    self.names.push(SeenName { place, child });
                }
            }
        }
    }

    /// Objects come before rows: what is there then has its file, or is to be removed.
    pub(super) fn take_objects(&mut self, node: NodeId, objects: &[ObjectId]) {
        for &object in objects {
            let file = FileRef {
                id: FileId(object.placement),
                generation: object.generation,
            };
            if self.class.has(self.spread, file) {
                self.counts.objects += 1;
                self.columns.push((node, object));
            }
        }
    }

    /// All rows of a class have come; goes on with the next one, if there is one.
    /// What a file lacks is told only if all nodes were asked.
    pub(super) fn end_class(&mut self, has_all_nodes: bool) -> bool {
        self.resolve_names();
        self.judge_columns(has_all_nodes);
        let files = std::mem::take(&mut self.files);
        for (&id, seen) in &files {
            self.judge(&files, id, seen);
        }
        self.class.number += 1;
        if self.class.number < self.class.of {
            return true;
        }
        self.judge_directories();
        let unsettled = std::mem::take(&mut self.unsettled);
        let spread = self.spread;
        let whole = |id: FileId| spread.whole(FileRef { id, generation: 0 }).id;
        (self.findings).retain(|finding| {
            let mut files = finding.files();
            !files.any(|file| unsettled.contains(&file) || unsettled.contains(&whole(file)))
        });
        false
    }

    fn resolve_names(&mut self) {
        for name in std::mem::take(&mut self.names) {
            let SeenName { place, child } = name;
            let NamePlace { directory, cookie } = place;
            let in_it = self.directories.entry(directory.id).or_default();
            in_it.names += 1;
            let seen = self.files.get_mut(&child.id);
            match seen.filter(|seen| seen.generation == child.generation) {
                Some(seen) => {
                    if self.unsettled.contains(&directory.id) {
                        // The name may be gone, and what it names counts without it.
                        self.unsettled.insert(child.id);
                    }
                    seen.named += 1;
                    seen.named_in = Some(place);
                    if seen.kind == FileKind::Directory {
                        in_it.subdirectories += 1;
                        self.places.insert(child.id, place);
                    }
                }
                None => {
                    if self.unsettled.contains(&child.id) {
                        // A directory that is still to come counts as a link.
                        self.unsettled.insert(directory.id);
                    }
                    // What is left of it has this name, if it is a directory.
                    self.places.entry(child.id).or_insert(place);
                    self.findings.insert(Finding::Dangling {
                        directory,
                        cookie,
                        child,
                    });
                }
            }
        }
    }

    fn judge_columns(&mut self, has_all_nodes: bool) {
        let mut found: BTreeMap<FileId, BTreeSet<(u32, u16)>> = BTreeMap::new();
        for (node, object) in std::mem::take(&mut self.columns) {
            let id = FileId(object.placement);
            let seen = self.files.get(&id);
            let is_its_own = seen.is_some_and(|seen| {
                seen.generation == object.generation
                    && object.column < seen.columns
                    && object.segment < seen.segments
            });
            if is_its_own {
                let of_file = found.entry(id).or_default();
                of_file.insert((object.segment, object.column));
            } else {
                self.find(Finding::Leaked { node, object });
            }
        }
        if !has_all_nodes {
            return;
        }
        let missing = self.files.iter().filter_map(|(&id, seen)| {
            let wanted = u64::from(seen.columns) * u64::from(seen.segments);
            let there = found.get(&id).map_or(0, |of_file| of_file.len() as u64);
            (there < wanted).then(|| Finding::Missing {
                file: seen.file(id),
                changed: seen.changed,
                objects: wanted - there,
            })
        });
        for finding in missing.collect::<Vec<_>>() {
            self.find(finding);
        }
    }

    /// Notes a finding about a file of this class, and the file's name.
    fn find(&mut self, finding: Finding) {
        for file in finding.files() {
            let seen = self.files.get(&file);
            if let Some(place) = seen.and_then(|seen| seen.named_in) {
                self.places.insert(file, place);
            }
        }
        self.findings.insert(finding);
    }

    /// The names that lead to what a finding of this look is about, after its end.
    pub(super) fn way_to(&self, finding: &Finding) -> Option<Way> {
        let root = FileRef::root_of(SiteId(0)).id;
        let mut way = Way::from_iter(finding.name());
        let mut at = match way.first() {
            Some(place) => self.whole(place.directory.id),
            None => self.whole(finding.files().next()?),
        };
        while at != root {
            let place = *self.places.get(&at)?;
            way.push(place);
            if way.len() > WAY_NAMES_MAX {
                return None;
            }
            at = self.whole(place.directory.id);
        }
        Some(way)
    }

    fn judge(&mut self, files: &HashMap<FileId, Seen>, id: FileId, seen: &Seen) {
        let (file, changed) = (seen.file(id), seen.changed);
        let home = self.whole(id);
        if home != id {
            return self.judge_part(files, file, seen);
        }
        if seen.kind == FileKind::Directory {
            self.judge_parts(files, file, seen);
        }
        if file.id == FileRef::root_of(SiteId(0)).id {
            return;
        }
        let is_directory = seen.kind == FileKind::Directory;
        match (seen.named, seen.named_in) {
            (0, _) | (_, None) => {
                self.findings.insert(Finding::Orphan {
                    file,
                    changed,
                    is_directory,
                });
            }
            (1, Some(named_in)) if is_directory => {
                let named_in = self.spread.whole(named_in.directory);
                let says = seen.parent;
                if says != Some(named_in.id) {
                    let directory = file;
                    self.findings.insert(Finding::Parent {
                        directory,
                        changed,
                        says,
                        named_in,
                    });
                }
            }
            (names, _) if is_directory => {
                self.findings.insert(Finding::SeveralNames {
                    directory: file,
                    changed,
                    names,
                });
            }
            (names, Some(place)) if names != seen.links => {
                self.places.insert(id, place);
                self.findings.insert(Finding::Links {
                    file,
                    changed,
                    links: seen.links,
                    names,
                });
            }
            _ => {}
        }
    }

    /// A part has no name; it belongs to what has one.
    fn judge_part(&mut self, files: &HashMap<FileId, Seen>, part: FileRef, seen: &Seen) {
        let home = self.spread.whole(part);
        let (changed, rights) = (seen.changed, seen.rights);
        if !has(files, home) {
            self.alone.push(Alone {
                part,
                changed,
                rights,
            });
        } else if seen.parent != Some(home.id) {
            self.findings.insert(Finding::Parent {
                directory: part,
                changed,
                says: seen.parent,
                named_in: home,
            });
        }
    }

    /// Every site has its part of a directory whose names are hashed, with its rights.
    fn judge_parts(&mut self, files: &HashMap<FileId, Seen>, directory: FileRef, home: &Seen) {
        for part in self.spread.parts_of(directory).skip(1) {
            let seen = files.get(&part.id);
            let finding = match seen.filter(|seen| seen.generation == part.generation) {
                None => Finding::PartMissing {
                    directory,
                    changed: home.changed,
                    site: part.id.site(),
                    rights: home.rights,
                },
                Some(seen) if seen.rights != home.rights => Finding::PartDiffers {
                    part,
                    changed: seen.changed,
                    home_changed: home.changed,
                    rights: home.rights,
                },
                Some(_) => continue,
            };
            self.findings.insert(finding);
        }
    }

    /// Whether there are names in any part of a directory: known when all classes have
    /// been seen.
    fn has_names(&self, whole: FileRef) -> bool {
        let mut parts = self.spread.parts_of(whole);
        parts.any(|part| (self.directories.get(&part.id)).is_some_and(|part| part.names > 0))
    }

    fn judge_directories(&mut self) {
        for alone in std::mem::take(&mut self.alone) {
            let has_names = self.has_names(alone.part);
            self.findings.insert(Finding::PartAlone {
                part: alone.part,
                changed: alone.changed,
                rights: alone.rights,
                has_names,
            });
        }
        let directories = std::mem::take(&mut self.directories);
        for (&id, directory) in &directories {
            let Some((generation, links, changed)) = directory.cell else {
                // Of a directory that is there it is a part that is missing.
                let home = directories.get(&self.whole(id));
                if home.is_none_or(|home| home.cell.is_none()) {
                    self.findings.insert(Finding::Nowhere { directory: id });
                }
                continue;
            };
            let names = LINKS_OF_EMPTY + directory.subdirectories;
            if links != names {
                self.findings.insert(Finding::Links {
                    file: FileRef { id, generation },
                    changed,
                    links,
                    names,
                });
            }
        }
    }

    fn whole(&self, id: FileId) -> FileId {
        self.spread.whole(FileRef { id, generation: 0 }).id
    }
}

fn has(files: &HashMap<FileId, Seen>, file: FileRef) -> bool {
    let seen = files.get(&file.id);
    seen.is_some_and(|seen| seen.generation == file.generation)
}

impl Seen {
    const fn file(&self, id: FileId) -> FileRef {
        FileRef {
            id,
            generation: self.generation,
        }
    }
}

#[cfg(test)]
mod tests;
