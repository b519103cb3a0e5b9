//! Everything that travels between hosts, and its encoding: a fixed header, a
//! body in the postcard format, and the payload as it lies in memory.

use bytes::Bytes;
use crossdock_checksum::{crc32c, crc32c_append};
use crossdock_limits::{
    KEPT_FILES_TOLD_MAX, LINK_BODY_BYTES_MAX, LINK_HELLO_BYTES_MAX, LINK_REASON_BYTES_MAX,
    OBJECT_IO_BYTES_MAX, PINS_RELEASED_MAX, VIRTUAL_CLIENTS_MAX,
};
use crossdock_names::{Epoch, HostId, Proof, SiteId};
use crossdock_peer::{Call, CallId, Port, SiteRequest, Transfer};
use crossdock_types::{Payload, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::frame::{deadline, remaining_ms};
use crate::header::{Bounds, HEADER_BYTES, Header, Kind};
use crate::reader::FrameReader;
use crate::{Frame, FrameError, Stamped};

/// The version of the protocol that this build speaks: raised with every change
/// of what the bodies of messages mean or how they are encoded.
pub const PROTOCOL_VERSION: u16 = 18;

/// A message between hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a frame in a box would cost each an allocation"
)]
pub enum Message {
    /// The first one, of the host that has connected.
    Hello(Hello),
    /// The answer: the connection can be used.
    Welcome(Welcome),
    /// Instead of an answer, or after it: the connection ends.
    Refuse(Refusal),
    /// Are you there?
    Ping,
    /// Yes.
    Pong,
    /// The window is open for more.
    Credit(Credit),
    /// One for a part of the host.
    Frame(Stamped),
}

/// Who connects. Later versions may put fields behind these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The oldest version of the protocol that it speaks.
    pub version_min: u16,
    /// The newest.
    pub version_max: u16,
    /// Whose part it is.
    pub ensemble: u64,
    /// Who it is.
    pub host: HostId,
    /// What it does: the number of a [`Role`].
    pub role: u8,
    /// Rises with each connection between the two hosts.
    pub connection: u64,
    /// The highest epoch of the routing table that it has seen.
    pub table_epoch: Epoch,
    /// Bytes of calls that it takes.
    pub call_window_bytes: u64,
    /// Bytes of replies that it takes.
    pub reply_window_bytes: u64,
    /// Whom it wants to talk to: at the address of a process that has ended there
    /// may be another one.
    pub expected: Option<HostId>,
}

/// Who was connected to. Later versions may put fields behind these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that both speak from now on.
    pub version: u16,
    /// Whose part it is.
    pub ensemble: u64,
    /// Who it is.
    pub host: HostId,
    /// What it does: the number of a [`Role`].
    pub role: u8,
    /// The highest epoch of the routing table that it has seen.
    pub table_epoch: Epoch,
    /// Bytes of calls that it takes.
    pub call_window_bytes: u64,
    /// Bytes of replies that it takes.
    pub reply_window_bytes: u64,
}

/// Why a host will not have the other one. Later versions may put fields behind
/// these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{text}")]
pub struct Refusal {
    /// What the other one can do about it: the number of a [`RefusalKind`].
    pub kind: u8,
    /// For people; at most `limits::LINK_REASON_BYTES_MAX` bytes.
    pub text: String,
    /// The highest connection number between the two that the refusing host
    /// knows; 0 if that is not what it is about.
    pub connection: u64,
}

/// Kinds of refusals; the numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RefusalKind {
    /// Another one, of a later version.
    Other = 0,
    /// No version of the protocol that both speak.
    Version = 1,
    /// Another ensemble.
    Ensemble = 2,
    /// A role that is unknown here.
    Role = 3,
    /// There is a newer connection between the two.
    Superseded = 4,
    /// Another host than was expected.
    Host = 5,
    /// Too many connections.
    Full = 6,
    /// No certificate, or one that says something else.
    Certificate = 7,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, text: String) -> Self {
        let mut text = text;
        while text.len() > LINK_REASON_BYTES_MAX {
            text.pop();
        }
        Self {
            kind: kind as u8,
            text,
            connection: 0,
        }
    }

    /// What kind it is.
    #[must_use]
    pub const fn kind(&self) -> RefusalKind {
        match self.kind {
            1 => RefusalKind::Version,
            2 => RefusalKind::Ensemble,
            3 => RefusalKind::Role,
            4 => RefusalKind::Superseded,
            5 => RefusalKind::Host,
            6 => RefusalKind::Full,
            7 => RefusalKind::Certificate,
            _ => RefusalKind::Other,
        }
    }
}

