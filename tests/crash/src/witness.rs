//! What was sent and what was acknowledged, kept outside of the server.
//!
//! Content is tracked in cells of 512 bytes: each knows the version that must
//! be there, and the versions that may be there instead because their write was
//! never acknowledged as durable. What was acknowledged wins over everything
//! older; of what was not, each cell is wholly old or wholly new.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::StableHow;
use crossdock_nfs3::{HandleBuffer, Reply, Status, WriteVerifier, reply};

use crate::random::mix;
use crossdock_tests_crash::client::Xid;

/// Bytes of a cell: the smallest piece that is written.
pub(crate) const CELL_BYTES: usize = 512;
/// Removed names and handles that are remembered, to be asked for later.
const GONE_MAX: usize = 200;

/// A file in this program's own counting.
pub(crate) type FileNumber = u32;
/// Which write a cell's content is from; 0 is never written, which reads as zeros.
pub(crate) type Version = u32;

/// Where a name is: the number of its directory, and the name.
pub(crate) type Place = (usize, String);

/// Half a kilobyte of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    /// This version is durable: nothing older may be read after a crash.
    pub(crate) durable: Version,
    /// Later versions that were sent but are not known to be durable.
    pub(crate) maybe: Vec<Version>,
    /// The latest version whose WRITE was answered.
    answered: Version,
    /// A write of it is outstanding.
    pub(crate) busy: bool,
}

/// A file that was acknowledged.
#[derive(Debug)]
pub(crate) struct FileState {
    pub(crate) handle: HandleBuffer,
    pub(crate) cells: Vec<Cell>,
    /// A name operation on it is outstanding.
    pub(crate) busy: bool,
    /// Writes of it that are outstanding.
    pub(crate) writes: usize,
}

/// A call that was sent and not answered yet.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Write {
        file: FileNumber,
        first: usize,
        count: usize,
        version: Version,
        stable: StableHow,
    },
    /// With the versions that it makes durable.
    Commit {
        file: FileNumber,
        covered: Vec<(usize, Version)>,
    },
    Create {
        place: Place,
        file: FileNumber,
    },
    Rename {
        from: Place,
        to: Place,
    },
    Remove {
        place: Place,
    },
}

/// The record of all that was sent and acknowledged.
pub(crate) struct Witness {
    log: BufWriter<File>,
    pub(crate) directories: Vec<HandleBuffer>,
    pub(crate) root: Option<HandleBuffer>,
    pub(crate) files: BTreeMap<FileNumber, FileState>,
    pub(crate) names: BTreeMap<Place, FileNumber>,
    pub(crate) pending: BTreeMap<Xid, Operation>,
    pub(crate) gone_names: Vec<Place>,
    pub(crate) gone_handles: Vec<HandleBuffer>,
    pub(crate) next_xid: Option<Xid>,
    verifier: Option<WriteVerifier>,
    verifiers_before: Vec<WriteVerifier>,
    files_made: FileNumber,
    versions_made: Version,
    writes_durable: u64,
    names_changed: u64,
}

