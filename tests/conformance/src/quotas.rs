//! Trees with a quota.

use anyhow::{Result, ensure};
use crossdock_nfs3::call::{self, StableHow};
use crossdock_nfs3::{Call, Status};

use crate::client::Client;
use crate::operations::{
    at, commit, fifo, getattr, guarded, link, mkdir, setattr, size, symlink, write,
};
use crate::runner::{Check, Stage, with_servers};

pub(crate) const CHECKS: &[Check] = &[
    with_servers(
        "a used-up quota answers DQUOT to what would grow, to root too, and to nothing else",
        used_up,
    ),
    with_servers(
        "a bulk WRITE beyond a quota is DQUOT before anything of it is written, and a removal makes room",
        bulk,
    ),
    with_servers(
        "FSSTAT in a tree with a quota shows the tree, outside the volume",
        shown,
    ),
    with_servers("RENAME and LINK out of and into a tree are XDEV", closed),
    with_servers(
        "a quota counts what was there before, and counts the same after a kill",
        counted,
    ),
];

const KIB: u64 = 1024;

fn used_up(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("used-up", &["--nodes", "1"])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let home = client.mkdir(&root, "home", 0o777)?;
    let file = client.create(&home, "file", 0o666)?;
    client.accepts(&write(&file, 0, &[1; 4096], StableHow::FileSync))?;
    server.administer(&["quota", "set", "/home", "--bytes", "8192", "--files", "2"])?;
    let user = Client::connect(server.address())?.of(1000, 1000, &[]);
    for mut client in [client, user] {
        let new = || at(&home, "new");
        let calls = [
            guarded(new(), 0o644),
            mkdir(new(), 0o755),
            symlink(new(), b"there"),
            fifo(new()),
            write(&file, 4096, &[2; 1], StableHow::FileSync),
            write(&file, 4095, &[2; 2], StableHow::Unstable),
            setattr(&file, size(4097)),
        ];
        for call in &calls {
            client.refuses(Status::DQuot, call)?;
        }
        ensure!(client.getattr(&file)?.size_bytes == 4096, "it has grown");
        client.accepts(&write(&file, 0, &[3; 4096], StableHow::Unstable))?;
        client.accepts(&commit(&file))?;
        client.accepts(&link(&file, at(&home, "second")))?;
        client.accepts(&Call::Remove(at(&home, "second")))?;
    }
    server.administer(&["quota", "remove", "/home"])?;
    let mut client = Client::connect(server.address())?;
    client.accepts(&guarded(at(&home, "new"), 0o644))?;
    server.stop()?;
    stage.clear("used-up")
}

fn bulk(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("bulk", &["--nodes", "1"])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let home = client.mkdir(&root, "home", 0o777)?;
    server.administer(&["quota", "set", "/home", "--bytes", "1M"])?;
    let large = client.create(&home, "large", 0o644)?;
    let half = vec![5; 512 << 10];
    client.accepts(&write(&large, 0, &half, StableHow::Unstable))?;
    client.refuses(
        Status::DQuot,
        &write(&large, 512 * KIB, &half, StableHow::Unstable),
    )?;
    ensure!(
        client.getattr(&large)?.size_bytes == 512 * KIB,
        "it has grown"
    );
    client.accepts(&write(&large, 256 * KIB, &half, StableHow::FileSync))?;
    let second = client.create(&home, "second", 0o644)?;
    client.refuses(
        Status::DQuot,
        &write(&second, 0, &half, StableHow::FileSync),
    )?;
    client.accepts(&setattr(&large, size(100)))?;
    client.accepts(&write(&second, 0, &half, StableHow::FileSync))?;
    client.accepts(&Call::Remove(at(&home, "second")))?;
    client.accepts(&write(&large, 0, &half, StableHow::FileSync))?;
    server.stop()?;
    stage.clear("bulk")
}

