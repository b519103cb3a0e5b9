//! Makes the files: in a directory, or by PUT.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Args;
use crossdock_slowdisk::content;
use serde_json::{Value, json};

use super::connection::{Connection, Step};
use super::{Class, Place, Version, file_number};
use crate::usage::Meter;

/// Bytes written at a time.
const CHUNK_BYTES: usize = 1 << 20;

#[derive(Args)]
pub(crate) struct Make {
    /// Directory on this machine, in place of a server.
    #[arg(long)]
    into: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// Files: `prefix=P,count=N,size=BYTES`.
    #[arg(long = "class", required = true)]
    classes: Vec<Class>,
}

pub(super) fn run(flags: &Make) -> anyhow::Result<Value> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut connection = None;
    let (mut files, mut bytes) = (0_u64, 0);
    let meter = Meter::start(flags.place.pids.first().copied())?;
    let started = Instant::now();
    for class in &flags.classes {
        for name in (0..class.count).map(|number| class.name(number)) {
            match &flags.into {
                Some(folder) => {
                    fs::create_dir_all(folder)?;
                    let mut file = File::create(folder.join(&name))?;
                    write(&mut file, &name, class.size, &mut chunk)?;
                }
                None => put(flags, &name, class.size, &mut chunk, &mut connection)
                    .with_context(|| format!("PUT {name}"))?,
            }
            files += 1;
            bytes += class.size;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let mut figures = json!({ "files": files, "bytes": bytes, "seconds": seconds });
    meter.stop()?.add_to(&mut figures);
    Ok(figures)
}

fn put(
    flags: &Make,
    name: &str,
    size: u64,
    chunk: &mut [u8],
    kept: &mut Option<Connection>,
) -> anyhow::Result<()> {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => Connection::open(flags.place.server, None, None)?,
    };
    let length = format!("Content-Length: {size}\r\n");
    let request = flags.place.request("PUT", name, Version::New, &length);
    let mut stream = connection.stream();
    connection.set_blocking(true)?;
    stream.write_all(&request)?;
    write(&mut stream, name, size, chunk)?;
    connection.expect_answer();
    let mut status = 0;
    loop {
        match connection.advance(usize::MAX, chunk)? {
            Step::Head(answer) => status = answer.status,
            Step::Body(_) => {}
            Step::End => break,
            other => anyhow::bail!("{other:?}"),
        }
    }
    ensure!((200..300).contains(&status), "status {status}");
    if !connection.ends() {
        *kept = Some(connection);
    }
    Ok(())
}

fn write(to: &mut impl Write, name: &str, size: u64, chunk: &mut [u8]) -> anyhow::Result<()> {
    let file = file_number(name);
    let mut at = 0;
    while at < size {
        let count = usize::try_from(size - at)
            .unwrap_or(usize::MAX)
            .min(chunk.len());
        content::fill(file, at, &mut chunk[..count]);
        to.write_all(&chunk[..count])?;
        at += count as u64;
    }
    Ok(())
}
