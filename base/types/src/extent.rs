//! Bytes that are named instead of carried.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that a process with storage nodes holds in memory, and sends itself where they are
/// wanted (SPIRAL section 2). Whoever has the last clone of an extent, or of a part of it,
/// gives the pin back by dropping it.
#[derive(Clone, Debug)]
pub struct Extent {
    pinned: Arc<Pinned>,
    /// Of the first byte, in what the pin holds.
    pub offset_bytes: u64,
    /// How many.
    pub length_bytes: usize,
}

impl Extent {
    /// All of what `pin` of the process `holder` holds; given back to `released`.
    #[must_use]
    pub fn new(holder: u64, pin: u64, length_bytes: usize, released: &Released) -> Self {
        let released = released.clone();
        Self {
            pinned: Arc::new(Pinned {
                holder,
                pin,
                released,
            }),
            offset_bytes: 0,
            length_bytes,
        }
    }

    /// The process that has the bytes: a number that no other start of it has.
    #[must_use]
    pub fn holder(&self) -> u64 {
        self.pinned.holder
    }

    /// Under which the holder knows them.
    #[must_use]
    pub fn pin(&self) -> u64 {
        self.pinned.pin
    }

    /// Whether it is the same bytes of the same pin.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let key = |extent: &Self| {
            let (offset, length) = (extent.offset_bytes, extent.length_bytes);
            (extent.holder(), extent.pin(), offset, length)
        };
        key(self) == key(other)
    }

    /// Bytes `start..end` of it.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        debug_assert!(
            start <= end && end <= self.length_bytes,
            "beyond the extent"
        );
        Self {
            pinned: Arc::clone(&self.pinned),
            offset_bytes: self.offset_bytes + start as u64,
            length_bytes: end - start,
        }
    }
}

/// A pin that somebody here needs.
struct Pinned {
    holder: u64,
    pin: u64,
    released: Released,
}

impl fmt::Debug for Pinned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "pin {} of {:016x}", self.pin, self.holder)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let released = self.released.0.lock();
        let mut released = released.unwrap_or_else(PoisonError::into_inner);
        released.push((self.holder, self.pin));
    }
}

/// Pins that nobody here needs any more.
#[derive(Clone, Debug, Default)]
pub struct Released(Arc<Mutex<Vec<(u64, u64)>>>);

impl Released {
    /// Those since it was asked last: the holder of each, and the pin.
    #[must_use]
    pub fn take(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a pin is given back once, with the last part of what it holds.
    #[test]
    fn the_last_part_gives_the_pin_back() {
        let released = Released::default();
        let whole = Extent::new(7, 9, 100, &released);
        let part = whole.slice(10, 30).slice(5, 20);
        assert_eq!((part.offset_bytes, part.length_bytes), (15, 15));
        assert_eq!((part.holder(), part.pin()), (7, 9));
        drop(whole);
        assert_eq!(released.take(), []);
        drop(part);
        assert_eq!(released.take(), [(7, 9)]);
        assert_eq!(released.take(), []);
    }
}
