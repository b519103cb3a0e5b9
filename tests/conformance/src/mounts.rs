//! MOUNT version 3 (RFC 1813 appendix I).

use anyhow::{Result, bail, ensure};
use crossdock_nfs3::Path;
use crossdock_nfs3::mount::{Call, Reply, Status};

use crate::hand::{Eye, MOUNT, call};
use crate::runner::{Check, Stage, check};

pub(crate) const CHECKS: &[Check] = &[
    check("MNT of a path gives what LOOKUP finds", paths),
    check("MNT of what is not there is NOENT", not_there),
    check("MNT of what is no directory is NOTDIR", no_directory),
    check("MNT with .. or NUL is INVAL", dots),
    check(
        "MNT of names and paths that are too long is NAMETOOLONG",
        too_long,
    ),
    check("EXPORT lists the root", exports),
    check("DUMP, UMNT and UMNTALL are answered", forgetting),
];

fn mnt(stage: &Stage<'_>, path: &[u8]) -> Result<Result<Vec<u8>, Status>> {
    match stage.client()?.call_mount(&Call::Mnt(Path(path)))? {
        Reply::Mnt(outcome) => Ok(outcome.map(|mounted| mounted.root.as_bytes().to_vec())),
        other => bail!("{other:?}"),
    }
}

fn refused(stage: &Stage<'_>, path: &[u8], status: Status) -> Result<()> {
    let found = mnt(stage, path)?;
    ensure!(found == Err(status), "{}: {found:?}", path.escape_ascii());
    Ok(())
}

fn paths(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let sub = client.mkdir(&stage.directory, "sub", 0o700)?;
    let low = client.mkdir(&sub, "low", 0o700)?;
    let name = &stage.name;
    for (path, expected) in [
        ("/".to_owned(), &stage.root),
        ("//".to_owned(), &stage.root),
        (format!("/{name}"), &stage.directory),
        (format!("/{name}/"), &stage.directory),
        (format!("/{name}/sub"), &sub),
        (format!("//{name}/.//sub/low"), &low),
    ] {
        let found = mnt(stage, path.as_bytes())?;
        ensure!(
            found.as_deref() == Ok(expected.as_bytes()),
            "{path}: {found:?}"
        );
    }
    Ok(())
}

fn not_there(stage: &Stage<'_>) -> Result<()> {
    let path = format!("/{}/absent/low", stage.name);
    refused(stage, b"/absent", Status::NoEnt)?;
    refused(stage, path.as_bytes(), Status::NoEnt)
}

fn no_directory(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    client.create(&stage.directory, "file", 0o644)?;
    client.symlink(&stage.directory, "symlink", b"/")?;
    for name in ["file", "symlink", "file/low", "symlink/low"] {
        let path = format!("/{}/{name}", stage.name);
        refused(stage, path.as_bytes(), Status::NotDir)?;
    }
    Ok(())
}

fn dots(stage: &Stage<'_>) -> Result<()> {
    for path in [&b"/.."[..], b"/../etc", b"/a/../..", b"/\0", b"/a\0b"] {
        refused(stage, path, Status::Inval)?;
    }
    Ok(())
}

fn too_long(stage: &Stage<'_>) -> Result<()> {
    let name = [b"/".to_vec(), vec![b'x'; 256]].concat();
    refused(stage, &name, Status::NameTooLong)?;
    let path = b"/x".repeat(2048);
    refused(stage, &path, Status::NameTooLong)?;
    refused(stage, &b"/x".repeat(2047), Status::NoEnt)
}

fn exports(stage: &Stage<'_>) -> Result<()> {
    let Reply::Export(exports) = stage.client()?.call_mount(&Call::Export)? else {
        bail!("no list");
    };
    let has_root = exports.iter().any(|export| export.path[..] == b"/"[..]);
    ensure!(has_root, "{exports:?}");
    // By hand: a list of paths with lists of groups.
    let mut wire = crate::wire::Wire::connect(stage.address)?;
    let reply = wire.exchange(&call(3, MOUNT, 3, 5).0)?;
    let mut eye = Eye(&reply);
    eye.success(3)?;
    while eye.u32()? == 1 {
        ensure!(eye.opaque()?.starts_with(b"/"), "no path");
        while eye.u32()? == 1 {
            eye.opaque()?;
        }
    }
    eye.end()
}

fn forgetting(stage: &Stage<'_>) -> Result<()> {
    let mut client = stage.client()?;
    let dumped = client.call_mount(&Call::Dump)?;
    ensure!(matches!(dumped, Reply::Dump(_)), "{dumped:?}");
    for path in ["/", "/absent", ""] {
        let reply = client.call_mount(&Call::Umnt(Path(path.as_bytes())))?;
        ensure!(reply == Reply::Umnt, "{reply:?}");
    }
    let reply = client.call_mount(&Call::Umntall)?;
    ensure!(reply == Reply::Umntall, "{reply:?}");
    // A handle is as good after that: who mounts is nobody's state.
    client.getattr(&stage.root)?;
    Ok(())
}