/// What a host does; the numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    /// It has storage nodes.
    Node = 1,
    /// It has sites.
    Manager = 2,
    /// It has doors and a router.
    Gateway = 3,
    /// All of these.
    All = 4,
}

impl Role {
    /// The role of that number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Node,
            2 => Self::Manager,
            3 => Self::Gateway,
            4 => Self::All,
            _ => return None,
        })
    }

    /// How people and certificates write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Manager => "manager",
            Self::Gateway => "gateway",
            Self::All => "all",
        }
    }

    /// The role of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Node, Self::Manager, Self::Gateway, Self::All];
        all.into_iter().find(|role| role.word() == word)
    }
}

/// So many more bytes are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// Of calls.
    pub call_bytes: u64,
    /// Of replies.
    pub reply_bytes: u64,
}

/// A message as bytes.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Header and body.
    pub head: Bytes,
    /// Follows the head; the memory is shared with the message.
    pub payload: Payload,
}

impl Encoded {
    /// Length on the wire.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    /// The pieces in order.
    pub fn into_pieces(self) -> impl Iterator<Item = Bytes> {
        std::iter::once(self.head).chain(self.payload.into_pieces())
    }

    /// All in one piece, by a copy.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut whole = Payload::from(self.head.clone());
        whole.append(self.payload.clone());
        whole.to_bytes()
    }
}

/// Why a message cannot be sent.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// Longer than any host takes.
    #[error("a message of {bytes} bytes of {part}, at most {bytes_max} are taken")]
    TooLong {
        /// Body or payload.
        part: &'static str,
        /// How long it is.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// It has no encoding.
    #[error("a message without encoding: {0}")]
    Body(String),
}

