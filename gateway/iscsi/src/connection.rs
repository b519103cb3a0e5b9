//! One TCP connection: bytes that come in, who they are of, bytes that go out.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use crossdock_iscsi_pdu::{Digests, PduReader};
use crossdock_types::{Payload, Time, fill_patience};

use crate::login::Login;
use crate::message::IscsiLimits;
use crate::session::SessionId;

/// Bytes of data of a login request, whatever is agreed on later (RFC 7143 section 13.12).
const LOGIN_DATA_BYTES_MAX: usize = 8192;

/// State of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    /// Where it has come to.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) reader: PduReader,
    pub(crate) phase: Phase,
    /// Number of the next status.
    pub(crate) stat_sn: u32,
    pub(crate) digests: Digests,
    /// For the next send.
    pub(crate) outbox: Payload,
    /// Bytes that the kernel has not taken.
    pub(crate) unsent_bytes: usize,
    /// Bytes of data of one PDU that the initiator takes.
    pub(crate) their_data_bytes_max: usize,
    /// The rest of an answer to a text request, and its tag.
    pub(crate) text: Option<TextRest>,
    /// Nothing more is served: it ends behind what is to be sent.
    pub(crate) is_closing: bool,
    /// It is not read from.
    pub(crate) is_paused: bool,
    /// Bytes of data that come in one piece: nothing is heard of them before all are there.
    pub(crate) filling_bytes: usize,
    /// When something last came.
    pub(crate) active: Time,
    /// The initiator was asked for a sign of life.
    pub(crate) is_asked: bool,
}

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum Phase {
    Login(Box<Login>),
    /// It is one of a session's, under that number.
    Full(SessionId, u16),
}

/// What is left of a long text.
#[derive(Debug)]
pub(crate) struct TextRest {
    pub(crate) tag: u32,
    pub(crate) rest: Bytes,
}

impl Connection {
    pub(crate) fn new(now: Time, peer: SocketAddr, local: Option<SocketAddr>) -> Self {
        Self {
            peer,
            local,
            reader: PduReader::new(LOGIN_DATA_BYTES_MAX),
            phase: Phase::Login(Box::new(Login::new(now))),
            stat_sn: 1,
            digests: Digests::default(),
            outbox: Payload::new(),
            unsent_bytes: 0,
            their_data_bytes_max: LOGIN_DATA_BYTES_MAX,
            text: None,
            is_closing: false,
            is_paused: false,
            filling_bytes: 0,
            active: now,
            is_asked: false,
        }
    }

    /// The initiator's address.
    pub(crate) fn from(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    pub(crate) const fn session(&self) -> Option<SessionId> {
        match self.phase {
            Phase::Full(session, _) => Some(session),
            Phase::Login(_) => None,
        }
    }

    /// When it has waited for its initiator for too long.
    pub(crate) fn deadline(&self, limits: &IscsiLimits) -> Time {
        match &self.phase {
            Phase::Login(login) => login.since + limits.login_patience,
            Phase::Full(..) => {
                let idle = self.active + limits.idle_patience + fill_patience(self.filling_bytes);
                match self.is_asked {
                    true => idle + limits.answer_patience,
                    false => idle,
                }
            }
        }
    }
}
