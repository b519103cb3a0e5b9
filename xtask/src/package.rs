//! `cargo xtask package`: a Debian package and a tarball of the released program
//! with its unit, its configuration and its documents, and their checksums, in
//! target/package. Made with what each Debian machine has (dpkg-deb, tar, strip):
//! a tool from the registry would take longer to build than all of this.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::paths::Paths;
use crate::process::{output, run};

/// Who answers for the package.
const MAINTAINER: &str = "Crossdock contributors <crossdock@users.noreply.github.com>";

/// What was made.
pub(crate) struct Packages {
    pub(crate) deb: PathBuf,
    pub(crate) tarball: PathBuf,
    pub(crate) sums: PathBuf,
}

/// Builds the program and packs it.
pub(crate) fn run_command(paths: &Paths) -> Result<bool> {
    let mut cargo = crate::process::cargo();
    cargo.args(["build", "--release", "--bin", "crossdock"]);
    run(cargo.current_dir(&paths.root))?;
    let packages = make(paths)?;
    for path in [&packages.deb, &packages.tarball, &packages.sums] {
        println!("{}", path.display());
    }
    Ok(true)
}

/// Packs the program that is built.
pub(crate) fn make(paths: &Paths) -> Result<Packages> {
    let folder = paths.target.join("package");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let root = folder.join("root");
    let version = env!("CARGO_PKG_VERSION");
    install_files(paths, &root)?;

    let name = format!("crossdock-{version}-{}-linux", std::env::consts::ARCH);
    let tarball = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "--sort=name"]);
    tar.arg(format!("--transform=s,^\\.,{name},"));
    tar.arg("-czf").arg(&tarball).arg("-C").arg(&root).arg(".");
    run(&mut tar)?;

    control(paths, &root, version)?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let deb = folder.join(format!("crossdock_{version}_{architecture}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zxz", "--build"]);
    run(dpkg.arg(&root).arg(&deb))?;

    let file_name = |path: &Path| path.file_name().map(ToOwned::to_owned);
    let names = [&deb, &tarball].map(|path| file_name(path).unwrap_or_default());
    let text = output(Command::new("sha256sum").args(names).current_dir(&folder))?;
    let sums = folder.join("SHA256SUMS");
    fs::write(&sums, text + "\n")?;
    Ok(Packages { deb, tarball, sums })
}

/// Everything at its place.
fn install_files(paths: &Paths, root: &Path) -> Result<()> {
    let place = |from: &Path, to: &str, mode: u32| -> Result<PathBuf> {
        let to = root.join(to);
        let folder = to.parent().context("no folder")?;
        fs::create_dir_all(folder)?;
        fs::copy(from, &to).with_context(|| format!("{} is missing", from.display()))?;
        fs::set_permissions(&to, Permissions::from_mode(mode))?;
        Ok(to)
    };
    let binary = place(&paths.release_binary(), "usr/bin/crossdock", 0o755)?;
    // Names for backtraces stay; where in the source is left to who builds it.
    run(Command::new("strip").arg("--strip-debug").arg(&binary))?;
    let deploy = paths.root.join("deploy");
    place(
        &deploy.join("crossdock.service"),
        "lib/systemd/system/crossdock.service",
        0o644,
    )?;
    place(
        &deploy.join("crossdock.toml"),
        "etc/crossdock/crossdock.toml",
        0o644,
    )?;
    let documents = "usr/share/doc/crossdock";
    for name in ["README.md", "CHANGELOG.md", "ARCHITECTURE.md"] {
        place(
            &paths.root.join(name),
            &format!("{documents}/{name}"),
            0o644,
        )?;
    }
    place(
        &paths.root.join("LICENSE"),
        &format!("{documents}/copyright"),
        0o644,
    )?;
    for entry in fs::read_dir(paths.root.join("docs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.file_name().context("no name")?.to_string_lossy();
            place(&path, &format!("{documents}/docs/{name}"), 0o644)?;
        }
    }
    Ok(())
}

/// What dpkg wants to know.
fn control(paths: &Paths, root: &Path, version: &str) -> Result<()> {
    let folder = root.join("DEBIAN");
    let kib = output(Command::new("du").args(["-sk"]).arg(root))?;
    let kib = kib.split_whitespace().next().unwrap_or("0").to_owned();
    fs::create_dir_all(&folder)?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    fs::write(
        folder.join("control"),
        format!(
            "Package: crossdock\n\
             Version: {version}\n\
             Architecture: {architecture}\n\
             Maintainer: {MAINTAINER}\n\
             Installed-Size: {kib}\n\
             Depends: libc6 (>= 2.36), libgcc-s1, passwd\n\
             Suggests: nfs-common\n\
             Section: net\n\
             Priority: optional\n\
             Homepage: https://github.com/crossdock/crossdock\n\
             Description: network storage system for unmodified NFS clients\n \
             One pool of storage nodes that keep checksummed objects on plain disks or\n \
             files, managers that keep names and attributes, and a gateway through which\n \
             any NFSv3 client mounts the whole as one file system.\n"
        ),
    )?;
    fs::write(folder.join("conffiles"), "/etc/crossdock/crossdock.toml\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        let to = folder.join(script);
        fs::copy(paths.root.join("deploy/debian").join(script), &to)?;
        fs::set_permissions(&to, Permissions::from_mode(0o755))?;
    }
    Ok(())
}
