//! Records in chunks: an index stays valid until its record is removed, and
//! growing never doubles what is there.

/// Records of one kind; a default one is a vacant place.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    vacant: Vec<u32>,
    length: u32,
}

/// What can lie in a [`Slab`].
pub(crate) trait Record: Default {
    /// Whether there is nothing in it.
    fn is_vacant(&self) -> bool;
}

const CHUNK_RECORDS: u32 = 1024;

impl<T: Record> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            vacant: Vec::new(),
            length: 0,
        }
    }

    /// Puts `record` somewhere; its index.
    ///
    /// # Panics
    /// At 2^32 records; memory ends long before.
    pub(crate) fn insert(&mut self, record: T) -> u32 {
        if let Some(index) = self.vacant.pop() {
            *self.get_mut(index) = record;
            return index;
        }
        let index = self.length;
        if index.is_multiple_of(CHUNK_RECORDS) {
            self.chunks.push(Vec::with_capacity(CHUNK_RECORDS as usize));
        }
        self.chunks[(index / CHUNK_RECORDS) as usize].push(record);
        self.length = index
            .checked_add(1)
            .expect("2^32 records do not fit memory");
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> T {
        self.vacant.push(index);
        std::mem::take(self.get_mut(index))
    }

    pub(crate) fn get(&self, index: u32) -> &T {
        &self.chunks[(index / CHUNK_RECORDS) as usize][(index % CHUNK_RECORDS) as usize]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[(index / CHUNK_RECORDS) as usize][(index % CHUNK_RECORDS) as usize]
    }

    /// The first record at or after `index`, with its index.
    pub(crate) fn next_from(&self, index: u32) -> Option<(u32, &T)> {
        (index..self.length)
            .map(|index| (index, self.get(index)))
            .find(|(_, record)| !record.is_vacant())
    }

    pub(crate) fn len(&self) -> usize {
        self.length as usize - self.vacant.len()
    }

    /// Bytes of memory that are held.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.chunks
            .iter()
            .map(|chunk| chunk.capacity() * size_of::<T>() + size_of::<Vec<T>>())
            .sum::<usize>()
            + self.vacant.capacity() * size_of::<u32>()
    }
}
