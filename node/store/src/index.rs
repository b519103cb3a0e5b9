//! The index: what the journal's records amount to, in a database.

use crossdock_disk::BlockingDisk;
use thiserror::Error;

/// Why the index cannot be opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IndexError {
    /// The database or its disk says.
    #[error("the index cannot be opened: {0}")]
    Database(String),
}

/// Something that the store wants from the index.
#[derive(Debug)]
pub struct IndexRequest(());

/// The answer to an [`IndexRequest`].
#[derive(Debug)]
pub struct IndexReply(());

/// The index of a store; it blocks.
pub struct Index(Box<dyn BlockingDisk>);

impl Index {
    /// Opens the index on its disk, or makes one on an empty disk.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn open(disk: Box<dyn BlockingDisk>) -> Result<Self, IndexError> {
        disk.flush()
            .map_err(|error| IndexError::Database(error.to_string()))?;
        Ok(Self(disk))
    }

    /// Carries out one request.
    pub fn handle(&mut self, request: IndexRequest) -> IndexReply {
        let IndexRequest(()) = request;
        IndexReply(())
    }
}