impl Witness {
    /// A witness of nothing yet, with its log at `path`.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(Self {
            log: BufWriter::new(File::create(path)?),
            directories: Vec::new(),
            root: None,
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            pending: BTreeMap::new(),
            gone_names: Vec::new(),
            gone_handles: Vec::new(),
            next_xid: None,
            verifier: None,
            verifiers_before: Vec::new(),
            files_made: 0,
            versions_made: 0,
            writes_durable: 0,
            names_changed: 0,
        })
    }

    /// Writes a line for whoever has to understand a failure.
    pub(crate) fn note(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.log, "{line}")?)
    }

    /// How much was acknowledged so far.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{} durable writes and {} changes of names were acknowledged, and are there",
            self.writes_durable, self.names_changed
        )
    }

    /// A number for a new file.
    pub(crate) const fn new_file(&mut self) -> FileNumber {
        self.files_made += 1;
        self.files_made
    }

    /// A version for a new write.
    pub(crate) const fn new_version(&mut self) -> Version {
        self.versions_made += 1;
        self.versions_made
    }

    /// Writes that are outstanding.
    pub(crate) fn writes_pending(&self) -> usize {
        let is_write = |operation: &&Operation| matches!(operation, Operation::Write { .. });
        self.pending.values().filter(is_write).count()
    }

    /// Records that `operation` is about to be sent, and marks what it touches.
    pub(crate) fn sent(&mut self, xid: Xid, operation: Operation) -> Result<()> {
        writeln!(self.log, "sent {xid:#x} {operation:?}")?;
        match &operation {
            Operation::Write {
                file,
                first,
                count,
                version,
                ..
            } => {
                let state = self.file(*file)?;
                state.writes += 1;
                if state.cells.len() < first + count {
                    state.cells.resize(first + count, Cell::default());
                }
                for cell in &mut state.cells[*first..first + count] {
                    cell.busy = true;
                    cell.maybe.push(*version);
                }
            }
            Operation::Commit { .. } | Operation::Create { .. } => {}
            Operation::Rename { from, to } => {
                self.mark(from, true)?;
                if self.names.contains_key(to) {
                    self.mark(to, true)?;
                }
            }
            Operation::Remove { place } => self.mark(place, true)?,
        }
        self.pending.insert(xid, operation);
        Ok(())
    }

    /// Takes the server's word for the call `xid`.
    pub(crate) fn acknowledged(&mut self, xid: Xid, reply: &Reply) -> Result<()> {
        let operation = self.pending.remove(&xid);
        let operation = operation.context("a reply to a call that was not sent")?;
        writeln!(self.log, "answered {xid:#x} {:?}", reply.status())?;
        if reply.status() == Some(Status::Jukebox) {
            return self.not_done(&operation);
        }
        match (operation, reply) {
            (operation @ Operation::Write { .. }, Reply::Write(Ok(done))) => {
                self.written(&operation, done)
            }
            (Operation::Commit { file, covered }, Reply::Commit(Ok(done))) => {
                self.check_verifier(done.verifier)?;
                let state = self.file(file)?;
                for (index, version) in covered {
                    state.cells[index].settle(version);
                }
                self.writes_durable += 1;
                Ok(())
            }
            (Operation::Create { place, file }, Reply::Create(Ok(created))) => {
                let handle = created.object.context("CREATE without a handle")?;
                self.created(place, file, handle);
                Ok(())
            }
            (Operation::Rename { from, to }, Reply::Rename(Ok(_))) => self.renamed(from, to),
            (Operation::Remove { place }, Reply::Remove(Ok(_))) => self.removed(place),
            (operation, reply) => bail!("{operation:?} failed: {:?}", reply.status()),
        }
    }

    /// Forgets a call that had no effect, or whose effect has been found out.
    pub(crate) fn not_done(&mut self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Write {
                file, first, count, ..
            } => self.release(*file, *first, *count),
            Operation::Commit { .. } | Operation::Create { .. } => Ok(()),
            Operation::Rename { from, to } => {
                self.mark(from, false)?;
                if self.names.contains_key(to) {
                    self.mark(to, false)?;
                }
                Ok(())
            }
            Operation::Remove { place } => self.mark(place, false),
        }
    }

    /// CREATE was done.
    pub(crate) fn created(&mut self, place: Place, file: FileNumber, handle: HandleBuffer) {
        let state = FileState {
            handle,
            cells: Vec::new(),
            busy: false,
            writes: 0,
        };
        self.files.insert(file, state);
        self.names.insert(place, file);
        self.names_changed += 1;
    }

    /// RENAME was done.
    pub(crate) fn renamed(&mut self, from: Place, to: Place) -> Result<()> {
        let file = self.names.remove(&from).context("renamed from nothing")?;
        self.file(file)?.busy = false;
        if let Some(replaced) = self.names.insert(to, file) {
            self.forget(replaced);
        }
        self.remember_gone(from);
        self.names_changed += 1;
        Ok(())
    }

    /// REMOVE was done.
    pub(crate) fn removed(&mut self, place: Place) -> Result<()> {
        let file = self.names.remove(&place).context("removed nothing")?;
        self.forget(file);
        self.remember_gone(place);
        self.names_changed += 1;
        Ok(())
    }

    /// The server was killed: its verifier must not come back.
    pub(crate) fn server_died(&mut self, next_xid: Xid) -> Result<()> {
        self.verifiers_before.extend(self.verifier.take());
        self.next_xid = Some(next_xid);
        Ok(self.log.flush()?)
    }

    /// The state of a file that is known.
    pub(crate) fn file(&mut self, file: FileNumber) -> Result<&mut FileState> {
        let state = self.files.get_mut(&file);
        state.with_context(|| format!("file {file} is not known"))
    }

    fn written(&mut self, operation: &Operation, done: &reply::Write) -> Result<()> {
        let &Operation::Write {
            file,
            first,
            count,
            version,
            stable,
        } = operation
        else {
            bail!("not a write: {operation:?}");
        };
        self.check_verifier(done.verifier)?;
        self.release(file, first, count)?;
        ensure!(
            done.committed.number() >= stable.number(),
            "a write was less durable than asked for: {done:?}"
        );
        // A short write is allowed; what it left out may be there or not.
        let cells = usize::try_from(done.count_bytes)? / CELL_BYTES;
        ensure!((1..=count).contains(&cells), "wrong count: {done:?}");
        let is_durable = done.committed != StableHow::Unstable;
        self.writes_durable += u64::from(is_durable);
        for cell in &mut self.file(file)?.cells[first..first + cells] {
            cell.answered = version;
            if is_durable {
                cell.settle(version);
            }
        }
        Ok(())
    }

    fn check_verifier(&mut self, verifier: WriteVerifier) -> Result<()> {
        ensure!(
            !self.verifiers_before.contains(&verifier),
            "the write verifier did not change when the server was killed"
        );
        let known = *self.verifier.get_or_insert(verifier);
        ensure!(
            known == verifier,
            "the write verifier changed without a restart"
        );
        Ok(())
    }

    fn release(&mut self, file: FileNumber, first: usize, count: usize) -> Result<()> {
        let state = self.file(file)?;
        state.writes -= 1;
        for cell in &mut state.cells[first..first + count] {
            cell.busy = false;
        }
        Ok(())
    }

    fn mark(&mut self, place: &Place, busy: bool) -> Result<()> {
        let file = *self.names.get(place).context("a name that is not known")?;
        self.file(file)?.busy = busy;
        Ok(())
    }

    fn forget(&mut self, file: FileNumber) {
        if let Some(state) = self.files.remove(&file) {
            push_bounded(&mut self.gone_handles, state.handle);
        }
    }

    fn remember_gone(&mut self, place: Place) {
        push_bounded(&mut self.gone_names, place);
    }
}

