//! The index's database on a [`BlockingDisk`].
//!
//! The first block of the disk is ours, so that a database whose making was
//! interrupted is told from one that is damaged:
//!
//! | offset | bytes | name | meaning (little-endian) |
//! |---|---|---|---|
//! | 0 | 4 | magic | "XDIX" |
//! | 4 | 4 | format | 1 |
//! | 8 | 4 | checksum | CRC32C of bytes 0–7 |
//! | 12 | 4 | – | zeros |
//! | 16 | 8 | length | of the database in bytes, or zero |
//! | 24 | 4 | checksum | CRC32C of bytes 16–23, or zero: the database is the rest of the disk |
//! | 28 | … | – | zeros up to 4096 |
//! | 4096 | … | database | redb's own format |
//!
//! A database that shrinks leaves the disk as long as it is and says in that block
//! where it ends: room that was set aside for it would go with the end of a file,
//! and a full file system does not give it back. A node whose index cannot grow
//! could not even remove anything.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_checksum::crc32c;
use crossdock_disk::{BlockingDisk, DiskError};
use crossdock_types::BLOCK_BYTES;
use redb::StorageBackend;

use crate::index::IndexError;

const MAGIC: [u8; 4] = *b"XDIX";
const FORMAT: u32 = 1;
const DATABASE_OFFSET: u64 = BLOCK_BYTES as u64;

/// Eight bytes and their checksum.
const RECORD_BYTES: usize = 12;
/// Where the disk tells how long the database is.
const LENGTH_RECORD_OFFSET: u64 = 16;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Whether the disk holds a database whose making was completed.
pub(crate) fn is_made(disk: &dyn BlockingDisk) -> Result<bool, IndexError> {
    if disk.length_bytes()? < DATABASE_OFFSET {
        return Ok(false);
    }
    let mut record = [0; RECORD_BYTES];
    disk.read_at(&mut record, 0)?;
    if record == [0; RECORD_BYTES] {
        return Ok(false);
    }
    let format = match decode_record(&record) {
        Some([m, a, g, i, format @ ..]) if [m, a, g, i] == MAGIC => u32::from_le_bytes(format),
        _ => return Err(IndexError::Database("no index of crossdock".to_owned())),
    };
    if format != FORMAT {
        return Err(IndexError::UnknownFormat {
            found: format,
            supported: FORMAT,
        });
    }
    Ok(true)
}

/// Empties the disk for a new database.
pub(crate) fn clear(disk: &dyn BlockingDisk) -> Result<(), IndexError> {
    disk.set_length(0)?;
    disk.set_length(DATABASE_OFFSET)?;
    Ok(disk.flush()?)
}

/// Says that the database is complete; the last step of its making.
pub(crate) fn mark_made(disk: &dyn BlockingDisk) -> Result<(), IndexError> {
    let mut content = [0; 8];
    content[..4].copy_from_slice(&MAGIC);
    content[4..].copy_from_slice(&FORMAT.to_le_bytes());
    disk.write_at(&encode_record(content), 0)?;
    Ok(disk.flush()?)
}

/// What redb sees: the disk from its second block on.
pub(crate) struct DiskBackend {
    disk: Arc<dyn BlockingDisk>,
    /// Bytes of the database; the disk may have more.
    length_bytes: AtomicU64,
}

impl DiskBackend {
    pub(crate) fn open(disk: Arc<dyn BlockingDisk>) -> Result<Self, DiskError> {
        let room_bytes = disk.length_bytes()?.saturating_sub(DATABASE_OFFSET);
        let mut record = [0; RECORD_BYTES];
        if room_bytes > 0 {
            disk.read_at(&mut record, LENGTH_RECORD_OFFSET)?;
        }
        // A record that was torn is as good as none: redb looks after what is longer
        // than it left it.
        let told = decode_record(&record).map(u64::from_le_bytes);
        let told = told.filter(|told| (1..room_bytes).contains(told));
        Ok(Self {
            disk,
            length_bytes: AtomicU64::new(told.unwrap_or(room_bytes)),
        })
    }

