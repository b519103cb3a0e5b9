//! Two sides of a TLS connection in memory: who comes together, and what those hear
//! who do not.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use crossdock_link::{Identity, Role};
use crossdock_secure::{
    Authority, Credentials, CredentialsError, Failure, KeyMaterial, Purpose, Stream, StreamEffect,
    check_fingerprint, join_client,
};

const ENSEMBLE: u64 = 0x00ab_cdef_0123_4567;
const YEAR: i64 = 365 * 24 * 3600;

#[expect(
    clippy::disallowed_methods,
    reason = "TLS judges certificates by the system's clock"
)]
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or(Duration::ZERO).as_secs()).expect("a time")
}

fn authority(ensemble: u64) -> Authority {
    Authority::create(ensemble, now()).expect("an authority")
}

fn credentials_at(authority: &Authority, ensemble: u64, role: Role, at: i64) -> Credentials {
    let key = KeyMaterial::generate().expect("a key");
    let point = key.public_key().expect("of P-256");
    let name = (role == Role::Gateway).then_some("gateway-a");
    let certificate = authority.issue(role, name, &point, at);
    let certificate = certificate.expect("a certificate");
    let known = authority.certificate_pem();
    Credentials::new(ensemble, known, &certificate, &key.to_pem()).expect("credentials")
}

fn credentials(authority: &Authority, role: Role) -> Credentials {
    credentials_at(authority, ENSEMBLE, role, now())
}

/// One side, and what it has been told.
struct Side {
    stream: Stream,
    opened: Option<(Purpose, Option<Identity>)>,
    heard: Vec<u8>,
    failure: Option<Failure>,
}

impl Side {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            opened: None,
            heard: Vec::new(),
            failure: None,
        }
    }

    /// What it transmits.
    fn carry_out(&mut self) -> Vec<u8> {
        let mut sent = Vec::new();
        while let Some(effect) = self.stream.poll_effect() {
            match effect {
                StreamEffect::Transmit(bytes) => sent.extend(bytes),
                StreamEffect::Opened { purpose, identity } => {
                    assert!(self.opened.is_none() && self.heard.is_empty());
                    self.opened = Some((purpose, identity));
                }
                StreamEffect::Received(bytes) => self.heard.extend(bytes),
            }
        }
        sent
    }

    fn receive(&mut self, bytes: &[u8]) {
        if self.failure.is_none() {
            self.failure = self.stream.receive(bytes).err();
        }
    }
}

/// Carries what both sides send until neither has more, in pieces of that length.
fn settle(first: &mut Side, second: &mut Side, piece: usize) {
    loop {
        let (there, back) = (first.carry_out(), second.carry_out());
        if there.is_empty() && back.is_empty() {
            return;
        }
        there.chunks(piece).for_each(|bytes| second.receive(bytes));
        back.chunks(piece).for_each(|bytes| first.receive(bytes));
    }
}

fn meet(client: Result<Stream, Failure>, server: &Credentials) -> (Side, Side) {
    let mut client = Side::new(client.expect("a client"));
    let mut server = Side::new(Stream::accept(server).expect("a server"));
    settle(&mut client, &mut server, usize::MAX);
    (client, server)
}

/// Goal: two hosts of an ensemble learn what the other one may be, and hear each
/// other's bytes in order, however the network cuts them.
#[test]
fn hosts_of_one_ensemble_hear_each_other() {
    let authority = authority(ENSEMBLE);
    let (gateway, manager) = (
        credentials(&authority, Role::Gateway),
        credentials(&authority, Role::Manager),
    );
    let said: Vec<u8> = (0..300_000_u32).map(|it| it.to_le_bytes()[0]).collect();
    let pieces = [
        Bytes::copy_from_slice(&said[..5]),
        Bytes::new(),
        Bytes::copy_from_slice(&said[5..]),
    ];
    for piece in [1, 1000, usize::MAX] {
        let mut client = Side::new(Stream::connect(&gateway).expect("a client"));
        let mut server = Side::new(Stream::accept(&manager).expect("a server"));
        settle(&mut client, &mut server, piece);
        client.stream.send(&pieces).expect("open");
        server.stream.send(&pieces[2..]).expect("open");
        settle(&mut client, &mut server, piece);
        let shown = |role| {
            let identity = Identity {
                ensemble: ENSEMBLE,
                roles: vec![role],
                gateway: (role == Role::Gateway).then(|| "gateway-a".into()),
            };
            Some((Purpose::Link, Some(identity)))
        };
        assert_eq!(client.opened, shown(Role::Manager));
        assert_eq!(server.opened, shown(Role::Gateway));
        assert_eq!((client.failure, server.failure), (None, None));
        assert!(server.heard == said && client.heard == said[5..]);
    }
}

/// Goal: hosts of two authorities do not come together, whichever connects, and each
/// side's administrator reads why.
#[test]
fn another_authority_is_refused_on_both_sides() {
    let ours = credentials(&authority(ENSEMBLE), Role::Node);
    for ensemble in [ENSEMBLE, ENSEMBLE + 1] {
        let theirs = authority(ensemble);
        let theirs = credentials_at(&theirs, ensemble, Role::Manager, now());
        let (client, server) = meet(Stream::connect(&ours), &theirs);
        assert_eq!(client.failure, Some(Failure::OtherAuthority));
        assert_eq!(server.failure, Some(Failure::RefusedAuthority));
        assert!(client.opened.is_none() && server.opened.is_none());
    }
}

