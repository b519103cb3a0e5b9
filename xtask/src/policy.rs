//! Policy: licences and sources of dependencies, by cargo-deny from deny.toml;
//! and every promise of docs/semantics.md has its test.

use std::process::Command;

use anyhow::Result;

use crate::install;
use crate::paths::Paths;
use crate::process::run;
use crate::semantics;

/// Checks the promises, and all dependencies against deny.toml. The advisory database is left
/// out: it is a download that a machine without the internet cannot make.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    let promises = semantics::check(&paths.root)?;
    println!("{promises} promises have their tests");
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
