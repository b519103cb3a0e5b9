//! QEMU has the server copy from LUN to LUN (EXTENDED COPY): the bytes do not come to it.

use anyhow::{Context, Result, ensure};

use super::Disk;

const MIB: u64 = 1 << 20;

pub(super) fn check(disk: &Disk<'_>) -> Result<()> {
    let from = disk.lun("from", &[])?;
    let to = disk.lun("to", &[])?;
    let words = [
        "write -P 0x11 0 24M",
        "write -P 0x22 10M 4k",
        "write -P 0x33 100M 1M",
        "flush",
    ];
    qemu_io(disk, &from, &words)?;
    qemu_io(disk, &to, &["write -P 0x44 0 128M", "flush"])?;
    let before = moved_bytes(disk)?;
    let words = ["convert", "-n", "-C", "-f", "raw", "-O", "raw", &from, &to];
    disk.output("qemu-img", &words)?;
    let moved = moved_bytes(disk)? - before;
    ensure!(
        moved < 4 * MIB,
        "{moved} bytes went through the initiator, which was to have 25 MiB copied"
    );
    let words = ["compare", "-f", "raw", "-F", "raw", &from, &to];
    disk.output("qemu-img", &words)?;
    let words = [
        "read -P 0x22 10M 4k",
        "read -P 0x11 11M 13M",
        "read -P 0 24M 76M",
        "read -P 0x33 100M 1M",
    ];
    qemu_io(disk, &to, &words)
}

fn qemu_io(disk: &Disk<'_>, url: &str, commands: &[&str]) -> Result<()> {
    let mut words = vec!["-f", "raw", url];
    words.extend(commands.iter().flat_map(|command| ["-c", command]));
    let said = disk.output("qemu-io", &words)?;
    ensure!(!said.contains("failed"), "{said}");
    Ok(())
}

/// Bytes that initiators have sent and got.
fn moved_bytes(disk: &Disk<'_>) -> Result<u64> {
    let url = format!("http://{}/metrics", disk.up.admin);
    let told = disk.output("curl", &["-s", &url])?;
    let figure = |name: &str| {
        let line = told.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_whitespace().nth(1));
        value
            .and_then(|value| value.parse::<u64>().ok())
            .with_context(|| format!("no {name}"))
    };
    Ok(figure("crossdock_iscsi_sent_bytes_total ")?
        + figure("crossdock_iscsi_received_bytes_total ")?)
}
