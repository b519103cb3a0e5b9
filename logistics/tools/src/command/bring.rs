//! For commands that bring the bytes of an exNode elsewhere than to a file.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;

use super::{block_on, carry};
use crate::export::{self, Part};
use crate::{Depots, Knowledge, Observer, Tuning, download, read_exnode};

/// Writes the file of an exNode to `out`, in order. What is known of depots is used, and what is
/// learned kept, as by `crossdock download`.
///
/// # Errors
/// As [`download::download`].
pub fn bring(
    exnode: &Path,
    key: Option<&Path>,
    threads: usize,
    out: Box<dyn Write + Send>,
) -> Result<u64> {
    let exnode = read_exnode(exnode)?;
    let options = download::Options {
        key: carry::key(key)?,
        tuning: Tuning {
            threads,
            ..Tuning::default()
        },
        ..download::Options::default()
    };
    let mut knowledge = Knowledge::of_environment();
    let mut observer = Observer::silent();
    let output = download::Output::stream(out);
    let depots = Depots::default();
    let brought = download::download_knowing(
        &depots,
        &exnode,
        output,
        &options,
        &mut knowledge,
        &mut observer,
    );
    let brought = block_on(brought);
    knowledge.keep();
    brought.map(|()| exnode.size())
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
