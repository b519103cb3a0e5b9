//! REMOVE, RMDIR, RENAME and LINK: what they refuse, and what is left.

use anyhow::{Result, ensure};
use crossdock_nfs3::call::StableHow;
use crossdock_nfs3::{Call, HandleBuffer, Status};

use crate::client::Client;
use crate::operations::{at, getattr, link, rename};
use crate::runner::{Check, Stage, check};

pub(crate) const CHECKS: &[Check] = &[
    check("REMOVE of a directory is ISDIR", remove_directory),
    check("RMDIR of what is no directory is NOTDIR", rmdir_of_others),
    check(
        "RMDIR of a directory with anything in it is NOTEMPTY",
        rmdir_not_empty,
    ),
    check("LINK to a directory is ISDIR", link_to_directory),
    check(
        "LINK to files, links and pipes counts up and down",
        link_counts,
    ),
    check(
        "RENAME of a directory into itself or below is INVAL",
        rename_below_itself,
    ),
    check(
        "RENAME over a directory with anything in it is NOTEMPTY",
        rename_over_full,
    ),
    check(
        "RENAME of a directory over a file is NOTDIR, of a file over a directory ISDIR",
        rename_over_another_kind,
    ),
    check(
        "RENAME over an empty directory or a file replaces it",
        rename_replaces,
    ),
    check(
        "RENAME to its own name, or to another name of the same file, changes nothing",
        rename_to_itself,
    ),
    check(
        "RENAME over a file with another name takes one name only",
        rename_over_link,
    ),
    check(
        "a directory's links count the directories in it",
        directory_links,
    ),
];

fn remove_directory(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    client.mkdir(&stage.directory, "sub", 0o755)?;
    client.refuses(Status::IsDir, &Call::Remove(at(&stage.directory, "sub")))?;
    client.lookup(&stage.directory, "sub")?;
    Ok(())
}

fn rmdir_of_others(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    client.create(directory, "file", 0o644)?;
    client.symlink(directory, "symlink", b".")?;
    client.fifo(directory, "fifo")?;
    for name in ["file", "symlink", "fifo"] {
        client.refuses(Status::NotDir, &Call::Rmdir(at(directory, name)))?;
        client.remove(directory, name)?;
    }
    Ok(())
}

/// Fills an empty directory with one thing after the other.
fn with_each_kind(
    client: &mut Client,
    directory: &HandleBuffer,
    mut check: impl FnMut(&mut Client) -> Result<()>,
) -> Result<()> {
    client.create(directory, "in", 0o644)?;
    check(client)?;
    client.remove(directory, "in")?;
    client.mkdir(directory, "in", 0o755)?;
    check(client)?;
    client.rmdir(directory, "in")?;
    client.symlink(directory, "in", b"nowhere")?;
    check(client)?;
    client.remove(directory, "in")?;
    client.fifo(directory, "in")?;
    check(client)?;
    client.remove(directory, "in")?;
    Ok(())
}

fn rmdir_not_empty(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let sub = client.mkdir(&stage.directory, "sub", 0o755)?;
    let call = Call::Rmdir(at(&stage.directory, "sub"));
    with_each_kind(&mut client, &sub, |client| {
        client.refuses(Status::NotEmpty, &call)
    })?;
    client.accepts(&call)?;
    client.refuses(Status::Stale, &getattr(&sub))
}

fn link_to_directory(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let sub = client.mkdir(&stage.directory, "sub", 0o755)?;
    for object in [&sub, &stage.directory, &stage.root] {
        let call = link(object, at(&stage.directory, "link"));
        client.refuses(Status::IsDir, &call)?;
    }
    Ok(())
}

fn link_counts(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let file = client.create(directory, "file", 0o644)?;
    client.write(&file, 0, b"content", StableHow::FileSync)?;
    let symlink = client.symlink(directory, "symlink", b"target")?;
    let fifo = client.fifo(directory, "fifo")?;
    for (object, name) in [(file, "file"), (symlink, "symlink"), (fifo, "fifo")] {
        for count in 2..=10 {
            let other = format!("{name}-{count}");
            let linked = client.link(&object, at(directory, &other))?;
            let links = linked.attributes.map(|attributes| attributes.links);
            ensure!(links == Some(count), "{links:?}, not {count}");
            ensure!(client.lookup(directory, &other)? == object, "another");
        }
        client.remove(directory, name)?;
        for count in (2..=10).rev() {
            let links = client.getattr(&object)?.links;
            ensure!(links == count - 1, "{links} links");
            client.remove(directory, format!("{name}-{count}"))?;
        }
        client.refuses(Status::Stale, &getattr(&object))?;
    }
    Ok(())
}

