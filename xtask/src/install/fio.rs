//! fio with its engine for libiscsi, which Debian's package is built without: built from Debian's
//! source of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{cache, debian, find_file};
use crate::process::{output, run};

/// What it is built with.
const PACKAGES: [&str; 5] = ["dpkg-dev", "gcc", "libc6-dev", "libiscsi-dev", "make"];

/// Engines and libraries that nobody asks for here.
const WITHOUT: [&str; 7] = ["rdma", "rados", "rbd", "http", "gfapi", "numa", "pmem"];

/// Where Debian's lists of packages are named.
const SOURCES: &str = "/etc/apt/sources.list";
const MORE_SOURCES: &str = "/etc/apt/sources.list.d";

/// The program, built unless the cache has it.
pub(crate) fn fio_with_libiscsi() -> Result<PathBuf> {
    debian(&PACKAGES)?;
    let program = cache()?.join("tools/fio-libiscsi");
    if program.exists() {
        return Ok(program);
    }
    println!("building fio with its engine for libiscsi");
    let folder = cache()?.join("fio");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let source = folder.join("source");
    fs::create_dir_all(&source)?;
    download(&folder, &source)?;
    let archive = find_file(&source, "fio_", ".orig.tar.gz")?.context("no source of fio")?;
    let mut unpack = Command::new("tar");
    unpack.arg("xzf").arg(archive).arg("--strip-components=1");
    run(unpack.current_dir(&source))?;
    let without = WITHOUT.map(|name| format!("--disable-{name}"));
    let mut configure = Command::new(source.join("configure"));
    configure.args(["--enable-libiscsi", "--disable-native"]);
    run(quiet(configure.args(without).current_dir(&source)))?;
    let mut make = Command::new("make");
    run(quiet(make.args(["-j2", "fio"]).current_dir(&source)))?;
    let built = source.join("fio");
    let engines = output(Command::new(&built).arg("--enghelp"))?;
    ensure!(
        engines.contains("libiscsi"),
        "fio was built without libiscsi: {engines}"
    );
    fs::create_dir_all(program.parent().context("no folder")?)?;
    fs::rename(&built, &program)?;
    fs::remove_dir_all(&folder)?;
    Ok(program)
}

/// Downloads the source with lists of its own, so that the machine's stay as they are.
fn download(folder: &Path, source: &Path) -> Result<()> {
    let parts = folder.join("parts");
    for empty in ["parts", "lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(empty))?;
    }
    write_sources(&parts)?;
    let option = |name: &str, path: &Path| format!("{name}={}", path.display());
    let options = [
        "Dir::Etc::SourceList=/dev/null".to_owned(),
        option("Dir::Etc::SourceParts", &parts),
        option("Dir::State::Lists", &folder.join("lists")),
        option("Dir::Cache", &folder.join("cache")),
    ];
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.arg("-q");
        for option in &options {
            apt.args(["-o", option]);
        }
        apt
    };
    // One list of somebody else's may lack sources; whether Debian's are there is seen next.
    let _ = quiet(apt().arg("update")).status()?;
    let mut get = apt();
    get.args(["source", "--download-only", "fio"]);
    run(quiet(get.current_dir(source)))
}

/// The machine's lists of packages, as lists of sources, in both forms that apt reads.
fn write_sources(parts: &Path) -> Result<()> {
    let mut files = vec![PathBuf::from(SOURCES)];
    if let Ok(entries) = fs::read_dir(MORE_SOURCES) {
        for entry in entries {
            files.push(entry?.path());
        }
    }
    for file in files.iter().filter(|file| file.exists()) {
        let ends = file.extension().and_then(|it| it.to_str());
        let text = fs::read_to_string(file)?;
        let lines = text.lines().filter_map(|line| match ends {
            Some("sources") if line.starts_with("Types:") => Some("Types: deb-src".to_owned()),
            Some("sources") => Some(line.to_owned()),
            Some("list") => Some(format!("deb-src {}", line.strip_prefix("deb ")?)),
            _ => None,
        });
        let lines: Vec<String> = lines.collect();
        let name = file.file_name().context("no name")?;
        fs::write(parts.join(name), lines.join("\n") + "\n")?;
    }
    Ok(())
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::null()).stderr(Stdio::null())
}
