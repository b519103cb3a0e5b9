//! Blocks that a disk gives back other than they were written, where it has the same bytes at
//! another place, too: a set of disks has (io/sets), a plain disk says that it has none. They
//! are read there, until one matches its checksum, and written over what was wrong. Only if
//! there is none is the read a failed one, for which a replica is asked.

use bytes::Bytes;
use crossdock_checksum::crc32c;
use crossdock_disk::{DiskError, DiskOperation, DiskOutput};
use crossdock_types::{BLOCK_BYTES, Scatter};

use crate::interface::StoreDisk;
use crate::read::{Fetched, Parts};
use crate::runs::DiskRange;
use crate::store::{BLOCK, DiskUse, Phase, Store};

/// More places than any disk has.
const ATTEMPTS_MAX: u32 = 256;

/// What a disk has given, and the first block of it that is wrong.
#[derive(Debug)]
pub(crate) struct Mending {
    pub(crate) fetched: Fetched,
    pub(crate) checksums: Vec<u32>,
    pub(crate) parts: Parts,
    pub(crate) bad: DiskRange,
    /// What is wrong with it.
    pub(crate) what: String,
    /// Other places that were asked, the one that is being asked included.
    attempts: u32,
}

impl Mending {
    pub(crate) fn new(
        (fetched, checksums): (Fetched, Vec<u32>),
        parts: Parts,
        (bad, what): (DiskRange, String),
    ) -> Box<Self> {
        Box::new(Self {
            fetched,
            checksums,
            parts,
            bad,
            what,
            attempts: 0,
        })
    }

    fn expected(&self) -> Option<u32> {
        let place = self.bad.block - self.fetched.range.block;
        let place = usize::try_from(place).ok()?;
        self.checksums.get(place).copied()
    }
}

impl Store {
    /// Asks the disk for the bad block at the next of its places.
    pub(crate) fn mend(&mut self, mut mending: Box<Mending>) {
        mending.attempts += 1;
        let operation = DiskOperation::ReadOther {
            offset_bytes: mending.bad.block * BLOCK,
            buffer: Scatter::zeroed(BLOCK_BYTES),
            attempt: mending.attempts,
        };
        self.submit(StoreDisk::Data, DiskUse::ReadOther(mending), operation);
    }

    /// The block as it is there: if it is right it goes where the wrong one was.
    pub(crate) fn other_read(
        &mut self,
        mut mending: Box<Mending>,
        result: Result<DiskOutput, DiskError>,
    ) {
        let found = match result {
            Ok(DiskOutput::Read(buffer)) => Some(buffer.into_bytes()),
            Ok(DiskOutput::Done) => None,
            Err(DiskError::NoOther | DiskError::NotBegun) => return self.fail_mending(*mending),
            // That place cannot be read: perhaps the next one can.
            Err(_) => None,
        };
        let is_right = |bytes: &Bytes| mending.expected() == Some(crc32c(bytes));
        match found.filter(is_right) {
            Some(bytes) => {
                self.write_again(mending.bad, bytes.clone());
                mending.parts.replace(mending.bad.block, bytes);
                let Mending {
                    fetched,
                    checksums,
                    parts,
                    ..
                } = *mending;
                self.check_read(fetched, checksums, parts);
            }
            None if mending.attempts < ATTEMPTS_MAX => self.mend(mending),
            None => self.fail_mending(*mending),
        }
    }

    fn fail_mending(&mut self, mending: Mending) {
        let Mending {
            fetched, bad, what, ..
        } = mending;
        self.read_known(&fetched, Err((bad, what)), true);
    }

    /// Writes a block where it is already: on all disks that should have it. Nothing else is
    /// written there meanwhile, as it is held.
    fn write_again(&mut self, range: DiskRange, bytes: Bytes) {
        // Another reader may have found the same; and a store that has failed changes nothing.
        if !matches!(self.phase, Phase::Open) || !self.written_again.insert(range.block) {
            return;
        }
        self.holds.add(range);
        self.counters.repaired_blocks += 1;
        let write = DiskOperation::Write {
            offset_bytes: range.block * BLOCK,
            pieces: vec![bytes],
            is_durable: false,
        };
        self.submit(StoreDisk::Data, DiskUse::WriteAgain(range), write);
    }

    /// It is there, or cannot be: then whoever reads it finds that out.
    pub(crate) fn was_written_again(&mut self, range: DiskRange) {
        self.written_again.remove(&range.block);
        self.holds.remove(range);
    }
}