fn rename_below_itself(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let top = client.mkdir(&stage.directory, "top", 0o755)?;
    let middle = client.mkdir(&top, "middle", 0o755)?;
    let low = client.mkdir(&middle, "low", 0o755)?;
    for below in [&top, &middle, &low] {
        let call = rename(at(&stage.directory, "top"), at(below, "new"));
        client.refuses(Status::Inval, &call)?;
    }
    // Over one of its own ancestors: that one is not empty.
    let call = rename(at(&middle, "low"), at(&stage.directory, "top"));
    client.refuses(Status::NotEmpty, &call)?;
    ensure!(client.lookup(&low, "..")? == middle, "the tree has changed");
    Ok(())
}

fn rename_over_full(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    client.mkdir(directory, "moved", 0o755)?;
    let full = client.mkdir(directory, "full", 0o755)?;
    let call = rename(at(directory, "moved"), at(directory, "full"));
    with_each_kind(&mut client, &full, |client| {
        client.refuses(Status::NotEmpty, &call)
    })?;
    client.accepts(&call)
}

fn rename_over_another_kind(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    client.mkdir(directory, "sub", 0o755)?;
    client.create(directory, "file", 0o644)?;
    client.symlink(directory, "symlink", b"sub")?;
    client.fifo(directory, "fifo")?;
    for name in ["file", "symlink", "fifo"] {
        let over = rename(at(directory, "sub"), at(directory, name));
        client.refuses(Status::NotDir, &over)?;
        let under = rename(at(directory, name), at(directory, "sub"));
        client.refuses(Status::IsDir, &under)?;
    }
    ensure!(client.names(directory)?.len() == 4, "something is gone");
    Ok(())
}

fn rename_replaces(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let other = client.mkdir(directory, "other", 0o755)?;
    for to in [directory, &other] {
        let new = client.create(directory, "new", 0o644)?;
        let old = client.create(to, "old", 0o644)?;
        client.rename(at(directory, "new"), at(to, "old"))?;
        ensure!(client.lookup(to, "old")? == new, "not replaced");
        client.refuses(Status::Stale, &getattr(&old))?;
        client.refuses(Status::NoEnt, &Call::Lookup(at(directory, "new")))?;
        let new = client.mkdir(directory, "new-sub", 0o755)?;
        let old = client.mkdir(to, "old-sub", 0o755)?;
        client.rename(at(directory, "new-sub"), at(to, "old-sub"))?;
        ensure!(client.lookup(to, "old-sub")? == new, "not replaced");
        client.refuses(Status::Stale, &getattr(&old))?;
        // A link that is renamed is not followed.
        let link = client.symlink(directory, "new", b"old-sub")?;
        client.rename(at(directory, "new"), at(to, "old"))?;
        ensure!(client.lookup(to, "old")? == link, "followed");
    }
    Ok(())
}

fn rename_to_itself(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let file = client.create(directory, "file", 0o644)?;
    let sub = client.mkdir(directory, "sub", 0o755)?;
    client.create(&sub, "in", 0o644)?;
    client.link(&file, at(directory, "link"))?;
    client.rename(at(directory, "file"), at(directory, "file"))?;
    client.rename(at(directory, "sub"), at(directory, "sub"))?;
    // Two names of one file: POSIX says that both stay.
    client.rename(at(directory, "file"), at(directory, "link"))?;
    let names = client.names(directory)?;
    ensure!(names.len() == 3, "{names:?}");
    ensure!(client.getattr(&file)?.links == 2, "another number of links");
    Ok(())
}

fn rename_over_link(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let old = client.create(directory, "old", 0o644)?;
    client.link(&old, at(directory, "kept"))?;
    let new = client.create(directory, "new", 0o644)?;
    client.rename(at(directory, "new"), at(directory, "old"))?;
    ensure!(client.lookup(directory, "old")? == new, "not replaced");
    ensure!(client.lookup(directory, "kept")? == old, "gone");
    let links = client.getattr(&old)?.links;
    ensure!(links == 1, "{links} links");
    Ok(())
}

fn directory_links(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let expect = |client: &mut Client, of: &HandleBuffer, expected: u32| {
        let links = client.getattr(of)?.links;
        ensure!(links == expected, "{links} links, not {expected}");
        Ok(())
    };
    expect(&mut client, directory, 2)?;
    let a = client.mkdir(directory, "a", 0o755)?;
    let b = client.mkdir(directory, "b", 0o755)?;
    client.create(directory, "file", 0o644)?;
    expect(&mut client, directory, 4)?;
    client.mkdir(&a, "moved", 0o755)?;
    expect(&mut client, &a, 3)?;
    client.rename(at(&a, "moved"), at(&b, "moved"))?;
    expect(&mut client, &a, 2)?;
    expect(&mut client, &b, 3)?;
    // Over an empty directory, in the same and in another one.
    client.rename(at(directory, "a"), at(&b, "moved"))?;
    expect(&mut client, directory, 3)?;
    expect(&mut client, &b, 3)?;
    client.mkdir(directory, "c", 0o755)?;
    client.mkdir(directory, "d", 0o755)?;
    client.rename(at(directory, "c"), at(directory, "d"))?;
    expect(&mut client, directory, 4)?;
    client.rmdir(directory, "d")?;
    expect(&mut client, directory, 3)
}
