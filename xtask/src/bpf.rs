//! The redirector's program for the kernel: compiled from C, checked in, so that a build
//! needs no compiler for it, and proved to be fresh.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::install;
use crate::paths::Paths;
use crate::process::run;

/// What compiles it, and takes out what only debuggers need: other versions make other code.
const PACKAGES: [&str; 3] = ["clang-14", "llvm-14", "linux-libc-dev"];
const SOURCE: &str = "redirector.bpf.c";
const OBJECT: &str = "redirector.bpf.o";

fn sources(paths: &Paths) -> PathBuf {
    paths.root.join("io/bpf/src")
}

/// Compiles the program into the checkout.
pub(crate) fn generate(paths: &Paths) -> Result<()> {
    let object = sources(paths).join(OBJECT);
    compile(paths, &object)?;
    println!("wrote {}", object.display());
    Ok(())
}

/// Compiles it elsewhere and compares it with what is checked in.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    let object = paths.target.join(OBJECT);
    compile(paths, &object)?;
    ensure!(
        fs::read(&object)? == fs::read(sources(paths).join(OBJECT))?,
        "io/bpf/src/{OBJECT} is not what {SOURCE} makes: cargo xtask gen bpf"
    );
    Ok(())
}

fn compile(paths: &Paths, object: &Path) -> Result<()> {
    install::debian(&PACKAGES)?;
    let flags = "-target bpf -mcpu=v3 -O2 -g -Wall -Werror -isystem /usr/include/x86_64-linux-gnu";
    let mut compiler = Command::new("clang-14");
    compiler.args(flags.split(' '));
    // The folder's name would be in the object.
    compiler.arg("-fdebug-compilation-dir=.");
    compiler.args(["-c", SOURCE, "-o"]).arg(object);
    run(compiler.current_dir(sources(paths)))?;
    run(Command::new("llvm-strip-14").arg("-g").arg(object))
}