    /// Makes the database longer within the disk, with zeros, or shorter.
    fn move_end(&self, to: u64) -> Result<(), DiskError> {
        let mut at = self.length_bytes.load(Ordering::Relaxed);
        let room_bytes = self.disk.length_bytes()?.saturating_sub(DATABASE_OFFSET);
        let end = to.min(room_bytes);
        while at < end {
            let step = ZEROS
                .len()
                .min(usize::try_from(end - at).unwrap_or(usize::MAX));
            self.disk.write_at(&ZEROS[..step], DATABASE_OFFSET + at)?;
            at += step as u64;
        }
        if to > room_bytes {
            self.disk.set_length(DATABASE_OFFSET + to)?;
        }
        let record = encode_record(to.to_le_bytes());
        self.disk.write_at(&record, LENGTH_RECORD_OFFSET)?;
        self.length_bytes.store(to, Ordering::Relaxed);
        Ok(())
    }
}

impl fmt::Debug for DiskBackend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DiskBackend")
    }
}

impl StorageBackend for DiskBackend {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.length_bytes.load(Ordering::Relaxed))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let at = offset + DATABASE_OFFSET;
        self.disk.read_at(out, at).map_err(failed("read", at))
    }

    fn set_len(&self, length: u64) -> Result<(), io::Error> {
        self.move_end(length)
            .map_err(failed("set the length", length))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.disk.flush().map_err(failed("flush", 0))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let at = offset + DATABASE_OFFSET;
        self.disk.write_at(data, at).map_err(failed("write", at))
    }
}

fn encode_record(content: [u8; 8]) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&content);
    record[8..].copy_from_slice(&crc32c(&content).to_le_bytes());
    record
}

fn decode_record(record: &[u8; RECORD_BYTES]) -> Option<[u8; 8]> {
    let (content, checksum) = record.split_first_chunk::<8>()?;
    (checksum == crc32c(content).to_le_bytes()).then_some(*content)
}

/// No other error says what was being done.
fn failed(operation: &'static str, at: u64) -> impl Fn(DiskError) -> io::Error {
    move |error| match error {
        DiskError::NoSpace => io::Error::other(format!("{operation} (at byte {at}): {error}")),
        _ => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use crossdock_sim::disk::{SimBlockingDisk, SimDiskOptions};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn opened(disk: &SimBlockingDisk) -> DiskBackend {
        DiskBackend::open(Arc::new(disk.clone())).expect("to open")
    }

    /// Goal: a database that shrinks keeps the room it had, also for the next start,
    /// and finds zeros there when it grows again.
    #[test]
    fn shrinking_gives_no_room_back() {
        let disk = SimBlockingDisk::new(1, 0, SimDiskOptions::default());
        clear(&disk).expect("to clear");
        let database = opened(&disk);
        database.set_len(MIB).expect("to grow");
        database.write(MIB / 2, &[7; 5000]).expect("to write");
        database.set_len(MIB / 2 + 3000).expect("to shrink");
        assert_eq!(disk.length_bytes(), Ok(DATABASE_OFFSET + MIB));

        let database = opened(&disk);
        assert_eq!(database.len().expect("a length"), MIB / 2 + 3000);
        database.set_len(2 * MIB).expect("to grow again");
        assert_eq!(disk.length_bytes(), Ok(DATABASE_OFFSET + 2 * MIB));
        let mut found = [1; 5000];
        database.read(MIB / 2, &mut found).expect("to read");
        assert!(found[..3000].iter().all(|&byte| byte == 7));
        assert!(found[3000..].iter().all(|&byte| byte == 0));
        assert_eq!(opened(&disk).len().expect("a length"), 2 * MIB);
    }

    /// Goal: where the disk says nothing that can be believed, all of it is the
    /// database, as it was in what older versions have written.
    #[test]
    fn without_a_length_the_disk_is_the_database() {
        let disk = SimBlockingDisk::new(1, DATABASE_OFFSET + MIB, SimDiskOptions::default());
        assert_eq!(opened(&disk).len().expect("a length"), MIB);
        let mut torn = encode_record((MIB / 2).to_le_bytes());
        torn[0] ^= 1;
        disk.write_at(&torn, LENGTH_RECORD_OFFSET)
            .expect("to write");
        assert_eq!(opened(&disk).len().expect("a length"), MIB);
        // More than there is.
        disk.write_at(
            &encode_record((3 * MIB).to_le_bytes()),
            LENGTH_RECORD_OFFSET,
        )
        .expect("to write");
        assert_eq!(opened(&disk).len().expect("a length"), MIB);
    }
}