/// Goal: who connects with a certificate that has ended is refused, and reads that it
/// has; so does who connects to such a host.
#[test]
fn an_ended_certificate_is_refused_on_both_sides() {
    let authority = authority(ENSEMBLE);
    let valid = credentials(&authority, Role::Manager);
    let ended = credentials_at(&authority, ENSEMBLE, Role::Node, now() - 2 * YEAR);
    let (client, server) = meet(Stream::connect(&ended), &valid);
    assert_eq!(server.failure, Some(Failure::Ended));
    assert_eq!(client.failure, Some(Failure::RefusedEnded));
    assert!(server.opened.is_none());
    let (client, server) = meet(Stream::connect(&valid), &ended);
    assert_eq!(client.failure, Some(Failure::Ended));
    assert_eq!(server.failure, Some(Failure::RefusedEnded));
    let early = credentials_at(&authority, ENSEMBLE, Role::Node, now() + YEAR);
    let (_, server) = meet(Stream::connect(&early), &valid);
    assert_eq!(server.failure, Some(Failure::NotYet));
}

/// Goal: an authority can sign for its own ensemble only: not even its own hosts take
/// what it says of another one.
#[test]
fn an_authority_is_bound_to_its_ensemble() {
    let authority = authority(ENSEMBLE);
    let stolen = Authority::load(
        ENSEMBLE + 1,
        authority.certificate_pem(),
        &authority.key_pem(),
        now(),
    );
    assert!(stolen.is_err(), "it signs for another ensemble");
}

/// Goal: a process without a certificate may join, at a manager only, and nothing else.
#[test]
fn a_process_without_a_certificate_may_only_join() {
    let authority = authority(ENSEMBLE);
    let join = || Ok(join_client(ENSEMBLE, authority.certificate_pem()).expect("a client"));
    let (client, server) = meet(join(), &credentials(&authority, Role::Manager));
    assert_eq!(server.opened, Some((Purpose::Join, None)));
    assert_eq!((client.failure, server.failure), (None, None));
    let (client, _) = meet(join(), &credentials(&authority, Role::Node));
    assert!(matches!(client.failure, Some(Failure::OtherName(_))));
    assert!(client.opened.is_none());
}

/// Goal: bytes that are no TLS end the connection with a reason, whatever they are.
#[test]
fn what_is_no_tls_is_refused() {
    let node = credentials(&authority(ENSEMBLE), Role::Node);
    for bytes in [
        &b"XDLK\x01\x01\0\0\x20\0\0\0\0\0\0\0"[..],
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut server = Side::new(Stream::accept(&node).expect("a server"));
        server.receive(bytes);
        assert_eq!(server.failure, Some(Failure::NotTls));
        let mut client = Side::new(Stream::connect(&node).expect("a client"));
        client.receive(bytes);
        assert_eq!(client.failure, Some(Failure::NotTls));
    }
}

/// Goal: files that do not belong together are told apart when they are read, not when
/// the first host refuses them; and the end of a certificate is known.
#[test]
fn files_that_do_not_fit_are_refused() {
    let authority = authority(ENSEMBLE);
    let other = Authority::create(ENSEMBLE, now()).expect("an authority");
    let (key, wrong) = (
        KeyMaterial::generate().expect("a key"),
        KeyMaterial::generate().expect("a key"),
    );
    let point = key.public_key().expect("of P-256");
    let certificate = authority
        .issue(Role::Node, None, &point, now())
        .expect("one");
    let (known, key) = (authority.certificate_pem(), key.to_pem());
    let read = |ensemble, known: &str, certificate: &str, key: &str| {
        Credentials::new(ensemble, known, certificate, key)
    };
    let good = read(ENSEMBLE, known, &certificate, &key).expect("credentials");
    let ends = i64::try_from(good.ends()).expect("a time");
    assert!((ends - now() - YEAR).abs() < 10, "{ends}");
    assert_eq!(good.identity().roles, [Role::Node]);
    assert!(matches!(
        read(ENSEMBLE, other.certificate_pem(), &certificate, &key),
        Err(CredentialsError::OtherAuthority)
    ));
    assert!(matches!(
        read(ENSEMBLE, known, &certificate, &wrong.to_pem()),
        Err(CredentialsError::OtherKey)
    ));
    assert!(matches!(
        read(ENSEMBLE + 1, known, &certificate, &key),
        Err(CredentialsError::OtherEnsemble)
    ));
    assert!(matches!(
        read(ENSEMBLE, known, "", &key),
        Err(CredentialsError::NoCertificate)
    ));
    assert!(matches!(
        read(ENSEMBLE, known, &certificate, known),
        Err(CredentialsError::NoKey)
    ));
    let mixed = Authority::load(ENSEMBLE, known, &other.key_pem(), now());
    assert!(matches!(mixed, Err(CredentialsError::OtherAuthority)));
    assert!(Authority::load(ENSEMBLE, known, &authority.key_pem(), now()).is_ok());
    let fingerprint = authority.fingerprint().expect("a certificate");
    assert_eq!(check_fingerprint(known, &fingerprint), Ok(()));
    let replaced = check_fingerprint(other.certificate_pem(), &fingerprint);
    assert_eq!(replaced, Err(Failure::Fingerprint));
}
