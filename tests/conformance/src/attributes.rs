//! GETATTR, SETATTR and ACCESS: what attributes say, and when they move.

use anyhow::{Result, ensure};
use crossdock_nfs3::call::{self, StableHow, access};
use crossdock_nfs3::{
    Attributes, Call, FileType, HandleBuffer, SetAttributes, SetTime, Status, Timestamp,
};

use crate::client::Client;
use crate::operations::{at, mode, setattr, size};
use crate::runner::{Check, Stage, check};

pub(crate) const CHECKS: &[Check] = &[
    check(
        "new objects have owner, group, mode, links and numbers of their own",
        fresh,
    ),
    check(
        "SETATTR with a guard that does not match is NOT_SYNC and changes nothing",
        guard,
    ),
    check("SETATTR of the size cuts and extends with zeros", resize),
    check("SETATTR of a directory's size is ISDIR", resize_directory),
    check("sizes beyond the largest file are FBIG", resize_too_far),
    check("times can be set to the nanosecond", client_times),
    check(
        "times with a whole second of nanoseconds are INVAL",
        bad_times,
    ),
    check("SETATTR of nothing succeeds and changes nothing", nothing),
    check("modes keep twelve bits", mode_bits),
    check(
        "each change moves the times that it should and no others",
        times_move,
    ),
    check(
        "writing and giving away take set-user-id and set-group-id away",
        set_ids_are_cleared,
    ),
    check(
        "ACCESS grants what the mode says, and no more than asked",
        access_bits,
    ),
    check(
        "SETATTR of some fields leaves the others",
        other_fields_stay,
    ),
];

fn fresh(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.user(1001, 1002, &[])?;
    let directory = &stage.directory;
    let root = client.getattr(&stage.root)?;
    let file = client.create(directory, "file", 0o641)?;
    let sub = client.mkdir(directory, "sub", 0o751)?;
    let symlink = client.symlink(directory, "symlink", b"five5")?;
    let fifo = client.fifo(directory, "fifo")?;
    let mut numbers = vec![root.fileid];
    for (object, file_type, bits, links) in [
        (file, FileType::Regular, 0o641, 1),
        (sub, FileType::Directory, 0o751, 2),
        (symlink, FileType::Symlink, 0o777, 1),
        (fifo, FileType::Fifo, 0o644, 1),
    ] {
        let found = client.getattr(&object)?;
        ensure!(found.file_type == file_type, "{:?}", found.file_type);
        ensure!(found.mode == bits, "{file_type:?}: {:o}", found.mode);
        ensure!(found.links == links, "{file_type:?}: {} links", found.links);
        ensure!((found.uid, found.gid) == (1001, 1002), "{}", found.uid);
        ensure!(found.fsid == root.fsid, "another file system");
        ensure!(
            found.changed == found.modified,
            "{file_type:?}: made at two times"
        );
        ensure!(!numbers.contains(&found.fileid), "a number twice");
        numbers.push(found.fileid);
    }
    Ok(())
}

fn guard(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for object in [&file, &stage.directory] {
        let before = client.getattr(object)?;
        let with = |guard, bits| {
            Call::Setattr(call::Setattr {
                object: object.as_handle(),
                attributes: mode(bits),
                guard: Some(guard),
            })
        };
        let changed = before.changed;
        for wrong in [
            Timestamp::default(),
            Timestamp {
                seconds: changed.seconds + 1,
                ..changed
            },
            Timestamp {
                nanoseconds: changed.nanoseconds ^ 1,
                ..changed
            },
        ] {
            client.refuses(Status::NotSync, &with(wrong, 0o600))?;
        }
        ensure!(client.getattr(object)? == before, "it was changed");
        client.accepts(&with(changed, 0o700))?;
        client.refuses(Status::NotSync, &with(changed, 0o711))?;
        let after = client.getattr(object)?;
        ensure!(after.mode == 0o700 && after.changed > changed, "{after:?}");
    }
    Ok(())
}

