//! The chunked transfer coding (RFC 9112 section 7.1).
//!
//! ```text
//! size in hex [;extensions] CRLF  data CRLF  ...  0 [;extensions] CRLF  trailer lines  CRLF
//! ```

use std::ops::Range;

use crossdock_limits::{
    HTTP_CHUNK_EXTENSION_BYTES_MAX, HTTP_CHUNK_LINE_BYTES_MAX, HTTP_TRAILER_BYTES_MAX,
};
use thiserror::Error;

/// Why content cannot be read any further: answer 400 and close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// A size that is not 1*HEXDIG, or has more than 64 bits.
    #[error("malformed chunk size")]
    Size,
    /// A control character in an extension, or white space without one.
    #[error("malformed chunk extension")]
    Extension,
    /// A CR or LF that is not part of a CRLF, or none where one belongs.
    #[error("a line of the chunked coding ends in something else than CRLF")]
    LineEnding,
    /// A trailer line that is no field line.
    #[error("malformed trailer")]
    Trailer,
    /// A size line, all extensions or the trailer section are beyond their limit.
    #[error("chunk extensions or trailers too long")]
    TooLong,
}

/// What was found in some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkStep {
    /// Which of them are content; perhaps none.
    pub data: Range<usize>,
    /// How many of them are done with: the next step begins there.
    pub consumed: usize,
    /// Whether the content is complete. What was not consumed is the next request.
    pub is_finished: bool,
}

/// Finds content in chunks, however they are cut.
///
/// Feed what arrives to [`decode`](Self::decode) until all of it is consumed or the
/// content is complete. Extensions and trailers are checked and skipped (RFC 9112
/// sections 7.1.1 and 7.1.2). It keeps no bytes.
#[derive(Clone, Debug, Default)]
pub struct ChunkedDecoder {
    state: State,
    line_bytes: usize,      // Of the size line so far.
    extension_bytes: usize, // Of all size lines so far.
    trailer_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    SizeStart, // The first digit is to come.
    Size(u64),
    ExtensionSpace(u64), // White space behind the size: a semicolon is to come.
    Extension(u64),
    SizeLineFeed(u64),
    Data(u64), // So many bytes are to come, at least one.
    DataReturn,
    DataLineFeed,
    TrailerStart, // Of a line.
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    EndLineFeed,
    Finished,
    Failed(ChunkError),
}

impl ChunkedDecoder {
    /// At the first size line.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads on: up to the end of some content, of `bytes`, or of everything. At
    /// least one byte is consumed if there is one and more is to come.
    ///
    /// # Errors
    /// See [`ChunkError`]; every later call returns the same.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<ChunkStep, ChunkError> {
        let mut at = 0;
        loop {
            match self.state {
                State::Failed(error) => return Err(error),
                State::Finished => return Ok(step(at..at, true)),
                _ if at == bytes.len() => return Ok(step(at..at, false)),
                State::Data(left) => {
                    let rest = bytes.len() - at;
                    let length = usize::try_from(left).map_or(rest, |left| left.min(rest));
                    self.state = match left - length as u64 {
                        0 => State::DataReturn,
                        left => State::Data(left),
                    };
                    return Ok(step(at..at + length, false));
                }
                state => {
                    self.state = self.next(state, bytes[at]).unwrap_or_else(State::Failed);
                    at += 1;
                }
            }
        }
    }

    /// How many bytes of the chunk that has begun are still to come.
    #[must_use]
    pub const fn chunk_left(&self) -> u64 {
        match self.state {
            State::Data(left) => left,
            _ => 0,
        }
    }

    /// Whether the content is complete.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    fn next(&mut self, state: State, byte: u8) -> Result<State, ChunkError> {
        match state {
            State::SizeStart | State::Size(_) | State::ExtensionSpace(_) | State::Extension(_) => {
                self.next_in_size_line(state, byte)
            }
            State::SizeLineFeed(size) => match (byte, size) {
                (b'\n', 0) => Ok(State::TrailerStart),
                (b'\n', size) => Ok(State::Data(size)),
                _ => Err(ChunkError::LineEnding),
            },
            State::DataReturn if byte == b'\r' => Ok(State::DataLineFeed),
            State::DataLineFeed if byte == b'\n' => Ok(State::SizeStart),
            State::EndLineFeed if byte == b'\n' => Ok(State::Finished),
            State::TrailerLineFeed if byte == b'\n' => Ok(State::TrailerStart),
            State::TrailerStart | State::TrailerName | State::TrailerValue => {
                self.next_in_trailer(state, byte)
            }
            _ => Err(ChunkError::LineEnding),
        }
    }

    fn next_in_size_line(&mut self, state: State, byte: u8) -> Result<State, ChunkError> {
        if matches!(state, State::SizeStart) {
            self.line_bytes = 0;
        }
        self.line_bytes += 1;
        let is_extension = matches!(state, State::ExtensionSpace(_) | State::Extension(_));
        self.extension_bytes += usize::from(is_extension);
        if self.line_bytes > HTTP_CHUNK_LINE_BYTES_MAX
            || self.extension_bytes > HTTP_CHUNK_EXTENSION_BYTES_MAX
        {
            return Err(ChunkError::TooLong);
        }
        match (state, byte) {
            (State::SizeStart, _) => Ok(State::Size(digit(byte)?)),
            (State::Size(size) | State::Extension(size), b'\r') => Ok(State::SizeLineFeed(size)),
            (State::Size(size) | State::ExtensionSpace(size), b';') => Ok(State::Extension(size)),
            // Section 7.1.1: "bad" white space, only before a semicolon.
            (State::Size(size) | State::ExtensionSpace(size), b' ' | b'\t') => {
                Ok(State::ExtensionSpace(size))
            }
            (State::Size(size), _) => {
                let size = size.checked_mul(16).ok_or(ChunkError::Size)?;
                Ok(State::Size(size | digit(byte)?))
            }
            (State::Extension(size), _) if is_text(byte) => Ok(State::Extension(size)),
            (State::Extension(_), b'\n') => Err(ChunkError::LineEnding),
            _ => Err(ChunkError::Extension),
        }
    }

    /// Section 7.1.2; field lines as in a head (section 5).
    fn next_in_trailer(&mut self, state: State, byte: u8) -> Result<State, ChunkError> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > HTTP_TRAILER_BYTES_MAX {
            return Err(ChunkError::TooLong);
        }
        match (state, byte) {
            (State::TrailerStart, b'\r') => Ok(State::EndLineFeed),
            (State::TrailerStart | State::TrailerName, _) if is_tchar(byte) => {
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLineFeed),
            (State::TrailerValue, _) if is_text(byte) => Ok(State::TrailerValue),
            (_, b'\n') => Err(ChunkError::LineEnding),
            _ => Err(ChunkError::Trailer),
        }
    }
}

const fn step(data: Range<usize>, is_finished: bool) -> ChunkStep {
    ChunkStep {
        consumed: data.end,
        data,
        is_finished,
    }
}

fn digit(byte: u8) -> Result<u64, ChunkError> {
    match byte {
        b'0'..=b'9' => Ok(u64::from(byte - b'0')),
        b'a'..=b'f' => Ok(u64::from(byte - b'a' + 10)),
        b'A'..=b'F' => Ok(u64::from(byte - b'A' + 10)),
        b'\n' => Err(ChunkError::LineEnding),
        _ => Err(ChunkError::Size),
    }
}

/// Visible, white space, or beyond ASCII (RFC 9110 section 5.5).
const fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

/// RFC 9110 section 5.6.2.
const fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}
