//! TLS of a web server: clients show no certificates, and speak TLS 1.2 or 1.3.
//!
//! What is to be said is encrypted only as far as the network takes it: the rest waits as
//! the pieces that it came in, which may be shared with a cache. Each record that has gone
//! is told as the plaintext that it carried.

use std::collections::VecDeque;
use std::io::{IoSlice, Read, Write};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection};
use thiserror::Error;

use crate::CredentialsError;

/// What clients may ask for by ALPN (RFC 7301), the better one first.
const PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];

/// Longest plaintext of a record (RFC 8446 section 5.1).
const RECORD_BYTES: usize = 1 << 14;

/// Plaintext that is encrypted at a time.
const STEP_BYTES: usize = 4 * RECORD_BYTES;

/// Pieces that are encrypted at a time.
const STEP_PIECES: usize = 64;

/// For whoever has typed `http:` before the port of HTTPS.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 58\r\n\
    Connection: close\r\n\
    \r\n\
    this port speaks HTTPS: let the URL begin with \"https://\"\n";

/// The certificate that a web server shows, with its chain, and its key.
#[derive(Clone, Debug)]
pub struct WebCredentials {
    server: Arc<ServerConfig>,
}

impl WebCredentials {
    /// Those of PEM texts: the server's own certificate is the first of its text, those of
    /// authorities between it and what clients know follow. Sessions can be resumed as long
    /// as these credentials are used, and no longer than twelve hours.
    ///
    /// # Errors
    /// [`CredentialsError`]: there is no certificate or no key, or they are no pair.
    pub fn new(certificates_pem: &str, key_pem: &str) -> Result<Self, CredentialsError> {
        let chain = CertificateDer::pem_slice_iter(certificates_pem.as_bytes());
        let chain: Result<Vec<_>, _> = chain.collect();
        let chain = chain.map_err(|_| CredentialsError::NoCertificate)?;
        if chain.is_empty() {
            return Err(CredentialsError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes());
        let key = key.map_err(|_| CredentialsError::NoKey)?;
        let mut server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        server.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // The client keeps its session: nothing is kept here for those that are gone.
        server.ticketer = Ticketer::new()?;
        Ok(Self {
            server: Arc::new(server),
        })
    }
}

/// What a stream wants done, or tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebEffect {
    /// Bytes for the network. Tell by [`WebStream::gone`] when it has taken them.
    Transmit(Bytes),
    /// What the client has said.
    Received(Bytes),
    /// The client has said that it says no more; it can still hear.
    PeerDone,
    /// All is said: close the connection behind what was transmitted.
    Ended,
}

/// Why nothing more can be said or heard.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WebFailure {
    /// A request has come in the clear; what is still transmitted says so.
    #[error("the client speaks HTTP without TLS")]
    PlainHttp,
    /// What the TLS library says.
    #[error("TLS: {0}")]
    Tls(String),
}

/// The machine of one client's connection, on the server's side.
///
/// Bytes of the network go into [`receive`](Self::receive), those of the server into
/// [`send`](Self::send). After either, and after [`gone`](Self::gone), call
/// [`seal`](Self::seal) and then [`poll_effect`](Self::poll_effect) until it is empty.
/// After a [`WebFailure`] what it still transmits tells the client; then the connection
/// is to be closed.
///
/// Encrypted and not gone is no more than the window of `seal` and one record of 16 KiB;
/// of what arrives nothing is kept but a record that is not complete, and during the
/// handshake at most 64 KiB.
#[derive(Debug)]
pub struct WebStream {
    tls: ServerConnection,
    /// Not encrypted yet.
    waiting: VecDeque<Bytes>,
    /// Transmitted and not gone, in order.
    sealed: VecDeque<Sealed>,
    sealed_bytes: usize,
    /// Whether anything has arrived.
    has_heard: bool,
    is_peer_done: bool,
    /// Nothing more is sent behind what waits.
    is_ending: bool,
    /// Nothing more is said or heard.
    is_over: bool,
    effects: VecDeque<WebEffect>,
}

/// Records that were transmitted together.
#[derive(Debug)]
struct Sealed {
    sealed_bytes: usize,
    plain_bytes: usize,
    /// Of the former.
    gone_bytes: usize,
}