fn resize(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    // On both sides of the small-file threshold and of a stripe unit.
    for length in [10, 65_536, 65_537, 300_000] {
        let file = client.create(&stage.directory, format!("f-{length}"), 0o644)?;
        let data = vec![0xaa; length];
        client.write(&file, 0, &data, StableHow::FileSync)?;
        let (cut, end) = (length / 2, length + 1000);
        client.setattr(&file, size(cut as u64))?;
        client.setattr(&file, size(end as u64))?;
        ensure!(client.getattr(&file)?.size_bytes == end as u64, "size");
        let read = client.read(&file, 0, 1 << 20)?;
        let read = read.data.to_bytes();
        ensure!(read.len() == end, "{} bytes", read.len());
        ensure!(read[..cut].iter().all(|byte| *byte == 0xaa), "the front");
        ensure!(
            read[cut..].iter().all(|byte| *byte == 0),
            "old bytes are back"
        );
        client.setattr(&file, size(0))?;
        let read = client.read(&file, 0, 1 << 20)?;
        ensure!(read.data.is_empty() && read.is_end, "not empty");
    }
    Ok(())
}

fn resize_directory(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for bytes in [0, 4096, 1 << 20] {
        client.refuses(Status::IsDir, &setattr(&stage.directory, size(bytes)))?;
    }
    Ok(())
}

fn resize_too_far(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for bytes in [(1 << 46) + 1, 1 << 63, u64::MAX] {
        client.refuses(Status::FBig, &setattr(&file, size(bytes)))?;
    }
    client.setattr(&file, size(1 << 46))?;
    ensure!(client.getattr(&file)?.size_bytes == 1 << 46, "the largest");
    let read = client.read(&file, (1 << 46) - 10, 100)?;
    ensure!(
        read.data.to_bytes()[..] == [0; 10] && read.is_end,
        "its end"
    );
    client.setattr(&file, size(0))?;
    Ok(())
}

const fn at_time(seconds: u32, nanoseconds: u32) -> Timestamp {
    Timestamp {
        seconds,
        nanoseconds,
    }
}

fn client_times(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for (atime, mtime) in [
        (at_time(0, 0), at_time(0, 1)),
        (at_time(1, 999_999_999), at_time(i32::MAX as u32, 5)),
        (at_time(1 << 31, 0), at_time(u32::MAX, 999_999_999)),
    ] {
        let times = SetAttributes {
            accessed: SetTime::ClientTime(atime),
            modified: SetTime::ClientTime(mtime),
            ..SetAttributes::default()
        };
        client.setattr(&file, times)?;
        let found = client.getattr(&file)?;
        ensure!(found.accessed == atime, "{:?}", found.accessed);
        ensure!(found.modified == mtime, "{:?}", found.modified);
    }
    let now = SetAttributes {
        accessed: SetTime::ServerTime,
        modified: SetTime::ServerTime,
        ..SetAttributes::default()
    };
    client.setattr(&file, now)?;
    let found = client.getattr(&file)?;
    ensure!(
        found.accessed == found.changed && found.modified == found.changed,
        "{found:?}"
    );
    Ok(())
}

fn bad_times(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    let before = client.getattr(&file)?;
    for nanoseconds in [1_000_000_000, u32::MAX] {
        let wrong = SetTime::ClientTime(at_time(5, nanoseconds));
        let accessed = SetAttributes {
            accessed: wrong,
            ..SetAttributes::default()
        };
        client.refuses(Status::Inval, &setattr(&file, accessed))?;
        let modified = SetAttributes {
            modified: wrong,
            ..SetAttributes::default()
        };
        client.refuses(Status::Inval, &setattr(&file, modified))?;
    }
    ensure!(client.getattr(&file)? == before, "it was changed");
    Ok(())
}

fn nothing(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for object in [&file, &stage.directory] {
        let before = client.getattr(object)?;
        client.setattr(object, SetAttributes::default())?;
        ensure!(client.getattr(object)? == before, "it was changed");
    }
    Ok(())
}

