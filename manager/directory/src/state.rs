//! The state of a directory site and how changes are applied to it.

use crossdock_names::{FileId, FileRef, SiteId, Spread, VolumeId};
use crossdock_peer::{Caller, Rights, SiteError};
use crossdock_types::WallTime;
use hashbrown::HashTable;
use std::collections::BTreeMap;

use crate::adopted::Adopted;
use crate::cell::Cell;
use crate::index::{ByName, BySerial};
use crate::maps::Maps;
use crate::mutation::Mutation;
use crate::names::{Entry, FIRST_COOKIE, Listing, Name, counter_of, hash_name, hash_serial};
use crate::order::Order;
use crate::quota::Quotas;
use crate::slab::Slab;

/// Names and attributes of one site. See the crate's page.
#[derive(Debug)]
pub struct Directory {
    pub(crate) site: SiteId,
    seed: u64,
    pub(crate) spread: Spread,
    pub(crate) next_serial: u64,
    pub(crate) cells: Slab<Cell>,
    cells_by_serial: BySerial,
    pub(crate) entries: Slab<Entry>,
    entries_by_name: ByName,
    pub(crate) listings: Slab<Listing>,
    listings_by_serial: HashTable<u32>,
    pub(crate) links: BTreeMap<u64, Box<[u8]>>,
    pub(crate) maps: Maps,
    pub(crate) quotas: Quotas,
    pub(crate) adopted: Adopted,
    /// Bytes on the heap of long names, of link texts and of cells.
    text_bytes: usize,
}

/// What the state costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Attribute cells.
    pub cells: usize,
    /// Name entries.
    pub entries: usize,
    /// Bytes held by records and indexes, free room included.
    pub bytes: usize,
}

/// What a link text costs beside its bytes, about.
const LINK_OVERHEAD_BYTES: usize = 32;

/// Serial of the root directory, at site 0.
const ROOT_SERIAL: u64 = 1;

impl Directory {
    /// The empty state of `site`. `seed` (of the volume) goes into hashes.
    #[must_use]
    pub fn new(site: SiteId, seed: u64) -> Self {
        Self {
            site,
            seed,
            spread: Spread::default(),
            next_serial: ROOT_SERIAL + 1,
            cells: Slab::new(),
            cells_by_serial: BySerial::new(seed),
            entries: Slab::new(),
            entries_by_name: ByName::new(),
            listings: Slab::new(),
            listings_by_serial: HashTable::new(),
            links: BTreeMap::new(),
            maps: Maps::default(),
            quotas: Quotas::new(),
            adopted: Adopted::default(),
            text_bytes: 0,
        }
    }

    /// The same for a volume whose directories lie over several sites.
    #[must_use]
    pub const fn with_spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// The site of a directory that is to be made: that of its parent where a quota
    /// is counted, which is done at one site.
    pub(crate) fn home_of(&self, parent: &Cell, name: &[u8]) -> SiteId {
        if self.tree_of(parent) != 0 {
            return self.site;
        }
        let parent = parent.file(self.site);
        self.spread.home(VolumeId(self.seed), parent, name)
    }

    /// The changes that make the root directory of a new volume, or its part at this
    /// site; none if there is none.
    #[must_use]
    pub fn make_root(&self, caller: &Caller, mode: u32, wall: WallTime) -> Vec<Mutation> {
        let root = FileRef::root_of(SiteId(0));
        let mut parts = self.spread.parts_of(root);
        let Some(own) = parts.find(|part| part.id.site() == self.site) else {
            return Vec::new();
        };
        let rights = Rights {
            uid: caller.uid,
            gid: caller.gid,
            mode,
        };
        vec![
            Mutation::PutCell(Cell::of_directory(own, rights, wall)),
            Mutation::PutDirectory {
                serial: own.id.serial(),
                parent: root,
                next_cookie: FIRST_COOKIE,
            },
        ]
    }

    /// The site.
    #[must_use]
    pub const fn site(&self) -> SiteId {
        self.site
    }

    /// The cell of `file`.
    ///
    /// # Errors
    /// [`SiteError::Stale`] if there is none of that generation,
    /// [`SiteError::Moved`] if it belongs to another site.
    pub fn cell(&self, file: FileRef) -> Result<&Cell, SiteError> {
        if file.id.site() != self.site {
            return Err(SiteError::Moved);
        }
        self.cell_of(file.id.serial())
            .filter(|cell| cell.generation == file.generation)
            .ok_or(SiteError::Stale)
    }