impl Message {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Welcome(_) => Kind::Welcome,
            Self::Refuse(_) => Kind::Refuse,
            Self::Ping => Kind::Ping,
            Self::Pong => Kind::Pong,
            Self::Credit(_) => Kind::Credit,
            Self::Frame(sent) => match sent.frame {
                Frame::NodeCall { .. } => Kind::NodeCall,
                Frame::NodeReply { .. } => Kind::NodeReply,
                Frame::CancelNode { .. } => Kind::CancelNode,
                Frame::PostponeNode { .. } => Kind::PostponeNode,
                Frame::ResumeNode { .. } => Kind::ResumeNode,
                // Who has no proofs pays nothing for them.
                Frame::SiteCall { ref proofs, .. } if proofs.is_empty() => Kind::SiteCall,
                Frame::SiteCall { .. } => Kind::ProvenCall,
                Frame::SiteReply { ref proofs, .. } if proofs.is_empty() => Kind::SiteReply,
                Frame::SiteReply { .. } => Kind::ProvenReply,
                Frame::Proving(_) => Kind::Proving,
                Frame::Handling(_) => Kind::Handling,
                Frame::Lock(_) => Kind::Lock,
                Frame::Renew { .. } => Kind::Renew,
                Frame::Granted { .. } => Kind::Granted,
                Frame::Space { .. } => Kind::Space,
                Frame::DiskProfile { .. } => Kind::DiskProfile,
                Frame::Defrag { .. } => Kind::Defrag,
                Frame::Clients { .. } => Kind::Clients,
                Frame::Minting(_) => Kind::Minting,
                Frame::AskClock { .. } => Kind::AskClock,
                Frame::Clock { .. } => Kind::Clock,
                Frame::Recall(_) => Kind::Recall,
                Frame::Transfer(_) => Kind::Transfer,
            },
        }
    }

    fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Frame(sent) => sent.frame.payload(),
            _ => None,
        }
    }

    /// The message's bytes. `now` turns deadlines into what is left of them.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`]: no host would take it.
    pub fn encode(&self, now: Time) -> Result<Encoded, EncodeError> {
        let room = vec![0; HEADER_BYTES];
        let written = self.write_body(now, room);
        let mut head = written.map_err(|error| EncodeError::Body(error.to_string()))?;
        let payload = self.payload().cloned().unwrap_or_default();
        check_length("body", head.len() - HEADER_BYTES, LINK_BODY_BYTES_MAX)?;
        let payload_bytes = check_length("payload", payload.len(), OBJECT_IO_BYTES_MAX)?;
        let pieces = payload.pieces().iter();
        let checksum = pieces.fold(crc32c(&[]), |sum, piece| crc32c_append(sum, piece));
        Header::write(&mut head, self.kind(), payload_bytes, checksum);
        Ok(Encoded {
            head: head.into(),
            payload,
        })
    }

    fn write_body(&self, now: Time, to: Vec<u8>) -> postcard::Result<Vec<u8>> {
        match self {
            Self::Hello(hello) => postcard::to_extend(hello, to),
            Self::Welcome(welcome) => postcard::to_extend(welcome, to),
            Self::Refuse(refusal) => postcard::to_extend(refusal, to),
            Self::Ping | Self::Pong => Ok(to),
            Self::Credit(credit) => postcard::to_extend(credit, to),
            Self::Frame(Stamped { epoch, frame }) => write_frame(now, *epoch, frame, to),
        }
    }

    /// Reads one whole message.
    ///
    /// # Errors
    /// [`FrameError`]; `None` if `bytes` end within it.
    pub fn decode(now: Time, bytes: &Bytes) -> Result<Option<Self>, FrameError> {
        let mut rest = bytes.clone();
        let mut reader = FrameReader::new();
        reader.trust();
        reader.next_message(now, &mut rest)
    }

    /// Reads a message but for its payload.
    pub(crate) fn read_body(now: Time, kind: Kind, body: &[u8]) -> Result<Self, FrameError> {
        Ok(match kind {
            Kind::Hello => Self::Hello(beginning(kind, body)?),
            Kind::Welcome => Self::Welcome(beginning(kind, body)?),
            Kind::Refuse => Self::Refuse(beginning(kind, body)?),
            Kind::Ping => whole(kind, body).map(|()| Self::Ping)?,
            Kind::Pong => whole(kind, body).map(|()| Self::Pong)?,
            Kind::Credit => Self::Credit(whole(kind, body)?),
            Kind::NodeCall => {
                let (epoch, from, to, id, left_ms, request, capability, flow) = whole(kind, body)?;
                let deadline = deadline(now, left_ms);
                let call = Call {
                    id,
                    deadline,
                    request,
                };
                let frame = Frame::NodeCall {
                    from,
                    to,
                    call,
                    capability,
                    flow,
                };
                Self::Frame(frame.by(epoch))
            }
            Kind::NodeReply => {
                let (epoch, from, to, reply) = whole(kind, body)?;
                Self::Frame(Frame::NodeReply { from, to, reply }.by(epoch))
            }
            Kind::CancelNode => {
                let (epoch, from, to, id) = whole(kind, body)?;
                Self::Frame(Frame::CancelNode { from, to, id }.by(epoch))
            }
            Kind::PostponeNode => {
                let (epoch, from, to, id, by_micros) = whole(kind, body)?;
                let postpone = Frame::PostponeNode {
                    from,
                    to,
                    id,
                    by_micros,
                };
                Self::Frame(postpone.by(epoch))
            }
            Kind::ResumeNode => {
                let (epoch, from, to, id) = whole(kind, body)?;
                Self::Frame(Frame::ResumeNode { from, to, id }.by(epoch))
            }
            Kind::SiteCall => {
                let body = whole(kind, body)?;
                site_call(now, body, Vec::new())
            }
            Kind::ProvenCall => {
                let (body, proofs) = whole(kind, body)?;
                site_call(now, body, proofs)
            }
            Kind::SiteReply => {
                let (epoch, to, reply) = whole(kind, body)?;
                let proofs = Vec::new();
                Self::Frame(Frame::SiteReply { to, reply, proofs }.by(epoch))
            }
            Kind::ProvenReply => {
                let ((epoch, to, reply), proofs) = whole(kind, body)?;
                Self::Frame(Frame::SiteReply { to, reply, proofs }.by(epoch))
            }
            Kind::Proving => {
                let (epoch, key) = whole(kind, body)?;
                Self::Frame(Frame::Proving(key).by(epoch))
            }
            Kind::Handling => {
                let (epoch, key) = whole(kind, body)?;
                Self::Frame(Frame::Handling(key).by(epoch))
            }
            Kind::Lock => {
                let (epoch, notice) = whole(kind, body)?;
                Self::Frame(Frame::Lock(notice).by(epoch))
            }
            Kind::Renew => {
                let (epoch, at) = whole(kind, body)?;
                Self::Frame(Frame::Renew { at }.by(epoch))
            }
            Kind::Granted => {
                let (epoch, at) = whole(kind, body)?;
                Self::Frame(Frame::Granted { at }.by(epoch))
            }
            Kind::AskClock => {
                let (epoch, at) = whole(kind, body)?;
                Self::Frame(Frame::AskClock { at }.by(epoch))
            }
            Kind::Clock => {
                let (epoch, at, wall) = whole(kind, body)?;
                Self::Frame(Frame::Clock { at, wall }.by(epoch))
            }
            Kind::Space => {
                let (epoch, node, total_bytes, free_bytes, load_percent) = whole(kind, body)?;
                let space = Frame::Space {
                    node,
                    total_bytes,
                    free_bytes,
                    load_percent,
                };
                Self::Frame(space.by(epoch))
            }
            Kind::DiskProfile => {
                let body = whole(kind, body)?;
                let (epoch, node, positioning_nanos, sequential_bytes_per_second, load_percent) =
                    body;
                let profile = Frame::DiskProfile {
                    node,
                    positioning_nanos,
                    sequential_bytes_per_second,
                    load_percent,
                };
                Self::Frame(profile.by(epoch))
            }
            Kind::Defrag => {
                let (epoch, node, word) = whole(kind, body)?;
                Self::Frame(Frame::Defrag { node, word }.by(epoch))
            }
            Kind::Clients => {
                let (epoch, at, clients): (_, _, Vec<_>) = whole(kind, body)?;
                if clients.len() > VIRTUAL_CLIENTS_MAX {
                    return Err(nonsense(kind, format!("{} clients", clients.len())));
                }
                Self::Frame(Frame::Clients { at, clients }.by(epoch))
            }
            Kind::Minting => {
                let (epoch, key) = whole(kind, body)?;
                Self::Frame(Frame::Minting(key).by(epoch))
            }
            Kind::Transfer => {
                let (epoch, transfer) = whole(kind, body)?;
                if let Transfer::Release(pins) | Transfer::Unfilled(pins) = &transfer
                    && pins.len() > PINS_RELEASED_MAX
                {
                    return Err(nonsense(kind, format!("{} pins", pins.len())));
                }
                if let Transfer::Keeps(files) = &transfer
                    && files.len() > KEPT_FILES_TOLD_MAX
                {
                    return Err(nonsense(kind, format!("{} files", files.len())));
                }
                Self::Frame(Frame::Transfer(transfer).by(epoch))
            }
            Kind::Recall => {
                let (epoch, recall) = whole(kind, body)?;
                Self::Frame(Frame::Recall(recall).by(epoch))
            }
        })
    }
}