fn mode_bits(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0)?;
    for bits in [
        0,
        0o7777,
        0o1000,
        0o2000,
        0o4000,
        0o777,
        0o100_644,
        u32::MAX,
    ] {
        client.setattr(&file, mode(bits))?;
        let found = client.getattr(&file)?;
        ensure!(found.mode == bits & 0o7777, "{bits:o} is {:o}", found.mode);
        ensure!(found.file_type == FileType::Regular, "another type");
    }
    Ok(())
}

/// Which of atime, mtime and ctime a step has moved.
fn moved(
    client: &mut Client,
    object: &HandleBuffer,
    step: impl FnOnce(&mut Client) -> Result<()>,
) -> Result<(bool, bool, bool)> {
    let before: Attributes = client.getattr(object)?;
    step(client)?;
    let after = client.getattr(object)?;
    ensure!(
        after.changed >= before.changed,
        "the time of change went back"
    );
    Ok((
        after.accessed != before.accessed,
        after.modified != before.modified,
        after.changed != before.changed,
    ))
}

fn times_move(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let file = client.create(directory, "file", 0o644)?;
    let content = (false, true, true);
    let attributes = (false, false, true);
    let none = (false, false, false);
    let mut expect =
        |what, of: &HandleBuffer, expected, step: &dyn Fn(&mut Client) -> Result<()>| {
            let found = moved(&mut client, of, step)?;
            ensure!(found == expected, "{what}: {found:?}, not {expected:?}");
            Ok(())
        };
    expect("CREATE", directory, content, &|c| {
        c.create(directory, "new", 0o644).map(drop)
    })?;
    expect("RENAME", directory, content, &|c| {
        c.rename(at(directory, "new"), at(directory, "newer"))
            .map(drop)
    })?;
    expect("LINK", directory, content, &|c| {
        c.link(&file, at(directory, "link")).map(drop)
    })?;
    expect("REMOVE", directory, content, &|c| {
        c.remove(directory, "newer").map(drop)
    })?;
    expect("MKDIR", directory, content, &|c| {
        c.mkdir(directory, "sub", 0o755).map(drop)
    })?;
    expect("RMDIR", directory, content, &|c| {
        c.rmdir(directory, "sub").map(drop)
    })?;
    expect("LOOKUP", directory, none, &|c| {
        c.lookup(directory, "file").map(drop)
    })?;
    expect("a failed MKDIR", directory, none, &|c| {
        c.status(&crate::operations::mkdir(at(directory, "file"), 0o755))
            .map(drop)
    })?;
    expect("WRITE", &file, content, &|c| {
        c.write(&file, 0, b"x", StableHow::FileSync).map(drop)
    })?;
    expect("an unstable WRITE", &file, content, &|c| {
        c.write(&file, 0, b"x", StableHow::Unstable).map(drop)
    })?;
    expect("WRITE of nothing", &file, none, &|c| {
        c.write(&file, 0, b"", StableHow::FileSync).map(drop)
    })?;
    expect("READ", &file, (true, false, false), &|c| {
        c.read(&file, 0, 10).map(drop)
    })?;
    expect("chmod", &file, attributes, &|c| {
        c.setattr(&file, mode(0o600)).map(drop)
    })?;
    expect("truncate", &file, content, &|c| {
        c.setattr(&file, size(0)).map(drop)
    })?;
    expect("LINK of it", &file, attributes, &|c| {
        c.link(&file, at(directory, "l2")).map(drop)
    })?;
    expect("REMOVE of a name", &file, attributes, &|c| {
        c.remove(directory, "l2").map(drop)
    })?;
    expect("RENAME of it", &file, attributes, &|c| {
        c.rename(at(directory, "link"), at(directory, "l3"))
            .map(drop)
    })?;
    expect("COMMIT", &file, none, &|c| c.commit(&file).map(drop))
}

