//! Where records are: cells by serial, entries by name.
//!
//! Both grow in small steps. One large table would be made anew as a whole when
//! it is full: all requests wait for that, and old and new need memory at once.

use hashbrown::HashTable;

use crate::names::hash_serial;

/// Serials whose places lie together: they are given out one after the other.
const PAGE_SERIALS: usize = 32;
/// Of a serial that has none.
const NOWHERE: u32 = u32::MAX;

/// Indexes of cells by serial.
#[derive(Debug)]
pub(crate) struct BySerial {
    pages: HashTable<Page>,
    seed: u64,
}

/// A page goes when the last of its serials does.
#[derive(Debug)]
struct Page {
    number: u64,
    taken: u32,
    places: Box<[u32; PAGE_SERIALS]>,
}

impl BySerial {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            pages: HashTable::new(),
            seed,
        }
    }

    pub(crate) fn get(&self, serial: u64) -> Option<u32> {
        let (number, slot) = place_of(serial);
        let hash = hash_serial(self.seed, number);
        let page = self.pages.find(hash, |page| page.number == number)?;
        Some(page.places[slot]).filter(|&index| index != NOWHERE)
    }

    /// Sets the place of a serial.
    pub(crate) fn insert(&mut self, serial: u64, index: u32) {
        let (number, slot) = place_of(serial);
        let (seed, hash) = (self.seed, hash_serial(self.seed, number));
        let is_it = |page: &Page| page.number == number;
        let entry = self
            .pages
            .entry(hash, is_it, |page| hash_serial(seed, page.number));
        let mut page = entry.or_insert_with(|| Page {
            number,
            taken: 0,
            places: Box::new([NOWHERE; PAGE_SERIALS]),
        });
        let page = page.get_mut();
        page.taken += u32::from(page.places[slot] == NOWHERE);
        page.places[slot] = index;
    }

    pub(crate) fn remove(&mut self, serial: u64) -> Option<u32> {
        let (number, slot) = place_of(serial);
        let hash = hash_serial(self.seed, number);
        let found = self.pages.find_entry(hash, |page| page.number == number);
        let mut found = found.ok()?;
        let page = found.get_mut();
        let index = std::mem::replace(&mut page.places[slot], NOWHERE);
        if index == NOWHERE {
            return None;
        }
        page.taken -= 1;
        if page.taken == 0 {
            found.remove();
        }
        Some(index)
    }

    /// Makes room for so many more, if their serials are dense.
    pub(crate) fn expect(&mut self, count: usize) {
        let seed = self.seed;
        let pages = count / PAGE_SERIALS;
        self.pages
            .reserve(pages, |page| hash_serial(seed, page.number));
    }

    /// Bytes of memory that are held.
    pub(crate) fn bytes(&self) -> usize {
        let places = size_of::<[u32; PAGE_SERIALS]>();
        self.pages.allocation_size() + self.pages.len() * places
    }
}

/// Page and place in it.
#[expect(clippy::cast_possible_truncation, reason = "less than a page")]
const fn place_of(serial: u64) -> (u64, usize) {
    let page = PAGE_SERIALS as u64;
    (serial / page, (serial % page) as usize)
}

/// How many tables share the entries.
const TABLES: usize = 64;

/// Indexes of entries by name.
#[derive(Debug)]
pub(crate) struct ByName {
    tables: Vec<HashTable<u32>>,
}

impl ByName {
    pub(crate) fn new() -> Self {
        Self {
            tables: (0..TABLES).map(|_| HashTable::new()).collect(),
        }
    }

    pub(crate) fn get(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let table = &self.tables[table_of(hash)];
        table.find(hash, |&index| is_it(index)).copied()
    }

    /// Adds one that is not there; `hash_of` says the hash of another.
    pub(crate) fn insert(&mut self, hash: u64, index: u32, hash_of: impl Fn(u32) -> u64) {
        let table = &mut self.tables[table_of(hash)];
        table.insert_unique(hash, index, |&index| hash_of(index));
    }

    pub(crate) fn remove(&mut self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let table = &mut self.tables[table_of(hash)];
        let found = table.find_entry(hash, |&index| is_it(index)).ok()?;
        Some(found.remove().0)
    }

    /// Makes room for so many more.
    pub(crate) fn expect(&mut self, count: usize, hash_of: impl Fn(u32) -> u64) {
        for table in &mut self.tables {
            table.reserve(count / TABLES, |&index| hash_of(index));
        }
    }

    /// Bytes of memory that are held.
    pub(crate) fn bytes(&self) -> usize {
        self.tables.iter().map(HashTable::allocation_size).sum()
    }
}

/// The table of a hash: by bits that no table uses for itself.
const fn table_of(hash: u64) -> usize {
    (hash >> 48) as usize % TABLES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: serials are found wherever they lie, and what is empty takes nothing.
    #[test]
    fn serials_come_and_go() {
        let mut cells = BySerial::new(7);
        let serials = [1, 31, 32, 33, 1 << 40, (1 << 48) - 1];
        for (index, serial) in (0..).zip(serials) {
            assert_eq!(cells.get(serial), None);
            cells.insert(serial, index);
        }
        for (index, serial) in (0..).zip(serials) {
            assert_eq!(cells.get(serial), Some(index));
            assert_eq!(cells.remove(serial), Some(index));
            assert_eq!((cells.get(serial), cells.remove(serial)), (None, None));
        }
        assert_eq!(cells.pages.len(), 0);
    }
}
