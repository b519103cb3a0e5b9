//! All files and names of the site, in bounded steps, for a check of the volume.

use bytes::Bytes;
use crossdock_names::{FileId, FileRef};
use crossdock_peer::{CensusClass, CensusPlace, CensusRow, NamePlace};

use crate::cell::Cell;
use crate::names::{Entry, cookie, counter_of};
use crate::state::Directory;

/// Phase of what the directory does not know.
const BEFORE: u8 = 0;
const CELLS: u8 = 1;
const LISTINGS: u8 = 2;
const ENTRIES: u8 = 3;

/// Records that are looked at in one step, at most: most may be of other classes.
const LOOKED_AT_MAX: usize = 16_384;

impl Directory {
    /// Adds rows of that class from a place on, up to so many; where it goes on, if
    /// that was not the end. Whatever is there from beginning to end is told.
    #[must_use]
    pub fn census(
        &self,
        class: CensusClass,
        from: CensusPlace,
        rows: &mut Vec<CensusRow>,
        rows_max: usize,
    ) -> Option<CensusPlace> {
        let mut place = match from.phase {
            BEFORE => CensusPlace {
                phase: CELLS,
                index: 0,
            },
            _ => from,
        };
        for _ in 0..LOOKED_AT_MAX {
            if rows.len() >= rows_max {
                break;
            }
            let index = u32::try_from(place.index).ok()?;
            let found = match place.phase {
                CELLS => {
                    let next = self.cells.next_from(index);
                    next.map(|(index, cell)| (index, self.row_of(cell)))
                }
                LISTINGS => self.listings.next_from(index).map(|(index, listing)| {
                    let parent = CensusRow::Parent {
                        directory: FileId::new(self.site, listing.serial),
                        parent: FileRef {
                            id: FileId(listing.parent),
                            generation: listing.parent_generation,
                        },
                    };
                    (index, parent)
                }),
                ENTRIES => self.entries.next_from(index).map(|(index, entry)| {
                    let name = CensusRow::Name {
                        directory: self.named_in(entry.parent()),
                        cookie: cookie(self.site, entry.counter()),
                        child: entry.child(),
                    };
                    (index, name)
                }),
                _ => return None,
            };
            let Some((index, row)) = found else {
                place.phase += 1;
                place.index = 0;
                continue;
            };
            place.index = u64::from(index) + 1;
            if class.has(self.spread, subject_of(&row)) {
                rows.push(row);
                rows.extend(self.rights_beside(&row));
            }
        }
        Some(place)
    }

    /// What each part of a directory has of its own, and should have like the others.
    fn rights_beside(&self, row: &CensusRow) -> Option<CensusRow> {
        let CensusRow::Parent { directory, .. } = *row else {
            return None;
        };
        let cell = self.cell_of(directory.serial())?;
        self.is_split(cell).then(|| CensusRow::Rights {
            directory,
            rights: cell.rights(),
        })
    }

    /// The name with that cookie, if it is (still) there.
    #[must_use]
    pub fn name_at(&self, place: NamePlace) -> Option<Bytes> {
        let entry = self.entry_at(place.directory.id.serial(), place.cookie)?;
        Some(Bytes::copy_from_slice(entry.name.as_bytes()))
    }

    /// The entry with that cookie in the directory with that serial.
    pub(crate) fn entry_at(&self, serial: u64, cookie: u64) -> Option<&Entry> {
        let listing = self.listing(serial)?;
        let counter = counter_of(cookie);
        let next = listing.entries.after(counter.saturating_sub(1)).next();
        let (_, entry) = next.filter(|&(found, _)| found == counter)?;
        Some(self.entries.get(entry))
    }

    fn named_in(&self, serial: u64) -> FileRef {
        let cell = self.cell_of(serial);
        FileRef {
            id: FileId::new(self.site, serial),
            generation: cell.map_or(0, |cell| cell.generation),
        }
    }

    fn row_of(&self, cell: &Cell) -> CensusRow {
        let rare = cell.rare();
        CensusRow::File {
            file: cell.file(self.site),
            kind: cell.kind(),
            links: cell.links,
            changed: cell.changed,
            columns: rare.columns,
            segments: rare.segments,
        }
    }
}

/// The file that a row is about.
const fn subject_of(row: &CensusRow) -> FileRef {
    match *row {
        CensusRow::File { file, .. } => file,
        CensusRow::Name { child, .. } => child,
        CensusRow::Parent { directory: id, .. }
        | CensusRow::Rights { directory: id, .. }
        | CensusRow::Unsettled(id) => FileRef { id, generation: 0 },
    }
}
