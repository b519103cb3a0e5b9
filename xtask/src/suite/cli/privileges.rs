//! What a running server may do: its own files, and nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::job;
use super::program::{Up, crossdock, finish, text};
use crate::process::program;
use crate::suite::Stage;

/// Debian's "nobody" and its group.
const NOBODY: &str = "65534:65534";

/// A server that root has started is still root's, without a single capability in
/// any of its threads; it grows its files, and stops and starts nodes. So it is
/// with a port that only root may bind.
pub(super) fn dropped(stage: &Stage<'_>) -> Result<()> {
    for io in ["auto", "threads"] {
        let data = stage.folder.join(format!("dropped-{io}"));
        let arguments = ["up", "--nodes", "2", "--io", io, "--data", text(&data)?];
        let up = Up::start(stage, crossdock(stage, &arguments))?;
        job::write(&up, "before")?;
        has_nothing(up.pid(), "0")?;
        up.ask(stage, &["node", "stop", "1"])?.json(0)?;
        up.ask(stage, &["node", "start", "1"])?.json(0)?;
        job::verify(&up, "before")?;
        has_nothing(up.pid(), "0")?;
        up.stop()?;
    }
    let data = stage.folder.join("dropped-auto");
    // In a network of its own the port is free.
    let mut command = program("unshare");
    command.args([
        "--net",
        "--",
        "sh",
        "-c",
        "ip link set lo up && exec \"$@\"",
        "sh",
    ]);
    command.arg(stage.paths.release_binary());
    command.args(["up", "--data", text(&data)?]);
    let up = Up::start_at(stage, command, "127.0.0.1:999", "127.0.0.1:0")?;
    has_nothing(up.pid(), "0")?;
    up.stop()?;
    Ok(())
}

/// `--user`: a new data directory is that user's, and so is all that comes later;
/// one of somebody else is refused with the way out. A user that there is not is
/// wrong usage.
pub(super) fn another_user(stage: &Stage<'_>) -> Result<()> {
    let public = std::env::temp_dir().join(format!("crossdock-user-{}", std::process::id()));
    fs::create_dir(&public)?;
    let checked = as_nobody(stage, &public);
    fs::remove_dir_all(&public)?;
    checked?;
    let unknown = finish(stage, &["up", "--user", "no-such-user"])?;
    unknown.expect(2, &["no-such-user", "/etc/passwd"])
}

fn as_nobody(stage: &Stage<'_>, public: &Path) -> Result<()> {
    let data = public.join("data");
    let data = text(&data)?;
    let arguments = ["up", "--nodes", "2", "--user", NOBODY, "--data", data];
    for round in ["first", "second"] {
        let up = Up::start(stage, crossdock(stage, &arguments))?;
        has_nothing(up.pid(), "65534")?;
        job::write(&up, round)?;
        job::verify(&up, "first")?;
        up.stop()?;
    }
    let mut find = Command::new("find");
    let others = crate::process::output(find.args([data, "!", "-uid", "65534"]))?;
    ensure!(others.is_empty(), "not the user's: {others}");
    let foreign = public.join("foreign");
    fs::create_dir(&foreign)?;
    let refused = finish(stage, &["up", "--user", NOBODY, "--data", text(&foreign)?])?;
    refused.expect(1, &["belongs to user 0", "chown -R 65534:65534"])
}

/// Looks at all threads of a process.
fn has_nothing(pid: u32, uid: &str) -> Result<()> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next())
                .with_context(|| format!("{name} is not told"))
        };
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            let bits = field(set)?;
            ensure!(
                bits.chars().all(|digit| digit == '0'),
                "{set} {bits}:\n{status}"
            );
        }
        ensure!(field("NoNewPrivs:")? == "1", "it could get more:\n{status}");
        ensure!(field("Uid:")? == uid, "not user {uid}:\n{status}");
    }
    Ok(())
}
