//! Strangers that speak the protocol between hosts, in the clear: who does not fit is told
//! why in one message, and the process that refuses it says the same in its log.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crossdock_link::{FrameReader, Hello, Message, PROTOCOL_VERSION, RefusalKind, Role};
use crossdock_names::{Epoch, HostId};
use crossdock_types::Time;

use super::members::Member;
use crate::suite::Stage;

/// How long a host may take to answer a hello.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that the stranger would take.
const WINDOW_BYTES: u64 = 1 << 20;

/// No role has that number.
const UNKNOWN_ROLE: u8 = 9;

/// Each of a node, a manager and a gateway refuses what does not fit, and takes what does.
pub(super) fn run(stage: &Stage<'_>, members: [&Member<'_>; 3]) -> Result<()> {
    for (place, member) in (1..).zip(members) {
        strangers(stage, member, HostId(place)).with_context(|| member.name().to_owned())?;
    }
    Ok(())
}

fn strangers(stage: &Stage<'_>, member: &Member<'_>, host: HostId) -> Result<()> {
    let address = member.door("link")?;
    let status = member.status(stage)?;
    let ensemble = status["ensemble"].as_str().context("no ensemble")?;
    let ensemble = u64::from_str_radix(ensemble, 16)?;
    let fits = Hello {
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        ensemble,
        host,
        role: Role::Gateway as u8,
        connection: 1,
        table_epoch: Epoch(0),
        call_window_bytes: WINDOW_BYTES,
        reply_window_bytes: WINDOW_BYTES,
        expected: None,
    };
    let older = PROTOCOL_VERSION - 1;
    let old = Hello {
        version_min: 1,
        version_max: older,
        ..fits
    };
    let role = Hello {
        role: UNKNOWN_ROLE,
        ..fits
    };
    let other = Hello {
        ensemble: ensemble ^ 1,
        ..fits
    };
    let versions = format!("host {host} speaks protocol versions 1 to {older}, this host");
    let ours = format!("speaks {PROTOCOL_VERSION} to {PROTOCOL_VERSION}");
    let roles = format!("role {UNKNOWN_ROLE} of host {host} is unknown to host");
    let theirs = format!("host {host} is of ensemble {:016x}, host", ensemble ^ 1);
    let own = format!("of ensemble {ensemble:016x}");
    refused(member, old, RefusalKind::Version, &[&versions, &ours])?;
    refused(member, role, RefusalKind::Role, &[&roles])?;
    refused(member, other, RefusalKind::Ensemble, &[&theirs, &own])?;
    // It was that, and nothing else.
    match answer(address, fits)? {
        Message::Welcome(welcome) => ensure!(
            welcome.ensemble == ensemble && welcome.version == PROTOCOL_VERSION,
            "{welcome:?}"
        ),
        other => bail!("a hello that fits is answered by {other:?}"),
    }
    Ok(())
}

/// That hello is refused for that reason, in these words.
fn refused(member: &Member<'_>, hello: Hello, kind: RefusalKind, words: &[&str]) -> Result<()> {
    let refusal = match answer(member.door("link")?, hello)? {
        Message::Refuse(refusal) => refusal,
        other => bail!("{hello:?} is answered by {other:?}"),
    };
    ensure!(
        refusal.kind() == kind && words.iter().all(|word| refusal.text.contains(word)),
        "{refusal:?}, not {kind:?} with {words:?}"
    );
    member.await_said(&[&["connection closed"], words].concat())
}

/// What a host answers.
fn answer(address: SocketAddr, hello: Hello) -> Result<Message> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let now = Time::from_secs(1);
    stream.write_all(&Message::Hello(hello).encode(now)?.head)?;
    let mut reader = FrameReader::new();
    let mut chunk = [0; 4096];
    loop {
        let length = stream.read(&mut chunk)?;
        ensure!(length > 0, "the connection has ended without a word");
        let mut bytes = Bytes::copy_from_slice(&chunk[..length]);
        if let Some(message) = reader.next_message(now, &mut bytes)? {
            return Ok(message);
        }
    }
}
