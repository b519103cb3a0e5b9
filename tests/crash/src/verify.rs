//! Compares a server that has just started with what the witness knows.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::{self, Call};
use crossdock_nfs3::{CookieVerifier, HandleBuffer, Location, Name, Reply, SetAttributes, Status};

use crate::random::Random;
use crate::witness::{CELL_BYTES, Cell, FileNumber, Operation, Place, Witness, fill};
use crate::writer::{location, send};
use crossdock_tests_crash::client::Client;

/// Directories that the names are in.
const DIRECTORIES: usize = 3;
/// Bytes of one READ.
const READ_BYTES: u32 = 64 * 1024;
/// Bytes of one READDIR.
const READDIR_BYTES: u32 = 8192;

/// Brings the calls that were not answered to a known end, then checks all
/// names, all content, and that what was removed stays removed.
pub(crate) fn all(client: &mut Client, witness: &mut Witness, random: &mut Random) -> Result<()> {
    if let Some(xid) = witness.next_xid {
        client.count_from(xid);
    }
    let root = *witness.root.get_or_insert_with(|| client.root());
    ensure!(root == client.root(), "the root's handle changed");
    if witness.directories.is_empty() {
        make_directories(client, witness)?;
    }
    settle_pending(client, witness, random)?;
    names(client, witness)?;
    let files: Vec<FileNumber> = witness.files.keys().copied().collect();
    for file in files {
        content(client, witness, file).with_context(|| format!("file {file}"))?;
    }
    gone(client, witness)
}

fn make_directories(client: &mut Client, witness: &mut Witness) -> Result<()> {
    for number in 0..DIRECTORIES {
        let root = client.root();
        let name = format!("directory-{number}");
        let call = Call::Mkdir(call::Mkdir {
            location: Location {
                directory: root.as_handle(),
                name: Name(name.as_bytes()),
            },
            attributes: SetAttributes {
                mode: Some(0o755),
                ..SetAttributes::default()
            },
        });
        let Reply::Mkdir(Ok(made)) = client.call(&call)? else {
            bail!("cannot make {name}");
        };
        witness.directories.push(made.object.context("no handle")?);
    }
    Ok(())
}

/// The calls without an answer: half of the time they are sent again, as a
/// client does, and must now succeed whether they had been carried out or not.
/// Otherwise it is found out whether they were.
fn settle_pending(client: &mut Client, witness: &mut Witness, random: &mut Random) -> Result<()> {
    let send_again = random.chance(50);
    witness.note(if send_again {
        "sending again"
    } else {
        "finding out"
    })?;
    for (xid, operation) in std::mem::take(&mut witness.pending) {
        match &operation {
            // What a write left is found when the content is read.
            Operation::Write { .. } | Operation::Commit { .. } => witness.not_done(&operation)?,
            _ if send_again => {
                witness.pending.insert(xid, operation.clone());
                ensure!(
                    send(client, witness, &operation, Some(xid))?,
                    "the connection is gone"
                );
                let reply = client.receive_only(xid)?;
                witness
                    .acknowledged(xid, &reply)
                    .with_context(|| format!("{xid:#x} was sent again after the restart"))?;
            }
            Operation::Create { place, file } => {
                if let Some(handle) = lookup(client, witness, place)? {
                    witness.created(place.clone(), *file, handle);
                }
            }
            Operation::Rename { from, to } => settle_rename(client, witness, from, to)?,
            Operation::Remove { place } => match lookup(client, witness, place)? {
                Some(_) => witness.not_done(&operation)?,
                None => witness.removed(place.clone())?,
            },
        }
    }
    Ok(())
}

/// A rename was done or not; never half.
fn settle_rename(
    client: &mut Client,
    witness: &mut Witness,
    from: &Place,
    to: &Place,
) -> Result<()> {
    let number = witness.names.get(from).context("renamed from nothing")?;
    let moved = witness.files[number].handle;
    let replaced = witness.names.get(to).map(|file| witness.files[file].handle);
    let (at_from, at_to) = (lookup(client, witness, from)?, lookup(client, witness, to)?);
    if at_from == Some(moved) && at_to == replaced {
        return witness.not_done(&Operation::Rename {
            from: from.clone(),
            to: to.clone(),
        });
    }
    ensure!(
        at_from.is_none() && at_to == Some(moved),
        "half a rename of {from:?} to {to:?}: {at_from:?}, {at_to:?}"
    );
    witness.renamed(from.clone(), to.clone())
}

/// Every name leads to its file, and the directories list these and no others.
fn names(client: &mut Client, witness: &Witness) -> Result<()> {
    for (place, file) in &witness.names {
        let found = lookup(client, witness, place)?;
        let expected = witness.files[file].handle;
        ensure!(
            found == Some(expected),
            "{place:?} is file {file}, {expected:?}, but was found as {found:?}"
        );
    }
    for (number, directory) in witness.directories.iter().enumerate() {
        let listed = list(client, directory)?;
        let expected: BTreeSet<String> = witness
            .names
            .keys()
            .filter(|place| place.0 == number)
            .map(|place| place.1.clone())
            .collect();
        ensure!(
            listed == expected,
            "directory {number} lists {:?} that are not there, and not {:?}",
            listed.difference(&expected).collect::<Vec<_>>(),
            expected.difference(&listed).collect::<Vec<_>>()
        );
    }
    Ok(())
}

