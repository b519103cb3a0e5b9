//! Fields of fixed width.

/// Width of most fields.
pub(crate) const FIELD: usize = 10;

/// Width of a host name.
pub(crate) const HOST: usize = 256;

/// Appends `text` at the left of a field, blanks behind it; what is too long is cut.
pub(crate) fn left(out: &mut Vec<u8>, text: &str, width: usize) {
    padded(out, text, width, b' ');
}

/// The same with NULs behind it.
pub(crate) fn left_nul(out: &mut Vec<u8>, text: &str, width: usize) {
    padded(out, text, width, 0);
}

fn padded(out: &mut Vec<u8>, text: &str, width: usize, filler: u8) {
    let bytes = &text.as_bytes()[..text.len().min(width)];
    out.extend_from_slice(bytes);
    out.resize(out.len() + width - bytes.len(), filler);
}

/// Appends `text` at the right of a field, blanks before it.
pub(crate) fn right(out: &mut Vec<u8>, text: &str, width: usize) {
    out.resize(out.len() + width.saturating_sub(text.len()), b' ');
    out.extend_from_slice(&text.as_bytes()[..text.len().min(width)]);
}

/// A number, at the left; the last byte of a field stays blank, for clients that put a NUL
/// there.
pub(crate) fn number(out: &mut Vec<u8>, number: impl ToString, width: usize) {
    left(out, &number.to_string(), width);
}

/// A decimal fraction that fits a field of 10 with a blank behind it.
pub(crate) fn fraction(out: &mut Vec<u8>, value: f64) {
    let digits = (0..=6).rev();
    let texts = digits.map(|digits| format!("{value:.digits$}"));
    let fits = texts.clone().find(|text| text.len() < FIELD);
    left(out, &fits.unwrap_or_else(|| "999999999".to_owned()), FIELD);
}

/// Reads fields one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The text of the next field without what fills it up.
    pub(crate) fn text(&mut self, width: usize) -> Option<&'a str> {
        let (field, rest) = self.0.split_at_checked(width)?;
        self.0 = rest;
        let text = str::from_utf8(field).ok()?;
        Some(text.trim_matches(|c: char| c == '\0' || c.is_ascii_whitespace()))
    }

    pub(crate) fn number<T: std::str::FromStr>(&mut self, width: usize) -> Option<T> {
        self.text(width)?.parse().ok()
    }
}
