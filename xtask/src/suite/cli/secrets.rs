//! The key of file handles stays in the log of the root's site: it is not in the registry,
//! in nothing that is logged, however much that is, and in no answer of the admin API, in
//! no spelling.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};

use super::job;
use super::program::{Up, crossdock, text};
use crate::suite::Stage;

/// What is enough to be told a leak.
const PART_BYTES: usize = 8;

pub(super) fn stay_secret(stage: &Stage<'_>) -> Result<()> {
    let data = stage.folder.join("secrets");
    let command = crossdock(stage, &["up", "--nodes", "2", "--data", text(&data)?]);
    let free = "127.0.0.1:0";
    let up = Up::start_telling(stage, command, free, free, "trace")?;
    job::write(&up, "secret")?;
    job::verify(&up, "secret")?;
    let mut told = String::new();
    let questions: [&[&str]; 7] = [
        &["status"],
        &["scrub"],
        &["export", "add", "/", "--allow", "10.0.0.0/8"],
        &["export", "list"],
        &["token", "create"],
        &["sign", "/secret-1", "--url", "http://127.0.0.1:1"],
        &["node", "stop", "1"],
    ];
    for words in questions {
        let finished = up.ask(stage, words)?;
        told += &finished.stdout;
        told += &finished.stderr;
    }
    let log = up.log().to_owned();
    up.stop()?;
    let logged = fs::read_to_string(&log)?;
    ensure!(logged.contains("\"ready\""), "nothing was logged: {logged}");
    told += &logged;
    told += &fs::read_to_string(stage.folder.join("stdout"))?;

    told += &String::from_utf8_lossy(&fs::read(data.join("registry"))?);
    let key = key(&fs::read(data.join("node-0/journal"))?)?;
    for spelling in spellings(&key[..PART_BYTES]) {
        ensure!(!told.contains(&spelling), "the key is told as {spelling}");
    }
    for name in ["registry", "node-0/journal", "node-0/data", "node-0/index"] {
        let mode = fs::metadata(data.join(name))?.permissions().mode() & 0o777;
        ensure!(mode == 0o600, "{name} has mode {mode:o}");
    }
    Ok(())
}

/// The key, as a record of a site's log has it (docs/formats.md): format, the time of day as
/// a number of nine bytes, no duplicate, then the change: tag, number, secret.
pub(super) fn key(journal: &[u8]) -> Result<Vec<u8>> {
    const RECORD_BYTES: usize = 1 + 9 + 1 + 2 + 32;
    let is_record = |bytes: &&[u8]| {
        let is_time = bytes[1..9].iter().all(|byte| byte & 0x80 != 0) && bytes[9] & 0x80 == 0;
        bytes[0] == 1 && is_time && bytes[10..13] == [0, 11, 1]
    };
    let mut records = journal.windows(RECORD_BYTES).filter(is_record);
    let record = records.next().context("the log has no key")?;
    Ok(record[13..].to_vec())
}

/// How bytes are usually written.
fn spellings(bytes: &[u8]) -> Vec<String> {
    let joined = |separator: &str, spell: fn(&u8) -> String| {
        let words: Vec<String> = bytes.iter().map(spell).collect();
        words.join(separator)
    };
    let hex = joined("", |byte| format!("{byte:02x}"));
    let escaped: String = bytes.escape_ascii().to_string();
    vec![
        hex.to_uppercase(),
        hex,
        joined(" ", |byte| format!("{byte:02x}")),
        joined(":", |byte| format!("{byte:02x}")),
        joined(",", u8::to_string),
        joined(", ", u8::to_string),
        escaped,
        base64(bytes, b'+', b'/'),
        base64(bytes, b'-', b'_'),
    ]
}

/// Base64 of as many of the bytes as make whole groups.
fn base64(bytes: &[u8], plus: u8, slash: u8) -> String {
    let letter = |six: u32| match u8::try_from(six & 63).unwrap_or(0) {
        six @ 0..26 => b'A' + six,
        six @ 26..52 => b'a' + six - 26,
        six @ 52..62 => b'0' + six - 52,
        62 => plus,
        _ => slash,
    };
    let mut text = String::new();
    for group in bytes.chunks_exact(3) {
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for shift in [18, 12, 6, 0] {
            text.push(char::from(letter(bits >> shift)));
        }
    }
    text
}
