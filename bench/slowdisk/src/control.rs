//! Commands to a disk that runs: one line each, answered by one line of JSON.
//!
//! `pace on|off` (files are made on a disk that takes no time); `fail on|off` (whatever is asked
//! is an I/O error, as of a disk that was pulled), `hang on|off` (nothing is answered until it is
//! off), `corrupt OFFSET LENGTH` (a bit of each 4 KiB of those bytes flips); `status`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::disk::Disk;

/// Takes commands at a socket from now on.
pub(crate) fn listen(socket: &Path, disk: &Arc<Disk>) -> Result<()> {
    let listener = UnixListener::bind(socket)
        .with_context(|| format!("cannot listen at {}", socket.display()))?;
    let disk = Arc::clone(disk);
    thread::spawn(move || {
        // One at a time: there is one who measures.
        for stream in listener.incoming().flatten() {
            // Who has gone away needs no answer.
            let _ = serve(&stream, &disk);
        }
    });
    Ok(())
}

fn serve(stream: &UnixStream, disk: &Disk) -> std::io::Result<()> {
    let mut writer = stream;
    for line in BufReader::new(stream).lines() {
        writeln!(writer, "{}", obey(&line?, disk))?;
    }
    Ok(())
}

fn obey(line: &str, disk: &Disk) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    let switch = |word: &str| match word {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    let done = match words[..] {
        ["pace", word] => switch(word).map(|is_on| disk.pace(is_on)),
        ["fail", word] => switch(word).map(|is_on| disk.fail(is_on)),
        ["hang", word] => switch(word).map(|is_on| disk.hang(is_on)),
        ["corrupt", offset, length] => match (offset.parse(), length.parse()) {
            (Ok(offset), Ok(length)) => match disk.corrupt(offset, length) {
                Ok(()) => Some(()),
                Err(error) => return json!({ "error": error.to_string() }),
            },
            _ => None,
        },
        ["status"] => Some(()),
        _ => None,
    };
    match done {
        Some(()) => disk.status(),
        None => json!({ "error": format!("no such command: {line}") }),
    }
}
