//! TLS over one stream of bytes: what comes from the network goes in, and what the other
//! side has said comes out.
//!
//! Nothing is kept here but what TLS itself needs: a record that is not complete, of at
//! most 18 KiB, and during the handshake at most 64 KiB.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use crossdock_link::Identity;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConnection};

use crate::names::identity;
use crate::{Credentials, Failure, JOIN_PROTOCOL, LINK_PROTOCOL};

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Messages between hosts.
    Link,
    /// A process without a certificate wants one.
    Join,
}

/// What a stream wants done, or tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEffect {
    /// Bytes for the network.
    Transmit(Bytes),
    /// Each side knows what the other one has shown: the first thing that is told.
    Opened {
        /// What the connection is for.
        purpose: Purpose,
        /// What the other side's certificate says of it, if it has shown one.
        identity: Option<Identity>,
    },
    /// What the other side has said.
    Received(Bytes),
}

/// The machine of one TLS connection. After a [`Failure`] what it still transmits tells
/// the other side; then the connection is to be closed.
#[derive(Debug)]
pub struct Stream {
    tls: Connection,
    is_open: bool,
    effects: VecDeque<StreamEffect>,
}

impl Stream {
    /// The side that has connected, and speaks first.
    ///
    /// # Errors
    /// [`Failure::Library`]: no random numbers.
    pub fn connect(credentials: &Credentials) -> Result<Self, Failure> {
        let client = Arc::clone(&credentials.client);
        Ok(Self::begin(client, credentials.expected.clone())?)
    }

    /// The side that was connected to.
    ///
    /// # Errors
    /// [`Failure::Library`]: no random numbers.
    pub fn accept(credentials: &Credentials) -> Result<Self, Failure> {
        let tls = ServerConnection::new(Arc::clone(&credentials.server))?;
        Ok(Self::new(tls.into()))
    }

    pub(crate) fn begin(
        client: Arc<ClientConfig>,
        expected: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        let tls = ClientConnection::new(client, expected)?;
        let mut stream = Self::new(tls.into());
        stream.flush();
        Ok(stream)
    }

    const fn new(tls: Connection) -> Self {
        Self {
            tls,
            is_open: false,
            effects: VecDeque::new(),
        }
    }

    /// Takes the next bytes of the network.
    ///
    /// # Errors
    /// [`Failure`]: nothing more can be said or heard.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut heard = Vec::new();
        let outcome = self.decrypt(bytes, &mut heard);
        if !heard.is_empty() {
            let heard = StreamEffect::Received(Bytes::from(heard));
            self.effects.push_back(heard);
        }
        self.flush();
        outcome
    }

    /// Says something, in order; not before [`StreamEffect::Opened`].
    ///
    /// # Errors
    /// [`Failure`]: nothing more can be said or heard.
    pub fn send(&mut self, pieces: &[Bytes]) -> Result<(), Failure> {
        let mut sealed = Vec::with_capacity(pieces.iter().map(Bytes::len).sum());
        for piece in pieces {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                // As much as the library's own buffer has room for.
                let taken = self.tls.writer().write(rest).map_err(broken)?;
                if taken == 0 {
                    return Err(Failure::Library("it takes no bytes".to_owned()));
                }
                rest = &rest[taken..];
                self.drain(&mut sealed);
            }
        }
        if !sealed.is_empty() {
            let sealed = StreamEffect::Transmit(Bytes::from(sealed));
            self.effects.push_back(sealed);
        }
        Ok(())
    }

    /// The next thing to do, or to know.
    pub fn poll_effect(&mut self) -> Option<StreamEffect> {
        self.effects.pop_front()
    }

    fn decrypt(&mut self, bytes: &[u8], heard: &mut Vec<u8>) -> Result<(), Failure> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.tls.read_tls(&mut rest).map_err(broken)? == 0 {
                return Ok(()); // The other side has said that it ends.
            }
            let state = self.tls.process_new_packets();
            let state = state.map_err(|error| Failure::of(error, self.is_open))?;
            if !self.is_open && !self.tls.is_handshaking() {
                self.open()?;
            }
            let length = state.plaintext_bytes_to_read();
            if length > 0 {
                let known = heard.len();
                heard.resize(known + length, 0);
                let mut reader = self.tls.reader();
                reader.read_exact(&mut heard[known..]).map_err(broken)?;
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), Failure> {
        let purpose = match self.tls.alpn_protocol() {
            Some(LINK_PROTOCOL) => Purpose::Link,
            Some(JOIN_PROTOCOL) => Purpose::Join,
            _ => return Err(Failure::NotTls),
        };
        let shown = self.tls.peer_certificates().and_then(<[_]>::first);
        let identity = shown.and_then(identity);
        self.is_open = true;
        self.effects
            .push_back(StreamEffect::Opened { purpose, identity });
        Ok(())
    }

    fn flush(&mut self) {
        let mut sealed = Vec::new();
        self.drain(&mut sealed);
        if !sealed.is_empty() {
            let sealed = StreamEffect::Transmit(Bytes::from(sealed));
            self.effects.push_back(sealed);
        }
    }

    fn drain(&mut self, sealed: &mut Vec<u8>) {
        while self.tls.wants_write() {
            // A vector takes everything.
            if self.tls.write_tls(sealed).is_err() {
                return;
            }
        }
    }
}

fn broken(error: std::io::Error) -> Failure {
    Failure::Library(error.to_string())
}
