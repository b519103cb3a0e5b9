//! The content of a request as it arrives.

use bytes::{Buf, Bytes};
use crossdock_http1::{ChunkError, ChunkStep, ChunkedDecoder, Framing};

/// What of a request's content is still to come.
#[derive(Debug)]
pub(crate) enum Body {
    /// Nothing.
    Done,
    /// So many bytes.
    Length(u64),
    /// Chunks (RFC 9112 section 7.1).
    Chunked(ChunkedDecoder),
}

impl Body {
    pub(crate) fn new(framing: &Framing) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Self::Done,
            Framing::Length(bytes) => Self::Length(*bytes),
            Framing::Chunked => Self::Chunked(ChunkedDecoder::new()),
        }
    }

    pub(crate) const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// How many bytes are still to come, if that is known.
    pub(crate) const fn left(&self) -> Option<u64> {
        match self {
            Self::Done => Some(0),
            Self::Length(bytes) => Some(*bytes),
            Self::Chunked(_) => None,
        }
    }

    /// How many of the next bytes of the connection are content for sure.
    pub(crate) const fn run(&self) -> u64 {
        match self {
            Self::Done => 0,
            Self::Length(bytes) => *bytes,
            Self::Chunked(decoder) => decoder.chunk_left(),
        }
    }

    /// The next bytes of the content that have arrived; nothing if more have to come
    /// first, or none will.
    ///
    /// # Errors
    /// They are no chunks: where the content ends cannot be told.
    pub(crate) fn take(&mut self, inbox: &mut Bytes) -> Result<Option<Bytes>, ChunkError> {
        while !inbox.is_empty() {
            match self {
                Self::Done => return Ok(None),
                Self::Length(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX);
                    let data = inbox.split_to(here.min(inbox.len()));
                    *left -= data.len() as u64;
                    if *left == 0 {
                        *self = Self::Done;
                    }
                    return Ok(Some(data));
                }
                Self::Chunked(decoder) => {
                    let ChunkStep {
                        consumed,
                        data,
                        is_finished,
                    } = decoder.decode(inbox)?;
                    let data = inbox.slice(data);
                    inbox.advance(consumed);
                    if is_finished {
                        *self = Self::Done;
                    }
                    if !data.is_empty() {
                        return Ok(Some(data));
                    }
                    if consumed == 0 {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(None)
    }
}
