//! File handles: forged, foreign, cut, and of what is gone.

use anyhow::{Result, ensure};
use crossdock_nfs3::call::StableHow;
use crossdock_nfs3::{Call, HandleBuffer, Procedure, Status};

use crate::client::Client;
use crate::operations::{
    access, at, commit, fifo, fsinfo, fsstat, getattr, guarded, link, mkdir, mode, pathconf, read,
    readdir, readdirplus, readlink, rename, setattr, symlink, write,
};
use crate::runner::{Check, Stage, check, with_servers};

pub(crate) const CHECKS: &[Check] = &[
    check("a handle with any bit turned is BADHANDLE", turned_bits),
    check("a handle of any other length is BADHANDLE", other_lengths),
    check(
        "a handle that nobody gave is BADHANDLE for every procedure",
        nobodys,
    ),
    with_servers("a handle of another volume is BADHANDLE", foreign),
    with_servers(
        "what was removed is STALE for every procedure, also after a restart",
        removed,
    ),
    with_servers(
        "handles last over renames, other names and restarts",
        lasting,
    ),
    check(
        "a removed file stays STALE when its name is used again",
        used_again,
    ),
];

/// Every procedure on this object, which may be anything, in every place where
/// a handle stands; `file` and `directory` are good ones.
fn all_on<'a>(
    object: &'a HandleBuffer,
    file: &'a HandleBuffer,
    directory: &'a HandleBuffer,
) -> Vec<Call<'a>> {
    vec![
        getattr(object),
        setattr(object, mode(0o644)),
        access(object, 0x3f),
        readlink(object),
        read(object, 0, 100),
        read(object, 100_000, 100),
        write(object, 0, b"data", StableHow::Unstable),
        write(object, 0, b"data", StableHow::FileSync),
        write(object, 100_000, b"data", StableHow::FileSync),
        commit(object),
        link(object, at(directory, "linked")),
        fsstat(object),
        fsinfo(object),
        pathconf(object),
        Call::Lookup(at(object, "name")),
        Call::Lookup(at(object, ".")),
        guarded(at(object, "name"), 0o644),
        mkdir(at(object, "name"), 0o755),
        symlink(at(object, "name"), b"target"),
        fifo(at(object, "name")),
        Call::Remove(at(object, "name")),
        Call::Rmdir(at(object, "name")),
        rename(at(object, "name"), at(directory, "moved")),
        rename(at(directory, "file"), at(object, "moved")),
        link(file, at(object, "linked")),
        readdir(object, 0, 4096),
        readdirplus(object, 0, 4096),
    ]
}

fn turned_bits(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for object in [&file, &stage.directory, &stage.root] {
        let good = object.as_bytes();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Some(forged) = HandleBuffer::new(&bytes) else {
                continue;
            };
            client.refuses(Status::BadHandle, &getattr(&forged))?;
        }
        client.accepts(&getattr(object))?;
    }
    Ok(())
}

fn other_lengths(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let mut bytes = stage.directory.as_bytes().to_vec();
    let good = bytes.len();
    bytes.resize(64, 0);
    let mut count = 0;
    for length in (0..=64).filter(|length| *length != good) {
        if let Some(cut) = HandleBuffer::new(&bytes[..length]) {
            client.refuses(Status::BadHandle, &getattr(&cut))?;
            count += 1;
        }
    }
    ensure!(count == 64, "{count} lengths");
    Ok(())
}

/// All procedures but NULL answer `status`.
fn every_procedure(
    client: &mut Client,
    stage: &Stage<'_>,
    object: &HandleBuffer,
    directory: &HandleBuffer,
    status: Status,
) -> Result<()> {
    let file = client.lookup(directory, "file")?;
    let calls = all_on(object, &file, directory);
    let covered = |procedure| calls.iter().any(|call| call.procedure() == procedure);
    ensure!(
        Procedure::ALL.iter().skip(1).all(|p| covered(*p)),
        "a procedure is missing ({})",
        stage.name
    );
    for call in &calls {
        client.refuses(status, call)?;
    }
    Ok(())
}

