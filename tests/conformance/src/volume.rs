//! FSSTAT, FSINFO and PATHCONF: what they say is so.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use crossdock_nfs3::call::StableHow;
use crossdock_nfs3::reply::properties;
use crossdock_nfs3::{SetAttributes, SetTime, Status, Timestamp};

use crate::operations::{at, guarded, setattr, size};
use crate::runner::{Check, Stage, check};

pub(crate) const CHECKS: &[Check] = &[
    check("FSSTAT's numbers fit together", space_fits),
    check(
        "FSSTAT has less room a few seconds after 32 MiB were written",
        space_is_used,
    ),
    check(
        "the sizes of FSINFO can be read and written",
        sizes_are_true,
    ),
    check(
        "what FSINFO says can be done can be done",
        properties_are_true,
    ),
    check("PATHCONF tells the truth about names", names_are_true),
    check("all objects give the same FSINFO and PATHCONF", homogeneous),
];

/// How long figures of the whole volume may be old.
const PATIENCE: Duration = Duration::from_secs(5);

fn space_fits(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let space = client.fsstat(&stage.root)?;
    ensure!(
        space.total_bytes >= space.free_bytes && space.free_bytes >= space.available_bytes,
        "{space:?}"
    );
    ensure!(
        space.total_files >= space.free_files && space.free_files >= space.available_files,
        "{space:?}"
    );
    ensure!(
        space.available_bytes > 0 && space.available_files > 0,
        "{space:?}"
    );
    Ok(())
}

fn space_is_used(stage: &Stage<'_>) -> Result<()> {
    const PIECE: usize = 1 << 20;
    let mut client = stage.client()?;
    let before = client.fsstat(&stage.root)?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for number in 0..32 {
        let data = vec![number; PIECE];
        let offset = u64::from(number) * PIECE as u64;
        client.write(&file, offset, &data, StableHow::FileSync)?;
    }
    // The server gathers the figures of its nodes every second.
    let begun = Instant::now();
    let after = loop {
        let now = client.fsstat(&stage.root)?;
        let used = before.free_bytes.saturating_sub(now.free_bytes);
        if used >= 16 << 20 {
            break now;
        }
        ensure!(begun.elapsed() < PATIENCE, "only {used} bytes less");
    };
    ensure!(after.total_bytes == before.total_bytes, "another size");
    let attributes = client.getattr(&file)?;
    ensure!(
        attributes.used_bytes >= 32 << 20,
        "{}",
        attributes.used_bytes
    );
    Ok(())
}

fn sizes_are_true(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let info = client.fsinfo(&stage.root)?;
    for (preferred, maximum) in [
        (info.read_bytes_preferred, info.read_bytes_max),
        (info.write_bytes_preferred, info.write_bytes_max),
    ] {
        ensure!(preferred > 0 && preferred <= maximum, "{info:?}");
    }
    ensure!(info.readdir_bytes_preferred > 0, "{info:?}");
    let file = client.create(&stage.directory, "file", 0o644)?;
    let data = vec![8; info.write_bytes_max as usize];
    let written = client.write(&file, 0, &data, StableHow::Unstable)?;
    ensure!(written.count_bytes == info.write_bytes_max, "wtmax");
    let read = client.read(&file, 0, info.read_bytes_max)?;
    ensure!(read.data.len() == info.read_bytes_max as usize, "rtmax");
    client.readdir(&stage.directory, 0, info.readdir_bytes_preferred)?;
    client.setattr(&file, size(info.file_bytes_max))?;
    let beyond = setattr(&file, size(info.file_bytes_max + 1));
    client.refuses(Status::FBig, &beyond)
}

fn properties_are_true(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let info = client.fsinfo(&stage.root)?;
    let all =
        properties::LINK | properties::SYMLINK | properties::HOMOGENEOUS | properties::CAN_SET_TIME;
    ensure!(info.properties == all, "{:#x}", info.properties);
    let file = client.create(&stage.directory, "file", 0o644)?;
    client.link(&file, at(&stage.directory, "link"))?;
    client.symlink(&stage.directory, "symlink", b"target")?;
    let delta = info.time_delta;
    let time = Timestamp {
        seconds: delta.seconds * 3,
        nanoseconds: delta.nanoseconds * 3,
    };
    let times = SetAttributes {
        modified: SetTime::ClientTime(time),
        ..SetAttributes::default()
    };
    client.setattr(&file, times)?;
    let found = client.getattr(&file)?.modified;
    ensure!(found == time, "{found:?}, not {time:?}");
    Ok(())
}

fn names_are_true(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let directory = &stage.directory;
    let limits = client.pathconf(directory)?;
    let longest = vec![b'x'; limits.name_bytes_max as usize];
    let too_long = vec![b'x'; longest.len() + 1];
    let file = client.create(directory, &longest, 0o644)?;
    ensure!(limits.long_names_refused, "no_trunc is false");
    client.refuses(
        Status::NameTooLong,
        &guarded(at(directory, &too_long), 0o644),
    )?;
    ensure!(limits.chown_restricted, "chown_restricted is false");
    let mine = stage
        .user(1000, 1000, &[])?
        .create(directory, "mine", 0o644)?;
    let away = SetAttributes {
        uid: Some(1001),
        ..SetAttributes::default()
    };
    stage
        .user(1000, 1000, &[])?
        .refuses(Status::Perm, &setattr(&mine, away))?;
    ensure!(!limits.case_insensitive && limits.case_preserving, "case");
    let upper = client.create(directory, "Name", 0o644)?;
    let lower = client.create(directory, "name", 0o644)?;
    ensure!(upper != lower && upper != file, "one file");
    ensure!(limits.links_max >= 32_000, "{} links", limits.links_max);
    Ok(())
}

fn homogeneous(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    let symlink = client.symlink(&stage.directory, "symlink", b"target")?;
    let expected = client.pathconf(&stage.root)?;
    let info = client.fsinfo(&stage.root)?;
    for object in [&file, &symlink, &stage.directory] {
        let mut found = client.pathconf(object)?;
        found.attributes = expected.attributes;
        ensure!(found == expected, "{found:?}, not {expected:?}");
        let mut found = client.fsinfo(object)?;
        found.attributes = info.attributes;
        ensure!(found == info, "{found:?}, not {info:?}");
    }
    Ok(())
}
