//! Cuts a stream of bytes into messages. The payload of each lands in one
//! aligned buffer, so placed that blocks of its object are blocks in memory.

use bytes::{Bytes, BytesMut};
use crossdock_types::{AlignedBuffer, FILL_BYTES_MIN, Fill, Payload, Time, beside_block};

use crate::header::{Bounds, HEADER_BYTES, Header};
use crate::{Frame, FrameError, Message, Stamped};

/// Of what a stream reads. [`Message::decode`] is for one message.
#[derive(Debug)]
pub struct FrameReader {
    bounds: Bounds,
    /// Whether the rest of a large payload is received elsewhere.
    lends: bool,
    /// Bytes of a header or body that is not complete.
    gathered: BytesMut,
    header: Option<Header>,
    partial: Option<Partial>,
}

/// A message that waits for its payload.
#[derive(Debug)]
struct Partial {
    sent: Stamped,
    header: Header,
    room: Room,
}

#[derive(Debug)]
enum Room {
    Here {
        buffer: AlignedBuffer,
        start: usize,
        filled: usize,
        end: usize,
    },
    /// The shell receives it.
    Lent { missing_bytes: usize },
}

/// What came out of a stream.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a frame in a box would cost each an allocation"
)]
pub(crate) enum Read {
    /// A message that took so many bytes.
    Message(Message, usize),
    Fill(Fill),
}

