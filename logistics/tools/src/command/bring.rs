//! For commands that bring the bytes of an exNode elsewhere than to a file.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use crossdock_exnode::{ExNode, FileKey, read_json, write_json};

use super::block_on;
use crate::export::{self, Part};
use crate::{Depots, Knowledge, Observer, Tuning, download};

/// The file of an exNode that another process is to fetch.
pub struct Wanted {
    exnode: ExNode,
    key: Option<FileKey>,
}

impl Wanted {
    /// What [`document_of`] has made, with the file's key as hexadecimal digits.
    ///
    /// # Errors
    /// If it is no exNode, or no key: why.
    pub fn read(document: &str, key: Option<&str>) -> Result<Self> {
        let exnode = read_json(document.as_bytes()).context("this is no exNode")?;
        let key = key.map(FileKey::parse).transpose();
        let key = key.context("this is no key")?;
        Ok(Self { exnode, key })
    }

    /// Length of the file in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.exnode.size()
    }

    /// Writes the file to `out`, in order, over so many connections to depots.
    ///
    /// # Errors
    /// As [`download::download`].
    pub fn bring(&self, depots: &Depots, threads: usize, out: Box<dyn Write + Send>) -> Result<()> {
        let options = download::Options {
            key: self.key.clone(),
            tuning: Tuning {
                threads,
                ..Tuning::default()
            },
            ..download::Options::default()
        };
        let mut knowledge = Knowledge::default();
        let mut observer = Observer::silent();
        let output = download::Output::stream(out);
        block_on(download::download_knowing(
            depots,
            &self.exnode,
            output,
            &options,
            &mut knowledge,
            &mut observer,
        ))
    }
}

/// The exNode in a file, for [`Wanted::read`] elsewhere.
///
/// # Errors
/// If it cannot be read, or is none.
pub fn document_of(exnode: &Path) -> Result<String> {
    let exnode = crate::read_exnode(exnode)?;
    let mut document = Vec::new();
    write_json(&exnode, &mut document)?;
    Ok(String::from_utf8(document)?)
}

/// [`export::export`], and the exNode in a file; how many mappings it has.
///
/// # Errors
/// As that, or if the file cannot be written.
pub fn export_to(
    to: &Path,
    head: Bytes,
    parts: &[Part],
    options: &export::Options,
) -> Result<usize> {
    let depots = Depots::new(Duration::from_secs(10));
    let exnode = block_on(export::export(&depots, head, parts, options))?;
    crate::write_exnode(&exnode, to)?;
    Ok(exnode.mappings.len())
}
