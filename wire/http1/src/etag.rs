//! Entity tags (RFC 9110 section 8.8.3).

use bytes::Bytes;

/// An entity tag: two representations with the same strong one have the same bytes.
///
/// There is no `==`: which of the two comparisons is meant (RFC 9110 section
/// 8.8.3.2) has to be said.
#[derive(Clone, Debug)]
pub struct ETag {
    is_weak: bool,
    opaque: Bytes, // Without the quotes.
}

impl ETag {
    /// The strong tag of some bytes that change with the representation: their
    /// hexadecimal digits.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = Vec::with_capacity(2 * bytes.len());
        for byte in bytes {
            digits.extend([byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]));
        }
        Self {
            is_weak: false,
            opaque: digits.into(),
        }
    }

    /// The strong tag `"opaque"`; `None` if a byte cannot be in a tag.
    #[must_use]
    pub fn strong(opaque: &[u8]) -> Option<Self> {
        let opaque = opaque
            .iter()
            .all(|&byte| is_etagc(byte))
            .then_some(opaque)?;
        Some(Self {
            is_weak: false,
            opaque: Bytes::copy_from_slice(opaque),
        })
    }

    /// The tag that `value` is, and nothing else.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (tag, rest) = Self::split_from(value)?;
        rest.is_empty().then_some(tag)
    }

    /// As it stands in a field.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let weak: &[u8] = if self.is_weak { b"W/" } else { b"" };
        [weak, b"\"", &self.opaque, b"\""].concat().into()
    }

    /// Whether it is only as good as the same meaning.
    #[must_use]
    pub const fn is_weak(&self) -> bool {
        self.is_weak
    }

    /// Same bytes: both strong, same text.
    #[must_use]
    pub fn eq_strong(&self, other: &Self) -> bool {
        !self.is_weak && !other.is_weak && self.opaque == other.opaque
    }

    /// Same meaning: same text.
    #[must_use]
    pub fn eq_weak(&self, other: &Self) -> bool {
        self.opaque == other.opaque
    }

    /// The tag at the front of `value`, and what follows it.
    fn split_from(value: &[u8]) -> Option<(Self, &[u8])> {
        // "W/" is case-sensitive.
        let (is_weak, quoted) = match value.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, value),
        };
        let text = quoted.strip_prefix(b"\"")?;
        let end = text.iter().position(|&byte| byte == b'"')?;
        let tag = Self::strong(&text[..end])?;
        Some((Self { is_weak, ..tag }, &text[end + 1..]))
    }
}

/// etagc: a comma is one, a space and a quote are not.
const fn is_etagc(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..=0xff)
}

/// What If-Match and If-None-Match carry (RFC 9110 sections 13.1.1 and 13.1.2).
#[derive(Clone, Debug)]
pub enum ETagList {
    /// `*`: any representation there is.
    Any,
    /// One of these.
    Tags(Vec<ETag>),
}

impl ETagList {
    /// `None` if `value` is no such list. Empty elements are skipped (RFC 9110
    /// section 5.6.1.2), but a list has a tag.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        if value == b"*" {
            return Some(Self::Any);
        }
        let mut tags = Vec::new();
        let mut rest = value.trim_ascii_start();
        while !rest.is_empty() {
            if rest[0] != b',' {
                let (tag, behind) = ETag::split_from(rest)?;
                tags.push(tag);
                rest = behind.trim_ascii_start();
            }
            match rest.split_first() {
                Some((b',', behind)) => rest = behind.trim_ascii_start(),
                Some(_) => return None,
                None => {}
            }
        }
        (!tags.is_empty()).then_some(Self::Tags(tags))
    }

    /// Whether a tag of the list, or `*`, has the same bytes as `current`.
    #[must_use]
    pub fn has_strong(&self, current: &ETag) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|tag| tag.eq_strong(current)),
        }
    }

    /// Whether a tag of the list, or `*`, has the same meaning as `current`.
    #[must_use]
    pub fn has_weak(&self, current: &ETag) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|tag| tag.eq_weak(current)),
        }
    }
}