impl Default for FrameReader {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameReader {
    /// At the beginning of a stream of a stranger: only the short messages of
    /// the handshake are taken.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bounds: Bounds::STRANGER,
            lends: false,
            gathered: BytesMut::new(),
            header: None,
            partial: None,
        }
    }

    /// From now on all messages are taken.
    pub const fn trust(&mut self) {
        self.bounds = Bounds::PEER;
    }

    /// From now on the rest of a large payload is received elsewhere.
    pub(crate) const fn lend(&mut self) {
        self.lends = true;
    }

    /// The next message; `None` if all of `chunk` was taken without completing one.
    ///
    /// # Errors
    /// [`FrameError`]; the stream cannot be read any further.
    pub fn next_message(
        &mut self,
        now: Time,
        chunk: &mut Bytes,
    ) -> Result<Option<Message>, FrameError> {
        Ok(match self.next(now, chunk, Frame::payload_offset_bytes)? {
            Some(Read::Message(message, _)) => Some(message),
            Some(Read::Fill(_)) | None => None,
        })
    }

    /// The same; `place` says where in its object the payload of a frame begins.
    pub(crate) fn next(
        &mut self,
        now: Time,
        chunk: &mut Bytes,
        place: impl Fn(&Frame) -> u64,
    ) -> Result<Option<Read>, FrameError> {
        if let Some(partial) = self.partial.take() {
            return self.go_on(partial, chunk);
        }
        let header = match self.header {
            Some(header) => header,
            None => match self.read_header(chunk)? {
                Some(header) => header,
                None => return Ok(None),
            },
        };
        let body_bytes = usize::try_from(header.body_bytes).unwrap_or(usize::MAX);
        let Some(body) = self.gather(chunk, body_bytes) else {
            return Ok(None);
        };
        self.header = None;
        header.check_body(&body)?;
        let message = Message::read_body(now, header.kind, &body)?;
        self.begin(header, message, chunk, place)
    }

    /// So many bytes of a payload are being received elsewhere.
    pub(crate) fn lent_bytes(&self) -> usize {
        match self.partial.as_ref().map(|partial| &partial.room) {
            Some(Room::Lent { missing_bytes }) => *missing_bytes,
            _ => 0,
        }
    }

    /// Takes a payload that was received elsewhere, beginning with the head.
    pub(crate) fn filled(&mut self, payload: Bytes) -> Result<Option<Read>, FrameError> {
        match self.partial.take() {
            Some(partial) if matches!(partial.room, Room::Lent { .. }) => {
                let length = usize::try_from(partial.header.payload_bytes).unwrap_or(usize::MAX);
                if payload.len() != length {
                    return Err(FrameError::Body {
                        kind: partial.header.kind.name(),
                        what: format!("{} of {length} bytes were received", payload.len()),
                    });
                }
                let message = complete(partial.sent, &partial.header, payload)?;
                Ok(Some(Read::Message(message, partial.header.message_bytes())))
            }
            other => {
                self.partial = other;
                Ok(None)
            }
        }
    }

    fn read_header(&mut self, chunk: &mut Bytes) -> Result<Option<Header>, FrameError> {
        let Some(bytes) = self.gather(chunk, HEADER_BYTES) else {
            return Ok(None);
        };
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = Header::read(bytes, self.bounds)?;
        self.header = Some(header);
        Ok(Some(header))
    }

    /// The next `length` bytes, once all of them are here.
    fn gather(&mut self, chunk: &mut Bytes, length: usize) -> Option<Bytes> {
        if self.gathered.is_empty() && chunk.len() >= length {
            return Some(chunk.split_to(length));
        }
        let wanted = length - self.gathered.len();
        self.gathered
            .extend_from_slice(&chunk.split_to(wanted.min(chunk.len())));
        (self.gathered.len() == length).then(|| self.gathered.split().freeze())
    }

    /// Header and body are here.
    fn begin(
        &mut self,
        header: Header,
        message: Message,
        chunk: &mut Bytes,
        place: impl Fn(&Frame) -> u64,
    ) -> Result<Option<Read>, FrameError> {
        let sent = match message {
            Message::Frame(sent) if header.payload_bytes > 0 && sent.frame.payload().is_some() => {
                sent
            }
            _ if header.payload_bytes > 0 => return Err(FrameError::NoPayload(header.kind.name())),
            message => return Ok(Some(Read::Message(message, header.message_bytes()))),
        };
        let length = usize::try_from(header.payload_bytes).unwrap_or(usize::MAX);
        let lead = beside_block(place(&sent.frame));
        if self.lends && length.saturating_sub(chunk.len()) >= FILL_BYTES_MIN {
            let head = chunk.split_to(chunk.len());
            let missing_bytes = length - head.len();
            let room = Room::Lent { missing_bytes };
            self.partial = Some(Partial { sent, header, room });
            return Ok(Some(Read::Fill(Fill {
                head,
                lead_bytes: lead,
                missing_bytes,
            })));
        }
        let room = Room::Here {
            buffer: AlignedBuffer::zeroed(lead + length),
            start: lead,
            filled: lead,
            end: lead + length,
        };
        let partial = Partial { sent, header, room };
        self.go_on(partial, chunk)
    }

    /// Takes what belongs to a payload.
    fn go_on(&mut self, partial: Partial, chunk: &mut Bytes) -> Result<Option<Read>, FrameError> {
        let Partial { sent, header, room } = partial;
        let Room::Here {
            mut buffer,
            start,
            filled,
            end,
        } = room
        else {
            self.partial = Some(Partial { sent, header, room });
            return Ok(None);
        };
        let part = chunk.split_to(chunk.len().min(end - filled));
        let filled_now = filled + part.len();
        buffer[filled..filled_now].copy_from_slice(&part);
        if filled_now == end {
            let payload = buffer.freeze().slice(start..end);
            let message = complete(sent, &header, payload)?;
            return Ok(Some(Read::Message(message, header.message_bytes())));
        }
        let room = Room::Here {
            buffer,
            start,
            filled: filled_now,
            end,
        };
        self.partial = Some(Partial { sent, header, room });
        Ok(None)
    }
}

fn complete(mut sent: Stamped, header: &Header, payload: Bytes) -> Result<Message, FrameError> {
    header.check_payload(&payload)?;
    if let Some(place) = sent.frame.payload_mut() {
        *place = Payload::from(payload);
    }
    Ok(Message::Frame(sent))
}
