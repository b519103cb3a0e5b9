//! READ and WRITE: ranges, holes, ends, and numbers that make no sense.

use anyhow::{Result, ensure};
use bytes::Bytes;
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, HandleBuffer, Status};
use crossdock_types::Payload;

use crate::client::Client;
use crate::operations::{commit, read, write};
use crate::runner::{Check, Stage, check};

pub(crate) const CHECKS: &[Check] = &[
    check(
        "a READ at and past the end is empty, with eof",
        past_the_end,
    ),
    check(
        "a READ of nothing is empty, with eof only at the end",
        read_nothing,
    ),
    check(
        "a WRITE of nothing succeeds and changes nothing, even the times",
        write_nothing,
    ),
    check(
        "READs at 2^63 and 2^64-1 are empty, WRITEs there are FBIG",
        huge_offsets,
    ),
    check(
        "the last byte of the largest file can be written and read",
        the_last_byte,
    ),
    check(
        "a WRITE whose count is more than its data is INVAL, less writes less",
        count_and_data,
    ),
    check(
        "READs and WRITEs of more than the maximum are done in part",
        more_than_maximum,
    ),
    check("READ and WRITE of a directory are ISDIR", directories),
    check("COMMIT of what is no file is INVAL", commit_of_others),
    check("holes are zeros", holes),
    check(
        "overlapping WRITEs of all lengths and offsets leave what the last one wrote",
        overlaps,
    ),
    check("READs that cross the end are cut there", across_the_end),
    check(
        "WRITE of any kind of stability is at least as stable",
        stability,
    ),
];

const SYNC: StableHow = StableHow::FileSync;

fn past_the_end(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for length in [0, 5, 65_536, 70_000, 262_144] {
        let file = client.create(&stage.directory, format!("f-{length}"), 0o644)?;
        client.write(&file, 0, &vec![9; length], SYNC)?;
        let length = length as u64;
        for offset in [length, length + 1, length + 100_000, 1 << 45, 1 << 46] {
            let read = client.read(&file, offset, 4096)?;
            ensure!(
                read.data.is_empty() && read.is_end,
                "{length} bytes at {offset}: {read:?}"
            );
        }
    }
    Ok(())
}

fn read_nothing(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    ensure!(client.read(&file, 0, 0)?.is_end, "an empty file has an end");
    client.write(&file, 0, &vec![1; 100_000], SYNC)?;
    for offset in [0, 1, 65_535, 65_536, 65_537, 99_999] {
        let read = client.read(&file, offset, 0)?;
        ensure!(read.data.is_empty(), "{read:?}");
        ensure!(!read.is_end, "eof at {offset} of 100,000");
    }
    let read = client.read(&file, 100_000, 0)?;
    ensure!(read.data.is_empty() && read.is_end, "{read:?}");
    Ok(())
}

fn write_nothing(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    client.write(&file, 0, b"content", SYNC)?;
    let before = client.getattr(&file)?;
    for stable in [StableHow::Unstable, StableHow::DataSync, SYNC] {
        for offset in [0, 7, 8, 100_000, 1 << 45] {
            let written = client.write(&file, offset, b"", stable)?;
            ensure!(written.count_bytes == 0, "{}", written.count_bytes);
        }
    }
    let after = client.getattr(&file)?;
    ensure!(after == before, "{after:?}, not {before:?}");
    let mut other = stage.user(2000, 2000, &[])?;
    other.refuses(Status::Acces, &write(&file, 0, b"", SYNC))
}

fn huge_offsets(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    client.write(&file, 0, b"content", SYNC)?;
    for offset in [
        1 << 46,
        1 << 62,
        (1 << 63) - 1,
        1 << 63,
        u64::MAX - 7,
        u64::MAX,
    ] {
        for count in [0, 1, 8, 1 << 20] {
            let read = client.read(&file, offset, count)?;
            ensure!(read.data.is_empty() && read.is_end, "{read:?}");
        }
        for stable in [StableHow::Unstable, SYNC] {
            client.refuses(Status::FBig, &write(&file, offset, b"12345678", stable))?;
        }
    }
    let found = client.getattr(&file)?.size_bytes;
    ensure!(found == 7, "now it has {found} bytes");
    for (offset, count_bytes) in [(u64::MAX, 1), (u64::MAX, u32::MAX), (1 << 63, 0)] {
        client.accepts(&Call::Commit(call::Commit {
            file: file.as_handle(),
            offset,
            count_bytes,
        }))?;
    }
    Ok(())
}

fn the_last_byte(stage: &Stage<'_>) -> Result<()> {
    const LARGEST: u64 = 1 << 46;
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    client.refuses(Status::FBig, &write(&file, LARGEST - 1, b"12", SYNC))?;
    client.refuses(Status::FBig, &write(&file, LARGEST, b"1", SYNC))?;
    client.write(&file, LARGEST - 3, b"end", SYNC)?;
    ensure!(client.getattr(&file)?.size_bytes == LARGEST, "its size");
    let read = client.read(&file, LARGEST - 6, 100)?;
    ensure!(read.is_end, "no eof");
    ensure!(read.data.to_bytes()[..] == b"\0\0\0end"[..], "{read:?}");
    client.remove(&stage.directory, "file")?;
    Ok(())
}

fn write_counted<'a>(file: &'a HandleBuffer, count_bytes: u32, data: &'static [u8]) -> Call<'a> {
    Call::Write(call::Write {
        file: file.as_handle(),
        offset: 0,
        count_bytes,
        stable: SYNC,
        data: Payload::from(Bytes::from_static(data)),
    })
}

