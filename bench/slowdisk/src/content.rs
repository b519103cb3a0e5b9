//! Content of files that is known by a file's name and the place in it, so that whoever
//! sees some bytes knows whose they are: a client that checks what it got, and the log of
//! the disk from which they were read.
//!
//! A file is a sequence of cells of [`CELL_BYTES`]:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 4 | [`MAGIC`] |
//! | 4 | 4 | the file: FNV-1a of its name |
//! | 8 | 8 | place of the cell in the file |

/// Bytes of a cell.
pub const CELL_BYTES: usize = 16;
/// How a cell begins.
pub const MAGIC: u32 = 0xc0de_d15c;

/// Number of the file that is called so.
pub fn file(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Puts the content of `file` from `offset` on into `bytes`.
pub fn fill(file: u32, offset: u64, bytes: &mut [u8]) {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let (cell, within) = cell_at(file, at);
        let count = rest.len().min(CELL_BYTES - within);
        let (now, later) = rest.split_at_mut(count);
        now.copy_from_slice(&cell[within..within + count]);
        at += count as u64;
        rest = later;
    }
}

/// Whether `bytes` are the content of `file` from `offset` on.
pub fn is_right(file: u32, offset: u64, bytes: &[u8]) -> bool {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let (cell, within) = cell_at(file, at);
        let count = rest.len().min(CELL_BYTES - within);
        if rest[..count] != cell[within..within + count] {
            return false;
        }
        at += count as u64;
        rest = &rest[count..];
    }
    true
}

/// The file of which `head` is a cell; `None` if it is none.
pub fn recognise(head: &[u8; CELL_BYTES]) -> Option<u32> {
    let (words, _) = head.as_chunks::<4>();
    (u32::from_le_bytes(words[0]) == MAGIC).then(|| u32::from_le_bytes(words[1]))
}

/// The cell in which `at` lies, and where in it.
fn cell_at(file: u32, at: u64) -> ([u8; CELL_BYTES], usize) {
    let within = at % CELL_BYTES as u64;
    let mut cell = [0; CELL_BYTES];
    cell[..4].copy_from_slice(&MAGIC.to_le_bytes());
    cell[4..8].copy_from_slice(&file.to_le_bytes());
    cell[8..].copy_from_slice(&(at - within).to_le_bytes());
    // Less than a cell.
    (cell, usize::try_from(within).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: any part of a file is right where it belongs, and nowhere else.
    #[test]
    fn content_is_known_by_name_and_place() {
        let (one, other) = (file("f00001"), file("f00002"));
        assert_ne!(one, other);
        let mut bytes = [0; 100];
        fill(one, 37, &mut bytes);
        assert!(is_right(one, 37, &bytes));
        assert!(!is_right(one, 53, &bytes), "a cell further on");
        assert!(!is_right(other, 37, &bytes));
        bytes[99] ^= 1;
        assert!(!is_right(one, 37, &bytes), "a bit flipped");
    }

    /// Goal: a block of a file tells which it is, anything else tells nothing.
    #[test]
    fn blocks_are_recognised() {
        let mut head = [0; CELL_BYTES];
        fill(file("x"), 4096, &mut head);
        assert_eq!(recognise(&head), Some(file("x")));
        assert_eq!(recognise(&[0; CELL_BYTES]), None);
    }
}
