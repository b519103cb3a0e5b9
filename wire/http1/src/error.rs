//! Why a request head is refused, and with which status.

use thiserror::Error;

use crate::Status;

/// Why a head is refused. What follows it on the connection cannot be trusted to
/// be a request: answer with [`status`](Self::status) and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    /// A method, target or line that is not one (RFC 9112 section 3).
    #[error("malformed request line")]
    RequestLine,
    /// A CR or LF that is not part of a CRLF (RFC 9112 section 2.2).
    #[error("a line ends in something else than CRLF")]
    LineEnding,
    /// A field line without a name right before its colon; also a folded one
    /// (RFC 9112 sections 5.1 and 5.2).
    #[error("malformed field name")]
    FieldName,
    /// A control character in a field's value (RFC 9110 section 5.5).
    #[error("malformed field value")]
    FieldValue,
    /// Neither HTTP/1.0 nor HTTP/1.1 (RFC 9110 section 15.6.6).
    #[error("HTTP version not supported")]
    Version,
    /// Longer than [`head_bytes_max`](crate::HeadLimits::head_bytes_max).
    #[error("head too large")]
    HeadTooLarge,
    /// More field lines than [`headers_max`](crate::HeadLimits::headers_max).
    #[error("too many fields")]
    TooManyFields,
    /// Longer than [`target_bytes_max`](crate::HeadLimits::target_bytes_max).
    #[error("target too long")]
    TargetTooLong,
    /// A target that is of no form, or names what cannot be a name (RFC 9112
    /// section 3.2).
    #[error("malformed target")]
    Target,
    /// None in HTTP/1.1, several, or not a host (RFC 9112 section 3.2).
    #[error("Host is missing or malformed")]
    Host,
    /// A Content-Length that is not one number (RFC 9112 section 6.3).
    #[error("malformed Content-Length")]
    Length,
    /// Content-Length and Transfer-Encoding (RFC 9112 section 6.3).
    #[error("Content-Length beside Transfer-Encoding")]
    LengthAndCoding,
    /// Content whose end cannot be found: the last coding is not chunked, or the
    /// client's version has no codings (RFC 9112 sections 6.1 and 6.3).
    #[error("malformed Transfer-Encoding")]
    Coding,
    /// A transfer coding besides chunked (RFC 9112 section 6.1).
    #[error("transfer coding not implemented")]
    CodingUnknown,
    /// CONNECT: this is no proxy (RFC 9110 section 9.3.6).
    #[error("CONNECT is not implemented")]
    Connect,
    /// An expectation besides 100-continue (RFC 9110 section 10.1.1).
    #[error("unknown expectation")]
    Expectation,
}

impl HeadError {
    /// What to answer.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::RequestLine
            | Self::LineEnding
            | Self::FieldName
            | Self::FieldValue
            | Self::Target
            | Self::Host
            | Self::Length
            | Self::LengthAndCoding
            | Self::Coding => Status::BadRequest,
            Self::TargetTooLong => Status::UriTooLong,
            Self::Expectation => Status::ExpectationFailed,
            Self::HeadTooLarge | Self::TooManyFields => Status::HeaderFieldsTooLarge,
            Self::CodingUnknown | Self::Connect => Status::NotImplemented,
            Self::Version => Status::VersionNotSupported,
        }
    }
}
