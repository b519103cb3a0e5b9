//! Files that hold exNodes: XML, or JSON if the name ends in `.json`.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use crossdock_exnode::{ExNode, read_json, read_xml, write_json, write_xml};

fn is_json(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "json")
}

/// Reads the exNode in a file; `-` is standard input, as XML.
///
/// # Errors
/// If it cannot be read, or is none: where, and why.
pub fn read_exnode(path: &Path) -> Result<ExNode> {
    let shown = path.display();
    if path == Path::new("-") {
        return read_xml(BufReader::new(io::stdin())).context("standard input is no exNode");
    }
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let file = BufReader::new(file);
    match is_json(path) {
        true => read_json(file).with_context(|| format!("{shown} is no exNode")),
        false => read_xml(file).with_context(|| format!("{shown} is no exNode")),
    }
}

/// Writes an exNode to a file, whole or not at all: its capabilities are all that leads to the
/// data. `-` is standard output, as XML.
///
/// # Errors
/// If it cannot be written.
pub fn write_exnode(exnode: &ExNode, path: &Path) -> Result<()> {
    if path == Path::new("-") {
        let mut out = io::stdout().lock();
        return write_xml(exnode, &mut out).context("cannot write to standard output");
    }
    let shown = path.display();
    let beside = beside(path, ".new");
    let write = || -> io::Result<()> {
        let mut out = BufWriter::new(File::create(&beside)?);
        match is_json(path) {
            true => write_json(exnode, &mut out)?,
            false => write_xml(exnode, &mut out)?,
        }
        out.flush()?;
        out.get_ref().sync_all()?;
        fs::rename(&beside, path)
    };
    write().with_context(|| format!("cannot write {shown}"))
}

/// A name beside that of a file.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
