//! QEMU has the server copy from LUN to LUN (EXTENDED COPY): the bytes do not come to it, and nodes
//! give them to each other.

use anyhow::{Context, Result, ensure};

use super::Disk;

const MIB: u64 = 1 << 20;

pub(super) fn check(disk: &Disk<'_>) -> Result<()> {
    let from = disk.lun("from", &[])?;
    let to = disk.lun("to", &[])?;
    let words = [
        "write -P 0x11 0 72M",
        "write -P 0x22 10M 4k",
        "write -P 0x33 100M 1M",
        "flush",
    ];
    qemu_io(disk, &from, &words)?;
    qemu_io(disk, &to, &["write -P 0x44 0 128M", "flush"])?;
    let (before, copied) = (moved_bytes(disk)?, copied_bytes(disk)?);
    let words = ["convert", "-n", "-C", "-f", "raw", "-O", "raw", &from, &to];
    disk.output("qemu-img", &words)?;
    let moved = moved_bytes(disk)? - before;
    ensure!(
        moved < 4 * MIB,
        "{moved} bytes went through the initiator, which was to have 73 MiB copied"
    );
    let after = copied_bytes(disk)?;
    let (by_nodes, through_here) = (after.0 - copied.0, after.1 - copied.1);
    ensure!(
        by_nodes >= 72 * MIB && through_here < by_nodes / 100,
        "nodes have given each other {by_nodes} bytes, and {through_here} went through the gateway"
    );
    let words = ["compare", "-f", "raw", "-F", "raw", &from, &to];
    disk.output("qemu-img", &words)?;
    let words = [
        "read -P 0x22 10M 4k",
        "read -P 0x11 11M 61M",
        "read -P 0 72M 28M",
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
    let [sent, received] = figures(
        disk,
        [
            "crossdock_iscsi_sent_bytes_total ",
            "crossdock_iscsi_received_bytes_total ",
        ],
    )?;
    Ok(sent + received)
}

/// Bytes that nodes have copied, and those that went through the gateway.
fn copied_bytes(disk: &Disk<'_>) -> Result<(u64, u64)> {
    let copied = "crossdock_iscsi_copied_bytes_total";
    let [by_nodes, through_here] = figures(
        disk,
        [
            &format!("{copied}{{way=\"nodes\"}} "),
            &format!("{copied}{{way=\"gateway\"}} "),
        ],
    )?;
    Ok((by_nodes, through_here))
}

fn figures<const N: usize>(disk: &Disk<'_>, names: [&str; N]) -> Result<[u64; N]> {
    let url = format!("http://{}/metrics", disk.up.admin);
    let told = disk.output("curl", &["-s", &url])?;
    let mut figures = [0; N];
    for (figure, name) in figures.iter_mut().zip(names) {
        let line = told.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_whitespace().nth(1));
        *figure = value
            .and_then(|value| value.parse().ok())
            .with_context(|| format!("no {name}"))?;
    }
    Ok(figures)
}
