//! Conversations of programs of the family with depots, as they went over the wire.
//!
//! A file has lines `CONNECTION SIDE HEX…` in the order in which things were said: side `c` is a
//! client's request line, `d` what it stores, `s` what the depot says. `41*9` is a byte nine
//! times. What stands behind `#` is for people.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test uses its part"
)]

use std::fs;
use std::path::Path;

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A client asks.
    Asks,
    /// It sends what it has said that it would.
    Stores,
    /// The depot says something.
    Answers,
}

/// What is said at once.
#[derive(Clone, Debug)]
pub struct Said {
    pub connection: u64,
    pub side: Side,
    pub bytes: Vec<u8>,
}

impl Said {
    /// The line with which it begins, without its end, and what stands behind it.
    pub fn line(&self) -> (&str, &[u8]) {
        let end = self.bytes.iter().position(|&byte| byte == b'\n');
        let end = end.expect("a line");
        let line = str::from_utf8(&self.bytes[..end]).expect("text");
        (line, &self.bytes[end + 1..])
    }
}

/// A whole conversation.
#[derive(Clone, Debug)]
pub struct Transcript {
    pub name: String,
    pub said: Vec<Said>,
}

/// All of them that are kept.
pub fn all() -> Vec<Transcript> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let entries = fs::read_dir(&folder).expect("the transcripts are there");
    let paths = entries.map(|entry| entry.expect("a file").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "hex"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no transcripts in {}", folder.display());
    paths.iter().map(|path| read(path)).collect()
}

/// Where they are, from the crates whose tests replay them.
const FOLDER: &str = "../../wire/ibp/tests/transcripts";

fn read(path: &Path) -> Transcript {
    let text = fs::read_to_string(path).expect("text");
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let said = lines.filter(|line| !line.trim().is_empty()).map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let connection = fields.next().and_then(|it| it.parse().ok());
        let side = match fields.next() {
            Some("c") => Side::Asks,
            Some("d") => Side::Stores,
            Some("s") => Side::Answers,
            other => panic!("{}: side {other:?}", path.display()),
        };
        Said {
            connection: connection.expect("a connection's number"),
            side,
            bytes: fields.flat_map(bytes).collect(),
        }
    });
    let name = path.file_stem().expect("a name").to_string_lossy();
    Transcript {
        name: name.into_owned(),
        said: said.collect(),
    }
}

/// Digits of bytes, or of one byte and how often.
fn bytes(field: &str) -> Vec<u8> {
    let (digits, count) = field.split_once('*').unwrap_or((field, "1"));
    let pairs = (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("hexadecimal digits"));
    let one: Vec<u8> = pairs.collect();
    one.repeat(count.parse().expect("a number"))
}

/// Without what ACCRE's depot says of itself, that one should come again later, when it ends a
/// connection.
pub fn without_pause(said: &[u8]) -> &[u8] {
    let pause = said.windows(4).rposition(|it| it == b"-66 ");
    let is_number = |it: &[u8]| it.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    match pause {
        Some(at) if is_number(said[at + 4..].trim_ascii_end()) => &said[..at],
        _ => said,
    }
}