fn nobodys(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    client.create(directory, "file", 0o644)?;
    let good = directory.as_bytes().len();
    for bytes in [vec![], vec![0; good], vec![0xff; 64], vec![0x5a; good]] {
        if let Some(handle) = HandleBuffer::new(&bytes) {
            every_procedure(&mut client, stage, &handle, directory, Status::BadHandle)?;
        }
    }
    ensure!(client.names(directory)?.len() == 1, "something was made");
    Ok(())
}

fn foreign(stage: &Stage<'_>) -> Result<()> {
    let server = stage.own_server("foreign", &[])?;
    let mut there = Client::connect(server.address())?;
    let root = there.mount("/")?;
    let file = there.create(&root, "file", 0o644)?;
    server.stop()?;
    stage.clear("foreign")?;
    let mut client = stage.client()?;
    client.create(&stage.directory, "file", 0o644)?;
    for handle in [&root, &file] {
        every_procedure(
            &mut client,
            stage,
            handle,
            &stage.directory,
            Status::BadHandle,
        )?;
    }
    Ok(())
}

fn removed(stage: &Stage<'_>) -> Result<()> {
    let server = stage.own_server("stale", &[])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    client.create(&root, "file", 0o644)?;
    let data = vec![5; 200_000];
    let gone_file = client.create(&root, "gone", 0o644)?;
    client.write(&gone_file, 0, &data, StableHow::FileSync)?;
    client.remove(&root, "gone")?;
    let gone_link = client.symlink(&root, "gone", b"target")?;
    client.remove(&root, "gone")?;
    let gone_directory = client.mkdir(&root, "gone", 0o755)?;
    client.rmdir(&root, "gone")?;
    for object in [&gone_file, &gone_link, &gone_directory] {
        every_procedure(&mut client, stage, object, &root, Status::Stale)?;
    }
    server.kill()?;
    let server = stage.own_server("stale", &[])?;
    let mut client = Client::connect(server.address())?;
    // Nothing that is made now has a handle of what is gone.
    for number in 0..20 {
        let new = client.create(&root, format!("new-{number}"), 0o644)?;
        let gone = [gone_file, gone_link, gone_directory];
        ensure!(!gone.contains(&new), "a handle is used again");
    }
    for object in [&gone_file, &gone_link, &gone_directory] {
        every_procedure(&mut client, stage, object, &root, Status::Stale)?;
    }
    server.stop()?;
    stage.clear("stale")
}

fn lasting(stage: &Stage<'_>) -> Result<()> {
    let server = stage.own_server("lasting", &[])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let sub = client.mkdir(&root, "sub", 0o755)?;
    let file = client.create(&root, "file", 0o644)?;
    client.write(&file, 0, b"content", StableHow::FileSync)?;
    client.rename(at(&root, "file"), at(&sub, "renamed"))?;
    client.link(&file, at(&root, "other"))?;
    client.remove(&sub, "renamed")?;
    client.rename(at(&root, "sub"), at(&root, "sub2"))?;
    let before = (client.getattr(&file)?, client.getattr(&sub)?);
    server.stop()?;

    let server = stage.own_server("lasting", &[])?;
    let mut client = Client::connect(server.address())?;
    ensure!(client.mount("/")? == root, "the root has another handle");
    let after = (client.getattr(&file)?, client.getattr(&sub)?);
    ensure!(after == before, "{after:?}, not {before:?}");
    ensure!(client.lookup(&root, "other")? == file, "another handle");
    ensure!(client.lookup(&root, "sub2")? == sub, "another handle");
    let read = client.read(&file, 0, 100)?;
    ensure!(read.data.to_bytes()[..] == b"content"[..], "other bytes");
    server.stop()?;
    stage.clear("lasting")
}

fn used_again(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let mut gone = Vec::new();
    for round in 0..50 {
        let file = client.create(&stage.directory, "name", 0o644)?;
        ensure!(!gone.contains(&file), "round {round}: a handle twice");
        client.remove(&stage.directory, "name")?;
        gone.push(file);
    }
    client.create(&stage.directory, "name", 0o644)?;
    for handle in &gone {
        client.refuses(Status::Stale, &getattr(handle))?;
    }
    Ok(())
}
