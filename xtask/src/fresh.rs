//! `cargo xtask test --fresh`: proves the README's two commands on a fresh
//! machine, in a bare Debian 12 tree with a new clone of the last commit.
//!
//! The tree gets a C compiler, git and certificates, and this machine's Rust
//! toolchain by a bind mount. All mounts are made in a mount namespace of their
//! own and so end with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install::{as_root, debian};
use crate::paths::Paths;
use crate::process;
use crate::process::output;

/// What the tree has beside a minimal Debian.
const INCLUDED: &str = "--include=ca-certificates,gcc,libc6-dev,git";
/// The script that runs inside.
const SCRIPT: &str = include_str!("fresh.sh");

/// Makes the tree, runs both commands in it; `false` if one of them failed.
pub(crate) fn run(paths: &Paths) -> Result<bool> {
    let folder = paths.target.join("fresh");
    let base = base_tree(paths)?;
    // A copy for each run, so that nothing is left from the last one.
    let tree = folder.join("tree");
    process::run(as_root("rm").arg("-rf").arg(&tree))?;
    process::run(as_root("cp").arg("-a").arg(&base).arg(&tree))?;
    process::run(
        as_root("git")
            .args(["clone", "-q"])
            .arg(&paths.root)
            .arg(tree.join("crossdock")),
    )?;
    let script = folder.join("fresh.sh");
    fs::write(&script, SCRIPT)?;
    // What runs inside ends with this process, however it ends.
    let status = as_root("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--pid", "--fork", "--kill-child", "bash"])
        .arg(&script)
        .arg(&tree)
        .arg(toolchain()?)
        .arg(cargo_home()?)
        .status()
        .context("cannot start unshare")?;
    match status.code() {
        Some(0) => Ok(true),
        Some(_) => Ok(false),
        None => bail!("ended by a signal"),
    }
}

/// A bare tree, to be copied; made once.
pub(crate) fn base_tree(paths: &Paths) -> Result<PathBuf> {
    debian(&["debootstrap"])?;
    let folder = paths.target.join("fresh");
    let base = folder.join("base");
    if !base.join("made").exists() {
        process::run(as_root("rm").arg("-rf").arg(&base))?;
        fs::create_dir_all(&folder)?;
        process::run(
            as_root("debootstrap")
                .args(["--variant=minbase", INCLUDED, "bookworm"])
                .arg(&base),
        )?;
        process::run(as_root("touch").arg(base.join("made")))?;
    }
    Ok(base)
}

/// The folder of the toolchain in use, which has bin/cargo.
fn toolchain() -> Result<PathBuf> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(Path::new(&sysroot).to_owned())
}

/// Where this machine's registry settings lie, if it has any.
fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    Ok(PathBuf::from(home).join(".cargo"))
}
