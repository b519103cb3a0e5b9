//! A volume without room.

use anyhow::{Result, ensure};
use crossdock_nfs3::call::StableHow;
use crossdock_nfs3::{Call, Status};

use crate::client::Client;
use crate::operations::{at, write};
use crate::runner::{Check, Stage, with_servers};

pub(crate) const CHECKS: &[Check] = &[with_servers(
    "a full volume answers NOSPC, keeps what it has, and has room after a REMOVE",
    full,
)];

const PIECE: usize = 1 << 20;

fn full(stage: &Stage<'_>) -> Result<()> {
    let server = stage.own_server("full", &["--nodes", "1", "--size", "64M"])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let file = client.create(&root, "file", 0o644)?;
    let mut written = 0;
    let status = loop {
        let data = vec![u8::try_from(written % 251)?; PIECE];
        let call = write(&file, written * PIECE as u64, &data, StableHow::FileSync);
        match client.status(&call)? {
            None => written += 1,
            Some(status) => break status,
        }
        ensure!(written < 100, "100 MiB were written to a volume of 64 MiB");
    };
    ensure!(status == Status::NoSpc, "{status:?} after {written} MiB");
    for piece in 0..written {
        let read = client.read(&file, piece * PIECE as u64, 1 << 20)?;
        let bytes = read.data.to_bytes();
        let expected = u8::try_from(piece % 251)?;
        ensure!(
            bytes.len() == PIECE,
            "{} bytes of piece {piece}",
            bytes.len()
        );
        ensure!(bytes.iter().all(|byte| *byte == expected), "piece {piece}");
    }
    client.accepts(&Call::Remove(at(&root, "file")))?;
    let again = client.create(&root, "again", 0o644)?;
    client.accepts(&write(&again, 0, &vec![1; PIECE], StableHow::FileSync))?;
    server.stop()?;
    stage.clear("full")
}
