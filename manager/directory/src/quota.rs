//! Quotas of directory trees: which cells belong to which tree, what a tree may
//! hold, and what it holds.
//!
//! A cell carries the number of its tree; what is made in a directory inherits
//! it. What a tree holds is kept by differences wherever a cell changes, so it
//! is the sum over the cells that there are, live and in every replay, and needs
//! no place in log or checkpoint. A number without a [`Tree`] means nothing: the
//! quota was removed, or a crash came before its last record. Numbers are never
//! used again.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_limits::QUOTAS_MAX;
use crossdock_names::{FileId, FileRef};
use crossdock_peer::{
    FileKind, Quota, QuotaChange, QuotaLimits, SiteError, SpaceUsage, allocated_bytes,
};

use crate::cell::Cell;
use crate::mutation::Mutation;
use crate::scan::Scan;
use crate::state::Directory;

/// The trees of a site.
#[derive(Debug)]
pub(crate) struct Quotas {
    trees: BTreeMap<u32, Tree>,
    /// Trees by the serial of their root.
    roots: BTreeMap<u64, u32>,
    /// What cells with a tree's number hold, also of trees that mean nothing.
    usage: BTreeMap<u32, Usage>,
    next_tree: u32,
}

#[derive(Clone, Copy, Debug)]
struct Tree {
    root: u64,
    limits: QuotaLimits,
    /// Not all of its cells are in the log yet, so it must not be in a checkpoint.
    is_pending: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    bytes: u64,
    files: u64,
}

/// What it takes to give a tree a quota.
#[derive(Debug)]
pub enum QuotaPlan {
    /// It has one: this changes its limits.
    Limits(Mutation),
    /// It is a new one.
    New(NewTree),
}

/// A tree that gets a quota. Its cells are in it at once
/// ([`Directory::hold_tree`]); then come the records that say so, and last
/// [`put`](Self::put), without which the others mean nothing.
#[derive(Debug)]
pub struct NewTree {
    tree: u32,
    root: u64,
    limits: QuotaLimits,
    serials: Vec<u64>, // Of all cells below, ascending.
    logged: usize,
}

impl NewTree {
    /// The first change: nobody else gets the number.
    #[must_use]
    pub const fn reserve(&self) -> Mutation {
        Mutation::NextTree {
            tree: self.tree + 1,
        }
    }

    /// The next cells, at most so many; `None` if all were given out.
    pub fn next_cells(&mut self, cells_max: usize) -> Option<Mutation> {
        let rest = &self.serials[self.logged..];
        let next = &rest[..rest.len().min(cells_max)];
        self.logged += next.len();
        (!next.is_empty()).then(|| Mutation::TagCells {
            tree: self.tree,
            serials: next.to_vec(),
        })
    }

    /// The last change: the tree is there.
    #[must_use]
    pub const fn put(&self) -> Mutation {
        Mutation::PutTree {
            tree: self.tree,
            root: self.root,
            limits: self.limits,
        }
    }
}

impl Quotas {
    pub(crate) const fn new() -> Self {
        Self {
            trees: BTreeMap::new(),
            roots: BTreeMap::new(),
            usage: BTreeMap::new(),
            next_tree: 1,
        }
    }

    pub(crate) fn put(&mut self, tree: u32, root: u64, limits: QuotaLimits) {
        self.hold(tree, root, limits, false);
    }

    pub(crate) fn remove(&mut self, tree: u32) {
        if let Some(tree) = self.trees.remove(&tree) {
            self.roots.remove(&tree.root);
        }
    }

    pub(crate) fn reserve(&mut self, next_tree: u32) {
        self.next_tree = self.next_tree.max(next_tree);
    }

    pub(crate) const fn next_tree(&self) -> Mutation {
        Mutation::NextTree {
            tree: self.next_tree,
        }
    }

    /// The first tree from that number on that may be in a checkpoint.
    pub(crate) fn next_from(&self, tree: u32) -> Option<(u32, Mutation)> {
        let mut trees = self.trees.range(tree..);
        let (&tree, found) = trees.find(|(_, tree)| !tree.is_pending)?;
        let put = Mutation::PutTree {
            tree,
            root: found.root,
            limits: found.limits,
        };
        Some((tree, put))
    }

    /// A cell is there (once more).
    pub(crate) fn came(&mut self, cell: &Cell) {
        if cell.quota_tree != 0 {
            let usage = self.usage.entry(cell.quota_tree).or_default();
            usage.bytes = usage.bytes.wrapping_add(charge(cell));
            usage.files += 1;
        }
    }

