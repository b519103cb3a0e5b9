//! A small job over NFS, from a client of our own that shows every status.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{Call, Commit, CreateHow, Read, StableHow, Write};
use crossdock_nfs3::{HandleBuffer, Location, Name, Reply, SetAttributes, Status};
use crossdock_tests_crash::client::Client;
use crossdock_types::Payload;

use super::program::Up;

/// Nothing; on both sides of the small-file threshold; over all nodes.
pub(in crate::suite) const LENGTHS_BYTES: [usize; 5] = [0, 1, 60_001, 70_001, BIG_BYTES];
/// Of the file that lies on all nodes.
pub(in crate::suite) const BIG_BYTES: usize = 4 << 20;
/// Bytes of one READ or WRITE.
pub(in crate::suite) const PART_BYTES: usize = 64 << 10;

/// Makes files of all lengths, whose names begin with `name`.
pub(in crate::suite) fn write(up: &Up, name: &str) -> Result<()> {
    let mut client = Client::connect(up.nfs)?;
    for length in LENGTHS_BYTES {
        let name = format!("{name}-{length}");
        let file = create(&mut client, &name)?;
        write_file(&mut client, &file, &content(&name, length))?;
    }
    Ok(())
}

/// Makes one file.
pub(in crate::suite) fn write_one(client: &mut Client, name: &str, length: usize) -> Result<()> {
    let file = create(client, name)?;
    write_file(client, &file, &content(name, length))
}

/// Makes files whose parts are written in turns: first the first part of each.
pub(in crate::suite) fn write_in_turns(
    client: &mut Client,
    names: &[&str],
    length: usize,
) -> Result<()> {
    let mut files = Vec::new();
    for name in names {
        files.push((create(client, name)?, content(name, length)));
    }
    for part in 0..length / PART_BYTES {
        for (file, bytes) in &files {
            let piece = &bytes[part * PART_BYTES..][..PART_BYTES];
            write_part(client, file, (part, piece), StableHow::FileSync)?;
        }
    }
    Ok(())
}

/// Compares all files with what was written.
pub(in crate::suite) fn verify(up: &Up, name: &str) -> Result<()> {
    let mut client = Client::connect(up.nfs)?;
    for length in LENGTHS_BYTES {
        let statuses = read(&mut client, &format!("{name}-{length}"), length)?;
        ensure!(
            statuses.iter().all(Option::is_none),
            "{name}-{length}: {statuses:?}"
        );
    }
    Ok(())
}

/// Reads a file in parts, all of them outstanding at once, and returns the
/// parts' failures. What is read must be what was written.
pub(in crate::suite) fn read(
    client: &mut Client,
    name: &str,
    length: usize,
) -> Result<Vec<Option<Status>>> {
    let file = lookup(client, name)?;
    read_handle(client, &file, &content(name, length))
}

/// Reads `expected` from `file`, as [`read`] does.
pub(in crate::suite) fn read_handle(
    client: &mut Client,
    file: &HandleBuffer,
    expected: &[u8],
) -> Result<Vec<Option<Status>>> {
    let length = expected.len();
    let parts = length.div_ceil(PART_BYTES);
    let mut xids = Vec::new();
    for part in 0..parts {
        let call = Call::Read(Read {
            file: file.as_handle(),
            offset: u64::try_from(part * PART_BYTES)?,
            count_bytes: u32::try_from(PART_BYTES)?,
        });
        xids.push(client.send(&call)?.context("the connection is gone")?);
    }
    let mut statuses = vec![None; parts];
    for _ in 0..parts {
        let (xid, reply) = client.receive()?.context("the connection is gone")?;
        let part = xids.iter().position(|sent| *sent == xid);
        let part = part.context("a reply to nothing")?;
        match reply {
            Reply::Read(Ok(done)) => {
                let end = length.min((part + 1) * PART_BYTES);
                let same = bytes_of(&done.data) == expected[part * PART_BYTES..end];
                ensure!(same, "part {part} of {length} bytes was read wrong");
            }
            Reply::Read(Err(failure)) => statuses[part] = Some(failure.status),
            other => bail!("{other:?}"),
        }
    }
    Ok(statuses)
}

/// The file of that name in the root.
pub(in crate::suite) fn lookup(client: &mut Client, name: &str) -> Result<HandleBuffer> {
    let root = client.root();
    match client.call(&Call::Lookup(in_root(&root, name)))? {
        Reply::Lookup(Ok(found)) => Ok(found.object),
        other => bail!("cannot look {name} up: {:?}", other.status()),
    }
}

/// Bytes in which each place can be told from its neighbours, and one file
/// from another.
pub(in crate::suite) fn content(name: &str, length: usize) -> Vec<u8> {
    let of_file = name
        .bytes()
        .fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    (0_u64..)
        .take(length.div_ceil(8))
        .flat_map(|word| (word ^ (of_file << 24)).to_le_bytes())
        .take(length)
        .collect()
}

fn create(client: &mut Client, name: &str) -> Result<HandleBuffer> {
    let root = client.root();
    let call = Call::Create(crossdock_nfs3::call::Create {
        location: in_root(&root, name),
        how: CreateHow::Guarded(SetAttributes {
            mode: Some(0o644),
            ..SetAttributes::default()
        }),
    });
    match client.call(&call)? {
        Reply::Create(Ok(made)) => made.object.context("no handle"),
        other => bail!("cannot make {name}: {:?}", other.status()),
    }
}

fn write_file(client: &mut Client, file: &HandleBuffer, bytes: &[u8]) -> Result<()> {
    for (part, piece) in bytes.chunks(PART_BYTES).enumerate() {
        write_part(client, file, (part, piece), StableHow::Unstable)?;
    }
    let commit = Call::Commit(Commit {
        file: file.as_handle(),
        offset: 0,
        count_bytes: 0,
    });
    match client.call(&commit)? {
        Reply::Commit(Ok(_)) => Ok(()),
        other => bail!("cannot commit: {:?}", other.status()),
    }
}

fn write_part(
    client: &mut Client,
    file: &HandleBuffer,
    (part, piece): (usize, &[u8]),
    stable: StableHow,
) -> Result<()> {
    let call = Call::Write(Write {
        file: file.as_handle(),
        offset: u64::try_from(part * PART_BYTES)?,
        count_bytes: u32::try_from(piece.len())?,
        stable,
        data: Payload::from(Bytes::copy_from_slice(piece)),
    });
    match client.call(&call)? {
        Reply::Write(Ok(done)) if done.count_bytes == u32::try_from(piece.len())? => Ok(()),
        other => bail!("cannot write: {other:?}"),
    }
}

fn in_root<'a>(root: &'a HandleBuffer, name: &'a str) -> Location<'a> {
    Location {
        directory: root.as_handle(),
        name: Name(name.as_bytes()),
    }
}

fn bytes_of(payload: &Payload) -> Vec<u8> {
    payload
        .pieces()
        .iter()
        .flat_map(|piece| piece.to_vec())
        .collect()
}
