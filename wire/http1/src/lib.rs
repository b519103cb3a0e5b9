//! HTTP/1.1 (RFC 9110, RFC 9112) as bytes and types, for a server of files.
//!
//! A door looks for a [`RequestHead`] with [`parse_head`], takes the content by
//! its [`Framing`] (chunks through a [`ChunkedDecoder`]), asks [`evaluate`] and
//! [`ranges`] what to send of a representation with these [`Validators`], and
//! answers with a [`ResponseHead`] and a [`Content`], perhaps as a [`Multipart`].
//!
//! Where the specification leaves a server the choice between guessing and
//! refusing, this one refuses: a message that two readers could cut at different
//! places is how requests are smuggled past one of them (RFC 9112 section 11.2).
//!
//! Nothing here does I/O or reads a clock.

mod accept;
mod chunked;
mod condition;
mod content;
mod date;
mod error;
mod etag;
mod framing;
mod head;
mod inbox;
mod media;
mod multipart;
mod range;
mod response;
mod status;
mod target;

pub use accept::preferred;
pub use chunked::{ChunkError, ChunkStep, ChunkedDecoder};
pub use condition::{Condition, Validators, evaluate};
pub use content::{Content, Segment};
pub use date::{http_date, parse_http_date};
pub use error::HeadError;
pub use etag::{ETag, ETagList};
pub use framing::Framing;
pub use head::{HeadLimits, HttpVersion, Method, RequestHead, parse_head};
pub use inbox::Inbox;
pub use media::media_type;
pub use multipart::Multipart;
pub use range::{Ranges, content_range, content_range_unsatisfied, ranges};
pub use response::{CONTINUE, ResponseHead};
pub use status::Status;
pub use target::{Target, encode_path};