impl Cell {
    /// `version` is durable now.
    fn settle(&mut self, version: Version) {
        self.durable = self.durable.max(version);
        self.maybe.retain(|&later| later > version);
    }

    /// After a crash `version` was read: from now on it stays.
    pub(crate) fn found(&mut self, version: Version) {
        self.durable = version;
        self.answered = version;
        self.maybe.clear();
        self.busy = false;
    }

    /// The version that a COMMIT sent now would make durable, if there is one.
    pub(crate) fn committable(&self) -> Option<Version> {
        (self.answered > self.durable).then_some(self.answered)
    }
}

/// What `version` of a cell holds: no two cells or versions look alike.
pub(crate) fn fill(file: FileNumber, cell: usize, version: Version, bytes: &mut [u8]) {
    if version == 0 {
        bytes.fill(0);
        return;
    }
    let place = (u64::from(file) << 32) | cell as u64;
    let mut word = mix(place) ^ mix(u64::from(version));
    // The first three words name themselves, for whoever reads a dump.
    let names = [u64::from(file), cell as u64, u64::from(version)];
    for (index, part) in bytes.chunks_exact_mut(8).enumerate() {
        word = mix(word.wrapping_add(index as u64));
        part.copy_from_slice(&names.get(index).copied().unwrap_or(word).to_le_bytes());
    }
}

fn push_bounded<T>(list: &mut Vec<T>, item: T) {
    if list.len() == GONE_MAX {
        list.remove(0);
    }
    list.push(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(durable: Version, maybe: &[Version], answered: Version) -> Cell {
        Cell {
            durable,
            maybe: maybe.to_vec(),
            answered,
            busy: false,
        }
    }

    /// Goal: once a version is durable nothing older may be read, and what was
    /// sent later still may.
    #[test]
    fn a_durable_version_forbids_all_older_ones() {
        let mut cell = cell(1, &[2, 3, 5], 3);
        cell.settle(3);
        assert_eq!((cell.durable, cell.maybe.as_slice()), (3, [5].as_slice()));
        cell.settle(2); // A COMMIT that was sent before, answered after.
        assert_eq!(cell.durable, 3);
    }

    /// Goal: a COMMIT vouches for answered writes only, not for those on their way.
    #[test]
    fn a_commit_covers_what_was_answered() {
        assert_eq!(cell(1, &[2, 3], 2).committable(), Some(2));
        assert_eq!(cell(2, &[3], 2).committable(), None);
        assert_eq!(Cell::default().committable(), None);
    }

    /// Goal: content of another file, cell or version is never taken for the right one.
    #[test]
    fn no_two_cells_or_versions_look_alike() {
        let content = |file, cell, version| {
            let mut bytes = [0xAA; CELL_BYTES];
            fill(file, cell, version, &mut bytes);
            bytes
        };
        let one = content(1, 2, 3);
        assert_eq!(one, content(1, 2, 3));
        for other in [content(2, 2, 3), content(1, 3, 3), content(1, 2, 4)] {
            assert!(one[24..].iter().zip(&other[24..]).any(|(a, b)| a != b));
            assert_ne!(one, other);
        }
        assert_eq!(content(1, 2, 0), [0; CELL_BYTES]);
    }
}
