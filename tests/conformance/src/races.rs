//! Many clients at once on the same names: who wins, and what is left.

use std::sync::Barrier;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use crossdock_nfs3::call::{Setattr, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Status};

use crate::client::Client;
use crate::operations::{
    at, exclusive, getattr, guarded, link, mkdir, mode, rename, setattr, size, symlink, write,
};
use crate::runner::{Check, Stage, check};

pub(crate) const CHECKS: &[Check] = &[
    check(
        "of 16 that make the same name one wins, the others get EXIST",
        one_maker,
    ),
    check(
        "of 16 that remove the same name one wins, the others get NOENT",
        one_remover,
    ),
    check(
        "of 16 that rename the same file one wins, and there is one file",
        one_mover,
    ),
    check(
        "16 renames over one name leave one file, and the others are STALE",
        one_target,
    ),
    check(
        "two directories that are moved into each other never become a loop",
        no_loops,
    ),
    check(
        "a directory that is removed while files are made in it is gone or has them",
        rmdir_against_create,
    ),
    check(
        "links that come and go from 8 clients are counted right",
        links_are_counted,
    ),
    check(
        "WRITEs of 8 clients to parts of one file are all there",
        writes_side_by_side,
    ),
    check(
        "bytes that a truncate has cut never come back, whoever wrote at that moment",
        truncate_against_write,
    ),
    check(
        "of 8 SETATTRs with the same guard one wins, the others get NOT_SYNC",
        one_guard,
    ),
    check(
        "after 8 clients renamed, linked and removed at random, names and links agree",
        everything_at_once,
    ),
];

/// Runs `act` in `count` threads that begin at once; what each returned.
fn together<T: Send>(
    stage: &Stage<'_>,
    count: usize,
    act: impl Fn(usize, &mut Client) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let start = Barrier::new(count);
    let clients: Vec<Client> = (0..count).map(|_| stage.client()).collect::<Result<_>>()?;
    thread::scope(|scope| {
        let act = &act;
        let start = &start;
        let threads: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(number, mut client)| {
                scope.spawn(move || {
                    start.wait();
                    act(number, &mut client)
                })
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<T>>| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a thread has panicked"),
        };
        // All are waited for, also behind the first that failed.
        let results: Vec<Result<T>> = threads.into_iter().map(join).collect();
        results.into_iter().collect()
    })
}

/// One success, and `status` for everybody else.
fn one_winner(statuses: &[Option<Status>], status: Status, what: &str) -> Result<usize> {
    let winner = statuses.iter().position(Option::is_none);
    let others = statuses.iter().filter(|s| **s == Some(status)).count();
    ensure!(others + 1 == statuses.len(), "{what}: {statuses:?}");
    winner.context("nobody has won")
}

fn one_maker(stage: &Stage<'_>) -> Result<()> {
    let file = stage.client()?.create(&stage.directory, "file", 0o644)?;
    for round in 0..5 {
        for kind in ["guarded", "exclusive", "mkdir", "symlink", "link"] {
            let name = format!("{kind}-{round}");
            let statuses = together(stage, 16, |number, client| {
                let location = at(&stage.directory, &name);
                let text = format!("{number}");
                client.status(&match kind {
                    "guarded" => guarded(location, 0o644),
                    "exclusive" => exclusive(location, [u8::try_from(number)?; 8]),
                    "mkdir" => mkdir(location, 0o755),
                    "symlink" => symlink(location, text.as_bytes()),
                    _ => link(&file, location),
                })
            })?;
            let winner = one_winner(&statuses, Status::Exist, &name)?;
            if kind == "symlink" {
                let mut client = stage.client()?;
                let symlink = client.lookup(&stage.directory, &name)?;
                let text = client.readlink(&symlink)?;
                ensure!(text[..] == *format!("{winner}").as_bytes(), "{text:?}");
            }
        }
    }
    let mut client = stage.client()?;
    ensure!(client.names(&stage.directory)?.len() == 26, "names");
    let links = client.getattr(&file)?.links;
    ensure!(links == 6, "{links} links");
    Ok(())
}

fn one_remover(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for round in 0..10 {
        let name = format!("file-{round}");
        client.create(&stage.directory, &name, 0o644)?;
        let statuses = together(stage, 16, |_, client| {
            client.status(&Call::Remove(at(&stage.directory, &name)))
        })?;
        one_winner(&statuses, Status::NoEnt, "REMOVE")?;
        client.mkdir(&stage.directory, &name, 0o755)?;
        let statuses = together(stage, 16, |_, client| {
            client.status(&Call::Rmdir(at(&stage.directory, &name)))
        })?;
        one_winner(&statuses, Status::NoEnt, "RMDIR")?;
    }
    let links = client.getattr(&stage.directory)?.links;
    ensure!(links == 2, "{links} links");
    Ok(())
}

