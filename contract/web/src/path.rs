//! Paths of the volume as URLs write them: RFC 3986, sections 2.1 and 3.3.
//!
//! A path is a list of names. What is compared, hashed and looked up is that list, never
//! a text: `/a%62` is `/ab`, and `/dir2` does not lie below `/dir`.

use std::fmt;
use std::str::FromStr;

use crossdock_limits::PATH_BYTES_MAX;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digits::nibble;

/// A path from the volume's root on; names are any bytes but `/` and NUL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UrlPath {
    names: Vec<Vec<u8>>,
    /// Whether it ends with `/`; the root always does.
    ends_with_slash: bool,
}

/// Why a text is no path.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PathError {
    /// It does not begin with `/`.
    #[error("a path begins with /, which is the volume's root")]
    NotAbsolute,
    /// A `%` without two hexadecimal digits behind it.
    #[error("a % in a URL has two hexadecimal digits behind it")]
    Encoding,
    /// A `/` within a name.
    #[error("a name has no / in it, in whatever way it is written")]
    Separator,
    /// A NUL within a name.
    #[error("a name has no NUL in it")]
    Nul,
    /// A name `.` or `..`: clients resolve these themselves (RFC 3986, section 5.2.4).
    #[error("a path has no `.` and no `..` in it")]
    Dots,
    /// Too long.
    #[error("a path has at most {PATH_BYTES_MAX} bytes")]
    TooLong,
}

impl UrlPath {
    /// The volume's root.
    #[must_use]
    pub const fn root() -> Self {
        Self {
            names: Vec::new(),
            ends_with_slash: true,
        }
    }

    /// The path of a request's target, without its query; several `/` are as one.
    ///
    /// # Errors
    /// [`PathError`]: it is to be answered with 400.
    pub fn decode(text: &[u8]) -> Result<Self, PathError> {
        Self::of(text, unescape)
    }

    /// A path as programs of this machine write it, without escapes.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn of_volume(text: &[u8]) -> Result<Self, PathError> {
        Self::of(text, |name| Ok(name.to_vec()))
    }

    /// The path of these names, which have no escapes any more.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn of_names<'a>(
        names: impl Iterator<Item = &'a [u8]>,
        ends_with_slash: bool,
    ) -> Result<Self, PathError> {
        let names = names.map(|name| checked(name.to_vec()));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let length: usize = names.iter().map(|name| name.len() + 1).sum();
        if length > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        Ok(Self {
            ends_with_slash: names.is_empty() || ends_with_slash,
            names,
        })
    }

    fn of(
        text: &[u8],
        name_of: impl Fn(&[u8]) -> Result<Vec<u8>, PathError>,
    ) -> Result<Self, PathError> {
        let below = text.strip_prefix(b"/").ok_or(PathError::NotAbsolute)?;
        // Each byte may be written as three.
        if text.len() > 3 * PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        let parts = below.split(|&byte| byte == b'/');
        let parts = parts.filter(|part| !part.is_empty());
        let names = parts.map(|part| checked(name_of(part)?));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let length: usize = names.iter().map(|name| name.len() + 1).sum();
        if length > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        Ok(Self {
            ends_with_slash: names.is_empty() || text.ends_with(b"/"),
            names,
        })
    }

    /// The names from the root on.
    #[must_use]
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Whether it ends with `/`, which only a directory's does.
    #[must_use]
    pub const fn ends_with_slash(&self) -> bool {
        self.ends_with_slash
    }

    /// The same without `/` at its end, unless it is the root.
    #[must_use]
    pub fn without_slash(mut self) -> Self {
        self.ends_with_slash = self.names.is_empty();
        self
    }

    /// Whether `other` is this path, or lies below it; name by name.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.names.starts_with(&self.names)
    }

    /// As a URL writes it: whatever is not unreserved (RFC 3986, section 2.3) is escaped.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        for name in &self.names {
            text.push('/');
            for &byte in name {
                match byte {
                    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        text.push(char::from(byte));
                    }
                    _ => text += &format!("%{byte:02X}"),
                }
            }
        }
        if self.ends_with_slash {
            text.push('/');
        }
        text
    }
}

impl fmt::Display for UrlPath {
    /// As people write it, with whatever is no text replaced.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.names {
            write!(formatter, "/{}", String::from_utf8_lossy(name))?;
        }
        formatter.write_str(if self.ends_with_slash { "/" } else { "" })
    }
}

impl FromStr for UrlPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::decode(text.as_bytes())
    }
}

