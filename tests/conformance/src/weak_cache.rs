//! Weak cache consistency (RFC 1813 section 2.6): attributes in replies are
//! those that GETATTR gives before and after.

use anyhow::{Result, ensure};
use crossdock_nfs3::call::StableHow;
use crossdock_nfs3::{Call, HandleBuffer, Reply, WccData};

use crate::client::Client;
use crate::operations::{
    access, at, commit, fifo, guarded, link, mkdir, mode, read, readdir, readdirplus, readlink,
    rename, setattr, size, symlink, write,
};
use crate::runner::{Check, Stage, check};

pub(crate) const CHECKS: &[Check] = &[
    check(
        "whoever makes or removes a name gets the directory before and after",
        of_directories,
    ),
    check("RENAME gets both directories before and after", of_rename),
    check(
        "SETATTR, WRITE and COMMIT get the file before and after",
        of_files,
    ),
    check("those that only look get the object as it is", of_looking),
    check(
        "a new object comes with its handle and its attributes",
        of_new_objects,
    ),
    check("failures carry the directory as it is", of_failures),
];

/// The `wcc_data` of a directory in a reply.
fn directory_of(reply: Reply) -> Option<WccData> {
    match reply {
        Reply::Create(Ok(made))
        | Reply::Mkdir(Ok(made))
        | Reply::Symlink(Ok(made))
        | Reply::Mknod(Ok(made)) => Some(made.directory),
        Reply::Remove(Ok(wcc)) | Reply::Rmdir(Ok(wcc)) | Reply::Setattr(Ok(wcc)) => Some(wcc),
        Reply::Link(Ok(linked)) => Some(linked.directory),
        Reply::Write(Ok(written)) => Some(written.file),
        Reply::Commit(Ok(committed)) => Some(committed.file),
        _ => None,
    }
}

/// Carries `call` out; its `wcc_data` is that of `object` around it, if it is shown.
fn around(
    client: &mut Client,
    object: &HandleBuffer,
    is_shown: bool,
    call: &Call<'_>,
) -> Result<()> {
    let before = client.getattr(object)?.wcc();
    let reply = client.call(call)?;
    let procedure = call.procedure();
    let wcc = directory_of(reply.clone());
    let after = client.getattr(object)?;
    let expected = WccData {
        before: Some(before).filter(|_| is_shown),
        after: Some(after).filter(|_| is_shown),
    };
    ensure!(
        wcc == Some(expected),
        "{procedure:?}: {wcc:?}, not {expected:?} ({:?})",
        reply.status()
    );
    Ok(())
}

fn of_directories(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let file = client.create(directory, "file", 0o644)?;
    for call in [
        guarded(at(directory, "new"), 0o644),
        mkdir(at(directory, "sub"), 0o755),
        symlink(at(directory, "symlink"), b"target"),
        fifo(at(directory, "fifo")),
        link(&file, at(directory, "link")),
        Call::Remove(at(directory, "new")),
        Call::Rmdir(at(directory, "sub")),
        Call::Remove(at(directory, "link")),
    ] {
        around(&mut client, directory, !stage.is_hashed, &call)?;
    }
    Ok(())
}

fn of_rename(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let from = client.mkdir(&stage.directory, "from", 0o755)?;
    let to = client.mkdir(&stage.directory, "to", 0o755)?;
    client.create(&from, "file", 0o644)?;
    client.mkdir(&from, "sub", 0o755)?;
    for (source, target) in [
        (at(&from, "file"), at(&to, "file")),
        (at(&from, "sub"), at(&to, "sub")),
        (at(&to, "file"), at(&to, "renamed")),
    ] {
        let source_handle = HandleBuffer::from(source.directory);
        let before = (
            client.getattr(&source_handle)?.wcc(),
            client.getattr(&to)?.wcc(),
        );
        let renamed = client.rename(source, target)?;
        let after = (client.getattr(&source_handle)?, client.getattr(&to)?);
        let of = |before, after| WccData {
            before: stage.shown(before),
            after: stage.shown(after),
        };
        ensure!(
            renamed.source == of(before.0, after.0),
            "source: {renamed:?}"
        );
        ensure!(
            renamed.target == of(before.1, after.1),
            "target: {renamed:?}"
        );
    }
    Ok(())
}

