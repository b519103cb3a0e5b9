//! Dependency policy: licences and sources, by cargo-deny from deny.toml.

use std::process::Command;

use anyhow::Result;

use crate::install;
use crate::paths::Paths;
use crate::process::run;

/// Checks all dependencies against deny.toml. The advisory database is left
/// out: it is a download that a machine without the internet cannot make.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    let deny = install::cargo_deny()?;
    run(Command::new(deny)
        .args([
            "check",
            "--hide-inclusion-graph",
            "bans",
            "licenses",
            "sources",
        ])
        .current_dir(&paths.root))
}