impl WebStream {
    /// A client has connected.
    ///
    /// # Errors
    /// [`WebFailure::Tls`]: no random numbers.
    pub fn accept(credentials: &WebCredentials) -> Result<Self, WebFailure> {
        let tls = ServerConnection::new(Arc::clone(&credentials.server));
        let mut tls = tls.map_err(failed)?;
        // Its bound is ours: each step is taken out at once.
        tls.set_buffer_limit(None);
        Ok(Self {
            tls,
            waiting: VecDeque::new(),
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            has_heard: false,
            is_peer_done: false,
            is_ending: false,
            is_over: false,
            effects: VecDeque::new(),
        })
    }

    /// Takes the next bytes of the network.
    ///
    /// # Errors
    /// [`WebFailure`]: nothing more can be said or heard.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), WebFailure> {
        if self.is_over {
            return Ok(());
        }
        // A TLS record begins with its type, none of which is a letter (RFC 8446 section
        // 5.1), a request with its method.
        let is_plain = !self.has_heard && bytes.first().is_some_and(u8::is_ascii_uppercase);
        self.has_heard = true;
        if is_plain {
            self.transmit(Bytes::from_static(PLAIN_HTTP), 0);
            self.is_over = true;
            return Err(WebFailure::PlainHttp);
        }
        let mut heard = Vec::new();
        let outcome = self.decrypt(bytes, &mut heard);
        if !heard.is_empty() {
            let heard = WebEffect::Received(Bytes::from(heard));
            self.effects.push_back(heard);
        }
        self.drain(0);
        match outcome {
            Ok(true) => self.peer_done(),
            Ok(false) => {}
            Err(_) => self.stop(),
        }
        outcome.map(|_| ())
    }

    /// The client sends no more, as the network says: [`WebEffect::PeerDone`], unless it has
    /// said so itself.
    pub fn peer_done(&mut self) {
        if !self.is_peer_done && !self.is_over {
            self.is_peer_done = true;
            self.effects.push_back(WebEffect::PeerDone);
        }
    }

    /// Puts pieces behind what is to be said.
    pub fn send(&mut self, pieces: Vec<Bytes>) {
        if !self.is_over && !self.is_ending {
            let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
            self.waiting.extend(pieces);
        }
    }

    /// Ends behind what is to be said. Whoever has not completed the handshake hears
    /// nothing of it.
    pub fn end(&mut self) {
        if self.tls.is_handshaking() {
            self.waiting.clear();
        }
        self.is_ending = true;
    }

    /// Encrypts what is to be said, as long as less than `window_bytes` are encrypted
    /// and not gone.
    ///
    /// # Errors
    /// [`WebFailure`]: nothing more can be said or heard.
    pub fn seal(&mut self, window_bytes: usize) -> Result<(), WebFailure> {
        while self.sealed_bytes < window_bytes && self.can_seal() {
            let room = window_bytes - self.sealed_bytes;
            let room = room.clamp(RECORD_BYTES, STEP_BYTES);
            let slices: Vec<IoSlice<'_>> = step(&self.waiting, room).collect();
            let taken = self.tls.writer().write_vectored(&slices);
            let taken = match taken {
                Ok(0) => Err(WebFailure::Tls("it takes no bytes".to_owned())),
                taken => taken.map_err(broken),
            };
            let taken = taken.inspect_err(|_| self.stop())?;
            self.advance(taken);
            self.drain(taken);
        }
        if self.is_ending && self.waiting.is_empty() && !self.is_over {
            self.tls.send_close_notify();
            self.drain(0);
            self.stop();
            self.effects.push_back(WebEffect::Ended);
        }
        Ok(())
    }

    /// The network has taken so many bytes of what was transmitted. Returns how many of
    /// [`send`](Self::send)'s they were; exact at the end of each record, in between as
    /// the record's overhead is spread over it.
    pub fn gone(&mut self, bytes: usize) -> usize {
        let mut left = bytes.min(self.sealed_bytes);
        self.sealed_bytes -= left;
        let mut plain = 0;
        while let Some(first) = self.sealed.front_mut() {
            let step = left.min(first.sealed_bytes - first.gone_bytes);
            left -= step;
            plain += first.take(step);
            if first.gone_bytes < first.sealed_bytes {
                break;
            }
            self.sealed.pop_front();
        }
        plain
    }

    /// Bytes that were transmitted and are not gone.
    #[must_use]
    pub const fn sealed_bytes(&self) -> usize {
        self.sealed_bytes
    }

    /// The next thing to do, or to know.
    pub fn poll_effect(&mut self) -> Option<WebEffect> {
        self.effects.pop_front()
    }

    fn can_seal(&self) -> bool {
        !self.waiting.is_empty() && !self.is_over && !self.tls.is_handshaking()
    }

    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0
            && let Some(first) = self.waiting.front_mut()
        {
            let step = bytes.min(first.len());
            first.advance(step);
            bytes -= step;
            if first.is_empty() {
                self.waiting.pop_front();
            }
        }
    }

    /// Whether the client has said that it ends.
    fn decrypt(&mut self, bytes: &[u8], heard: &mut Vec<u8>) -> Result<bool, WebFailure> {
        let mut rest = bytes;
        let mut has_ended = false;
        // Behind its end nothing is read.
        while !rest.is_empty() && !has_ended {
            self.tls.read_tls(&mut rest).map_err(broken)?;
            let state = self.tls.process_new_packets().map_err(failed)?;
            has_ended = state.peer_has_closed();
            let length = state.plaintext_bytes_to_read();
            if length > 0 {
                let known = heard.len();
                heard.resize(known + length, 0);
                let mut reader = self.tls.reader();
                reader.read_exact(&mut heard[known..]).map_err(broken)?;
            }
        }
        Ok(has_ended)
    }

    /// Transmits what the library has made, of so many bytes of plaintext.
    fn drain(&mut self, plain_bytes: usize) {
        let mut sealed = Vec::new();
        // A vector takes everything.
        while self.tls.wants_write() && self.tls.write_tls(&mut sealed).is_ok() {}
        if !sealed.is_empty() {
            self.transmit(Bytes::from(sealed), plain_bytes);
        }
    }

    fn transmit(&mut self, bytes: Bytes, plain_bytes: usize) {
        self.sealed_bytes += bytes.len();
        self.sealed.push_back(Sealed {
            sealed_bytes: bytes.len(),
            plain_bytes,
            gone_bytes: 0,
        });
        self.effects.push_back(WebEffect::Transmit(bytes));
    }

    fn stop(&mut self) {
        self.is_over = true;
        self.waiting.clear();
    }
}