impl TryFrom<String> for UrlPath {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        text.parse()
    }
}

impl From<UrlPath> for String {
    fn from(path: UrlPath) -> Self {
        path.encode()
    }
}

fn unescape(part: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut name = Vec::with_capacity(part.len());
    let mut rest = part.iter();
    while let Some(&byte) = rest.next() {
        name.push(match byte {
            b'%' => {
                let mut digit = || rest.next().copied().and_then(nibble);
                let (high, low) = (digit(), digit());
                high.zip(low)
                    .ok_or(PathError::Encoding)
                    .map(|it| it.0 << 4 | it.1)?
            }
            byte => byte,
        });
    }
    Ok(name)
}

fn checked(name: Vec<u8>) -> Result<Vec<u8>, PathError> {
    if matches!(&name[..], b"." | b"..") {
        return Err(PathError::Dots);
    }
    if name.contains(&b'/') {
        return Err(PathError::Separator);
    }
    if name.contains(&0) {
        return Err(PathError::Nul);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> UrlPath {
        text.parse().expect(text)
    }

    /// Goal: ways to write one path are one path, and what could lead elsewhere than it
    /// says is none.
    #[test]
    fn paths_are_read_in_one_way() {
        assert_eq!(
            path("//a%2Eb//%63/").names(),
            [b"a.b".to_vec(), b"c".to_vec()]
        );
        assert!(path("/").ends_with_slash() && path("//").names().is_empty());
        assert!(path("/a/").ends_with_slash() && !path("/a").ends_with_slash());
        assert_eq!(path("/a/").without_slash(), path("/a"));
        assert_eq!(path("/").without_slash(), path("/"));
        let cases = [
            ("", PathError::NotAbsolute),
            ("a", PathError::NotAbsolute),
            ("%2Fa", PathError::NotAbsolute),
            ("/a/../b", PathError::Dots),
            ("/a/%2e%2E/b", PathError::Dots),
            ("/./a", PathError::Dots),
            ("/a%2Fb", PathError::Separator),
            ("/..%2f", PathError::Separator),
            ("/a%00", PathError::Nul),
            ("/%", PathError::Encoding),
            ("/%4", PathError::Encoding),
            ("/%4/1", PathError::Encoding),
            ("/%+1", PathError::Encoding),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<UrlPath>(), Err(error), "{text}");
        }
        let long = "/x".repeat(PATH_BYTES_MAX);
        assert_eq!(long.parse::<UrlPath>(), Err(PathError::TooLong));
        let longer = format!("/{}", "%41".repeat(PATH_BYTES_MAX + 1));
        assert_eq!(longer.parse::<UrlPath>(), Err(PathError::TooLong));
        assert_eq!(
            UrlPath::of_volume(b"/a%2F").map(|it| it.encode()),
            Ok("/a%252F".to_owned())
        );
    }

    /// Goal: what lies below a path is told by names, not by letters.
    #[test]
    fn paths_cover_what_lies_below_them() {
        for (above, below) in [
            ("/", "/"),
            ("/", "/a"),
            ("/dir", "/dir/"),
            ("/dir/", "/dir/a/b"),
        ] {
            assert!(path(above).covers(&path(below)), "{above} {below}");
        }
        for (above, other) in [
            ("/dir", "/dir2"),
            ("/dir", "/di"),
            ("/a/b", "/a"),
            ("/a", "/b/a"),
        ] {
            assert!(!path(above).covers(&path(other)), "{above} {other}");
        }
    }

    proptest! {
        /// Goal: any names come back from a URL as they were, and in a record too.
        #[test]
        fn any_bytes_come_back(
            names in prop::collection::vec(prop::collection::vec(1u8.., 1..20), 0..5),
            slash in any::<bool>(),
        ) {
            let text: Vec<u8> = names.iter().flat_map(|name| [b"/", &name[..]].concat()).collect();
            let text = [&text[..], if slash || names.is_empty() { b"/" } else { b"" }].concat();
            if let Ok(path) = UrlPath::of_volume(&text) {
                prop_assert_eq!(UrlPath::decode(path.encode().as_bytes()), Ok(path.clone()));
                let record = serde_json::to_string(&path).expect("JSON");
                prop_assert_eq!(serde_json::from_str::<UrlPath>(&record).expect("a path"), path);
            }
        }

        /// Goal: no text from a client is more than refused.
        #[test]
        fn no_text_panics(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = UrlPath::decode(&text);
        }
    }
}