fn shown(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("shown", &["--nodes", "1", "--size", "64M"])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let home = client.mkdir(&root, "home", 0o777)?;
    let file = client.create(&home, "file", 0o644)?;
    client.accepts(&write(&file, 0, &[1; 10_000], StableHow::FileSync))?;
    server.administer(&["quota", "set", "/home", "--bytes", "1M", "--files", "10"])?;
    for handle in [&home, &file] {
        let stat = client.fsstat(handle)?;
        let free = (1 << 20) - 4096 - 12_288;
        ensure!(
            (stat.total_bytes, stat.free_bytes, stat.available_bytes) == (1 << 20, free, free),
            "{stat:?}"
        );
        ensure!(
            (stat.total_files, stat.free_files, stat.available_files) == (10, 8, 8),
            "{stat:?}"
        );
    }
    // More than the volume has is not available.
    server.administer(&["quota", "set", "/home", "--bytes", "1T", "--files", "none"])?;
    let (inside, outside) = (client.fsstat(&file)?, client.fsstat(&root)?);
    ensure!(inside.total_bytes == 1 << 40, "{inside:?}");
    ensure!(
        outside.total_bytes < 1 << 30 && inside.available_bytes <= outside.total_bytes,
        "{inside:?} {outside:?}"
    );
    ensure!(inside.total_files == outside.total_files, "{inside:?}");
    server.stop()?;
    stage.clear("shown")
}

fn closed(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("closed", &["--nodes", "1"])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let home = client.mkdir(&root, "home", 0o777)?;
    let inside = client.create(&home, "inside", 0o644)?;
    let outside = client.create(&root, "outside", 0o644)?;
    server.administer(&["quota", "set", "/home", "--files", "100"])?;
    let rename = |from, to| {
        Call::Rename(call::Rename {
            source: from,
            target: to,
        })
    };
    let refused = [
        rename(at(&home, "inside"), at(&root, "new")),
        rename(at(&root, "outside"), at(&home, "new")),
        link(&inside, at(&root, "new")),
        link(&outside, at(&home, "new")),
    ];
    for call in &refused {
        client.refuses(Status::XDev, call)?;
    }
    client.accepts(&rename(at(&root, "home"), at(&root, "moved")))?;
    client.accepts(&getattr(&inside))?;
    // Its quota goes with it, and is named by where it lies now.
    server.administer(&["quota", "remove", "/moved"])?;
    client.accepts(&rename(at(&home, "inside"), at(&root, "new")))?;
    server.stop()?;
    stage.clear("closed")
}

fn counted(stage: &Stage<'_>) -> Result<()> {
    let mut server = stage.own_server("counted", &["--nodes", "1"])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let home = client.mkdir(&root, "home", 0o777)?;
    for number in 0..20 {
        let inner = client.mkdir(&home, format!("directory-{number}"), 0o755)?;
        let file = client.create(&inner, "file", 0o644)?;
        let length = 10_000 * number;
        client.accepts(&write(&file, 0, &vec![7; length], StableHow::FileSync))?;
    }
    server.administer(&["quota", "set", "/home", "--files", "42", "--bytes", "1G"])?;
    let before = client.fsstat(&home)?;
    ensure!(
        (before.total_files, before.free_files) == (42, 1),
        "{before:?}"
    );
    let sizes = (0..20u64).map(|number| (10_000 * number).next_multiple_of(4096));
    let used = 21 * 4096 + sizes.sum::<u64>();
    ensure!(
        before.free_bytes == (1 << 30) - used,
        "{before:?}, not {used}"
    );
    server.kill()?;
    let server = stage.own_server("counted", &["--nodes", "1"])?;
    let mut client = Client::connect(server.address())?;
    let root = client.mount("/")?;
    let home = client.lookup(&root, "home")?;
    let after = client.fsstat(&home)?;
    ensure!(
        (after.total_bytes, after.free_bytes, after.free_files)
            == (before.total_bytes, before.free_bytes, before.free_files),
        "{after:?}, before {before:?}"
    );
    client.accepts(&guarded(at(&home, "last"), 0o644))?;
    client.refuses(Status::DQuot, &guarded(at(&home, "one too many"), 0o644))?;
    server.stop()?;
    stage.clear("counted")
}
