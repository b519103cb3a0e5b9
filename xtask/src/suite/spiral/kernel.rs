//! A Linux kernel mounts a gateway over TCP and reads what nodes send, in a connection of its own:
//! it is behind the client's host, which routes.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::doors::{Doors, with_doors};
use crate::process::{output, program};
use crate::rig::network::{GUEST, LINK, Network};
use crate::suite::Stage;
use crate::suite::kernel::{in_guest, mount_variables};

const NFS_PORT: u16 = 2049;
/// Files beside the one that is there, and how often the guest reads all.
const FILES: [&str; 3] = ["big.bin", "second.bin", "third.bin"];
const ROUNDS: u64 = 2;

pub(in crate::suite) fn run_kernel(stage: &Stage<'_>) -> Result<()> {
    with_doors(stage, "suite-kernel-spiral", |doors| read(stage, doors))
}

fn read(stage: &Stage<'_>, doors: &mut Doors<'_, '_>) -> Result<()> {
    doors.have_all_injected()?;
    let client = Network::of_host(&doors.client()?.netns);
    client.add(&LINK)?;
    doors.cluster.route_by(&doors.client()?.name, LINK.guest)?;
    let mut sums = Vec::new();
    for (number, name) in (0..).zip(FILES) {
        // Each has other bytes at the same places.
        let mut content = doors.content().to_vec();
        content.rotate_left(number * 4_194_301);
        if number > 0 {
            doors.put(&format!("/{name}"), &content)?;
        }
        sums.push(format!("{}  {name}", sum(stage, &content)?));
    }
    let door = SocketAddr::new(doors.http.ip(), NFS_PORT);
    let mut variables = mount_variables(door);
    variables.extend([("FILES", FILES.join(" ")), ("SUMS", sums.join("\n"))]);
    let bytes = ROUNDS * FILES.len() as u64 * doors.content().len() as u64;
    let what = format!("a kernel at {GUEST}");
    doors.counted(&what, ROUNDS * FILES.len() as u64, |_| {
        in_guest(stage, &client, "spiral.sh", variables, |_| Ok(()))?;
        Ok(bytes)
    })?;
    Ok(())
}

/// What sha256sum says of bytes.
fn sum(stage: &Stage<'_>, content: &[u8]) -> Result<String> {
    let file = stage.folder.join("summed");
    fs::write(&file, content)?;
    let said = output(program("sha256sum").arg(&file))?;
    let sum = said.split(' ').next();
    Ok(sum.context("no sum")?.to_owned())
}
