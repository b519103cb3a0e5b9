//! What cannot be done is refused with the reason, a next step and an exit
//! code: 2 for wrong usage, 1 for all else.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Gid, Uid, chown};

use super::program::{Up, crossdock, finish, finish_command, text};
use super::{job, pool, service};
use crate::process::{program, run};
use crate::suite::Stage;

/// Debian's user nobody, who owns nothing.
const NOBODY: u32 = 65_534;

pub(super) fn wrong_usage(stage: &Stage<'_>) -> Result<()> {
    let unused = stage.folder.join("unused");
    let unused = text(&unused)?;
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--wrong"], &["--wrong"]),
        (&["--nfs", "localhost"], &["localhost", "127.0.0.1:2049"]),
        (
            &["--lbone-location", "on the moon"],
            &["lbone_location", "on the moon", "lat="],
        ),
        (&["--ibp-rate", "0"], &["ibp_rate", "1"]),
        (&["--disks", "a,b"], &["disks", "mirror"]),
        (&["--nodes", "0"], &["1 to 64"]),
        (&["--nodes", "2", "--replicas", "3"], &["replicas", "(2)"]),
        (&["--size", "10Q"], &["10Q", "20G"]),
        (&["--log", "==="], &["log filter", "info"]),
    ];
    for (arguments, words) in cases {
        let arguments = [&["up", "--data", unused], arguments].concat();
        finish(stage, &arguments)?.expect(2, words)?;
    }
    for arguments in [&[][..], &["frob"], &["node", "stop"], &["fsck", "--full"]] {
        finish(stage, arguments)?.expect(2, &["Usage"])?;
    }
    finish(stage, &["--version"])?.expect(0, &[])?;
    ensure!(!Path::new(unused).exists(), "wrong usage has made data");
    // Nobody is there to ask.
    let nobody = ["status", "--json", "--admin", "127.0.0.1:1"];
    let answer = finish(stage, &nobody)?;
    answer.expect(1, &["127.0.0.1:1", "crossdock up", "--admin"])?;
    ensure!(answer.json(1)?["error"].is_string(), "{}", answer.stdout);
    let nothing = ["fsck", "--node", text(&stage.folder)?];
    finish(stage, &nothing)?.expect(1, &["holds no journal", "node-0"])
}

/// A mistake in the file is shown with line and column, in words and as JSON;
/// a good file is explained.
pub(super) fn configuration(stage: &Stage<'_>) -> Result<()> {
    let path = stage.folder.join("crossdock.toml");
    let name = text(&path)?;
    let check = ["config", "check", name, "--json"];
    let cases = [
        ("nodes = 4\n  replica = 2\n", (2, 3), "unknown field"),
        ("nodes = \"four\"\n", (1, 9), "invalid type"),
        ("\n\nnfs = \"localhost\"\n", (3, 7), "127.0.0.1:2049"),
        ("nodes = 4\nnodes = 5\n", (2, 1), "duplicate"),
    ];
    for (content, (line, column), word) in cases {
        fs::write(&path, content)?;
        let place = format!("line {line}, column {column}");
        finish(stage, &check[..3])?.expect(2, &[name, &place, word])?;
        let answer = finish(stage, &check)?.json(2)?;
        let found = (&answer["line"], &answer["column"]);
        ensure!(found == (&line.into(), &column.into()), "{answer}");
        finish(stage, &["up", "--config", name])?.expect(2, &[&place])?;
    }
    fs::write(&path, "nfs = \"off\"\nhttp = \"off\"\nsize = \"20G\"\n")?;
    let meaning = finish(stage, &check)?.json(0)?;
    ensure!(
        meaning["nfs"] == "off"
            && meaning["size"] == 20_u64 << 30
            && meaning["admin"] == "127.0.0.1:7070",
        "{meaning}"
    );
    finish(stage, &check[..3])?.expect(0, &[])?;
    finish(stage, &["config", "check", "/nowhere"])?.expect(1, &["cannot read", "/nowhere"])
}

/// A file system without room for new nodes is refused; one that has become
/// full still serves what is there.
pub(super) fn no_room(stage: &Stage<'_>) -> Result<()> {
    let mounted = Mounted::tmpfs(stage.folder.join("small"), "100M")?;
    let data = mounted.0.join("data");
    let arguments = ["up", "--data", text(&data)?, "--nfs", "127.0.0.1:0"];
    let words = ["4 nodes need", "free some space", "--nodes", "--data"];
    finish(stage, &arguments)?.expect(1, &words)?;

    let mounted = Mounted::tmpfs(stage.folder.join("full"), "300M")?;
    let data = mounted.0.join("data");
    let arguments = ["up", "--nodes", "1", "--data", text(&data)?];
    let up = Up::start(stage, crossdock(stage, &arguments))?;
    job::write(&up, "before")?;
    up.stop()?;
    fill(&mounted.0.join("filler"))?;
    let up = Up::start(stage, crossdock(stage, &arguments))?;
    job::verify(&up, "before")?;
    // Killed: what it cannot write back stays in the journal.
    drop(up);
    fs::remove_file(mounted.0.join("filler"))?;
    let up = Up::start(stage, crossdock(stage, &arguments))?;
    job::verify(&up, "before")?;
    job::write(&up, "after")?;
    up.stop()?;
    Ok(())
}

