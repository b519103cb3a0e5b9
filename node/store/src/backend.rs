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
//! | 12 | … | – | zeros up to 4096 |
//! | 4096 | … | database | redb's own format |

use std::fmt;
use std::io;

use crossdock_checksum::crc32c;
use crossdock_disk::{BlockingDisk, DiskError};
use crossdock_types::BLOCK_BYTES;
use redb::StorageBackend;
use std::sync::Arc;

use crate::index::IndexError;

const MAGIC: [u8; 4] = *b"XDIX";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 12;
const DATABASE_OFFSET: u64 = BLOCK_BYTES as u64;

/// Whether the disk holds a database whose making was completed.
pub(crate) fn is_made(disk: &dyn BlockingDisk) -> Result<bool, IndexError> {
    if disk.length_bytes()? < DATABASE_OFFSET {
        return Ok(false);
    }
    let mut header = [0; HEADER_BYTES];
    disk.read_at(&mut header, 0)?;
    if header == [0; HEADER_BYTES] {
        return Ok(false);
    }
    let format = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    if header[..4] != MAGIC || header[8..] != crc32c(&header[..8]).to_le_bytes() {
        return Err(IndexError::Database("no index of crossdock".to_owned()));
    }
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
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..8].copy_from_slice(&FORMAT.to_le_bytes());
    let checksum = crc32c(&header[..8]);
    header[8..].copy_from_slice(&checksum.to_le_bytes());
    disk.write_at(&header, 0)?;
    Ok(disk.flush()?)
}

/// What redb sees: the disk from its second block on.
#[derive(Clone)]
pub(crate) struct DiskBackend(pub(crate) Arc<dyn BlockingDisk>);

impl fmt::Debug for DiskBackend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DiskBackend")
    }
}

impl StorageBackend for DiskBackend {
    fn len(&self) -> Result<u64, io::Error> {
        let length = self.0.length_bytes().map_err(to_io)?;
        Ok(length.saturating_sub(DATABASE_OFFSET))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.read_at(out, offset + DATABASE_OFFSET).map_err(to_io)
    }

    fn set_len(&self, length: u64) -> Result<(), io::Error> {
        self.0.set_length(length + DATABASE_OFFSET).map_err(to_io)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.0.flush().map_err(to_io)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.0
            .write_at(data, offset + DATABASE_OFFSET)
            .map_err(to_io)
    }
}

fn to_io(error: DiskError) -> io::Error {
    io::Error::other(error)
}