impl Sealed {
    /// So many more bytes have gone: how many of plaintext that makes.
    fn take(&mut self, bytes: usize) -> usize {
        // Both are some 64 KiB at most.
        let plain = |gone: usize| self.plain_bytes * gone / self.sealed_bytes;
        let more = plain(self.gone_bytes + bytes) - plain(self.gone_bytes);
        self.gone_bytes += bytes;
        more
    }
}

/// What is encrypted next: at most `room` bytes.
fn step(waiting: &VecDeque<Bytes>, mut room: usize) -> impl Iterator<Item = IoSlice<'_>> {
    waiting.iter().take(STEP_PIECES).map_while(move |it| {
        let taken = it.len().min(room);
        room -= taken;
        (taken > 0).then(|| IoSlice::new(&it[..taken]))
    })
}

fn failed(error: rustls::Error) -> WebFailure {
    WebFailure::Tls(error.to_string())
}

fn broken(error: std::io::Error) -> WebFailure {
    WebFailure::Tls(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is said to whoever speaks without TLS is a complete response.
    #[test]
    fn the_page_for_plain_http_is_complete() {
        let text = std::str::from_utf8(PLAIN_HTTP).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("https://"));
        let length = format!("Content-Length: {}\r\n", body.len());
        assert!(head.contains(&length), "it has {} bytes", body.len());
    }

    /// Goal: plaintext is told as its records go, and all of it with their last byte.
    #[test]
    fn plaintext_goes_with_its_record() {
        let mut sealed = Sealed {
            sealed_bytes: 122,
            plain_bytes: 100,
            gone_bytes: 0,
        };
        assert_eq!(sealed.take(61), 50);
        assert_eq!((0..60).map(|_| sealed.take(1)).sum::<usize>(), 49);
        assert_eq!((sealed.take(1), sealed.gone_bytes), (1, 122));
    }
}
