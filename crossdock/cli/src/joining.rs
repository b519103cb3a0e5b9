//! A process without a certificate asks a manager for one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossdock_etcd::Config;
use crossdock_link::Role;
use crossdock_members::{State, TrustRecord};
use crossdock_secure::{
    JOIN_ANSWER_BYTES_MAX, JoinAnswer, JoinRequest, KeyMaterial, StreamEffect, Token,
    check_fingerprint, join_client,
};

use crate::identity::{Holder, Identity, seconds};

/// How long a manager may take for each step.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long is waited for a manager that gives certificates, and for the token to come
/// from the registry to it.
const SPREAD_PATIENCE: Duration = Duration::from_secs(8);

/// Pause between two questions meanwhile.
const PAUSE: Duration = Duration::from_millis(200);

/// Makes a key, proves the token to a manager of the ensemble that `registry` holds, and
/// writes what it answers.
///
/// # Errors
/// Why there is no certificate, of each manager that was asked, and what to do.
pub(crate) fn join(
    registry: &Config,
    token: &Token,
    holder: &Holder,
    identity: &Identity,
) -> anyhow::Result<()> {
    let role = holder.role;
    let key = KeyMaterial::generate()?;
    let request = JoinRequest {
        role,
        token: token.id,
        secret: token.secret,
        public_key: key.public_key()?,
        gateway: holder.gateway.clone(),
    };
    let deadline = Instant::now() + SPREAD_PATIENCE;
    loop {
        let (_, state) = crossdock_etcd::read(registry)?;
        let trust = state.trust.as_ref();
        let trust =
            trust.context("the ensemble talks in the clear: there is nothing to join by")?;
        // From here on the authority is the one that the administrator has named.
        check_fingerprint(&trust.authority, &token.authority)?;
        check_token(trust, token, role)?;
        match ask_all(&state, &trust.authority, &request)? {
            Outcome::Certificate(certificate) => {
                return identity.write(&trust.authority, &certificate, &key);
            }
            Outcome::Later(reason) if Instant::now() >= deadline => bail!(reason),
            // Nothing tells when there is one.
            Outcome::Later(_) => std::thread::park_timeout(PAUSE),
        }
    }
}

/// What the managers of a moment say.
enum Outcome {
    Certificate(String),
    /// None so far, and why.
    Later(String),
}

fn ask_all(state: &State, authority: &str, request: &JoinRequest) -> anyhow::Result<Outcome> {
    let managers = state.hosts.values().filter(|host| host.is_manager);
    let mut reasons = Vec::new();
    for address in managers.filter_map(|host| host.link) {
        let reason = match ask(address, state.ensemble, authority, request) {
            Ok(JoinAnswer::Certificate(certificate)) => {
                return Ok(Outcome::Certificate(certificate));
            }
            Ok(JoinAnswer::Refused(reason)) => bail!("the manager at {address} refuses: {reason}"),
            Ok(JoinAnswer::NotHere(reason)) => reason,
            Err(error) => format!("{error:#}"),
        };
        reasons.push(format!("{address}: {reason}"));
    }
    Ok(Outcome::Later(if reasons.is_empty() {
        "no manager runs that could give a certificate: start one with `crossdock manager run --ca DIR`, DIR as `crossdock cluster init` has made it".to_owned()
    } else {
        format!("no manager gives a certificate: {}", reasons.join("; "))
    }))
}

/// What can be said without asking anybody.
fn check_token(trust: &TrustRecord, token: &Token, role: Role) -> anyhow::Result<()> {
    let make = format!(
        "make a new one with `crossdock cluster token create --role {}`",
        role.word()
    );
    let Some(record) = trust.tokens.get(&token.id) else {
        bail!(
            "the token {:08x} has been revoked, or has ended; {make}",
            token.id
        );
    };
    if record.ends <= seconds() {
        bail!("the token {:08x} has ended; {make}", token.id);
    }
    match record.role.and_then(Role::from_number) {
        Some(allowed) if allowed != role => bail!(
            "the token {:08x} is for a {}, this is a {}; {make}",
            token.id,
            allowed.word(),
            role.word()
        ),
        _ => Ok(()),
    }
}

/// Asks one manager.
fn ask(
    address: SocketAddr,
    ensemble: u64,
    authority: &str,
    request: &JoinRequest,
) -> anyhow::Result<JoinAnswer> {
    let mut stream = join_client(ensemble, authority)?;
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut chunk = [0; JOIN_ANSWER_BYTES_MAX];
    let mut heard = Vec::new();
    loop {
        while let Some(effect) = stream.poll_effect() {
            match effect {
                StreamEffect::Transmit(bytes) => socket.write_all(&bytes)?,
                StreamEffect::Opened { .. } => {
                    let request = request.encode();
                    stream.send(&[bytes::Bytes::copy_from_slice(&request)])?;
                }
                StreamEffect::Received(bytes) => heard.extend(bytes),
            }
        }
        if let Some(answer) = JoinAnswer::decode(&heard)? {
            return Ok(answer);
        }
        let length = socket.read(&mut chunk)?;
        if length == 0 {
            bail!("it has ended the connection; its log says why");
        }
        if let Err(failure) = stream.receive(&chunk[..length]) {
            // It is told why.
            while let Some(effect) = stream.poll_effect() {
                if let StreamEffect::Transmit(bytes) = effect {
                    let _ = socket.write_all(&bytes);
                }
            }
            return Err(failure.into());
        }
    }
}
