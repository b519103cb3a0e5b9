//! Commands to a disk that runs: one line each, answered by one line of JSON.
//!
//! `pace on` and `pace off` (files are made on a disk that takes no time), `status`.

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
    match line {
        "pace on" => disk.pace(true),
        "pace off" => disk.pace(false),
        "status" => {}
        other => return json!({ "error": format!("no such command: {other}") }),
    }
    disk.status()
}
