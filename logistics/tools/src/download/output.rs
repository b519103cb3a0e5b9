//! Where downloads go: a file, of which parts may be there already, or a stream in order.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use crossdock_exnode::{ExNode, ExNodeId};
use crossdock_forecast::PieceId;

use crate::document::beside;

/// Where a download goes.
pub struct Output {
    kind: Kind,
    /// Bytes that were there before, of an earlier attempt.
    pub(super) present: Vec<Range<u64>>,
    /// What they are of: its first line says it.
    of: String,
    /// Where the first byte of the range goes.
    origin: u64,
}

enum Kind {
    File {
        file: Arc<File>,
        name: PathBuf,
        part: PathBuf,
        /// What of it is there, line by line.
        map: Option<File>,
        map_name: PathBuf,
    },
    /// In order, as it comes.
    Stream {
        out: Box<dyn Write + Send>,
        waiting: BTreeMap<u64, (PieceId, Vec<u8>)>,
        place: u64,
    },
}

impl Output {
    /// A file: written beside it, and renamed when all is there. With `resumes`, what an
    /// earlier attempt has left is not fetched again.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn file(name: &Path, resumes: bool) -> Result<Self> {
        let part = beside(name, ".part");
        let map_name = beside(name, ".part.map");
        let (of, present) = match resumes && part.exists() {
            true => read_map(&map_name)?,
            false => (String::new(), Vec::new()),
        };
        let shown = part.display();
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(present.is_empty());
        let file = open.open(&part);
        let file = file.with_context(|| format!("cannot write {shown}"))?;
        let mut open = OpenOptions::new();
        open.append(true).create(true);
        if present.is_empty() {
            let _ = fs::remove_file(&map_name); // It may not be there.
        }
        let map = open.open(&map_name);
        let map = map.with_context(|| format!("cannot write {}", map_name.display()))?;
        Ok(Self {
            kind: Kind::File {
                file: Arc::new(file),
                name: name.to_owned(),
                part,
                map: Some(map),
                map_name,
            },
            present,
            of,
            origin: 0,
        })
    }

    /// A stream: bytes are written in order; how far others may be ahead says the memory.
    #[must_use]
    pub fn stream(out: Box<dyn Write + Send>) -> Self {
        Self {
            kind: Kind::Stream {
                out,
                waiting: BTreeMap::new(),
                place: 0,
            },
            present: Vec::new(),
            of: String::new(),
            origin: 0,
        }
    }

    /// Whether bytes are written in order.
    pub(super) const fn is_stream(&self) -> bool {
        matches!(self.kind, Kind::Stream { .. })
    }

    pub(super) fn begin(&mut self, exnode: &ExNode, range: &Range<u64>) -> Result<()> {
        self.origin = range.start;
        // What is resumed has to be the same file, and the same part of it.
        let id = exnode.id().unwrap_or(ExNodeId([0; 16])).to_hex();
        let of = format!("{id} {} {} {}", exnode.size(), range.start, range.end);
        match &mut self.kind {
            Kind::Stream { place, .. } => *place = range.start,
            Kind::File { map, .. } if self.present.is_empty() => {
                if let Some(map) = map {
                    writeln!(map, "{of}").context("cannot note what is there")?;
                }
            }
            Kind::File { part, .. } => ensure!(
                self.of == of,
                "{} is of another download; remove it, or do not resume",
                part.display()
            ),
        }
        Ok(())
    }

    /// Takes bytes of the file from `offset` on; which pieces are out of memory then.
    pub(super) async fn write(
        &mut self,
        piece: PieceId,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<Vec<PieceId>> {
        match &mut self.kind {
            Kind::File { file, map, .. } => {
                let (file, at) = (Arc::clone(file), offset - self.origin);
                let end = offset + bytes.len() as u64;
                let written = tokio::task::spawn_blocking(move || file.write_all_at(&bytes, at));
                written.await?.context("cannot write what was downloaded")?;
                if let Some(map) = map {
                    writeln!(map, "{offset} {end}").context("cannot note what is there")?;
                }
                Ok(vec![piece])
            }
            Kind::Stream {
                out,
                waiting,
                place,
            } => {
                waiting.insert(offset, (piece, bytes));
                let mut written = Vec::new();
                while let Some(entry) = waiting.first_entry().filter(|it| it.key() == place) {
                    let (piece, bytes) = entry.remove();
                    out.write_all(&bytes)
                        .context("cannot write to the output")?;
                    *place += bytes.len() as u64;
                    written.push(piece);
                }
                Ok(written)
            }
        }
    }

    /// All is there.
    pub(super) fn end(self, bytes: u64) -> Result<()> {
        match self.kind {
            Kind::File {
                file,
                name,
                part,
                map,
                map_name,
            } => {
                file.set_len(bytes)?;
                file.sync_data()?;
                drop(map);
                let shown = name.display();
                fs::rename(&part, &name).with_context(|| format!("cannot write {shown}"))?;
                let _ = fs::remove_file(map_name); // It says nothing any more.
                Ok(())
            }
            Kind::Stream { mut out, .. } => out.flush().context("cannot write to the output"),
        }
    }
}

/// What an earlier attempt has left, in order and without overlaps.
fn read_map(map: &Path) -> Result<(String, Vec<Range<u64>>)> {
    const MAP_BYTES_MAX: u64 = 64 << 20;
    let mut text = String::new();
    match File::open(map) {
        Ok(file) => file.take(MAP_BYTES_MAX).read_to_string(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((String::new(), Vec::new()));
        }
        Err(error) => return Err(error).context(format!("cannot read {}", map.display())),
    };
    let mut ranges: Vec<Range<u64>> = Vec::new();
    // A line that was cut short by a crash says nothing.
    let mut lines = text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'));
    let of = lines.next().unwrap_or_default().to_owned();
    let parsed = lines.filter_map(|line| {
        let (start, end) = line.split_once(' ')?;
        Some(start.parse().ok()?..end.parse().ok()?)
    });
    ranges.extend(parsed.filter(|range: &Range<u64>| range.start < range.end));
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    Ok((of, merged))
}