fn one_mover(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let other = client.mkdir(&stage.directory, "other", 0o755)?;
    for round in 0..10 {
        let source = format!("source-{round}");
        let file = client.create(&stage.directory, &source, 0o644)?;
        let target = |number| format!("target-{round}-{number}");
        let place = |number| {
            if number % 2 == 0 {
                &stage.directory
            } else {
                &other
            }
        };
        let statuses = together(stage, 16, |number, client| {
            let (name, directory) = (target(number), place(number));
            client.status(&rename(at(&stage.directory, &source), at(directory, &name)))
        })?;
        let winner = one_winner(&statuses, Status::NoEnt, "RENAME")?;
        let found = client.lookup(place(winner), target(winner))?;
        ensure!(found == file, "another file");
        client.remove(place(winner), target(winner))?;
    }
    ensure!(client.names(&stage.directory)? == [b"other"], "more names");
    ensure!(client.names(&other)?.is_empty(), "more names");
    Ok(())
}

fn one_target(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let mut files = Vec::new();
    for number in 0..16 {
        files.push(client.create(&stage.directory, format!("s-{number}"), 0o644)?);
    }
    let statuses = together(stage, 16, |number, client| {
        let name = format!("s-{number}");
        client.status(&rename(
            at(&stage.directory, &name),
            at(&stage.directory, "target"),
        ))
    })?;
    ensure!(statuses.iter().all(Option::is_none), "{statuses:?}");
    let left = client.lookup(&stage.directory, "target")?;
    ensure!(client.names(&stage.directory)?.len() == 1, "more names");
    for file in &files {
        if *file == left {
            client.accepts(&getattr(file))?;
        } else {
            client.refuses(Status::Stale, &getattr(file))?;
        }
    }
    Ok(())
}

fn no_loops(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let a = client.mkdir(directory, "a", 0o755)?;
    let b = client.mkdir(directory, "b", 0o755)?;
    for round in 0..40 {
        let statuses = together(stage, 2, |number, client| {
            let call = if number == 0 {
                rename(at(directory, "a"), at(&b, "a"))
            } else {
                rename(at(directory, "b"), at(&a, "b"))
            };
            client.status(&call)
        })?;
        match statuses[..] {
            [None, Some(_)] => {
                ensure!(client.lookup(&a, "..")? == b, "round {round}");
                client.rename(at(&b, "a"), at(directory, "a"))?;
            }
            [Some(_), None] => {
                ensure!(client.lookup(&b, "..")? == a, "round {round}");
                client.rename(at(&a, "b"), at(directory, "b"))?;
            }
            _ => bail!("round {round}: {statuses:?}"),
        }
        let names = client.names(directory)?;
        ensure!(names.len() == 2, "round {round}: {names:?}");
    }
    Ok(())
}

fn rmdir_against_create(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for round in 0..30 {
        let name = format!("sub-{round}");
        let sub = client.mkdir(&stage.directory, &name, 0o777)?;
        let statuses = together(stage, 4, |number, client| {
            if number == 0 {
                return client.status(&Call::Rmdir(at(&stage.directory, &name)));
            }
            let own = format!("file-{number}");
            client.status(&guarded(at(&sub, &own), 0o644))
        })?;
        let made = statuses[1..].iter().filter(|s| s.is_none()).count();
        match statuses[0] {
            None => {
                let stale = statuses[1..].iter().all(|s| *s == Some(Status::Stale));
                ensure!(stale, "removed, but {statuses:?}");
                client.refuses(Status::Stale, &getattr(&sub))?;
            }
            Some(Status::NotEmpty) => {
                ensure!(made == 3, "not removed, but {statuses:?}");
                ensure!(client.names(&sub)?.len() == 3, "names");
            }
            other => bail!("RMDIR: {other:?}"),
        }
    }
    Ok(())
}

fn links_are_counted(stage: &Stage<'_>) -> Result<()> {
    let file = stage.client()?.create(&stage.directory, "file", 0o644)?;
    let kept = together(stage, 8, |number, client| {
        let mut kept = 0;
        for round in 0..30 {
            let name = format!("link-{number}-{round}");
            client.link(&file, at(&stage.directory, &name))?;
            if round % 3 == 0 {
                kept += 1;
            } else {
                client.remove(&stage.directory, &name)?;
            }
        }
        Ok(kept)
    })?;
    let expected = 1 + kept.iter().sum::<u32>();
    let mut client = stage.client()?;
    let links = client.getattr(&file)?.links;
    ensure!(links == expected, "{links} links, not {expected}");
    let names = client.names(&stage.directory)?.len();
    ensure!(names == expected as usize, "{names} names, not {expected}");
    Ok(())
}

fn writes_side_by_side(stage: &Stage<'_>) -> Result<()> {
    const PIECE: u64 = 5000;
    const PIECES: u64 = 20;
    let file = stage.client()?.create(&stage.directory, "file", 0o644)?;
    together(stage, 8, |number, client| {
        let byte = u8::try_from(number)? + 1;
        for piece in 0..PIECES {
            let offset = (piece * 8 + number as u64) * PIECE;
            let data = vec![byte; usize::try_from(PIECE)?];
            client.accepts(&write(&file, offset, &data, StableHow::Unstable))?;
        }
        client.commit(&file).map(drop)
    })?;
    let mut client = stage.client()?;
    let size = PIECES * 8 * PIECE;
    let bytes = client.read(&file, 0, 1 << 20)?.data.to_bytes();
    ensure!(bytes.len() as u64 == size, "{} bytes", bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let expected = u8::try_from(at as u64 / PIECE % 8)? + 1;
        ensure!(*byte == expected, "{byte} at {at}, not {expected}");
    }
    Ok(())
}

