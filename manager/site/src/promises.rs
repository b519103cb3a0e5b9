//! What a site keeps as it is for operations that others coordinate.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_log::{get_byte, put_varint};
use crossdock_names::{Epoch, FileId, SiteId};
use crossdock_peer::{Part, TransactionId};

use crate::record::get_number;

/// Stands for the right to move directories between directories: no file.
pub(crate) const MOVES: FileId = FileId::new(SiteId(0), 0);

/// Files that wait for the outcome of operations of other sites.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    files: BTreeMap<TransactionId, Vec<FileId>>,
    holders: BTreeMap<FileId, TransactionId>,
    /// Per site: the oldest of its operations that may ask for something …
    oldest: BTreeMap<SiteId, TransactionId>,
    /// … and those among them that have ended here.
    ended: BTreeSet<TransactionId>,
}

/// A change of the promises.
///
/// Encoded: kind (1 byte: 1 make, 2 end, 3 oldest), site, epoch and number of the
/// transaction; a promise is followed by how many files it is about, and their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// These are kept, too.
    Make(TransactionId, Vec<FileId>),
    /// Nothing is kept any more, nor will be.
    End(TransactionId),
    /// Nothing is kept for older ones of the same site.
    Oldest(TransactionId),
}

impl Promises {
    pub(crate) fn apply(&mut self, change: &Promise) {
        match change {
            Promise::Make(id, files) => {
                self.files.entry(*id).or_default().extend(files);
                self.holders.extend(files.iter().map(|&file| (file, *id)));
            }
            Promise::End(id) => {
                for file in self.files.remove(id).unwrap_or_default() {
                    self.holders.remove(&file);
                }
                if !self.is_too_old(*id) {
                    self.ended.insert(*id);
                }
            }
            Promise::Oldest(id) if !self.is_too_old(*id) => {
                self.oldest.insert(id.site, *id);
                let of_site = |ended: &TransactionId| ended.site == id.site && ended < id;
                self.ended.retain(|ended| !of_site(ended));
            }
            Promise::Oldest(_) => {}
        }
    }

    /// Whether nothing may be kept (any more) for an operation.
    pub(crate) fn has_ended(&self, id: TransactionId) -> bool {
        self.is_too_old(id) || self.ended.contains(&id)
    }

    fn is_too_old(&self, id: TransactionId) -> bool {
        self.oldest.get(&id.site).is_some_and(|&oldest| id < oldest)
    }

    pub(crate) fn holder(&self, file: FileId) -> Option<TransactionId> {
        self.holders.get(&file).copied()
    }

    pub(crate) fn of(&self, id: TransactionId) -> Option<&[FileId]> {
        self.files.get(&id).map(Vec::as_slice)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = TransactionId> {
        self.files.keys().copied()
    }

    /// All of it, as the changes that make it: a few, as operations are short.
    pub(crate) fn all(&self) -> Vec<Promise> {
        let oldest = self.oldest.values().copied().map(Promise::Oldest);
        let made = self.files.iter();
        let made = made.map(|(&id, files)| Promise::Make(id, files.clone()));
        let ended = self.ended.iter().copied().map(Promise::End);
        oldest.chain(made).chain(ended).collect()
    }
}

impl Promise {
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Make(id, files) => {
                bytes.push(1);
                put_transaction(bytes, *id);
                put_varint(bytes, files.len() as u64);
                for file in files {
                    put_varint(bytes, file.0);
                }
            }
            Self::End(id) => {
                bytes.push(2);
                put_transaction(bytes, *id);
            }
            Self::Oldest(id) => {
                bytes.push(3);
                put_transaction(bytes, *id);
            }
        }
    }

    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let kind = get_byte(bytes)?;
        let id = get_transaction(bytes)?;
        match kind {
            1 => {
                let count: usize = get_number(bytes)?;
                let mut files = Vec::with_capacity(count.min(bytes.len()));
                for _ in 0..count {
                    files.push(FileId(get_number(bytes)?));
                }
                Some(Self::Make(id, files))
            }
            2 => Some(Self::End(id)),
            3 => Some(Self::Oldest(id)),
            _ => None,
        }
    }
}

pub(crate) fn put_transaction(bytes: &mut Vec<u8>, id: TransactionId) {
    put_varint(bytes, id.site.0.into());
    put_varint(bytes, id.epoch.0);
    put_varint(bytes, id.number);
}

pub(crate) fn get_transaction(bytes: &mut &[u8]) -> Option<TransactionId> {
    Some(TransactionId {
        site: SiteId(get_number(bytes)?),
        epoch: Epoch(get_number(bytes)?),
        number: get_number(bytes)?,
    })
}

/// What has to be kept for these parts.
pub(crate) fn files_of(parts: &[Part]) -> Vec<FileId> {
    let files = parts.iter().filter_map(|part| match part {
        Part::File(file) => Some(file.id),
        Part::Place { directory, .. } => Some(directory.id),
        Part::Moves => Some(MOVES),
        Part::Ancestors(_) => None,
    });
    files.collect()
}