/// Every cell holds its durable version or a later one that was sent, whole.
fn content(client: &mut Client, witness: &mut Witness, file: FileNumber) -> Result<()> {
    let state = witness.file(file)?;
    let bytes = read_all(client, &state.handle)?;
    ensure!(
        bytes.len() <= state.cells.len() * CELL_BYTES,
        "{} bytes were read, but only {} cells were written",
        bytes.len(),
        state.cells.len()
    );
    ensure!(
        bytes.len().is_multiple_of(CELL_BYTES),
        "it ends inside of a write: {} bytes",
        bytes.len()
    );
    for (index, cell) in state.cells.iter_mut().enumerate() {
        let start = index * CELL_BYTES;
        // Behind the end is where nothing was written.
        let read = bytes.get(start..start + CELL_BYTES).unwrap_or(&ZEROS);
        let version = identify(file, index, cell, read).with_context(|| {
            let (durable, maybe) = (cell.durable, &cell.maybe);
            let head: Vec<u64> = read[..24].chunks_exact(8).map(word).collect();
            format!("cell {index}: version {durable} is durable, {maybe:?} may be there; read {head:?} (file, cell, version)")
        })?;
        cell.found(version);
    }
    // Cells behind the end that were never durably written are not there.
    state.cells.truncate(bytes.len() / CELL_BYTES);
    Ok(())
}

fn identify(file: FileNumber, index: usize, cell: &Cell, read: &[u8]) -> Result<u32> {
    let mut expected = [0; CELL_BYTES];
    for version in cell.maybe.iter().copied().chain([cell.durable]) {
        fill(file, index, version, &mut expected);
        if read == expected {
            return Ok(version);
        }
    }
    bail!("other bytes than any version that may be there");
}

/// What was removed is not found by its name, nor by its handle.
fn gone(client: &mut Client, witness: &Witness) -> Result<()> {
    for place in &witness.gone_names {
        if witness.names.contains_key(place) {
            continue;
        }
        let found = lookup(client, witness, place)?;
        ensure!(found.is_none(), "{place:?} was removed and is back");
    }
    for handle in &witness.gone_handles {
        let object = handle.as_handle();
        let reply = client.call(&Call::Getattr(call::Getattr { object }))?;
        ensure!(
            reply.status() == Some(Status::Stale),
            "the handle of a removed file is answered with {reply:?}"
        );
    }
    Ok(())
}

fn lookup(client: &mut Client, witness: &Witness, place: &Place) -> Result<Option<HandleBuffer>> {
    let directory = witness.directories[place.0];
    match client.call(&Call::Lookup(location(&directory, place)))? {
        Reply::Lookup(Ok(found)) => Ok(Some(found.object)),
        Reply::Lookup(Err(failure)) if failure.status == Status::NoEnt => Ok(None),
        other => bail!("cannot look {place:?} up: {:?}", other.status()),
    }
}

fn list(client: &mut Client, directory: &HandleBuffer) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let (mut cookie, mut verifier) = (0, CookieVerifier::default());
    loop {
        let call = Call::Readdir(call::Readdir {
            directory: directory.as_handle(),
            cookie,
            verifier,
            count_bytes: READDIR_BYTES,
        });
        let Reply::Readdir(Ok(part)) = client.call(&call)? else {
            bail!("cannot list a directory");
        };
        verifier = part.verifier;
        let before = cookie;
        for entry in part.entries.iter() {
            cookie = entry.cookie;
            let name = String::from_utf8_lossy(entry.name.0).into_owned();
            if name != "." && name != ".." {
                ensure!(names.insert(name.clone()), "{name} is listed twice");
            }
        }
        if part.is_end {
            return Ok(names);
        }
        ensure!(cookie != before, "a listing without end");
    }
}

fn read_all(client: &mut Client, file: &HandleBuffer) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let call = Call::Read(call::Read {
            file: file.as_handle(),
            offset: u64::try_from(bytes.len())?,
            count_bytes: READ_BYTES,
        });
        let part = match client.call(&call)? {
            Reply::Read(Ok(part)) => part,
            other => bail!("cannot read at {}: {:?}", bytes.len(), other.status()),
        };
        for piece in part.data.pieces() {
            bytes.extend_from_slice(piece);
        }
        if part.is_end {
            return Ok(bytes);
        }
        ensure!(
            !part.data.is_empty(),
            "READ returned nothing before the end"
        );
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut array = [0; 8];
    array.copy_from_slice(bytes);
    u64::from_le_bytes(array)
}

static ZEROS: [u8; CELL_BYTES] = [0; CELL_BYTES];

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a cell passes if it holds its durable version or a later one that
    /// was sent, and fails if it is older, mixed, or another cell's.
    #[test]
    fn only_versions_that_may_be_there_pass() {
        let mut cell = Cell::default();
        cell.found(4);
        cell.maybe = vec![6];
        let content = |index, version| {
            let mut bytes = [0; CELL_BYTES];
            fill(9, index, version, &mut bytes);
            bytes
        };
        assert_eq!(identify(9, 0, &cell, &content(0, 4)).ok(), Some(4));
        assert_eq!(identify(9, 0, &cell, &content(0, 6)).ok(), Some(6));
        assert!(identify(9, 0, &cell, &content(0, 3)).is_err());
        assert!(identify(9, 0, &cell, &content(1, 4)).is_err());
        assert!(identify(9, 0, &cell, &ZEROS).is_err());
        let mut mixed = content(0, 4);
        mixed[256..].copy_from_slice(&content(0, 6)[256..]);
        assert!(identify(9, 0, &cell, &mixed).is_err());
    }
}
