//! Lines.

use thiserror::Error;

/// More bytes without LF than a line may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line is longer than {0} bytes")]
pub struct LineTooLong(pub usize);

/// The first line of `bytes` without its end (LF, or CR LF), and how many bytes it has with
/// it; `None` if less than a line has arrived. `bytes_max` counts the LF.
///
/// # Errors
/// [`LineTooLong`]: where the next line begins cannot be told.
pub fn take_line(bytes: &[u8], bytes_max: usize) -> Result<Option<(&[u8], usize)>, LineTooLong> {
    let looked_at = &bytes[..bytes.len().min(bytes_max)];
    match memchr::memchr(b'\n', looked_at) {
        Some(end) => {
            let line = &bytes[..end];
            Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1)))
        }
        None if bytes.len() >= bytes_max => Err(LineTooLong(bytes_max)),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a line is taken when it is whole, with either end, and never looked for beyond
    /// the limit.
    #[test]
    fn lines_are_taken_whole_and_bounded() {
        assert_eq!(take_line(b"", 8), Ok(None));
        assert_eq!(take_line(b"0 4 1", 8), Ok(None));
        assert_eq!(take_line(b"0 4 1\nab", 8), Ok(Some((&b"0 4 1"[..], 6))));
        assert_eq!(take_line(b"0 4 1\r\n", 8), Ok(Some((&b"0 4 1"[..], 7))));
        assert_eq!(take_line(b"\n", 8), Ok(Some((&b""[..], 1))));
        assert_eq!(take_line(b"1234567\n", 8), Ok(Some((&b"1234567"[..], 8))));
        assert_eq!(take_line(b"12345678\n", 8), Err(LineTooLong(8)));
        assert_eq!(take_line(b"12345678", 8), Err(LineTooLong(8)));
    }
}
