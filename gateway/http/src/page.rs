//! Pages for people: errors and lists of directories.

use std::fmt::Write as _;

use bytes::Bytes;
use crossdock_http1::{Status, encode_path};
use crossdock_peer::{DirectoryEntry, FileKind};
use crossdock_types::WallTime;
use serde::Serialize;

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const JSON: &str = "application/json";

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;\
color:#222;background:#fff}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .8rem .2rem 0;\
border-bottom:1px solid #eee}td.n{text-align:right;font-variant-numeric:tabular-nums}a{color:#0550ae;text-decoration:none}\
a:hover{text-decoration:underline}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}\
td,th{border-color:#333}a{color:#79b8ff}}";

/// An entry of a list.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: Bytes,
    pub(crate) kind: FileKind,
    pub(crate) size_bytes: u64,
    pub(crate) modified: WallTime,
}

impl Row {
    /// `None` for `.` and `..`, uploads under way, and what went away meanwhile.
    pub(crate) fn of(entry: DirectoryEntry) -> Option<Self> {
        let is_shown =
            !matches!(&entry.name[..], b"." | b"..") && !crate::upload::is_upload(&entry.name);
        let attributes = entry.attributes.filter(|_| is_shown)?;
        Some(Self {
            name: entry.name,
            kind: attributes.kind,
            size_bytes: attributes.size_bytes,
            modified: attributes.modified,
        })
    }

    /// Where it is, from its directory.
    fn href(&self) -> String {
        let path = encode_path(std::iter::once(&self.name[..]));
        let end = if self.kind == FileKind::Directory {
            "/"
        } else {
            ""
        };
        // A name with a colon in it would be taken for a scheme (RFC 3986 section 4.2).
        format!("./{}{end}", path.trim_start_matches('/'))
    }
}

#[derive(Serialize)]
struct JsonRow<'a> {
    name: std::borrow::Cow<'a, str>,
    href: String,
    kind: &'static str,
    size: u64,
    modified: Option<String>,
}

#[derive(Serialize)]
struct JsonList<'a> {
    path: String,
    entries: Vec<JsonRow<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The list for programs. `next` is what to ask for the rest.
pub(crate) fn json_list(path: &[Bytes], rows: &[Row], next: Option<u64>) -> Bytes {
    let entries = rows.iter().map(|row| JsonRow {
        name: String::from_utf8_lossy(&row.name),
        href: row.href(),
        kind: kind_word(row.kind),
        size: row.size_bytes,
        modified: timestamp(row.modified),
    });
    let list = JsonList {
        path: directory_path(path),
        entries: entries.collect(),
        next: next.map(|cookie| format!("?after={cookie}")),
    };
    // Strings and numbers only: nothing in it can fail.
    serde_json::to_vec(&list).unwrap_or_default().into()
}

/// The list for people.
pub(crate) fn html_list(path: &[Bytes], rows: &[Row], next: Option<u64>) -> Bytes {
    let title = escape(&String::from_utf8_lossy(&shown_path(path)));
    let mut page = head(&title);
    let _ = write!(
        page,
        "<h1>{title}</h1><table><thead><tr><th>Name</th><th>Size</th><th>Modified (UTC)</th></tr></thead><tbody>"
    );
    if !path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>");
    }
    for row in rows {
        let is_directory = row.kind == FileKind::Directory;
        let name = escape(&String::from_utf8_lossy(&row.name));
        let end = if is_directory { "/" } else { "" };
        let size = match row.kind {
            FileKind::Regular => bytes_for_people(row.size_bytes),
            _ => String::new(),
        };
        let _ = write!(
            page,
            "<tr><td><a href=\"{}\">{name}{end}</a></td><td class=\"n\">{size}</td><td>{}</td></tr>",
            row.href(),
            timestamp(row.modified).unwrap_or_default(),
        );
    }
    page.push_str("</tbody></table>");
    if let Some(cookie) = next {
        let _ = write!(page, "<p><a href=\"?after={cookie}\">More</a></p>");
    }
    page.push_str("</body></html>\n");
    page.into()
}

/// What went wrong, for people.
pub(crate) fn error(status: Status, hint: &str) -> Bytes {
    let title = format!("{} {}", status.number(), status.reason());
    let mut page = head(&title);
    let _ = writeln!(
        page,
        "<h1>{title}</h1><p>{}</p></body></html>",
        escape(hint)
    );
    page.into()
}

fn head(title: &str) -> String {
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body>"
    )
}

fn directory_path(path: &[Bytes]) -> String {
    let encoded = encode_path(path.iter().map(|name| &name[..]));
    match encoded.ends_with('/') {
        true => encoded,
        false => encoded + "/",
    }
}

fn shown_path(path: &[Bytes]) -> Vec<u8> {
    let mut shown = vec![b'/'];
    for name in path {
        shown.extend_from_slice(name);
        shown.push(b'/');
    }
    shown
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

const fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "link",
        FileKind::Block | FileKind::Character => "device",
        FileKind::Socket => "socket",
        FileKind::Fifo => "fifo",
    }
}

fn bytes_for_people(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = bytes * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// RFC 3339, in whole seconds of UTC.
fn timestamp(at: WallTime) -> Option<String> {
    let (seconds, _) = at.parts();
    let days = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days)?;
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    ))
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar: years
/// are counted from March, so that the leap day is a year's last, in eras of 400 years.
fn civil(days: i64) -> Option<(i64, i64, i64)> {
    const ERA_DAYS: i64 = 146_097;
    let from_march = days.checked_add(719_468)?; // From 0000-03-01.
    let era = from_march.div_euclid(ERA_DAYS);
    let of_era = from_march.rem_euclid(ERA_DAYS);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153; // From March.
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    Some((year, month, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static [u8], kind: FileKind) -> Row {
        Row {
            name: Bytes::from_static(name),
            kind,
            size_bytes: 1536,
            modified: WallTime(951_782_400_000_000_000),
        }
    }

    /// Goal: no name of a file becomes markup, and each link leads to the bytes of its
    /// name.
    #[test]
    fn names_are_only_names() {
        let rows = [
            row(b"<script>\"&'", FileKind::Regular),
            row(b"a:b", FileKind::Directory),
            row(b"\xff\x01 ?#%", FileKind::Regular),
        ];
        let page = html_list(&[Bytes::from_static(b"<x>")], &rows, Some(7));
        let page = std::str::from_utf8(&page).expect("text");
        assert!(!page.contains("<script>") && !page.contains("<x>"));
        assert!(page.contains("href=\"./a:b/\"") || page.contains("href=\"./a%3Ab/\""));
        assert!(page.contains("href=\"./%FF%01%20%3F%23%25\""), "{page}");
        assert!(page.contains("1.5 KiB") && page.contains("?after=7"));
        let list = json_list(&[], &rows, None);
        let list: serde_json::Value = serde_json::from_slice(&list).expect("JSON");
        assert_eq!(list["entries"][1]["kind"], "directory");
        assert_eq!(list["entries"][2]["href"], "./%FF%01%20%3F%23%25");
        assert_eq!(list["entries"][0]["modified"], "2000-02-29T00:00:00Z");
    }

    /// Goal: dates of all kinds of years are right.
    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ];
        for (days, date) in cases {
            assert_eq!(civil(days), Some(date), "{days}");
        }
        assert_eq!(bytes_for_people(1 << 40), "1.0 TiB");
        assert_eq!(bytes_for_people(1023), "1023 B");
    }
}
