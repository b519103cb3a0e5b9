//! Which names there are, and where dots lead (RFC 1813 section 3.2).

use anyhow::{Result, ensure};
use crossdock_nfs3::{Call, HandleBuffer, Status};

use crate::client::Client;
use crate::operations::{at, exclusive, fifo, guarded, link, mkdir, rename, symlink};
use crate::runner::{Check, Stage, check};

pub(crate) const CHECKS: &[Check] = &[
    check(
        "names of 255 bytes can be made, found, listed, renamed and removed",
        longest_names,
    ),
    check(
        "names of 256 and of 4,096 bytes are NAMETOOLONG for every procedure",
        too_long,
    ),
    check("the empty name is INVAL for every procedure", empty),
    check(
        "names with a slash are INVAL: ../x leads nowhere",
        with_slashes,
    ),
    check("names with a NUL are INVAL", with_nul),
    check(
        ". and .. are found by LOOKUP and cannot be made, renamed or removed",
        dots,
    ),
    check("the root is its own parent", root_is_its_parent),
    check(
        ".. follows a directory that is moved",
        parent_follows_a_move,
    ),
    check(
        "every byte but slash and NUL can stand in a name, case counts",
        any_byte,
    ),
    check(
        "names in what is no directory are NOTDIR for every procedure",
        no_directory,
    ),
    check(
        "what is not there is NOENT for LOOKUP, REMOVE, RMDIR and RENAME",
        not_there,
    ),
    check(
        "what is there is EXIST for all that make something",
        there_already,
    ),
];

/// Every call that takes a name, with this one; RENAME in both places.
fn all_with<'a>(
    directory: &'a HandleBuffer,
    file: &'a HandleBuffer,
    name: &'a [u8],
) -> Vec<Call<'a>> {
    let mut calls = vec![Call::Lookup(at(directory, name))];
    calls.extend(making(directory, file, name));
    calls.extend([
        Call::Remove(at(directory, name)),
        Call::Rmdir(at(directory, name)),
        rename(at(directory, name), at(directory, "unused")),
        rename(at(directory, "file"), at(directory, name)),
    ]);
    calls
}

/// Those that make something.
fn making<'a>(
    directory: &'a HandleBuffer,
    file: &'a HandleBuffer,
    name: &'a [u8],
) -> [Call<'a>; 6] {
    [
        guarded(at(directory, name), 0o644),
        exclusive(at(directory, name), [1; 8]),
        mkdir(at(directory, name), 0o755),
        symlink(at(directory, name), b"target"),
        fifo(at(directory, name)),
        link(file, at(directory, name)),
    ]
}

/// All calls are refused with `status`, and nothing has changed.
fn refused(stage: &Stage<'_>, names: &[&[u8]], status: Status) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for name in names {
        for call in all_with(&stage.directory, &file, name) {
            client.refuses(status, &call)?;
        }
    }
    let listed = client.names(&stage.directory)?;
    ensure!(listed == [b"file"], "now there are {listed:?}");
    Ok(())
}

fn longest_names(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let names: Vec<Vec<u8>> = (b'a'..=b'f').map(|letter| vec![letter; 255]).collect();
    let file = client.create(directory, &names[0], 0o644)?;
    client.mkdir(directory, &names[1], 0o755)?;
    client.symlink(directory, &names[2], b"target")?;
    client.fifo(directory, &names[3])?;
    client.link(&file, at(directory, &names[4]))?;
    client.rename(at(directory, &names[0]), at(directory, &names[5]))?;
    ensure!(client.lookup(directory, &names[5])? == file, "another file");
    let mut listed = client.names(directory)?;
    listed.sort(); // With hashed names, those of one site come after those of another.
    ensure!(listed == [&names[1..]].concat(), "{} names", listed.len());
    for name in [&names[2], &names[3], &names[4], &names[5]] {
        client.remove(directory, name)?;
    }
    client.rmdir(directory, &names[1])?;
    ensure!(client.names(directory)?.is_empty(), "something is left");
    Ok(())
}

fn too_long(stage: &Stage<'_>) -> Result<()> {
    let names: [&[u8]; 3] = [&[b'x'; 256], &[b'.'; 256], &[b'x'; 4096]];
    refused(stage, &names, Status::NameTooLong)
}

fn empty(stage: &Stage<'_>) -> Result<()> {
    refused(stage, &[b""], Status::Inval)
}

fn with_slashes(stage: &Stage<'_>) -> Result<()> {
    let names: [&[u8]; 8] = [
        b"../x",
        b"/",
        b"a/b",
        b"/etc/passwd",
        b"file/",
        b"./file",
        b"..//",
        b"../../../../etc",
    ];
    refused(stage, &names, Status::Inval)
}

fn with_nul(stage: &Stage<'_>) -> Result<()> {
    refused(
        stage,
        &[b"\0", b"file\0", b"\0file", b"a\0b"],
        Status::Inval,
    )
}

