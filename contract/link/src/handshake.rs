//! Who may talk to whom: what each side checks of the other's first message.

use std::sync::Arc;

use crossdock_names::{Epoch, HostId};

use crate::message::RefusalKind;
use crate::{Credit, Hello, LinkConfig, Refusal, Role, Welcome};

/// What a host's certificate says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Which ensemble it is part of.
    pub ensemble: u64,
    /// What it may be there.
    pub roles: Vec<Role>,
    /// What administrators call it, if it is a gateway's.
    pub gateway: Option<Arc<str>>,
}

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who it is.
    pub host: HostId,
    /// What it does.
    pub role: Role,
    /// The highest epoch of the routing table that it has seen: whoever has a
    /// lower one fetches the table (CONSISTENCY 3).
    pub table_epoch: Epoch,
    /// The version of the protocol that both speak.
    pub version: u16,
    /// Number of the connection between the two.
    pub connection: u64,
    /// What its certificate calls it, if it has shown a gateway's.
    pub gateway: Option<Arc<str>>,
}

/// What the host that connects says.
pub(crate) fn hello(config: &LinkConfig) -> Hello {
    let window = u64::try_from(config.window_bytes).unwrap_or(u64::MAX);
    Hello {
        version_min: config.versions.0,
        version_max: config.versions.1,
        ensemble: config.ensemble,
        host: config.host,
        role: config.role as u8,
        connection: config.connection,
        table_epoch: config.table_epoch,
        call_window_bytes: window,
        reply_window_bytes: window,
        expected: config.expected,
    }
}

/// What the host that was connected to answers.
pub(crate) fn welcome(config: &LinkConfig, peer: &Peer) -> Welcome {
    let window = u64::try_from(config.window_bytes).unwrap_or(u64::MAX);
    Welcome {
        version: peer.version,
        ensemble: config.ensemble,
        host: config.host,
        role: config.role as u8,
        table_epoch: config.table_epoch,
        call_window_bytes: window,
        reply_window_bytes: window,
    }
}

/// Who has connected, and what it takes.
pub(crate) fn check_hello(config: &LinkConfig, hello: &Hello) -> Result<(Peer, Credit), Refusal> {
    let role = check_common(config, hello.ensemble, hello.host, hello.role)?;
    check_expected(hello.expected, config.host)?;
    let (ours_min, ours_max) = config.versions;
    let version = hello.version_max.min(ours_max);
    if version < hello.version_min.max(ours_min) {
        return Err(Refusal::new(
            RefusalKind::Version,
            format!(
                "host {} speaks protocol versions {} to {}, this host {} speaks {} to {}",
                hello.host, hello.version_min, hello.version_max, config.host, ours_min, ours_max
            ),
        ));
    }
    let peer = Peer {
        host: hello.host,
        role,
        table_epoch: hello.table_epoch,
        version,
        connection: hello.connection,
        gateway: None,
    };
    let window = Credit {
        call_bytes: hello.call_window_bytes,
        reply_bytes: hello.reply_window_bytes,
    };
    Ok((peer, window))
}

/// Who has answered, and what it takes.
pub(crate) fn check_welcome(
    config: &LinkConfig,
    welcome: &Welcome,
) -> Result<(Peer, Credit), Refusal> {
    let role = check_common(config, welcome.ensemble, welcome.host, welcome.role)?;
    let (ours_min, ours_max) = config.versions;
    if !(ours_min..=ours_max).contains(&welcome.version) {
        return Err(Refusal::new(
            RefusalKind::Version,
            format!(
                "host {} chose protocol version {}, this host {} speaks {} to {}",
                welcome.host, welcome.version, config.host, ours_min, ours_max
            ),
        ));
    }
    check_expected(config.expected, welcome.host)?;
    let peer = Peer {
        host: welcome.host,
        role,
        table_epoch: welcome.table_epoch,
        version: welcome.version,
        connection: config.connection,
        gateway: None,
    };
    let window = Credit {
        call_bytes: welcome.call_window_bytes,
        reply_bytes: welcome.reply_window_bytes,
    };
    Ok((peer, window))
}

/// Whether what the other host says of itself is what its certificate says.
pub(crate) fn check_certificate(
    config: &LinkConfig,
    identity: Option<&Identity>,
    peer: &Peer,
) -> Result<(), Refusal> {
    if !config.wants_certificate {
        return Ok(());
    }
    let (host, role) = (peer.host, peer.role.word());
    let refuse = |what: String| {
        let next = format!("get it one with `crossdock cluster join --role {role}`");
        Err(Refusal::new(
            RefusalKind::Certificate,
            format!("{what}; {next}"),
        ))
    };
    match identity {
        None => refuse(format!("host {host} has shown no certificate")),
        Some(identity) if identity.ensemble != config.ensemble => refuse(format!(
            "the certificate of host {host} is of ensemble {:016x}, host {} of ensemble {:016x}",
            identity.ensemble, config.host, config.ensemble
        )),
        Some(identity) if !identity.roles.contains(&peer.role) => {
            let roles: Vec<&str> = identity.roles.iter().map(|role| role.word()).collect();
            refuse(format!(
                "host {host} says that it is a {role}, its certificate is for a {}",
                roles.join(", ")
            ))
        }
        // Else it could be another one each time, and nobody could revoke it.
        Some(identity) if peer.role == Role::Gateway && identity.gateway.is_none() => refuse(
            format!("the certificate of host {host} does not name a gateway"),
        ),
        Some(_) => Ok(()),
    }
}

/// Before anything is concluded from the number of the connection: it counts
/// those to the host that was expected.
fn check_expected(expected: Option<HostId>, answers: HostId) -> Result<(), Refusal> {
    match expected {
        Some(expected) if expected != answers => Err(Refusal::new(
            RefusalKind::Host,
            format!("host {expected} was expected, {answers} answers"),
        )),
        _ => Ok(()),
    }
}

fn check_common(
    config: &LinkConfig,
    ensemble: u64,
    host: HostId,
    role: u8,
) -> Result<Role, Refusal> {
    if ensemble != config.ensemble {
        return Err(Refusal::new(
            RefusalKind::Ensemble,
            format!(
                "host {} is of ensemble {:016x}, host {} of ensemble {:016x}",
                host, ensemble, config.host, config.ensemble
            ),
        ));
    }
    if host == config.host {
        return Err(Refusal::new(
            RefusalKind::Host,
            format!("host {host} has connected to itself"),
        ));
    }
    Role::from_number(role).ok_or_else(|| {
        Refusal::new(
            RefusalKind::Role,
            format!(
                "role {} of host {} is unknown to host {}",
                role, host, config.host
            ),
        )
    })
}