fn truncate_against_write(stage: &Stage<'_>) -> Result<()> {
    const WRITTEN: u64 = 200_000;
    let mut client = stage.client()?;
    // On both sides of the small-file threshold.
    let cuts = [0, 10, 65_536, 70_000];
    for (round, cut) in cuts.into_iter().cycle().take(12).enumerate() {
        let file = client.create(&stage.directory, format!("file-{round}"), 0o644)?;
        let data = vec![0xee; usize::try_from(WRITTEN)?];
        together(stage, 3, |number, client| {
            let call = match number {
                0 => setattr(&file, size(cut)),
                1 => write(&file, 0, &data, StableHow::Unstable),
                _ => write(&file, 0, &data, StableHow::FileSync),
            };
            client.accepts(&call)
        })?;
        let found = client.getattr(&file)?.size_bytes;
        ensure!(found == cut || found == WRITTEN, "{found} bytes are left");
        let read = client.read(&file, 0, 1 << 20)?.data.to_bytes();
        ensure!(read.len() as u64 == found, "{} were read", read.len());
        client.setattr(&file, size(cut))?;
        client.setattr(&file, size(2 * WRITTEN))?;
        client.commit(&file)?;
        let read = client.read(&file, cut, 1 << 20)?.data.to_bytes();
        let back = read.iter().position(|byte| *byte != 0);
        ensure!(back.is_none(), "cut at {cut}: a byte at {back:?} is back");
    }
    Ok(())
}

fn one_guard(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for round in 0..10 {
        let guard = client.getattr(&file)?.changed;
        let statuses = together(stage, 8, |number, client| {
            client.status(&Call::Setattr(Setattr {
                object: file.as_handle(),
                attributes: mode(0o600 + u32::try_from(number)?),
                guard: Some(guard),
            }))
        })?;
        let what = format!("round {round}");
        let winner = one_winner(&statuses, Status::NotSync, &what)?;
        let found = client.getattr(&file)?.mode;
        ensure!(found == 0o600 + u32::try_from(winner)?, "{found:o}");
    }
    Ok(())
}

fn everything_at_once(stage: &Stage<'_>) -> Result<()> {
    const NAMES: u64 = 6;
    let mut client = stage.client()?;
    let one = client.mkdir(&stage.directory, "one", 0o777)?;
    let two = client.mkdir(&stage.directory, "two", 0o777)?;
    let made = together(stage, 8, |number, client| {
        let mut dice = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |bound: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % bound
        };
        let mut made: Vec<HandleBuffer> = Vec::new();
        for _ in 0..150 {
            let from = format!("n-{}", below(NAMES));
            let to = format!("n-{}", below(NAMES));
            let (source, target) = (
                if below(2) == 0 { &one } else { &two },
                if below(2) == 0 { &one } else { &two },
            );
            let call = match below(5) {
                0 | 1 => guarded(at(source, &from), 0o644),
                2 => rename(at(source, &from), at(target, &to)),
                3 => Call::Remove(at(source, &from)),
                _ => match made.last() {
                    Some(file) => link(file, at(target, &to)),
                    None => continue,
                },
            };
            let reply = client.call(&call)?;
            match reply {
                crossdock_nfs3::Reply::Create(Ok(new)) => {
                    made.push(new.object.context("no handle")?);
                }
                other => ensure!(
                    matches!(
                        other.status(),
                        None | Some(Status::Exist | Status::NoEnt | Status::Stale)
                    ),
                    "{other:?}"
                ),
            }
        }
        Ok(made)
    })?;
    names_agree(&mut client, &[one, two], &made.concat())
}

/// Every name leads to a file, and every file has as many links as names.
fn names_agree(
    client: &mut Client,
    directories: &[HandleBuffer],
    made: &[HandleBuffer],
) -> Result<()> {
    let mut named = Vec::new();
    for directory in directories {
        let names = client.names(directory)?;
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        ensure!(unique.len() == names.len(), "a name twice: {names:?}");
        for name in names {
            named.push(client.lookup(directory, name)?);
        }
    }
    for file in made {
        let count = named.iter().filter(|other| *other == file).count();
        if count == 0 {
            client.refuses(Status::Stale, &getattr(file))?;
        } else {
            let links = client.getattr(file)?.links;
            ensure!(links as usize == count, "{links} links, {count} names");
        }
    }
    let strangers = named.iter().filter(|file| !made.contains(file)).count();
    ensure!(
        strangers == 0,
        "{strangers} names of files that nobody made"
    );
    Ok(())
}