/// Data of somebody else is refused; one's own is served without any privilege.
pub(super) fn other_user(stage: &Stage<'_>) -> Result<()> {
    // Where everybody may go, with a copy of the binary that everybody may run.
    let public =
        Removed(std::env::temp_dir().join(format!("crossdock-cli-{}", std::process::id())));
    fs::create_dir(&public.0)?;
    fs::set_permissions(&public.0, fs::Permissions::from_mode(0o755))?;
    let binary = public.0.join("crossdock");
    fs::copy(stage.paths.release_binary(), &binary)?;
    let (foreign, own) = (public.0.join("foreign"), public.0.join("own"));
    fs::create_dir(&foreign)?;
    fs::create_dir(&own)?;
    fs::write(foreign.join("registry"), "")?;
    fs::set_permissions(foreign.join("registry"), fs::Permissions::from_mode(0o600))?;
    chown(
        &own,
        Some(Uid::from_raw(NOBODY)),
        Some(Gid::from_raw(NOBODY)),
    )?;
    let advice = ["Permission denied", "owns the data directory", "--data"];
    finish_command(stage, as_nobody(&binary, &foreign)?)?.expect(1, &advice)?;
    let advice = ["Permission denied", "cannot make", "--data"];
    finish_command(stage, as_nobody(&binary, &foreign.join("new"))?)?.expect(1, &advice)?;
    let up = Up::start(stage, as_nobody(&binary, &own)?)?;
    job::write(&up, "mine")?;
    job::verify(&up, "mine")?;
    up.stop()?;
    Ok(())
}

/// `crossdock up --data DATA` without any privilege.
fn as_nobody(binary: &Path, data: &Path) -> Result<Command> {
    let id = NOBODY.to_string();
    let mut command = program("setpriv");
    command
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        // Changing the user forgets what `program` has asked for.
        .args(["--pdeathsig", "KILL", "--"])
        .arg(binary)
        .args([
            "up",
            "--nodes",
            "1",
            "--iscsi",
            "off",
            "--data",
            text(data)?,
        ])
        .current_dir("/");
    Ok(command)
}

/// A second process on the same data, and one on the same ports, are refused,
/// and the first one goes on.
pub(super) fn taken(stage: &Stage<'_>) -> Result<()> {
    let up = service::start(stage)?;
    let (data, other) = (pool(stage), stage.folder.join("other"));
    let (data, other, nfs) = (text(&data)?, text(&other)?, up.nfs.to_string());
    let free = "127.0.0.1:0";
    let cases: [([&str; 3], &[&str]); 3] = [
        ([data, free, free], &["another crossdock serves", "--data"]),
        ([other, &nfs, free], &["nfs door", &nfs, "--nfs", "in use"]),
        (
            [other, free, &up.admin],
            &["admin door", &up.admin, "--admin", "in use"],
        ),
    ];
    for ([data, nfs, admin], words) in cases {
        let arguments = ["up", "--data", data, "--nfs", nfs, "--admin", admin];
        finish(stage, &arguments)?.expect(1, words)?;
    }
    let node = pool(stage).join("node-0");
    finish(stage, &["fsck", "--node", text(&node)?])?
        .expect(1, &["running crossdock", "stop it"])?;
    job::verify(&up, "first")?;
    up.stop()?;
    Ok(())
}

/// What was fixed when the data directory was made stays so.
pub(super) fn other_settings(stage: &Stage<'_>) -> Result<()> {
    let data = pool(stage);
    for (flag, value) in [("--nodes", "4"), ("--replicas", "2")] {
        let arguments = ["up", "--data", text(&data)?, flag, value];
        finish(stage, &arguments)?.expect(1, &["was made with", "not", flag, "--data"])?;
    }
    Ok(())
}

/// A store that a newer version wrote, or that is damaged, is not touched.
pub(super) fn unknown_format(stage: &Stage<'_>) -> Result<()> {
    // Both copies of the superblock: magic, then the version.
    const VERSIONS_AT: [u64; 2] = [4, 4096 + 4];
    /// What the checksum covers as well.
    const STORES_AT: [u64; 2] = [16, 4096 + 16];
    let journal = pool(stage).join("node-1/journal");
    let file = OpenOptions::new().read(true).write(true).open(journal)?;
    let data = pool(stage);
    let arguments = [
        "up",
        "--data",
        text(&data)?,
        "--nfs",
        "127.0.0.1:0",
        "--admin",
        "off",
    ];
    let node = pool(stage).join("node-1");
    let fsck = ["fsck", "--node", text(&node)?];
    let cases: [(_, &[&str]); 2] = [
        (
            VERSIONS_AT,
            &["node-1", "format version 99", "use the version"],
        ),
        (STORES_AT, &["node-1", "damaged", "crossdock fsck"]),
    ];
    for (places, words) in cases {
        let mut right = [0];
        file.read_exact_at(&mut right, places[0])?;
        let write = |byte: u8| {
            places
                .iter()
                .try_for_each(|&at| file.write_all_at(&[byte], at))
        };
        // Anything else than what is there.
        write(if right[0] == 99 { 98 } else { 99 })?;
        finish(stage, &arguments)?.expect(1, words)?;
        let report = finish(stage, &fsck)?;
        ensure!(
            report.code == 1 && report.stdout.contains("superblock"),
            "{}",
            report.stdout
        );
        write(right[0])?;
    }
    let up = service::start(stage)?;
    job::verify(&up, "first")?;
    up.stop()?;
    Ok(())
}

/// A file system of its own, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: PathBuf, size: &str) -> Result<Self> {
        fs::create_dir(&at)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]);
        run(mount.arg(&at))?;
        Ok(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a server that hangs must not keep it.
        if let Err(error) = run(Command::new("umount").arg("--lazy").arg(&self.0)) {
            eprintln!("{error:#}");
        }
    }
}

/// A folder that is removed when dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Writes until the file system is full.
fn fill(path: &Path) -> Result<()> {
    let file = fs::File::create(path)?;
    let zeros = vec![0; 64 << 10];
    let mut offset = 0;
    loop {
        match file.write_at(&zeros, offset) {
            Ok(length) => offset += length as u64,
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error).context("cannot fill the file system"),
        }
    }
}
