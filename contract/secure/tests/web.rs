//! HTTPS in memory: the library's own client at the other end.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use crossdock_secure::{CredentialsError, WebCredentials, WebEffect, WebFailure, WebStream};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore,
    SupportedProtocolVersion,
};

const WINDOW: usize = 256 << 10;

/// Most that is encrypted beyond the window: a record, and what TLS adds to four.
const STEP: usize = (16 << 10) + 4 * 64;

const NAME: &str = "files.example";

struct Site {
    credentials: WebCredentials,
    certificate: CertificateDer<'static>,
}

fn site() -> Site {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let credentials = WebCredentials::new(&cert.pem(), &signing_key.serialize_pem());
    Site {
        credentials: credentials.expect("credentials"),
        certificate: cert.der().clone(),
    }
}

fn client_config(
    site: &Site,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&[u8]],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(site.certificate.clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    Arc::new(config)
}

/// A client and the server's side of its connection.
struct Pair {
    client: ClientConnection,
    server: WebStream,
    /// What the server has heard and the client has.
    heard: Vec<u8>,
    answered: Vec<u8>,
    /// Plaintext that the server was told to be gone.
    gone: usize,
    is_peer_done: bool,
    has_ended: bool,
    /// Most that was encrypted and not gone.
    sealed_max: usize,
    failure: Option<WebFailure>,
}

impl Pair {
    fn new(site: &Site, config: Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from(NAME).expect("a name");
        Self {
            client: ClientConnection::new(config, name).expect("a client"),
            server: WebStream::accept(&site.credentials).expect("a server"),
            heard: Vec::new(),
            answered: Vec::new(),
            gone: 0,
            is_peer_done: false,
            has_ended: false,
            sealed_max: 0,
            failure: None,
        }
    }

    /// What the server transmits.
    fn poll(&mut self) -> Vec<Bytes> {
        let mut transmitted = Vec::new();
        while let Some(effect) = self.server.poll_effect() {
            match effect {
                WebEffect::Transmit(bytes) => transmitted.push(bytes),
                WebEffect::Received(bytes) => self.heard.extend(bytes),
                WebEffect::PeerDone => {
                    assert!(!self.is_peer_done, "told twice");
                    self.is_peer_done = true;
                }
                WebEffect::Ended => self.has_ended = true,
            }
        }
        transmitted
    }

    /// Carries bytes both ways, the server's in pieces of `step`, until there are none.
    fn settle(&mut self, step: usize) {
        loop {
            let mut sent = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut sent).expect("a vector");
            }
            for piece in sent.chunks(step) {
                let outcome = self.server.receive(piece);
                self.failure = self.failure.take().or_else(|| outcome.err());
            }
            self.server.seal(WINDOW).expect("sealed");
            self.sealed_max = self.sealed_max.max(self.server.sealed_bytes());
            let transmitted = self.poll();
            if sent.is_empty() && transmitted.is_empty() {
                return;
            }
            for piece in transmitted.iter().flat_map(|bytes| bytes.chunks(step)) {
                self.take(piece);
                self.gone += self.server.gone(piece.len());
            }
        }
    }

    fn take(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            if self.client.read_tls(&mut piece).expect("bytes") == 0 {
                return;
            }
            if self.client.process_new_packets().is_err() {
                return;
            }
            match self.client.reader().read_to_end(&mut self.answered) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                Ok(_) => return, // It has ended.
            }
        }
    }

    fn say(&mut self, words: &[u8]) {
        self.client.writer().write_all(words).expect("room");
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| u8::try_from(at % 251).expect("a byte"))
        .collect()
}