impl Bounds {
    /// Before the hosts know each other.
    pub(crate) const STRANGER: Self = Self {
        body_bytes_max: LINK_HELLO_BYTES_MAX,
        payload_bytes_max: 0,
    };
    /// Afterwards.
    pub(crate) const PEER: Self = Self {
        body_bytes_max: LINK_BODY_BYTES_MAX,
        payload_bytes_max: OBJECT_IO_BYTES_MAX,
    };
}

fn write_frame(now: Time, epoch: Epoch, frame: &Frame, to: Vec<u8>) -> postcard::Result<Vec<u8>> {
    match frame {
        Frame::NodeCall {
            from,
            to: node,
            call,
            capability,
            flow,
        } => {
            let left_ms = remaining_ms(now, call.deadline);
            let request = &call.request;
            let body = (
                epoch, from, node, call.id, left_ms, request, capability, flow,
            );
            postcard::to_extend(&body, to)
        }
        Frame::NodeReply {
            from,
            to: port,
            reply,
        } => postcard::to_extend(&(epoch, from, port, reply), to),
        Frame::CancelNode { from, to: node, id } | Frame::ResumeNode { from, to: node, id } => {
            postcard::to_extend(&(epoch, from, node, id), to)
        }
        Frame::PostponeNode {
            from,
            to: node,
            id,
            by_micros,
        } => postcard::to_extend(&(epoch, from, node, id, by_micros), to),
        Frame::SiteCall {
            from,
            to: site,
            call,
            proofs,
        } => {
            let left_ms = remaining_ms(now, call.deadline);
            let body = (epoch, from, site, call.id, left_ms, &call.request);
            match proofs.is_empty() {
                true => postcard::to_extend(&body, to),
                false => postcard::to_extend(&(body, proofs), to),
            }
        }
        Frame::SiteReply {
            to: port,
            reply,
            proofs,
        } => {
            let body = (epoch, port, reply);
            match proofs.is_empty() {
                true => postcard::to_extend(&body, to),
                false => postcard::to_extend(&(body, proofs), to),
            }
        }
        Frame::Proving(key) => postcard::to_extend(&(epoch, key), to),
        Frame::Handling(key) => postcard::to_extend(&(epoch, key), to),
        Frame::Lock(notice) => postcard::to_extend(&(epoch, notice), to),
        Frame::Renew { at } | Frame::Granted { at } | Frame::AskClock { at } => {
            postcard::to_extend(&(epoch, at), to)
        }
        Frame::Clock { at, wall } => postcard::to_extend(&(epoch, at, wall), to),
        Frame::Space {
            node,
            total_bytes,
            free_bytes,
            load_percent,
        } => {
            let space = (epoch, node, total_bytes, free_bytes, load_percent);
            postcard::to_extend(&space, to)
        }
        Frame::DiskProfile {
            node,
            positioning_nanos: positioning,
            sequential_bytes_per_second: rate,
            load_percent,
        } => postcard::to_extend(&(epoch, node, positioning, rate, load_percent), to),
        Frame::Defrag { node, word } => postcard::to_extend(&(epoch, node, word), to),
        Frame::Clients { at, clients } => postcard::to_extend(&(epoch, at, clients), to),
        Frame::Minting(key) => postcard::to_extend(&(epoch, key), to),
        Frame::Recall(recall) => postcard::to_extend(&(epoch, recall), to),
        Frame::Transfer(transfer) => postcard::to_extend(&(epoch, transfer), to),
    }
}