fn set_ids_are_cleared(stage: &Stage<'_>) -> Result<()> {
    let mut root = stage.client()?;
    let mut owner = stage.user(1000, 1000, &[50])?;
    let file = owner.create(&stage.directory, "file", 0o755)?;
    let mut after = |what, expected, step: &dyn Fn(&mut Client) -> Result<()>| {
        root.setattr(&file, mode(0o6777))?;
        step(&mut owner)?;
        let found = owner.getattr(&file)?.mode;
        ensure!(found == expected, "{what} leaves {found:o}");
        Ok(())
    };
    after("WRITE", 0o777, &|c| {
        c.write(&file, 0, b"x", StableHow::FileSync).map(drop)
    })?;
    after("truncate", 0o777, &|c| c.setattr(&file, size(0)).map(drop))?;
    after("chgrp", 0o777, &|c| {
        let group = SetAttributes {
            gid: Some(50),
            ..SetAttributes::default()
        };
        c.setattr(&file, group).map(drop)
    })?;
    root.setattr(&file, mode(0o6777))?;
    root.write(&file, 0, b"x", StableHow::FileSync)?;
    let found = root.getattr(&file)?.mode;
    ensure!(found == 0o6777, "root's WRITE leaves {found:o}");
    Ok(())
}

fn access_bits(stage: &Stage<'_>) -> Result<()> {
    const ALL: u32 = 0x3f;
    let mut owner = stage.user(1000, 1000, &[])?;
    let mut group = stage.user(1001, 1002, &[1000])?;
    let mut other = stage.user(1003, 1003, &[])?;
    let mut root = stage.client()?;
    let file = owner.create(&stage.directory, "file", 0)?;
    let sub = owner.mkdir(&stage.directory, "sub", 0)?;
    for bits in 0..0o1000 {
        let shift = (bits % 3) * 3; // Each class in turn.
        let class = (bits >> shift) & 7;
        let who = match shift {
            6 => &mut owner,
            3 => &mut group,
            _ => &mut other,
        };
        if bits % 7 != 0 {
            continue; // 74 of the 512 are enough.
        }
        root.setattr(&file, mode(bits))?;
        root.setattr(&sub, mode(bits))?;
        let (mut expected, mut of_sub) = (0, 0);
        if class & 4 != 0 {
            expected |= access::READ;
            of_sub |= access::READ;
        }
        if class & 2 != 0 {
            expected |= access::MODIFY | access::EXTEND;
        }
        if class & 1 != 0 {
            expected |= access::EXECUTE;
            of_sub |= access::LOOKUP;
        }
        if class & 3 == 3 {
            of_sub |= access::MODIFY | access::EXTEND | access::DELETE;
        }
        let granted = who.access(&file, ALL)?;
        ensure!(
            granted == expected,
            "file {bits:o}: {granted:#x}, not {expected:#x}"
        );
        let granted = who.access(&sub, ALL)?;
        ensure!(
            granted == of_sub,
            "directory {bits:o}: {granted:#x}, not {of_sub:#x}"
        );
        let some = who.access(&file, access::READ)?;
        ensure!(
            some == expected & access::READ,
            "more than asked: {some:#x}"
        );
    }
    root.setattr(&file, mode(0))?;
    let granted = root.access(&file, ALL)?;
    let expected = access::READ | access::MODIFY | access::EXTEND;
    ensure!(granted == expected, "root: {granted:#x}");
    Ok(())
}

fn other_fields_stay(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    client.write(&file, 0, b"content", StableHow::FileSync)?;
    let before = client.getattr(&file)?;
    let owner = SetAttributes {
        uid: Some(5),
        ..SetAttributes::default()
    };
    client.setattr(&file, owner)?;
    let after = client.getattr(&file)?;
    let expected = Attributes {
        uid: 5,
        changed: after.changed,
        ..before
    };
    ensure!(after == expected, "{after:?}, not {expected:?}");
    Ok(())
}