    /// A cell that was there is gone, or another one now.
    pub(crate) fn went(&mut self, cell: &Cell) {
        if cell.quota_tree == 0 {
            return;
        }
        if let Some(usage) = self.usage.get_mut(&cell.quota_tree) {
            usage.bytes = usage.bytes.wrapping_sub(charge(cell));
            usage.files -= 1;
            if usage.files == 0 {
                self.usage.remove(&cell.quota_tree);
            }
        }
    }

    /// The directory with that serial is gone, and with it its quota.
    pub(crate) fn lost_root(&mut self, serial: u64) {
        if let Some(tree) = self.roots.remove(&serial) {
            self.trees.remove(&tree);
        }
    }

    fn hold(&mut self, tree: u32, root: u64, limits: QuotaLimits, is_pending: bool) {
        self.reserve(tree.saturating_add(1));
        self.roots.insert(root, tree);
        let held = Tree {
            root,
            limits,
            is_pending,
        };
        self.trees.insert(tree, held);
    }

    fn used(&self, tree: u32) -> Usage {
        self.usage.get(&tree).copied().unwrap_or_default()
    }

    /// Whether a tree may hold so much more; everybody may who is in none.
    fn check(&self, tree: u32, bytes: u64, files: u64) -> Result<(), SiteError> {
        let Some(known) = self.trees.get(&tree) else {
            return Ok(());
        };
        let used = self.used(tree);
        let fits = |used: u64, more: u64, limit: Option<u64>| {
            more == 0 || limit.is_none_or(|limit| used.saturating_add(more) <= limit)
        };
        if fits(used.bytes, bytes, known.limits.bytes)
            && fits(used.files, files, known.limits.files)
        {
            Ok(())
        } else {
            Err(SiteError::Quota)
        }
    }
}

impl Directory {
    /// All trees with a quota, by their numbers.
    pub fn quotas(&self) -> impl Iterator<Item = Quota> {
        let trees = self.quotas.trees.iter();
        trees
            .filter(|(_, tree)| !tree.is_pending)
            .filter_map(|(&tree, _)| self.quota(tree))
    }

    /// The quota of the tree that begins at `directory`.
    #[must_use]
    pub fn quota_at(&self, directory: FileRef) -> Option<Quota> {
        let cell = self.cell(directory).ok()?;
        self.quota(*self.quotas.roots.get(&cell.serial)?)
    }

    /// Where the tree begins that keeps `directory` from having a quota of its
    /// own: quotas do not lie inside each other.
    #[must_use]
    pub fn quota_in_the_way(&self, directory: FileRef) -> Option<FileRef> {
        let cell = self.cell(directory).ok()?;
        let around = self.quotas.trees.get(&cell.quota_tree);
        if let Some(tree) = around {
            return self.file_of(tree.root).filter(|_| tree.root != cell.serial);
        }
        let mut roots = self.quotas.roots.keys();
        let inner = roots.find(|&&root| self.lies_below(root, cell.serial))?;
        self.file_of(*inner)
    }

    /// What it takes to give the tree below `directory` a quota, or other limits.
    ///
    /// # Errors
    /// [`SiteError::NotDirectory`], [`SiteError::Stale`]; [`SiteError::Invalid`]
    /// without any limit; [`SiteError::Exists`] if another tree is in the way;
    /// [`SiteError::NoSpace`] if there are as many as there may be;
    /// [`SiteError::CrossDevice`] if a part of the tree lies at another site;
    /// [`SiteError::Busy`] while it is being given its first.
    pub fn plan_quota(
        &self,
        directory: FileRef,
        change: &QuotaChange,
    ) -> Result<QuotaPlan, SiteError> {
        let root = self.directory_cell(directory)?.serial;
        let known = self.quotas.roots.get(&root);
        let known = known.and_then(|&tree| Some((tree, self.quotas.trees.get(&tree)?)));
        let before = known.map_or_else(QuotaLimits::default, |(_, tree)| tree.limits);
        let limits = change.apply(before);
        if !limits.is_limited() {
            return Err(SiteError::Invalid);
        }
        if let Some((tree, known)) = known {
            if known.is_pending {
                return Err(SiteError::Busy);
            }
            return Ok(QuotaPlan::Limits(Mutation::PutTree { tree, root, limits }));
        }
        if self.quota_in_the_way(directory).is_some() {
            return Err(SiteError::Exists);
        }
        if self.spread.is_hashed {
            return Err(SiteError::CrossDevice); // What is in it lies at all sites.
        }
        let serials = self.cells_below(root)?;
        let tree = self.quotas.next_tree;
        if self.quotas.trees.len() >= QUOTAS_MAX || tree == u32::MAX {
            return Err(SiteError::NoSpace);
        }
        Ok(QuotaPlan::New(NewTree {
            tree,
            root,
            limits,
            serials,
            logged: 0,
        }))
    }