/// A request to a site as it travels: by which table, who asks whom, under which number,
/// for how long, what.
type SiteCallBody = (Epoch, Port, SiteId, CallId, u64, SiteRequest);

fn site_call(now: Time, body: SiteCallBody, proofs: Vec<Proof>) -> Message {
    let (epoch, from, to, id, left_ms, request) = body;
    let call = Call {
        id,
        deadline: deadline(now, left_ms),
        request,
    };
    let frame = Frame::SiteCall {
        from,
        to,
        call: Box::new(call),
        proofs,
    };
    Message::Frame(frame.by(epoch))
}

fn check_length(part: &'static str, bytes: usize, bytes_max: usize) -> Result<u32, EncodeError> {
    let too_long = EncodeError::TooLong {
        part,
        bytes,
        bytes_max,
    };
    match u32::try_from(bytes) {
        Ok(length) if bytes <= bytes_max => Ok(length),
        _ => Err(too_long),
    }
}

/// A body of which later versions may have more.
fn beginning<T: DeserializeOwned>(kind: Kind, body: &[u8]) -> Result<T, FrameError> {
    let taken = postcard::take_from_bytes(body);
    let (value, _later) = taken.map_err(|error| nonsense(kind, error.to_string()))?;
    Ok(value)
}

fn whole<T: DeserializeOwned>(kind: Kind, body: &[u8]) -> Result<T, FrameError> {
    let taken = postcard::take_from_bytes(body);
    let (value, rest) = taken.map_err(|error| nonsense(kind, error.to_string()))?;
    match rest.len() {
        0 => Ok(value),
        more => Err(nonsense(kind, format!("{more} bytes too many"))),
    }
}

fn nonsense(kind: Kind, what: String) -> FrameError {
    FrameError::Body {
        kind: kind.name(),
        what,
    }
}