fn count_and_data(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for (count, data) in [(9, &b"12345678"[..]), (1, b""), (u32::MAX, b"12345678")] {
        client.refuses(Status::Inval, &write_counted(&file, count, data))?;
    }
    ensure!(client.getattr(&file)?.size_bytes == 0, "it was written");
    client.accepts(&write_counted(&file, 3, b"12345678"))?;
    let read = client.read(&file, 0, 100)?;
    ensure!(read.data.to_bytes()[..] == b"123"[..], "{read:?}");
    Ok(())
}

fn more_than_maximum(stage: &Stage<'_>) -> Result<()> {
    const MAXIMUM: usize = 1 << 20;
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    let data = vec![3; MAXIMUM + 1000];
    let written = client.write(&file, 0, &data, StableHow::Unstable)?;
    ensure!(written.count_bytes == 1 << 20, "{}", written.count_bytes);
    ensure!(client.getattr(&file)?.size_bytes == 1 << 20, "size");
    client.write(&file, MAXIMUM as u64, &data[MAXIMUM..], StableHow::Unstable)?;
    for count in [(1 << 20) + 1, 1 << 24, 1 << 31, u32::MAX] {
        let read = client.read(&file, 0, count)?;
        ensure!(read.data.len() == MAXIMUM && !read.is_end, "{count}");
        let rest = client.read(&file, MAXIMUM as u64, count)?;
        ensure!(rest.data.len() == 1000 && rest.is_end, "{count}: the rest");
    }
    Ok(())
}

fn directories(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for offset in [0, 100_000] {
        for count in [0, 100] {
            client.refuses(Status::IsDir, &read(&stage.directory, offset, count))?;
        }
        for data in [&b""[..], b"data"] {
            client.refuses(Status::IsDir, &write(&stage.directory, offset, data, SYNC))?;
        }
    }
    Ok(())
}

fn commit_of_others(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let fifo = client.fifo(&stage.directory, "fifo")?;
    let symlink = client.symlink(&stage.directory, "symlink", b"target")?;
    for object in [&stage.directory, &fifo, &symlink] {
        client.refuses(Status::Inval, &commit(object))?;
    }
    Ok(())
}

fn holes(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for offset in [5000, 65_530, 70_000, 300_000, 1_000_000] {
        let file = client.create(&stage.directory, format!("f-{offset}"), 0o644)?;
        client.write(&file, offset, b"after the hole", SYNC)?;
        let read = client.read(&file, 0, 1 << 20)?;
        let read_bytes = read.data.to_bytes();
        let at = usize::try_from(offset)?;
        ensure!(read_bytes.len() == at + 14 && read.is_end, "length");
        ensure!(read_bytes[..at].iter().all(|byte| *byte == 0), "no zeros");
        ensure!(read_bytes[at..] == b"after the hole"[..], "data");
    }
    Ok(())
}

/// A small generator: the same overlaps in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn overlaps(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    let mut model: Vec<u8> = Vec::new();
    let mut dice = Dice(0x5eed);
    for round in 0..150u8 {
        let offset = dice.below(180_000);
        let magnitude = 1 + dice.below(16);
        let length = usize::try_from(1 + dice.below(1 << magnitude))?;
        let data = vec![round + 1; length];
        let stable = match dice.below(3) {
            0 => StableHow::Unstable,
            1 => StableHow::DataSync,
            _ => SYNC,
        };
        client.write(&file, offset, &data, stable)?;
        let at = usize::try_from(offset)?;
        model.resize(model.len().max(at + length), 0);
        model[at..at + length].copy_from_slice(&data);
        if round % 10 == 0 {
            whole(&mut client, &file, &model)?;
        }
        if round % 40 == 7 {
            client.commit(&file)?;
        }
    }
    whole(&mut client, &file, &model)
}

fn whole(client: &mut Client, file: &HandleBuffer, model: &[u8]) -> Result<()> {
    let read = client.read(file, 0, 1 << 20)?;
    let bytes = read.data.to_bytes();
    ensure!(bytes.len() == model.len(), "{} bytes", bytes.len());
    let differs = bytes
        .iter()
        .zip(model)
        .position(|(found, wanted)| found != wanted);
    ensure!(differs.is_none(), "other bytes at {differs:?}");
    Ok(())
}

fn across_the_end(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    for length in [10u32, 65_536, 65_540, 150_000] {
        let file = client.create(&stage.directory, format!("f-{length}"), 0o644)?;
        client.write(&file, 0, &vec![1; length as usize], SYNC)?;
        let from = length - 10;
        for count in [9, 10, 11, 100_000] {
            let read = client.read(&file, from.into(), count)?;
            let expected = count.min(10) as usize;
            ensure!(read.data.len() == expected, "{} bytes", read.data.len());
            ensure!(read.is_end == (count >= 10), "eof of {count} bytes");
        }
    }
    Ok(())
}

fn stability(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let file = client.create(&stage.directory, "file", 0o644)?;
    for offset in [0, 100_000] {
        for stable in [StableHow::Unstable, StableHow::DataSync, SYNC] {
            let written = client.write(&file, offset, b"data", stable)?;
            ensure!(written.committed >= stable, "{:?}", written.committed);
            ensure!(written.count_bytes == 4, "{}", written.count_bytes);
        }
    }
    Ok(())
}