fn of_files(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    let large = vec![7; 200_000];
    for call in [
        setattr(&file, mode(0o600)),
        write(&file, 0, b"small", StableHow::FileSync),
        write(&file, 100, b"unstable", StableHow::Unstable),
        commit(&file),
        // Across the small-file threshold, and beyond it.
        write(&file, 0, &large, StableHow::FileSync),
        write(&file, 100_000, &large, StableHow::Unstable),
        commit(&file),
        setattr(&file, size(70_000)),
        setattr(&file, size(5)),
        write(&file, 0, b"", StableHow::FileSync),
    ] {
        around(&mut client, &file, true, &call)?;
    }
    Ok(())
}

fn of_looking(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let file = client.create(directory, "file", 0o644)?;
    let text = client.symlink(directory, "symlink", b"target")?;
    client.write(&file, 0, b"content", StableHow::FileSync)?;
    client.read(&file, 0, 10)?; // The time of access moves with the first.
    let (of_file, of_directory) = (client.getattr(&file)?, client.getattr(directory)?);
    let of_text = client.getattr(&text)?;
    let shown = stage.shown(of_directory);
    for (call, expected) in [
        (access(&file, 1), Some(of_file)),
        (read(&file, 0, 10), Some(of_file)),
        (readlink(&text), Some(of_text)),
        (readdir(directory, 0, 4096), shown),
        (readdirplus(directory, 0, 4096), shown),
        (crate::operations::fsstat(directory), shown),
        (crate::operations::fsinfo(directory), Some(of_directory)),
        (crate::operations::pathconf(&file), Some(of_file)),
    ] {
        let found = match client.call(&call)? {
            Reply::Access(Ok(done)) => done.attributes,
            Reply::Read(Ok(done)) => done.attributes,
            Reply::Readlink(Ok(done)) => done.attributes,
            Reply::Readdir(Ok(done)) => done.directory,
            Reply::Readdirplus(Ok(done)) => done.directory,
            Reply::Fsstat(Ok(done)) => done.attributes,
            Reply::Fsinfo(Ok(done)) => done.attributes,
            Reply::Pathconf(Ok(done)) => done.attributes,
            _ => None,
        };
        ensure!(found == expected, "{:?}: {found:?}", call.procedure());
    }
    let found = client.found(directory, "file")?;
    ensure!(found.attributes == Some(of_file), "LOOKUP: the file");
    ensure!(found.directory == shown, "LOOKUP: the directory");
    Ok(())
}

fn of_new_objects(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    for (name, call) in [
        ("file", guarded(at(directory, "file"), 0o644)),
        ("sub", mkdir(at(directory, "sub"), 0o755)),
        ("symlink", symlink(at(directory, "symlink"), b"target")),
        ("fifo", fifo(at(directory, "fifo"))),
    ] {
        let made = client.made(&call)?;
        let found = client.found(directory, name)?;
        ensure!(made.object == Some(found.object), "{name}: the handle");
        ensure!(made.attributes == found.attributes, "{name}: attributes");
    }
    Ok(())
}

fn of_failures(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    client.create(directory, "file", 0o644)?;
    let expected = stage.shown(client.getattr(directory)?);
    for call in [
        Call::Lookup(at(directory, "absent")),
        guarded(at(directory, "file"), 0o644),
        mkdir(at(directory, "file"), 0o755),
        Call::Remove(at(directory, "absent")),
        Call::Rmdir(at(directory, "file")),
        rename(at(directory, "absent"), at(directory, "new")),
    ] {
        let found = match client.call(&call)? {
            Reply::Lookup(Err(failure)) => failure.attributes,
            Reply::Create(Err(failure))
            | Reply::Mkdir(Err(failure))
            | Reply::Remove(Err(failure))
            | Reply::Rmdir(Err(failure)) => failure.attributes.after,
            Reply::Rename(Err(failure)) => failure.attributes.source.after,
            _ => None,
        };
        ensure!(found == expected, "{:?}: {found:?}", call.procedure());
    }
    Ok(())
}