    /// The change that takes the quota of the tree below `directory` away.
    ///
    /// # Errors
    /// [`SiteError::Stale`]; [`SiteError::NotFound`] if it has none;
    /// [`SiteError::Busy`] while it is being given one.
    pub fn plan_quota_removal(&self, directory: FileRef) -> Result<Mutation, SiteError> {
        let root = self.directory_cell(directory)?.serial;
        let tree = self.quotas.roots.get(&root).ok_or(SiteError::NotFound)?;
        if self.is_pending(*tree) {
            return Err(SiteError::Busy);
        }
        Ok(Mutation::RemoveTree { tree: *tree })
    }

    /// Puts everything below into the new tree, in memory: from now on it is
    /// counted, limited, and nothing leaves it.
    pub fn hold_tree(&mut self, new: &NewTree) {
        self.quotas.hold(new.tree, new.root, new.limits, true);
        self.tag(new.tree, &new.serials);
    }

    /// Whether the new tree is still there: its root may have been removed.
    #[must_use]
    pub fn holds_tree(&self, new: &NewTree) -> bool {
        self.is_pending(new.tree)
    }

    /// Whether `cell` may be written up to `end_bytes`.
    ///
    /// # Errors
    /// [`SiteError::Quota`].
    pub fn check_growth(&self, cell: &Cell, end_bytes: u64) -> Result<(), SiteError> {
        if cell.quota_tree == 0 {
            return Ok(());
        }
        let grown = allocated_bytes(cell.size_bytes.max(end_bytes));
        let more = grown.saturating_sub(charge(cell));
        self.quotas.check(cell.quota_tree, more, 0)
    }

    /// Whether the tree of `parent` has room for `cell`.
    pub(crate) fn check_new(&self, parent: &Cell, cell: &Cell) -> Result<(), SiteError> {
        self.quotas.check(parent.quota_tree, charge(cell), 1)
    }

    /// The tree in which a cell is; 0 = in none.
    pub(crate) fn tree_of(&self, cell: &Cell) -> u32 {
        let tree = cell.quota_tree;
        if tree != 0 && self.quotas.trees.contains_key(&tree) {
            tree
        } else {
            0
        }
    }

    /// Space as somebody sees it who looks at `file`: its tree's, if that has a
    /// quota, else the volume's.
    ///
    /// # Errors
    /// As [`cell`](Self::cell).
    pub fn space_at(&self, file: FileRef, volume: SpaceUsage) -> Result<SpaceUsage, SiteError> {
        let tree = self.cell(file)?.quota_tree;
        let Some(known) = self.quotas.trees.get(&tree) else {
            return Ok(volume);
        };
        let used = self.quotas.used(tree);
        let mut space = volume;
        if let Some(limit) = known.limits.bytes {
            space.total_bytes = limit;
            space.free_bytes = limit.saturating_sub(used.bytes);
            space.available_bytes = volume.available_bytes.min(space.free_bytes);
        }
        if let Some(limit) = known.limits.files {
            space.total_files = limit;
            space.free_files = limit.saturating_sub(used.files);
            space.available_files = volume.available_files.min(space.free_files);
        }
        Ok(space)
    }

    /// Bytes and files of each tree, counted cell by cell: what the sums have to
    /// be, for checks.
    #[must_use]
    pub fn recount_trees(&self) -> BTreeMap<u32, (u64, u64)> {
        let mut counted = BTreeMap::new();
        let mut scan = Scan::default();
        while let Some(mutation) = self.scan(&mut scan) {
            if let Mutation::PutCell(cell) = mutation
                && cell.quota_tree != 0
            {
                let (bytes, files): &mut (u64, u64) = counted.entry(cell.quota_tree).or_default();
                *bytes += cell.attributes(self.site).used_bytes;
                *files += 1;
            }
        }
        counted
    }

