//! A folder tree as a source tree looks, the same on each machine: many small
//! files, some large, links, modes and names of all kinds.

use std::fs::{self, File, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::Result;

/// Files in the tree.
const FILES: u64 = 2400;
/// Files of one folder.
const FILES_PER_FOLDER: u64 = 60;
/// Every so many files, one is larger than the small-file threshold.
const LARGE_EVERY: u64 = 80;

/// Makes the tree at `root`, unless it is there.
pub(crate) fn make(root: &Path) -> Result<()> {
    if root.exists() {
        return Ok(());
    }
    // Made beside and renamed, so that what is there is whole.
    let half = root.with_extension("half");
    if half.exists() {
        fs::remove_dir_all(&half)?;
    }
    for number in 0..FILES {
        let depth = number / FILES_PER_FOLDER;
        let folder = half.join(format!("part-{}/module-{depth}", depth % 7));
        fs::create_dir_all(&folder)?;
        let path = folder.join(file_name(number));
        write_file(&path, number)?;
        match number % 97 {
            0 => fs::hard_link(&path, folder.join(format!("hard-{number}")))?,
            1 => symlink(file_name(number), folder.join(format!("link-{number}")))?,
            2 => symlink("../nowhere", folder.join(format!("dangling-{number}")))?,
            3 => fs::set_permissions(&path, Permissions::from_mode(0o755))?,
            4 => fs::create_dir(folder.join(format!("empty-{number}")))?,
            _ => {}
        }
    }
    fs::rename(half, root)?;
    Ok(())
}

fn file_name(number: u64) -> String {
    match number % 50 {
        0 => format!("ünïcode-{number}.txt"),
        1 => format!("with space {number}.md"),
        2 => format!(".hidden-{number}"),
        3 => format!("{}-{number}", "long".repeat(50)),
        _ => format!("source-{number}.rs"),
    }
}

/// Text-like lines up to a length that most often is small.
fn write_file(path: &Path, number: u64) -> Result<()> {
    let mut random = Random(number + 1);
    let length = if number % LARGE_EVERY == 5 {
        random.below(2_000_000)
    } else {
        // Squared: half of all files are smaller than 5 KB, some are empty.
        let root = random.below(140);
        root * root
    };
    let mut file = BufWriter::new(File::create(path)?);
    let mut written = 0;
    while written < length {
        let line = format!("{:016x} line of {number}\n", random.next());
        let take = line.len().min(usize::try_from(length - written)?);
        file.write_all(&line.as_bytes()[..take])?;
        written += u64::try_from(take)?;
    }
    file.flush()?;
    Ok(())
}

/// A small generator (xorshift64*), so that the tree needs no dependency.
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    const fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }
}