fn dots(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let file = client.create(directory, "file", 0o644)?;
    ensure!(
        client.lookup(directory, ".")? == *directory,
        "`.` is another"
    );
    ensure!(
        client.lookup(directory, "..")? == stage.root,
        "`..` is another"
    );
    for name in [&b"."[..], b".."] {
        for call in making(directory, &file, name) {
            client.refuses(Status::Exist, &call)?;
        }
        client.refuses(Status::Inval, &Call::Remove(at(directory, name)))?;
        for (from, to) in [(name, &b"new"[..]), (b"file", name)] {
            let call = rename(at(directory, from), at(directory, to));
            client.refuses(Status::Inval, &call)?;
        }
    }
    // RFC 1813 section 3.3.13 tells these two apart.
    client.refuses(Status::Inval, &Call::Rmdir(at(directory, ".")))?;
    client.refuses(Status::Exist, &Call::Rmdir(at(directory, "..")))?;
    // Names that only begin like them are names.
    for name in ["...", ".file", "..file", ". ", " "] {
        client.create(directory, name, 0o644)?;
        client.remove(directory, name)?;
    }
    Ok(())
}

fn root_is_its_parent(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for name in [".", ".."] {
        ensure!(client.lookup(&stage.root, name)? == stage.root, "{name}");
    }
    let listed = client.readdir(&stage.root, 0, 4096)?;
    let root = client.getattr(&stage.root)?.fileid;
    let numbers: Vec<u64> = listed.entries.iter().take(2).map(|e| e.fileid).collect();
    ensure!(numbers == [root, root], "{numbers:?}, not {root}");
    Ok(())
}

fn parent_follows_a_move(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let first = client.mkdir(directory, "first", 0o755)?;
    let second = client.mkdir(directory, "second", 0o755)?;
    let moved = client.mkdir(&first, "moved", 0o755)?;
    ensure!(client.lookup(&moved, "..")? == first, "before");
    client.rename(at(&first, "moved"), at(&second, "moved"))?;
    ensure!(client.lookup(&moved, "..")? == second, "after");
    let number = client.getattr(&second)?.fileid;
    let listed = client.readdir(&moved, 0, 4096)?;
    let parent = listed.entries.iter().nth(1).map(|entry| entry.fileid);
    ensure!(parent == Some(number), "listed as {parent:?}");
    Ok(())
}

fn any_byte(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let mut expected = Vec::new();
    for byte in (1..=255u8).filter(|byte| !matches!(byte, b'/' | b'.')) {
        expected.push((vec![byte], client.create(directory, [byte], 0o644)?));
    }
    for (name, file) in &expected {
        let found = client.lookup(directory, name)?;
        ensure!(found == *file, "{name:?} is another file");
    }
    let mut listed = client.names(directory)?;
    listed.sort_unstable();
    let names: Vec<Vec<u8>> = expected.into_iter().map(|(name, _)| name).collect();
    ensure!(listed == names, "listed as {listed:?}");
    Ok(())
}

fn no_directory(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let file = client.create(directory, "file", 0o644)?;
    let symlink = client.symlink(directory, "symlink", b".")?;
    let fifo = client.fifo(directory, "fifo")?;
    for object in [&file, &symlink, &fifo] {
        let mut calls = vec![
            Call::Lookup(at(object, "name")),
            Call::Lookup(at(object, ".")),
            Call::Remove(at(object, "name")),
            Call::Rmdir(at(object, "name")),
            rename(at(object, "name"), at(directory, "new")),
            rename(at(directory, "file"), at(object, "new")),
        ];
        calls.extend(making(object, &file, b"name"));
        calls.push(crate::operations::readdir(object, 0, 4096));
        calls.push(crate::operations::readdirplus(object, 0, 4096));
        for call in calls {
            client.refuses(Status::NotDir, &call)?;
        }
    }
    Ok(())
}

fn not_there(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    for call in [
        Call::Lookup(at(directory, "absent")),
        Call::Remove(at(directory, "absent")),
        Call::Rmdir(at(directory, "absent")),
        rename(at(directory, "absent"), at(directory, "new")),
        rename(at(directory, "absent"), at(directory, "absent")),
    ] {
        client.refuses(Status::NoEnt, &call)?;
    }
    Ok(())
}

fn there_already(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let file = client.create(directory, "file", 0o644)?;
    client.mkdir(directory, "directory", 0o755)?;
    client.symlink(directory, "symlink", b"file")?;
    client.fifo(directory, "fifo")?;
    for name in ["file", "directory", "symlink", "fifo"] {
        for call in making(directory, &file, name.as_bytes()) {
            client.refuses(Status::Exist, &call)?;
        }
    }
    links(&mut client, &file, 1)
}

fn links(client: &mut Client, file: &HandleBuffer, expected: u32) -> Result<()> {
    let links = client.getattr(file)?.links;
    ensure!(links == expected, "{links} links");
    Ok(())
}
