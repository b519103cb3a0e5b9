//! The console's bundle: built by npm from registry/admin/console, checked in,
//! and proved to be fresh.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::install;
use crate::paths::Paths;
use crate::process::run;

/// What a build makes.
const FILES: [&str; 4] = [
    "console.css",
    "console.js",
    "index.html",
    "uPlot-LICENSE.txt",
];

/// The console's sources.
pub(crate) fn sources(paths: &Paths) -> PathBuf {
    paths.root.join("registry/admin/console")
}

/// Builds the bundle into the checkout.
pub(crate) fn generate(paths: &Paths) -> Result<()> {
    let built = build(paths)?;
    let checked_in = sources(paths).join("dist");
    fs::create_dir_all(&checked_in)?;
    for file in FILES {
        fs::copy(built.join("dist").join(file), checked_in.join(file))?;
    }
    println!("wrote {}", checked_in.display());
    Ok(())
}

/// Builds the bundle elsewhere and compares it with what is checked in.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    let built = build(paths)?;
    for file in FILES {
        let fresh = fs::read(built.join("dist").join(file))?;
        let checked_in = fs::read(sources(paths).join("dist").join(file))?;
        ensure!(
            fresh == checked_in,
            "registry/admin/console/dist/{file} is not what its sources make: cargo xtask gen console"
        );
    }
    Ok(())
}

/// Builds in a copy of the sources, whose folder it returns: the checkout stays
/// as it is.
pub(crate) fn build(paths: &Paths) -> Result<PathBuf> {
    install::node()?;
    let folder = paths.target.join("console");
    for part in ["src", "dist"] {
        let old = folder.join(part);
        if old.exists() {
            fs::remove_dir_all(&old)?;
        }
        fs::create_dir_all(&old)?;
    }
    let from = sources(paths);
    let top = [
        "package.json",
        "package-lock.json",
        "tsconfig.json",
        "build.mjs",
        "test.mjs",
    ];
    for file in top {
        fs::copy(from.join(file), folder.join(file))?;
    }
    for entry in fs::read_dir(from.join("src"))? {
        let entry = entry?;
        fs::copy(entry.path(), folder.join("src").join(entry.file_name()))?;
    }
    if !is_installed(&folder)? {
        run(npm(&folder).args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]))?;
        fs::copy(
            folder.join("package-lock.json"),
            folder.join("installed.json"),
        )?;
    }
    for script in ["check", "build"] {
        let mut npm = npm(&folder);
        run(npm.args(["run", "--silent", script]).stdout(Stdio::null()))
            .with_context(|| format!("npm run {script}"))?;
    }
    Ok(folder)
}

/// Whether the packages of this very lock file are there.
fn is_installed(folder: &Path) -> Result<bool> {
    let installed = fs::read(folder.join("installed.json")).unwrap_or_default();
    let wanted = fs::read(folder.join("package-lock.json"))?;
    Ok(installed == wanted && folder.join("node_modules").exists())
}

fn npm(folder: &Path) -> Command {
    let mut npm = Command::new("npm");
    npm.current_dir(folder);
    npm
}