/// Goal: with TLS 1.2 and 1.3, in pieces of any size, each side hears what the other has
/// said; what has gone is told exactly; the end is said and heard.
#[test]
fn both_versions_carry_bytes_both_ways() {
    let site = site();
    let answer = pattern(300_000);
    for (version, expected) in [
        (&TLS12, ProtocolVersion::TLSv1_2),
        (&TLS13, ProtocolVersion::TLSv1_3),
    ] {
        for step in [1, 977, 1 << 20] {
            let config = client_config(&site, &[version], &[b"h2", b"http/1.1"]);
            let mut pair = Pair::new(&site, config);
            pair.settle(step);
            assert_eq!(pair.client.protocol_version(), Some(expected));
            assert_eq!(pair.client.alpn_protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(pair.gone, 0, "a handshake is no plaintext");
            pair.say(b"GET / HTTP/1.1\r\n\r\n");
            pair.settle(step);
            assert_eq!(pair.heard, b"GET / HTTP/1.1\r\n\r\n");
            let pieces = answer.chunks(70_001).map(Bytes::copy_from_slice).collect();
            pair.server.send(pieces);
            pair.settle(step);
            assert_eq!((pair.answered.len(), pair.gone), (300_000, 300_000));
            assert!(pair.answered == answer);
            assert_eq!(pair.server.sealed_bytes(), 0);
            pair.client.send_close_notify();
            pair.settle(step);
            assert!(pair.is_peer_done && !pair.has_ended);
            pair.server.peer_done();
            pair.server.send(vec![Bytes::from_static(b"bye")]);
            pair.server.end();
            pair.settle(step);
            assert!(pair.has_ended && pair.answered.ends_with(b"bye"));
            assert_eq!(pair.failure, None);
        }
    }
}

/// Goal: of an answer larger than memory only a window is encrypted ahead of the network,
/// and small pieces share records.
#[test]
fn no_more_is_encrypted_than_the_network_takes() {
    let site = site();
    let config = client_config(&site, &[&TLS13], &[]);
    let mut pair = Pair::new(&site, config);
    pair.settle(1 << 20);
    let part = Bytes::from(pattern(1 << 20));
    pair.server.send(vec![part; 64]);
    pair.server.seal(1).expect("sealed");
    let sealed_bytes = pair.server.sealed_bytes();
    assert!(sealed_bytes <= STEP, "one record, not {sealed_bytes} bytes");
    pair.server.seal(WINDOW).expect("sealed");
    assert!(pair.server.sealed_bytes() >= WINDOW);
    let first = pair.poll();
    pair.server.seal(WINDOW).expect("sealed");
    assert!(pair.poll().is_empty(), "the window is full");
    for bytes in first {
        pair.take(&bytes);
        pair.gone += pair.server.gone(bytes.len());
    }
    pair.settle(1 << 20);
    assert_eq!((pair.answered.len(), pair.gone), (64 << 20, 64 << 20));
    assert!(pair.sealed_max <= WINDOW + STEP, "{}", pair.sealed_max);

    let crumbs = vec![Bytes::from_static(b"crumb"); 64];
    pair.server.send(crumbs);
    pair.server.seal(WINDOW).expect("sealed");
    assert!(pair.server.sealed_bytes() < 64 * 5 + 64, "one record");
    // Its end waits for what was sent before.
    pair.server.end();
    pair.settle(1 << 20);
    assert!(pair.has_ended && pair.answered.ends_with(b"crumb"));
}

/// Goal: a client that comes again resumes its session, without anything that the server
/// had to keep; not with another server's certificate.
#[test]
fn sessions_are_resumed() {
    let site = site();
    for version in [&TLS12, &TLS13] {
        let config = client_config(&site, &[version], &[b"http/1.1"]);
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let mut pair = Pair::new(&site, Arc::clone(&config));
            pair.settle(1 << 20);
            kinds.extend(pair.client.handshake_kind());
        }
        assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed]);
    }
}

/// Goal: who speaks HTTP to the port of HTTPS is told so; rubbish, a protocol that is not
/// spoken here and a record that was tampered with end the connection, and nothing more
/// is taken of it.
#[test]
fn what_is_no_tls_is_refused() {
    let site = site();
    let mut pair = Pair::new(&site, client_config(&site, &[&TLS13], &[]));
    let failure = pair.server.receive(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(failure, Err(WebFailure::PlainHttp));
    let page = pair.poll().concat();
    assert!(page.starts_with(b"HTTP/1.1 400 ") && page.windows(8).any(|it| it == b"https://"));
    pair.server.send(vec![Bytes::from_static(b"more")]);
    assert_eq!(pair.server.receive(b"GET /"), Ok(()));
    pair.server.seal(WINDOW).expect("sealed");
    assert!(pair.poll().is_empty() && pair.heard.is_empty());

    let mut pair = Pair::new(&site, client_config(&site, &[&TLS13], &[]));
    let failure = pair.server.receive(&[0xff; 64]);
    assert!(matches!(failure, Err(WebFailure::Tls(_))), "{failure:?}");

    let mut pair = Pair::new(&site, client_config(&site, &[&TLS13], &[b"h2"]));
    pair.settle(1 << 20);
    assert!(matches!(pair.failure, Some(WebFailure::Tls(_))));

    let mut pair = Pair::new(&site, client_config(&site, &[&TLS13], &[]));
    pair.settle(1 << 20);
    pair.say(b"DELETE / HTTP/1.1\r\n\r\n");
    let mut sent = Vec::new();
    pair.client.write_tls(&mut sent).expect("a vector");
    *sent.last_mut().expect("a record") ^= 1;
    let failure = pair.server.receive(&sent);
    assert!(matches!(failure, Err(WebFailure::Tls(_))), "{failure:?}");
    assert!(!pair.poll().is_empty(), "an alert");
    assert!(pair.heard.is_empty());
}

/// Goal: a server that ends before the handshake is complete does not wait for it.
#[test]
fn the_end_does_not_wait_for_a_handshake() {
    let site = site();
    let mut pair = Pair::new(&site, client_config(&site, &[&TLS13], &[]));
    pair.server.send(vec![Bytes::from_static(b"503")]);
    pair.server.end();
    pair.server.seal(WINDOW).expect("sealed");
    pair.poll();
    assert!(pair.has_ended);
}

/// Goal: files that make no server are told apart.
#[test]
fn what_makes_no_server_is_told() {
    let make = || generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let (one, other) = (make(), make());
    let (certificate, key) = (one.cert.pem(), one.signing_key.serialize_pem());
    let of = |certificate: &str, key: &str| WebCredentials::new(certificate, key).err();
    assert!(of(&certificate, &key).is_none());
    assert!(of(&format!("{certificate}{}", other.cert.pem()), &key).is_none());
    assert!(matches!(
        of("", &key),
        Some(CredentialsError::NoCertificate)
    ));
    assert!(matches!(
        of(&key, &key),
        Some(CredentialsError::NoCertificate)
    ));
    assert!(matches!(
        of(&certificate, ""),
        Some(CredentialsError::NoKey)
    ));
    let key = other.signing_key.serialize_pem();
    assert!(matches!(
        of(&certificate, &key),
        Some(CredentialsError::OtherKey)
    ));
}
