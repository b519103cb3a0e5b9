//! What the rules of an export forbid.

use anyhow::{Result, bail, ensure};
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, Path, Status, mount};

use crate::client::Client;
use crate::operations::{at, commit, fifo, guarded, link, mkdir, mode, setattr, symlink, write};
use crate::runner::{Check, Stage, with_servers};

pub(crate) const CHECKS: &[Check] = &[
    with_servers(
        "a read-only export answers ROFS to every change, and is read",
        read_only,
    ),
    with_servers("RENAME and LINK between two exports are XDEV", across),
    with_servers(
        "MNT of an export that lets others in only is MNT3ERR_ACCES",
        not_admitted,
    ),
];

/// Names of documentation: nobody has this address.
const NOWHERE: &str = "192.0.2.1";

fn read_only(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("read-only", &["--nodes", "1"])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let inside = client.mkdir(&root, "inside", 0o777)?;
    let file = client.create(&inside, "file", 0o644)?;
    client.mkdir(&inside, "full", 0o755)?;
    client.accepts(&write(&file, 0, b"text", StableHow::FileSync))?;
    let names = client.names(&inside)?;
    server.administer(&["export", "add", "/inside", "--access", "ro"])?;
    let directory = client.mount("/inside")?;
    let file = client.lookup(&directory, "file")?;
    let changes = [
        setattr(&file, mode(0o600)),
        write(&file, 0, b"else", StableHow::Unstable),
        guarded(at(&directory, "new"), 0o644),
        mkdir(at(&directory, "new"), 0o755),
        symlink(at(&directory, "new"), b"there"),
        fifo(at(&directory, "new")),
        Call::Remove(at(&directory, "file")),
        Call::Rmdir(at(&directory, "full")),
        Call::Rename(call::Rename {
            source: at(&directory, "file"),
            target: at(&directory, "new"),
        }),
        link(&file, at(&directory, "new")),
        commit(&file),
    ];
    for change in &changes {
        client.refuses(Status::Rofs, change)?;
    }
    ensure!(
        client.read(&file, 0, 100)?.data.to_bytes() == b"text"[..],
        "not read"
    );
    ensure!(client.names(&directory)? == names, "names have changed");
    server.stop()?;
    stage.clear("read-only")
}

fn across(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("across", &["--nodes", "1"])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    client.mkdir(&root, "inner", 0o777)?;
    let file = client.create(&root, "file", 0o644)?;
    server.administer(&["export", "add", "/inner"])?;
    let inner = client.mount("/inner")?;
    client.refuses(Status::XDev, &link(&file, at(&inner, "new")))?;
    let rename = Call::Rename(call::Rename {
        source: at(&root, "file"),
        target: at(&inner, "new"),
    });
    client.refuses(Status::XDev, &rename)?;
    server.stop()?;
    stage.clear("across")
}

fn not_admitted(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("admission", &["--nodes", "1"])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    client.mkdir(&root, "others", 0o777)?;
    server.administer(&["export", "add", "/others", "--allow", NOWHERE])?;
    match client.call_mount(&mount::Call::Mnt(Path(b"/others")))? {
        mount::Reply::Mnt(Err(mount::Status::Acces)) => {}
        other => bail!("{other:?}"),
    }
    server.stop()?;
    stage.clear("admission")
}