    /// The cell with that serial, of whatever generation.
    #[must_use]
    pub fn cell_of(&self, serial: u64) -> Option<&Cell> {
        self.cell_index(serial).map(|index| self.cells.get(index))
    }

    /// Makes a change. Any change is accepted, in any state: only a log that
    /// was written by this code is replayed.
    pub fn apply(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::PutCell(cell) => self.put_cell(cell),
            Mutation::RemoveCell { serial } => self.remove_cell(*serial),
            Mutation::PutEntry {
                parent,
                name,
                child,
                cookie,
            } => self.put_entry(*parent, name, *child, *cookie),
            Mutation::RemoveEntry { parent, name } => self.remove_entry(*parent, name),
            Mutation::PutDirectory {
                serial,
                parent,
                next_cookie,
            } => {
                let index = self.listing_or_new(*serial);
                let listing = self.listings.get_mut(index);
                listing.parent = parent.id.0;
                listing.parent_generation = parent.generation;
                listing.next_cookie = listing.next_cookie.max(*next_cookie);
            }
            Mutation::PutLink { serial, target } => {
                self.text_bytes += target.len() + LINK_OVERHEAD_BYTES;
                let old = self.links.insert(*serial, target.as_ref().into());
                self.forget_text(old.as_deref());
            }
            Mutation::PutMap {
                serial,
                window,
                columns,
            } => self.maps.put((*serial, *window), columns),
            Mutation::CutMap { serial, blocks } => self.maps.cut(*serial, *blocks),
            Mutation::NextSerial { serial } => self.next_serial = self.next_serial.max(*serial),
            Mutation::PutTree { tree, root, limits } => self.quotas.put(*tree, *root, *limits),
            Mutation::RemoveTree { tree } => self.quotas.remove(*tree),
            Mutation::TagCells { tree, serials } => self.tag(*tree, serials),
            Mutation::NextTree { tree } => self.quotas.reserve(*tree),
            Mutation::Settled { origin, below } => self.adopted.settle(*origin, *below),
        }
    }

    /// What the state costs in memory.
    #[must_use]
    pub fn memory_use(&self) -> MemoryUse {
        let bytes = self.cells.capacity_bytes()
            + self.entries.capacity_bytes()
            + self.listings.capacity_bytes()
            + self.cells_by_serial.bytes()
            + self.entries_by_name.bytes()
            + self.listings_by_serial.allocation_size()
            + Order::bytes_of(self.entries.len())
            + self.maps.bytes()
            + self.text_bytes;
        MemoryUse {
            cells: self.cells.len(),
            entries: self.entries.len(),
            bytes,
        }
    }

    /// The file that a name in a directory of this site names.
    #[must_use]
    pub fn named(&self, directory: FileRef, name: &[u8]) -> Option<FileId> {
        let entry = self.entry(directory.id.serial(), name)?;
        Some(entry.child().id)
    }

    pub(crate) fn entry(&self, parent: u64, name: &[u8]) -> Option<&Entry> {
        self.entry_index(parent, name)
            .map(|index| self.entries.get(index))
    }

    pub(crate) fn listing(&self, serial: u64) -> Option<&Listing> {
        self.listing_index(serial)
            .map(|index| self.listings.get(index))
    }

    /// The parent of a directory.
    pub(crate) fn parent_of(&self, serial: u64) -> Option<FileRef> {
        self.listing(serial).map(|listing| FileRef {
            id: FileId(listing.parent),
            generation: listing.parent_generation,
        })
    }

    pub(crate) fn put_cell(&mut self, cell: &Cell) {
        if cell.file(self.site).id.origin() == self.site {
            self.next_serial = self.next_serial.max(cell.serial + 1);
        }
        self.quotas.came(cell);
        self.text_bytes += cell.heap_bytes();
        if let Some(index) = self.cell_index(cell.serial) {
            let old = std::mem::replace(self.cells.get_mut(index), cell.clone());
            self.quotas.went(&old);
            self.text_bytes -= old.heap_bytes();
            return;
        }
        let index = self.cells.insert(cell.clone());
        self.cells_by_serial.insert(cell.serial, index);
    }

    fn remove_cell(&mut self, serial: u64) {
        self.adopted.remove(FileId::new(self.site, serial));
        if let Some(index) = self.cells_by_serial.remove(serial) {
            let old = self.cells.remove(index);
            self.quotas.went(&old);
            self.text_bytes -= old.heap_bytes();
        }
        // On replay over a checkpoint that no longer has the cell, its quota came anew.
        self.quotas.lost_root(serial);
        let text = self.links.remove(&serial);
        self.forget_text(text.as_deref());
        self.maps.cut(serial, 0);
        let listings = &self.listings;
        let hash = hash_serial(self.seed, serial);
        if let Ok(found) = self
            .listings_by_serial
            .find_entry(hash, |&index| listings.get(index).serial == serial)
        {
            let (index, _) = found.remove();
            // Live, it is empty; on replay over a newer checkpoint as well.
            for entry in self.listings.remove(index).entries.values() {
                let (parent, name) = {
                    let entry = self.entries.get(entry);
                    (entry.parent(), entry.name.clone())
                };
                self.forget_entry(parent, name.as_bytes());
            }
        }
    }

    pub(crate) fn put_entry(&mut self, parent: u64, name: &[u8], child: FileRef, cookie: u64) {
        self.remove_entry(parent, name);
        let packed = Name::new(name);
        self.text_bytes += packed.heap_bytes();
        let counter = counter_of(cookie);
        let entry = Entry::new(parent, counter, child, packed);
        let index = self.entries.insert(entry);
        let (entries, seed) = (&self.entries, self.seed);
        self.entries_by_name
            .insert(hash_name(seed, parent, name), index, |index| {
                let entry = entries.get(index);
                hash_name(seed, entry.parent(), entry.name.as_bytes())
            });
        let listing = self.listing_or_new(parent);
        let listing = self.listings.get_mut(listing);
        listing.next_cookie = listing.next_cookie.max(counter + 1);
        listing.entries.insert(counter, index);
    }

    /// Makes room for so many more cells and entries.
    pub(crate) fn expect(&mut self, cells: usize, entries: usize) {
        self.cells_by_serial.expect(cells);
        let (all, seed) = (&self.entries, self.seed);
        self.entries_by_name.expect(entries, |index| {
            let entry = all.get(index);
            hash_name(seed, entry.parent(), entry.name.as_bytes())
        });
    }

    fn remove_entry(&mut self, parent: u64, name: &[u8]) {
        if let Some(entry) = self.forget_entry(parent, name)
            && let Some(index) = self.listing_index(parent)
        {
            let listing = self.listings.get_mut(index);
            listing.entries.remove(entry.counter());
        }
    }

    /// Takes an entry out of all but its directory's listing.
    fn forget_entry(&mut self, parent: u64, name: &[u8]) -> Option<Entry> {
        let hash = hash_name(self.seed, parent, name);
        let entries = &self.entries;
        let index = self
            .entries_by_name
            .remove(hash, |index| entries.get(index).is(parent, name))?;
        let entry = self.entries.remove(index);
        self.text_bytes -= entry.name.heap_bytes();
        Some(entry)
    }

    fn forget_text(&mut self, text: Option<&[u8]>) {
        self.text_bytes -= text.map_or(0, |text| text.len() + LINK_OVERHEAD_BYTES);
    }

    fn listing_or_new(&mut self, serial: u64) -> u32 {
        if let Some(index) = self.listing_index(serial) {
            return index;
        }
        let index = self.listings.insert(Listing {
            serial,
            next_cookie: FIRST_COOKIE,
            ..Listing::default()
        });
        let (listings, seed) = (&self.listings, self.seed);
        self.listings_by_serial
            .insert_unique(hash_serial(seed, serial), index, |&index| {
                hash_serial(seed, listings.get(index).serial)
            });
        index
    }

    pub(crate) fn cell_index(&self, serial: u64) -> Option<u32> {
        self.cells_by_serial.get(serial)
    }

    fn listing_index(&self, serial: u64) -> Option<u32> {
        let hash = hash_serial(self.seed, serial);
        self.listings_by_serial
            .find(hash, |&index| self.listings.get(index).serial == serial)
            .copied()
    }

    fn entry_index(&self, parent: u64, name: &[u8]) -> Option<u32> {
        let hash = hash_name(self.seed, parent, name);
        self.entries_by_name
            .get(hash, |index| self.entries.get(index).is(parent, name))
    }
}
