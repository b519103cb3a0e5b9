//! UNSTABLE, COMMIT and the write verifier (RFC 1813 sections 3.3.7 and 3.3.21).

use anyhow::{Result, ensure};
use crossdock_nfs3::call::StableHow;

use crate::client::Client;
use crate::runner::{Check, Stage, check, with_servers};

pub(crate) const CHECKS: &[Check] = &[
    check(
        "WRITEs and COMMITs of all files have one verifier while the server runs",
        one_verifier,
    ),
    with_servers(
        "what was committed is there after kill -9, and the verifier is another one",
        committed_survives,
    ),
    with_servers(
        "a client that resends what was not committed has all its bytes",
        resent_after_a_crash,
    ),
];

const PIECE: usize = 40_000;
const READ_BYTES: u32 = 40_000;

fn one_verifier(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let mut other = stage.client()?;
    let first = client.create(&stage.directory, "first", 0o644)?;
    let second = client.create(&stage.directory, "second", 0o644)?;
    let data = vec![1; PIECE];
    let verifier = client.write(&first, 0, b"x", StableHow::FileSync)?.verifier;
    for file in [&first, &second] {
        for offset in [0, 30_000, 100_000, 500_000] {
            let unstable = other.write(file, offset, &data, StableHow::Unstable)?;
            ensure!(unstable.verifier == verifier, "{:?}", unstable.verifier);
        }
        let committed = client.commit(file)?;
        ensure!(committed.verifier == verifier, "{:?}", committed.verifier);
    }
    Ok(())
}

/// Offsets of pieces on both sides of the small-file threshold.
const OFFSETS: [u64; 4] = [0, 50_000, 100_000, 700_000];

fn committed_survives(stage: &Stage<'_>) -> Result<()> {
    let server = stage.own_server("commit", &[])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let file = client.create(&root, "file", 0o644)?;
    let data = vec![0xc5; PIECE];
    for offset in OFFSETS {
        client.write(&file, offset, &data, StableHow::Unstable)?;
    }
    let verifier = client.commit(&file)?.verifier;
    server.kill()?;

    let server = stage.own_server("commit", &[])?;
    let mut client = Client::connect(server.address())?;
    for offset in OFFSETS {
        let read = client.read(&file, offset, READ_BYTES)?;
        ensure!(read.data.to_bytes()[..] == data[..], "lost at {offset}");
    }
    let now = client.write(&file, 0, b"x", StableHow::FileSync)?.verifier;
    ensure!(now != verifier, "the verifier is the same after a crash");
    ensure!(client.commit(&file)?.verifier == now, "two verifiers");
    server.stop()?;
    stage.clear("commit")
}

fn resent_after_a_crash(stage: &Stage<'_>) -> Result<()> {
    let server = stage.own_server("resend", &[])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let file = client.create(&root, "file", 0o644)?;
    let data = vec![0xa3; PIECE];
    let mut before = None;
    for offset in OFFSETS {
        let written = client.write(&file, offset, &data, StableHow::Unstable)?;
        before = Some(written.verifier);
    }
    server.kill()?;

    let server = stage.own_server("resend", &[])?;
    let mut client = Client::connect(server.address())?;
    let committed = client.commit(&file)?.verifier;
    ensure!(before != Some(committed), "the loss is not told");
    for offset in OFFSETS {
        client.write(&file, offset, &data, StableHow::Unstable)?;
    }
    let again = client.commit(&file)?.verifier;
    ensure!(again == committed, "the verifier has changed again");
    for offset in OFFSETS {
        let read = client.read(&file, offset, READ_BYTES)?;
        ensure!(read.data.to_bytes()[..] == data[..], "lost at {offset}");
    }
    server.stop()?;
    stage.clear("resend")
}
