//! The query of a signed URL: known names, each once and none other, so that nothing
//! that was not signed comes along.

/// Longest query that is looked at, in bytes: the longest that is signed has less than 256.
pub(crate) const QUERY_BYTES_MAX: usize = 512;

/// The values of `N` parameters, in the order of `names`.
pub(crate) struct Query<'a, const N: usize> {
    values: [Option<&'a [u8]>; N],
}

impl<'a, const N: usize> Query<'a, N> {
    /// Takes `query` apart; `None` if it has another parameter than these, or one twice.
    pub(crate) fn parse(query: &'a [u8], names: [&str; N]) -> Option<Self> {
        if query.len() > QUERY_BYTES_MAX {
            return None;
        }
        let mut values = [None; N];
        for pair in query.split(|&byte| byte == b'&') {
            let (name, value) = split(pair)?;
            let at = names.iter().position(|known| known.as_bytes() == name)?;
            if values[at].replace(value).is_some() {
                return None;
            }
        }
        Some(Self { values })
    }

    /// The value of parameter `at`, if there is one.
    pub(crate) const fn value(&self, at: usize) -> Option<&'a [u8]> {
        self.values[at]
    }
}

/// Whether a query has a parameter of that name, whatever else it has.
pub(crate) fn has(query: &[u8], name: &str) -> bool {
    let mut pairs = query.split(|&byte| byte == b'&');
    pairs.any(|pair| {
        let end = pair.iter().position(|&byte| byte == b'=');
        pair[..end.unwrap_or(pair.len())] == *name.as_bytes()
    })
}

fn split(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = pair.iter().position(|&byte| byte == b'=')?;
    Some((&pair[..at], &pair[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: order does not count; more, less, or the same twice does.
    #[test]
    fn parameters_are_known_and_unique() {
        let parse = |text: &'static str| {
            let query = Query::parse(text.as_bytes(), ["a", "b"])?;
            Some((query.value(0), query.value(1)))
        };
        assert_eq!(parse("b=2&a=1"), Some((Some(&b"1"[..]), Some(&b"2"[..]))));
        assert_eq!(parse("a="), Some((Some(&b""[..]), None)));
        for wrong in ["", "a", "a=1&", "a=1&a=1", "a=1&c=2", "A=1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(has(b"x&signature", "signature") && has(b"signature=1", "signature"));
        assert!(!has(b"xsignature=1&y=signature", "signature"));
    }
}
