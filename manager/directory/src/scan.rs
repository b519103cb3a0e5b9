//! Going through the whole state in bounded steps, while it changes: what a
//! fuzzy checkpoint writes.
//!
//! Records never move, so whatever was there from beginning to end is seen;
//! what came or went meanwhile may be seen or not, and the log has it.

use bytes::Bytes;
use crossdock_names::{FileId, FileRef, SiteId};

use crate::mutation::Mutation;
use crate::names::cookie;
use crate::state::Directory;

/// How far a scan has got.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    phase: Phase,
    index: u32,
    serial: u64,
    window: (u64, u64),
    tree: u32,
    origin: SiteId,
    removed: Option<FileId>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Counter,
    Cells,
    Listings,
    Entries,
    Links,
    Maps,
    Trees,
    Settled,
    Removed,
}

impl Scan {
    /// Whether nothing has been scanned.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        matches!(self.phase, Phase::Counter)
    }
}

impl Directory {
    /// The next piece of the state as a change that restores it; `None` at the end.
    pub fn scan(&self, scan: &mut Scan) -> Option<Mutation> {
        loop {
            let found = match scan.phase {
                Phase::Counter => {
                    scan.phase = Phase::Cells;
                    return Some(Mutation::NextSerial {
                        serial: self.next_serial,
                    });
                }
                Phase::Cells => self
                    .cells
                    .next_from(scan.index)
                    .map(|(index, cell)| (index, Mutation::PutCell(cell.clone()))),
                Phase::Listings => self.listings.next_from(scan.index).map(|(index, listing)| {
                    let parent = FileRef {
                        id: FileId(listing.parent),
                        generation: listing.parent_generation,
                    };
                    let put = Mutation::PutDirectory {
                        serial: listing.serial,
                        parent,
                        next_cookie: listing.next_cookie,
                    };
                    (index, put)
                }),
                Phase::Entries => self.entries.next_from(scan.index).map(|(index, entry)| {
                    let put = Mutation::PutEntry {
                        parent: entry.parent(),
                        name: Bytes::copy_from_slice(entry.name.as_bytes()),
                        child: entry.child(),
                        cookie: cookie(self.site, entry.counter()),
                    };
                    (index, put)
                }),
                Phase::Links => match self.scan_link(scan) {
                    Some(link) => return Some(link),
                    None => {
                        scan.phase = Phase::Maps;
                        continue;
                    }
                },
                Phase::Maps => match self.maps.next_from(scan.window) {
                    Some(((serial, window), put)) => {
                        scan.window = (serial, window + 1);
                        return Some(put);
                    }
                    None => {
                        scan.phase = Phase::Trees;
                        return Some(self.quotas.next_tree());
                    }
                },
                Phase::Trees => {
                    if let Some((tree, put)) = self.quotas.next_from(scan.tree) {
                        scan.tree = tree + 1;
                        return Some(put);
                    }
                    scan.phase = Phase::Settled;
                    continue;
                }
                Phase::Settled => {
                    if let Some((origin, below)) = self.adopted.next_settled(scan.origin) {
                        scan.origin = SiteId(origin.0 + 1);
                        return Some(Mutation::Settled { origin, below });
                    }
                    scan.phase = Phase::Removed;
                    continue;
                }
                // That something is gone is remembered by whoever is told so.
                Phase::Removed => {
                    let file = self.adopted.next_removed(self.site, scan.removed)?;
                    scan.removed = Some(file);
                    let serial = file.serial();
                    return Some(Mutation::RemoveCell { serial });
                }
            };
            if let Some((index, mutation)) = found {
                scan.index = index + 1;
                return Some(mutation);
            }
            scan.index = 0;
            scan.phase = match scan.phase {
                Phase::Cells => Phase::Listings,
                Phase::Listings => Phase::Entries,
                _ => Phase::Links,
            };
        }
    }

    fn scan_link(&self, scan: &mut Scan) -> Option<Mutation> {
        let next = self.links.range(scan.serial..).next();
        let (&serial, text) = next?;
        scan.serial = serial + 1;
        Some(Mutation::PutLink {
            serial,
            target: Bytes::copy_from_slice(text),
        })
    }
}
