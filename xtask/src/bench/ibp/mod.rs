//! `bench ibp`: the logistic tools and depots, as the paper measured its own (Network Storage
//! Stack section 4).
//!
//! *WAN* rows have a line with delays between clients and servers, and send buffers of 128 KiB, so
//! that one connection carries a few MB/s. *LAN* and *links* rows have depots in networks of their own,
//! behind links with rates. The rest is over loopback.

mod lan;
mod links;
mod memory;
mod operations;
mod wan;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{keep, parse};
use crate::paths::Paths;

/// The rows that can be asked for.
pub(super) const ROWS: [&str; 10] = [
    "download",
    "upload",
    "lan",
    "fragments",
    "copies",
    "slow-depot",
    "false-forecast",
    "no-forecasts",
    "memory",
    "operations",
];

/// What the rows have in common.
struct Field<'run> {
    paths: &'run Paths,
    folder: PathBuf,
    full: bool,
}

impl Field<'_> {
    /// How often each run is made; the paper made ten.
    const fn rounds(&self) -> usize {
        if self.full { 10 } else { 3 }
    }

    /// A folder for one row.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// Measures, and prints the results of each row as one line; what people want to see
/// goes to standard error.
pub(crate) fn run_as_root(paths: &Paths, words: &[&str]) -> Result<bool> {
    let options = parse(words, &ROWS)?;
    let folder = paths.test_data().join("bench-ibp");
    remove(&folder)?;
    let field = Field {
        paths,
        folder: folder.clone(),
        full: options.full,
    };
    let is_wanted = |row: &str| options.rows.is_empty() || options.rows.iter().any(|it| it == row);
    let mut all_measured = true;
    for row in ROWS.into_iter().filter(|row| is_wanted(row)) {
        eprintln!("{row}");
        let measured = match row {
            "download" => wan::download(&field, &keep),
            "upload" => wan::upload(&field, &keep),
            "lan" => lan::one(&field, &keep),
            "fragments" => lan::fragments(&field, &keep),
            "copies" => links::copies(&field, &keep),
            "slow-depot" => links::slow_depot(&field, &keep),
            "false-forecast" => links::false_forecast(&field, &keep),
            "no-forecasts" => links::no_forecasts(&field, &keep),
            "memory" => memory::sizes(&field, &keep),
            _ => operations::operations(&field, &keep),
        };
        if let Err(error) = measured {
            eprintln!("{row}: FAILED: {error:#}");
            all_measured = false;
        }
    }
    remove(&folder)?;
    Ok(all_measured)
}

fn remove(folder: &Path) -> Result<()> {
    match folder.exists() {
        true => Ok(fs::remove_dir_all(folder)?),
        false => Ok(()),
    }
}

/// Bytes in which each place can be told from its neighbours.
fn content(bytes: usize) -> Vec<u8> {
    let words = (0_u64..).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    words
        .take(bytes.div_ceil(8))
        .flatten()
        .take(bytes)
        .collect()
}