    /// Where directories lie now, from the site's topmost directory on; what
    /// was removed has no path. Names that are no UTF-8 are shown as well as
    /// they can be.
    #[must_use]
    pub fn paths_of(&self, directories: &[FileRef]) -> Vec<Option<String>> {
        let names = self.names_above(directories);
        let path = |directory: &FileRef| {
            self.cell(*directory).ok()?;
            let mut steps = Vec::new();
            let mut at = directory.id.serial();
            while let Some((parent, name)) = names.get(&at) {
                steps.push(name.as_str());
                at = *parent;
            }
            steps.reverse();
            Some(format!("/{}", steps.join("/")))
        };
        directories.iter().map(path).collect()
    }

    /// Puts cells into a tree, as far as they are there.
    pub(crate) fn tag(&mut self, tree: u32, serials: &[u64]) {
        self.quotas.reserve(tree.saturating_add(1));
        for &serial in serials {
            if let Some(index) = self.cell_index(serial) {
                let cell = self.cells.get_mut(index);
                self.quotas.went(cell);
                cell.quota_tree = tree;
                self.quotas.came(cell);
            }
        }
    }

    /// Serials of a directory's cell and of all below it that are in no other
    /// tree (by a further name), ascending.
    fn cells_below(&self, root: u64) -> Result<Vec<u64>, SiteError> {
        let mut found = vec![root];
        let mut unvisited = vec![root];
        while let Some(directory) = unvisited.pop() {
            let listing = self.listing(directory);
            let entries = listing.iter().flat_map(|listing| listing.entries.values());
            for index in entries {
                let child = self.entries.get(index).child();
                if child.id.site() != self.site {
                    return Err(SiteError::CrossDevice);
                }
                let cell = self.cell(child)?;
                if self.tree_of(cell) == 0 {
                    found.push(cell.serial);
                }
                if cell.is_directory() {
                    unvisited.push(cell.serial);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Name and parent of each of the directories and of all above them. Each
    /// parent is searched once, however many of its entries are wanted.
    fn names_above(&self, directories: &[FileRef]) -> BTreeMap<u64, (u64, String)> {
        let mut names = BTreeMap::new();
        let mut wanted: BTreeSet<u64> = directories.iter().map(|file| file.id.serial()).collect();
        while !wanted.is_empty() {
            let parents = wanted.iter().filter_map(|&serial| {
                let parent = self.parent_of(serial)?.id;
                (parent.site() == self.site && parent.serial() != serial).then(|| parent.serial())
            });
            let parents: BTreeSet<u64> = parents.collect();
            for &parent in &parents {
                let listing = self.listing(parent);
                let entries = listing.iter().flat_map(|listing| listing.entries.values());
                for entry in entries.map(|index| self.entries.get(index)) {
                    if entry.child().id.site() != self.site {
                        continue;
                    }
                    let child = entry.child().id.serial();
                    if wanted.contains(&child) && self.parent_of(child).is_some() {
                        let name = String::from_utf8_lossy(entry.name.as_bytes());
                        names.insert(child, (parent, name.into_owned()));
                    }
                }
            }
            wanted = parents
                .into_iter()
                .filter(|parent| !names.contains_key(parent))
                .collect();
        }
        names
    }

    fn lies_below(&self, mut serial: u64, ancestor: u64) -> bool {
        while serial != ancestor {
            match self.parent_of(serial).map(|parent| parent.id) {
                Some(parent) if parent.site() == self.site && parent.serial() != serial => {
                    serial = parent.serial();
                }
                _ => return false,
            }
        }
        true
    }

    fn file_of(&self, serial: u64) -> Option<FileRef> {
        self.cell_of(serial).map(|cell| cell.file(self.site))
    }

    fn is_pending(&self, tree: u32) -> bool {
        let tree = self.quotas.trees.get(&tree);
        tree.is_some_and(|tree| tree.is_pending)
    }

    fn quota(&self, tree: u32) -> Option<Quota> {
        let known = self.quotas.trees.get(&tree)?;
        let used = self.quotas.used(tree);
        let cell = self.cell_of(known.root);
        let generation = cell.map_or(1, |cell| cell.generation);
        Some(Quota {
            tree,
            root: FileRef {
                id: FileId::new(self.site, known.root),
                generation,
            },
            limits: known.limits,
            used_bytes: used.bytes,
            used_files: used.files,
        })
    }
}

/// Bytes that a cell counts for: what its attributes say.
fn charge(cell: &Cell) -> u64 {
    match cell.kind() {
        FileKind::Block | FileKind::Character => 0, // A device's number.
        _ => cell.used_or_device,
    }
}
