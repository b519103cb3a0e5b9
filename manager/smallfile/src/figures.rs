//! What the small files take on the nodes and in memory, and the proof that
//! no space is shared or lost.

use crossdock_names::FileId;

use crate::SmallFiles;
use crate::machine::PendingFree;
use crate::map::Block;
use crate::space::UNIT_BYTES;

/// Where the bytes of the backing objects are:
/// `backing = allocated + pending + free`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceFigures {
    /// End of the newest backing object, all before it counted whole.
    pub backing_bytes: u64,
    /// In fragments of files.
    pub allocated_bytes: u64,
    /// Freed, but not to be reused yet, or on its way back to the nodes.
    pub pending_bytes: u64,
    /// Free for new fragments.
    pub free_bytes: u64,
}

/// What the small files of a site cost in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFigures {
    /// Files that have a map record.
    pub files: usize,
    /// Bytes of the map records.
    pub map_bytes: usize,
    /// Bytes of pieces that are in the log only (with their overhead).
    pub inlined_bytes: usize,
    /// Unstable bytes (with their overhead).
    pub unstable_bytes: usize,
    /// Bytes on their way to backing objects.
    pub in_flight_bytes: usize,
}

impl SmallFiles {
    /// Serials of files with bytes that are in memory only.
    pub fn unstable_files(&self) -> impl Iterator<Item = u64> {
        let next = |serial: &u64| self.unstable.next_file(serial + 1);
        std::iter::successors(self.unstable.next_file(0), next)
    }

    /// Bytes that a file takes in backing objects and in the log.
    #[must_use]
    pub fn used_bytes(&self, file: FileId) -> u64 {
        let blocks = self.maps.get(file.serial());
        let units: u64 = blocks
            .iter()
            .map(|(_, block)| u64::from(block.units()))
            .sum();
        let inlined: usize = self
            .inlined
            .of(file.serial())
            .map(|(_, bytes)| bytes.len())
            .sum();
        units * u64::from(UNIT_BYTES) + inlined as u64
    }

    /// Where the backing bytes are.
    #[must_use]
    pub const fn space(&self) -> SpaceFigures {
        let (end, free) = (self.space.end_units(), self.space.free_units());
        let pending = self.pending_units + self.space.returning_units();
        let unit_bytes = UNIT_BYTES as u64;
        SpaceFigures {
            backing_bytes: end * unit_bytes,
            allocated_bytes: (end - free - pending) * unit_bytes,
            pending_bytes: pending * unit_bytes,
            free_bytes: free * unit_bytes,
        }
    }

    /// What it costs in memory.
    #[must_use]
    pub fn memory(&self) -> MemoryFigures {
        MemoryFigures {
            files: self.maps.files(),
            map_bytes: self.maps.memory_bytes(),
            inlined_bytes: self.inlined.charged_bytes(),
            unstable_bytes: self.unstable.charged_bytes(),
            in_flight_bytes: self.in_flight_bytes,
        }
    }

    /// Proves that fragments of files, pending and free places tile the
    /// backing space exactly: for checkers and tests; reads every record.
    ///
    /// # Errors
    /// Says where they overlap or leave a gap.
    pub fn check_space(&self) -> Result<(), String> {
        let mut places: Vec<(u64, u64, &str)> = Vec::new();
        for (_, blocks) in self.maps.iter() {
            let place = |(_, block): (usize, Block)| {
                (u64::from(block.unit), u64::from(block.units()), "file")
            };
            places.extend(blocks.iter().map(place));
        }
        let pending = |free: &PendingFree| (u64::from(free.unit), u64::from(free.units), "pending");
        places.extend(self.pending.iter().map(pending));
        places.extend(
            self.space
                .free_places()
                .map(|(unit, units)| (unit, units, "free")),
        );
        let returning = self.space.returning_places();
        places.extend(returning.map(|(unit, units)| (unit, units, "returning")));
        places.sort_unstable();
        let mut next = 0;
        for (unit, units, kind) in places {
            if unit != next {
                return Err(format!(
                    "a {kind} place begins at unit {unit}, the one before ends at {next}"
                ));
            }
            next = unit + units;
        }
        if next == self.space.end_units() {
            Ok(())
        } else {
            Err(format!(
                "places end at unit {next}, the space at {}",
                self.space.end_units()
            ))
        }
    }
}
