//! Several ranges in one response: multipart/byteranges (RFC 9110 section 14.6;
//! RFC 2046 section 5.1.1).

use std::ops::Range;

use bytes::Bytes;

use crate::content_range;

/// Most characters of a boundary (RFC 2046 section 5.1.1).
const BOUNDARY_CHARS_MAX: usize = 70;

/// What stands between and behind the parts of a multipart response: a
/// [`part_head`](Self::part_head), the bytes of its range, and so on; then
/// [`closing`](Self::closing).
#[derive(Clone, Debug)]
pub struct Multipart {
    boundary: String,
}

impl Multipart {
    /// Parts with this text between them, which must not be in the data: take 24
    /// random characters. `None` unless it has 1 to 70 letters, digits, `-` or `_`.
    #[must_use]
    pub fn new(boundary: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_boundary =
            (1..=BOUNDARY_CHARS_MAX).contains(&boundary.len()) && boundary.bytes().all(is_plain);
        is_boundary.then(|| Self {
            boundary: boundary.to_owned(),
        })
    }

    /// The Content-Type of the response.
    #[must_use]
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }

    /// What goes before the bytes of `range`, out of `size`.
    #[must_use]
    pub fn part_head(&self, range: &Range<u64>, size: u64, media_type: &str) -> Bytes {
        // A line ending before the first boundary is allowed (RFC 2046: preamble).
        let boundary = &self.boundary;
        let content_range = content_range(range, size);
        format!(
            "\r\n--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {content_range}\r\n\r\n"
        )
        .into()
    }

    /// What goes behind the last part.
    #[must_use]
    pub fn closing(&self) -> Bytes {
        format!("\r\n--{}--\r\n", self.boundary).into()
    }

    /// Bytes of the whole content: heads, ranges and closing.
    #[must_use]
    pub fn content_length(&self, ranges: &[Range<u64>], size: u64, media_type: &str) -> u64 {
        let part = |range: &Range<u64>| {
            let head = self.part_head(range, size, media_type);
            bytes(&head).saturating_add(range.end.saturating_sub(range.start))
        };
        let parts = ranges.iter().map(part);
        parts.fold(bytes(&self.closing()), u64::saturating_add)
    }
}

fn bytes(text: &Bytes) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}
